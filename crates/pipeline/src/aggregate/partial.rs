//! What one worker aggregates.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, new_empty_array};
use thalweg_base::{Error, Result};

use super::grouper::{GroupKeys, Grouper, SealedGroups};
use super::ordered::{Order, Outcome};
use super::plan::Plan;
use super::spill::Sealed;
use super::states::{Batch, States};
use super::strings::Strings;
use super::{
    Accumulator, CHUNKS_UNTIL_TRIAL, Kind, LIMITS, Limits, NEW_GROUPS_MAX, Spec, TRIAL_NEW_GROUPS,
    with_headroom,
};
use crate::encoding::expand;

/// Strings of a key that a worker holds for every group it may hold: those of dictionaries' values
/// whose rows were no longer looked for, and of keys that come in many combinations.
const STRINGS_PER_GROUP_MAX: usize = 8;

/// Groups of a sequence of rows in order, on average, for another to be worth a chunk.
const SEQUENCE_GROUPS: usize = 1 << 10;

/// Groups and their states, not to change any more. `sorted` comes with merging.
pub(super) struct Chunk {
    pub keys: GroupKeys,
    pub strings: Vec<Strings>,
    /// Keys whose strings hashes may do without; the other keys tell these groups apart.
    pub unhashed: Option<Vec<bool>>,
    pub states: States,
    /// State columns of every external function.
    pub externals: Vec<Vec<ArrayRef>>,
    pub groups: usize,
    /// No group is there twice.
    pub distinct: bool,
    pub order: Option<Order>,
    /// Groups that were joined to those of other chunks, ascending.
    pub joined: Vec<u32>,
    pub sorted: Sorted,
}

/// The groups of a chunk by partition.
#[derive(Default)]
pub(super) struct Sorted {
    pub groups: Vec<u32>,
    /// Of their keys.
    pub hashes: Vec<u64>,
    /// Where each partition ends.
    pub ends: Vec<usize>,
}

impl Sorted {
    /// Groups of a partition, and their hashes.
    pub fn partition(&self, n: usize) -> (&[u32], &[u64]) {
        let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = start..self.ends[n];
        (&self.groups[range.clone()], &self.hashes[range])
    }
}

impl Chunk {
    fn bytes(&self) -> usize {
        let externals = self.externals.iter().flatten().map(|a| a.get_array_memory_size());
        let strings = self.strings.iter().map(Strings::bytes);
        let order = self.order.as_ref().map_or(0, Order::bytes);
        let rest = externals.sum::<usize>() + strings.sum::<usize>();
        self.keys.bytes() + self.states.bytes() + order + rest
    }
}

/// What one worker aggregates.
pub struct Partial {
    spec: Arc<Spec>,
    pub(super) plan: Arc<Plan>,
    limits: Limits,
    /// No other worker has rows of these groups.
    pub(super) apart: bool,
    /// `None` without keys.
    grouper: Option<Grouper>,
    states: States,
    accumulators: Vec<Box<dyn Accumulator>>,
    ids: Vec<u32>,
    run_ids: Vec<u32>,
    /// Rows of the chunk that is being filled, or runs of them, that were looked up.
    rows: usize,
    /// Chunks, with this one, to fill without looking rows up.
    append_chunks: u32,
    chunks: Vec<Chunk>,
    chunks_bytes: usize,
}

pub(super) fn accumulators(spec: &Spec, plan: &Plan) -> Result<Vec<Box<dyn Accumulator>>> {
    let accumulator = |&i: &usize| match &spec.functions[i].kind {
        Kind::External(external) => external.0.accumulator(),
        other => Err(Error::internal(format!("{other:?} is not external"))),
    };
    plan.externals.iter().map(accumulator).collect()
}

impl Partial {
    /// Of one of so many workers.
    pub fn new(spec: &Arc<Spec>, workers: usize) -> Result<Self> {
        // What one worker's only table holds need not be merged.
        let trial_groups = if workers > 1 { LIMITS.trial_groups } else { usize::MAX };
        Self::with_limits(spec, Limits { trial_groups, ..LIMITS })
    }

    /// Of one of several workers none of which has rows of another's groups (see
    /// [`Merging::apart_by`](super::Merging::apart_by)).
    pub fn apart(spec: &Arc<Spec>) -> Result<Self> {
        let mut part = Self { apart: true, ..Self::new(spec, 1)? };
        // What is sealed when order ends would have to be merged.
        part.leave_order()?;
        Ok(part)
    }

    pub(super) fn with_limits(spec: &Arc<Spec>, limits: Limits) -> Result<Self> {
        let plan = Arc::new(Plan::new(spec)?);
        let single = spec.key_types.is_empty();
        let mut accumulators = accumulators(spec, &plan)?;
        if single {
            // The group is there before any row.
            for (accumulator, &function) in accumulators.iter_mut().zip(&plan.externals) {
                let types = spec.functions[function].arguments.iter();
                let none = types.map(|&i| new_empty_array(&spec.argument_types[i]));
                accumulator.update(&none.collect::<Vec<_>>(), None, &[], 1)?;
            }
        }
        Ok(Self {
            grouper: if single {
                None
            } else {
                Some(Grouper::new(&plan.keys, limits.compare_groups, accumulators.is_empty())?)
            },
            states: States::new(&plan.slots, single),
            spec: Arc::clone(spec),
            plan,
            limits,
            apart: false,
            accumulators,
            ids: vec![],
            run_ids: vec![],
            rows: 0,
            append_chunks: 0,
            chunks: vec![],
            chunks_bytes: 0,
        })
    }

    /// Adds a batch: its keys, the arguments that [`Spec::argument_types`] lists, and the filters
    /// that functions name. Batches of some thousand to 65,536 rows are best.
    pub fn push(
        &mut self,
        keys: &[ArrayRef],
        arguments: &[ArrayRef],
        filters: &[BooleanArray],
        rows: usize,
    ) -> Result<()> {
        self.push_runs(keys, None, arguments, filters, rows)
    }

    /// The same with keys of runs of rows: `runs` says of each row of which it is.
    pub fn push_runs(
        &mut self,
        keys: &[ArrayRef],
        runs: Option<&[u32]>,
        arguments: &[ArrayRef],
        filters: &[BooleanArray],
        rows: usize,
    ) -> Result<()> {
        let lengths = arguments.iter().map(|a| a.len());
        let key_rows = match (keys.first(), runs) {
            (Some(key), Some(_)) => key.len(),
            _ => rows,
        };
        if keys.len() != self.spec.key_types.len()
            || arguments.len() != self.spec.argument_types.len()
            || keys.iter().any(|key| key.len() != key_rows)
            || lengths.chain(filters.iter().map(BooleanArray::len)).any(|n| n != rows)
            || runs.is_some_and(|runs| runs.len() != rows)
        {
            return Err(Error::internal("a batch is not what the aggregation was planned for"));
        }
        if let Break(first) = self.push_batch((keys, key_rows, runs), arguments, filters, rows)? {
            // The rows of another sequence are a batch of their own.
            for (from, rows) in [(0, first), (first, rows - first)] {
                let cut = |arrays: &[ArrayRef]| -> Vec<ArrayRef> {
                    arrays.iter().map(|array| array.slice(from, rows)).collect()
                };
                let filters: Vec<_> = filters.iter().map(|f| f.slice(from, rows)).collect();
                self.push_runs(&cut(keys), None, &cut(arguments), &filters, rows)?;
            }
        }
        Ok(())
    }

    /// `Break`: nothing was done, as only so many rows are in order.
    fn push_batch(
        &mut self,
        (keys, key_rows, runs): (&[ArrayRef], usize, Option<&[u32]>),
        arguments: &[ArrayRef],
        filters: &[BooleanArray],
        rows: usize,
    ) -> Result<ControlFlow<usize>> {
        if rows == 0 {
            return Ok(Continue(()));
        }
        self.ids.clear();
        let (before, total) = match &self.grouper {
            None => {
                self.ids.resize(rows, 0);
                (1, 1)
            }
            Some(_) => {
                let mut ids = std::mem::take(&mut self.ids);
                let groups = match runs {
                    None => self.group(keys, rows, true, &mut ids)?,
                    Some(runs) => {
                        let mut run_ids = std::mem::take(&mut self.run_ids);
                        run_ids.clear();
                        let groups = self.group(keys, key_rows, false, &mut run_ids)?;
                        ids.extend(runs.iter().map(|&run| run_ids[run as usize]));
                        self.run_ids = run_ids;
                        groups
                    }
                };
                self.ids = ids;
                match groups {
                    Continue(groups) => groups,
                    Break(first) => return Ok(Break(first)),
                }
            }
        };
        self.rows += key_rows;
        let batch = Batch { ids: &self.ids, before, total, arguments, filters };
        self.states.update(&self.plan.slots, &batch)?;
        self.update_externals(arguments, filters, total)?;
        if let Some(grouper) = &self.grouper
            && (total >= self.limits.chunk_groups
                || grouper.strings() >= self.limits.chunk_groups * STRINGS_PER_GROUP_MAX)
        {
            self.seal()?;
            self.states.reserve(&self.plan.slots, with_headroom(total));
        } else if self.looks_in_vain(total) {
            self.seal()?;
            self.append_chunks = self.append_chunks.min(1);
        }
        Ok(Continue(()))
    }

    /// Appends the group ids of a batch; how many groups there were and are. `Break`: see
    /// [`Self::push_batch`], if it may be cut.
    fn group(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        may_cut: bool,
        ids: &mut Vec<u32>,
    ) -> Result<ControlFlow<usize, (usize, usize)>> {
        let Some(grouper) = &mut self.grouper else { return Ok(Continue((1, 1))) };
        let mut before = grouper.groups();
        let mut outcome = grouper.group_in_order(keys, rows, ids)?;
        match outcome {
            Outcome::Descends(first) if may_cut && self.may_begin() => return Ok(Break(first)),
            Outcome::Begins if self.may_begin() => {
                self.seal()?;
                let Some(grouper) = &mut self.grouper else { return Ok(Continue((1, 1))) };
                before = 0;
                outcome = grouper.group_in_order(keys, rows, ids)?;
            }
            _ => {}
        }
        if outcome != Outcome::Grouped {
            self.leave_order()?;
            let Some(grouper) = &mut self.grouper else { return Ok(Continue((1, 1))) };
            before = grouper.groups();
            grouper.group(keys, rows, ids)?;
        }
        Ok(Continue((before, self.grouper.as_ref().map_or(1, Grouper::groups))))
    }

    /// Whether another sequence of rows in order is worth a chunk.
    fn may_begin(&self) -> bool {
        self.groups() >= self.chunks.len() * SEQUENCE_GROUPS
    }

    /// From here on rows are looked up.
    fn leave_order(&mut self) -> Result<()> {
        if self.grouper.as_mut().is_some_and(|grouper| !grouper.leave_order()) {
            self.seal()?;
            self.grouper.as_mut().map(Grouper::leave_order);
        }
        Ok(())
    }

    /// Whether the first table is not worth to be filled up.
    fn looks_in_vain(&self, groups: usize) -> bool {
        groups >= self.limits.trial_groups
            && groups * TRIAL_NEW_GROUPS.1 > self.rows * TRIAL_NEW_GROUPS.0
            && self.accumulators.is_empty()
            && self.append_chunks == 0
            && !self.grouper.as_ref().is_some_and(Grouper::is_ordered)
            && self.chunks.iter().all(|chunk| chunk.order.is_some())
    }

    fn update_externals(
        &mut self,
        arguments: &[ArrayRef],
        filters: &[BooleanArray],
        total: usize,
    ) -> Result<()> {
        if self.accumulators.is_empty() {
            return Ok(());
        }
        let mut expanded: Vec<Option<ArrayRef>> = vec![None; arguments.len()];
        for (accumulator, &function) in self.accumulators.iter_mut().zip(&self.plan.externals) {
            let function = &self.spec.functions[function];
            let mut plain = Vec::with_capacity(function.arguments.len());
            for &i in &function.arguments {
                let array = match expanded[i].take() {
                    Some(array) => array,
                    None => expand(&arguments[i], &self.spec.argument_types[i])?,
                };
                expanded[i] = Some(Arc::clone(&array));
                plain.push(array);
            }
            let filter = function.filter.map(|i| &filters[i]);
            accumulator.update(&plain, filter, &self.ids, total)?;
        }
        Ok(())
    }

    /// Bytes held: tables, strings, states and sealed chunks.
    pub fn memory_bytes(&self) -> usize {
        let accumulators: usize = self.accumulators.iter().map(|a| a.memory_bytes()).sum();
        self.chunks_bytes
            + self.states.bytes()
            + accumulators
            + self.grouper.as_ref().map_or(0, Grouper::bytes)
            + (self.ids.capacity() + self.run_ids.capacity()) * size_of::<u32>()
    }

    /// Ends the chunk that is being filled and decides how to fill the next.
    fn seal(&mut self) -> Result<()> {
        let distinct = self.append_chunks == 0;
        let groups = self.grouper.as_ref().map_or(1, Grouper::groups);
        if groups == 0 {
            return Ok(());
        }
        if distinct {
            let mostly_new = groups * NEW_GROUPS_MAX.1 > self.rows * NEW_GROUPS_MAX.0;
            // Externals' states may be large ones: sets, lists.
            let is_ordered = self.grouper.as_ref().is_some_and(Grouper::is_ordered);
            if mostly_new && self.accumulators.is_empty() && !is_ordered {
                self.append_chunks = CHUNKS_UNTIL_TRIAL;
            }
        } else {
            self.append_chunks -= 1;
        }
        let SealedGroups { keys, strings, unhashed, order } = match &mut self.grouper {
            None => SealedGroups::default(),
            Some(grouper) => grouper.seal(self.append_chunks > 0),
        };
        let mut states = std::mem::replace(&mut self.states, States::new(&self.plan.slots, false));
        states.resize(groups);
        let externals = self.accumulators.iter_mut().map(|a| a.state()).collect::<Result<_>>()?;
        let sorted = Sorted::default();
        let joined = vec![];
        let chunk = Chunk {
            keys,
            strings,
            unhashed,
            states,
            externals,
            groups,
            distinct,
            order,
            joined,
            sorted,
        };
        self.chunks_bytes += chunk.bytes();
        self.chunks.push(chunk);
        self.rows = 0;
        Ok(())
    }

    /// Groups that merging would sort; a chunk may have some that another has as well.
    pub fn groups(&self) -> usize {
        let open = self.grouper.as_ref().map_or(1, Grouper::groups);
        open + self.chunks.iter().map(|c| c.groups).sum::<usize>()
    }

    /// Gives away all groups so far, and the memory for those to come. Without keys there is nothing
    /// to give.
    pub fn spill(&mut self) -> Result<Vec<Sealed>> {
        if self.grouper.is_none() {
            return Ok(vec![]);
        }
        self.seal()?;
        let in_order = self.grouper.as_ref().is_some_and(Grouper::is_ordered);
        self.grouper = Some(Grouper::new(&self.plan.keys, self.limits.compare_groups, in_order)?);
        self.chunks_bytes = 0;
        let (spec, plan) = (&self.spec, &self.plan);
        let sealed = |chunk| Sealed { spec: Arc::clone(spec), plan: Arc::clone(plan), chunk };
        Ok(self.chunks.drain(..).map(sealed).collect())
    }

    #[cfg(test)]
    pub(super) fn unhashed(&self) -> Option<Vec<bool>> {
        self.grouper.as_ref()?.unhashed()
    }

    pub(super) fn into_chunks(mut self) -> Result<Vec<Chunk>> {
        self.seal()?;
        Ok(self.chunks)
    }
}
