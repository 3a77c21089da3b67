# How to work here. `make` alone lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install $(if $(CI),--quiet --progress-bar off) -c constraints.txt

SEEDS ?= 10000
FIRST ?= 0

NATIVE_SOURCES := $(wildcard src/kvseal/*/*.[ch])

.DEFAULT_GOAL := help
.PHONY: help serve setup model test simulate ablation evidence prove mutation check format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: setup model ## Set up, fetch the embedded model once, start the server (options: make serve ARGS="--port 9000")
	$(BIN)/kvseal serve $(ARGS)

setup: $(VENV)/.installed $(VENV)/.native ## Create .venv with everything in it, and .venv/bin/kvseal

model: setup ## Fetch and convert the embedded model, unless it is there
	@$(BIN)/kvseal model fetch

test: check model ## Set-up, static checks, then all tests (some of them: make test ARGS="tests/core -k seal")
	$(BIN)/python -m pytest $(ARGS)

simulate: setup ## The code that serves under a swarm of faults (make simulate SEEDS=50000 FIRST=0)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) --out build/simulation.json

ablation: setup ## Take each guard out and see it missed (writes docs/evidence.md)
	$(BIN)/python -m tools.ablation

evidence: setup ## Write what simulate and prove have found into docs/evidence.md
	$(BIN)/python -m tools.evidence

prove: setup ## Search longer than the tests do: state machines, every state of larger scopes, the Spin model
	KVSEAL_PROFILE=prove $(BIN)/python -m pytest --timeout=0 tests/core/machines
	$(BIN)/python -m tests.exhaustive --prove --out build/exhaustive.json
	$(BIN)/python spec/check.py --out build/spin.json

mutation: setup ## Change the guards' code in hundreds of places; the tests must notice (writes docs/mutation.md)
	$(BIN)/python tools/mutation.py

check: setup ## Static checks: format, lint, strict types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove .venv, caches and build results (not the fetched model)
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f src/kvseal/*/*.so

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kvseal needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' \
	  || { echo "Python cannot make virtual environments here; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Without build isolation, so that the build tools too are the pinned ones.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt | $(BIN)/python
	$(PIP) pip setuptools
	$(PIP) --no-build-isolation -e '.[engine,dev]'
	@touch $@

# Optional: without a compiler this only warns, and the numpy path is taken.
$(VENV)/.native: $(NATIVE_SOURCES) setup.py | $(VENV)/.installed
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
