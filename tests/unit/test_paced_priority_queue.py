"""The paced queue without a crawl: what it gives out, when, and when it wakes the engine."""

from __future__ import annotations

import pytest
from scrapy import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.squeues import PickleLifoDiskQueue

import scrapy_pacing.dispatch
from scrapy_pacing import Pacer, PacingPolicy
from scrapy_pacing.testing import FakeClock, seeded
from tests.support.queues import Bench


class Timers:
    """Stands in for the loop: timers fire when the fake clock is moved past them."""

    def __init__(self, clock):
        self.clock = clock
        self.pending = []

    def call_later(self, delay, function, *arguments):
        timer = Timer(self.clock.monotonic() + delay, function, arguments)
        self.pending.append(timer)
        return timer

    def advance(self, seconds):
        self.clock.advance(seconds)
        due = [timer for timer in self.pending if timer.at <= self.clock.monotonic() and not timer.cancelled]
        self.pending = [timer for timer in self.pending if timer not in due and not timer.cancelled]
        for timer in due:
            timer.function(*timer.arguments)

    def armed(self):
        return [timer.at for timer in self.pending if not timer.cancelled]


class Timer:
    def __init__(self, at, function, arguments):
        self.at, self.function, self.arguments, self.cancelled = at, function, arguments, False

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def clock():
    return FakeClock(monotonic=1000.0)


@pytest.fixture
def timers(clock, monkeypatch):
    timers = Timers(clock)
    monkeypatch.setattr(scrapy_pacing.dispatch, "call_later", timers.call_later)
    return timers


@pytest.fixture
def bench(clock, timers):
    policy = PacingPolicy(interval=10.0, floor=9.0, pause_probability=0)
    return Bench(Pacer(policy, clock=clock, source=seeded()))


def request(path="/", host="a.example", **arguments):
    return Request(f"http://{host}{path}", **arguments)


def test_one_request_of_an_origin_is_on_its_way_at_a_time(bench):
    """Until it has departed, no second one of its origin is given out."""
    queue = bench.queue()
    for number in range(2):
        queue.push(request(f"/{number}"))
    first = bench.pop(queue)
    assert first is not None
    assert bench.pop(queue) is None
    assert len(queue) == 1


def test_the_engine_is_woken_when_the_next_origin_is_due(bench, timers, clock):
    """After a departure the next due time is known at once; one timer is armed for it, and it wakes the engine."""
    queue = bench.queue()
    for number in range(2):
        queue.push(request(f"/{number}"))
    bench.depart(bench.pop(queue))
    assert bench.pop(queue) is None
    [due] = timers.armed()
    assert due == bench.pacer.ready_at("http://a.example")
    wakes = bench.wakes
    timers.advance(due - clock.monotonic())
    assert bench.wakes == wakes + 1
    assert bench.pop(queue) is not None


def test_one_timer_serves_many_origins(bench, timers):
    """However many origins sleep, one timer is armed: for the earliest."""
    queue = bench.queue()
    for number in range(50):
        for page in "xy":
            queue.push(request(f"/{page}", f"host-{number}.example"))
    while (popped := bench.pop(queue)) is not None:
        bench.depart(popped)
    [armed] = timers.armed()
    assert armed == min(bench.pacer.ready_at(f"http://host-{number}.example") for number in range(50))


def test_a_lost_request_does_not_block_its_origin(bench):
    """A request that the downloader no longer holds, though it never departed, frees its origin."""
    queue = bench.queue()
    for number in range(3):
        queue.push(request(f"/{number}"))
    for left in (2, 1, 0):
        popped = bench.pop(queue)
        assert popped is not None
        bench.finish(popped)
        assert len(queue) == left


def test_a_lost_request_is_found_among_many_that_are_under_way(bench):
    """Many requests that are long on their way (they wait for robots.txt) do not hide a lost one."""
    queue = bench.queue()
    for number in range(40):
        queue.push(request("/x", f"host-{number}.example"))
        queue.push(request("/y", f"host-{number}.example"))
    popped = [bench.pop(queue) for _ in range(40)]
    bench.finish(popped[37])
    assert bench.pop(queue).url.startswith("http://host-37.example")


def test_a_hold_moves_what_already_waits(bench, timers, clock):
    """A refusal with Retry-After postpones the requests in the queue."""
    queue = bench.queue()
    queue.push(request())
    bench.pacer.throttled("http://a.example", 600)
    assert bench.pop(queue) is None
    timers.advance(599)
    assert bench.pop(queue) is None
    timers.advance(60)
    assert bench.pop(queue) is not None


def test_an_origin_without_room_waits_for_it(clock, timers):
    """As many requests as the origin's concurrency are under way, and one that lands lets the next go."""
    bench = Bench(Pacer(PacingPolicy(interval=0), clock=clock), {"CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    queue = bench.queue()
    for number in range(4):
        queue.push(request(f"/{number}"))
    under_way = [bench.pop(queue), bench.pop(queue)]
    for one in under_way:
        bench.depart(one)
    assert bench.pop(queue) is None
    wakes = bench.wakes
    bench.finish(under_way[0])
    assert bench.wakes > wakes
    assert bench.pop(queue) is not None
    assert bench.pop(queue) is None


def test_no_more_than_the_room_is_on_its_way_where_there_is_no_gap(clock, timers):
    """Without a gap several requests of one origin may be on their way, but not more than would be sent at once."""
    bench = Bench(Pacer(PacingPolicy(interval=0), clock=clock), {"CONCURRENT_REQUESTS_PER_DOMAIN": 3})
    queue = bench.queue()
    for number in range(6):
        queue.push(request(f"/{number}"))
    assert [bench.pop(queue) is not None for _ in range(4)] == [True, True, True, False]


def test_priorities_order_an_origin_and_never_another_ones_turn(bench):
    """A high priority goes first within its site; another site that has waited longer still goes before it."""
    queue = bench.queue()
    queue.push(request("/low", "a.example", priority=0))
    queue.push(request("/low", "b.example", priority=0))
    queue.push(request("/high", "b.example", priority=10))
    assert [bench.pop(queue).url for _ in range(2)] == ["http://a.example/low", "http://b.example/high"]


def test_start_requests_go_after_the_others(bench):
    """As in Scrapy: among equal priorities a start request comes after a request found on the way."""
    queue = bench.queue()
    queue.push(request("/start", meta={"is_start_request": True}))
    queue.push(request("/found"))
    assert bench.pop(queue).url.endswith("/found")


def test_requests_that_are_not_paced_never_wait(bench):
    """dont_pace and unknown schemes come at once, any number of them."""
    queue = bench.queue()
    for number in range(5):
        queue.push(request(f"/{number}", meta={"dont_pace": True}))
    queue.push(Request("data:,x"))
    assert sum(bench.pop(queue) is not None for _ in range(6)) == 6
    assert len(queue) == 0


def test_the_memory_and_the_disk_queue_see_one_set_of_origins(bench, tmp_path):
    """A request on its way from one queue keeps its origin's requests in the other one too."""
    memory, disk = bench.queue(), bench.queue(key=str(tmp_path), downstream=PickleLifoDiskQueue, start=None)
    memory.push(request("/memory"))
    disk.push(request("/disk"))
    under_way = bench.pop(memory)
    assert bench.pop(disk) is None
    bench.finish(under_way)
    assert bench.pop(disk) is not None


def test_a_disk_queue_goes_on_where_it_was_closed(bench, tmp_path):
    """close() gives the state from which a new queue has the same requests; emptied directories go."""
    queue = bench.queue(key=str(tmp_path), downstream=PickleLifoDiskQueue, start=PickleLifoDiskQueue)
    for number in range(4):
        queue.push(request(f"/{number}", f"host-{number % 2}.example", priority=number))
    state = queue.close()
    assert set(state) == {"http://host-0.example", "http://host-1.example"}
    again = bench.queue(key=str(tmp_path), startprios=state, downstream=PickleLifoDiskQueue, start=PickleLifoDiskQueue)
    assert len(again) == 4
    urls = set()
    while (popped := bench.pop(again)) is not None:
        urls.add(popped.url)
        bench.finish(popped)
    assert len(urls) == 4
    assert again.close() == {}
    if hasattr(DownloaderAwarePriorityQueue, "_next_slot"):
        # Older queues of Scrapy leave the files of empty start queues behind.
        assert list(tmp_path.iterdir()) == []


def test_requests_stored_under_another_key_move_to_their_own(bench, tmp_path):
    """The state of Scrapy's queue is by host; its requests are given out all the same, each under its origin."""
    old = bench.queue(key=str(tmp_path), downstream=PickleLifoDiskQueue, start=None)
    old._lane_of = lambda _request: "a.example"
    for number in range(3):
        old.push(request(f"/{number}"))
    state = old.close()
    assert list(state) == ["a.example"]
    queue = bench.queue(key=str(tmp_path), startprios=state, downstream=PickleLifoDiskQueue, start=None)
    assert bench.pop(queue) is not None
    assert bench.pop(queue) is None
    assert "http://a.example" in queue
    assert len(queue) == 2


def test_a_request_that_cannot_be_stored_leaves_nothing_behind(bench, tmp_path):
    """A failed push raises as the downstream queue does, and the queue is as it was."""
    queue = bench.queue(key=str(tmp_path), downstream=PickleLifoDiskQueue, start=None)
    with pytest.raises(ValueError, match="pickle"):
        queue.push(request(meta={"callback": lambda: None}))
    assert len(queue) == 0
    assert "http://a.example" not in queue
    assert bench.pop(queue) is None


def test_peek_shows_the_next_and_leaves_it(bench):
    """peek() and the next pop() agree; nothing due is shown as nothing."""
    queue = bench.queue()
    assert queue.peek() is None
    queue.push(request("/1"))
    shown = queue.peek()
    assert shown is queue.peek()
    assert bench.pop(queue) is shown
    queue.push(request("/2"))
    bench.pacer.throttled("http://a.example", 60)
    assert queue.peek() is None


@pytest.mark.parametrize("state", [[0, 1], (0,)])
def test_the_state_of_a_queue_without_origins_is_refused(bench, state):
    """A job started with ScrapyPriorityQueue can't be resumed, and the text says why."""
    with pytest.raises(ValueError, match="SCHEDULER_PRIORITY_QUEUE"):
        bench.queue(startprios=state)
