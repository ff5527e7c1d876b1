"""A file that can't be read costs a cold start and one sentence: never a crash, never what was in it."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.layers import Layer
from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Memory
from scrapy_pacing.testing import FakeClock

ORIGIN = "https://example.com"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.json"


def opened(path, **options) -> Memory:
    return Memory(path, clock=FakeClock(), **options)


def aside(path, why: str = "broken") -> list[bytes]:
    return [found.read_bytes() for found in sorted(path.parent.glob(f"{path.name}.{why}*"))]


def a_good_file(path) -> bytes:
    memory = opened(path)
    memory.record(ORIGIN, Learned(5.0))
    memory.record_validators(f"{ORIGIN}/", etag=b'"a"')
    memory.record_layer("https://example.org", Layer.COOKIES)
    assert memory.flush()
    return path.read_bytes()


BROKEN = {
    "empty": b"",
    "list": b"[]",
    "null": b"null",
    "number": b"5",
    "object": b"{}",
    "byte order mark": b'\xef\xbb\xbf{"schema":1,"origins":{}}',
    "NaN": b'{"schema":1,"origins":{"https://a":{"seen":NaN}}}',
    "deep": b'{"schema":1,"origins":' + b"[" * 200_000,
    "deep in another field": b'{"x":' + b"[" * 200_000,
    "no origins": b'{"schema":1}',
    "origins are a list": b'{"schema":1,"origins":[]}',
    "schema is a text": b'{"schema":"1","origins":{}}',
    "schema is true": b'{"schema":true,"origins":{}}',
    "older than the first": b'{"schema":0,"origins":{}}',
    "two files in one": b'{"schema":1,"origins":{}}{"schema":1,"origins":{}}',
    "not text": bytes(range(256)),
    "zeros": bytes(4096),
    "our first line alone": b'{"schema":1,"save":"00","origins":{\n',
    "no comma": b'{"schema":1,"save":"00","origins":{\n"https://a":{}\n"https://b":{}\n}}\n',
    "more after the end": b'{"schema":1,"save":"00","origins":{\n"https://a":{}\n}}\nx',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_file_is_moved_aside(path, content):
    """What can't be read is kept under another name, said once, and the crawl starts cold (I055)."""
    path.write_bytes(content)
    memory = opened(path)
    assert len(memory) == 0
    (notice,) = memory.take_notices()
    assert notice.startswith(f"{path} is broken")
    assert f"{path.name}.broken-1" in notice
    assert aside(path) == [content]
    assert not path.exists()
    memory.record(ORIGIN, Learned(5.0))
    assert memory.flush()
    assert memory.take_notices() == []
    assert opened(path).recall(ORIGIN) == Learned(5.0)
    assert aside(path) == [content]


def test_cut_at_every_byte(path):
    """Wherever a torn write has ended, the file is told from a whole one and nothing is written over (I055)."""
    whole = a_good_file(path)
    for size in range(len(whole)):
        for found in path.parent.glob(f"{path.name}.broken*"):
            found.unlink()
        path.write_bytes(whole[:size])
        memory = opened(path)
        if size < len(whole) - 1:
            assert len(memory) == 0
            assert len(memory.take_notices()) == 1
            assert aside(path) == [whole[:size]]
        else:
            # Only the line break after the last brace is missing.
            assert len(memory) == 2
            assert memory.take_notices() == []


@given(st.binary(max_size=300))
def test_any_bytes(tmp_path_factory, content):
    """Whatever lies in the file's place, opening, asking and saving go on."""
    check_any(tmp_path_factory.mktemp("any") / "memory.json", content)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
names = st.sampled_from(
    ["at", "seen", "warmed", "pace", "hold", "until", "interval", "layer", "value", "validators", "etag", "vary", "/"]
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(st.just(ORIGIN) | st.text(max_size=5), trees, max_size=3), st.booleans())
def test_any_records(tmp_path_factory, origins, pretty):
    """Whatever JSON stands where records should be, opening, asking and saving go on."""
    content = json.dumps({"schema": 1, "origins": origins}, indent=2 if pretty else None)
    check_any(tmp_path_factory.mktemp("any") / "memory.json", content.encode())


def check_any(path, content: bytes) -> None:
    path.write_bytes(content)
    memory = opened(path)
    for origin in [ORIGIN, *memory.origins()]:
        memory.recall(origin)
        memory.layer(origin)
        memory.clearance(origin, user_agent="")
        memory.record(origin, Learned(5.0))
        assert memory.recall(origin).interval == 5.0
    assert memory.flush()
    assert opened(path).recall(ORIGIN).interval == 5.0
    assert opened(path).take_notices() == []


@pytest.mark.parametrize(
    "record",
    [
        b"5",
        b"null",
        b'{"seen":"x"}',
        b'{"seen":1799999999,"pace":{"at":1}}',
        b'{"seen":1799999999,"layer":{"at":1,"value":-3}}',
        b'{"seen":1799999999,"validators":{"/":{"at":1,"etag":"!"}}}',
        b'{"seen":1799999999,"tier":{"at":1,"value":"\xff"}}',
    ],
)
def test_one_wrong_record_costs_one_origin(path, record):
    """A record of the wrong form is dropped, the others stay, and the file as it was is kept beside."""
    content = b'{"schema":1,"origins":{"https://bad":%b,"https://good":{"seen":1799999999,"layer":{"at":1,"value":3}}}}'
    path.write_bytes(content % record)
    memory = opened(path)
    assert memory.layer("https://good") is Layer.HEADERS
    assert memory.layer("https://bad") is None
    assert memory.recall("https://bad") is None
    assert memory.validators("https://bad/") is None
    assert memory.flush()
    (notice,) = memory.take_notices()
    assert "1 records of the wrong form" in notice
    assert aside(path) == [content % record]
    assert opened(path).layer("https://good") is Layer.HEADERS
    assert opened(path).take_notices() == []


def test_unknown_layer_is_no_knowledge(path):
    """A layer of a later version is not guessed at; what else is known of the site stays."""
    path.write_bytes(
        b'{"schema":1,"origins":{"https://example.com":'
        b'{"seen":1799999999,"layer":{"at":1,"value":99},"tier":{"at":1,"value":"browser"}}}}'
    )
    memory = opened(path)
    assert memory.layer(ORIGIN) is None
    assert memory.tier(ORIGIN) == "browser"
    assert memory.take_notices() == []


def test_unknown_fields_are_ignored(path):
    """A field that this version does not know is no reason to forget the rest."""
    path.write_bytes(
        b'{"schema":1,"mood":"good","origins":{"https://example.com":{"seen":1799999999,"x":[1],"layer":{"at":1,"value":3,"y":2}}}}'
    )
    assert opened(path).layer(ORIGIN) is Layer.HEADERS


NEWER = b'{"schema":2,"save":"ff","origins":{\n"somehow":"else"\n}}\n'


def test_newer_schema_is_kept_until_the_next_save(path):
    """A later version's file is not interpreted, and stays on the disk until something replaces it."""
    path.write_bytes(NEWER)
    memory = opened(path)
    (notice,) = memory.take_notices()
    assert "later version" in notice
    assert "memory.json.newer" in notice
    assert len(memory) == 0
    assert aside(path, "newer") == [NEWER]
    memory.record(ORIGIN, Learned(5.0))
    assert memory.flush()
    assert aside(path, "newer") == []
    assert opened(path).recall(ORIGIN) == Learned(5.0)


def test_newer_schema_without_a_save(path):
    """A run that learns nothing leaves the later version's data where it was put, for as long as it takes."""
    path.write_bytes(NEWER)
    assert opened(path).flush()
    assert opened(path).flush()
    assert aside(path, "newer") == [NEWER]


def test_newer_schema_that_appears_during_the_crawl(path):
    """A later version that works on the same file is not written over."""
    memory = opened(path)
    path.write_bytes(NEWER)
    memory.record(ORIGIN, Learned(5.0))
    assert not memory.flush()
    assert not memory.flush()
    assert len(memory.take_notices()) == 1
    assert memory.dirty
    assert path.read_bytes() == NEWER
    path.unlink()
    assert memory.flush()


def test_file_that_breaks_during_the_crawl(path):
    """What somebody spoils meanwhile is moved aside at the next save, and all that is known is saved."""
    a_good_file(path)
    memory = opened(path)
    path.write_bytes(b"spoilt")
    memory.record("https://example.net", Learned(6.0))
    assert memory.flush()
    assert aside(path) == [b"spoilt"]
    assert len(opened(path)) == 3


def test_file_that_vanishes_during_the_crawl(path):
    """A file that was removed is written anew, whole."""
    a_good_file(path)
    memory = opened(path)
    path.unlink()
    memory.record("https://example.net", Learned(6.0))
    assert memory.flush()
    assert len(opened(path)) == 3


def test_only_three_broken_files_are_kept(path):
    """A disk that breaks every file does not fill up with them."""
    for number in range(6):
        path.write_bytes(b"broken %d" % number)
        opened(path)
    kept = aside(path)
    assert len(kept) == 3
    assert b"broken 5" in kept


def test_a_reformatted_file_is_read(path):
    """A file that was laid out by an editor or a JSON tool is as good, and is written in lines again."""
    a_good_file(path)
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=4))
    memory = opened(path)
    assert memory.recall(ORIGIN) == Learned(5.0)
    assert memory.validators(f"{ORIGIN}/").etag == b'"a"'
    memory.record("https://example.net", Learned(6.0))
    assert memory.flush()
    assert path.read_bytes().count(b"\n") == 5
    json.loads(path.read_bytes())


def test_a_huge_file_is_not_read(path):
    """A file far beyond the bound is not taken into memory."""
    with path.open("wb") as file:
        file.truncate(5 << 20)
    memory = opened(path, max_megabytes=1)
    assert "at most 4194304 are read" in memory.take_notices()[0]


def written(path, record) -> Memory:
    path.write_text(json.dumps({"schema": 1, "origins": {ORIGIN: {"seen": 1_799_999_999, **record}}}))
    return opened(path)


def octets(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize("value", [b"*", b'"a"\r\nX-Injected: 1', b"x" * 30_000, b'"\x00"'])
@pytest.mark.parametrize("field", ["etag", "last_modified"])
def test_a_validator_that_would_not_be_recorded_is_not_read(path, field, value):
    """Whoever wrote the file: no bare star, no line break and no endless text is sent to a site."""
    page = {"at": 1_799_999_000, "full_at": 1_799_999_000}
    memory = written(path, {"validators": {"/bad": {**page, field: octets(value)}, "/good": {**page, field: "YQ=="}}})
    assert memory.validators(f"{ORIGIN}/bad") is None
    assert getattr(memory.validators(f"{ORIGIN}/good"), field) == b"a"
    assert memory.flush()
    assert octets(value) not in path.read_text()


def test_a_page_is_not_frozen_by_a_file_from_the_future(path):
    """When a page last came whole can't lie ahead; else it would never be fetched in full again."""
    page = {"at": 1_799_999_000, "etag": "YQ==", "full_at": 1e18}
    memory = written(path, {"validators": {"/": page}})
    assert memory.validators(f"{ORIGIN}/").full_at == FakeClock().wall()


SEEN = {"seen": 1_799_999_999}
COOKIE = {"name": "c", "value": "v"}
BEYOND = {
    "tier": {"tier": {"at": 1, "value": "x" * 100_000}},
    "exit": {"exit": {"at": 1, "value": "x" * 100_000}},
    "interval": {"pace": {"at": 1, "interval": -5}},
    "evidence": {"pace": {"at": 1, "interval": 5, "sustained": -5}},
    "key of a page": {"validators": {"x" * 3000: {"at": 1, "etag": "YQ=="}}},
    "vary": {"validators": {"/v": {"at": 1, "etag": "YQ==", "vary": {"x" * 3000: "y"}}}},
    "much vary": {"validators": {"/v": {"at": 1, "etag": "YQ==", "vary": {str(n): "y" for n in range(17)}}}},
    "key of a decoy": {"decoys": {"/" + "x" * 3000: {"at": 1}}},
    "decoy that is no path": {"decoys": {"trap": {"at": 1}}},
    "kind": {"endpoints": {f"{ORIGIN}/x": {"at": 1, "value": "x" * 3000}}},
    "endpoint": {"endpoints": {"javascript:x": {"at": 1, "value": "x"}}},
    "user agent": {"clearance": {"at": 1, "user_agent": "x" * 3000, "cookies": [COOKIE]}},
    "cookie": {"clearance": {"at": 1, "cookies": [{"name": "c", "value": "x" * 5000}]}},
    "line break": {"clearance": {"at": 1, "cookies": [{"name": "c", "value": "v\r\nX-Injected: 1"}]}},
    "cookies": {"clearance": {"at": 1, "cookies": [COOKIE] * 17}},
}


@pytest.mark.parametrize("record", BEYOND.values(), ids=BEYOND)
def test_what_would_not_be_recorded_is_not_read(path, record):
    """Values beyond the bounds of recording are dropped and not saved again; what else is known stays."""
    memory = written(path, {"layer": {"at": 1, "value": 3}, **record})
    assert memory.layer(ORIGIN) is Layer.HEADERS
    assert memory.flush()
    kept = json.loads(path.read_text())["origins"][ORIGIN]
    assert set(kept) == {"seen", "layer"}
    assert memory.take_notices() == []


def test_an_origin_that_would_not_be_recorded_is_not_read(path):
    """A name that is no name of a site is dropped like a record of the wrong form."""
    path.write_text(json.dumps({"schema": 1, "origins": {"x" * 5000: SEEN, ORIGIN: SEEN}}))
    assert opened(path).origins() == [ORIGIN]
