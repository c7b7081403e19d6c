# The commands for developers. `make` without a target lists them.
PYTHON ?= python3
OLDEST ?= python3.10
VENV ?= .venv
BIN := $(VENV)/bin
# One worker more than processors, because tests also wait for servers and for the end of processes.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/installed: setup.cfg pyproject.toml
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/installed-test: setup.cfg pyproject.toml
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/installed-site: $(VENV)/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

$(VENV)/installed-browser: $(VENV)/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@

$(VENV)/installed-release: $(VENV)/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

venv: $(VENV)/installed ## create the virtual environment with the project and its tools

demo: $(VENV)/installed ## run the jobs on the embedded cluster; KEEP=1 keeps it running
	@$(BIN)/chores demo $(if $(KEEP),--keep)

test: $(VENV)/installed ## run the tests of the jobs that need no other programs; SWEEPS=all tries faults at all requests
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not cluster and not walk" \
		tests/unit tests/sandbox tests/api tests/walk tests/test_every_job.py

repository-check: $(VENV)/installed ## run the tests of docs, kustomizations, the chart, workflows and words
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/repository

sandbox-check: $(VENV)/installed ## run the tests of the embedded server: it answers as kube-apiserver does
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not cluster" tests/contract tests/cluster

soak-check: $(VENV)/installed ## run the tests of the soak's invariants, with constructed histories
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal soak/tests

bugs: $(VENV)/installed control-plane ## try the deliberate bugs of tests/bugs: each makes its test fail; BUGS="NAME ..." tries some
	@$(BIN)/python -m tests.bugs --workers $(WORKERS) $(BUGS)

check: lint types test ## run lint, types and test: do this before each commit

test-version: $(VENV)/installed-test ## run unit tests and each job on another Python: PYTHON=... VENV=...
	@$(BIN)/pytest -q -n auto --dist worksteal tests/unit tests/test_every_job.py

control-plane: ## build etcd, kube-apiserver, kube-controller-manager, kubectl, helm, kstatus and Flux into .tools (needs Go)
	@tools/kubernetes/build
	@tools/helm/build
	@tools/kstatus/build
	@tools/flux/build

test-cluster: $(VENV)/installed control-plane ## run the tests on a real Kubernetes control plane
	@$(BIN)/pytest -q -n $(WORKERS) --dist load --maxschedchunk 1 -m cluster \
		tests/cluster $(filter-out tests/cluster/,$(wildcard tests/*/ tests/test_*.py))

test-walk: $(VENV)/installed control-plane ## change each field of the custom resources on the real control plane, before a release
	@SWEEPS=all $(BIN)/pytest -q -n $(WORKERS) --dist load --maxschedchunk 1 -m walk tests/walk

test-travel: $(VENV)/installed control-plane ## restore and replace real API servers while jobs run, before a release
	@$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m travel tests/travel

test-versions: $(VENV)/installed control-plane ## run the tests of API servers on each supported Kubernetes, before a release; VERSIONS=...
	@$(BIN)/python -m tests.versions $(VERSIONS)

node-tools: ## install the programs of a node: Debian packages (apt-get, as root), kubelet, a registry (needs Go), images
	@tools/node/packages
	@tools/kubernetes/build node >/dev/null
	@tools/registry/build >/dev/null
	@tools/argo-rollouts/build >/dev/null
	@tools/node/images >/dev/null

test-node: $(VENV)/installed node-tools ## run the tests on a real node, with the image in pods (needs root, cgroups, namespaces)
	@$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m node tests/node

soak-tools: node-tools ## build toxiproxy, the proxy between pods and the API server in a soak (needs Go)
	@tools/toxiproxy/build >/dev/null

soak: $(VENV)/installed soak-tools ## run all jobs on a node under faults: MINUTES=60 SEED=... BUG=... PREVIOUS=... (needs root)
	@$(BIN)/python -m soak --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(if $(BUG),--bug $(BUG)) \
		$(if $(PREVIOUS),--previous $(PREVIOUS))

monitoring-tools: ## install Prometheus, promtool and Pushgateway (apt-get, as root)
	@tools/packages "make test-monitoring" prometheus:prometheus promtool:prometheus \
		prometheus-pushgateway:prometheus-pushgateway

test-monitoring: $(VENV)/installed control-plane monitoring-tools ## run the tests of metrics and alerts on a real Prometheus and cluster
	@$(BIN)/pytest -q -m monitoring tests/monitoring

browser-tools: $(VENV)/installed-browser ## install Chromium, if there is no Chrome (apt-get, as root), and playwright
	@command -v google-chrome >/dev/null || tools/packages "make test-browser" chromium:chromium

test-browser: browser-tools ## run the tests of the page of chores status in a real Chromium
	@$(BIN)/pytest -q -m browser tests/browser

cluster-up: $(VENV)/installed node-tools ## start a cluster with a node to try things; prints the KUBECONFIG line
	@$(BIN)/python -m tests.cluster_process up

cluster-down: $(VENV)/installed ## end that cluster
	@$(BIN)/python -m tests.cluster_process down

screenshots: browser-tools ## write the pictures of docs/status.md again, of runs on the embedded cluster
	@$(BIN)/python -m tests.browser.screenshots

benchmark: $(VENV)/installed control-plane ## measure docs/performance.md again: about an hour on an idle machine (needs Go)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[benchmark]'
	@$(BIN)/python -m benchmarks

lint: $(VENV)/installed ## run ruff (rules and format), codespell (spelling) and import-linter (layers)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell && $(BIN)/lint-imports --no-cache --no-logo

lint-manifests: ## review the manifests with kubernetes-validate and kube-score, which it installs into .tools (needs Go)
	@tools/manifests/lint

types: $(VENV)/installed ## run mypy in strict mode
	@$(BIN)/mypy

image: ## build the container image with docker, podman or buildah; BASE=..., PLATFORMS=..., PUSH=...: docs/install.md
	@tools/image

chart: ## check the Helm chart, and package it in build/chart (needs Go)
	@helm=$$(tools/helm/build)/helm && $$helm lint --quiet --strict charts/kube-chores && \
		$$helm package charts/kube-chores --destination build/chart

base-digest: ## write the present digest of the base image into the Dockerfile (needs skopeo or docker, and the registry)
	@tools/base-digest

release: $(VENV)/installed-release ## build all files of a release into dist/, from a clean commit; REGISTRY=... pushes image and chart
	@$(BIN)/python tools/release.py

release-tools: node-tools ## install what emulates arm64 in a build of images (apt-get, as root)
	@tools/emulation

test-release: $(VENV)/installed-release control-plane release-tools ## release to a registry, install it on a node, run its image for arm64 (root)
	@$(BIN)/pytest -q -m release tests/release

PIP_COMPILE = CUSTOM_COMPILE_COMMAND="make lock" venv/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

lock: ## write requirements.lock, the packages of the image, and tools/krew.lock, on the oldest Python, which needs most packages
	@rm -rf build/lock && mkdir -p build/lock && cp -R jobs pyproject.toml README.md LICENSE build/lock
	@sed '/^    kubernetes /d' setup.cfg > build/lock/setup.cfg # a pod needs no kubeconfig, and the package takes 126 MB
	@$(OLDEST) -m venv build/lock/venv && build/lock/venv/bin/pip install --quiet pip-tools
	@cd build/lock && $(PIP_COMPILE) --build-deps-for wheel --output-file ../../requirements.lock setup.cfg
	@sed -n 's/^    kubernetes /kubernetes /p' setup.cfg > build/lock/krew.in # a laptop needs it: the plugin of kubectl has it
	@cd build/lock && $(PIP_COMPILE) --constraint ../../requirements.lock --output-file ../../tools/krew.lock krew.in

docs: $(VENV)/installed ## write what is generated: cli.md, outputs.md, tables, manifests.yaml, the chart, and what names each job
	@UPDATE_DOCS=1 $(BIN)/pytest -q tests/repository/test_registry.py
	@UPDATE_DOCS=1 $(BIN)/pytest -q tests/repository/test_docs.py tests/repository/test_architecture.py tests/repository/test_chart.py \
		tests/repository/test_trust.py::test_the_annotations_of_the_chart_are_generated \
		tests/repository/test_outputs.py \
		tests/unit/test_status.py::test_the_example_document_is_what_the_code_makes \
		tests/unit/test_status.py::test_the_text_is_what_the_docs_show tests/repository/test_manifests_command.py::test_the_shipped_manifests_are_what_kubectl_builds

site: $(VENV)/installed-site ## build the docs as a static site in build/site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

site-serve: $(VENV)/installed-site ## serve that site on http://127.0.0.1:8000, with a new build after each change
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

clean: ## remove the virtual environment and caches (not .tools)
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache

.PHONY: help venv demo test repository-check sandbox-check soak-check bugs check test-version control-plane test-cluster test-walk test-travel test-versions node-tools test-node soak-tools soak monitoring-tools test-monitoring browser-tools test-browser screenshots cluster-up cluster-down lint types benchmark image base-digest chart release release-tools test-release lock docs site site-serve clean
