"""How origins are related, and which are trustworthy."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.origins import origin_key
from scrapy_pacing.core.sites import is_trustworthy, registrable_domain, relation


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("https://example.com/a", "https://example.com/b", "same-origin"),
        ("https://example.com", "https://EXAMPLE.com.:443/", "same-origin"),
        ("https://example.com", "https://example.com:8443", "same-site"),
        ("https://www.example.com", "https://example.com", "same-site"),
        ("https://a.b.example.co.uk", "https://example.co.uk", "same-site"),
        ("https://one.co.uk", "https://two.co.uk", "cross-site"),
        ("https://co.uk", "https://one.co.uk", "cross-site"),
        ("https://co.uk", "https://co.uk:8443", "same-site"),
        ("https://alice.github.io", "https://bob.github.io", "cross-site"),
        ("https://www.alice.github.io", "https://alice.github.io", "same-site"),
        ("http://example.com", "https://example.com", "cross-site"),
        ("https://h:8443", "http://h:8443", "cross-site"),
        ("https://example.com", "https://example.org", "cross-site"),
        ("https://notexample.com", "https://example.com", "cross-site"),
        ("https://site.example", "https://cdn.site.example", "same-site"),
        ("https://one.example", "https://two.example", "cross-site"),
        ("http://localhost", "http://localhost:8080", "same-site"),
        ("http://a.localhost", "http://b.localhost", "cross-site"),
        ("http://10.0.0.1", "http://10.0.0.1:81", "same-site"),
        ("http://10.0.0.1", "http://11.0.0.1", "cross-site"),
        ("http://[::1]", "http://[::1]:81", "same-site"),
        ("http://[2001:db8::1]", "http://[2001:db8::2]", "cross-site"),
        ("https://www.bücher.de", "https://xn--bcher-kva.de", "same-site"),
        ("https://a.пример.рф", "https://пример.рф", "same-site"),
        ("https://a.b.foo.ck", "https://b.foo.ck", "same-site"),
        ("https://a.www.ck", "https://www.ck", "same-site"),
        ("https://my_host.example.com", "https://example.com", "same-site"),
    ],
)
def test_sites_are_told_by_scheme_and_registrable_domain(one: str, other: str, expected: str) -> None:
    """Scheme and registrable domain make a site; the port only makes an origin (I092, I128)."""
    first, second = origin_key(one), origin_key(other)
    assert first is not None
    assert second is not None
    assert relation(first, second) == expected
    assert relation(second, first) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com", True),
        ("http://example.com", False),
        ("http://localhost:8080", True),
        ("http://LOCALHOST.", True),
        ("http://shop.localhost", True),
        ("http://notlocalhost", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1", True),
        ("http://127.8.9.10:81", True),
        ("http://127.0.0.1.example.com", False),
        ("http://128.0.0.1", False),
        ("http://[::1]:8080", True),
        ("http://[::2]", False),
    ],
)
def test_https_and_loopback_are_trustworthy(url: str, expected: bool) -> None:
    """Fetch metadata goes to https and to this machine, as in a browser."""
    assert is_trustworthy(str(origin_key(url))) is expected


def test_public_suffixes_are_never_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telling a site opens no connection."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    registrable_domain.cache_clear()
    assert registrable_domain("never.seen.before.example.co.uk") == "example.co.uk"


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_host_raises(one: str, other: str) -> None:
    """Whatever stands in a URL's authority, the relation is told, and is the same both ways."""
    first, second = origin_key(f"https://{one}"), origin_key(f"https://{other}")
    assert first is not None
    assert second is not None
    assert relation(first, second) == relation(second, first)
    assert relation(first, first) == "same-origin"
    assert isinstance(is_trustworthy(str(origin_key(f"http://{one}"))), bool)
