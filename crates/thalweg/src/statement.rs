//! One SQL statement, from its text to the output.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use thalweg_base::Error;
use thalweg_engine::{Answer, Engine, Session, Tag};

use crate::failure::{self, Outcome};
use crate::interrupt::{self, Watch};
use crate::output::sink::Sink;
use crate::output::{self, Format, Look};
use crate::progress::Progress;
use crate::script;

/// Rows a terminal shows of a long result: both ends of it on one screenful or so.
const TERMINAL_ROWS_MAX: usize = 40;

/// Runs statements in one session, one after the other.
pub struct Runner {
    pub engine: Arc<Engine>,
    pub session: Session,
    pub format: Format,
    pub expanded: bool,
}

impl Runner {
    pub fn new(engine: Arc<Engine>, format: Format) -> Self {
        let session = engine.session();
        Runner { engine, session, format, expanded: false }
    }

    /// Runs `sql` and writes its result; says how long that took. Ctrl-C cancels.
    pub fn run(&self, sql: &str, sink: &mut Sink) -> Outcome<Duration> {
        let start = Instant::now();
        let watch = {
            let session = self.session.clone();
            interrupt::watch(move || session.cancel())
        };
        self.engine.block_on(self.drive(sql, &watch, sink))?;
        sink.flush()?;
        Ok(start.elapsed())
    }

    async fn drive(&self, sql: &str, watch: &Watch, sink: &mut Sink) -> Outcome {
        let explain = |e| watch.explain(e);
        let mut progress = Progress::of_query(&self.session);
        let answer = self.session.query(sql).await.map_err(|e| explain(e).shown_in(sql))?;
        if !answer.notices.is_empty() {
            progress = None;
            answer.notices.iter().for_each(failure::tell);
        }
        if !matches!(answer.tag, Tag::Rows) {
            drop(progress);
            return self.acknowledge(answer, sink);
        }
        let look = self.look(sql, sink);
        let mut writer = output::writer(self.format, look, &answer.schema, sink)?;
        let mut stream = answer;
        while let Some(batch) = stream.next().await {
            // From here on the rows are on the terminal.
            progress = None;
            writer.batch(&batch.map_err(explain)?)?;
            // A result that is all here already would otherwise print to its end.
            if watch.pressed() {
                return Err(interrupt::cancelled().into());
            }
        }
        drop(progress);
        writer.finish()
    }

    /// `CREATE TABLE`, `INSERT: 3 rows`: for readers, not for the programs behind csv or json.
    fn acknowledge(&self, answer: Answer, sink: &mut Sink) -> Outcome {
        if self.format == Format::Table {
            match answer.tag {
                Tag::Rows => {}
                Tag::Done(what) => writeln!(sink, "{what}")?,
                Tag::Count(what, rows) => {
                    writeln!(sink, "{what}: {}", output::table::rows_label(rows))?
                }
            }
        } else if self.format.is_binary() {
            return Err(Error::user(format!(
                "the statement has no rows to write as {}",
                self.format
            ))
            .detail("it was run all the same")
            .hint("--format parquet and arrow take exactly one statement that returns rows")
            .into());
        }
        Ok(())
    }

    fn look(&self, sql: &str, sink: &Sink) -> Look {
        let plan = script::first_word(sql) == "explain";
        Look { expanded: self.expanded, plan, ..look(sink) }
    }
}

/// The terminal's width and patience, if `sink` is one.
pub fn look(sink: &Sink) -> Look {
    if !sink.is_terminal() {
        return Look::default();
    }
    let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(w, _)| usize::from(w.0));
    Look { width, rows_max: Some(TERMINAL_ROWS_MAX), ..Look::default() }
}
