# make demo     run an example ensemble: on a Flux instance of four brokers, or without
#               Flux on this machine itself
# make check    run every test
# make check-compiled
#               run the tests that concern compiled modules, and some with Flux, again, on the
#               package as users install it; what is in a clone runs without these modules
# make check-pythons
#               run short tests without Flux on each other Python that is supported and installed
# make chaos    kill the service 300 times and break Flux under it, and 10,000 times in virtual
#               time; takes ten minutes (KILLS=10000: that often)
# make soak     jobs of many ensembles for an hour: memory, KVS and latency stay flat (MINUTES=600:
#               that long)
# make fuzz     one hour of hostile requests, conditions, documents, ... (SECONDS=600: that long),
#               and then 2,000 examples for each property that the tests in Python state
# make mutants  change the engine in 300 places, one at a time, and name the changes that neither the
#               tests nor random histories notice (MUTANTS=1000: that many; SEED=1: others)
# make tables   write what follows from the tables of keys, triggers, actions, names and fields:
#               tables of the docs, the schema for editors, the types of keywords
# make golden   write the golden outputs anew, after a change that is to change them
# make bench    measure against goals, Flux and ensemble-python, and write docs/benchmarks.md;
#               takes some thirty minutes
# make docs     the documentation as a site, in _site/index.html
# make manual   the manual page for man(1), after a change of docs/man/flux-ensemble.1.md
# make protocols
#               generate the Python code of the gRPC protocols, after a change of theirs
# make lint     formatting, lint, types and the direction of imports
#
# Everything runs in a virtual environment of its own, made when it is first needed.

# Flux runs the broker module with its own Python, and the versions have to agree.
VERSION = import sys; print(*sys.version_info[:2])
PYTHON ?= $(shell \
    theirs=$$(flux python -c '$(VERSION)' 2>/dev/null); \
    if [ -z "$$theirs" ] || [ "$$theirs" = "$$(python3 -c '$(VERSION)')" ]; \
    then echo python3; \
    else flux python -c 'import sys; print(sys.executable)'; fi)
VENV := .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
COMPILED := .compiled

.PHONY: demo bench chaos soak fuzz mutants golden tables check check-compiled check-pythons docs \
    manual protocols lint format clean

demo: $(VENV)/package
	@echo "== 3 of 3: an example: five jobs sleep, and five more follow them"
	@if command -v flux >/dev/null; \
	    then set -x; flux start --test-size=4 $(BIN)/flux-ensemble run examples/hello-world.yaml; \
	    else set -x; $(BIN)/flux-ensemble run --queue local examples/hello-world.yaml; fi
	@echo
	@echo "== Next, a sweep of your own, with its report:"
	@echo "   . $(BIN)/activate"
	@echo "   flux-ensemble init sweep"
	@echo "   flux-ensemble run sweep.yaml --open"

bench: $(VENV)/installed
	@$(BIN)/python t/bench/bench.py --page

KILLS ?= 300
chaos: $(VENV)/installed
	@CRASHES=1000 $(BIN)/pytest -q --numprocesses=auto --timeout=900 t/python/runtime/test_crashes.py
	@STEP=1 $(BIN)/pytest -q --numprocesses=auto --timeout=900 t/python/local/test_local_damage.py
	@$(BIN)/python t/seams/matrix.py
	@$(BIN)/python t/fault/chaos.py --long --kills $(KILLS)
	@$(BIN)/python t/fault/kubernetes.py --minutes 5
	@$(BIN)/python t/fault/slurm.py --rounds 100
	@$(BIN)/python t/fault/jobset.py --rounds 100

MINUTES ?= 60
soak: $(VENV)/installed
	@$(BIN)/python t/fault/soak.py --minutes $(MINUTES)

SECONDS ?= 3600
fuzz: $(VENV)/installed
	@$(BIN)/python t/fuzz/fuzz.py --seconds $(SECONDS)
	@$(BIN)/pytest -q -m 'hypothesis and not flux' --hypothesis-profile=long --timeout=3600 \
	    --numprocesses=$(WORKERS) --dist=worksteal

MUTANTS ?= 300
SEED ?= 0
mutants: $(VENV)/installed
	@$(BIN)/python t/fuzz/mutants.py --mutants $(MUTANTS) --seed $(SEED)

tables: $(VENV)/installed
	@$(BIN)/python docs/keys.py

golden: $(VENV)/installed
	@$(BIN)/python t/python/helpers/goldens.py

check: $(VENV)/installed
	@$(BIN)/python t/lib/check.py

# More tries for what fails, in `check`, `check-compiled` and `check-pythons`; they name what needed
# them.
RETRIES ?= 0
export RETRIES
# As many as in t/lib/check.py.
WORKERS := $(shell expr $$(nproc) + 4)
# What passes the most through the engine: outcomes, metrics, faults in it, and a replay.
WITH_FLUX := t2002-parity.t t1001-run.t t1004-outcomes.t t1005-metrics.t t3203-containment.t
# Rooms that have compiled modules, what runs documents on them, and what tries them all. The others
# are the same without these modules, and `check` has them.
ROOMS_COMPILED := api document engine fluxqueue local metrics nested parity runtime service \
    simulation virtual project/test_doctests.py project/test_examples.py project/test_fuzz.py
check-compiled: $(COMPILED)/installed
	@if ls $(COMPILED)/*.so >/dev/null 2>&1; \
	    then set -x; export PYTHONPATH=$(CURDIR)/$(COMPILED); \
	        $(BIN)/pytest -q -m 'not flux' $(ROOMS_COMPILED:%=t/python/%) \
	            --numprocesses=$(WORKERS) --dist=worksteal --reruns=$(RETRIES) -rR \
	        && $(BIN)/python t/lib/check.py $(WITH_FLUX); \
	    else echo "no compiled modules: they need a C compiler and Python.h"; fi

# Those that are supported and installed; with NEWEST=1 the newest alone.
NEWEST ?=
check-pythons: export NEWEST := $(NEWEST)
check-pythons: $(VENV)/installed
	@$(BIN)/nox

docs: $(VENV)/documents
	$(BIN)/sphinx-build -W -q -a docs _site
	$(BIN)/python docs/links.py _site
	@echo "the documentation is in _site/index.html"

manual: $(VENV)/installed
	$(BIN)/python docs/man/roff.py

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --allow-untyped-defs --allow-incomplete-defs t/python t/lib t/fault t/bench t/fuzz \
	    t/seams
	$(BIN)/lint-imports

format: $(VENV)/installed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

BUILT_FROM := pyproject.toml hatch_build.py

protocols: $(VENV)/installed
	@$(BIN)/nox --session protocols

define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "flux-ensemble needs Python 3.11 or newer and '$(PYTHON)' is not: name another," \
	           "as in 'make PYTHON=python3.12 $(MAKECMDGOALS)'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
endef

# What pip does is shown, since it takes a minute or two.
$(VENV)/package: $(BUILT_FROM)
	@echo "== 1 of 3: a virtual environment in $(VENV)"
	$(make_venv)
	@echo "== 2 of 3: flux-ensemble, and the packages that it needs (a minute or two)"
	@$(PIP:--quiet=) install --editable '.[tui]'
	@touch $@

# And what developers need besides.
$(VENV)/installed: $(BUILT_FROM)
	$(make_venv)
	$(PIP) install --editable '.[test,lint,bench,release]'
	@touch $(VENV)/package $@

# The site is made of text alone, without the package and what that needs.
DOCS = import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
    print(*p["optional-dependencies"]["docs"])
$(VENV)/documents: pyproject.toml
	$(make_venv)
	test $(VENV)/installed -nt pyproject.toml || $(PIP) install $$($(BIN)/python -c '$(DOCS)')
	@touch $@

# With what .venv has for building.
$(COMPILED)/installed: $(VENV)/installed $(shell find flux_ensemble -name '*.py')
	rm -rf $(COMPILED)
	$(PIP) install --no-deps --no-build-isolation --target $(COMPILED) .
	@touch $@

clean:
	rm -rf $(VENV) $(COMPILED) .nox .mutants _site t/test-results t/trash\ directory.* dist .hypothesis \
	    .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
