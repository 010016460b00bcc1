//! The benchmark's files into a database, through the same loader as `thalweg load`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use thalweg_base::{Error, Result};
use thalweg_engine::{Engine, LoadProgress, LoadReport, LoadRequest, Session};

use crate::generate::GeneratedTable;
use crate::report::model::{Load, LoadTable};
use crate::run::{Sample, Watch};
use crate::workload::Workload;

/// Makes and fills the tables; `None` if they are there already, with the rows they should have.
pub fn load(
    engine: &Arc<Engine>,
    workload: &Workload,
    files: &[GeneratedTable],
    watch: &Watch,
) -> Result<Option<Load>> {
    let snapshot = engine.database().snapshot();
    let rows = |name: &str| snapshot.table("public", name).map(|t| t.rows());
    if files.iter().all(|f| rows(&f.name) == Some(f.rows)) {
        return Ok(None);
    }
    if let Some(other) = files.iter().find(|f| rows(&f.name).is_some()) {
        return Err(Error::user(format!("the database has another table \"{}\"", other.name))
            .hint("name another folder with --db"));
    }
    let session = engine.session();
    for statement in Session::split(workload.schema)? {
        engine.block_on(session.query(&statement))?;
    }
    let requests = files.iter().map(|table| LoadRequest {
        table: table.name.clone(),
        files: table.files.iter().map(|f| f.to_string_lossy().into_owned()).collect(),
        ..LoadRequest::default()
    });
    let progress = Arc::new(LoadProgress::default());
    let seen = Arc::clone(&progress);
    let watching = watch(Box::new(move || Sample {
        table: Some(seen.table.lock().clone()),
        rows: seen.rows.load(Ordering::Relaxed),
        bytes_done: seen.bytes_done.load(Ordering::Relaxed),
        bytes_total: seen.bytes_total.load(Ordering::Relaxed),
    }));
    let started = Instant::now();
    let reports = engine.block_on(session.load(requests.collect::<Vec<_>>(), progress))?;
    drop(watching);
    let tables = reports.iter().map(table).collect();
    Ok(Some(Load::new(tables, started.elapsed().as_secs_f64())))
}

pub(crate) fn table(report: &LoadReport) -> LoadTable {
    LoadTable::new(
        &report.table,
        report.rows,
        report.raw_bytes,
        report.stored_bytes,
        report.seconds,
        report.extents as u64,
        report.chunks as u64,
    )
}
