"""Parquet and Arrow files by pyarrow: every type, unit, page version, compression and odd shape."""

import decimal
import math
from datetime import date, datetime, time, timedelta

import numpy
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq

D = decimal.Decimal
INT64 = (-(2**63), 2**63 - 1)


def types():
    """A column for each type, each with a NULL."""
    found = {"boolean": pa.array([True, None, False]), "null": pa.nulls(3)}
    for bits in (8, 16, 32, 64):
        found[f"int{bits}"] = pa.array([-(2 ** (bits - 1)), None, 2 ** (bits - 1) - 1], getattr(pa, f"int{bits}")())
        found[f"uint{bits}"] = pa.array([0, None, 2**bits - 1], getattr(pa, f"uint{bits}")())
    found["half"] = pa.array([numpy.float16(1.5), None, numpy.float16(-2)], pa.float16())
    found["float"] = pa.array([1.5, None, math.inf], pa.float32())
    found["double"] = pa.array([1e300, None, -0.0])
    found["nan"] = pa.array([3.0, math.nan, 3.0])
    found["nan-all"] = pa.array([math.nan, math.nan])
    found["nan-float"] = pa.array([math.nan, 1.0, None], pa.float32())
    for precision, scale in ((5, 2), (18, 6), (38, 10), (9, 0)):
        digits = "9" * (precision - scale) + "." + "9" * scale
        found[f"decimal-{precision}-{scale}"] = pa.array([D(digits), None, D("-" + digits)], pa.decimal128(precision, scale))
    found["decimal-32"] = pa.array([D("1.25"), None], pa.decimal32(7, 2))
    found["decimal-64"] = pa.array([D("1.25"), None], pa.decimal64(15, 2))
    found["decimal-256"] = pa.array([D("12345678901234567890123456789012345678901.5"), None], pa.decimal256(50, 5))
    found["decimal-256-small"] = pa.array([D("1.5"), None], pa.decimal256(40, 5))
    for kind in ("string", "large_string", "string_view"):
        found[kind.replace("_", "-")] = pa.array(["a", None, "Zürich", ""], getattr(pa, kind)())
    for kind in ("binary", "large_binary", "binary_view"):
        found[kind.replace("_", "-")] = pa.array([b"\x00\xff", None, b""], getattr(pa, kind)())
    found["binary-fixed"] = pa.array([b"abcd", None], pa.binary(4))
    found["dictionary"] = pa.array(["x", "y", None, "x"]).dictionary_encode()
    found["dictionary-integers"] = pa.array([5, 7, None, 5]).dictionary_encode()
    found["date32"] = pa.array([date(1, 1, 1), None, date(9999, 12, 31)])
    found["date64"] = pa.array([date(1969, 7, 20), None], pa.date64())
    moment = datetime(2024, 2, 29, 12, 34, 56)
    for unit in ("s", "ms", "us", "ns"):
        found[f"timestamp-{unit}"] = pa.array([moment, None, datetime(1900, 1, 1)], pa.timestamp(unit))
        found[f"timestamp-{unit}-utc"] = pa.array([moment, None], pa.timestamp(unit, "UTC"))
        found[f"timestamp-{unit}-zone"] = pa.array([moment, None], pa.timestamp(unit, "Europe/Berlin"))
        found[f"duration-{unit}"] = pa.array([timedelta(seconds=90), None], pa.duration(unit))
    found["timestamp-extreme-us"] = pa.array([INT64[0] + 1, None, INT64[1]], pa.timestamp("us"))
    found["timestamp-extreme-ms"] = pa.array([INT64[0] + 1, None, INT64[1]], pa.timestamp("ms"))
    found["timestamp-extreme-ns"] = pa.array([INT64[0] + 1, None, INT64[1]], pa.timestamp("ns"))
    found["timestamp-ns-digits"] = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns"))
    found["date-extreme"] = pa.array([-(2**31), None, 2**31 - 1], pa.date32())
    for unit, bits in (("s", 32), ("ms", 32), ("us", 64), ("ns", 64)):
        found[f"time-{unit}"] = pa.array([time(12, 34, 56), None, time(0)], getattr(pa, f"time{bits}")(unit))
    found["list"] = pa.array([[1, None, 3], None, []])
    found["list-text"] = pa.array([["a", None], None, [""]])
    found["list-large"] = pa.array([[1], None], pa.large_list(pa.int64()))
    found["list-fixed"] = pa.array([[1, 2], None], pa.list_(pa.int32(), 2))
    found["list-of-lists"] = pa.array([[[1], []], None, [None, [2, 3]]])
    found["struct"] = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}])
    found["struct-nested"] = pa.array([{"a": {"b": {"c": 1}}}, {"a": None}, None])
    found["list-of-structs"] = pa.array([[{"a": 1, "b": [1.5]}], [], None, [None, {"a": None, "b": None}]])
    found["map"] = pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64()))
    found["map-of-lists"] = pa.array([[(1, ["x"])], None], pa.map_(pa.int32(), pa.list_(pa.string())))
    return found


def parquet(folder):
    def write(name, table, made=None, **options):
        path = folder.root / f"{name}.parquet"
        pq.write_table(table, path, **options)
        folder.case(path.name, path, made if made is not None else pq.ParquetFile(path).read())

    for name, column in types().items():
        write(f"type-{name}", pa.table({"id": pa.array(range(len(column))), "v": column}))
    for unit in ("s", "ms", "us", "ns"):
        write(f"int96-{unit}", pa.table({"v": pa.array([datetime(2024, 2, 29, 12), None], pa.timestamp(unit))}), use_deprecated_int96_timestamps=True)
    rows = 10_000
    wide = pa.table({
        "id": range(rows), "word": [f"word {i % 50}" for i in range(rows)], "half": [i / 2 for i in range(rows)],
        "maybe": [None if i % 3 else i for i in range(rows)], "day": pa.array([i % 20000 for i in range(rows)], pa.int32()).cast(pa.date32()),
    })
    for compression in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
        write(f"compression-{compression}", wide, compression=compression)
    for version in ("1.0", "2.0"):
        write(f"pages-{version}", wide, data_page_version=version)
        write(f"pages-{version}-small", wide, data_page_version=version, data_page_size=512)
    for version in ("1.0", "2.4", "2.6"):
        write(f"format-{version}", wide, version=version)
    write("no-dictionary", wide, use_dictionary=False)
    write("no-statistics", wide, write_statistics=False)
    write("page-index", wide, write_page_index=True)
    write("checksums", wide, write_page_checksum=True)
    write("row-groups-many", wide, row_group_size=100)
    write("row-groups-one-row", wide.slice(0, 50), row_group_size=1)
    for encoding in ("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"):
        write(f"encoding-{encoding.lower()}-integers", wide.select(["id"]), use_dictionary=False, column_encoding={"id": encoding})
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"):
        write(f"encoding-{encoding.lower()}-text", wide.select(["word"]), use_dictionary=False, column_encoding={"word": encoding})
    write("encoding-byte_stream_split-floats", wide.select(["half"]), use_dictionary=False, column_encoding={"half": "BYTE_STREAM_SPLIT"})
    write("empty", wide.slice(0, 0))
    path = folder.root / "no-row-groups.parquet"
    pq.ParquetWriter(path, wide.schema).close()
    folder.case(path.name, path, wide.slice(0, 0))
    write("no-columns", pa.table({}))
    write("names-twice", pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"]), pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a_1"]))
    write("names-case-only", pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"]), pa.table([pa.array([1]), pa.array([2])], names=["id", "ID_1"]))
    write("names-odd", pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a b", "x.y", "select"]))
    write("name-empty", pa.table([pa.array([1]), pa.array([2])], names=["", "b"]), pa.table([pa.array([1]), pa.array([2])], names=["column_1", "b"]))
    write("not-null", pa.table([pa.array([1, 2])], schema=pa.schema([pa.field("a", pa.int64(), nullable=False)])))
    write("text-large", pa.table({"t": ["x" * 1_000_000, None, "y"]}))
    write("nulls-all", pa.table({"n": pa.array([None] * 5, pa.int64()), "t": pa.array([None] * 5, pa.string())}))
    write("zeros-signed", pa.table({"v": [0.0, -0.0, 1.0]}))
    write("columns-many", pa.table({f"c{i}": [i, i + 1] for i in range(1000)}))
    write("metadata", wide.slice(0, 3).replace_schema_metadata({"pandas": "{}", "x": "y"}))
    folder.put("cut-off.parquet", (folder.root / "no-dictionary.parquet").read_bytes()[:-200])
    folder.case("cut-off.parquet", folder.root / "cut-off.parquet", "parquet")
    folder.add("empty-file.parquet", b"", "")
    folder.add("text.parquet", "a,b\n1,2\n", "")


def arrow(folder):
    def write(name, table, made=None, stream=False, **options):
        path = folder.root / f"{name}.arrow"
        make = pa.ipc.new_stream if stream else pa.ipc.new_file
        with make(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table)
        folder.case(path.name, path, made or table)

    for name, column in types().items():
        write(f"type-{name}", pa.table({"id": pa.array(range(len(column))), "v": column}))
    ends = pa.array(["a", "a", None, "b"])
    write("type-run-ends", pa.table({"v": pa.compute.run_end_encode(ends)}), pa.table({"v": ends}))
    dense = pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["x"])], ["n", "t"])
    sparse = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])], ["n", "t"])
    write("type-union-dense", pa.table({"v": dense}))
    write("type-union-sparse", pa.table({"v": sparse}))
    # NULLs that are values of a dictionary, and not of its indices.
    for name, value in (("text", "a"), ("integers", 7)):
        write(f"dictionary-null-{name}", pa.table({"v": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None]), pa.array([None, value]))}))
    lists = pa.ListArray.from_arrays([0, 2, 3], pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([None, "a"])))
    write("dictionary-null-in-lists", pa.table({"v": lists}), pa.table({"v": [[None, "a"], [None]]}))
    write("dictionary-same-values", pa.table({"v": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["a", "b", "a"]))}))
    numbered = pa.UnionArray.from_sparse(pa.array([7, 5], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])], ["n", "t"], [5, 7])
    write("type-union-numbered", pa.table({"v": numbered}))
    write("type-duration-extreme", pa.table({"v": pa.array([INT64[0] + 1, None, INT64[1]], pa.duration("us"))}))
    write("type-interval", pa.table({"v": pa.array([pa.MonthDayNano([1, 2, 3000]), None])}))
    plain = pa.table({"id": range(1000), "word": [f"w{i % 9}" for i in range(1000)]})
    write("stream", plain, stream=True)
    write("stream-dictionary", pa.table({"v": types()["dictionary"]}), stream=True)
    write("stream-empty", plain.slice(0, 0), stream=True)
    write("empty", plain.slice(0, 0))
    for compression in ("lz4", "zstd"):
        write(f"compression-{compression}", plain, compression=compression)
    batches = pa.Table.from_batches(plain.to_batches(max_chunksize=7))
    write("batches", batches, plain)
    write("names-twice", pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), pa.table([pa.array([1]), pa.array([2])], names=["a", "a_1"]))
    write("names-case-only", pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"]), pa.table([pa.array([1]), pa.array([2])], names=["id", "ID_1"]))
    mixed = [pa.array([1], pa.int8()), pa.array(["x"])]
    write("names-twice-of-two-types", pa.table(mixed, names=["a", "a"]), pa.table(mixed, names=["a", "a_1"]))
    for compression in ("uncompressed", "lz4", "zstd"):
        path = folder.root / f"{compression}.feather"
        pyarrow.feather.write_feather(plain, path, compression=compression)
        folder.case(path.name, path, plain)
    path = folder.root / "version-1.feather"
    pyarrow.feather.write_feather(plain, path, version=1)
    folder.case(path.name, path)
    whole = (folder.root / "batches.arrow").read_bytes()
    folder.add("cut-off.arrow", whole[: len(whole) // 2], "")
    folder.add("empty-file.arrow", b"", "")
