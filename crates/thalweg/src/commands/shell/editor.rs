//! The prompt: multi-line input, history, completion.

use std::borrow::Cow;
use std::path::PathBuf;

use rustyline::completion::{Completer, FilenameCompleter};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Helper};
use thalweg_base::{Error, Result};
use thalweg_engine::{PolicyKind, Session};

use super::is_command;
use super::meta::COMMANDS;
use crate::script::{self, State};

const PROMPT: &str = "thalweg> ";
const HISTORY_ENTRIES_MAX: usize = 10_000;

pub struct Editor {
    line: rustyline::Editor<Assistant, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Editor {
    pub fn new(session: &Session) -> Result<Editor> {
        let fail = |e| Error::internal(format!("cannot set up the terminal: {e}"));
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .max_history_size(HISTORY_ENTRIES_MAX)
            .map_err(fail)?
            .build();
        let mut line = rustyline::Editor::with_config(config).map_err(fail)?;
        line.set_helper(Some(Assistant {
            session: session.clone(),
            files: FilenameCompleter::new(),
        }));
        let history = crate::state::path("history");
        if let Some(path) = &history {
            // The first shell on a machine has none.
            let _ = line.load_history(path);
        }
        Ok(Editor { line, history })
    }

    pub fn read(&mut self) -> rustyline::Result<String> {
        self.line.readline(&(PROMPT, format!("\x1b[1;36m{PROMPT}\x1b[0m")))
    }

    /// Written at once, so that a killed shell loses nothing. The shell works without a history:
    /// where it cannot be written there is just none.
    pub fn remember(&mut self, input: &str) {
        if input.trim().is_empty()
            || !self.line.add_history_entry(input.trim_end()).unwrap_or(false)
        {
            return;
        }
        let Some(path) = &self.history else { return };
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let _ = self.line.append_history(path);
    }
}

struct Assistant {
    session: Session,
    files: FilenameCompleter,
}

impl Helper for Assistant {}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Borrowed(prompt)
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input();
        let open = !is_command(input) && script::state(input) == State::Partial;
        Ok(if open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..pos];
        if !before.starts_with('\\') {
            return Ok(self.sql(line, pos));
        }
        let Some((command, rest)) = before.split_once(char::is_whitespace) else {
            let names = COMMANDS.iter().map(|c| c.0).filter(|c| c.starts_with(before));
            return Ok((0, names.map(String::from).collect()));
        };
        let typed = rest.trim_start();
        let from = |words: &[&str]| {
            let fitting = words.iter().filter(|w| w.starts_with(typed));
            (pos - typed.len(), fitting.map(|w| w.to_string()).collect())
        };
        Ok(match command {
            "\\i" | "\\o" => {
                let (start, files) = self.files.complete_path(line, pos)?;
                (start, files.into_iter().map(|f| f.replacement).collect())
            }
            "\\policy" => from(&PolicyKind::ALL.map(PolicyKind::name)),
            "\\format" => from(&["table", "csv", "json", "parquet", "arrow"]),
            "\\timing" | "\\x" => from(&["on", "off"]),
            "\\d" => self.session.complete(line, pos),
            _ => (pos, Vec::new()),
        })
    }
}

impl Assistant {
    /// The names the session knows, and the keywords that begin like the word at the cursor.
    fn sql(&self, line: &str, pos: usize) -> (usize, Vec<String>) {
        let (start, mut found) = self.session.complete(line, pos);
        let word_start = line[..pos]
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
        let word = &line[word_start..pos];
        // Behind a dot only columns make sense, and an empty word fits every keyword.
        let dotted = line[..word_start].ends_with('.');
        if word.is_empty() || dotted || (start != word_start && !found.is_empty()) {
            return (start, found);
        }
        let upper = word.chars().all(|c| !c.is_lowercase());
        for keyword in KEYWORDS {
            if keyword.starts_with(&word.to_ascii_uppercase()) {
                let keyword =
                    if upper { keyword.to_string() } else { keyword.to_ascii_lowercase() };
                if !found.iter().any(|f| f.eq_ignore_ascii_case(&keyword)) {
                    found.push(keyword);
                }
            }
        }
        (word_start, found)
    }
}

/// Those worth a Tab; short ones are typed faster.
const KEYWORDS: [&str; 78] = [
    "ALTER",
    "ANALYZE",
    "AND",
    "ARRAY",
    "ASC",
    "AVG",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "CASE",
    "CAST",
    "CLUSTER BY",
    "COALESCE",
    "COMMIT",
    "COPY",
    "COUNT",
    "CREATE",
    "CROSS JOIN",
    "CURRENT_DATE",
    "DATE",
    "DECIMAL",
    "DELETE FROM",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTERNAL",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL JOIN",
    "GROUP BY",
    "HAVING",
    "INNER JOIN",
    "INSERT INTO",
    "INTEGER",
    "INTERSECT",
    "INTERVAL",
    "JOIN",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "NULL",
    "OFFSET",
    "ORDER BY",
    "OVER",
    "PARTITION BY",
    "RIGHT JOIN",
    "ROLLBACK",
    "SCHEMA",
    "SELECT",
    "SET",
    "SHOW TABLES",
    "STORED AS",
    "SUBSTRING",
    "SUM",
    "TABLE",
    "THEN",
    "TIMESTAMP",
    "TRUE",
    "UNION ALL",
    "UPDATE",
    "USING",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
];
