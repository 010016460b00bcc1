"""Random tables, written and read back.

    roundtrip.py THALWEG [--seed N] [--rounds N | --seconds N] [--only delimited|written]
                         [--keep FOLDER]

Each round makes a table of random types and values. Two things are done with it:

* Python writes it as delimited text in a random dialect, with nothing said about it: Thalweg reads it
  by FROM and must find every value.
* Thalweg stores it and writes it with COPY in every format, with random options. What COPY … FROM makes
  of it, what FROM reads, and what pyarrow reads (Parquet, Arrow) must be what was stored.

Exits with 1 at a difference; the file lies in the folder that is named, and --seed makes it again.
"""

import argparse
import csv
import datetime
import decimal
import gzip
import io
import math
import pathlib
import random
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

import ours

WORDS = ["", " ", "a", "B c", "x,y", "a;b", "p|q", "t\tu", 'say "hi"', "it's", "two\nlines", "back\\slash", "ß€漢字", "😀",
         " blanks ", "NULL", "null", "#no", "-", "'", '"', "1e5x", "N/A", "{}", "[1]", "\\N", "end\\", "a\r\nb"]


class Column:
    """A type, how its values are made, and which formats have it."""

    def __init__(self, arrow, make, text=str, formats=("csv", "json", "parquet", "arrow")):
        self.arrow, self.make, self.text, self.formats = arrow, make, text, formats


def a_word(r):
    return r.choice(WORDS) if r.random() < 0.6 else "".join(r.choice("abc ,;'\"\\x|é") for _ in range(r.randrange(12)))


def a_double(r):
    return r.choice([0.0, 1.5, -2.25, 1e300, -1e-300, 0.1, 123456789.125, r.uniform(-1e6, 1e6)])


def a_day(r):
    return datetime.date(r.choice([1, 1582, 1970, 2024, 9999]), r.randrange(1, 13), r.randrange(1, 29))


def an_instant(r):
    parts = (r.randrange(24), r.randrange(60), r.randrange(60), r.choice([0, 500000, 123456, 1]))
    return datetime.datetime.combine(a_day(r), datetime.time(*parts))


def a_decimal(digits, scale):
    def make(r):
        return decimal.Decimal(r.randrange(-10**digits + 1, 10**digits)).scaleb(-scale, decimal.Context(prec=40))
    return make


COLUMNS = {
    "int": Column(pa.int32(), lambda r: r.choice([0, 1, -1, 2**31 - 1, -2**31, r.randrange(1000)])),
    "bigint": Column(pa.int64(), lambda r: r.choice([2**63 - 1, -2**63, 0, r.randrange(10**12)])),
    "smallint": Column(pa.int16(), lambda r: r.randrange(-2**15, 2**15)),
    "double": Column(pa.float64(), a_double, repr),
    "special": Column(pa.float64(), lambda r: r.choice([math.nan, math.inf, -math.inf, 1.0])),
    "real": Column(pa.float32(), lambda r: r.choice([0.5, 1.25, -3.0, 2.0**40])),
    "money": Column(pa.decimal128(12, 2), a_decimal(12, 2)),
    "wide": Column(pa.decimal128(38, 10), a_decimal(38, 10)),
    "text": Column(pa.string(), a_word),
    "bool": Column(pa.bool_(), lambda r: r.random() < 0.5, lambda v: str(v).lower()),
    "day": Column(pa.date32(), a_day),
    "instant": Column(pa.timestamp("us"), an_instant, lambda v: v.isoformat(" ")),
    "zoned": Column(pa.timestamp("us", "UTC"), lambda r: an_instant(r).replace(tzinfo=datetime.timezone.utc)),
    "clock": Column(pa.time64("us"), lambda r: an_instant(r).time(), lambda v: v.isoformat()),
    "bytes": Column(pa.binary(), lambda r: bytes(r.randrange(256) for _ in range(r.randrange(5)))),
    "ints": Column(pa.list_(pa.int32()), lambda r: [r.choice([None, 1, -7]) for _ in range(r.randrange(4))], formats=("json", "parquet", "arrow")),
    "texts": Column(pa.list_(pa.string()), lambda r: [a_word(r) for _ in range(r.randrange(3))], formats=("json", "parquet", "arrow")),
    "row": Column(pa.struct([("a", pa.int64()), ("b", pa.string())]), lambda r: {"a": r.randrange(9), "b": a_word(r)}, formats=("json", "parquet", "arrow")),
}
# Types that delimited text shows by its values alone.
SEEN = ("int", "bigint", "double", "money", "text", "bool", "day", "instant", "clock")


def made(r, kinds, rows):
    """The values of each column: some are NULL."""
    columns = {"id": list(range(rows))}
    for at, kind in enumerate(kinds):
        nulls = r.choice([0, 0.1, 0.5])
        columns[f"{kind}_{at}"] = [None if r.random() < nulls else COLUMNS[kind].make(r) for _ in range(rows)]
    return columns


def plain(value):
    """A value as it is compared: numbers by their value, NaN equal to itself."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def differences(expected, found):
    """What differs, in one line; None if nothing does."""
    if list(expected) != found.column_names:
        return f"columns {found.column_names}, not {list(expected)}"
    for name, values in expected.items():
        got = found.column(name).to_pylist()
        if len(got) != len(values):
            return f"{len(got)} rows, not {len(values)}"
        for row, (a, b) in enumerate(zip(values, got)):
            a, b = plain(a), plain(b)
            if a != b:
                return f"{name}, row {row}: {b!r}, not {a!r}"
    return None


class Difference(Exception):
    pass


def check(what, expected, found):
    if differs := differences(expected, found):
        raise Difference(f"{what}: {differs}")


def delimited(r, server, folder, seconds):
    """A file that Python writes in some dialect."""
    # The last column has a word in every row, so that each line shows how wide it is.
    kinds = r.choices(SEEN, k=r.randrange(1, 6))
    columns = made(r, kinds, r.randrange(8, 60))
    delimiter, quote, doubled = r.choice(",;\t|"), r.choice(['"', '"', "'"]), r.random() < 0.7
    words = ["a", "b c", "d, e", "ß"] if doubled else [f"a{quote}b"]
    columns["word"] = [r.choice(words) for _ in columns["id"]]
    # Bare fields show neither single quotes nor that a backslash escapes.
    quoting = r.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL if quote == '"' and doubled else csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quotechar=quote, doublequote=doubled, escapechar=None if doubled else "\\",
                        quoting=quoting, lineterminator=r.choice(["\n", "\r\n"]))
    writer.writerow(columns)
    texts = {name: text_of(name) for name in columns}
    for row in zip(*columns.values()):
        writer.writerow([None if value is None else texts[name](value) for name, value in zip(columns, row)])
    data = out.getvalue().encode(r.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"]))
    path = folder / r.choice(["x.csv", "x.txt", "x.csv.gz"])
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    found = server.ask(f"SELECT * FROM {ours.quoted(path)}", seconds)
    if found.column_names != list(columns):
        raise Difference(f"{path}: columns {found.column_names}, not {list(columns)}")
    for name, values in columns.items():
        got = found.column(name).to_pylist()
        if len(got) != len(values):
            raise Difference(f"{path}: {len(got)} rows, not {len(values)}")
        for row, (a, b) in enumerate(zip(values, got)):
            # Python writes None and '' alike.
            a, b = (None if v == "" else v for v in (a, b))
            if a != b and not (a is not None and b is not None and (texts[name](a) == str(b) or equal(a, b))):
                raise Difference(f"{path}: {name}, row {row}: {b!r}, not {a!r}")


def text_of(name):
    """How values of a column are written."""
    kind = name.rpartition("_")[0]
    return COLUMNS[kind].text if kind else str


def equal(a, b):
    """Whether a number, a day or a time was read as the same in another type."""
    if isinstance(b, datetime.datetime) and isinstance(a, datetime.date) and not isinstance(a, datetime.datetime):
        return b == datetime.datetime.combine(a, datetime.time())
    try:
        return decimal.Decimal(str(a)) == decimal.Decimal(str(b)) or float(a) == float(b)
    except (ValueError, TypeError, decimal.InvalidOperation):
        return False


def written(r, server, folder, seconds):
    """Files that COPY writes, in every format."""
    kinds = r.choices(list(COLUMNS), k=r.randrange(1, 7))
    columns = made(r, kinds, r.choice([0, 1, 7, 300]))
    types = [("id", pa.int64())] + [(name, COLUMNS[name.rpartition("_")[0]].arrow) for name in list(columns)[1:]]
    source = folder / "in.parquet"
    parquet.write_table(pa.table(columns, schema=pa.schema(types)), source)
    server.ask("DROP TABLE IF EXISTS t", seconds)
    server.ask(f"CREATE TABLE t AS SELECT * FROM {ours.quoted(source)}", seconds)
    check("stored", columns, server.ask("SELECT * FROM t ORDER BY id", seconds))
    for form in ("csv", "json", "parquet", "arrow"):
        names = [name for name in columns if name == "id" or form in COLUMNS[name.rpartition("_")[0]].formats]
        values = {name: columns[name] for name in names}
        options = {
            "csv": ["DELIMITER ';'", "DELIMITER '|', QUOTE ''''", "NULL 'nothing'", "HEADER true"],
            "json": ["ARRAY", "COMPRESSION gzip", "FORMAT json"],
            "parquet": ["COMPRESSION zstd", "COMPRESSION snappy", "ROW_GROUP_SIZE 100", "COMPRESSION none"],
            "arrow": ["FORMAT arrow"],
        }[form]
        option = r.choice(options)
        path = folder / (f"out.{form}" + (".gz" if "gzip" in option else ""))
        what = f"COPY TO {path} ({option})"
        listed = ", ".join(f'"{name}"' for name in names)
        server.ask(f"COPY (SELECT {listed} FROM t ORDER BY id) TO {ours.quoted(path)} ({option})", seconds)
        server.ask("DROP TABLE IF EXISTS back", seconds)
        server.ask(f"CREATE TABLE back AS SELECT {listed} FROM t WHERE false", seconds)
        same = option if form == "csv" else f"FORMAT {form}"
        server.ask(f"COPY back FROM {ours.quoted(path)} ({same})", seconds)
        check(f"{what}, COPY FROM", values, server.ask("SELECT * FROM back ORDER BY id", seconds))
        if form in ("parquet", "arrow"):
            check(f"{what}, FROM", values, server.ask(f"SELECT * FROM {ours.quoted(path)} ORDER BY id", seconds))
            read = parquet.read_table if form == "parquet" else feather.read_table
            check(f"{what}, pyarrow", values, read(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("thalweg", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, help="as many rounds as there is time for")
    parser.add_argument("--keep", type=pathlib.Path, help="where files are written; else a folder that is removed")
    parser.add_argument("--only", choices=("delimited", "written"))
    arguments = parser.parse_args()
    scratch = tempfile.TemporaryDirectory(prefix="thalweg-roundtrip-")
    folder = arguments.keep or pathlib.Path(scratch.name)
    folder.mkdir(parents=True, exist_ok=True)
    servers = [ours.Server(arguments.thalweg.resolve(), ":memory:", folder, f"server-{threads}", threads) for threads in (1, 4)]
    for server in servers:
        server.until_ready()
    until = arguments.seconds and time.monotonic() + arguments.seconds
    done, differing = 0, 0
    while time.monotonic() < until if until else done < arguments.rounds:
        seed = arguments.seed + done
        r = random.Random(seed)
        for do in [do for do in (delimited, written) if arguments.only in (None, do.__name__)]:
            try:
                do(r, servers[done % 2], folder, 60)
            except (Difference, ours.Refused) as e:
                differing += 1
                print(f"seed {seed}: {e}")
                if arguments.keep:
                    for file in folder.glob("[xoi]*.*"):
                        file.rename(folder / f"seed-{seed}-{do.__name__}-{file.name}")
        done += 1
    for server in servers:
        server.stop()
    print(f"{done} rounds, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
