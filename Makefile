# `make demo` and `make test` need Python 3.11 or newer, gcc and git, and install the rest into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test test-slow lint docs bench bench-all clean

demo: $(VENV)/.user
	$(BIN)/delan demo

test: lint $(VENV)/.browser
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" --durations=15 tests

test-slow: $(VENV)/.dev $(VENV)/.browser
	HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright

docs: $(VENV)/.docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build
	@echo "open docs/_build/index.html"

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.table $(if $(OFFICIAL),--official $(OFFICIAL))

bench-all: bench
	$(BIN)/python -m benchmarks.robots
	$(BIN)/python -m benchmarks.identification
	$(BIN)/python -m benchmarks.published_letters

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[dev]"
	touch $@ $(VENV)/.user

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) --editable ".[docs]"
	touch $@

# The browser test needs a Chromium: the system's, or one that playwright fetches. Without, it is skipped and says so.
$(VENV)/.browser: $(VENV)/.dev
	@command -v chromium chromium-browser google-chrome >/dev/null || timeout 300 $(BIN)/playwright install chromium \
	  || echo "no Chromium here and none could be fetched: the browser test will be skipped"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache demo docs/_build
