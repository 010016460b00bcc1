"""GROUP BY with its aggregates, and windows.

Sums are of doubles that add up exactly in any order, texts are put together in an order, and a window that
numbers rows is ordered by a key of every table.
"""

from dataclasses import replace

import known
from schema import LIMITS
from tree import E, Items, Raw


class Groups:
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
