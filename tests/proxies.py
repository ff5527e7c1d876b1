"""Real proxies on the loopback interface, which count what passes through them.

Plain HTTP requests are forwarded, CONNECT opens a tunnel. Each proxy runs its own asyncio loop in a thread, so a test
can use any reactor, and writes down who connected, for which target and with which headers.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from types import TracebackType

    from typing_extensions import Self

# A hop keeps these to itself (RFC 9110 section 7.6.1).
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade"}
)
_BODILESS = frozenset({204, 304})
_PATIENCE = 10.0


@dataclass(frozen=True)
class SeenRequest:
    """One request as it came to the proxy, refused or not; ``target`` is host:port."""

    method: str
    target: str
    url: str
    headers: tuple[tuple[str, str], ...]
    status: int
    """What the proxy answered; 200 for a tunnel it opened."""

    def header(self, name: str) -> str | None:
        """Return a header's last value, or None."""
        return next((value for each, value in reversed(self.headers) if each.lower() == name.lower()), None)

    @property
    def proxy_authorization(self) -> str | None:
        """The credentials that came with it."""
        return self.header("Proxy-Authorization")


class LocalProxy:
    """A proxy at 127.0.0.1, from ``with`` to the end of it. What it does can be changed while it runs.

    ``credentials``: a (user, password) pair without which it answers 407. ``always_407``: it refuses any. ``delay``:
    seconds before each answer. ``own_status``: it answers this itself (502, 503), and with ``signed`` says so in a
    Proxy-Status header. ``dies_after``: it serves so many connections and resets the next; then its port is closed.
    ``via``: sends a Via header to origins, so that they see which proxy came.
    """

    def __init__(
        self,
        *,
        credentials: tuple[str, str] | None = None,
        always_407: bool = False,
        delay: float = 0.0,
        own_status: int | None = None,
        signed: bool = True,
        dies_after: int | None = None,
        via: str | None = None,
    ) -> None:
        self.credentials = credentials
        self.always_407 = always_407
        self.delay = delay
        self.own_status = own_status
        self.signed = signed
        self.dies_after = dies_after
        self.via = via
        self.seen: list[SeenRequest] = []
        self.connections = 0
        """Connections that clients have opened."""
        self.connections_to: Counter[str] = Counter()
        """Connections that it has opened to targets, tunnels included."""
        self.in_flight = 0
        """Plain requests that it has not answered, and tunnels that are open."""
        self.most_in_flight = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- for tests ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """What stands in PACING_EXITS: with credentials, if it wants some."""
        if self.credentials is None:
            return self.address
        user, password = (quote(part, safe="") for part in self.credentials)
        return f"http://{user}:{password}@127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Its URL without credentials."""
        return f"http://127.0.0.1:{self.port}"

    def requests_to(self, target: str) -> int:
        """Return how many requests for ``target`` (host:port) came, tunnels counting as one each."""
        return sum(each.target == target for each in self.seen)

    def die(self) -> None:
        """Reset every connection and close the port: from now on connections are refused."""
        self._run(self._die())

    def revive(self) -> None:
        """Listen again on the same port."""
        self.dies_after = None
        self._run(self._listen())

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _die(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _stop(self) -> None:
        await self._die()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            if self.dies_after is not None and self.connections > self.dies_after:
                await self._die()
            else:
                with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
                    while await self._answer(reader, writer):
                        pass
        except asyncio.CancelledError:
            # Only _stop cancels; a cancelled connection handler would be logged as an error.
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection can carry another."""
        first, headers = await _read_head(reader)
        method, url = first.split(" ")[:2]
        target = url if method == "CONNECT" else _target_of(url)
        body = b"" if method == "CONNECT" else await _read_body(reader, headers, until_end=False)
        with self._counted():
            if self.delay:
                await asyncio.sleep(self.delay)
            status = self._own_answer(headers)
            upstream = None
            if status is None:
                upstream = await self._connect(target)
                status = 200 if upstream is not None else 502
            note = SeenRequest(method, target, url, tuple(headers), status)
            self.seen.append(note)
            if upstream is None:
                writer.write(self._error(status))
                await writer.drain()
                return method != "CONNECT"
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _relay(reader, writer, *upstream)
                return False
            path = url.partition("://")[2].partition("/")[2]
            return await self._forward(writer, upstream, f"{method} /{path} HTTP/1.1", headers, body)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            yield
        finally:
            self.in_flight -= 1

    def _own_answer(self, headers: list[tuple[str, str]]) -> int | None:
        if self.always_407:
            return 407
        if self.credentials is not None:
            wanted = "Basic " + base64.b64encode(":".join(self.credentials).encode("latin-1")).decode()
            if not any(name.lower() == "proxy-authorization" and value == wanted for name, value in headers):
                return 407
        return self.own_status

    def _error(self, status: int) -> bytes:
        lines = [f"HTTP/1.1 {status} Local proxy", "Content-Length: 0"]
        if status == 407:
            lines.append('Proxy-Authenticate: Basic realm="local"')
        elif self.signed:
            lines.append("Proxy-Status: local-proxy; error=proxy_internal_error")
        return "\r\n".join([*lines, "", ""]).encode()

    async def _connect(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        host, _, port = target.rpartition(":")
        try:
            streams = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, ValueError):
            return None
        self.connections_to[target] += 1
        self._writers.add(streams[1])
        return streams

    async def _forward(
        self,
        writer: asyncio.StreamWriter,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        first: str,
        headers: list[tuple[str, str]],
        body: bytes,
    ) -> bool:
        origin_reader, origin_writer = upstream
        kept = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP | _FRAMING]
        kept += [("Connection", "close")] + [("Via", f"1.1 {self.via}")] * bool(self.via)
        if body or first.startswith(("POST", "PUT", "PATCH")):
            kept.append(("Content-Length", str(len(body))))
        try:
            origin_writer.write(_head(first, kept) + body)
            await origin_writer.drain()
            status_line, answered = await _read_head(origin_reader)
            status = int(status_line.split(" ")[1])
            bodiless = first.startswith("HEAD") or status in _BODILESS
            content = b"" if bodiless else await _read_body(origin_reader, answered, until_end=True)
        finally:
            self._writers.discard(origin_writer)
            origin_writer.close()
        back = [(name, value) for name, value in answered if name.lower() not in _HOP_BY_HOP | _FRAMING]
        if not bodiless:
            back.append(("Content-Length", str(len(content))))
        writer.write(_head(status_line, back) + content)
        await writer.drain()
        return True


_FRAMING = frozenset({"content-length", "transfer-encoding"})


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """Give the URL of a proxy that refuses every connection; its port stays taken, so nobody else can answer."""
    with socket.socket() as taken:
        # Bound and not listening: the kernel refuses.
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def _target_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 80}"


def _head(first: str, headers: list[tuple[str, str]]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, list[tuple[str, str]]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, [(name, value.strip()) for name, _, value in pairs]


async def _read_body(reader: asyncio.StreamReader, headers: list[tuple[str, str]], *, until_end: bool) -> bytes:
    framing = {name.lower(): value for name, value in headers if name.lower() in _FRAMING}
    if framing.get("transfer-encoding", "").lower() == "chunked":
        content = b""
        while size := int((await reader.readline()).partition(b";")[0], 16):
            content += await reader.readexactly(size)
            await reader.readline()
        while (await reader.readline()).strip():
            pass
        return content
    if "content-length" in framing:
        return await reader.readexactly(int(framing["content-length"]))
    return await reader.read() if until_end else b""


async def _relay(
    client_reader: asyncio.StreamReader,
    client_writer: asyncio.StreamWriter,
    origin_reader: asyncio.StreamReader,
    origin_writer: asyncio.StreamWriter,
) -> None:
    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    await asyncio.gather(pump(client_reader, origin_writer), pump(origin_reader, client_writer))
