"""The project's settings. All that has to do with pacing is in the first block."""

# One line switches everything on: the add-on puts scrapy-pacing's components where they belong.
ADDONS = {"scrapy_pacing.Addon": 500}

# Seconds between two requests to one site, on the average. Each gap is drawn anew, so no two are alike.
# Real sites deserve more than this; the default is 4 seconds.
PACING_INTERVAL = 0.3

# Once in this many gaps a reader stops to read. A short demonstration shows the rhythm better without.
PACING_PAUSE_PROBABILITY = 0

# A site that says 429 is asked more slowly from then on: at the pace that it names in Retry-After, or else at
# this many times the present interval. The stock API of the example does; watch its row in the table.
PACING_BACKOFF_FACTOR = 2.0

# A single site can have a pace of its own, by its host or origin. None here has: the crawl learns.
PACING_ORIGINS: dict[str, dict[str, float]] = {}  # such as {"api.example.com": {"interval": 10}}

# What is learned is kept here for the next run: paces, where the data is, what each page's version is. Without this line
# it is kept in .scrapy/pacing, beside scrapy.cfg; PACING_REMEMBER = False keeps nothing.
PACING_DATA_DIR = "output/memory"

# What is no business of pacing, but good manners all the same.
USER_AGENT = "bookshop-example"
ROBOTSTXT_OBEY = True

BOT_NAME = "bookshop"
SPIDER_MODULES = ["bookshop.spiders"]
NEWSPIDER_MODULE = "bookshop.spiders"
TELNETCONSOLE_ENABLED = False

# Where the books and their covers go.
FEEDS = {"output/books.jsonl": {"format": "jsonlines", "encoding": "utf-8", "overwrite": True}}
COVERS_DIR = "output/covers"
