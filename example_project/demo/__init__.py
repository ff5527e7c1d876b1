"""What ``run.py`` needs to open the shop, watch a crawl, and tell what the shop saw."""
