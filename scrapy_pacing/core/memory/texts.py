"""Bounds on what a server can make long, and the form in which a URL is a key.

What is not to be kept is told by None or False; nothing raises, whatever the text. The same bounds hold for what is
recorded and for what a file says.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from scrapy_pacing.core.origins import origin_key

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_VALIDATOR = 1024
LONGEST_URL = 2048
LONGEST_NAME = 256
LONGEST_COOKIE = 4096
LONGEST_IDENTITY = 1024
MOST_VARYING = 16

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_CONTROL_TEXT = re.compile(r"[\x00-\x1f\x7f]")
# The way in, and the file that says what may be fetched: without its answer Scrapy fetches everything.
_NO_DECOYS = frozenset({"/", "/?", "/robots.txt"})


def kept_text(text: str | None, longest: int) -> str | None:
    """Return a text if it is not too long and can be written as UTF-8."""
    if text is None or len(text) > longest:
        return None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    return text


def fits(text: str | None, longest: int) -> bool:
    """Return whether `kept_text` would return it."""
    return kept_text(text, longest) is not None


def kept_validator(value: bytes | None) -> bytes | None:
    """Return a validator if it may be echoed: every byte as it came, or nothing.

    A bare ``*`` matches any page (RFC 9110 section 13.1.2), and a control character can't stand in a field.
    """
    if not value or len(value) > LONGEST_VALIDATOR or _CONTROL.search(value) or value.strip() == b"*":
        return None
    return value


def fits_header(text: str, longest: int) -> bool:
    """Return whether a text may be kept that is to stand in a header field."""
    return fits(text, longest) and _CONTROL_TEXT.search(text) is None


def kept_vary(vary: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the fields an answer varies by, or None if they can't be kept: nothing may then be asked by it."""
    if not vary:
        return {}
    if len(vary) > MOST_VARYING:
        return None
    fields = {name.lower(): value for name, value in vary.items()}
    if all(fits(name, LONGEST_NAME) and fits(value, LONGEST_NAME) for name, value in fields.items()):
        return fields
    return None


def target_of(url: str) -> str | None:
    """Return the path and query of a URL: no userinfo, no fragment.

    >>> target_of("https://user:secret@example.com/a?b=1#c")
    '/a?b=1'
    >>> target_of("https://example.com?b")
    '/?b'
    """
    rest = url.partition("://")[2].partition("#")[0]
    found = re.search(r"[/?]", rest)
    target = rest[found.start() :] if found else "/"
    return kept_text(target if target.startswith("/") else "/" + target, LONGEST_URL)


def is_target(text: str) -> bool:
    """Return whether `target_of` could have returned a text."""
    return text.startswith("/") and "#" not in text and fits(text, LONGEST_URL)


def may_be_decoy(url: str) -> bool:
    """Return whether a URL can be a decoy: no site's homepage and no robots.txt is one, whoever says so.

    >>> may_be_decoy("https://example.com/robots.txt#x"), may_be_decoy("https://example.com/trap")
    (False, True)
    """
    return target_of(url) not in _NO_DECOYS


def key_of(url: str) -> tuple[str, str] | None:
    """Return the origin and the path and query of a URL, or None if it is not one of http or too long."""
    origin = origin_key(url)
    if origin is None or kept_text(origin, LONGEST_URL) is None:
        return None
    target = target_of(url)
    return None if target is None else (origin, target)


def fingerprint(value: bytes) -> str:
    """Return what tells two values apart without giving them away.

    >>> fingerprint(b"en-GB")
    '3d968247019d23a3'
    """
    return hashlib.sha256(value).hexdigest()[:16]
