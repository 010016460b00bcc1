//! `thalweg sql`: run statements and write their results.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use thalweg_base::{Error, Result, text};
use thalweg_engine::{PolicyKind, Session};

use crate::database::{self, Settings};
use crate::failure::{Failure, Outcome};
use crate::output::Format;
use crate::output::sink::Sink;
use crate::script;
use crate::statement::Runner;

/// Run SQL statements and write their results
///
/// Statements come from -c (which may be repeated and may hold several, separated by `;`), from a
/// file, or from standard input. They run in order; the first that fails ends the command.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Folder of the database, or `:memory:` for one that ends with the command
    #[arg(value_name = "DB")]
    database: String,

    /// Statements to run; may be repeated
    #[arg(
        short,
        long = "command",
        value_name = "SQL",
        conflicts_with = "file",
        allow_hyphen_values = true
    )]
    command: Vec<String>,

    /// Run the statements in FILE; `-` reads standard input, as does leaving out both -c and -f
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,

    /// How results are written
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// Write results to FILE, which appears (or is replaced) only when all statements succeeded
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// In tables, write one line per value instead of one per row
    #[arg(short = 'x', long)]
    expanded: bool,

    /// Say on stderr how long each statement took
    #[arg(long)]
    timing: bool,

    /// Cancel a statement that runs longer than this; fractions are allowed
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

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

    /// Create the database if it is not there
    #[arg(long)]
    create: bool,
}

const AFTER: &str = "\
Examples:
  thalweg sql shop.db -c 'SELECT count(*) FROM orders'
  thalweg sql shop.db -c 'SELECT * FROM orders' --format csv > orders.csv
  thalweg sql shop.db -c 'SELECT * FROM orders' --format parquet --output orders.parquet
  thalweg sql shop.db -f report.sql --timing --timeout 60
  echo 'SELECT 1' | thalweg sql :memory: -f - --format json

Formats:
  table    for reading. On a terminal wide columns are cut and long results show their first and
           last rows; in a pipe or a file everything is written.
  csv      a header line, then the rows (RFC 4180). NULL is an empty field, the empty string is
           \"\". Nothing else is on stdout. Each result has its own header line.
  json     one JSON object per line and row (NDJSON); NULL is null.
  parquet  an Apache Parquet file, compressed with zstd; exactly one statement with rows.
  arrow    an Arrow IPC file (Feather V2); exactly one statement with rows.
In json, parquet and arrow a second column named \"a\" becomes \"a_2\".";

pub fn run(args: Args) -> Outcome {
    refuse_binary_on_terminal(args.format, args.output.is_none())?;
    let scripts = scripts(&args)?;
    if args.format.is_binary() {
        exactly_one(&scripts, args.format)?;
    }
    let settings = Settings {
        threads: args.threads,
        policy: args.policy,
        memory: args.memory,
        ..Settings::default()
    };
    let engine = database::open(&args.database, args.create, &settings)?;
    let mut runner = Runner::new(engine, args.format);
    runner.expanded = args.expanded;
    runner.session.set_timeout(args.timeout);
    let mut sink = match &args.output {
        Some(path) => Sink::file(path)?,
        None => Sink::stdout(),
    };
    for script in &scripts {
        let lines = script::lines(&script.text, &script.statements);
        for (i, statement) in script.statements.iter().enumerate() {
            let elapsed =
                runner.run(statement, &mut sink).map_err(|e| script.locate(e, i, lines[i]));
            // What earlier statements wrote stays, also when this one failed.
            sink.flush()?;
            let elapsed = elapsed?;
            if args.timing {
                let _ =
                    writeln!(std::io::stderr(), "time: {}", text::seconds(elapsed.as_secs_f64()));
            }
        }
    }
    sink.finish()
}

struct Script {
    /// The file it came from, for messages.
    file: Option<String>,
    text: String,
    statements: Vec<String>,
}

impl Script {
    fn new(file: Option<String>, text: String) -> Result<Script> {
        let statements = Session::split(&text).map_err(|e| match &file {
            Some(file) => e.context(file),
            None => e,
        })?;
        Ok(Script { file, text, statements })
    }

    /// In a script of one statement there is nothing to find.
    fn locate(&self, failure: Failure, index: usize, line: usize) -> Failure {
        let Failure::Error(error) = failure else { return failure };
        if self.statements.len() < 2 || error.detail_text().is_some() {
            return error.into();
        }
        let mut place = format!("in statement {} of {}", index + 1, self.statements.len());
        if let (Some(file), 1..) = (&self.file, line) {
            place.push_str(&format!(", line {line} of {file}"));
        }
        error.detail(place).into()
    }
}

fn scripts(args: &Args) -> Result<Vec<Script>> {
    if !args.command.is_empty() {
        return args.command.iter().map(|sql| Script::new(None, sql.clone())).collect();
    }
    let file = args.file.as_deref().unwrap_or("-");
    if file != "-" {
        let text = std::fs::read_to_string(file)
            .map_err(|e| Error::io(format!("cannot read {}", text::quoted(file)), e))?;
        return Ok(vec![Script::new(Some(file.to_string()), text)?]);
    }
    let mut stdin = std::io::stdin();
    if args.file.is_none() && stdin.is_terminal() {
        return Err(Error::user("there is nothing to run")
            .hint("give a statement with -c or a file with -f; `thalweg shell` is interactive"));
    }
    let mut text = String::new();
    stdin.read_to_string(&mut text).map_err(|e| Error::io("cannot read standard input", e))?;
    Ok(vec![Script::new(Some("standard input".to_string()), text)?])
}

fn exactly_one(scripts: &[Script], format: Format) -> Result<()> {
    let statements: usize = scripts.iter().map(|s| s.statements.len()).sum();
    if statements == 1 {
        return Ok(());
    }
    Err(Error::user(format!("--format {format} takes one statement, not {statements}"))
        .hint("a file of this format holds one result; run `thalweg sql` once for each"))
}

/// Bytes of a Parquet file would only garble a screen.
fn refuse_binary_on_terminal(format: Format, to_stdout: bool) -> Result<()> {
    if format.is_binary() && to_stdout && std::io::stdout().is_terminal() {
        return Err(Error::user(format!("{format} output is not for a terminal"))
            .hint("add --output FILE, or pipe it into a program"));
    }
    Ok(())
}

/// Also for `shell` and `load`.
pub fn threads(value: &str) -> std::result::Result<usize, String> {
    match value.parse() {
        Ok(n @ 1..=4096) => Ok(n),
        _ => Err("expected a number from 1 to 4096".to_string()),
    }
}

fn seconds(value: &str) -> std::result::Result<Duration, String> {
    let seconds: Option<f64> = value.parse().ok();
    seconds
        .filter(|s| *s > 0.0)
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "expected a number of seconds above 0".to_string())
}
