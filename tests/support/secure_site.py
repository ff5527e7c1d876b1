"""The local site under https, with a certificate made for the occasion."""

from __future__ import annotations

import asyncio
import ssl

import trustme
from aiohttp import web

from .site import Site


class SecureSite(Site):
    """As `Site`, under https. Scrapy does not verify certificates unless it is told to."""

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"https://{host or self.hosts[0]}:{self.port}{path}"

    async def _serve(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert(*self.hosts).configure_cert(context)
        self._stopping = asyncio.Event()
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        for host in self.hosts:
            place = web.TCPSite(runner, host, self.port, ssl_context=context)
            await place.start()
            self.port = self.port or place._server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        await runner.cleanup()
