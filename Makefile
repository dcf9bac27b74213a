# make quickstart    install into .venv and run the example
# make test          install into .venv, then lint, types, unit tests and doctests
# make test-quick    two minutes of tests, some of every room
# make test-slow     the tests that take seconds each
# make test-release  the tests that take a minute each, to run before a release
# make dist          the sdist and the wheel, in dist/, tried in an environment of its own
# make docs          the pages of docs/, in docs/_build/html
# make notebooks     run examples/notebooks and store what they show
# make benchmarks    time per sweep beside plain NumPy
#
# Set PYTHON to choose the interpreter that .venv is made with.

SHELL := /bin/sh
PYTHON ?=
BIN := .venv/bin
WORKERS ?= 2

PYTEST := MPLBACKEND=Agg $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Modules that take seconds and see most of what breaks.
QUICK := tests/test_package.py tests/test_activations.py tests/test_tables.py \
	tests/laws/test_recognition.py \
	tests/diagnostics/test_blocks.py \
	tests/runs/test_experiments.py \
	tests/sharded/test_rounds.py \
	tests/distributions/test_bessel.py \
	tests/gaussian \
	tests/graphs \
	tests/lab/test_envelope.py tests/lab/test_merging.py \
	tests/moves/test_plan.py tests/moves/test_scan.py \
	tests/compile/test_compiling.py tests/compile/test_error_functions.py \
	tests/models/test_intermediate_noise.py tests/models/test_priors.py \
	tests/network tests/prediction/test_forward.py \
	tests/random/test_truncated_normal.py \
	tests/steps/test_gibbs.py tests/steps/test_networks.py tests/steps/test_variables.py \
	tests/variational/test_reading.py

.PHONY: quickstart test test-quick test-slow test-release dist docs notebooks benchmarks lint

quickstart: .venv/examples.stamp
	MPLBACKEND=Agg $(BIN)/python examples/quickstart.py

test: lint
	$(PYTEST)

test-quick: .venv/test.stamp
	$(PYTEST) $(QUICK)

test-slow: .venv/test.stamp
	$(PYTEST) -m "slow and not release"

test-release: .venv/test.stamp
	$(PYTEST) -m release

dist: .venv/release.stamp
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m venv dist/venv
	dist/venv/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd dist && venv/bin/python -P ../tests/installed.py
	rm -rf dist/venv

docs: .venv/docs.stamp
	$(BIN)/python -m sphinx -b html -W --keep-going docs docs/_build/html

notebooks: .venv/test.stamp
	$(BIN)/python -m tests.notebooks

benchmarks: .venv/test.stamp
	$(BIN)/python -m tests.benchmarks

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
