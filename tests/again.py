"""Runs pytest, and what failed once more, alone.

The crawls of the suite measure real time at real servers, several at once on however busy a machine. What fails beside
the others gets one more try by itself; what fails then has failed.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    pytest = [sys.executable, "-m", "pytest"]
    code = subprocess.run([*pytest, *sys.argv[1:]], check=False).returncode
    if code == 1:
        print("== once more, one at a time: what failed", flush=True)
        code = subprocess.run([*pytest, "--last-failed", "--last-failed-no-failures=none"], check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
