# Everything one does with Shedder. Each target makes the virtual environment it needs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
WORKERS ?= 3
SEED ?=
WORLDS ?= 200
# Compiled once, not in each process: half of the time that a worker takes to collect the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo spark-demo linear-road test tours unit nightly durations check format lint docs bench proto simulate-long \
  coverage characterize constraints clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.stamp-kernels  ## make .venv with everything that tests, demo and docs need

$(VENV)/.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Shedder needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "making $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -e '.[spark,dev]' -c constraints.txt
	@touch $@

# Kernels are compiled here, once, when a module that has some is new. Else each worker, and each
# process that a test starts meanwhile, compiles all of them.
KERNELS := $(shell grep -rl --include='*.py' '^from numba import' allocator shedder synopses)

$(VENV)/.stamp-kernels: $(VENV)/.stamp $(KERNELS)
	@echo "compiling kernels (some minutes the first time)"
	@$(BIN)/python -m shedder.engine.precompile
	@touch $@

$(VENV)/.stamp-bench: $(VENV)/.stamp
	@$(PIP) install -e '.[bench]' -c constraints.txt
	@touch $@

demo: venv  ## the tour: real flights in, answers with intervals out, Spark as the judge
	@$(BIN)/shedder demo

spark-demo: venv  ## a million flights through Spark, summarised and forwarded, judged by Spark
	@$(BIN)/shedder spark-demo

linear-road: venv  ## three hours of an expressway at full speed, ten minutes in real time, each answer checked; ROAD="20 1 2" for others
	@$(BIN)/python -m examples.linear_road $(ROAD)

# Distribute whole files, the slowest first, and all files that need Java to one worker (tests/budget.py).
SUITE := -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: venv  ## all kinds of tests, the slow ones and Spark's, too; make nightly has them at full size
	@$(BIN)/pytest $(SUITE) -m "not tour"

tours: venv  ## the two tours, shorter, with all that they claim; .ci/run has them beside make test
	@$(BIN)/pytest -q -n 2 --dist load -m tour tests/spark_ingest/demo

unit: venv  ## the quick tests
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow and not spark"

# A part that fails does not keep the next part from running.
nightly: venv  ## all tests at full size with a fresh seed, and long simulations; SEED=… replays a run
	@seed=$(or $(SEED),$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')); echo "make nightly SEED=$$seed"; \
	  sized="env SHEDDER_SCALE=nightly SHEDDER_SEED=$$seed"; \
	  $$sized $(BIN)/pytest $(SUITE) --timeout 3600; tests=$$?; \
	  $$sized SHEDDER_JAVA=bundled $(BIN)/pytest -q --timeout 3600 -m spark tests/spark_ingest/test_truths.py; java=$$?; \
	  $(BIN)/python -m tests.simulation.invariants $$seed $(WORLDS) 60; worlds=$$?; \
	  $(BIN)/python -m benchmarks.studies.soak; soak=$$?; \
	  echo "exit status: tests $$tests, Spark on the bundled Java $$java, simulations $$worlds, soak $$soak"; \
	  test $$tests -eq 0 && test $$java -eq 0 && test $$worlds -eq 0 && test $$soak -eq 0

durations: venv  ## make test, and record how long each file takes (tests/durations.json)
	@$(BIN)/pytest $(SUITE) -m "not tour" --record-durations

check: lint test tours  ## what a change must pass: format, lint, types, imports, tests, docs that execute

lint: venv
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo 2>&1 | tail -n 1

format: venv  ## put the code into its form
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs: venv  ## write the generated pages again (settings, commands, pictures)
	@$(BIN)/python -m shedder.settings > docs/settings.md
	@$(BIN)/python -m shedder.cli.reference > docs/cli.md
	@$(BIN)/python docs/pictures/walks.py
	@$(BIN)/python docs/overload/join_flood.py

bench: venv $(VENV)/.stamp-bench  ## run benchmarks/ into docs/benchmarks.md; NAMES="invoke eight" for some
	@$(BIN)/python -m benchmarks --write $(NAMES)

proto: venv  ## write shedder/v1 again from proto/
	@$(BIN)/python proto/generate.py

simulate-long: venv  ## 200 random worlds of a minute each, in 20 minutes of a core; SEED=…, WORLDS=…
	@$(BIN)/python -m tests.simulation.invariants $(or $(SEED),0) $(WORLDS) 60

coverage: venv  ## the full grids of interval coverage; writes docs/coverage*.md
	@$(BIN)/python -m tests.synopses.coverage_grid
	@$(BIN)/python -m tests.engine.progressive_coverage
	@$(BIN)/python -m tests.engine.thinned_coverage_grid
	@$(BIN)/python -m tests.engine.shown_rows_grid

characterize: venv $(VENV)/.stamp-bench  ## errors of all summaries; writes docs/characterization.md
	@$(BIN)/python -m benchmarks.studies.characterize

constraints: $(VENV)/.stamp-bench  ## pin what is installed now
	@$(PIP) freeze --exclude-editable | grep '==' > constraints.txt

clean:  ## remove what can be made again
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
