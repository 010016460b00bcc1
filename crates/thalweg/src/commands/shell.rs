//! `thalweg shell`: SQL typed by hand, or read from a pipe.
//!
//! * [`editor`]: the prompt, its history and completion
//! * [`meta`]: the commands that begin with a backslash

mod editor;
mod meta;

use std::io::{BufRead, IsTerminal, Write};

use rustyline::error::ReadlineError;
use thalweg_base::{Error, text};
use thalweg_engine::{PolicyKind, Session};

use super::sql::threads;
use crate::database::{self, MEMORY, Settings};
use crate::failure::{self, Failure, Outcome};
use crate::interrupt;
use crate::output::Format;
use crate::output::sink::Sink;
use crate::script::{self, State};
use crate::statement::Runner;
use editor::Editor;

/// Type SQL and see the results
///
/// Statements end with `;` and may take several lines. Tab completes keywords, tables and
/// columns. Ctrl-C cancels a running query, or clears the line; Ctrl-D leaves.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Folder of the database, or `:memory:` for one that ends with the shell
    #[arg(value_name = "DB", default_value = MEMORY)]
    database: String,

    /// Create the database if it is not there
    #[arg(long)]
    create: bool,

    /// In which order the tasks of concurrent queries run [default: fair]
    #[arg(long, value_name = "POLICY", value_parser = database::policies())]
    policy: Option<PolicyKind>,

    /// Threads that run queries [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,

    /// Memory that joins, groups and sorts of all queries may hold before they spill to disk
    /// [default: 45 % of this machine's]
    #[arg(long, value_name = "SIZE", value_parser = database::memory)]
    memory: Option<u64>,
}

const AFTER: &str = "\
Examples:
  thalweg shell shop.db
  thalweg shell :memory:
  thalweg shell shop.db < script.sql

In the shell, \\? lists its own commands, such as \\d to see the tables. The history is kept in
$XDG_STATE_HOME/thalweg/history (~/.local/state/thalweg/history).

When standard input is not a terminal, the statements in it are run in order, and the first
that fails ends the shell with its exit code.";

pub fn run(args: Args) -> Outcome {
    let settings = Settings {
        threads: args.threads,
        policy: args.policy,
        memory: args.memory,
        stays: true,
        ..Settings::default()
    };
    let engine = database::open(&args.database, args.create, &settings)?;
    let interactive = std::io::stdin().is_terminal();
    let mut shell = Shell {
        runner: Runner::new(engine, Format::Table),
        timing: interactive,
        interactive,
        sink: Sink::stdout(),
    };
    let end = if interactive { shell.type_in(&args.database) } else { shell.pipe_in() };
    // What `\o` collected is kept, however the shell ends.
    let closed = std::mem::replace(&mut shell.sink, Sink::stdout()).finish();
    end.and(closed)
}

struct Shell {
    runner: Runner,
    timing: bool,
    interactive: bool,
    sink: Sink,
}

/// Whether the shell goes on after a line of input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Prompt,
    Leave,
}

impl Shell {
    fn type_in(&mut self, database: &str) -> Outcome {
        interrupt::never_exit();
        let mut editor = Editor::new(&self.runner.session)?;
        self.banner(database)?;
        loop {
            let input = match editor.read() {
                Ok(input) => input,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(ReadlineError::Io(e)) => {
                    return Err(Error::io("cannot read the terminal", e).into());
                }
                Err(e) => {
                    return Err(Error::internal(format!("cannot read the terminal: {e}")).into());
                }
            };
            editor.remember(&input);
            let next = self.take(&input);
            self.sink.flush()?;
            match next {
                Ok(Next::Prompt) => {}
                Ok(Next::Leave) => return Ok(()),
                Err(Failure::Error(error)) => failure::print(&error),
                Err(Failure::PipeClosed) => return Err(Failure::PipeClosed),
            }
        }
    }

    fn pipe_in(&mut self) -> Outcome {
        let mut input = String::new();
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|e| Error::io("cannot read standard input", e))?;
            if input.is_empty() && line.trim().is_empty() {
                continue;
            }
            input.push_str(&line);
            input.push('\n');
            if is_command(&input) || script::state(&input) == State::Complete {
                let next = self.take(&input)?;
                self.sink.flush()?;
                if next == Next::Leave {
                    return Ok(());
                }
                input.clear();
            }
        }
        // The last statement may lack its `;`.
        self.take(&input)?;
        Ok(())
    }

    fn banner(&mut self, database: &str) -> Outcome {
        let tables = self.runner.engine.database().snapshot().tables().count() as u64;
        let plural = if tables == 1 { "table" } else { "tables" };
        let place = if database == MEMORY {
            "a database in memory, gone when you leave".to_string()
        } else {
            format!("{database}, {} {plural}", text::count(tables))
        };
        self.say(&format!(
            "Thalweg {}: {place}\nStatements end with `;`. \\? for help, \\d for tables, \\q to leave.",
            env!("CARGO_PKG_VERSION"),
        ))
    }

    /// One complete input: a command of the shell, or statements.
    fn take(&mut self, input: &str) -> Outcome<Next> {
        if is_command(input) {
            return self.command(input.trim().trim_end_matches(';').trim_end());
        }
        if script::state(input) != State::Empty {
            self.statements(input)?;
        }
        Ok(Next::Prompt)
    }

    fn statements(&mut self, text: &str) -> Outcome {
        for statement in Session::split(text)? {
            if self.runner.format.is_binary() && self.sink.path().is_none() {
                return Err(Error::user(format!("{} needs a file to go to", self.runner.format))
                    .hint("\\o FILE names it; \\format table shows results here again")
                    .into());
            }
            let elapsed = self.runner.run(&statement, &mut self.sink)?;
            if self.runner.format.is_binary() {
                // Such a file holds one result: the next one needs another name.
                self.redirect(None)?;
            }
            if self.timing {
                self.say(&format!("{}\n", text::seconds(elapsed.as_secs_f64())))?;
            }
        }
        Ok(())
    }

    /// A message of the shell itself, never into the file of `\o`.
    fn say(&mut self, message: &str) -> Outcome {
        self.sink.flush()?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{message}")?;
        stdout.flush()?;
        Ok(())
    }
}

/// Words that people type into any shell, and everything that begins with a backslash.
fn is_command(input: &str) -> bool {
    let input = input.trim();
    let word = input.trim_end_matches(';').trim_end();
    input.starts_with('\\') || ["help", "quit", "exit"].iter().any(|w| word.eq_ignore_ascii_case(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_statements() {
        assert!(is_command("\\d orders"));
        assert!(is_command(" Quit ;"));
        assert!(is_command("help"));
        assert!(!is_command("select 'help';"));
        assert!(!is_command("exit_code"));
        assert!(!is_command(""));
    }
}
