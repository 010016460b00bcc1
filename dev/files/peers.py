"""Who else reads the files: DuckDB; and pandas and pyarrow, where DuckDB refuses."""

import json
import pathlib
import threading

import duckdb
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

from compare import with_intervals
from ours import Refused, quoted

PARQUET = (".parquet", ".pq", ".parq")
ARROW = (".arrow", ".feather", ".ipc", ".arrows", ".arrow_file", ".stream")
XLSX = (".xlsx", ".xlsm", ".xls")
JSON = (".json", ".jsonl", ".ndjson", ".geojson")
COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".zip")


def kind(path):
    """The kind of a file or of a pattern, by its name."""
    names = [n for n in pathlib.Path(str(path).lower()).name.split(".") if f".{n}" not in COMPRESSED]
    suffix = f".{names[-1]}" if len(names) > 1 else ""
    for name, suffixes in (("parquet", PARQUET), ("arrow", ARROW), ("json", JSON), ("xlsx", XLSX)):
        if suffix in suffixes:
            return name
    return "csv"


class DuckDB:
    """DuckDB in this process, interrupted after a time."""

    name = "DuckDB"

    def __init__(self, seconds):
        self.seconds = seconds
        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET timezone = 'UTC'")
        self.connection.execute("SET autoinstall_known_extensions = false")

    def read(self, path):
        functions = {"csv": "read_csv({}, sample_size = -1)", "json": "read_json({}, sample_size = -1)", "parquet": "read_parquet({})"}
        if kind(path) not in functions:
            raise Refused("error", f"DuckDB reads no {kind(path)} files")
        query = f"SELECT * FROM {functions[kind(path)].format(quoted(path))}"
        timer = threading.Timer(self.seconds, self.connection.interrupt)
        timer.start()
        try:
            return self.connection.sql(query).to_arrow_table()
        except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as e:
            raise Refused("hang" if "INTERRUPT" in str(e) else "error", str(e).split("\n")[0]) from None
        finally:
            timer.cancel()


# What pyarrow says of values that are what they are all the same: a date with hours, a number with a digit too many.
HARMLESS = ("does not represent a whole number of days", "does not fit in precision")


def validate(table):
    """An error if a table that was read has values outside of its buffers."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as e:
        if not any(words in str(e) for words in HARMLESS):
            raise


def pyarrow(path):
    """Parquet and Arrow files as pyarrow has them."""
    try:
        if kind(path) == "parquet":
            table = pa.parquet.ParquetFile(path).read()
            validate(table)
            return table
        with open(path, "rb") as file:
            start = file.read(6)
        if start.startswith(b"ARROW1"):
            table = pa.ipc.open_file(path).read_all()
        elif start.startswith(b"FEA1"):
            table = pa.feather.read_table(path)
        else:
            table = pa.ipc.open_stream(path).read_all()
        validate(table)
        return with_intervals(table)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise Refused("error", str(e).split("\n")[0]) from None


class Peers:
    """Who is asked about each kind of files: DuckDB about all that it reads, pyarrow about the others."""

    def __init__(self, seconds, parquet):
        self.duckdb, self.parquet = DuckDB(seconds), parquet

    def read(self, path):
        if kind(path) == "arrow" or kind(path) == "parquet" and self.parquet == "pyarrow":
            return pyarrow(path)
        return self.duckdb.read(path)
