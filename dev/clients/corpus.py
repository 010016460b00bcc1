"""SQLite's sqllogictest corpus against the server, by sqllogictest-bin over the PostgreSQL protocol.

    corpus.py THALWEG FOLDER [--cache FOLDER] [--extended] [--every N] [--show N]

FOLDER holds the corpus, or any .test files of its dialect: https://www.sqlite.org/sqllogictest, of
which Git mirrors exist. Each file runs on a server of its own; files are copied, never changed.
With --every only each N-th file of a folder runs. Prints a line per file, then two tables: of each
part of the corpus, how many records gave what SQLite gave; and of the others, why not, with
--show of each. Exits with 1 if one differs in a way that REASONS does not know.

How: sqllogictest-bin rewrites the copies with what the server answered (--override), which goes on
after a difference; then records are compared one by one.
"""

import argparse
import collections
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

import install
from server import Server

HERE = pathlib.Path(__file__).parent

# Why an answer is another one: a name, and what the SQL and the server's answer must contain.
REASONS = [
    ("there are no indexes", r"^\s*(CREATE|DROP)\s+(UNIQUE\s+)?INDEX|^\s*REINDEX", ""),
    ("there are no triggers", r"TRIGGER", ""),
    ("there is no REPLACE, and no key by which a row would be replaced", r"REPLACE|UNIQUE", ""),
    ("keys are refused, if only to say so", r"PRIMARY KEY", r"PRIMARY KEY"),
    ("a correlated subquery compares with = only", r"SELECT.*SELECT", r"a subquery is not supported"),
    ("two columns of a result have one name", r"", r"unique expression names|would be ambiguous"),
    ("unary plus takes no text, as in PostgreSQL", r"\+", r"Unary operator '\\?\+'"),
    ("IN takes no empty list, as in PostgreSQL", r"IN\s*\(\s*\)", r"syntax error"),
    ("a condition is nested too deeply", r"\(\(", r"nested too deeply"),
    ("a column is assigned twice, as in PostgreSQL", r"UPDATE", r"assigned twice"),
    ("NULLIF gives the type that suits both", r"NULLIF", r"\d\.\d"),
    ("division by zero is an error, as in PostgreSQL", r"/|%", r"[Dd]ivi\w+ by zero"),
]


class Record:
    """A statement or a query: its condition, its first line, its SQL, what it gives."""

    def __init__(self, skipped, head, sql, results):
        self.skipped, self.head, self.sql, self.results = skipped, head, sql, results

    def error(self):
        """Its message, or None."""
        words = self.head.split(None, 2)
        if len(words) < 2 or words[1] != "error":
            return None
        return " ".join(words[2:] + self.results)


def records(text, label):
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
            skipped |= (words[1] == label) == (words[0] == "skipif")
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


def formatted(value, kind):
    """As SQLite's runner writes it: what is asked for as an integer or a number is one."""
    if value == "NULL" or kind == "T":
        return value
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if kind == "R":
        return f"{number:.3f}"
    return value if re.fullmatch(r"-?\d+", value) else str(int(number))


def values(wanted, found):
    """The server's values in the form of the test: sqllogictest-bin writes rows."""
    kinds, *sort = wanted.head.split()[1:3]
    rows = [line.split("\t") for line in found.results]
    if sort == ["valuesort"]:
        # One to a line, of whatever column.
        return sorted(formatted(row[0], kinds[0]) for row in rows)
    rows = [[formatted(v, kind) for v, kind in zip(row, kinds)] for row in rows]
    if sort == ["rowsort"]:
        rows.sort()
    return [v for row in rows for v in row]


def is_same(wanted, found):
    if wanted.head.startswith("statement"):
        return (wanted.error() is None) == (found.error() is None)
    if found.error() is not None:
        return False
    if found.head.startswith("statement"):
        # So it writes a query that gives no rows.
        return not wanted.results
    if found.results == wanted.results:
        # Left as it was, since it is right.
        return True
    given = values(wanted, found)
    if len(wanted.results) == 1 and " values hashing to " in wanted.results[0]:
        digest = hashlib.md5("".join(f"{v}\n" for v in given).encode()).hexdigest()
        given = [f"{len(given)} values hashing to {digest}"]
    return wanted.results == given


def reason(wanted, found, refused):
    """Why they differ, as far as it is known. `refused`: an earlier change of the file was."""
    error = found.error()
    for name, sql, answer in REASONS:
        text = "\n".join(found.results) if error is None else error
        if re.search(sql, wanted.sql, re.I | re.S) and re.search(answer, text, re.S):
            return name
    if refused:
        return "it follows from a statement that was refused"
    if error is not None:
        return "? " + re.sub(r"\s+", " ", error)[:150]
    return "? other rows"


def part(path):
    """Of the corpus: `select1.test`, `evidence`, `index/between`, `random/expr`."""
    folders = path.parts[:-1]
    return "/".join(folders[:2]) or path.name


def chosen(folder, every):
    """Each N-th file of each folder that belongs together."""
    by_part = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.test")):
        by_part[part(path.relative_to(folder))].append(path)
    return [path for paths in by_part.values() for path in paths[::every]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=HERE.parent.parent / ".cache")
    parser.add_argument("--extended", action="store_true", help="prepare each statement")
    parser.add_argument("--every", type=int, default=1, help="only each N-th file of a folder")
    parser.add_argument("--show", type=int, default=1, help="examples of each difference")
    options = parser.parse_args()
    tool = install.sqllogictest(options.cache.absolute() / "clients")
    engine = "postgres-extended" if options.extended else "postgres"
    label = "postgresql"
    parts = collections.defaultdict(collections.Counter)
    reasons, examples = collections.Counter(), collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="thalweg-corpus-") as scratch:
        for path in chosen(options.folder, options.every):
            name = path.relative_to(options.folder)
            copy = pathlib.Path(scratch, path.name)
            text = path.read_text(errors="replace").replace("\r\n", "\n")
            if "----" not in text and "statement" not in text:
                print(f"{name}: empty", flush=True)
                continue
            # Comments beside words are not understood, and there are no keys, which are only for speed.
            text = re.sub(r"^((?:skipif|onlyif) \w+).*$", r"\1", text, flags=re.M)
            text = re.sub(r"(?m)^hash-threshold.*$", "", text)
            text = re.sub(r"(?i)\bINTEGER PRIMARY KEY\b", "INTEGER", text)
            copy.write_text(text)
            with Server(options.binary.absolute(), trust=True) as server:
                command = [tool, "--engine", engine, "--label", label, "--override", "--color", "never"]
                command += ["--host", "127.0.0.1", "--port", str(server.pg), "--db", "thalweg", "--user", "anybody", copy]
                run = subprocess.run(command, capture_output=True, text=True)
                log = server.tail() if server.process.poll() is not None else ""
            if run.returncode != 0 or log:
                sys.exit(f"{name}: sqllogictest-bin failed: {run.stdout[-2000:]}{run.stderr[-2000:]}{log}")
            wanted, found = (list(records(t, label)) for t in (text, copy.read_text()))
            if [r.sql for r in wanted] != [r.sql for r in found]:
                sys.exit(f"{name}: sqllogictest-bin has read other statements")
            counts = parts[part(name)]
            counts["files"] += 1
            before = counts["differ"]
            refused = False
            for w, f in zip(wanted, found):
                if w.skipped:
                    counts["skipped"] += 1
                elif is_same(w, f):
                    counts["same"] += 1
                else:
                    counts["differ"] += 1
                    why = reason(w, f, refused)
                    refused |= w.head.startswith("statement") and not re.search(r"INDEX", w.sql, re.I)
                    reasons[why] += 1
                    if len(examples[why]) < options.show:
                        examples[why].append((name, w, f))
            print(f"{name}: {len(wanted)} records, {counts['differ'] - before} differ", flush=True)
    print("\n| part | files | same | differ | for other engines |\n|---|---:|---:|---:|---:|")
    total = collections.Counter()
    for name, counts in parts.items():
        total.update(counts)
        print(f"| {name} | {counts['files']} | {counts['same']:,} | {counts['differ']:,} | {counts['skipped']:,} |")
    print(f"| all | {total['files']} | {total['same']:,} | {total['differ']:,} | {total['skipped']:,} |")
    print("\n| why | records |\n|---|---:|")
    for why, count in reasons.most_common():
        print(f"| {why} | {count:,} |")
    for why, found in examples.items():
        for name, w, f in found:
            print(f"\n{why}\n  {name}: {w.head}\n  {w.sql}\n  SQLite: {w.results[:9]}\n  here:   {f.error() or f.results[:9]}")
    return 1 if any(why.startswith("?") for why in reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
