"""Where a Scrapy project keeps its data, by Scrapy's own convention."""

from __future__ import annotations

import os
from pathlib import Path

from scrapy.utils.conf import closest_scrapy_cfg, get_config


def project_data() -> Path | None:
    """Return the data directory that a project's ``scrapy.cfg`` names, or ``.scrapy`` beside it; None outside of one.

    What ``scrapy.utils.project.project_data_dir`` returns, which makes the directory where there is none.
    """
    place = closest_scrapy_cfg()
    if not place:
        return None
    config = get_config()
    named = config.get("datadir", "default", fallback="") if config.has_section("datadir") else ""
    return Path(named) if named else Path(os.path.realpath(Path(place).parent)) / ".scrapy"
