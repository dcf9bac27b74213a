# make quickstart    install into .venv and run the example
# make test          install into .venv, then lint, types, unit tests and doctests
# make test-slow     the tests that take minutes
# make benchmarks    time per sweep beside plain NumPy
#
# Set PYTHON to choose the interpreter that .venv is made with.

SHELL := /bin/sh
PYTHON ?=
BIN := .venv/bin
WORKERS ?= 2

# One thread per process: the work is already split over chains and test workers.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
PYTEST := $(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m pytest -n $(WORKERS)

.PHONY: quickstart test test-slow benchmarks lint

quickstart: .venv/examples.stamp
	$(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python examples/quickstart.py

test: lint
	$(PYTEST)

test-slow: .venv/test.stamp
	$(PYTEST) -m slow

benchmarks: .venv/test.stamp
	$(ONE_THREAD) $(BIN)/python -m tests.benchmarks

lint: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# .venv/NAME.stamp: the package with its optional dependencies NAME is installed.
.venv/%.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

$(BIN)/python:
	@for python in $(PYTHON) python3.12 python3.13 python3 python3.14 python; do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
	        "$$python" -m venv .venv && exit 0; \
	        rm -rf .venv; exit 1; \
	    fi; \
	done; \
	echo 'Python 3.12 or newer is needed: install it, or name it with "make PYTHON=..."' >&2; \
	exit 1
