"""What is not asked, because the answer is known to differ, and what is compared less strictly.

Every exception of the fuzzer is here, with its reason. There are two kinds: faults of ours that are known
and wait to be mended, which `--allow NAME,…` (or `--allow all`) asks all the same; and differences that stay.
"""

import re

# Faults of ours that are known. The grammar does not write them unless they are allowed.
FAULTS = {
    "frame-exclude": "EXCLUDE of a window's frame is a syntax error",
}

_allowed = set()


def allow(names):
    wanted = set(FAULTS) if "all" in names else set(names)
    if unknown := wanted - set(FAULTS):
        raise SystemExit(f"--allow knows {', '.join(FAULTS)} and all, not {', '.join(sorted(unknown))}")
    _allowed.update(wanted)


def allowed(name):
    assert name in FAULTS
    return name in _allowed


# Settings that make DuckDB mean what PostgreSQL means: `/` of whole numbers, and the order of NULLs.
DUCKDB_SETTINGS = [
    "SET integer_division = true",
    "SET default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "SET threads = 1",
    "SET scalar_subquery_error_on_multiple_rows = true",
]

# DuckDB is not believed where it differs from PostgreSQL: a query for which the two differ is compared with
# PostgreSQL's answer, and the report says that DuckDB has another. What is not written for this reason:
#   round(double)         PostgreSQL rounds half to even, DuckDB away from zero
#   date_trunc(date)      a timestamptz in PostgreSQL, a date in DuckDB
#   upper, lower          of letters beyond ASCII PostgreSQL's locale C leaves as they are
#   trim of other blanks  DuckDB also trims tabs
#   x / 0 and x % 0       an error in PostgreSQL, NULL in DuckDB: divisors go through NULLIF
#   LIKE with backslash   an escape in PostgreSQL, none in DuckDB: patterns have none, or say ESCAPE

# SQLSTATEs that ours may answer where the peers answer rows, by mode. Memory that is too little for a query
# is no fault of the 24 MiB mode as long as the error says so.
ACCEPTED_ERRORS = {"small": {"53200"}, "small-operators": {"53200"}}

# What ours refuses by decision, as docs/sql.md says, with words of its error.
REFUSED = [
    # Two aggregates of one query that take their rows in different orders.
    "Conflicting ordering requirements in aggregate functions",
    "aggregates over different orders, one of them DISTINCT",
    # Two empty sets that a query around them tells apart.
    "two totals in a correlated subquery",
]

# Constants as keys of grouping sets are NULL in the rows of the sets that lack them, as in DuckDB and as
# docs/sql.md says; PostgreSQL 15 keeps them. Where a query has such sets, DuckDB's rows are right as well.
SETS = re.compile(r"\b(GROUPING SETS|ROLLUP|CUBE)\b")

# Errors that depend on which rows a plan computes first. If PostgreSQL and ours differ in whether one of
# these comes, and DuckDB has ours, it is no finding.
DATA_ERRORS = {"22003", "22012", "22008", "2201F", "2201E", "22P02", "21000", "22007"}

# avg of whole numbers is a double in ours and a numeric in PostgreSQL; sums of doubles depend on the order of
# rows: numbers of which one is a double are equal within this relative difference.
RELATIVE = 1e-9

# Averages and quotients of numerics have as many digits as each engine gives them. Two numbers of which one has
# more digits after the point than the other, which has at least these, are equal if the shorter one's last is.
ROUNDED_DIGITS = 4
