"""What the spider brings home."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Book:
    """One book of the shop, put together from its page and the stock API."""

    title: str
    url: str
    unchanged: bool = False
    """The page has not moved since the last run: what it says was read then, and only the stock is new."""
    author: str | None = None
    year: int | None = None
    cover: str | None = None
    """The file that the cover is saved to."""
    price: float | None = None
    in_stock: int | None = None
