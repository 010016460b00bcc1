"""psycopg 3, in text and in binary. The server is in PGHOST, PGPORT, …"""

import datetime
import decimal
import threading
import time
import uuid

import psycopg
from checks import check, equal, main
from psycopg.rows import dict_row

ENDLESS = "SELECT count(*) FROM generate_series(1, 100000000000)"
COLUMNS = (
    "i int, b bigint, f double, n decimal(12,3), s varchar, d date, ts timestamp, t time, by bytea, "
    "ok boolean, l int[], iv interval"
)
ROW = (
    1, 2**40, 1.5, decimal.Decimal("12.345"), "it's", datetime.date(2024, 2, 29),
    datetime.datetime(2024, 1, 1, 1, 2, 3, 456), datetime.time(1, 2, 3), b"\x00\xff", True,
    [1, 2, None],
)


def connect(**options):
    return psycopg.connect("dbname=thalweg", autocommit=True, **options)


def fails(state, work):
    try:
        work()
    except psycopg.Error as e:
        equal(e.sqlstate, state)
        return e
    raise AssertionError(f"no error {state}")


@check("queries")
def queries():
    with connect(row_factory=dict_row) as c:
        equal(c.execute("SELECT 1 AS a, 'x' AS b").fetchall(), [{"a": 1, "b": "x"}])
        equal(c.execute("SELECT i FROM generate_series(1, 100000) AS t(i)").fetchall()[-1], {"i": 100000})


@check("types as text")
def text():
    types(binary=False)


@check("types in binary")
def binary():
    types(binary=True)


def types(binary):
    with connect() as c:
        columns = COLUMNS.replace(", iv interval", "")
        c.execute(f"CREATE OR REPLACE TABLE psy_t ({columns})")
        marks = ", ".join(["%b" if binary else "%s"] * len(ROW))
        equal(c.execute(f"INSERT INTO psy_t VALUES ({marks})", ROW).rowcount, 1)
        c.execute(f"INSERT INTO psy_t VALUES ({marks})", (None,) * len(ROW))
        cursor = c.cursor(binary=binary)
        equal(cursor.execute("SELECT * FROM psy_t WHERE i = %s", (1,)).fetchone(), ROW)
        equal(cursor.execute("SELECT * FROM psy_t WHERE i IS NULL").fetchone(), (None,) * len(ROW))
        far = cursor.execute(
            "SELECT interval '1 day 2 hours', '-99999999999999999999.5'::decimal(30,5), "
            "date '0001-01-01', 'NaN'::double, [['a', NULL], ['b,', '']]"
        ).fetchone()
        equal(far[:3], (
            datetime.timedelta(days=1, hours=2), decimal.Decimal("-99999999999999999999.50000"),
            datetime.date(1, 1, 1),
        ))
        equal(far[4], [["a", None], ["b,", ""]])


@check("parameters")
def parameters():
    with connect() as c:
        one = lambda sql, *values: c.execute(sql, values).fetchone()
        equal(one("SELECT %s::int + 1, %s, %s || 'x'", 5, "a", "b"), (6, "a", "bx"))
        equal(one("SELECT count(*) FROM generate_series(1, %s)", 100), (100,))
        equal(c.execute("SELECT * FROM generate_series(1, 100) LIMIT %s OFFSET %s", (2, 5)).fetchall(), [(6,), (7,)])
        equal(one("SELECT i FROM psy_t WHERE s = %s AND d >= %s", "it's", datetime.date(2020, 1, 1)), (1,))
        equal(one("SELECT i FROM psy_t WHERE i = ANY(%s)", [1, 2, 3]), (1,))
        equal(one("SELECT i FROM psy_t WHERE t = %s AND t IN (%s) AND t = ANY(%s)", ROW[7], ROW[7], [ROW[7]]), (1,))
        equal(one("SELECT %s IS NULL", None), (True,))
        equal(one("SELECT %s", "'; DROP TABLE psy_t; --"), ("'; DROP TABLE psy_t; --",))
        equal(one("SELECT %s::varchar", uuid.UUID(int=7)), (str(uuid.UUID(int=7)),))
        for _ in range(8):
            equal(c.execute("SELECT %s + 1", (7,), prepare=True).fetchone(), (8,))


@check("changes")
def changes():
    with connect() as c:
        c.execute("CREATE OR REPLACE TABLE psy_c (i int, s varchar, d date)")
        cursor = c.cursor()
        cursor.executemany("INSERT INTO psy_c (i, s) VALUES (%s, %s)", [(i, str(i)) for i in range(10)])
        equal(cursor.rowcount, 10)
        equal(c.execute("UPDATE psy_c SET s = %s, d = %s WHERE i = %s", ("new", datetime.date(2024, 1, 2), 3)).rowcount, 1)
        equal(c.execute("DELETE FROM psy_c WHERE i > %s", (7,)).rowcount, 2)
        equal(c.execute("INSERT INTO psy_c (i) VALUES (77) RETURNING i, i + 1 AS j").fetchall(), [(77, 78)])
        equal(c.execute("SELECT s, d FROM psy_c WHERE i = 3").fetchone(), ("new", datetime.date(2024, 1, 2)))


@check("copy in")
def copy_in():
    with connect() as c:
        c.execute("CREATE OR REPLACE TABLE psy_i (i int, s varchar, d date)")
        with c.cursor().copy("COPY psy_i FROM STDIN") as copy:
            for i in range(20000):
                copy.write_row((i, f"line\t{i}\\", datetime.date(2000, 1, 1)))
            copy.write_row((None, None, None))
        with c.cursor().copy("COPY psy_i (i, s, d) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "date"])
            copy.write_row((-1, "bin", datetime.date(2001, 1, 1)))
            copy.write_row((None, None, None))
        equal(c.execute("SELECT count(*), count(i), sum(i) FROM psy_i").fetchone(), (20003, 20001, 199989999))
        equal(c.execute("SELECT s FROM psy_i WHERE i = 7").fetchone(), ("line\t7\\",))

        def breaks():
            with c.cursor().copy("COPY psy_i FROM STDIN") as copy:
                copy.write("1\tx\t2000-01-01\nno\tx\t2000-01-01\n")

        assert "line 2" in str(fails("22P02", breaks))

        def gives_up():
            with c.cursor().copy("COPY psy_i FROM STDIN") as copy:
                copy.write("1\tx\t2000-01-01\n")
                raise KeyError("enough")

        try:
            gives_up()
        except KeyError:
            pass
        equal(c.execute("SELECT count(*) FROM psy_i").fetchone(), (20003,))


@check("copy out")
def copy_out():
    with connect() as c:
        query = "(SELECT i, s, d FROM psy_i WHERE i < 1 ORDER BY i)"
        expected = [(-1, "bin", datetime.date(2001, 1, 1)), (0, "line\t0\\", datetime.date(2000, 1, 1))]
        with c.cursor().copy(f"COPY {query} TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "date"])
            equal(list(copy.rows()), expected)
        with c.cursor().copy(f"COPY {query} TO STDOUT") as copy:
            copy.set_types(["int4", "text", "date"])
            equal(list(copy.rows()), expected)


@check("transactions")
def transactions():
    with connect() as c, connect() as other:
        c.execute("CREATE OR REPLACE TABLE psy_x (a int)")
        count = lambda c: c.execute("SELECT count(*) FROM psy_x").fetchone()[0]

        def fails_inside():
            with c.transaction():
                c.execute("INSERT INTO psy_x VALUES (1)")
                c.execute("SELECT nosuch")

        fails("42703", fails_inside)
        equal(c.info.transaction_status, psycopg.pq.TransactionStatus.IDLE)
        with c.transaction():
            c.execute("INSERT INTO psy_x VALUES (1)")
            equal(count(c), 1)
            equal(count(other), 0)
            try:
                with c.transaction():
                    c.execute("INSERT INTO psy_x VALUES (2)")
                    raise KeyError
            except KeyError:
                pass
        equal(count(other), 1)
        with psycopg.connect("dbname=thalweg") as implicit:
            implicit.execute("INSERT INTO psy_x VALUES (3)")
            implicit.rollback()
        equal(count(c), 1)


@check("conflicts")
def conflicts():
    with connect() as a, connect() as b:
        a.execute("CREATE OR REPLACE TABLE psy_k AS SELECT 1 AS k, 0 AS v")
        a.execute("BEGIN")
        b.execute("BEGIN")
        a.execute("UPDATE psy_k SET v = 1")
        b.execute("UPDATE psy_k SET v = 2")
        a.execute("COMMIT")
        fails("40001", lambda: b.execute("COMMIT"))
        equal(a.execute("SELECT v FROM psy_k").fetchone(), (1,))


@check("errors")
def errors():
    with connect() as c:
        fails("42601", lambda: c.execute("SELEC 1"))
        fails("42P01", lambda: c.execute("SELECT * FROM no_such_table"))
        fails("42703", lambda: c.execute("SELECT nosuch FROM psy_x"))
        fails("22012", lambda: c.execute("SELECT 1 / 0"))
        fails("22P02", lambda: c.execute("SELECT 'x'::int"))
        e = fails("42P01", lambda: c.execute("SELECT * FROM no_such_table WHERE a = %s", (1,)))
        assert e.diag.message_hint, e
        equal(c.execute("SELECT 1").fetchone(), (1,))


@check("cancel")
def cancel():
    with connect() as c:
        threading.Timer(0.5, c.cancel).start()
        begun = time.monotonic()
        fails("57014", lambda: c.execute(ENDLESS))
        assert time.monotonic() - begun < 5
        equal(c.execute("SELECT 1").fetchone(), (1,))


@check("pipeline")
def pipeline():
    with connect() as c:
        c.execute("CREATE OR REPLACE TABLE psy_p (a int)")
        with c.pipeline():
            one = c.execute("SELECT 1")
            c.execute("INSERT INTO psy_p VALUES (1)")
            two = c.execute("SELECT count(*) FROM psy_p")
        equal((one.fetchone(), two.fetchone()), ((1,), (1,)))

        def breaks():
            with c.pipeline():
                c.execute("INSERT INTO psy_p VALUES (2)")
                c.execute("SELECT nosuch")
                c.execute("INSERT INTO psy_p VALUES (3)")

        fails("42703", breaks)
        # What comes before an error in one go is undone with it.
        equal(c.execute("SELECT count(*) FROM psy_p").fetchone(), (1,))


@check("streaming")
def streaming():
    with connect() as c:
        seen = 0
        for row in c.cursor().stream("SELECT i FROM generate_series(1, 1000000000) AS t(i)"):
            seen += 1
            if seen == 100000:
                break
        c.cancel()
    with connect() as c:
        busy = "SELECT count(*) FROM system.queries WHERE query LIKE '%1000000000) AS t(i)'"
        for _ in range(50):
            if c.execute(busy).fetchone() == (0,):
                return
            time.sleep(0.1)
        raise AssertionError("the query of a client that has left goes on")


@check("server-side cursors")
def cursors():
    with psycopg.connect("dbname=thalweg") as c:
        with c.cursor(name="far") as cursor:
            cursor.execute("SELECT i FROM generate_series(1, 10000) AS t(i)")
            equal(cursor.fetchmany(3), [(1,), (2,), (3,)])
            equal(len(cursor.fetchall()), 9997)


if __name__ == "__main__":
    main()
