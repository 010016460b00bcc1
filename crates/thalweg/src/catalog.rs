//! What a database holds, as results: for `thalweg inspect` and the shell's `\d`.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray, UInt64Array};
use arrow::datatypes::{Field, Float64Type, UInt64Type};
use arrow::record_batch::RecordBatch;
use thalweg_base::{Error, Result, text};
use thalweg_engine::sql_type_of;
use thalweg_storage::{Snapshot, Table};

use crate::failure::Outcome;
use crate::output::sink::Sink;
use crate::output::table::Table as TableWriter;
use crate::output::{self, Format, ResultWriter, cells};
use crate::statement::look;

/// A result of our own making. Columns whose name ends in `_bytes` are shown as sizes.
pub struct Listing {
    /// Shown above the table, not in the formats for programs.
    pub title: Option<String>,
    pub batch: RecordBatch,
    /// Whether the table ends with its number of rows.
    pub count: bool,
}

impl Listing {
    fn new(columns: Vec<(&str, ArrayRef)>) -> Outcome<Listing> {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )?;
        Ok(Listing { title: None, batch, count: true })
    }

    fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    pub fn write(&self, format: Format, sink: &mut Sink) -> Outcome {
        if format != Format::Table {
            let look = output::Look::default();
            let mut writer = output::writer(format, look, &self.batch.schema(), sink)?;
            writer.batch(&self.batch)?;
            return writer.finish();
        }
        if let Some(title) = &self.title {
            writeln!(sink, "{title}")?;
        }
        let readable = readable(&self.batch)?;
        let numbers = self.batch.columns().iter().map(|c| cells::is_number(c.data_type()));
        // Every row of a listing was asked for.
        let look = output::Look { rows_max: None, ..look(sink) };
        let mut writer =
            TableWriter::new(&readable.schema(), look, sink).right_aligned(numbers.collect());
        if !self.count {
            writer = writer.uncounted();
        }
        writer.batch(&readable)?;
        Box::new(writer).finish()
    }
}

/// `1536` in a column `stored_bytes` → `1.5 KiB` in a column `stored`.
fn readable(batch: &RecordBatch) -> Outcome<RecordBatch> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let name = field.name().as_str();
        if let Some(values) = column.as_primitive_opt::<UInt64Type>() {
            return match name.strip_suffix("_bytes") {
                Some(name) => (name, spelled(values.iter(), text::bytes), true),
                None => (name, spelled(values.iter(), text::count), true),
            };
        }
        match column.as_primitive_opt::<Float64Type>() {
            Some(values) => (name, spelled(values.iter(), |v| format!("{v:.1}")), true),
            None => (name, column.clone(), true),
        }
    });
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn spelled<T>(values: impl Iterator<Item = Option<T>>, spell: impl Fn(T) -> String) -> ArrayRef {
    strings(values.map(|v| Some(v.map_or_else(|| "-".to_string(), &spell))))
}

fn strings(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn numbers(values: impl IntoIterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<UInt64Array>())
}

/// One line per table, view and external table.
pub fn relations(snapshot: &Snapshot, kinds: &[&str]) -> Outcome<Listing> {
    let mut names = Vec::new();
    for schema in snapshot.schemas.values() {
        let tables = schema.tables.values().map(|t| (&schema.name, &t.name, "table", Some(t)));
        let views = schema.views.values().map(|v| (&schema.name, &v.name, "view", None));
        let externals =
            schema.externals.values().map(|e| (&schema.name, &e.name, "external", None));
        names.extend(tables.chain(views).chain(externals).filter(|r| kinds.contains(&r.2)));
    }
    let of = |f: fn(&Table) -> u64| numbers(names.iter().map(|(.., t)| t.map(|t| f(t))));
    Listing::new(vec![
        ("schema", strings(names.iter().map(|n| Some(n.0.clone())))),
        ("name", strings(names.iter().map(|n| Some(n.1.clone())))),
        ("kind", strings(names.iter().map(|n| Some(n.2.to_string())))),
        ("columns", of(|t| t.arrow_schema.fields().len() as u64)),
        ("rows", of(Table::rows)),
        ("extents", of(|t| t.extents.len() as u64)),
        ("chunks", of(|t| t.chunks() as u64)),
        ("stored_bytes", of(Table::stored_bytes)),
    ])
}

/// The columns of a table and what is known about their values.
pub fn columns(table: &Table, only: Option<usize>) -> Outcome<Listing> {
    let fields = table.arrow_schema.fields();
    let shown: Vec<usize> = (0..fields.len()).filter(|c| only.is_none_or(|o| o == *c)).collect();
    let contents = table.contents()?;
    let statistics: Vec<_> = shown.iter().map(|c| contents.column_statistics(*c)).collect();
    let bound = |array: &Option<ArrayRef>, exact: bool| match array {
        Some(array) => bound(array, 0, exact),
        None => Ok(None),
    };
    let mins =
        statistics.iter().map(|s| bound(&s.min, s.min_exact)).collect::<Outcome<Vec<_>>>()?;
    let maxs =
        statistics.iter().map(|s| bound(&s.max, s.max_exact)).collect::<Outcome<Vec<_>>>()?;
    let field = |c: &usize| &fields[*c];
    Listing::new(vec![
        ("column", strings(shown.iter().map(|c| Some(field(c).name().clone())))),
        ("type", strings(shown.iter().map(|c| Some(declared(field(c)))))),
        ("nulls", numbers(statistics.iter().map(|s| Some(s.nulls)))),
        ("distinct", numbers(statistics.iter().map(|s| s.distinct))),
        ("min", strings(mins)),
        ("max", strings(maxs)),
        ("plain_bytes", numbers(statistics.iter().map(|s| Some(s.value_bytes)))),
        ("stored_bytes", numbers(statistics.iter().map(|s| Some(s.stored_bytes)))),
    ])
}

pub fn extents(table: &Table) -> Outcome<Listing> {
    let extents = || table.extents.iter().map(|e| &e.extent);
    let of = |f: fn(&thalweg_storage::Extent) -> u64| numbers(extents().map(|e| Some(f(e))));
    let per_row = extents().map(|e| match e.rows {
        0 => None,
        rows => Some(e.bytes as f64 / rows as f64),
    });
    Listing::new(vec![
        ("extent", of(|e| e.id.0)),
        ("rows", of(|e| e.rows)),
        ("chunks", of(|e| e.chunks() as u64)),
        ("stored_bytes", of(|e| e.bytes)),
        ("bytes_per_row", Arc::new(per_row.collect::<Float64Array>())),
    ])
    .map(|l| l.titled("extents"))
}

/// One line per chunk and column: what a query's conditions are compared with to skip it.
pub fn chunks(table: &Table, only: Option<usize>) -> Outcome<Listing> {
    let fields = table.arrow_schema.fields();
    let contents = table.contents()?;
    let columns: Vec<_> = (0..fields.len())
        .filter(|c| only.is_none_or(|o| o == *c))
        .map(|c| (fields[c].name(), contents.chunk_statistics(c)))
        .collect();
    let chunks = (0..contents.chunks()).map(|i| (i, contents.chunk(i)));
    let lines: Vec<_> =
        chunks.flat_map(|(i, chunk)| columns.iter().map(move |c| (i, chunk.clone(), c))).collect();
    let number = |f: &dyn Fn(&thalweg_storage::ChunkRef) -> u64| {
        numbers(lines.iter().map(|(_, chunk, _)| Some(f(chunk))))
    };
    let known = |f: &dyn Fn(&thalweg_storage::ChunkStatistics) -> &UInt64Array| {
        numbers(lines.iter().map(|(i, _, (_, s))| {
            let array = f(s);
            array.is_valid(*i).then(|| array.value(*i))
        }))
    };
    let mut mins = Vec::with_capacity(lines.len());
    let mut maxs = Vec::with_capacity(lines.len());
    for (i, _, (_, s)) in &lines {
        mins.push(bound(&s.mins, *i, s.min_exact.value(*i))?);
        maxs.push(bound(&s.maxs, *i, s.max_exact.value(*i))?);
    }
    Listing::new(vec![
        ("chunk", numbers(lines.iter().map(|l| Some(l.0 as u64)))),
        ("extent", number(&|c| c.extent().id.0)),
        ("first_row", number(&|c| c.first_row)),
        ("rows", number(&|c| c.rows as u64)),
        ("column", strings(lines.iter().map(|l| Some(l.2.0.clone())))),
        ("nulls", known(&|s| &s.nulls)),
        ("distinct", known(&|s| &s.distincts)),
        ("min", strings(mins)),
        ("max", strings(maxs)),
        ("stored_bytes", known(&|s| &s.stored_bytes)),
    ])
}

/// A bound that was cut short ends in `…`.
fn bound(array: &ArrayRef, row: usize, exact: bool) -> Outcome<Option<String>> {
    let text = cells::single(array, row)?;
    Ok(text.map(|t| if exact { t } else { t + "…" }))
}

/// Finds `[schema.]table`; without a schema, in "public" first and then wherever it is unique.
pub fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Result<&'s Arc<Table>> {
    let every =
        || snapshot.schemas.values().flat_map(|s| s.tables.values().map(move |t| (&s.name, t)));
    let fits = |schema: &str, table: &str, fold: bool| {
        let same = |a: &str, b: &str| if fold { a.eq_ignore_ascii_case(b) } else { a == b };
        same(table, name)
            || name.split_once('.').is_some_and(|(s, t)| same(schema, s) && same(table, t))
    };
    for fold in [false, true] {
        let mut found: Vec<_> = every().filter(|(s, t)| fits(s, &t.name, fold)).collect();
        if found.len() > 1 {
            found.retain(|(s, _)| *s == "public");
        }
        if let [(_, table)] = found[..] {
            return Ok(table);
        }
    }
    let mut names: Vec<_> = every().map(|(_, t)| t.name.as_str()).collect();
    names.truncate(20);
    let hint = match names.is_empty() {
        true => "the database has no tables".to_string(),
        false => format!("the tables are {}", names.join(", ")),
    };
    Err(Error::user(format!("there is no table {}", text::quoted(name))).hint(hint))
}

/// The kind and text of a view or an external table.
pub fn definition<'s>(snapshot: &'s Snapshot, name: &str) -> Option<(&'static str, &'s str)> {
    let (schema, name) = name.split_once('.').unwrap_or(("public", name));
    let schema = snapshot.schemas.get(schema)?;
    let view = schema.views.get(name).map(|v| ("view", v.sql.as_str()));
    view.or_else(|| schema.externals.get(name).map(|e| ("external table", e.sql.as_str())))
}

/// The type as CREATE TABLE would say it.
fn declared(field: &Field) -> String {
    let suffix = if field.is_nullable() { "" } else { " not null" };
    sql_type_of(field) + suffix
}
