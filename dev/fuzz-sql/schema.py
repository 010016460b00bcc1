"""Random tables with their rows: types, keys, NULLs, extremes, skew, duplicates, empty tables."""

import datetime
import decimal
import math
from dataclasses import dataclass, field


# Numerics of 38 digits stay exact.
decimal.getcontext().prec = 100

# The greatest value of each whole type.
LIMITS = {"int2": 2**15 - 1, "int4": 2**31 - 1, "int8": 2**63 - 1}
INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, "num", "f8")
NAMES = {
    "int2": "smallint", "int4": "int", "int8": "bigint", "f8": "double precision", "text": "text",
    "date": "date", "ts": "timestamp", "bool": "boolean",
}
WORDS = ["", "a", "b", "ab", "abc", "Zebra", "zebra", "x y", " lead", "trail ", "10", "-5", "1.5", "it's", "A%b", "_",
         "null", "NULL", "true", "2020-01-01", "longer text that does not fit into twelve bytes", "aaaaaaaaaaaaaaaaaaaa"]
WIDE_WORDS = ["größe", "日本語", "é", "😀x", "ÅB"]
NAMES_OF_COLUMNS = "abcdefg"


@dataclass
class Column:
    name: str
    type: str
    precision: int = 0
    scale: int = 0
    # No value of a number is further from zero. Without it a double, a date or a timestamp is not calculated with.
    mag: float = None
    tame: bool = True
    ascii: bool = True
    unique: bool = False
    nullable: bool = True
    # How often its most frequent value (but NULL) comes.
    frequency: int = 1
    sample: list = field(default_factory=list)
    # Engines may differ in the last digits: only the client may look at it.
    fuzzy: bool = False

    @property
    def sql_type(self):
        return f"numeric({self.precision},{self.scale})" if self.type == "num" else NAMES[self.type]


@dataclass
class Table:
    name: str
    columns: list
    rows: list
    # Rows are loaded in parts, each a statement of its own and so an extent.
    parts: int = 1
    options: str = ""

    def create(self, dialect):
        columns = ", ".join(
            f"{c.name} {c.sql_type}{'' if c.nullable or not c.unique else ' NOT NULL'}" for c in self.columns
        )
        return f"CREATE TABLE {self.name} ({columns}){self.options if dialect == 'thalweg' else ''}"

    def pieces(self):
        size = max(1, math.ceil(len(self.rows) / self.parts))
        return [self.rows[i : i + size] for i in range(0, len(self.rows), size)]


def literal(value, column):
    """A value as SQL, with its type, the same in each dialect."""
    if value is None:
        return "NULL"
    type = column.type
    if isinstance(value, str) and type != "text":
        # What a server said of a table that was changed.
        return f"CAST('{value}' AS {column.sql_type})"
    if type == "int2":
        return f"CAST({value} AS smallint)"
    if type == "int8":
        return f"CAST({value} AS bigint)" if value > -(2**63) else f"CAST('{value}' AS bigint)"
    if type == "int4":
        return f"({value})" if -(2**31) < value < 0 else f"CAST('{value}' AS int)" if value < 0 else str(value)
    if type == "num":
        return f"CAST('{value}' AS {column.sql_type})"
    if type == "f8":
        return f"CAST('{value!r}' AS double precision)".replace("'inf'", "'Infinity'").replace("'-inf'", "'-Infinity'").replace("'nan'", "'NaN'")
    if type == "text":
        return "'" + value.replace("'", "''") + "'"
    if type == "bool":
        return "TRUE" if value else "FALSE"
    return f"{'DATE' if type == 'date' else 'TIMESTAMP'} '{shown(value)}'"


def shown(value):
    """A value as the text that every engine reads in CSV."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return "NaN" if value != value else "Infinity" if value == math.inf else "-Infinity" if value == -math.inf else repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        text = value.strftime("%H:%M:%S")
        if value.microsecond:
            text += f".{value.microsecond:06}".rstrip("0")
        return f"{value.year:04}-{value.month:02}-{value.day:02} {text}"
    if isinstance(value, datetime.date):
        return f"{value.year:04}-{value.month:02}-{value.day:02}"
    return str(value)


def csv_line(row):
    return ",".join("" if v is None else '"' + shown(v).replace('"', '""') + '"' for v in row) + "\n"


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def schema(self, largest):
        rng = self.rng
        self.types = {n: rng.choice(self.all_types()) for n in NAMES_OF_COLUMNS}
        sizes = [rng.choice([0, 1, 3, 10, 30, 60, 200, 1000]) for _ in range(rng.randint(2, 5))]
        sizes.append(rng.choice([largest, largest // 2, largest // 10, largest // 20]))
        if rng.random() < 0.3:
            sizes.append(rng.choice([largest // 2, largest // 8]))
        rng.shuffle(sizes)
        return [self.table(f"t{i}", n) for i, n in enumerate(sizes[:6])]

    def all_types(self):
        return ["int2", "int4", "int4", "int8", "num", "num", "f8", "text", "text", "date", "ts", "bool"]

    def table(self, name, size):
        rng = self.rng
        ident = Column("id", rng.choice(["int4", "int4", "int8"]), unique=True, nullable=False, mag=5e8)
        key = Column("k", rng.choice(["int4", "int4", "int8", "int2"]))
        columns = [ident, key]
        if rng.random() < 0.5:
            columns.append(Column("k2", rng.choice(["int4", "text", "date", "num"])))
        for n in sorted(rng.sample(NAMES_OF_COLUMNS, rng.randint(2, 6))):
            columns.append(Column(n, self.types[n] if rng.random() < 0.75 else rng.choice(self.all_types())))
        values = []
        for c in columns:
            if c.type == "num":
                c.scale = rng.choice([0, 1, 2, 2, 4])
                c.precision = min(rng.choice([5, 9, 12, 18, 18, 30]), 38) if c.name != "k2" else 9
            values.append(self.values(c, size))
        rows = [list(row) for row in zip(*values)]
        parts = 1 if size < 50 else rng.choice([1, 2, 3, 5])
        options = ""
        if rng.random() < 0.2:
            options = f" CLUSTER BY ({rng.choice(columns).name})"
        elif rng.random() < 0.15:
            options = f" PARTITION BY HASH ({rng.choice(columns[:2]).name}) INTO {rng.choice([2, 4])}"
        return Table(name, columns, rows, parts, options)

    def values(self, c, size):
        rng = self.rng
        if c.name == "id":
            ids = rng.sample(range(0, 4 * size + 1), size) if rng.random() < 0.3 else list(range(1, size + 1))
            if rng.random() < 0.3:
                rng.shuffle(ids)
            c.sample = ids[:20] or [1]
            return ids
        is_key = c.name in ("k", "k2")
        c.tame = is_key or rng.random() < 0.6
        style = rng.choice(["spread", "few", "skew", "runs", "constant"] if not is_key else ["spread", "skew", "few"])
        distinct = {"spread": max(size // 2, 4), "few": rng.randint(2, 12), "skew": max(size // 4, 4),
                    "runs": max(size // 10, 2), "constant": 1}[style]
        if is_key:
            distinct = min(max(distinct, 3), 5000)
        pool = [self.one(c, i if is_key else None) for i in range(min(distinct, 4000))]
        if style == "skew":
            out = [pool[min(int(rng.paretovariate(0.7)) - 1, len(pool) - 1)] for _ in range(size)]
        elif style == "runs":
            out = sorted((rng.choice(pool) for _ in range(size)), key=lambda v: (v != v, v))
        else:
            out = [rng.choice(pool) for _ in range(size)]
        nulls = rng.choice([0, 0.05, 0.05, 0.2, 0.6, 1.0] if not is_key else [0, 0.05, 0.3])
        if rng.random() < 0.9 and nulls == 1.0:
            nulls = 0.1
        c.nullable = nulls > 0
        out = [None if rng.random() < nulls else v for v in out]
        known_values = [v for v in out if v is not None]
        counts = {}
        for v in known_values:
            v = "nan" if v != v else v
            counts[v] = counts.get(v, 0) + 1
        c.frequency = max(counts.values(), default=0)
        c.sample = rng.sample(known_values, min(20, len(known_values))) or pool[:3]
        numbers = [abs(v) for v in pool if c.type in (*INTEGERS, "num", "f8") and v == v]
        c.mag = float(max(numbers, default=0)) if c.type in NUMBERS else None
        if c.tame:
            c.mag = max(c.mag or 1, 1)
        elif c.type == "f8":
            c.mag = None
        return out

    def one(self, c, i):
        """One value of a column: the i-th of a key, or any."""
        rng = self.rng
        wild = not c.tame
        type = c.type
        if i is not None:
            if type in INTEGERS:
                return i
            if type == "num":
                return decimal.Decimal(i).scaleb(-c.scale)
            if type == "text":
                return f"k{i}"
            return datetime.date(2020, 1, 1) + datetime.timedelta(days=i)
        if type in INTEGERS:
            limit = LIMITS[type]
            if wild:
                return rng.choice([limit, -limit - 1, limit - 1, -limit, 0, 1, -1, rng.randint(-limit, limit), 2**31 % (limit + 1)])
            return rng.randint(-1000, 1000) if rng.random() < 0.8 else rng.choice([0, 1, -1, 2, 100])
        if type == "num":
            top = 10**c.precision - 1
            n = rng.choice([top, -top, 0, 1, rng.randint(-top, top), 5, 50]) if wild else rng.randint(-min(top, 99999), min(top, 99999))
            return decimal.Decimal(n).scaleb(-c.scale)
        if type == "f8":
            if wild:
                return rng.choice([1e308, -1e308, 5e-324, 1e-300, 0.1, 0.3, math.inf, -math.inf, math.nan, 0.0, 1.5,
                                   rng.uniform(-1e6, 1e6), 2.0**53, 2.0**63, -0.0])
            return rng.randint(-4000, 4000) / 4
        if type == "text":
            if wild:
                c.ascii = False
                return rng.choice(WORDS + WIDE_WORDS + ["w" * rng.randint(1, 40)])
            return rng.choice(WORDS) if rng.random() < 0.5 else "".join(rng.choice("abcAB ") for _ in range(rng.randint(0, 8)))
        if type == "bool":
            return rng.random() < 0.5
        if type == "date":
            if wild:
                return rng.choice([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1970, 1, 1),
                                   datetime.date(1969, 12, 31), datetime.date(2000, 2, 29), datetime.date(1900, 3, 1),
                                   datetime.date.fromordinal(rng.randint(1, 3652059))])
            return datetime.date(2019, 12, 1) + datetime.timedelta(days=rng.randint(0, 800))
        if wild:
            return rng.choice([datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
                               datetime.datetime(1970, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
                               datetime.datetime(1, 1, 1) + datetime.timedelta(seconds=rng.randint(0, 3 * 10**11))])
        return datetime.datetime(2020, 1, 1) + datetime.timedelta(
            seconds=rng.randint(0, 800 * 86400), microseconds=rng.choice([0, 0, 500000, 123456])
        )
