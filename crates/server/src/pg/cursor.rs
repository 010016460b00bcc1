//! Cursors of SQL: `DECLARE`, `FETCH`, `MOVE`, `CLOSE`. They go forward only: rows come as they are
//! computed, and none are kept.

use thalweg_base::{Error, Result};
use thalweg_engine::script;

use super::command;
use super::connection::{Connection, Stop};
use super::encode::Format;
use super::results::{self, Cursor};

/// A cursor that is open.
pub struct Declared {
    cursor: Cursor,
    /// It stays when its transaction ends.
    pub holds: bool,
    binary: bool,
}

#[derive(Debug, PartialEq)]
pub enum Command {
    Declare {
        name: String,
        query: String,
        holds: bool,
        binary: bool,
    },
    /// `moves`: without sending the rows. 0 rows: none; `None`: all that there are.
    Fetch {
        name: String,
        rows: Option<u64>,
        moves: bool,
    },
    Close {
        name: Option<String>,
    },
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
            Command::Declare { name, query: words.0.trim().to_string(), holds, binary }
        }
        "FETCH" | "MOVE" => {
            let mut rows = Some(1);
            let mut last = None;
            for word in words.by_ref() {
                match word.to_uppercase().as_str() {
                    "NEXT" | "FORWARD" | "RELATIVE" | "FROM" | "IN" => {}
                    "ALL" => rows = None,
                    "PRIOR" | "FIRST" | "LAST" | "BACKWARD" | "ABSOLUTE" => return Err(backwards()),
                    number if number.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                        let count: i64 = number.parse().map_err(|_| {
                            Error::user(format!("{number} is no number of rows")).code("42601")
                        })?;
                        rows = Some(u64::try_from(count).map_err(|_| backwards())?);
                    }
                    _ => last = Some(name(word)),
                }
            }
            Command::Fetch { name: last.ok_or_else(missing)?, rows, moves: verb == "MOVE" }
        }
        "CLOSE" => {
            let word = words.next().ok_or_else(missing)?;
            Command::Close { name: (!word.eq_ignore_ascii_case("ALL")).then(|| name(word)) }
        }
        _ => return Ok(None),
    }))
}

fn backwards() -> Error {
    Error::unsupported("cursors go forward only: rows that have been fetched are not kept")
        .hint("FETCH n, FETCH ALL and MOVE n work; ORDER BY … DESC reads from the other end")
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
    /// for, which has been told the columns before.
    pub async fn cursor(
        &mut self,
        command: &Command,
        formats: Option<&[i16]>,
    ) -> Result<String, Stop> {
        match command {
            Command::Declare { name, query, holds, binary } => {
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
                let answer = self.watched(session.query(query)).await??;
                let cursor = Cursor::new(answer, vec![]);
                let declared = Declared { cursor, holds: *holds, binary: *binary };
                self.cursors.insert(name.clone(), declared);
                Ok("DECLARE CURSOR".into())
            }
            Command::Fetch { name, rows, moves } => {
                // Back in the map only if it has not failed.
                let mut declared = self.declared(name)?;
                let columns = declared.cursor.answer.schema.fields().len();
                let default = [i16::from(declared.binary)];
                let codes = formats.filter(|codes| !codes.is_empty()).unwrap_or(&default);
                declared.cursor.formats = results::formats(codes, columns)?;
                let before = declared.cursor.sent;
                if !*moves && formats.is_none() {
                    let Cursor { answer, formats, .. } = &declared.cursor;
                    results::describe(&mut self.output.out, "", &answer.schema, formats)?;
                }
                let most = match rows {
                    Some(0) => None,
                    Some(rows) => Some(usize::try_from(*rows).unwrap_or(usize::MAX)),
                    None => Some(0),
                };
                if let Some(most) = most {
                    if *moves {
                        self.skip_rows(&mut declared.cursor, most).await?;
                    } else {
                        self.send_rows(&mut declared.cursor, most).await?;
                    }
                }
                let count = declared.cursor.sent - before;
                self.cursors.insert(name.clone(), declared);
                Ok(format!("{} {count}", if *moves { "MOVE" } else { "FETCH" }))
            }
            Command::Close { name } => {
                match name {
                    Some(name) => drop(self.declared(name)?),
                    None => self.cursors.clear(),
                }
                Ok("CLOSE CURSOR".into())
            }
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
            Some(Command::Declare { name, query, holds, binary }) => {
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
            Some(Command::Fetch { name, rows, .. }) => format!("{name} {rows:?}"),
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(fetch("/* of a driver */ FETCH c"), "c Some(1)");
        assert_eq!(fetch("FETCH FORWARD 10 FROM \"c\""), "c Some(10)");
        assert_eq!(fetch("FETCH ALL IN c"), "c None");
        assert_eq!(fetch("MOVE FORWARD ALL IN c"), "c None");
        assert_eq!(parse("CLOSE ALL").unwrap(), Some(Command::Close { name: None }));
        assert_eq!(parse("SELECT 1").unwrap(), None);
        assert_eq!(parse("").unwrap(), None);
        for wrong in [
            "FETCH PRIOR FROM c",
            "FETCH -1 FROM c",
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
