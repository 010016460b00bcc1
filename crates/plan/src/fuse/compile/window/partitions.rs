//! Functions of whole partitions, as in `sum(x) OVER (PARTITION BY k)`.
//!
//! All rows of a partition have the same value, whatever their order. So nothing is sorted: rows are grouped by
//! what partitions them, and read again to look the results of their groups up. That takes two readings, and
//! each must give the same rows; where these come from a table, or lie in memory as the groups of a sink, they
//! are cheap, and cost no memory but that of the groups.
//!
//! ```text
//!   scan → group by k (sink #0)      groups of #0 → build #1 by k      scan → probe #1 by k
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_plan::{StatisticsArgs, StatisticsContext};
use thalweg_exec::Input;
use thalweg_ir::window::{Kind, is_of_partition};
use thalweg_ir::{Expr, Join, Probe, Sink, Source, Step, aggregate, table};

use super::super::{Compiler, Feed, Flow};
use crate::fuse::windows::Windows;

/// Rows that a partition has on average, from which on looking results up is less work than sorting.
const ROWS_PER_PARTITION: f64 = 4.0;

impl Compiler {
    /// The rows of windows without a sort; `None`: there is a function that needs the order, or rows that
    /// are not to be read twice.
    pub(super) fn by_partition(
        &mut self,
        windows: &Windows,
        input: &Flow,
        schema: &SchemaRef,
    ) -> Result<Option<Flow>> {
        let Some(functions) = functions(windows) else { return Ok(None) };
        if !input.iter().all(|feed| self.is_read_twice(feed)) || are_small(windows) {
            return Ok(None);
        }
        let of_input = windows.input.schema();
        // OVER (): all rows are one partition.
        let same_for_all = lit(true);
        let keys: Vec<_> = match windows.partition_by.is_empty() {
            true => vec![&same_for_all],
            false => windows.partition_by.iter().collect(),
        };
        let read = |this: &mut Self,
                    feed: &Feed,
                    exprs: &mut dyn Iterator<Item = &Arc<dyn PhysicalExpr>>| {
            let exprs = exprs.map(|e| this.translator.translate(e, &of_input, &feed.columns));
            exprs.collect::<Result<Vec<Expr>>>()
        };
        let types = |exprs: &mut dyn Iterator<Item = &Arc<dyn PhysicalExpr>>| {
            exprs.map(|e| e.data_type(&of_input)).collect::<Result<Vec<DataType>>>()
        };
        let mut by = vec![];
        for feed in input {
            let keys = read(self, feed, &mut keys.iter().copied())?;
            if !keys.iter().all(Expr::is_pure) {
                return Ok(None);
            }
            by.push(keys);
        }
        let key_types = types(&mut keys.iter().copied())?;
        let argument_types = types(&mut windows.read.iter())?;
        let results: Vec<DataType> = functions.iter().map(|f| f.result.clone()).collect();
        let spec = aggregate::Spec { key_types: key_types.clone(), argument_types, functions };
        let groups = self.sink(Sink::Aggregate(Arc::new(spec)));
        for (feed, keys) in input.iter().zip(&by) {
            let mut inputs = keys.clone();
            inputs.extend(read(self, feed, &mut windows.read.iter())?);
            let again = self.read_again(feed);
            self.end(again, groups, inputs);
        }
        let names = schema.fields().iter().skip(of_input.fields().len()).map(|f| f.name().clone());
        let names: Vec<String> = names.collect();
        let of_groups = key_types.iter().map(|t| ("key".to_string(), t.clone()));
        let of_groups = of_groups.chain(names.iter().cloned().zip(results.iter().cloned()));
        let feed = Feed::new(Source::Groups(groups), of_groups);
        let found = self.sink(Sink::Build(table::Spec {
            key_types,
            payload_types: results.clone(),
            nulls_equal: true,
            keep_null_keys: false,
        }));
        let inputs = feed.columns.clone();
        self.end(feed, found, inputs);
        let mut flow = vec![];
        for (mut feed, keys) in input.iter().cloned().zip(by) {
            let kind = Join::Pairs { outer: false, mark: false };
            feed.steps.push(Step::Probe(Probe { sink: found, keys, kind, condition: None }));
            for (name, result) in names.iter().zip(&results) {
                feed.columns.push(Expr::Register(feed.registers.len(), result.clone()));
                feed.registers.push(result.clone());
                feed.names.push(name.clone());
            }
            flow.push(feed);
        }
        Ok(Some(flow))
    }

    /// Whether a second reading of a feed gives the same rows, for little.
    fn is_read_twice(&self, feed: &Feed) -> bool {
        let is_source = match feed.source {
            Source::External(input) => match &self.inputs[input] {
                Input::Scan(scan) => scan.reads_the_same(scan),
                Input::Plan(_) => false,
            },
            Source::Groups(sink) => {
                matches!(self.sinks[sink], Sink::Aggregate(_) | Sink::Window(_))
            }
            Source::Table { .. } | Source::Parts { .. } => false,
        };
        is_source
            && feed.steps.iter().all(|step| match step {
                Step::Filter(conjuncts) => conjuncts.iter().all(Expr::is_pure),
                Step::Map(exprs) => exprs.iter().all(|expr| expr.is_pure()),
                Step::Probe(_) | Step::Fetch { .. } => false,
            })
    }

    /// The same feed with a source of its own.
    fn read_again(&mut self, feed: &Feed) -> Feed {
        let mut again = feed.clone();
        if let Source::External(input) = feed.source
            && let Input::Scan(scan) = &self.inputs[input]
        {
            self.inputs.push(Input::Scan(Arc::new(scan.unfed())));
            again.source = Source::External(self.inputs.len() - 1);
        }
        again
    }
}

/// The functions as those of groups; `None`: one of them is none, or may look at the order of its rows.
fn functions(windows: &Windows) -> Option<Vec<aggregate::Function>> {
    let functions = windows.functions.iter().map(|function| match &function.kind {
        Kind::Aggregate(kind) if is_of_partition(function) => Some(aggregate::Function {
            // What has no kernel may look at the order of rows.
            kind: kind.map(&mut |_| Err(())).ok()?,
            arguments: function.arguments.clone(),
            filter: None,
            result: function.result.clone(),
        }),
        _ => None,
    });
    functions.collect()
}

/// Whether most partitions are known to have a few rows only.
fn are_small(windows: &Windows) -> bool {
    let context = StatisticsContext::new();
    let Ok(known) = context.compute(windows.input.as_ref(), &StatisticsArgs::new()) else {
        return false;
    };
    let Some(&rows) = known.num_rows.get_value() else { return false };
    let values = windows.partition_by.iter().map(|key| {
        let column = key.downcast_ref::<Column>()?;
        let known = known.column_statistics.get(column.index())?;
        known.distinct_count.get_value().map(|&values| values as f64)
    });
    // Of the key that has most: the others can only add to that.
    let most = values.flatten().fold(0.0, f64::max);
    most * ROWS_PER_PARTITION > rows as f64 && rows > 0
}
