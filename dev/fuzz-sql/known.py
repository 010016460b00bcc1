"""What is not asked, because the answer is known to differ, and what is compared less strictly.

Every exception of the fuzzer is here, with its reason. There are two kinds: faults of ours that are known
and wait to be mended, which `--allow NAME,…` (or `--allow all`) asks all the same; and differences that stay.
"""

# Faults of ours that are known. The grammar does not write them unless they are allowed.
FAULTS = {
    "interval": "intervals are compared by their parts",
    "time-zone": "AT TIME ZONE of timestamps without a zone",
    "negative-zero": "−0.0 is less than 0.0 and another group",
    "timestamp-range": "a timestamp counts nanoseconds, so that it has no years before 1678 and after 2261",
    "sign": "there is no function sign",
    "trim-characters": "trim(text, characters) goes to the planner that cannot do most else",
    "row-order": "rows are compared by = and <> alone: (a, b) < (c, d) is refused",
    "frame-exclude": "EXCLUDE of a window's frame is a syntax error",
    "group-by-nothing": "GROUP BY () is refused, or gives no row over an empty table",
    "varchar": "varchar(n) holds texts of any length",
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

# Errors that depend on which rows a plan computes first. If PostgreSQL and ours differ in whether one of
# these comes, and DuckDB has ours, it is no finding.
DATA_ERRORS = {"22003", "22012", "22008", "2201F", "2201E", "22P02", "21000", "22007"}

# avg of whole numbers is a double in ours and a numeric in PostgreSQL; sums of doubles depend on the order of
# rows: numbers of which one is a double are equal within this relative difference.
RELATIVE = 1e-9

# Averages and quotients of numerics have as many digits as each engine gives them. Two numbers of which one has
# more digits after the point than the other, which has at least these, are equal if the shorter one's last is.
ROUNDED_DIGITS = 4
