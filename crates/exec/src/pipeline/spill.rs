//! What sinks that were refused memory have, in files.
//!
//! * [`groups`]: of aggregates.
//! * [`tables`]: of joins, and the rows that are looked up in them.
//!
//! Those of sorts are [runs](crate::sorted_runs) that are merged as they are read.

mod groups;
mod tables;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use thalweg_pipeline::phases::Phases;
use thalweg_pipeline::prepared::{Plan, Sink};
use thalweg_pipeline::worker::Given;

use crate::sorted_runs::SortedRuns;
use thalweg_errors::into_datafusion;
use thalweg_runtime::checkpoint;

pub use groups::{Loaded, Spilled as SpilledGroups};
pub use tables::{Rows, SpilledTable, Spool};

/// A sink of which workers have given something away; others may still do so.
pub enum Spilling {
    Groups(groups::Spilling),
    Table(tables::Spilling),
    Sort(SortedRuns),
}

/// All that there is of a sink.
#[derive(Clone)]
pub enum Spilled {
    Groups(Arc<SpilledGroups>),
    Table(Arc<SpilledTable>),
    Sort(Arc<SortedRuns>),
}

impl Spilling {
    pub fn new(
        plan: &Plan,
        sink: usize,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Self> {
        Ok(match &plan.sinks[sink] {
            Sink::Aggregate(spec) => {
                Spilling::Groups(groups::Spilling::new(spec, context, metrics)?)
            }
            Sink::Build(spec) => {
                let marked = plan.is_marked(sink);
                Spilling::Table(tables::Spilling::new(spec, marked, context, metrics)?)
            }
            Sink::Sort(spec) => {
                let schema = nullable(&spec.payload_types);
                Spilling::Sort(SortedRuns::new(schema, spec.fetch, context, metrics, 0))
            }
            other => return internal_err!("{other} cannot spill"),
        })
    }

    pub async fn write(&self, given: Given) -> Result<()> {
        match (self, given) {
            (_, Given::Nothing) => Ok(()),
            (Spilling::Groups(spilling), Given::Groups(sealed)) => spilling.write(sealed).await,
            (Spilling::Table(spilling), Given::Rows(rows)) => spilling.write(rows).await,
            (Spilling::Sort(runs), Given::Sorting(sorting)) => runs.write(sorting).await,
            _ => internal_err!("what a sink has given away is not its own"),
        }
    }

    /// When all is written; `None`: it could not be brought back within the limit. `again`: groups
    /// are read more than once.
    pub fn finish(self, again: bool, context: &TaskContext) -> Result<Option<Spilled>> {
        Ok(match self {
            Spilling::Groups(spilling) => Some(Spilled::Groups(Arc::new(spilling.finish(again)?))),
            Spilling::Table(spilling) => {
                spilling.finish(context)?.map(|table| Spilled::Table(Arc::new(table)))
            }
            Spilling::Sort(runs) => Some(Spilled::Sort(Arc::new(runs))),
        })
    }
}

/// Whether the sink can go on without memory: rows of a table whose numbers are kept elsewhere have
/// to stay where they are.
pub fn can_spill(plan: &Plan, sink: usize) -> bool {
    match plan.sinks[sink] {
        Sink::Aggregate(_) | Sink::Sort(_) => true,
        Sink::Build(_) => !plan.fetches(),
        _ => false,
    }
}

/// A schema for arrays of these types, any of which may have NULLs.
fn nullable(types: &[DataType]) -> SchemaRef {
    let fields = types.iter().map(|t| Field::new("", t.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Runs all tasks here, one after the other: each worker has a part of its own.
async fn work_off(work: &impl Phases) -> Result<()> {
    for phase in 0..work.phases() {
        for task in 0..work.tasks(phase) {
            work.run(phase, task).map_err(into_datafusion)?;
            checkpoint().await;
        }
    }
    Ok(())
}
