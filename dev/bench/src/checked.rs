//! Whether the answers of a run are right.

use std::sync::Arc;

use thalweg_base::{Error, Result};
use thalweg_engine::Engine;

use crate::compare;
use crate::generate::{Benchmark, GeneratedTable};
use crate::report::model::Report;
use crate::run::Options;
use crate::workload::Workload;

/// Checks every answer, prints what came of it and notes it in the report; returns a line for each
/// that is wrong.
pub(crate) fn check(
    engine: &Arc<Engine>,
    workload: &Workload,
    options: &Options,
    files: &[GeneratedTable],
    report: &mut Report,
) -> Result<Vec<String>> {
    let wrong = compare::check(engine, workload, options, files)?;
    let kind = if workload.benchmark == Benchmark::Tpch && options.scale_factor == 1.0 {
        "the specification's validation answers"
    } else {
        "DuckDB's"
    };
    let right = workload.queries.len() - wrong.len();
    let note = format!("{right} of {} answers agree with {kind}.", workload.queries.len());
    println!("{note}\n");
    for line in &wrong {
        println!("  {line}");
    }
    report.notes.push(note);
    report.notes.extend(wrong.iter().cloned());
    Ok(wrong)
}

/// An error if there is a line for a wrong answer.
pub(crate) fn none_wrong(wrong: &[String]) -> Result<()> {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::internal(format!("{} answers are wrong", wrong.len())).detail(wrong.join("\n")))
    }
}
