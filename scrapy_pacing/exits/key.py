"""The key that exit ids are made with: without it nobody can guess from an id which proxy it stands for."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

import filelock

from scrapy_pacing.core.memory.files import locked, make_private_directory, open_regular, replace_file

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_NAME = "exits.key"
_BYTES = 32
_PATIENCE = 5.0

# Where nothing is remembered, ids need to hold no longer than the process.
_of_process = secrets.token_bytes(_BYTES)


def exit_key(directory: Path | None) -> bytes:
    """Return the key kept in ``directory``, made there if there is none; without a directory, this process's own.

    The file is readable by its owner alone. If it can't be read or written, a warning says so and the process's own
    key is used: the exits that were remembered are then not known again. Blocks shortly.
    """
    if directory is None:
        return _of_process
    path = directory / _NAME
    try:
        make_private_directory(directory)
        with locked(path, wait=_PATIENCE):
            key = _read(path)
            if key is None:
                key = secrets.token_bytes(_BYTES)
                replace_file(path, [key.hex().encode()])
    except (OSError, filelock.Timeout) as error:
        logger.warning(
            "The key of the exits' ids (%s) can't be read or written (%s); exits are not recognised in the next run",
            path,
            error,
        )
        return _of_process
    return key


def _read(path: Path) -> bytes | None:
    file = open_regular(path)
    if file is None:
        return None
    with file:
        text = file.read(2 * _BYTES + 2).strip()
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    return key if len(key) == _BYTES else None
