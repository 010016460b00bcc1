//! The subcommands, one per file: what each takes (clap), what it does, and its `--help`.

mod backup;
mod bench;
mod calibrate;
mod check;
mod inspect;
mod load;
mod replay;
mod restore;
mod serve;
mod shell;
mod sql;

use clap::{Parser, Subcommand};

use crate::failure::Outcome;

#[derive(Parser)]
#[command(name = "thalweg", version, about, long_about = LONG, after_long_help = AFTER)]
#[command(max_term_width = 100, disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const LONG: &str = "\
Thalweg is an analytical SQL engine for many queries at once on one machine.

A database is a folder. Load files into it, then query it with SQL; several queries run at the \
same time under a scheduling policy that keeps short ones short.";

const AFTER: &str = "\
Examples:
  thalweg load shop.db orders orders.csv         load a file into a table
  thalweg sql shop.db -c 'SELECT count(*) FROM orders'
  thalweg shell shop.db                          type SQL, see tables
  thalweg sql :memory: -c \"SELECT * FROM 'data/*.parquet' LIMIT 10\"

Exit codes:
  0    done
  1    the statement, the input or an argument is wrong, or asks for what is not built
  2    the command line is not understood
  3    out of memory, disk or another resource; the database is in use; an I/O error
  4    stored data is damaged
  70   a mistake in Thalweg: please report it
  130  cancelled by Ctrl-C or --timeout

`thalweg COMMAND --help` explains a command and gives examples.";

#[derive(Subcommand)]
enum Command {
    Load(load::Args),
    Sql(sql::Args),
    Shell(shell::Args),
    Inspect(inspect::Args),
    Check(check::Args),
    Bench(bench::Args),
    Replay(replay::Args),
    Calibrate(calibrate::Args),
    Serve(serve::Args),
    Backup(backup::Args),
    Restore(restore::Args),
}

pub fn run() -> Outcome {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(error),
    };
    match cli.command {
        Command::Load(args) => load::run(args),
        Command::Sql(args) => sql::run(args),
        Command::Shell(args) => shell::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Check(args) => check::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Restore(args) => restore::run(args),
    }
}

/// `--help` and `--version` arrive here too, on stdout; a reader of theirs that has left is no
/// error either.
fn usage(error: clap::Error) -> Outcome {
    error.print()?;
    if error.use_stderr() {
        std::process::exit(error.exit_code())
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
