"""The form of the file: JSON, with one origin to a line.

::

    {"schema":1,"save":"<random>","origins":{
    "https://example.com":{...},
    "https://example.org":{...}
    }}

Any JSON tool reads it. Read line by line, no single step takes long, so a file of fifty megabytes can be read in a
thread beside a running crawl; and the first line alone says whether anybody has written since. A file that somebody
has formatted anew is read at one go.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = 1
_LONGEST_HEADER = 256
_FOOT = b"}}\n"


class UnreadableError(Exception):
    """The file is not one that this package has written, or not all of it."""


class NewerError(Exception):
    """The file was written by a later version, in a form that this one does not know."""


class Content(NamedTuple):
    """What stands in a file: the mark of the save that wrote it, and the records by origin, not yet decoded."""

    save: str
    records: list[tuple[str, bytes]]


class _Header(msgspec.Struct):
    schema: int
    save: str = ""


class _Whole(msgspec.Struct):
    origins: dict[str, msgspec.Raw]
    save: str = ""


_header_decoder = msgspec.json.Decoder(_Header)
_whole_decoder = msgspec.json.Decoder(_Whole)
_line_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def lines(save: str, records: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Return the parts of a file with these records."""
    yield b'{"schema":%d,"save":%b,"origins":{\n' % (SCHEMA, msgspec.json.encode(save))
    separator = b""
    for origin, record in records:
        yield b"%b%b:%b" % (separator, msgspec.json.encode(origin), record)
        separator = b",\n"
    yield b"\n" + _FOOT


def read_mark(file: BinaryIO) -> str | None:
    """Return the mark in the first line, or None if it isn't a first line of ours; the file is at its start again."""
    header = _header(file)
    file.seek(0)
    return None if header is None else header.save


def read(file: BinaryIO, *, most_bytes: int) -> Content:
    """Read a whole file; raises `UnreadableError`, `NewerError` or OSError."""
    size = os.fstat(file.fileno()).st_size
    if size > most_bytes:
        raise UnreadableError(f"it has {size} bytes, and at most {most_bytes} are read")
    content = _by_lines(file)
    if content is None:
        file.seek(0)
        content = _at_one_go(file.read())
    return content


def _header(file: BinaryIO) -> _Header | None:
    line = file.readline(_LONGEST_HEADER)
    if not line.endswith(b'"origins":{\n'):
        return None
    try:
        return _header_decoder.decode(line + b"}}")
    except (ValueError, RecursionError):
        return None


def _by_lines(file: BinaryIO) -> Content | None:
    """Read a file in the form of `lines`; None: it has another form."""
    header = _header(file)
    if header is None or header.schema != SCHEMA:
        return None
    records: list[tuple[str, bytes]] = []
    more = True
    for line in file:
        if line == _FOOT:
            return None if more or file.read(1) else Content(header.save, records)
        if not more:
            return None
        more = line.endswith(b",\n")
        if line == b"\n" and not records:
            continue
        try:
            pairs = _line_decoder.decode(b"{%b}" % line.rstrip(b",\n"))
        except (ValueError, RecursionError):
            return None
        records.extend((origin, bytes(raw)) for origin, raw in pairs.items())
    return None


def _at_one_go(data: bytes) -> Content:
    try:
        schema = _header_decoder.decode(data).schema
        if schema > SCHEMA:
            raise NewerError(f"its schema is {schema}, and the newest known here is {SCHEMA}")
        if schema < SCHEMA:
            raise UnreadableError(f"its schema is {schema}, which never was")
        whole = _whole_decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(str(error) or type(error).__name__) from None
    return Content(whole.save, [(origin, bytes(raw)) for origin, raw in whole.origins.items()])
