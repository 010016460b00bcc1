"""What an unprivileged client tries against a running server, and what it gets.

    python dev/clients/tries.py HOST PORT [--admin NAME] [--admin-password X] [--tls]

The admin makes a table with a secret and a role without any rights, mallory, who then tries to get
at it. Prints a Markdown table: try, answer, whether it is as wanted; exits with 1 if one is not.
Needs psycopg 3, and a server started with --auth scram. What it makes it drops again.
"""

import argparse
import sys

import psycopg

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
]

DENIED = "42501"
OK = "ok"

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
    ("SELECT * FROM tries_secret VERSION AS OF 1", "not ok"),
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


def connect(options, user, password):
    return psycopg.connect(
        host=options.host,
        port=options.port,
        user=user,
        password=password,
        dbname="thalweg",
        sslmode="require" if options.tls else "disable",
        autocommit=True,
    )


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


def others(options, admin, mallory):
    """A query that is not hers, and names that are not: what, what came of it, what is wanted."""
    number = admin.execute("SELECT max(query_id) FROM system.query_log").fetchone()[0]
    yield "KILL QUERY of one that is over", answer(mallory, f"KILL QUERY {number}"), "not ok"
    for user, password, what in [
        ("thalweg", "guess", "log in as thalweg with a guess"),
        ("nosuch", "guess", "log in as nobody there is"),
        ("mallory", "", "log in without a password"),
        ("mallory", PASSWORD.upper(), "log in with the password in another case"),
    ]:
        try:
            connect(options, user, password or None).close()
            found = (OK, "let in", "")
        except psycopg.Error as error:
            lines = str(error).strip().splitlines()
            found = (error.sqlstate or "refused", lines[-1], "")
        yield what, found, "not ok"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--admin", default="thalweg")
    parser.add_argument("--admin-password")
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    admin = connect(options, options.admin, options.admin_password)
    for sql in DROPPED:
        answer(admin, sql)
    for sql in MADE:
        admin.execute(sql)
    wrong = 0
    print("| try | answer | as wanted |\n|---|---|---|")

    def line(what, found, wanted):
        nonlocal wrong
        state, message, text = found
        fits = is_wanted(wanted, state, text)
        wrong += not fits
        cells = [f"`{what}`", f"{state}: {message}", "yes" if fits else f"**no** ({wanted})"]
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")

    try:
        with connect(options, "mallory", PASSWORD) as mallory:
            for sql, wanted in TRIES:
                line(sql, answer(mallory, sql), wanted)
            for what, found, wanted in others(options, admin, mallory):
                line(what, found, wanted)
        left = answer(admin, "SELECT plan, n FROM tries_secret")
        line("what is left of the secret table", (left[0], left[1], ""), OK)
    finally:
        for sql in DROPPED:
            answer(admin, sql)
    print(f"\n{len(TRIES) + 6} tries, {wrong} not as wanted", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
