//! Cursors of SQL: `DECLARE`, `FETCH`, `MOVE`, `CLOSE`. They go forward only: rows come as they are
//! computed, and none are kept.

use thalweg_base::{Error, Result};
use thalweg_engine::{Value, script};

use super::command::{self, Leaves};
use super::connection::{Connection, Stop};
use super::encode::{Format, Rows};
use super::results::{self, Cursor};

/// A cursor that is open.
pub struct Declared {
    cursor: Cursor,
    /// It stays when its transaction ends.
    pub holds: bool,
    binary: bool,
    /// How many savepoints its transaction had when it was declared.
    pub savepoints: usize,
}

#[derive(Debug, PartialEq)]
pub enum Command {
    Declare {
        name: String,
        query: String,
        /// What stands before the query.
        lead: String,
        holds: bool,
        binary: bool,
    },
    /// `moves`: without sending the rows.
    Fetch {
        name: String,
        which: Which,
        moves: bool,
    },
    Close {
        name: Option<String>,
    },
}

/// Rows from where a cursor stands on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Which {
    /// So many, or all that there are. 0: the one it stands on once more.
    Next(Option<u64>),
    /// The one that is so many further; 0: the one it stands on.
    Relative(u64),
    /// The one of this number, from 1; 0: the place before the first.
    Absolute(u64),
    Last,
}

/// Cursors that one client may have open: each is a query that runs.
const CURSORS_MAX: usize = 100;

/// `None`: the statement is another.
pub fn parse(sql: &str) -> Result<Option<Command>> {
    let mut words = Words(script::trim_start(sql));
    let verb = match words.next() {
        Some(word) if !word.starts_with('"') => word.to_uppercase(),
        _ => return Ok(None),
    };
    let missing = || Error::user(format!("{verb} names no cursor")).code("42601");
    Ok(Some(match verb.as_str() {
        "DECLARE" => {
            let name = words.next().map(name).ok_or_else(missing)?;
            let (mut holds, mut binary, mut without) = (false, false, false);
            loop {
                match words.next().map(str::to_uppercase).as_deref() {
                    Some("BINARY") => binary = true,
                    Some("WITH") => without = false,
                    Some("WITHOUT") => without = true,
                    Some("HOLD") => holds = !without,
                    Some("SCROLL") if !std::mem::take(&mut without) => return Err(backwards()),
                    Some("NO") => without = true,
                    Some("CURSOR" | "INSENSITIVE" | "ASENSITIVE" | "SCROLL") => {}
                    Some("FOR") => break,
                    other => {
                        return Err(Error::user(format!(
                            "DECLARE does not understand {}",
                            other.unwrap_or("its end")
                        ))
                        .code("42601")
                        .hint("DECLARE name CURSOR [WITH HOLD] FOR query"));
                    }
                }
            }
            let query = words.0.trim();
            let lead = sql[..sql.rfind(query).unwrap_or(0)].to_string();
            Command::Declare { name, query: query.to_string(), lead, holds, binary }
        }
        "FETCH" | "MOVE" => {
            let mut words: Vec<&str> = words.collect();
            let cursor = words.pop().map(name).ok_or_else(missing)?;
            if words.last().is_some_and(|w| matches!(w.to_uppercase().as_str(), "FROM" | "IN")) {
                words.pop();
            }
            let which = which(&words)?;
            Command::Fetch { name: cursor, which, moves: verb == "MOVE" }
        }
        "CLOSE" => {
            let word = words.next().ok_or_else(missing)?;
            Command::Close { name: (!word.eq_ignore_ascii_case("ALL")).then(|| name(word)) }
        }
        _ => return Ok(None),
    }))
}

/// What stands between FETCH and the cursor's name.
fn which(words: &[&str]) -> Result<Which> {
    let words: Vec<String> = words.iter().map(|w| w.to_uppercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| {
        let count: i64 = text.parse().map_err(|_| {
            Error::user(format!("{text} is no number of rows"))
                .code("42601")
                .hint("FETCH n FROM cursor, FETCH ALL, NEXT, LAST, RELATIVE n or ABSOLUTE n")
        })?;
        u64::try_from(count).map_err(|_| backwards())
    };
    Ok(match words[..] {
        [] | ["NEXT" | "FORWARD"] => Which::Next(Some(1)),
        ["ALL"] | ["FORWARD", "ALL"] => Which::Next(None),
        ["FIRST"] => Which::Absolute(1),
        ["LAST"] | ["ABSOLUTE", "-1"] => Which::Last,
        ["BACKWARD", "0"] => Which::Relative(0),
        ["PRIOR"] | ["BACKWARD"] | ["BACKWARD", _] => return Err(backwards()),
        ["RELATIVE", n] => Which::Relative(number(n)?),
        ["ABSOLUTE", n] => Which::Absolute(number(n)?),
        ["FORWARD", n] | [n] => Which::Next(Some(number(n)?)),
        _ => {
            let e = Error::user(format!("FETCH does not understand {}", words.join(" ")));
            return Err(e.code("42601").hint("FETCH n FROM cursor takes the next n rows"));
        }
    })
}

fn backwards() -> Error {
    Error::unsupported("cursor can only scan forward: rows that have been fetched are not kept")
        .code("55000")
        .hint("FETCH n, ALL, LAST and RELATIVE n go forward; ORDER BY … DESC reads from the other end")
}

/// A name in quotes as it is, another in lower case.
fn name(word: &str) -> String {
    match word.strip_prefix('"').and_then(|w| w.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => word.to_lowercase(),
    }
}

/// Words and names in quotes, off the front.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0 = self.0.trim_start();
        let bytes = self.0.as_bytes();
        let mut end = 0;
        if bytes.first() == Some(&b'"') {
            end = 1;
            while end < bytes.len() {
                if bytes[end] == b'"' && bytes.get(end + 1) != Some(&b'"') {
                    break;
                }
                end += if bytes[end] == b'"' { 2 } else { 1 };
            }
            end = (end + 1).min(bytes.len());
        } else {
            while end < bytes.len() && !bytes[end].is_ascii_whitespace() {
                end += 1;
            }
        }
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

impl Connection {
    fn declared(&mut self, name: &str) -> Result<Declared> {
        self.cursors
            .remove(name)
            .ok_or_else(|| Error::user(format!("cursor {name:?} does not exist")).code("34000"))
    }

    /// Runs it and returns its tag. `formats`: what a client of the extended protocol has asked
    /// for, which has been told the columns before; `values` are those of its query.
    pub async fn cursor(
        &mut self,
        command: &Command,
        values: &[Value],
        formats: Option<&[i16]>,
    ) -> Result<String, Stop> {
        match command {
            Command::Declare { name, query, lead, holds, binary } => {
                if !command::is_query(query) {
                    return Err(Error::user("a cursor is of a query").code("42601").into());
                }
                if self.cursors.contains_key(name) {
                    let e = Error::user(format!("cursor {name:?} exists already")).code("42P03");
                    return Err(e.into());
                }
                if self.cursors.len() == CURSORS_MAX {
                    return Err(Error::resources(format!("{CURSORS_MAX} cursors are open"))
                        .hint("CLOSE those that are not needed")
                        .into());
                }
                let idle = thalweg_engine::TransactionStatus::Idle;
                if !*holds && self.session.transaction_status() == idle {
                    let e = Error::user("DECLARE CURSOR needs an open transaction").code("25P01");
                    return Err(e.hint("BEGIN opens one; WITH HOLD needs none").into());
                }
                let session = self.session.clone();
                let running = session.query_with(query, values);
                let answer = self.watched(running).await?;
                let answer = answer.map_err(|e| Stop::from(e).after(lead))?;
                let mut cursor = Cursor::new(answer, vec![]);
                cursor.keeps_last = true;
                let savepoints = self.session.savepoints();
                let declared = Declared { cursor, holds: *holds, binary: *binary, savepoints };
                self.cursors.insert(name.clone(), declared);
                Ok("DECLARE CURSOR".into())
            }
            Command::Fetch { name, which, moves } => {
                // Back in the map only if it has not failed.
                let mut declared = self.declared(name)?;
                let columns = declared.cursor.answer.schema.fields().len();
                let default = [i16::from(declared.binary)];
                let codes = formats.filter(|codes| !codes.is_empty()).unwrap_or(&default);
                declared.cursor.formats = results::formats(codes, columns)?;
                if !*moves && formats.is_none() {
                    let Cursor { answer, formats, .. } = &declared.cursor;
                    results::describe(&mut self.output.out, "", &answer.schema, formats)?;
                }
                let count = self.fetch(&mut declared.cursor, *which, !*moves).await?;
                self.cursors.insert(name.clone(), declared);
                Ok(format!("{} {count}", if *moves { "MOVE" } else { "FETCH" }))
            }
            Command::Close { name } => Ok(match name {
                Some(name) => {
                    drop(self.declared(name)?);
                    "CLOSE CURSOR".into()
                }
                None => {
                    self.cursors.clear();
                    "CLOSE CURSOR ALL".into()
                }
            }),
        }
    }

    /// Goes to rows, and sends them if they are wanted. Returns how many they are.
    async fn fetch(&mut self, cursor: &mut Cursor, which: Which, send: bool) -> Result<u64, Stop> {
        let stands_at = cursor.sent;
        let rows = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (skipped, wanted) = match which {
            Which::Next(None) => (0, Some(0)),
            Which::Next(Some(0)) | Which::Relative(0) => return Ok(self.again(cursor, send)?),
            Which::Next(Some(n)) => (0, Some(rows(n))),
            Which::Relative(n) => (rows(n - 1), Some(1)),
            Which::Absolute(n) if n > stands_at => (rows(n - 1 - stands_at), Some(1)),
            Which::Absolute(0) if stands_at == 0 => return Ok(0),
            Which::Absolute(n) if n == stands_at => return Ok(self.again(cursor, send)?),
            Which::Absolute(_) => return Err(backwards().into()),
            Which::Last => (usize::MAX, None),
        };
        if skipped > 0 {
            self.skip_rows(cursor, skipped).await?;
        }
        let before = cursor.sent;
        match wanted {
            // It stands on the last row now.
            None => return Ok(self.again(cursor, send)?),
            Some(wanted) if send => self.send_rows(cursor, wanted).await?,
            Some(wanted) => self.skip_rows(cursor, wanted).await?,
        };
        let count = cursor.sent - before;
        // Then it stands after the last row.
        if wanted.is_none_or(|wanted| wanted == 0 || count < wanted as u64) {
            cursor.last = None;
        }
        Ok(count)
    }

    /// The row that the cursor stands on, if it does.
    fn again(&mut self, cursor: &Cursor, send: bool) -> Result<u64> {
        let Some(row) = &cursor.last else { return Ok(0) };
        if send {
            Rows::new(row, &cursor.formats)?.data_row(0, &mut self.output.out);
        }
        Ok(1)
    }

    /// After a statement that may have left a savepoint: the cursors that were declared behind it are undone
    /// with it, or are those of what is around it.
    pub fn leave_savepoint(&mut self, sql: &str) {
        let left = self.session.savepoints();
        match command::leaves_savepoint(sql) {
            // The savepoint itself is still there.
            Some(Leaves::Undone) => self.cursors.retain(|_, cursor| cursor.savepoints < left),
            Some(Leaves::Released) => {
                for cursor in self.cursors.values_mut() {
                    cursor.savepoints = cursor.savepoints.min(left);
                }
            }
            None => {}
        }
    }

    /// Announces the columns of what the command gives.
    pub fn describe_cursor(&mut self, command: &Command, formats: &[i16]) -> Result<()> {
        let Command::Fetch { name, moves: false, .. } = command else {
            self.output.out.no_data();
            return Ok(());
        };
        let declared = self.declared(name)?;
        let schema = &declared.cursor.answer.schema;
        let formats: Vec<Format> = results::formats(formats, schema.fields().len())?;
        let described = results::describe(&mut self.output.out, "", schema, &formats);
        self.cursors.insert(name.clone(), declared);
        described
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood() {
        let declare = |sql: &str| match parse(sql).unwrap() {
            Some(Command::Declare { name, query, holds, binary, .. }) => {
                format!("{name}|{query}|{holds}|{binary}")
            }
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(declare("DECLARE c CURSOR FOR SELECT 1"), "c|SELECT 1|false|false");
        assert_eq!(
            declare("declare \"A \"\" b\" binary no scroll cursor with hold for\n select 2"),
            "A \" b|select 2|true|true"
        );
        assert_eq!(declare("DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1"), "c|SELECT 1|false|false");
        let fetch = |sql: &str| match parse(sql).unwrap() {
            Some(Command::Fetch { name, which, .. }) => format!("{name} {which:?}"),
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(fetch("/* of a driver */ FETCH c"), "c Next(Some(1))");
        assert_eq!(fetch("FETCH FORWARD 10 FROM \"c\""), "c Next(Some(10))");
        assert_eq!(fetch("FETCH ALL IN c"), "c Next(None)");
        assert_eq!(fetch("FETCH RELATIVE 3 c"), "c Relative(3)");
        assert_eq!(fetch("FETCH FIRST FROM c"), "c Absolute(1)");
        assert_eq!(fetch("FETCH LAST FROM c"), "c Last");
        assert_eq!(fetch("FETCH 0 c"), "c Next(Some(0))");
        assert_eq!(fetch("MOVE FORWARD ALL IN c"), "c Next(None)");
        assert_eq!(parse("CLOSE ALL").unwrap(), Some(Command::Close { name: None }));
        assert_eq!(parse("SELECT 1").unwrap(), None);
        assert_eq!(parse("").unwrap(), None);
        for wrong in [
            "FETCH PRIOR FROM c",
            "FETCH -1 FROM c",
            "FETCH BACKWARD 2 FROM c",
            "FETCH RELATIVE -1 FROM c",
            "FETCH two FROM c",
            "DECLARE c SCROLL CURSOR FOR SELECT 1",
            "FETCH",
            "CLOSE",
            "DECLARE",
            "DECLARE c",
        ] {
            parse(wrong).unwrap_err();
        }
    }
}
