//! Aggregates: groups of rows, and of groups.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Schema};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use thalweg_ir::aggregate::{self, Function, Kind, Spec, is_combined, is_native};
use thalweg_ir::{Expr, Join, Literal, Pipeline, Probe, Sink, Source, Step};
use thalweg_pipeline::literal;

use super::{Compiler, Feed, Flow, fields, passes_on, unordered};
use crate::fuse::expr::{is_constant, null};
use crate::fuse::function::{ForeignAggregate, Foreigners};
use crate::fuse::grouping::{Level, levels};
use crate::fuse::same::same_expr;

impl Compiler {
    pub(super) fn aggregate(
        &mut self,
        top: &AggregateExec,
        bottom: &AggregateExec,
    ) -> Result<Flow> {
        let keys: Vec<usize> = (0..bottom.group_expr().expr().len()).collect();
        let aggregation = Aggregation::new(bottom, &mut self.translator.foreigners)?;
        let results = aggregation.functions.len();
        let sink = self.group(bottom, &keys, aggregation, results)?;
        Ok(vec![Feed::new(Source::Groups(sink), fields(&top.schema()))])
    }

    /// Groups the rows of an aggregate's input by some of its keys. All functions after the first
    /// `results` are parts that averages are made of.
    fn group(
        &mut self,
        bottom: &AggregateExec,
        keys: &[usize],
        aggregation: Aggregation,
        results: usize,
    ) -> Result<usize> {
        let schema = bottom.input().schema();
        let input = self.flow(unordered(bottom.input()))?;
        let keys = keys.iter().map(|&k| &bottom.group_expr().expr()[k].0);
        let Aggregation { functions, arguments, filters } = aggregation;
        let types = |exprs: &mut dyn Iterator<Item = &Arc<dyn PhysicalExpr>>| {
            exprs.map(|e| e.data_type(&schema)).collect::<Result<Vec<_>>>()
        };
        let key_types = types(&mut keys.clone())?;
        let argument_types = types(&mut arguments.iter())?;
        let spec = Spec { key_types, argument_types, functions };
        let read = |this: &mut Self, feed: &Feed| -> Result<(Vec<Expr>, Vec<Expr>)> {
            let mut exprs = |exprs: &mut dyn Iterator<Item = &Arc<dyn PhysicalExpr>>| {
                let exprs = exprs.map(|e| this.translator.translate(e, &schema, &feed.columns));
                exprs.collect::<Result<Vec<_>>>()
            };
            Ok((exprs(&mut keys.clone())?, exprs(&mut arguments.iter().chain(&filters))?))
        };
        if let [feed] = input.as_slice()
            && are_combined(bottom)
        {
            let columns: Vec<_> =
                keys.clone().map(|key| key.downcast_ref::<Column>().map(Column::index)).collect();
            let (keys, others) = read(self, feed)?;
            let tables = self.late_tables((bottom.input(), &columns), feed, &keys, &others);
            if !tables.is_empty() {
                let read = (keys.as_slice(), others);
                return Ok(self.group_late(feed.clone(), &tables, read, spec, results));
            }
        }
        let sink = self.sink(Sink::Aggregate(Arc::new(spec)));
        for feed in input {
            let (mut inputs, others) = read(self, &feed)?;
            inputs.extend(others);
            self.end(feed, sink, inputs);
        }
        Ok(sink)
    }

    /// Rows are grouped by all columns of any set, and these groups again by fewer columns.
    pub(super) fn grouping_sets(
        &mut self,
        top: &AggregateExec,
        bottom: &AggregateExec,
    ) -> Result<Flow> {
        let schema = top.schema();
        let groups = bottom.group_expr().groups();
        let count = bottom.group_expr().expr().len();
        let kept = |nulls: &Vec<bool>| (0..count).filter(|&c| !nulls[c]).collect();
        let (levels, places) = levels(&groups.iter().map(kept).collect::<Vec<_>>());
        let Aggregation { mut functions, arguments, filters } =
            Aggregation::new(bottom, &mut self.translator.foreigners)?;
        let results = functions.len();
        let input = bottom.input().schema();
        let types = arguments.iter().map(|a| a.data_type(&input)).collect::<Result<Vec<_>>>()?;
        add_parts(&mut functions, &types);
        let again = Self::regrouped(&functions, results);
        let aggregation = Aggregation { functions: functions.clone(), arguments, filters };
        let mut sinks = vec![self.group(bottom, &levels[0].set, aggregation, results)?];
        let key_type = |key: usize| schema.field(key).data_type().clone();
        let result_types: Vec<DataType> = functions.iter().map(|f| f.result.clone()).collect();
        let feed = |sink: usize, set: &[usize]| {
            let keys = set.iter().map(|&key| (schema.field(key).name().clone(), key_type(key)));
            let results = functions.iter().enumerate().map(|(n, f)| {
                let name = schema.fields().get(count + 1 + n).filter(|_| n < results);
                (name.map_or_else(String::new, |field| field.name().clone()), f.result.clone())
            });
            Feed::new(Source::Groups(sink), keys.chain(results))
        };
        for Level { set, of } in &levels[1..] {
            let finer = of.unwrap_or(0);
            let finer_set = &levels[finer].set;
            let spec = Spec {
                key_types: set.iter().map(|&key| key_type(key)).collect(),
                argument_types: result_types.clone(),
                functions: again.clone(),
            };
            let sink = self.sink(Sink::Aggregate(Arc::new(spec)));
            let feed = feed(sinks[finer], finer_set);
            let keys = (0..finer_set.len()).filter(|&n| set.contains(&finer_set[n]));
            let inputs = keys.chain(finer_set.len()..feed.columns.len());
            let inputs = inputs.map(|n| feed.columns[n].clone()).collect();
            self.end(feed, sink, inputs);
            sinks.push(sink);
        }
        let ids = grouping_ids(groups, schema.field(count).data_type())?;
        let mut flow = vec![];
        for ((nulls, place), id) in groups.iter().zip(places).zip(ids) {
            let mut feed = feed(sinks[place], &levels[place].set);
            let own = std::mem::take(&mut feed.columns);
            let mut found = own.iter().cloned();
            let keys = (0..count).map(|key| match nulls[key] {
                true => null(&key_type(key)),
                false => found.next().unwrap_or_else(|| null(&key_type(key))),
            });
            let mut columns: Vec<Expr> = keys.collect();
            columns.push(Expr::Literal(id));
            columns.extend(found.take(results));
            feed.columns = columns;
            flow.push(feed);
        }
        Ok(flow)
    }

    /// What makes the results of groups those of larger ones: arguments are the results of
    /// `functions`, of which the first `results` are wanted.
    pub(super) fn regrouped(functions: &[Function], results: usize) -> Vec<Function> {
        let mut parts = results..;
        let again = functions.iter().enumerate().map(|(n, function)| {
            let (kind, arguments) = match function.kind {
                Kind::Min => (Kind::Min, vec![n]),
                Kind::Max => (Kind::Max, vec![n]),
                Kind::CountRows | Kind::Count => (Kind::CountOfCounts, vec![n]),
                Kind::Avg => {
                    let (sum, count) = (parts.next(), parts.next());
                    (Kind::AvgOfSums, sum.into_iter().chain(count).collect())
                }
                _ => (Kind::Sum, vec![n]),
            };
            Function { kind, arguments, filter: None, result: function.result.clone() }
        });
        again.collect()
    }
}

/// The functions of an aggregate, and what they read of its input.
struct Aggregation {
    functions: Vec<Function>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
}

impl Aggregation {
    fn new(bottom: &AggregateExec, foreigners: &mut Foreigners) -> Result<Self> {
        let schema = bottom.input().schema();
        let grouped = !bottom.group_expr().expr().is_empty();
        let (mut arguments, mut filters) = (vec![], vec![]);
        let functions = bottom.aggr_expr().iter().zip(bottom.filter_expr());
        let functions = functions.map(|(f, filter)| {
            let filter = filter.as_ref();
            let function = function(f, filter, &schema, grouped, &mut arguments, &mut filters)?;
            function.map(&mut |own| Ok(foreigners.aggregate(own)))
        });
        let functions = functions.collect::<Result<_>>()?;
        Ok(Aggregation { functions, arguments, filters })
    }
}

/// An average is made of a sum and a count, which come after all functions.
pub(super) fn add_parts(functions: &mut Vec<Function>, argument_types: &[DataType]) {
    for n in 0..functions.len() {
        if matches!(functions[n].kind, Kind::Avg) {
            let result = sum_type(argument_types[functions[n].arguments[0]].clone());
            functions.push(Function { kind: Kind::Sum, result, ..functions[n].clone() });
            let (kind, result) = (Kind::Count, DataType::Int64);
            functions.push(Function { kind, result, ..functions[n].clone() });
        }
    }
}

/// Of the sum of which an average is made.
fn sum_type(argument: DataType) -> DataType {
    match argument {
        DataType::Decimal128(precision, scale) => {
            DataType::Decimal128((precision + 10).min(DECIMAL128_MAX_PRECISION), scale)
        }
        other => other,
    }
}

/// What DataFusion names each grouping set by: a bit for each column that it has not, and above them
/// how many of the same came before it.
fn grouping_ids(groups: &[Vec<bool>], data_type: &DataType) -> Result<Vec<Literal>> {
    let id = |(n, nulls): (usize, &Vec<bool>)| {
        let before = groups[..n].iter().filter(|other| *other == nulls).count() as u64;
        let missing = nulls.iter().fold(0, |id, &null| id << 1 | u64::from(null));
        let id = missing | before.checked_shl(nulls.len() as u32).unwrap_or(0);
        let id = ScalarValue::UInt64(Some(id)).cast_to(data_type)?.to_array_of_size(1)?;
        literal::of(&id).ok_or_else(|| internal_datafusion_err!("a grouping set has no number"))
    };
    groups.iter().enumerate().map(id).collect()
}

/// The node whose output it is, and the one whose input is read: the same, or the two halves that
/// DataFusion makes to aggregate in parallel.
pub(super) fn covers_aggregate(
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(&AggregateExec, &AggregateExec)> {
    let top = plan.downcast_ref::<AggregateExec>()?;
    let mut bottom = top;
    if matches!(top.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned) {
        let mut below = top.input();
        while let Some(only) = passes_on(below) {
            below = only;
        }
        bottom = below.downcast_ref::<AggregateExec>()?;
        if *bottom.mode() != AggregateMode::Partial {
            return None;
        }
    } else if *top.mode() == AggregateMode::Partial {
        return None;
    }
    // MIN or MAX of a whole table, which skips chunks by what it has found.
    if bottom.aggr_expr().len() == 1 && !bottom.dynamic_expressions_produced().is_empty() {
        return None;
    }
    let covered = (!bottom.group_expr().has_grouping_set() || are_combined(bottom))
        && *bottom.input_order_mode() == InputOrderMode::Linear
        && bottom.aggr_expr().iter().all(takes_any_order);
    covered.then_some((top, bottom))
}

/// Whether rows may come to a function in any order: it has none, or finds its own by keys that it is given
/// behind its arguments.
fn takes_any_order(function: &Arc<AggregateFunctionExpr>) -> bool {
    function.order_bys().is_empty() || function.order_sensitivity().is_beneficial()
}

/// Whether groups can be made of smaller ones.
fn are_combined(bottom: &AggregateExec) -> bool {
    let combined = |f: &Arc<AggregateFunctionExpr>| {
        let Some(kind) = native::<()>(f) else { return false };
        let schema = bottom.input().schema();
        let types =
            f.expressions().iter().map(|e| e.data_type(&schema)).collect::<Result<Vec<_>>>();
        matches!(kind, Kind::CountRows) || types.is_ok_and(|types| is_combined(&kind, &types))
    };
    bottom.aggr_expr().iter().all(combined)
}

/// The kind of function that may have a kernel.
fn native<A>(aggregate: &AggregateFunctionExpr) -> Option<Kind<A>> {
    Some(match aggregate.fun().name() {
        _ if aggregate.is_distinct() => return None,
        "count" if aggregate.expressions().iter().all(is_constant) => Kind::CountRows,
        "count" => Kind::Count,
        "sum" => Kind::Sum,
        "min" => Kind::Min,
        "max" => Kind::Max,
        "avg" => Kind::Avg,
        _ => return None,
    })
}

/// Where an expression stands among others, to which it is added if it is not there.
pub(super) fn place(exprs: &mut Vec<Arc<dyn PhysicalExpr>>, expr: &Arc<dyn PhysicalExpr>) -> usize {
    exprs.iter().position(|e| same_expr(e, expr)).unwrap_or_else(|| {
        exprs.push(Arc::clone(expr));
        exprs.len() - 1
    })
}

/// Adds what it reads to `arguments` and `filters`, unless it is there.
pub fn function(
    aggregate: &Arc<AggregateFunctionExpr>,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    schema: &Schema,
    grouped: bool,
    arguments: &mut Vec<Arc<dyn PhysicalExpr>>,
    filters: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<aggregate::Function<Arc<ForeignAggregate>>> {
    let own = aggregate.expressions();
    let types = own.iter().map(|e| e.data_type(schema)).collect::<Result<Vec<_>>>()?;
    let kind = native::<Arc<ForeignAggregate>>(aggregate);
    let (kind, read) = match kind {
        Some(Kind::CountRows) => (Kind::CountRows, vec![]),
        Some(Kind::Sum) if is_native::<()>(&Kind::Sum, &types) => {
            let unwidened = own.iter().map(|e| unwidened(e, schema)).collect::<Result<_>>()?;
            (Kind::Sum, unwidened)
        }
        Some(kind) if is_native(&kind, &types) => (kind, own),
        _ => {
            let order = aggregate.order_bys().iter().map(|by| Arc::clone(&by.expr));
            let read = own.into_iter().chain(order).collect();
            (Kind::External(Arc::new(ForeignAggregate::new(aggregate, grouped)?)), read)
        }
    };
    Ok(aggregate::Function {
        kind,
        arguments: read.iter().map(|e| place(arguments, e)).collect(),
        filter: filter.map(|e| place(filters, e)),
        result: aggregate.field().data_type().clone(),
    })
}

/// What is cast to an integer of 64 bits that holds all of its values: a sum is of 64 bits anyway.
fn unwidened(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    use DataType::*;
    let Some(cast) = expr.downcast_ref::<CastExpr>() else { return Ok(Arc::clone(expr)) };
    let from = cast.expr().data_type(schema)?;
    let same = match expr.data_type(schema)? {
        Int64 => matches!(from, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32),
        UInt64 => matches!(from, UInt8 | UInt16 | UInt32),
        _ => false,
    };
    Ok(Arc::clone(if same { cast.expr() } else { expr }))
}

/// What is grouped and then joined by its keys is reduced before it is grouped: of groups without a
/// match nothing comes, so their rows need not be aggregated. Holds if the table is built by then.
pub(super) fn filter_groups_early(pipelines: &mut [Pipeline], sinks: &[Sink]) {
    for after in (0..pipelines.len()).rev() {
        let Source::Groups(groups) = pipelines[after].source else { continue };
        let Sink::Aggregate(spec) = &sinks[groups] else { continue };
        if pipelines.iter().filter(|p| p.reads_groups(groups)).count() > 1 {
            continue;
        }
        let keys = spec.key_types.len();
        let mut reducers = vec![];
        for step in &pipelines[after].steps {
            let Step::Probe(probe) = step else { continue };
            let of_keys = |key: &Expr| match key {
                Expr::Register(register, _) if *register < keys => Some(*register),
                _ => None,
            };
            let probed: Option<Vec<usize>> = probe.keys.iter().map(of_keys).collect();
            match probed {
                Some(registers) if probe.kind.needs_match() => {
                    reducers.push((probe.sink, registers));
                }
                _ => {}
            }
        }
        for (table, registers) in reducers {
            let Some(built) = pipelines.iter().rposition(|p| p.sink == table) else { continue };
            for feeder in pipelines.iter_mut().skip(built + 1).filter(|p| p.sink == groups) {
                let keys = registers.iter().map(|&r| feeder.inputs[r].clone()).collect();
                let (kind, condition) = (Join::Semi, None);
                feeder.steps.push(Step::Probe(Probe { sink: table, keys, kind, condition }));
            }
        }
    }
}
