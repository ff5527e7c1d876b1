"""Which exit an origin's requests leave by, and how many at once.

The rules that everything here keeps:

1. An origin holds its exit until evidence ends the lease: never a timer, never a 429, never for balance.
2. Room is taken in the call that asks for it, and given back once however often it is given back.
3. Evidence counts against the lease and the epoch that its request left by; what is stale changes nothing.
4. An exit that an origin has refused is kept from that origin alone; a dead exit gets one probe at a time.
5. Where every exit has died, an origin first waits for the one that knows it.
6. State per origin is bounded, and never dropped while a request of the origin is in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_pacing.core.clock import Clock, SystemClock

from .choice import available_at, choose, may_still_probe
from .evidence import Cause, Fault
from .health import ExitHealth
from .holders import Holder, Holders
from .values import ExitRules, ExitStats, Finding, Lease, Session, clamp_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .parsing import Exit


class ExitPool:
    """Leases exits to origins, holds them, and moves an origin when evidence says that its address is burnt.

    Does not wait and does not send. One event loop at a time; it is not made for several threads. All instants are
    monotonic seconds of the clock.

    >>> from scrapy_pacing.core.exits import parse_exits
    >>> from scrapy_pacing.testing import FakeClock
    >>> exits = parse_exits(["http://192.0.2.1:8000", "http://192.0.2.2:8000"], key=bytes(16)).exits
    >>> pool = ExitPool(exits, max_sessions_per_exit=1, clock=FakeClock())
    >>> lease = pool.lease("https://example.com")
    >>> session = pool.acquire(lease)
    >>> pool.acquire(lease) is None
    True
    >>> pool.report_ban("https://example.com", lease=lease).moves
    True
    >>> pool.release(session)
    >>> pool.lease("https://example.com").exit == lease.exit
    False
    """

    def __init__(
        self,
        exits: Sequence[Exit],
        *,
        max_sessions_per_exit: int = 2,
        rules: ExitRules | None = None,
        clock: Clock | None = None,
        max_origins: int = 4096,
    ) -> None:
        """Make a pool.

        ``max_sessions_per_exit`` is clamped to 1 to 4; ``warnings`` says so. ``max_origins`` bounds how many origins
        are kept in memory, the longest unused going first. Raises ValueError for a number that can't be honoured, for
        no exits and for one that stands there twice.
        """
        if not exits:
            raise ValueError("exits is empty; allowed: one exit or more")
        if max_origins < 1:
            raise ValueError(f"max_origins is {max_origins!r}; allowed: 1 or more")
        self.max_sessions_per_exit, warning = clamp_sessions(max_sessions_per_exit)
        self.warnings: tuple[str, ...] = () if warning is None else (warning,)
        """What whoever made the pool should be told."""
        self.rules = rules or ExitRules()
        self.clock: Clock = clock or SystemClock()
        self._exits: dict[str, ExitHealth] = {}
        for order, leaving_by in enumerate(exits):
            if leaving_by.id in self._exits:
                raise ValueError(f"exits holds {leaving_by!r} twice; allowed: distinct exits")
            self._exits[leaving_by.id] = ExitHealth(leaving_by, order)
        self._holders = Holders(max_origins)
        self._sessions: set[int] = set()
        self._serial = 0
        self._generation = 0
        self._told_exhausted = False
        self._watchers: list[Callable[[str], None]] = []
        self._followers: list[Callable[[Lease, Cause], None]] = []

    # -- leases ------------------------------------------------------------------------------------------------------

    def lease(self, origin: str, *, prefer: str | None = None) -> Lease | None:
        """Return the lease that ``origin`` holds, or a new one; None if no exit is left for it now.

        ``prefer`` is the id of the exit that was remembered from an earlier run; it counts only for a new lease.
        Otherwise a new lease goes to the exit with room and the fewest leases.
        """
        holder = self._use(origin)
        held = holder.lease
        if held is not None:
            its = self._exits[held.exit.id]
            if not its.is_dead or may_still_probe(holder, its, self.clock.monotonic()):
                return held
        chosen = self._choose(holder, prefer)
        holder.stranded = chosen is None
        if chosen is None:
            return None
        if held is not None and held.exit.id == chosen.exit.id:
            return held
        why = None if held is None else self._exits[held.exit.id].why_dead
        if held is not None and why is not None:
            self._end_lease(holder, held, why)
        chosen.leases += 1
        lease = Lease(origin, chosen.exit, self._generation)
        holder.take(lease, chosen.epoch)
        if held is not None and why is not None:
            self._tell_followers(held, why)
        return lease

    def is_current(self, lease: Lease) -> bool:
        """Tell whether ``lease`` is still the one its origin holds."""
        holder = self._holders.find(lease.origin)
        return holder is not None and holder.lease == lease

    def available_at(self, origin: str) -> float:
        """Return the instant from which `lease` may give an exit to ``origin``: now, if it does already.

        A watcher is called if an exit comes back earlier.
        """
        now = self.clock.monotonic()
        holder = self._holders.find(origin) or Holder()
        return max(now, available_at(self._exits.values(), holder, self.rules))

    @property
    def exhausted(self) -> bool:
        """Whether every exit is dead."""
        return all(health.is_dead for health in self._exits.values())

    # -- room --------------------------------------------------------------------------------------------------------

    def has_room(self, origin: str, *, prefer: str | None = None) -> bool:
        """Tell whether a request of ``origin`` could leave now; leases an exit if the origin holds none.

        After False a watcher is called when it is time to ask again.
        """
        lease = self.lease(origin, prefer=prefer)
        return lease is not None and self._room_or_wait(lease)

    def acquire(self, lease: Lease) -> Session | None:
        """Take room for one request; None if there is none, or if the lease is not the origin's any more.

        Give it back with `release`, however the request ends.
        """
        holder = self._holders.find(lease.origin)
        if holder is None or holder.lease != lease or not self._room_or_wait(lease):
            return None
        health = self._exits[lease.exit.id]
        health.waiters.pop(lease.origin, None)
        self._serial += 1
        session = Session(lease, self._serial, holder.row.epoch, health.epoch, health.answers, holder.silences.epoch)
        self._sessions.add(session.serial)
        holder.in_flight += 1
        health.depart(session.serial, self.clock.monotonic(), self.rules)
        return session

    def release(self, session: Session) -> None:
        """Give the room of one request back; does nothing if it was given back before."""
        if session.serial not in self._sessions:
            return
        self._sessions.remove(session.serial)
        health = self._exits[session.lease.exit.id]
        health.land(session.serial)
        # It is there: an origin with a request in flight is never dropped.
        holder = self._holders.find(session.lease.origin)
        if holder is not None:
            holder.in_flight -= 1
        if health.is_dead:
            # The probe may have ended without a word; whoever waited for it must look for another exit, or a time.
            self._tell_all_waiters(health)
        else:
            self._tell_waiters(health)

    # -- evidence ----------------------------------------------------------------------------------------------------

    def succeeded(self, session: Session) -> None:
        """Note a success: the origin's row of refusals starts again."""
        holder = self._current(session)
        if holder is not None:
            holder.row.succeeded()
            holder.welcome(session.lease.exit.id)
        self.answered(session)

    def answered(self, session: Session) -> None:
        """Note that the exit has delivered an answer of the origin's, whatever it says (429, 404, 503, …)."""
        holder = self._current(session)
        if holder is not None:
            holder.hear()
        health = self._exits[session.lease.exit.id]
        if health.answered(session.exit_epoch):
            self._told_exhausted = False
            for origin in self._holders.take_stranded():
                self._tell(origin)
            self._tell_waiters(health)

    def refused(self, session: Session, url: str) -> Finding | None:
        """Count a refusal by the origin (a ban status); return what it changed, if it was the last of the row."""
        self.answered(session)
        holder = self._current(session)
        if holder is None or not holder.row.refused(session.row_epoch, url):
            return None
        if len(holder.row) < self.rules.ban_after:
            return None
        return self._retire(holder, session.lease, Cause.REFUSED)

    def report_ban(self, origin: str, *, lease: Lease | None = None) -> Finding | None:
        """Take the spider's word that ``origin`` has banned its exit; return what that changed.

        Pass the ``lease`` by which the answer came, so that reports about an earlier one are known as such. Without
        it, a report before any answer has come by the present lease is taken to be about an earlier one.
        """
        holder = self._holders.find(origin)
        if holder is None or holder.lease is None:
            return None
        if holder.lease != lease if lease is not None else not holder.answered:
            return None
        return self._retire(holder, holder.lease, Cause.REPORTED)

    def exit_fault(self, evidence: Session | Lease, fault: Fault) -> Finding | None:
        """Take a failure of the exit itself as evidence; return what it changed.

        The machine's own address has no proxy that could fail: there this is no evidence.
        """
        lease = evidence.lease if isinstance(evidence, Session) else evidence
        health = self._exits.get(lease.exit.id)
        if health is None or lease.exit.is_direct:
            return None
        if isinstance(evidence, Session):
            fresh = evidence.exit_epoch == health.epoch
        else:
            fresh = not health.is_dead and self.is_current(lease)
        if not fresh:
            return None
        holder = self._holders.find(lease.origin)
        doubtful = health.is_dead or holder is None or holder.may_doubt(lease.exit.id)
        if fault.whole_exit or (doubtful and health.claimed(lease.origin, self.rules)):
            return self._kill(health, lease, fault.cause)
        if holder is None or holder.lease != lease:
            return None
        return self._retire(holder, lease, fault.cause)

    def timed_out(self, session: Session, url: str = "", *, cause: Cause = Cause.TIMEOUTS) -> Finding | None:
        """Count a time-out, or with another ``cause`` another failure without an answer; return what that changed.

        Several origins in a row by one exit, with no answer between, are a fault of the exit. Several pages of one
        origin in a row move that origin, from each exit once until it gets an answer: it may be down itself.
        """
        lease = session.lease
        health = self._exits[lease.exit.id]
        if session.exit_epoch != health.epoch:
            return None
        leasing = self._current(session)
        silent = leasing is not None and leasing.is_silent(session, url, self.rules)
        if health.is_news(session):
            holder = self._holders.find(lease.origin)
            doubtful = health.is_dead or holder is None or holder.may_doubt(lease.exit.id)
            if doubtful and health.timed_out(lease.origin, self.rules):
                return self._kill(health, lease, cause)
        if leasing is None or not silent or not self._has_another(leasing, lease):
            return None
        leasing.silent.add(lease.exit.id)
        return self._retire(leasing, lease, cause)

    # -- the rest ----------------------------------------------------------------------------------------------------

    def stats(self) -> tuple[ExitStats, ...]:
        """Return each exit's numbers, in the order given."""
        return tuple(health.stats() for health in self._exits.values())

    def in_flight(self, origin: str) -> int:
        """Return how many requests of ``origin`` hold room, by whichever exit."""
        holder = self._holders.find(origin)
        return 0 if holder is None else holder.in_flight

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call ``watcher`` with an origin when it was told to wait and should ask again, or when its lease has ended."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[str], None]) -> None:
        """Stop calling ``watcher``; does nothing if it is not watching."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def follow(self, follower: Callable[[Lease, Cause], None]) -> None:
        """Call ``follower`` with each lease that evidence has ended, and why: what belongs to it must go now."""
        self._followers.append(follower)

    def unfollow(self, follower: Callable[[Lease, Cause], None]) -> None:
        """Stop calling ``follower``; does nothing if it is not following."""
        if follower in self._followers:
            self._followers.remove(follower)

    def __len__(self) -> int:
        """Return the number of origins in memory."""
        return len(self._holders)

    def _choose(self, holder: Holder, prefer: str | None) -> ExitHealth | None:
        return choose(
            self._exits.values(),
            holder,
            prefer=prefer,
            now=self.clock.monotonic(),
            rules=self.rules,
            max_sessions=self.max_sessions_per_exit,
        )

    def _has_another(self, holder: Holder, lease: Lease) -> bool:
        """Tell whether a living exit is free for the holder by which it has not heard nothing yet."""
        avoided = {lease.exit.id, *holder.silent}
        now = self.clock.monotonic()
        return any(
            not health.is_dead and name not in avoided and holder.kept_until(name) <= now
            for name, health in self._exits.items()
        )

    def _retire(self, holder: Holder, lease: Lease, cause: Cause) -> Finding:
        """End a lease and keep its exit from the origin for a while."""
        holder.retire(lease.exit.id, cause, self.clock.monotonic(), self.rules)
        self._end_lease(holder, lease, cause)
        moves = self._choose(holder, None) is not None
        self._tell_followers(lease, cause)
        self._tell(lease.origin)
        return Finding(lease, cause, moves=moves)

    def _kill(self, health: ExitHealth, lease: Lease, cause: Cause) -> Finding:
        """Declare an exit dead. Its origins move when they next ask, if there is another exit by then."""
        health.die(cause, self.clock.monotonic(), self.rules)
        exhausted = self.exhausted and not self._told_exhausted
        self._told_exhausted = self._told_exhausted or exhausted
        holder = self._holders.find(lease.origin)
        chosen = None if holder is None else self._choose(holder, None)
        self._tell_all_waiters(health)
        return Finding(
            lease, cause, exit_died=True, moves=chosen is not None and chosen is not health, exhausted=exhausted
        )

    def _end_lease(self, holder: Holder, lease: Lease, cause: Cause) -> None:
        health = self._exits[lease.exit.id]
        health.leases -= 1
        health.rotations[cause.value] += 1
        health.waiters.pop(lease.origin, None)
        holder.lease = None
        # One count for all origins: an origin that was dropped from memory can't come back to a lease that was ended.
        self._generation += 1

    def _current(self, session: Session) -> Holder | None:
        holder = self._holders.find(session.lease.origin)
        return holder if holder is not None and holder.lease == session.lease else None

    def _room_or_wait(self, lease: Lease) -> bool:
        health = self._exits[lease.exit.id]
        if health.has_room(self.clock.monotonic(), self.max_sessions_per_exit):
            return True
        health.waiters.setdefault(lease.origin)
        return False

    def _use(self, origin: str) -> Holder:
        holder = self._holders.use(origin)
        for dropped, its in self._holders.drop_surplus():
            if its.lease is not None:
                health = self._exits[its.lease.exit.id]
                health.leases -= 1
                health.waiters.pop(dropped, None)
        return holder

    def _tell_waiters(self, health: ExitHealth) -> None:
        """Tell those who wait for room, one by one, for as long as there is some."""
        for _ in range(len(health.waiters)):
            if not health.waiters or not health.has_room(self.clock.monotonic(), self.max_sessions_per_exit):
                return
            origin = next(iter(health.waiters))
            del health.waiters[origin]
            self._tell(origin)

    def _tell_all_waiters(self, health: ExitHealth) -> None:
        waiting = list(health.waiters)
        health.waiters.clear()
        for origin in waiting:
            self._tell(origin)

    def _tell_followers(self, lease: Lease, cause: Cause) -> None:
        for follower in tuple(self._followers):
            follower(lease, cause)

    def _tell(self, origin: str) -> None:
        for watcher in tuple(self._watchers):
            watcher(origin)
