"""The engines that a statement is asked of: ours in its modes, PostgreSQL and DuckDB.

Each gives an `Answer`: rows as texts with a category for each column, or an error, or that it hung or died.
PostgreSQL and ours are asked by libpq's simple query, which is the fastest way to texts of rows.
"""

import datetime
import decimal
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import duckdb
import psycopg
from psycopg import pq

import known
from schema import csv_line, shown

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "sqltest"))
import postgresql  # noqa: E402, F401  the server of dev/sqltest, which main starts

# What a column is compared as, by the OID of its type.
CATEGORIES = {
    16: "bool", 20: "exact", 21: "exact", 23: "exact", 1700: "exact", 700: "double", 701: "double",
    25: "text", 1043: "text", 1042: "text", 1082: "date", 1114: "timestamp", 1184: "timestamp", 1186: "interval",
}


class Answer:
    """kind is rows, done (with a count), error, hang or crash."""

    __slots__ = ("kind", "categories", "rows", "count", "code", "message")

    def __init__(self, kind, categories=(), rows=(), count=None, code=None, message=""):
        self.kind, self.categories, self.rows = kind, categories, rows
        self.count, self.code, self.message = count, code, message

    def __str__(self):
        if self.kind == "rows":
            lines = ["|".join("NULL" if v is None else v for v in row) for row in self.rows[:20]]
            more = [f"… {len(self.rows)} rows"] if len(self.rows) > 20 else []
            return "\n".join([f"{len(self.rows)} rows", *lines, *more])
        if self.kind == "done":
            return f"done, {self.count} rows"
        return f"{self.kind} {self.code or ''} {self.message}".strip()


class Lost(Exception):
    """The server is gone or does not answer."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Wire:
    """A connection to a server of the PostgreSQL protocol."""

    dialect = "postgresql"
    # Whether queries go by the extended protocol, with parameters for their typed constants.
    extended = False

    def __init__(self, name, conninfo, timeout, settings=()):
        self.name, self.conninfo, self.timeout, self.settings = name, conninfo, timeout, settings
        self.connect()

    def connect(self):
        self.connection = psycopg.connect(self.conninfo, autocommit=True, connect_timeout=30)
        self.raw = self.connection.pgconn
        self.connection.add_notice_handler(lambda _: None)
        for setting in self.settings:
            answer = self.ask(setting)
            if answer.kind != "done":
                raise SystemExit(f"{self.name}: {setting}: {answer}")

    def results(self, timeout):
        """All results of what was sent; a `Lost` where none come."""
        raw, results, until = self.raw, [], time.monotonic() + timeout
        while True:
            try:
                while raw.flush():
                    left = until - time.monotonic()
                    if left <= 0 or not any(select.select([raw.socket], [raw.socket], [], left)):
                        raise Lost("hang", f"nothing is read within {timeout} s")
                    raw.consume_input()
                while raw.is_busy():
                    left = until - time.monotonic()
                    if left <= 0 or not select.select([raw.socket], [], [], left)[0]:
                        raise Lost("hang", f"no answer within {timeout} s")
                    raw.consume_input()
                result = raw.get_result()
            except psycopg.OperationalError as e:
                raise Lost("crash", str(e).strip()) from None
            if result is None:
                return results
            results.append(result)
            if result.status in (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT):
                return results

    def ask(self, sql, timeout=None):
        try:
            try:
                if self.extended and sql.lstrip("( ").startswith(("SELECT", "WITH")):
                    self.raw.send_query_params(*with_parameters(sql))
                else:
                    self.raw.send_query(sql.encode())
            except psycopg.OperationalError as e:
                raise Lost("crash", str(e).strip()) from None
            return self.answer(self.results(timeout or self.timeout)[-1])
        except Lost as lost:
            return Answer(lost.kind, message=str(lost))

    def answer(self, result):
        if result.status == pq.ExecStatus.TUPLES_OK:
            columns = range(result.nfields)
            categories = [CATEGORIES.get(result.ftype(i), "other") for i in columns]
            get = result.get_value
            rows = [tuple([None if (v := get(r, c)) is None else v.decode() for c in columns]) for r in range(result.ntuples)]
            return Answer("rows", categories, rows)
        if result.status == pq.ExecStatus.COMMAND_OK:
            tag = result.command_status.decode().split()
            return Answer("done", count=int(tag[-1]) if tag and tag[-1].isdigit() else None)
        field = lambda f: (result.error_field(f) or b"").decode()
        return Answer("error", code=field(pq.DiagnosticField.SQLSTATE), message=field(pq.DiagnosticField.MESSAGE_PRIMARY))

    def copy(self, table, rows):
        """Loads rows as CSV by COPY."""
        self.raw.send_query(f"COPY {table} FROM STDIN (FORMAT csv)".encode())
        result = self.results(60)[-1]
        if result.status != pq.ExecStatus.COPY_IN:
            return self.answer(result)
        self.raw.put_copy_data("".join(map(csv_line, rows)).encode())
        self.raw.put_copy_end()
        return self.answer(self.results(120)[-1])

    def fill(self, table, dialect):
        self.must(table.create(dialect))
        for piece in table.pieces():
            answer = self.copy(table.name, piece)
            if answer.kind != "done":
                raise Lost("error", f"COPY {table.name}: {answer}")

    def must(self, sql):
        answer = self.ask(sql, 60)
        if answer.kind not in ("done", "rows"):
            raise Lost(answer.kind, f"{self.name}: {sql}: {answer}")
        return answer

    def rows_of(self, table):
        return self.ask(f"SELECT * FROM {table}", 60)

    def close(self):
        self.connection.close()


CONSTANT = re.compile(r"CAST\('([^']*)' AS ([^()]*(?:\(\d+,\d+\))?)\)|(DATE|TIMESTAMP) '([^']*)'")


def with_parameters(sql):
    """A query with its typed constants as parameters, equal ones as one, and their values."""
    values = []

    def parameter(match):
        value = match[1] if match[1] is not None else match[4]
        key = (value, match[2] or match[3].lower())
        if key not in values:
            values.append(key)
        return f"CAST(${values.index(key) + 1} AS {key[1]})"

    return CONSTANT.sub(parameter, sql).encode(), [v.encode() for v, _ in values]


class Session(Wire):
    """A session of ours: whatever a statement answers, a panic in its server is what it did."""

    server = None

    def ask(self, sql, timeout=None):
        answer = super().ask(sql, timeout)
        if self.server and (panics := self.server.panics()):
            return Answer("panic", message=" ".join(panics[0].split("\n")[:3]))
        return answer


class Thalweg:
    """A server of ours, the modes of which are sessions with different settings."""

    def __init__(self, program, folder, name, options, disk):
        self.program, self.name, self.options, self.disk = program, name, options, disk
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir(parents=True)
        self.process = None

    def start(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        database = str(self.folder / "db") if self.disk else ":memory:"
        command = [self.program, "serve", database, "--pg", f"127.0.0.1:{self.port}", "--flight", "off", "--http", "off",
                   "--audit", "none", "--log-level", "warn", "--log-file", str(self.folder / "log"), *self.options]
        if self.disk:
            command.append("--create")
        self.stderr = open(self.folder / "stderr", "ab")
        self.process = subprocess.Popen(command, stdout=self.stderr, stderr=self.stderr)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit(f"{' '.join(command)} does not start:\n{(self.folder / 'stderr').read_text()[-2000:]}")

    @property
    def conninfo(self):
        return f"host=127.0.0.1 port={self.port} user=thalweg dbname=thalweg sslmode=disable"

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.stderr.close()

    def alive(self):
        return self.process.poll() is None

    def panics(self):
        """What has been written about panics since the last look."""
        found = []
        for name in ("stderr", "log"):
            path = self.folder / name
            if not path.exists():
                continue
            size = path.stat().st_size
            seen = getattr(self, "seen_" + name, 0)
            if size > seen:
                with open(path, "rb") as file:
                    file.seek(seen)
                    text = file.read().decode(errors="replace")
                setattr(self, "seen_" + name, size)
                if "panicked at" in text:
                    found.append(text[text.index("panicked at") :][:600])
        return found


# Servers of ours: options, whether on disk, and the sessions that are asked of them. The memory of 24 MiB makes
# joins, groups and sorts spill; a database on disk is
# closed and opened again after it is loaded.
SERVERS = {
    "main": (["--threads", "2"], False),
    "disk": (["--threads", "4", "--cache", "16MiB"], True),
    "small": (["--threads", "1", "--memory", "24MiB"], False),
    "three": (["--threads", "3", "--policy", "round_robin"], False),
}
OFF = ["SET thalweg.pipelines = off"]
MODES = {
    "memory": ("main", []),
    "operators": ("main", OFF),
    "disk": ("disk", []),
    "disk-operators": ("disk", OFF),
    "small": ("small", []),
    "small-operators": ("small", OFF),
    "extended": ("main", []),
    "anew": ("three", ["SET thalweg.keep_plans = off"]),
}


class Ours:
    """All modes that were asked for."""

    def __init__(self, program, modes, folder, timeout):
        self.timeout = timeout
        self.modes = modes
        names = dict.fromkeys(MODES[m][0] for m in modes)
        self.servers = {n: Thalweg(program, folder, n, *SERVERS[n]) for n in names}
        for server in self.servers.values():
            server.start()
        self.sessions = {}
        for mode in modes:
            self.open(mode)

    def open(self, mode):
        server, settings = MODES[mode]
        wire = Session(mode, self.servers[server].conninfo, self.timeout, settings)
        wire.server = self.servers[server]
        wire.dialect = "thalweg"
        wire.extended = mode == "extended"
        self.sessions[mode] = wire

    def load(self, tables, names=None):
        for name, server in self.servers.items():
            if names and name not in names:
                continue
            wire = self.sessions[next(m for m in self.modes if MODES[m][0] == name)]
            forget_made(wire)
            for table in tables:
                wire.ask(f"DROP TABLE IF EXISTS {table.name}", 60)
                wire.fill(table, "thalweg")
            if server.disk:
                self.restart(name)

    def restart(self, name):
        server = self.servers[name]
        server.stop()
        server.start()
        for mode in self.modes:
            if MODES[mode][0] == name:
                self.open(mode)

    def writers(self):
        """One session of each server."""
        return {MODES[m][0]: m for m in reversed(self.modes)}.values()

    def stop(self):
        for session in self.sessions.values():
            session.close()
        for server in self.servers.values():
            server.stop()


def forget_made(wire):
    """Drops what a script has made where it ended early, or was reduced."""
    for kind in ("VIEW", "TABLE"):
        wire.ask(f"DROP {kind} IF EXISTS made", 60)


class DuckDB:
    """DuckDB in this process, interrupted after a time."""

    dialect = "duckdb"
    name = "duckdb"

    def __init__(self, timeout):
        self.timeout = timeout
        self.open()

    def open(self):
        self.connection = duckdb.connect(":memory:")
        for setting in known.DUCKDB_SETTINGS:
            self.connection.execute(setting)

    def load(self, tables):
        self.connection.close()
        self.open()
        for table in tables:
            self.connection.execute(table.create("duckdb"))
            self.fill(table.name, table.rows)

    def fill(self, name, rows):
        if rows:
            with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as file:
                for row in rows:
                    file.write(",".join("\\N" if v is None else '"' + shown(v).replace('"', '""') + '"' for v in row) + "\n")
                file.flush()
                self.connection.execute(f"COPY {name} FROM '{file.name}' (FORMAT csv, HEADER false, NULL '\\N', QUOTE '\"', ESCAPE '\"', AUTO_DETECT false, DELIMITER ',')")

    def ask(self, sql, timeout=None):
        timer = threading.Timer(timeout or self.timeout, self.connection.interrupt)
        timer.start()
        try:
            cursor = self.connection.execute(sql)
            names = [str(d[1]) for d in cursor.description or []]
            rows = cursor.fetchall()
        except duckdb.Error as e:
            kind = "hang" if "INTERRUPT" in str(e) else "error"
            if "FATAL" in str(e) or "invalidated" in str(e):
                kind = "crash"
            return Answer(kind, code=type(e).__name__, message=str(e).split("\n")[0])
        except (OverflowError, ValueError) as e:
            return Answer("error", code="Python", message=str(e))
        finally:
            timer.cancel()
        if sql.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE", "MERGE ") and names == ["BIGINT"] or names == ["Count"]:
            return Answer("done", count=rows[0][0] if rows else 0)
        return Answer("rows", [category(n) for n in names], [tuple(map(text, row)) for row in rows])

    def rows_of(self, table):
        return self.ask(f"SELECT * FROM {table}", 60)

    def must(self, sql):
        answer = self.ask(sql, 60)
        if answer.kind not in ("rows", "done"):
            raise Lost(answer.kind, f"duckdb: {sql}: {answer}")
        return answer


def category(name):
    name = name.upper()
    if "INT" in name and "INTERVAL" not in name or name.startswith("DECIMAL") or name == "NUMBER":
        return "exact"
    return {"DOUBLE": "double", "FLOAT": "double", "BOOLEAN": "bool", "VARCHAR": "text", "STRING": "text", "DATE": "date",
            "TIMESTAMP": "timestamp", "INTERVAL": "interval"}.get(name, "other")


def text(value):
    """A value of DuckDB as PostgreSQL writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, decimal.Decimal, datetime.date)):
        return shown(value)
    if isinstance(value, float):
        return shown(value)
    return str(value)


class PostgreSQL(Wire):
    """A database of a real server, which main starts."""

    def __init__(self, folder, database, timeout):
        with psycopg.connect(host=folder, user="thalweg", dbname="postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {database}")
        # JIT takes longer than the queries. Work in memory is enough for all of them.
        settings = ["SET jit = off", "SET work_mem = '64MB'", f"SET statement_timeout = {int(timeout * 1000)}", "SET timezone = 'UTC'",
                    "SET max_parallel_workers_per_gather = 0", "SET client_min_messages = error"]
        super().__init__("postgresql", f"host={folder} user=thalweg dbname={database}", timeout * 3, settings)

    def load_all(self, tables):
        """These tables and no others."""
        self.must("DROP SCHEMA public CASCADE")
        self.must("CREATE SCHEMA public")
        for table in tables:
            self.fill(table, "postgresql")
            self.must(f"ANALYZE {table.name}")
