# `make train` and `make test` need Python >= 3.11, make and a package index. They install everything else into .venv.

.DEFAULT_GOAL := help
.PHONY: help setup train test test-all test-matrix lint docs bench claims clean

VENV := .venv
RUN := $(VENV)/bin/python
JOBS ?= 2
# Extras of pyproject.toml to install: `make setup EXTRAS=dev,cuda` adds the libraries for an NVIDIA GPU.
EXTRAS ?= dev
TRAIN := $(VENV)/bin/spo train

# The first Python of this list that runs and is new enough; `make setup PYTHON=...` sets another. Each one is started,
# because a command may exist and still fail (a pyenv shim without its version).
ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3 python; do \
	"$$python" -c '$(ENOUGH)' 2>/dev/null && { echo "$$python"; break; }; done)

INSTALLED := $(VENV)/.installed-$(EXTRAS)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## create .venv with the pinned versions of all packages
	@echo "Installed: $(VENV)/bin/spo"

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(RUN) || { python='$(PYTHON)'; test -n "$$python" || { \
		echo "No Python 3.11 or newer with its venv module was found: install one, or set its path with PYTHON=..." >&2; \
		exit 1; }; "$$python" -m venv $(VENV); }
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

train: $(INSTALLED) ## train SPO on Rubik's cube: about three minutes on two cores
	$(TRAIN)

test: $(INSTALLED) ## run the tests: under ten minutes on two cores, faster the second time
	$(RUN) -m pytest -n $(JOBS) --dist worksteal

test-all: $(INSTALLED) ## run every test, those that learn or drive whole programs included
	$(RUN) -m pytest -n $(JOBS) --dist worksteal -m ""

test-matrix: $(INSTALLED) ## run the tests with every Python found and every supported JAX
	$(RUN) tools/test_matrix.py

lint: $(INSTALLED) ## check style, types and import layers
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) tools/check_style.py
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

docs: $(INSTALLED) ## build the documentation into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

bench: $(INSTALLED) ## run small CPU benchmarks and compare with the committed ratios: about five minutes
	$(RUN) benchmarks/compare.py

claims: $(INSTALLED) ## test the paper's claims at CPU scale, about two and a half hours; writes results/claims.md
	$(RUN) experiments/claims.py --run cpu

clean: ## delete everything that make created
	rm -rf $(VENV) .matrix site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
