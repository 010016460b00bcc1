"""pandas over SQLAlchemy and psycopg: frames to tables and back. The server is in PGHOST, …

It makes a schema of its own and drops it.
"""

import csv
import datetime
import decimal
import io
import os
import time

import numpy
import pandas
import sqlalchemy as sa
from checks import check, equal, main

SCHEMA = "pandas_test"
# The rest is in libpq's environment.
ENGINE = sa.create_engine("postgresql+psycopg:///thalweg")
BERLIN = "Europe/Berlin"
ROWS = 20_000
# Of a release build on a machine of its own they are 2 and 0.5; what is checked here is that a row does
# not cost more the more there are, on whatever runs the checks.
SECONDS_MAX = float(os.environ.get("PANDAS_SECONDS_MAX", "60"))


def frame():
    return pandas.DataFrame(
        {
            "number": numpy.array([1, -2, 2**62], dtype="int64"),
            "value": [1.5, numpy.nan, -0.1],
            "name": ["it's", None, "größe\n\"2\"\\"],
            "ok": [True, False, True],
            "date": [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)],
            "time": pandas.to_datetime(["2024-02-29 10:11:12.123456", None, "1900-01-01 00:00:00"], format="ISO8601").astype("datetime64[ns]"),
            "zone": pandas.to_datetime(["2024-07-01 12:00", "2024-01-01 00:30", None]).tz_localize(BERLIN),
            "price": [decimal.Decimal("1.50"), None, decimal.Decimal("-12345678.25")],
            "kind": pandas.Categorical(["a", "b", "a"]),
        },
        index=pandas.Index([10, 20, 30], name=None),
    )


def same(found, wanted):
    """Both as Python has them, in any order: what is missing is None."""

    def plain(value):
        if isinstance(value, pandas.Timestamp):
            value = value.tz_convert("UTC").tz_localize(None) if value.tzinfo else value
            return value.to_pydatetime()
        # Objects that pandas knows no type of become texts; days of a table that is read whole are times.
        if isinstance(value, decimal.Decimal):
            return str(value)
        if type(value) is datetime.date:
            return datetime.datetime.combine(value, datetime.time())
        return None if pandas.isna(value) else value

    rows = lambda data: sorted((tuple(map(plain, row)) for row in data.itertuples(index=False)), key=str)
    equal(list(found.columns), list(wanted.columns))
    equal(rows(found), rows(wanted))


def write(name, data=None, **options):
    options = {"if_exists": "replace", "index": False, **options}
    return (frame() if data is None else data).to_sql(name, ENGINE, schema=SCHEMA, **options)


def read(name):
    return pandas.read_sql_query(f"SELECT * FROM {SCHEMA}.{name}", ENGINE)


def copy(table, connection, keys, rows):
    """The example of pandas' documentation."""
    lines = io.StringIO()
    csv.writer(lines).writerows(rows)
    columns = ", ".join(f'"{key}"' for key in keys)
    with connection.connection.cursor() as cursor:
        with cursor.copy(f'COPY {SCHEMA}."{table.name}" ({columns}) FROM STDIN WITH CSV') as into:
            into.write(lines.getvalue())


@check("data frames")
def ways():
    for number, options in enumerate(
        [{}, {"method": "multi"}, {"chunksize": 2}, {"method": "multi", "chunksize": 2}, {"method": copy}]
    ):
        write(f"way_{number}", **options)
        same(read(f"way_{number}"), frame())


@check("data frames")
def dtypes():
    write("types")
    found = read("types")
    equal(
        [str(found[c].dtype) for c in ("number", "value", "ok", "time", "zone")],
        ["int64", "float64", "bool", "datetime64[us]", "datetime64[us, UTC]"],
    )
    table = pandas.read_sql_table("types", ENGINE, schema=SCHEMA)
    same(table, frame())
    spans = pandas.DataFrame({"took": pandas.to_timedelta(["1 day", "2 hours", None])})
    write("spans", spans)
    # pandas writes their units as whole numbers, and says so.
    equal(sorted(read("spans").took), sorted(spans.took.astype("int64")))


@check("data frames")
def exists():
    write("there")
    try:
        write("there", if_exists="fail")
        raise AssertionError("a table that is there is written to")
    except ValueError:
        pass
    write("there", if_exists="append")
    equal(len(read("there")), 6)
    write("there", if_exists="replace")
    equal(len(read("there")), 3)


@check("data frames")
def words():
    columns = ["index", "value", "name", "type", "date", "timestamp", "time", "year", "key", "level", "rows", "view"]
    data = pandas.DataFrame([range(len(columns))], columns=columns)
    write("words", data)
    same(read("words"), data)
    equal(read("words WHERE index = 0 AND key = 8 AND view = 11").shape, (1, 12))


@check("parameters")
def queries():
    write("asked")
    asked = pandas.read_sql_query(
        sa.text(f"SELECT number, name FROM {SCHEMA}.asked WHERE ok = :ok AND date >= :day ORDER BY number"),
        ENGINE,
        params={"ok": True, "day": datetime.date(2000, 1, 1)},
    )
    equal(asked.number.tolist(), [1])
    with ENGINE.connect() as connection:
        numbers = pandas.read_sql(f"SELECT number FROM {SCHEMA}.asked", connection, chunksize=2)
        equal([len(part) for part in numbers], [2, 1])


@check("transactions")
def transactions():
    write("kept")
    with ENGINE.connect() as connection:
        frame().to_sql("kept", connection, schema=SCHEMA, if_exists="append", index=False)
        count = lambda: connection.execute(sa.text(f"SELECT count(*) FROM {SCHEMA}.kept")).scalar()
        equal(count(), 6)
        with connection.begin_nested() as inner:
            frame().to_sql("kept", connection, schema=SCHEMA, if_exists="append", index=False)
            equal(count(), 9)
            inner.rollback()
        equal(count(), 6)
        connection.execute(sa.text(f"UPDATE {SCHEMA}.kept SET name = 'x' WHERE number = 1"))
        connection.execute(sa.text(f"DELETE FROM {SCHEMA}.kept WHERE number = -2"))
        equal(count(), 4)
        connection.rollback()
    # Where no transaction was open, pandas has ended its own.
    same(read("kept"), pandas.concat([frame(), frame()]))


@check("errors")
def errors():
    with ENGINE.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {SCHEMA}.strict (number BIGINT NOT NULL, name VARCHAR(3))"))
    data = pandas.DataFrame({"number": range(5000), "name": ["abc"] * 4999 + ["too long"]})
    for method in (None, "multi"):
        try:
            write("strict", data, if_exists="append", method=method)
            raise AssertionError("a text that is too long is taken")
        except pandas.errors.DatabaseError as error:
            equal(error.__cause__.orig.sqlstate, "22001")
    equal(len(read("strict")), 0)


@check("many rows")
def many():
    data = pandas.DataFrame(
        {
            "a": range(ROWS),
            "b": numpy.arange(ROWS) * 0.5,
            "s": [f"name {i}" for i in range(ROWS)],
            "ok": numpy.arange(ROWS) % 2 == 0,
            "t": pandas.date_range("2020-01-01", periods=ROWS, freq="min"),
        }
    )
    for options in ({}, {"method": "multi", "chunksize": 1000}):
        begun = time.monotonic()
        write("many", data, **options)
        took = time.monotonic() - begun
        equal(took < SECONDS_MAX or took, True)
        same(read("many ORDER BY a"), data)


if __name__ == "__main__":
    with ENGINE.begin() as connection:
        connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))
        connection.execute(sa.text(f"CREATE SCHEMA {SCHEMA}"))
    try:
        main()
    finally:
        with ENGINE.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))
