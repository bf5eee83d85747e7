# Everything here needs only GNU make and Python 3.11 or later; the rest is installed into .venv.
#   make PYTHON=python3.12 test     uses another interpreter for a new environment
#   make test ARGS="-k kernel -x"   passes arguments to pytest

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
# Test processes at a time. WORKERS=0 runs the tests in one process, for a debugger.
WORKERS ?= 2

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-bounds test-lowest dist soak docs bench bench-peers bench-suspects reproduce lint format env clean distclean

help:  ## list the targets
	@echo "usage: make TARGET"
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)$$/\1|\2/' \
		| while IFS='|' read -r name what; do printf '  %-14s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.run  ## value, audit, correct and price a bundled dataset; prints the path of the report
	@$(PY) -m shapshift demo

# Tests start many programs; each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

# Threads of scikit-learn's boosting wait for each other in busy loops: where two test processes share the cores, a fit
# of a second takes many.
test test-bounds test-lowest: export OMP_WAIT_POLICY := PASSIVE

# The processes begin in different files, so that each compiles its own kernels, and share what is left at the end.
test: lint  ## check the style and the types, then run the tests
	@$(PY) -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

# Kernels that check indices are other code, with a cache of their own; memory is measured without the checks.
test-bounds: $(VENV)/.test  ## run the tests of the kernels with every index checked against the size of its array
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/bounds $(PY) -m pytest -q -n $(WORKERS) -k "not peak_memory" $(ARGS) \
		$(foreach name,exact certified truncated numerics duplicates neighbors relatives interactions owner_values precedence store semi_supervised \
		sharded search,tests/test_$(name).py)

test-lowest: $(VENV)/.test  ## run most tests with the oldest libraries that pyproject.toml allows
	@$(PIP) install -qq uv
	@$(PY) tests/lowest.py $(VENV)/lowest -n $(WORKERS) $(ARGS)

dist: $(VENV)/.test  ## build wheel and sdist twice, compare and check them, and try the wheel in an empty environment
	@$(PIP) install -qq -e '.[release]'
	@$(PY) tests/dist.py

soak: $(VENV)/.test  ## stress test: kill, interrupt and damage runs for ten minutes or more; ARGS=60 takes six times as long
	@$(PY) tests/soak.py $(ARGS)

docs: $(VENV)/.docs  ## build the site in build/site: warnings are errors, tutorials and examples run, links are checked
	@$(PY) -m sphinx -q -W --keep-going -d build/doctrees $(ARGS) docs build/site
	@$(PY) docs/check_site.py build/site
	@echo "Open build/site/index.html"

bench: $(VENV)/.run  ## measure speed and memory; prints one table
	@$(PY) benchmarks/run.py $(ARGS)

bench-peers: $(VENV)/.run  ## compare with other packages, each in an environment of its own (some GB, some minutes)
	@$(PY) benchmarks/peers.py $(ARGS)

bench-suspects: $(VENV)/.experiments  ## wrong labels found by us and by cleanlab, in an environment of its own (half an hour; ARGS=--quick: a minute)
	@$(PY) -m benchmarks.suspects $(ARGS)

reproduce: $(VENV)/.experiments  ## run the paper's experiments again (minutes; ARGS=--quick: one or two; ARGS=--help: what else)
	@$(PY) -m experiments $(ARGS)

lint: $(VENV)/.test  ## check the style and the types
	@printf 'ruff check:  '; $(PY) -m ruff check .
	@printf 'ruff format: '; $(PY) -m ruff format --check .
	@printf 'mypy:        '; $(PY) -m mypy

format: $(VENV)/.test  ## format the code and apply ruff's fixes
	@$(PY) -m ruff check --quiet --fix . ; $(PY) -m ruff format .

env: $(VENV)/.test  ## make the environment, with the test tools in it

clean:  ## remove builds and caches
	@rm -rf build dist docs/gallery docs/tutorials docs/reference/api docs/reference/commands docs/reference/examples .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . \( -name $(notdir $(VENV)) -o -name .bench \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## remove the environments too
	@rm -rf $(VENV) .bench

# Stamps are touched last, so that an interrupted set-up is repeated; a new environment outdates the others.
# .made: an environment with a working pip; .run: the package in it; .test: the test tools as well; .experiments: what
# the experiments need, which is part of .test; .docs: what the site needs, with the libraries that its tutorials use.

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: there is no '$(PYTHON)' here. Install Python 3.11 or later, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: shapshift needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: '$(PYTHON)' comes without venv. Install it (on Debian and Ubuntu: apt install python3-venv) and run make again." >&2; exit 1; }
	@if $(PY) -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Using the environment in $(VENV)"; \
	else \
		echo "Creating an environment in $(VENV) ($$($(PYTHON) --version))"; $(PYTHON) -m venv --clear $(VENV); \
	fi
	@touch $@

$(VENV)/.run: pyproject.toml $(VENV)/.made
	@echo "Installing shapshift (a minute or two the first time)"
	@$(PIP) install -qq -e .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.made
	@echo "Installing shapshift and its test tools (a minute or two the first time)"
	@$(PIP) install -qq -e '.[test]'
	@touch $(VENV)/.run $(VENV)/.experiments $@

$(VENV)/.experiments: pyproject.toml $(VENV)/.made
	@echo "Installing shapshift, pandas and matplotlib (a minute or two the first time)"
	@$(PIP) install -qq -e '.[pandas,plot]'
	@touch $(VENV)/.run $@

$(VENV)/.docs: pyproject.toml $(VENV)/.made
	@echo "Installing shapshift and what its site is built with (a minute or two the first time)"
	@$(PIP) install -qq -e '.[docs]'
	@touch $(VENV)/.run $(VENV)/.experiments $@
