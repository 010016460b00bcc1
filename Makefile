# The two commands of the README, and what they need. `make help` lists all.

SF ?= 1
STREAMS ?= 4
DEMO := demo
# What is downloaded and generated; a fixed folder outside the clone keeps it for the next one.
CACHE ?= $(CURDIR)/.cache
# The Python environment of the peers and of the tests' data.
export THALWEG_VENV ?= $(CACHE)/venv
PYTHON := $(THALWEG_VENV)/bin/python
CARGO_TARGET_DIR ?= target
THALWEG := $(CARGO_TARGET_DIR)/release/thalweg

# One of our dependencies generates bindings with libclang. A machine without it gets the one
# from PyPI, for the build only.
SYSTEM_CLANG := $(strip $(foreach d,/usr/lib/llvm-*/lib /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/local/lib, \
	$(wildcard $(d)/libclang.so* $(d)/libclang-[0-9]*.so*)))
ifeq ($(LIBCLANG_PATH)$(SYSTEM_CLANG),)
CLANG := $(CACHE)/libclang
CLANG_STAMP := $(CLANG)/installed
export LIBCLANG_PATH := $(CLANG)/clang/native
endif

.PHONY: help demo build test unit answers flights lint bench-tpch bench-policies clean
.DEFAULT_GOAL := help

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## Generate SSB, load it, run it alone and in streams under each policy (SF=1 STREAMS=4)
	@echo "== The Star Schema Benchmark at SF $(SF), then $(STREAMS) streams under each policy"
	@mkdir -p $(DEMO)
	$(THALWEG) bench ssb --sf $(SF) --format csv --streams $(STREAMS) --runs 3 \
		--data $(DEMO)/data --db $(DEMO)/ssb-sf$(SF).db \
		--report $(DEMO)/report.html --json $(DEMO)/report.json
	@echo
	@echo "The page with charts:     $(DEMO)/report.html"
	@echo "Explore the loaded data:  $(THALWEG) shell $(DEMO)/ssb-sf$(SF).db"

build: $(CLANG_STAMP) ## The optimised binary
	@echo "== Building the optimised binary (about 20 minutes the first time, on two cores)"
	cargo build --release --locked -p thalweg

test: unit answers flights ## Every test
	@echo "== All tests passed"

unit: $(CLANG_STAMP)
	@echo "== Unit tests, SQL files in every mode, the command line"
	cargo test --workspace --locked

answers: build $(PYTHON).ready
	@echo "== Answers of SSB, TPC-H and TPC-DS at SF 1"
	@for suite in ssb tpch tpcds; do \
		$(THALWEG) bench $$suite --sf 1 --runs 1 --check --data $(CACHE)/bench || exit 1; done

flights: build $(PYTHON).ready ## The 2013 New York flights: load five tables, ask five questions
	@echo "== The 2013 New York flights"
	$(PYTHON) dev/flights/check.py $(THALWEG)

lint: $(CLANG_STAMP) ## Formatting and clippy
	@echo "== Formatting and clippy"
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

bench-tpch: build $(PYTHON).ready ## TPC-H at SF 1 beside DuckDB and DataFusion, interleaved
	$(THALWEG) bench tpch --sf 1 --peers duckdb,datafusion --json tpch.json --report tpch.html

bench-policies: build ## Two heavy queries and six short ones under each policy
	$(THALWEG) bench policies --sf 1 --json policies.json --report policies.html

$(PYTHON).ready: dev/bench/peers/requirements.txt dev/requirements.txt
	@echo "== Installing the Python packages of the tests"
	python3 -m venv $(THALWEG_VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r dev/bench/peers/requirements.txt -r dev/requirements.txt
	@touch $@

$(CLANG)/installed:
	@echo "== Installing libclang for the build (this machine has none)"
	python3 -m venv $(CACHE)/pip
	$(CACHE)/pip/bin/python -m pip install --quiet --disable-pip-version-check --target $(CLANG) libclang==18.1.1
	@touch $@

clean: ## Remove what was built, cached and generated
	rm -rf $(CARGO_TARGET_DIR) $(CACHE) $(DEMO)
