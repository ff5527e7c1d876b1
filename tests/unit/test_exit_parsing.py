"""How exits are written, and that no password ever shows."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, strategies as st
from w3lib.http import basic_auth_header

from scrapy_pacing.core.exits.parsing import (
    Exit,
    join_exits,
    parse_exits,
    parse_exits_text,
    read_exits_file,
)

KEY = b"k" * 32
SECRET = "hunter2-Zq"
USER = "custmr-9"


def one(entry: object, **options: object) -> Exit:
    (found,) = parse_exits([entry], key=KEY, **options).exits  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("http://proxy.example:8000", "http://proxy.example:8000"),
        ("HTTP://Proxy.Example.:8000/", "http://proxy.example:8000"),
        ("http://proxy.example", "http://proxy.example:80"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("http://bücher.example:1", "http://xn--bcher-kva.example:1"),
        ("http://192.0.2.7:3128", "http://192.0.2.7:3128"),
        ("http://[2001:DB8:0::1]:8080", "http://[2001:db8::1]:8080"),
        ("http://u:p@[::1]:8080", "http://u:p@[::1]:8080"),
        ("http://u:@proxy.example:1", "http://u:@proxy.example:1"),
        ("http://u@proxy.example:1", "http://u@proxy.example:1"),
        ("http://u:p%40ss%2Fw@proxy.example:1", "http://u:p%40ss%2Fw@proxy.example:1"),
        ("http://u:a:b@proxy.example:1", "http://u:a%3Ab@proxy.example:1"),
        ("http://u:a,b@proxy.example:1", "http://u:a%2Cb@proxy.example:1"),
        ("  http://proxy.example:1  ", "http://proxy.example:1"),
    ],
)
def test_what_is_written_is_what_scrapy_gets(entry: str, url: str) -> None:
    """IPv6, percent-encoded, empty and missing passwords reach meta["proxy"] in one normal form."""
    assert one(entry).url == url


@pytest.mark.parametrize("entry", [None, "direct", "DIRECT", " direct "])
def test_the_machines_own_address_is_an_exit(entry: object) -> None:
    """None or "direct" stands for no proxy at all."""
    found = one(entry)
    assert found.is_direct
    assert found.url is None
    assert found.id == "direct"
    assert repr(found) == "<Exit direct>"


@given(
    st.text(st.characters(codec="latin-1", exclude_categories=["Cc"], exclude_characters=":"), min_size=1),
    st.text(st.characters(codec="latin-1", exclude_categories=["Cc"])),
)
def test_any_password_survives_scrapys_own_reading(user: str, password: str) -> None:
    """Scrapy's HttpProxyMiddleware makes of the URL exactly the credentials that were meant."""
    from urllib.parse import quote

    from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware

    written = f"http://{quote(user, safe='')}:{quote(password, safe='')}@proxy.example:8000"
    url = one(written).url
    assert url is not None
    credentials, address = HttpProxyMiddleware()._get_proxy(url, "")
    assert address == "http://proxy.example:8000"
    assert credentials is not None
    assert b"Basic " + credentials == basic_auth_header(user, password, "latin-1")


BAD = [
    ("", "is blank"),
    ("   ", "is blank"),
    (f"proxy.example:8000:{USER}:{SECRET}", "no scheme"),
    ("proxy.example:8000", "no scheme"),
    (f"{USER}:{SECRET}@proxy.example:8000", "no scheme"),
    (f"{USER}:{SECRET}://x@proxy.example:8000", "no scheme"),
    (f"//{USER}:{SECRET}@proxy.example", "no scheme"),
    (f"socks5://{USER}:{SECRET}@proxy.example:1080", "SOCKS"),
    (f"socks4a://{USER}:{SECRET}@proxy.example:1080", "SOCKS"),
    (f"{SECRET}://proxy.example:1080", "unsupported scheme"),
    ("ftp://proxy.example", "unsupported scheme"),
    (f"http://{USER}:{SECRET}/x@proxy.example:8000", "percent-encoded"),
    (f"http://{USER}:{SECRET}#x@proxy.example:8000", "percent-encoded"),
    (f"http://{USER}:{SECRET}?x@proxy.example:8000", "percent-encoded"),
    (f"http://{USER}:{SECRET}\\x@proxy.example:8000", "percent-encoded"),
    (f"http://{USER}:{SECRET}@x@proxy.example:8000", "%40"),
    (f"http://{USER}:{SECRET}%@proxy.example:8000", "%25"),
    (f"http://{USER}:{SECRET}%zz@proxy.example:8000", "%25"),
    (f"http://{USER}:{SECRET}%FF@proxy.example:8000", "HTTPPROXY_AUTH_ENCODING"),
    (f"http://{USER}:{SECRET}%E2%82%AC@proxy.example:8000", "HTTPPROXY_AUTH_ENCODING"),
    (f"http://{USER}:{SECRET}%0A@proxy.example:8000", "control character"),
    (f"http://{USER}%3Ax:{SECRET}@proxy.example:8000", "colon"),
    (f"http://:{SECRET}@proxy.example:8000", "without a user name"),
    ("http://@proxy.example:8000", "without a user name"),
    (f"http://{USER}: {SECRET}@proxy.example:8000", "space"),
    (f"http://{USER}:{SECRET}\x00@proxy.example:8000", "control character"),
    (f"http://{USER}:{SECRET}@proxy.example:{SECRET}", "1 to 65535"),
    (f"http://{USER}:{SECRET}", "1 to 65535"),
    ("http://proxy.example:0", "1 to 65535"),
    ("http://proxy.example:65536", "1 to 65535"),
    ("http://proxy.example:\u0663", "1 to 65535"),
    ("http://proxy.example:8000/path", "after the port"),
    ("http://", "no host"),
    ("http://:8000", "no host"),
    ("http://-bad-:8000", "host that is none"),
    ("http://a..b:8000", "host that is none"),
    ("http://300.1.1.1:8000", "IPv4"),
    ("http://2001:db8::1:8000", "IPv6"),
    ("http://[2001:db8::zz]:8000", "IPv6"),
    ("http://[::1:8000", "brackets"),
    ("http://[::1]8000", "brackets"),
    ("http://[fe80::1%25eth0]:8000", "zone"),
    ("http://proxy.example:8000/" + "a" * 3000, "too long"),
    (b"http://proxy.example", "is a bytes"),
    (7, "is a int"),
    ({"http": SECRET}, "is a dict"),
]


@pytest.mark.parametrize(("entry", "words"), BAD)
def test_a_wrong_entry_is_named_by_its_place_and_without_its_password(entry: object, words: str) -> None:
    """The message has the setting, the number of the entry and what is allowed, and nothing of the entry (I083)."""
    with pytest.raises(ValueError, match="PACING_EXITS, entry 2: ") as caught:
        parse_exits(["http://fine.example:1", entry], key=KEY)
    text = str(caught.value)
    assert words in text
    assert SECRET not in text
    assert USER not in text
    # Nor in the errors that led to it: a log with tracebacks prints those too.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@given(st.text(), st.booleans())
def test_no_text_does_worse_than_a_plain_message(text: str, rotating: bool) -> None:
    """Whatever stands in a file, it is read or refused with ValueError."""
    found: tuple[Exit, ...] = ()
    message = ""
    try:
        found = parse_exits_text(text, key=KEY, rotating_proxies_style=rotating).exits
    except ValueError as error:
        message = str(error)
    assert not message or "line " in message
    assert all(one(each.url) == each for each in found)


@given(st.text(st.characters(codec="ascii", exclude_characters=" #"), min_size=8, max_size=30))
def test_no_message_and_no_repr_shows_a_password(password: str) -> None:
    """Written raw, with whatever characters, a password is never quoted."""
    secret = f"Xq7{password}"
    try:
        shown = repr(parse_exits([f"http://someone:{secret}@h.example:81"], key=KEY))
    except ValueError as error:
        shown = str(error)
    assert secret not in shown
    assert "someone" not in shown


def test_all_problems_are_told_at_once() -> None:
    """A long list is not mended one error at a time, nor does it flood the screen."""
    with pytest.raises(ValueError, match="entry 1: ") as caught:
        parse_exits(["x"] * 9, key=KEY)
    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 4 more"


@pytest.mark.parametrize(("value", "count"), [(None, 0), ("", 0), ("  ", 0), ([], 0), (("direct",), 1)])
def test_no_exits_is_no_error(value: object, count: int) -> None:
    """An unset or empty setting lists nothing."""
    assert len(parse_exits(value, key=KEY).exits) == count  # type: ignore[arg-type]


def test_a_string_is_split_at_its_commas() -> None:
    """-s PACING_EXITS=a,b works as for Scrapy's own lists."""
    found = parse_exits("http://a.example:1, direct", key=KEY).exits
    assert [each.url for each in found] == ["http://a.example:1", None]


@pytest.mark.parametrize("value", [7, b"http://a.example", True])
def test_a_setting_of_another_type_is_refused(value: object) -> None:
    """A number is no list of exits."""
    with pytest.raises(ValueError, match="PACING_EXITS is a "):
        parse_exits(value, key=KEY)  # type: ignore[arg-type]


def test_two_users_of_one_gateway_are_two_exits() -> None:
    """Same host and port, other user name: another exit (I067); another password alone is not."""
    users = [one(f"http://s{number}:pw@gateway.example:8000") for number in (1, 2, 3)]
    assert len({each.id for each in users}) == 3
    assert one("http://s1:other@gateway.example:8000") == users[0]
    assert one("https://s1:pw@gateway.example:8000") != users[0]
    assert one("http://s1:pw@gateway.example:8001") != users[0]
    assert one("http://%731:pw@GATEWAY.example:8000") == users[0]


def test_an_id_says_nothing_without_the_key() -> None:
    """The same exit has another id under another key, and the id is short and plain."""
    written = f"http://{USER}:{SECRET}@gateway.example:8000"
    (other,) = parse_exits([written], key=b"x" * 32).exits
    assert one(written).id != other.id
    assert len(other.id) == 16
    assert other.id.isalnum()


def test_a_short_key_is_refused() -> None:
    """A key that could be guessed would make user names guessable."""
    with pytest.raises(ValueError, match="16 or more"):
        parse_exits([None], key=b"short")


def test_an_exit_shows_neither_user_nor_password_and_goes_into_no_file() -> None:
    """repr, str, format and a container's repr are safe; a queue on disk can't take it (I083)."""
    found = one(f"http://{USER}:{SECRET}@gateway.example:8000")
    for shown in (repr(found), str(found), f"{found}", repr([found]), repr({"x": found})):
        assert SECRET not in shown
        assert USER not in shown
        assert "gateway.example:8000" in shown
    with pytest.raises(TypeError, match="keep its id"):
        pickle.dumps(found)
    assert copy.copy(found) is found
    assert copy.deepcopy({"meta": found})["meta"] is found


def test_a_repeated_exit_counts_once() -> None:
    """One exit written twice must not have twice the room; the warning says where, without the password."""
    parsed = parse_exits(
        [f"http://u:{SECRET}@h.example:1", f"http://u:{SECRET}@h.example:1", f"http://u:{SECRET}2@h.example:1"], key=KEY
    )
    assert len(parsed.exits) == 1
    assert parsed.warnings == (
        "PACING_EXITS, entry 2: repeats 1; skipped",
        "PACING_EXITS, entry 3: repeats 1 with another password; skipped",
    )


def test_setting_and_file_are_joined() -> None:
    """An exit that stands in both counts once."""
    setting = parse_exits(["http://a.example:1", None], key=KEY)
    file = parse_exits_text("direct\nhttp://b.example:1\n", key=KEY)
    joined = join_exits(setting, file)
    assert [each.url for each in joined.exits] == ["http://a.example:1", None, "http://b.example:1"]
    assert joined.warnings == ("exit direct is given twice; the first counts",)


def test_an_https_exit_comes_with_a_warning() -> None:
    """Scrapy's own handler can't tunnel to https pages through an https proxy, so the user hears of it at start."""
    (warning,) = parse_exits(["http://a.example:1", "https://b.example:1"], key=KEY).warnings
    assert warning.startswith("PACING_EXITS, entry 2: ")


def test_a_file_has_comments_and_any_line_ends() -> None:
    """Comment lines, trailing comments, CRLF and a byte order mark are read as meant."""
    text = "\ufeff# ours\r\nhttp://a.example:1  # the first\rdirect\n   # indented\nhttp://b.example:2"
    parsed = parse_exits_text(text, key=KEY)
    assert [each.url for each in parsed.exits] == ["http://a.example:1", None, "http://b.example:2"]
    assert parsed.warnings == ()


def test_blank_lines_are_skipped_and_told() -> None:
    """A blank line is no exit; a warning names the lines, and the end of the last line is not one."""
    parsed = parse_exits_text("http://a.example:1\n\n  \nhttp://b.example:2\n", key=KEY, name="exits.txt")
    assert len(parsed.exits) == 2
    assert parsed.warnings == ("exits.txt: blank lines skipped (2, 3)",)


def test_a_wrong_line_is_named_by_its_number() -> None:
    """Comments and blank lines count when lines are numbered."""
    with pytest.raises(ValueError, match=r"exits\.txt, line 4: has no scheme"):
        parse_exits_text("# x\n\nhttp://a.example:1\nb.example:2\n", key=KEY, name="exits.txt")


def test_a_rotating_proxy_list_is_read_as_it_is() -> None:
    """Lines without a scheme, and blank lines, are fine in a ROTATING_PROXY_LIST_PATH file."""
    text = f"proxy1.example:8000\n\n{USER}:{SECRET}@proxy2.example:8031\nhttp://proxy3.example:1\n10.0.0.1:80\n"
    parsed = parse_exits_text(text, key=KEY, rotating_proxies_style=True)
    assert [each.url for each in parsed.exits] == [
        "http://proxy1.example:8000",
        f"http://{USER}:{SECRET}@proxy2.example:8031",
        "http://proxy3.example:1",
        "http://10.0.0.1:80",
    ]
    assert parsed.warnings == ()


def test_files_that_cannot_be_read_are_named(tmp_path) -> None:
    """A missing file, a directory and a file that is not text end with the setting and the path."""
    with pytest.raises(ValueError, match=r"PACING_EXITS_FILE \(.*none\.txt\) can't be read"):
        read_exits_file(tmp_path / "none.txt", key=KEY)
    with pytest.raises(ValueError, match="can't be read"):
        read_exits_file(tmp_path, key=KEY)
    with pytest.raises(ValueError, match="can't be read: not a path"):
        read_exits_file("a\0b", key=KEY)
    file = tmp_path / "exits.txt"
    file.write_bytes(b"http://a.example:1\nhttp://u:" + SECRET.encode() + b"\xff@b.example\n")
    with pytest.raises(ValueError, match="line 2: not UTF-8") as caught:
        read_exits_file(file, key=KEY)
    assert caught.value.__suppress_context__
    file.write_text("http://a.example:1\n", encoding="utf-8")
    assert len(read_exits_file(file, key=KEY).exits) == 1


def test_a_huge_file_is_refused(tmp_path) -> None:
    """A wrong path to a disk image must not fill the memory."""
    file = tmp_path / "image"
    with file.open("wb") as out:
        out.truncate(9 * 1024 * 1024)
    with pytest.raises(ValueError, match="too large"):
        read_exits_file(file, key=KEY)
