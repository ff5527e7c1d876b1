"""What a request is for, and what its Sec-Fetch headers say of it (W3C Fetch Metadata, as Chromium sends them).

1. The destination is the one that was named; else a navigation is for a ``document``, and what is fetched besides is
   told from its Accept header, then from the extension of its path; else it is ``empty``, as what a script fetches.
2. A browser navigates by GET and POST only, and asks for HTML then: any other method, or an Accept that begins with
   an image, a stylesheet, JSON and the like, is no navigation.
3. The mode follows from the destination.
4. The site is the worst relation on the whole redirect chain; ``none`` is for an address that was typed, and stays.
5. The headers go to potentially trustworthy targets only; Upgrade-Insecure-Requests goes with every navigation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from .sites import is_trustworthy, relation

if TYPE_CHECKING:
    from collections.abc import Sequence

# The destinations of the Fetch standard; its empty string is spelled as the header spells it.
_MODES = {
    "audio": "no-cors",
    "audioworklet": "cors",
    "document": "navigate",
    "embed": "navigate",
    "empty": "cors",
    "font": "cors",
    "frame": "navigate",
    "iframe": "navigate",
    "image": "no-cors",
    "json": "cors",
    "manifest": "cors",
    "object": "navigate",
    "paintworklet": "cors",
    "report": "cors",
    "script": "no-cors",
    "serviceworker": "same-origin",
    "sharedworker": "same-origin",
    "speculationrules": "cors",
    "style": "no-cors",
    "text": "cors",
    "track": "cors",
    "video": "no-cors",
    "webidentity": "no-cors",
    "worker": "same-origin",
    "xslt": "same-origin",
}
DESTINATIONS = frozenset(_MODES)

_OF_EXTENSION = {
    extension: destination
    for destination, extensions in {
        "image": "apng avif bmp cur gif ico jfif jpeg jpg jxl png svg tif tiff webp",
        "style": "css",
        "script": "cjs js mjs",
        "font": "eot otf ttf woff woff2",
        "video": "avi m4v mkv mov mp4 ogv webm",
        "audio": "aac flac m4a mp3 oga ogg opus wav",
        "track": "vtt",
        "manifest": "webmanifest",
    }.items()
    for extension in extensions.split()
}
_OF_TYPE = {
    "application/javascript": "script",
    "application/json": "empty",
    "application/manifest+json": "manifest",
    "application/x-ndjson": "empty",
    "text/css": "style",
    "text/event-stream": "empty",
    "text/javascript": "script",
    "text/vtt": "track",
}
_OF_TOP_LEVEL_TYPE = {"audio": "audio", "font": "font", "image": "image", "video": "video"}
_NAVIGATING_METHODS = frozenset({"GET", "POST"})
_LONGEST_ACCEPT = 256


def check_destination(dest: object) -> str:
    """Return a destination that somebody has named; raises ValueError if the Fetch standard has none of that name."""
    if dest == "":
        return "empty"
    if not isinstance(dest, str) or dest not in DESTINATIONS:
        raise ValueError(f"pacing_dest is {dest!r}; allowed: {', '.join(sorted(DESTINATIONS))}")
    return dest


def destination(
    url: str,
    *,
    method: str = "GET",
    navigation: bool = True,
    dest: str | None = None,
    accept: bytes | str | None = None,
) -> str:
    """Return what a request is for, in the words of Sec-Fetch-Dest.

    ``dest`` is what was named for it (checked by `check_destination`, which may raise ValueError), ``navigation``
    whether it is meant as one, ``accept`` its Accept header. Only a ``document`` can become the page in view.

    >>> destination("https://example.com/logo.png")
    'document'
    >>> destination("https://example.com/logo.png", navigation=False)
    'image'
    """
    if dest is not None:
        return check_destination(dest)
    asked_for = _of_accept(accept) if accept else None
    if asked_for is not None:
        return asked_for
    if navigation and method.upper() in _NAVIGATING_METHODS:
        return "document"
    return _of_path(url)


def mode_of(dest: str) -> str:
    """Return the mode in which a browser fetches for a destination of `DESTINATIONS`."""
    return _MODES[dest]


def site_of_chain(initiator: str | None, targets: Sequence[str | None]) -> str:
    """Return the worst relation between the initiator's origin and the origins of all hops, the last one included.

    None stands for an origin that is nobody's (``data:``, ``file:``), which is cross-site to all.
    """
    worst = "same-origin"
    for target in targets:
        if initiator is None or target is None:
            return "cross-site"
        related = relation(initiator, target)
        if related == "cross-site":
            return related
        if related == "same-site":
            worst = related
    return worst


def fetch_metadata(target: str, *, site: str, dest: str, user: bool) -> dict[str, str]:
    """Return Upgrade-Insecure-Requests and the Sec-Fetch headers of a request, in the order of a browser's.

    ``target`` is the origin of the request's URL, ``user`` whether a user's click or key began it.
    """
    mode = _MODES[dest]
    headers: dict[str, str] = {}
    if mode == "navigate":
        headers["Upgrade-Insecure-Requests"] = "1"
    if is_trustworthy(target):
        headers["Sec-Fetch-Site"] = site
        headers["Sec-Fetch-Mode"] = mode
        if user and mode == "navigate":
            headers["Sec-Fetch-User"] = "?1"
        headers["Sec-Fetch-Dest"] = dest
    return headers


def _of_accept(accept: bytes | str) -> str | None:
    """Return what an Accept header asks for in the first place, or None where that tells nothing."""
    text = accept[:_LONGEST_ACCEPT]
    return _of_first_type(text.decode("latin-1") if isinstance(text, bytes) else text)


@lru_cache(maxsize=256)
def _of_first_type(accept: str) -> str | None:
    first = accept.partition(",")[0].partition(";")[0].strip().lower()
    if first in _OF_TYPE:
        return _OF_TYPE[first]
    if first.endswith("+json"):
        return "empty"
    return _OF_TOP_LEVEL_TYPE.get(first.partition("/")[0])


def _of_path(url: str) -> str:
    path = url.partition("#")[0].partition("?")[0].partition("://")[2]
    name = path.rpartition("/")[2] if "/" in path else ""
    return _OF_EXTENSION.get(name.partition(";")[0].rpartition(".")[2].lower(), "empty")
