"""The settings of the exits: what is allowed, and what a message may show."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

from scrapy_pacing import Addon
from scrapy_pacing.downloadermiddlewares.exits import ExitMiddleware
from scrapy_pacing.exits import ExitSettings, exit_key, read_exit_settings
from scrapy_pacing.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(16)


def read(**values: Any) -> ExitSettings:
    return read_exit_settings(Settings(values))


def test_without_settings_there_are_no_exits() -> None:
    """An empty project leaves by whatever way Scrapy leaves by."""
    settings = read()
    assert not settings.wanted
    assert settings.parse(KEY).exits == ()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"PACING_MAX_SESSIONS_PER_EXIT": "many"}, "PACING_MAX_SESSIONS_PER_EXIT is 'many'; allowed: a whole number"),
        ({"PACING_MAX_SESSIONS_PER_EXIT": True}, "PACING_MAX_SESSIONS_PER_EXIT is True; allowed: a whole number"),
        ({"PACING_BAN_AFTER": 0}, "PACING_BAN_AFTER is 0; allowed: a whole number, 1 to 1000"),
        ({"PACING_BAN_AFTER": 2.5}, "PACING_BAN_AFTER is 2.5; allowed: a whole number, 1 to 1000"),
        ({"PACING_BAN_STATUSES": [200]}, "PACING_BAN_STATUSES is [200]; allowed: a list of HTTP statuses from 400"),
        ({"PACING_BAN_STATUSES": "403,429"}, "PACING_BAN_STATUSES is '403,429'; allowed: a list of HTTP statuses"),
        ({"PACING_EXIT_WAIT": -1}, "PACING_EXIT_WAIT is -1; allowed: 0 to 3600 seconds"),
        ({"PACING_EXIT_WAIT": "nan"}, "PACING_EXIT_WAIT is 'nan'; allowed: 0 to 3600 seconds"),
        ({"PACING_BAN_COOLDOWN": 0}, "PACING_BAN_COOLDOWN is 0; allowed: 1 to 86400 seconds"),
        ({"PACING_EXIT_COOLDOWN": True}, "PACING_EXIT_COOLDOWN is True; allowed: 1 to 86400 seconds"),
        ({"PACING_MAX_EXIT_FAULTS": -1}, "PACING_MAX_EXIT_FAULTS is -1; allowed: a whole number, 0 or more"),
        ({"PACING_EXITS": 5}, "PACING_EXITS is a int; allowed: a list of URLs, None or 'direct'"),
        ({"PACING_EXITS_FILE": 5}, "PACING_EXITS_FILE is a int; allowed: the path of a text file"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_value_is_refused_by_name(values: dict[str, Any], text: str) -> None:
    """What can't be honoured stops the crawl with the setting, the value and what is allowed."""
    with pytest.raises(ValueError, match="allowed") as caught:
        read(**values)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("entry", ["http://ann:s3cret%2Fp@192.0.2.1:8000", "http://s3cret%2fp@192.0.2.1:8000"])
def test_without_a_reactor_a_slash_in_a_user_or_password_is_refused(entry: str, tmp_path: Path) -> None:
    """Scrapy's handler there would break, and show the password; the message names the place and shows nothing."""
    file = tmp_path / "exits.txt"
    file.write_text(f"direct\n{entry}\n")
    assert len(read(PACING_EXITS=[entry]).parse(KEY).exits) == 1
    for values, place in (
        ({"PACING_EXITS": ["direct", entry]}, r"^PACING_EXITS, entry 2: has a slash"),
        ({"PACING_EXITS_FILE": file}, r"^PACING_EXITS_FILE \(.*\), line 2: has a slash"),
    ):
        with pytest.raises(ValueError, match=place) as caught:
            read(TWISTED_REACTOR_ENABLED=False, **values)
        assert "s3cret" not in str(caught.value)
        assert "allowed: a user name and a password without one" in str(caught.value)


def test_values_from_the_command_line_are_numbers_and_lists() -> None:
    """`-s` gives text, and is understood."""
    settings = read(
        PACING_EXITS="http://192.0.2.1:8000,direct",
        PACING_MAX_SESSIONS_PER_EXIT="3",
        PACING_BAN_AFTER="5",
        PACING_BAN_STATUSES="403,451",
        PACING_EXIT_WAIT="2.5",
    )
    assert len(settings.parse(KEY).exits) == 2
    assert (settings.max_sessions, settings.rules.ban_after, settings.wait) == (3, 5, 2.5)
    assert settings.ban_statuses == {403, 451}


@pytest.mark.parametrize(("given", "used"), [(0, 1), (-3, 1), (5, 4), ("9", 4)])
def test_room_out_of_range_is_clamped_and_said(given: Any, used: int) -> None:
    """The clamp is a warning, not an error."""
    settings = read(PACING_MAX_SESSIONS_PER_EXIT=given)
    assert settings.max_sessions == used
    assert "PACING_MAX_SESSIONS_PER_EXIT" in settings.warnings[0]


def test_no_repr_shows_an_entry(tmp_path: Path) -> None:
    """Settings that are logged by accident show no password."""
    entry = "http://ann:s3cret@192.0.2.1:8000"
    assert "s3cret" not in repr(read(PACING_EXITS=[entry]))
    assert "s3cret" not in repr(read_settings(Settings({"PACING_EXITS": [entry]})))


def test_list_and_file_are_put_together_and_an_empty_file_is_refused(tmp_path: Path) -> None:
    """Both settings count; a file that names nothing is a mistake, not a crawl without exits."""
    file = tmp_path / "exits.txt"
    file.write_text("http://192.0.2.2:8000\nhttp://192.0.2.1:8000\n")
    settings = read(PACING_EXITS=["http://192.0.2.1:8000"], PACING_EXITS_FILE=file)
    parsed = settings.parse(KEY)
    assert [leaving_by.host for leaving_by in parsed.exits] == ["192.0.2.1", "192.0.2.2"]
    assert len(parsed.warnings) == 1
    file.write_text("# nothing yet\n")
    with pytest.raises(ValueError, match=r"names no exit; allowed: one exit a line"):
        read(PACING_EXITS_FILE=file)


def test_the_other_packages_settings_count_where_ours_name_them(tmp_path: Path) -> None:
    """PACING_EXITS = ROTATING_PROXY_LIST takes entries without a scheme; by itself that setting does nothing."""
    theirs = ["192.0.2.1:8000", "ann:s3cret@192.0.2.2:8000"]
    assert not read(ROTATING_PROXY_LIST=theirs).wanted
    settings = read(ROTATING_PROXY_LIST=theirs, PACING_EXITS=theirs)
    assert [leaving_by.scheme for leaving_by in settings.parse(KEY).exits] == ["http", "http"]
    with pytest.raises(ValueError, match="entry 1: has no scheme"):
        read(PACING_EXITS=theirs)


def test_the_add_on_adds_the_middleware_where_there_are_exits() -> None:
    """The middleware is there when it has something to do, and stays where a project has put it."""
    without, with_exits = Settings(), Settings({"PACING_EXITS": ["direct"]})
    Addon().update_settings(without)
    Addon().update_settings(with_exits)
    assert ExitMiddleware not in without["DOWNLOADER_MIDDLEWARES"]
    assert with_exits["DOWNLOADER_MIDDLEWARES"][ExitMiddleware] == 690
    own = Settings({"PACING_EXITS": ["direct"], "DOWNLOADER_MIDDLEWARES": {"scrapy_pacing.ExitMiddleware": 650}})
    Addon().update_settings(own)
    assert list(own["DOWNLOADER_MIDDLEWARES"].values()).count(650) == 1
    assert 690 not in own["DOWNLOADER_MIDDLEWARES"].values()


# -- the key of the ids ------------------------------------------------------------------------------------------------


def test_the_key_is_kept_private_and_the_same_next_time(tmp_path: Path) -> None:
    """Ids are stable for a data directory, and the key is for its owner's eyes."""
    directory = tmp_path / "new" / "data"
    key = exit_key(directory)
    assert len(key) == 32
    assert exit_key(directory) == key
    assert exit_key(tmp_path / "other") != key
    assert (directory / "exits.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in directory.iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"ab" * 31, b"\xff" * 64, b"ab" * 100])
def test_a_broken_key_is_replaced(tmp_path: Path, content: bytes) -> None:
    """A key that is none costs the stickiness across runs, not the crawl."""
    (tmp_path / "exits.key").write_bytes(content)
    key = exit_key(tmp_path)
    assert len(key) == 32
    assert exit_key(tmp_path) == key


def test_a_directory_that_can_not_be_used_is_said_and_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the key can't be kept the process's own serves, with a warning."""
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        key = exit_key(tmp_path / "file" / "data")
    assert key == exit_key(None)
    assert "can't be read or written" in caplog.text


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links here")
def test_no_key_is_read_through_a_link(tmp_path: Path) -> None:
    """A link in the key's place is not followed."""
    (tmp_path / "elsewhere").write_text("ab" * 32)
    (tmp_path / "exits.key").symlink_to(tmp_path / "elsewhere")
    assert exit_key(tmp_path) == exit_key(None)
