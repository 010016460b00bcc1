"""Whether two tables of Arrow say the same: names, families of types, and all values in order.

A family is what a person calls a type: whether a whole number has 32 or 64 bits does not matter, and
neither does whether text is plain or a dictionary.
"""

import collections
import json
import math
import numbers
import re
import struct

import pyarrow as pa
import pyarrow.compute as pc

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# How far two readings of one number in decimals may lie apart: the last bit.
FLOATS = 1e-15
# How the line begins that tells of the same rows in another order.
ORDER = "rows in another order: "


def plain(type):
    """A type without dictionaries, runs and extensions around it."""
    while True:
        if isinstance(type, pa.BaseExtensionType):
            type = type.storage_type
        elif pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
            type = type.value_type
        else:
            return type


def family(type):
    t, kind = plain(type), pa.types
    if kind.is_boolean(t):
        return "boolean"
    if kind.is_integer(t):
        return "integer"
    if kind.is_floating(t):
        return "float"
    if kind.is_decimal(t):
        # DuckDB hands out its whole numbers of 128 bits as decimals.
        return "decimal" if t.scale else "integer"
    if kind.is_string(t) or kind.is_large_string(t) or kind.is_string_view(t):
        return "text"
    if kind.is_binary(t) or kind.is_large_binary(t) or kind.is_fixed_size_binary(t) or kind.is_binary_view(t):
        return "bytes"
    if kind.is_date(t):
        return "date"
    if kind.is_timestamp(t):
        return "timestamp with time zone" if t.tz else "timestamp"
    if kind.is_time(t):
        return "time"
    if kind.is_duration(t) or kind.is_interval(t):
        return "interval"
    if kind.is_null(t):
        return "null"
    if kind.is_map(t):
        return f"map({family(t.key_type)}, {family(t.item_type)})"
    if kind.is_struct(t):
        return "struct(" + ", ".join(f"{f.name} {family(f.type)}" for f in t) + ")"
    if kind.is_union(t):
        return "union(" + ", ".join(f"{f.name} {family(f.type)}" for f in t) + ")"
    if hasattr(t, "value_type"):
        return f"list({family(t.value_type)})"
    return str(t)


def shown(value, length=60):
    text = repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def values(column):
    """A column as values of Python that can be compared, also where Python has no such date."""
    type = plain(column.type)
    column = storage(column)
    if pa.types.is_interval(type):
        return [None if v is None else list(v) for v in column.to_pylist()]
    if pa.types.is_duration(type):
        # A duration is an interval without months and days.
        unit = 10**9 // PER_SECOND[type.unit]
        return [None if v is None else [0, 0, v * unit] for v in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_timestamp(type):
        unit = 10**9 // PER_SECOND[type.unit]
        return [None if v is None else v * unit for v in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_time(type):
        unit = 10**9 // PER_SECOND[type.unit]
        whole = pa.int32() if pa.types.is_time32(type) else pa.int64()
        return [None if v is None else v * unit for v in column.cast(whole).to_pylist()]
    if pa.types.is_date32(type):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_date64(type):
        return [None if v is None else v // 86_400_000 for v in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return column.to_pylist()
    if pa.types.is_nested(type):
        return [nested(v, type) for v in column]
    return column.to_pylist()


def storage(column):
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = []
    for piece in pieces:
        while True:
            if isinstance(piece, pa.ExtensionArray):
                piece = piece.storage
            elif isinstance(piece, pa.DictionaryArray):
                piece = piece.dictionary_decode()
            elif isinstance(piece, pa.RunEndEncodedArray):
                piece = pc.run_end_decode(piece)
            else:
                break
        found.append(piece)
    return pa.chunked_array(found, type=found[0].type if found else plain(column.type))


def nested(scalar, type):
    """A nested value: lists, and dictionaries for structs."""
    type = plain(type)
    if isinstance(scalar, (pa.DictionaryScalar, pa.ExtensionScalar)):
        scalar = scalar.value if isinstance(scalar, pa.ExtensionScalar) else scalar.as_py()
    if scalar is None or not hasattr(scalar, "is_valid"):
        return scalar
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(type):
        return {f.name: nested(scalar[i], f.type) for i, f in enumerate(type)}
    if pa.types.is_map(type):
        return [[nested(e[0], type.key_type), nested(e[1], type.item_type)] for e in scalar.values]
    if pa.types.is_union(type):
        return nested(scalar.value, scalar.value.type)
    if hasattr(type, "value_type"):
        return [nested(v, type.value_type) for v in scalar.values]
    return values(pa.chunked_array([pa.array([scalar.as_py()] if not pa.types.is_temporal(type) else [scalar], type=type)]))[0]


def with_intervals(table):
    """A table whose intervals of months and of days are those of all three parts.

    For the former Python has no class: nothing but their bytes can be had, as whole numbers.
    """
    for i, field in enumerate(table.schema):
        parts = INTERVALS.get(field.type.id)
        if parts is None:
            continue
        whole = pa.schema([(field.name, parts[0])])
        found = []
        for batch in table.select([i]).to_batches():
            numbers = pa.ipc.read_record_batch(batch.serialize(), whole).column(0).to_pylist()
            found.append(pa.array([None if n is None else parts[1](n) for n in numbers], pa.month_day_nano_interval()))
        table = table.set_column(i, field.name, pa.chunked_array(found, pa.month_day_nano_interval()))
    return table


def days_and_milliseconds(number):
    days, milliseconds = struct.unpack("<ii", struct.pack("<q", number))
    return pa.MonthDayNano([0, days, milliseconds * 1_000_000])


# By the number of the type in Arrow: how many bits it has, and what they mean.
INTERVALS = {21: (pa.int32(), lambda months: pa.MonthDayNano([months, 0, 0])), 22: (pa.int64(), days_and_milliseconds)}


def same(a, b):
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        try:
            a, b = float(a), float(b)
        except (ValueError, OverflowError, TypeError):
            return False
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=FLOATS, abs_tol=0)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def same_json(ours, theirs):
    """Whether values of DuckDB are the JSON of ours: of values of several kinds ours are texts, and there they have the
    type JSON, in which a text keeps its quotes and an object loses its blanks."""
    if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
        try:
            there = json.loads(theirs)
            return there == ours or there == json.loads(ours)
        except ValueError:
            return False
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same_json(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_json, ours, theirs))
    return same(ours, theirs)


def difference(ours, theirs, exactly=False, as_json=False):
    """One line about the first difference of two tables, or None. `exactly` compares types, not families; `as_json`
    takes texts for the same that are the same JSON."""
    names, others = ours.column_names, theirs.column_names
    if len(names) != len(others):
        return f"{len(names)} columns, not {len(others)}: {shown(names)}, not {shown(others)}"
    for i, (a, b) in enumerate(zip(names, others)):
        if a != b and not same_name(i, a, b, names):
            return f"column {i + 1} is named {shown(a)}, not {shown(b)}"
    if ours.num_rows != theirs.num_rows:
        return f"{ours.num_rows} rows, not {theirs.num_rows}"
    found = None
    for i, name in enumerate(names):
        # Types first, for all columns: they say more than a value does.
        a, b = ours.column(i), theirs.column(i)
        one, other = (a.type, b.type) if exactly else (family(a.type), family(b.type))
        if one != other and not alike(a, b):
            return f"column {shown(name)} is {one}, not {other}{first(a, b)}"
        found = found or value_difference(name, a, b, same_json if as_json else same)
    return found and (ORDER + found if same_rows(ours, theirs) else found)


def same_name(i, ours, theirs, names):
    """Whether DuckDB gave a name by its own custom to a column without a name, or with that of another."""
    if ours == f"column_{i + 1}" and re.fullmatch(f"column0*{i}", theirs):
        return True
    one, _, number = ours.rpartition("_")
    other, _, its = theirs.rpartition("_")
    return one == other and one in names and number.isdigit() and its.isdigit() and int(number) == int(its) + 1


def same_rows(a, b):
    """Whether two tables have the same rows, in whatever order."""
    # One zero, and half and double alike.
    plainly = lambda v: float(v) + 0.0 if isinstance(v, numbers.Real) and not isinstance(v, int) else v
    rows = lambda t: collections.Counter(map(repr, zip(*([plainly(v) for v in values(c)] for c in t.columns))))
    return rows(a) == rows(b)


def alike(a, b):
    """Whether families hold the same because no value is there at all."""
    return a.null_count == len(a) and b.null_count == len(b)


def first(a, b):
    """The first values of two columns, for a message."""
    for x, y in zip(a.slice(0, 1000), b.slice(0, 1000)):
        if x.is_valid or y.is_valid:
            return f" (such as {spelled(x)} beside {spelled(y)})"
    return ""


def spelled(scalar):
    try:
        return str(scalar)
    except (ValueError, OverflowError):
        # Python has no such date.
        return str(scalar.value)


def as_one_type(a, b):
    """Whether two nested columns are the same in the type of one of them: value by value takes long."""
    if not pa.types.is_nested(a.type) or pa.types.is_union(a.type):
        return False
    try:
        return a.cast(b.type).equals(b)
    except (pa.ArrowException, TypeError):
        return False


def value_difference(name, a, b, same):
    if a.type == b.type and a.equals(b) or as_one_type(a, b):
        return None
    for row, (x, y) in enumerate(zip(values(a), values(b)), 1):
        if not same(x, y):
            return f"column {shown(name)}, row {row}: {shown(x)}, not {shown(y)}"
    return None
