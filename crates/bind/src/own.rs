//! Functions that are the binder's own, by their names.

/// Functions that the binder makes of others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Modulo,
    TimeZone,
    /// When the statement began, whichever moment of it is asked for.
    Now,
    TypeOf,
    /// `make_timestamptz(year, month, day, hour, minute, second, zone)`
    Instant,
}

pub(crate) const OWN: [(&str, Own); 7] = [
    ("mod", Own::Modulo),
    ("make_timestamptz", Own::Instant),
    ("pg_typeof", Own::TypeOf),
    ("timezone", Own::TimeZone),
    ("transaction_timestamp", Own::Now),
    ("statement_timestamp", Own::Now),
    ("clock_timestamp", Own::Now),
];

/// Functions that are called without parentheses.
pub(crate) const MOMENTS: [&str; 5] =
    ["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"];
