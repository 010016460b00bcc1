//! `thalweg inspect`: how a database stores its tables.

use thalweg_base::{Error, text};

use crate::catalog::{self, Listing};
use crate::database::{self, MEMORY, Settings};
use crate::failure::Outcome;
use crate::output::Format;
use crate::output::sink::Sink;

/// Show how a database stores its tables
///
/// Without TABLE: every table and view, with its size. With TABLE: its columns, their statistics
/// and its extents (files). Sizes are bytes on disk.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: String,

    /// A table, as TABLE or SCHEMA.TABLE
    #[arg(value_name = "TABLE")]
    table: Option<String>,

    /// Show the table's extents: the files its rows lie in
    #[arg(long, requires = "table", conflicts_with_all = ["chunks", "column"])]
    extents: bool,

    /// Show what is known about each chunk: the statistics by which queries skip it
    #[arg(long, requires = "table")]
    chunks: bool,

    /// Show only this column
    #[arg(long, value_name = "COLUMN", requires = "table")]
    column: Option<String>,

    /// How the result is written
    #[arg(long, value_enum, default_value = "table", value_parser = formats())]
    format: Format,
}

const AFTER: &str = "\
Examples:
  thalweg inspect shop.db                              all tables and views
  thalweg inspect shop.db orders                       columns and extents of a table
  thalweg inspect shop.db orders --chunks --column day
  thalweg inspect shop.db orders --extents --format csv

In csv and json, sizes are bytes, and a table without --extents or --chunks lists its columns.
Numbers of distinct values are estimates. A minimum or maximum that ends in … was cut short.";

fn formats() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(["table", "json", "csv"]).try_map(|name| name.parse::<Format>())
}

pub fn run(args: Args) -> Outcome {
    if args.database == MEMORY {
        return Err(Error::user(format!("{MEMORY} holds nothing to inspect"))
            .hint("name the folder of a database")
            .into());
    }
    let engine = database::open(&args.database, false, &Settings::default())?;
    let snapshot = engine.database().snapshot();
    let mut sink = Sink::stdout();
    for listing in listings(&args, &snapshot)? {
        listing.write(args.format, &mut sink)?;
    }
    sink.finish()
}

fn listings(args: &Args, snapshot: &thalweg_storage::Snapshot) -> Outcome<Vec<Listing>> {
    let Some(name) = &args.table else {
        return Ok(vec![catalog::relations(snapshot, &["table", "view", "external"])?]);
    };
    let table = catalog::find(snapshot, name)?;
    let column = match &args.column {
        Some(column) => Some(table.arrow_schema.index_of(column).map_err(|_| {
            let names: Vec<_> =
                table.arrow_schema.fields().iter().map(|f| f.name().as_str()).collect();
            Error::user(format!(
                "table {} has no column {}",
                text::quoted(name),
                text::quoted(column)
            ))
            .hint(format!("its columns are {}", names.join(", ")))
        })?),
        None => None,
    };
    if args.chunks {
        return Ok(vec![catalog::chunks(table, column)?]);
    }
    if args.extents {
        return Ok(vec![catalog::extents(table)?]);
    }
    let mut listings = vec![catalog::columns(table, column)?];
    if args.format == Format::Table && column.is_none() {
        listings.push(catalog::extents(table)?);
    }
    Ok(listings)
}
