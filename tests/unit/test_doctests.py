"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import scrapy_pacing.core


def modules() -> list[str]:
    package = scrapy_pacing.core
    found = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [package.__name__, *sorted(found), "scrapy_pacing.testing"]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_are_true(name: str) -> None:
    """What a docstring shows is what a user gets who types it."""
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)

    assert failed == 0


def test_the_public_classes_of_the_core_have_examples() -> None:
    """The examples are there at all: the runs above do not pass because nothing ran."""
    finder = doctest.DocTestFinder()
    with_examples = {
        test.name for name in modules() for test in finder.find(importlib.import_module(name)) if test.examples
    }

    assert {
        "scrapy_pacing.core.pacer.Pacer",
        "scrapy_pacing.core.policy.PacingPolicy",
        "scrapy_pacing.core.origins.origin_key",
        "scrapy_pacing.testing.FakeClock",
    } <= with_examples
