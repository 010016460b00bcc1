//! `COPY t FROM 'file'` and `COPY t TO 'file'`, in the spellings of PostgreSQL, DuckDB and
//! DataFusion:
//!
//! ```text
//! COPY t [(a, b)] FROM 'a.csv' [, 'b.csv'] [WITH] (FORMAT csv, HEADER false, DELIMITER ';')
//! COPY t | (SELECT …) TO 'out.parquet' [STORED AS PARQUET] [PARTITIONED BY (a)] [(options)]
//! ```
//! `STDIN` and `STDOUT` in place of a file are the client's, of a server: [`ClientCopy`].
//!
//! A file that is written appears under its name when it is whole, and not at all after an error.

mod command;
mod write;

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{Expr, SelectItem};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::load::{CsvOptions, Format, JsonOptions};

pub use self::command::ClientCopy;
pub(crate) use self::command::{Copy, parse};
use self::command::{Setting, Source};
use self::write::WriteOptions;
use crate::access::PG_WRITE_SERVER_FILES;
use crate::answer::Tag;
use crate::as_of;
use crate::dml::{Job, target};
use crate::load::{self, Load, LoadRequest};
use crate::names;
use crate::statement::{self, Started};
use thalweg_errors::from_datafusion;
use thalweg_runtime::blocking;

impl Copy {
    pub async fn run(self, job: &Job<'_>) -> Result<Started> {
        if self.client {
            return Err(Error::unsupported("there is no client to copy from or to").hint(
                "`thalweg load` takes standard input, `thalweg sql --format csv` writes standard \
                 output",
            ));
        }
        if self.to { self.write(job).await } else { self.read(job).await }
    }

    async fn read(self, job: &Job<'_>) -> Result<Started> {
        let Source::Table(name, columns) = self.source else {
            return Err(Error::user("COPY … FROM takes a table, not a query"));
        };
        let (schema, table) = target::table(&job.snapshot, &name, "COPY")?;
        let mut request = LoadRequest {
            table: TableReference::partial(schema, table.name.as_str()).to_quoted_string(),
            files: self.files,
            ..LoadRequest::default()
        };
        if !columns.is_empty() {
            request.input_columns = Some(columns.iter().map(names::ident).collect());
        }
        let mut load = Load::from(vec![]);
        read_options(&mut request, &mut load, &self.options)?;
        load.requests.push(request);
        load::may_load(&job.session.catalog.viewer(), &job.snapshot, &load)?;
        let reports = load::copy_from(job.session, Arc::clone(&job.snapshot), load).await?;
        let rows = reports.iter().map(|r| r.rows).sum();
        Ok(Started::Done(Tag::Count("COPY".into(), rows)))
    }

    async fn write(self, job: &Job<'_>) -> Result<Started> {
        let [target] = &self.files[..] else {
            return Err(Error::user("COPY … TO writes one file or folder"));
        };
        let viewer = job.session.catalog.viewer();
        viewer.check_member(PG_WRITE_SERVER_FILES, "write files of the server")?;
        let options = WriteOptions::new(target, &self.options)?;
        let source = match self.source {
            Source::Query(mut query) => {
                as_of::resolve_in(&job.session.catalog, job.state, query.as_mut()).await?;
                CopyToSource::Query(query)
            }
            Source::Table(name, columns) if columns.is_empty() => CopyToSource::Relation(name),
            Source::Table(name, columns) => {
                let items = columns.into_iter().map(Expr::Identifier);
                let items = items.map(SelectItem::UnnamedExpr).collect();
                let from = vec![target::alone(target::named(name, None))];
                CopyToSource::Query(Box::new(target::select(None, items, from, None)))
            }
        };
        let place = options.place(target)?;
        let format = options.format.clone();
        let copy = Statement::CopyTo(CopyToStatement {
            source,
            target: place.written(),
            // The planner would look for them in what stands for the query here.
            partitioned_by: vec![],
            stored_as: Some(options.format),
            options: options.datafusion,
        });
        let mut plan = statement::plan(job.state, copy).await.map_err(from_datafusion)?;
        if let LogicalPlan::Copy(copy) = &mut plan {
            copy.partition_by = options.partition_by;
            write::suit(copy, &format)?;
        }
        let rows = statement::execute_count(job.run, job.state, &plan)
            .await
            .map_err(|e| e.context(format!("COPY TO {}", quoted(target))))?;
        blocking(move || place.publish()).await.map_err(from_datafusion)?;
        Ok(Started::Done(Tag::Count("COPY".into(), rows)))
    }
}

/// PostgreSQL's and DuckDB's options of files that are read.
fn read_options(request: &mut LoadRequest, load: &mut Load, options: &[Setting]) -> Result<()> {
    for option in options {
        let name = option.name.strip_prefix("format.").unwrap_or(&option.name);
        match name {
            "format" => {
                let value = option.text()?.to_lowercase();
                request.format = Some(match value.as_str() {
                    "csv" => Format::Csv(CsvOptions::sniffed()),
                    "text" => {
                        return Err(Error::unsupported(
                            "COPY … FROM reads no FORMAT text from files",
                        )
                        .hint(
                            "(FORMAT csv, DELIMITER E'\\t', NULL '\\N') reads it if nothing in it \
                                 is escaped; a client sends it with COPY … FROM STDIN",
                        ));
                    }
                    "json" | "jsonl" | "ndjson" => Format::Json(JsonOptions::default()),
                    "xlsx" => Format::Json(JsonOptions::of_book()),
                    "parquet" => Format::Parquet,
                    "arrow" | "feather" => Format::Arrow,
                    // As DuckDB has it, the format is also how records lie in a file of JSON.
                    other => {
                        let mut json = JsonOptions::default();
                        match json.tell("format", &option.values) {
                            Ok(_) => Format::Json(json),
                            Err(_) => return Err(unknown_format(other)),
                        }
                    }
                });
            }
            "hive_partitioning" => request.options.push((name.to_owned(), option.values.clone())),
            "max_errors" => load.rejects_max = option.number()?,
            "reject_file" | "rejects" => load.reject_file = Some(option.text()?.into()),
            "ignore_errors" => load.rejects_max = if option.flag()? { u64::MAX } else { 0 },
            _ => {
                let name = if name == "has_header" { "header" } else { name };
                let values = &option.values;
                let of_csv = CsvOptions::sniffed().tell(name, values);
                let of_json = JsonOptions::default().tell(name, values);
                let of_book = JsonOptions::of_book().tell(name, values);
                match (of_csv, of_json) {
                    (Ok(false), Ok(false)) if of_book? => {
                        request.options.push((name.to_owned(), values.clone()));
                    }
                    (Ok(false), Ok(false)) => {
                        return Err(option.unknown(&format!(
                            "FORMAT, HIVE_PARTITIONING, MAX_ERRORS, IGNORE_ERRORS and REJECT_FILE are \
                             the options of COPY … FROM; of CSV {}; of JSON {}; of Excel {}",
                            Format::Csv(CsvOptions::sniffed()).known_options().1,
                            JsonOptions::NAMES,
                            Format::Json(JsonOptions::of_book()).known_options().1
                        )));
                    }
                    (Err(wrong), Ok(false)) | (Ok(false), Err(wrong)) => return Err(wrong),
                    _ => request.options.push((name.to_owned(), values.clone())),
                }
            }
        }
    }
    Ok(())
}

fn unknown_format(name: &str) -> Error {
    Error::user(format!("{} is not a format", quoted(name)))
        .hint("CSV, JSON, PARQUET and ARROW are")
}
