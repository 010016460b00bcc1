"""JSON: lines, arrays, documents over several lines, nested and mixed values."""

import json
from datetime import date, datetime

import pyarrow as pa

from made import table

COMPRESSIONS = ("gz", "zst", "bz2", "xz", "zip")


def lines(records):
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)


FORMS = {
    "lines": ("jsonl", lines),
    "named-json": ("json", lines),
    "ndjson": ("ndjson", lines),
    "array": ("json", lambda r: json.dumps(r, ensure_ascii=False)),
    "array-pretty": ("json", lambda r: json.dumps(r, indent=2, ensure_ascii=False)),
    "array-a-line-each": ("json", lambda r: "[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in r) + "\n]\n"),
    "objects-pretty": ("json", lambda r: "\n".join(json.dumps(x, indent=2, ensure_ascii=False) for x in r)),
    "lines-crlf": ("jsonl", lambda r: lines(r).replace("\n", "\r\n")),
    "lines-bom": ("jsonl", lambda r: "\ufeff" + lines(r)),
}
POINT = pa.struct([("x", pa.int64()), ("y", pa.float64())])

# Records, and the table that is in them; None where the peer knows.
RECORDS = {
    "plain": ([{"z": 1, "a": "x", "m": 2.5}, {"z": 2, "a": "y", "m": None}, {"z": 3, "a": None, "m": 4.0}],
              table("zam", [1, 2, 3], ["x", "y", None], [2.5, None, 4.0])),
    "unicode": ([{"städte": "Zürich 🦉"}, {"städte": "東京"}], table(("städte",), ["Zürich 🦉", "東京"])),
    "booleans": ([{"b": True}, {"b": False}, {"b": None}], table("b", [True, False, None])),
    "missing-keys": ([{"a": 1}, {"b": "x"}, {"a": 2, "b": "y"}], table("ab", [1, None, 2], [None, "x", "y"])),
    "nested": ([{"id": 1, "p": {"x": 1, "y": 2.5}}, {"id": 2, "p": None}, {"id": 3, "p": {"x": 3, "y": None}}],
               pa.table({"id": [1, 2, 3], "p": pa.array([{"x": 1, "y": 2.5}, None, {"x": 3, "y": None}], POINT)})),
    "lists": ([{"id": 1, "l": [1, 2, 3]}, {"id": 2, "l": []}, {"id": 3, "l": None}],
              pa.table({"id": [1, 2, 3], "l": pa.array([[1, 2, 3], [], None], pa.list_(pa.int64()))})),
    "lists-of-objects": ([{"l": [{"x": 1, "y": 0.5}]}, {"l": [{"x": 2, "y": 1.5}, {"x": 3, "y": None}]}],
                         pa.table({"l": pa.array([[{"x": 1, "y": 0.5}], [{"x": 2, "y": 1.5}, {"x": 3, "y": None}]], pa.list_(POINT))})),
    "lists-of-lists": ([{"l": [[1], [2, 3]]}, {"l": [[]]}], pa.table({"l": pa.array([[[1], [2, 3]], [[]]], pa.list_(pa.list_(pa.int64())))})),
    "objects-grow": ([{"p": {"x": 1}}, {"p": {"x": 2, "y": "n"}}],
                     pa.table({"p": pa.array([{"x": 1, "y": None}, {"x": 2, "y": "n"}], pa.struct([("x", pa.int64()), ("y", pa.string())]))})),
    "numbers-mixed": ([{"n": 1}, {"n": 2.5}, {"n": -3}], table("n", [1.0, 2.5, -3.0])),
    "numbers-and-text": ([{"n": 1}, {"n": "x"}, {"n": 2}], table("n", ["1", "x", "2"])),
    "numbers-as-text": ([{"n": "1"}, {"n": "2"}], table("n", ["1", "2"])),
    "leading-zeros": ([{"zip": "00501"}, {"zip": "10001"}], table(("zip",), ["00501", "10001"])),
    "large": ([{"n": 2**63 - 1}, {"n": -(2**63)}], table("n", [2**63 - 1, -(2**63)])),
    "too-large": ([{"n": 2**64}, {"n": 1}], None),
    "unsigned": ([{"n": 2**64 - 1}, {"n": 1}], None),
    "exponents": ([{"n": 1e300}, {"n": 2.5e-7}], table("n", [1e300, 2.5e-7])),
    "dates": ([{"d": "2024-01-31"}, {"d": "1999-12-01"}], table("d", [date(2024, 1, 31), date(1999, 12, 1)])),
    "timestamps": ([{"t": "2024-01-31T10:00:00"}, {"t": "1999-12-01T23:59:59.5"}], table("t", [datetime(2024, 1, 31, 10), datetime(1999, 12, 1, 23, 59, 59, 500000)])),
    "dates-and-text": ([{"d": "2024-01-31"}, {"d": "soon"}], table("d", ["2024-01-31", "soon"])),
    "escapes": ([{"s": 'a"b\\c\n\t/\u0001'}, {"s": "</x>"}], table("s", ['a"b\\c\n\t/\u0001', "</x>"])),
    "empty-text": ([{"s": ""}, {"s": None}, {"s": " "}], table("s", ["", None, " "])),
    "all-null": ([{"a": 1, "n": None}, {"a": 2, "n": None}], table("an", [1, 2], [None, None])),
    "case-only": ([{"id": 1, "ID": 2}, {"id": 3, "ID": 4}], table(("id", "ID_1"), [1, 3], [2, 4])),
    "odd-names": ([{"a b": 1, "select": 2, "x.y": 3, "": 4}], None),
    "objects-and-text": ([{"v": {"x": 1}}, {"v": "text"}], table("v", ['{"x": 1}', "text"])),
    "lists-mixed": ([{"l": [1, "a", None]}, {"l": [True]}], pa.table({"l": pa.array([["1", "a", None], ["true"]])})),
    "keys-many": ([{f"k{i}": i for i in range(300)}] * 3, table([f"k{i}" for i in range(300)], *([i] * 3 for i in range(300)))),
}


def documents(folder):
    plain, made = RECORDS["plain"]
    for form, (suffix, write) in FORMS.items():
        for what in ("plain", "unicode", "nested", "missing-keys"):
            folder.add(f"{form}-{what}.{suffix}", write(RECORDS[what][0]), RECORDS[what][1])
    for what, (records, table_of) in RECORDS.items():
        folder.add(f"{what}.jsonl", lines(records), table_of)
        folder.add(f"{what}-array.json", json.dumps(records), table_of)
    for how in COMPRESSIONS:
        folder.add(f"compressed.jsonl.{how}", lines(plain), made)
        folder.add(f"compressed-array.json.{how}", json.dumps(plain), made)
    folder.add("encoding-utf-16.json", json.dumps(plain).encode("utf-16"))
    folder.add("late-key.jsonl", '{"a":1}\n' * 5000 + '{"a":2,"b":"x"}\n', table("ab", [1] * 5000 + [2], [None] * 5000 + ["x"]))
    folder.add("late-float.jsonl", '{"c0":7}\n' * 20480 + '{"c0":1.5}\n', table(("c0",), [7.0] * 20480 + [1.5]))
    folder.add("late-text.jsonl", '{"a":1}\n' * 5000 + '{"a":"x"}\n', table("a", ["1"] * 5000 + ["x"]))
    folder.add("late-nested.jsonl", '{"p":{"x":1}}\n' * 3000 + '{"p":{"x":1,"y":2}}\n')
    folder.add("one-object.json", '{"name": "x", "list": [1, 2]}')
    folder.add("one-object-pretty.json", json.dumps({"a": 1, "b": {"c": [1, 2]}}, indent=2))
    folder.add("array-empty.json", "[]")
    folder.add("object-empty.json", "{}")
    folder.add("file-empty.json", "")
    folder.add("array-of-numbers.json", "[1, 2, 3]")
    folder.add("array-of-lists.json", "[[1, 2], [3, 4]]")
    folder.add("key-twice.jsonl", '{"a":1,"a":2}\n')
    folder.add("blank-lines.jsonl", '{"a":1}\n\n{"a":2}\n\n', table("a", [1, 2]))
    folder.add("no-last-line-end.jsonl", '{"a":1}\n{"a":2}', table("a", [1, 2]))
    folder.add("cut-off.jsonl", '{"a":1}\n{"a":', "")
    folder.add("cut-off-array.json", '[{"a":1},{"a":2}', "")
    folder.add("comma-at-the-end.json", '[{"a":1},{"a":2},]')
    folder.add("not-a-number.jsonl", '{"a":1.5}\n{"a":NaN}\n')
    folder.add("geojson.geojson", json.dumps({"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"n": 1}, "geometry": {"type": "Point", "coordinates": [1.5, 2.5]}}]}))
    many = [{"id": i, "word": f"w{i % 7}", "half": i / 2} for i in range(20_000)]
    made = table(("id", "word", "half"), [r["id"] for r in many], [r["word"] for r in many], [r["half"] for r in many])
    folder.add("many.jsonl", lines(many), made)
    folder.add("many-array.json", json.dumps(many), made)
