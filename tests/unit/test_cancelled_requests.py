"""Requests that are cancelled while they wait in the paced queue: gone for the spider, and in nobody's way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.squeues import FifoMemoryQueue, PickleFifoDiskQueue
from twisted.internet.defer import Deferred

from scrapy_pacing import Pacer, PacingPolicy, RequestCancelledError
from scrapy_pacing.cancel import Cancellations, signal_of
from scrapy_pacing.testing import FakeClock, seeded
from tests.support.queues import Bench

URL = "https://example.com/"


class Switch:
    """A signal that counts how often it is asked."""

    def __init__(self):
        self.on = False
        self.asked = 0

    def is_set(self):
        self.asked += 1
        return self.on


class Timers:
    """Takes what `call_later` is told, and runs it when told."""

    def __init__(self, monkeypatch):
        self.pending = []
        monkeypatch.setattr("scrapy_pacing.cancel.call_later", self.call_later)

    def call_later(self, delay, function, *arguments):
        assert delay <= 0.1
        timer = SimpleNamespace(function=function, arguments=arguments)
        timer.cancel = lambda: self.pending.remove(timer)
        self.pending.append(timer)
        return timer

    def run(self):
        for timer in list(self.pending):
            self.pending.remove(timer)
            timer.function(*timer.arguments)


@pytest.fixture
def timers(monkeypatch):
    return Timers(monkeypatch)


@pytest.fixture
def clock():
    return FakeClock(monotonic=100.0)


@pytest.fixture
def bench(clock, monkeypatch):
    # Its timers only wake the engine, and here nobody sleeps.
    monkeypatch.setattr("scrapy_pacing.dispatch.call_later", lambda *_: SimpleNamespace(cancel=lambda: None))
    bench = Bench(Pacer(PacingPolicy(interval=10, pause_probability=0), clock=clock, source=seeded()))
    bench.failed = []
    slot = SimpleNamespace()

    def enqueue_scrape(failure, request):
        bench.failed.append((request, failure.value))
        done = Deferred()
        done.callback(None)
        return done

    bench.crawler.engine.scraper = SimpleNamespace(slot=slot, enqueue_scrape=enqueue_scrape)
    return bench


def paths(requests):
    return [request.url.removeprefix(URL) for request in requests]


def drain(bench, queue, clock):
    """Pop all that comes within a thousand seconds."""
    popped = []
    for _ in range(200):
        request = bench.pop(queue)
        if request is not None:
            popped.append(request)
            bench.depart(request)
            bench.finish(request)
        clock.advance(5)
    return popped


def test_a_cancelled_request_fails_at_once_and_never_comes_out(bench, timers, clock):
    """The spider gets its failure, the others come in their order, and the queue is empty when they have."""
    queue = bench.queue(downstream=FifoMemoryQueue)
    job = Switch()
    for number in range(6):
        queue.push(Request(f"{URL}{number}", meta={"pacing_signal": job} if number % 2 else {}))
    assert len(queue) == 6
    job.on = True
    timers.run()
    assert len(queue) == 3
    assert paths(request for request, _ in bench.failed) == ["1", "3", "5"]
    assert all(isinstance(error, RequestCancelledError) for _, error in bench.failed)
    assert timers.pending == []
    assert paths(drain(bench, queue, clock)) == ["0", "2", "4"]
    assert len(queue) == 0
    assert len(bench.failed) == 3


def test_a_queue_of_cancelled_requests_is_empty(bench, timers, clock):
    """A crawl does not stay open for requests that nobody wants, and new ones of the site come out as ever."""
    queue = bench.queue(downstream=FifoMemoryQueue)
    job = Switch()
    bench.pacer.depart("https://example.com")
    queue.push(Request(f"{URL}gone", meta={"pacing_signal": job}))
    job.on = True
    timers.run()
    assert len(queue) == 0
    assert bench.wakes
    assert queue.pop() is None
    queue.push(Request(f"{URL}new"))
    assert len(queue) == 1
    assert paths(drain(bench, queue, clock)) == ["new"]
    queue.close()


def test_many_requests_of_one_job_ask_once(bench, timers):
    """A signal that a thousand requests share is looked at once a tenth of a second."""
    queue = bench.queue()
    job = Switch()
    for number in range(1000):
        queue.push(Request(f"{URL}{number}", meta={"pacing_signal": job}))
    timers.run()
    assert job.asked == 1
    assert len(timers.pending) == 1


def test_without_signals_there_is_no_timer(bench, timers, clock):
    """Where nothing with a signal waits, nothing is looked at."""
    queue = bench.queue()
    queue.push(Request(f"{URL}0"))
    assert timers.pending == []
    queue.push(Request(f"{URL}1", meta={"pacing_signal": Switch()}))
    assert len(timers.pending) == 1
    drain(bench, queue, clock)
    assert timers.pending == []


def test_a_request_that_came_out_is_watched_by_the_queue_no_more(bench, timers):
    """What is on its way to the gate is the gate's business: it fails there, once."""
    queue = bench.queue()
    job = Switch()
    queue.push(Request(f"{URL}0", meta={"pacing_signal": job}))
    assert bench.pop(queue) is not None
    job.on = True
    timers.run()
    assert bench.failed == []


def test_nothing_is_failed_while_the_spider_closes(bench, timers):
    """A closing spider keeps what waits, as it does with all requests."""
    queue = bench.queue()
    job = Switch()
    queue.push(Request(f"{URL}0", meta={"pacing_signal": job}))
    bench.crawler.engine._slot.closing = Deferred()
    job.on = True
    timers.run()
    assert bench.failed == []
    assert len(queue) == 1


def test_a_signal_keeps_its_request_out_of_the_disk_queue(bench, tmp_path):
    """What can't be pickled raises as any such request does, so Scrapy keeps it in memory."""
    import threading

    queue = bench.queue(key=str(tmp_path / "queue"), downstream=PickleFifoDiskQueue, start=PickleFifoDiskQueue)
    with pytest.raises(ValueError, match="pickle"):
        queue.push(Request(URL, meta={"pacing_signal": threading.Event()}))
    assert len(queue) == 0
    queue.close()


def test_a_signal_that_raises_ends_the_wait(timers, caplog):
    """A fault in a signal is logged, and leaves nobody waiting for ever."""

    class Broken:
        def is_set(self):
            raise RuntimeError("no connection")

    ended = []
    cancellations = Cancellations(None, None, count=lambda *_: None)
    request = Request(URL, meta={"pacing_signal": Broken()})
    cancellations.watch(request, request.meta["pacing_signal"], ended.append)
    timers.run()
    assert ended == [request]
    assert "A pacing_signal raised" in caplog.text


@pytest.mark.parametrize("value", [5, "set", object()])
def test_what_is_no_signal_is_refused(value):
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=r"meta\['pacing_signal'\] is .*; allowed: anything with a method is_set"):
        signal_of(Request(URL, meta={"pacing_signal": value}))
    assert signal_of(Request(URL)) is None
