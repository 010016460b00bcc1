"""psql, as a person and as a script use it. The server is in PGHOST, PGPORT, …"""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

from checks import check, equal, main

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="thalweg-psql-"))


def psql(*commands, stdin=None, fails=False, options=("-At",)):
    command = ["psql", "-X", "-v", "ON_ERROR_STOP=1", *options]
    for text in commands:
        command += ["-c", text]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    if fails:
        if done.returncode == 0:
            raise AssertionError(f"{commands} succeeded: {done.stdout}")
        return done.stderr
    if done.returncode != 0:
        raise AssertionError(f"{commands}: {done.stderr}")
    return done.stdout.rstrip("\n")


@check("queries")
def queries():
    equal(psql("SELECT 1 + 1"), "2")
    equal(psql("SELECT 1; SELECT 2"), "1\n2")
    equal(psql(""), "")
    table = psql("SELECT 1, count(*), 'x' AS y", options=())
    equal(table.splitlines()[0].replace(" ", ""), "?column?|count|y")


@check("types as text")
def types():
    row = psql(
        "SELECT true, 1::smallint, 2, 3::bigint, 1.5::real, 1e20::double, 1.50::decimal(10,2), "
        "'it''s', date '2024-02-29', timestamp '2024-01-01 10:00:00.5', time '01:02:03', "
        "interval '1 month 2 days', X'00ff', [1, 2, NULL], NULL"
    )
    equal(
        row,
        "t|1|2|3|1.5|1e+20|1.50|it's|2024-02-29|2024-01-01 10:00:00.5|01:02:03|1 mon 2 days|"
        "\\x00ff|{1,2,NULL}|",
    )


@check("notices")
def notices():
    def told(*commands):
        command = ["psql", "-X", "-At", "-v", "ON_ERROR_STOP=1"]
        for text in commands:
            command += ["-c", text]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        equal(done.returncode, 0)
        return done.stderr

    psql("CREATE TABLE psql_n (a int)")
    made = told("CREATE INDEX psql_i ON psql_n (a)")
    if "NOTICE:  there are no indexes" not in made or "HINT:" not in made:
        raise AssertionError(made)
    again = "CREATE TABLE IF NOT EXISTS psql_n (a int)"
    equal(told(again), 'NOTICE:  relation "psql_n" already exists, skipping\n')
    equal(told("SET client_min_messages = warning", again), "")
    equal(told("DROP TABLE IF EXISTS psql_m"), 'NOTICE:  table "psql_m" does not exist, skipping\n')
    equal(told("COMMIT"), "WARNING:  there is no transaction in progress\n")
    psql("DROP TABLE psql_n")


@check("changes")
def changes():
    equal(
        psql(
            "CREATE TABLE psql_t (a int, b varchar, c decimal(10,2), d date)",
            "INSERT INTO psql_t VALUES (1, 'x', 1.5, '2024-01-01'), (2, NULL, -0.05, NULL)",
            "UPDATE psql_t SET b = 'y' WHERE a = 1",
            "DELETE FROM psql_t WHERE a = 2 RETURNING a",
            "SELECT * FROM psql_t",
        ),
        "CREATE TABLE\nINSERT 0 2\nUPDATE 1\n2\nDELETE 1\n1|y|1.50|2024-01-01",
    )


@check("errors")
def errors():
    error = psql("SELECT nosuch FROM psql_t", fails=True)
    assert "ERROR" in error and "nosuch" in error, error
    error = psql("\\set VERBOSITY verbose", "SELECT * FROM no_such_table", fails=True)
    assert "42P01" in error and "HINT" in error, error
    assert "42601" in psql("\\set VERBOSITY verbose", "SELEC 1", fails=True)


@check("copy in")
def copy_in():
    psql("CREATE TABLE psql_c (a int, b varchar, d date)")
    equal(psql("COPY psql_c FROM STDIN", stdin="1\ta\\tb\t2024-01-01\n2\t\\N\t\\N\n"), "COPY 2")
    path = FOLDER / "in.csv"
    path.write_text('a,b,d\n3,"say ""hi"",\nyou",2024-02-29\n4,,\n5,"",\n')
    equal(psql(f"\\copy psql_c FROM '{path}' WITH CSV HEADER"), "COPY 3")
    equal(psql("SELECT a, b, d FROM psql_c WHERE a = 3"), '3|say "hi",\nyou|2024-02-29')
    equal(psql("SELECT a FROM psql_c WHERE b IS NULL ORDER BY a"), "2\n4")
    error = psql("COPY psql_c FROM STDIN CSV", stdin="x,y,2024-01-01\n", fails=True)
    assert "line 1" in error and "column a" in error, error
    error = psql("COPY psql_c (a) FROM STDIN", stdin="7\n8\t9\n", fails=True)
    assert "line 2" in error, error
    equal(psql("SELECT count(*) FROM psql_c"), "5")


@check("copy out")
def copy_out():
    path = FOLDER / "out.csv"
    psql(f"\\copy (SELECT a, b FROM psql_c WHERE a < 4 ORDER BY a) TO '{path}' CSV HEADER")
    equal(path.read_text(), 'a,b\n1,a\tb\n2,\n3,"say ""hi"",\nyou"\n')
    equal(psql("COPY (SELECT a, b FROM psql_c WHERE a = 1) TO STDOUT"), "1\ta\\tb")
    binary = FOLDER / "binary"
    psql("CREATE TABLE psql_b AS SELECT * FROM psql_c WHERE false")
    psql(f"\\copy psql_c TO '{binary}' (FORMAT binary)")
    psql(f"\\copy psql_b FROM '{binary}' (FORMAT binary)")
    equal(psql("SELECT count(*) FROM (SELECT * FROM psql_b EXCEPT SELECT * FROM psql_c)"), "0")
    equal(psql("SELECT count(*), sum(a) FROM psql_b"), "5|15")


@check("transactions")
def transactions():
    psql("CREATE TABLE psql_x (a int)")
    equal(
        psql("BEGIN", "INSERT INTO psql_x VALUES (1)", "SELECT count(*) FROM psql_x", "ROLLBACK"),
        "BEGIN\nINSERT 0 1\n1\nROLLBACK",
    )
    # Statements of one message are one transaction.
    psql("INSERT INTO psql_x VALUES (1); INSERT INTO psql_x VALUES (1 / 0)", fails=True)
    psql("BEGIN; INSERT INTO psql_x VALUES (1); SELECT nosuch; COMMIT", fails=True)
    equal(psql("SELECT count(*) FROM psql_x"), "0")
    equal(
        psql(
            "BEGIN", "INSERT INTO psql_x VALUES (1)", "SAVEPOINT s", "INSERT INTO psql_x VALUES (2)",
            "ROLLBACK TO s", "COMMIT", "SELECT a FROM psql_x",
        ).splitlines()[-1],
        "1",
    )


@check("cancel")
def cancel():
    """Ctrl-C."""
    endless = "SELECT count(*) FROM generate_series(1, 100000000000)"
    process = subprocess.Popen(
        ["psql", "-X", "-c", endless], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(1.0)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert "cancel" in error.lower(), error
    assert time.monotonic() - begun < 5
    busy = psql("SELECT count(*) FROM system.queries WHERE query LIKE '%100000000000)'")
    equal(busy, "0")


@check("metadata")
def metadata():
    psql("CREATE SCHEMA psql_s", "CREATE TABLE psql_s.inner_t (x int NOT NULL, y decimal(12,3))")
    psql("CREATE VIEW psql_v AS SELECT 1 AS one")
    tables = psql("\\dt")
    assert "public|psql_t|table" in tables, tables
    assert "psql_v" in psql("\\dv"), psql("\\dv")
    assert "psql_s" in psql("\\dn"), psql("\\dn")
    described = psql("\\d psql_s.inner_t")
    assert "x|integer||not null|" in described and "y|numeric(12,3)|||" in described, described
    assert "one" in psql("\\d+ psql_v"), psql("\\d+ psql_v")
    for command in ("\\d", "\\l", "\\du", "\\df nosuch", "\\di", "\\dT", "\\dp", "\\dx", "\\conninfo"):
        psql(command)
    assert "Did not find any relation" in psql("\\d nosuch", fails=True)


@check("settings")
def settings():
    equal(psql("SET thalweg.policy = 'fifo'", "SHOW thalweg.policy", "RESET thalweg.policy"), "SET\nthalweg.policy|fifo\nRESET")
    equal(psql("SET client_encoding TO 'UTF8'", "SHOW client_encoding"), "SET\nUTF8")
    assert "SET" in psql("SET statement_timeout = '1s'")
    error = psql("SET statement_timeout = 300", "SELECT count(*) FROM generate_series(1, 100000000000)", fails=True)
    assert "cancel" in error.lower() or "time" in error.lower(), error


@check("prepared")
def prepared():
    equal(
        psql("PREPARE p (int) AS SELECT $1 + 1", "EXECUTE p(41)", "DEALLOCATE p").splitlines()[1],
        "42",
    )
    if "psql (PostgreSQL) 16" <= subprocess.run(["psql", "-V"], capture_output=True, text=True).stdout:
        equal(psql("SELECT $1 || $2 \\bind 'a' 'b' \\g"), "ab")


if __name__ == "__main__":
    os.environ.setdefault("PGDATABASE", "thalweg")
    main()
