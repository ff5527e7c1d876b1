# Every target does its own set-up: Python (3.10 or newer) with pip is all that a machine needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help example test test-modes test-matrix test-oldest lint format bench docs clean

help:
	@echo "make example      crawl the local example shop and see what it saw (under a minute)"
	@echo "make test         run the test suite"
	@echo "make lint         ruff, mypy, import-linter"
	@echo "make bench        speed, memory and the law of the gaps, plain Scrapy beside it"
	@echo "make docs         build the documentation into docs/_build/html"
	@echo "make test-modes   the crawls of the suite in Scrapy's two other modes"
	@echo "make test-oldest  the suite with the oldest Scrapy and the oldest Python found"
	@echo "make test-matrix  the suite on every Python and Scrapy that this machine has"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("scrapy-pacing needs Python 3.10 or newer, this is " + sys.version.split()[0] + ": say make PYTHON=python3.12 ...") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras, made anew when pyproject.toml changes.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

example: $(VENV)/.installed-example
	cd example_project && ../$(BIN)/python run.py

test: $(VENV)/.installed-test
	$(BIN)/python tests/again.py -n auto

# The suite runs its main crawls in all modes; here every crawl of it runs in each of the other two.
test-modes: $(VENV)/.installed-test
	TEST_MODE=select $(BIN)/python tests/again.py -n auto tests/integration
	TEST_MODE=no-reactor $(BIN)/python tests/again.py -n auto tests/integration

lint: $(VENV)/.installed-lint $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	$(BIN)/python -m tests.bench

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -E -W --keep-going -n -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

$(VENV)/.installed-tox: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'tox>=4.20'
	@touch $@

test-matrix: $(VENV)/.installed-tox
	$(BIN)/python tests/matrix.py

test-oldest: $(VENV)/.installed-tox
	$(BIN)/python tests/matrix.py --oldest

clean:
	rm -rf $(VENV) .tox docs/_build
