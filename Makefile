# Two commands on a machine with Python >= 3.11 and make: `make demo` and `make test`. `make help` lists all.

.DEFAULT_GOAL := help

# The first Python here that is new enough; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# TORCH=2.15.0 installs another version of PyTorch than the one that is pinned; with a VENV of its own.
TORCH ?=
CONSTRAINTS := $(if $(TORCH),$(VENV)/constraints.txt,requirements/constraints.txt)
# A download that stalls is given up soon and tried again, often.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --timeout 30 --retries 10 -c $(CONSTRAINTS)
READY := $(VENV)/.ready
FAST := $(VENV)/.fast
READY_BENCH := $(VENV)/.ready-bench

# One process a core; each with one torch thread, or they would fight for the cores.
PYTEST_ARGS ?= -n auto --dist worksteal
export OMP_NUM_THREADS ?= 1
# Without it each process that the tests start would compile this package anew: a second of its three or four.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

.PHONY: setup
setup: $(FAST) ## only make the environment, and compile the hot path where there is a compiler

.PHONY: demo
demo: $(FAST) ## set up, then record a real transformer and show it as a tree and a table
	@$(BIN)/python examples/demo.py

.PHONY: test
test: $(FAST) ## set up, then run the tests (PYTEST_ARGS="-k tree" for some)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: conformance
conformance: $(FAST) ## what `make test` leaves out: more models, samples, seeds and processes (tests/default_run.py)
	@$(BIN)/python -m pytest --conformance=only $(PYTEST_ARGS)

.PHONY: quick
quick: $(FAST) ## the tests that need no transformer and no process, in a minute
	@$(BIN)/python -m pytest --quick $(PYTEST_ARGS)

ASAN_TESTS ?= tests/capture/engine tests/capture/torch tests/capture/test_recorder.py tests/capture/test_release.py \
	tests/capture/test_threads.py tests/capture/transparency/test_lifetimes.py
# Its own memory grows, and what starts process after process takes too long under it.
ASAN_BUT ?= leave_nothing_behind or test_features
.PHONY: asan
asan: $(READY) ## the tests of the engine with C compiled for AddressSanitizer (ASAN_TESTS=... for others)
	@CFLAGS="-g -O1 -fsanitize=address -fno-omit-frame-pointer" TORCHGLASS_BUILD=required $(BIN)/python hatch_build.py
	@LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so.6)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0 $(BIN)/python -m pytest -q -k 'not ($(ASAN_BUT))' $(ASAN_TESTS); \
		status=$$?; $(BIN)/python hatch_build.py; exit $$status

.PHONY: check
check: $(READY) ## lint, format, types, import contracts, layout, forbidden text
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo 'format: run `make format`'; $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python scripts/structure_report.py
	@$(BIN)/python scripts/forbidden_text.py
	@$(BIN)/python scripts/format_page.py --check
	@$(BIN)/python scripts/api_page.py --check
	@$(BIN)/python scripts/seen_page.py --check
	@$(BIN)/python scripts/build_page.py --check
	@$(BIN)/python scripts/build_page.py --types

VERSIONS ?=
.PHONY: versions
versions: ## try several versions of PyTorch and Python, and write docs/versions.md (VERSIONS="3.13:2.15.0" for some)
	@test -n "$(PYTHON)" || { echo 'no Python >= 3.11 was found (PYTHON=... names one)'; exit 1; }
	@$(PYTHON) scripts/versions.py $(VERSIONS)

.PHONY: page
page: $(READY) ## build the page's script and style from web/ into the package
	@$(BIN)/python scripts/build_page.py

.PHONY: web-types
web-types: $(READY) ## install TypeScript and axe-core with npm, and check the types of the page's JavaScript
	@npm install --prefix web --no-fund --no-audit --no-package-lock --silent
	@$(BIN)/python scripts/build_page.py --types

.PHONY: browser
browser: ## install the browser that the tests of the page drive, where there is none (Debian and Ubuntu, as root)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null; }

.PHONY: gallery
gallery: $(READY) ## draw the pictures of docs/gallery.md
	@$(BIN)/python scripts/gallery.py

.PHONY: format
format: $(READY) ## rewrite the code in the one format
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

.PHONY: update-docs
update-docs: $(FAST) ## rewrite the printed output in README.md and examples/output
	@TORCHGLASS_UPDATE_DOCS=1 $(BIN)/python -m pytest -q tests/test_documents.py

.PHONY: bench
bench: $(READY_BENCH) ## compare the cost of recording with other tools
	@$(BIN)/python benchmarks/overhead.py

.PHONY: clean
clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist src/torchglass/_fast*.so .pytest_cache .ruff_cache .hypothesis tests/actual
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'torchglass needs Python 3.11 or newer; none was found (PYTHON=... names one)'; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo 'this Python cannot make environments; on Debian and Ubuntu: apt-get install python3-venv'; exit 1; }

# torch first and pinned: whatever comes later finds it there and asks for no other build.
$(READY): pyproject.toml requirements/dev.txt requirements/constraints.txt | $(BIN)/python
	@echo 'installing torch, then the development requirements (a few minutes the first time)'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip -q
	@$(if $(TORCH),sed 's/^torch==.*/torch==$(TORCH)/' requirements/constraints.txt > $(CONSTRAINTS))
	@began=$$(date +%s); $(PIP) torch && $(PIP) hatchling editables && \
		$(PIP) --no-build-isolation -r requirements/dev.txt && echo "installed in $$(($$(date +%s) - began)) s"
	@touch $@

# Again when a C file has changed; without a compiler there is nothing, and all works.
$(FAST): $(wildcard src/torchglass/capture/engine/fast/*.[ch]) hatch_build.py $(READY)
	@$(BIN)/python hatch_build.py
	@touch $@

$(READY_BENCH): benchmarks/requirements.txt $(FAST)
	@echo 'installing the tools to compare with'
	@$(PIP) -r benchmarks/requirements.txt
	@touch $@
