//! A subtree of DataFusion's operators as pipelines.
//!
//! The tree is walked from its root down. What comes back from a node is a [`Flow`]: pipelines that
//! have no sink yet, and what the columns of the node are in them. A join ends the flows of its
//! build side in a table, and adds a probe to those of the other side; an aggregate ends those of
//! its input, and begins a new one with its groups. A node that is not covered, and all below it,
//! becomes a source. What was computed for one part of the tree and is asked for again by another is
//! computed once: groups and tables may have several readers. Scalar subqueries are parts of the tree
//! that come first.
//!
//! * [`join`]: joins and their tables.
//! * [`groups`]: aggregates, and sets of groupings.
//! * [`late_keys`]: group keys that a joined table decides.
//! * [`window`]: window functions.

mod groups;
mod join;
mod late_keys;
mod window;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_ir::{Expr, Pipeline, Plan, Sink, Source, Step, sort};

use super::expr::{Translator, translated};
use super::same::same;
use super::windows::windows;
use crate::lost_constants::SecretiveExec;
use groups::{covers_aggregate, filter_groups_early};
use join::covers_join;
use thalweg_errors::into_datafusion;
use thalweg_exec::{Compiled, Input, ScanExec, SubqueryValue};

pub use groups::function;

/// `None`: there is nothing in it that is better done in pipelines.
pub fn compile(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Compiled>> {
    let (whole, plan) = (plan, without_subqueries(plan));
    let order = match plan.output_ordering() {
        Some(order) if is_root(plan) && is_one(plan) => Some(order),
        Some(_) if !is_sorted_root(plan) => return Ok(None),
        None if !is_root(plan) && !is_sorted_root(plan) => return Ok(None),
        _ => None,
    };
    let mut compiler = Compiler::default();
    compiler.subqueries(whole)?;
    let mut flow = compiler.flow(plan)?;
    if let Some(order) = order {
        flow = compiler.sorted(flow, order, &plan.schema(), None)?;
    }
    if compiler.sinks.is_empty() {
        return Ok(None);
    }
    compiler.emit(flow, &plan.schema());
    let Compiler { inputs, mut pipelines, sinks, translator, .. } = compiler;
    filter_groups_early(&mut pipelines, &sinks);
    let plan = Plan { pipelines, sinks };
    if let Err(e) = plan.verify() {
        // A plan that is refused is a mistake of ours: tests fail, and a user's query stays with the
        // operators.
        return if cfg!(debug_assertions) { Err(into_datafusion(e)) } else { Ok(None) };
    }
    debug_assert!(is_the_same_when_read_again(&plan), "{plan:?}");
    let (callees, values) = (translator.foreigners.into_callees(), translator.subqueries);
    Ok(Some(Compiled { plan, callees, inputs, values }))
}

fn is_the_same_when_read_again(plan: &Plan) -> bool {
    let read = plan.to_bytes().and_then(|bytes| Plan::from_bytes(&bytes));
    read.is_ok_and(|read| read == *plan)
}

/// The rows of a plan, when the values of its scalar subqueries are known.
fn without_subqueries(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    plan.downcast_ref::<ScalarSubqueryExec>().map_or(plan, ScalarSubqueryExec::input)
}

/// Whether pipelines may end with this operator: one that makes rows, or only looks at them above
/// one that does.
fn is_root(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_filter =
        plan.downcast_ref::<FilterExec>().is_some_and(|filter| filter.fetch().is_none());
    if plan.is::<ProjectionExec>() || plan.is::<SecretiveExec>() || is_filter {
        return plan.children().into_iter().all(is_root);
    }
    covers_join(plan) || covers_aggregate(plan).is_some() || windows(plan).is_some()
}

/// Whether it gives in order the rows of an operator with which pipelines may end.
fn is_sorted_root(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if !is_one(plan) {
        return false;
    }
    let mut below = plan;
    loop {
        if let Some(merge) = below.downcast_ref::<SortPreservingMergeExec>() {
            if is_root(merge.input()) {
                return true;
            }
            below = merge.input();
        } else if let Some(projection) = below.downcast_ref::<ProjectionExec>() {
            below = projection.input();
        } else if let Some(secretive) = below.downcast_ref::<SecretiveExec>() {
            below = secretive.input();
        } else if let Some(sort) = below.downcast_ref::<SortExec>() {
            return is_root(sort.input()) || is_long(sort);
        } else {
            return false;
        }
    }
}

/// Whether a sort is worth the pipelines whatever it sorts. DataFusion keeps the first rows in a heap, and
/// tells the scan below which rows cannot be among them: that is better for few of them.
fn is_long(sort: &SortExec) -> bool {
    const LONG: usize = 8 * BATCH_ROWS;
    let schema = sort.input().schema();
    let field = |key: &PhysicalSortExpr| Ok(SortField::new(key.expr.data_type(&schema)?));
    let fields = sort.expr().iter().map(field).collect::<Result<Vec<_>>>();
    let has_keys = fields.is_ok_and(|fields| RowConverter::supports_fields(&fields));
    has_keys && sort.fetch().is_none_or(|rows| rows > LONG)
}

fn is_one(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.output_partitioning().partition_count() == 1
}

/// A pipeline without a sink.
#[derive(Clone)]
struct Feed {
    source: Source,
    types: Vec<DataType>,
    steps: Vec<Step>,
    /// Types of all registers so far, and names to show them by.
    registers: Vec<DataType>,
    names: Vec<String>,
    /// The columns of the operator that was compiled last.
    columns: Vec<Expr>,
}

impl Feed {
    fn new(source: Source, fields: impl Iterator<Item = (String, DataType)>) -> Self {
        let (names, types): (Vec<_>, Vec<_>) = fields.unzip();
        let columns = types.iter().cloned().enumerate().map(|(i, t)| Expr::Register(i, t));
        let (columns, registers) = (columns.collect(), types.clone());
        Feed { source, types, steps: vec![], registers, names, columns }
    }

    /// A register for each expression that is not one.
    fn materialize(&mut self, exprs: Vec<Expr>, schema: &Schema) -> Vec<Expr> {
        let mut added = vec![];
        let exprs = exprs.into_iter().zip(schema.fields()).map(|(expr, field)| match expr {
            Expr::Register(..) | Expr::Literal(_) => expr,
            computed => {
                let data_type = computed.data_type();
                self.registers.push(data_type.clone());
                self.names.push(field.name().clone());
                added.push(Arc::new(computed));
                Expr::Register(self.registers.len() - 1, data_type)
            }
        });
        let exprs = exprs.collect();
        if !added.is_empty() {
            self.steps.push(Step::Map(added));
        }
        exprs
    }
}

/// One after the other they give the rows of an operator.
type Flow = Vec<Feed>;

#[derive(Default)]
struct Compiler {
    inputs: Vec<Input>,
    pipelines: Vec<Pipeline>,
    sinks: Vec<Sink>,
    /// How many rows are asked of the sort below.
    fetch: Option<usize>,
    /// What has become rows of sinks, and how they flow from there.
    known: Vec<(Arc<dyn ExecutionPlan>, Flow)>,
    /// Joins, and the sinks of their tables, which no probe marks.
    built: Vec<(Arc<dyn ExecutionPlan>, usize)>,
    translator: Translator,
}

impl Compiler {
    fn sink(&mut self, sink: Sink) -> usize {
        self.sinks.push(sink);
        self.sinks.len() - 1
    }

    fn end(&mut self, feed: Feed, sink: usize, inputs: Vec<Expr>) {
        let Feed { source, types, steps, names, .. } = feed;
        self.pipelines.push(Pipeline { source, types, names, steps, sink, inputs });
    }

    /// Hands out the rows of an operator; the sink that does.
    fn emit(&mut self, flow: Flow, schema: &Schema) -> usize {
        let sink = self.sink(Sink::Emit(types(schema)));
        for feed in flow {
            let inputs = feed.columns.clone();
            self.end(feed, sink, inputs);
        }
        sink
    }

    /// The scalar subqueries of a plan, and theirs before them.
    fn subqueries(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let Some(exec) = plan.downcast_ref::<ScalarSubqueryExec>() else { return Ok(()) };
        for subquery in exec.subqueries() {
            self.subqueries(&subquery.plan)?;
            let plan = without_subqueries(&subquery.plan);
            let flow = match is_root(plan) || is_sorted_root(plan) {
                true => self.flow(plan)?,
                false => vec![self.input(plan)?],
            };
            let sink = self.emit(flow, &plan.schema());
            let results = exec.results().clone();
            self.translator.subqueries.push(SubqueryValue { sink, index: subquery.index, results });
        }
        Ok(())
    }

    fn flow(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Flow> {
        if let Some(only) = passes_on(plan) {
            return self.flow(only);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let schema = projection.input().schema();
            let mut flow = self.flow(projection.input())?;
            for feed in &mut flow {
                let exprs = projection.expr().iter();
                let exprs =
                    exprs.map(|p| self.translator.translate(&p.expr, &schema, &feed.columns));
                let exprs = exprs.collect::<Result<Vec<_>>>()?;
                feed.columns = feed.materialize(exprs, &projection.schema());
            }
            return Ok(flow);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>()
            && filter.fetch().is_none()
        {
            let schema = filter.input().schema();
            let mut flow = self.flow(filter.input())?;
            for feed in &mut flow {
                let of = filter.predicate();
                let conjuncts = self.translator.conjuncts(of, &schema, &feed.columns)?;
                feed.steps.push(Step::Filter(conjuncts));
                if let Some(projection) = filter.projection() {
                    feed.columns = projection.iter().map(|&i| feed.columns[i].clone()).collect();
                }
            }
            return Ok(flow);
        }
        if plan.is::<UnionExec>() || plan.is::<InterleaveExec>() {
            let mut flow = vec![];
            for child in plan.children() {
                flow.extend(self.flow(child)?);
            }
            return Ok(flow);
        }
        if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
            // The rows come in order of an operator below; what chooses among them has to sort them here.
            let chooses = merge.fetch().is_some() && !is_sort(merge.input());
            if chooses || is_root(merge.input()) {
                let flow = self.flow(merge.input())?;
                return self.sorted(flow, merge.expr(), &merge.schema(), merge.fetch());
            }
            self.fetch = merge.fetch();
            return self.flow(merge.input());
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            return self.sort(sort);
        }
        if let Some((_, flow)) = self.known.iter().find(|(known, _)| same(known, plan)) {
            return Ok(flow.clone());
        }
        let flow = if covers_join(plan)
            && let Some(join) = plan.downcast_ref::<HashJoinExec>()
        {
            self.join(plan, join)?
        } else if let Some((top, bottom)) = covers_aggregate(plan) {
            match bottom.group_expr().has_grouping_set() {
                true => self.grouping_sets(top, bottom)?,
                false => self.aggregate(top, bottom)?,
            }
        } else if let Some(windows) = windows(plan) {
            self.window(&windows, &plan.schema())?
        } else {
            return Ok(vec![self.input(plan)?]);
        };
        // Rows of a sink can be read again as they are.
        let is_kept = |feed: &Feed| match feed.source {
            Source::Groups(_) | Source::Table { .. } => feed.steps.is_empty(),
            Source::External(_) | Source::Parts { .. } => false,
        };
        if flow.iter().all(is_kept) {
            self.known.push((Arc::clone(plan), flow.clone()));
        }
        Ok(flow)
    }

    /// What is not covered, or a table.
    fn input(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Feed> {
        let input = match ScanExec::of_chunks(plan) {
            Some(scan) => {
                let scan = scan.unfed();
                Input::Scan(Arc::new(translated(&scan)?.unwrap_or(scan)))
            }
            None => Input::Plan(Arc::clone(plan)),
        };
        self.inputs.push(input);
        Ok(Feed::new(Source::External(self.inputs.len() - 1), fields(&plan.schema())))
    }

    fn sort(&mut self, sort: &SortExec) -> Result<Flow> {
        let fetch = match (self.fetch.take(), sort.fetch()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let input = self.flow(sort.input())?;
        self.sorted(input, sort.expr(), &sort.input().schema(), fetch)
    }

    fn sorted(
        &mut self,
        input: Flow,
        order: &LexOrdering,
        schema: &SchemaRef,
        fetch: Option<usize>,
    ) -> Result<Flow> {
        let keys = order.iter().map(|key| Ok((key.expr.data_type(schema)?, key.options)));
        let (keys, payload_types) = (keys.collect::<Result<_>>()?, types(schema));
        let sink = self.sink(Sink::Sort(sort::Spec { keys, payload_types, fetch, together: 0 }));
        for feed in input {
            let keys = order.iter();
            let keys = keys.map(|k| self.translator.translate(&k.expr, schema, &feed.columns));
            let mut inputs = keys.collect::<Result<Vec<_>>>()?;
            inputs.extend(feed.columns.iter().cloned());
            self.end(feed, sink, inputs);
        }
        Ok(vec![Feed::new(Source::Groups(sink), fields(schema))])
    }
}

/// What is below an operator that only moves rows between tasks, or hides from DataFusion what it would
/// conclude of them.
fn passes_on(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        return Some(repartition.input());
    }
    if let Some(coalesce) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| coalesce.input());
    }
    if let Some(secretive) = plan.downcast_ref::<SecretiveExec>() {
        return Some(secretive.input());
    }
    plan.downcast_ref::<CooperativeExec>().map(|c| c.input())
}

/// Whether the rows come from a sort.
fn is_sort(mut plan: &Arc<dyn ExecutionPlan>) -> bool {
    loop {
        if let Some(only) = passes_on(plan) {
            plan = only;
        } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            plan = projection.input();
        } else {
            return plan.is::<SortExec>();
        }
    }
}

/// What gives the same rows in any order. A join may be planned over sorted rows, for its own to come
/// in that order; those of pipelines do not, and are sorted after it.
pub fn unordered(mut plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    loop {
        if let Some(only) = passes_on(plan) {
            plan = only;
        } else if let Some(sort) = plan.downcast_ref::<SortExec>()
            && sort.fetch().is_none()
        {
            plan = sort.input();
        } else if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>()
            && merge.fetch().is_none()
        {
            plan = merge.input();
        } else {
            return plan;
        }
    }
}

fn field(field: &Field) -> (String, DataType) {
    (field.name().clone(), field.data_type().clone())
}

fn fields(schema: &Schema) -> impl Iterator<Item = (String, DataType)> {
    schema.fields().iter().map(|f| field(f))
}

fn types(schema: &Schema) -> Vec<DataType> {
    schema.fields().iter().map(|f| f.data_type().clone()).collect()
}
