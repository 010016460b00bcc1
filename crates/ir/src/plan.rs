//! Pipelines, their sources, steps and sinks.
//!
//! Registers number the columns of a batch: first those of the source, then what each step adds.
//! A sink may be fed by several pipelines, one after the other; it is finished when the last of
//! them has ended, and is then a source or the table of a probe for those after it. A table may be
//! finished in parts, by a hash of its keys; who probes it is [cut](Plan::cut) in two there, and its
//! second half works part by part.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};

use crate::expr::{Constant, Expr, Named, Operation, Register, Shown};
use crate::{Literal, Opaque, aggregate, sort, table, window, written};

/// `L`, `F` and `A`: literals, what expressions call, and aggregate functions that are no part of plans.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(bound(
    serialize = "L: Serialize + Clone, F: Serialize + Clone, A: Serialize",
    deserialize = "L: Deserialize<'de> + Clone, F: Deserialize<'de> + Clone, A: Deserialize<'de>"
))]
pub struct Plan<L = Literal, F = Operation, A = Opaque> {
    /// In an order in which they can run.
    pub pipelines: Vec<Pipeline<L, F>>,
    pub sinks: Vec<Sink<A>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(bound(
    serialize = "L: Serialize + Clone, F: Serialize + Clone",
    deserialize = "L: Deserialize<'de> + Clone, F: Deserialize<'de> + Clone"
))]
pub struct Pipeline<L = Literal, F = Operation> {
    pub source: Source,
    /// The logical types of the source's registers.
    #[serde(with = "written::data_types")]
    pub types: Vec<DataType>,
    /// Of all registers, to be shown.
    pub names: Vec<String>,
    pub steps: Vec<Step<L, F>>,
    /// Index into the plan's sinks.
    pub sink: usize,
    /// What the sink takes, in its order.
    pub inputs: Vec<Expr<L, F>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// The caller's, by number.
    External(usize),
    /// The groups of an aggregate: keys, then results; or sorted rows, in order; or rows with the
    /// results of window functions.
    Groups(usize),
    /// Rows of a join's table after it was probed: its payload.
    Table { sink: usize, rows: TableRows },
    /// What the sink `rows` was given, in parts that go with those of a table. They have values of
    /// these registers only, which are in order.
    Parts { rows: usize, table: usize, registers: Vec<Register> },
}

/// Which rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableRows {
    Matched,
    Unmatched,
    /// All, and a last register that says whether the row was matched.
    Marked,
    /// Those whose key, the last column of the payload, is not in the rows that were looked up, as
    /// `NOT IN` has it: none if there was a NULL among these, and no NULL unless there were no rows.
    NotIn,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(bound(
    serialize = "L: Serialize + Clone, F: Serialize + Clone",
    deserialize = "L: Deserialize<'de> + Clone, F: Deserialize<'de> + Clone"
))]
pub enum Step<L = Literal, F = Operation> {
    /// Keeps the rows for which all conjuncts are true.
    Filter(Vec<Expr<L, F>>),
    /// Adds a register for each expression.
    Map(Vec<Arc<Expr<L, F>>>),
    /// Looks rows up in a table; adds its payload's registers, or one with a mark.
    Probe(Probe<L, F>),
    /// Adds the payload's registers of a table's rows, whose numbers a register has.
    Fetch { sink: usize, row: Register },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(bound(
    serialize = "L: Serialize + Clone, F: Serialize + Clone",
    deserialize = "L: Deserialize<'de> + Clone, F: Deserialize<'de> + Clone"
))]
pub struct Probe<L = Literal, F = Operation> {
    /// The sink that built the table.
    pub sink: usize,
    pub keys: Vec<Expr<L, F>>,
    pub kind: Join,
    /// A further condition on a pair, over the registers with the payload added.
    pub condition: Option<Expr<L, F>>,
}

/// What comes of a row of the probe side and those of the table that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Join {
    /// The pairs. `outer`: also each row without a match, with a payload of NULLs. `mark`: and the
    /// table remembers which of its rows were matched.
    Pairs { outer: bool, mark: bool },
    /// Nothing; the table remembers which of its rows were matched. `not_in`: and whether there was
    /// a row at all, and a NULL among the keys.
    MarkTable { not_in: bool },
    /// The row, if there is a match.
    Semi,
    /// The row, if there is none.
    Anti,
    /// The row, and a register that says whether there is a match.
    Mark,
}

impl Plan {
    /// How often it calls code that only the process that made it has.
    pub fn opaque(&self) -> usize {
        let mut count = 0;
        let mut calls = |expr: &Expr| {
            expr.calls(&mut |called| count += usize::from(matches!(called, Operation::Opaque(_))));
        };
        for pipeline in &self.pipelines {
            for step in &pipeline.steps {
                match step {
                    Step::Filter(conjuncts) => conjuncts.iter().for_each(&mut calls),
                    Step::Map(exprs) => exprs.iter().for_each(|expr| calls(expr)),
                    Step::Probe(probe) => {
                        probe.keys.iter().chain(&probe.condition).for_each(&mut calls);
                    }
                    Step::Fetch { .. } => {}
                }
            }
            pipeline.inputs.iter().for_each(&mut calls);
        }
        let is_external = |kind: &aggregate::Kind| matches!(kind, aggregate::Kind::External(_));
        let of_sink = |sink: &Sink| match sink {
            Sink::Aggregate(spec) => spec.functions.iter().filter(|f| is_external(&f.kind)).count(),
            Sink::Window(spec) => {
                let kinds = spec.functions.iter().map(|f| &f.kind);
                kinds.filter(|k| matches!(k, window::Kind::Aggregate(k) if is_external(k))).count()
            }
            Sink::Build(_) | Sink::Sort(_) | Sink::Emit(_) | Sink::Discard => 0,
        };
        count + self.sinks.iter().map(of_sink).sum::<usize>()
    }

    /// The plan in bytes, for another process.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let wrong = |e| Error::internal(format!("a plan of pipelines was not written down: {e}"));
        postcard::to_stdvec(self).map_err(wrong)
    }

    /// A plan from bytes, wherever these are from, that has been [verified](Plan::verify).
    ///
    /// # Errors
    /// The bytes are no plan, or it is not well-formed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |e| Error::corrupt(format!("bytes are no plan of pipelines: {e}"));
        let plan: Self = postcard::from_bytes(bytes).map_err(wrong)?;
        plan.verify()?;
        Ok(plan)
    }
}

impl<L, F, A> Plan<L, F, A> {
    /// The same with other literals, operations and aggregate functions.
    pub fn map<M, G, B, E>(
        &self,
        literal: &impl Fn(&L) -> Result<M, E>,
        operation: &impl Fn(&F) -> Result<G, E>,
        external: &mut impl FnMut(&A) -> Result<B, E>,
    ) -> Result<Plan<M, G, B>, E> {
        let of = |expr: &Expr<L, F>| expr.map(literal, operation);
        let all = |exprs: &[Expr<L, F>]| exprs.iter().map(of).collect::<Result<Vec<_>, E>>();
        let step = |step: &Step<L, F>| {
            Ok(match step {
                Step::Filter(conjuncts) => Step::Filter(all(conjuncts)?),
                Step::Map(exprs) => {
                    let exprs = exprs.iter().map(|e| of(e).map(Arc::new));
                    Step::Map(exprs.collect::<Result<_, E>>()?)
                }
                Step::Probe(probe) => Step::Probe(Probe {
                    sink: probe.sink,
                    keys: all(&probe.keys)?,
                    kind: probe.kind,
                    condition: probe.condition.as_ref().map(of).transpose()?,
                }),
                Step::Fetch { sink, row } => Step::Fetch { sink: *sink, row: *row },
            })
        };
        let pipeline = |pipeline: &Pipeline<L, F>| {
            Ok(Pipeline {
                source: pipeline.source.clone(),
                types: pipeline.types.clone(),
                names: pipeline.names.clone(),
                steps: pipeline.steps.iter().map(step).collect::<Result<_, E>>()?,
                sink: pipeline.sink,
                inputs: all(&pipeline.inputs)?,
            })
        };
        let mut sink = |sink: &Sink<A>| {
            Ok(match sink {
                Sink::Build(spec) => Sink::Build(spec.clone()),
                Sink::Aggregate(spec) => Sink::Aggregate(Arc::new(spec.map(external)?)),
                Sink::Sort(spec) => Sink::Sort(spec.clone()),
                Sink::Window(spec) => Sink::Window(spec.map(external)?),
                Sink::Emit(types) => Sink::Emit(types.clone()),
                Sink::Discard => Sink::Discard,
            })
        };
        Ok(Plan {
            pipelines: self.pipelines.iter().map(pipeline).collect::<Result<_, E>>()?,
            sinks: self.sinks.iter().map(&mut sink).collect::<Result<_, E>>()?,
        })
    }
}

impl Join {
    /// Whether the payload's registers come after it.
    pub fn adds_payload(self) -> bool {
        matches!(self, Join::Pairs { .. })
    }

    /// Whether nothing comes of a row without a match.
    pub fn needs_match(self) -> bool {
        matches!(
            self,
            Join::Pairs { outer: false, .. } | Join::Semi | Join::MarkTable { not_in: false }
        )
    }

    pub fn marks_table(self) -> bool {
        matches!(self, Join::MarkTable { .. } | Join::Pairs { mark: true, .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sink<A = Opaque> {
    /// The table of a join. Takes keys, then payload.
    Build(table::Spec),
    /// Takes keys, then the arguments of the functions, then their filters.
    Aggregate(Arc<aggregate::Spec<A>>),
    /// Takes keys, then payload, which is what comes out, in order.
    Sort(sort::Spec),
    /// Takes the keys of its sort, then payload.
    Window(window::Spec<A>),
    /// Hands batches to the caller, in these logical types.
    Emit(#[serde(with = "written::data_types")] Vec<DataType>),
    /// For pipelines that only mark a table.
    Discard,
}

impl<A> Sink<A> {
    /// The logical types of the registers that it gives, finished, as a source of groups, or as the
    /// payload of a probe.
    pub fn output_types(&self) -> Vec<DataType> {
        match self {
            Sink::Build(spec) => spec.payload_types.clone(),
            Sink::Aggregate(spec) => spec.output_types(),
            Sink::Sort(spec) => spec.payload_types.clone(),
            Sink::Window(spec) => spec.output_types(),
            Sink::Emit(types) => types.clone(),
            Sink::Discard => vec![],
        }
    }
}

/// For each register, the first `of_source` of which are the source's, what computes it, if it is
/// computed.
pub fn computed<L: Constant, F, A>(
    of_source: usize,
    steps: &[Step<L, F>],
    sinks: &[Sink<A>],
) -> Vec<Option<Arc<Expr<L, F>>>> {
    let mut computed = vec![None; of_source];
    for step in steps {
        match step {
            Step::Map(exprs) => computed.extend(exprs.iter().cloned().map(Some)),
            other => computed.extend(std::iter::repeat_n(None, other.added(sinks))),
        }
    }
    computed
}

/// Marks the registers that an expression reads, also by way of computed ones.
pub fn mark_read<L, F>(expr: &Expr<L, F>, computed: &[Option<Arc<Expr<L, F>>>], read: &mut [bool]) {
    expr.registers(&mut |register| {
        // What a condition reads of a payload that goes no further has no place here.
        if let Some(seen) = read.get_mut(register)
            && !std::mem::replace(seen, true)
            && let Some(computed_by) = &computed[register]
        {
            mark_read(computed_by, computed, read);
        }
    });
}

impl<L: Constant + Clone, F: Clone, A: Clone> Plan<L, F, A> {
    /// How many pipelines have the groups of a sink as their source.
    pub fn readers(&self, sink: usize) -> usize {
        self.pipelines.iter().filter(|pipeline| pipeline.reads_groups(sink)).count()
    }

    /// Whether a pipeline marks the rows of a table.
    pub fn is_marked(&self, sink: usize) -> bool {
        let mut steps = self.pipelines.iter().flat_map(|pipeline| &pipeline.steps);
        steps.any(|step| matches!(step, Step::Probe(p) if p.sink == sink && p.kind.marks_table()))
    }

    /// Whether rows of a table are asked for by their numbers.
    pub fn fetches(&self) -> bool {
        let mut steps = self.pipelines.iter().flat_map(|pipeline| &pipeline.steps);
        steps.any(|step| matches!(step, Step::Fetch { .. }))
    }

    /// The same with pipeline `n` cut in two at a step that probes. The first ends in a new sink, the
    /// last of all, which is given the keys of the probe and then the registers that are read from
    /// there on. The second goes on with these rows.
    pub fn cut(&self, n: usize, step: usize) -> Result<Self> {
        let mut plan = self.clone();
        let mut first = plan.pipelines.remove(n);
        let mut second = first.clone();
        second.steps = first.steps.split_off(step);
        let Some(Step::Probe(probe)) = second.steps.first() else {
            return Err(Error::internal("pipelines are cut where they probe"));
        };
        let (keys, table) = (probe.keys.clone(), probe.sink);
        let added = first.steps.iter().flat_map(|step| step.added_types(&self.sinks));
        second.types = first.types.iter().cloned().chain(added).collect();
        let registers: Vec<Register> = {
            let live = second.live(&plan.sinks);
            (0..second.types.len()).filter(|&register| live[0][register]).collect()
        };
        let rows = plan.sinks.len();
        let values = registers.iter().map(|&r| Expr::Register(r, second.types[r].clone()));
        first.inputs = keys.into_iter().chain(values).collect();
        first.sink = rows;
        plan.sinks.push(Sink::Emit(first.inputs.iter().map(Expr::data_type).collect()));
        second.source = Source::Parts { rows, table, registers };
        plan.pipelines.splice(n..n, [first, second]);
        Ok(plan)
    }

    /// The keys of a sink's groups by which who alone reads them groups them again, and nothing else.
    pub fn grouped_again_by(&self, sink: usize) -> Vec<usize> {
        let Sink::Aggregate(spec) = &self.sinks[sink] else { return vec![] };
        let mut readers = self.pipelines.iter().filter(|p| p.reads_groups(sink));
        let (Some(reader), None) = (readers.next(), readers.next()) else { return vec![] };
        let Sink::Aggregate(again) = &self.sinks[reader.sink] else { return vec![] };
        if self.pipelines.iter().filter(|p| p.sink == reader.sink).count() > 1 {
            return vec![];
        }
        let keys = reader.inputs[..again.key_types.len()].iter().filter_map(|key| match key {
            Expr::Register(register, _) if *register < spec.key_types.len() => Some(*register),
            _ => None,
        });
        keys.collect()
    }

    /// Whether a sink's groups are by rows of a table, which are fetched to group them again.
    pub fn is_fetched(&self, sink: usize) -> bool {
        let mut readers = self.pipelines.iter().filter(|p| p.reads_groups(sink));
        let fetches = |reader: &Pipeline<L, F>| {
            let first = reader.steps.first();
            matches!(first, Some(Step::Fetch { row: 0, .. }))
                && matches!(self.sinks[reader.sink], Sink::Aggregate(_))
        };
        readers.next().is_some_and(fetches) && readers.next().is_none()
    }

    /// Whether pipeline `n` may run at the same time as those just `before` it: all of them build
    /// tables, each its own, and none reads that of another, or one whose rows another marks.
    pub fn may_run_beside(&self, before: Range<usize>, n: usize) -> bool {
        let builds = |n: usize| {
            matches!(self.sinks[self.pipelines[n].sink], Sink::Build(_)) && !self.is_fed_again(n)
        };
        let own = &self.pipelines[n];
        let is_apart = |other: usize| {
            let (sink, steps) = (self.pipelines[other].sink, &self.pipelines[other].steps);
            let marks_own = |step: &Step<L, F>| match step {
                Step::Probe(probe) => probe.kind.marks_table() && own.reads(probe.sink),
                _ => false,
            };
            builds(other) && sink != own.sink && !own.reads(sink) && !steps.iter().any(marks_own)
        };
        builds(n) && before.into_iter().all(is_apart)
    }

    /// Whether a later pipeline feeds the same sink.
    pub fn is_fed_again(&self, pipeline: usize) -> bool {
        let sink = self.pipelines[pipeline].sink;
        self.pipelines[pipeline + 1..].iter().any(|p| p.sink == sink)
    }
}

impl<L: Constant, F> Pipeline<L, F> {
    /// Whether its source or one of its steps is what a sink has become.
    pub fn reads(&self, sink: usize) -> bool {
        let source = match self.source {
            Source::Groups(s) | Source::Table { sink: s, .. } => s == sink,
            Source::External(_) | Source::Parts { .. } => false,
        };
        source || self.steps.iter().any(|step| step.table() == Some(sink))
    }

    /// Whether its source are the groups of a sink.
    pub fn reads_groups(&self, sink: usize) -> bool {
        matches!(self.source, Source::Groups(groups) if groups == sink)
    }

    /// For each step, and last for the sink: which registers are read from there on.
    pub fn live<A>(&self, sinks: &[Sink<A>]) -> Vec<Vec<bool>> {
        let computed = computed(self.types.len(), &self.steps, sinks);
        let mut live = vec![false; computed.len()];
        let mut after = Vec::with_capacity(self.steps.len() + 1);
        self.inputs.iter().for_each(|e| mark_read(e, &computed, &mut live));
        after.push(live.clone());
        for step in self.steps.iter().rev() {
            step.mark_read(&computed, &mut live);
            after.push(live.clone());
        }
        after.reverse();
        after
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::External(n) => write!(f, "source {n}"),
            Source::Groups(sink) => write!(f, "groups of #{sink}"),
            Source::Table { sink, rows } => {
                let rows = match rows {
                    TableRows::Matched => "matched",
                    TableRows::Unmatched => "unmatched",
                    TableRows::Marked => "all",
                    TableRows::NotIn => "NOT IN",
                };
                write!(f, "{rows} rows of #{sink}")
            }
            Source::Parts { rows, .. } => write!(f, "parts of #{rows}"),
        }
    }
}

impl<L: Constant, F> Step<L, F> {
    /// The sink that built the table it reads.
    pub fn table(&self) -> Option<usize> {
        match self {
            Step::Probe(Probe { sink, .. }) | Step::Fetch { sink, .. } => Some(*sink),
            Step::Filter(_) | Step::Map(_) => None,
        }
    }

    /// The logical types of the registers that it adds.
    pub fn added_types<A>(&self, sinks: &[Sink<A>]) -> Vec<DataType> {
        match self {
            Step::Filter(_) => vec![],
            Step::Map(exprs) => exprs.iter().map(|e| e.data_type()).collect(),
            Step::Fetch { sink, .. } => sinks[*sink].output_types(),
            Step::Probe(probe) => match probe.kind {
                Join::Pairs { .. } => sinks[probe.sink].output_types(),
                Join::Mark => vec![DataType::Boolean],
                _ => vec![],
            },
        }
    }

    /// How many registers it adds.
    pub fn added<A>(&self, sinks: &[Sink<A>]) -> usize {
        self.added_types(sinks).len()
    }

    /// Marks the registers that are read when it is done: not what it only says how to compute.
    pub fn mark_read(&self, computed: &[Option<Arc<Expr<L, F>>>], read: &mut [bool]) {
        match self {
            Step::Filter(conjuncts) => {
                conjuncts.iter().for_each(|e| mark_read(e, computed, read));
            }
            Step::Map(_) => {}
            Step::Fetch { row, .. } => read[*row] = true,
            Step::Probe(probe) => {
                let exprs = probe.keys.iter().chain(&probe.condition);
                exprs.for_each(|e| mark_read(e, computed, read));
            }
        }
    }

    /// As it is shown in a pipeline whose registers have these names.
    pub fn describe(&self, names: &[String]) -> String
    where
        L: Shown,
        F: Shown,
    {
        let list = |exprs: &mut dyn Iterator<Item = &Expr<L, F>>| {
            exprs.map(|e| Named(e, names).to_string()).collect::<Vec<_>>().join(", ")
        };
        match self {
            Step::Filter(conjuncts) => {
                let conjuncts = conjuncts.iter().map(|e| Named(e, names).to_string());
                format!("filter {}", conjuncts.collect::<Vec<_>>().join(" AND "))
            }
            Step::Map(exprs) => format!("map {}", list(&mut exprs.iter().map(AsRef::as_ref))),
            Step::Fetch { sink, .. } => format!("fetch from #{sink}"),
            Step::Probe(probe) => {
                let name = match probe.kind {
                    Join::Pairs { outer: false, .. } => "probe",
                    Join::Pairs { outer: true, .. } => "outer probe",
                    Join::MarkTable { .. } => "mark",
                    Join::Semi => "semi probe",
                    Join::Anti => "anti probe",
                    Join::Mark => "mark probe",
                };
                let keys = list(&mut probe.keys.iter());
                match &probe.condition {
                    Some(condition) => {
                        format!("{name} #{}({keys}) if {}", probe.sink, Named(condition, names))
                    }
                    None => format!("{name} #{}({keys})", probe.sink),
                }
            }
        }
    }
}

impl<A> fmt::Display for Sink<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sink::Build(_) => "build",
            Sink::Aggregate(_) => "aggregate",
            Sink::Sort(_) => "sort",
            Sink::Window(_) => "window",
            Sink::Emit(_) => "emit",
            Sink::Discard => "end",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_do_not_need_each_other_are_built_at_the_same_time() {
        let build = || -> Sink {
            Sink::Build(table::Spec {
                key_types: vec![],
                payload_types: vec![],
                nulls_equal: false,
                keep_null_keys: false,
            })
        };
        let probe = |sink, kind| -> Step {
            Step::Probe(Probe { sink, keys: vec![], kind, condition: None })
        };
        let pipeline = |table: Option<usize>, sink| -> Pipeline {
            let probe = |sink| probe(sink, Join::Semi);
            Pipeline {
                source: Source::External(0),
                types: vec![],
                names: vec![],
                steps: table.map(probe).into_iter().collect(),
                sink,
                inputs: vec![],
            }
        };
        let mut plan: Plan = Plan {
            pipelines: vec![
                pipeline(None, 0),
                pipeline(None, 1),
                pipeline(Some(1), 2),
                pipeline(None, 3),
                pipeline(None, 3),
                pipeline(Some(3), 4),
            ],
            sinks: vec![build(), build(), build(), build(), Sink::Emit(vec![])],
        };
        assert!(plan.may_run_beside(0..1, 1));
        assert!(plan.may_run_beside(0..1, 2));
        assert!(!plan.may_run_beside(0..2, 2), "it probes what the one before builds");
        assert!(!plan.may_run_beside(2..3, 3), "another feeds its table, too");
        assert!(!plan.may_run_beside(3..4, 4), "they feed one table");
        assert!(!plan.may_run_beside(2..3, 5), "its rows go out");
        let mark = Join::Pairs { outer: false, mark: true };
        plan.pipelines[0].steps.push(probe(1, mark));
        assert!(!plan.may_run_beside(0..1, 2), "it may read the marks");
        assert!(plan.may_run_beside(0..1, 1));
    }
}
