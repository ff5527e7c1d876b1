"""A real local site whose own log of arrivals is what tests and benchmarks assert on."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from typing_extensions import Self

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Arrival:
    """One request as the site saw it."""

    at: float
    host: str
    path: str
    method: str
    headers: Any

    @property
    def origin(self) -> str:
        return f"http://{self.host}"


class Site:
    """Serves ``handler`` on loopback addresses from a thread of its own, and writes down what arrives when.

    The same port is taken on each of ``hosts``. Use as a context manager.
    """

    def __init__(self, handler: Handler | None = None, *, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.handler = handler or ok
        self.hosts = hosts
        self.port = 0
        self.log: list[Arrival] = []
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(10) or self._failure is not None:
            raise RuntimeError(f"the test site did not start: {self._failure}")
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"http://{host or self.hosts[0]}:{self.port}{path}"

    def arrivals(self, path: str | None = None, host: str | None = None) -> list[Arrival]:
        """What arrived, in order; of one path or one host only if named."""
        return [
            arrival
            for arrival in self.log
            if (path is None or arrival.path == path) and (host is None or arrival.host.split(":")[0] == host)
        ]

    def gaps(self, host: str | None = None) -> list[float]:
        """The seconds between arrivals."""
        times = [arrival.at for arrival in self.arrivals(host=host)]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the start
            self._failure = error
            self._started.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        server = web.Server(self._handle, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        for host in self.hosts:
            place = web.TCPSite(runner, host, self.port, backlog=1024)
            await place.start()
            self.port = self.port or place._server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.log.append(
            Arrival(time.monotonic(), request.host, request.path_qs, request.method, request.headers.copy())
        )
        return await self.handler(request)


async def ok(request: web.BaseRequest) -> web.StreamResponse:
    """Answer everything with a small page."""
    return web.Response(text="<html><title>page</title></html>", content_type="text/html")


class Bucket:
    """A token bucket for each address: ``rate`` requests a second, ``burst`` at once."""

    def __init__(self, rate: float, burst: int, *, retry_after: str | None = "1") -> None:
        self.rate, self.burst, self.retry_after = rate, burst, retry_after
        self.refused = 0
        self._levels: dict[str, tuple[float, float]] = defaultdict(lambda: (time.monotonic(), float(burst)))

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        then, level = self._levels[request.host]
        now = time.monotonic()
        level = min(self.burst, level + (now - then) * self.rate)
        if level < 1:
            self._levels[request.host] = (now, level)
            self.refused += 1
            headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
            return web.Response(status=429, headers=headers)
        self._levels[request.host] = (now, level - 1)
        return await ok(request)
