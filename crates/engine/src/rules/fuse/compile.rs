//! A subtree of DataFusion's operators as pipelines.
//!
//! The tree is walked from its root down. What comes back from a node is a [`Flow`]: pipelines that
//! have no sink yet, and what the columns of the node are in them. A join ends the flows of its
//! build side in a table, and adds a probe to those of the other side; an aggregate ends those of
//! its input, and begins a new one with its groups. A node that is not covered, and all below it,
//! becomes a source. What was computed for one part of the tree and is asked for again by another is
//! computed once: groups and tables may have several readers.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::SortOptions;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result, ScalarValue};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, lit};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use thalweg_pipeline::aggregate::{Function, Kind, Spec, is_combined, is_native};
use thalweg_pipeline::encoding::is_word;
use thalweg_pipeline::expr::Expr;
use thalweg_pipeline::ir::{Join, Pipeline, Plan, Probe, Sink, Source, Step, TableRows};
use thalweg_pipeline::{sort, table, window};

use super::expr::{conjuncts, is_constant, null, translate};
use super::function::ForeignAggregate;
use super::grouping::{Level, levels};
use super::same::{same, same_expr};
use super::windows::{Windows, windows};
use crate::exec::ScanExec;

/// A subtree as pipelines, and what they read.
pub struct Compiled {
    pub plan: Plan,
    pub inputs: Vec<Input>,
}

/// A source of pipelines.
#[derive(Clone)]
pub enum Input {
    Scan(Arc<ScanExec>),
    /// Any other operator.
    Plan(Arc<dyn ExecutionPlan>),
}

impl Input {
    pub fn plan(&self) -> Arc<dyn ExecutionPlan> {
        match self {
            Input::Scan(scan) => Arc::clone(scan) as _,
            Input::Plan(plan) => Arc::clone(plan),
        }
    }
}

/// `None`: there is nothing in it that is better done in pipelines.
pub fn compile(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Compiled>> {
    let order = match plan.output_ordering() {
        Some(order) if is_root(plan) && is_one(plan) => Some(order),
        Some(_) if !is_sorted_root(plan) => return Ok(None),
        None if !is_root(plan) && !is_sorted_root(plan) => return Ok(None),
        _ => None,
    };
    let mut compiler = Compiler::default();
    let mut flow = compiler.flow(plan)?;
    if let Some(order) = order {
        flow = compiler.sorted(flow, order, &plan.schema(), None)?;
    }
    if compiler.sinks.is_empty() {
        return Ok(None);
    }
    let types = types(&plan.schema());
    let sink = compiler.sink(Sink::Emit(types));
    for feed in flow {
        let inputs = feed.columns.clone();
        compiler.end(feed, sink, inputs);
    }
    let Compiler { inputs, mut pipelines, sinks, .. } = compiler;
    filter_groups_early(&mut pipelines, &sinks);
    Ok(Some(Compiled { plan: Plan { pipelines, sinks }, inputs }))
}

/// What is grouped and then joined by its keys is reduced before it is grouped: of groups without a
/// match nothing comes, so their rows need not be aggregated. Holds if the table is built by then.
fn filter_groups_early(pipelines: &mut [Pipeline], sinks: &[Sink]) {
    for after in (0..pipelines.len()).rev() {
        let Source::Groups(groups) = pipelines[after].source else { continue };
        let Sink::Aggregate(spec) = &sinks[groups] else { continue };
        if pipelines.iter().filter(|p| reads(p, groups)).count() > 1 {
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

fn reads(pipeline: &Pipeline, groups: usize) -> bool {
    matches!(pipeline.source, Source::Groups(sink) if sink == groups)
}

/// Whether pipelines may end with this operator: one that makes rows, or only looks at them above
/// one that does.
fn is_root(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<ProjectionExec>() || plan.is::<FilterExec>() {
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
        } else if let Some(sort) = below.downcast_ref::<SortExec>() {
            return is_root(sort.input());
        } else {
            return false;
        }
    }
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
    /// What has been grouped, and the flow of the groups.
    grouped: Vec<(Arc<dyn ExecutionPlan>, Flow)>,
    /// Joins, and the sinks of their tables, which no probe marks.
    built: Vec<(Arc<dyn ExecutionPlan>, usize)>,
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

    fn flow(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Flow> {
        if let Some(only) = passes_on(plan) {
            return self.flow(only);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let schema = projection.input().schema();
            let mut flow = self.flow(projection.input())?;
            for feed in &mut flow {
                let exprs = projection.expr().iter();
                let exprs = exprs.map(|p| translate(&p.expr, &schema, &feed.columns));
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
                let conjuncts = conjuncts(filter.predicate(), &schema, &feed.columns)?;
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
            if is_root(merge.input()) {
                let flow = self.flow(merge.input())?;
                return self.sorted(flow, merge.expr(), &merge.schema(), merge.fetch());
            }
            self.fetch = merge.fetch();
            return self.flow(merge.input());
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            return self.sort(sort);
        }
        if covers_join(plan)
            && let Some(join) = plan.downcast_ref::<HashJoinExec>()
        {
            return self.join(plan, join);
        }
        if let Some((top, bottom)) = covers_aggregate(plan) {
            if let Some((_, flow)) = self.grouped.iter().find(|(known, _)| same(known, plan)) {
                return Ok(flow.clone());
            }
            let flow = match bottom.group_expr().has_grouping_set() {
                true => self.grouping_sets(top, bottom)?,
                false => self.aggregate(top, bottom)?,
            };
            self.grouped.push((Arc::clone(plan), flow.clone()));
            return Ok(flow);
        }
        if let Some(windows) = windows(plan) {
            return self.window(&windows, &plan.schema());
        }
        let input = match plan.downcast_ref::<ScanExec>() {
            Some(scan) if scan.fetch().is_none() => Input::Scan(Arc::new(scan.unfed())),
            _ => Input::Plan(Arc::clone(plan)),
        };
        self.inputs.push(input);
        Ok(vec![Feed::new(Source::External(self.inputs.len() - 1), fields(&plan.schema()))])
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
            let keys = order.iter().map(|k| translate(&k.expr, schema, &feed.columns));
            let mut inputs = keys.collect::<Result<Vec<_>>>()?;
            inputs.extend(feed.columns.iter().cloned());
            self.end(feed, sink, inputs);
        }
        Ok(vec![Feed::new(Source::Groups(sink), fields(schema))])
    }

    fn join(&mut self, plan: &Arc<dyn ExecutionPlan>, join: &HashJoinExec) -> Result<Flow> {
        let (left, right) = (join.left().schema(), join.right().schema());
        let kind = join.join_type;
        // What of the build side is wanted after the join.
        let wanted = wanted(join);
        let table = self.table(plan, join, &wanted)?;
        let probe = self.flow(unordered(join.right()))?;
        let step = match kind {
            JoinType::Inner => Join::Pairs { outer: false, mark: false },
            JoinType::Right => Join::Pairs { outer: true, mark: false },
            JoinType::Left => Join::Pairs { outer: false, mark: true },
            JoinType::Full => Join::Pairs { outer: true, mark: true },
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Join::MarkTable,
            JoinType::RightSemi => Join::Semi,
            JoinType::RightAnti => Join::Anti,
            JoinType::RightMark => Join::Mark,
        };
        let mut flow = vec![];
        let discard = (step == Join::MarkTable).then(|| self.sink(Sink::Discard));
        for mut feed in probe {
            let keys = join.on.iter().map(|(_, r)| translate(r, &right, &feed.columns));
            let keys = keys.collect::<Result<Vec<_>>>()?;
            let first = feed.registers.len();
            let payload: Vec<Expr> = wanted
                .iter()
                .enumerate()
                .map(|(i, &c)| Expr::Register(first + i, left.field(c).data_type().clone()))
                .collect();
            let at = |column: usize| wanted.binary_search(&column).expect("wanted");
            let condition = match &join.filter {
                None => None,
                Some(filter) => {
                    let columns = filter.column_indices().iter().map(|c| match c.side {
                        JoinSide::Left => payload[at(c.index)].clone(),
                        _ => feed.columns[c.index].clone(),
                    });
                    let columns: Vec<_> = columns.collect();
                    Some(translate(filter.expression(), filter.schema(), &columns)?)
                }
            };
            feed.steps.push(Step::Probe(Probe {
                sink: table,
                keys: keys.clone(),
                kind: step,
                condition,
            }));
            // Equal keys are the same values: those of the probe side need no look-up.
            let of_left = |column: usize| {
                let key = join.on.iter().position(|(l, r)| {
                    let same = |t: &DataType| r.data_type(&right).is_ok_and(|r| r == *t);
                    l.downcast_ref::<Column>().is_some_and(|l| l.index() == column)
                        && l.data_type(&left).is_ok_and(|t| is_word(&t) && same(&t))
                });
                match (key, kind) {
                    (Some(key), JoinType::Inner | JoinType::Left) => keys[key].clone(),
                    _ => match wanted.binary_search(&column) {
                        Ok(i) => payload[i].clone(),
                        Err(_) => null(left.field(column).data_type()),
                    },
                }
            };
            let lefts = |feed: &mut Feed| -> Vec<Expr> {
                feed.registers.extend(payload.iter().map(Expr::data_type));
                feed.names.extend(wanted.iter().map(|&i| left.field(i).name().clone()));
                (0..left.fields().len()).map(of_left).collect()
            };
            feed.columns = match step {
                Join::Pairs { .. } => {
                    let mut columns = lefts(&mut feed);
                    columns.append(&mut feed.columns);
                    columns
                }
                Join::MarkTable => {
                    self.end(feed, discard.unwrap_or_default(), vec![]);
                    continue;
                }
                Join::Semi | Join::Anti => feed.columns,
                Join::Mark => {
                    feed.registers.push(DataType::Boolean);
                    feed.names.push("mark".to_string());
                    let mark = Expr::Register(feed.registers.len() - 1, DataType::Boolean);
                    feed.columns.push(mark);
                    feed.columns
                }
            };
            feed.columns = projected(join, feed.columns);
            flow.push(feed);
        }
        let rows = match kind {
            JoinType::LeftSemi => TableRows::Matched,
            JoinType::LeftMark => TableRows::Marked,
            JoinType::LeftAnti | JoinType::Left | JoinType::Full => TableRows::Unmatched,
            _ => return Ok(flow),
        };
        let payload = wanted.iter().map(|&i| field(left.field(i)));
        let mark = (rows == TableRows::Marked).then(|| ("mark".to_string(), DataType::Boolean));
        let mut feed = Feed::new(Source::Table { sink: table, rows }, payload.chain(mark));
        let left_columns =
            left.fields().iter().enumerate().map(|(c, field)| match wanted.binary_search(&c) {
                Ok(i) => feed.columns[i].clone(),
                Err(_) => null(field.data_type()),
            });
        let mut columns: Vec<Expr> = left_columns.collect();
        match kind {
            JoinType::LeftMark => columns.extend(feed.columns.last().cloned()),
            JoinType::Left | JoinType::Full => {
                columns.extend(right.fields().iter().map(|f| null(f.data_type())));
            }
            _ => {}
        }
        feed.columns = projected(join, columns);
        flow.push(feed);
        Ok(flow)
    }

    /// The table of a join's build side: a new one, or that of another join. It has the columns
    /// `wanted`.
    fn table(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        join: &HashJoinExec,
        wanted: &[usize],
    ) -> Result<usize> {
        let left = join.left().schema();
        let key_types = join.on.iter().map(|(l, _)| l.data_type(&left));
        let spec = table::Spec {
            key_types: key_types.collect::<Result<_>>()?,
            payload_types: wanted.iter().map(|&i| left.field(i).data_type().clone()).collect(),
            nulls_equal: join.null_equality == NullEquality::NullEqualsNull,
            keep_null_keys: matches!(
                join.join_type,
                JoinType::Left | JoinType::Full | JoinType::LeftAnti | JoinType::LeftMark
            ),
        };
        let known = self.built.iter().find(|(other, _)| {
            other.downcast_ref::<HashJoinExec>().is_some_and(|other| {
                !marks_table(join)
                    && join.on.len() == other.on.len()
                    && join.on.iter().zip(&other.on).all(|(a, b)| same_expr(&a.0, &b.0))
                    && join.null_equality == other.null_equality
                    && wanted == self::wanted(other)
                    && same(join.left(), other.left())
            })
        });
        if let Some((_, table)) = known {
            return Ok(*table);
        }
        let build = self.flow(unordered(join.left()))?;
        let table = self.sink(Sink::Build(spec));
        for feed in build {
            let keys = join.on.iter().map(|(l, _)| translate(l, &left, &feed.columns));
            let mut inputs = keys.collect::<Result<Vec<_>>>()?;
            inputs.extend(wanted.iter().map(|&i| feed.columns[i].clone()));
            self.end(feed, table, inputs);
        }
        if !marks_table(join) {
            self.built.push((Arc::clone(plan), table));
        }
        Ok(table)
    }

    fn aggregate(&mut self, top: &AggregateExec, bottom: &AggregateExec) -> Result<Flow> {
        let keys: Vec<usize> = (0..bottom.group_expr().expr().len()).collect();
        let aggregation = Aggregation::new(bottom)?;
        let sink = self.group(bottom, &keys, aggregation)?;
        Ok(vec![Feed::new(Source::Groups(sink), fields(&top.schema()))])
    }

    /// Groups the rows of an aggregate's input by some of its keys.
    fn group(
        &mut self,
        bottom: &AggregateExec,
        keys: &[usize],
        aggregation: Aggregation,
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
        let spec = Arc::new(Spec { key_types, argument_types, functions });
        let sink = self.sink(Sink::Aggregate(spec));
        for feed in input {
            let exprs = keys.clone().chain(&arguments).chain(&filters);
            let inputs = exprs.map(|e| translate(e, &schema, &feed.columns));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            self.end(feed, sink, inputs);
        }
        Ok(sink)
    }

    /// Rows are grouped by all columns of any set, and these groups again by fewer columns.
    fn grouping_sets(&mut self, top: &AggregateExec, bottom: &AggregateExec) -> Result<Flow> {
        let schema = top.schema();
        let groups = bottom.group_expr().groups();
        let count = bottom.group_expr().expr().len();
        let kept = |nulls: &Vec<bool>| (0..count).filter(|&c| !nulls[c]).collect();
        let (levels, places) = levels(&groups.iter().map(kept).collect::<Vec<_>>());
        let Aggregation { mut functions, arguments, filters } = Aggregation::new(bottom)?;
        let results = functions.len();
        // An average is made of a sum and a count, which stand after the results.
        for n in 0..results {
            if matches!(functions[n].kind, Kind::Avg) {
                let input = bottom.input().schema();
                let of = arguments[functions[n].arguments[0]].data_type(&input)?;
                let sum =
                    Function { kind: Kind::Sum, result: sum_type(of), ..functions[n].clone() };
                let kind = Kind::Count;
                functions.push(sum);
                functions.push(Function { kind, result: DataType::Int64, ..functions[n].clone() });
            }
        }
        let again = Self::regrouped(&functions, results);
        let aggregation = Aggregation { functions: functions.clone(), arguments, filters };
        let mut sinks = vec![self.group(bottom, &levels[0].set, aggregation)?];
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
    fn regrouped(functions: &[Function], results: usize) -> Vec<Function> {
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

    fn window(&mut self, windows: &Windows, schema: &SchemaRef) -> Result<Flow> {
        let input_schema = windows.input.schema();
        let input = self.flow(unordered(windows.input))?;
        let partition = windows.partition_by.iter().map(|e| (e, SortOptions::default()));
        let order = windows.order_by.iter().map(|key| (&key.expr, key.options));
        let mut keys: Vec<_> = partition.chain(order).collect();
        let mut partition_keys = windows.partition_by.len();
        // OVER (): all rows have the same key.
        let same_for_all = lit(true);
        if keys.is_empty() {
            keys.push((&same_for_all, SortOptions::default()));
            partition_keys = 1;
        }
        // After the columns stands what is computed of them.
        let columns = input_schema.fields().len();
        let mut computed = vec![];
        let mut place = |expr: &Arc<dyn PhysicalExpr>| match expr.downcast_ref::<Column>() {
            Some(column) => column.index(),
            None => columns + place(&mut computed, expr),
        };
        let key_columns = keys.iter().map(|(expr, _)| place(expr)).collect();
        let read: Vec<usize> = windows.read.iter().map(place).collect();
        let functions = windows.functions.iter().map(|function| window::Function {
            arguments: function.arguments.iter().map(|&a| read[a]).collect(),
            ..function.clone()
        });
        let functions = functions.collect();
        let mut payload_types = types(&input_schema);
        for expr in &computed {
            payload_types.push(expr.data_type(&input_schema)?);
        }
        let keys_typed = keys.iter().map(|(e, o)| Ok((e.data_type(&input_schema)?, *o)));
        let keys_typed = keys_typed.collect::<Result<_>>()?;
        let sink = self.sink(Sink::Window(window::Spec {
            sort: sort::Spec {
                keys: keys_typed,
                payload_types,
                fetch: None,
                together: partition_keys,
            },
            columns,
            keys: key_columns,
            partition_keys,
            functions,
        }));
        for feed in input {
            let exprs = keys.iter().map(|(e, _)| translate(e, &input_schema, &feed.columns));
            let mut inputs = exprs.collect::<Result<Vec<_>>>()?;
            inputs.extend(feed.columns.iter().cloned());
            for expr in &computed {
                inputs.push(translate(expr, &input_schema, &feed.columns)?);
            }
            self.end(feed, sink, inputs);
        }
        Ok(vec![Feed::new(Source::Groups(sink), fields(schema))])
    }
}

/// The functions of an aggregate, and what they read of its input.
struct Aggregation {
    functions: Vec<Function>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
}

impl Aggregation {
    fn new(bottom: &AggregateExec) -> Result<Self> {
        let schema = bottom.input().schema();
        let grouped = !bottom.group_expr().expr().is_empty();
        let (mut arguments, mut filters) = (vec![], vec![]);
        let functions = bottom.aggr_expr().iter().zip(bottom.filter_expr());
        let functions = functions.map(|(f, filter)| {
            function(f, filter.as_ref(), &schema, grouped, &mut arguments, &mut filters)
        });
        let functions = functions.collect::<Result<_>>()?;
        Ok(Aggregation { functions, arguments, filters })
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
fn grouping_ids(groups: &[Vec<bool>], data_type: &DataType) -> Result<Vec<ArrayRef>> {
    let id = |(n, nulls): (usize, &Vec<bool>)| {
        let before = groups[..n].iter().filter(|other| *other == nulls).count() as u64;
        let missing = nulls.iter().fold(0, |id, &null| id << 1 | u64::from(null));
        let id = missing | before.checked_shl(nulls.len() as u32).unwrap_or(0);
        ScalarValue::UInt64(Some(id)).cast_to(data_type)?.to_array_of_size(1)
    };
    groups.iter().enumerate().map(id).collect()
}

fn marks_table(join: &HashJoinExec) -> bool {
    use JoinType::*;
    matches!(join.join_type, Left | Full | LeftSemi | LeftAnti | LeftMark)
}

/// Operators that only move rows between tasks.
fn passes_on(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        return Some(repartition.input());
    }
    if let Some(coalesce) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| coalesce.input());
    }
    plan.downcast_ref::<CooperativeExec>().map(|c| c.input())
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

fn covers_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    // NOT IN asks whether there is a NULL anywhere.
    plan.downcast_ref::<HashJoinExec>().is_some_and(|j| !j.null_aware && j.fetch().is_none())
}

/// The node whose output it is, and the one whose input is read: the same, or the two halves that
/// DataFusion makes to aggregate in parallel.
fn covers_aggregate(plan: &Arc<dyn ExecutionPlan>) -> Option<(&AggregateExec, &AggregateExec)> {
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
    // MIN and MAX of a whole table, which skips chunks by what it has found.
    if !bottom.dynamic_expressions_produced().is_empty() {
        return None;
    }
    let covered = (!bottom.group_expr().has_grouping_set() || covers_grouping_sets(bottom))
        && *bottom.input_order_mode() == InputOrderMode::Linear
        && bottom.aggr_expr().iter().all(|f| f.order_bys().is_empty());
    covered.then_some((top, bottom))
}

/// Whether the groups of one set can be made of those of another.
fn covers_grouping_sets(bottom: &AggregateExec) -> bool {
    let combined = |f: &Arc<AggregateFunctionExpr>| {
        let Some(kind) = native(f) else { return false };
        let schema = bottom.input().schema();
        let types =
            f.expressions().iter().map(|e| e.data_type(&schema)).collect::<Result<Vec<_>>>();
        matches!(kind, Kind::CountRows) || types.is_ok_and(|types| is_combined(&kind, &types))
    };
    bottom.aggr_expr().iter().all(combined)
}

/// The kind of function that may have a kernel.
fn native(aggregate: &AggregateFunctionExpr) -> Option<Kind> {
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
fn place(exprs: &mut Vec<Arc<dyn PhysicalExpr>>, expr: &Arc<dyn PhysicalExpr>) -> usize {
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
) -> Result<Function> {
    let own = aggregate.expressions();
    let types = own.iter().map(|e| e.data_type(schema)).collect::<Result<Vec<_>>>()?;
    let kind = native(aggregate);
    let (kind, read) = match kind {
        Some(Kind::CountRows) => (Kind::CountRows, vec![]),
        Some(Kind::Sum) if is_native(&Kind::Sum, &types) => {
            let unwidened = own.iter().map(|e| unwidened(e, schema)).collect::<Result<_>>()?;
            (Kind::Sum, unwidened)
        }
        Some(kind) if is_native(&kind, &types) => (kind, own),
        _ => (Kind::External(Arc::new(ForeignAggregate::new(aggregate, grouped)?)), own),
    };
    Ok(Function {
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

/// Columns of the build side that anybody reads after its rows were found, in order.
fn wanted(join: &HashJoinExec) -> Vec<usize> {
    let left = join.left().schema().fields().len();
    let gives_left =
        !matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
    let mut wanted: Vec<usize> = match &join.projection {
        Some(projection) => projection.iter().copied().filter(|&i| i < left).collect(),
        None => (0..left).collect(),
    };
    if !gives_left {
        wanted.clear();
    }
    if let Some(filter) = &join.filter {
        let of_left = filter.column_indices().iter().filter(|c| c.side == JoinSide::Left);
        wanted.extend(of_left.map(|c| c.index));
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

fn projected(join: &HashJoinExec, columns: Vec<Expr>) -> Vec<Expr> {
    match &join.projection {
        Some(projection) => projection.iter().map(|&i| columns[i].clone()).collect(),
        None => columns,
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
