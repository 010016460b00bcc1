//! What a load found out, changed and left out, for the person who ran it.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringArray, UInt64Array};
use arrow::record_batch::RecordBatch;
use thalweg_base::text;
use thalweg_engine::{ColumnChanges, InferredColumn, LoadPlan, LoadReport, sql_type};

use crate::catalog::Listing;
use crate::failure::Outcome;
use crate::output::Format;
use crate::output::sink::Sink;

/// Rejected rows that are shown; the others are only counted.
const REJECTS_SHOWN: usize = 5;

pub fn loaded(reports: &[LoadReport], reject_file: Option<&Path>, seconds: f64) -> Outcome {
    let mut sink = Sink::stdout();
    for report in reports {
        changes(&report.table, &report.changes, report.files, &mut sink)?;
    }
    tables(reports)?.write(Format::Table, &mut sink)?;
    total(reports, seconds, &mut sink)?;
    rejects(reports, reject_file, &mut sink)?;
    for report in reports.iter().filter(|r| r.skipped > 0) {
        writeln!(
            sink,
            "{}: {} were loaded before and are skipped",
            report.table,
            counted(report.skipped as u64, "file")
        )?;
    }
    sink.finish()
}

/// For `--dry-run`.
pub fn planned(plans: &[LoadPlan]) -> Outcome {
    let mut sink = Sink::stdout();
    for (i, plan) in plans.iter().enumerate() {
        if i > 0 {
            writeln!(sink)?;
        }
        changes(&plan.table, &plan.changes, plan.files.len(), &mut sink)?;
        let files = counted(plan.files.len() as u64, "file");
        match plan.rows {
            Some(rows) => writeln!(
                sink,
                "{}: {} of {files} looked at, nothing loaded",
                plan.table,
                counted(rows, "row")
            )?,
            None => writeln!(sink, "{}: {files}, nothing loaded", plan.table)?,
        }
        for statement in &plan.sql {
            writeln!(sink, "{statement}")?;
        }
        if !plan.creates && plan.sql.is_empty() {
            writeln!(sink, "{} stays as it is", plan.table)?;
        }
    }
    sink.finish()
}

/// The columns of a table that is new, or new in one that was there.
fn changes(table: &str, changes: &ColumnChanges, files: usize, sink: &mut Sink) -> Outcome {
    if let Some(inferred) = &changes.inferred {
        columns(format!("{table}: columns found in the files"), inferred)?
            .write(Format::Table, sink)?;
    }
    if !changes.added.is_empty() {
        columns(format!("{table}: columns added"), &changes.added)?.write(Format::Table, sink)?;
    }
    for (name, lacking) in &changes.missing {
        let files = part(*lacking, files);
        writeln!(sink, "{table}: column {} is missing in {files}", text::quoted(name))?;
    }
    for (name, having) in &changes.ignored {
        let files = part(*having, files);
        writeln!(sink, "{table}: column {} of {files} is left out", text::quoted(name))?;
    }
    Ok(())
}

/// `2 of 5 files`
fn part(some: usize, all: usize) -> String {
    match all {
        1 => "the file".into(),
        _ if some == all => format!("all {all} files"),
        _ => format!("{some} of {all} files"),
    }
}

fn columns(title: String, columns: &[InferredColumn]) -> Outcome<Listing> {
    let strings = |of: &dyn Fn(&InferredColumn) -> String| -> ArrayRef {
        Arc::new(columns.iter().map(|c| Some(of(c))).collect::<StringArray>())
    };
    let nulls = |c: &InferredColumn| match (c.nulls, c.null_spellings.as_slice()) {
        (None, _) => "-".to_owned(),
        // The empty field goes without saying.
        (Some(n), [] | [_]) if c.null_spellings.iter().all(String::is_empty) => text::count(n),
        (Some(n), spellings) => {
            let quoted: Vec<String> = spellings.iter().map(|s| text::quoted(s)).collect();
            format!("{} ({})", text::count(n), quoted.join(", "))
        }
    };
    let batch = RecordBatch::try_from_iter([
        ("column", strings(&|c| c.name.clone())),
        ("type", strings(&|c| sql_type(&c.data_type))),
        ("nulls", strings(&nulls)),
        ("why", strings(&|c| c.why.clone())),
    ])?;
    Ok(Listing { title: Some(title), batch, count: false })
}

fn tables(reports: &[LoadReport]) -> Outcome<Listing> {
    let numbers = |f: fn(&LoadReport) -> u64| {
        Arc::new(reports.iter().map(f).collect::<UInt64Array>()) as ArrayRef
    };
    let names = Arc::new(reports.iter().map(|r| Some(&r.table)).collect::<StringArray>());
    let ratios = reports.iter().map(|r| ratio(r.raw_bytes, r.stored_bytes));
    let batch = RecordBatch::try_from_iter([
        ("table", names as ArrayRef),
        ("rows", numbers(|r| r.rows)),
        ("rejected", numbers(|r| r.rejects.len() as u64)),
        ("columns", numbers(|r| r.columns.fields().len() as u64)),
        ("files", numbers(|r| r.files as u64)),
        ("raw_bytes", numbers(|r| r.raw_bytes)),
        ("stored_bytes", numbers(|r| r.stored_bytes)),
        ("ratio", Arc::new(ratios.collect::<Float64Array>()) as ArrayRef),
        ("extents", numbers(|r| r.extents as u64)),
        ("chunks", numbers(|r| r.chunks as u64)),
    ])?;
    Ok(Listing { title: None, batch, count: false })
}

fn total(reports: &[LoadReport], seconds: f64, sink: &mut Sink) -> Outcome {
    let rows: u64 = reports.iter().map(|r| r.rows).sum();
    let raw: u64 = reports.iter().map(|r| r.raw_bytes).sum();
    let stored: u64 = reports.iter().map(|r| r.stored_bytes).sum();
    write!(
        sink,
        "{} rows in {}, {}/s; {} raw, {} stored",
        text::count(rows),
        text::seconds(seconds),
        text::bytes((raw as f64 / seconds.max(1e-6)) as u64),
        text::bytes(raw),
        text::bytes(stored),
    )?;
    match ratio(raw, stored) {
        Some(ratio) => writeln!(sink, " ({ratio:.1} to 1)")?,
        None => writeln!(sink)?,
    }
    Ok(())
}

fn rejects(reports: &[LoadReport], file: Option<&Path>, sink: &mut Sink) -> Outcome {
    let all = || reports.iter().flat_map(|r| &r.rejects);
    let count = all().count();
    if count == 0 {
        return Ok(());
    }
    let rows = counted(count as u64, "bad row");
    if let Some(file) = file {
        let file = text::quoted(&file.to_string_lossy());
        writeln!(sink, "{rows} left out and written to {file}")?;
        return Ok(());
    }
    writeln!(sink, "{rows} left out; --rejects FILE writes them down:")?;
    for reject in all().take(REJECTS_SHOWN) {
        writeln!(sink, "  {}", reject.message())?;
    }
    if count > REJECTS_SHOWN {
        writeln!(sink, "  and {} more", text::count((count - REJECTS_SHOWN) as u64))?;
    }
    Ok(())
}

/// `1 row`, `2 rows`
pub fn counted(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", text::count(n))
}

/// How many raw bytes one stored byte stands for.
fn ratio(raw: u64, stored: u64) -> Option<f64> {
    (stored > 0).then(|| raw as f64 / stored as f64)
}
