//! Keys of groups that a joined table decides.
//!
//! Who groups a table by names and descriptions of another one joined to it would look each row's
//! texts up to find its group. But they are the same for all rows that go with one row of the other
//! table. So rows are grouped by the number of that row first, and then the groups that this gives,
//! which are fewer and come in the order of these rows, by the texts:
//!
//! ```text
//!   scan → probe #0 → group by row of #0, d_year        groups of #1 → fetch from #0 → group by
//!                     (sink #1)                                        i_product_name, i_brand, d_year
//! ```

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Statistics;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};
use thalweg_ir::aggregate::{Spec, is_bytes};
use thalweg_ir::plan::{computed, mark_read};
use thalweg_ir::{Expr, Join, Probe, Register, Sink, Source, Step};

use super::groups::add_parts;
use super::join::wanted;
use super::{Compiler, Feed};
use thalweg_exec::ScanExec;

/// As many rows there must be for each group of rows, by how many texts these have for themselves:
/// the more there are to look up or to compare, the more grouping by the rows saves.
const ROWS_PER_GROUP: [f64; 4] = [4.0, 4.0, 2.0, 1.0];
/// One of the columns must have so many values for each row of the table: else grouping by the rows
/// makes many more groups.
const VALUES_PER_ROW: f64 = 0.5;
/// And so many for each row before any filter, as numbers of distinct values are.
const VALUES_PER_STORED_ROW: f64 = 0.05;
/// Of a key of which nothing is known.
const VALUES: f64 = 16.0;

/// A table of which group keys are columns.
pub(super) struct LateTable {
    sink: usize,
    /// Those of its payload.
    registers: Range<Register>,
    /// One of them that nothing but the keys reads.
    unread: Register,
}

impl Compiler {
    /// The tables whose rows should be grouped by instead of some of the keys of a feed, of which
    /// `others` are read beside its keys. `input`: what is grouped, and which of its columns the
    /// keys are.
    pub(super) fn late_tables(
        &self,
        (input, columns): (&Arc<dyn ExecutionPlan>, &[Option<usize>]),
        feed: &Feed,
        keys: &[Expr],
        others: &[Expr],
    ) -> Vec<LateTable> {
        if !keys.iter().any(|key| is_bytes(&key.data_type())) {
            return vec![];
        }
        let context = StatisticsContext::new();
        let Some((rows, statistics)) = known(&context, input) else { return vec![] };
        let (mut groups, mut texts) = (1.0, 0);
        let (mut found, mut first) = (vec![], feed.types.len());
        for step in &feed.steps {
            let registers = first..first + step.added(&self.sinks);
            first = registers.end;
            if let Step::Probe(probe) = step
                && let Some((table_rows, own)) = self.decides(&context, probe, &registers, keys)
            {
                found.push(LateTable { sink: probe.sink, unread: registers.start, registers });
                groups *= table_rows;
                texts += own;
            }
        }
        // A register that somebody reads is gathered, and then nobody knows of which row it was.
        let computed = computed(feed.types.len(), &feed.steps, &self.sinks);
        let mut read = vec![false; computed.len()];
        for (key, column) in keys.iter().zip(columns) {
            if table_of(&found, key).is_none() {
                let values = column.and_then(|c| distinct(&statistics, c)).unwrap_or(VALUES);
                groups *= values.max(1.0);
                mark_read(key, &computed, &mut read);
            }
        }
        if groups * ROWS_PER_GROUP[texts.min(ROWS_PER_GROUP.len() - 1)] > rows as f64 {
            return vec![];
        }
        others.iter().for_each(|expr| mark_read(expr, &computed, &mut read));
        feed.steps.iter().for_each(|step| step.mark_read(&computed, &mut read));
        let unread = |mut table: LateTable| {
            table.unread = table.registers.clone().find(|&register| !read[register])?;
            Some(table)
        };
        found.into_iter().filter_map(unread).collect()
    }

    /// The rows of a probe's table, if there is a text of it among the keys, and one of the keys
    /// has nearly another value for each of its rows; and how many texts have.
    fn decides(
        &self,
        context: &StatisticsContext,
        probe: &Probe,
        registers: &Range<Register>,
        keys: &[Expr],
    ) -> Option<(f64, usize)> {
        let (plan, _) = self.built.iter().find(|(_, sink)| *sink == probe.sink)?;
        let join = plan.downcast_ref::<HashJoinExec>()?;
        let own = keys.iter().filter_map(|key| match key {
            Expr::Register(r, data_type) if registers.contains(r) => Some((*r, data_type)),
            _ => None,
        });
        if probe.kind != (Join::Pairs { outer: false, mark: false })
            || !own.clone().any(|(_, data_type)| is_bytes(data_type))
        {
            return None;
        }
        let (rows, statistics) = known(context, join.left())?;
        let wanted = wanted(join);
        let of_stored = stored_rows(join.left()) as f64 * VALUES_PER_STORED_ROW;
        let enough = of_stored.max(rows as f64 * VALUES_PER_ROW);
        let own = own.filter(|(r, _)| {
            let values = distinct(&statistics, wanted[r - registers.start]);
            values.is_some_and(|values| values >= enough)
        });
        let texts = own.clone().filter(|(_, data_type)| is_bytes(data_type)).count();
        (own.count() > 0).then_some((rows.max(1) as f64, texts))
    }

    /// Groups by the rows of tables instead of their columns, and these groups by the keys, and
    /// gives the sink of the second. All functions after the first `results` are parts that
    /// averages are made of.
    pub(super) fn group_late(
        &mut self,
        feed: Feed,
        tables: &[LateTable],
        (keys, others): (&[Expr], Vec<Expr>),
        mut spec: Spec,
        results: usize,
    ) -> usize {
        let wanted = spec.functions.len();
        if wanted == results {
            add_parts(&mut spec.functions, &spec.argument_types);
        }
        let name = |key: &Expr| match key {
            Expr::Register(r, _) => feed.names.get(*r).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        let mut inputs: Vec<Expr> = tables.iter().map(|t| Expr::Row(t.unread)).collect();
        let mut fields: Vec<_> =
            tables.iter().map(|t| (format!("row of #{}", t.sink), DataType::UInt32)).collect();
        for key in keys.iter().filter(|key| table_of(tables, key).is_none()) {
            inputs.push(key.clone());
            fields.push((name(key), key.data_type()));
        }
        let key_types = fields.iter().map(|(_, data_type)| data_type.clone()).collect();
        inputs.extend(others);
        fields.extend(spec.functions.iter().map(|f| (String::new(), f.result.clone())));
        let arguments = fields.len() - spec.functions.len()..fields.len();
        let sink = self.sink(Sink::Aggregate(Arc::new(Spec { key_types, ..spec.clone() })));
        let mut late = Feed::new(Source::Groups(sink), fields.into_iter());
        let mut first = vec![];
        for (n, table) in tables.iter().enumerate() {
            first.push(late.registers.len());
            late.registers.extend(feed.registers[table.registers.clone()].iter().cloned());
            late.names.extend(feed.names[table.registers.clone()].iter().cloned());
            late.steps.push(Step::Fetch { sink: table.sink, row: n });
        }
        let mut own = tables.len()..;
        let late_keys = keys.iter().map(|key| match (key, table_of(tables, key)) {
            (Expr::Register(r, data_type), Some(n)) => {
                Expr::Register(first[n] + r - tables[n].registers.start, data_type.clone())
            }
            _ => Expr::Register(own.next().unwrap_or_default(), key.data_type()),
        });
        let mut late_inputs: Vec<Expr> = late_keys.collect();
        late_inputs.extend(late.columns[arguments].iter().cloned());
        self.end(feed, sink, inputs);
        let functions = Self::regrouped(&spec.functions, results).into_iter().take(wanted);
        let sink = self.sink(Sink::Aggregate(Arc::new(Spec {
            key_types: spec.key_types,
            functions: functions.collect(),
            argument_types: spec.functions.into_iter().map(|f| f.result).collect(),
        })));
        self.end(late, sink, late_inputs);
        sink
    }
}

/// Which of the tables a key is a column of.
fn table_of(tables: &[LateTable], key: &Expr) -> Option<usize> {
    match key {
        Expr::Register(r, _) => tables.iter().position(|table| table.registers.contains(r)),
        _ => None,
    }
}

/// How many rows a plan gives, and what is known of its columns.
fn known(
    context: &StatisticsContext,
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(usize, Arc<Statistics>)> {
    let known = context.compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    Some((*known.num_rows.get_value()?, known))
}

/// How many values a column has.
fn distinct(statistics: &Statistics, column: usize) -> Option<f64> {
    let known = statistics.column_statistics.get(column)?;
    known.distinct_count.get_value().map(|&n| n as f64)
}

/// Of the largest table below, without any filter.
fn stored_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    match plan.downcast_ref::<ScanExec>() {
        Some(scan) => scan.contents().rows() as usize,
        None => plan.children().into_iter().map(stored_rows).max().unwrap_or(usize::MAX),
    }
}
