"""The site that the example crawls: a bookshop on three origins, in a process of its own.

The shop serves pages, a second origin the covers, a third one a JSON API that is easily asked too much.
It has nothing to do with Scrapy, and it writes down everything that it sees.
"""
