"""The tree of a generated statement: what the grammar builds, an engine is sent, and the reducer shrinks.

An expression is a template with holes for its arguments, so that a new function is one line of the
grammar and the reducer needs to know nothing about it. `sql(dialect)` writes a node for one of
"postgresql", "duckdb" and "thalweg"; a template may differ between them.
"""

import copy


class Node:
    """Anything with parts: `slots()` lists the places where another node stands."""

    def sql(self, dialect):
        raise NotImplementedError

    def slots(self):
        """Pairs of a node below this one and a function that puts another in its place."""
        for name, value in list(vars(self).items()):
            if isinstance(value, Node):
                yield value, lambda new, name=name: setattr(self, name, new)
            elif isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, Node):
                        yield item, lambda new, value=value, i=i: value.__setitem__(i, new)

    def walk(self):
        """All nodes from this one down."""
        yield self
        for child, _ in self.slots():
            yield from child.walk()

    def copy(self):
        return copy.deepcopy(self)


class E(Node):
    """An expression: a template, its arguments, its type, and what is known of its values.

    mag     no value of a number is further from zero than this
    scale   digits after the point of a numeric
    fuzzy   engines may differ in its last digits, so that nothing is decided by it
    """

    def __init__(self, type, template, *args, mag=None, scale=0, fuzzy=False, ascii=True):
        self.type, self.template, self.args = type, template, list(args)
        self.mag, self.scale, self.fuzzy, self.ascii = mag, scale, fuzzy, ascii

    def sql(self, dialect):
        template = self.template
        if isinstance(template, dict):
            template = template.get(dialect, template["postgresql"])
        if not self.args:
            return template
        return template.format(*(a.sql(dialect) for a in self.args))


class Items(Node):
    """A list of nodes between separators; the reducer may leave out any as long as `least` stay."""

    def __init__(self, items, separator=", ", least=1, around="{}"):
        self.items, self.separator, self.least, self.around = list(items), separator, least, around

    def sql(self, dialect):
        return self.around.format(self.separator.join(i.sql(dialect) for i in self.items))


class Raw(Node):
    def __init__(self, text):
        self.text = text

    def sql(self, dialect):
        return self.text


class Item(Node):
    """An expression of a select list with its title."""

    def __init__(self, expr, alias):
        self.expr, self.alias = expr, alias

    def sql(self, dialect):
        return f"{self.expr.sql(dialect)} AS {self.alias}" if self.alias else self.expr.sql(dialect)


class Relation(Node):
    """A table, a common table expression or a function of FROM, with its alias."""

    def __init__(self, name, alias):
        self.name, self.alias = name, alias

    def sql(self, dialect):
        return self.name if self.alias == self.name else f"{self.name} AS {self.alias}"


class Derived(Node):
    """A query or VALUES in FROM."""

    def __init__(self, query, alias, columns=None, lateral=False):
        self.query, self.alias, self.columns, self.lateral = query, alias, columns, lateral

    def sql(self, dialect):
        columns = f"({', '.join(self.columns)})" if self.columns else ""
        return f"{'LATERAL ' if self.lateral else ''}({self.query.sql(dialect)}) AS {self.alias}{columns}"


class Join(Node):
    """kind is INNER, LEFT, RIGHT, FULL, CROSS, or a comma; the condition is `on`, `using` or NATURAL."""

    def __init__(self, kind, left, right, on=None, using=None, natural=False):
        self.kind, self.left, self.right, self.on = kind, left, right, on
        self.using, self.natural = using, natural

    def sql(self, dialect):
        left, right = self.left.sql(dialect), self.right.sql(dialect)
        # A comma binds less than JOIN, whose ON would not see what is before it.
        if isinstance(self.left, Join) and self.left.kind == "," != self.kind:
            left = copy.copy(self.left)
            left.kind = "CROSS"
            left = left.sql(dialect)
        if isinstance(self.right, Join):
            right = f"({right})"
        if self.kind == ",":
            return f"{left}, {right}"
        natural = "NATURAL " if self.natural else ""
        text = f"{left} {natural}{self.kind} JOIN {right}"
        if self.using:
            return f"{text} USING ({', '.join(self.using)})"
        return f"{text} ON {self.on.sql(dialect)}" if self.on else text


class Select(Node):
    def __init__(self, items, source=None, where=None, group=None, having=None, distinct=None, windows=None):
        self.items, self.source, self.where, self.group = items, source, where, group
        self.having, self.distinct, self.windows = having, distinct, windows

    def sql(self, dialect):
        parts = ["SELECT"]
        if self.distinct:
            parts.append(self.distinct.sql(dialect))
        parts.append(self.items.sql(dialect))
        for word, part in [
            ("FROM", self.source), ("WHERE", self.where), ("GROUP BY", self.group),
            ("HAVING", self.having), ("WINDOW", self.windows),
        ]:
            if part is not None and not (isinstance(part, Items) and not part.items):
                parts.append(f"{word} {part.sql(dialect)}")
        return " ".join(parts)


class SetOp(Node):
    def __init__(self, op, left, right):
        self.op, self.left, self.right = op, left, right

    def sql(self, dialect):
        return f"({self.left.sql(dialect)}) {self.op} ({self.right.sql(dialect)})"


class Query(Node):
    """A select or set operation with what stands around it.

    total   ORDER BY decides all
    strict  an error of values comes in every engine or in none
    """

    strict = False

    def __init__(self, body, ctes=None, recursive=False, order=None, limit=None, offset=None, total=False):
        self.body, self.ctes, self.recursive = body, ctes, recursive
        self.order, self.limit, self.offset, self.total = order, limit, offset, total

    def sql(self, dialect):
        parts = []
        if self.ctes and self.ctes.items:
            parts.append(f"WITH {'RECURSIVE ' if self.recursive else ''}{self.ctes.sql(dialect)}")
        parts.append(self.body.sql(dialect))
        if self.order and self.order.items:
            parts.append(f"ORDER BY {self.order.sql(dialect)}")
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        if self.offset is not None:
            parts.append(f"OFFSET {self.offset}")
        return " ".join(parts)


class Cte(Node):
    def __init__(self, name, columns, query, hint=""):
        self.name, self.columns, self.query, self.hint = name, columns, query, hint

    def sql(self, dialect):
        columns = f"({', '.join(self.columns)})" if self.columns else ""
        return f"{self.name}{columns} AS {self.hint}({self.query.sql(dialect)})"
