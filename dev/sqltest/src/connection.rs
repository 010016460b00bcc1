//! A session as sqllogictest sees it.

use std::fmt;
use std::sync::Arc;

use sqllogictest::{DB, DBOutput};
use thalweg_engine::{LoadProgress, Tag};

use crate::home::Home;
use crate::value::Column;
use crate::{load, value};

/// An error as one line, with its kind, so that a file's expectation can name all of it.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

pub struct Connection {
    home: Arc<Home>,
    number: usize,
}

impl Connection {
    pub fn new(home: Arc<Home>, number: usize) -> Self {
        Connection { home, number }
    }

    fn folders(&self) -> [(&'static str, String); 2] {
        let text = |p: std::path::PathBuf| p.to_string_lossy().into_owned();
        [("$DATA", text(Home::data())), ("$TMP", text(self.home.tmp()))]
    }

    fn failure(&self, e: &thalweg_base::Error) -> Failure {
        let mut line = format!("{:?}: {}", e.kind(), e.message()).replace('\n', " ");
        // The kind in lower case: it is a word of the file's language, not a type.
        line[..1].make_ascii_lowercase();
        for (label, text) in [("detail", e.detail_text()), ("hint", e.hint_text())] {
            if let Some(text) = text {
                line += &format!(" | {label}: {}", text.replace('\n', " "));
            }
        }
        for (name, folder) in self.folders() {
            line = line.replace(&folder, name);
        }
        Failure(line)
    }

    fn execute(&self, sql: &str) -> thalweg_base::Result<DBOutput<Column>> {
        if sql.trim() == "REOPEN" {
            self.home.reopen()?;
            return Ok(DBOutput::StatementComplete(0));
        }
        let (engine, session) = self.home.session(self.number)?;
        if let Some(load) = load::parse(sql)? {
            let progress = Arc::new(LoadProgress::default());
            let reports = engine.block_on(session.load(load, progress))?;
            return Ok(DBOutput::StatementComplete(reports.iter().map(|r| r.rows).sum()));
        }
        let asked = if is_repeatable(sql) { self.home.mode.asked } else { 1 };
        engine.block_on(async {
            for _ in 1..asked {
                session.query(sql).await?.collect().await?;
            }
            let answer = session.query(sql).await?;
            match answer.tag.clone() {
                Tag::Rows => {
                    let schema = Arc::clone(&answer.schema);
                    let batches = answer.collect().await?;
                    Ok(DBOutput::Rows {
                        types: value::columns(&schema),
                        rows: value::rows(&schema, &batches)?,
                    })
                }
                Tag::Done(_) => Ok(DBOutput::StatementComplete(0)),
                Tag::Count(_, n) => Ok(DBOutput::StatementComplete(n)),
            }
        })
    }
}

/// Whether nothing is another when a statement has been run before: it is a query, and not about the
/// engine itself.
fn is_repeatable(sql: &str) -> bool {
    let sql = sql.trim_start().to_ascii_lowercase();
    let changes = ["system.", "delete ", "insert ", "merge ", "update "];
    (sql.starts_with("select") || sql.starts_with("with"))
        && !changes.iter().any(|word| sql.contains(word))
}

impl DB for Connection {
    type Error = Failure;
    type ColumnType = Column;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Column>, Failure> {
        let mut text = sql.to_string();
        for (name, folder) in self.folders() {
            text = text.replace(name, &folder);
        }
        let mut output = self.execute(&text).map_err(|e| self.failure(&e))?;
        if let DBOutput::Rows { rows, .. } = &mut output {
            for value in rows.iter_mut().flatten() {
                for (name, folder) in self.folders() {
                    if value.contains(&folder) {
                        *value = value.replace(&folder, name);
                    }
                }
            }
        }
        Ok(output)
    }

    fn engine_name(&self) -> &str {
        self.home.mode.name
    }
}
