//! Which queries run wholly on pipelines, and which operators the others need: read from their
//! plans. Nothing is run.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use thalweg_base::{Error, Result};
use thalweg_engine::Session;

use crate::compare::collect;
use crate::report::coverage::{self as report, Coverage, QueryCoverage};
use crate::report::model::Report;
use crate::report::text as printed;
use crate::run::{self, Options, Watch};
use crate::stored::Stored;
use crate::workload::{Query, Workload};

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let mut report = Report::new("Coverage", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    for (suite, database) in run::suites(options) {
        let workload = Workload::new(suite)?.only(&options.queries)?;
        let stored = Stored::open(options, &workload, database, watch)?;
        let session = stored.engine.session();
        let plan = |query: &Query| {
            let text = stored.engine.block_on(plans(&session, query))?;
            Ok(QueryCoverage::new(&query.name, operators(&text), opaque(&text)))
        };
        let queries = workload.queries.iter().map(plan).collect::<Result<Vec<_>>>()?;
        let found = Coverage::new(format!("{suite} SF {}", options.scale_factor), queries);
        println!("{}", report::text(&found, look));
        report.coverage.push(found);
    }
    run::write(options, &report)
}

/// The plans of all statements of a query, one below the other.
///
/// # Errors
/// A query that cannot be planned. `EXPLAIN` itself hides why: it then gives no row.
async fn plans(session: &Session, query: &Query) -> Result<String> {
    let mut text = String::new();
    for statement in &query.statements {
        let explain = format!("EXPLAIN VERBOSE {statement}");
        let (_, batches) = collect(session, &explain).await.map_err(|e| e.context(&query.name))?;
        let mut planned = false;
        for batch in &batches {
            for row in 0..batch.num_rows() {
                if cell(batch, "plan_type", row)? == "physical_plan" {
                    text += &cell(batch, "plan", row)?;
                    text.push('\n');
                    planned = true;
                }
            }
        }
        if !planned {
            return Err(Error::internal(format!("{} cannot be planned", query.name))
                .hint("Run it, and the error says why."));
        }
    }
    Ok(text)
}

fn cell(batch: &RecordBatch, column: &str, row: usize) -> Result<String> {
    let array = batch.column_by_name(column);
    let array = array.ok_or_else(|| Error::internal(format!("EXPLAIN has no column {column}")))?;
    array_value_to_string(array, row)
        .map_err(|e| Error::internal(format!("{column} of EXPLAIN is no text")).source(e))
}

/// How often each operator stands in a plan of one operator a line: its name is the line's first word.
fn operators(plan: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in plan.lines() {
        let name = line.trim_start().split(|c: char| !c.is_alphanumeric()).next();
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            *counts.entry(name.to_string()).or_insert(0) += 1;
        }
    }
    counts
}

/// How often the pipelines of a plan call code that is no part of their own plan.
fn opaque(plan: &str) -> usize {
    let of_line = |line: &str| {
        let (_, after) = line.trim_start().strip_prefix("PipelineExec: ")?.split_once("opaque=")?;
        after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
    };
    plan.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(plan: &str, expected: &[(&str, usize)]) {
        let expected = expected.iter().map(|(name, n)| (name.to_string(), *n));
        assert_eq!(operators(plan), expected.collect::<BTreeMap<_, _>>());
    }

    #[test]
    fn each_line_is_an_operator() {
        let plan = "\
SortPreservingMergeExec: [a@0 ASC NULLS LAST]
  SortExec: expr=[a@0 ASC NULLS LAST], preserve_partitioning=[true]
    CoalescePartitionsExec
      PipelineExec: pipelines=2
        Pipeline: build #0
          ScanExec: table=t, columns=[b], filter=[s = SortExec: x]
        Pipeline: probe #0(a) → emit #1
          ScanExec: table=t, columns=[a]
";
        let operators = [
            ("CoalescePartitionsExec", 1),
            ("Pipeline", 2),
            ("PipelineExec", 1),
            ("ScanExec", 2),
            ("SortExec", 1),
            ("SortPreservingMergeExec", 1),
        ];
        check(plan, &operators);
    }

    #[test]
    fn opaque_operations_are_those_of_all_pipelines() {
        let plan = "\
SortExec: expr=[opaque=7]
  PipelineExec: pipelines=2, opaque=12
    Pipeline: build #0
  PipelineExec: pipelines=1, opaque=3
";
        assert_eq!(opaque(plan), 15);
        assert_eq!(opaque("EmptyExec\n"), 0);
    }

    #[test]
    fn plans_stand_below_one_another() {
        check("ScanExec: table=t\n\n\nEmptyExec\n", &[("EmptyExec", 1), ("ScanExec", 1)]);
        check("", &[]);
    }
}
