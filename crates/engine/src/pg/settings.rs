//! PostgreSQL's settings that drivers and tools set and show: one list, and each session's values.
//!
//! Most change nothing here: they are kept, so that who sets one can show it. What does is said in
//! `command.rs`.

use std::collections::HashMap;

use thalweg_base::{Error, Result};
use thalweg_pgcatalog::{SERVER_VERSION, SERVER_VERSION_NUM};

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int(i64, i64),
    Real,
    /// Milliseconds, or a number with a unit.
    Time,
    Text,
    OneOf(&'static [&'static str]),
    /// Only shown.
    Fixed,
    /// May be set to the value that it has.
    Only,
}

struct Known {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
}

const fn known(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Known {
    Known { name, kind, default, description }
}

const ANY_INT: Kind = Kind::Int(i32::MIN as i64, i32::MAX as i64);
const MESSAGES: Kind = Kind::OneOf(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error", "info",
    "debug",
]);
const LEVELS: Kind = Kind::OneOf(&[
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
    "snapshot",
]);
/// A setting that is kept and changes nothing.
const KEPT: &str = "Is kept, and changes nothing.";

#[rustfmt::skip]
const SETTINGS: &[Known] = &[
    known("application_name", Kind::Text, "", "The name of the client's program, shown in pg_stat_activity."),
    known("backslash_quote", Kind::OneOf(&["safe_encoding", "on", "off"]), "safe_encoding", KEPT),
    known("block_size", Kind::Fixed, "8192", "The unit of pg_class.relpages."),
    known("bytea_output", Kind::OneOf(&["hex"]), "hex", "How bytea is written."),
    known("client_encoding", Kind::OneOf(&["utf8", "utf-8", "unicode"]), "UTF8", "The encoding of text."),
    known("client_min_messages", MESSAGES, "notice", "From which severity on notices are sent."),
    known("datestyle", Kind::Text, "ISO, MDY", "How dates are written: only ISO."),
    known("default_table_access_method", Kind::Only, "heap", "The access method of tables."),
    known("default_tablespace", Kind::Only, "", KEPT),
    known("default_transaction_deferrable", Kind::Bool, "off", KEPT),
    known("default_transaction_isolation", LEVELS, "repeatable read", "Transactions run on snapshots."),
    known("default_transaction_read_only", Kind::Bool, "off", "Whether transactions change nothing."),
    known("enable_hashjoin", Kind::Bool, "on", KEPT),
    known("enable_indexscan", Kind::Bool, "on", KEPT),
    known("enable_mergejoin", Kind::Bool, "on", KEPT),
    known("enable_nestloop", Kind::Bool, "on", KEPT),
    known("enable_seqscan", Kind::Bool, "on", KEPT),
    known("escape_string_warning", Kind::Bool, "on", KEPT),
    known("extra_float_digits", Kind::Int(-15, 3), "1", "Floats are always written exactly."),
    known("from_collapse_limit", ANY_INT, "8", KEPT),
    known("geqo", Kind::Bool, "on", KEPT),
    known("idle_in_transaction_session_timeout", Kind::Time, "0", KEPT),
    known("idle_session_timeout", Kind::Time, "0", KEPT),
    known("in_hot_standby", Kind::Fixed, "off", "Whether the server only follows another."),
    known("integer_datetimes", Kind::Fixed, "on", "Times are whole microseconds."),
    known("intervalstyle", Kind::OneOf(&["postgres"]), "postgres", "How intervals are written."),
    known("is_superuser", Kind::Fixed, "on", "Whether the session's role may do everything."),
    known("jit", Kind::Bool, "off", KEPT),
    known("join_collapse_limit", ANY_INT, "8", KEPT),
    known("lc_collate", Kind::Fixed, "C", "Text is ordered by its bytes."),
    known("lc_ctype", Kind::Fixed, "C", "The locale of characters."),
    known("lc_messages", Kind::Text, "C", KEPT),
    known("lc_monetary", Kind::Text, "C", KEPT),
    known("lc_numeric", Kind::Text, "C", KEPT),
    known("lc_time", Kind::Text, "C", KEPT),
    known("lock_timeout", Kind::Time, "0", "No statement waits for a lock."),
    known("log_min_messages", MESSAGES, "warning", KEPT),
    known("log_statement", Kind::OneOf(&["none", "ddl", "mod", "all"]), "none", KEPT),
    known("maintenance_work_mem", Kind::Text, "64MB", KEPT),
    known("max_connections", Kind::Fixed, "100", "Connections that the server takes."),
    known("max_identifier_length", Kind::Fixed, "63", "Bytes of a name that clients may count on."),
    known("max_index_keys", Kind::Fixed, "32", "Columns of an index; there are none."),
    known("max_parallel_workers_per_gather", ANY_INT, "2", KEPT),
    known("password_encryption", Kind::OneOf(&["scram-sha-256"]), "scram-sha-256", "How passwords are stored."),
    known("plan_cache_mode", Kind::OneOf(&["auto", "force_generic_plan", "force_custom_plan"]), "auto", KEPT),
    known("port", Kind::Fixed, "5432", "The port of the server."),
    known("quote_all_identifiers", Kind::Bool, "off", KEPT),
    known("row_security", Kind::Bool, "on", KEPT),
    known("search_path", Kind::Text, "\"$user\", public", "Where names without a schema are looked for: public."),
    known("server_encoding", Kind::Fixed, "UTF8", "The encoding of stored text."),
    known("server_version", Kind::Fixed, SERVER_VERSION, "The version of PostgreSQL whose catalog this is."),
    known("server_version_num", Kind::Fixed, SERVER_VERSION_NUM, "The same as a number."),
    known("session_authorization", Kind::Fixed, "thalweg", "The role of the session."),
    known("standard_conforming_strings", Kind::OneOf(&["on", "true", "1"]), "on", "A backslash in a string is one."),
    known("ssl", Kind::Fixed, "off", "Whether the server can encrypt."),
    known("statement_timeout", Kind::Time, "0", "Milliseconds after which a statement is stopped; 0: no limit."),
    known("synchronize_seqscans", Kind::Bool, "on", KEPT),
    known("synchronous_commit", Kind::OneOf(&["on", "off", "local", "remote_write", "remote_apply"]), "on", "Every commit is durable."),
    known("tcp_keepalives_idle", ANY_INT, "0", KEPT),
    known("tcp_keepalives_interval", ANY_INT, "0", KEPT),
    known("tcp_keepalives_count", ANY_INT, "0", KEPT),
    known("temp_buffers", Kind::Text, "8MB", KEPT),
    known("timezone", Kind::Text, "UTC", "The time zone of times with one."),
    known("transaction_deferrable", Kind::Only, "off", KEPT),
    known("transaction_isolation", LEVELS, "repeatable read", "Transactions run on snapshots."),
    known("transaction_read_only", Kind::Only, "off", "Whether the transaction changes nothing."),
    known("transaction_timeout", Kind::Time, "0", KEPT),
    known("vacuum_freeze_min_age", ANY_INT, "50000000", KEPT),
    known("wal_level", Kind::Fixed, "replica", KEPT),
    known("work_mem", Kind::Text, "4MB", KEPT),
    known("xmlbinary", Kind::Text, "base64", KEPT),
    known("xmloption", Kind::OneOf(&["content", "document"]), "content", KEPT),
    known("cursor_tuple_fraction", Kind::Real, "0.1", KEPT),
    known("random_page_cost", Kind::Real, "4", KEPT),
    known("seq_page_cost", Kind::Real, "1", KEPT),
];

/// Settings that a client is told at the start, and whenever they change; in the spelling that the
/// protocol has.
pub const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// Settings of a client's own, such as `app.user_id`, of one session.
const CUSTOM_MAX: usize = 1000;

/// The values of one session.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    values: HashMap<String, String>,
    /// Until the transaction ends.
    local: HashMap<String, String>,
}

impl Settings {
    /// `None`: there is no such setting.
    pub fn get(&self, name: &str) -> Option<String> {
        let name = name.to_ascii_lowercase();
        let set = self.local.get(&name).or_else(|| self.values.get(&name));
        set.cloned().or_else(|| find(&name).map(|known| known.default.into()))
    }

    /// Keeps a value as it is shown from now on.
    pub fn set(&mut self, name: &str, value: &str, local: bool) -> Result<String> {
        let name = name.to_ascii_lowercase();
        let shown = match find(&name) {
            Some(known) => known.check(value)?,
            // As in PostgreSQL: what has a point in its name is somebody's own.
            None if name.contains('.') => {
                if self.values.len() + self.local.len() >= CUSTOM_MAX {
                    return Err(Error::resources(format!(
                        "a session keeps at most {CUSTOM_MAX} settings"
                    )));
                }
                value.to_string()
            }
            None => return Err(unknown(&name)),
        };
        let kept = if local { &mut self.local } else { &mut self.values };
        kept.insert(name.clone(), shown.clone());
        if !local {
            self.local.remove(&name);
        }
        Ok(shown)
    }

    pub fn reset(&mut self, name: &str) -> Result<()> {
        let name = name.to_ascii_lowercase();
        self.local.remove(&name);
        if self.values.remove(&name).is_none() && find(&name).is_none() && !name.contains('.') {
            return Err(unknown(&name));
        }
        Ok(())
    }

    pub fn reset_all(&mut self) {
        *self = Settings::default();
    }

    /// Ends what holds for a transaction. True if there was anything.
    pub fn end_transaction(&mut self) -> bool {
        let any = !self.local.is_empty();
        self.local.clear();
        any
    }

    pub fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Name, value, default, description.
    pub fn all(&self) -> impl Iterator<Item = (String, String, String, String)> {
        SETTINGS.iter().map(|known| {
            let value = self.get(known.name).unwrap_or_default();
            (spelled(known.name), value, known.default.into(), known.description.into())
        })
    }
}

fn find(name: &str) -> Option<&'static Known> {
    SETTINGS.iter().find(|known| known.name == name)
}

pub fn is_known(name: &str) -> bool {
    find(&name.to_ascii_lowercase()).is_some()
}

fn unknown(name: &str) -> Error {
    Error::user(format!("unrecognized configuration parameter \"{name}\""))
        .code("42704")
        .hint("SHOW ALL lists the settings")
}

/// As PostgreSQL spells it.
pub fn spelled(name: &str) -> String {
    let reported = REPORTED.iter().find(|reported| reported.eq_ignore_ascii_case(name));
    reported.map_or(name.into(), |reported| reported.to_string())
}

impl Known {
    /// The value as it is shown.
    fn check(&self, value: &str) -> Result<String> {
        let value = value.trim();
        let name = self.name;
        let invalid = || {
            Error::user(format!("invalid value for parameter \"{name}\": \"{value}\""))
                .code("22023")
        };
        Ok(match self.kind {
            Kind::Fixed => {
                return Err(
                    Error::user(format!("parameter \"{name}\" cannot be changed")).code("55P02")
                );
            }
            Kind::Only if value.eq_ignore_ascii_case(self.default) => self.default.into(),
            Kind::Only => {
                return Err(Error::unsupported(format!(
                    "parameter \"{name}\" can only be \"{}\"",
                    self.default
                )));
            }
            Kind::Bool => match value.to_ascii_lowercase().as_str() {
                "on" | "true" | "yes" | "1" | "t" => "on".into(),
                "off" | "false" | "no" | "0" | "f" => "off".into(),
                _ => return Err(invalid()),
            },
            Kind::Int(least, most) => {
                let number = value.parse::<i64>().map_err(|_| invalid())?;
                match (least..=most).contains(&number) {
                    true => number.to_string(),
                    false => return Err(invalid()),
                }
            }
            Kind::Real => value.parse::<f64>().map_err(|_| invalid())?.to_string(),
            Kind::Time => milliseconds(value).ok_or_else(invalid)?.to_string(),
            Kind::OneOf(values) => {
                // asyncpg sends its encoding in quotes.
                let lower = value.trim_matches('\'').to_ascii_lowercase();
                if !values.contains(&lower.as_str()) {
                    return Err(invalid().hint(format!("it can be {}", values.join(", "))));
                }
                match name {
                    "client_encoding" => "UTF8".into(),
                    "standard_conforming_strings" => "on".into(),
                    _ => lower,
                }
            }
            Kind::Text if name == "datestyle" => date_style(value).ok_or_else(invalid)?,
            Kind::Text => value.into(),
        })
    }
}

/// Dates are written as ISO 8601 has them; the order of day and month is kept.
fn date_style(value: &str) -> Option<String> {
    let mut order = "MDY";
    for word in value.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        match word.to_ascii_uppercase().as_str() {
            "ISO" | "DEFAULT" => {}
            "MDY" | "US" | "NONEUROPEAN" => order = "MDY",
            "DMY" | "EURO" | "EUROPEAN" => order = "DMY",
            "YMD" => order = "YMD",
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

/// `1500`, `'2s'`, `'5 min'` in milliseconds.
pub fn milliseconds(value: &str) -> Option<u64> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let number: f64 = value[..end].parse().ok()?;
    let factor = match value[end..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1e3,
        "min" => 60e3,
        "h" => 3600e3,
        "d" => 86_400e3,
        _ => return None,
    };
    let ms = (number * factor).round();
    (ms <= i32::MAX.into()).then_some(ms as u64)
}

/// The schemas that a search path names, in order.
pub fn path(value: &str) -> Vec<String> {
    let parts = value.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts
        .map(|part| match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => part.to_lowercase(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_kept() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("DateStyle", "German", false).unwrap_err().sqlstate(), "22023");
        assert_eq!(settings.set("datestyle", "iso, dmy", false).unwrap(), "ISO, DMY");
        assert_eq!(settings.set("client_encoding", "utf-8", false).unwrap(), "UTF8");
        assert!(settings.set("client_encoding", "LATIN1", false).is_err());
        assert_eq!(settings.set("server_version", "9", false).unwrap_err().sqlstate(), "55P02");
        assert_eq!(settings.set("nothing", "1", false).unwrap_err().sqlstate(), "42704");
        assert_eq!(settings.set("app.user", "7", false).unwrap(), "7");
        assert_eq!(settings.set("statement_timeout", "2s", true).unwrap(), "2000");
        assert_eq!(settings.get("statement_timeout").unwrap(), "2000");
        assert!(settings.end_transaction());
        assert_eq!(settings.get("statement_timeout").unwrap(), "0");
        settings.reset_all();
        assert_eq!(settings.get("app.user"), None);
    }

    #[test]
    fn paths_have_names() {
        assert_eq!(path("\"$user\", Public"), ["$user", "public"]);
        assert_eq!(path(""), Vec::<String>::new());
        assert_eq!(milliseconds("1.5 min"), Some(90_000));
        assert_eq!(milliseconds("soon"), None);
    }
}
