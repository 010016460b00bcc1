//! What no signature tells: what the functions that are ours are for, what they take if they look at their
//! arguments themselves, and the forms of SQL that are called like no function.

/// Registered under names that no statement calls: what the binder and optimizer rules make of something
/// else.
pub const INTERNAL: [&str; 8] = [
    "clock_of",
    "instant_of",
    "instant_plus",
    "instant_minus",
    "cut_varchar",
    "cut_char",
    "timestamp_difference",
    "interval_of_duration",
];

/// What is known of a function beside its own documentation. An empty text is none.
pub struct Written {
    pub name: &'static str,
    pub arguments: &'static [&'static str],
    pub description: &'static str,
    pub example: &'static str,
}

pub fn written(name: &str) -> Option<&'static Written> {
    WRITTEN.iter().find(|w| w.name == name)
}

const fn of(
    name: &'static str,
    arguments: &'static [&'static str],
    description: &'static str,
    example: &'static str,
) -> Written {
    Written { name, arguments, description, example }
}

static WRITTEN: [Written; 59] = [
    of(
        "age",
        &["timestamp, timestamp", "timestamptz, timestamptz", "timestamp"],
        "The span between two times in years, months and days; of one, to midnight today.",
        "SELECT age(timestamp '2024-03-15', timestamp '2023-01-01')",
    ),
    of(
        "array_remove",
        &["anyarray, anyelement"],
        "A list without the items that are equal to a value.",
        "SELECT array_remove([1, 2, 1], 1)",
    ),
    of("clock_timestamp", &[""], "When the statement began.", ""),
    of("coalesce", &["VARIADIC anyelement"], "The first argument that is not NULL.", ""),
    of("current_catalog", &[""], "The name of the database.", ""),
    of("current_database", &[""], "The name of the database.", ""),
    of("current_date", &[""], "The day on which the statement began.", "SELECT current_date"),
    of("current_role", &[""], "The role whose rights count now.", ""),
    of("current_schema", &[""], "The schema in which new tables are made.", ""),
    of("current_setting", &["text"], "What a setting is set to.", ""),
    of("current_time", &[""], "The time of day at which the statement began.", ""),
    of("current_timestamp", &[""], "When the statement began.", "SELECT current_timestamp"),
    of("current_user", &[""], "The role whose rights count now.", ""),
    of(
        "date_part",
        &["text, date", "text, timestamp", "text, timestamptz", "text, time", "text, interval"],
        "A part of a time or of a span, as extract gives it.",
        "SELECT date_part('year', date '2024-03-15')",
    ),
    of(
        "date_trunc",
        &["text, date", "text, timestamp", "text, timestamptz", "text, interval"],
        "A time cut to a part of it: the begin of its year, month, week, day, hour and so on.",
        "SELECT date_trunc('month', date '2024-03-15')",
    ),
    of(
        "div",
        &["bigint, bigint", "numeric, numeric", "double precision, double precision"],
        "A quotient without its fraction.",
        "SELECT div(9, 4)",
    ),
    of(
        "format",
        &["text", "text, VARIADIC \"any\""],
        "A text in which %s stands for an argument, %I for one as a name, %L for one as a literal.",
        "SELECT format('%s of %s', 2, 'b')",
    ),
    of(
        "generate_series",
        &[
            "bigint, bigint",
            "bigint, bigint, bigint",
            "timestamp, timestamp, interval",
            "date, date, interval",
        ],
        "The values from the first to the last, by steps: rows in FROM and in the select list.",
        "SELECT * FROM generate_series(1, 3)",
    ),
    of("greatest", &["VARIADIC anyelement"], "The greatest argument; NULLs do not count.", ""),
    of(
        "justify_days",
        &["interval"],
        "A span whose 30 days are months.",
        "SELECT justify_days(interval '35 days')",
    ),
    of(
        "justify_hours",
        &["interval"],
        "A span whose 24 hours are days.",
        "SELECT justify_hours(interval '27 hours')",
    ),
    of(
        "justify_interval",
        &["interval"],
        "A span whose 24 hours are days and whose 30 days are months.",
        "SELECT justify_interval(interval '1 month - 1 hour')",
    ),
    of("least", &["VARIADIC anyelement"], "The least argument; NULLs do not count.", ""),
    of(
        "lpad",
        &["text, bigint", "text, bigint, text"],
        "A text filled up on its left to a length, with blanks or another text; cut if it is longer.",
        "SELECT lpad('7', 3, '0')",
    ),
    of(
        "map",
        &["anyarray, anyarray"],
        "A map of a list of keys and a list of their values.",
        "SELECT map(['a', 'b'], [1, 2])",
    ),
    of(
        "percentile_cont",
        &["numeric, double precision", "double precision, double precision"],
        "The value at a share of the rows, between two of them: percentile_cont(0.5) WITHIN GROUP (ORDER BY x).",
        "",
    ),
    of(
        "range",
        &[
            "bigint",
            "bigint, bigint",
            "bigint, bigint, bigint",
            "timestamp, timestamp, interval",
            "date, date, interval",
        ],
        "The values from the first to the one before the last, by steps: a list; rows in FROM.",
        "SELECT * FROM range(1, 3)",
    ),
    of(
        "read_arrow",
        &["files [, option = value, …]"],
        "The rows of Arrow IPC files, in the file or the stream format.",
        "",
    ),
    of(
        "read_csv",
        &["files [, option = value, …]"],
        "The rows of delimited files: a path, a glob, a folder, or a list of them. What no option says is found out.",
        "",
    ),
    of(
        "read_json",
        &["files [, option = value, …]"],
        "The rows of JSON files: objects in lines or one after the other, or an array of them.",
        "",
    ),
    of("read_ndjson", &["files [, option = value, …]"], "The rows of JSON lines.", ""),
    of("read_parquet", &["files [, option = value, …]"], "The rows of Parquet files.", ""),
    of("repeat", &["text, bigint"], "A text several times.", "SELECT repeat('ab', 2)"),
    of(
        "rpad",
        &["text, bigint", "text, bigint, text"],
        "A text filled up on its right to a length, with blanks or another text; cut if it is longer.",
        "SELECT rpad('7', 3, '.')",
    ),
    of(
        "to_date",
        &["text", "text, text"],
        "A text as a date, by a pattern of PostgreSQL.",
        "SELECT to_date('15.03.2024', 'DD.MM.YYYY')",
    ),
    of(
        "to_timestamp",
        &["double precision", "text, text"],
        "Seconds since 1970 as an instant, or a text by a pattern of PostgreSQL.",
        "SELECT to_timestamp('15.03.2024 08', 'DD.MM.YYYY HH24')",
    ),
    of(
        "like_escape",
        &["text, text"],
        "A pattern of LIKE whose escape character is the second text.",
        "",
    ),
    of("localtime", &[""], "The time of day at which the statement began.", ""),
    of(
        "localtimestamp",
        &[""],
        "When the statement began, by the clocks of the session's zone.",
        "",
    ),
    of(
        "make_interval",
        &["integer, integer, integer, integer, integer, integer, double precision"],
        "A span of years, months, weeks, days, hours, minutes and seconds; those at the end may be left out.",
        "SELECT make_interval(1, 2)",
    ),
    of(
        "make_time",
        &["integer, integer, double precision"],
        "A time of day.",
        "SELECT make_time(8, 15, 23.5)",
    ),
    of(
        "make_timestamp",
        &["integer, integer, integer, integer, integer, double precision"],
        "A timestamp of year, month, day, hour, minute and second.",
        "SELECT make_timestamp(2024, 3, 15, 8, 15, 23.5)",
    ),
    of(
        "mod",
        &["bigint, bigint", "numeric, numeric"],
        "The remainder, with the sign of the dividend.",
        "SELECT mod(9, 4)",
    ),
    of(
        "mode",
        &["anyelement"],
        "The value that is there most often: mode() WITHIN GROUP (ORDER BY x).",
        "",
    ),
    of(
        "percentile_disc",
        &["double precision, anyelement"],
        "The first value at or behind a share of the rows: percentile_disc(0.5) WITHIN GROUP (ORDER BY x).",
        "",
    ),
    of("pg_backend_pid", &[""], "The number of the session.", ""),
    of("pg_is_in_recovery", &[""], "False.", ""),
    of("pg_typeof", &["anyelement"], "The type of an expression.", "SELECT pg_typeof(1.5)"),
    of("pg_postmaster_start_time", &[""], "When the server began.", ""),
    of("session_user", &[""], "The role that opened the session.", ""),
    of(
        "similar_to_escape",
        &["text", "text, text"],
        "The regular expression of a pattern of SIMILAR TO.",
        "",
    ),
    of("statement_timestamp", &[""], "When the statement began.", ""),
    of(
        "timezone",
        &["text, timestamptz", "text, timestamp"],
        "What AT TIME ZONE gives: the clock of an instant in a zone, or the instant of a clock.",
        "SELECT timezone('Europe/Vienna', timestamp '2024-03-15 08:00')",
    ),
    of(
        "to_char",
        &[
            "timestamp, text",
            "timestamptz, text",
            "interval, text",
            "numeric, text",
            "bigint, text",
            "double precision, text",
        ],
        "A time or a number as a text, by a pattern of PostgreSQL.",
        "SELECT to_char(date '2024-03-15', 'YYYY-MM')",
    ),
    of("transaction_timestamp", &[""], "When the statement began.", ""),
    of(
        "unnest",
        &["anyarray"],
        "The items of a list as rows, in FROM and in the select list; in FROM of several lists side by side.",
        "SELECT unnest([1, 2])",
    ),
    of("version", &[""], "What the server is.", ""),
    of(
        "width_bucket",
        &["double precision, double precision, double precision, integer", "anyelement, anyarray"],
        "The number of the bucket that a value falls into.",
        "SELECT width_bucket(5.35, 0.024, 10.06, 5)",
    ),
    of("every", &["boolean"], "Whether all values are true.", ""),
];

/// Name, arguments, a call over the columns `a1`, `a2` and so on, what it gives, an example.
pub const FORMS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "extract",
        "year FROM timestamp",
        "extract(year FROM a1)",
        "A part of a time or of a span: year, month, day, hour, minute, second, epoch, dow and others.",
        "SELECT extract(year FROM date '2024-03-15')",
    ),
    (
        "position",
        "text IN text",
        "position(a1 IN a2)",
        "Where a text begins in another; 0 if it is not in it.",
        "SELECT position('b' IN 'abc')",
    ),
    (
        "substring",
        "text FROM bigint FOR bigint",
        "substring(a1 FROM a2 FOR a3)",
        "The characters from a place on, as many as are asked for.",
        "SELECT substring('abcdef' FROM 2 FOR 3)",
    ),
    (
        "overlay",
        "text PLACING text FROM bigint",
        "overlay(a1 PLACING a2 FROM a3)",
        "A text with another in the place of its characters from there on.",
        "SELECT overlay('abcdef' PLACING 'XY' FROM 3)",
    ),
    (
        "trim",
        "BOTH text FROM text",
        "trim(BOTH a1 FROM a2)",
        "A text without these characters at its begin, its end, or BOTH.",
        "SELECT trim(BOTH 'x' FROM 'xabcx')",
    ),
    (
        "cast",
        "anyelement AS text",
        "cast(a1 AS text)",
        "A value as another type; an error where it is none. Short: value::type.",
        "SELECT cast('12' AS int)",
    ),
    (
        "try_cast",
        "anyelement AS text",
        "try_cast(a1 AS text)",
        "A value as another type; NULL where it is none.",
        "SELECT try_cast('x' AS int)",
    ),
    ("exists", "(query)", "", "Whether a query has a row.", "SELECT exists (SELECT 1)"),
];
