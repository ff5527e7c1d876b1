"""What the spider brings home."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Book:
    """One book of the shop, put together from its page and the stock API."""

    title: str
    author: str
    year: int
    url: str
    cover: str
    """The file that the cover is saved to."""
    price: float | None = None
    in_stock: int | None = None
