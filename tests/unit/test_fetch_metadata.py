"""What a request is for, and what its Sec-Fetch headers say."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.fetch_metadata import (
    DESTINATIONS,
    check_destination,
    destination,
    fetch_metadata,
    mode_of,
    site_of_chain,
)

PAGE_ACCEPT = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
JQUERY_ACCEPT = b"application/json, text/javascript, */*; q=0.01"
A, B, CDN = "https://a.example", "https://b.example", "https://cdn.a.example"


@pytest.mark.parametrize(
    ("url", "accept", "expected"),
    [
        ("https://h/x/photo.JPEG?w=1#y", PAGE_ACCEPT, "image"),
        ("https://h/a.css", None, "style"),
        ("https://h/a.mjs", b"*/*", "script"),
        ("https://h/a.woff2", None, "font"),
        ("https://h/a.mp4", None, "video"),
        ("https://h/a.flac", None, "audio"),
        ("https://h/a.vtt", None, "track"),
        ("https://h/app.webmanifest", None, "manifest"),
        ("https://h/a.js;jsessionid=1.png", None, "script"),
        ("https://h/api?file=a.png", None, "empty"),
        ("https://h/api#a.png", None, "empty"),
        ("https://h.png", None, "empty"),
        ("https://h/.png/", None, "empty"),
        ("https://h/a.json", None, "empty"),
        ("https://h/robots.txt", None, "empty"),
        ("https://h/a.pdf", PAGE_ACCEPT, "empty"),
        ("https://h/", PAGE_ACCEPT, "empty"),
        ("https://h/api", JQUERY_ACCEPT, "empty"),
        ("https://h/thumb", b"image/avif,image/webp,*/*;q=0.8", "image"),
        ("https://h/thumb", "IMAGE/png;q=1", "image"),
        ("https://h/a.png", b"application/json", "empty"),
        ("https://h/a", b"application/vnd.api+json", "empty"),
        ("https://h/a", b"application/manifest+json", "manifest"),
        ("https://h/a", b"\xff\xfe,image/png", "empty"),
        ("not a url.png", None, "empty"),
        ("", None, "empty"),
    ],
)
def test_a_sub_resource_is_told_by_accept_and_path(url: str, accept: bytes | str | None, expected: str) -> None:
    """What is fetched besides a page is told from Accept, then from the path, else a script fetched it."""
    assert destination(url, navigation=False, accept=accept) == expected


@pytest.mark.parametrize(
    ("method", "accept", "expected"),
    [
        ("GET", PAGE_ACCEPT, "document"),
        ("GET", None, "document"),
        ("GET", b"*/*", "document"),
        ("post", PAGE_ACCEPT, "document"),
        ("GET", b"application/xml", "document"),
        ("POST", JQUERY_ACCEPT, "empty"),
        ("GET", b"image/webp,*/*", "image"),
        ("PUT", PAGE_ACCEPT, "empty"),
        ("HEAD", PAGE_ACCEPT, "empty"),
        ("DELETE", None, "empty"),
    ],
)
def test_a_browser_navigates_only_for_html(method: str, accept: bytes | None, expected: str) -> None:
    """A request for JSON or an image, and a method that no link or form has, is no navigation (I094)."""
    assert destination("https://h/x", method=method, accept=accept) == expected


@pytest.mark.parametrize("dest", ["", *sorted(DESTINATIONS)])
def test_a_named_destination_wins(dest: str) -> None:
    """What the request's meta names is taken, whatever path and Accept say."""
    assert destination("https://h/a.png", dest=dest, accept=JQUERY_ACCEPT) == (dest or "empty")
    assert mode_of(check_destination(dest)) in {"navigate", "no-cors", "cors", "same-origin"}


@pytest.mark.parametrize("dest", ["img", "Image", "navigate", " image", 7, b"image", ["image"]])
def test_an_unknown_destination_is_refused_by_name(dest: object) -> None:
    """A typo in pacing_dest is an error that names it, the value and what is allowed."""
    with pytest.raises(ValueError, match=r"pacing_dest is .*; allowed: audio, .*xslt"):
        destination("https://h/", dest=dest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("initiator", "chain", "expected"),
    [
        (A, [A], "same-origin"),
        (A, [A, A, B], "cross-site"),
        (A, [A, B, A], "cross-site"),
        (A, [CDN, A], "same-site"),
        (A, [CDN, B, A], "cross-site"),
        ("http://a.example", [A], "cross-site"),
        ("https://www.shop.co.uk", ["https://shop.co.uk"], "same-site"),
        ("https://shop.co.uk", ["https://other.co.uk"], "cross-site"),
        (None, [A], "cross-site"),
        (A, [None, A], "cross-site"),
    ],
)
def test_the_worst_hop_decides(initiator: str | None, chain: list[str | None], expected: str) -> None:
    """A chain that has left the site once does not get better by coming home (I092)."""
    assert site_of_chain(initiator, chain) == expected


def test_plain_http_gets_no_fetch_metadata() -> None:
    """A plain http server gets Upgrade-Insecure-Requests with a navigation, and no more."""
    sent = fetch_metadata("http://a.test", site="same-origin", dest="document", user=True)
    assert sent == {"Upgrade-Insecure-Requests": "1"}
    assert fetch_metadata("http://a.test", site="same-origin", dest="image", user=False) == {}


@pytest.mark.parametrize("dest", sorted(DESTINATIONS))
def test_only_navigations_have_a_user(dest: str) -> None:
    """Sec-Fetch-User and Upgrade-Insecure-Requests are for what navigates (I094)."""
    sent = fetch_metadata("https://a.example", site="same-origin", dest=dest, user=True)
    navigates = mode_of(dest) == "navigate"
    assert ("Sec-Fetch-User" in sent) is navigates
    assert ("Upgrade-Insecure-Requests" in sent) is navigates


@given(st.text(), st.booleans(), st.one_of(st.none(), st.text(), st.binary()), st.text(max_size=8))
def test_no_request_is_without_a_destination(
    url: str, navigation: bool, accept: str | bytes | None, method: str
) -> None:
    """Whatever URL, Accept and method, there is a destination of the standard."""
    told = destination(url, navigation=navigation, accept=accept, method=method)
    assert told in DESTINATIONS
