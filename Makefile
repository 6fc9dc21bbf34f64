# Everything this repository can do; `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# The demo's catalogs: sqlite, duckdb or postgres.
CATALOG ?= sqlite
# More arguments for pytest, the demo or the benchmarks.
ARGS ?=
# Processes that run tests. Files stay whole: one worker keeps its Spark session for all of a file.
JOBS ?= 2

# Spark's home comes from .venv, Java's from wherever one is found or installed.
spark_env = JAVA_HOME="$$(scripts/ensure_java.sh)"; export JAVA_HOME PATH="$(CURDIR)/$(BIN):$$PATH"; \
	unset SPARK_HOME SPARK_CONF_DIR
header = @printf '\n== %s\n' "$(1)"

.PHONY: help
help: ## Say what can be made (this list)
	@printf 'Usage: make TARGET [NAME=value …]\n\n'
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/\1\t\2/p' $(MAKEFILE_LIST) \
		| while IFS=$$'\t' read -r target text; do printf '  %-14s %s\n' "$$target" "$$text"; done
	@printf '\nPYTHON=… picks the interpreter for .venv (3.10 or newer), JAVA_HOME=… the Java runtime.\n'

.PHONY: demo
demo: venv java ## Run three tenants' lakes through Airflow and Spark (CATALOG=sqlite|duckdb|postgres)
	@scripts/demo.sh $(CATALOG) $(ARGS)

.PHONY: test
test: venv spark-classes ## Run the tests (ARGS='tests/lake -k merge', JOBS=2)
	$(call header,pytest)
	@$(spark_env); $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

.PHONY: coverage
coverage: venv spark-classes ## Run the tests and report which lines they reach
	$(call header,pytest with coverage)
	@$(spark_env); $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=term $(ARGS)

.PHONY: lint
lint: venv ## Check style, import walls and formatting
	$(call header,ruff check)
	@$(BIN)/ruff check .
	$(call header,ruff format)
	@$(BIN)/ruff format --check --diff .

.PHONY: format
format: venv ## Format the code and repair what can be repaired
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: type
type: venv ## Check types (mypy --strict)
	$(call header,mypy)
	@$(BIN)/mypy

.PHONY: docs
docs: venv ## Check that links, paths and commands in the documentation exist
	$(call header,documentation)
	@$(BIN)/python scripts/check_docs.py

.PHONY: bench
bench: venv java ## Run the benchmarks (ARGS for their arguments)
	@$(spark_env); $(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-store
bench-store: venv ## Measure a store of up to a million catalogs (ARGS='--sizes 10 1000')
	@$(BIN)/python -m benchmarks store $(ARGS)

.PHONY: venv
venv: ## Make .venv from requirements/dev.txt, unless it is there already
	@PYTHON="$(PYTHON)" scripts/make_venv.sh

.PHONY: java
java: ## Find a Java runtime for Spark, or install one where allowed
	@scripts/ensure_java.sh >/dev/null

.PHONY: spark-classes
spark-classes: venv java ## Make Spark start sooner (an archive of its Java classes, made once)
	@$(spark_env); $(BIN)/python -m scripts.spark_classes

.PHONY: lock
lock: venv ## Resolve requirements/dev.in anew into requirements/dev.txt
	@scripts/lock.sh

.PHONY: clean
clean: ## Remove .venv, the demo's lakes and everything the tools left
	@rm -rf .venv .demo .bench build dist htmlcov .coverage .coverage.* .hypothesis \
		.mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db artifacts derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
