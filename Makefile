# Everything is set up in .venv by itself; only Python 3.11 or newer and make are needed.
# A C compiler makes the simulator several times faster, and is not required.

.PHONY: help demo test test-all tools check compile docs docs-commands bench swarm explore chaos dist format lock clean \
  distclean
.DEFAULT_GOAL := help

PYTHON ?=
SEEDS  ?= 2000
STATES ?= 1000000
ROUNDS ?= 200
JOBS   ?= auto

# Images of Python often set it. Then each worker of pytest, each node of a cluster and each command compiles all anew.
export PYTHONDONTWRITEBYTECODE :=

BIN       := .venv/bin
INSTALLED := .venv/installed
PIP       := $(BIN)/python -m pip --disable-pip-version-check --no-input install -qq
PYTEST    := $(BIN)/python -m pytest -q -n $(JOBS)

help:
	@echo "make demo     a bank on nine processes: kill a leader, then all, check the books, verify on Spark"
	@echo "make test     check, compile, then run the tests; what did not run, and why, is said at the end"
	@echo "make test-all every test, also those that take long, and every documented command: nothing is skipped (90 min)"
	@echo "make tools    install the programs that some tests need (redis, chromium, promtool, strace); as root on Debian"
	@echo "make check    ruff, mypy, import-linter"
	@echo "make bench    simulator beside SimPy, sweeps beside a process pool, Spark beside memory, a cluster beside peers"
	@echo "make swarm    SEEDS=$(SEEDS) random runs of each protocol, and as many against the adversary"
	@echo "make explore  every schedule of each protocol in its scopes, up to STATES=$(STATES) states; mutants"
	@echo "make chaos    ROUNDS=$(ROUNDS) of kills, restarts, cuts and old folders under load; power cuts on ext4 (as root)"
	@echo "make docs     the documentation as a site in build/docs, a tutorial for each reader, a page per protocol"
	@echo "make docs-commands  run every command and program of the documentation"
	@echo "make dist     wheel and sdist in dist, checked in clean environments"
	@echo "make compile  compile the modules of compiled.txt in place if they changed"
	@echo "make format   format, sort imports and apply ruff's safe fixes"
	@echo "make lock     resolve requirements.lock anew"
	@echo "make clean    remove what was built (make distclean: and .venv)"
	@echo "PYTHON=/path/to/python3.11 chooses the interpreter of .venv"

demo: compile
	@$(BIN)/amcast demo

test: $(INSTALLED)
	@$(MAKE) --no-print-directory -j 2 check compile
	@echo "== tests ($$($(BIN)/python -c 'import amcast; print("compiled" if amcast.compiled() else "plain Python")'))"
	@$(PYTEST)

# A missing program fails a test here, and so does a test that is skipped for any other reason.
test-all: tools
	@$(MAKE) --no-print-directory -j 2 check compile
	@echo "== all tests, exploration, documented commands, chaos"
	@AMCAST_FULL=1 $(PYTEST) --screenshots build/screenshots

tools: $(INSTALLED)
	@$(BIN)/python -m tests.tools

check: $(INSTALLED)
	@echo "== ruff";          $(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@echo "== mypy";          $(BIN)/mypy --no-error-summary
	@echo "== import-linter"; mkdir -p build; $(BIN)/lint-imports --no-logo >build/imports 2>&1 || { cat build/imports; exit 1; }

bench: compile
	@$(BIN)/python bench/run.py
	@$(BIN)/python bench/rounds_bench.py
	@$(BIN)/python bench/sweep_bench.py
	@$(BIN)/python bench/verify_bench.py
	@$(BIN)/python bench/cluster_bench.py
	@$(BIN)/python bench/stream_bench.py

swarm: compile
	@failed=0; for protocol in $$($(BIN)/amcast protocols --json | $(BIN)/python -c 'import json, sys; print(*(p["name"] for p in json.load(sys.stdin)["protocols"]))'); \
	do for kind in "" --adversary; do $(BIN)/amcast swarm $$protocol $$kind --seeds $(SEEDS) || failed=1; done; done; exit $$failed

explore: compile
	@$(BIN)/amcast explore white_box --scope large --states $(STATES) || test $$? = 4
	@for protocol in $$($(BIN)/python -c 'from amcast.protocols import PROTOCOLS; print(*PROTOCOLS)'); \
	do $(BIN)/amcast explore $$protocol --scope all --states $$(($(STATES) / 20)) --follow 2000 || test $$? = 4 || exit 1; done
	@AMCAST_FULL=1 $(BIN)/python -m pytest -q tests/explorer/test_mutants.py

chaos: compile
	@AMCAST_FULL=1 CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q -s tests/chaos tests/spark/test_verify_cluster.py

# A compiled module shadows the source beside it. So build/compiled holds a checksum of all sources, taken before they were
# compiled, and of what came out: an edited, deleted or switched file on either side is seen, whatever its date.
SUM       := LC_ALL=C sort | xargs cksum | cksum
SOURCES   := { grep -v '^\#' compiled.txt; ls compiled.txt setup.py requirements.lock; }
BINARIES  := find src -name '*.so'

compile: $(INSTALLED)
	@sources=$$($(SOURCES) | $(SUM)); \
	if test "$$(cat build/compiled 2>/dev/null)" = "$$sources $$($(BINARIES) | $(SUM))"; \
	then $(BINARIES) -exec touch {} +; \
	else \
	  echo "== compiling the modules of compiled.txt with mypyc"; \
	  $(BINARIES) -delete; rm -rf build/compiled build/lib.* build/temp.*; \
	  AMCAST_COMPILE=1 $(BIN)/python setup.py -q build_ext --inplace || exit 1; \
	  test -z "$$($(BINARIES))" || echo "$$sources $$($(BINARIES) | $(SUM))" >build/compiled; \
	fi

docs: compile
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "the site: build/docs/index.html"

docs-commands: compile
	@AMCAST_FULL=1 $(PYTEST) tests/docs/test_commands.py

# What is built is then installed in clean environments, and does what it is for.
dist: $(INSTALLED)
	@rm -rf dist build/sdist; mkdir -p dist
	@echo "== the sdist and a wheel for this machine, in dist"
	@$(BIN)/python -c 'from tests.environments import sdist; from pathlib import Path; print(sdist(Path("build/sdist")))' >/dev/null
	@cp build/sdist/sdist/*.tar.gz dist/
	@$(BIN)/python -m pip --disable-pip-version-check wheel -q --no-deps -w dist dist/*.tar.gz; ls dist
	@echo "== checking them"
	@AMCAST_FULL=1 $(BIN)/python -m pytest -q -n 0 tests/test_packages.py tests/test_build.py

format: $(INSTALLED)
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

$(INSTALLED): requirements.lock pyproject.toml
	@test -e $@ || { $(FIND_PYTHON); echo "== making .venv with $$($$python --version)"; $$python -m venv --clear .venv; }
	@echo "== installing requirements.lock in .venv"
	@$(PIP) --require-hashes -r requirements.lock
	@AMCAST_COMPILE=0 $(PIP) --no-build-isolation --no-deps -e .
	@touch $@

define FIND_PYTHON
python=; for candidate in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python); do \
  if $$candidate -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
  then python=$$candidate; break; fi; done; \
test "$$python" || { echo "amcast needs Python 3.11 or newer with venv; tried: \
$(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python). Install one (Debian: python3-venv) \
or name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
endef

lock:
	@mkdir -p build; $(FIND_PYTHON); test -x build/uv/bin/uv || { $$python -m venv build/uv && build/uv/bin/python -m pip install -qq uv; }
	@rm -f build/lock
	@build/uv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	  --all-extras --group dev -o build/lock pyproject.toml >/dev/null
	@{ echo "# All that .venv holds, for every platform and Python 3.11 or newer. Written by: make lock"; cat build/lock; } >requirements.lock

clean:
	@find src -name '*.so' -delete
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	@rm -rf build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

distclean: clean
	@rm -rf .venv
