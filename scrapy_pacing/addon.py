"""The add-on: one line in ``ADDONS`` sets everything up."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from .core.policy import DERIVED_FIELDS
from .downloadermiddlewares.exits import ExitMiddleware
from .downloadermiddlewares.pacing import PacingMiddleware
from .extensions.memory import MemoryExtension
from .pqueues import PacedPriorityQueue
from .settings import pacing_enabled, read_settings, scrapy_delays

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings, Settings

logger = logging.getLogger(__name__)


class Addon:
    """Puts the components in place and settles what Scrapy's own settings say about delays.

    ``ADDONS = {"scrapy_pacing.Addon": 500}``
    """

    def update_settings(self, settings: Settings) -> None:
        """Change the settings of a crawl; raises ValueError for a bad PACING_ value, so that the crawl never starts."""
        if not pacing_enabled(settings):
            raise NotConfigured("PACING_ENABLED is off")
        read = read_settings(settings)
        self._take_over_delays(settings)
        settings.setdefault_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", PacingMiddleware, 950)
        if read.exits.wanted:
            settings.setdefault_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", ExitMiddleware, 690)
        settings.setdefault_in_component_priority_dict("EXTENSIONS", MemoryExtension, 500)
        # At the add-on's priority: a queue that the project has chosen stays.
        settings.set("SCHEDULER_PRIORITY_QUEUE", PacedPriorityQueue, "addon")

    def _take_over_delays(self, settings: Settings) -> None:
        """Make intervals of Scrapy's delays, and take them out there, so that no gap is counted twice."""
        delay, host_delays = scrapy_delays(settings)
        if delay is not None:
            if settings.get("PACING_INTERVAL") is None:
                _overrule(settings, "PACING_INTERVAL", delay)
                logger.info("DOWNLOAD_DELAY = %g is taken over as PACING_INTERVAL", delay)
            _overrule(settings, "DOWNLOAD_DELAY", 0)
        if host_delays:
            # Clamps in seconds were meant for the general interval.
            derived = dict.fromkeys(DERIVED_FIELDS)
            origins = {host: {"interval": interval, **derived} for host, interval in host_delays.items()}
            for host, own in settings.getdict("PACING_ORIGINS").items():
                origins[host] = {**origins.get(host, {}), **own} if isinstance(own, dict) else own
            _overrule(settings, "PACING_ORIGINS", origins)
            _overrule(settings, "DOWNLOAD_SLOTS", _without_delays(settings))
            logger.info(
                "The delays in DOWNLOAD_SLOTS are taken over as PACING_ORIGINS: %s",
                ", ".join(host_delays),
            )
        if settings.getbool("AUTOTHROTTLE_ENABLED"):
            _overrule(settings, "AUTOTHROTTLE_ENABLED", False)
            logger.info("AutoThrottle is switched off: scrapy-pacing learns the pace of each site itself")


def _overrule(settings: BaseSettings, name: str, value: object) -> None:
    """Set a value at the priority of the one that is there, which a lower one could not replace."""
    priority = settings.getpriority(name)
    settings.set(name, value, "addon" if priority is None else max(priority, 15))


def _without_delays(settings: BaseSettings) -> dict[str, object]:
    slots = copy.deepcopy(settings.getdict("DOWNLOAD_SLOTS"))
    for slot in slots.values():
        if isinstance(slot, dict):
            # It takes DOWNLOAD_DELAY then, which is 0.
            slot.pop("delay", None)
    return slots
