"""The links of a page that a visitor could see, and those that are there for machines only.

What is judged is the page's own markup: attributes and inline styles of a link and of what it stands in. A style sheet
can hide more, and a script can show more; no style sheet is read and no script is run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .core.memory.texts import may_be_decoy
from .core.origins import origin_key
from .findings import memory_behind, memory_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Spider
    from scrapy.http import TextResponse

# What a browser with scripts shows nothing of, though no visitor is deceived by it.
_NOT_SHOWN = frozenset({"template", "noscript", "script", "style", "head", "iframe", "object"})
_MOST_DECOYS_OF_A_PAGE = 64

_DECLARATION = re.compile(r"\s*([\w-]+)\s*:\s*([^;]*)")
_ZERO = re.compile(r"[+-]?(?:0+(?:\.0*)?|\.0+)(?:[a-z]+|%)?")
_LENGTH = re.compile(r"(-?\d+(?:\.\d+)?)(px|em|rem|vw|vh|%|pt|cm|in)?")
# No page is that wide, so what is moved by this much is beside it; in pixels, other units about so.
_OFF_SCREEN = 900.0
_PIXELS = {"px": 1.0, "pt": 1.3, "%": 10.0, "vw": 10.0, "vh": 10.0, "em": 16.0, "rem": 16.0, "cm": 38.0, "in": 96.0}
_MOVES = frozenset({"left", "top", "right", "bottom", "margin-left", "margin-top", "text-indent"})


class _Sight(NamedTuple):
    """What an element passes on to what stands in it."""

    hidden: bool = False
    """Nothing in it can be seen."""
    invisible: bool = False
    """``visibility``: what stands in it can be shown again."""
    aria_hidden: bool = False
    not_shown: bool = False


def visible_links(response: TextResponse, spider: Spider | None = None, *, record: bool = True) -> list[str]:
    """Return the URLs that a visitor of a page could follow, in the order of the page, each once.

    Links that the markup hides from people are left out. Those to the page's own site are recorded as decoys, and later
    requests for them are dropped; but no homepage or robots.txt, and no URL that this page or another one shows. That
    goes to the memory of ``spider``, by default of the crawl that got the response; ``record=False`` records nothing.
    """
    visible: dict[str, None] = {}
    hidden: dict[str, None] = {}
    for url, sight in _links(response):
        if sight.hidden or sight.invisible:
            if not sight.not_shown:
                hidden[url] = None
        elif not sight.not_shown:
            visible[url] = None
    if record:
        seen = {url.partition("#")[0] for url in visible} | {response.url.partition("#")[0]}
        decoys = [url for url in hidden if _may_be_decoy(url, response.url) and url.partition("#")[0] not in seen]
        shown = [url for url in visible if origin_key(url) == origin_key(response.url)]
        _record(response, spider, shown, decoys[:_MOST_DECOYS_OF_A_PAGE])
    return list(visible)


def _record(response: TextResponse, spider: Spider | None, shown: list[str], decoys: list[str]) -> None:
    memory = memory_behind(response) if spider is None else memory_of(spider)
    if memory is None:
        return
    for url in shown:
        memory.note_shown(url)
    marked = sum(memory.mark_decoy(url, found=True) for url in decoys)
    if marked and spider is not None:
        spider.crawler.stats.inc_value("pacing/memory/decoys", marked)


def _may_be_decoy(url: str, page: str) -> bool:
    """Return whether a page may tell of a URL; no page can have another site's URLs dropped."""
    return origin_key(url) == origin_key(page) and may_be_decoy(url)


def _links(response: TextResponse) -> Iterator[tuple[str, _Sight]]:
    root = response.selector.root
    if not hasattr(root, "iter"):
        return
    # By hand rather than by recursion: a page may be nested as deeply as it likes.
    pending: list[tuple[Any, _Sight]] = [(root, _Sight())]
    while pending:
        element, outer = pending.pop()
        if not isinstance(element.tag, str):
            continue
        sight = _sight(element, outer)
        if element.tag in {"a", "area"} and element.get("href") is not None:
            url = _url(response, element.get("href"))
            if url is not None:
                yield url, sight._replace(hidden=sight.hidden or _is_aria_hidden_link(element, sight))
        pending.extend((child, sight) for child in reversed(element))


def _url(response: TextResponse, href: str) -> str | None:
    try:
        url = response.urljoin(href.strip())
    except ValueError:
        return None
    return url if origin_key(url) is not None else None


def _is_aria_hidden_link(element: Any, sight: _Sight) -> bool:
    """Return whether a link is kept from assistive technology and from the keyboard, so from everybody."""
    return sight.aria_hidden and (element.get("tabindex") or "").strip() == "-1"


def _sight(element: Any, outer: _Sight) -> _Sight:
    style = _declarations(element.get("style"))
    visibility = style.get("visibility")
    invisible = outer.invisible if visibility is None else visibility in {"hidden", "collapse"}
    aria = (element.get("aria-hidden") or "").strip().lower()
    closed_dialog = element.tag == "dialog" and element.get("open") is None
    return _Sight(
        hidden=outer.hidden or element.get("hidden") is not None or _hides(style),
        invisible=invisible,
        aria_hidden=outer.aria_hidden or aria == "true",
        not_shown=outer.not_shown or element.tag in _NOT_SHOWN or closed_dialog,
    )


def _declarations(style: str | None) -> dict[str, str]:
    if not style:
        return {}
    return {
        name.lower(): value.lower().replace("!important", "").strip()
        for name, value in (found.groups() for found in map(_DECLARATION.match, style.split(";")) if found)
    }


def _hides(style: dict[str, str]) -> bool:
    # Not opacity: pages that fade in when they are scrolled to start with it.
    return bool(style) and (
        style.get("display") == "none"
        or _is_zero(style.get("font-size"))
        or _has_no_size(style)
        or style.get("transform", "").replace(" ", "") in {"scale(0)", "scale(0,0)"}
        or any(abs(_pixels(style.get(name))) >= _OFF_SCREEN for name in _MOVES)
    )


def _has_no_size(style: dict[str, str]) -> bool:
    width = _is_zero(style.get("width")) or _is_zero(style.get("max-width"))
    height = _is_zero(style.get("height")) or _is_zero(style.get("max-height"))
    # What sticks out of a box is seen, unless the box clips it.
    clips = style.get("overflow", "").startswith(("hidden", "clip"))
    return (width and height) or (clips and (width or height))


def _is_zero(value: str | None) -> bool:
    return value is not None and _ZERO.fullmatch(value) is not None


def _pixels(value: str | None) -> float:
    found = _LENGTH.fullmatch((value or "")[:32])
    if found is None:
        return 0.0
    return float(found[1]) * _PIXELS.get(found[2] or "px", 1.0)
