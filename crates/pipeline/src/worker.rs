//! Runs the batches of one pipeline on one thread, in bounded steps.
//!
//! A batch may become many, where a row has many matches. So the worker keeps what is left to do on
//! a stack: each [`Worker::step`] does one piece of the work at its top, and the caller may do
//! something else in between.

mod early;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::UInt32Type;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};
use thalweg_ir::{Join, Source, TableRows};

use crate::aggregate::spill::Sealed;
use crate::aggregate::{Groups, Merging, Partial};
use crate::batch::Batch;
use crate::expr::{Evaluate, Expr};
use crate::prepared::{Pipeline, Plan, Probe, Sink, Step};
use crate::table::{Collected, NONE, Scratch, Table};
use crate::{sort, table};
use early::{Condition, Early};

/// What a sink has become.
#[derive(Clone)]
pub enum Finished {
    Table(Arc<BuiltTable>),
    /// A table whose parts are elsewhere: see [`Worker::set_table`].
    Parts,
    /// To be merged by whoever reads them, once.
    Merging(Arc<Merging>),
    /// Rows in order, or groups in none.
    Rows(Arc<Vec<Groups>>),
    /// To be put in order by whoever reads them, range by range.
    Sorting(Arc<sort::Sorting>),
    Nothing,
}

/// A table and what was found out by probing it.
pub struct BuiltTable {
    pub table: Table,
    /// Columns of its payload.
    payload: usize,
    marks: Marks,
}

/// Which rows of a table were matched.
#[derive(Clone)]
pub struct Marks {
    /// Bits; empty unless somebody asks.
    matched: Arc<[AtomicU64]>,
    asked: Arc<Asked>,
}

/// What was looked up for `NOT IN`: whether there were rows, and NULLs. Common to all parts of a
/// table.
#[derive(Default)]
pub struct Asked {
    any: AtomicBool,
    null: AtomicBool,
}

impl Marks {
    /// None, of so many rows.
    pub fn new(rows: usize, asked: Arc<Asked>) -> Self {
        Marks { matched: (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(), asked }
    }
}

impl BuiltTable {
    /// `payload`: its number of columns. `marked`: a probe marks its rows.
    pub fn new(table: Table, payload: usize, marked: bool) -> Self {
        let marks = Marks::new(if marked { table.rows() } else { 0 }, Arc::default());
        Self::with_marks(table, payload, marks)
    }

    /// Goes on from what the same rows were marked with.
    pub fn with_marks(table: Table, payload: usize, marks: Marks) -> Self {
        BuiltTable { table, payload, marks }
    }

    /// Keys were looked up for `NOT IN`.
    fn ask(&self, keys: &[ArrayRef], rows: usize) {
        let asked = &self.marks.asked;
        asked.any.fetch_or(rows > 0, Ordering::Relaxed);
        let null = keys.iter().any(|key| key.logical_null_count() > 0);
        asked.null.fetch_or(null, Ordering::Relaxed);
    }

    /// See [`TableRows::NotIn`].
    fn is_not_in(&self, row: u32) -> bool {
        let asked = &self.marks.asked;
        if self.is_marked(row) || asked.null.load(Ordering::Relaxed) {
            return false;
        }
        let key = self.table.payload(self.payload - 1);
        !asked.any.load(Ordering::Relaxed) || key.is_valid(row as usize)
    }

    fn mark(&self, row: u32) {
        let (word, bit) = (&self.marks.matched[row as usize / 64], 1u64 << (row % 64));
        // Most matches repeat: a load is cheaper than a locked instruction.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn is_marked(&self, row: u32) -> bool {
        self.marks.matched[row as usize / 64].load(Ordering::Relaxed) & (1 << (row % 64)) != 0
    }
}

/// What a worker has collected for its sink.
pub enum Part {
    Build(Collected),
    Aggregate(Box<Partial>),
    Sort(Box<sort::Collected>),
    Nothing,
}

impl Part {
    /// An empty one, of one of so many workers. `apart`: what these have for it [is](is_apart).
    pub fn new(sink: &Sink, workers: usize, apart: bool) -> Result<Self> {
        Ok(match sink {
            Sink::Build(spec) => Part::Build(Collected::new(spec)),
            Sink::Aggregate(spec) if apart => Part::Aggregate(Box::new(Partial::apart(spec)?)),
            Sink::Aggregate(spec) => Part::Aggregate(Box::new(Partial::new(spec, workers)?)),
            Sink::Sort(spec) => Part::Sort(Box::new(sort::Collected::new(spec)?)),
            Sink::Window(spec) => Part::Sort(Box::new(sort::Collected::new(&spec.sort)?)),
            Sink::Emit(_) | Sink::Discard => Part::Nothing,
        })
    }

    pub fn memory_bytes(&self) -> usize {
        match self {
            Part::Build(collected) => collected.memory_bytes(),
            Part::Aggregate(partial) => partial.memory_bytes(),
            Part::Sort(collected) => collected.memory_bytes(),
            Part::Nothing => 0,
        }
    }

    /// Gives away what was collected, if that can go on in parts.
    pub fn spill(&mut self) -> Result<Given> {
        Ok(match self {
            Part::Aggregate(partial) => match partial.spill()? {
                none if none.is_empty() => Given::Nothing,
                groups => Given::Groups(groups),
            },
            Part::Build(collected) => Given::Rows(collected.give()),
            Part::Sort(collected) => Given::Sorting(collected.give()?),
            Part::Nothing => Given::Nothing,
        })
    }
}

/// What a sink has given away.
pub enum Given {
    Nothing,
    Groups(Vec<Sealed>),
    /// Of a table.
    Rows(table::Given),
    /// To be sorted.
    Sorting(sort::Sorting),
}

/// The number of morsels of a source that is not the caller's, and each of them.
pub fn morsels(source: &Source, sinks: &[Option<Finished>]) -> Result<usize> {
    Ok(match source {
        Source::External(_) | Source::Parts { .. } => 0,
        Source::Groups(sink) => match &sinks[*sink] {
            Some(Finished::Merging(merging)) => merging.parts(),
            Some(Finished::Rows(rows)) => rows.len(),
            Some(Finished::Sorting(sorting)) => sorting.ranges(),
            _ => return Err(no_groups(*sink)),
        },
        Source::Table { sink, .. } => table_morsels(table(sinks, *sink)?),
    })
}

/// Whether the morsels of a source have no groups in common for who groups them.
pub fn is_apart(source: &Source, sinks: &[Option<Finished>]) -> bool {
    match source {
        Source::Groups(sink) => match &sinks[*sink] {
            Some(Finished::Merging(merging)) => merging.is_apart(),
            _ => false,
        },
        _ => false,
    }
}

/// The batches of morsel `n` of such a source.
pub fn morsel(source: &Source, sinks: &[Option<Finished>], n: usize) -> Result<Vec<Batch>> {
    match source {
        Source::External(_) | Source::Parts { .. } => {
            Err(Error::internal("the caller's source has no morsels of ours"))
        }
        Source::Groups(sink) => match &sinks[*sink] {
            Some(Finished::Merging(merging)) => Ok(batches(merging.groups(n)?)),
            Some(Finished::Rows(rows)) => Ok(batches(vec![rows[n].clone()])),
            Some(Finished::Sorting(sorting)) => Ok(batches(vec![sorting.first_rows(n)?])),
            _ => Err(no_groups(*sink)),
        },
        Source::Table { sink, rows } => Ok(vec![table_rows(table(sinks, *sink)?, *rows, n)]),
    }
}

/// How many batches of rows a table has.
pub fn table_morsels(built: &BuiltTable) -> usize {
    built.table.rows().div_ceil(BATCH_ROWS)
}

/// The `n`th of them, of these rows.
pub fn table_rows(built: &BuiltTable, rows: TableRows, n: usize) -> Batch {
    let all = (n * BATCH_ROWS) as u32..((n + 1) * BATCH_ROWS).min(built.table.rows()) as u32;
    let picked: Vec<u32> = match rows {
        TableRows::Marked => all.clone().collect(),
        TableRows::Matched => all.clone().filter(|&r| built.is_marked(r)).collect(),
        TableRows::Unmatched => all.clone().filter(|&r| !built.is_marked(r)).collect(),
        TableRows::NotIn => all.clone().filter(|&r| built.is_not_in(r)).collect(),
    };
    let mut batch = Batch::new(vec![], picked.len());
    extend(&mut batch, built, picked.into());
    if rows == TableRows::Marked {
        let marks = all.map(|row| Some(built.is_marked(row)));
        batch.push(Arc::new(marks.collect::<BooleanArray>()));
    }
    batch
}

/// Groups, as a pipeline takes them in.
pub fn batches(groups: Vec<Groups>) -> Vec<Batch> {
    groups.into_iter().map(|g| Batch::new(g.columns, g.rows)).collect()
}

fn no_groups(sink: usize) -> Error {
    Error::internal(format!("sink #{sink} has no groups"))
}

fn no_table() -> Error {
    Error::internal("a probe has no table")
}

fn table(sinks: &[Option<Finished>], sink: usize) -> Result<&Arc<BuiltTable>> {
    match &sinks[sink] {
        Some(Finished::Table(table)) => Ok(table),
        _ => Err(Error::internal(format!("sink #{sink} is no table"))),
    }
}

/// One thread's share of one pipeline.
pub struct Worker {
    plan: Arc<Plan>,
    pipeline: usize,
    /// By step: those it probes; `None` until it is set.
    tables: Vec<Option<Arc<BuiltTable>>>,
    /// By step: of those that probe.
    conditions: Vec<Condition>,
    live: Vec<Vec<bool>>,
    part: Part,
    /// What is left to do, the next on top.
    stack: Vec<Work>,
    emitted: VecDeque<(Vec<ArrayRef>, usize)>,
    seen: Seen,
    scratch: Scratch,
}

/// What a worker has done so far. Times are taken once per batch and step: what a register costs
/// that is gathered or computed late counts where it is first read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// From the source.
    pub rows_in: usize,
    /// Into the sink.
    pub rows_out: usize,
    pub in_probes: Duration,
    pub in_sink: Duration,
}

enum Work {
    /// A batch before step `.0`; before the sink if there is no such step.
    Batch(usize, Batch),
    Pairs(Box<Pairing>),
}

/// Pairs that one step looks at, whether or not they are worth handing on.
const LOOKED_AT_MAX: usize = 8 * BATCH_ROWS;

/// A batch whose pairs are being handed on, some rows at a time.
struct Pairing {
    step: usize,
    batch: Batch,
    /// For each row the row of the table that comes next; `NONE`: no more.
    next: Vec<u32>,
    /// Rows before this one are done.
    row: usize,
    /// For each row, whether a pair was found that meets the condition; empty unless asked for.
    matched: Vec<bool>,
    /// What of the condition is asked of rows before they are pairs.
    early: Option<Early>,
}

impl Worker {
    /// `part` goes on from what an earlier pipeline has fed to the same sink.
    pub fn new(
        plan: &Arc<Plan>,
        pipeline: usize,
        sinks: &[Option<Finished>],
        part: Part,
    ) -> Result<Self> {
        let this = &plan.pipelines[pipeline];
        let table = |step: &Step| match step.table() {
            Some(sink) if matches!(sinks[sink], Some(Finished::Parts)) => Ok(None),
            Some(sink) => table(sinks, sink).map(|t| Some(Arc::clone(t))),
            None => Ok(None),
        };
        let mut registers = this.types.len();
        let condition = |step: &Step| {
            let condition = match step {
                Step::Probe(probe) => probe.condition.as_ref(),
                _ => None,
            };
            let condition = Condition::new(condition, registers);
            registers += step.added(&plan.sinks);
            condition
        };
        Ok(Worker {
            conditions: this.steps.iter().map(condition).collect(),
            tables: this.steps.iter().map(table).collect::<Result<_>>()?,
            live: this.live(&plan.sinks),
            plan: Arc::clone(plan),
            pipeline,
            part,
            stack: Vec::new(),
            emitted: VecDeque::new(),
            seen: Seen::default(),
            scratch: Scratch::default(),
        })
    }

    fn pipeline(&self) -> &Pipeline {
        &self.plan.pipelines[self.pipeline]
    }

    /// What the first step is to probe from here on: the next part of its table. Nothing is left
    /// to do.
    pub fn set_table(&mut self, table: Arc<BuiltTable>) {
        if let Some(first) = self.tables.first_mut() {
            *first = Some(table);
        }
    }

    /// Takes in a batch of the source. Call [`Worker::step`] until it is done.
    pub fn push(&mut self, batch: Batch) {
        self.seen.rows_in += batch.rows();
        self.stack.push(Work::Batch(0, batch));
    }

    /// Does a piece of work; false: there is none left.
    pub fn step(&mut self) -> Result<bool> {
        match self.stack.pop() {
            None => return Ok(false),
            Some(Work::Batch(step, batch)) => self.advance(step, batch)?,
            Some(Work::Pairs(pairing)) => {
                let start = Instant::now();
                self.pair(pairing)?;
                self.seen.in_probes += start.elapsed();
            }
        }
        Ok(true)
    }

    /// What has come out for the caller: columns, and how many rows they have.
    pub fn emitted(&mut self) -> Option<(Vec<ArrayRef>, usize)> {
        self.emitted.pop_front()
    }

    pub fn seen(&self) -> Seen {
        self.seen
    }

    pub fn memory_bytes(&self) -> usize {
        self.part.memory_bytes()
    }

    /// Gives away what it has collected, if that can go on in parts.
    pub fn spill(&mut self) -> Result<Given> {
        self.part.spill()
    }

    /// When the source has no more.
    pub fn into_part(mut self) -> Result<Part> {
        if let Part::Build(collected) = &mut self.part {
            collected.put_together()?;
        }
        Ok(self.part)
    }

    /// Takes a batch from before step `step` to before the next probe that makes pairs, or into the
    /// sink.
    fn advance(&mut self, mut step: usize, mut batch: Batch) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let steps = &plan.pipelines[self.pipeline].steps;
        while step < steps.len() {
            if batch.rows() == 0 {
                return Ok(());
            }
            match &steps[step] {
                Step::Map(exprs) => exprs.iter().for_each(|e| batch.compute(e)),
                Step::Fetch { row, .. } => {
                    let built = self.tables[step].as_ref().ok_or_else(no_table)?;
                    let rows = batch.column(*row)?;
                    extend(&mut batch, built, rows.as_primitive::<UInt32Type>().clone());
                }
                Step::Filter(conjuncts) => {
                    for (i, conjunct) in conjuncts.iter().enumerate() {
                        let kept = conjunct.truth(&mut batch)?;
                        if i + 1 == conjuncts.len() {
                            batch.retain(&self.live[step + 1]);
                        }
                        keep(&mut batch, &kept)?;
                    }
                }
                Step::Probe(probe) => {
                    let start = Instant::now();
                    let after = self.probe(step, probe, batch)?;
                    self.seen.in_probes += start.elapsed();
                    let Some(after) = after else { return Ok(()) };
                    batch = after;
                }
            }
            step += 1;
        }
        if batch.rows() > 0 {
            let start = Instant::now();
            self.sink(&mut batch)?;
            self.seen.in_sink += start.elapsed();
        }
        Ok(())
    }

    /// The batch after the probe; `None`: it goes on in the stack, or ends here.
    fn probe(&mut self, step: usize, probe: &Probe, mut batch: Batch) -> Result<Option<Batch>> {
        let built = Arc::clone(self.tables[step].as_ref().ok_or_else(no_table)?);
        let keys = compact(&probe.keys, &mut batch)?;
        let live = &self.live[step + 1];
        let unique = built.table.is_unique();
        // Of which only rows with a match go on, and with one.
        let picks = match probe.kind {
            Join::Semi => true,
            Join::Pairs { outer: false, .. } => unique,
            _ => false,
        };
        if picks && probe.condition.is_none() {
            let (mut positions, mut rows) = (Vec::new(), Vec::new());
            let scratch = &mut self.scratch;
            built.table.matches(&keys, batch.rows(), scratch, &mut positions, &mut rows)?;
            batch.retain(live);
            if positions.len() < batch.rows() {
                batch.pick(positions.into())?;
            }
            if let Join::Pairs { mark, .. } = probe.kind {
                if mark {
                    rows.iter().for_each(|&row| built.mark(row));
                }
                extend(&mut batch, &built, rows.into());
            }
            return Ok(Some(batch));
        }
        if probe.kind == (Join::MarkTable { not_in: true }) {
            built.ask(&keys, batch.rows());
        }
        let mut first = Vec::new();
        built.table.lookup(&keys, batch.rows(), &mut self.scratch, &mut first)?;
        if probe.condition.is_none() {
            match probe.kind {
                Join::Anti => {
                    batch.retain(live);
                    let kept = BooleanBuffer::collect_bool(first.len(), |i| first[i] == NONE);
                    keep(&mut batch, &kept)?;
                    return Ok(Some(batch));
                }
                Join::Mark => {
                    let marks = BooleanBuffer::collect_bool(first.len(), |i| first[i] != NONE);
                    batch.push(Arc::new(BooleanArray::new(marks, None)));
                    return Ok(Some(batch));
                }
                Join::Pairs { outer: true, mark } if unique => {
                    batch.retain(live);
                    if mark {
                        first.iter().filter(|&&r| r != NONE).for_each(|&r| built.mark(r));
                    }
                    let nulls = first.iter().map(|&r| r != NONE).collect::<Vec<_>>();
                    let valid = first.iter().map(|&r| if r == NONE { 0 } else { r });
                    let rows =
                        UInt32Array::new(valid.collect::<Vec<_>>().into(), Some(nulls.into()));
                    extend(&mut batch, &built, rows);
                    return Ok(Some(batch));
                }
                _ => {}
            }
        }
        let remembers = match probe.kind {
            Join::Pairs { outer, .. } => outer,
            Join::MarkTable { .. } => false,
            Join::Semi | Join::Anti | Join::Mark => true,
        };
        let matched = if remembers { vec![false; batch.rows()] } else { vec![] };
        // Where each key has one row, there are no more pairs than rows, and their values are compared at once.
        let early = match built.table.is_unique() {
            true => None,
            false => self.conditions[step].ready(&mut batch, &built.table)?,
        };
        let pairing = Pairing { step, batch, next: first, row: 0, matched, early };
        self.stack.push(Work::Pairs(Box::new(pairing)));
        Ok(None)
    }

    /// Hands on the next pairs of a batch.
    fn pair(&mut self, mut this: Box<Pairing>) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let Step::Probe(probe) = &plan.pipelines[self.pipeline].steps[this.step] else {
            return Err(Error::internal("pairs of a step that is no probe"));
        };
        let built = Arc::clone(self.tables[this.step].as_ref().ok_or_else(no_table)?);
        let table = &built.table;
        // Who only asks whether there is a match need not see the others.
        let first_only = matches!(probe.kind, Join::Semi | Join::Anti | Join::Mark);
        let marks_only = matches!(probe.kind, Join::MarkTable { .. });
        let condition = match this.early {
            Some(_) => self.conditions[this.step].rest(),
            None => probe.condition.as_ref(),
        };
        let (mut positions, mut rows, mut looked_at) = (Vec::new(), Vec::new(), 0);
        let mut bounds = Vec::new();
        'rows: while this.row < this.next.len() {
            let first = this.next[this.row];
            // Without a condition all rows of a key are marked together.
            let all_marked =
                marks_only && probe.condition.is_none() && first != NONE && built.is_marked(first);
            if first == NONE || all_marked || (first_only && this.matched[this.row]) {
                this.row += 1;
                continue;
            }
            if let Some(early) = &this.early {
                early.bounds(this.row, &mut bounds);
            }
            let mut row = first;
            while row != NONE {
                if rows.len() == BATCH_ROWS || looked_at == LOOKED_AT_MAX {
                    this.next[this.row] = row;
                    break 'rows;
                }
                looked_at += 1;
                let passes = this.early.as_ref().is_none_or(|early| early.passes(&bounds, row));
                if passes && !(marks_only && built.is_marked(row)) {
                    positions.push(this.row as u32);
                    rows.push(row);
                }
                row = table.next_equal(row);
            }
            this.row += 1;
        }
        let done = this.row == this.next.len();
        let mut pairs = None;
        // Who asks for no more than which rows match needs no values of theirs.
        if !rows.is_empty() && (condition.is_some() || probe.kind.adds_payload()) {
            let mut batch = this.batch.clone();
            batch.pick(positions.clone().into())?;
            extend(&mut batch, &built, rows.clone().into());
            if let Some(condition) = condition {
                let truth = condition.truth(&mut batch)?;
                let left = |all: &[u32]| truth.set_indices().map(|i| all[i]).collect::<Vec<_>>();
                (positions, rows) = (left(&positions), left(&rows));
                batch.retain(&self.live[this.step + 1]);
                keep(&mut batch, &truth)?;
            } else {
                batch.retain(&self.live[this.step + 1]);
            }
            pairs = Some(batch);
        }
        if !this.matched.is_empty() {
            positions.iter().for_each(|&p| this.matched[p as usize] = true);
        }
        if probe.kind.marks_table() {
            rows.iter().for_each(|&row| built.mark(row));
        }
        let step = this.step;
        if done {
            self.unpaired(probe, &built, *this)?;
        } else {
            self.stack.push(Work::Pairs(this));
        }
        if let Some(pairs) = pairs
            && probe.kind.adds_payload()
        {
            self.stack.push(Work::Batch(step + 1, pairs));
        }
        Ok(())
    }

    /// Hands on what depends on a batch having no more pairs.
    fn unpaired(&mut self, probe: &Probe, built: &BuiltTable, this: Pairing) -> Result<()> {
        let Pairing { step, mut batch, matched, .. } = this;
        let wanted = match probe.kind {
            Join::MarkTable { .. } | Join::Pairs { outer: false, .. } => return Ok(()),
            Join::Mark => {
                batch.push(Arc::new(BooleanArray::from(matched)));
                self.stack.push(Work::Batch(step + 1, batch));
                return Ok(());
            }
            Join::Semi => true,
            Join::Anti | Join::Pairs { outer: true, .. } => false,
        };
        let kept = BooleanBuffer::collect_bool(matched.len(), |i| matched[i] == wanted);
        keep(&mut batch, &kept)?;
        if probe.kind.adds_payload() {
            let rows = UInt32Array::new_null(batch.rows());
            extend(&mut batch, built, rows);
        }
        self.stack.push(Work::Batch(step + 1, batch));
        Ok(())
    }

    fn sink(&mut self, batch: &mut Batch) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let (sink, inputs) =
            (&plan.sinks[self.pipeline().sink], &plan.pipelines[self.pipeline].inputs);
        let rows = batch.rows();
        self.seen.rows_out += rows;
        match (sink, &mut self.part) {
            (Sink::Discard, _) => {}
            (Sink::Emit(_), _) => {
                let columns = inputs.iter().map(|e| e.plain(batch)).collect::<Result<Vec<_>>>()?;
                self.emitted.push_back((columns, rows));
            }
            (Sink::Build(spec), Part::Build(collected)) => {
                let (keys, payload) = inputs.split_at(spec.key_types.len());
                collected.push(&encoded(keys, batch)?, &encoded(payload, batch)?, rows)?;
            }
            (
                Sink::Sort(spec) | Sink::Window(thalweg_ir::window::Spec { sort: spec, .. }),
                Part::Sort(collected),
            ) => {
                let (keys, payload) = inputs.split_at(spec.keys.len());
                collected.push(&encoded(keys, batch)?, &encoded(payload, batch)?, rows)?;
            }
            (Sink::Aggregate(spec), Part::Aggregate(partial)) => {
                let (keys, rest) = inputs.split_at(spec.key_types.len());
                let (arguments, filters) = rest.split_at(spec.argument_types.len());
                let registers = keys.iter().map(Expr::register).collect::<Option<Vec<_>>>();
                let runs = registers.and_then(|registers| batch.runs(&registers));
                let (keys, runs) = match runs {
                    Some((mut firsts, runs)) => (compact(keys, &mut firsts)?, Some(runs)),
                    None => (compact(keys, batch)?, None),
                };
                let arguments = compact(arguments, batch)?;
                let filters = filters.iter().map(|f| Ok(BooleanArray::new(f.truth(batch)?, None)));
                let filters = filters.collect::<Result<Vec<_>>>()?;
                partial.push_runs(&keys, runs.as_deref(), &arguments, &filters, rows)?;
            }
            _ => return Err(Error::internal("the part of another sink")),
        }
        Ok(())
    }
}

/// Adds the payload's registers.
fn extend(batch: &mut Batch, built: &BuiltTable, rows: UInt32Array) {
    let columns = (0..built.payload).map(|i| Arc::clone(built.table.payload(i)));
    batch.extend(columns, rows);
}

/// Keeps the rows whose bit is set.
fn keep(batch: &mut Batch, kept: &BooleanBuffer) -> Result<()> {
    let count = kept.count_set_bits();
    if count == batch.rows() {
        return Ok(());
    }
    let mut positions = Vec::with_capacity(count);
    positions.extend(kept.set_indices().map(|i| i as u32));
    batch.pick(positions.into())
}

fn encoded(exprs: &[Expr], batch: &mut Batch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|e| e.encoded(batch)).collect()
}

fn compact(exprs: &[Expr], batch: &mut Batch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|e| e.compact(batch)).collect()
}
