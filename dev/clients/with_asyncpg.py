"""asyncpg: all in binary, types told by the server. The server is in PGHOST, PGPORT, …"""

import asyncio
import datetime
import decimal

import asyncpg
from checks import check, equal, main


def with_connection(work):
    async def run():
        c = await asyncpg.connect(database="thalweg")
        try:
            await work(c)
        finally:
            await c.close()

    return lambda: asyncio.run(run())


def checked(feature):
    return lambda work: check(feature)(with_connection(work))


@checked("queries")
async def queries(c):
    equal(await c.fetchval("SELECT 1"), 1)
    equal([tuple(r) for r in await c.fetch("SELECT i, i * 2 AS j FROM generate_series(1, 3) AS t(i)")], [(1, 2), (2, 4), (3, 6)])


@checked("types in binary")
async def types(c):
    await c.execute(
        "CREATE OR REPLACE TABLE apg_t (i int, b bigint, f double, n decimal(12,3), s varchar, d date, "
        "ts timestamp, t time, by bytea, ok boolean, l int[])"
    )
    row = (
        1, 2**40, 1.5, decimal.Decimal("12.345"), "it's", datetime.date(2024, 2, 29),
        datetime.datetime(2024, 1, 1, 1, 2, 3, 456), datetime.time(1, 2, 3), b"\x00\xff", True, [1, 2, None],
    )
    marks = ", ".join(f"${i}" for i in range(1, 12))
    await c.execute(f"INSERT INTO apg_t VALUES ({marks})", *row)
    await c.execute(f"INSERT INTO apg_t VALUES ({marks})", *[None] * 11)
    equal(tuple(await c.fetchrow("SELECT * FROM apg_t WHERE i = $1", 1)), row)
    equal(tuple(await c.fetchrow("SELECT * FROM apg_t WHERE i IS NULL")), (None,) * 11)


@checked("parameters")
async def parameters(c):
    equal(tuple(await c.fetchrow("SELECT $1::int AS a, $2::text AS b", 5, "x")), (5, "x"))
    statement = await c.prepare("SELECT * FROM apg_t WHERE n > $1 AND d < $2 LIMIT $3")
    equal([p.name for p in statement.get_parameters()], ["numeric", "date", "int8"])
    equal(len(await statement.fetch(decimal.Decimal("1"), datetime.date(2025, 1, 1), 10)), 1)
    # Each is described before it is bound, and a value is refused that is of another type.
    for sql, values, expected in [
        ("SELECT i FROM apg_t WHERE i = ANY ($1)", [[1, None]], 1),
        ("SELECT i FROM apg_t WHERE s <> ALL ($1)", [["x"]], 1),
        ("SELECT i FROM apg_t WHERE by = ANY ($1)", [[b"\x00\xff"]], 1),
        ("SELECT i FROM apg_t WHERE i = $1 OR i + 1 = $1", [1], 1),
        ("SELECT coalesce(i, $1) FROM apg_t WHERE s = $2", [7, "it's"], 1),
        ("SELECT CASE WHEN i = 1 THEN b ELSE $1 END FROM apg_t WHERE i = 1", [5], 2**40),
        ("SELECT ts + $1 FROM apg_t WHERE i = 1", [datetime.timedelta(days=1)], datetime.datetime(2024, 1, 2, 1, 2, 3, 456)),
        ("SELECT substr($1, $2, $3)", ["abc", 2, 1], "b"),
        ("SELECT make_interval(days => $1)", [3], datetime.timedelta(days=3)),
        ("SELECT count(*) FROM generate_series(1, $1)", [3], 3),
        ("SELECT i FROM apg_t WHERE ts BETWEEN $1 AND $1 + interval '1 day'", [datetime.datetime(2024, 1, 1)], 1),
        ("SELECT i FROM apg_t WHERE l @> $1", [[1]], 1),
        ("SELECT sum(i) OVER (ORDER BY i ROWS $1 PRECEDING) FROM apg_t WHERE i = 1", [1], 1),
        ("SELECT i FROM apg_t WHERE i = 1 ORDER BY $1 FETCH FIRST $2 ROWS ONLY", ["7", None], 1),
        ("SELECT oid::int FROM pg_type WHERE oid = $1", [23], 23),
    ]:
        equal((sql, await c.fetchval(sql, *values)), (sql, expected))


@checked("changes")
async def changes(c):
    await c.execute("CREATE OR REPLACE TABLE apg_c (i int, s varchar, n decimal(10,2))")
    await c.executemany("INSERT INTO apg_c VALUES ($1, $2, $3)", [(i, str(i), None) for i in range(5)])
    returned = await c.fetchrow("UPDATE apg_c SET s = $1, n = $3 WHERE i = $2 RETURNING s, n", "z", 4, decimal.Decimal("9.99"))
    equal(tuple(returned), ("z", decimal.Decimal("9.99")))
    returned = await c.fetchrow("UPDATE apg_c SET s = $1 WHERE i = $2 RETURNING *", "zz", 4)
    equal(tuple(returned), (4, "zz", decimal.Decimal("9.99")))
    # What gives rows says so before it runs.
    equal(list((await c.fetchrow("OPTIMIZE TABLE apg_c")).keys())[0], "extents_before")
    equal(len(await c.fetch("SHOW server_version")), 1)
    equal(await c.execute("DELETE FROM apg_c WHERE i < $1", 2), "DELETE 2")
    equal(await c.fetchval("SELECT count(*) FROM apg_c"), 3)


@checked("copy in")
async def copy_in(c):
    records = [(i, f"r{i}", decimal.Decimal("3.50")) for i in range(1000)]
    equal(await c.copy_records_to_table("apg_c", records=records, columns=["i", "s", "n"]), "COPY 1000")
    equal(await c.fetchval("SELECT count(*) FROM apg_c WHERE n = 3.5"), 1000)


@checked("copy out")
async def copy_out(c):
    lines = []

    async def keep(data):
        lines.append(data)

    await c.copy_from_query("SELECT i, s FROM apg_c WHERE i >= 998 ORDER BY i", output=keep, format="csv")
    equal(b"".join(lines), b"998,r998\n999,r999\n")


@checked("server-side cursors")
async def cursors(c):
    async with c.transaction():
        seen = 0
        async for _ in c.cursor("SELECT * FROM generate_series(1, 1000)", prefetch=100):
            seen += 1
        equal(seen, 1000)


@checked("transactions")
async def transactions(c):
    try:
        async with c.transaction():
            await c.execute("DELETE FROM apg_c")
            raise KeyError
    except KeyError:
        pass
    equal(await c.fetchval("SELECT count(*) FROM apg_c"), 1003)


@checked("errors")
async def errors(c):
    for sql, error in [
        ("SELEC", asyncpg.PostgresSyntaxError),
        ("SELECT * FROM no_such_table", asyncpg.UndefinedTableError),
        ("SELECT nosuch FROM apg_c", asyncpg.UndefinedColumnError),
    ]:
        try:
            await c.fetch(sql)
        except error as e:
            equal((sql, e.position), (sql, str(1 + max(sql.find(w) for w in ("SELEC", "no_such", "nosuch")))))
            continue
        raise AssertionError(f"{sql}: no {error}")


@checked("cancel")
async def cancel(c):
    try:
        await c.fetch("SELECT count(*) FROM generate_series(1, 100000000000)", timeout=0.5)
    except asyncio.TimeoutError:
        pass
    equal(await c.fetchval("SELECT 1"), 1)


if __name__ == "__main__":
    main()
