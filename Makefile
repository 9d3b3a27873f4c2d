# `make train` and `make test` do everything by themselves on a machine with Python >= 3.11, make and a package index.

.DEFAULT_GOAL := help
.PHONY: help setup train test test-all test-matrix lint docs bench claims clean

VENV := .venv
RUN := $(VENV)/bin/python
JOBS ?= 2
# What is installed beside the search: `make setup EXTRAS=dev,cuda` adds the libraries for an NVIDIA GPU.
EXTRAS ?= dev
# The main job, in one line.
TRAIN := $(VENV)/bin/spo train

# Versions we test with come first. A command may exist and still not run (a shim without its version), so each one is
# asked; `make setup PYTHON=...` names another.
ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3 python; do \
	"$$python" -c '$(ENOUGH)' 2>/dev/null && { echo "$$python"; break; }; done)

INSTALLED := $(VENV)/.installed-$(EXTRAS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## the virtual environment with pinned versions, nothing else

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(RUN) || { python='$(PYTHON)'; test -n "$$python" || { \
		echo "No Python 3.11 or newer with its venv module was found: install one, or say where it is with PYTHON=..." >&2; \
		exit 1; }; "$$python" -m venv $(VENV); }
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

train: $(INSTALLED) ## the main job: SPO learns to solve Rubik's cubes, in about three minutes on two cores
	$(TRAIN)

test: $(INSTALLED) ## the tests that take seconds
	$(RUN) -m pytest -n $(JOBS) --dist worksteal

test-all: $(INSTALLED) ## every test, the slow ones and the notebook included
	$(RUN) -m pytest -n $(JOBS) --dist worksteal -m ""

test-matrix: $(INSTALLED) ## the tests on every Python found here, with every JAX we support
	$(RUN) tools/test_matrix.py

lint: $(INSTALLED) ## style, types and layers
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

docs: $(INSTALLED) ## the documentation, into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

bench: $(INSTALLED) ## small benchmarks on the CPU, as ratios beside the committed ones (about five minutes)
	$(RUN) benchmarks/compare.py

claims: $(INSTALLED) ## the paper's claims at a scale for two cores (about two hours), then results/claims.md
	$(RUN) experiments/claims.py --run cpu

clean: ## everything that make made
	rm -rf $(VENV) .matrix site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
