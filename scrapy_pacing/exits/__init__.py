"""Exits for a crawl: what both middlewares share around the pool of `scrapy_pacing.core.exits`.

`settings` reads and checks, `key` keeps the key of the exits' ids, `shared` has the pools of a process, `crawl` has
what one crawl holds of them, `binding` ties a request to its lease and `evidence` reads what came of it.
"""

from .binding import bind, unbind
from .crawl import CrawlExits, NoExitLeft, exits_of, open_exits, report_ban
from .evidence import fault_of_failure, fault_of_response
from .key import exit_key
from .settings import ExitSettings, read_exit_settings
from .shared import SharedExits

__all__ = [
    "CrawlExits",
    "ExitSettings",
    "NoExitLeft",
    "SharedExits",
    "bind",
    "exit_key",
    "exits_of",
    "fault_of_failure",
    "fault_of_response",
    "open_exits",
    "read_exit_settings",
    "report_ban",
    "unbind",
]
