"""Reads every book of the shop: its page, its cover, and its price and stock.

Nothing in here knows of pacing. One line helps it: ``meta={"navigation": False}`` on what a browser would load inside
a page (an image, an API call) rather than visit. And one question saves work: a book whose page has not moved since the
last run is not read again; only its stock is, from the address that the last run has seen behind the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import scrapy

from bookshop.items import Book
from scrapy_pacing import PacedSpiderMixin, RevalidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.http import Response, TextResponse

SUB_RESOURCE = {"navigation": False}


class BooksSpider(PacedSpiderMixin, scrapy.Spider):
    """Start it with the shop's address: ``scrapy crawl books -a shop=http://127.0.0.1:8000``."""

    name = "books"

    def __init__(self, shop: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not shop:
            raise ValueError("the spider needs the shop's address: -a shop=http://127.0.0.1:8000")
        self.shop = shop

    async def start(self) -> AsyncIterator[scrapy.Request]:
        # Deep inside the shop, as crawls do; scrapy-pacing goes in by the homepage first.
        yield scrapy.Request(f"{self.shop}/books/", callback=self.parse_list)

    async def parse_list(self, response: TextResponse) -> AsyncIterator[scrapy.Request]:
        # The second one is forbidden by the shop's robots.txt; Scrapy drops it.
        for request in response.follow_all(css='a[rel=next], nav a[href="/staff/"]', callback=self.parse_list):
            yield request
        for link in response.css("main li a"):
            url = response.urljoin(link.attrib["href"])
            stock = self.known_stock(url)
            if stock and await self.has_not_moved(url):
                book = Book(title=link.css("::text").get(""), url=url, unchanged=True)
                yield response.follow(stock, callback=self.parse_stock, meta=SUB_RESOURCE, cb_kwargs={"book": book})
            else:
                yield response.follow(url, callback=self.parse_book)

    async def has_not_moved(self, url: str) -> bool:
        """Ask the shop whether a page has changed since the last run; if that fails, the page is read again."""
        try:
            return await self.unchanged(url)
        except RevalidationError as error:
            self.logger.info("%s", error)
            return False

    def known_stock(self, url: str) -> str | None:
        """Return where the last run has found the stock of a book, or None."""
        slug = url.rpartition("/")[2]
        return next((known for known in self.endpoints(url) if known.endswith(f"/{slug}")), None)

    def parse_book(self, response: TextResponse) -> Iterator[scrapy.Request]:
        if not response.css("h1"):
            self.logger.warning("Sent to %s instead of a book", response.url)
            return
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
