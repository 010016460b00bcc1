"""What an answer of ours is worth beside those of the peers."""

import re

import compare
import known


def judge(ours, postgresql, duckdb, mode, ordered, strict=False, sql=""):
    """None, or the kind of a finding and what is wrong in one line.

    PostgreSQL is the judge. DuckDB is asked only where ours differs from it, by calling `duckdb`. What `sql`
    has may make DuckDB a second judge.
    """
    if ours.kind == "panic":
        return "panic", ours.message
    if ours.kind in ("hang", "crash"):
        return None if postgresql.kind == "hang" else (ours.kind, ours.message)
    if ours.kind == "error" and is_internal(ours):
        return "internal", ours.message
    if postgresql.kind in ("hang", "crash"):
        return None
    if postgresql.kind == "error":
        if ours.kind == "error" or postgresql.code == "0A000":
            return None
        if strict:
            return "accepted", f"PostgreSQL ends in {postgresql.code} {postgresql.message}"
        other = duckdb()
        if other.kind == "error" and not other.message.startswith(("Conversion", "Not impl", "Binder", "Catalog", "Parser")):
            return "accepted", f"PostgreSQL ends in {postgresql.code} {postgresql.message}; DuckDB in {other.message}"
        return None
    if ours.kind == "error":
        if ours.code in known.ACCEPTED_ERRORS.get(mode, ()):
            return None
        if any(words in ours.message for words in known.REFUSED):
            return None
        if ours.code in known.DATA_ERRORS and not strict and duckdb().kind == "error":
            return None
        return ("refused" if ours.code == "0A000" else "error"), f"{ours.code} {ours.message}"
    if ours.kind == "done":
        return None if ours.count == postgresql.count else ("count", f"{ours.count} rows changed, not {postgresql.count}")
    different = compare.difference(ours, postgresql, ordered)
    if different and known.SETS.search(sql):
        other = duckdb()
        if other.kind == "rows" and not compare.difference(ours, other, ordered):
            return None
    return ("rows", different) if different else None


def is_internal(answer):
    return answer.code in ("XX000", "XX001", "XX002") or "panic" in answer.message or "nternal error" in answer.message


def vote(ours, postgresql, duckdb, ordered):
    """What DuckDB says of a difference."""
    if duckdb.kind != "rows":
        return f"DuckDB cannot say: {duckdb.message}"
    if postgresql.kind == "rows" and not compare.difference(duckdb, postgresql, ordered):
        return "DuckDB agrees with PostgreSQL"
    if ours.kind == "rows" and not compare.difference(duckdb, ours, ordered):
        return "DuckDB agrees with ours"
    return "DuckDB has a third answer"


def signature(kind, text):
    """What findings that are probably one have in common."""
    if kind in ("rows", "count"):
        return kind
    text = re.sub(r'"[^"]*"|\'[^\']*\'|`[^`]*`', "…", text)
    text = re.sub(r"\b[a-z]\w*\.\w+|\b[a-z]\d+\b|-?\d+(\.\d+)?", "…", text)
    return f"{kind}: {text[:120]}"


def shape(sql):
    """A statement without its names and values: what groups reduced findings."""
    sql = re.sub(r"'[^']*'", "'…'", sql)
    sql = re.sub(r"\b([a-z]{1,2}\d+|[a-gk])\b", "x", sql)
    return re.sub(r"-?\b\d+(\.\d+)?(e\d+)?\b", "1", sql)
