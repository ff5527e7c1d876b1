"""What must hold of the exit pool whatever happens, in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scrapy_pacing.core.exits import Cause, ExitPool, ExitRules, Fault, Finding, Lease, Session, parse_exits
from scrapy_pacing.core.exits.evidence import UNREACHABLE
from scrapy_pacing.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

URLS = ["http://s1:pw@gw.example:1", "http://s2:pw@gw.example:1", "http://192.0.2.1:1", None]
ORIGINS = [f"https://{name}.example" for name in "abcdefgh"]
FAULTS = [UNREACHABLE, Fault(Cause.CREDENTIALS, whole_exit=False), Fault(Cause.GATEWAY, whole_exit=False)]

origins = st.sampled_from(ORIGINS)
picks = st.integers(min_value=0, max_value=10_000)


class ExitPoolMachine(RuleBasedStateMachine):
    """Leases, departures, evidence, time and closes in random order, next to a book kept by hand."""

    @initialize(count=st.integers(1, 4), most=st.integers(-1, 6), max_origins=st.sampled_from([2, 5, 100]))
    def make(self, count: int, most: int, max_origins: int) -> None:
        self.clock = FakeClock()
        self.exits = parse_exits(URLS[:count], key=b"k" * 32).exits
        self.pool = ExitPool(
            self.exits,
            max_sessions_per_exit=most,
            clock=self.clock,
            rules=ExitRules(pair_cooldown=100.0, exit_cooldown=10.0, max_cooldown=300.0),
            max_origins=max_origins,
        )
        self.forgets = max_origins < len(ORIGINS)
        self.most = min(max(most, 1), 4)
        self.flying: list[Session] = []
        self.landed: list[Session] = []
        self.known: dict[str, Lease] = {}
        self.dead_since_lease: set[str] = set()
        self.ended: set[Lease] = set()
        self.findings = 0
        self.told_exhausted = False
        self.spoken_against: set[str] = set()
        self.died: set[str] = set()
        self.pool.follow(self._note_end)

    def _note_end(self, lease: Lease, cause: Cause) -> None:
        assert lease not in self.ended, "a lease ends once"
        self.ended.add(lease)
        if cause is Cause.UNREACHABLE:
            assert self.findings, "nothing moves without evidence"
        # Only what evidence spoke against may end.
        assert lease.origin in self.spoken_against or lease.exit.id in self.died

    def _learn(self, finding: Finding | None) -> None:
        if finding is None:
            return
        self.findings += 1
        if finding.exit_died:
            self.died.add(finding.lease.exit.id)
        if finding.exhausted:
            assert self.pool.exhausted
            assert not self.told_exhausted, "said once, until an exit has come back"
            self.told_exhausted = True

    @rule(origin=origins, prefer=st.sampled_from([None, 0, 1, 2, 3]))
    def lease(self, origin: str, prefer: int | None) -> None:
        wanted = None if prefer is None or prefer >= len(self.exits) else self.exits[prefer].id
        self.spoken_against = set()
        lease = self.pool.lease(origin, prefer=wanted)
        before = self.known.get(origin)
        if lease is None:
            assert self.pool.available_at(origin) > self.clock.monotonic(), "a None that says from when on"
            return
        assert self.pool.is_current(lease)
        if before is not None and before != lease and not self.forgets:
            assert before in self.ended, "an origin never moves without evidence"
            assert lease.generation > before.generation
        assert lease not in self.ended, "an ended lease, and so its jar, never comes back"
        self.known[origin] = lease

    @rule(origin=origins)
    def acquire(self, origin: str) -> None:
        self.spoken_against = set()
        lease = self.pool.lease(origin)
        if lease is None:
            return
        self.known[origin] = lease
        room = self.pool.has_room(origin)
        session = self.pool.acquire(lease)
        assert room == (session is not None), "room that is seen is room that is got"
        if session is not None:
            self.flying.append(session)

    @rule(origin=origins)
    def acquire_by_an_old_lease(self, origin: str) -> None:
        old = next((lease for lease in self.ended if lease.origin == origin), None)
        if old is not None:
            assert self.pool.acquire(old) is None

    def _some_session(self, pick: int) -> Session | None:
        everyone = self.flying + self.landed[-10:]
        return everyone[pick % len(everyone)] if everyone else None

    @rule(pick=picks, page=st.integers(0, 5))
    def refused(self, pick: int, page: int) -> None:
        session = self._some_session(pick)
        if session is not None:
            self._evidence(session, lambda: self.pool.refused(session, f"https://x/{page}"))

    @rule(pick=picks, fault=st.sampled_from(FAULTS), by_lease=st.booleans())
    def fault(self, pick: int, fault: Fault, by_lease: bool) -> None:
        session = self._some_session(pick)
        if session is not None:
            self._evidence(session, lambda: self.pool.exit_fault(session.lease if by_lease else session, fault))

    @rule(pick=picks, page=st.integers(0, 20), cause=st.sampled_from([Cause.TIMEOUTS, Cause.LOST]))
    def timed_out(self, pick: int, page: int, cause: Cause) -> None:
        session = self._some_session(pick)
        if session is not None:
            self._evidence(session, lambda: self.pool.timed_out(session, f"https://x/{page}", cause=cause))

    @rule(pick=picks, with_lease=st.booleans())
    def reported(self, pick: int, with_lease: bool) -> None:
        session = self._some_session(pick)
        if session is not None:
            lease = session.lease if with_lease else None
            self._evidence(
                session,
                lambda: self.pool.report_ban(session.lease.origin, lease=lease),
                of_the_present=not with_lease,
            )

    def _evidence(self, session: Session, speak: Callable[[], Finding | None], *, of_the_present: bool = False) -> None:
        """Speak; ``of_the_present``: against whatever lease the origin holds now, not against the session's."""
        origin = session.lease.origin
        stale = not self.pool.is_current(session.lease) and not of_the_present
        kept = {
            each: lease
            for each, lease in self.known.items()
            if self.pool.is_current(lease) and (stale or each != origin)
        }
        self.spoken_against = set() if stale else {origin}
        self._learn(speak())
        assert all(self.pool.is_current(lease) for lease in kept.values()), "evidence moves its own lease alone"
        if not self.pool.exhausted:
            self.told_exhausted = False

    @rule(pick=picks, success=st.booleans())
    def answered(self, pick: int, success: bool) -> None:
        session = self._some_session(pick)
        if session is None:
            return
        kept = {origin: lease for origin, lease in self.known.items() if self.pool.is_current(lease)}
        if success:
            self.pool.succeeded(session)
        else:
            self.pool.answered(session)
        assert all(self.pool.is_current(lease) for lease in kept.values()), "an answer moves nobody"
        if not self.pool.exhausted:
            self.told_exhausted = False

    @rule(pick=picks, twice=st.booleans())
    def release(self, pick: int, twice: bool) -> None:
        if not self.flying:
            return
        session = self.flying.pop(pick % len(self.flying))
        self.landed.append(session)
        self.pool.release(session)
        if twice:
            self.pool.release(session)

    @rule(seconds=st.sampled_from([0.5, 10.0, 100.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        kept = {origin: lease for origin, lease in self.known.items() if self.pool.is_current(lease)}
        self.clock.advance(seconds)
        assert all(self.pool.is_current(lease) for lease in kept.values()), "time moves nobody"

    @rule()
    def close(self) -> None:
        """Everything in flight is given back, as at the close of a spider."""
        for session in self.flying:
            self.pool.release(session)
        self.landed.extend(self.flying)
        self.flying.clear()
        assert all(each.in_flight == 0 for each in self.pool.stats())
        assert all(self.pool.in_flight(origin) == 0 for origin in ORIGINS)

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "pool"):
            return
        for each in self.pool.stats():
            mine = [session for session in self.flying if session.lease.exit == each.exit]
            assert each.in_flight == len(mine) <= self.most
            current = [origin for origin in ORIGINS if self._current_exit(origin) == each.exit.id]
            assert each.leases == len(current)
            if each.dead:
                health = self.pool._exits[each.exit.id]
                probes = [session for session in mine if session.exit_epoch == health.epoch]
                assert len(probes) <= 1, "a dead exit has one probe at a time"

    def _current_exit(self, origin: str) -> str | None:
        holder = self.pool._holders.find(origin)
        return None if holder is None or holder.lease is None else holder.lease.exit.id


TestExitPool = ExitPoolMachine.TestCase
TestExitPool.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
