# One command each for a reader, a contributor and a tester. Works with GNU make 3.81 (macOS).
# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv

# Where a virtual environment keeps its programs.
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif

# Material for MkDocs prints a notice about MkDocs 2 at every build; mkdocs is pinned below 2 here.
export NO_MKDOCS_2_WARNING := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Containers often set it, and then every process compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# Stamps: what .venv was last filled with. pip runs again when pyproject.toml or constraints.txt
# is newer than the stamp, and not otherwise. An environment is never reduced: any that is
# there and has enough extras is used.
PAGES := $(VENV)/pages.stamp
SITE := $(VENV)/site.stamp
FULL := $(VENV)/full.stamp
FOR_SITE := $(or $(wildcard $(FULL)),$(SITE))
FOR_PAGES := $(or $(wildcard $(FULL)),$(wildcard $(SITE)),$(PAGES))

.PHONY: help site verify serve pages test test-rest test-all clean
.DEFAULT_GOAL := help

help:
	@echo "make site    run every demo, verify what has changed, then build the site into site/"
	@echo "make verify  verify every snippet on this machine, even if its record is current"
	@echo "make serve   serve the site locally, and rebuild it at every change"
	@echo "make pages   build the site from the committed records, without installing torch"
	@echo "make test    run the tests that keep a change safe"
	@echo "make test-rest  run the exhaustive tests: they repeat a proof, or try everything"
	@echo "make test-all   run both"
	@echo "make clean   remove what was built (the environment in .venv stays)"
	@echo ""
	@echo "Another Python: make site PYTHON=python3.12"

# A record of unchanged code is trusted: only the demo of its snippet runs.
# The site is built even if a snippet fails, so that one bad kernel cannot take the pages down;
# the failure still decides the exit status.
site: $(FOR_SITE)
	-@$(BIN)/python -c "from papergpu.build import compile_engine; compile_engine()"
	@failed=0; \
	$(BIN)/shelf run || failed=1; \
	$(BIN)/shelf site || failed=1; \
	exit $$failed

# With all libraries, so that no snippet is skipped.
verify: $(FULL)
	$(BIN)/shelf run --all

serve: $(FOR_PAGES)
	$(BIN)/shelf site --serve

pages: $(FOR_PAGES)
	$(BIN)/shelf site

# The engine that executes PTX is compiled first, so that no test's time limit includes it.
# Then come tests in parallel, then those that watch the clock or fork. `test` has what keeps a
# change safe; `test-rest` what repeats a proof or tries everything: see `exhaustive` in tests/.
PYTEST := $(BIN)/python -m pytest -q --durations=10 --durations-min=1
ALONE = $(PYTEST) $$(grep -rl --include='*.py' 'mark[.]alone' tests)
SIDE_BY_SIDE := $(PYTEST) -n auto --maxprocesses 8 --dist loadscope --no-loadscope-reorder

test: $(FULL)
	-@$(BIN)/python -c "from papergpu.build import compile_engine; compile_engine()"
	$(SIDE_BY_SIDE) -m "not exhaustive and not alone"
	$(ALONE) -m "not exhaustive and alone"

test-rest: $(FULL)
	-@$(BIN)/python -c "from papergpu.build import compile_engine; compile_engine()"
	$(SIDE_BY_SIDE) -m "exhaustive and not alone"
	$(ALONE) -m "exhaustive and alone"

test-all: test test-rest

clean:
	rm -rf build site docs/records docs/sources docs/views docs/evidence docs/runtime docs/exports docs/llms.txt docs/*/*/readings.md .shelf .hypothesis \
		.pytest_cache .ruff_cache .mypy_cache .import_linter_cache

$(PAGES): EXTRAS := pages
$(SITE): EXTRAS := pages,run
$(FULL): EXTRAS := pages,run,search,events,calculators,trust,links,fleet,lint,test
$(PAGES) $(SITE) $(FULL): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "warpshelf needs Python 3.11 or newer; '$(PYTHON)' is older or missing." \
		     "Name another: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV) || true # what pip would do on one core
	@touch $@
