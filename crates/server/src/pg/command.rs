//! What kind of statement a text is, as far as the protocol wants to know it.

use thalweg_base::Result;
use thalweg_engine::{Answer, ClientCopy, Tag, script};

use super::cursor;

/// Who carries a statement out.
pub enum Work {
    /// There is nothing to run.
    Empty,
    /// The protocol: rows from the client or to it.
    Copy(ClientCopy),
    /// The protocol: it keeps the cursors.
    Cursor(cursor::Command),
    Engine,
}

impl Work {
    pub fn of(sql: &str) -> Result<Work> {
        if sql.is_empty() {
            return Ok(Work::Empty);
        }
        if let Some(copy) = ClientCopy::parse(sql) {
            return Ok(Work::Copy(copy));
        }
        Ok(cursor::parse(sql)?.map_or(Work::Engine, Work::Cursor))
    }
}

fn words(sql: &str) -> impl Iterator<Item = String> {
    script::words(sql).map(str::to_ascii_uppercase)
}

fn first(sql: &str) -> String {
    words(sql).next().unwrap_or_default()
}

/// Whether it only reads, so that it may begin to run when a client asks for its columns.
pub fn is_query(sql: &str) -> bool {
    match first(sql).as_str() {
        "SELECT" | "VALUES" | "TABLE" | "FROM" | "SHOW" => true,
        "WITH" => {
            !words(sql).any(|w| matches!(w.as_str(), "INSERT" | "UPDATE" | "DELETE" | "MERGE"))
        }
        _ => false,
    }
}

/// Whether it governs a transaction, or runs in none: then the statements that come with it in one
/// message are not made one transaction.
pub fn stands_alone(sql: &str) -> bool {
    let mut words = words(sql);
    let first = words.next().unwrap_or_default();
    match first.as_str() {
        "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "SAVEPOINT" | "RELEASE"
        | "VACUUM" | "DECLARE" | "FETCH" | "MOVE" | "CLOSE" | "OPTIMIZE" | "SET" | "RESET"
        | "KILL" | "DISCARD" => true,
        "CREATE" | "ALTER" | "DROP" => {
            matches!(words.next().as_deref(), Some("WORKLOAD" | "ROLE" | "USER" | "DATABASE"))
        }
        _ => false,
    }
}

/// How a savepoint is left.
#[derive(Debug, PartialEq)]
pub enum Leaves {
    Undone,
    Released,
}

/// Whether it leaves a savepoint.
pub fn leaves_savepoint(sql: &str) -> Option<Leaves> {
    let mut words = words(sql);
    match words.next()?.as_str() {
        "ROLLBACK" => words.any(|word| word == "TO").then_some(Leaves::Undone),
        "RELEASE" => Some(Leaves::Released),
        _ => None,
    }
}

/// Whether it may change settings that clients are told of.
pub fn sets(sql: &str) -> bool {
    let first = first(sql);
    matches!(first.as_str(), "SET" | "RESET" | "DISCARD" | "COMMIT" | "END" | "ROLLBACK" | "ABORT")
        || sql.contains("set_config")
}

/// How a statement that has ended is announced.
pub fn tag(sql: &str, answer: &Tag, rows: u64) -> String {
    match answer {
        Tag::Done(word) => word.clone(),
        Tag::Count(word, count) if word == "INSERT" => format!("INSERT 0 {count}"),
        Tag::Count(word, count) => format!("{word} {count}"),
        Tag::Rows => match first(sql).as_str() {
            "INSERT" => format!("INSERT 0 {rows}"),
            word @ ("UPDATE" | "DELETE" | "MERGE" | "FETCH") => format!("{word} {rows}"),
            word @ ("SHOW" | "EXPLAIN") => word.into(),
            _ => format!("SELECT {rows}"),
        },
    }
}

/// Whether the answer has columns to announce.
pub fn has_rows(answer: &Answer) -> bool {
    answer.tag == Tag::Rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        for sql in [
            "select 1",
            " -- x\n/* y */ ((SELECT 1))",
            "WITH a AS (SELECT 'insert') SELECT 1",
            "table t",
        ] {
            assert!(is_query(sql), "{sql}");
        }
        for sql in [
            "",
            "insert into t values (1)",
            "WITH a AS (SELECT 1) DELETE FROM t",
            "EXPLAIN ANALYZE SELECT 1",
        ] {
            assert!(!is_query(sql), "{sql}");
        }
        for (sql, alone) in
            [("begin", true), ("create workload w", true), ("create table t (a int)", false)]
        {
            assert_eq!(stands_alone(sql), alone, "{sql}");
        }
        assert_eq!(leaves_savepoint("rollback work to a"), Some(Leaves::Undone));
        assert_eq!(leaves_savepoint("RELEASE a"), Some(Leaves::Released));
        assert_eq!(leaves_savepoint("ROLLBACK"), None);
        assert_eq!(tag("SELECT 1", &Tag::Rows, 3), "SELECT 3");
        assert_eq!(tag("insert into t returning 1", &Tag::Rows, 3), "INSERT 0 3");
        assert_eq!(tag("insert", &Tag::Count("INSERT".into(), 2), 0), "INSERT 0 2");
    }
}
