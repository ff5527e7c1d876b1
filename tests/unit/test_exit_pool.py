"""Which exit an origin leaves by, and what moves it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.exits import (
    Cause,
    Exit,
    ExitPool,
    ExitRules,
    Fault,
    Finding,
    Lease,
    Session,
    clamp_sessions,
    parse_exits,
)
from scrapy_pacing.core.exits.evidence import UNREACHABLE, fault_of_answer, fault_of_tunnel
from scrapy_pacing.testing import FakeClock

SITE = "https://site.example"
CLAIM = Fault(Cause.GATEWAY, whole_exit=False)


def exits(count: int, *, direct: bool = False) -> tuple[Exit, ...]:
    urls: list[str | None] = [f"http://192.0.2.{number}:8000" for number in range(1, count + 1)]
    return parse_exits(urls + [None] * direct, key=b"k" * 32).exits


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def pool_of(count: int, clock: FakeClock, *, most: int = 4, direct: bool = False, **options: object) -> ExitPool:
    return ExitPool(
        exits(count, direct=direct),
        max_sessions_per_exit=most,
        clock=clock,
        **options,  # type: ignore[arg-type]
    )


def leased(pool: ExitPool, origin: str = SITE) -> Lease:
    lease = pool.lease(origin)
    assert lease is not None
    return lease


def depart(pool: ExitPool, origin: str = SITE) -> Session:
    session = pool.acquire(leased(pool, origin))
    assert session is not None
    return session


def refuse(pool: ExitPool, page: str, origin: str = SITE) -> Finding | None:
    session = depart(pool, origin)
    pool.release(session)
    return pool.refused(session, f"{origin}/{page}")


def ban(pool: ExitPool, origin: str = SITE) -> Finding:
    findings = [refuse(pool, str(number), origin) for number in range(pool.rules.ban_after)]
    assert findings[:-1] == [None] * (pool.rules.ban_after - 1)
    assert findings[-1] is not None
    return findings[-1]


def kill(pool: ExitPool, origin: str = SITE) -> Finding | None:
    session = depart(pool, origin)
    pool.release(session)
    return pool.exit_fault(session, UNREACHABLE)


# -- leases ----------------------------------------------------------------------------------------------------------


def test_an_origin_keeps_its_exit(clock: FakeClock) -> None:
    """Neither time nor traffic nor other origins move an origin."""
    pool = pool_of(3, clock)
    first = leased(pool)
    for number in range(200):
        clock.advance(3600)
        leased(pool, f"https://other{number}.example")
        session = depart(pool)
        pool.succeeded(session)
        pool.release(session)
        assert leased(pool) == first


def test_new_leases_are_spread(clock: FakeClock) -> None:
    """Twenty origins over four exits: five each."""
    pool = pool_of(4, clock)
    for number in range(20):
        leased(pool, f"https://{number}.example")
    assert [each.leases for each in pool.stats()] == [5, 5, 5, 5]


def test_a_new_lease_goes_where_there_is_room(clock: FakeClock) -> None:
    """An exit that is busy is passed over, even where it has fewer leases (I069)."""
    pool = pool_of(2, clock, most=1)
    depart(pool, "https://a.example")
    second = leased(pool, "https://b.example").exit
    assert leased(pool, "https://c.example").exit == second
    assert leased(pool, "https://d.example").exit == second


def test_the_remembered_exit_is_preferred(clock: FakeClock) -> None:
    """What Memory kept from the last run is taken, though another exit has fewer leases; an unknown id is no error."""
    pool = pool_of(3, clock)
    third = exits(3)[2]
    for number in range(5):
        lease = pool.lease(f"https://{number}.example", prefer=third.id)
        assert lease is not None
        assert lease.exit == third
    assert pool.lease("https://x.example", prefer="0123456789abcdef") is not None


def test_the_remembered_exit_does_not_overrule_evidence(clock: FakeClock) -> None:
    """An exit that the origin has refused, or that is dead, is not preferred."""
    pool = pool_of(3, clock)
    burnt = leased(pool).exit
    ban(pool)
    moved = pool.lease(SITE, prefer=burnt.id)
    assert moved is not None
    assert moved.exit != burnt
    kill(pool)
    dead = moved.exit
    other = pool.lease("https://b.example", prefer=dead.id)
    assert other is not None
    assert other.exit != dead


def test_two_users_of_one_gateway_are_banned_apart(clock: FakeClock) -> None:
    """A ban of s1 leaves s2 and s3 of the same host and port alone (I067)."""
    users = parse_exits([f"http://s{n}:pw@gateway.example:8000" for n in (1, 2, 3)], key=b"k" * 32).exits
    pool = ExitPool(users, clock=clock)
    seen = [leased(pool).exit]
    for _ in range(2):
        ban(pool)
        seen.append(leased(pool).exit)
    assert set(seen) == set(users)


@pytest.mark.parametrize("count", [0, -3])
def test_a_pool_needs_an_exit_and_a_bound(clock: FakeClock, count: int) -> None:
    """No exits, an exit that stands there twice, or no place for origins is a mistake of the caller's."""
    with pytest.raises(ValueError, match="exits is empty"):
        ExitPool([], clock=clock)
    with pytest.raises(ValueError, match="twice"):
        ExitPool(exits(2) + exits(1), clock=clock)
    with pytest.raises(ValueError, match="max_origins is"):
        pool_of(1, clock, max_origins=count)


# -- room ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "clamped"), [(-5, 1), (0, 1), (1, 1), (2, 2), (4, 4), (5, 4), (10**9, 4)])
def test_the_clamp_is_not_negotiable(clock: FakeClock, value: int, clamped: int) -> None:
    """Whatever is asked for, 1 to 4 requests at once; a warning says that the number was changed."""
    pool = pool_of(1, clock, most=value)
    assert pool.max_sessions_per_exit == clamped
    assert bool(pool.warnings) == (value != clamped)
    assert all(str(value) in each and str(clamped) in each for each in pool.warnings)
    lease = leased(pool)
    taken = [pool.acquire(lease) for _ in range(clamped + 3)]
    assert sum(each is not None for each in taken) == clamped


@pytest.mark.parametrize("value", [True, 2.5, "3", None, float("nan")])
def test_a_clamp_that_is_no_number_is_refused(value: object) -> None:
    """The message names the setting, the value and what is allowed."""
    with pytest.raises(ValueError, match=r"PACING_MAX_SESSIONS_PER_EXIT is .*from 1 to 4"):
        clamp_sessions(value, setting="PACING_MAX_SESSIONS_PER_EXIT")


def test_room_is_shared_by_all_origins(clock: FakeClock) -> None:
    """Two exits, clamp 1, twenty origins: one request at a time by each exit, and both are used (I069)."""
    pool = pool_of(2, clock, most=1)
    origins = [f"https://{number}.example" for number in range(20)]
    taken = [pool.acquire(leased(pool, origin)) for origin in origins]
    assert sum(each is not None for each in taken) == 2
    assert [each.in_flight for each in pool.stats()] == [1, 1]


def test_room_given_back_twice_is_given_back_once(clock: FakeClock) -> None:
    """An error path that releases again must not make room out of nothing (I070)."""
    pool = pool_of(1, clock, most=2)
    first, second = depart(pool), depart(pool)
    for _ in range(3):
        pool.release(first)
    assert pool.in_flight(SITE) == 1
    assert [each.in_flight for each in pool.stats()] == [1]
    pool.release(second)
    assert [each.in_flight for each in pool.stats()] == [0]


def test_a_lease_that_has_ended_gets_no_room(clock: FakeClock) -> None:
    """A request that waited while its origin moved must not leave by the old exit (I066)."""
    pool = pool_of(2, clock)
    old = leased(pool)
    ban(pool)
    assert not pool.is_current(old)
    assert pool.acquire(old) is None
    assert pool.acquire(Lease("https://never.example", old.exit, 0)) is None


def test_who_waits_for_room_is_told_in_turn(clock: FakeClock) -> None:
    """Room that comes free is offered to whoever waits longest, to the next if that one takes none, and to no more."""
    pool = pool_of(1, clock, most=1)
    session = depart(pool, "https://a.example")
    waiting = [f"https://{name}.example" for name in "bcd"]
    assert not any(pool.has_room(origin) for origin in waiting)
    told: list[str] = []
    taken: list[Session] = []

    def take_second(origin: str) -> None:
        told.append(origin)
        if origin == "https://c.example":
            taken.append(depart(pool, origin))

    pool.watch(take_second)
    pool.release(session)
    assert told == ["https://b.example", "https://c.example"]
    pool.release(taken[0])
    assert told[2:] == ["https://d.example"]
    pool.unwatch(take_second)
    pool.unwatch(take_second)
    assert pool.has_room("https://d.example")


def test_a_watcher_that_asks_again_at_once_does_not_spin(clock: FakeClock) -> None:
    """Being told, asking, and being told no again ends."""
    pool = pool_of(1, clock, most=1)
    session = depart(pool, "https://a.example")
    origins = [f"https://{number}.example" for number in range(50)]
    assert not any(pool.has_room(origin) for origin in origins)
    calls: list[str] = []

    def grab(origin: str) -> None:
        calls.append(origin)
        assert len(calls) <= 200
        if pool.has_room(origin) and len(calls) == 1:
            depart(pool, origin)

    pool.watch(grab)
    pool.release(session)
    assert calls == [origins[0]]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_three_refusals_in_a_row_move_an_origin(clock: FakeClock) -> None:
    """403 on three pages, no success between: the next request leaves by another exit, with a new cookie jar (I082)."""
    pool = pool_of(2, clock)
    old = leased(pool)
    finding = ban(pool)
    assert finding == Finding(old, Cause.REFUSED, moves=True)
    new = leased(pool)
    assert new.exit != old.exit
    assert new.generation > old.generation
    assert new.jar != old.jar


def test_a_success_between_forgives(clock: FakeClock) -> None:
    """Refusals that are not in a row are a matter of the pages, not of the address."""
    pool = pool_of(2, clock)
    lease = leased(pool)
    for number in range(12):
        assert refuse(pool, str(number)) is None
        if number % 2:
            session = depart(pool)
            pool.succeeded(session)
            pool.release(session)
    assert leased(pool) == lease


def test_the_same_page_refused_again_is_no_news(clock: FakeClock) -> None:
    """A forbidden page that is retried, or reached with another fragment, does not burn the address."""
    pool = pool_of(2, clock)
    lease = leased(pool)
    for number in range(10):
        assert refuse(pool, f"admin#{number}") is None
    assert leased(pool) == lease


def test_a_page_that_is_no_news_hides_no_other(clock: FakeClock) -> None:
    """A known page's refusal does not swallow the refusal of a new one that left with it."""
    pool = pool_of(2, clock)
    refuse(pool, "1")
    refuse(pool, "2")
    known, new = depart(pool), depart(pool)
    assert pool.refused(known, f"{SITE}/1") is None
    assert pool.refused(new, f"{SITE}/3") is not None


def test_refusals_that_were_in_flight_together_count_once(clock: FakeClock) -> None:
    """Eight 403s of one burst are one strike, not two rotations and a half (I079)."""
    pool = pool_of(2, clock, most=4)
    lease = leased(pool)
    for burst in range(2):
        together = [depart(pool) for _ in range(4)]
        for number, session in enumerate(together):
            assert pool.refused(session, f"{SITE}/{burst}/{number}") is None
            pool.release(session)
    assert leased(pool) == lease
    together = [depart(pool) for _ in range(4)]
    findings = [pool.refused(session, f"{SITE}/2/{number}") for number, session in enumerate(together)]
    assert [each is not None for each in findings] == [True, False, False, False]


@pytest.mark.parametrize("statuses", [[429] * 50, [404] * 50, [503] * 50, [429, 404, 503, 500, 200] * 20])
def test_other_answers_never_move_an_origin(clock: FakeClock, statuses: list[int]) -> None:
    """A 429 is arithmetic, a 404 a page, a 503 the site's: the exit stays, whatever their number (I073)."""
    pool = pool_of(3, clock)
    lease = leased(pool)
    for status in statuses:
        session = depart(pool)
        assert fault_of_answer(status, {}) is None
        pool.answered(session)
        pool.release(session)
        clock.advance(100)
    assert leased(pool) == lease


def test_answers_between_do_not_forgive_refusals(clock: FakeClock) -> None:
    """A 404 between two refusals is no success."""
    pool = pool_of(2, clock)
    refuse(pool, "1")
    refuse(pool, "2")
    session = depart(pool)
    pool.answered(session)
    pool.release(session)
    assert refuse(pool, "3") is not None


def test_late_answers_of_the_old_exit_change_nothing(clock: FakeClock) -> None:
    """Refusals, successes, faults and reports of an ended lease leave the new one as it is (I082)."""
    pool = pool_of(3, clock, most=4)
    late = [depart(pool) for _ in range(3)]
    old = late[0].lease
    finding = pool.report_ban(SITE, lease=old)
    assert finding is not None
    new = leased(pool)
    refuse(pool, "1")
    refuse(pool, "2")
    pool.succeeded(late[0])
    assert pool.report_ban(SITE, lease=old) is None
    assert pool.refused(late[1], f"{SITE}/late") is None
    assert pool.exit_fault(late[2], CLAIM) is None
    assert leased(pool) == new
    for session in late:
        pool.release(session)
    # The late success has not forgiven the two refusals either.
    assert refuse(pool, "3") is not None


def test_a_burnt_pair_comes_back_after_a_cool_down_that_grows(clock: FakeClock) -> None:
    """The refused exit is kept from the origin for an hour, then for two; a success clears the account."""
    pool = pool_of(1, clock, rules=ExitRules(pair_cooldown=3600.0))
    ban(pool)
    assert pool.lease(SITE) is None
    assert pool.available_at(SITE) == 3600.0
    clock.advance(3599)
    assert pool.lease(SITE) is None
    clock.advance(1)
    assert leased(pool).generation == 1
    ban(pool)
    assert pool.available_at(SITE) == clock.monotonic() + 7200
    clock.advance(7200)
    session = depart(pool)
    pool.succeeded(session)
    pool.release(session)
    ban(pool)
    assert pool.available_at(SITE) == clock.monotonic() + 3600


def test_cool_downs_are_capped(clock: FakeClock) -> None:
    """However often an exit fails, it is tried again within the cap."""
    pool = pool_of(1, clock, rules=ExitRules(pair_cooldown=3600.0, max_cooldown=10_000.0))
    for _ in range(2000):
        ban(pool)
        assert pool.available_at(SITE) - clock.monotonic() <= 10_000
        clock.advance(10_000)


def test_no_exit_left_for_one_origin_leaves_the_others_alone(clock: FakeClock) -> None:
    """A rule that always says "banned" ends with that origin waiting, not with every exit dead (I074)."""
    pool = pool_of(3, clock)
    others = [leased(pool, f"https://{number}.example") for number in range(6)]
    assert [ban(pool).moves for _ in range(3)] == [True, True, False]
    assert pool.lease(SITE) is None
    assert not pool.has_room(SITE)
    assert not pool.exhausted
    assert pool.available_at(SITE) > clock.monotonic()
    assert [leased(pool, each.origin) for each in others] == others
    assert pool.available_at("https://0.example") == clock.monotonic()
    assert pool.available_at("https://new.example") == clock.monotonic()


# -- the spider's word -----------------------------------------------------------------------------------------------


def test_the_spiders_word_moves_an_origin_once(clock: FakeClock) -> None:
    """Eight pages of a ban, each reported, are one rotation."""
    pool = pool_of(4, clock)
    session = depart(pool)
    pool.succeeded(session)
    findings = [pool.report_ban(SITE) for _ in range(8)]
    assert [each is not None for each in findings] == [True] + [False] * 7
    leased(pool)
    # The present lease has shown nothing yet: what is reported now came by the last one.
    assert pool.report_ban(SITE) is None
    assert sum(each.rotations.get("reported", 0) for each in pool.stats()) == 1


def test_a_report_about_a_stranger_is_nothing(clock: FakeClock) -> None:
    """An origin that has no lease can't lose it."""
    assert pool_of(1, clock).report_ban("https://stranger.example") is None


# -- faults of the exit ----------------------------------------------------------------------------------------------


def test_a_dead_proxy_moves_its_origins(clock: FakeClock) -> None:
    """A refused connection to the proxy is enough; each origin moves when it next asks, and only those."""
    pool = pool_of(3, clock)
    origins = [f"https://{number}.example" for number in range(9)]
    before = {origin: leased(pool, origin) for origin in origins}
    finding = kill(pool, origins[0])
    dead = before[origins[0]].exit
    assert finding == Finding(before[origins[0]], Cause.UNREACHABLE, exit_died=True, moves=True)
    for origin in origins:
        lease = leased(pool, origin)
        assert (lease != before[origin]) == (before[origin].exit == dead)
        assert lease.exit != dead
    assert [each.dead for each in pool.stats()] == ["unreachable", None, None]
    assert pool.stats()[0].rotations == {"unreachable": 3}


def test_a_dead_exit_is_probed_by_one_request(clock: FakeClock) -> None:
    """Until the cool-down is over nobody uses it, then one request at a time does; a success brings it back."""
    pool = pool_of(1, clock, rules=ExitRules(exit_cooldown=60.0))
    lease = leased(pool)
    kill(pool)
    assert pool.lease(SITE) is None
    assert pool.available_at(SITE) == 60.0
    clock.advance(60)
    assert pool.lease(SITE) == lease
    probe = depart(pool)
    assert pool.acquire(lease) is None
    assert pool.lease("https://other.example") is None
    pool.succeeded(probe)
    pool.release(probe)
    assert not pool.exhausted
    assert pool.has_room(SITE)
    assert pool.has_room("https://other.example")


def test_a_probe_that_fails_makes_the_cool_down_longer(clock: FakeClock) -> None:
    """60 s, 120 s, 240 s, up to the cap; a time-out or a claim in the way fails a probe as well."""
    pool = pool_of(1, clock, rules=ExitRules(exit_cooldown=60.0, max_cooldown=200.0))
    kill(pool)
    for failed, cooldown in [("fault", 120), ("timeout", 200), ("claim", 200)]:
        clock.advance(pool.available_at(SITE) - clock.monotonic())
        session = depart(pool)
        if failed == "timeout":
            assert pool.timed_out(session) is not None
        else:
            assert pool.exit_fault(session, UNREACHABLE if failed == "fault" else CLAIM) is not None
        pool.release(session)
        assert pool.available_at(SITE) == clock.monotonic() + cooldown


def test_a_probe_that_ends_without_a_word_is_not_followed_at_once(clock: FakeClock) -> None:
    """A cancelled probe gives its room back, and the next waits for a cool-down."""
    pool = pool_of(1, clock)
    kill(pool)
    clock.advance(60)
    pool.release(depart(pool))
    assert pool.lease(SITE) is None
    assert pool.available_at(SITE) == clock.monotonic() + 60


def test_a_slow_probe_is_not_joined_by_a_second(clock: FakeClock) -> None:
    """However long a probe takes, nothing else leaves by the dead exit; what waited is told when it ends."""
    pool = pool_of(1, clock)
    kill(pool)
    clock.advance(60)
    probe = depart(pool)
    clock.advance(10_000)
    assert not pool.has_room(SITE)
    told: list[str] = []
    pool.watch(told.append)
    pool.release(probe)
    assert told == [SITE]


def test_any_answer_proves_that_an_exit_lives(clock: FakeClock) -> None:
    """A probe that brings a 404 or a 403 has got through."""
    pool = pool_of(1, clock)
    kill(pool)
    clock.advance(60)
    session = depart(pool)
    assert pool.refused(session, f"{SITE}/x") is None
    assert not pool.exhausted


def test_what_was_in_flight_at_a_death_says_nothing_more(clock: FakeClock) -> None:
    """Four failures that left together are one death, and a late answer does not undo it."""
    pool = pool_of(2, clock, most=4)
    together = [depart(pool) for _ in range(4)]
    assert pool.exit_fault(together[0], UNREACHABLE) is not None
    assert pool.exit_fault(together[1], UNREACHABLE) is None
    assert pool.timed_out(together[2]) is None
    pool.succeeded(together[3])
    assert pool.stats()[0].dead == "unreachable"
    for session in together:
        pool.release(session)
    clock.advance(60)
    assert pool.lease("https://new.example", prefer=together[0].lease.exit.id) is not None


def test_where_every_exit_fails_it_is_said_once_and_nobody_moves(clock: FakeClock) -> None:
    """A network that is down for a while costs no origin its address, its cookies or its history (I074)."""
    pool = pool_of(3, clock)
    origins = [f"https://{number}.example" for number in range(3)]
    sessions = [depart(pool, origin) for origin in origins]
    before = [leased(pool, origin) for origin in origins]
    findings = [pool.exit_fault(session, UNREACHABLE) for session in sessions]
    assert [each is not None and each.exhausted for each in findings] == [False, False, True]
    assert findings[2] is not None
    assert not findings[2].moves
    for session in sessions:
        pool.release(session)
    assert pool.exhausted
    assert [pool.lease(origin) for origin in origins] == [None] * 3
    clock.advance(60)
    again = [pool.exit_fault(depart(pool, origin), UNREACHABLE) for origin in origins]
    assert [each is not None and each.exhausted for each in again] == [False] * 3
    clock.advance(120)
    assert [leased(pool, origin) for origin in origins] == before


def test_who_has_no_exit_is_told_when_one_comes_back(clock: FakeClock) -> None:
    """The watcher is called for origins that were turned away, at the probe's success."""
    pool = pool_of(1, clock)
    kill(pool)
    assert pool.lease("https://a.example") is None
    assert not pool.has_room("https://b.example")
    clock.advance(60)
    probe = depart(pool)
    told: list[str] = []
    pool.watch(told.append)
    pool.succeeded(probe)
    assert sorted(told) == ["https://a.example", "https://b.example"]
    assert leased(pool, "https://a.example").exit == probe.lease.exit


def test_a_new_origin_probes_a_dead_exit_and_stays_if_it_lives(clock: FakeClock) -> None:
    """While other exits work, a dead one is tried by one new origin, whose next requests wait for the outcome."""
    pool = pool_of(2, clock, rules=ExitRules(exit_cooldown=60.0))
    dead = leased(pool).exit
    kill(pool)
    leased(pool)
    clock.advance(60)
    prober, second = (leased(pool, f"https://{number}.example") for number in range(2))
    assert prober.exit == dead
    assert second.exit != dead
    probe = depart(pool, prober.origin)
    assert leased(pool, prober.origin) == prober
    assert not pool.has_room(prober.origin)
    pool.succeeded(probe)
    assert leased(pool, prober.origin) == prober
    assert pool.has_room(prober.origin)


def test_a_new_origin_whose_probe_fails_moves_on(clock: FakeClock) -> None:
    """A probe by a new origin costs that origin one request."""
    pool = pool_of(2, clock)
    dead = leased(pool).exit
    kill(pool)
    leased(pool)
    clock.advance(60)
    assert leased(pool, "https://new.example").exit == dead
    assert kill(pool, "https://new.example") is not None
    assert leased(pool, "https://new.example").exit != dead


def test_a_dead_exit_that_is_being_probed_is_not_preferred(clock: FakeClock) -> None:
    """What Memory remembers does not make a second origin wait for another's probe while other exits work."""
    pool = pool_of(2, clock)
    dead = leased(pool).exit
    kill(pool)
    leased(pool)
    clock.advance(60)
    assert leased(pool, "https://prober.example").exit == dead
    other = pool.lease("https://other.example", prefer=dead.id)
    assert other is not None
    assert other.exit != dead


def test_in_an_outage_each_origin_waits_for_its_own_exit(clock: FakeClock) -> None:
    """Where all are dead, an exit that is due first does not draw the origins of the others."""
    pool = pool_of(2, clock)
    mine, theirs = leased(pool), leased(pool, "https://b.example")
    sessions = [depart(pool), depart(pool, "https://b.example")]
    pool.exit_fault(sessions[0], UNREACHABLE)
    clock.advance(30)
    pool.exit_fault(sessions[1], UNREACHABLE)
    clock.advance(30)
    assert pool.lease("https://b.example") is None
    assert pool.lease(SITE) == mine
    assert pool.available_at("https://b.example") == 90
    clock.advance(30)
    assert pool.lease("https://b.example") == theirs


def test_who_waits_for_room_at_an_exit_that_dies_is_told(clock: FakeClock) -> None:
    """It need not wait for room that will not come: it can move."""
    pool = pool_of(2, clock, most=1)
    session = depart(pool, "https://a.example")
    assert pool.lease("https://b.example", prefer=session.lease.exit.id) is not None
    assert not pool.has_room("https://b.example")
    told: list[str] = []
    pool.watch(told.append)
    pool.exit_fault(session, UNREACHABLE)
    assert told == ["https://b.example"]
    assert pool.has_room("https://b.example")


def test_a_second_outage_is_said_again(clock: FakeClock) -> None:
    """Once per outage, not once per process."""
    pool = pool_of(1, clock)
    said = []
    for _ in range(2):
        finding = kill(pool)
        assert finding is not None
        said.append(finding.exhausted)
        clock.advance(pool.available_at(SITE) - clock.monotonic())
        session = depart(pool)
        pool.succeeded(session)
        pool.release(session)
    assert said == [True, True]


def test_an_exit_whose_origins_are_done_is_probed_by_others(clock: FakeClock) -> None:
    """After an outage no origin waits for its own exit for ever while another would work."""
    pool = pool_of(2, clock)
    kill(pool)
    kill(pool, "https://done.example")
    # One exit recovers: the one that only the finished origin leases.
    clock.advance(60)
    mine = leased(pool)
    assert kill(pool) is not None
    clock.advance(60)
    other = leased(pool)
    assert other.exit != mine.exit
    session = depart(pool)
    pool.succeeded(session)
    assert not pool.exhausted


def test_the_machines_own_address_has_no_proxy_to_fail(clock: FakeClock) -> None:
    """A refused connection without a proxy is the site's affair."""
    pool = pool_of(0, clock, direct=True)
    for _ in range(10):
        assert kill(pool) is None
    assert not pool.exhausted
    assert pool.lease(SITE) is not None


def test_a_claim_moves_its_origin_and_no_other(clock: FakeClock) -> None:
    """A 407 or a gateway error in an answer can be the site's invention: other origins keep the exit."""
    pool = pool_of(2, clock)
    mine, other = leased(pool), pool.lease("https://other.example", prefer=leased(pool).exit.id)
    finding = pool.exit_fault(depart(pool), CLAIM)
    assert finding == Finding(mine, Cause.GATEWAY, moves=True)
    assert leased(pool).exit != mine.exit
    assert pool.lease("https://other.example") == other
    assert not any(each.dead for each in pool.stats())
    # New origins rather go elsewhere.
    assert leased(pool, "https://new.example").exit != mine.exit


def test_claims_of_several_origins_are_believed(clock: FakeClock) -> None:
    """Three origins in a row without an answer between: the whole exit is dead."""
    pool = pool_of(2, clock)
    first = leased(pool).exit
    origins = [f"https://{number}.example" for number in range(3)]
    for origin in origins:
        pool.lease(origin, prefer=first.id)
    findings = [pool.exit_fault(depart(pool, origin), CLAIM) for origin in origins]
    assert [each is not None and each.exit_died for each in findings] == [False, False, True]


def test_sites_that_are_down_do_not_kill_one_exit_after_the_other(clock: FakeClock) -> None:
    """Three unreachable sites may spoil the exit they began by, but not the next and the next."""
    pool = pool_of(4, clock)
    first = exits(1)[0]
    down = [f"https://down{number}.example" for number in range(3)]
    for origin in down:
        pool.lease(origin, prefer=first.id)
    for _ in range(12):
        for origin in down:
            if pool.lease(origin) is not None:
                session = depart(pool, origin)
                pool.exit_fault(session, fault_of_tunnel(502))
                pool.release(session)
        clock.advance(5)
    assert sum(each.dead is not None for each in pool.stats()) <= 1
    assert leased(pool, "https://fine.example")


# -- time-outs -------------------------------------------------------------------------------------------------------


def test_time_outs_of_one_origin_are_nothing(clock: FakeClock) -> None:
    """One origin that hangs, for however long, keeps its exit."""
    pool = pool_of(2, clock)
    lease = leased(pool)
    for _ in range(30):
        session = depart(pool)
        assert pool.timed_out(session) is None
        pool.release(session)
    assert leased(pool) == lease


def hear_nothing(pool: ExitPool, page: str, origin: str = SITE) -> Finding | None:
    session = depart(pool, origin)
    pool.release(session)
    return pool.timed_out(session, f"{origin}/{page}")


def test_several_pages_in_a_row_without_an_answer_move_their_origin_alone(clock: FakeClock) -> None:
    """An exit by which three pages of an origin hear nothing is left by that origin, and lives on for the others."""
    pool = pool_of(2, clock)
    other = pool.lease("https://other.example", prefer=leased(pool).exit.id)
    findings = [hear_nothing(pool, page) for page in "abc"]
    assert findings[:2] == [None, None]
    assert findings[2] is not None
    assert (findings[2].cause, findings[2].moves, findings[2].exit_died) == (Cause.TIMEOUTS, True, False)
    assert leased(pool).exit == exits(2)[1]
    assert leased(pool, "https://other.example") == other


def test_a_loss_counts_like_a_time_out_and_has_its_name(clock: FakeClock) -> None:
    """Time-outs and lost connections make one row; the last of it names the cause."""
    pool = pool_of(2, clock)
    hear_nothing(pool, "a")
    hear_nothing(pool, "b")
    session = depart(pool)
    finding = pool.timed_out(session, f"{SITE}/c", cause=Cause.LOST)
    assert finding is not None
    assert finding.cause is Cause.LOST


def test_the_same_page_without_an_answer_is_no_news(clock: FakeClock) -> None:
    """A page that hangs each time moves nobody."""
    pool = pool_of(2, clock)
    assert [hear_nothing(pool, "slow") for _ in range(30)] == [None] * 30


def test_one_time_out_never_moves_an_origin(clock: FakeClock) -> None:
    """Not even where one refusal is enough."""
    pool = pool_of(2, clock, rules=ExitRules(ban_after=1))
    assert hear_nothing(pool, "a") is None
    assert hear_nothing(pool, "b") is not None


def test_pages_that_were_in_flight_together_are_one_silence(clock: FakeClock) -> None:
    """Four requests that hang together are one piece of evidence."""
    pool = pool_of(2, clock)
    for burst in range(3):
        together = [depart(pool) for _ in range(4)]
        findings = [pool.timed_out(each, f"{SITE}/{burst}/{n}") for n, each in enumerate(together)]
        for each in together:
            pool.release(each)
        assert [each is not None for each in findings] == [burst == 2, False, False, False]


def test_an_answer_between_silences_starts_the_row_again(clock: FakeClock) -> None:
    """Any answer, and what had left before it counts no more."""
    pool = pool_of(2, clock)
    hear_nothing(pool, "a")
    hear_nothing(pool, "b")
    earlier, answered = depart(pool), depart(pool)
    pool.answered(answered)
    pool.release(answered)
    assert pool.timed_out(earlier, f"{SITE}/earlier") is None
    pool.release(earlier)
    assert [hear_nothing(pool, page) for page in "cd"] == [None, None]
    assert hear_nothing(pool, "e") is not None


def test_an_origin_that_is_down_doubts_each_exit_once(clock: FakeClock) -> None:
    """It goes from exit to exit once, stays where it is then, is not stranded, and takes no exit from the others."""
    pool = pool_of(3, clock)
    moves = []
    for number in range(200):
        clock.advance(60)
        moves.append(hear_nothing(pool, str(number)))
    left = [each.lease.exit for each in moves if each is not None]
    assert left == [exits(3)[0], exits(3)[1]]
    assert leased(pool).exit == exits(3)[2]
    assert all(each.dead is None for each in pool.stats())
    holder = pool._holders.find(SITE)
    assert holder is not None
    assert len(holder.silences) < pool.rules.silent_after


def test_an_origin_that_has_been_answered_may_doubt_again(clock: FakeClock) -> None:
    """After an answer by the second exit the first may be gone to again, once its cool-down is over."""
    pool = pool_of(2, clock)
    for page in "abc":
        hear_nothing(pool, page)
    session = depart(pool)
    pool.answered(session)
    pool.release(session)
    assert [hear_nothing(pool, page) for page in "def"] == [None] * 3
    clock.advance(pool.rules.exit_cooldown)
    assert any(hear_nothing(pool, page) for page in "ghi")
    assert leased(pool).exit == exits(2)[0]


def test_time_outs_of_several_origins_are_a_fault(clock: FakeClock) -> None:
    """Three origins in a row by one exit, with no answer between: the exit is dead (I073)."""
    pool = pool_of(2, clock)
    origins = [f"https://{number}.example" for number in range(3)]
    for origin in origins:
        pool.lease(origin, prefer=exits(2)[0].id)
    findings = [pool.timed_out(depart(pool, origin)) for origin in origins]
    assert findings[:2] == [None, None]
    assert findings[2] is not None
    assert findings[2].cause is Cause.TIMEOUTS
    assert findings[2].exit_died
    assert all(leased(pool, origin).exit == exits(2)[1] for origin in origins)


def test_an_answer_between_time_outs_clears_the_exit(clock: FakeClock) -> None:
    """Any answer shows that the exit works, and so do requests that had left before it."""
    pool = pool_of(1, clock, most=4)
    sessions = [depart(pool, f"https://{number}.example") for number in range(4)]
    pool.timed_out(sessions[0])
    pool.timed_out(sessions[1])
    pool.answered(sessions[3])
    assert pool.timed_out(sessions[2]) is None
    for session in sessions:
        pool.release(session)
    for number in range(2):
        assert pool.timed_out(depart(pool, f"https://{number}.example")) is None
    assert not pool.exhausted


# -- evidence in answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "cause"),
    [
        (407, {}, Cause.CREDENTIALS),
        (502, {"Proxy-Status": "proxy.example; error=connection_refused"}, Cause.GATEWAY),
        (503, {"proxy-status": 'cdn; received-status=200, "my proxy"; error=dns_error'}, Cause.GATEWAY),
        (504, {"X-Squid-Error": "ERR_CONNECT_FAIL 111"}, Cause.GATEWAY),
        (502, {}, None),
        (503, {"Retry-After": "5"}, None),
        (503, {"Proxy-Status": "cdn; error=dns_error, proxy.example; received-status=503"}, None),
        (503, {"Proxy-Status": "((("}, None),
        (503, {"Proxy-Status": "a; error=x, " * 1000}, None),
        (500, {"X-Squid-Error": "x"}, None),
        (403, {"X-Squid-Error": "x"}, None),
        (429, {"Proxy-Status": "proxy.example; error=x"}, None),
        (200, {"Proxy-Status": "proxy.example; error=x"}, None),
    ],
)
def test_an_answer_is_the_proxys_only_where_it_says_so(status: int, headers: dict[str, str], cause: Cause) -> None:
    """A bare 502 or 503 is the site's; one that the proxy signed is a claim against the exit, never proof (I073)."""
    fault = fault_of_answer(status, headers)
    assert fault == (None if cause is None else Fault(cause, whole_exit=False))
    assert fault_of_answer(status, list(headers.items())) == fault


@given(st.integers(), st.text())
def test_no_header_can_raise(status: int, value: str) -> None:
    """Whatever a server sends is read or passed over."""
    for known in (status, 502):
        fault_of_answer(known, {"Proxy-Status": value, "proxy-status": f"a; error={value}"})


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (407, Fault(Cause.CREDENTIALS, whole_exit=True)),
        (502, Fault(Cause.GATEWAY, whole_exit=False)),
        (403, Fault(Cause.TUNNEL, whole_exit=False)),
        (None, Fault(Cause.TUNNEL, whole_exit=True)),
    ],
)
def test_a_refused_tunnel_is_told_by_its_status(status: int | None, fault: Fault) -> None:
    """To CONNECT only the proxy can answer 407; a gateway status speaks of one destination."""
    assert fault_of_tunnel(status) == fault


# -- bounds and numbers ----------------------------------------------------------------------------------------------


def test_state_is_bounded(clock: FakeClock) -> None:
    """A crawl of very many sites does not grow, and the counts of leases stay right."""
    pool = pool_of(3, clock, max_origins=50)
    for number in range(5000):
        pool.has_room(f"https://{number}.example")
    assert len(pool) == 50
    assert sum(each.leases for each in pool.stats()) == 50


def test_an_origin_in_flight_is_never_dropped(clock: FakeClock) -> None:
    """Its room is given back after thousands of other origins have come by."""
    pool = pool_of(1, clock, max_origins=2)
    session = depart(pool)
    for number in range(1000):
        pool.lease(f"https://{number}.example")
    assert pool.is_current(session.lease)
    pool.release(session)
    assert [each.in_flight for each in pool.stats()] == [0]
    pool.lease("https://x.example")
    pool.lease("https://y.example")
    assert len(pool) == 2
    assert not pool.is_current(session.lease)


def test_waiting_origins_that_are_dropped_are_not_told(clock: FakeClock) -> None:
    """The row of those who wait for room is bounded like everything else."""
    pool = pool_of(1, clock, most=1, max_origins=10)
    session = depart(pool)
    for number in range(1000):
        pool.has_room(f"https://{number}.example")
    told: list[str] = []
    pool.watch(told.append)
    pool.release(session)
    assert len(told) == 9


def test_a_dropped_origin_never_gets_an_ended_jar_back(clock: FakeClock) -> None:
    """Cookies of a burnt lease stay buried, though the origin was forgotten in between (I082)."""
    pool = pool_of(2, clock, max_origins=1)
    jars: list[str] = []
    for _ in range(6):
        jars.append(leased(pool).jar)
        ban(pool)
        pool.lease("https://other.example")
    assert len(set(jars)) == 6


def test_ten_thousand_requests_with_every_fault_leave_nothing_behind(clock: FakeClock) -> None:
    """Answers, errors, time-outs, cancellations and drops in turn: all room is free at the end (I070)."""
    pool = pool_of(4, clock, max_origins=64, rules=ExitRules(pair_cooldown=30.0, exit_cooldown=5.0))
    endings = {
        3: lambda session, number: pool.refused(session, f"{SITE}/{number}"),
        7: lambda session, _: pool.timed_out(session),
        11: lambda session, _: pool.exit_fault(session, UNREACHABLE),
        13: lambda session, _: pool.exit_fault(session, CLAIM),
        17: lambda session, _: pool.report_ban(session.lease.origin, lease=session.lease),
        19: lambda *_: None,
    }
    flying: list[Session] = []
    departed = 0
    for number in range(60_000):
        lease = pool.lease(f"https://{number % 90}.example")
        session = None if lease is None else pool.acquire(lease)
        if session is not None:
            flying.append(session)
            departed += 1
        if flying and (session is None or len(flying) > 10):
            done = flying.pop(number % len(flying))
            endings.get(number % 23, lambda session, _: pool.succeeded(session))(done, number)
            pool.release(done)
        clock.advance(1)
        if departed == 10_000:
            break
    assert departed == 10_000
    for session in flying:
        pool.release(session)
    assert [each.in_flight for each in pool.stats()] == [0, 0, 0, 0]
    assert not pool._sessions
    assert len(pool) <= 64
    assert {cause for each in pool.stats() for cause in each.rotations} >= {"unreachable", "gateway", "reported"}


def test_ended_leases_are_told_with_their_cause(clock: FakeClock) -> None:
    """Whoever keeps clearances, pages in view and warm-ups hears of each lease that evidence has ended."""
    pool = pool_of(3, clock)
    ended: list[tuple[Lease, Cause]] = []
    pool.follow(lambda lease, cause: ended.append((lease, cause)))
    first = leased(pool)
    ban(pool)
    second = leased(pool)
    kill(pool)
    assert len(ended) == 1
    leased(pool)
    assert ended == [(first, Cause.REFUSED), (second, Cause.UNREACHABLE)]


def test_a_follower_that_asks_for_the_new_lease_gets_it(clock: FakeClock) -> None:
    """Calling the pool from within a notice keeps its counts right."""
    pool = pool_of(3, clock)
    seen: list[Lease | None] = []

    def ask(lease: Lease, _: Cause) -> None:
        seen.append(pool.lease(lease.origin))

    pool.follow(ask)
    leased(pool)
    ban(pool)
    kill(pool)
    assert leased(pool) == seen[-1]
    assert sum(each.leases for each in pool.stats()) == 1
    pool.unfollow(ask)
    pool.unfollow(ask)
    ban(pool)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ban_after", 0),
        ("ban_after", 2.5),
        ("ban_after", True),
        ("doubting_origins", 0),
        ("pair_cooldown", 0),
        ("pair_cooldown", float("nan")),
        ("exit_cooldown", float("inf")),
        ("max_cooldown", "1"),
    ],
)
def test_rules_that_cannot_be_honoured_are_refused(field: str, value: object) -> None:
    """The message names the field, the value and what is allowed."""
    with pytest.raises(ValueError, match=f"{field} is .*; allowed: "):
        ExitRules(**{field: value})  # type: ignore[arg-type]
