"""Random queries: a typed grammar over the tables of a schema.

A query has one answer by the standard: LIMIT stands only under an ORDER BY of all columns, windows that number
rows are ordered by a key of every table, sums are of doubles that add up exactly. Nothing overflows or divides
by zero unless that is what is asked: every expression knows how large its values can be. What a query costs is
bounded by how many rows each join and subquery can have, which the data's most frequent values say.
"""

from dataclasses import replace

from expressions import Expressions
from groups import Groups
from schema import INTEGERS, Column
from scope import COMPARISONS, TYPES, Context, Scope, Source
from tree import Cte, Derived, E, Item, Items, Join, Query, Raw, Relation, Select, SetOp

# Rows that an operator of a query may have at most, and those of a result that is fetched.
ROWS = 60_000
FETCHED = 2_000
# Pairs of rows that a condition without an equality is asked of, and rows that subqueries read in all.
PAIRS = 10_000
CORRELATED = 200_000


class Grammar(Expressions, Groups):
    def __init__(self, rng, tables):
        self.rng, self.tables = rng, tables
        self.count = 0
        # Whether the expressions that are being made may overflow.
        self.overflow = False

    # What is asked

    def query(self):
        self.count = 0
        self.ctes = []
        if self.chance(0.04):
            return self.overflowing()
        query, columns, rows = self.full_query(None, ROWS, 2, top=True)
        return query

    def overflowing(self):
        """A query that may overflow or divide by zero. It computes each value of each row in every engine, as it
        has no condition and no limit, so that all must end in the same error or none."""
        node, source = self.relation(None, 1000, 0)
        scope = Scope([source], rows=source.rows)
        self.overflow = True
        items = [Item(self.expr(self.rng.choice(["int", "int", "num"]), Context(scope, subqueries=0, rows=source.rows), 2), "c1")]
        self.overflow = False
        query = Query(Select(Items(items), node))
        query.strict = True
        return query

    def chance(self, p):
        return self.rng.random() < p

    def alias(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    # Queries

    def full_query(self, parent, budget, depth, types=None, top=False, limit_rows=None):
        """A query with CTEs, ORDER BY and LIMIT; its columns; how many rows it can have."""
        rng = self.rng
        outer_ctes = self.ctes
        ctes, recursive = [], False
        if depth > 0 and self.chance(0.15 if top else 0.05):
            for _ in range(rng.randint(1, 2)):
                cte, source = self.cte(budget, depth - 1)
                recursive |= source.alias.startswith("r")
                ctes.append(cte)
                self.ctes = self.ctes + [source]
        body, columns, rows = self.body(parent, budget, depth, types, top)
        self.ctes = outer_ctes
        query = Query(body, Items(ctes, least=0) if ctes else None, recursive)
        fuzzy = any(c.fuzzy for c in columns)
        too_many = top and rows > FETCHED
        star = any(c.name is None for c in columns)
        limited = limit_rows or too_many or self.chance(0.3 if top else 0.15)
        # Which row DISTINCT ON keeps is decided by an order of all columns, the first one before the others.
        keeps_first = isinstance(body, Select) and isinstance(body.distinct, Items)
        if not star and (limited or keeps_first or (top and self.chance(0.25))):
            order = sorted(range(len(columns)), key=lambda i: (columns[i].fuzzy, rng.random()))
            query.order = Items([self.order_item(str(i + 1) if self.chance(0.5) else columns[i].name) for i in order])
            query.total = True
            if keeps_first:
                query.order = Items([self.order_item(str(i + 1)) for i in range(len(columns))])
            # A key that is there again changes nothing.
            if self.chance(0.1):
                query.order.items.append(self.order_item(str(rng.randint(1, len(columns)))))
            if limited and not fuzzy:
                query.limit = limit_rows or rng.choice([0, 1, 2, 5, 10, 50])
                if self.chance(0.3) and not limit_rows:
                    query.offset = rng.choice([0, 1, 3, 100])
                rows = min(rows, query.limit)
            elif fuzzy:
                query.total = False
        elif top and not star and self.chance(0.1):
            query.order = Items([self.order_item(str(rng.randint(1, len(columns))))])
        return query, columns, rows

    def order_item(self, what):
        return Raw(what + self.rng.choice(["", "", " DESC", " ASC", " NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST"]))

    def cte(self, budget, depth):
        rng = self.rng
        if self.chance(0.2):
            name, table = self.alias("r"), self.small_table(50)
            n = rng.randint(1, 6)
            start = "SELECT 1, 0" if table is None or self.chance(0.5) else f"SELECT k, id FROM {table.name} WHERE id < 5"
            step = rng.choice(["n + 1, x + n", "n + 1, n"])
            text = f"SELECT CAST(n AS bigint), CAST(x AS bigint) FROM ({start}) AS s(n, x) UNION {rng.choice(['', 'ALL '])}SELECT {step} FROM {name} WHERE n < {n}"
            columns = [Column("n", "int8", mag=1100), Column("x", "int8", mag=100000)]
            return Cte(name, ["n", "x"], Raw(text)), Source(name, columns, 400)
        name = self.alias("w")
        query, columns, rows = self.full_query(None, budget, depth)
        titles = None
        if self.chance(0.3):
            titles = [f"z{i}" for i in range(len(columns))]
            columns = [replace(c, name=t) for c, t in zip(columns, titles)]
        return Cte(name, titles, query), Source(name, columns, rows)

    def body(self, parent, budget, depth, types, top):
        if depth > 0 and self.chance(0.15):
            return self.set_operation(parent, budget, depth, types)
        return self.select(parent, budget, depth, types, top)

    def set_operation(self, parent, budget, depth, types):
        rng = self.rng
        types = types or [rng.choice(TYPES) for _ in range(rng.randint(1, 3))]
        op = rng.choice(["UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        left, columns, rows = self.full_query(parent, budget / 2, depth - 1, types)
        right, others, more = self.full_query(parent, budget / 2, depth - 1, types)
        merged = [
            replace(a, type=self.wider(a.type, b.type), mag=self.max_mag(a.mag, b.mag), scale=max(a.scale, b.scale),
                    ascii=a.ascii and b.ascii, unique=False)
            for a, b in zip(columns, others)
        ]
        return SetOp(op, left, right), merged, rows + more

    def max_mag(self, a, b):
        return None if a is None or b is None else max(a, b)

    def wider(self, a, b):
        order = ["int2", "int4", "int8", "num", "f8"]
        return max(a, b, key=order.index) if a in order and b in order else a

    def select(self, parent, budget, depth, types=None, top=False):
        rng = self.rng
        node, scope = self.from_clause(parent, budget, depth)
        select = Select(None, node)
        # Titles that are also names of columns, where all columns are qualified.
        scope.qualified = self.chance(0.5)
        context = Context(scope, rows=scope.rows, subqueries=1 if depth > 0 else 0)
        if self.chance(0.75 if scope.rows > 100 else 0.55):
            select.where = self.conjunction(context, depth)
        must_group = top and scope.rows > FETCHED * 3 and self.chance(0.8)
        grouped = must_group or self.chance(0.35)
        rows = scope.rows
        if grouped:
            rows = self.group(select, context, depth)
        if types is None:
            types = [self.type(context) for _ in range(rng.choice([1, 1, 2, 2, 3, 4]))]
            if grouped and not context.keys:
                types = types[:3]
            is_free = True
        else:
            is_free = False
        if top and is_free and not grouped and rows <= FETCHED and self.chance(0.07):
            if len({c.name for s in scope.sources for c in s.columns}):
                star = "*" if self.chance(0.5) else f"{rng.choice(scope.sources).alias}.*"
                select.items = Items([Raw(star)])
                return select, [Column(None, "int4", fuzzy=True)], rows
        items, columns = [], []
        names = rng.sample("abcdegk", len(types)) if scope.qualified and len(types) < 5 else [f"c{i}" for i in range(1, len(types) + 1)]
        distinct = not grouped and self.chance(0.12)
        for type, name in zip(types, names):
            shown = replace(context, shown=top and not distinct)
            if depth > 0 and self.chance(0.12) and (not grouped or context.keys is not None):
                expr = self.window(type, context, depth) or self.expr(type, shown, depth)
            elif is_free and context.keys and self.chance(0.5):
                expr = rng.choice(context.keys).copy()
            else:
                expr = self.expr(type, shown, depth)
            items.append(Item(expr, name))
            columns.append(Column(name, expr.type, 38, expr.scale, expr.mag, ascii=expr.ascii, frequency=max(1, rows),
                                  fuzzy=expr.fuzzy))
        select.items = Items(items)
        if distinct and not any(c.fuzzy for c in columns):
            select.distinct = Raw("DISTINCT")
            if is_free and self.columns_in(items[0].expr) and self.chance(0.3):
                select.distinct = Items([items[0].expr.copy()], around="DISTINCT ON ({})")
        for item in items:
            template = item.expr.template
            if isinstance(template, str) and template.endswith(" OVER {}") and self.chance(0.15):
                select.windows = Items([Items([Raw("w AS"), item.expr.args[-1]], " ", 2)])
                item.expr.args[-1] = Raw("w")
                break
        return select, columns, rows

    # FROM

    def small_table(self, rows):
        fit = [t for t in self.tables if len(t.rows) <= rows]
        return self.rng.choice(fit) if fit else None

    def relation(self, parent, budget, depth, lateral=None):
        """One item of FROM."""
        rng = self.rng
        x = rng.random()
        if depth > 0 and x < 0.16:
            alias = self.alias("s")
            # Rows that come in an order, which operators above may think that they keep.
            ordered = rng.choice([5, 50, 400]) if self.chance(0.25) else None
            query, columns, rows = self.full_query(lateral, budget, depth - 1, limit_rows=ordered)
            return Derived(query, alias, lateral=lateral is not None), Source(alias, columns, rows)
        fitting = [s for s in self.ctes if s.rows <= budget]
        if fitting and x < 0.45:
            cte, alias = rng.choice(fitting), self.alias("q")
            return Relation(cte.alias, alias), Source(alias, cte.columns, cte.rows)
        if x < 0.20:
            return self.values()
        if x < 0.22:
            alias, n = self.alias("g"), rng.randint(0, 12)
            column = Column("n", "int4", mag=max(n, 1), unique=True)
            return Derived(Raw(f"SELECT CAST(n AS int) FROM generate_series(1, {n}) AS x(n)"), alias, ["n"]), Source(alias, [column], n, ["n"])
        fit = [t for t in self.tables if len(t.rows) <= budget]
        if not fit:
            return self.values()
        large = max(fit, key=lambda t: len(t.rows))
        table = large if self.chance(0.25) else rng.choice(fit)
        alias = self.alias("t") if self.chance(0.8) else self.alias("x")
        return Relation(table.name, alias), Source(alias, table.columns, len(table.rows), ["id"])

    def values(self):
        rng = self.rng
        alias = self.alias("v")
        types = [rng.choice(["int4", "text", "date", "bool"]) for _ in range(rng.randint(1, 2))]
        columns = [Column(n, t, mag=3) for n, t in zip("ab", types)]
        rows = []
        n = rng.randint(1, 4)
        for i in range(n):
            row = [self.literal(c.type).sql("postgresql") if i == 0 or self.chance(0.8) else "NULL" for c in columns]
            rows.append(Raw(f"({', '.join(row)})"))
        columns = [replace(c, mag=200, frequency=n) for c in columns]
        return Derived(Items(rows, around="VALUES {}"), alias, [c.name for c in columns]), Source(alias, columns, n)

    def from_clause(self, parent, budget, depth):
        rng = self.rng
        node, source = self.relation(parent, budget, depth)
        scope = Scope([source], parent, rows=source.rows)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 1, 2, 2, 3])):
            node = self.join(node, scope, budget, depth)
        return node, scope

    def join(self, left, scope, budget, depth):
        """Adds a relation to `scope` and gives the joined tree."""
        rng = self.rng
        if depth > 0 and self.chance(0.08) and scope.rows <= 300:
            inner = Scope(list(scope.sources), scope.parent, dict(scope.merged), 1)
            right, source = self.relation(scope.parent, CORRELATED / max(scope.rows, 1), depth, lateral=inner)
            if isinstance(right, Derived) and right.lateral and source.rows * scope.rows <= budget:
                scope.sources.append(source)
                scope.rows *= max(source.rows, 1)
                if self.chance(0.5):
                    return Join("CROSS", left, right)
                return Join("LEFT", left, right, E("bool", "TRUE"))
        right, source = self.relation(scope.parent, budget, depth)
        # A name that USING has merged is ambiguous beside another column of that name.
        names = {c.name for c in source.columns}
        inner = Scope([*scope.sources, source], scope.parent, {n: c for n, c in scope.merged.items() if n not in names})
        kind = rng.choice(["INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL"])
        pairs = self.pairs(scope, source, budget)
        common = self.common(scope, source, pairs)
        shared = [c.name for c in source.columns if any(o.name == c.name for s in scope.sources for o in s.columns)]
        if shared and len(set(shared)) == len(shared) and set(shared) <= set(common) and self.chance(0.3):
            fewest = min(c.frequency for c in source.columns if c.name in shared)
            merged = {n: self.merged(scope, source, n) for n in shared}
            self.joined(scope, source, kind, scope.rows * max(fewest, 1))
            scope.merged = {**inner.merged, **merged}
            return Join(kind, left, right, natural=True)
        both = scope.rows * max(source.rows, 1)
        if common and self.chance(0.2):
            name = rng.choice(common)
            merged = self.merged(scope, source, name)
            self.joined(scope, source, kind, scope.rows * next(c.frequency for c in source.columns if c.name == name))
            scope.merged = {**inner.merged, name: merged}
            return Join(kind, left, right, using=[name])
        if pairs and (both > PAIRS or self.chance(0.85)):
            (a, ca), (b, cb) = rng.choice(pairs)
            parts = [E("bool", "{} = {}" if both > PAIRS or kind == "FULL" or self.chance(0.9) else "{} IS NOT DISTINCT FROM {}",
                       self.ref(inner, a, ca), self.ref(inner, b, cb))]
            if self.chance(0.3):
                context = Context(inner, rows=both, subqueries=0, outer=self.chance(0.2))
                parts.append(self.predicate(context, 1))
                rng.shuffle(parts)
            self.joined(scope, source, kind, scope.rows * max(1, cb.frequency) + (ca.nullable and "IS NOT" in parts[0].template) * PAIRS)
            return Join(kind, left, right, Items(parts, " AND ", around="({})"))
        if both > PAIRS:
            return left
        if self.chance(0.4):
            self.joined(scope, source, "CROSS", both)
            return Join(rng.choice(["CROSS", ","]) if isinstance(left, (Relation, Derived)) else "CROSS", left, right)
        kind = "INNER" if kind == "FULL" else kind
        self.joined(scope, source, kind, both)
        return Join(kind, left, right, self.predicate(Context(inner, rows=both, subqueries=0), 1))

    def merged(self, scope, source, name):
        """The one column that USING makes of two."""
        old = scope.merged.get(name) or next(c for s in scope.sources for c in s.columns if c.name == name)
        new = next(c for c in source.columns if c.name == name)
        return replace(old, type=self.wider(old.type, new.type), mag=self.max_mag(old.mag, new.mag),
                       scale=max(old.scale, new.scale), ascii=old.ascii and new.ascii, sample=[])

    def joined(self, scope, source, kind, rows):
        if kind in ("LEFT", "FULL"):
            rows += scope.rows
        if kind in ("RIGHT", "FULL"):
            rows += source.rows
        scope.sources.append(source)
        scope.rows = max(rows, 1)
        names = {c.name for c in source.columns}
        scope.merged = {n: c for n, c in scope.merged.items() if n not in names}

    def pairs(self, scope, source, budget):
        """Pairs of columns that an equality may join without too many rows."""
        out = []
        for s in scope.sources:
            for a in s.columns:
                for b in source.columns:
                    if a.fuzzy or b.fuzzy or a.type == "bool" or not self.comparable(a.type, b.type):
                        continue
                    if scope.rows * max(b.frequency, 1) <= budget:
                        weight = 6 if a.name == b.name or (a.unique and b.unique) else 1
                        out += [((s, a), (source, b))] * weight
        return out

    def common(self, scope, source, pairs):
        """Names that USING may have: once on the left, comparable on the right."""
        names = []
        for c in source.columns:
            holders = [s for s in scope.sources for o in s.columns if o.name == c.name]
            if c.name in scope.merged or len(holders) == 1:
                if any(a.name == c.name and b is c for (_, a), (_, b) in pairs):
                    names.append(c.name)
        return names

    def comparable(self, a, b):
        numbers = (*INTEGERS, "num")
        return a == b or (a in numbers and b in numbers)

    def ref(self, scope, source, column, qualify=False):
        """A column, sometimes by its bare name."""
        name = f"{source.alias}.{column.name}"
        if not scope.qualified and not qualify and self.chance(0.3):
            if sum(c.name == column.name for s in scope.sources for c in s.columns) == 1:
                name = column.name
        return E(column.type, name, mag=column.mag, scale=column.scale, fuzzy=column.fuzzy, ascii=column.ascii)
    # Subqueries

    def below(self, context):
        """The scope that a subquery sees, and the rows it may read each time."""
        scope = context.scope
        if context.keys is not None:
            names = {k.template for k in context.keys if getattr(k, "is_column", False)}
            sources = []
            for s in scope.sources:
                columns = [c for c in s.columns if f"{s.alias}.{c.name}" in names]
                if columns:
                    sources.append(replace(s, columns=columns))
            scope = Scope(sources, scope.parent, {}, scope.rows, True)
        scope = Scope(scope.sources, scope.parent, {}, scope.rows, True)
        return scope, min(ROWS, CORRELATED / max(context.rows, 1))

    def correlated(self, scope, context):
        """Below `scope`, a condition that ties a subquery to the query around it, or None."""
        if scope.parent is None:
            return None
        pairs = [
            (s, a, o, b)
            for s in scope.sources for a in s.columns if not a.fuzzy and a.name
            for o in scope.parent.sources for b in o.columns if not b.fuzzy and b.name and self.comparable(a.type, b.type) and a.type != "bool"
        ]
        if not pairs:
            return None
        s, a, o, b = self.rng.choice(pairs)
        op = "=" if self.chance(0.7) else self.rng.choice(COMPARISONS)
        return E("bool", f"({{}} {op} {{}})", self.ref(scope, s, a, True), self.ref(scope.parent, o, b, True))

    def inner_select(self, context, types, aggregate=False):
        """A subquery's select over one or two relations, often correlated; None if nothing fits."""
        parent, budget = self.below(context)
        if budget < 5:
            return None
        if not self.chance(0.6):
            parent = None
        node, source = self.relation(None, budget, 0)
        scope = Scope([source], parent, rows=source.rows)
        if self.chance(0.25):
            node = self.join(node, scope, budget, 0)
        scope.qualified = True
        inner = Context(scope, outer=False, subqueries=1 if context.subqueries > 1 else 0, rows=scope.rows)
        select = Select(None, node)
        parts = []
        tie = self.correlated(scope, context)
        if tie is not None:
            parts.append(tie)
        if self.chance(0.5):
            parts.append(self.predicate(replace(inner, outer=self.chance(0.5)), 1))
        if parts:
            select.where = Items(parts, " AND ", 1)
        if aggregate:
            inner.keys, inner.aggregates = [], True
            inner.base = Context(scope, outer=False, subqueries=0, rows=scope.rows)
        items = []
        for i, t in enumerate(types):
            if aggregate:
                e = self.aggregate(t, inner)
                if e is None or e.fuzzy:
                    return None
            else:
                e = self.expr(t, replace(inner, outer=self.chance(0.2)), 1)
            items.append(Item(e, f"y{i}"))
        select.items = Items(items)
        return select, scope

    def scalar_subquery(self, type, context):
        kind = self.rng.choice(["aggregate", "aggregate", "first"])
        made = self.inner_select(context, [type], kind == "aggregate")
        if made is None:
            return None
        select, scope = made
        e = select.items.items[0].expr
        if e.fuzzy:
            return None
        query = Query(select)
        if kind == "first":
            query.order, query.limit, query.total = Items([self.order_item("1")]), 1, True
        return E(e.type, "({})", query, mag=e.mag, scale=e.scale, ascii=e.ascii)

    def subquery_predicate(self, kind, context):
        rng = self.rng
        no = rng.choice(["", "NOT "])
        if kind == "exists":
            made = self.inner_select(context, ["int"], self.chance(0.1))
            return None if made is None else E("bool", f"({no}EXISTS ({{}}))", Query(made[0]))
        type = rng.choice(["int", "int", "num", "text", "date"])
        a = self.expr(type, context, 1)
        made = self.inner_select(context, [type], self.chance(0.1))
        if made is None or a.fuzzy or made[0].items.items[0].expr.fuzzy:
            return None
        query = Query(made[0])
        if self.chance(0.1):
            query.order, query.limit, query.total = Items([self.order_item("1")]), rng.randint(0, 3), True
        if kind == "insub":
            return E("bool", f"({{}} {no}IN ({{}}))", a, query)
        return E("bool", f"({{}} {rng.choice(COMPARISONS)} {rng.choice(['ANY', 'ALL'])} ({{}}))", a, query)
