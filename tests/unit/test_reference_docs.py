"""The reference pages name what the code has: every setting, meta key, stat and public name, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

import scrapy_pacing
import scrapy_pacing.testing
from scrapy_pacing import PacingPolicy
from scrapy_pacing.settings import KNOWN_SETTINGS, OTHER_SETTINGS, PREFIX, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
README = ROOT / "README.md"
PAGES = [*sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts), README]
# The changelog speaks of what there once was.
PRESENT_PAGES = [page for page in PAGES if page.name != "changelog.md"]

HEADING = re.compile(r"^#{2,3} `([^`]+)`$", re.MULTILINE)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PUBLIC = re.compile(
    r"^\.\. auto(?:class|function|exception|data):: (scrapy_pacing(?:\.testing)?)\.(\w+)$", re.MULTILINE
)

DEFAULTS: dict[str, Any] = {
    **OTHER_SETTINGS,
    **{PREFIX + field.name.upper(): field.default for field in dataclasses.fields(PacingPolicy)},
}
# What each setting refuses; those that are missing here have no range, or one that depends on other settings.
BAD_VALUES: dict[str, Any] = {
    **{PREFIX + field.name.upper(): -1 for field in dataclasses.fields(PacingPolicy)},
    "PACING_ORIGINS": "nonsense",
    "PACING_THROTTLE_STATUSES": [200],
    "PACING_MAX_THROTTLES": -1,
    "PACING_ORIGIN_KEY": 5,
    "PACING_MAX_ORIGINS": 0,
    "PACING_WARMUP": "sometimes",
    "PACING_TRAIL": "perhaps",
    "PACING_FETCH_METADATA": "perhaps",
}
for name in ("PACING_PAUSE_MIN", "PACING_PAUSE_MAX"):
    del BAD_VALUES[name]


def sections(page: Path) -> dict[str, str]:
    """Map each heading that is a name to the text below it."""
    _, *pairs = HEADING.split(page.read_text(encoding="utf-8"))
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


@cache
def trees() -> tuple[ast.Module, ...]:
    package = Path(scrapy_pacing.__file__).parent
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py")))


def strings() -> Iterator[str]:
    """Every string of the package; an f-string with ``*`` where a value goes."""
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def stats_in_code() -> set[str]:
    return {string for string in strings() if re.fullmatch(r"pacing/[a-z0-9_/*.]*[a-z0-9_*]", string)}


def meta_keys_in_code() -> set[str]:
    """The keys that the package takes from or puts into something called ``meta``, named by a constant or not."""
    found = {string for string in strings() if re.fullmatch(r"pacing_[a-z_]+|dont_[a-z_]+", string)}
    for tree in trees():
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            key = meta_key(node)
            if isinstance(key, ast.Name):
                found.add(str(constants.get(key.id, "")))
            elif isinstance(key, ast.Constant):
                found.add(str(key.value))
    # An attribute of requests, not a key.
    return found - {"", "dont_filter"}


def meta_key(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Subscript) and is_meta(node.value):
        return node.slice
    if isinstance(node, ast.Compare) and is_meta(node.comparators[0]) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_meta(node.func.value) and node.args:
        return node.args[0]
    return None


def is_meta(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "meta") or (
        isinstance(node, ast.Attribute) and node.attr == "meta"
    )


def test_every_setting_has_an_entry_and_no_other_has():
    """Somebody who looks up a setting finds it, and finds none that does not exist."""
    assert set(sections(REFERENCE / "settings.md")) == set(KNOWN_SETTINGS)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_the_default_on_the_page_is_the_codes(name: str):
    """The default that a reader sees is the one that a crawl has."""
    entry = sections(REFERENCE / "settings.md")[name]
    shown = re.match(r"\n\nDefault: `([^`]+)`", entry)
    assert shown, f"the entry of {name} does not start with its default"
    assert ast.literal_eval(shown[1]) == DEFAULTS[name]


@pytest.mark.parametrize("name", sorted(BAD_VALUES))
def test_the_range_on_the_page_is_the_one_that_an_error_names(name: str):
    """What the page allows is what the crawl allows."""
    with pytest.raises(ValueError, match=re.escape(name)) as caught:
        read_settings(Settings({name: BAD_VALUES[name]}))
    allowed = re.sub(r" \(\d[^)]*\)$", "", str(caught.value).partition("allowed: ")[2])
    assert allowed
    line = sections(REFERENCE / "settings.md")[name].strip().splitlines()[0]
    assert line.partition("Allowed: ")[2] == allowed


def test_the_readmes_table_has_every_setting_with_its_default():
    """The table in the README is complete and right."""
    rows = re.findall(r"^\| `(PACING_\w+)` \| `([^`]+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: ast.literal_eval(default) for name, default in rows} == DEFAULTS


def test_every_stat_has_an_entry_and_no_other_has():
    """Each number that a crawl's stats show is explained; `<word>` on the page stands for a part that varies."""
    entries = {re.sub(r"<[^>]+>", "*", name) for name in sections(REFERENCE / "stats.md")}
    assert entries == stats_in_code()
    assert entries


def test_every_meta_key_has_an_entry_and_no_other_has():
    """Each meta key that the package reads or writes is explained, Scrapy's own included."""
    entries = set(sections(REFERENCE / "meta.md"))
    assert entries == meta_keys_in_code()
    assert "dont_pace" in entries


def test_every_public_name_has_an_entry_and_no_other_has():
    """What can be imported from the package is on the page of public names, and what is on the page can be imported."""
    listed = PUBLIC.findall((REFERENCE / "api.md").read_text(encoding="utf-8"))
    exported = [(module.__name__, name) for module in (scrapy_pacing, scrapy_pacing.testing) for name in module.__all__]
    assert sorted(listed) == sorted(exported)


@pytest.mark.parametrize("page", PRESENT_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_what_exists(page: Path):
    """No page sends its reader after a setting or stat that the package does not have."""
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\bPACING_[A-Z][A-Z_]*", text)) <= KNOWN_SETTINGS
    stats = set(re.findall(r"(?<![\w/.])pacing/[a-z_/]*[a-z_]", text))
    assert stats <= {stat.partition("/*")[0] for stat in stats_in_code()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_on_a_page_is_python(page: Path):
    """What a reader copies from a page compiles; an interactive session on it gives what it shows."""
    for number, (language, code) in enumerate(FENCE.findall(page.read_text(encoding="utf-8"))):
        if language == "python" and ">>>" not in code:
            compile(code, f"{page.name}, block {number}", "exec")
    text = "\n".join(code for language, code in FENCE.findall(page.read_text(encoding="utf-8")) if language == "python")
    session = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    assert not doctest.DocTestRunner().run(session, out=report.append).failed, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_settings_on_a_page_are_accepted(page: Path):
    """A settings.py that a page shows is one that a crawl starts with."""
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python" and re.search(r"^PACING_\w+ =", code, re.MULTILINE) and "ORIGIN_KEY" not in code:
            given: dict[str, Any] = {}
            exec(code, given)
            read_settings(Settings({name: value for name, value in given.items() if name.isupper()}))
