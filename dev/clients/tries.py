"""What is tried against a running server by who is not let in, and by who may do little, and what
each gets. The server is in PGHOST, PGPORT, PGUSER (a superuser), …; it asks for passwords over TLS.

Strangers' tries are in strangers.py. Here PGUSER makes a table with a secret and a role without any
rights, mallory, who then tries to get at it. Prints a line per try; THALWEG_TRIES names a file for
the Markdown table. What it makes it drops again.
"""

import os
import pathlib
import re
import sys

import psycopg
import strangers
from strangers import OK
from wire import Refused, Wire

SECRET = "attack at dawn"
PASSWORD = "mallory's own"

MADE = [
    f"CREATE TABLE tries_secret AS SELECT '{SECRET}' AS plan, 42 AS n",
    "CREATE SCHEMA tries_closed",
    f"CREATE TABLE tries_closed.t AS SELECT '{SECRET}' AS plan",
    "CREATE VIEW tries_view AS SELECT plan FROM tries_secret",
    "CREATE VIEW tries_file AS SELECT 1 AS n",
    "CREATE TABLE tries_inbox (note VARCHAR)",
    "CREATE WORKLOAD tries_fast (weight = 1000)",
    "CREATE ROLE tries_eve LOGIN PASSWORD 'eve'",
    f"CREATE ROLE mallory LOGIN PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'",
    "GRANT INSERT ON tries_inbox TO mallory",
    *(
        f"CREATE ROLE {victim} LOGIN PASSWORD '{strangers.VICTIMS_PASSWORD.replace(chr(39), chr(39) * 2)}'"
        for victim in strangers.VICTIMS
    ),
]
DROPPED = [
    "DROP VIEW tries_view",
    "DROP VIEW tries_file",
    "DROP TABLE tries_secret",
    "DROP TABLE tries_inbox",
    "DROP SCHEMA tries_closed CASCADE",
    "DROP WORKLOAD tries_fast",
    "DROP ROLE mallory",
    "DROP ROLE tries_eve",
    *(f"DROP ROLE {victim}" for victim in strangers.VICTIMS),
]

DENIED = "42501"

# Statement, and the SQLSTATE that is wanted. `ok` may answer anything but the secret.
TRIES = [
    ("SELECT * FROM tries_secret", DENIED),
    ("SELECT count(*) FROM tries_secret", DENIED),
    ("SELECT * FROM thalweg.public.tries_secret", DENIED),
    ('SELECT * FROM "tries_secret" AS innocent', DENIED),
    ("TABLE tries_secret", "not ok"),
    ("SELECT (SELECT max(plan) FROM tries_secret)", DENIED),
    ("SELECT 1 WHERE EXISTS (SELECT 1 FROM tries_secret)", DENIED),
    ("WITH x AS (SELECT * FROM tries_secret) SELECT 1", DENIED),
    ("SELECT 1 AS plan UNION ALL (WITH tries_secret AS (SELECT 2 AS plan) SELECT plan FROM tries_secret)", OK),
    ("SELECT n FROM tries_secret UNION ALL (WITH tries_secret AS (SELECT 2 AS n) SELECT n FROM tries_secret)", DENIED),
    ("SELECT * FROM tries_view", DENIED),
    ("SELECT * FROM tries_closed.t", DENIED),
    ("EXPLAIN SELECT * FROM tries_secret", DENIED),
    ("EXPLAIN ANALYZE SELECT * FROM tries_secret", DENIED),
    ("PREPARE p AS SELECT * FROM tries_secret", DENIED),
    ("CREATE VIEW tries_mine AS SELECT * FROM tries_secret", DENIED),
    ("CREATE TABLE tries_mine AS SELECT * FROM tries_secret", DENIED),
    ("CREATE TABLE tries_mine (n INT)", DENIED),
    ("CREATE SCHEMA tries_mine", DENIED),
    ("INSERT INTO tries_inbox VALUES ('hello')", OK),
    ("INSERT INTO tries_inbox SELECT plan FROM tries_secret", DENIED),
    ("INSERT INTO tries_inbox VALUES ('x') RETURNING note", DENIED),
    ("SELECT * FROM tries_inbox", DENIED),
    ("INSERT INTO tries_secret VALUES ('x', 1)", DENIED),
    ("UPDATE tries_secret SET n = 0", DENIED),
    ("DELETE FROM tries_secret", DENIED),
    ("TRUNCATE tries_secret", DENIED),
    ("MERGE INTO tries_inbox USING tries_secret s ON false WHEN NOT MATCHED THEN INSERT VALUES (s.plan)", DENIED),
    ("DROP TABLE tries_secret", DENIED),
    ("DROP SCHEMA tries_closed CASCADE", DENIED),
    ("ALTER TABLE tries_secret RENAME TO tries_taken", DENIED),
    ("ALTER TABLE tries_secret OWNER TO mallory", DENIED),
    ("GRANT SELECT ON tries_secret TO mallory", DENIED),
    ("GRANT pg_read_all_data TO mallory", DENIED),
    ("GRANT thalweg TO mallory", DENIED),
    ("REASSIGN OWNED BY thalweg TO mallory", DENIED),
    ("SET ROLE thalweg", DENIED),
    ("SET ROLE tries_eve", DENIED),
    ("SET SESSION AUTHORIZATION thalweg", "0A000"),
    ("ALTER ROLE mallory SUPERUSER", DENIED),
    ("ALTER ROLE tries_eve PASSWORD 'x'", DENIED),
    ("ALTER ROLE thalweg PASSWORD 'x'", DENIED),
    ("ALTER ROLE tries_eve ADD TOKEN 'x'", DENIED),
    ("CREATE ROLE tries_mine SUPERUSER", DENIED),
    ("DROP ROLE tries_eve", DENIED),
    ("SELECT * FROM '/etc/passwd'", DENIED),
    ("SELECT * FROM '/etc/*.conf'", DENIED),
    ("SELECT * FROM 's3://bucket/key.parquet'", DENIED),
    ("COPY tries_inbox FROM '/etc/passwd' (FORMAT csv)", DENIED),
    ("COPY (SELECT 1) TO '/tmp/tries.csv'", DENIED),
    ("CREATE EXTERNAL TABLE tries_mine STORED AS CSV LOCATION '/etc/passwd'", DENIED),
    ("COPY tries_secret TO STDOUT", DENIED),
    ("SET thalweg.policy = 'fifo'", DENIED),
    ("SET thalweg.memory_limit = '16MiB'", DENIED),
    ("SET thalweg.max_running = 1", DENIED),
    ("SET thalweg.retention_ms = 0", DENIED),
    ("SET datafusion.runtime.temp_directory = '/etc'", DENIED),
    ("SET thalweg.workload = 'tries_fast'", DENIED),
    ("ALTER WORKLOAD tries_fast (weight = 1)", DENIED),
    ("DROP WORKLOAD tries_fast", DENIED),
    ("VACUUM", DENIED),
    ("OPTIMIZE TABLE tries_secret", DENIED),
    ("SELECT * FROM system.columns", OK),
    ("SELECT * FROM system.chunks", OK),
    ("SELECT * FROM system.snapshots", DENIED),
    ("SELECT query FROM system.query_log", OK),
    ("SELECT * FROM system.queries", OK),
    ("SELECT * FROM system.roles WHERE has_password AND role_name <> 'mallory'", OK),
    ("SELECT * FROM information_schema.columns", OK),
    ("SHOW ALL", OK),
]


STATEMENTS = {sql for sql, _ in TRIES}


def steady(message):
    """Without what is another at each run: numbers of queries, of snapshots, of seconds."""
    return re.sub(r"\b(query|snapshot|wait) \d+", r"\1 …", message)


def connect(user, password):
    return psycopg.connect(user=user, password=password, dbname="thalweg", autocommit=True)


def answer(connection, sql):
    """The SQLSTATE, or ok; the message; and all that came back, as text."""
    try:
        with connection.cursor() as cursor:
            if " TO STDOUT" in sql:
                with cursor.copy(sql) as copy:
                    rows = [bytes(row).decode() for row in copy]
            else:
                cursor.execute(sql)
                rows = cursor.fetchall() if cursor.description else []
        return OK, f"{len(rows)} rows", str(rows)
    except psycopg.Error as error:
        message = str(error).strip()
        return error.sqlstate or type(error).__name__, message.splitlines()[0], message


def is_wanted(wanted, state, text):
    if SECRET in text or PASSWORD in text or "SCRAM-SHA-256$" in text:
        return False
    return state != OK if wanted == "not ok" else state == wanted


def as_mallory(*messages, **parameters):
    """What the server says to messages that no library sends; parameters are those of the start."""
    with Wire() as wire:
        wire.login("mallory", PASSWORD, **parameters)
        if not messages:
            return wire.query("SELECT plan FROM tries_secret")
        for kind, body in messages:
            wire.message(kind, body)
        return wire.until(b"Z")


def others(admin, mallory):
    """What is no statement of hers: what it is, what is wanted, what came of it."""
    number = admin.execute("SELECT max(query_id) FROM system.query_log").fetchone()[0]
    snapshot = admin.execute("SELECT max(snapshot) FROM system.snapshots").fetchone()[0]
    past = f"SELECT * FROM tries_secret VERSION AS OF {snapshot}"
    yield "the secret's table AS OF the last snapshot", DENIED, answer(mallory, past)
    yield "KILL QUERY of one that is over", "not ok", answer(mallory, f"KILL QUERY {number}")
    wire = lambda *messages, **parameters: strangers.answer(lambda: as_mallory(*messages, **parameters))
    yield "to connect with role=thalweg", "not ok", wire(role="thalweg")
    yield "to connect with options=-crole=thalweg", "not ok", wire(options="-crole=thalweg")
    yield "to connect with session_authorization=thalweg", "not ok", wire(session_authorization="thalweg")
    yield "to connect as a replica", "not ok", wire(replication="true")
    yield "an unknown kind of message", "not ok", wire((b"\xff", b"\xff"))
    yield "a function call by its number", "not ok", wire((b"F", b"\0\0\0\1\0\0\0\0\0\0"))
    yield "COPY data without COPY", OK, wire((b"d", b"x"), (b"c", b""), (b"S", b""))
    yield "to run a statement of another's name", "not ok", wire((b"B", b"\0stolen\0" + bytes(6)), (b"S", b""))
    announced = strangers.answer(oversized)
    yield "a statement that is said to have 1 GiB", "not ok", announced


def oversized():
    with Wire() as wire:
        wire.login("mallory", PASSWORD)
        wire.send(b"Q" + (1 << 30).to_bytes(4, "big") + b"SELECT 1")
        return wire.until(b"Z")


def main():
    admin = connect(os.environ["PGUSER"], os.environ["PGPASSWORD"])
    for sql in DROPPED:
        answer(admin, sql)
    for sql in MADE:
        admin.execute(sql)
    wrong = 0
    table = ["| who | tries | answer |", "| --- | --- | --- |"]

    def line(who, what, wanted, found):
        nonlocal wrong
        state, message, text = found
        if is_wanted(wanted, state, text):
            print(f"ok {what}", flush=True)
        else:
            wrong += 1
            print(f"FAILED {what}: {state} {message}, wanted: {wanted}", flush=True)
        said = f"{state}: {steady(message)}" if message and state != OK else state
        cells = [who, f"`{what}`" if what in STATEMENTS else what, said]
        table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")

    try:
        for what, wanted, function in strangers.TRIES:
            line("a stranger", what, wanted, strangers.answer(function))
        with connect("mallory", PASSWORD) as mallory:
            for sql, wanted in TRIES:
                line("mallory", sql, wanted, answer(mallory, sql))
            for what, wanted, found in others(admin, mallory):
                line("mallory", what, wanted, found)
        left = answer(admin, "SELECT plan, n FROM tries_secret")
        if left[2] != str([(SECRET, 42)]):
            left = "changed", left[2], ""
        line("the owner", "what is left of the secret", OK, (left[0], left[1], ""))
    finally:
        for sql in DROPPED:
            answer(admin, sql)
    if "THALWEG_TRIES" in os.environ:
        pathlib.Path(os.environ["THALWEG_TRIES"]).write_text("\n".join(table))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
