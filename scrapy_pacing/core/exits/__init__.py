"""Exits: the addresses that requests leave by, leased per origin and held.

`parsing` reads the settings, `evidence` says what counts against an address, `pool` decides who leaves by which.
"""

from .evidence import Cause, Fault
from .parsing import Exit, ParsedExits, parse_exits, parse_exits_text, read_exits_file
from .pool import ExitPool
from .values import ExitRules, ExitStats, Finding, Lease, Session, clamp_sessions

__all__ = [
    "Cause",
    "Exit",
    "ExitPool",
    "ExitRules",
    "ExitStats",
    "Fault",
    "Finding",
    "Lease",
    "ParsedExits",
    "Session",
    "clamp_sessions",
    "parse_exits",
    "parse_exits_text",
    "read_exits_file",
]
