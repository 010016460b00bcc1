"""Other databases by ATTACH: a PostgreSQL 15 that is started for it, files of SQLite as Python writes them, and
a second database of Thalweg.

    python dev/attach/check.py THALWEG

THALWEG is the binary. Needs psycopg 3 and Debian's package postgresql-15 (or its programs in $PG_BIN).
"""

import csv
import io
import os
import pathlib
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "sqltest"), str(HERE.parent / "clients")]

import psycopg

import install
import server
from checks import check, equal, main

# Debian's package of pgbench brings a server along, whatever its version is there.
install.programs(["psql", "pgbench"])
if not pathlib.Path("/usr/lib/postgresql/15/bin/postgres").exists():
    for binary in sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        os.environ.setdefault("PG_BIN", str(binary.parent))

import postgresql  # it looks for the server when it is imported

BINARY = str(pathlib.Path(sys.argv[1]).absolute())
PASSWORD = "s3cret-w0rd"


def run(script, database=":memory:", *flags, seconds=120):
    """Exit code, rows of all answers, and what was said beside them."""
    command = [BINARY, "sql", database, "--format", "csv", *flags]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=seconds)
    return done.returncode, list(csv.reader(io.StringIO(done.stdout))), done.stderr


def rows(script, *arguments):
    """The rows of the one answer that there is, without their titles."""
    code, found, errors = run(script, *arguments)
    if code != 0:
        raise AssertionError(errors)
    return found[1:]


def refused(script, *parts):
    code, found, errors = run(script)
    missing = [part for part in parts if part not in errors]
    if code == 0 or missing or "panicked" in errors:
        raise AssertionError(f"exit code {code}, {errors!r} lacks {missing}, rows {found}")


def attached(sql, options=""):
    return f"ATTACH '{SERVER.text} {options}' AS p (TYPE postgres);\n{sql};\n"


class Served(postgresql.Server):
    """A server that is also reached by TCP, where one role has a password."""

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.settings = f"-c listen_addresses=127.0.0.1 -c port={self.port}"
        super().__enter__()
        self.text = f"host={self.folder} port={self.port} user=thalweg dbname=postgres"
        rules = pathlib.Path(self.folder, "data", "pg_hba.conf")
        rules.write_text("host all ann 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        self.run("pg_ctl", "-D", f"{self.folder}/data", "reload")
        return self

    def connect(self, database):
        import psycopg

        return psycopg.connect(host=self.folder, port=self.port, user="thalweg", dbname=database, autocommit=True)

    def do(self, sql):
        with self.connect("postgres") as connection:
            return connection.execute(sql)

    def ask(self, sql):
        with self.connect("postgres") as connection:
            return connection.execute(sql).fetchall()


@check("types of PostgreSQL")
def types():
    SERVER.do("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    SERVER.do("CREATE DOMAIN small AS numeric(4, 1)")
    SERVER.do("""
        CREATE TABLE kinds (a int2, b int4, c int8, d float4, e float8, f numeric(10, 2), g numeric, h small,
            i text, j varchar(5), k char(4), l bool, m date, n time, o timestamp, p timestamptz, q interval,
            r bytea, s uuid, t json, u jsonb, v mood, w int4[], x text[], y uuid[], z money, "Zz" inet)""")
    SERVER.do("""
        INSERT INTO kinds VALUES (-7, 70000, 5000000000, 1.5, -0.1, 12345.67, 0.0000000001, 2.5,
            'ä', 'v', 'c', true, '2024-02-29', '10:30:00.25', '1969-12-31 23:59:59.999999', '2024-07-01 12:00+02',
            '1 mon 2 days 03:00', '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": 1}', '{"a":1}', 'happy',
            '{1,NULL,3}', '{"a b",c}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', 1.5, '10.0.0.1'),
            (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""")
    found = {row[0]: (row[1], row[3]) for row in rows(attached("DESCRIBE p.kinds"))}
    expected = ["smallint", "int", "bigint", "real", "double", "decimal(10,2)", "decimal(38,10)", "decimal(4,1)",
                "varchar", "varchar", "varchar", "boolean", "date", "time", "timestamp(6)"]
    equal([found[name][0] for name in "abcdefghijklmno"], expected)
    equal([found[name][0] for name in ("s", "t", "u", "v", "z", "Zz")], ["varchar"] * 6)
    equal([found[name][0] for name in "wxy"], ["int[]", "varchar[]", "varchar[]"])
    equal(found["v"][1], "declared mood")
    texts = "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, encode(r, 'hex'), s, t, u, v, w::text, x::text, y::text, z, \"Zz\""
    [one, none] = rows(f"SET timezone = 'UTC';\n" + attached(f"SELECT {texts} FROM p.public.kinds ORDER BY a NULLS LAST"))
    equal(one[:13], ["-7", "70000", "5000000000", "1.5", "-0.1", "12345.67", "0.0000000001", "2.5", "ä", "v", "c   ", "true", "2024-02-29"])
    equal(one[13].startswith("10:30:00.25"), True)
    equal(one[14].replace("T", " "), "1969-12-31 23:59:59.999999")
    equal(one[15].replace("T", " ").startswith("2024-07-01 10:00:00"), True)
    equal(one[17:], ["00ff", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"a": 1}', '{"a": 1}', "happy", "{1,NULL,3}",
                     '{"a b",c}', "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "$1.50", "10.0.0.1/32"])
    equal(set(none), {""})
    # And every text of ours is the server's.
    [same] = rows(attached("CREATE TABLE t AS SELECT * FROM p.kinds; SELECT count(*), count(a), count(y) FROM t"))
    equal(same, ["2", "1", "1"])


@check("values that are none here")
def values():
    for column, value, said in [
        ("numeric", "'NaN'", "the numeric is NaN"), ("numeric", "1e30", "more than the 28 digits before the point"),
        ("numeric", "1e-11", "more than 10 digits behind the point"), ("date", "'infinity'", "the date is infinity"),
        ("timestamp", "'-infinity'", "the timestamp is -infinity"), ("time", "'24:00'", "24:00:00"),
        ("int[]", "'{{1,2},{3,4}}'", "2 dimensions"),
    ]:
        SERVER.do(f"DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int, a {column}); INSERT INTO odd VALUES (1, NULL), (2, {value})")
        refused(attached("SELECT * FROM p.odd"), 'table "public.odd", column "a", row 2', said, "cast")
        # Who does not ask for it gets the rest.
        equal(rows(attached("SELECT id FROM p.odd ORDER BY id")), [["1"], ["2"]])


@check("names, views and lists of tables")
def names():
    SERVER.do('CREATE SCHEMA "S"; CREATE TABLE "S"."Mixed" ("A" int, "select" int); INSERT INTO "S"."Mixed" VALUES (1, 2)')
    SERVER.do('CREATE VIEW mine AS SELECT "A" + 1 AS more FROM "S"."Mixed"')
    equal(rows(attached("SELECT a, \"select\" FROM p.s.mixed")), [["1", "2"]])
    equal(rows(attached("SELECT more FROM p.mine")), [["2"]])
    found = rows(attached("SHOW TABLES FROM p"))
    equal(["p", "S", "Mixed", "BASE TABLE"] in found and ["p", "public", "mine", "BASE TABLE"] in found, True)
    refused(attached("SELECT * FROM p.nothing"), 'relation "p.nothing" does not exist')
    refused(attached("INSERT INTO p.mine VALUES (1)"), "which is only read")
    refused(attached("CREATE TABLE p.public.x (a int)"), "which is only read")


@check("filters and limits that go along")
def filters():
    SERVER.do("CREATE TABLE many AS SELECT i AS id, 'row ' || i AS name, i % 3 = 0 AS third, date '2024-01-01' + i % 100 AS day FROM generate_series(1, 300000) i; ANALYZE many")
    plan = "\n".join(" ".join(row) for row in rows(attached("EXPLAIN SELECT name FROM p.many WHERE id BETWEEN 5 AND 7 AND name <> 'row 6'")))
    equal("ForeignScanExec: postgres" in plan and "conditions=2" in plan, True)
    for condition, count in [
        ("id = 7", 1), ("id IN (1, 2, 300001)", 2), ("name = 'row 8'", 1), ("name < 'row 10'", 2), ("name > 'row 99'", 1111),
        ("third", 100000), ("day = '2024-01-01'", 3000), ("day > date '2024-04-08'", 3000), ("id > 299990 AND NOT third", 7),
        ("id = 1 OR id = 2", 2), ("name LIKE 'row 2%'", 111111), ("id IS NULL", 0), ("id % 1000 = 1", 300),
    ]:
        # Here texts are compared byte by byte.
        bytewise = re.sub(r"name ([<>])", r'name COLLATE "C" \1', condition)
        there = SERVER.ask(f"SELECT count(*) FROM many WHERE {bytewise}")
        found = rows(attached(f"SELECT count(*) FROM p.many WHERE {condition}"))
        equal((condition, found), (condition, [[str(there[0][0])]]))
    equal(rows(attached("SELECT count(*) FROM (SELECT * FROM p.many LIMIT 10)")), [["10"]])
    equal(rows(attached("SELECT count(*), sum(id), count(DISTINCT name) FROM p.many")), [["300000", "45000150000", "300000"]])
    [[joined]] = rows(attached("SELECT count(*) FROM p.many a JOIN p.many b ON a.id = b.id + 1 WHERE a.third"))
    equal(joined, "100000")


@check("a table larger than the memory is not collected")
def streams():
    SERVER.do("CREATE VIEW large AS SELECT i, repeat(md5(i::text), 30) AS text FROM generate_series(1, 600000) i")
    equal(rows(attached("SELECT count(*), max(length(text)) FROM p.large"), ":memory:", "--memory", "256MiB"), [["600000", "960"]])


def working():
    return SERVER.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'thalweg' AND state = 'active'")[0][0]


def until_idle():
    until = time.monotonic() + 20
    while working() and time.monotonic() < until:
        time.sleep(0.1)
    equal(working(), 0)


@check("the server stops with the statement")
def stops():
    SERVER.do("CREATE VIEW endless AS SELECT count(*) AS n FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b")
    start = time.monotonic()
    refused("SET statement_timeout = '1s';\n" + attached("SELECT * FROM p.endless"), "time limit")
    equal(time.monotonic() - start < 30, True)
    until_idle()
    equal(rows(attached("SELECT i FROM p.large LIMIT 1")), [["1"]])
    until_idle()


@check("passwords are not shown")
def passwords():
    SERVER.do(f"CREATE ROLE ann LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON many TO ann")
    place = f"host=127.0.0.1 port={SERVER.port} dbname=postgres user=ann"
    attach = f"ATTACH '{place} password={PASSWORD}' AS p (TYPE postgres);\n"
    found = rows(attach + "SELECT * FROM system.databases WHERE database_name = 'p'")
    equal(found, [["p", "postgres", place, "true"]])
    found = rows(attach + "SELECT query FROM system.query_log WHERE query LIKE 'ATTACH%'")
    equal(found, [["ATTACH '***' AS p (TYPE postgres)"]])
    url = f"ATTACH 'postgresql://ann:{PASSWORD}@127.0.0.1:{SERVER.port}/postgres' AS p;\n"
    equal(rows(url + "SELECT count(*) FROM p.many WHERE id < 5"), [["4"]])
    equal(rows(url.replace(" AS p", "") + "SELECT count(*) FROM postgres.many WHERE id < 5"), [["4"]])
    for wrong in [attach.replace(PASSWORD, "other-w0rd"), url.replace(PASSWORD, "other-w0rd"), attach.replace(f"port={SERVER.port}", "port=1"),
                  f"ATTACH 'host=h password={PASSWORD} x' AS p (TYPE postgres);", f"ATTACH 'host=h password={PASSWORD}' AS p (TYPE postgres, NO 1);"]:
        code, _, errors = run(wrong)
        equal((code != 0, PASSWORD in errors, "other-w0rd" in errors), (True, False, False))
    refused(attach + "SELECT * FROM p.kinds", "permission denied")
    refused(attach.replace(PASSWORD, "other-w0rd"), "password authentication failed")
    refused(attach.replace(f"port={SERVER.port}", "port=1"), "port=1", "check that the server runs")


@check("a server that goes away")
def goes_away():
    SERVER.do("CREATE VIEW slow AS SELECT i, pg_sleep(0.01)::text AS t FROM generate_series(1, 100000) i")
    process = subprocess.Popen([BINARY, "sql", ":memory:"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write(attached("SELECT count(t) FROM p.slow"))
    process.stdin.close()
    until = time.monotonic() + 60
    while not SERVER.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'thalweg' AND query LIKE '%slow%' AND state = 'active'"):
        equal(time.monotonic() < until and process.poll() is None, True)
        time.sleep(0.1)
    errors = process.stderr.read()
    equal(process.wait(60) != 0 and "PostgreSQL at host=" in errors, True)
    equal(PASSWORD in errors, False)


@check("files of SQLite")
def sqlite_files():
    path = pathlib.Path(FOLDER, "a.db")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, at TIMESTAMP, v)")
        lines = ((i, f"row {i}", f"2024-01-01 00:00:{i % 60:02}", i / 2) for i in range(1, 200_001))
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", lines)
    script = f"ATTACH '{path}' AS s;\n"
    equal(rows(script + "SELECT count(*), sum(id), count(DISTINCT name), sum(v) FROM s.t"), [["200000", "20000100000", "200000", "10000050000.0"]])
    equal(rows(script + "CREATE TABLE c AS SELECT * FROM s.t; SELECT max(at)::text FROM c"), [["2024-01-01 00:00:59"]])
    # While another process writes, readers see what was committed.
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM t WHERE id = 1")
        equal(rows(script + "SELECT count(*) FROM s.t"), [["200000"]])
        writer.execute("ROLLBACK")
    writer.close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("INSERT INTO t VALUES (0, 'new', NULL, NULL)")
        database.commit()
        equal(rows(script + "SELECT count(*) FROM s.t"), [["200001"]])


@check("a second database of Thalweg")
def thalweg():
    other = str(pathlib.Path(FOLDER, "other.db"))
    run("CREATE SCHEMA x; CREATE TABLE x.t AS SELECT 1 AS a; CREATE TABLE t AS SELECT i AS a, i::timestamptz AS at FROM generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 day') AS g(i); CREATE VIEW v AS SELECT 1 AS a", other, "--create")
    script = f"ATTACH '{other}' AS o;\n"
    equal(rows(script + "SELECT count(*) FROM o.t WHERE a > timestamp '2024-01-02'"), [["3"]])
    equal(rows(script + "SELECT a FROM o.x.t"), [["1"]])
    equal(rows(script + "SELECT type FROM system.databases WHERE database_name = 'o'"), [["thalweg"]])
    equal(rows(script + "CREATE TABLE t AS SELECT 7 AS a; SELECT a FROM t"), [["7"]])
    equal(rows(script + "CREATE TABLE t AS SELECT * FROM o.t; SELECT count(*) FROM t JOIN o.t USING (at)"), [["5"]])
    refused(script + "SELECT * FROM o.v", "of which only tables are read")
    refused(script + "DROP TABLE o.t", "which is only read")
    refused(f"ATTACH '{FOLDER}' AS o", "database")
    # What another process commits is seen by the next statement, also under a text that was asked before.
    with server.Server(BINARY, trust=True) as reader:
        with psycopg.connect(f"host=127.0.0.1 port={reader.pg} dbname=thalweg user=anybody", autocommit=True) as session:
            session.execute(script)
            count = lambda: session.execute("SELECT count(*) FROM o.x.t").fetchone()[0]
            before = count()
            code, _, errors = run("INSERT INTO x.t VALUES (2)", other)
            equal((before, code, count()), (1, 0, 2))


if __name__ == "__main__":
    with Served() as SERVER, tempfile.TemporaryDirectory(prefix="thalweg-attach-") as FOLDER:
        main()
