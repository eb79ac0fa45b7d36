# One command per habit. Everything runs in .venv, which `make setup` builds from requirements.lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 1000
STORE_SEEDS ?= 2000
CONFIG_SEEDS ?= 2000
PARTS ?=
STAY ?=
LAB ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check format simulate lab clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## prepare the environment; does nothing when it is up to date

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Swell needs Python 3.11 or newer; set PYTHON=/path/to/python3")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup ## local cluster of 8 nodes in 2 sites: show it, trace messages, kill a node, watch it heal (STAY=1 leaves it up)
	$(BIN)/swell demo $(if $(STAY),--stay)

test: setup ## every part of the tests within its time budget (PARTS="unit scenarios" for some)
	$(BIN)/python tests/run_parts.py $(PARTS)

check: setup ## ruff, mypy --strict, layering
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy --strict src
	$(BIN)/python -m pytest -q tests/unit/test_layering.py

format: setup ## let ruff lay out the code
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

simulate: setup ## many seeds of every workload, the planted bugs, 1,386 nodes (SEEDS=1000 STORE_SEEDS=2000 CONFIG_SEEDS=2000)
	$(BIN)/swell simulate --workload mixed --seeds $(SEEDS)
	$(BIN)/swell simulate --workload mixed --bugs
	$(BIN)/swell simulate --workload store --seeds $(STORE_SEEDS)
	$(BIN)/swell simulate --workload store --bugs
	$(BIN)/swell simulate --workload config --seeds $(CONFIG_SEEDS)
	$(BIN)/swell simulate --workload config --bugs
	$(BIN)/swell simulate --workload zone-loss --seeds 3
	$(BIN)/swell simulate --workload growth --seeds 3
	$(BIN)/swell simulate --workload outage --nodes 20 --seeds 1
	SWELL_SEEDS=200 SWELL_LARGE=1 $(BIN)/python -m pytest -q tests/simulation
	SWELL_LARGE=1 $(BIN)/python -m pytest -q -o timeout=600 tests/pipeline

lab: setup ## the experiments: list them, or run one (LAB="thor-topology --quick")
	$(BIN)/swell lab $(LAB)

clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
