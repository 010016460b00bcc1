"""SQLAlchemy 2 over psycopg 3: its inspector, and what an application does. The server is in PGHOST, …

It makes a schema of its own and drops it.
"""

import datetime
import decimal

import sqlalchemy as sa
import sqlalchemy.orm
from checks import check, equal, main

SCHEMA = "reflection_test"
# The rest is in libpq's environment.
ENGINE = sa.create_engine("postgresql+psycopg:///thalweg")


class Base(sa.orm.DeclarativeBase):
    pass


class Order(Base):
    """Keys are the application's: there are no sequences."""

    __tablename__ = "orders"
    __table_args__ = {"schema": SCHEMA}
    id = sa.Column(sa.BigInteger, primary_key=True, autoincrement=False)
    name = sa.Column(sa.String(20))
    price = sa.Column(sa.Numeric(12, 2))
    day = sa.Column(sa.Date)


DAY = datetime.date(2024, 2, 29)


@check("metadata")
def metadata():
    with ENGINE.begin() as connection:
        run = lambda sql: connection.exec_driver_sql(sql)
        run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        run(f"CREATE SCHEMA {SCHEMA}")
        run(
            f"CREATE TABLE {SCHEMA}.t (id BIGINT NOT NULL, name TEXT DEFAULT 'x',"
            " price DECIMAL(12,2), at TIMESTAMP, tz TIMESTAMPTZ, ok BOOLEAN, day DATE,"
            " real_ REAL, double_ DOUBLE PRECISION, bytes BYTEA, tags TEXT[])"
        )
        run(f"CREATE VIEW {SCHEMA}.v AS SELECT id, name FROM {SCHEMA}.t")
    reflect()


def reflect():
    inspector = sa.inspect(ENGINE)
    equal(inspector.default_schema_name, "public")
    equal(SCHEMA in inspector.get_schema_names(), True)
    equal(inspector.get_table_names(SCHEMA), ["t"])
    equal(inspector.get_view_names(SCHEMA), ["v"])
    equal([inspector.has_table(n, SCHEMA) for n in ("t", "v", "w")], [True, True, False])
    columns = inspector.get_columns("t", SCHEMA)
    equal(
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
    equal(columns[1]["default"] is not None, True)
    equal([columns[3]["type"].timezone, columns[4]["type"].timezone], [False, True])
    equal(inspector.get_pk_constraint("t", SCHEMA)["constrained_columns"], [])
    for what in ("foreign_keys", "indexes", "unique_constraints", "check_constraints"):
        equal(getattr(inspector, f"get_{what}")("t", SCHEMA), [])
    equal(inspector.get_table_comment("t", SCHEMA), {"text": None})
    equal("SELECT" in inspector.get_view_definition("v", SCHEMA), True)
    equal(inspector.get_enums(SCHEMA), [])
    equal(inspector.get_sequence_names(SCHEMA), [])
    table = sa.Table("t", sa.MetaData(), schema=SCHEMA, autoload_with=ENGINE)
    equal(len(table.columns), 11)
    with ENGINE.connect() as connection:
        equal(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar(), 0)


@check("changes")
def changes():
    with ENGINE.begin() as connection:
        Base.metadata.drop_all(connection)
        # Without the key that SQLAlchemy declares: there is none.
        connection.exec_driver_sql(
            f"CREATE TABLE {SCHEMA}.orders (id BIGINT NOT NULL, name VARCHAR, price DECIMAL(12,2), day DATE)"
        )
    with sa.orm.Session(ENGINE) as session:
        session.add_all([Order(id=i, name=f"n{i}", price=decimal.Decimal("1.50"), day=DAY) for i in range(5)])
        session.commit()
        order = session.get(Order, 3)
        order.name = "it's"
        session.delete(session.get(Order, 4))
        session.commit()
        equal(session.scalars(sa.select(Order.name).order_by(Order.id)).all(), ["n0", "n1", "n2", "it's"])


@check("queries")
def queries():
    with sa.orm.Session(ENGINE) as session:
        found = session.execute(
            sa.select(Order.day, sa.func.count(), sa.func.sum(Order.price)).group_by(Order.day)
        ).all()
        equal([tuple(row) for row in found], [(DAY, 4, decimal.Decimal("6.00"))])
        page = sa.select(Order).where(Order.name.like("n%")).order_by(Order.id).limit(2).offset(1)
        equal([order.id for order in session.scalars(page)], [1, 2])


@check("parameters")
def parameters():
    with ENGINE.connect() as connection:
        found = connection.execute(
            sa.text(f"SELECT id FROM {SCHEMA}.orders WHERE name = :name AND day = :day"),
            {"name": "it's", "day": DAY},
        )
        equal(found.scalar(), 3)
        several = sa.select(sa.func.count()).where(Order.id.in_([1, 2, 77]))
        equal(connection.execute(several).scalar(), 2)


@check("transactions")
def transactions():
    with sa.orm.Session(ENGINE) as session:
        session.execute(sa.delete(Order))
        with session.begin_nested() as inner:
            session.add(Order(id=9))
            session.flush()
            inner.rollback()
        equal(session.scalar(sa.select(sa.func.count()).select_from(Order)), 0)
        session.rollback()
        equal(session.scalar(sa.select(sa.func.count()).select_from(Order)), 4)


@check("server-side cursors")
def cursors():
    with ENGINE.connect().execution_options(stream_results=True, max_row_buffer=10) as connection:
        seen = connection.exec_driver_sql("SELECT * FROM generate_series(1, 1000)").scalars().all()
        equal(sum(seen), 500500)


@check("errors")
def errors():
    try:
        with ENGINE.connect() as connection:
            connection.exec_driver_sql("SELECT nosuch")
    except sa.exc.ProgrammingError as error:
        equal(error.orig.sqlstate, "42703")
        return
    raise AssertionError("no error")


@check("settings")
def settings():
    with ENGINE.connect() as connection:
        equal(connection.get_isolation_level(), connection.default_isolation_level)
        with connection.execution_options(isolation_level="AUTOCOMMIT") as autocommit:
            equal(autocommit.exec_driver_sql("SELECT 1").scalar(), 1)


if __name__ == "__main__":
    try:
        main()
    finally:
        with ENGINE.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
