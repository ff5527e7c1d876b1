"""The add-on puts everything in place, counts no delay twice, and leaves to the user what the user has decided."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.settings import Settings
from scrapy.utils.misc import load_object

from scrapy_pacing import Addon, PacingMiddleware
from scrapy_pacing.settings import read_settings

PATH = "scrapy_pacing.PacingMiddleware"
LONG_PATH = "scrapy_pacing.downloadermiddlewares.pacing.PacingMiddleware"
PRIORITIES = ["default", "addon", "project", "spider", "cmdline"]


def project(**values: Any) -> Settings:
    return Settings(values)


def update(settings: Settings) -> Settings:
    Addon().update_settings(settings)
    return settings


def orders(settings: Settings) -> list[Any]:
    """Return the orders at which the pacing middleware stands."""
    middlewares = settings.getdict("DOWNLOADER_MIDDLEWARES")
    return [order for key, order in middlewares.items() if load_object(key) is PacingMiddleware]


# -- in place -----------------------------------------------------------------------------------------------------------


def test_one_line_puts_the_middleware_nearest_to_the_network() -> None:
    """Adding the add-on places the middleware at 950."""
    settings = update(project())

    assert settings.getdict("DOWNLOADER_MIDDLEWARES") == {PacingMiddleware: 950}


def test_other_middlewares_stay() -> None:
    """What else a project has in DOWNLOADER_MIDDLEWARES stays where it is."""
    settings = update(project(DOWNLOADER_MIDDLEWARES={"scrapy.downloadermiddlewares.stats.DownloaderStats": 840}))

    assert settings.getdict("DOWNLOADER_MIDDLEWARES") == {
        "scrapy.downloadermiddlewares.stats.DownloaderStats": 840,
        PacingMiddleware: 950,
    }


@pytest.mark.parametrize("key", [PATH, LONG_PATH, PacingMiddleware], ids=["path", "long path", "class"])
@pytest.mark.parametrize("order", [949, 100, None])
def test_a_middleware_that_the_user_has_placed_stays_there(key: Any, order: int | None) -> None:
    """Another order, or None to leave it out, is the user's decision; it is never there twice."""
    assert orders(update(project(DOWNLOADER_MIDDLEWARES={key: order}))) == [order]


def test_updating_twice_changes_nothing_more() -> None:
    """Two crawls that are made of one settings object get the same."""
    settings = update(project(DOWNLOAD_DELAY=2, DOWNLOAD_SLOTS={"a.example": {"delay": 3}}, AUTOTHROTTLE_ENABLED=True))
    once = settings.copy_to_dict()
    update(settings)

    assert settings.copy_to_dict() == once


# -- delays -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_delay_becomes_the_interval_and_is_taken_out(priority: str, caplog: pytest.LogCaptureFixture) -> None:
    """DOWNLOAD_DELAY, wherever it was set, counts once: as the interval, and no longer in Scrapy."""
    settings = Settings()
    settings.set("DOWNLOAD_DELAY", 1.5, priority)
    with caplog.at_level(logging.INFO):
        update(settings)

    assert settings.getfloat("DOWNLOAD_DELAY") == 0
    assert settings.getfloat("PACING_INTERVAL") == 1.5
    assert read_settings(settings).policies.general.interval == 1.5
    assert "DOWNLOAD_DELAY = 1.5 is taken over as PACING_INTERVAL" in caplog.messages


@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("interval", [3, 0, "0.5"], ids=repr)
def test_an_interval_of_the_users_is_kept(priority: str, interval: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Where PACING_INTERVAL is set, 0 included, DOWNLOAD_DELAY is only taken out."""
    settings = Settings({"PACING_INTERVAL": interval})
    settings.set("DOWNLOAD_DELAY", 1.5, priority)
    with caplog.at_level(logging.INFO):
        update(settings)

    assert settings.getfloat("DOWNLOAD_DELAY") == 0
    assert settings.get("PACING_INTERVAL") == interval
    assert "taken over" not in caplog.text


def test_an_interval_of_none_is_no_interval() -> None:
    """A project that sets PACING_INTERVAL back to None gets its DOWNLOAD_DELAY as the interval."""
    settings = update(project(DOWNLOAD_DELAY=1.5, PACING_INTERVAL=None))

    assert read_settings(settings).policies.general.interval == 1.5


def test_without_a_delay_nothing_is_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    """Scrapy's own default of no delay leaves the interval to the policy's default."""
    with caplog.at_level(logging.INFO):
        settings = update(project())

    assert settings.get("PACING_INTERVAL") is None
    assert read_settings(settings).policies.general.interval == 4
    assert caplog.messages == []


@pytest.mark.parametrize("priority", PRIORITIES)
def test_slot_delays_become_intervals_of_their_hosts(priority: str, caplog: pytest.LogCaptureFixture) -> None:
    """A delay in DOWNLOAD_SLOTS counts as the interval of its host; concurrency and the rest of the slot stay."""
    slots = {"a.example": {"delay": 7, "concurrency": 3}, "b.example": {"concurrency": 2}}
    settings = Settings()
    settings.set("DOWNLOAD_SLOTS", slots, priority)
    with caplog.at_level(logging.INFO):
        update(settings)

    assert settings.getdict("DOWNLOAD_SLOTS") == {
        "a.example": {"concurrency": 3},
        "b.example": {"concurrency": 2},
    }
    assert read_settings(settings).policies.of("https://a.example").interval == 7
    assert read_settings(settings).policies.of("https://b.example").interval == 4
    assert slots["a.example"]["delay"] == 7, "the project's own dict is left alone"
    assert any("DOWNLOAD_SLOTS" in message and "a.example" in message for message in caplog.messages)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_origins_of_the_users_win_over_slots(priority: str) -> None:
    """What PACING_ORIGINS says of a host stays, at whatever priority it was set; other slots' delays join it."""
    settings = Settings({"DOWNLOAD_SLOTS": {"a.example": {"delay": 7}, "b.example": {"delay": 8}}})
    settings.set("PACING_ORIGINS", {"A.example": {"interval": 20}, "https://c.example": {"shape": 5}}, priority)
    policies = read_settings(update(settings)).policies

    assert policies.of("https://a.example").interval == 20
    assert policies.of("https://b.example").interval == 8
    assert policies.of("https://c.example").shape == 5


def test_the_delays_of_a_spider_count(caplog: pytest.LogCaptureFixture) -> None:
    """The `custom_settings` of a spider beat the project's, for taking over as for everything."""
    settings = project(DOWNLOAD_DELAY=1)
    settings.set("DOWNLOAD_DELAY", 9, "spider")

    assert read_settings(update(settings)).policies.general.interval == 9
    assert settings.getfloat("DOWNLOAD_DELAY") == 0


# -- AutoThrottle, concurrency ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", PRIORITIES)
def test_autothrottle_is_switched_off_and_said(priority: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two that learn a pace would work against each other; the log says which one does."""
    settings = Settings()
    settings.set("AUTOTHROTTLE_ENABLED", True, priority)
    with caplog.at_level(logging.INFO):
        update(settings)

    assert settings.getbool("AUTOTHROTTLE_ENABLED") is False
    assert [message for message in caplog.messages if "AutoThrottle is switched off" in message]


@pytest.mark.parametrize("values", [{}, {"CONCURRENT_REQUESTS_PER_DOMAIN": 1}, {"CONCURRENT_REQUESTS_PER_DOMAIN": 32}])
def test_concurrency_is_nobodys_business(values: dict[str, int]) -> None:
    """The number of concurrent requests stays what Scrapy or the project says."""
    before = project(**values).getint("CONCURRENT_REQUESTS_PER_DOMAIN")
    settings = update(project(**values, DOWNLOAD_DELAY=1))

    assert settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") == before


# -- off, and bad values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [False, "False", "0", 0])
def test_switched_off_it_touches_nothing(off: Any) -> None:
    """With PACING_ENABLED off the crawl is Scrapy's own, delays and AutoThrottle included."""
    values = {
        "PACING_ENABLED": off,
        "DOWNLOAD_DELAY": 2,
        "AUTOTHROTTLE_ENABLED": True,
        "DOWNLOAD_SLOTS": {"a.example": {"delay": 3}},
        "PACING_INTERVAL": "bad",
    }
    settings = project(**values)
    before = settings.copy_to_dict()
    with pytest.raises(NotConfigured):
        update(settings)

    assert settings.copy_to_dict() == before


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("PACING_INTERVAL", "soon", "'soon'"),
        ("PACING_BACKOFF_FACTOR", 1, "1.0"),
        ("PACING_ORIGINS", {"example.com": {"interval": -1}}, "-1"),
        ("PACING_THROTTLE_STATUSES", ["many"], "['many']"),
        ("PACING_MAX_THROTTLES", -1, "-1"),
        ("PACING_MAX_ORIGINS", 0, "0"),
        ("PACING_ORIGIN_KEY", "no.such.function", "'no.such.function'"),
        ("PACING_ENABLED", "perhaps", "'perhaps'"),
    ],
)
def test_a_bad_value_stops_the_crawl_before_it_changes_anything(name: str, value: Any, shown: str) -> None:
    """The crawl does not start, and the message names the setting and the value."""
    settings = project(**{name: value, "DOWNLOAD_DELAY": 2})
    before = settings.copy_to_dict()
    with pytest.raises(ValueError, match=name) as caught:
        update(settings)

    text = str(caught.value)
    assert shown in text
    assert "allowed: " in text
    assert settings.copy_to_dict() == before


def test_importing_the_add_on_installs_no_reactor() -> None:
    """Scrapy loads add-ons before it has chosen a reactor, so importing this one must not choose."""
    code = "import scrapy_pacing, sys; sys.exit('twisted.internet.reactor' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
