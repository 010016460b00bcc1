"""Whether two answers are the same: multisets of rows, or lists where the order is total; values by their types."""

import collections
import decimal

import known

NUMBERS = ("exact", "double")
SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def difference(a, b, ordered=False):
    """None if two answers have the same rows, else what differs in a few words."""
    if len(a.categories) != len(b.categories):
        return f"{len(a.categories)} columns, not {len(b.categories)}"
    if len(a.rows) != len(b.rows):
        return f"{len(a.rows)} rows, not {len(b.rows)}"
    if a.rows == b.rows:
        return None
    # Most answers have the same texts, and what they mean need not be known.
    if not ordered and collections.Counter(a.rows) == collections.Counter(b.rows):
        return None
    kinds = [kind(x, y) for x, y in zip(a.categories, b.categories)]
    left = [[canonical(v, k) for v, k in zip(row, kinds)] for row in a.rows]
    right = [[canonical(v, k) for v, k in zip(row, kinds)] for row in b.rows]
    if not ordered:
        # Doubles come last in the key, so that their last digits do not part rows that belong together.
        order = sorted(range(len(kinds)), key=lambda i: kinds[i] == "double")
        key = lambda row: [rank(row[i]) for i in order]
        left.sort(key=key)
        right.sort(key=key)
    for x, y in zip(left, right):
        for p, q, k in zip(x, y, kinds):
            if not same(p, q, k):
                return f"a row ({', '.join(map(str, x))}), not ({', '.join(map(str, y))})"
    return None


def kind(a, b):
    if a in NUMBERS and b in NUMBERS:
        return "exact" if a == b == "exact" else "double"
    return a if a == b else "text"


def canonical(v, kind):
    if v is None:
        return None
    if kind in NUMBERS:
        if v in SPECIAL:
            return SPECIAL[v]
        return decimal.Decimal(v) if kind == "exact" else float(v)
    if kind == "bool":
        return v[0]
    return v


def rank(v):
    """A sort key for values of one column, NULL and NaN among them."""
    if v is None:
        return (3, 0)
    if v != v:
        return (2, 0)
    return (1, v)


def same(p, q, kind):
    if p is None or q is None or kind not in NUMBERS:
        return p == q
    if p == q or (p != p and q != q):
        return True
    if kind == "double":
        return abs(p - q) <= known.RELATIVE * max(abs(p), abs(q)) if abs(p) != float("inf") != abs(q) else False
    # Averages and quotients: whoever has fewer digits has rounded or cut there.
    if isinstance(p, float) or isinstance(q, float):
        return False
    digits = sorted((-p.as_tuple().exponent, -q.as_tuple().exponent))
    return digits[0] != digits[1] and digits[0] >= known.ROUNDED_DIGITS and abs(p - q) <= decimal.Decimal(1).scaleb(-digits[0])
