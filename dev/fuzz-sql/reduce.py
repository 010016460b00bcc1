"""Makes a failing case small: first the statement, then the rows and columns of its tables.

A candidate is kept if the same kind of failure is still there. No step knows what is valid SQL: what is not,
PostgreSQL refuses, and then the candidate is no failing case.
"""

import copy
import time

from tree import Derived, E, Items, Join, Query, Select, SetOp

SIMPLE = {
    "int2": ["1"], "int4": ["1"], "int8": ["1"], "num": ["1"], "f8": ["CAST('1' AS double precision)"], "text": ["'a'"], "bool": ["TRUE", "FALSE"],
    "date": ["DATE '2020-01-01'"], "ts": ["TIMESTAMP '2020-01-01 00:00:00'"],
}


def size(node):
    return len(node.sql("postgresql"))


def candidates(root):
    """A holder of the statement, and lists of edits (a place, the node there, another) that make it smaller."""
    found, alike = [], {}

    def visit(node, put):
        for new in smaller(node):
            found.append([(put, node, new)])
        if isinstance(node, E) and node.args:
            alike.setdefault(node.sql("postgresql"), []).append((put, node))
        for child, put_child in node.slots():
            visit(child, put_child)

    holder = [root]
    visit(root, lambda new: holder.__setitem__(0, new))
    # What rows are grouped by stands in the select list as well, and is only replaced in both.
    for places in alike.values():
        if len(places) > 1:
            for new in smaller(places[0][1]):
                found.append([(put, node, new.copy()) for put, node in places])
    return holder, found


def smaller(node):
    """What may stand in a node's place, as functions that make it from a copy."""
    out = []
    if isinstance(node, E):
        inner = [a for a in node.args if isinstance(a, E)]
        inner += [i for a in node.args if isinstance(a, Items) for i in a.items if isinstance(i, E)]
        out += inner
        if node.args or node.template not in SIMPLE.get(node.type, []):
            out += [E(node.type, text) for text in SIMPLE.get(node.type, []) if len(text) < size(node)]
        out += sorted((n for n in node.walk() if isinstance(n, E) and not n.args and n is not node and n.type == node.type), key=size)[:2]
    elif isinstance(node, Items):
        n = len(node.items)
        if n > 3:
            out += [with_items(node, node.items[: n // 2]), with_items(node, node.items[n // 2 :])]
        if n > node.least:
            out += [with_items(node, node.items[:i] + node.items[i + 1 :]) for i in range(n)]
    elif isinstance(node, Select):
        for name in ("where", "having", "distinct", "windows", "group", "source"):
            if getattr(node, name) is not None:
                out.append(without(node, name))
    elif isinstance(node, SetOp):
        out += [node.left, node.right]
    elif isinstance(node, Query):
        for name in ("offset", "limit", "order", "ctes"):
            if getattr(node, name) is not None:
                smaller_query = without(node, name)
                if name == "order":
                    smaller_query.limit = smaller_query.offset = None
                    smaller_query.total = False
                out.append(smaller_query)
        if isinstance(node.body, SetOp):
            out += [q for q in (node.body.left, node.body.right) if isinstance(q, Query)]
    elif isinstance(node, Join):
        out += [node.left, node.right]
        if node.kind in ("FULL", "LEFT", "RIGHT") and not node.natural:
            kinds = {"FULL": ("LEFT", "RIGHT", "INNER"), "LEFT": ("INNER",), "RIGHT": ("INNER",)}[node.kind]
            for kind in kinds:
                other = copy.copy(node)
                other.kind = kind
                out.append(other)
        if isinstance(node.on, (E, Items)):
            other = copy.copy(node)
            other.on = E("bool", "TRUE")
            out.append(other)
    elif isinstance(node, Derived):
        query = node.query
        if isinstance(query, Query) and isinstance(query.body, Select) and query.body.source is not None and not isinstance(query.body.source, Join):
            source = copy.copy(query.body.source)
            source.alias = node.alias
            out.append(source)
    return out


def with_items(node, items):
    other = copy.copy(node)
    other.items = items
    return other


def without(node, name):
    other = copy.copy(node)
    setattr(other, name, None)
    return other


def reduce_statement(root, fails, seconds):
    """The smallest statement found that `fails` still holds of."""
    until = time.monotonic() + seconds
    best = root.copy()
    tried = set()
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        holder, found = candidates(best)
        base = size(best)
        # In the order of how much is saved, as a large step makes all later ones cheap.
        sized = []
        for edits in found:
            gain = sum(size(node) - size(new) for _, node, new in edits)
            if gain > 0 or all(isinstance(n, Join) for edit in edits for n in edit[1:]):
                sized.append((gain, len(sized), edits))
        sized.sort(key=lambda s: (-s[0], s[1]))
        for _, _, edits in sized:
            if time.monotonic() > until:
                break
            for put, _, new in edits:
                put(new)
            candidate = holder[0]
            text = candidate.sql("postgresql")
            if text not in tried and len(text) <= base:
                tried.add(text)
                if fails(candidate):
                    best = candidate.copy()
                    progress = True
                    break
            for put, node, _ in reversed(edits):
                put(node)
    return best


def reduce_script_statements(script, fails):
    """A script without the statements that the failure does not need."""
    at = 0
    while at < len(script.statements):
        other = copy.copy(script)
        other.statements = script.statements[:at] + script.statements[at + 1 :]
        if other.statements and fails(other):
            script = other
        else:
            at += 1
    return script


def reduce_rows(tables, fails, seconds):
    """Tables with as few rows and columns as `fails(tables)` allows."""
    until = time.monotonic() + seconds
    tables = [copy.copy(t) for t in tables]

    def attempt(i, rows=None, columns=None):
        old = tables[i]
        new = copy.copy(old)
        if rows is not None:
            new.rows = rows
        if columns is not None:
            places = [old.columns.index(c) for c in columns]
            new.columns = columns
            new.rows = [[row[p] for p in places] for row in new.rows]
        trial = tables[:i] + [new] + tables[i + 1 :]
        if fails(trial):
            tables[i] = new
            return True
        return False

    # Whole tables that the statement does not name.
    for t in list(tables):
        rest = [u for u in tables if u is not t]
        if rest and fails(rest):
            tables[:] = rest
    for plain in ("options", "parts"):
        for i, t in enumerate(tables):
            new = copy.copy(t)
            setattr(new, plain, "" if plain == "options" else 1)
            trial = tables[:i] + [new] + tables[i + 1 :]
            if getattr(t, plain) != getattr(new, plain) and fails(trial):
                tables[i] = new
    for i in sorted(range(len(tables)), key=lambda i: -len(tables[i].rows)):
        if tables[i].rows and attempt(i, rows=[]):
            continue
        step = max(1, len(tables[i].rows) // 2)
        while step >= 1 and time.monotonic() < until:
            at, kept = 0, False
            while at < len(tables[i].rows) and time.monotonic() < until:
                rows = tables[i].rows
                if len(rows) > 1 and attempt(i, rows=rows[:at] + rows[at + step :]):
                    kept = True
                else:
                    at += step
            if step == 1 and not kept:
                break
            step = step // 2 if not (step == 1 and kept and len(tables[i].rows) < 8) else 1
    for i in range(len(tables)):
        for c in list(tables[i].columns):
            if len(tables[i].columns) > 1 and time.monotonic() < until:
                attempt(i, columns=[o for o in tables[i].columns if o is not c])
    return tables
