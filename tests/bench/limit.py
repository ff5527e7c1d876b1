"""A site with a bucket of five requests a second (burst 5): what becomes of 200 pages."""

from __future__ import annotations

from tests.support.crawl import crawl
from tests.support.site import Bucket, Site

PAGES = 200
SETUPS = {
    "scrapy-pacing": ({"PACING_INTERVAL": 0.1}, True),
    "plain Scrapy": ({}, False),
    "AutoThrottle": ({"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.1}, False),
}


def main() -> None:
    print(f"   {PAGES} pages; {(PAGES - 5) / 5:.0f} s is the least possible")
    for retry_after in ("1", None):
        print(f"   Retry-After: {retry_after or 'none'}")
        for name, (settings, addon) in SETUPS.items():
            bucket = Bucket(5, 5, retry_after=retry_after)
            with Site(bucket) as site:
                urls = [site.url(f"/{n}") for n in range(PAGES)]
                result = crawl(*urls, settings={"LOG_LEVEL": "INFO", **settings}, addon=addon, timeout=600)
                seconds = site.log[-1].at - site.log[0].at
            lost = PAGES - len(result.ok())
            print(f"     {name:14} {lost:3} pages lost, {bucket.refused:4} refusals, {seconds:6.1f} s", flush=True)
