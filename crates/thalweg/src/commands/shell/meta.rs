//! The shell's own commands.

use std::path::Path;

use thalweg_base::{Error, text};
use thalweg_engine::PolicyKind;

use super::{Next, Shell};
use crate::catalog;
use crate::failure::Outcome;
use crate::output::Format;
use crate::output::sink::Sink;

/// For help and completion: the command, its argument, what it does.
pub const COMMANDS: [(&str, &str, &str); 12] = [
    ("\\?", "", "this help"),
    ("\\d", "[TABLE]", "tables and views, or the columns of a table"),
    ("\\dt", "", "tables"),
    ("\\dv", "", "views"),
    ("\\format", "[FORMAT]", "how results are written: table, csv, json, parquet, arrow"),
    ("\\i", "FILE", "run the statements in a file"),
    ("\\o", "[FILE]", "write results to a file; without FILE, to the screen again"),
    ("\\policy", "[POLICY]", "order of concurrent queries: fair, small_first, round_robin, fifo"),
    ("\\timing", "[on|off]", "show how long each statement took"),
    ("\\x", "[on|off]", "one line per value instead of one per row"),
    ("\\q", "", "leave (also Ctrl-D)"),
    ("help", "", "as \\?"),
];

const KEYS: &str = "
Enter runs a statement that ends with `;`, or begins a new line. Tab completes.
Ctrl-C cancels the running query, or clears the line. Ctrl-R searches the history.";

impl Shell {
    pub fn command(&mut self, line: &str) -> Outcome<Next> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        let argument = (!argument.is_empty()).then_some(argument);
        match name.to_ascii_lowercase().as_str() {
            "\\?" | "\\h" | "\\help" | "help" => self.help()?,
            "\\q" | "\\quit" | "quit" | "exit" => return Ok(Next::Leave),
            "\\d" => match argument {
                Some(table) => self.describe(table)?,
                None => self.list(&["table", "view", "external"])?,
            },
            "\\dt" => self.list(&["table", "external"])?,
            "\\dv" => self.list(&["view"])?,
            "\\timing" => {
                self.timing = switch(name, argument, self.timing)?;
                self.tell(&format!("timing is {}", on_off(self.timing)))?;
            }
            "\\x" => {
                self.runner.expanded = switch(name, argument, self.runner.expanded)?;
                self.tell(&format!("expanded output is {}", on_off(self.runner.expanded)))?;
            }
            "\\policy" => self.policy(argument)?,
            "\\format" => self.format(argument)?,
            "\\i" => self.include(argument)?,
            "\\o" => self.redirect(argument)?,
            _ => {
                return Err(Error::user(format!("there is no command {name}"))
                    .hint("\\? lists the commands")
                    .into());
            }
        }
        Ok(Next::Prompt)
    }

    fn help(&mut self) -> Outcome {
        let lines = COMMANDS.map(|(name, argument, what)| {
            format!("  {:<18} {what}", format!("{name} {argument}").trim_end())
        });
        self.say(&format!("{}\n{KEYS}", lines.join("\n")))
    }

    fn list(&mut self, kinds: &[&str]) -> Outcome {
        let snapshot = self.runner.engine.database().snapshot();
        catalog::relations(&snapshot, kinds)?.write(Format::Table, &mut self.sink)
    }

    fn describe(&mut self, name: &str) -> Outcome {
        let snapshot = self.runner.engine.database().snapshot();
        let name = name.trim_matches('"');
        if let Some((kind, sql)) = catalog::definition(&snapshot, name) {
            return self.say(&format!("{kind} {}:\n{sql}", text::quoted(name)));
        }
        let table = catalog::find(&snapshot, name)?;
        catalog::columns(table, None)?.write(Format::Table, &mut self.sink)?;
        if !table.cluster_by.is_empty() {
            let names =
                table.cluster_by.iter().map(|c| table.arrow_schema.field(*c).name().as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            self.say(&format!("clustered by {names}"))?;
        }
        if let Some(by) = table.partition_by {
            let name = table.arrow_schema.field(by.column).name();
            self.say(&format!("partitioned by hash of {name} into {}", by.buckets))?;
        }
        Ok(())
    }

    fn policy(&mut self, name: Option<&str>) -> Outcome {
        if let Some(name) = name {
            self.runner.engine.set_policy(name.parse::<PolicyKind>()?);
        }
        let policy = self.runner.engine.policy();
        self.tell(&format!("policy is {policy}"))
    }

    fn format(&mut self, name: Option<&str>) -> Outcome {
        if let Some(name) = name {
            self.runner.format = name.parse()?;
        }
        self.tell(&format!("format is {}", self.runner.format))
    }

    fn include(&mut self, file: Option<&str>) -> Outcome {
        let Some(file) = file else {
            return Err(Error::user("\\i needs the name of a file").into());
        };
        let script = std::fs::read_to_string(file)
            .map_err(|e| Error::io(format!("cannot read {}", text::quoted(file)), e))?;
        self.statements(&script)
    }

    /// Closes the file results went to, if they did, and opens the next.
    pub fn redirect(&mut self, file: Option<&str>) -> Outcome {
        let next = match file {
            Some(file) => Sink::file(Path::new(file))?,
            None => Sink::stdout(),
        };
        let last = std::mem::replace(&mut self.sink, next);
        let written = last.path().map(|p| p.display().to_string());
        last.finish()?;
        match written {
            Some(path) => self.tell(&format!("wrote {path}")),
            None => Ok(()),
        }
    }

    /// Confirms to a person; a script's output stays clean.
    fn tell(&mut self, message: &str) -> Outcome {
        if self.interactive { self.say(message) } else { Ok(()) }
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn switch(name: &str, argument: Option<&str>, now: bool) -> Outcome<bool> {
    match argument {
        None => Ok(!now),
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(_) => Err(Error::user(format!("{name} takes on, off or nothing")).into()),
    }
}
