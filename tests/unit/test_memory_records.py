"""Records: they come back from their bytes as they were, and two of them merge whichever way round."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.memory import records
from scrapy_pacing.core.memory.records import (
    Clearance,
    Cookie,
    Decoy,
    Hold,
    Limits,
    Number,
    Pace,
    Record,
    Text,
    Validators,
)

# Few values, so that records often agree in some field or in a time.
times = st.sampled_from([0.0, 1.0, 2.0, 3.5])
numbers = st.one_of(times, st.floats(allow_nan=False, allow_infinity=False))
words = st.one_of(st.sampled_from(["a", "b"]), st.text(max_size=4))
octets = st.one_of(st.none(), st.sampled_from([b'"a"', b'W/"a"']), st.binary(max_size=6))
counts = st.integers(0, 2**53)


def keyed(facts: st.SearchStrategy) -> st.SearchStrategy:
    return st.dictionaries(st.sampled_from(["/", "/a", "/b", "/c"]), facts, max_size=4)


cookies = st.builds(Cookie, words, words, words, words, st.none() | numbers, st.booleans(), st.booleans())
validators = st.builds(
    Validators, times, etag=octets, last_modified=octets, vary=st.dictionaries(words, words, max_size=2)
)
some_record = st.builds(
    Record,
    seen=times,
    warmed=times,
    pace=st.none() | st.builds(Pace, times, numbers, counts, counts),
    hold=st.none() | st.builds(Hold, times, numbers, numbers),
    layer=st.none() | st.builds(Number, times, st.none() | counts),
    tier=st.none() | st.builds(Text, times, st.none() | words),
    exit=st.none() | st.builds(Text, times, st.none() | words),
    clearance=st.none()
    | st.builds(Clearance, times, words, words, st.lists(cookies, max_size=2).map(tuple), st.none() | numbers),
    endpoints=keyed(st.builds(Text, times, words)),
    decoys=keyed(st.builds(Decoy, times, st.booleans(), st.booleans())),
    validators=keyed(validators),
)


@given(some_record)
def test_round_trip(record):
    """Whatever is learned reads back from the file as it was, in one line."""
    data = records.encode(record)
    assert records.decode(data) == record
    assert b"\n" not in data
    assert records.glance(data).seen == record.seen


@given(some_record, some_record)
def test_merge_is_commutative(a, b):
    """It does not matter which of two processes saves first."""
    assert records.merge(a, b) == records.merge(b, a)


@given(some_record, some_record, some_record)
def test_merge_is_associative(a, b, c):
    """It does not matter in which order three processes save."""
    assert records.merge(records.merge(a, b), c) == records.merge(a, records.merge(b, c))


@given(some_record, some_record)
def test_merge_is_idempotent(a, b):
    """Saving twice changes nothing."""
    merged = records.merge(a, b)
    assert records.merge(a, a) == a
    assert records.merge(merged, b) == merged


@given(some_record, some_record)
def test_merge_changes_neither(a, b):
    """A merge leaves both of its sources alone."""
    before = records.encode(a), records.encode(b)
    merged = records.merge(a, b)
    merged.validators["/new"] = Validators(9.0)
    assert (records.encode(a), records.encode(b)) == before


def test_later_knowledge_wins_field_by_field():
    """One process knows the newer interval, the other the newer layer: both come through."""
    ours = Record(pace=Pace(10.0, 7.0), layer=Number(1.0, 3), validators={"/": Validators(5.0, b'"old"')})
    theirs = Record(pace=Pace(9.0, 5.0), layer=Number(2.0, 8), validators={"/": Validators(6.0, b'"new"')})
    merged = records.merge(ours, theirs)
    assert merged.pace == ours.pace
    assert merged.layer == theirs.layer
    assert merged.validators == theirs.validators


def test_longer_hold_wins_over_later_one():
    """A wait that the server was promised is not shortened by what another process learned afterwards."""
    long, later = Hold(1.0, 100.0), Hold(5.0, 50.0)
    assert records.merge(Record(hold=long), Record(hold=later)).hold == long


def test_forgetting_outlives_the_file():
    """A clearance that was found dead stays dead although another process still has it in the file."""
    alive = Record(clearance=Clearance(1.0, "agent", cookies=(Cookie("c", "v"),)))
    dead = Record(clearance=Clearance(2.0))
    assert records.merge(alive, dead).clearance == Clearance(2.0)


@given(some_record, some_record, some_record)
def test_trimming_between_merges_changes_nothing(a, b, c):
    """Each process keeps its own bound; the result is as if all had been merged and bounded once."""
    limits = Limits(2, 2, 2)

    def both(x: Record, y: Record) -> Record:
        merged = records.merge(x, y)
        records.trim(merged, limits)
        return merged

    # Of equals in time, those of the greater key stay: the same on either side.
    assert both(both(a, b), c) == both(a, both(b, c))


@given(some_record, st.sampled_from([0.0, 1.5, 10.0]))
def test_nothing_lies_in_the_future_once_settled(record, now):
    """After the clock was set back, no fact of the file outranks what is learned from now on."""
    records.settle(record, now=now, latest=now)
    facts = [record.pace, record.layer, record.tier, record.exit, record.clearance, record.hold]
    facts += [*record.endpoints.values(), *record.decoys.values(), *record.validators.values()]
    assert all(fact.at <= now for fact in facts if fact is not None)
    assert max(record.seen, record.warmed) <= max(now, 0.0)
    assert not records.settle(record, now=now, latest=now)


@pytest.mark.parametrize(
    "data", [b"[]", b'{"seen":"x"}', b'{"validators":[]}', b'{"layer":{"at":1,"value":1e400}}', b""]
)
def test_wrong_types_are_refused(data):
    """A record of the wrong form is never half believed."""
    with pytest.raises(msgspec.DecodeError):
        records.decode(data)


def test_no_credential_in_a_repr():
    """A clearance that ends up in a log line shows no cookie value."""
    clearance = Clearance(1.0, "agent", "exit", (Cookie("cf_clearance", "s3cret", "example.com"),))
    assert "s3cret" not in repr(clearance)
    assert "cf_clearance" in repr(clearance)
