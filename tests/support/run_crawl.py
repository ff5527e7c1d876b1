"""The process of a test's crawl: reads a job, runs its spiders, writes their stats and items."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from scrapy import signals
from scrapy.settings import Settings
from scrapy.utils.misc import load_object


def main(job_path: str) -> None:
    job = json.loads(Path(job_path).read_text())
    settings = Settings(job["settings"], priority="project")
    if settings.getbool("TWISTED_REACTOR_ENABLED", True):
        from scrapy.crawler import CrawlerProcess as Process
    else:
        from scrapy.crawler import AsyncCrawlerProcess as Process
    process = Process(settings)
    items: list[dict[str, Any]] = []
    stats: list[dict[str, Any]] = []

    def scraped(item: dict[str, Any], response: object, spider: Any) -> None:
        items.append({**item, "spider": spider.name})

    def opened(spider: Any) -> None:
        spider.cpu = time.process_time()

    def closed(spider: Any, reason: str) -> None:
        cpu = time.process_time() - spider.cpu
        stats.append({**spider.crawler.stats.get_stats(), "spider": spider.name, "reason": reason, "cpu": cpu})
        out = {"stats": stats[0], "all_stats": stats, "items": items}
        Path(job["out"]).write_text(json.dumps(out, default=str))

    def start(one: dict[str, Any]) -> Any:
        spider = load_object(one["spider"])
        if "settings" in one:
            spider = type(spider.__name__, (spider,), {"custom_settings": one["settings"]})
        crawler = process.create_crawler(spider)
        crawler.signals.connect(scraped, signal=signals.item_scraped, weak=False)
        crawler.signals.connect(opened, signal=signals.spider_opened, weak=False)
        crawler.signals.connect(closed, signal=signals.spider_closed, weak=False)
        return process.crawl(crawler, **one.get("arguments", {}))

    first, *others = job["spiders"]
    under_way = start(first)
    for one in others:
        if settings.getbool("TEST_SEQUENTIAL"):
            under_way.addCallback(lambda _, one=one: start(one))
        else:
            start(one)
    process.start()


if __name__ == "__main__":
    main(sys.argv[1])
