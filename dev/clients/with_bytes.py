"""The PostgreSQL protocol byte by byte: what a statement is described as must be what it gives, a
COPY ends as clients end it, and an error says where it is. The server is in PGHOST, PGPORT, …"""

import os
import struct

from checks import check, equal, main
from wire import Refused, Wire

OIDS = {
    "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701,
    "numeric": 1700, "date": 1082, "timestamp": 1114, "timestamptz": 1184, "interval": 1186, "uuid": 2950,
    "int4[]": 1007, "int8[]": 1016, "text[]": 1009, "varchar": 1043,
}


class Answer:
    """What came back for one statement of the extended protocol."""

    def __init__(self):
        self.parameters, self.columns, self.types, self.rows, self.tag = [], None, [], [], None


class Bytes(Wire):
    """Logged in."""

    def __enter__(self):
        password = os.environ.get("PGPASSWORD")
        if password is None:
            self.startup(user=os.environ["PGUSER"], database="thalweg")
            self.until(b"Z")
        else:
            self.login(os.environ["PGUSER"], password)
        return self

    def ready(self):
        """After an error: the protocol goes on from the next Sync."""
        self.message(b"S")
        self.until(b"Z")

    def send_statement(self, sql, values, oids, binary):
        """Parse, Describe, Bind, Describe, Execute, Sync in one go."""
        self.message(b"P", b"\0" + sql.encode() + b"\0" + struct.pack(f"!H{len(oids)}I", len(oids), *oids))
        self.message(b"D", b"S\0")
        parts = [b"\0\0", struct.pack("!HH", 1, int(binary)), struct.pack("!H", len(values))]
        for value in values:
            if value is None:
                parts.append(struct.pack("!i", -1))
            else:
                value = value if isinstance(value, bytes) else str(value).encode()
                parts.append(struct.pack("!i", len(value)) + value)
        parts.append(struct.pack("!H", 0))
        self.message(b"B", b"".join(parts))
        self.message(b"D", b"P\0")
        self.message(b"E", b"\0" + struct.pack("!I", 0))
        self.message(b"S")

    def run(self, sql, *values, oids=(), binary=False):
        self.send_statement(sql, values, oids, binary)
        answer = Answer()
        described = []
        try:
            while True:
                kind, body = self.receive()
                if kind == b"t":
                    count = struct.unpack("!H", body[:2])[0]
                    answer.parameters = list(struct.unpack(f"!{count}I", body[2:]))
                elif kind == b"T":
                    described.append(columns(body))
                elif kind == b"n":
                    described.append(None)
                elif kind == b"D":
                    answer.rows.append(row(body))
                elif kind == b"C":
                    answer.tag = body[:-1].decode()
                elif kind == b"Z":
                    break
        except Refused:
            self.until(b"Z")
            raise
        equal(len(described), 2)
        names = [None if d is None else [name for name, _ in d] for d in described]
        if names[0] != names[1]:
            raise AssertionError(f"{sql}: prepared as {names[0]}, bound as {names[1]}")
        answer.columns = names[0]
        answer.types = [oid for _, oid in described[0] or []]
        for values in answer.rows:
            if answer.columns is None or len(values) != len(answer.columns):
                raise AssertionError(f"{sql}: described as {answer.columns}, and gives {len(values)} values")
        return answer

    def refused(self, sql, *values, **options):
        try:
            self.run(sql, *values, **options)
        except Refused as refused:
            return refused
        raise AssertionError(f"{sql}: no error")

    def copy(self, sql, data):
        """COPY … FROM STDIN with these bytes; its tag."""
        self.message(b"Q", sql.encode() + b"\0")
        self.until(b"G")
        for i in range(0, len(data), 7):
            self.message(b"d", data[i : i + 7])
        self.message(b"c")
        try:
            found = self.until(b"Z")
        except Refused:
            self.until(b"Z")
            raise
        return next(body[:-1].decode() for kind, body in found if kind == b"C")

    def rows(self, sql):
        return self.run(sql).rows


def columns(body):
    count, at, found = struct.unpack("!H", body[:2])[0], 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        oid = struct.unpack("!I", body[end + 7 : end + 11])[0]
        found.append((body[at:end].decode(), oid))
        at = end + 19
    return found


def row(body):
    count, at, found = struct.unpack("!H", body[:2])[0], 2, []
    for _ in range(count):
        length = struct.unpack("!i", body[at : at + 4])[0]
        at += 4
        found.append(None if length < 0 else body[at : at + length].decode(errors="replace"))
        at += max(length, 0)
    return found


# Each is run once as a prepared statement, in this order.
UTILITIES = """
CREATE SCHEMA IF NOT EXISTS by_s
CREATE OR REPLACE TABLE by_t (i INT, s VARCHAR)
INSERT INTO by_t VALUES (1, 'a'), (2, 'b')
INSERT INTO by_t VALUES (3, 'c') RETURNING *
INSERT INTO by_t SELECT 4, 'd' RETURNING i + 1 AS j
UPDATE by_t SET s = 'x' WHERE i = 1 RETURNING *
DELETE FROM by_t WHERE i = 4 RETURNING s, by_t.*
WITH c AS (SELECT 5 AS i) INSERT INTO by_t SELECT i, 'e' FROM c RETURNING *
TRUNCATE by_t
CREATE OR REPLACE VIEW by_v AS SELECT i FROM by_t
CREATE TABLE IF NOT EXISTS by_u AS SELECT 1 AS a
ALTER TABLE by_u ADD COLUMN b INT
ALTER TABLE by_u RENAME COLUMN b TO c
OPTIMIZE TABLE by_t
VACUUM
VACUUM by_t
ANALYZE by_t
SET application_name = 'bytes'
SET TIME ZONE 'UTC'
SET thalweg.workload = 'default'
RESET application_name
SHOW application_name
SHOW server_version
SHOW TIME ZONE
SHOW TRANSACTION ISOLATION LEVEL
SHOW thalweg.policy
SHOW TABLES
SHOW QUERIES
SHOW WORKLOADS
SHOW COLUMNS FROM by_t
SHOW CREATE TABLE by_t
SHOW ALL
SHOW FUNCTIONS
DESCRIBE by_t
EXPLAIN SELECT * FROM by_t
EXPLAIN ANALYZE SELECT * FROM by_t
EXPLAIN DELETE FROM by_t
BEGIN
SAVEPOINT by_p
ROLLBACK
START TRANSACTION READ ONLY
COMMIT
BEGIN
DECLARE by_c CURSOR FOR SELECT i, s FROM by_t
FETCH 1 FROM by_c
MOVE 1 FROM by_c
CLOSE by_c
END
PREPARE by_q AS SELECT i, s FROM by_t WHERE i = $1
EXECUTE by_q(1)
DEALLOCATE by_q
PREPARE by_q AS INSERT INTO by_t VALUES ($1, 'z') RETURNING *
EXECUTE by_q(1)
DEALLOCATE ALL
CREATE WORKLOAD by_w WITH (weight = 2)
ALTER WORKLOAD by_w WITH (weight = 3)
DROP WORKLOAD by_w
CREATE ROLE by_r
ALTER ROLE by_r NOLOGIN
GRANT SELECT ON by_t TO by_r
REVOKE SELECT ON by_t FROM by_r
SET ROLE by_r
RESET ROLE
DROP ROLE by_r
COMMENT ON TABLE by_t IS 'x'
CREATE INDEX by_i ON by_t (i)
LISTEN x
NOTIFY x
UNLISTEN *
LOCK TABLE by_t
DISCARD ALL
MERGE INTO by_t USING by_u ON by_t.i = by_u.a WHEN NOT MATCHED THEN INSERT VALUES (a, 'm')
VALUES (1, 'a'), (2, 'b')
TABLE by_t
KILL QUERY 999999999
DROP VIEW by_v
DROP TABLE by_u
DROP SCHEMA by_s
"""


@check("statements are as described")
def utilities():
    with Bytes() as c:
        for sql in UTILITIES.strip().splitlines():
            try:
                c.run(sql)
            except Refused as refused:
                # What there is not is said so, and is no breach of the protocol.
                if refused.state[:2] in ("08", "XX"):
                    raise AssertionError(f"{sql}: {refused}") from None
        c.run("COPY (SELECT 1) TO STDOUT")


@check("RETURNING")
def returning():
    with Bytes() as c:
        c.run("CREATE OR REPLACE TABLE by_r (a INT, b VARCHAR)")
        found = c.run("INSERT INTO by_r VALUES ($1, $2) RETURNING *", 1, "x")
        equal((found.columns, found.rows, found.tag), (["a", "b"], [["1", "x"]], "INSERT 0 1"))
        equal(found.parameters, [OIDS["int4"], OIDS["text"]])
        found = c.run("UPDATE by_r SET b = $1 WHERE a = $2 RETURNING *", "y", 1)
        equal((found.columns, found.rows, found.tag), (["a", "b"], [["1", "y"]], "UPDATE 1"))
        found = c.run("DELETE FROM by_r AS r WHERE r.a = $1 RETURNING r.*, a + 1 AS c", 1)
        equal((found.columns, found.rows, found.tag), (["a", "b", "c"], [["1", "y", "2"]], "DELETE 1"))
        equal(c.run("DELETE FROM by_r WHERE a = $1 RETURNING *", 1).columns, ["a", "b"])


@check("cursors")
def cursors():
    with Bytes() as c:
        c.run("BEGIN")
        found = c.run("DECLARE by_c CURSOR FOR SELECT i FROM generate_series($1::int, $2::int) AS t(i)", 1, 9)
        equal((found.parameters, found.tag), ([OIDS["int4"]] * 2, "DECLARE CURSOR"))
        steps = [
            ("FETCH by_c", ["1"]), ("FETCH NEXT FROM by_c", ["2"]), ("FETCH 0 FROM by_c", ["2"]),
            ("FETCH RELATIVE 2 FROM by_c", ["4"]), ("FETCH ABSOLUTE 6 IN by_c", ["6"]),
            ("FETCH ABSOLUTE 6 IN by_c", ["6"]), ("FETCH FORWARD 2 FROM by_c", ["7", "8"]),
            ("FETCH RELATIVE 0 FROM by_c", ["8"]), ("FETCH LAST FROM by_c", ["9"]), ("FETCH ALL FROM by_c", []),
            ("FETCH 0 FROM by_c", []),
        ]
        for sql, expected in steps:
            found = c.run(sql)
            equal((sql, [r[0] for r in found.rows], found.tag), (sql, expected, f"FETCH {len(expected)}"))
        c.run("DECLARE by_d CURSOR FOR SELECT * FROM generate_series(1, 5)")
        equal(c.run("MOVE 2 IN by_d").tag, "MOVE 2")
        equal(c.rows("FETCH 2 FROM by_d"), [["3"], ["4"]])
        equal(c.run("MOVE ALL IN by_d").tag, "MOVE 1")
        equal(c.run("CLOSE by_c").tag, "CLOSE CURSOR")
        equal(c.run("CLOSE ALL").tag, "CLOSE CURSOR ALL")
        equal(c.refused("FETCH 1 FROM by_c").state, "34000")
        c.run("ROLLBACK")


@check("parameters")
def parameters():
    with Bytes() as c:
        c.run(
            "CREATE OR REPLACE TABLE by_p (i INT, b BIGINT, s VARCHAR, n DECIMAL(10,2), d DATE, ts TIMESTAMP, y BYTEA, "
            "f DOUBLE, o BOOLEAN)"
        )
        one = ["1", "2", "x", "1.50", "2024-02-29", "2024-02-29 01:02:03", "\\x0102", "0.5", "t"]
        found = c.run("INSERT INTO by_p VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", *one)
        kinds = ["int4", "int8", "text", "numeric", "date", "timestamp", "bytea", "float8", "bool"]
        equal(found.parameters, [OIDS[kind] for kind in kinds])
        equal(c.rows("SELECT * FROM by_p"), [one])
        array = struct.pack("!IIIII", 1, 0, 23, 2, 1) + struct.pack("!ii", 4, 1) + struct.pack("!ii", 4, 7)
        for sql, values, types, rows in [
            ("SELECT i FROM by_p WHERE i = ANY ($1)", ["{1,2,NULL}"], ["int4[]"], [["1"]]),
            ("SELECT i FROM by_p WHERE b = ANY ($1)", ["{2}"], ["int8[]"], [["1"]]),
            ("SELECT i FROM by_p WHERE s = ANY ($1)", ['{x,"a b"}'], ["text[]"], [["1"]]),
            ("SELECT i FROM by_p WHERE i <> ALL ($1)", ["{1,2}"], ["int4[]"], []),
            ("SELECT i FROM by_p WHERE i <> ALL ($1)", ["{2,3}"], ["int4[]"], [["1"]]),
            ("SELECT i FROM by_p WHERE i <> ALL ($1)", ["{}"], ["int4[]"], [["1"]]),
            ("SELECT i FROM by_p WHERE i <> ALL ($1)", ["{2,NULL}"], ["int4[]"], []),
            ("SELECT i FROM by_p WHERE i = ANY ($1)", [None], ["int4[]"], []),
            ("SELECT i FROM by_p WHERE i = ANY ($1::int[])", ["{1}"], ["int4[]"], [["1"]]),
            ("SELECT i FROM by_p WHERE y = $1", ["\\x0102"], ["bytea"], [["1"]]),
            ("SELECT i FROM by_p WHERE d = $1 AND ts > $2", ["2024-02-29", "2024-01-01"], ["date", "timestamp"], [["1"]]),
            ("SELECT i FROM by_p WHERE i BETWEEN $1 AND $2", [0, 5], ["int4", "int4"], [["1"]]),
            ("SELECT i FROM by_p WHERE i IN ($1, $2)", [0, 1], ["int4", "int4"], [["1"]]),
            ("SELECT i FROM by_p LIMIT $1 OFFSET $2", [1, 0], ["int8", "int8"], [["1"]]),
            ("SELECT i FROM by_p LIMIT $1", [None], ["int8"], [["1"]]),
            ("SELECT $1::int + 1, $1", [5], ["int4"], [["6", "5"]]),
            ("SELECT i FROM by_p WHERE i = $1 OR i + 1 = $1", [2], ["int4"], [["1"]]),
            ("UPDATE by_p SET n = $1 WHERE i = $2", ["2.25", 1], ["numeric", "int4"], []),
            ("SELECT relname FROM pg_class WHERE relname = $1 AND oid > $2", ["by_p", 0], None, [["by_p"]]),
        ]:
            found = c.run(sql, *values)
            equal((sql, found.rows), (sql, rows))
            if types is not None:
                equal((sql, found.parameters), (sql, [OIDS[t] for t in types]))
        equal(c.run("SELECT i FROM by_p WHERE i = ANY ($1)", array, binary=True).rows, [["1"]])


@check("copy in")
def copy():
    signature = b"PGCOPY\n\xff\r\n\0" + bytes(8)
    tuples = b"".join(
        struct.pack("!Hii", 2, 4, i) + struct.pack("!i", len(s)) + s for i, s in [(1, b"a"), (2, b"")]
    ) + struct.pack("!Hii", 2, -1, -1)
    with Bytes() as c:
        c.run("CREATE OR REPLACE TABLE by_c (i INT, s VARCHAR)")
        expected = [["1", "a"], ["2", ""], [None, None]]
        for trailer in (b"\xff\xff", b""):
            c.run("TRUNCATE by_c")
            equal(c.copy("COPY by_c FROM STDIN BINARY", signature + tuples + trailer), "COPY 3")
            equal(c.rows("SELECT * FROM by_c ORDER BY i"), expected)
        for broken in (b"", signature[:5], signature + tuples[:-2], signature + tuples + b"\xff\xffmore"):
            try:
                c.copy("COPY by_c FROM STDIN (FORMAT binary)", broken)
            except Refused as refused:
                equal(refused.state, "22P04")
            else:
                raise AssertionError(f"COPY takes {broken!r}")
        c.run("TRUNCATE by_c")
        text = b"1\ta\\tb\n2\t\n\\N\t\\N\n3\ta\\\nb\n4\t\\\\.\n\\.\n"
        equal(c.copy("COPY by_c FROM STDIN", text), "COPY 5")
        expected = [["1", "a\tb"], ["2", ""], ["3", "a\nb"], ["4", "\\."], [None, None]]
        equal(c.rows("SELECT * FROM by_c ORDER BY i"), expected)
        c.run("TRUNCATE by_c")
        text = b'i,s\r\n1,"a ""b"", c"\r\n2,""\r\n3,\r\n4,"x\ny"\r\n'
        equal(c.copy("COPY by_c FROM STDIN (FORMAT csv, HEADER)", text), "COPY 4")
        expected = [["1", 'a "b", c'], ["2", ""], ["3", None], ["4", "x\ny"]]
        equal(c.rows("SELECT * FROM by_c ORDER BY i"), expected)


# Statement, SQLSTATE, the text that the error is at (after `^` in the statement).
ERRORS = """
42601|^SELEC 1
42601|SELECT * ^FORM by_e
42601|SELECT * FROM by_e WHERE^
42703|SELECT ^nosuch FROM by_e
42703|SELECT a AS other FROM by_e WHERE ^nosuch = 1
42703|SELECT ^by_e.nosuch FROM by_e
42703|INSERT INTO by_e (^nosuch) VALUES (1)
42703|UPDATE by_e SET ^nosuch = 1
42P01|SELECT * FROM ^nosuch
42P01|SELECT ^x.a FROM by_e
42P01|INSERT INTO ^nosuch VALUES (1)
42P01|DELETE FROM ^nosuch
42883|SELECT ^nosuch(a) FROM by_e
42883|SELECT a ^+ true FROM by_e
42702|SELECT ^a FROM by_e AS x, by_e AS y
42803|SELECT ^b, count(*) FROM by_e GROUP BY a
22P02|SELECT * FROM by_e WHERE a = ^'abc'
22023|SELECT ^'\\xq'::bytea
"""


@check("errors")
def errors():
    with Bytes() as c:
        c.run("CREATE OR REPLACE TABLE by_e (a INT, b VARCHAR)")
        for line in ERRORS.strip().splitlines():
            state, marked = line.split("|")
            position = str(marked.index("^") + 1)
            sql = marked.replace("^", "")
            refused = c.refused(sql)
            equal((sql, refused.state, refused.position), (sql, state, position))
            if "Int64(" in refused.message or "Utf8" in refused.message:
                raise AssertionError(f"{sql}: {refused}")
        # Of the text that the client sent, with what stands before the statement, and its parameters.
        equal(c.refused("  SELECT $1::int, $2::text, nosuch FROM by_e", 1000000, "xyz").position, "29")
        try:
            c.query("SELECT 1; SELECT 'ü', nosuch FROM by_e")
        except Refused as refused:
            equal(refused.position, "23")
            c.until(b"Z")
        equal(c.refused("SELECT aa FROM by_e").hint, "did you mean by_e.a?")


if __name__ == "__main__":
    main()
