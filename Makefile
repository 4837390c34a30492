# These targets do everything on a machine with Python >= 3.11 and make:
#   make sensitivity                            environment + the main job on an embedded data set, quick preset
#   make sensitivity DATASET=eol PRESET=paper   the real one
#   make test                                   lint, types, architecture, tests, coverage
#   make explore                                property tests with new random cases, many of each
#   make bench                                  timings and memory, against a plain training loop
PYTHON ?= python3
VENV ?= .venv
DATASET ?= breast_cancer
PRESET ?= quick
OPTIONS ?=

BIN := $(VENV)/bin
NATIVE := $(wildcard adaptbin/native/source/*)
# One core per process: packs and test workers are the parallelism.
export OMP_NUM_THREADS = 1

.DEFAULT_GOAL := help
.PHONY: help sensitivity test explore bench image-check lint format clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "adaptbin needs Python >= 3.11; name one with make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.sweeps: pyproject.toml constraints.txt $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[sweeps]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.sweeps

sensitivity: $(VENV)/.sweeps ## train the sensitivity panels and draw the figure (DATASET, PRESET, OPTIONS)
	$(BIN)/python sweeps/sensitivity.py --dataset $(DATASET) --preset $(PRESET) $(OPTIONS)

lint: $(VENV)/.dev ## style, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## everything CI runs (ADAPTBIN_DATA=folder: tests on the real files, which must then be there)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --cov --cov-report=term --cov-fail-under=90

explore: $(VENV)/.dev ## property tests with new random cases, 1000 of each (what fails becomes an @example)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m hypothesis --hypothesis-profile=explore --timeout=3600

bench: $(VENV)/.dev ## time stacked replicas against a plain loop on one core (13 minutes); adds to tests/benchmarks/RESULTS.md
	$(BIN)/python -m tests.benchmarks.bench --write $(OPTIONS)

image-check: $(VENV)/.dev ## build the image with buildah, run the sweep and the compose services in it (root; 5 to 12 minutes)
	$(BIN)/python docker/check.py $(OPTIONS)

format: $(VENV)/.dev ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove the environment and caches, never results
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage build *.egg-info adaptbin/native/*.so
