//! What is told of a statement that has ended, whatever protocol it came by.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use thalweg_base::{Error, QueryId};
use thalweg_engine::script;

/// A statement that has ended.
pub struct Statement<'a> {
    pub protocol: Protocol,
    pub sql: &'a str,
    /// Who sent it.
    pub user: &'a str,
    /// `None`: it did not come to be one.
    pub query: Option<QueryId>,
    pub began: SystemTime,
    /// From its arrival until its client has all of the answer.
    pub took: Duration,
    /// Of the answer.
    pub rows: u64,
    pub bytes: u64,
    pub error: Option<&'a Error>,
    /// What it is a part of, if the client said so beside the text.
    pub parent: Option<TraceParent>,
}

impl Statement<'_> {
    /// One of a few.
    pub fn kind(&self) -> &'static str {
        kind(self.sql)
    }
}

/// By the first word.
pub fn kind(sql: &str) -> &'static str {
    let word = script::words(sql).next().unwrap_or_default();
    match word.to_ascii_lowercase().as_str() {
        "select" | "with" | "values" | "table" | "from" => "select",
        "insert" => "insert",
        "update" => "update",
        "delete" => "delete",
        "merge" => "merge",
        "copy" => "copy",
        "explain" | "describe" => "explain",
        "create" | "alter" | "drop" | "truncate" | "grant" | "revoke" | "comment" => "ddl",
        "begin" | "start" | "commit" | "rollback" | "end" | "abort" | "savepoint" | "release" => {
            "transaction"
        }
        "set" | "show" | "reset" | "discard" => "session",
        "prepare" | "execute" | "deallocate" | "declare" | "fetch" | "close" => "prepared",
        "vacuum" | "optimize" | "analyze" => "maintenance",
        _ => "other",
    }
}

/// Of a statement in a log.
const SHOWN_BYTES_MAX: usize = 2000;

/// After one of these words there may be a secret.
const SECRETS: [&str; 4] = ["password", "secret", "token", "credential"];

/// A statement as a log may hold it: cut where it is long, and where a secret may follow.
pub fn shown(sql: &str) -> Cow<'_, str> {
    let lower = sql.to_ascii_lowercase();
    let secret = SECRETS.iter().filter_map(|word| lower.find(word).map(|at| at + word.len())).min();
    let mut end = secret.unwrap_or(sql.len()).min(SHOWN_BYTES_MAX);
    while !sql.is_char_boundary(end) {
        end -= 1;
    }
    match end == sql.len() {
        true => Cow::Borrowed(sql),
        false => Cow::Owned(format!("{}…", &sql[..end])),
    }
}

/// The trace that a client's request is a part of, as W3C's *Trace Context* writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: u128,
    pub span: u64,
    /// Whoever began the trace keeps it.
    pub sampled: bool,
}

impl TraceParent {
    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`; what is malformed is none.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().split('-');
        let mut hex = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            is_hex.then(|| u128::from_str_radix(part, 16).ok()).flatten()
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let more = parts.next().is_some();
        // Later versions may say more.
        if version == 0xff || (version == 0 && more) || trace == 0 || span == 0 {
            return None;
        }
        Some(TraceParent { trace, span: u64::try_from(span).ok()?, sampled: flags & 1 == 1 })
    }

    /// From a comment in the statement, as SQLCommenter writes it:
    /// `/*…,traceparent='00-…',…*/`.
    pub fn in_sql(sql: &str) -> Option<TraceParent> {
        const KEY: &str = "traceparent='";
        let mut rest = sql;
        while let Some((_, after)) = rest.split_once("/*") {
            let (comment, behind) = after.split_once("*/")?;
            if let Some((_, value)) = comment.split_once(KEY) {
                return TraceParent::parse(value.split_once('\'')?.0);
            }
            rest = behind;
        }
        None
    }
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Pg,
    Flight,
}

impl Protocol {
    pub const ALL: [Protocol; 2] = [Protocol::Pg, Protocol::Flight];

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Pg => "pg",
            Protocol::Flight => "flight",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_behind_comments() {
        for (sql, want) in [
            ("SELECT 1", "select"),
            (" \n(select 1)", "select"),
            ("-- why\n/* a */ /*b*/INSERT INTO t", "insert"),
            ("WITH a AS (SELECT 1) SELECT", "select"),
            ("create role x", "ddl"),
            ("commit;", "transaction"),
            ("", "other"),
            ("/* never ends", "other"),
            ("élan", "other"),
        ] {
            assert_eq!(kind(sql), want, "{sql}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown("SELECT 1"), "SELECT 1");
        assert_eq!(shown("ALTER ROLE a PassWord 'x'"), "ALTER ROLE a PassWord…");
        let long = "é".repeat(5000);
        let cut = shown(&long);
        assert!(cut.len() <= SHOWN_BYTES_MAX + '…'.len_utf8() && cut.ends_with('…'));
    }

    #[test]
    fn a_parent_is_read_and_nonsense_is_none() {
        const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = TraceParent::parse(GOOD).unwrap();
        assert_eq!(parent.span, 0x00f0_67aa_0ba9_02b7);
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert!(parent.sampled);
        let sql = format!("SELECT /* x */ 1 /*a='b',traceparent='{GOOD}',c='d'*/");
        assert_eq!(TraceParent::in_sql(&sql), Some(parent));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-é",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
        assert_eq!(TraceParent::in_sql("SELECT '/*traceparent='"), None);
    }
}
