"""The Scrapy project: a spider that reads a bookshop, paced by scrapy-pacing."""
