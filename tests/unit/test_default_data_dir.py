"""Where the memory lies: the setting, the environment, the project, the user's directory, in this order."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from scrapy_pacing.core.memory import default_data_dir


@pytest.fixture
def project(tmp_path):
    (tmp_path / "scrapy.cfg").write_text("[settings]\n")
    inner = tmp_path / "package" / "spiders"
    inner.mkdir(parents=True)
    return inner


def test_setting_wins(project):
    """PACING_DATA_DIR in the settings counts above all else."""
    assert default_data_dir("/a", environ={"PACING_DATA_DIR": "/b"}, start=project) == Path("/a").absolute()


def test_environment_wins_over_project(project):
    """A deployment can put the directory on a volume without touching the settings."""
    assert default_data_dir(None, environ={"PACING_DATA_DIR": "/b"}, start=project) == Path("/b").absolute()


@pytest.mark.parametrize("unset", [None, ""])
def test_project(project, tmp_path, unset):
    """Inside a Scrapy project, however deep, it is .scrapy/pacing beside scrapy.cfg."""
    found = default_data_dir(unset, environ={"PACING_DATA_DIR": ""}, start=project)
    assert found == tmp_path / ".scrapy" / "pacing"
    assert not found.exists()


def test_project_data_directory_of_the_caller(project, tmp_path):
    """A project that keeps its data elsewhere has the memory there too."""
    assert default_data_dir(environ={}, project_data=tmp_path / "data", start=project) == tmp_path / "data" / "pacing"


def test_elsewhere_the_user_directory(tmp_path):
    """Outside of a project it is the user's data directory."""
    found = default_data_dir(environ={}, start=tmp_path)
    assert found == Path(platformdirs.user_data_dir("scrapy-pacing", appauthor=False))


def test_reads_the_real_environment(monkeypatch, tmp_path):
    """Without arguments, the process's own environment and working directory count."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACING_DATA_DIR", "here")
    assert default_data_dir() == tmp_path / "here"


def test_home_is_expanded(monkeypatch, tmp_path):
    """A tilde stands for the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert default_data_dir("~/x") == tmp_path / "x"


@pytest.mark.parametrize("bad", [5, "a\0b", "  ", b"bytes", ["list"]])
def test_bad_setting_is_named(bad):
    """A value that is no path is refused by the name of the setting, with the value."""
    with pytest.raises(ValueError, match=r"setting PACING_DATA_DIR is .*; allowed: the path"):
        default_data_dir(bad)


def test_bad_variable_is_named():
    """The same for the environment variable."""
    with pytest.raises(ValueError, match="environment variable PACING_DATA_DIR is"):
        default_data_dir(environ={"PACING_DATA_DIR": " "})
