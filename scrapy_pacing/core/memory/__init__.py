"""What is remembered of sites between runs, in one private file.

`store` is the place to start reading; `facts` and `pages` record and recall, `records` has the types and how they merge, `shelf`
keeps them in memory, `disk` decides how to load and save, `format` is the file's form, `files` its safety.
"""

from __future__ import annotations

from .location import FILE_NAME, default_data_dir
from .records import Clearance, Cookie, Pace, Validators
from .store import Memory
from .texts import fingerprint

__all__ = [
    "FILE_NAME",
    "Clearance",
    "Cookie",
    "Memory",
    "Pace",
    "Validators",
    "default_data_dir",
    "fingerprint",
]
