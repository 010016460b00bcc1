"""Two oracles that need no peer: what one engine says in two ways must be the same.

TLP (ternary logic partitioning): the rows of a query are those for which a condition is true, those for which
it is not, and those for which it is NULL. NoREC: as many rows pass WHERE as have the condition true in the
select list, where no optimiser moves it.
"""

from scope import Context
from tree import E, Item, Items, Node, Query, Select, SetOp


class Pair(Node):
    """A select and a condition, from which an oracle makes two queries with the same rows."""

    def __init__(self, kind, items, source, where, condition):
        self.kind, self.items, self.source, self.where, self.condition = kind, items, source, where, condition

    def queries(self):
        if self.kind == "norec":
            filtered = self.select([Item(E("int8", "count(*)"), "c")], self.condition)
            counted = self.select([Item(E("int8", "count(CASE WHEN {} THEN 1 END)", self.condition), "c")])
            return filtered, counted
        parts = [self.select(self.items.items, E("bool", t, self.condition)) for t in ("({})", "(NOT ({}))", "(({}) IS NULL)")]
        union = Query(SetOp("UNION ALL", Query(SetOp("UNION ALL", parts[0], parts[1])), parts[2]))
        return self.select(self.items.items), union

    def select(self, items, condition=None):
        conditions = [c for c in (self.where, condition) if c is not None]
        return Query(Select(Items(items), self.source, where=Items(conditions, " AND ") if conditions else None))

    def sql(self, dialect):
        return ";\n".join(q.sql(dialect) for q in self.queries())


def pair(grammar):
    grammar.count, grammar.ctes = 0, []
    node, scope = grammar.from_clause(None, 1_500, 1)
    scope.qualified = True
    context = Context(scope, rows=scope.rows)
    types = [grammar.rng.choice(["int", "text", "date", "num", "bool"]) for _ in range(2)]
    items = Items([Item(grammar.expr(t, context, 1), f"c{i}") for i, t in enumerate(types)])
    where = grammar.predicate(context, 1) if grammar.chance(0.4) else None
    return Pair(grammar.rng.choice(["tlp", "norec"]), items, node, where, grammar.predicate(context, 2))
