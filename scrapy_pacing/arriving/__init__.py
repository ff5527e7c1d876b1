"""Arriving the way a visitor arrives: the trail of pages, and the homepage first.

`stamps` gives each request the headers that tell where it came from, `links` learns which page held its link, `doors`
records which homepages were visited, and `warmups` visits them.
"""
