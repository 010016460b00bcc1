//! A text with any number of statements, answered in text.

use thalweg_base::Result;
use thalweg_engine::{Session, TransactionStatus, Value};

use super::command::{self, Work};
use super::connection::{Connection, Done, Stop};
use super::results::{self, Cursor};

impl Connection {
    /// As PostgreSQL has it, several statements in one message are one transaction, unless they say
    /// otherwise.
    pub async fn simple(&mut self, sql: &str) -> Result<(), Stop> {
        let statements = Session::split(sql)?;
        if statements.is_empty() {
            self.output.out.empty_query();
            return Ok(());
        }
        let together = statements.len() > 1
            && self.session.transaction_status() == TransactionStatus::Idle
            && !statements.iter().any(|s| command::stands_alone(s));
        if together {
            self.control("BEGIN").await?;
            self.implicit = true;
        }
        let mut rest = sql;
        for statement in &statements {
            let before =
                &sql[..sql.len() - rest.len() + rest.find(statement.as_str()).unwrap_or(0)];
            rest = &sql[before.len()..];
            let running = self.running(statement);
            let done = self.one(statement).await;
            self.ended(running, &done);
            done.map_err(|stop| stop.after(before))?;
            rest = rest.get(statement.len()..).unwrap_or_default();
        }
        if std::mem::take(&mut self.implicit) {
            self.control("COMMIT").await?;
        }
        Ok(())
    }

    async fn one(&mut self, sql: &str) -> Result<Done, Stop> {
        self.has_set |= command::sets(sql);
        if let Some(tag) = self.own_work(&Work::of(sql)?, &[], None).await? {
            self.output.out.complete(&tag);
            return Ok(Done::default());
        }
        let session = self.session.clone();
        let answer = self.watched(session.query(sql)).await??;
        self.leave_savepoint(sql);
        self.output.out.notices(&answer.notices);
        let tag = answer.tag.clone();
        let formats = results::formats(&[], answer.schema.fields().len())?;
        if command::has_rows(&answer) {
            results::describe(&mut self.output.out, sql, &answer.schema, &formats)?;
        }
        let mut cursor = Cursor::new(answer, formats);
        self.send_rows(&mut cursor, 0).await?;
        self.output.out.complete(&command::tag(sql, &tag, cursor.sent));
        Ok(Done { query: Some(cursor.answer.query()), rows: cursor.sent })
    }

    /// What the protocol carries out itself: its tag.
    pub async fn own_work(
        &mut self,
        work: &Work,
        values: &[Value],
        formats: Option<&[i16]>,
    ) -> Result<Option<String>, Stop> {
        Ok(match work {
            Work::Copy(copy) if copy.to => Some(self.copy_out(copy).await?),
            Work::Copy(copy) => Some(self.copy_in(copy).await?),
            Work::Cursor(command) => Some(self.cursor(command, values, formats).await?),
            Work::Empty | Work::Engine => None,
        })
    }
}
