"""What scrapy-pacing knows of time, arithmetic and HTTP.

Nothing in this package imports Scrapy, Twisted or asyncio, waits, or opens a connection. A clock and a
random source are passed in, so every rule can be tested by moving a fake clock by hand. import-linter keeps
it that way (``make lint``).
"""
