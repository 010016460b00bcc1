"""Expressions and conditions of the grammar, by type.

Every expression knows how large its values can be, so that nothing overflows unless that is what is asked, and
whether engines may differ in its last digits, so that no condition, group or order depends on those.
"""

import math
from dataclasses import replace

from schema import INTEGERS, LIMITS, NAMES, NUMBERS, literal
from scope import COMPARISONS, TYPES, family
from tree import E, Items


class Expressions:
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
            # `5e-1` is a numeric in PostgreSQL.
            return E("f8", f"CAST('{rng.choice(['0', '1.5', '-2.25', '100', '0.5'])}' AS double precision)", mag=100)
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
        # What takes many values to one, of which an optimizer may think that it takes one.
        if type == "ts" and self.chance(0.15):
            return E("bool", f"(CAST({{}} AS date) {rng.choice(COMPARISONS)} {{}})", a, self.literal("date"))
        if type == "int" and self.chance(0.1):
            return E("bool", f"(({{}} / {rng.choice([2, 7, 10, 1000])}) {rng.choice(['=', '=', '>=', '<'])} {rng.randint(-2, 9)})", a)
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
