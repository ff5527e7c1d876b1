"""``python -m shop --log arrivals.jsonl``: open the shop until standard input ends.

The first line on standard output is a JSON object with the three origins and the size of the shop. Whoever started
the shop keeps the other end of its standard input: when that process ends, however it ends, the shop ends too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from aiohttp import web

from shop.arrivals import ArrivalLog
from shop.catalogue import CATALOGUE, PAGES
from shop.site import Origins, api_app, covers_app, shop_app

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def bind(address: str) -> socket.socket:
    """Listen on a free port of ``address``, or of 127.0.0.1 where that can't be had (macOS)."""
    try:
        return socket.create_server((address, 0))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def url(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"http://{host}:{port}"


async def serve(log: ArrivalLog, *, front_door: bool) -> None:
    """Open the shop, say where it is, and close it when standard input ends."""
    listeners = [bind(address) for address in ADDRESSES]
    origins = Origins(*map(url, listeners))
    apps = (
        shop_app(origins, log, front_door=front_door),
        covers_app(origins, log),
        api_app(origins, log),
    )
    runners = [web.AppRunner(app, access_log=None, shutdown_timeout=1) for app in apps]
    try:
        for runner, listener in zip(runners, listeners, strict=True):
            await runner.setup()
            await web.SockSite(runner, listener).start()
        print(json.dumps({**asdict(origins), "books": len(CATALOGUE), "pages": PAGES}), flush=True)
        await standard_input_ends()
    finally:
        for runner in runners:
            await runner.cleanup()


async def standard_input_ends() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wait() -> None:
        # Not sys.stdin, whose lock would be held at exit when a Ctrl-C ends the shop instead.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        # The loop may have ended before.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shop", description="A bookshop to crawl.")
    parser.add_argument("--log", type=Path, required=True, help="file for the arrivals")
    parser.add_argument(
        "--front-door",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="no book for whoever has not seen the homepage (default)",
    )
    options = parser.parse_args()
    log = ArrivalLog(options.log)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(log, front_door=options.front_door))
    finally:
        log.close()


if __name__ == "__main__":
    main()
