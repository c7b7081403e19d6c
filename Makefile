# Everything a developer runs. `make` alone lists it.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/installed: setup.cfg pyproject.toml
	@echo "setting up .venv (once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

venv: .venv/installed ## the virtual environment with the project and its tools

demo: .venv/installed ## the jobs on the embedded cluster; KEEP=1 leaves it running
	@$(BIN)/chores demo $(if $(KEEP),--keep)

test: .venv/installed ## the suite that needs nothing else
	@$(BIN)/pytest -q -m "not cluster"

control-plane: ## build etcd, kube-apiserver, kube-controller-manager and kubectl into .tools (needs Go)
	@tools/kubernetes/build

test-cluster: .venv/installed control-plane ## the tests on a real Kubernetes control plane
	@$(BIN)/pytest -q -m cluster

lint: .venv/installed ## ruff: rules and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/installed ## mypy, strict
	@$(BIN)/mypy

docs: .venv/installed ## write the generated docs: docs/cli.md, the table in docs/drift.md
	@UPDATE_DOCS=1 $(BIN)/pytest -q tests/unit/test_docs.py

clean: ## remove the virtual environment and caches (not .tools)
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache

.PHONY: help venv demo test control-plane test-cluster lint types docs clean
