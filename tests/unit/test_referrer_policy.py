"""What of a page's address the next server sees."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given, strategies as st

from scrapy_pacing.core.origins import origin_key
from scrapy_pacing.core.referrer_policy import (
    POLICIES,
    cut_referrer,
    meta_referrer_policy,
    parse_referrer_policy,
    referrer_of,
)

HTTPS, HTTP, LOCALHOST = (
    "https://site.example/a?q=1",
    "http://a.test/a?q=1",
    "http://localhost/a?q=1",
)
# The columns of the captured table: page, target.
COLUMNS = [
    (HTTPS, "https://site.example"),
    (HTTPS, "https://cdn.site.example"),
    (HTTPS, "https://other.example2"),
    (HTTPS, "http://a.test"),
    (HTTP, "http://a.test"),
    (HTTP, "http://b.test"),
    (HTTP, "https://site.example"),
    (LOCALHOST, "http://localhost"),
    (LOCALHOST, "https://site.example"),
    (LOCALHOST, "http://a.test"),
]
TABLE = {
    "no-referrer": "none none none none none none none none none none",
    "same-origin": "full none none none full none none full none none",
    "origin": "origin origin origin origin origin origin origin origin origin origin",
    "strict-origin": "origin origin origin none origin origin origin origin origin origin",
    "origin-when-cross-origin": ("full origin origin origin full origin origin full origin origin"),
    "strict-origin-when-cross-origin": ("full origin origin none full origin origin full origin origin"),
    "no-referrer-when-downgrade": "full full full none full full full full full full",
    "unsafe-url": "full full full full full full full full full full",
    "": "full origin origin none full origin origin full origin origin",
    "no-such-policy": "full origin origin none full origin origin full origin origin",
}


@pytest.mark.parametrize(
    ("policy", "page", "target", "form"),
    [
        (policy, page, target, form)
        for policy, forms in TABLE.items()
        for (page, target), form in zip(COLUMNS, forms.split(), strict=True)
    ],
)
def test_each_policy_shows_what_chromium_shows(policy: str, page: str, target: str, form: str) -> None:
    """Eight policies by ten relations, as captured; what is no policy counts as the default."""
    origin = str(origin_key(page)) + "/"
    assert cut_referrer(page, target, policy) == {"full": page, "origin": origin, "none": None}[form]


def test_localhost_is_a_downgrade_from_https() -> None:
    """An https page shows nothing to http://localhost, though that is trustworthy."""
    assert cut_referrer(HTTPS, "http://localhost") is None


def test_another_port_sees_the_origin_only() -> None:
    """A page's path and query stay with its own port."""
    assert cut_referrer("https://h.example:8443/a?b", "https://h.example") == "https://h.example:8443/"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], ""),
        ("", ""),
        ([b""], ""),
        (b"origin", "origin"),
        ("no-referrer, strict-origin-when-cross-origin", "strict-origin-when-cross-origin"),
        (["no-referrer", "unsafe-url"], "unsafe-url"),
        (["unsafe-url", "no-such-word"], "unsafe-url"),
        ("origin,,", "origin"),
        ("no-referrer, something-new", "no-referrer"),
        ("something-new", ""),
        (" \tSame-Origin ", "same-origin"),
        (b"\xff\x00, origin\r\n", "origin"),
        ("no-referrer; origin", ""),
        ("\uff4frigin", ""),
    ],
)
def test_the_last_known_word_counts(fields: str | bytes | list[str | bytes], expected: str) -> None:
    """Of several words, in one field or more, the last one that is known counts (I088)."""
    assert parse_referrer_policy(fields) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("no-referrer", "no-referrer"),
        (" Origin ", "origin"),
        ("never", "no-referrer"),
        ("always", "unsafe-url"),
        ("default", "strict-origin-when-cross-origin"),
        ("origin-when-crossorigin", "origin-when-cross-origin"),
        ("", ""),
        ("whatever", ""),
    ],
)
def test_meta_elements_know_the_older_words(content: str, expected: str) -> None:
    """A page's meta element may use the words from before the header."""
    assert meta_referrer_policy(content) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://u:80@h:80/p#f", "http://h/p"),
        ("https://user:p%40ss@Example.com:443?q=1#x", "https://example.com/?q=1"),
        ("https://a@b@example.com/", "https://example.com/"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com/#", "https://example.com/"),
        ("  https://example.com/a \n", "https://example.com/a"),
        ("https://example.com/a b?ü#c", "https://example.com/a%20b?%C3%BC"),
        ("https://example.com/\r\nX: y", "https://example.com/%0D%0AX:%20y"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://[2001:DB8::1]:81/x", "http://[2001:db8::1]:81/x"),
        ("https://example.com/" + "x" * 4076, "https://example.com/" + "x" * 4076),
        ("https://example.com/" + "x" * 4077, "https://example.com/"),
        ("https://example.com/?" + "ü" * 1000, "https://example.com/"),
        ("https://example.com/" + "x" * 100_000, "https://example.com/"),
        ("file:///etc/passwd", None),
        ("data:text/html,<a href=x>", None),
        ("about:blank", None),
        ("ftp://example.com/", None),
        ("javascript://example.com/%0aalert(1)", None),
        ("", None),
        ("https://", None),
        ("https:///path", None),
        ("https://ho st/", None),
        ("https://host:port/", None),
        ("https://" + "a" * 300 + ".example/", None),
        ("https://\ud800/", None),
    ],
)
def test_a_referrer_is_a_clean_address(url: str, expected: str | None) -> None:
    """No userinfo, no fragment, no byte that a header can't carry, http and https only (I086, I089)."""
    assert referrer_of(url) == expected


@given(st.one_of(st.text(), st.text().map("https://h.example/".__add__)))
@example("https://h.example/\ud800")
def test_no_url_raises_and_what_comes_out_fits_a_header(url: str) -> None:
    """Whatever the page's address, what is left of it is printable ASCII of at most 4096 bytes."""
    referrer = referrer_of(url)
    if referrer is not None:
        assert all("\x21" <= character <= "\x7e" for character in referrer)
        assert len(referrer) <= 4096
        assert "#" not in referrer
        assert referrer_of(referrer) == referrer


SECRET = st.text(string.ascii_letters + string.digits, min_size=6, max_size=12).map("zq9".__add__)


@given(
    secret=SECRET,
    wrap=st.sampled_from(["https://{}@h.example/p", "https://u:{}@h.example:80/p?q", "http://h.example/p#{}"]),
    target=st.sampled_from(["https://h.example", "http://h.example", "https://o.example"]),
    policy=st.sampled_from(sorted(POLICIES)),
)
def test_no_policy_shows_userinfo_or_fragment(secret: str, wrap: str, target: str, policy: str) -> None:
    """Not even unsafe-url shows a password or a fragment."""
    referrer = referrer_of(wrap.format(secret))
    assert referrer is not None
    assert secret not in (cut_referrer(referrer, target, policy) or "")


@given(
    policies=st.lists(st.sampled_from(sorted(POLICIES)), min_size=1, max_size=6),
    targets=st.lists(
        st.sampled_from(["https://site.example", "http://site.example", "https://o.example"]),
        min_size=6,
        max_size=6,
    ),
)
def test_cutting_again_never_gives_more(policies: list[str], targets: list[str]) -> None:
    """Whatever the policies along a chain, a referrer only gets shorter."""
    referrer: str | None = "https://site.example/a?q=1"
    for policy, target in zip(policies, targets, strict=False):
        if referrer is None:
            break
        cut = cut_referrer(referrer, target, policy)
        assert cut is None or referrer.startswith(cut)
        referrer = cut


@given(st.lists(st.one_of(st.text(), st.binary())))
def test_no_policy_field_raises(fields: list[str | bytes]) -> None:
    """A malformed Referrer-Policy is no policy."""
    assert parse_referrer_policy(fields) in POLICIES | {""}
