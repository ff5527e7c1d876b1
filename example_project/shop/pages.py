"""The shop's pages and pictures, as text and bytes."""

from __future__ import annotations

import struct
import zlib
from html import escape
from typing import TYPE_CHECKING

from shop.catalogue import CATALOGUE, LISTS, PER_LIST

if TYPE_CHECKING:
    from shop.catalogue import Title

# Staff pages are linked from everywhere, and forbidden to crawlers: an obedient one never asks for them.
ROBOTS = "User-agent: *\nDisallow: /staff/\n"

_FRAME = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body>
<nav><a href="/">Home</a> <a href="/books/">All books</a> <a href="/staff/">For staff</a></nav>
{body}
</body>
</html>
"""


def home() -> str:
    return _page("The bookshop", f"<main><p>{len(CATALOGUE)} books that have lasted.</p></main>")


def book_list(number: int) -> str:
    """Return list page ``number``, which counts from 1."""
    shown = CATALOGUE[(number - 1) * PER_LIST : number * PER_LIST]
    rows = "\n".join(f'<li><a href="/books/{title.slug}">{escape(title.name)}</a></li>' for title in shown)
    more = f'<a rel="next" href="/books/?page={number + 1}">More</a>' if number < LISTS else ""
    return _page(f"All books, page {number}", f"<main><ul>\n{rows}\n</ul>{more}</main>")


def book(title: Title, *, covers: str, api: str) -> str:
    """Return the page of one book; ``covers`` and ``api`` are the origins of its cover and its stock."""
    return _page(
        title.name,
        f'<main data-stock="{api}/stock/{title.slug}">'
        f'<img src="{covers}/{title.slug}.png" alt="">'
        f"<h1>{escape(title.name)}</h1>"
        f'<p class="author">{escape(title.author)}</p><p class="year">{title.year}</p></main>',
    )


def wall() -> str:
    return _page("Welcome", '<main><p>Please come in through <a href="/">the front door</a>.</p></main>')


def cover(title: Title) -> bytes:
    """Return a plain PNG (RFC 2083) of 60 by 90 pixels, in a colour that follows from the name."""
    colour = zlib.crc32(title.name.encode()).to_bytes(4, "big")[:3]
    rows = (b"\0" + colour * 60) * 90
    header = struct.pack(">IIBBBBB", 60, 90, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _page(title: str, body: str) -> str:
    return _FRAME.format(title=escape(title), body=body)
