"""SQLite's sqllogictest corpus against the server, over the PostgreSQL protocol.

    corpus.py THALWEG FOLDER [--every N [--from I]] [--queries N] [--postgresql] [--jobs N]
              [--extended] [--show N] [--log FILE]

FOLDER holds the corpus, or any .test files of its dialect: https://www.sqlite.org/sqllogictest, of
which Git mirrors exist. Each file runs on a server of its own; files are only read. With --every
only each N-th file of a folder runs, beginning with its I-th, and with --queries only each N-th
query of a file. Prints a line per file, then two tables: of each part of the corpus, how many
records gave what SQLite gave; and of the others, why not, with --show of each. Exits with 1 if one
differs in a way that nothing explains.

What explains a difference: an entry of REASONS; a statement before it that was refused; or, with
--postgresql, that a real PostgreSQL 15 gives the same answer as the server. It is started for the
run (Debian's package postgresql-15), gets every statement that changes something, and each query
whose answer is another one than SQLite's.
"""

import argparse
import collections
import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import select
import sys
import time

import install
from server import Server

try:
    import psycopg
except ImportError:
    psycopg = None  # then main looks for an interpreter that has it

HERE = pathlib.Path(__file__).parent
# The files are in PostgreSQL's variant where they have one.
LABEL = "postgresql"
# After which a statement counts as one that hangs. A debug binary on a busy machine may take some time.
STATEMENT_SECONDS = 120

# Why an answer is another one: a name, and what the SQL and the server's answer must contain. What
# is as in PostgreSQL is checked by --postgresql, and named here by what it is about.
REASONS = [
    ("there are no unique indexes", r"^\s*CREATE\s+UNIQUE\s+INDEX|^\s*REINDEX", ""),
    ("indexes are not kept, so one that is there already, or is not there, is no error", r"^\s*(CREATE|DROP)\s+INDEX", ""),
    ("there are no triggers", r"TRIGGER", ""),
    ("there is no REPLACE, and no key by which a row would be replaced", r"REPLACE", ""),
    ("unary plus takes no text, as in PostgreSQL", r"\+", r"Unary operator '\\?\+'|operator does not exist: \+"),
    ("IN takes no empty list, as in PostgreSQL", r"IN\s*\(\s*\)", r"syntax error"),
    ("a column is assigned twice, as in PostgreSQL", r"UPDATE", r"assigned twice|multiple assignments"),
    ("division by zero is an error, as in PostgreSQL", r"/|%", r"[Dd]ivi\w+ by zero"),
]

REFUSED_BEFORE = "it follows from a statement that was refused"


class Record:
    """A statement or a query of a file: whether it is for others, its first line, its SQL, what it gives."""

    def __init__(self, skipped, head, sql, results):
        self.skipped, self.head, self.sql, self.results = skipped, head, sql, results
        self.is_query = head.startswith("query")


def records(text):
    lines = text.replace("\r\n", "\n").split("\n")
    at, skipped = 0, False
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if words[0] == "halt":
            if not skipped:
                return
            skipped = False
        elif words[0] in ("skipif", "onlyif"):
            skipped |= (words[1] == LABEL) == (words[0] == "skipif")
        elif words[0] in ("statement", "query"):
            begun = at
            while at < len(lines) and lines[at].strip() and lines[at] != "----":
                at += 1
            sql = "\n".join(lines[begun:at])
            results = []
            if at < len(lines) and lines[at] == "----":
                at += 1
                begun = at
                while at < len(lines) and lines[at].strip():
                    at += 1
                results = lines[begun:at]
            yield Record(skipped, line, sql, results)
            skipped = False


class Answer:
    """Rows of texts with the OIDs of their columns' types; or an error with its SQLSTATE."""

    def __init__(self, types=(), rows=(), error=None, code=None):
        self.types, self.rows, self.error, self.code = types, rows, error, code


class Gone(Exception):
    """The server has ended, or does not answer."""


class Wire:
    """A connection by libpq. Its own calls, since nothing but texts is asked for."""

    def __init__(self, conninfo, extended=False):
        pq = psycopg.pq
        self.pq, self.extended = pq, extended
        self.connection = pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise Gone(self.connection.get_error_message())
        self.connection.nonblocking = 1

    def ask(self, sql):
        connection, status = self.connection, self.pq.ExecStatus
        try:
            if self.extended:
                connection.send_query_params(sql.encode(), None)
            else:
                connection.send_query(sql.encode())
            connection.flush()
            until = time.monotonic() + STATEMENT_SECONDS
            last = None
            while True:
                while connection.is_busy():
                    left = until - time.monotonic()
                    if left <= 0 or not select.select([connection.socket], [], [], left)[0]:
                        raise Gone(f"no answer within {STATEMENT_SECONDS} s")
                    connection.consume_input()
                result = connection.get_result()
                if result is None:
                    return last
                if result.status in (status.TUPLES_OK, status.COMMAND_OK, status.EMPTY_QUERY):
                    columns = range(result.nfields)
                    value = result.get_value
                    rows = [[value(row, column) for column in columns] for row in range(result.ntuples)]
                    last = Answer([result.ftype(column) for column in columns], rows)
                else:
                    field = lambda which: (result.error_field(which) or b"").decode(errors="replace")
                    kinds = self.pq.DiagnosticField
                    last = Answer(error=field(kinds.MESSAGE_PRIMARY), code=field(kinds.SQLSTATE))
        except psycopg.OperationalError as error:
            raise Gone(str(error)) from None

    def close(self):
        self.connection.finish()


BOOL = 16
UNPRINTABLE = re.compile(r"[^ -~]")
INTEGER = re.compile(r"-?\d+")


def formatted(value, kind, oid):
    """As SQLite's runner writes it: what is asked for as an integer or a number is one."""
    if value is None:
        return "NULL"
    value = value.decode()
    if oid == BOOL:
        value = "1" if value == "t" else "0"
    if kind == "T":
        return UNPRINTABLE.sub("@", value) or "(empty)"
    if kind == "I" and INTEGER.fullmatch(value):
        return value
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if kind == "R":
        return f"{number:.3f}"
    return str(int(number)) if number == number and abs(number) != float("inf") else value


def values(record, answer):
    """The values of an answer in the form of the test, or None if its columns are others."""
    words = record.head.split()
    kinds = words[1]
    sort = words[2] if len(words) > 2 else "nosort"
    if len(kinds) != len(answer.types):
        return None
    of_columns = list(zip(kinds, answer.types))
    rows = [[formatted(value, *column) for value, column in zip(row, of_columns)] for row in answer.rows]
    if sort == "rowsort":
        rows.sort()
    found = [value for row in rows for value in row]
    if sort == "valuesort":
        found.sort()
    return found


def is_same(record, answer):
    """Whether the server's answer is SQLite's."""
    if not record.is_query:
        return (answer.error is not None) == record.head.startswith("statement error")
    if answer.error is not None:
        return False
    found = values(record, answer)
    if found is not None and len(record.results) == 1 and " values hashing to " in record.results[0]:
        digest = hashlib.md5("".join(f"{value}\n" for value in found).encode()).hexdigest()
        found = [f"{len(found)} values hashing to {digest}"]
    return record.results == found


def is_alike(record, ours, theirs):
    """Whether PostgreSQL's answer is the server's: the same rows, or an error of both."""
    if ours.error is not None or theirs.error is not None:
        return ours.error is not None and theirs.error is not None
    return not record.is_query or values(record, ours) == values(record, theirs)


def reason(record, ours, theirs, refused):
    """Why the server's answer is not SQLite's. `theirs`: PostgreSQL's, if it was asked. `refused`: an
    earlier statement of the file was, and PostgreSQL did not refuse it."""
    text = ours.error if ours.error is not None else str(values(record, ours))
    named = None
    for name, sql, answer in REASONS:
        if re.search(sql, record.sql, re.I | re.S) and re.search(answer, text, re.S):
            named = name
            break
    if theirs is not None and is_alike(record, ours, theirs):
        if ours.error is not None:
            return named or f"an error, as in PostgreSQL: {theirs.code}"
        return "other rows, those of PostgreSQL"
    if named and (theirs is None or "as in PostgreSQL" not in named):
        return named
    if refused:
        return REFUSED_BEFORE
    if ours.error is not None:
        return "? " + re.sub(r"\d+", "N", re.sub(r"\s+", " ", ours.error))[:150]
    return "? accepted" if not record.is_query else "? other rows"


def part(path):
    """Of the corpus: `select1.test`, `evidence`, `index/between`, `random/expr`."""
    folders = path.parts[:-1]
    return "/".join(folders[:2]) or path.name


def chosen(folder, every, first):
    """Each N-th file of each folder that belongs together, beginning with the one of this index."""
    by_part = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.test")):
        by_part[part(path.relative_to(folder))].append(path)
    return [path for paths in by_part.values() for path in paths[first::every]]


def without_keys(sql):
    """A table without its keys, which there are none of. The corpus has them for speed: rows that they
    would refuse are only in its tests of REPLACE."""
    if not re.match(r"\s*CREATE\s+TABLE\b", sql, re.I):
        return sql
    return re.sub(r"(?i)\b(INTEGER|TEXT) (PRIMARY KEY|UNIQUE)\b", r"\1", sql)


class File:
    """What came of a file: counts, and its differences as (reason, head, SQL, SQLite's, ours, PostgreSQL's)."""

    def __init__(self, name):
        self.name, self.counts, self.differ, self.seconds = name, collections.Counter(), [], 0.0


@contextlib.contextmanager
def peer(folder):
    """A connection to PostgreSQL, or None."""
    if folder is None:
        yield None
        return
    name = f"corpus_{os.getpid()}"
    admin = Wire(f"host={folder} user=thalweg dbname=postgres")
    for sql in (f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}"):
        admin.ask(sql)
    wire = Wire(f"host={folder} user=thalweg dbname={name}")
    wire.ask("SET client_min_messages = error")
    try:
        yield wire
    finally:
        wire.close()
        admin.ask(f"DROP DATABASE {name}")
        admin.close()


def shown(record, answer):
    if answer is None:
        return None
    return f"{answer.code} {answer.error}" if answer.error is not None else (values(record, answer) or [])[:9]


def run(options, path):
    """One file, on a server of its own."""
    file = File(path.relative_to(options.folder))
    begun = time.monotonic()
    text = path.read_text(errors="replace")
    refused = False
    queries = 0
    with peer(options.postgresql) as postgresql, Server(options.binary.absolute(), trust=True) as server:
        ours = Wire(f"host=127.0.0.1 port={server.pg} dbname=thalweg user=anybody", options.extended)
        file.counts["files"] = 1
        for record in records(text):
            if record.skipped:
                file.counts["skipped"] += 1
                continue
            queries += record.is_query
            if record.is_query and queries % options.queries:
                file.counts["left out"] += 1
                continue
            theirs = None
            if postgresql and not record.is_query:
                theirs = postgresql.ask(record.sql)
            try:
                answer = ours.ask(without_keys(record.sql))
            except Gone as gone:
                file.counts["differ"] += 1
                file.differ.append((f"? the server is gone: {gone}", record.head, record.sql, [], server.tail(), None))
                break
            if is_same(record, answer):
                file.counts["same"] += 1
                continue
            if postgresql and record.is_query:
                theirs = postgresql.ask(record.sql)
            why = reason(record, answer, theirs, refused)
            if not record.is_query and not re.search(r"INDEX", record.sql, re.I):
                # What both refuse leaves both with the same tables.
                refused |= theirs is None or not is_alike(record, answer, theirs)
            file.counts["differ"] += 1
            found = (shown(record, answer), shown(record, theirs))
            file.differ.append((why, record.head, record.sql, record.results[:9], *found))
        ours.close()
    if server.ended:
        file.differ.append((f"? the server ended badly: {server.ended}", "", "", [], "", None))
    file.seconds = time.monotonic() - begun
    return file


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=HERE.parent.parent / ".cache")
    parser.add_argument("--extended", action="store_true", help="prepare each statement")
    parser.add_argument("--every", type=int, default=1, help="only each N-th file of a folder")
    parser.add_argument("--from", type=int, default=0, dest="first", help="with --every: beginning with this one")
    parser.add_argument("--queries", type=int, default=1, help="only each N-th query of a file, but all statements")
    parser.add_argument("--jobs", type=int, default=1, help="files at the same time")
    parser.add_argument("--postgresql", action="store_true", help="ask PostgreSQL too where an answer is not SQLite's")
    parser.add_argument("--show", type=int, default=1, help="examples of each difference")
    parser.add_argument("--log", type=pathlib.Path, help="a file for all differences, a line of JSON each")
    return parser.parse_args()


def main():
    options = parsed()
    if psycopg is None:
        interpreter = install.python(options.cache.absolute() / "clients")
        os.execv(interpreter, [interpreter, *sys.argv])
    with contextlib.ExitStack() as stack:
        if options.postgresql:
            sys.path.insert(0, str(HERE.parent / "sqltest"))
            import postgresql

            options.postgresql = stack.enter_context(postgresql.Server()).folder
        else:
            options.postgresql = None
        log = stack.enter_context(options.log.open("w")) if options.log else None
        paths = chosen(options.folder, options.every, options.first)
        work = functools.partial(run, options)
        if options.jobs > 1:
            files = stack.enter_context(multiprocessing.Pool(options.jobs)).imap_unordered(work, paths)
        else:
            files = map(work, paths)
        return report(options, files, log)


def line(name, counts):
    numbers = (f"{counts[key]:,}" for key in ("files", "same", "differ", "skipped", "left out"))
    return f"| {name} | {' | '.join(numbers)} |"


def report(options, files, log):
    parts = collections.defaultdict(collections.Counter)
    reasons, examples = collections.Counter(), collections.defaultdict(list)
    for file in files:
        parts[part(file.name)].update(file.counts)
        for found in file.differ:
            reasons[found[0]] += 1
            if len(examples[found[0]]) < options.show:
                examples[found[0]].append((file.name, found))
            if log:
                print(json.dumps([str(file.name), *found]), file=log, flush=True)
        asked = file.counts["same"] + file.counts["differ"]
        print(f"{file.name}: {asked:,} records in {file.seconds:.0f} s, {file.counts['differ']:,} differ", flush=True)
    print("\n| part | files | same | differ | for other engines | left out |\n|---|---:|---:|---:|---:|---:|")
    total = collections.Counter()
    for name, counts in sorted(parts.items()):
        total.update(counts)
        print(line(name, counts))
    print(line("all", total))
    print("\n| why | records |\n|---|---:|")
    for why, count in reasons.most_common():
        print(f"| {why} | {count:,} |")
    for why, found in examples.items():
        for name, (_, head, sql, wanted, ours, theirs) in found:
            print(f"\n{why}\n  {name}: {head}\n  {sql}\n  SQLite: {wanted}\n  here:   {ours}")
            if theirs is not None:
                print(f"  PostgreSQL: {theirs}")
    return 1 if any(why.startswith("?") for why in reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
