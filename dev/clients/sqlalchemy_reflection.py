"""SQLAlchemy's inspector over psycopg, against a server that it is given the address of.

    python dev/clients/sqlalchemy_reflection.py postgresql+psycopg://user:password@host:port/thalweg

Needs sqlalchemy 2 and psycopg 3. It makes a schema of its own and drops it; exits with 1 at the
first thing that is not as it should be.
"""

import sys

import sqlalchemy as sa

SCHEMA = "reflection_test"


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")
    print(f"ok {what}")


def main(url):
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        run = lambda sql: connection.exec_driver_sql(sql)
        run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        run(f"CREATE SCHEMA {SCHEMA}")
        run(
            f"CREATE TABLE {SCHEMA}.t (id BIGINT NOT NULL, name TEXT DEFAULT 'x',"
            " price DECIMAL(12,2), at TIMESTAMP, tz TIMESTAMPTZ, ok BOOLEAN, day DATE,"
            " real_ REAL, double_ DOUBLE PRECISION, bytes BYTEA, tags TEXT[])"
        )
        run(f"CREATE VIEW {SCHEMA}.v AS SELECT id, name FROM {SCHEMA}.t")
    try:
        reflect(engine)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def reflect(engine):
    inspector = sa.inspect(engine)
    check("default schema", inspector.default_schema_name, "public")
    check("schemas", SCHEMA in inspector.get_schema_names(), True)
    check("tables", inspector.get_table_names(SCHEMA), ["t"])
    check("views", inspector.get_view_names(SCHEMA), ["v"])
    check("has_table", [inspector.has_table(n, SCHEMA) for n in ("t", "v", "w")], [True, True, False])
    columns = inspector.get_columns("t", SCHEMA)
    check(
        "columns",
        [(c["name"], str(c["type"]), c["nullable"]) for c in columns],
        [
            ("id", "BIGINT", False),
            ("name", "TEXT", True),
            ("price", "NUMERIC(12, 2)", True),
            ("at", "TIMESTAMP", True),
            ("tz", "TIMESTAMP", True),
            ("ok", "BOOLEAN", True),
            ("day", "DATE", True),
            ("real_", "REAL", True),
            ("double_", "DOUBLE PRECISION", True),
            ("bytes", "BYTEA", True),
            ("tags", "ARRAY", True),
        ],
    )
    check("default", columns[1]["default"] is not None, True)
    check("time zone", [columns[3]["type"].timezone, columns[4]["type"].timezone], [False, True])
    check("primary key", inspector.get_pk_constraint("t", SCHEMA)["constrained_columns"], [])
    for what in ("foreign_keys", "indexes", "unique_constraints", "check_constraints"):
        check(what, getattr(inspector, f"get_{what}")("t", SCHEMA), [])
    check("comment", inspector.get_table_comment("t", SCHEMA), {"text": None})
    check("view definition", "SELECT" in inspector.get_view_definition("v", SCHEMA), True)
    check("enums", inspector.get_enums(SCHEMA), [])
    check("sequences", inspector.get_sequence_names(SCHEMA), [])
    table = sa.Table("t", sa.MetaData(), schema=SCHEMA, autoload_with=engine)
    check("autoload", len(table.columns), 11)
    with engine.connect() as connection:
        check("count", connection.execute(sa.select(sa.func.count()).select_from(table)).scalar(), 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
