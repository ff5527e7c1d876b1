"""Reads every book of the shop: its page, its cover, and its price and stock.

Nothing in here knows of pacing. The one line that helps it is ``meta={"navigation": False}`` on what a browser would
load inside a page (an image, an API call) rather than visit.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import scrapy

from bookshop.items import Book

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response, TextResponse

SUB_RESOURCE = {"navigation": False}


class BooksSpider(scrapy.Spider):
    """Start it with the shop's address: ``scrapy crawl books -a shop=http://127.0.0.1:8000``."""

    name = "books"

    def __init__(self, shop: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not shop:
            raise ValueError("the spider needs the shop's address: -a shop=http://127.0.0.1:8000")
        self.shop = shop

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.shop, callback=self.parse_home)

    def parse_home(self, response: TextResponse) -> Iterator[scrapy.Request]:
        # One of these links is forbidden by the shop's robots.txt; Scrapy drops it.
        yield from response.follow_all(css="nav a", callback=self.parse_list)

    def parse_list(self, response: TextResponse) -> Iterator[scrapy.Request]:
        yield from response.follow_all(css="main li a", callback=self.parse_book)
        yield from response.follow_all(css="a[rel=next]", callback=self.parse_list)

    def parse_book(self, response: TextResponse) -> Iterator[scrapy.Request]:
        cover = response.urljoin(response.css("main img::attr(src)").get(""))
        file = Path(self.settings["COVERS_DIR"], cover.rpartition("/")[2])
        book = Book(
            title=response.css("h1::text").get(""),
            author=response.css(".author::text").get(""),
            year=int(response.css(".year::text").get("0")),
            url=response.url,
            cover=file.as_posix(),
        )
        yield scrapy.Request(cover, callback=self.save_cover, meta=SUB_RESOURCE, cb_kwargs={"file": file})
        yield response.follow(
            response.css("main::attr(data-stock)").get(""),
            callback=self.parse_stock,
            meta=SUB_RESOURCE,
            cb_kwargs={"book": book},
        )

    def save_cover(self, response: Response, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(response.body)

    def parse_stock(self, response: TextResponse, book: Book) -> Book:
        answer = response.json()
        book.price = answer["price"]
        book.in_stock = answer["in_stock"]
        return book
