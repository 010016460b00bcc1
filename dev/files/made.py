"""A file of the corpus, and what a table is made of."""

import bz2
import dataclasses
import datetime
import gzip
import lzma
import pathlib
import zipfile

import pyarrow as pa


@dataclasses.dataclass
class Case:
    """A file, or a pattern or folder of them, and what has to be read from it."""

    name: str
    path: str
    # The table that it was made from, or a word that the error must have. None: the peer alone knows.
    made: object = None


TYPES = {
    bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary(),
    datetime.date: pa.date32(), datetime.datetime: pa.timestamp("us"), datetime.time: pa.time64("us"),
}


def column(values):
    """A column of values of Python; a column without any is text."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    kinds = {type(v) for v in values if v is not None}
    if len(kinds) == 1:
        kind = kinds.pop()
        if kind is datetime.datetime and any(v and v.tzinfo for v in values):
            return pa.array(values, pa.timestamp("us", "UTC"))
        if kind in TYPES:
            return pa.array(values, TYPES[kind])
        return pa.array(values)
    if not kinds:
        return pa.array(values, pa.string())
    if kinds == {int, float}:
        return pa.array([None if v is None else float(v) for v in values])
    raise ValueError(f"values of several kinds: {values}")


def table(names, *columns):
    return pa.table([column(c) for c in columns], names=list(names))


def compress(data, how):
    if how == "gz":
        return gzip.compress(data, mtime=0)
    if how == "bz2":
        return bz2.compress(data)
    if how == "xz":
        return lzma.compress(data)
    if how == "zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    raise ValueError(how)


class Folder:
    """Where a kind of files is written; `add` writes one and lists it."""

    def __init__(self, root, kind):
        self.root, self.kind, self.cases = pathlib.Path(root) / kind, kind, []
        self.root.mkdir(parents=True)

    def put(self, name, data):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = data.encode() if isinstance(data, str) else data
        suffix = path.suffix[1:]
        if suffix == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(zipfile.ZipInfo(path.stem), data)
        elif suffix in ("gz", "bz2", "xz", "zst"):
            path.write_bytes(compress(data, suffix))
        else:
            path.write_bytes(data)
        return path

    def add(self, name, data, made=None):
        self.case(name, self.put(name, data), made)

    def case(self, name, path, made=None):
        self.cases.append(Case(f"{self.kind}/{name}", str(path), made))
