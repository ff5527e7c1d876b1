"""What of a page's address the next server may see (W3C Referrer Policy, with Chromium as the measure).

1. Only an http or https page has an address to show, and never its userinfo or its fragment.
2. A header can't raise: an unknown word counts as absent, of several known words the last one counts.
3. Any https page to any http target is a downgrade, ``http://localhost`` included.
4. An address of more than 4096 bytes is shown as its origin only.
5. Cutting what was already cut gives no more than before, so a redirect chain is cut hop by hop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from .origins import origin_key
from .sites import is_web_origin

DEFAULT_POLICY = "strict-origin-when-cross-origin"
_FULL, _ORIGIN, _NONE = "full", "origin", "none"
# What is shown to the page's own origin, to another one, and where that is a downgrade.
_SHOWN = {
    "no-referrer": (_NONE, _NONE, _NONE),
    "no-referrer-when-downgrade": (_FULL, _FULL, _NONE),
    "origin": (_ORIGIN, _ORIGIN, _ORIGIN),
    "origin-when-cross-origin": (_FULL, _ORIGIN, _ORIGIN),
    "same-origin": (_FULL, _NONE, _NONE),
    "strict-origin": (_ORIGIN, _ORIGIN, _NONE),
    "strict-origin-when-cross-origin": (_FULL, _ORIGIN, _NONE),
    "unsafe-url": (_FULL, _FULL, _FULL),
}
POLICIES = frozenset(_SHOWN)
# What <meta name=referrer> said before the header existed (HTML standard, "referrer" metadata).
_LEGACY_WORDS = {
    "never": "no-referrer",
    "default": DEFAULT_POLICY,
    "always": "unsafe-url",
    "origin-when-crossorigin": "origin-when-cross-origin",
}
_LONGEST_REFERRER = 4096
_PATH_START = re.compile(r"[/?#]")
_NOT_IN_A_HEADER = re.compile(r"[^\x21-\x7e]+")

PolicyFields = str | bytes | Iterable[str | bytes]


def parse_referrer_policy(fields: PolicyFields) -> str:
    """Return the policy that Referrer-Policy fields name, or ``""`` where they name none.

    ``fields`` is one value or all values of the header, each of them a comma-separated list. Never raises.

    >>> parse_referrer_policy([b"no-referrer, unsafe-url", "something-new"])
    'unsafe-url'
    """
    if isinstance(fields, (str, bytes)):
        fields = (fields,)
    policy = ""
    for field in fields:
        text = field.decode("latin-1") if isinstance(field, bytes) else field
        for word in reversed(text.split(",")):
            token = word.strip(" \t\r\n").lower()
            if token in POLICIES:
                policy = token
                break
    return policy


def meta_referrer_policy(content: str) -> str:
    """Return the policy that ``<meta name=referrer content=...>`` names, or ``""``; it wins over the header."""
    word = content.strip().lower()
    return word if word in POLICIES else _LEGACY_WORDS.get(word, "")


def referrer_of(url: str) -> str | None:
    """Return a page's address as a Referer may carry it at most, or None where it has none to show.

    Without userinfo, fragment and default port, ASCII only. Never raises.

    >>> referrer_of("HTTP://user:pw@Example.com:80/a?b#c")
    'http://example.com/a?b'
    """
    url = url.strip()
    origin = origin_key(url)
    if origin is None or not is_web_origin(origin):
        return None
    rest = url.partition("://")[2]
    start = _PATH_START.search(rest)
    tail = rest[start.start() :].partition("#")[0] if start else ""
    if len(tail) > _LONGEST_REFERRER:
        return origin + "/"
    if _NOT_IN_A_HEADER.search(tail):
        tail = _NOT_IN_A_HEADER.sub(_escape, tail)
    full = origin + tail if tail.startswith("/") else f"{origin}/{tail}"
    return full if len(full) <= _LONGEST_REFERRER else origin + "/"


def cut_referrer(referrer: str, target: str | None, policy: str = "") -> str | None:
    """Return what a request to the origin ``target`` shows of ``referrer``, or None for nothing.

    ``referrer`` is an address as `referrer_of` makes it, ``target`` an origin as `origin_key` makes it. A policy that
    is empty or unknown counts as the default.

    >>> cut_referrer("https://example.com/list?page=2", "https://example.org")
    'https://example.com/'
    """
    if target is None:
        return None
    origin = referrer[: referrer.index("/", 8)]
    to_own, to_other, to_lesser = _SHOWN.get(policy) or _SHOWN[DEFAULT_POLICY]
    if origin == target:
        shown = to_own
    elif origin.startswith("https:") and not target.startswith("https:"):
        shown = to_lesser
    else:
        shown = to_other
    if shown == _NONE:
        return None
    return referrer if shown == _FULL else origin + "/"


def _escape(found: re.Match[str]) -> str:
    return quote(found[0].encode("utf-8", "replace"), safe="")
