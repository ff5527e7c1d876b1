"""What crawls share: which of them have one state, and how long it lives."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from scrapy_pacing import Memory, PacingPolicy, PolicyBook, SharedState, state as module
from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.settings import read_settings
from scrapy_pacing.state import known_state_of, state_of

ORIGIN = "https://example.com"


@pytest.fixture(autouse=True)
def no_states(monkeypatch):
    """Let each test start as a fresh process does."""
    monkeypatch.setattr(module, "_states", {})


def crawler(**settings):
    return Crawler(Spider, Settings(settings))


def state(made=None, **settings):
    made = made or crawler(**settings)
    return state_of(made, read_settings(made.settings))


def test_crawls_that_remember_in_one_directory_share_a_state(tmp_path):
    """Whatever name a directory is called by, its crawls are one visitor."""
    (tmp_path / "link").symlink_to(tmp_path / "data", target_is_directory=True)
    (tmp_path / "data").mkdir()
    one = state(PACING_DATA_DIR=str(tmp_path / "data"))
    assert state(PACING_DATA_DIR=str(tmp_path / "link")) is one
    assert state(PACING_DATA_DIR=f"{tmp_path}/data/../data/") is one
    assert state(PACING_DATA_DIR=str(tmp_path / "other")) is not one
    assert one.memory is Memory.open(tmp_path / "data" / "memory.json", **one.memory._options)


def test_crawls_that_remember_nothing_share_a_state(tmp_path):
    """Without a memory the pace is still one for the process."""
    one = state(PACING_REMEMBER=False)
    assert one.memory is None
    assert state(PACING_REMEMBER="0") is one
    assert state(PACING_DATA_DIR=str(tmp_path)) is not one


def test_a_crawl_keeps_the_state_that_it_has_got(tmp_path):
    """Every component of a crawl gets the same one, which can be asked for by crawl."""
    made = crawler(PACING_DATA_DIR=str(tmp_path))
    assert known_state_of(made) is None
    assert state(made) is state(made) is known_state_of(made)


def test_a_state_given_in_the_settings_is_not_copied(tmp_path):
    """Scrapy copies settings; the state in them stays the same for all crawls that name it."""
    memory = Memory(tmp_path / "memory.json")
    given = SharedState.create(PacingPolicy(interval=10), memory=memory)
    assert copy.deepcopy(given) is given
    one, other = state(PACING_STATE=given), state(PACING_STATE=given)
    assert one is other is given
    assert one.memory is memory


def test_a_state_can_be_made_for_each_crawl(tmp_path):
    """A callable gets the crawler, and may give each spider a state of its own over one memory."""
    memory = Memory(tmp_path / "memory.json")
    asked = []

    def make(crawler):
        asked.append(crawler)
        return SharedState.create(memory=memory)

    made = crawler(PACING_STATE=make)
    assert state(made) is not state(PACING_STATE=make)
    assert asked[0] is made
    assert len(asked) == 2


def test_states_over_one_memory_learn_from_each_other(tmp_path):
    """What one state's site taught, another state's pacer starts from."""
    memory = Memory(tmp_path / "memory.json")
    one, other = (SharedState.create(PacingPolicy(interval=1), memory=memory) for _ in range(2))
    one.pacer.throttled(ORIGIN, 30)
    assert other.pacer.interval(ORIGIN) == 30
    assert one.gate is not other.gate


@pytest.mark.parametrize("policy", [None, PacingPolicy(interval=7), PolicyBook(PacingPolicy(interval=7))])
def test_a_state_is_made_from_a_policy_or_a_book(policy):
    """Overrides for single sites come along with a book; no policy is the default one."""
    made = SharedState.create(policy)
    assert made.pacer.interval(ORIGIN) == (PacingPolicy() if policy is None else PacingPolicy(interval=7)).interval
    assert made.memory is None


@pytest.mark.parametrize("value", [5, object(), "no.such.thing", "os.nothing"])
def test_what_is_no_state_is_refused(value):
    """A bad PACING_STATE stops the crawl with what is allowed."""
    with pytest.raises(ValueError, match=r"PACING_STATE is .*allowed: a SharedState, a callable"):
        read_settings(Settings({"PACING_STATE": value, "PACING_REMEMBER": False}))


def test_a_callable_that_returns_no_state_is_refused():
    """The same when what the callable returned is none."""
    with pytest.raises(ValueError, match="PACING_STATE returned 5; allowed: a SharedState"):
        state(PACING_STATE=lambda crawler: 5)


def test_a_state_outlives_its_last_crawl(tmp_path):
    """The next crawl of a process keeps the gap after the last request of the one before."""
    made = state(PACING_DATA_DIR=str(tmp_path), PACING_INTERVAL=60, PACING_PAUSE_PROBABILITY=0)
    owner = object()
    made.join(owner, PolicyBook(PacingPolicy(interval=60, pause_probability=0)))
    made.pacer.depart(ORIGIN)
    assert made.crawls == 1
    made.leave(owner)
    assert made.crawls == 0
    assert state(PACING_DATA_DIR=str(tmp_path)).pacer.next_delay(ORIGIN) > 1


def test_unused_states_do_not_pile_up(tmp_path):
    """A process that goes through many directories keeps a few, saves the others, and never drops one in use."""
    used = state(PACING_DATA_DIR=str(tmp_path / "used"))
    used.join(object(), PolicyBook(PacingPolicy()))
    first = state(PACING_DATA_DIR=str(tmp_path / "0"))
    first.memory.record(ORIGIN, Learned(5.0))
    for number in range(1, 40):
        state(PACING_DATA_DIR=str(tmp_path / str(number)))
    assert len(module._states) < 25
    assert state(PACING_DATA_DIR=str(tmp_path / "used")) is used
    assert state(PACING_DATA_DIR=str(tmp_path / "0")) is not first
    assert (tmp_path / "0" / "memory.json").is_file()


def test_closing_one_crawl_leaves_the_policies_of_the_others():
    """The slowest of those who are left sets the pace."""
    made = SharedState.create(PacingPolicy(interval=1))
    one, other = object(), object()
    made.join(one, PolicyBook(PacingPolicy(interval=20)))
    made.join(other, PolicyBook(PacingPolicy(interval=5)))
    assert made.pacer.policy_of(ORIGIN).interval == 20
    made.leave(one)
    assert made.pacer.policy_of(ORIGIN).interval == 5


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"PACING_DATA_DIR": 5}, "PACING_DATA_DIR is 5; allowed: the path of a directory"),
        ({"PACING_DATA_DIR": "a\0b"}, r"PACING_DATA_DIR is 'a\\x00b'; allowed"),
        ({"PACING_REMEMBER": "perhaps"}, "PACING_REMEMBER is 'perhaps'; allowed: True or False"),
        ({"PACING_FORGET_AFTER": "soon"}, "PACING_FORGET_AFTER is 'soon'; allowed: 1 to 315360000 seconds"),
        ({"PACING_FORGET_AFTER": 0}, "PACING_FORGET_AFTER is 0; allowed"),
        ({"PACING_FORGET_AFTER": True}, "PACING_FORGET_AFTER is True; allowed"),
        ({"PACING_FLUSH_INTERVAL": 0}, "PACING_FLUSH_INTERVAL is 0; allowed: 0.1 to 86400 seconds"),
        ({"PACING_FLUSH_INTERVAL": "nan"}, "PACING_FLUSH_INTERVAL is 'nan'; allowed"),
        ({"PACING_MAX_VALIDATORS": 0}, "PACING_MAX_VALIDATORS is 0; allowed: a whole number, 1 or more"),
        ({"PACING_DIAGNOSE": 5}, "PACING_DIAGNOSE is 5; allowed: a callable"),
        ({"PACING_DIAGNOSE": "no.such"}, "PACING_DIAGNOSE is 'no.such', which can't be loaded"),
        ({"PACING_CLEARANCE_COOKIES": {"a": 1}}, "PACING_CLEARANCE_COOKIES is {'a': 1}; allowed: a list of cookie"),
        ({"PACING_CLEARANCE_COOKIES": [5]}, r"PACING_CLEARANCE_COOKIES is \[5\]; allowed: a list of cookie names"),
        ({"PACING_CLEARANCE_COOKIES": 5}, "PACING_CLEARANCE_COOKIES is 5; allowed: a list of cookie names"),
    ],
)
def test_bad_settings_are_refused_with_what_is_allowed(settings, text):
    """A setting of the memory that can't be honoured stops the crawl, and is named."""
    with pytest.raises(ValueError, match=text):
        read_settings(Settings(settings))


def test_settings_may_come_as_text():
    """The command line gives strings."""
    read = read_settings(
        Settings(
            {
                "PACING_REMEMBER": "True",
                "PACING_DATA_DIR": "data",
                "PACING_FORGET_AFTER": "60",
                "PACING_CLEARANCE_COOKIES": "one,two",
                "PACING_DIAGNOSE": "scrapy_pacing.findings.diagnose",
            }
        )
    )
    assert read.data_dir == Path.cwd() / "data"
    assert read.forget_after == 60
    assert read.clearance_cookies == {"one", "two"}
    assert callable(read.diagnose)


def test_a_project_names_its_data_directory(tmp_path, monkeypatch):
    """Scrapy's own convention: the datadir of scrapy.cfg, or .scrapy beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PACING_DATA_DIR", raising=False)
    (tmp_path / "scrapy.cfg").write_text("[settings]\n")
    assert read_settings(Settings()).data_dir == Path(os.path.realpath(tmp_path)) / ".scrapy" / "pacing"
    (tmp_path / "scrapy.cfg").write_text(f"[datadir]\ndefault = {tmp_path / 'var'}\n")
    assert read_settings(Settings()).data_dir == tmp_path / "var" / "pacing"
    assert list(tmp_path.iterdir()) == [tmp_path / "scrapy.cfg"]


def test_importing_makes_no_state_and_no_reactor():
    """I053: whoever imports the package has done nothing yet."""
    import subprocess

    code = (
        "import sys, scrapy_pacing, scrapy_pacing.state as s; "
        "assert not s._states; assert 'twisted.internet.reactor' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
