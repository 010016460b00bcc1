"""Arrow Flight SQL as ADBC and pyarrow speak it.

    flight.py [CHECK ...]

The server is in THALWEG_FLIGHT (host:port), PGUSER and PGPASSWORD, its certificate in PGSSLROOTCERT.
Without a password the server has to trust whoever comes, without a certificate it is spoken to in
clear. Prints a line per check; the exit code says whether all of them passed.
"""

import datetime
import decimal
import os
import pathlib
import sys
import threading
import time
import traceback

import adbc_driver_flightsql.dbapi as dbapi
import adbc_driver_manager
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight

CHECKS = []
ENDLESS = "SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)"


def check(feature):
    """Marks a function as a check of a feature, by the name that the table of clients has."""

    def mark(f):
        CHECKS.append((feature, f))
        return f

    return mark


class Server:
    def __init__(self, address, user, password, certificate):
        self.address = address
        self.uri = f"grpc+tls://{address}" if certificate else f"grpc://{address}"
        self.user = user
        self.password = password
        self.certificate = certificate

    def of(self, user, password):
        """The same for somebody else."""
        return Server(self.address, user, password, self.certificate)

    def options(self):
        found = {}
        if self.certificate:
            found["adbc.flight.sql.client_option.tls_root_certs"] = self.certificate
        if self.user is not None:
            found |= {"username": self.user, "password": self.password}
        return found

    def client(self):
        """A client of Flight alone."""
        return pa.flight.FlightClient(self.uri, tls_root_certs=self.certificate)

    def connect(self, autocommit=True, **options):
        return dbapi.connect(
            self.uri, db_kwargs={**self.options(), **options}, autocommit=autocommit
        )

    def pyarrow(self):
        """A client of Flight alone, and the options of its calls."""
        client = self.client()
        if self.user is None:
            return client, pa.flight.FlightCallOptions()
        header = client.authenticate_basic_token(self.user, self.password)
        return client, pa.flight.FlightCallOptions(headers=[header])


def equal(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"


def fails(f, *words):
    try:
        f()
    except Exception as e:
        for word in words:
            assert word in str(e), f"{word!r} is not in: {e}"
        return e
    raise AssertionError("it did not fail")


def upload_fails(f, word):
    """The server refuses rows before all have come; the driver may then tell of its own broken
    stream alone."""
    error = str(fails(f))
    assert word in error or "EOF" in error, f"{word!r} is not in: {error}"


def rows(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def run(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


def fresh(connection, table, columns):
    run(connection, f"DROP TABLE IF EXISTS {table}")
    run(connection, f"CREATE TABLE {table} ({columns})")


@check("types in binary")
def numbers(server):
    with server.connect() as c:
        sql = """SELECT 1::tinyint, 2::smallint, 3::int, 4::bigint, 5::tinyint unsigned,
                 18446744073709551615::bigint unsigned, 1.5::real, 2.5::double, true, NULL"""
        found = rows(c, sql)
        equal(found, [(1, 2, 3, 4, 5, 18446744073709551615, 1.5, 2.5, True, None)])


@check("types in binary")
def decimals(server):
    with server.connect() as c:
        sql = "SELECT '12345678901234567890.123456789'::decimal(38, 9), -0.01::decimal(4, 2)"
        expected = (decimal.Decimal("12345678901234567890.123456789"), decimal.Decimal("-0.01"))
        equal(rows(c, sql), [expected])


@check("types in binary")
def times(server):
    with server.connect() as c:
        sql = """SELECT DATE '1969-07-20', TIMESTAMP '2024-02-29 12:34:56.789',
                 TIME '23:59:59', TIMESTAMP '1900-01-01 00:00:00'"""
        with c.cursor() as cursor:
            cursor.execute(sql)
            found = cursor.fetch_arrow_table()
        day, now, late, old = (found.column(i)[0] for i in range(4))
        equal(day.as_py(), datetime.date(1969, 7, 20))
        equal(str(now.as_py())[:23], "2024-02-29 12:34:56.789")
        equal(str(late.as_py()), "23:59:59")
        equal(str(old.as_py()), "1900-01-01 00:00:00")


@check("types in binary")
def strings(server):
    with server.connect() as c:
        found = rows(c, "SELECT 'Ünïcödé ✓', '', NULL::varchar, X'00ff', 'it''s'")
        equal(found, [("Ünïcödé ✓", "", None, b"\x00\xff", "it's")])


@check("types in binary")
def nested(server):
    with server.connect() as c:
        found = rows(c, "SELECT [1, 2, NULL], ['a', NULL], {'x': 1, 'y': 'two'}, [[1], []]")
        equal(found, [([1, 2, None], ["a", None], {"x": 1, "y": "two"}, [[1], []])])


@check("types in binary")
def nulls(server):
    with server.connect() as c:
        sql = """SELECT CASE WHEN i % 3 = 0 THEN NULL ELSE i END AS i,
                 CASE WHEN i % 2 = 0 THEN NULL ELSE 's' || i END AS s
                 FROM generate_series(1, 30000) AS t(i)"""
        with c.cursor() as cursor:
            cursor.execute(sql)
            found = cursor.fetch_arrow_table()
        equal((found.num_rows, found["i"].null_count, found["s"].null_count), (30000, 10000, 15000))


@check("queries")
def no_rows(server):
    with server.connect() as c, c.cursor() as cursor:
        cursor.execute("SELECT 1 AS a, 'x' AS b WHERE false")
        found = cursor.fetch_arrow_table()
        equal((found.num_rows, found.column_names), (0, ["a", "b"]))


@check("streaming")
def a_million_strings(server):
    with server.connect() as c:
        fresh(c, "flight_many", "i BIGINT, s VARCHAR")
        sql = "SELECT i, 'string number ' || i AS s FROM generate_series(1, 1200000) AS t(i)"
        with c.cursor() as cursor:
            cursor.execute(f"INSERT INTO flight_many {sql}")
            equal(cursor.rowcount, 1200000)
        with c.cursor() as cursor:
            cursor.execute("SELECT * FROM flight_many")
            found = cursor.fetch_arrow_table()
        equal(found.num_rows, 1200000)
        equal(found.schema.field("s").type, pa.string())
        expected = pc.binary_join_element_wise(
            "string number ", pc.cast(found["i"], pa.string()), ""
        )
        assert pc.all(pc.equal(found["s"], expected)).as_py()
        equal(pc.sum(found["i"]).as_py(), 1200000 * 1200001 // 2)
        run(c, "DROP TABLE flight_many")


@check("parameters")
def parameters(server):
    with server.connect() as c:
        equal(rows(c, "SELECT $1 + 1", (41,)), [(42,)])
        equal(rows(c, "SELECT ? || '?', ?", ("it's", None)), [("it's?", None)])
        fresh(c, "flight_parameters", "i BIGINT, s VARCHAR, d DOUBLE, t TIMESTAMP, b BOOLEAN")
        now = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)
        values = (1, "Ü", 2.5, now, True)
        with c.cursor() as cursor:
            cursor.execute("INSERT INTO flight_parameters VALUES (?, ?, ?, ?, ?)", values)
        where = "WHERE i = $1 AND s = $2 AND d = $3 AND t = $4 AND b = $5"
        equal(rows(c, f"SELECT count(*) FROM flight_parameters {where}", values), [(1,)])
        fails(lambda: rows(c, "SELECT $1 + $2", (1,)), "values")
        run(c, "DROP TABLE flight_parameters")


@check("parameters")
def many_parameters(server):
    with server.connect() as c:
        fresh(c, "flight_many_parameters", "i BIGINT, s VARCHAR")
        with c.cursor() as cursor:
            values = [(i, f"s{i}") for i in range(50)]
            cursor.executemany("INSERT INTO flight_many_parameters VALUES (?, ?)", values)
            equal(cursor.rowcount, 50)
        found = rows(c, "SELECT count(*), sum(i), count(DISTINCT s) FROM flight_many_parameters")
        equal(found, [(50, 1225, 50)])
        run(c, "DROP TABLE flight_many_parameters")


@check("changes")
def updates(server):
    with server.connect() as c:
        fresh(c, "flight_updates", "a INT")
        with c.cursor() as cursor:
            cursor.execute("INSERT INTO flight_updates VALUES (1), (2), (3)")
            equal(cursor.rowcount, 3)
            cursor.execute("UPDATE flight_updates SET a = a * 10 WHERE a > 1")
            equal(cursor.rowcount, 2)
            cursor.execute("DELETE FROM flight_updates WHERE a = 30 RETURNING a")
            equal(cursor.fetchall(), [(30,)])
        equal(sorted(rows(c, "SELECT a FROM flight_updates")), [(1,), (20,)])
        run(c, "DROP TABLE flight_updates")


TABLE = pa.table({
    "id": pa.array([1, 2, None], pa.int64()),
    "text": pa.array(["a", None, "ü"]),
    "amount": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")],
                       pa.decimal128(10, 2)),
    "at": pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5), None, None], pa.timestamp("us")),
    "list": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
    "code": pa.array(["x", "y", "x"]).dictionary_encode(),
    "large": pa.array(["l", None, "m"], pa.large_string()),
})


def ingest(connection, mode, table=TABLE, name="flight_ingest", **options):
    with connection.cursor() as cursor:
        return cursor.adbc_ingest(name, table, mode=mode, **options)


@check("copy in")
def ingest_modes(server):
    with server.connect() as c:
        run(c, "DROP TABLE IF EXISTS flight_ingest")
        upload_fails(lambda: ingest(c, "append"), "42P01")
        equal(ingest(c, "create"), 3)
        upload_fails(lambda: ingest(c, "create"), "42P07")
        equal(ingest(c, "append"), 3)
        equal(ingest(c, "create_append"), 3)
        equal(rows(c, "SELECT count(*), count(id), sum(amount) FROM flight_ingest"),
              [(9, 6, decimal.Decimal("-2.25"))])
        equal(ingest(c, "replace"), 3)
        with c.cursor() as cursor:
            cursor.execute("SELECT * FROM flight_ingest")
            found = cursor.fetch_arrow_table()
        for name in TABLE.column_names:
            equal(found[name].to_pylist(), TABLE[name].to_pylist())
        upload_fails(lambda: ingest(c, "append", pa.table({"nope": [1]})), "42703")
        upload_fails(lambda: ingest(c, "create", name="t", temporary=True), "emporary")
        upload_fails(lambda: ingest(c, "create", name="t", db_schema_name="nowhere"), "nowhere")
        run(c, "DROP TABLE flight_ingest")


@check("copy in")
def ingest_a_stream(server):
    schema = pa.schema([("i", pa.int64()), ("s", pa.string_view())])

    def batches():
        for start in range(0, 1_000_000, 50_000):
            numbers = range(start, start + 50_000)
            strings = pa.array([f"row number {i}" for i in numbers], pa.string_view())
            yield pa.record_batch([pa.array(numbers, pa.int64()), strings], schema)

    with server.connect() as c:
        run(c, "DROP TABLE IF EXISTS flight_stream")
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        equal(ingest(c, "create", reader, "flight_stream"), 1_000_000)
        found = rows(c, "SELECT count(*), sum(i), count(DISTINCT s) FROM flight_stream")
        equal(found, [(1_000_000, 499999500000, 1_000_000)])

        def broken():
            yield from batches()
            raise RuntimeError("no more")

        reader = pa.RecordBatchReader.from_batches(schema, broken())
        fails(lambda: ingest(c, "append", reader, "flight_stream"))
        equal(rows(c, "SELECT count(*) FROM flight_stream"), [(1_000_000,)])
        run(c, "DROP TABLE flight_stream")


@check("transactions")
def transactions(server):
    with server.connect() as c:
        fresh(c, "flight_transactions", "a INT")
    # Its transaction begins now.
    with server.connect() as c, server.connect(autocommit=False) as t:
        run(t, "INSERT INTO flight_transactions VALUES (1)")
        equal(rows(c, "SELECT count(*) FROM flight_transactions"), [(0,)])
        t.rollback()
        equal(rows(t, "SELECT count(*) FROM flight_transactions"), [(0,)])
        t.rollback()
        run(t, "INSERT INTO flight_transactions VALUES (2)")
        t.commit()
        equal(rows(c, "SELECT a FROM flight_transactions"), [(2,)])
        fails(lambda: run(t, "SELECT nonsense"), "nonsense")
        fails(lambda: run(t, "SELECT 1"), "25P02")
        t.rollback()
        equal(rows(t, "SELECT 1"), [(1,)])
        fails(lambda: run(t, "COMMIT"), "25001")
        t.rollback()
        run(c, "DROP TABLE flight_transactions")


@check("metadata")
def objects(server):
    with server.connect() as c:
        fresh(c, "flight_objects", "a INT NOT NULL, b DECIMAL(12, 2), c VARCHAR")
        run(c, "CREATE OR REPLACE VIEW flight_view AS SELECT a FROM flight_objects")
        found = c.adbc_get_objects(table_name_filter="flight_%").read_all().to_pylist()
        equal([catalog["catalog_name"] for catalog in found], ["thalweg"])
        schemas = {s["db_schema_name"]: s for s in found[0]["catalog_db_schemas"]}
        tables = {t["table_name"]: t for t in schemas["public"]["db_schema_tables"]}
        equal(tables["flight_objects"]["table_type"], "TABLE")
        equal(tables["flight_view"]["table_type"], "VIEW")
        columns = tables["flight_objects"]["table_columns"]
        equal([column["column_name"] for column in columns], ["a", "b", "c"])
        only = c.adbc_get_objects(depth="tables", table_types_filter=["VIEW"]).read_all().to_pylist()
        names = [t["table_name"] for s in only[0]["catalog_db_schemas"]
                 for t in s["db_schema_tables"] or []]
        assert "flight_view" in names and "flight_objects" not in names, names
        schema = c.adbc_get_table_schema("flight_objects")
        equal([f.type for f in schema], [pa.int32(), pa.decimal128(12, 2), pa.string()])
        equal([f.nullable for f in schema], [False, True, True])
        equal(c.adbc_get_table_schema("tables", db_schema_filter="information_schema").names[0],
              "table_catalog")
        assert {"TABLE", "VIEW"} <= set(c.adbc_get_table_types())
        run(c, "DROP VIEW flight_view")
        run(c, "DROP TABLE flight_objects")


@check("metadata")
def info(server):
    with server.connect() as c:
        found = c.adbc_get_info()
        equal(found["vendor_name"], "Thalweg")
        assert found["vendor_version"] and found["vendor_arrow_version"], found


@check("prepared")
def schema_of_a_query(server):
    with server.connect() as c, c.cursor() as cursor:
        schema = cursor.adbc_execute_schema("SELECT 1 AS a, 'x' AS b, 1.5::decimal(3, 1) AS c")
        equal(schema.names, ["a", "b", "c"])
        equal(schema.field("b").type, pa.string())
        prepared = cursor.adbc_prepare("SELECT $1::bigint + 1")
        equal([f.type for f in prepared], [pa.int64()])


@check("settings")
def sessions(server):
    options = {"adbc.flight.sql.rpc.call_header.x-session-id": "flight.py"}
    with server.connect(**options) as c:
        run(c, "SET thalweg.deadline_ms = 4711")
        equal(rows(c, "SHOW thalweg.deadline_ms")[0][1], "4711")
        run(c, "RESET thalweg.deadline_ms")
    if server.user is None:
        with server.connect() as c:
            fails(lambda: run(c, "SET thalweg.deadline_ms = 4711"), "08003")
    options = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}
    with server.connect(**options) as c:
        c.adbc_connection.set_options(
            **{"adbc.flight.sql.session.option.thalweg.deadline_ms": "4712"})
        equal(rows(c, "SHOW thalweg.deadline_ms")[0][1], "4712")
        found = c.adbc_connection.get_option("adbc.flight.sql.session.option.thalweg.deadline_ms")
        equal(found, "4712")


def running(connection):
    sql = """SELECT count(*) FROM system.queries
             WHERE query LIKE '%100000000000%' AND query NOT LIKE '%system.queries%'"""
    return rows(connection, sql)[0][0]


def until_none_runs(connection):
    begun = time.monotonic()
    while running(connection) > 0:
        assert time.monotonic() - begun < 10, "it still runs"
        time.sleep(0.05)


@check("cancel")
def cancel(server):
    with server.connect() as c, server.connect() as other:
        with c.cursor() as cursor:
            timer = threading.Timer(0.5, cursor.adbc_cancel)
            timer.start()
            begun = time.monotonic()

            def endless():
                cursor.execute(ENDLESS)
                cursor.fetchall()

            fails(endless)
            assert time.monotonic() - begun < 10
        until_none_runs(other)


@check("streaming")
def a_client_that_goes_away(server):
    with server.connect() as other:
        c = server.connect()
        cursor = c.cursor()
        cursor.execute("SELECT i, repeat('x', 100) FROM generate_series(1, 100000000000) AS t(i)")
        reader = cursor.fetch_record_batch()
        assert reader.read_next_batch().num_rows > 0
        assert running(other) > 0
        del reader
        cursor.close()
        c.close()
        until_none_runs(other)


@check("errors")
def errors(server):
    with server.connect() as c:
        e = fails(lambda: run(c, "SELECT * FROM nowhere"), "nowhere", "42P01", "hint")
        assert isinstance(e, adbc_driver_manager.ProgrammingError), type(e)
        fails(lambda: run(c, "SELEC 1"), "SELEC")
        fails(lambda: run(c, "SELECT 1; SELECT 2"), "one statement")
        # After rows have been sent.
        sql = "SELECT 1 / (100000 - i) FROM generate_series(1, 100000) AS t(i)"
        fails(lambda: rows(c, sql), "22012")
        # The connection can go on.
        equal(rows(c, "SELECT 1"), [(1,)])


@check("passwords")
def passwords(server):
    if server.user is None:
        return "the server trusts whoever comes"
    for user, password in [(server.user, "wrong"), ("nobody", "x"), (server.user, "")]:
        stranger = server.of(user, password)
        fails(lambda: rows(stranger.connect(), "SELECT 1"))
    stranger = server.of(None, None)
    fails(lambda: rows(stranger.connect(), "SELECT 1"), "28000")
    client = server.client()
    header = pa.flight.FlightCallOptions(headers=[(b"authorization", b"Bearer guessed")])
    fails(lambda: client.get_flight_info(command("SELECT 1"), header))


@check("TLS")
def encrypted(server):
    if not server.certificate:
        return "the server has no certificate"
    with server.connect() as c:
        equal(rows(c, "SELECT 1"), [(1,)])
    # Without the certificate it is not believed, in clear it does not answer.
    blind = Server(server.address, server.user, server.password, None)
    fails(lambda: rows(blind.connect(), "SELECT 1"))
    blind.uri = f"grpc+tls://{server.address}"
    fails(lambda: rows(blind.connect(), "SELECT 1"), "certificate")


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def command(sql):
    """CommandStatementQuery of Flight SQL, in its Any."""
    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    text = field(1, kind) + field(2, field(1, sql.encode()))
    return pa.flight.FlightDescriptor.for_command(text)


@check("queries")
def pyarrow_alone(server):
    client, options = server.pyarrow()
    info = client.get_flight_info(command("SELECT 1 AS a, 'x' AS b"), options)
    equal(info.schema.names, ["a", "b"])
    table = client.do_get(info.endpoints[0].ticket, options).read_all()
    equal(table.to_pylist(), [{"a": 1, "b": "x"}])
    fails(lambda: client.do_get(info.endpoints[0].ticket, options).read_all(), "ticket")
    schema = client.get_schema(command("SELECT 1 AS a"), options).schema
    equal(schema.names, ["a"])
    actions = {action.type for action in client.list_actions(options)}
    assert {"BeginTransaction", "CancelFlightInfo"} <= actions, actions
    fails(lambda: client.get_flight_info(
        pa.flight.FlightDescriptor.for_command(b"garbage"), options))
    fails(lambda: client.get_flight_info(pa.flight.FlightDescriptor.for_path("x"), options))
    fails(lambda: list(client.do_action(pa.flight.Action("Dance", b""), options)), "Dance")
    client.close()


@check("many at once")
def many_at_once(server):
    failures = []

    def work(n):
        try:
            with server.connect() as c:
                for i in range(10):
                    equal(rows(c, f"SELECT {n} * 1000 + {i}"), [(n * 1000 + i,)])
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures, failures[0]


@check("many at once")
def results_that_nobody_reads_hold_nothing(server):
    options = {"adbc.flight.sql.rpc.call_header.x-session-id": "few"}
    with server.connect(**options) as c:
        run(c, "SET thalweg.max_running = 2")
        begun = time.monotonic()
        try:
            for i in range(8):
                run(c, f"CREATE OR REPLACE TABLE flight_few AS SELECT {i} AS i")
                assert time.monotonic() - begun < 20, "it waits for results that nobody reads"
            run(c, "DROP TABLE flight_few")
        finally:
            run(c, "RESET thalweg.max_running")


def main():
    wanted = sys.argv[1:]
    certificate = os.environ.get("PGSSLROOTCERT")
    password = os.environ.get("PGPASSWORD")
    server = Server(
        os.environ["THALWEG_FLIGHT"],
        os.environ["PGUSER"] if password else None,
        password,
        pathlib.Path(certificate).read_text() if certificate else None,
    )
    failed = 0
    for feature, f in CHECKS:
        if wanted and f.__name__ not in wanted:
            continue
        name = f"{feature}: {f.__name__.replace('_', ' ')}"
        try:
            note = f(server)
            print(f"ok {name}" + (f" ({note})" if note else ""), flush=True)
        except Exception as e:
            failed += 1
            text = " ".join(str(e).split()) or type(e).__name__
            print(f"FAILED {name}: {text}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
