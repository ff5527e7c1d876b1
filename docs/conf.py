"""Sphinx's configuration. ``make docs`` builds the pages; warnings are errors, and no network is needed."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import make_plots  # noqa: E402 - found by the line above

# The plots are drawn from the code that the pages describe, so they are made anew with each build.
make_plots.write_all(HERE / "_static")

project = "scrapy-pacing"
author = "The scrapy-pacing developers"
project_copyright = author
release = installed_version("scrapy-pacing")
version = release

# Not napoleon: docstrings here have no sections, and it takes the colon in an attribute's sentence for a type.
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
# Every heading down to this depth can be linked to: each setting, meta key and stat is one.
myst_heading_anchors = 3

default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"scrapy-pacing {release}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "tango"

# Types of other projects: their inventories are on the network, which a build must not need.
nitpick_ignore_regex = [
    ("py:.*", r"random\.Random"),
    # Imported for type checkers only, so their names reach these pages without a module.
    ("py:class", r"Crawler|Request|Response|Self|Settings|QueueProtocol"),
    ("py:class", r"Exit|ExitRules|Lease|Cause|Initiator|PolicyFields|Hop"),
    ("py:class", r"Spider|TextResponse|scrapy\..*|os\.PathLike|Path|collections\.abc\.Iterable"),
    # How msgspec says that a number is in a range.
    ("py:.*", r"msgspec\.Meta|typing\.Annotated\[int|dict\[str"),
    ("py:obj", r"StopDownload|IgnoreRequest|Facts|Pages|fingerprint"),
    # Docstrings may name a neighbour that is not public; it stays plain text on these pages.
    ("py:obj", r"(scrapy_pacing\.core\.gaps|scrapy_pacing\.Memory|destination|TYPED|solve|Clock)"),
]


def escape_prefixes(_app: object, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Keep a bare prefix in a docstring (``PACING_``) from being read as a link, which a final underscore makes."""
    lines[:] = [re.sub(r"(?<![\w`])([A-Z]+)_(?![\w`])", r"\1\_", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Connect what this configuration does itself."""
    app.connect("autodoc-process-docstring", escape_prefixes)
