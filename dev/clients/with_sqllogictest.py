"""sqllogictest-bin against the server, with SQLite as the judge.

    with_sqllogictest.py SQLLOGICTEST [--seed N] [--queries N] [--write FOLDER]

Makes up tables and queries by chance, asks the SQLite that is in Python what they give, and writes
both down as SQLite's own tests are written: a value to a line, long results as a hash. Then the
program SQLLOGICTEST asks the server, in the simple and in the extended protocol. What the two
systems mean differently is not asked: divisions by zero (an error here), booleans as values, AVG.
"""

import argparse
import hashlib
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile

HASH_ABOVE = 8
TABLES = {"t1": ["a", "b", "c", "d"], "t2": ["e", "f", "g"], "t3": ["h", "i"]}
WORDS = ["", "x", "abc", "Zebra", "it''s", "1", "größe"]


class Maker:
    """Queries that both systems understand in the same way."""

    def __init__(self, rng):
        self.rng = rng

    def one_of(self, *makers):
        return self.rng.choice(makers)()

    def number(self, columns, depth):
        """Of at most a few million, so that nothing overflows."""
        rng = self.rng
        column = lambda: rng.choice(columns)
        literal = lambda: str(rng.randrange(-20, 21))
        if depth == 0:
            return self.one_of(column, column, literal)
        deeper = lambda: self.number(columns, depth - 1)
        return self.one_of(
            column,
            lambda: f"({deeper()} + {deeper()})",
            lambda: f"({deeper()} - {deeper()})",
            lambda: f"({column()} * {literal()})",
            lambda: f"({deeper()} / {rng.choice([2, 3, -7])})",
            lambda: f"({deeper()} % {rng.choice([2, 5, 11])})",
            lambda: f"- ({deeper()})",
            lambda: f"abs({deeper()})",
            lambda: f"coalesce({deeper()}, {deeper()})",
            lambda: f"nullif({deeper()}, {literal()})",
            lambda: f"CASE WHEN {self.condition(columns, depth - 1)} THEN {deeper()} ELSE {deeper()} END",
            lambda: f"CASE {column()} WHEN {literal()} THEN {deeper()} END",
        )

    def condition(self, columns, depth, where=False):
        """`where`: subqueries may be in it. In a list of results the server knows none of IN."""
        rng = self.rng
        number = lambda: self.number(columns, max(depth - 1, 0))
        compare = lambda: f"{number()} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {number()}"
        if depth == 0:
            return compare()
        deeper = lambda: self.condition(columns, depth - 1, where)
        table = rng.choice(list(TABLES))
        inner = rng.choice(TABLES[table])
        makers = [
            compare,
            lambda: f"({deeper()} AND {deeper()})",
            lambda: f"({deeper()} OR {deeper()})",
            lambda: f"NOT ({deeper()})",
            lambda: f"{number()} {rng.choice(['', 'NOT '])}BETWEEN {number()} AND {number()}",
            lambda: f"{number()} {rng.choice(['', 'NOT '])}IN ({number()}, {number()}, {number()})",
            lambda: f"{number()} IS {rng.choice(['', 'NOT '])}NULL",
        ]
        if where:
            makers += [
                lambda: f"{rng.choice(columns)} {rng.choice(['', 'NOT '])}IN (SELECT {inner} FROM {table})",
                lambda: f"EXISTS (SELECT 1 FROM {table} AS q WHERE q.{inner} = {rng.choice(columns)})",
                lambda: f"{number()} < (SELECT max({inner}) FROM {table})",
            ]
        return self.one_of(*makers)

    def source(self):
        """A FROM, and the columns of numbers in it."""
        rng = self.rng
        first, second = rng.sample(list(TABLES), 2)
        named = lambda table: [f"{table}.{column}" for column in TABLES[table]]
        both = named(first) + named(second)
        on = lambda: f"{rng.choice(named(first))} = {rng.choice(named(second))}"
        return self.one_of(
            lambda: (first, TABLES[first]),
            lambda: (f"{first}, {second}", both),
            lambda: (f"{first} CROSS JOIN {second}", both),
            lambda: (f"{first} JOIN {second} ON {on()}", both),
            lambda: (f"{first} LEFT JOIN {second} ON {on()}", both),
            lambda: (f"(SELECT {TABLES[first][0]} AS y, {TABLES[first][1]} + 1 AS z FROM {first}) AS s", ["y", "z"]),
        )

    def aggregate(self, columns):
        number = lambda: self.number(columns, 1)
        return self.one_of(
            lambda: "count(*)",
            lambda: f"count({number()})",
            lambda: f"count(DISTINCT {number()})",
            lambda: f"sum({number()})",
            lambda: f"min({number()})",
            lambda: f"max({number()})",
            lambda: f"sum(CASE WHEN {self.condition(columns, 1)} THEN 1 ELSE 0 END)",
        )

    def query(self):
        """Its text and how many columns it gives."""
        rng = self.rng
        source, columns = self.source()
        where = f" WHERE {self.condition(columns, rng.randrange(3), where=True)}" if rng.random() < 0.7 else ""
        count = rng.randrange(1, 4)
        kind = rng.randrange(6)
        if kind == 0:
            values = ", ".join(self.aggregate(columns) for _ in range(count))
            return f"SELECT {values} FROM {source}{where}", count
        if kind == 1:
            # No bare number: that would be the place of a column.
            key = f"({rng.choice(columns)} + {self.number(columns, 1)})"
            values = ", ".join([key] + [self.aggregate(columns) for _ in range(count)])
            having = f" HAVING count(*) > {rng.randrange(3)}" if rng.random() < 0.4 else ""
            return f"SELECT {values} FROM {source}{where} GROUP BY {key}{having}", count + 1
        values = ", ".join(self.number(columns, 2) for _ in range(count))
        distinct = "DISTINCT " if kind == 2 else ""
        query = f"SELECT {distinct}{values} FROM {source}{where}"
        if kind == 3:
            other, others = self.source()
            values = ", ".join(self.number(others, 1) for _ in range(count))
            word = rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
            query += f" {word} SELECT {values} FROM {other}"
        if kind == 4:
            # All columns, so that the order is one.
            order = ", ".join(f"{i + 1}{rng.choice(['', ' DESC'])} NULLS FIRST" for i in range(count))
            query += f" ORDER BY {order} LIMIT {rng.randrange(1, 9)}"
        return query, count


def value(v):
    """As sqllogictest writes it."""
    if v is None:
        return "NULL"
    return str(v) if v != "" else "(empty)"


def expected(rows):
    rows = sorted([value(v) for v in row] for row in rows)
    lines = [v for row in rows for v in row]
    if len(lines) <= HASH_ABOVE:
        return lines
    digest = hashlib.md5("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    return [f"{len(lines)} values hashing to {digest}"]


def statements(rng):
    """What makes the tables: inserts, changes, a view."""
    number = lambda: "NULL" if rng.random() < 0.15 else str(rng.randrange(-30, 31))
    for table, columns in TABLES.items():
        yield f"CREATE TABLE {table} ({', '.join(f'{c} INTEGER' for c in columns)}, w VARCHAR(30))"
        for _ in range(rng.randrange(3, 9)):
            row = lambda: f"({', '.join(number() for _ in columns)}, '{rng.choice(WORDS)}')"
            yield f"INSERT INTO {table} VALUES {', '.join(row() for _ in range(rng.randrange(1, 4)))}"
        column = rng.choice(columns)
        yield f"UPDATE {table} SET {column} = {column} + 1 WHERE {rng.choice(columns)} > {number().replace('NULL', '3')}"
        yield f"DELETE FROM {table} WHERE {rng.choice(columns)} = {rng.randrange(-30, 31)}"


def script(seed, queries):
    """A test in the form of SQLite's."""
    rng = random.Random(seed)
    maker = Maker(rng)
    judge = sqlite3.connect(":memory:")
    lines = [f"# Seed {seed}", "control resultmode valuewise", "", f"hash-threshold {HASH_ABOVE}", ""]
    for table in TABLES:
        lines += ["statement ok", f"DROP TABLE IF EXISTS {table}", ""]
    for sql in statements(rng):
        judge.execute(sql)
        lines += ["statement ok", sql, ""]
    for _ in range(queries):
        query, count = maker.query()
        lines += [f"query {'I' * count} rowsort", query, "----", *expected(judge.execute(query)), ""]
    for table in TABLES:
        query = f"SELECT w, count(*), w || '!' FROM {table} WHERE w < 'y' GROUP BY w"
        lines += ["query TIT rowsort", query, "----", *expected(judge.execute(query)), ""]
    for wrong in ("SELECT nosuch FROM t1", "SELECT * FROM nosuch", "INSERT INTO t1 VALUES (1, 2, 3, 4, 5, 6, 7, 8, 9)", "SELECT FROM WHERE"):
        lines += ["statement error", wrong, ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--write", type=pathlib.Path, help="keep the tests in this folder")
    options = parser.parse_args()
    environment = os.environ
    connection = ["--host", environment["PGHOST"], "--port", environment["PGPORT"]]
    connection += ["--db", environment.get("PGDATABASE", "thalweg"), "--user", environment.get("PGUSER", "thalweg")]
    # In one word: a password may begin with "-".
    connection += [f"--pass={environment.get('PGPASSWORD', '')}"]
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.write or pathlib.Path(scratch)
        folder.mkdir(exist_ok=True)
        for i, (engine, feature) in enumerate((("postgres", "queries"), ("postgres-extended", "prepared"))):
            seed = options.seed + i
            test = folder / f"seed-{seed}.test"
            test.write_text(script(seed, options.queries))
            command = [options.tool, "--engine", engine, "--color", "never", *connection, test]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode == 0:
                print(f"ok {feature}: {options.queries} queries by chance give what SQLite gives ({engine}, seed {seed})", flush=True)
            else:
                failed = True
                print(run.stdout, run.stderr, file=sys.stderr)
                print(f"FAILED {feature}: {engine}, seed {seed}: differs from SQLite", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
