"""The key under which a site is paced: equal for equal sites, never a secret, never an exception."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from scrapy_pacing import origin_key
from scrapy_pacing.core.origins import host_of, normalise_host


@pytest.mark.parametrize(
    ("url", "key"),
    [
        pytest.param("http://[::1]:8080/", "http://[::1]:8080", id="I122-brackets-and-port"),
        pytest.param("http://[2001:DB8::1]/", "http://[2001:db8::1]", id="I122-upper-case"),
        pytest.param("http://[2001:db8:0:0:0:0:0:1]/a", "http://[2001:db8::1]", id="I122-long-form"),
        pytest.param("http://[2001:0db8::0001]:80/", "http://[2001:db8::1]", id="I122-leading-zeros"),
        pytest.param("https://[::ffff:192.0.2.1]/", "https://[::ffff:c000:201]", id="I122-mapped"),
        pytest.param("https://u:p@[::1]:443/", "https://[::1]", id="I122-userinfo"),
        pytest.param("http://[not-an-address]:81/", "http://[not-an-address]:81", id="I122-no-address"),
    ],
)
def test_an_ipv6_address_is_one_key_in_brackets(url: str, key: str) -> None:
    """I122: long and short form of an address are one site, and its brackets are kept."""
    mapped = {"https://[::ffff:c000:201]": {"https://[::ffff:c000:201]", "https://[::ffff:192.0.2.1]"}}
    # Python 3.13 writes a mapped IPv4 address in dots.
    assert origin_key(url) in mapped.get(key, {key})


@pytest.mark.parametrize(
    ("url", "key"),
    [
        pytest.param("http://EXAMPLE.com", "http://example.com", id="I124-case"),
        pytest.param("HTTP://Example.COM/Path", "http://example.com", id="I124-scheme-case"),
        pytest.param("http://example.com./", "http://example.com", id="I124-final-dot"),
        pytest.param("http://bücher.example:33/", "http://xn--bcher-kva.example:33", id="I124-idn-with-port"),
        pytest.param("http://xn--bcher-kva.example:33/", "http://xn--bcher-kva.example:33", id="I124-punycode"),
        pytest.param("http://XN--BCHER-KVA.example:33/", "http://xn--bcher-kva.example:33", id="I124-punycode-case"),
        pytest.param("http://b%C3%BCcher.example:33/", "http://xn--bcher-kva.example:33", id="I124-percent"),
        pytest.param("http://BÜCHER.example:33/", "http://xn--bcher-kva.example:33", id="I124-idn-case"),
        pytest.param("http://bücher。example。/", "http://xn--bcher-kva.example", id="I124-ideographic-dot"),
        pytest.param("http://ex%61mple.com/", "http://example.com", id="I124-percent-encoded-letter"),
    ],
)
def test_spellings_of_a_host_are_one_key(url: str, key: str) -> None:
    """I124: case, an internationalised host and its xn-- form, and one final dot make no other site."""
    assert origin_key(url) == key


def test_only_one_final_dot_is_dropped() -> None:
    """I124: a host of nothing but odd dots still has a key, and not that of another host."""
    assert origin_key("http://a.../") not in {None, "http://a", "http://a..."}


@pytest.mark.parametrize(
    ("url", "key"),
    [
        pytest.param("http://h", "http://h", id="I125-no-port"),
        pytest.param("http://h:80/", "http://h", id="I125-default"),
        pytest.param("http://h:/", "http://h", id="I125-empty"),
        pytest.param("http://h:0080/", "http://h", id="I125-leading-zeros"),
        pytest.param("https://h:443", "https://h", id="I125-default-tls"),
        pytest.param("http://h:443", "http://h:443", id="I125-the-other-default"),
        pytest.param("https://h:80", "https://h:80", id="I125-the-other-default-tls"),
        pytest.param("http://h:8080", "http://h:8080", id="I125-other"),
        pytest.param("http://127.0.0.1:8081/a?b", "http://127.0.0.1:8081", id="I125-address"),
    ],
)
def test_a_default_port_is_no_port(url: str, key: str) -> None:
    """I125: the default port of a scheme and none are one site, every other port is a site of its own."""
    assert origin_key(url) == key


@pytest.mark.parametrize(
    "url",
    [
        *("data:,x", "data:text/plain;base64,aHR0cDovLw==", "file:///tmp/x", "s3://b/k", "about:blank"),
        *("mailto:a@example.com", "ftp://example.com/", "ws://example.com/", "httpx://example.com", "shttp://h/"),
        *("custom+scheme://host/path", "javascript:void(0)", "", " ", "/", "//example.com/", "example.com", "http:"),
        *("http:/example.com", "://example.com", "http", "ht tp://example.com"),
    ],
    ids=lambda url: f"I127-{url}",
)
def test_other_schemes_have_no_key(url: str) -> None:
    """I127: what is not http or https is not paced at all."""
    assert origin_key(url) is None


def test_the_scheme_is_part_of_the_key() -> None:
    """I128: https and http of one host and port are two origins."""
    assert origin_key("https://h:8443/") == "https://h:8443"
    assert origin_key("http://h:8443/") == "http://h:8443"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        pytest.param("http://u:80@h:80/p#f", "http://h", id="I089"),
        pytest.param("http://u:p@h:8080/", "http://h:8080", id="I089-password"),
        pytest.param("http://u@h/", "http://h", id="I089-user"),
        pytest.param("http://u:p@ss@h/", "http://h", id="I089-at-in-password"),
        pytest.param("http://@h/", "http://h", id="I089-empty"),
        pytest.param("http://h?u:p@other/", "http://h", id="I089-at-in-query"),
        pytest.param("http://h#u:p@other/", "http://h", id="I089-at-in-fragment"),
        pytest.param("http://h/u:p@other:80/", "http://h", id="I089-at-in-path"),
        pytest.param("http://u%40x:p%3A@h/", "http://h", id="I089-encoded"),
    ],
)
def test_userinfo_path_and_fragment_are_never_in_a_key(url: str, key: str) -> None:
    """I089: no password and no path can reach a log or a file by way of the key."""
    assert origin_key(url) == key


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://user%3Asecret%40h/", id="I089-userinfo"),
        pytest.param("http://h%2Fsecret/", id="I089-path"),
        pytest.param("http://h%3Fsecret/", id="I089-query"),
        pytest.param("http://h%23secret/", id="I089-fragment"),
    ],
)
def test_percent_encoded_delimiters_stay_inside_the_host(url: str) -> None:
    """I089: decoding a host makes no userinfo, path, query or fragment of it (RFC 3986 section 2.2)."""
    key = origin_key(url)
    assert key is not None
    authority = key.removeprefix("http://")

    assert not set(authority) & set("@/?#:")


def test_a_host_of_any_length_makes_a_short_key() -> None:
    """A site can't fill the memory with hosts of a megabyte; two of them that differ still are two keys."""
    long = "a" * 1_000_000
    keys = {origin_key(f"http://{long}{end}.example/") for end in ("x", "y")}

    assert len(keys) == 2
    assert all(key is not None and len(key) < 400 for key in keys)
    assert len(origin_key("http://h:" + "9" * 1_000_000) or "") < 400
    assert len(origin_key("http://[" + "f" * 1_000_000 + "]/") or "") < 400
    assert len(origin_key("http://" + "ü" * 100_000 + "/") or "") < 400


@pytest.mark.parametrize("url", ["data:image/png;base64,{}{}", "http://u:{1}@h{0}/", "http://h{0}/{1}"], ids=repr)
def test_long_urls_are_not_kept(url: str) -> None:
    """Images in data: URLs, long queries and passwords do not stay in memory after their key was made."""
    tracemalloc.start()
    try:
        for number in range(200):
            origin_key(url.format(number, "x" * 100_000))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # 20 MB went through.
    assert kept < 1_000_000


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://example.com", "example.com"),
        ("https://example.com:8443", "example.com"),
        ("http://[::1]:8080", "[::1]"),
        ("http://[::1]", "[::1]"),
        ("example.com", "example.com"),
        ("", ""),
    ],
)
def test_the_host_of_a_key(origin: str, host: str) -> None:
    """Overrides for a bare host find it in every key of that host."""
    assert host_of(origin) == host


# -- anything at all ------------------------------------------------------------------------------------------------------

SCHEMES = st.sampled_from(["http://", "https://", "HTTP://", "  http://", "ftp://", "data:", ""])
PIECES = st.lists(
    st.sampled_from(
        [*"aZ09ü.:@/?#[]% \t\n\\-_", "%2f", "%40", "%3a", "%25", "::1", "xn--", "。", "ß", "İ", "℀", "\ud800"]
    ),
    max_size=25,
).map("".join)
URLS = st.tuples(SCHEMES, st.one_of(st.text(max_size=60), PIECES)).map("".join)


@given(URLS | st.text())
@settings(max_examples=500)
@example("http://" + "%" * 5000)
@example("http://" + "[" * 5000)
@example("http://" + "xn--" * 100)
@example("http://xn--\ud800/")
@example("http://[::1%\ud800]:\ud800/")
def test_no_text_raises(url: str) -> None:
    """Whatever a page calls a link, asking for its key gives a key or None."""
    key = origin_key(url)

    assert key is None or key.startswith(("http://", "https://"))
    host_of(url)
    normalise_host(url)


HOSTS = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?(\.[a-zA-Z]{2,10}){1,3}\.?", fullmatch=True)
SECRET = st.text(st.sampled_from("QXZ:@!$&'()*+,;=%2f"), max_size=20).map(lambda text: f"SECRET{text}")


@given(host=HOSTS, secret=SECRET, port=st.none() | st.integers(1, 65_535), where=st.sampled_from("@/?#"))
def test_secrets_of_an_ordinary_url_are_never_in_its_key(host: str, secret: str, port: int | None, where: str) -> None:
    """Userinfo, path, query and fragment of a URL leave no trace in the key, which is the host's alone."""
    authority = host if port is None else f"{host}:{port}"
    url = f"http://{secret}@{authority}/" if where == "@" else f"http://{authority}{where}{secret}"
    key = origin_key(url)

    assert key is not None
    assert "SECRET" not in key
    assert key == origin_key(f"http://{authority}/")
    assert host_of(key) == host.lower().removesuffix(".")


@given(HOSTS | st.ip_addresses(v=6).map("[{}]".format) | st.ip_addresses(v=4).map(str), st.integers(1, 65_535))
def test_the_key_of_an_ordinary_key_is_itself(host: str, port: int) -> None:
    """A key that comes back as a URL (from a file, from a setting) means the same site."""
    key = origin_key(f"https://{host}:{port}/")

    assert key is not None
    assert origin_key(key) == key
    assert origin_key(key + "/") == key


@given(st.tuples(st.sampled_from(["http://", "https://"]), st.one_of(st.text(max_size=60), PIECES)).map("".join))
@settings(max_examples=1000)
@example("http://%2541.example")
@example("http://a%2Fb")
def test_the_key_of_any_key_is_itself(url: str) -> None:
    """Normalising what is normalised changes nothing, however odd the URL was.

    But for hosts that end in several dots, which are no names: one dot is dropped at each pass.
    """
    key = origin_key(url)
    assert key is not None
    assume(not host_of(key).endswith("."))

    assert origin_key(key) == key
