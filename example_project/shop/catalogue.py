"""The books on sale."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

_OPENED = datetime(2024, 3, 1, 9, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Title:
    """One book on sale; ``modified`` is when its page, cover and stock were last changed."""

    name: str
    author: str
    year: int
    price: float
    in_stock: int
    modified: datetime

    @property
    def slug(self) -> str:
        """The name as it stands in URLs."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


_SHELF = (
    ("Pride and Prejudice", "Jane Austen", 1813),
    ("Frankenstein", "Mary Shelley", 1818),
    ("The Count of Monte Cristo", "Alexandre Dumas", 1844),
    ("Jane Eyre", "Charlotte Brontë", 1847),
    ("Wuthering Heights", "Emily Brontë", 1847),
    ("Moby-Dick", "Herman Melville", 1851),
    ("Great Expectations", "Charles Dickens", 1861),
    ("Les Misérables", "Victor Hugo", 1862),
    ("Journey to the Centre of the Earth", "Jules Verne", 1864),
    ("Alice in Wonderland", "Lewis Carroll", 1865),
    ("Crime and Punishment", "Fyodor Dostoevsky", 1866),
    ("Little Women", "Louisa May Alcott", 1868),
    ("Middlemarch", "George Eliot", 1871),
    ("Anna Karenina", "Leo Tolstoy", 1878),
    ("Treasure Island", "Robert Louis Stevenson", 1883),
    ("A Study in Scarlet", "Arthur Conan Doyle", 1887),
    ("The Picture of Dorian Gray", "Oscar Wilde", 1890),
    ("The Time Machine", "H. G. Wells", 1895),
    ("Dracula", "Bram Stoker", 1897),
    ("Heart of Darkness", "Joseph Conrad", 1899),
)

CATALOGUE = tuple(
    Title(
        name,
        author,
        year,
        price=round(5.99 + number % 7, 2),
        in_stock=number * 5 % 13,
        modified=_OPENED + timedelta(days=number, minutes=17 * number),
    )
    for number, (name, author, year) in enumerate(_SHELF)
)
BY_SLUG = {title.slug: title for title in CATALOGUE}

PER_LIST = 7
"""Books on one list page."""
LISTS = -(-len(CATALOGUE) // PER_LIST)

PAGES = 1 + LISTS + 3 * len(CATALOGUE)
"""What a full crawl fetches: the homepage, the lists, and of every book its page, cover and stock."""
