"""What all tests share: whatever they forget to say, nothing of theirs lands in the data directory of whoever runs them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_data_directory(tmp_path_factory):
    """Let crawls remember in a directory of the tests' own, where a test names none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACING_DATA_DIR", str(tmp_path_factory.mktemp("memory")))
        yield
