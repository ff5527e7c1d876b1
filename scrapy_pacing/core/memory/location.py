"""In which directory a crawl's memory lies when nobody has said so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "PACING_DATA_DIR"
"""The environment variable; the setting has the same name."""
FILE_NAME = "memory.json"


def default_data_dir(
    configured: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    project_data: str | os.PathLike[str] | None = None,
    start: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the directory for what is remembered; creates nothing.

    The first of these that is given: ``configured`` (the setting), the environment variable ``PACING_DATA_DIR``,
    ``pacing`` inside a Scrapy project's data directory, the user's data directory of the platform. A setting or
    variable that is empty counts as not given.

    ``project_data`` is the project's data directory, where the caller knows it; by default it is ``.scrapy`` beside
    the nearest ``scrapy.cfg`` at or above ``start`` (the working directory). Raises ValueError for a setting or a
    variable that can't be a path.
    """
    if configured is not None and configured != "":
        return _checked(configured, f"the setting {VARIABLE}")
    from_environment = (os.environ if environ is None else environ).get(VARIABLE)
    if from_environment:
        return _checked(from_environment, f"the environment variable {VARIABLE}")
    if project_data is None:
        project_data = _project_data(Path.cwd() if start is None else Path(start))
    if project_data is not None:
        return Path(project_data).absolute() / "pacing"
    return Path(platformdirs.user_data_dir("scrapy-pacing", appauthor=False))


def _checked(value: str | os.PathLike[str], source: str) -> Path:
    try:
        text = os.fspath(value)
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise ValueError
        return Path(text).expanduser().absolute()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{source} is {value!r}; allowed: the path of a directory") from None


def _project_data(start: Path) -> Path | None:
    start = start.absolute()
    for directory in (start, *start.parents):
        if (directory / "scrapy.cfg").is_file():
            return directory / ".scrapy"
    return None
