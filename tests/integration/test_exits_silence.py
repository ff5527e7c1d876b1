"""Exits by which nothing comes back, or nothing whole: a crawl of one site leaves them, and loses no page."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.proxies import LocalProxy
from tests.support.crawl import crawl, in_all_modes
from tests.support.secure_site import SecureSite
from tests.support.site import Site

SPIDER = "tests.support.exit_spiders.ExitSpider"
QUICK = {
    "PACING_INTERVAL": 0.05,
    "PACING_PAUSE_PROBABILITY": 0,
    "PACING_MAX_INTERVAL": 0.2,
    "DOWNLOAD_TIMEOUT": 0.7,
}
PAGES = 12


class OddProxy:
    """A port at 127.0.0.1 that does one odd thing with each connection, and counts them."""

    def __init__(self, serve):
        self._serve = serve
        self.connections = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader, writer):
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            # A cancelled connection handler would be logged as an error.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def hangs(reader, writer):
    await asyncio.sleep(60)


async def closes_at_once(reader, writer):
    pass


async def resets(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


def says(data, *, again=False):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        if again:
            await serve(reader, writer)

    return serve


ODD = {
    "hangs": (hangs, Site),
    "hangs-https": (hangs, SecureSite),
    "closes-at-once": (closes_at_once, Site),
    "closes-at-once-https": (closes_at_once, SecureSite),
    "resets-the-connect": (resets, SecureSite),
    "closes-an-open-tunnel": (says(b"HTTP/1.1 200 OK\r\n\r\n"), SecureSite),
    "is-no-http": (says(b"SSH-2.0-OpenSSH\r\n\r\n"), Site),
    "is-no-http-at-connect": (says(b"SSH-2.0-OpenSSH\r\n\r\n"), SecureSite),
    "cuts-bodies-off": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Type: text/html\r\n\r\nabc"), Site),
}


def exits_left(result):
    """How many leases were ended, over all exits and causes."""
    return sum(count for stat, count in result.stats.items() if "/rotations/" in stat)


@in_all_modes
@pytest.mark.parametrize("odd", ODD)
def test_a_crawl_of_one_site_leaves_an_exit_that_brings_no_answer(mode, odd):
    """Whatever way an exit fails to deliver, the site moves to the healthy one beside it, and every page comes."""
    serve, make_site = ODD[odd]
    with make_site() as site, OddProxy(serve) as bad, LocalProxy() as good:
        result = crawl(
            *[site.url(f"/{n}") for n in range(PAGES)],
            settings={**QUICK, "PACING_EXITS": [bad.url, good.url]},
            spider=SPIDER,
            mode=mode,
        )
        by_bad = bad.connections
    assert len(result.ok()) == PAGES, [item for item in result.items if "error" in item]
    assert exits_left(result) == 1
    assert 1 <= by_bad <= 9


def test_a_site_that_hangs_does_not_wander_and_is_not_stranded():
    """A site that never answers goes by each of three exits, stays at the last, and its requests end as time-outs."""

    async def handler(request):
        await asyncio.sleep(30)

    with Site(handler) as site, LocalProxy() as one, LocalProxy() as two, LocalProxy() as three:
        result = crawl(
            *[site.url(f"/{n}") for n in range(30)],
            settings={
                **QUICK,
                "DOWNLOAD_TIMEOUT": 0.3,
                "RETRY_ENABLED": False,
                "PACING_EXITS": [one.url, two.url, three.url],
                "PACING_EXIT_COOLDOWN": 1,
            },
            spider=SPIDER,
        )
        by_each = [len(proxy.seen) for proxy in (one, two, three)]
    # Scrapy before 2.15 lets Twisted's own exception through.
    assert {item["error"] for item in result.items} <= {"DownloadTimeoutError", "TimeoutError"}
    assert len(result.items) == 30
    assert exits_left(result) == 2
    assert by_each[2] > by_each[0]
    assert "NO EXIT IS LEFT" not in result.log
    assert "is dead" not in result.log


QUOTA = b"X-RateLimit-Limit: 9\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 30\r\nContent-Length: 0\r\n\r\n"
SIGNED = b"HTTP/1.1 503 No\r\nProxy-Status: p; error=connection_timeout\r\nRetry-After: 30\r\n" + QUOTA
WANTS_CREDENTIALS = b"HTTP/1.1 407 No\r\n" + QUOTA


@pytest.mark.parametrize("answer", [SIGNED, WANTS_CREDENTIALS], ids=["signed-503", "407"])
@in_all_modes
def test_what_the_proxy_says_itself_teaches_the_site_nothing(mode, answer):
    """Neither the Retry-After nor the quota of a proxy's own error slows the site, which is served by the next exit."""
    with Site() as site, OddProxy(says(answer, again=True)) as bad, LocalProxy() as good:
        result = crawl(
            *[site.url(f"/{n}") for n in range(4)],
            settings={**QUICK, "PACING_EXITS": [bad.url, good.url]},
            spider=SPIDER,
            mode=mode,
        )
        gaps = site.gaps()
    assert len(result.ok()) == 4
    assert result.stats["pacing/exit_faults"] >= 1
    taught = ("throttled", "held", "quotas", "troubled", "backed_off", "sent_back")
    assert {name for name in taught if f"pacing/{name}" in result.stats} == set()
    assert max(gaps) < 3


def test_without_a_reactor_a_password_with_a_slash_stops_the_crawl_and_is_not_shown():
    """The crawl does not start; the log names the entry and holds no password."""
    with Site() as site:
        result = crawl(
            site.url(),
            settings={**QUICK, "PACING_EXITS": ["direct", "http://ann:s3cr3t%2Fpw@127.0.0.1:9"]},
            spider=SPIDER,
            mode="no-reactor",
        )
    assert result.items == site.log == []
    assert "PACING_EXITS, entry 2: has a slash in the user name or password" in result.log
    assert "s3cr3t" not in result.log
