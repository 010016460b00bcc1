//! Who did what, one line of JSON per event, through `tracing` under the target `thalweg::audit`.
//!
//! ```json
//! {"event":"statement","user":"ann","role":"ann","session":7,"query":12,"class":"ddl",
//!  "statement":"DROP TABLE t","outcome":"denied","code":"42501","reason":"must be owner of table \"t\""}
//! ```
//! Statements come without their secrets. What was refused is written at every level but `none`.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use thalweg_base::{Error, text::quoted};

use super::redact::redact;

pub const TARGET: &str = "thalweg::audit";

/// Which statements are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Audit {
    /// Nothing at all, logins included: of a process with its own database.
    #[default]
    None,
    /// Those that change what there is, or who may do what.
    Ddl,
    /// And those that change rows, or read and write files.
    Write,
    All,
}

impl Audit {
    pub(crate) fn of(number: u8) -> Audit {
        [Audit::None, Audit::Ddl, Audit::Write].get(number as usize).copied().unwrap_or(Audit::All)
    }
}

impl FromStr for Audit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Audit, Error> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "none" => Audit::None,
            "ddl" => Audit::Ddl,
            "write" => Audit::Write,
            "all" => Audit::All,
            _ => {
                return Err(Error::user(format!("the audit log has no level {}", quoted(text)))
                    .hint("it is none, ddl, write or all"));
            }
        })
    }
}

/// What kind of statement it is, by its first words: also if it cannot be parsed.
pub(crate) fn class(sql: &str) -> (Audit, &'static str) {
    let bare = without_comments(sql);
    let mut words =
        bare.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    let first = words.next().unwrap_or("").to_ascii_uppercase();
    match first.as_str() {
        "CREATE" | "DROP" | "ALTER" | "COMMENT" => (Audit::Ddl, "ddl"),
        "GRANT" | "REVOKE" | "REASSIGN" => (Audit::Ddl, "dcl"),
        "SET" | "RESET" if words.any(|w| w.eq_ignore_ascii_case("role")) => (Audit::Ddl, "dcl"),
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE" | "REPLACE" => (Audit::Write, "dml"),
        "WITH" if words.any(is_change) => (Audit::Write, "dml"),
        "COPY" | "LOAD" | "INGEST" => (Audit::Write, "copy"),
        "ATTACH" | "DETACH" => (Audit::Write, "attach"),
        "VACUUM" | "OPTIMIZE" | "KILL" | "EXECUTE" => (Audit::Write, "other"),
        "SELECT" | "VALUES" | "WITH" | "TABLE" | "FROM" => (Audit::All, "read"),
        _ => (Audit::All, "other"),
    }
}

fn is_change(word: &str) -> bool {
    ["insert", "update", "delete", "merge"].iter().any(|w| word.eq_ignore_ascii_case(w))
}

/// From the first word on.
fn without_comments(sql: &str) -> &str {
    let mut rest = sql.trim_start_matches(|c: char| c.is_whitespace() || c == '(' || c == ';');
    loop {
        let next = if rest.starts_with("--") {
            rest.find('\n').map(|at| &rest[at..])
        } else if rest.starts_with("/*") {
            rest.find("*/").map(|at| &rest[at + 2..])
        } else {
            return rest;
        };
        let Some(next) = next else { return "" };
        rest = next.trim_start_matches(|c: char| c.is_whitespace() || c == '(' || c == ';');
    }
}

/// One line.
pub struct Event(String);

impl Event {
    pub fn new(event: &str) -> Event {
        Event("{".into()).text("event", event)
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        escape(&mut self.0, key);
        self.0.push(':');
    }

    #[must_use]
    pub fn text(mut self, key: &str, value: &str) -> Event {
        self.key(key);
        escape(&mut self.0, value);
        self
    }

    #[must_use]
    pub fn number(mut self, key: &str, value: u64) -> Event {
        self.key(key);
        let _ = write!(self.0, "{value}");
        self
    }

    /// Without its secrets.
    #[must_use]
    pub fn statement(self, sql: &str) -> Event {
        self.text("statement", &redact(sql))
    }

    /// How it ended.
    #[must_use]
    pub fn outcome(self, error: Option<&Error>) -> Event {
        match error {
            None => self.text("outcome", "ok"),
            Some(e) => {
                let outcome = if e.sqlstate() == "42501" { "denied" } else { "failed" };
                self.text("outcome", outcome).text("code", e.sqlstate()).text("reason", e.message())
            }
        }
    }

    pub fn write(self) {
        tracing::info!(target: TARGET, "{self}");
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)?;
        f.write_str("}")
    }
}

/// As JSON: no text makes two lines of one.
fn escape(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if c.is_control() || ['\u{2028}', '\u{2029}'].contains(&c) => {
                let _ = write!(line, "\\u{:04x}", c as u32);
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_secrets() {
        let event = Event::new("statement")
            .number("query", 7)
            .statement("ALTER ROLE \"a\"\nPASSWORD 's3cret'")
            .outcome(Some(&Error::user("no\r\nentry").code("42501")));
        assert_eq!(
            event.to_string(),
            r#"{"event":"statement","query":7,"statement":"ALTER ROLE \"a\"\nPASSWORD '***'","outcome":"denied","code":"42501","reason":"no\r\nentry"}"#
        );
    }

    #[test]
    fn statements_have_a_class() {
        for (sql, expected) in [
            ("create role a", "ddl"),
            (" -- hello\n /* x */ (SELECT 1)", "read"),
            ("grant a to b", "dcl"),
            ("SET ROLE a", "dcl"),
            ("SET thalweg.policy = 'fair'", "other"),
            ("WITH x AS (SELECT 1) DELETE FROM t", "dml"),
            ("WITH x AS (SELECT 1) SELECT 2", "read"),
            ("COPY t TO 'f'", "copy"),
            ("/* open", "other"),
        ] {
            assert_eq!(class(sql).1, expected, "{sql}");
        }
        assert!("quiet".parse::<Audit>().is_err());
        for level in [Audit::None, Audit::Ddl, Audit::Write, Audit::All] {
            assert_eq!(Audit::of(level as u8), level);
        }
    }
}
