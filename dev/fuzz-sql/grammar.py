"""Random queries: a typed grammar over the tables of a schema.

A query has one answer by the standard: LIMIT stands only under an ORDER BY of all columns, windows that number
rows are ordered by a key of every table, sums are of doubles that add up exactly. Nothing overflows or divides
by zero unless that is what is asked: every expression knows how large its values can be. What a query costs is
bounded by how many rows each join and subquery can have, which the data's most frequent values say.
"""

import math
from dataclasses import dataclass, field, replace

import known
from schema import INTEGERS, LIMITS, NAMES, NUMBERS, Column, literal
from tree import Cte, Derived, E, Item, Items, Join, Query, Raw, Relation, Select, SetOp

# Rows that an operator of a query may have at most, and those of a result that is fetched.
ROWS = 60_000
FETCHED = 2_000
# Pairs of rows that a condition without an equality is asked of, and rows that subqueries read in all.
PAIRS = 10_000
CORRELATED = 200_000

COMPARISONS = ["=", "=", "<>", "<", "<=", ">", ">="]
TYPES = ["int", "int", "num", "f8", "text", "date", "ts", "bool"]


def family(type):
    return "int" if type in INTEGERS else type


@dataclass
class Source:
    """One relation of a FROM clause under its alias."""

    alias: str
    columns: list
    rows: float
    # Columns of which no two rows have the same values, or None.
    key: list = None


@dataclass
class Scope:
    sources: list
    parent: object = None
    # Columns that USING has merged: unqualified names mean these.
    merged: dict = field(default_factory=dict)
    rows: float = 1
    qualified: bool = False


@dataclass
class Context:
    """Where an expression stands."""

    scope: Scope
    # Expressions that rows were grouped by, or None where they were not.
    keys: list = None
    aggregates: bool = False
    outer: bool = True
    subqueries: int = 1
    rows: float = 1
    # Whether the expression is the whole of a column that only the client sees.
    shown: bool = False
    # Of groups: the context of the rows below them, and whether there are several grouping sets.
    base: object = None
    sets: bool = False


class Grammar:
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
            query, columns, rows = self.full_query(lateral, budget, depth - 1)
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

    # GROUP BY

    def group(self, select, context, depth):
        """Groups the rows of `select`; the context becomes one of groups. Gives how many there can be."""
        rng = self.rng
        base = replace(context, shown=False)
        keys = []
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])):
            type = self.type(base)
            key = self.column(type, base) if self.chance(0.7) else self.expr(type, replace(base, subqueries=0, outer=False), 1)
            if key and not key.fuzzy:
                if not self.is_constant(key) and key.sql("postgresql") not in [k.sql("postgresql") for k in keys]:
                    keys.append(key)
        context.keys, context.aggregates = keys, True
        context.base = base
        context.sets = False
        if not keys:
            select.group = None
            if self.chance(0.1):
                select.group = Items([Raw("()")])
            rows = 1
        else:
            rows = context.rows
            if self.chance(0.25) and len(keys) > 0:
                context.sets = True
                select.group = Items([self.grouping_sets(keys)])
                rows *= 4
            else:
                select.group = Items([k.copy() for k in keys], least=1)
        if self.chance(0.25):
            select.having = self.predicate(replace(context, shown=False), 1)
        return rows

    def is_constant(self, e):
        return not self.columns_in(e)

    def columns_in(self, e):
        return [n for n in e.walk() if isinstance(n, E) and not n.args and getattr(n, "is_column", False)]

    def grouping_sets(self, keys):
        rng = self.rng
        kind = rng.choice(["ROLLUP", "CUBE", "SETS", "SETS"])
        if kind != "SETS":
            return Items([k.copy() for k in keys], around=kind + " ({})")
        sets = []
        for _ in range(rng.randint(1, 4)):
            some = rng.sample(keys, rng.randint(0, len(keys)))
            sets.append(Items([k.copy() for k in some], least=0, around="({})"))
        if not any(s.items for s in sets):
            sets.append(Items([k.copy() for k in keys], around="({})"))
        used = {k.sql("postgresql") for s in sets for k in s.items}
        missing = [k for k in keys if k.sql("postgresql") not in used]
        if missing:
            sets.append(Items([k.copy() for k in missing], around="({})"))
        return Items(sets, around="GROUPING SETS ({})")

    def aggregate(self, type, context):
        """An aggregate over the rows below, or None if there is none of this type."""
        rng = self.rng
        base = replace(context.base, outer=False, subqueries=0)
        rows = max(context.rows, 1)
        filter = ""
        if self.chance(0.15):
            filter = " FILTER (WHERE {})"
        def made(type, template, *args, **more):
            args = list(args)
            text = template
            if filter:
                text += filter
                args.append(self.predicate(base, 1))
            return E(type, text, *args, **more)
        distinct = "DISTINCT " if self.chance(0.12) else ""
        if type == "int":
            kind = rng.choice(["count", "count*", "sum", "min", "max", "grouping"])
            if kind == "count*":
                return made("int8", "count(*)", mag=rows) if not filter else E("int8", "count(*) FILTER (WHERE {})", self.predicate(base, 1), mag=rows)
            if kind == "count":
                return made("int8", f"count({distinct}{{}})", self.expr(self.type(base), base, 1), mag=rows)
            if kind == "grouping" and context.sets:
                return E("int4", "GROUPING({})", rng.choice(context.keys).copy(), mag=1)
            arg = self.expr("int", base, 1)
            if kind == "sum" and arg.type != "int8" and arg.mag * rows < LIMITS["int8"]:
                return made("int8", f"sum({distinct}{{}})", arg, mag=arg.mag * rows)
            return made(arg.type, f"{rng.choice(['min', 'max'])}({{}})", arg, mag=arg.mag)
        if type == "num":
            arg = self.expr("num", base, 1)
            if context.shown and self.chance(0.25) and arg.mag < 1e9:
                return made("num", f"avg({distinct}{{}})", arg, mag=arg.mag, scale=16, fuzzy=True)
            if self.chance(0.4) and self.digits(arg.mag * rows) + arg.scale < 36:
                return made("num", f"sum({distinct}{{}})", arg, mag=arg.mag * rows, scale=arg.scale)
            arg8 = self.expr("int", base, 1)
            if arg8.type == "int8" and self.chance(0.3):
                return made("num", f"sum({distinct}{{}})", arg8, mag=arg8.mag * rows)
            return made("num", f"{rng.choice(['min', 'max'])}({{}})", arg, mag=arg.mag, scale=arg.scale)
        if type == "f8":
            arg = self.expr("f8", base, 1)
            if context.shown and self.chance(0.3):
                number = self.expr(rng.choice(["int", "f8"]), base, 1)
                if number.mag is not None and number.mag < 1e6:
                    f = rng.choice(["avg({})", "avg({})", "stddev({})", "var_pop({})", "stddev_pop({})", "variance({})"])
                    return made("f8", f, number, mag=None, fuzzy=True)
            if arg.mag is not None and not arg.fuzzy and self.chance(0.15):
                half = f"percentile_{rng.choice(['cont', 'disc'])}({rng.choice(['5e-1', '0e0', '1e0', '25e-2'])})"
                return made("f8", half + " WITHIN GROUP (ORDER BY {}" + rng.choice(["", " DESC"]) + ")", arg, mag=arg.mag, fuzzy="cont" in half) \
                    if context.shown or "disc" in half else None
            if arg.mag is not None and not arg.fuzzy and arg.mag * rows < 1e12 and self.chance(0.5):
                return made("f8", f"sum({distinct}{{}})", arg, mag=arg.mag * rows)
            return made("f8", f"{rng.choice(['min', 'max'])}({{}})", arg, mag=arg.mag, fuzzy=arg.fuzzy)
        if type == "bool":
            arg = self.expr("bool", base, 1)
            return made("bool", f"{rng.choice(['bool_and', 'bool_or'])}({{}})", arg)
        if type == "text" and self.chance(0.3) and rows <= 3000:
            arg = self.expr("text", base, 1)
            if self.chance(0.4) and self.columns_in(arg):
                return made("text", "string_agg(DISTINCT {}, '|' ORDER BY {})", arg, arg.copy(), ascii=arg.ascii)
            return made("text", "string_agg({}, ',' ORDER BY {}" + rng.choice(["", " DESC", " NULLS FIRST"]) + ")", arg, arg.copy(), ascii=arg.ascii)
        if type in ("text", "date", "ts"):
            arg = self.expr(type, base, 1)
            return made(arg.type, f"{rng.choice(['min', 'max'])}({{}})", arg, mag=arg.mag, ascii=arg.ascii)
        return None

    # Windows

    def total_order(self, context):
        """Expressions that order rows so that only equal rows tie, or None."""
        if context.keys is not None:
            return None if context.sets else [k.copy() for k in context.keys] or None
        out = []
        for s in context.scope.sources:
            columns = [c for c in s.columns if s.key is None or c.name in s.key]
            if any(c.fuzzy for c in columns) or not columns:
                return None
            out += [self.ref(context.scope, s, c) for c in columns]
        return out if len(out) <= 8 else None

    def window(self, type, context, depth):
        rng = self.rng
        if context.rows > 20_000:
            return None
        inner = replace(context, shown=False, subqueries=0)
        total = self.total_order(context)
        partition = [self.expr(self.type(inner), inner, 0) for _ in range(rng.choice([0, 1, 1, 2]))]
        partition = [p for p in partition if not p.fuzzy]
        peers = [self.expr(self.type(inner), inner, 0) for _ in range(rng.choice([0, 1, 1, 2]))]
        peers = [p for p in peers if not p.fuzzy]
        # Constants in an ORDER BY of a window are fine; positions are not meant there.
        order = peers + (total or [])
        def over(order, frame=""):
            parts = []
            if partition:
                parts.append(Items(partition, least=0, around="PARTITION BY {}"))
            if order:
                parts.append(Items([Items([o, Raw(self.order_item("").text.strip())], " ", 2) for o in order], around="ORDER BY {}"))
            if frame:
                parts.append(Raw(frame))
            return Items(parts, " ", 0, "({})")
        rows = max(context.rows, 1)
        frame = ""
        offset = lambda: rng.choice(["UNBOUNDED PRECEDING", "1 PRECEDING", "3 PRECEDING", "CURRENT ROW"])
        end = lambda: rng.choice(["UNBOUNDED FOLLOWING", "1 FOLLOWING", "2 FOLLOWING", "CURRENT ROW"])
        if total and self.chance(0.4):
            frame = f"ROWS BETWEEN {offset()} AND {end()}"
            if self.chance(0.2):
                frame = f"ROWS BETWEEN {rng.choice(['5 PRECEDING AND 2 PRECEDING', '1 FOLLOWING AND 3 FOLLOWING'])}"
            if self.chance(0.15) and known.allowed("frame-exclude"):
                frame += rng.choice([" EXCLUDE CURRENT ROW", " EXCLUDE TIES", " EXCLUDE GROUP"])
            used = order
        else:
            used = peers
            if used and self.chance(0.4):
                frame = rng.choice(["RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                                    f"GROUPS BETWEEN {offset()} AND {end()}", "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"])
        def made(type, call, *args, order=used, frame=frame, **more):
            return E(type, call + " OVER {}", *args, over(order, frame), **more)
        if type == "int":
            kind = rng.choice(["rank", "dense_rank", "row_number", "ntile", "sum", "count", "min", "lag", "first"])
            if kind in ("rank", "dense_rank") and peers:
                return made("int8", f"{kind}()", order=peers, frame="", mag=rows)
            if kind in ("row_number", "ntile") and total:
                call = "row_number()" if kind == "row_number" else f"ntile({rng.randint(1, 5)})"
                return made("int8" if kind == "row_number" else "int4", call, order=order, frame="", mag=rows)
            if kind == "count":
                return made("int8", "count({})", self.expr(self.type(inner), inner, 0), mag=rows) if self.chance(0.5) else made("int8", "count(*)", mag=rows)
            arg = self.expr("int", inner, 1)
            if kind == "sum" and arg.type != "int8" and arg.mag * rows < LIMITS["int8"]:
                return made("int8", "sum({})", arg, mag=arg.mag * rows)
            return self.positional(arg, made, order, total, inner)
        if type in ("num", "f8"):
            if type == "f8" and self.chance(0.3) and peers:
                return made("f8", rng.choice(["percent_rank()", "cume_dist()"]), order=peers, frame="", fuzzy=True) if context.shown else None
            arg = self.expr(type, inner, 1)
            if arg.fuzzy:
                return None
            if arg.mag is not None and (arg.mag * rows < 1e12 if type == "f8" else self.digits(arg.mag * rows) + arg.scale < 36) and self.chance(0.5):
                return made(arg.type, "sum({})", arg, mag=arg.mag * rows, scale=arg.scale)
            return self.positional(arg, made, order, total, inner)
        arg = self.expr(type, inner, 1)
        if type == "bool":
            return made("bool", f"{rng.choice(['bool_and', 'bool_or'])}({{}})", arg)
        return self.positional(arg, made, order, total, inner)

    def positional(self, arg, made, order, total, inner):
        """min and max of any type, and the functions that take a value of another row."""
        rng = self.rng
        if arg.type == "text" and not arg.args and not self.columns_in(arg):
            arg = E("text", "CAST({} AS text)", arg, ascii=arg.ascii)
        facts = dict(mag=arg.mag, scale=arg.scale, ascii=arg.ascii, fuzzy=arg.fuzzy)
        if total and self.chance(0.6):
            kind = rng.choice(["lag", "lead", "first_value", "last_value", "nth_value"])
            if kind in ("lag", "lead"):
                call = rng.choice([f"{kind}({{}})", f"{kind}({{}}, {rng.randint(0, 3)})"])
                return made(arg.type, call, arg, order=order, frame="", **facts)
            call = f"{kind}({{}})" if kind != "nth_value" else f"nth_value({{}}, {rng.randint(1, 3)})"
            return made(arg.type, call, arg, order=order, **facts)
        if arg.type == "bool":
            return made("bool", "bool_or({})", arg)
        return made(arg.type, f"{rng.choice(['min', 'max'])}({{}})", arg, **facts)

    # Expressions

    def digits(self, mag):
        return math.ceil(math.log10(max(mag, 1) + 1))

    def type(self, context):
        """A family of types, mostly one that there are columns of."""
        if context.keys and self.chance(0.5):
            return family(self.rng.choice(context.keys).type)
        columns = [c for s in context.scope.sources for c in s.columns if c.name and not c.fuzzy]
        return family(self.rng.choice(columns).type) if columns and self.chance(0.85) else self.rng.choice(TYPES)

    def column(self, type, context, tame=False):
        """A column of the nearest scopes, or None."""
        scope, out = context.scope, []
        level = 0
        while scope is not None:
            for s in scope.sources:
                for c in s.columns:
                    if c.name is not None and family(c.type) == type and not (c.fuzzy and not context.shown) and not (tame and c.mag is None):
                        out.append((scope, s, c))
            for name, c in scope.merged.items():
                if family(c.type) == type and level == 0:
                    out += [(scope, None, c)] * 3
            if not context.outer or (out and not self.chance(0.3)):
                break
            if level == 0 and scope.parent is not None and self.chance(0.5):
                pass
            scope, level = scope.parent, level + 1
            if scope is not None and self.chance(0.4) and any(family(c.type) == type for s in scope.sources for c in s.columns):
                out = []
        if not out:
            return None
        scope, s, c = self.rng.choice(out)
        if s is None:
            e = E(c.type, c.name, mag=c.mag, scale=c.scale, fuzzy=c.fuzzy, ascii=c.ascii)
        else:
            e = self.ref(scope, s, c, qualify=level > 0 or scope is not context.scope)
        e.is_column = True
        e.sample = c.sample
        e.origin = c
        return e

    def literal(self, type, like=None):
        """A constant; with a column, often one that is in it."""
        rng = self.rng
        if like is not None and getattr(like, "sample", None) and self.chance(0.75):
            value = rng.choice(like.sample)
            text = literal(value, like.origin)
            mag = float(abs(value)) if like.type in NUMBERS and value == value else None
            if like.type == "f8" and not (mag is not None and mag < 1e6 and value * 4 == int(value * 4)):
                mag = None
            return E(like.type, text, mag=mag, scale=like.scale, ascii=like.ascii)
        if type in ("int", "int4", "int8", "int2"):
            n = rng.choice([0, 1, 2, 3, 5, 10, 100, -1, -7])
            return E("int4", f"({n})" if n < 0 else str(n), mag=max(abs(n), 1))
        if type == "num":
            n = rng.choice(["0.00", "1.50", "-2.25", "10.00", "0.01", "99.99"])
            if self.chance(0.5):
                return E("num", f"({n})", mag=100, scale=2)
            return E("num", f"CAST('{n}' AS numeric(6,2))", mag=100, scale=2)
        if type == "f8":
            return E("f8", rng.choice(["0e0", "1.5e0", "(-2.25e0)", "1e2", "5e-1"]), mag=100)
        if type == "text":
            return E("text", rng.choice(["''", "'a'", "'ab'", "'Zebra'", "'k3'", "'10'", "'x y'", "' '"]))
        if type == "bool":
            return E("bool", rng.choice(["TRUE", "FALSE"]))
        if type == "date":
            return E("date", rng.choice(["DATE '2020-01-01'", "DATE '2020-02-29'", "DATE '2021-06-15'"]), mag=1)
        if type == "ts":
            return E("ts", rng.choice(["TIMESTAMP '2020-01-01 00:00:00'", "TIMESTAMP '2021-03-04 05:06:07.5'"]), mag=1)
        raise AssertionError(type)

    def null(self, type):
        concrete = {"int": "int4"}.get(type, type)
        name = "numeric(6,2)" if concrete == "num" else NAMES[concrete]
        return E(concrete, f"CAST(NULL AS {name})", mag=1 if concrete != "bool" else None, scale=2 if concrete == "num" else 0)

    def leaf(self, type, context, tame=False):
        if context.keys is not None:
            fitting = [k for k in context.keys if family(k.type) == type and not (tame and k.mag is None)]
            if fitting and self.chance(0.6):
                return self.rng.choice(fitting).copy()
            if context.aggregates and self.chance(0.8):
                e = self.aggregate(type, context)
                if e is not None and (context.shown or not e.fuzzy) and not (tame and e.mag is None):
                    return e
            return self.literal(type)
        if self.chance(0.88):
            e = self.column(type, context, tame)
            if e is not None:
                return e
        return self.null(type) if self.chance(0.1) else self.literal(type)

    def expr(self, type, context, depth):
        """An expression of a family of types."""
        rng = self.rng
        type = family(type)
        shown = context.shown
        if depth <= 0 or self.chance(0.35):
            return self.leaf(type, context)
        context = replace(context, shown=False) if shown and self.chance(0.7) else context
        inner = replace(context, shown=False)
        if context.subqueries > 0 and self.chance(0.08):
            e = self.scalar_subquery(type, inner)
            if e is not None:
                return e
        if self.chance(0.3):
            return self.general(type, inner, depth)
        e = getattr(self, f"{type}_expr")(inner, depth)
        return e if e is not None else self.leaf(type, context)

    def facts(self, *args):
        """What is known of a value that is one of these."""
        types = [a.type for a in args]
        type = types[0]
        for t in types:
            type = self.wider(type, t)
        mag = None
        if all(a.mag is not None for a in args):
            mag = max(a.mag for a in args)
        return dict(mag=mag, scale=max(a.scale for a in args), fuzzy=any(a.fuzzy for a in args), ascii=all(a.ascii for a in args)), type

    def general(self, type, context, depth):
        """CASE, COALESCE and their like, of any type."""
        rng = self.rng
        a, b = self.expr(type, context, depth - 1), self.expr(type, context, depth - 1)
        facts, result = self.facts(a, b)
        kind = rng.choice(["case", "case", "simple", "coalesce", "coalesce", "nullif", "greatest"])
        if kind == "case":
            condition = self.predicate(context, depth - 1)
            if self.chance(0.3):
                facts, result = self.facts(a)
                return E(result, "CASE WHEN {} THEN {} END", condition, a, **facts)
            return E(result, "CASE WHEN {} THEN {} ELSE {} END", condition, a, b, **facts)
        if kind == "simple":
            t = rng.choice(["int", "text", "date", "bool"])
            x = self.leaf(t, context)
            return E(result, "CASE {} WHEN {} THEN {} ELSE {} END", x, self.literal(t, x), a, b, **facts)
        if kind == "coalesce":
            return E(result, "COALESCE({}, {})", a, b, **facts)
        if kind == "nullif":
            if self.wider(a.type, b.type) == a.type:
                facts, _ = self.facts(a)
                return E(a.type, "NULLIF({}, {})", a, b, **facts)
            return a
        if type == "bool":
            return a
        return E(result, f"{rng.choice(['GREATEST', 'LEAST'])}({{}}, {{}})", a, b, **facts)

    def int_expr(self, context, depth):
        rng = self.rng
        kind = rng.choice(["+", "-", "*", "/", "%", "neg", "abs", "length", "extract", "days", "bool", "cast", "bits", "position", "floor", "sign"])
        if kind in "+-*/%":
            a, b = self.expr("int", context, depth - 1), self.expr("int", context, depth - 1)
            type = self.wider(a.type, b.type)
            if kind in "/%":
                if self.overflow and self.chance(0.2):
                    return E(type, f"({{}} {kind} {{}})", a, b, mag=a.mag)
                if a.mag >= LIMITS[a.type] and not self.overflow:
                    return a
                return E(type, f"({{}} {kind} NULLIF({{}}, 0))", a, b, mag=a.mag if kind == "/" else min(a.mag, b.mag))
            mag = a.mag * b.mag if kind == "*" else a.mag + b.mag
            if mag >= LIMITS[type]:
                if not self.overflow:
                    if mag >= LIMITS["int8"] / 2:
                        return a
                    a, type = E("int8", "CAST({} AS bigint)", a, mag=a.mag), "int8"
            return E(type, f"({{}} {kind} {{}})", a, b, mag=min(mag, LIMITS[type]))
        if kind in ("neg", "abs", "sign"):
            a = self.expr("int", context, depth - 1)
            if a.mag >= LIMITS[a.type] and not self.overflow:
                return a
            if kind == "sign":
                return E("int4", "CAST(sign({}) AS int)", a, mag=1)
            return E(a.type, "(- {})" if kind == "neg" else "abs({})", a, mag=a.mag)
        if kind == "length":
            return E("int4", "length({})", self.expr("text", context, depth - 1), mag=10000)
        if kind == "position":
            a = self.expr("text", context, depth - 1)
            return E("int4", rng.choice(["position({1} IN {0})", "strpos({0}, {1})"]), a, self.literal("text", a), mag=10000)
        if kind == "extract":
            if self.chance(0.5):
                a, f = self.expr("date", context, depth - 1), rng.choice(["year", "month", "day", "quarter", "dow", "isodow", "doy", "week"])
            else:
                a, f = self.expr("ts", context, depth - 1), rng.choice(["year", "month", "day", "hour", "minute", "doy", "quarter"])
            return E("int4", f"CAST(EXTRACT({f} FROM {{}}) AS int)", a, mag=10000)
        if kind == "days":
            a, b = self.expr("date", context, depth - 1), self.expr("date", context, depth - 1)
            return E("int4", "({} - {})", a, b, mag=4_000_000)
        if kind == "bool":
            return E("int4", "CAST({} AS int)", self.predicate(context, depth - 1), mag=1)
        if kind == "cast":
            a = self.expr("int", context, depth - 1)
            type = rng.choice([t for t in INTEGERS if a.mag < LIMITS[t] or self.overflow] or ["int8"])
            return E(type, f"CAST({{}} AS {NAMES[type]})", a, mag=a.mag)
        if kind == "bits":
            a, b = self.expr("int", context, depth - 1), self.expr("int", context, depth - 1)
            type = self.wider(a.type, b.type)
            return E(type, f"({{}} {rng.choice('&|')} {{}})", a, b, mag=min(2.0 ** math.ceil(math.log2(max(a.mag, b.mag, 1)) + 1), LIMITS[type]))
        a = self.expr(rng.choice(["num", "f8"]), context, depth - 1)
        if a.mag is None or a.mag > 1e9 or a.fuzzy:
            return None
        whole = rng.choice(["floor({})", "ceil({})", "{}"])
        return E("int4", f"CAST({whole} AS int)", a, mag=a.mag + 1)

    def num_expr(self, context, depth):
        rng = self.rng
        kind = rng.choice(["+", "-", "*", "neg", "abs", "round", "floor", "cast", "mixed", "%", "/"])
        a = self.expr("num", context, depth - 1)
        if kind in "+-*%" or kind == "mixed":
            b = self.expr("int" if kind == "mixed" else "num", context, depth - 1)
            if kind == "%":
                return E("num", "({} % NULLIF({}, 0))", a, b, mag=a.mag, scale=max(a.scale, b.scale)) if self.digits(a.mag) < 15 > self.digits(b.mag) else a
            op = rng.choice("+-*") if kind == "mixed" else kind
            mag = a.mag * b.mag if op == "*" else a.mag + b.mag
            scale = a.scale + b.scale if op == "*" else max(a.scale, b.scale)
            if self.digits(mag) + scale > 30:
                return a
            return E("num", f"({{}} {op} {{}})", a, b, mag=max(mag, 1), scale=scale)
        if kind == "/":
            b = self.expr("num", context, depth - 1)
            return E("num", "({} / NULLIF({}, 0))", a, b, mag=a.mag * 10**b.scale, scale=16, fuzzy=True) if context.shown and a.mag < 1e9 else a
        if kind == "neg":
            return E("num", "(- {})", a, mag=a.mag, scale=a.scale)
        if kind == "abs":
            return E("num", "abs({})", a, mag=a.mag, scale=a.scale)
        if kind == "round":
            n = rng.randint(0, 3)
            return E("num", f"{rng.choice(['round', 'trunc'])}({{}}, {n})", a, mag=a.mag + 1, scale=max(n, 0)) if a.mag < 1e15 else a
        if kind == "floor":
            return E("num", f"{rng.choice(['floor', 'ceil'])}({{}})", a, mag=a.mag + 1) if a.mag < 1e15 else a
        if self.overflow:
            return E("num", "CAST({} AS numeric(6,1))", a, mag=1e5, scale=1)
        b = self.expr("int", context, depth - 1)
        return E("num", "CAST({} AS numeric(24,2))", b, mag=max(b.mag, 1), scale=2)

    def f8_expr(self, context, depth):
        rng = self.rng
        a = self.leaf("f8", context, tame=True)
        if a.mag is None or a.fuzzy:
            return None
        kind = rng.choice(["+", "-", "*", "neg", "abs", "floor", "cast", "/", "sqrt"])
        if kind in "+-*/":
            b = self.expr(rng.choice(["f8", "f8", "int"]), context, depth - 1)
            if b.mag is None or b.fuzzy:
                return a
            if kind == "/":
                return E("f8", "({} / NULLIF({}, 0))", a, b, fuzzy=True) if context.shown else a
            mag = a.mag * b.mag if kind == "*" else a.mag + b.mag
            return E("f8", f"({{}} {kind} {{}})", a, b, mag=max(mag, 1)) if mag < 1e9 else a
        if kind == "neg":
            return E("f8", "(0e0 - {})", a, mag=a.mag)
        if kind == "cast":
            b = self.expr("int", context, depth - 1)
            return E("f8", "CAST({} AS double precision)", b, mag=b.mag) if b.mag < 1e9 else a
        if kind == "sqrt":
            return E("f8", "sqrt(abs({}))", a, fuzzy=True) if context.shown else a
        if kind == "floor":
            return E("f8", "(floor({}) + 0e0)", a, mag=a.mag + 1)
        return E("f8", "abs({})", a, mag=a.mag)

    def text_expr(self, context, depth):
        rng = self.rng
        kind = rng.choice(["||", "||", "upper", "substr", "trim", "replace", "left", "pad", "reverse", "concat", "cast", "split", "repeat", "md5"])
        if kind == "cast":
            a = self.expr(rng.choice(["int", "date", "bool"]), context, depth - 1)
            return E("text", "CAST({} AS text)", a)
        if self.chance(0.05):
            a = self.expr("text", context, depth - 1)
            return E("text", f"CAST({{}} AS varchar({rng.randint(1, 5)}))", a, ascii=a.ascii)
        a = self.expr("text", context, depth - 1)
        same = dict(ascii=a.ascii)
        if kind == "||":
            b = self.expr("text", context, depth - 1)
            return E("text", "({} || {})", a, b, ascii=a.ascii and b.ascii)
        if kind == "concat":
            b = self.expr(rng.choice(["text", "int"]), context, depth - 1)
            return E("text", "concat({}, {})", a, b, ascii=a.ascii and b.ascii)
        if kind == "upper":
            return E("text", f"{rng.choice(['upper', 'lower'])}({{}})", a, **same) if a.ascii else a
        if kind == "substr":
            n, m = rng.randint(1, 4), rng.randint(0, 5)
            return E("text", rng.choice([f"substr({{}}, {n}, {m})", f"substr({{}}, {n})", f"substring({{}} FROM {n} FOR {m})"]), a, **same)
        if kind == "trim":
            return E("text", rng.choice(["trim({})", "ltrim({})", "rtrim({})", "trim(LEADING 'a' FROM {})", "rtrim({}, 'r ')", "trim({}, 'ab')"]), a, **same)
        if kind == "replace":
            return E("text", rng.choice(["replace({}, 'a', 'xy')", "replace({}, 'ab', '')", "translate({}, 'ab', 'b')"]), a, **same)
        if kind == "left":
            return E("text", f"{rng.choice(['left', 'right'])}({{}}, {rng.randint(0, 5)})", a, **same)
        if kind == "pad":
            return E("text", f"{rng.choice(['lpad', 'rpad'])}({{}}, {rng.randint(0, 9)}, {rng.choice(['chr(42)', repr('ab'), repr(' ')])})", a, **same)
        if kind == "split":
            return E("text", f"split_part({{}}, {rng.choice([repr('a'), repr(' ')])}, {rng.randint(1, 3)})", a, **same)
        if kind == "repeat":
            return E("text", f"repeat({{}}, {rng.randint(0, 3)})", a, **same)
        if kind == "md5":
            return E("text", "md5({})", a) if self.chance(0.3) else a
        return E("text", "reverse({})", a, **same)

    def date_expr(self, context, depth):
        kind = self.rng.choice(["+", "+", "cast", "trunc"])
        if kind == "+":
            a = self.expr("date", context, depth - 1)
            b = self.expr("int", context, depth - 1)
            if not self.is_tame(a) or b.mag > 100_000:
                return a
            if b.type == "int8":
                b = E("int4", "CAST({} AS int)", b, mag=b.mag)
            op = self.rng.choice("+-")
            return E("date", {"postgresql": f"({{}} {op} {{}})", "duckdb": f"({{}} {op} CAST({{}} AS int))"}, a, b, mag=1 if b.mag < 2000 else None)
        a = self.expr("ts", context, depth - 1)
        if kind == "cast":
            return E("date", "CAST({} AS date)", a, mag=a.mag)
        return E("date", f"CAST(date_trunc('{self.rng.choice(['month', 'year', 'day', 'week', 'quarter'])}', {{}}) AS date)", a, mag=a.mag) if self.is_tame(a) else a

    def is_tame(self, e):
        return e.mag is not None

    def ts_expr(self, context, depth):
        rng = self.rng
        kind = rng.choice(["trunc", "cast", "+"])
        if kind == "cast":
            a = self.expr("date", context, depth - 1)
            return E("ts", "CAST({} AS timestamp)", a, mag=a.mag)
        a = self.expr("ts", context, depth - 1)
        if not self.is_tame(a):
            return a
        if self.chance(0.1):
            return E("ts", "(({} AT TIME ZONE 'UTC') AT TIME ZONE 'Europe/Berlin')", a, mag=1)
        if kind == "trunc":
            return E("ts", f"date_trunc('{rng.choice(['month', 'year', 'day', 'hour', 'minute', 'second', 'week'])}', {{}})", a, mag=1)
        return E("ts", f"({{}} {rng.choice('+-')} INTERVAL '{rng.choice(['1 day', '1 month', '3 hours', '90 minutes', '1 year 2 days', '10 seconds'])}')", a, mag=1)

    def bool_expr(self, context, depth):
        return self.predicate(context, depth)

    # Conditions

    def conjunction(self, context, depth):
        parts = [self.predicate(context, min(depth, 2)) for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3]))]
        return Items(parts, " AND ", 1, "{}")

    def predicate(self, context, depth):
        rng = self.rng
        context = replace(context, shown=False)
        if depth <= 0 or self.chance(0.45):
            return self.comparison(context, max(depth, 0))
        kind = rng.choice(["and", "or", "or", "not", "is", "in", "between", "like", "null", "distinct", "column", "row", "exists", "insub", "any", "in", "null"])
        if kind in ("and", "or"):
            return E("bool", "{}", Items([self.predicate(context, depth - 1) for _ in range(rng.choice([2, 2, 3]))], f" {kind.upper()} ", 1, "({})"))
        if kind == "not":
            return E("bool", "(NOT ({}))", self.predicate(context, depth - 1))
        if kind == "is":
            return E("bool", f"(({{}}) IS {rng.choice(['TRUE', 'NOT TRUE', 'FALSE', 'NOT FALSE', 'UNKNOWN', 'NOT UNKNOWN'])})", self.predicate(context, depth - 1))
        if kind in ("exists", "insub", "any") and context.subqueries > 0:
            e = self.subquery_predicate(kind, context)
            if e is not None:
                return e
        type = self.type(context)
        a = self.expr(type, context, depth - 1)
        if a.fuzzy:
            return E("bool", "({} IS NULL)", a)
        if kind == "null":
            return E("bool", f"({{}} IS {rng.choice(['', 'NOT '])}NULL)", a)
        if kind == "distinct":
            b = self.expr(type, context, depth - 1)
            return E("bool", f"({{}} IS {rng.choice(['', 'NOT '])}DISTINCT FROM {{}})", a, b)
        if kind == "in":
            items = [self.literal(type, a) if self.chance(0.85) else self.leaf(type, context) for _ in range(rng.choice([1, 2, 3, 3, 5, 12]))]
            if self.chance(0.1):
                items.append(E(a.type, "NULL"))
            return E("bool", f"({{}} {rng.choice(['', 'NOT '])}IN ({{}}))", a, Items(items))
        if kind == "between":
            b, c = self.literal(type, a), self.literal(type, a) if self.chance(0.7) else self.leaf(type, context)
            return E("bool", f"({{}} {rng.choice(['', '', 'NOT '])}BETWEEN {{}} AND {{}})", a, b, c)
        if kind == "like":
            a = self.expr("text", context, depth - 1)
            pattern = rng.choice(["'a%'", "'%b'", "'%a%'", "'_b%'", "'%'", "''", "'Z_bra'", "'%_%'", "'k1%'", "'A!%b' ESCAPE '!'", "'%e%t%'"])
            word = "LIKE" if not a.ascii or self.chance(0.8) else "ILIKE"
            return E("bool", f"({{}} {rng.choice(['', 'NOT '])}{word} {pattern})", a)
        if kind == "column":
            return self.leaf("bool", context)
        if kind == "row" and context.base is None:
            t2 = rng.choice(["int", "text", "date"])
            b = self.expr(t2, context, 0)
            if self.chance(0.5):
                rows = [E("bool", "({}, {})", self.literal(type, a), self.literal(t2, b)) for _ in range(rng.randint(1, 3))]
                return E("bool", f"(({{}}, {{}}) {rng.choice(['', 'NOT '])}IN ({{}}))", a, b, Items(rows))
            return E("bool", f"(({{}}, {{}}) {rng.choice(['=', '<>', '<', '>='])} ({{}}, {{}}))", a, b, self.literal(type, a), self.literal(t2, b))
        return self.comparison(context, depth)

    def comparison(self, context, depth):
        rng = self.rng
        type = self.type(context)
        a = self.expr(type, context, depth - 1)
        if a.fuzzy:
            return E("bool", "({} IS NOT NULL)", a)
        if type == "ts" and self.chance(0.2):
            b = self.expr("ts", context, depth - 1)
            if self.is_tame(a) and self.is_tame(b):
                span = rng.choice(["1 month", "30 days", "24 hours", "1 day", "400 days", "-3 hours"])
                return E("bool", f"(({{}} - {{}}) {rng.choice(COMPARISONS)} INTERVAL '{span}')", a, b)
        if self.chance(0.65):
            b = self.literal(type, a)
        elif type in ("int", "num") and self.chance(0.2):
            b = self.expr(rng.choice(["int", "num", "f8"]), context, depth - 1)
        elif type in ("date", "ts") and self.chance(0.15):
            b = self.expr(rng.choice(["date", "ts"]), context, depth - 1)
        else:
            b = self.expr(type, context, depth - 1)
        if b.fuzzy:
            b = self.literal(type, a)
        return E("bool", f"({{}} {rng.choice(COMPARISONS)} {{}})", a, b)

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
