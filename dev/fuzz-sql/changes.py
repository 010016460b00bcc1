"""Random scripts of changes: INSERT, UPDATE, DELETE, MERGE and TRUNCATE in transactions, with queries in between.

A script keeps what the grammar relies on: ids stay unique, and values stay within what their column had. No row
is changed by two rows of another table, which PostgreSQL's UPDATE … FROM would let either do.
"""

from dataclasses import replace

from grammar import Grammar
from schema import INTEGERS, LIMITS, literal
from scope import Context, Scope, Source, family
from tree import Item, Items, Node, Query, Raw, Select


class Statement(Node):
    """A template of a statement with its parts; `is_query` says that it gives rows."""

    def __init__(self, template, *parts, is_query=False, total=False):
        self.template, self.parts, self.is_query, self.total = template, list(parts), is_query, total

    def sql(self, dialect):
        return self.template.format(*(p.sql(dialect) for p in self.parts)) if self.parts else self.template


class Script(Node):
    def __init__(self, statements, tables):
        self.statements, self.tables = statements, tables

    def sql(self, dialect):
        return ";\n".join(s.sql(dialect) for s in self.statements)


class Changes:
    def __init__(self, rng, tables, first_id):
        self.rng, self.grammar = rng, Grammar(rng, tables)
        self.tables = [t for t in tables if len(t.rows) <= 3000]
        self.all = tables
        self.next = first_id

    def script(self):
        rng = self.rng
        if not self.tables:
            return None
        self.grammar.ctes = []
        touched, out = set(), []
        in_transaction = rng.random() < 0.7
        if in_transaction:
            out.append(Statement("BEGIN"))
        savepoint = False
        for _ in range(rng.randint(1, 6)):
            x = rng.random()
            if in_transaction and x < 0.12:
                out.append(Statement("SAVEPOINT a"))
                savepoint = True
            elif savepoint and x < 0.22:
                out.append(Statement("ROLLBACK TO a"))
            elif in_transaction and x < 0.28:
                out += self.made()
            elif x < 0.38:
                query = self.grammar.query()
                out.append(Statement("{}", query, is_query=True, total=query.total))
            else:
                table = rng.choice(self.tables)
                touched.add(table.name)
                out.append(self.change(table))
        if in_transaction:
            out.append(Statement("COMMIT" if rng.random() < 0.7 else "ROLLBACK"))
        return Script(out, sorted(touched))

    def made(self):
        """A view or a table of a query, what is in it, and its end."""
        self.grammar.count = 0
        query, columns, rows = self.grammar.full_query(None, 20_000, 1)
        if rows > 2_000 or any(c.fuzzy for c in columns):
            return []
        kind = self.rng.choice(["VIEW", "TABLE"])
        return [
            Statement(f"CREATE {kind} made AS {{}}", query), Statement("SELECT * FROM made", is_query=True),
            Statement(f"SELECT count(*), count({columns[0].name}) FROM made", is_query=True), Statement(f"DROP {kind} made"),
        ]

    def change(self, table):
        kind = self.rng.choice(["insert", "insert", "select", "update", "update", "update_from", "delete", "delete_using", "merge", "merge", "truncate"])
        if kind == "truncate":
            if self.rng.random() < 0.7:
                kind = "delete"
            else:
                return Statement(f"TRUNCATE {table.name}")
        # Aliases of subqueries must not be names of tables, which the changed one is known by.
        self.grammar.count = 50
        return getattr(self, kind)(table)

    def context(self, *sources):
        rows = max(s.rows for s in sources)
        scope = Scope(list(sources), rows=rows, qualified=True)
        return Context(scope, rows=rows, subqueries=1)

    def source(self, table, alias):
        return Source(alias, table.columns, len(table.rows) + 50, ["id"])

    def value(self, column, context):
        """An expression that a column can hold, within what is known of its values."""
        rng = self.rng
        if rng.random() < 0.3 and column.sample:
            return Raw(literal(rng.choice(column.sample), column))
        if column.nullable and rng.random() < 0.1:
            return Raw("NULL")
        e = self.grammar.expr(column.type, context, 1)
        if self.fits(e, column):
            return e
        return Raw(literal(rng.choice(column.sample), column)) if column.sample else Raw("NULL")

    def fits(self, e, column):
        if e.fuzzy or family(e.type) != family(column.type) or (column.ascii and not e.ascii):
            return False
        if column.type in (*INTEGERS, "num", "f8", "date", "ts") and (column.mag is not None or column.tame):
            return e.mag is not None and (column.type in ("date", "ts") or e.mag <= column.mag) and e.scale <= column.scale
        return column.type not in INTEGERS or e.mag <= LIMITS[column.type]

    def some(self, table):
        return [c for c in table.columns if c.name != "id" and self.rng.random() < 0.6]

    def returning(self, table, alias=None):
        if self.rng.random() < 0.25:
            return f" RETURNING {', '.join(c.name for c in table.columns[:3])}", True
        return "", False

    def identity(self):
        self.next += 1
        return str(self.next)

    def insert(self, table):
        ident = table.columns[0]
        columns = [ident, *self.some(table)]
        empty = replace(self.context(Source("none", [], 1)), subqueries=0)
        rows = []
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            cells = [Raw(self.identity())] + [
                Raw(literal(self.rng.choice(c.sample), c)) if c.sample and self.rng.random() < 0.8
                else Raw("NULL") if c.nullable else self.value(c, empty) for c in columns[1:]
            ]
            rows.append(Items(cells, least=len(cells), around="({})"))
        returning, is_query = self.returning(table)
        return Statement(f"INSERT INTO {table.name} ({', '.join(c.name for c in columns)}) VALUES {{}}{returning}", Items(rows), is_query=is_query)

    def select(self, table):
        other = self.rng.choice(self.tables)
        source = self.source(other, "s")
        context = self.context(source)
        columns = self.some(table)
        base = self.next
        self.next += 16 * len(other.rows) + 1_000
        items = [Item(Raw(f"CAST(row_number() OVER (ORDER BY s.id) AS int) + {base}"), None)] + [Item(self.value(c, context), None) for c in columns]
        where = self.grammar.conjunction(context, 1) if self.rng.random() < 0.7 else None
        query = Query(Select(Items(items, least=len(items)), Raw(f"{other.name} AS s"), where=where))
        names = ", ".join(["id", *(c.name for c in columns)])
        return Statement(f"INSERT INTO {table.name} ({names}) {{}}", query)

    def assignments(self, table, context):
        columns = self.some(table) or table.columns[1:2]
        return Items([Statement(f"{c.name} = {{}}", self.value(c, context)) for c in columns])

    def update(self, table):
        context = self.context(self.source(table, table.name))
        where = self.grammar.conjunction(context, 2)
        returning, is_query = self.returning(table)
        return Statement(f"UPDATE {table.name} SET {{}} WHERE {{}}{returning}", self.assignments(table, replace(context, subqueries=0)), where, is_query=is_query)

    def update_from(self, table):
        other = self.rng.choice(self.tables)
        context = self.context(self.source(table, table.name), self.source(other, "s"))
        where = Items([Raw(f"{table.name}.id = s.id"), self.grammar.predicate(context, 1)], " AND ")
        where.least = 2
        return Statement(f"UPDATE {table.name} SET {{}} FROM {other.name} AS s WHERE {{}}", self.assignments(table, replace(context, subqueries=0)), where)

    def delete(self, table):
        context = self.context(self.source(table, table.name))
        returning, is_query = self.returning(table)
        return Statement(f"DELETE FROM {table.name} WHERE {{}}{returning}", self.grammar.conjunction(context, 2), is_query=is_query)

    def delete_using(self, table):
        other = self.rng.choice([t for t in self.tables if len(t.rows) <= 200] or self.tables)
        if len(other.rows) > 200:
            return self.delete(table)
        context = self.context(self.source(table, table.name), self.source(other, "s"))
        key = self.rng.choice(["k = s.k", "k = s.id"]) if len(table.rows) <= 200 else "id = s.id"
        where = Items([Raw(f"{table.name}.{key}"), self.grammar.predicate(context, 1)], " AND ")
        return Statement(f"DELETE FROM {table.name} USING {other.name} AS s WHERE {{}}", where)

    def merge(self, table):
        rng = self.rng
        other = rng.choice(self.tables)
        both = self.context(self.source(table, "t"), self.source(other, "s"))
        right = self.context(self.source(other, "s"))
        both, right = replace(both, subqueries=0), replace(right, subqueries=0)
        clauses = []
        for _ in range(rng.randint(1, 2)):
            guard = Statement(" AND {}", self.grammar.predicate(both, 1)) if rng.random() < 0.6 else Raw("")
            action = rng.choice(["update", "update", "delete", "nothing"])
            if action == "update":
                clauses.append(Statement("WHEN MATCHED{} THEN UPDATE SET {}", guard, self.assignments(table, both)))
            else:
                clauses.append(Statement(f"WHEN MATCHED{{}} THEN {'DELETE' if action == 'delete' else 'DO NOTHING'}", guard))
        # An unconditional clause is the last of its kind; a row that is not matched has an id that is new.
        clauses.sort(key=lambda c: isinstance(c.parts[0], Raw))
        while len(clauses) > 1 and isinstance(clauses[-2].parts[0], Raw):
            clauses.pop()
        extra = [self.grammar.predicate(both, 1)] if rng.random() < 0.2 else []
        if not extra and rng.random() < 0.7:
            guard = Statement(" AND {}", self.grammar.predicate(right, 1)) if rng.random() < 0.5 else Raw("")
            columns = self.some(table)
            cells = Items([Raw("s.id"), *(self.value(c, right) for c in columns)], least=len(columns) + 1)
            clauses.append(Statement(f"WHEN NOT MATCHED{{}} THEN INSERT ({', '.join(['id', *(c.name for c in columns)])}) VALUES ({{}})", guard, cells))
        condition = Items([Raw("t.id = s.id"), *extra], " AND ")
        return Statement(f"MERGE INTO {table.name} AS t USING {other.name} AS s ON {{}} {{}}", condition, Items(clauses, " "))
