"""Random tables, written in random dialects and formats and read back: what comes out must be what was written.

Usage: python dev/files/fuzz.py THALWEG [--seed N] [--files N] [--seconds N] [--kind csv|json|parquet|arrow] [--keep FOLDER]

Each file is read as check.py reads files: by FROM with 1, 2 and 8 threads, by load, and by a peer, whose answer is only
told where ours is wrong; what is read rightly is written by COPY in some format and must come back. A table that is
read wrongly is made smaller, as long as it is, and printed with its file; --keep copies it into a folder. Nothing is
written that may be read in two ways: each column of text has a word in it, each column of fractions a fraction, and
dates with the day first a day after the twelfth.
"""

import argparse
import collections
import datetime
import decimal
import json
import pathlib
import random
import shutil
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

import check
import compare
import made
import peers
from ours import Ours, Refused, Server, quoted

FILES_AT_ONCE = 60
REDUCE_SECONDS = 20
# Ways of WAYS in check.py that are findings here.
FOUND = ("hang", "threads", "load", "made")

WORDS = ["", "a", "zebra", "Zürich", "日本", "🦉", "x y", "it's", "12", "-1.5", "2024-01-31", "true", "NaN", "null", "NULL", "NA", "0x1F",
         "00501", "1e5", "a,b", "a;b", "a\tb", "a|b", 'say "no"', '"', '""', "two\nlines", "two\r\nlines", "\n", "# no comment", "back\\slash",
         "x" * 300, "=1+1", "{}", "[1]", "%", "$1", "'quoted'", "-", ".", "+", "1 2"]
NAMES = ["id", "name", "Größe", "first name", "total (EUR)", "a.b", "select", "x-y", "value", "when", "what", "n", "Ω", "note", "Kind"]

WIDE = decimal.Context(prec=40)


class Column:
    """A column of a random table: values of Python, how they are spelled in CSV, and their type in Arrow."""

    def __init__(self, name, values, type, spell=str):
        self.name, self.values, self.type, self.spell = name, values, type, spell

    def rows(self, chosen):
        return Column(self.name, [self.values[i] for i in chosen], self.type, self.spell)


def day(rng, wild=True):
    first = datetime.date(1, 1, 1) if wild else datetime.date(1950, 1, 1)
    last = datetime.date(9999, 12, 31) if wild else datetime.date(2049, 12, 31)
    return datetime.date.fromordinal(rng.randint(first.toordinal(), last.toordinal()))


def moment(rng, digits):
    fraction = rng.randrange(10**digits) * 10 ** (6 - digits) if digits else 0
    d = day(rng, False)
    return datetime.datetime(d.year, d.month, d.day, rng.randrange(24), rng.randrange(60), rng.randrange(60), fraction)


def column(rng, name, rows, kind):
    """A random column. `certain`: a value that makes its type certain."""
    nulls = rng.choice([0, 0, 0.1, 0.6])
    spell, certain = str, None
    if kind == "integer":
        top = 10 ** rng.randint(1, 18)
        one = lambda: rng.randint(-top, top)
        type = pa.int64()
    elif kind == "float":
        form = rng.choice(["plain", "short", "exponent"])
        one = lambda: rng.randint(-4000, 4000) / 8 if form != "exponent" else rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300)
        certain, type, spell = 2.5, pa.float64(), repr
    elif kind == "boolean":
        words = rng.choice([("true", "false"), ("True", "False"), ("TRUE", "FALSE")])
        one, type, spell = lambda: rng.random() < 0.5, pa.bool_(), lambda v: words[0] if v else words[1]
    elif kind == "date":
        form = rng.choice(["%Y-%m-%d", "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d"])
        wild = form == "%Y-%m-%d" and rng.random() < 0.5
        one, type = lambda: day(rng, wild), pa.date32()
        certain = datetime.date(2024, 1, 31)
        spell = lambda v: v.strftime(form.replace("%Y", f"{v.year:04}"))
    elif kind == "timestamp":
        digits, between, seconds = rng.choice([0, 0, 1, 3, 6]), rng.choice(" T"), rng.random() < 0.8
        digits = digits if seconds else 0

        def one():
            v = moment(rng, digits)
            return v if seconds else v.replace(second=0)

        type = pa.timestamp("us")
        spell = lambda v: v.strftime(f"%Y-%m-%d{between}%H:%M" + (":%S" if seconds else "")) + (f".{v.microsecond:06}"[: digits + 1] if digits else "")
    elif kind == "time":
        one = lambda: datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60))
        type = pa.time64("us")
    elif kind == "list":
        one = lambda: [rng.choice([None, rng.randint(-9, 9)]) for _ in range(rng.randint(0, 4))]
        certain, type = [1, None], pa.list_(pa.int64())
    elif kind == "struct":
        one = lambda: {"n": rng.choice([None, rng.randint(-9, 9)]), "t": rng.choice([None, "", "x", 'a"b']), "l": [rng.random() for _ in range(rng.randint(0, 2))]}
        certain, type = {"n": 1, "t": "zebra", "l": [2.5]}, pa.struct([("n", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.float64()))])
    elif kind == "decimal":
        precision = rng.choice([3, 9, 18, 38])
        scale = rng.randint(0, precision)
        one, type = lambda: decimal.Decimal(rng.randint(-(10**precision) + 1, 10**precision - 1)).scaleb(-scale, WIDE), pa.decimal128(precision, scale)
    elif kind == "small":
        bits, signed = rng.choice([8, 16, 32]), rng.random() < 0.6
        one = lambda: rng.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else rng.randint(0, 2**bits - 1)
        type = getattr(pa, f"{'' if signed else 'u'}int{bits}")()
    elif kind == "instant":
        one, type = lambda: moment(rng, 6).replace(tzinfo=datetime.UTC), pa.timestamp("us", "UTC")
    elif kind == "bytes":
        one, type = lambda: rng.randbytes(rng.randint(0, 20)), pa.binary()
    else:
        pool = rng.sample(WORDS, rng.randint(2, len(WORDS)))
        one = lambda: rng.choice(pool) if rng.random() < 0.8 else "".join(rng.choice("abc XYZ,;'\"é") for _ in range(rng.randint(1, 12)))
        certain, type = "zebra", pa.string()
    values = [None if rng.random() < nulls else one() for _ in range(rows)]
    values[rng.randrange(rows)] = certain if certain is not None else one()
    return Column(name, values, type, spell)


class Sheet:
    """A random table and how it is written."""

    def __init__(self, rng, kind):
        self.kind = kind
        rows = rng.choice([1, 2, 3, 5, 20, 20, 100, 100, 1000, 20_000] if kind == "csv" else [1, 2, 5, 50, 1000, 10_000])
        names = rng.sample(NAMES, rng.randint(2, 6))
        kinds = ["integer", "float", "boolean", "date", "timestamp", "time", "text", "text"]
        if kind == "json":
            # There a time is text.
            kinds.remove("time")
        if kind != "csv":
            kinds += ["list", "struct"]
        if kind in ("parquet", "arrow"):
            kinds += ["decimal", "small", "instant", "bytes"]
        self.columns = [column(rng, name, rows, rng.choice(kinds)) for name in names]
        # Names are told from values by a column that is no text.
        if all(c.type == pa.string() for c in self.columns):
            self.columns[0] = column(rng, names[0], rows, "integer")
        self.dialect = getattr(self, f"{kind}_dialect")(rng)

    def csv_dialect(self, rng):
        # Nothing tells of this quote where only the header has it.
        quote = rng.choice('""""\'') if any(c.type == pa.string() for c in self.columns) else '"'
        d = {"delimiter": rng.choice(",,;\t|"), "quote": quote, "escape": rng.choice(["double", "double", "backslash"]), "eol": rng.choice(["\n", "\n", "\r\n", "\r"]),
             "always": quote == "'" or rng.random() < 0.3, "last": rng.random() < 0.8, "encoding": rng.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252"]),
             "packed": rng.choice(["", "", "", "", ".gz", ".zst", ".bz2", ".xz"])}
        return d

    def json_dialect(self, rng):
        return {"form": rng.choice(["lines", "lines", "array", "pretty", "objects"]), "ascii": rng.random() < 0.5, "missing": rng.random() < 0.3, "packed": rng.choice(["", "", ".gz"])}

    def parquet_dialect(self, rng):
        return {"row_group_size": rng.choice([1, 10, 1000, None]) if len(self.columns[0].values) <= 1000 else rng.choice([500, None]), "compression": rng.choice(["none", "snappy", "zstd", "gzip"]),
                "use_dictionary": rng.random() < 0.5, "data_page_version": rng.choice(["1.0", "2.0"]), "write_statistics": rng.random() < 0.7}

    def arrow_dialect(self, rng):
        return {"stream": rng.random() < 0.5, "batch": rng.choice([1, 7, 1000]), "compression": rng.choice([None, "lz4", "zstd"]), "dictionaries": rng.random() < 0.4}

    def table(self):
        """What the file holds."""
        return pa.table([pa.array(c.values, c.type) for c in self.columns], names=[c.name for c in self.columns])

    def write(self, stem):
        """Writes the file, and returns its path; None if the dialect cannot have these values."""
        path, data = getattr(self, f"write_{self.kind}")(stem)
        if data is not None:
            path.write_bytes(packed(data, path.suffix))
        return path

    def write_csv(self, stem):
        d = self.dialect
        special = {d["delimiter"], d["quote"], "\n", "\r"}

        def field(text, is_text, null=False):
            if null:
                return ""
            need = not text or special & set(text) or text != text.strip() or text.upper() in ("NULL", "NA", "NAN") or text.startswith("#")
            if not (need or d["always"] and is_text):
                return text
            quote = d["quote"]
            if d["escape"] == "backslash":
                text = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
            else:
                text = text.replace(quote, quote * 2)
            return quote + text + quote

        lines = [d["delimiter"].join(field(c.name, True) for c in self.columns)]
        for i in range(len(self.columns[0].values)):
            fields = [field("" if c.values[i] is None else c.spell(c.values[i]), c.type == pa.string(), c.values[i] is None) for c in self.columns]
            lines.append(d["delimiter"].join(fields))
        text = d["eol"].join(lines) + (d["eol"] if d["last"] else "")
        return pathlib.Path(f"{stem}.csv{d['packed']}"), text.encode(d["encoding"], "replace" if d["encoding"] == "cp1252" else "strict")

    def write_json(self, stem):
        d = self.dialect
        plain = lambda v: v.isoformat() if isinstance(v, (datetime.date, datetime.datetime)) else v
        rows = len(self.columns[0].values)
        # The first row has all keys, so that their order is known.
        records = [{c.name: plain(c.values[i]) for c in self.columns if i == 0 or not d["missing"] or c.values[i] is not None} for i in range(rows)]
        dump = lambda v, **how: json.dumps(v, ensure_ascii=d["ascii"], **how)
        text = {"lines": lambda: "".join(dump(r) + "\n" for r in records), "array": lambda: dump(records), "pretty": lambda: dump(records, indent=2),
                "objects": lambda: "\n".join(dump(r, indent=1) for r in records)}[d["form"]]()
        return pathlib.Path(f"{stem}.{'jsonl' if d['form'] == 'lines' else 'json'}{d['packed']}"), text.encode()

    def write_parquet(self, stem):
        path = pathlib.Path(f"{stem}.parquet")
        pq.write_table(self.table(), path, **self.dialect)
        return path, None

    def write_arrow(self, stem):
        path, d, table = pathlib.Path(f"{stem}.arrow"), self.dialect, self.table()
        if d["dictionaries"]:
            for i, c in enumerate(self.columns):
                if c.type == pa.string():
                    table = table.set_column(i, c.name, table.column(i).combine_chunks().dictionary_encode())
        make = pa.ipc.new_stream if d["stream"] else pa.ipc.new_file
        with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=d["compression"])) as writer:
            for batch in table.to_batches(max_chunksize=d["batch"] if table.num_rows <= 1000 else 1000):
                writer.write_batch(batch)
        return path, None

    def fits(self):
        """Whether the dialect can have these values, in one way only."""
        if self.kind != "csv":
            return True
        text = "".join(c.name for c in self.columns) + "".join(v for c in self.columns if c.type == pa.string() for v in c.values if v)
        d = self.dialect
        # A fault that is known: CR ends lines only where the file has no LF.
        if d["eol"] == "\r" and "\n" in text:
            return False
        # Only before a quote is it seen that a backslash takes away its meaning.
        if d["escape"] == "backslash" and "\\" in text and d["quote"] not in text:
            return False
        if d["encoding"] != "cp1252":
            return True
        try:
            text.encode("cp1252")
        except UnicodeEncodeError:
            return False
        # What is ASCII, or UTF-8 by chance, is read as UTF-8.
        return not text.isascii()

    def smaller(self):
        """Sheets with fewer rows or columns."""
        rows = len(self.columns[0].values)
        for size in dict.fromkeys((rows // 2, rows // 4, 1)):
            for start in range(0, rows, max(size, 1)) if 0 < size < rows and rows // size <= 16 else ():
                chosen = [i for i in range(rows) if not start <= i < start + size]
                if chosen:
                    yield self.with_columns([c.rows(chosen) for c in self.columns])
        if len(self.columns) > 2:
            for i in range(len(self.columns)):
                yield self.with_columns(self.columns[:i] + self.columns[i + 1 :])

    def with_columns(self, columns):
        other = object.__new__(Sheet)
        other.kind, other.dialect, other.columns = self.kind, self.dialect, columns
        return other

    def is_certain(self):
        """Whether every column still says what type it has, and one is no text."""
        if self.kind in ("parquet", "arrow"):
            return True
        certain = {pa.list_(pa.int64()): lambda v: v == [1, None], pa.string(): lambda v: v == "zebra", pa.float64(): lambda v: v == 2.5, pa.date32(): lambda v: v == datetime.date(2024, 1, 31)}
        known = all(any(v is not None and certain.get(c.type, lambda _: True)(v) for v in c.values) for c in self.columns)
        texts = [c.type == pa.string() for c in self.columns]
        return known and not all(texts) and (any(texts) or self.dialect.get("quote") != "'")


def packed(data, suffix):
    if suffix in (".gz", ".zst", ".bz2", ".xz"):
        return made.compress(data, suffix[1:])
    return data


def sheet(seed, kind):
    rng = random.Random(seed)
    kind = kind or rng.choice(["csv", "csv", "csv", "json", "json", "parquet", "arrow"])
    while True:
        found = Sheet(rng, kind)
        if found.fits():
            return found


def reduced(found, way, line, binary, folder, seconds):
    """The smallest sheet that is still read wrongly in that way, with its path and what is said of it."""
    loading = way == "load" or line.startswith("load: ")
    until, best, number = time.monotonic() + REDUCE_SECONDS, (found, None), 0
    # What packs a file is seldom what is wrong, and hides it.
    if found.dialect.get("packed"):
        found.dialect = {**found.dialect, "packed": ""}
    with Ours(binary, folder, seconds) as ours:

        def wrong(candidate):
            nonlocal number
            number += 1
            path = candidate.write(folder / f"small-{number}")
            answers = ours.select(path)
            loaded = answers[0]
            if loading:
                table = f"small{number}"
                loaded = ours.load([(table, path)]).get(table)
                if loaded is None:
                    try:
                        loaded = ours.table(table)
                    except Refused as e:
                        loaded = e
                if ours.tables:
                    ours.tables.stop()
                    ours.tables = None
            verdict = check.judge(made.Case(path.name, str(path), candidate.table()), answers, loaded, Refused("error", "not asked"))
            return verdict.lines.get(way) and (path, verdict.lines[way])

        if line := wrong(found):
            best = (found, line)
        went_on = bool(line)
        while went_on and time.monotonic() < until:
            went_on = False
            for candidate in best[0].smaller():
                if time.monotonic() > until:
                    break
                if candidate.is_certain() and candidate.fits() and (line := wrong(candidate)):
                    best, went_on = (candidate, line), True
                    break
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("thalweg")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=600)
    parser.add_argument("--seconds", type=float, help="for how long, instead of --files")
    parser.add_argument("--kind", choices=("csv", "json", "parquet", "arrow"))
    parser.add_argument("--wait", type=float, default=20, help="what a reading may take")
    parser.add_argument("--reduce", type=int, default=5, help="findings of a kind of files that are made smaller")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for files that are read wrongly")
    o = parser.parse_args()
    begun, at, wrong, counts = time.monotonic(), o.seed, 0, collections.Counter()
    more = lambda: time.monotonic() - begun < o.seconds if o.seconds else at < o.seed + o.files
    while more():
        with tempfile.TemporaryDirectory(prefix="thalweg-fuzz-files-") as name:
            folder = pathlib.Path(name)
            sheets = {}
            writer = Writer(o.thalweg, folder, o.wait)
            for seed in range(at, at + FILES_AT_ONCE if o.seconds else min(at + FILES_AT_ONCE, o.seed + o.files)):
                made_up = sheet(seed, o.kind)
                path = made_up.write(folder / str(seed))
                sheets[str(seed)] = (made_up, made.Case(str(seed), str(path), made_up.table()))
            for verdict in check.read(o.thalweg, [case for _, case in sheets.values()], folder, o.wait, "pyarrow", False, quiet=True):
                made_up, case = sheets[verdict.name]
                counts[made_up.kind] += 1
                counts["order"] += "order" in verdict.lines
                ways = [way for way in FOUND if way in verdict.lines]
                if not ways:
                    if found := writer.differs(random.Random(verdict.name), case.path, made_up.table()):
                        wrong += 1
                        counts["written wrongly"] += 1
                        print(f"seed {verdict.name}: {found[0][:500]}\n  {found[1].read_bytes()[:500] if found[1].exists() else b''!r}", flush=True)
                        keep(o.keep, pathlib.Path(case.path), verdict.name)
                    continue
                wrong += 1
                counts[f"{made_up.kind} read wrongly"] += 1
                peer = "" if "peer" in verdict.lines else "; the peer has what ours has" if verdict.peer else "; no peer"
                print(f"seed {verdict.name}: {ways[0]}: {verdict.lines[ways[0]][:400]}{peer}\n  {made_up.dialect}", flush=True)
                path = pathlib.Path(case.path)
                if counts[f"{made_up.kind} read wrongly"] <= o.reduce:
                    with tempfile.TemporaryDirectory(prefix="thalweg-fuzz-files-") as place:
                        small, line = reduced(made_up, ways[0], verdict.lines[ways[0]], o.thalweg, pathlib.Path(place), o.wait)
                        if line:
                            path = line[0]
                            print(f"  smaller: {line[1][:300]}\n  {path.read_bytes()[:500]!r}", flush=True)
                        keep(o.keep, path, verdict.name)
                else:
                    keep(o.keep, path, verdict.name)
            writer.server.stop()
            at += len(sheets)
    print(f"fuzz: {at - o.seed} files from seed {o.seed} in {time.monotonic() - begun:.0f} s: {wrong} read or written wrongly; {dict(counts)}")
    return wrong != 0


class Writer:
    """Writes by COPY what was read, and looks whether it is still the same."""

    def __init__(self, binary, folder, seconds):
        self.folder, self.seconds = folder, seconds
        self.server = Server(str(pathlib.Path(binary).resolve()), ":memory:", folder, "writer", 2)
        self.server.until_ready()

    def differs(self, rng, path, table):
        """What is wrong with the file that was written, and its path; or None."""
        nested = any(pa.types.is_nested(type) or pa.types.is_binary(type) or pa.types.is_decimal(type) for type in table.schema.types)
        # CSV and JSON have no types for all that is in a table.
        ending = rng.choice(["parquet", "arrow"] if nested else ["csv", "csv.gz", "json", "parquet", "arrow"])
        if ending == "json" and any(map(pa.types.is_time, table.schema.types)):
            ending = "parquet"
        out = self.folder / f"{pathlib.Path(path).name}-out.{ending}"
        readers = {"FROM": lambda: self.server.ask(f"SELECT * FROM {quoted(out)}", self.seconds)}
        if ending in ("parquet", "arrow"):
            readers["pyarrow"] = lambda: peers.pyarrow(str(out))
        try:
            self.server.ask(f"COPY (SELECT * FROM {quoted(path)}) TO {quoted(out)}", self.seconds)
            for who, read in readers.items():
                back = read()
                if ending == "json" and set(back.column_names) == set(table.column_names):
                    # A NULL has no key, so the first row does not say the order of columns.
                    back = back.select(table.column_names)
                found = compare.difference(back, table)
                if found and not found.startswith(compare.ORDER):
                    return f"as {ending}, by {who}: {found}", out
        except Refused as e:
            return f"as {ending}: {e.kind}: {e}", out
        return None


def keep(folder, path, seed):
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{seed}{''.join(path.suffixes)}")


if __name__ == "__main__":
    sys.exit(main())
