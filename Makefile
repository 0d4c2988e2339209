# Everything a person runs. `make` alone lists it.
SHELL := bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# pyenv resolves python3 by .python-version; elsewhere python3.13 has to be on the PATH.
PYTHON := $(shell for p in python3 python3.13; do $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null && echo $$p && break; done)
RUN := .venv/bin/python
INSTALLED := .venv/.installed local/node_modules/.installed

ORDERS ?= 120
STORE ?= table
PORT ?= 7071

.PHONY: help setup demo start send import test test-slow test-all test-lowest lint explore clean infra-check package smoke bench

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Install everything (the other commands do it by themselves)

.venv/.installed: requirements.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.13 is needed: install it with 'pyenv install 3.13', or put python3.13 on the PATH"; exit 1; fi
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@echo "Installing Python packages (one of them compiles: about a minute)"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -e '.[dev]'
	@touch $@

local/node_modules/.installed: local/package.json local/package-lock.json
	@if ! command -v npm >/dev/null; then echo "Node.js 20 or later with npm is needed: it runs Azurite and the local Cosmos DB server"; exit 1; fi
	@echo "Installing Azurite, the local Cosmos DB server and a type checker"
	@cd local && npm ci --silent --no-audit --no-fund
	@touch $@

demo: $(INSTALLED) ## Real orders with every kind of duplicate (ORDERS=120 STORE=table|cosmos UNPROTECTED=1)
	@$(RUN) -m local.demo --orders $(ORDERS) --store $(STORE) $(if $(UNPROTECTED),--unprotected) $(ARGS)

start: $(INSTALLED) ## Run the app to play with (PORT=7071 STORE=table|cosmos AZURITE_ONLY=1 HOST=func)
	@exec env STORE=$(STORE) $(RUN) -m local.start --port $(PORT) $(if $(AZURITE_ONLY),--no-service-bus) $(if $(filter func,$(HOST)),--host func) $(ARGS)

send: $(INSTALLED) ## Send a message to the running app (FILE=samples/order.json TO=service-bus|storage-queue)
	@$(RUN) -m local.send $(or $(FILE),samples/order.json) $(if $(TO),--to $(TO)) $(ARGS)

import: $(INSTALLED) ## Import a file of orders into the running app (FILE=samples/orders.csv)
	@$(RUN) -m local.import_file $(or $(FILE),samples/orders.csv) $(ARGS)

lint: $(INSTALLED) ## Style and types
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@local/node_modules/.bin/pyright --pythonpath .venv/bin/python

test: lint ## Style, types and the fast tests
	@.venv/bin/pytest -q -n 4 --dist loadfile -m "not slow" $(ARGS)

test-slow: $(INSTALLED) ## The tests that take more than ten seconds each
	@.venv/bin/pytest -q -n 4 --dist loadfile -m slow $(ARGS)

test-all: lint ## Everything: the slow tests too, and the exploration
	@.venv/bin/pytest -q -n 4 --dist loadfile $(ARGS)
	@$(MAKE) --no-print-directory explore

test-lowest: local/node_modules/.installed ## The fast tests with the oldest releases that requirements.txt allows
	@test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	@sed -nE 's/^([a-z0-9-]+)>=([^,]+),.*/\1==\2/p' requirements.txt > build/lowest.txt
	@build/lowest/bin/python -m pip install --quiet --disable-pip-version-check -r build/lowest.txt -e '.[dev]'
	@build/lowest/bin/pytest -q -n 4 --dist loadfile -m "not slow" $(ARGS)

explore: $(INSTALLED) ## Every interleaving of two and three deliveries with faults
	@$(RUN) -m shared.idempotency.exploration $(ARGS)

bench: $(INSTALLED) ## Measure what this costs, beside its peers (ARGS="in-process cold-start")
	@.venv/bin/python -c 'import aws_lambda_powertools' 2>/dev/null || .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@$(RUN) -m benchmarks $(ARGS)

clean: ## Remove what the commands above have made
	rm -rf .venv local/node_modules .run build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

infra-check: $(INSTALLED) ## Check infra/ without Azure: against the app, and with checkov
	@.venv/bin/pytest -q tests/infra $(ARGS)
	@test -x build/checkov/bin/checkov || { $(PYTHON) -m venv build/checkov && build/checkov/bin/pip install --quiet --disable-pip-version-check 'checkov>=3.3,<4'; }
	@$(RUN) -m local.deployment.scan build/checkov/bin/checkov
	@if command -v bicep >/dev/null; then bicep build infra/main.bicep --stdout >/dev/null && echo "bicep build: clean"; else echo "bicep build: not run, there is no Bicep CLI on the PATH"; fi

package: $(INSTALLED) ## Build what would be uploaded, install it apart, run the app in it
	@$(RUN) -m local.deployment.package $(ARGS)

smoke: $(INSTALLED) ## Send one order twice to the deployed app (after `azd up`; not run in CI)
	@values=$$(azd env get-values) && set -a && eval "$$values" && set +a && $(RUN) -m local.deployment.smoke $(ARGS)
