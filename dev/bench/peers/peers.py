"""Another engine in a process of its own, driven by JSON lines: one request, one reply.

    {"cmd": "load", "engine": "duckdb", "threads": 2, "format": "parquet",
     "tables": {"t": ["/a.parquet"]}, "schema_sql": "CREATE TABLE ...", "database": "/x.db"}
    {"cmd": "query", "sql": "..."}                  -> {"ms": 1.5, "rows": 4}
    {"cmd": "result", "sql": "...", "path": "/f"}   -> {"rows": 4}, the rows in /f as an Arrow stream
    {"cmd": "streams", "streams": [["...", "..."]]} -> {"streams": [[[start_ms, end_ms, rows], ...]]}
    {"cmd": "mix", "short": ["..."], "due_ms": [50, 100], "heavy": [["...", 4]], "streams": 2}
                     -> {"short_ms": [1.5, 1.2], "heavy_ms": [[start, end], ...]}
    {"cmd": "bulk_load", "engine": "duckdb", "threads": 2, "database": "/x.db", "null": "NA",
     "schema_sql": "CREATE TABLE ...", "tables": [["t", ["/a.csv"]]]}
                     -> {"seconds": 1.5, "stored_bytes": 9, "memory_peak_bytes": 9,
                         "tables": [{"rows": 4, "seconds": 1.2, "stored_bytes": 9}]}
    {"cmd": "parquet", ..., "folder": "/f"}         -> {"bytes": [9]}, a file per table with zstd
    {"cmd": "version", "engine": "duckdb"}          -> {"engine": "duckdb", "version": "2.0.0"}
    {"cmd": "quit"}

What goes wrong comes back as {"error": "..."} and the process lives on. Every engine runs as it
is shipped, except for the number of threads; a time ends when the whole result is in memory as
Arrow, which is what all of them are quickest at.
"""

import itertools
import json
import os
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

# Replies have this descriptor to themselves: whatever a library prints goes to stderr.
replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

import pyarrow as pa


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def memory_peak_bytes():
    """Of this process so far; 0 where the system does not say."""
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 0


class DuckDb:
    def __init__(self, request):
        import duckdb

        self.connection = duckdb.connect(
            request.get("database") or ":memory:",
            # NULLs sort as in PostgreSQL and in the engine that is compared.
            config={
                "threads": str(request["threads"]),
                "default_null_order": "nulls_last_on_asc_first_on_desc",
            },
        )

    @staticmethod
    def version():
        import duckdb

        return duckdb.__version__

    def load(self, request):
        declared = request.get("schema_sql")
        if declared:
            self.connection.execute(declared)
        for name, files in request["tables"].items():
            source = self.source(request, files)
            if declared:
                self.connection.execute(f"INSERT INTO {quoted(name)} SELECT * FROM {source}")
            else:
                self.connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM {source}")
        self.connection.execute("CHECKPOINT")

    def bulk_load(self, request, start):
        run = self.connection.execute
        run(request["schema_sql"])
        options = f"FORMAT csv, HEADER true, DELIMITER ',', NULLSTR {literal(request['null'])}"
        tables = []
        for name, files in request["tables"]:
            begun = time.perf_counter()
            for file in files:
                run(f"COPY {quoted(name)} FROM {literal(file)} ({options})")
            tables.append({"seconds": time.perf_counter() - begun})
        run("CHECKPOINT")
        seconds = time.perf_counter() - start
        memory = memory_peak_bytes()
        (block_bytes,) = run("SELECT block_size FROM pragma_database_size()").fetchone()
        for table, (name, _) in zip(tables, request["tables"]):
            (table["rows"],) = run(f"SELECT count(*) FROM {quoted(name)}").fetchone()
            blocks = f"pragma_storage_info({literal(name)})"
            (count,) = run(
                f"SELECT count(DISTINCT block_id) FROM (SELECT block_id FROM {blocks}"
                f" UNION ALL SELECT unnest(additional_block_ids) FROM {blocks}) WHERE block_id >= 0"
            ).fetchone()
            table["stored_bytes"] = count * block_bytes
        return {
            "seconds": seconds,
            "tables": tables,
            "stored_bytes": os.path.getsize(request["database"]),
            "memory_peak_bytes": memory,
        }

    def parquet(self, request):
        sizes = []
        for name, _ in request["tables"]:
            file = os.path.join(request["folder"], name + ".parquet")
            self.connection.execute(
                f"COPY {quoted(name)} TO {literal(file)} (FORMAT parquet, COMPRESSION zstd)"
            )
            sizes.append(os.path.getsize(file))
        return {"bytes": sizes}

    @staticmethod
    def source(request, files):
        files = "[" + ", ".join(map(literal, files)) + "]"
        if request["format"] == "parquet":
            return f"read_parquet({files})"
        csv = request.get("csv", {})
        options = f", header = {'true' if csv.get('header', True) else 'false'}"
        options += f", delim = {literal(csv.get('delimiter', ','))}"
        return f"read_csv({files}{options})"

    def session(self):
        """What one stream runs its statements on: a connection is not shared between threads."""
        cursor = self.connection.cursor()

        def run(sql):
            relation = cursor.sql(sql)
            return relation.to_arrow_table() if relation is not None else pa.table({})

        return run


class DataFusion:
    def __init__(self, request):
        from datafusion import SessionConfig, SessionContext

        self.context = SessionContext(SessionConfig().with_target_partitions(request["threads"]))
        self.folders = []

    @staticmethod
    def version():
        import datafusion

        return datafusion.__version__

    def load(self, request):
        only_parquet(request, "DataFusion")
        for name, files in request["tables"].items():
            # It registers one location per table, so several files become a folder of links.
            location = files[0]
            if len(files) > 1:
                folder = tempfile.TemporaryDirectory(prefix="thalweg-peer-")
                self.folders.append(folder)
                for i, file in enumerate(files):
                    os.symlink(os.path.abspath(file), f"{folder.name}/{i:06}.parquet")
                location = folder.name + "/"
            self.context.register_parquet(name, location)

    def session(self):
        def run(sql):
            frame = self.context.sql(sql)
            batches = frame.collect()
            return pa.Table.from_batches(batches, schema=batches[0].schema if batches else frame.schema())

        return run


class ChDb:
    """ClickHouse in a process: MergeTree tables in a folder, a session for each stream."""

    # Of its own ClickBench; other tables have no order, as they have none elsewhere.
    KEYS = {"hits": '("CounterID", "EventDate", "UserID", "EventTime", "WatchID")'}
    # As in standard SQL: a column has NULLs unless it is NOT NULL, an outer join has them, and a
    # UNION has no row twice.
    SETTINGS = {
        "data_type_default_nullable": 1,
        "join_use_nulls": 1,
        "union_default_mode": "'DISTINCT'",
        "session_timezone": "'UTC'",
    }

    def __init__(self, request):
        self.folder = request["database"]
        self.settings = {"max_threads": request["threads"], **self.SETTINGS}
        self.sessions = []

    @staticmethod
    def version():
        import chdb

        return chdb.__version__

    def connect(self):
        from chdb.session import Session

        session = Session(self.folder)
        for name, value in self.settings.items():
            session.query(f"SET {name} = {value}")
        # A session that is collected would close the folder for the others.
        self.sessions.append(session)
        return session

    def load(self, request):
        only_parquet(request, "chDB")
        session = self.connect()
        for statement in statements(request["schema_sql"]):
            name = statement.split("(")[0].split()[-1].strip('"')
            key = self.KEYS.get(name)
            if key is None:
                # Its Date begins in 1970, TPC-DS's calendar in 1900.
                key, statement = "tuple()", re.sub(r"\bdate\b(?!\")", "Date32", statement)
            session.query(f"{statement} ENGINE = MergeTree ORDER BY {key}")
        for name, files in request["tables"].items():
            for file in files:
                session.query(f"INSERT INTO {quoted(name)} SELECT * FROM file({literal(file)}, Parquet)")
            # Or it merges what was loaded in the background, while others are measured.
            session.query(f"OPTIMIZE TABLE {quoted(name)} FINAL")

    def session(self):
        session = self.connect()

        def run(sql):
            nonlocal session
            try:
                # Its own ArrowTable is a view of memory that goes with the result; this is a copy.
                answer = session.query(sql, "Arrow").bytes()
            except Exception:
                # What a query wrote before it failed would stand before the next one's answer.
                session = self.connect()
                raise
            return pa.ipc.open_file(answer).read_all() if answer else pa.table({})

        return run

    def typed(self, sql, table):
        """Its DateTime comes as a bare number of seconds."""
        described = self.session()(f"DESCRIBE TABLE ({sql})")
        for i, column_type in enumerate(described["type"].to_pylist()):
            if column_type.startswith("DateTime") and pa.types.is_uint32(table.schema.types[i]):
                seconds = table.column(i).cast(pa.int64()).cast(pa.timestamp("s"))
                table = table.set_column(i, table.schema.names[i], seconds)
        return table


class Polars:
    """SQL over frames in memory."""

    def __init__(self, request):
        import polars

        # Its threads are set by the environment alone, before it is imported.
        threads = polars.thread_pool_size()
        if threads != request["threads"]:
            raise ValueError(f"Polars has {threads} threads: set POLARS_MAX_THREADS")
        self.context = polars.SQLContext()

    @staticmethod
    def version():
        import polars

        return polars.__version__

    def load(self, request):
        import polars

        only_parquet(request, "Polars")
        for name, files in request["tables"].items():
            self.context.register(name, polars.read_parquet(files))

    def session(self):
        return lambda sql: self.context.execute(sql, eager=True).to_arrow()


def only_parquet(request, engine):
    if request["format"] != "parquet":
        raise ValueError(f"{engine} is compared on Parquet files: load with format parquet")


def statements(script):
    """Of a schema: no text in it has a semicolon or two dashes."""
    lines = (line.split("--")[0] for line in script.splitlines())
    return [text for text in map(str.strip, "\n".join(lines).split(";")) if text]


ENGINES = {"duckdb": DuckDb, "datafusion": DataFusion, "chdb": ChDb, "polars": Polars}


def engine_class(request):
    name = request.get("engine", "")
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}: there are {', '.join(ENGINES)}")
    return ENGINES[name]


def run_streams(engine, streams):
    barrier = threading.Barrier(len(streams))
    results = [[] for _ in streams]
    errors = []
    origin = []

    def stream(i):
        run = engine.session()
        if barrier.wait() == 0:
            origin.append(time.perf_counter())
        barrier.wait()
        try:
            for sql in streams[i]:
                start = time.perf_counter()
                rows = run(sql).num_rows
                end = time.perf_counter()
                results[i].append([(start - origin[0]) * 1e3, (end - origin[0]) * 1e3, rows])
        except Exception as error:
            errors.append(f"stream {i + 1}, statement {len(results[i]) + 1}: {error}")

    threads = [threading.Thread(target=stream, args=(i,)) for i in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError("; ".join(errors))
    return results


def run_mix(engine, request):
    """Short queries, each when it is due and counted from then, beside streams of heavy ones."""
    short, heavy, streams = request["short"], request["heavy"], request["streams"]
    due_ms = request["due_ms"]
    run_alone = engine.session()
    answers = [run_alone(sql) for sql in short]
    client = threading.local()
    stop = threading.Event()
    begun = time.perf_counter()

    def elapsed_ms():
        return (time.perf_counter() - begun) * 1e3

    def stream(first):
        run, spans = engine.session(), []
        for turn in itertools.count(first):
            if stop.is_set():
                return spans
            sql, rows_expected = heavy[turn % len(heavy)]
            start = elapsed_ms()
            rows = run(sql).num_rows
            spans.append([start, elapsed_ms()])
            if rows != rows_expected:
                raise ValueError(f"a heavy query gave {rows} rows instead of {rows_expected}")

    def query(k):
        if not hasattr(client, "run"):
            client.run = engine.session()
        table = client.run(short[k % len(short)])
        latency = elapsed_ms() - due_ms[k]
        if not table.equals(answers[k % len(short)]):
            raise ValueError("a short query has another answer beside heavy ones than alone")
        return latency

    # A pool starts a thread only when none is idle; a query never waits for one.
    with ThreadPoolExecutor(max(streams, 1)) as heavy_pool, ThreadPoolExecutor(len(due_ms)) as pool:
        spans = [heavy_pool.submit(stream, i) for i in range(streams)]
        try:
            queries = []
            for k, due in enumerate(due_ms):
                time.sleep(max(0.0, due - elapsed_ms()) / 1e3)
                queries.append(pool.submit(query, k))
            short_ms = [query.result() for query in queries]
        finally:
            # Only now, so that the last short queries have the company that the first had.
            stop.set()
        return {"short_ms": short_ms, "heavy_ms": [span for s in spans for span in s.result()]}


class Peer:
    def __init__(self):
        self.engine = None
        self.run = None

    def handle(self, request):
        command = request.get("cmd")
        if command == "version":
            return {"engine": request.get("engine"), "version": engine_class(request).version()}
        if command == "load":
            start = time.perf_counter()
            self.engine = engine_class(request)(request)
            self.engine.load(request)
            self.run = self.engine.session()
            return {"seconds": time.perf_counter() - start}
        if command in ("bulk_load", "parquet"):
            start = time.perf_counter()
            engine = engine_class(request)(request)
            return engine.bulk_load(request, start) if command == "bulk_load" else engine.parquet(request)
        if command not in ("query", "result", "streams", "mix"):
            raise ValueError(f"unknown command {command!r}")
        if self.engine is None:
            raise ValueError(f"{command} needs a load before it")
        if command == "query":
            start = time.perf_counter()
            rows = self.run(request["sql"]).num_rows
            return {"ms": (time.perf_counter() - start) * 1e3, "rows": rows}
        if command == "result":
            table = self.run(request["sql"])
            if isinstance(self.engine, ChDb):
                table = self.engine.typed(request["sql"], table)
            with pa.OSFile(request["path"], "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            return {"rows": table.num_rows}
        if command == "mix":
            return run_mix(self.engine, request)
        return {"streams": run_streams(self.engine, request["streams"])}


def main():
    peer = Peer()
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request.get("cmd") == "quit":
                return
            reply = peer.handle(request)
        # pyo3 turns a Rust panic into a BaseException; a peer that panics must still answer.
        except BaseException as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


main()
