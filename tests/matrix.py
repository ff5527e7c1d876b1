"""Runs tox with the interpreters of this machine: all of them, or the oldest with the oldest Scrapy (``--oldest``)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def version_of(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def candidates() -> list[Path]:
    """The interpreters on PATH, this one, and those that pyenv keeps beside each other."""
    found = [Path(sys.executable)]
    found += [Path(path) for version in VERSIONS if (path := shutil.which(f"python{version}"))]
    found += sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    return found


def interpreters() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for python in candidates():
        version = version_of(python)
        if version in VERSIONS:
            found.setdefault(version, python)
    return found


def main() -> int:
    found = interpreters()
    for version in VERSIONS:
        where = "found" if version in found else "not on this machine: its environments are skipped"
        print(f"Python {version}: {where}", flush=True)
    if "--oldest" in sys.argv:
        oldest = min(found, key=lambda version: int(version.split(".")[1]))
        environments = f"py{oldest.replace('.', '')}-scrapy214-asyncio"
        print(f"The oldest Scrapy with the oldest Python: {environments}", flush=True)
    else:
        environments = "ALL"
    command = [sys.executable, "-m", "tox", "run", "-e", environments, "--skip-missing-interpreters", "true"]
    command += ["--discover", *map(str, found.values())]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
