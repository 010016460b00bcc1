#!/usr/bin/env python3
"""Asks a real PostgreSQL what the files under files/postgresql/ say.

    postgresql.py                 checks every record of every file
    postgresql.py --complete      writes PostgreSQL's answers into the files
    postgresql.py FILE …          only these

Each file is run in a database of its own, on a server that is started for it in a temporary directory
(Debian's package postgresql-15, or the programs in $PG_BIN). A record after a line `# ours` is one where
docs/sql.md says that Thalweg answers differently, and is not asked. Of an error only its code is checked:
a line `# 22012` before the record names it. Needs psycopg 3.
"""

import glob
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from decimal import Decimal

import psycopg

FILES = pathlib.Path(__file__).parent / "files" / "postgresql"
BIN = os.environ.get("PG_BIN") or next(iter(sorted(glob.glob("/usr/lib/postgresql/15/bin"))), None)

# The letter of a column's type, by PostgreSQL's name of the type.
LETTERS = {
    "bool": "B", "date": "D", "time": "D", "int2": "I", "int4": "I", "int8": "I",
    "timestamp": "P", "timestamptz": "P", "float4": "R", "float8": "R", "numeric": "R",
    "text": "T", "varchar": "T", "bpchar": "T", "name": "T", "unknown": "T",
}


class Server:
    """A server on a Unix socket, gone with its directory."""

    # As `postgres` takes them.
    settings = "-c listen_addresses=''"

    def __enter__(self):
        if BIN is None:
            sys.exit("there is no PostgreSQL 15: install Debian's package postgresql-15, or set PG_BIN")
        self.folder = tempfile.mkdtemp(prefix="thalweg-postgresql-")
        # The server does not run as root.
        self.user = []
        if os.geteuid() == 0:
            name = "postgres"
            ids = pwd.getpwnam(name)
            os.chown(self.folder, ids.pw_uid, ids.pw_gid)
            self.user = ["runuser", "-u", name, "--"]
        self.run("initdb", "-D", f"{self.folder}/data", "-A", "trust", "--lc-collate=C", "--lc-ctype=C.UTF-8", "-E", "UTF8", "-U", "thalweg")
        options = f"{self.settings} -k {self.folder} -c fsync=off -c timezone=UTC"
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", f"{self.folder}/log", "-o", options, "start")
        return self

    def run(self, program, *arguments):
        command = [*self.user, f"{BIN}/{program}", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def __exit__(self, *_):
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database):
        return psycopg.connect(host=self.folder, user="thalweg", dbname=database, autocommit=True)


class Record:
    """One record of a file: its lines as they are, and what they say."""

    def __init__(self, lines):
        self.comments = [line for line in lines if line.startswith("#")]
        lines = [line for line in lines if not line.startswith("#")]
        self.head, body = lines[0], lines[1:]
        at = body.index("----") if "----" in body else len(body)
        self.sql = "\n".join(body[:at])
        self.expected = body[at + 1 :] if at < len(body) else None

    def text(self):
        lines = [*self.comments, self.head, self.sql]
        if self.expected is not None:
            lines += ["----", *self.expected]
        return "\n".join(lines)

    @property
    def is_query(self):
        return self.head.startswith("query")


def records(text):
    """The paragraphs of a file; one of comments alone is kept as text."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        yield Record(lines) if any(not line.startswith("#") for line in lines) else paragraph


def value(raw, kind):
    """As the runner of these files prints it."""
    if raw is None:
        return "NULL"
    if kind == "bool":
        return {"t": "true", "f": "false"}[raw]
    if kind in ("float4", "float8"):
        number = float(raw)
        if number != number or number in (float("inf"), float("-inf")):
            return raw
        if number != 0 and not 1e-5 <= abs(number) < 1e16:
            mantissa, _, exponent = f"{number!r}".partition("e")
            return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
        return f"{Decimal(repr(number)):f}".removesuffix(".0")
    if kind in ("time", "timestamp", "timestamptz"):
        raw = re.sub(r"\.\d+", lambda m: m[0].ljust(4 if len(m[0]) <= 4 else 7, "0"), raw)
    if kind in ("timestamp", "timestamptz"):
        raw = re.sub(r"\+00$", "Z", raw.replace(" ", "T"))
        return re.sub(r"([+-]\d\d)$", r"\1:00", raw)
    if kind == "array" and '"' not in raw:
        return raw.replace(",", ", ").replace("{", "[").replace("}", "]")
    return raw.replace("\n", "\\n") if raw else "(empty)"


def ask(connection, record):
    """PostgreSQL's answer: the type letters and the rows, or an error's code."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(record.sql.encode())
        except psycopg.Error as e:
            return e.sqlstate, str(e).split("\n")[0]
        result = cursor.pgresult
        if result is None or result.nfields == 0:
            return None, None
        oids = [result.ftype(i) for i in range(result.nfields)]
        types = [connection.adapters.types.get(oid) for oid in oids]
        # A type is found by the id of its arrays as well.
        names = [
            "array" if t and t.array_oid == oid else t.name if t else "other"
            for t, oid in zip(types, oids)
        ]
        rows = []
        for row in range(result.ntuples):
            raw = [result.get_value(row, i) for i in range(result.nfields)]
            texts = [None if v is None else v.decode() for v in raw]
            rows.append([value(text, name) for text, name in zip(texts, names)])
        return "".join(LETTERS.get(name, "?") for name in names), rows


def sorted_as(head, rows):
    return [" ".join(row) for row in (sorted(rows) if "rowsort" in head else rows)]


def check(path, server, complete):
    name = path.stem
    with server.connect("postgres") as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}"')
        admin.execute(f'CREATE DATABASE "{name}"')
    failures, count, out = 0, 0, []
    with server.connect(name) as connection:
        for record in records(path.read_text()):
            if isinstance(record, str):
                out.append(record)
                continue
            out.append(record)
            if "# ours" in record.comments:
                continue
            count += 1
            letters, rows = ask(connection, record)
            is_error = letters is not None and rows is not None and isinstance(rows, str)
            if record.is_query and not is_error and letters is not None:
                lines = sorted_as(record.head, rows)
                words = record.head.split()
                if complete:
                    words[1:2] = [letters]
                    record.head, record.expected = " ".join(words), lines
                elif (record.expected or []) != lines:
                    failures += 1
                    print(f"{path.name}: {record.sql}\n  file:       {record.expected}\n  PostgreSQL: {lines}")
                continue
            wants_error = record.head.startswith("statement error")
            if is_error != wants_error or (record.is_query and is_error):
                failures += 1
                print(f"{path.name}: {record.sql}\n  PostgreSQL: {rows if is_error else 'no error'}")
            elif is_error:
                codes = [c[2:] for c in record.comments if re.fullmatch(r"# [0-9A-Z]{5}", c)]
                if codes and codes != [letters]:
                    failures += 1
                    print(f"{path.name}: {record.sql}\n  file:       {codes}\n  PostgreSQL: {letters}")
    if complete:
        texts = [r if isinstance(r, str) else r.text() for r in out]
        path.write_text("\n\n".join(texts) + "\n")
    return failures, count


def main():
    arguments = sys.argv[1:]
    complete = "--complete" in arguments
    paths = [pathlib.Path(a) for a in arguments if a != "--complete"] or sorted(FILES.glob("*.slt"))
    failures = count = 0
    with Server() as server:
        for path in paths:
            failed, asked = check(path, server, complete)
            failures, count = failures + failed, count + asked
    print(f"{count - failures} passed, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
