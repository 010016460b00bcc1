//! The tasks that run pipelines.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result, resources_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::{BoxFuture, Fuse};
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use thalweg_base::Error;
use thalweg_ir::Source;
use thalweg_pipeline::aggregate::{AllGroups, Groups, Merging, Partial};
use thalweg_pipeline::encoding::value_bytes;
use thalweg_pipeline::phases::{Pause, Phases, Turns};
use thalweg_pipeline::prepared::{Pipeline, Plan, Sink, Step};
use thalweg_pipeline::sort::{self, Collected, Sorting};
use thalweg_pipeline::table::Building;
use thalweg_pipeline::window::Windowing;
use thalweg_pipeline::worker::{BuiltTable, Finished, Given, Part, Worker, is_apart};
use tokio::sync::mpsc;

use super::PipelineExec;
use super::figures::Figures;
use super::output::{Client, Output, Sender, Stop};
use super::source::{Feed, Opened, Puller, Sinks};
use super::spill::{Spilled, SpilledTable, Spilling, Spool, can_spill};
use crate::adapted;
use crate::again::{again, unfed};
use crate::compiled::{Input, SubqueryValue};
use thalweg_errors::into_datafusion;
use thalweg_runtime::{Beside, Run, all_offered, checkpoint};

/// Batches that wait for a consumer, per output.
const WAITING_BATCHES_MAX: usize = 2;
/// A worker asks for memory in steps of this many bytes.
const STEP_BYTES: usize = 1 << 20;
/// With less than that, or its share of a [`SPILL_PART`] of the memory there is, a worker that is
/// refused more goes on: what it would write to each file would be tiny.
const SPILL_BYTES_MIN: usize = 4 << 20;
const SPILL_PART: usize = 16;

/// What is done with fewer rows than this is done before another thread has woken up for its part.
const ROWS_BESIDE_MIN: usize = 8192;

pub struct Execution {
    shared: Arc<Shared>,
    outputs: Mutex<Vec<Option<mpsc::Receiver<Result<RecordBatch>>>>>,
    /// Until the first output is polled.
    senders: Mutex<Option<Vec<Sender>>>,
    /// Runs the pipelines of several outputs.
    task: Mutex<Option<Arc<Beside<()>>>>,
}

struct Shared {
    plan: Arc<Plan>,
    inputs: Vec<Input>,
    values: Arc<[SubqueryValue]>,
    original: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    schema: SchemaRef,
    /// One for each sink.
    reservations: Vec<MemoryReservation>,
    /// By sink: those that were refused memory, while they are written and after.
    spilling: Mutex<HashMap<usize, Arc<Spilling>>>,
    spilled: Mutex<HashMap<usize, Spilled>>,
    /// By sink: rows that are to be looked up in tables that are in files.
    spools: Mutex<HashMap<usize, Arc<Spool>>>,
    workers_max: usize,
    spill_bytes_min: usize,
    handed_out: AtomicBool,
    /// All that there is was sent.
    ended: AtomicBool,
    all_metrics: ExecutionPlanMetricsSet,
    /// One for each pipeline.
    metrics: Vec<ExecutionPlanMetricsSet>,
}

impl Execution {
    pub fn new(exec: &PipelineExec, context: Arc<TaskContext>) -> Result<Arc<Self>> {
        let count = exec.properties.output_partitioning().partition_count();
        let (senders, outputs): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::channel(WAITING_BATCHES_MAX)).unzip();
        let reservation = |_| {
            MemoryConsumer::new("PipelineExec").with_can_spill(true).register(context.memory_pool())
        };
        let workers_max = context.session_config().target_partitions().max(1);
        let spill_bytes_min = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => (limit / SPILL_PART / workers_max).min(SPILL_BYTES_MIN),
            _ => SPILL_BYTES_MIN,
        };
        let shared = Shared {
            plan: Arc::clone(&exec.plan),
            inputs: exec.inputs.clone(),
            values: Arc::clone(&exec.values),
            original: Arc::clone(&exec.original),
            schema: exec.original.schema(),
            reservations: (0..exec.plan.sinks.len()).map(reservation).collect(),
            spilling: Mutex::default(),
            spilled: Mutex::default(),
            spools: Mutex::default(),
            workers_max,
            spill_bytes_min,
            context,
            handed_out: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            all_metrics: exec.metrics.clone(),
            metrics: exec.stage_metrics(),
        };
        Ok(Arc::new(Execution {
            shared: Arc::new(shared),
            outputs: Mutex::new(outputs.into_iter().map(Some).collect()),
            senders: Mutex::new(Some(senders)),
            task: Mutex::default(),
        }))
    }

    /// The rows of a partition; `None`: somebody has taken them.
    pub fn output(self: &Arc<Self>, partition: usize) -> Option<SendableRecordBatchStream> {
        let mut outputs = self.outputs.lock();
        let mut receiver = outputs[partition].take()?;
        // They run from when the first output is polled until the last is dropped: the only one runs
        // them itself, so that a short query waits for no other slot.
        let (this, alone) = (Arc::clone(self), outputs.len() == 1);
        let shared = Arc::clone(&self.shared);
        let mut runs = None;
        let batches = stream::poll_fn(move |cx| {
            let runs = runs.get_or_insert_with(|| match alone {
                true => Runs::Here(this.run().boxed().fuse()),
                false => Runs::Beside(this.start()),
            });
            let received = receiver.poll_recv(cx);
            let received = match runs {
                Runs::Here(run) if received.is_pending() => {
                    let _ = run.poll_unpin(cx);
                    receiver.poll_recv(cx)
                }
                _ => received,
            };
            received.map(|batch| match batch {
                // The task has panicked: what was sent is not all.
                None if !shared.ended.swap(true, Relaxed) => {
                    let early = Error::internal("pipelines came to no end");
                    Some(Err(into_datafusion(early)))
                }
                batch => batch,
            })
        });
        let schema = Arc::clone(&self.shared.schema);
        Some(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn run(&self) -> impl Future<Output = ()> + Send + 'static {
        let senders = self.senders.lock().take().unwrap_or_default();
        run(Arc::clone(&self.shared), senders)
    }

    fn start(&self) -> Arc<Beside<()>> {
        let mut task = self.task.lock();
        Arc::clone(task.get_or_insert_with(|| Arc::new(Beside::spawn_awaited(self.run()))))
    }
}

/// What runs the pipelines: an output that is dropped stops them, or lets go of them.
enum Runs {
    Here(Fuse<BoxFuture<'static, ()>>),
    Beside(#[expect(dead_code, reason = "it ends with its last owner")] Arc<Beside<()>>),
}

async fn run(shared: Arc<Shared>, outputs: Vec<Sender>) {
    if let Err(e) = shared.all(&outputs).await {
        let e = Arc::new(e);
        for output in &outputs {
            // Whoever has gone does not need it.
            let _ = output.send(Err(DataFusionError::Shared(Arc::clone(&e)))).await;
        }
    }
    shared.ended.store(true, Relaxed);
}

impl Shared {
    async fn all(self: &Arc<Self>, outputs: &[Sender]) -> Result<()> {
        match self.pipelines(outputs).await {
            Ok(()) | Err(Stop::Unwanted) => Ok(()),
            Err(Stop::Refused) if !self.handed_out.load(Relaxed) => {
                (0..self.reservations.len()).for_each(|sink| self.free(sink));
                self.spools.lock().clear();
                MetricBuilder::new(&self.all_metrics).global_counter("given_up").add(1);
                self.operators(outputs).await
            }
            Err(Stop::Refused) => resources_err!("memory was refused"),
            Err(Stop::Failed(e)) => Err(e),
        }
    }

    /// Runs the operators that the pipelines stand for: those spill.
    async fn operators(&self, outputs: &[Sender]) -> Result<()> {
        self.values.iter().for_each(SubqueryValue::clear);
        // Pipelines may have read some of what lies below, down to its scans.
        let plan = adapted(unfed(again(&self.original)?)?)?;
        let count = plan.output_partitioning().partition_count();
        let tasks = (0..count).map(|partition| {
            let mut stream = plan.execute(partition, Arc::clone(&self.context))?;
            let output = outputs[partition % outputs.len()].clone();
            Ok(Beside::spawn(async move {
                while let Some(batch) = stream.next().await {
                    if output.send(Ok(batch?)).await.is_err() {
                        break;
                    }
                }
                Ok::<(), DataFusionError>(())
            }))
        });
        let tasks = tasks.collect::<Result<Vec<_>>>()?;
        for task in tasks {
            task.join().await??;
        }
        let (count, bytes) = spilled(plan.as_ref());
        MetricBuilder::new(&self.all_metrics).spill_count(0).add(count);
        MetricBuilder::new(&self.all_metrics).spilled_bytes(0).add(bytes);
        Ok(())
    }

    async fn pipelines(self: &Arc<Self>, outputs: &[Sender]) -> Result<(), Stop> {
        let mut plan = Arc::clone(&self.plan);
        // Of each pipeline that which it is a part of.
        let mut whole: Vec<usize> = (0..plan.pipelines.len()).collect();
        let mut sinks: Sinks = Arc::new((0..plan.sinks.len()).map(|_| None).collect());
        let mut parts: Vec<Vec<Part>> = (0..plan.sinks.len()).map(|_| Vec::new()).collect();
        let mut n = 0;
        while n < plan.pipelines.len() {
            if let Some((step, table)) = self.last_in_parts(&plan.pipelines[n]) {
                plan = Arc::new(plan.cut(n, step)?);
                whole.insert(n, whole[n]);
                let spool = plan.pipelines[n].sink;
                let types = plan.sinks[spool].output_types();
                let files = table.spool(&types, &self.context, &self.all_metrics)?;
                self.spools.lock().insert(spool, Arc::new(files));
                sinks = Arc::new(sinks.iter().cloned().chain([None]).collect());
                parts.push(vec![]);
                continue;
            }
            // Tables that do not need each other are built at the same time: where one ends on one
            // core, another has work for the rest.
            let mut end = n + 1;
            while end < plan.pipelines.len()
                && plan.may_run_beside(n..end, end)
                && self.last_in_parts(&plan.pipelines[end]).is_none()
            {
                end += 1;
            }
            let stages = (n..end).map(|n| {
                let place =
                    Place { plan: Arc::clone(&plan), n, metrics: self.metrics[whole[n]].clone() };
                let before = parts[plan.pipelines[n].sink].split_off(0);
                Arc::clone(self).stage(place, Arc::clone(&sinks), before, outputs.to_vec())
            });
            let ended = all_offered(stages).await?;
            let mut after: Vec<_> = sinks.iter().cloned().collect();
            for (n, ended) in (n..end).zip(ended) {
                match ended {
                    Ended::Fed(fed) => parts[plan.pipelines[n].sink] = fed,
                    Ended::Finished(finished) => after[plan.pipelines[n].sink] = Some(finished),
                }
            }
            for (i, state) in after.iter_mut().enumerate() {
                if state.is_some() && !is_read_after(&plan, i, end - 1) {
                    *state = None;
                    self.free(i);
                }
            }
            sinks = Arc::new(after);
            n = end;
        }
        Ok(())
    }

    /// Runs a pipeline, and finishes its sink if no later one feeds it.
    async fn stage(
        self: Arc<Self>,
        place: Place,
        sinks: Sinks,
        before: Vec<Part>,
        outputs: Vec<Sender>,
    ) -> Result<Ended, Stop> {
        let (plan, n, metrics) = (Arc::clone(&place.plan), place.n, place.metrics.clone());
        // By the clock, of all workers together.
        let time = |name: &'static str| MetricBuilder::new(&metrics).subset_time(name, 0);
        let parts = if is_void(&plan, n, &sinks) {
            before
        } else {
            let elapsed = time("elapsed");
            let _timer = elapsed.timer();
            self.pipeline(place, &sinks, before, &outputs).await?
        };
        if plan.is_fed_again(n) {
            return Ok(Ended::Fed(parts));
        }
        let elapsed = time("elapsed_in_sink");
        let _timer = elapsed.timer();
        let sink = plan.pipelines[n].sink;
        Ok(Ended::Finished(match self.plan.sinks.get(sink) {
            Some(_) => self.finish(sink, parts).await?,
            // Where a pipeline was cut.
            None => Finished::Nothing,
        }))
    }

    /// The last step that probes a table in files with rows that have not been split for it.
    fn last_in_parts(&self, pipeline: &Pipeline) -> Option<(usize, Arc<SpilledTable>)> {
        let spilled = self.spilled.lock();
        let split = usize::from(matches!(pipeline.source, Source::Parts { .. }));
        let steps = pipeline.steps.iter().enumerate().skip(split);
        let mut tables = steps.filter_map(|(n, step)| match spilled.get(&step.table()?)? {
            Spilled::Table(table) => Some((n, Arc::clone(table))),
            Spilled::Groups(_) | Spilled::Sort(_) => None,
        });
        tables.next_back()
    }

    fn value(&self, sink: usize) -> Option<&SubqueryValue> {
        self.values.iter().find(|value| value.sink == sink)
    }

    /// Where the rows of a pipeline come from.
    fn open(&self, pipeline: &Pipeline, sinks: &Sinks) -> Result<Opened, Stop> {
        let (sink, spooled) = match pipeline.source {
            Source::External(_) => (None, None),
            Source::Groups(sink) | Source::Table { sink, .. } => (Some(sink), None),
            Source::Parts { rows, table, .. } => {
                let spool = self.spools.lock().remove(&rows).and_then(Arc::into_inner);
                let Some(spool) = spool else { return Err(internal("rows are still written")) };
                (Some(table), Some(spool.finish()?))
            }
        };
        let spilled = sink.and_then(|sink| self.spilled.lock().get(&sink).cloned());
        Ok(match spilled {
            Some(spilled) => Opened::spilled(pipeline, spilled, spooled, &self.context)?,
            None => Opened::new(pipeline, &self.inputs, sinks, &self.context)?,
        })
    }

    /// Runs all workers of one pipeline.
    async fn pipeline(
        self: &Arc<Self>,
        place: Place,
        sinks: &Sinks,
        parts: Vec<Part>,
        outputs: &[Sender],
    ) -> Result<Vec<Part>, Stop> {
        let (plan, pipeline) = (&place.plan, &place.plan.pipelines[place.n]);
        let opened = self.open(pipeline, sinks)?;
        let apart = is_apart(&pipeline.source, sinks);
        let in_order = match pipeline.source {
            Source::Groups(sink) => matches!(plan.sinks[sink], Sink::Sort(_)),
            _ => false,
        };
        let count = if in_order { 1 } else { opened.width().clamp(1, self.workers_max) };
        let feed = Feed::new(opened, count);
        let mut parts = parts.into_iter();
        let mut tasks = Vec::with_capacity(count);
        for number in 0..count {
            let part = match parts.next() {
                Some(part) => part,
                None => Part::new(&plan.sinks[pipeline.sink], count, apart)?,
            };
            let worker = Worker::new(plan, place.n, sinks, part)?;
            let puller = Puller::new(Arc::clone(&feed), number);
            let output = match (self.spools.lock().get(&pipeline.sink), self.value(pipeline.sink)) {
                (Some(spool), _) => Output::Files(Arc::clone(spool), spool.writer()),
                (None, Some(value)) => Output::Value(value.clone()),
                (None, None) => {
                    let own = number % outputs.len();
                    Output::Client(Client::new(&self.schema, outputs.to_vec(), own))
                }
            };
            tasks.push(work(Arc::clone(self), place.clone(), worker, puller, output));
        }
        let mut done = all_offered(tasks).await?;
        done.extend(parts);
        Ok(done)
    }

    async fn finish(self: &Arc<Self>, sink: usize, parts: Vec<Part>) -> Result<Finished, Stop> {
        let reservation = &self.reservations[sink];
        match &self.plan.sinks[sink] {
            Sink::Emit(types) => {
                if let Some(value) = self.value(sink) {
                    value.finish(&types[0])?;
                }
                Ok(Finished::Nothing)
            }
            Sink::Discard => Ok(Finished::Nothing),
            Sink::Build(spec) => {
                let collected = parts.into_iter().filter_map(|part| match part {
                    Part::Build(collected) => Some(collected),
                    _ => None,
                });
                let building = Building::new(spec.clone(), collected.collect())?;
                let is_spilling = self.spilling.lock().contains_key(&sink);
                let needed = building.memory_bytes_needed();
                if is_spilling || self.reserve(reservation, needed).await.is_err() {
                    if is_spilling || reservation.size() + needed >= self.spill_bytes_min {
                        self.spill(sink, Given::Rows(building.give())).await?;
                        return self.finish_spilling(sink);
                    }
                    reservation.grow(needed);
                }
                let table = self.work_off(building).await?;
                let marked = self.plan.is_marked(sink);
                let built = BuiltTable::new(table, spec.payload_types.len(), marked);
                reservation.resize(built.table.memory_bytes());
                Ok(Finished::Table(Arc::new(built)))
            }
            Sink::Sort(spec) => {
                let sorting = Sorting::new(spec.clone(), collected(parts))?;
                if self.spilling.lock().contains_key(&sink) {
                    self.spill(sink, Given::Sorting(sorting)).await?;
                    return self.finish_spilling(sink);
                }
                // For a while, the rows are there twice.
                match self.reserve(reservation, reservation.size()).await {
                    Ok(()) => self.in_order(sink, sorting).await,
                    Err(_) => {
                        let sorted = self.work_off(sort::Parts(sorting)).await?;
                        Ok(Finished::Sorting(Arc::new(sorted)))
                    }
                }
            }
            Sink::Window(spec) => {
                self.reserve(reservation, reservation.size()).await?;
                self.in_order(sink, Windowing::new(spec.clone(), collected(parts))?).await
            }
            Sink::Aggregate(spec) => {
                let partials = parts.into_iter().filter_map(|part| match part {
                    Part::Aggregate(partial) => Some(*partial),
                    _ => None,
                });
                let mut partials: Vec<Partial> = partials.collect();
                let is_spilling = self.spilling.lock().contains_key(&sink);
                let readers = self.plan.readers(sink);
                // What sorting them by their hashes needs; without keys there is one group.
                let hashes: usize = match spec.key_types.is_empty() {
                    true => 0,
                    false => partials.iter().map(|p| p.groups() * Merging::SORTING_BYTES).sum(),
                };
                // Who reads groups alone merges them part by part; for several that is done before.
                let merged = if readers > 1 { reservation.size() } else { 0 };
                if is_spilling || self.reserve(reservation, hashes + merged).await.is_err() {
                    for partial in &mut partials {
                        self.spill(sink, Given::Groups(partial.spill()?)).await?;
                    }
                    drop(partials);
                    return self.finish_spilling(sink);
                }
                let again = self.plan.grouped_again_by(sink);
                let mut merging = Merging::new(Arc::clone(spec), partials)?.apart_by(&again)?;
                if self.plan.is_fetched(sink) {
                    // Rows that were in order are grouped again without a look.
                    merging = merging.in_order()?;
                }
                let merging = self.work_off(merging).await?;
                if readers <= 1 {
                    return Ok(Finished::Merging(Arc::new(merging)));
                }
                let groups = self.work_off(AllGroups::new(merging)).await?;
                reservation.resize(bytes(&groups));
                Ok(Finished::Rows(Arc::new(groups)))
            }
        }
    }

    /// Does what is left to do for a sink whose rows come out in order.
    async fn in_order<P>(self: &Arc<Self>, sink: usize, work: P) -> Result<Finished, Stop>
    where
        P: Phases<Output = Vec<Groups>> + 'static,
    {
        let rows = self.work_off(work).await?;
        self.reservations[sink].resize(bytes(&rows));
        Ok(Finished::Rows(Arc::new(rows)))
    }

    /// Writes what a sink has given away to its files.
    async fn spill(&self, sink: usize, given: Given) -> Result<(), Stop> {
        if !can_spill(&self.plan, sink) {
            return Err(Stop::Refused);
        }
        let spilling = match self.spilling.lock().entry(sink) {
            Entry::Occupied(found) => Arc::clone(found.get()),
            Entry::Vacant(none) => {
                let spilling = Spilling::new(&self.plan, sink, &self.context, &self.all_metrics)?;
                Arc::clone(none.insert(Arc::new(spilling)))
            }
        };
        Ok(spilling.write(given).await?)
    }

    /// All that there is of the sink is in its files.
    fn finish_spilling(&self, sink: usize) -> Result<Finished, Stop> {
        let spilling = self.spilling.lock().remove(&sink);
        let Some(spilling) = spilling.and_then(Arc::into_inner) else {
            return Err(internal("what has all come is still being written"));
        };
        let again = self.plan.readers(sink) > 1;
        let spilled = spilling.finish(again, &self.context)?.ok_or(Stop::Refused)?;
        let finished = match &spilled {
            Spilled::Table(_) => Finished::Parts,
            Spilled::Groups(_) | Spilled::Sort(_) => Finished::Nothing,
        };
        self.spilled.lock().insert(sink, spilled);
        self.reservations[sink].free();
        Ok(finished)
    }

    /// Nobody reads the sink any more.
    fn free(&self, sink: usize) {
        // Sinks that pipelines were cut at hold nothing.
        if let Some(reservation) = self.reservations.get(sink) {
            reservation.free();
        }
        self.spilling.lock().remove(&sink);
        self.spilled.lock().remove(&sink);
    }

    /// Reserves what a worker holds by now, instead of `held`. If that is refused, what it holds goes
    /// to files, if it can. Gives what it then holds.
    async fn hold(&self, sink: usize, worker: &mut Worker, held: usize) -> Result<usize, Stop> {
        let holds = worker.memory_bytes();
        if holds <= held {
            return Ok(held);
        }
        let reservation = &self.reservations[sink];
        let Err(refused) = self.reserve(reservation, holds - held).await else { return Ok(holds) };
        if !can_spill(&self.plan, sink) {
            return Err(refused);
        }
        if holds < self.spill_bytes_min {
            reservation.grow(holds - held);
            return Ok(holds);
        }
        match worker.spill()? {
            Given::Nothing => return Err(refused),
            given => self.spill(sink, given).await?,
        }
        let left = worker.memory_bytes();
        match left.cmp(&held) {
            Ordering::Less => reservation.shrink(held - left),
            _ => reservation.grow(left - held),
        }
        Ok(left)
    }

    /// Runs all tasks, phase by phase, of few rows on one thread.
    async fn work_off<P>(self: &Arc<Self>, work: P) -> Result<P::Output, Stop>
    where
        P: Phases + 'static,
    {
        let workers = if work.rows() < ROWS_BESIDE_MIN { 1 } else { self.workers_max };
        let turns = Arc::new(Turns::new(work, workers));
        for phase in 0..turns.phases() {
            let run = |worker| {
                let turns = Arc::clone(&turns);
                async move {
                    let pause: &Pause = &|| Box::pin(checkpoint());
                    while turns.run(phase, worker, pause).await? {
                        checkpoint().await;
                    }
                    Ok::<(), Stop>(())
                }
            };
            all_offered((0..turns.threads(phase).min(workers)).map(run)).await?;
        }
        let Some(turns) = Arc::into_inner(turns) else {
            return Err(internal("a task of a phase that is done is still running"));
        };
        Ok(turns.into_work().finish()?)
    }

    async fn reserve(&self, reservation: &MemoryReservation, bytes: usize) -> Result<(), Stop> {
        let granted = match Run::current() {
            Some(run) => run.reserve(reservation, bytes).await,
            None => reservation.try_grow(bytes).is_ok(),
        };
        if granted { Ok(()) } else { Err(Stop::Refused) }
    }
}

/// What workers have collected for a sort.
fn collected(parts: Vec<Part>) -> Vec<Collected> {
    let collected = parts.into_iter().filter_map(|part| match part {
        Part::Sort(collected) => Some(*collected),
        _ => None,
    });
    collected.collect()
}

/// What has become of the sink of a pipeline that has ended.
enum Ended {
    /// It will be fed by others.
    Fed(Vec<Part>),
    Finished(Finished),
}

/// A pipeline, the plan that it is in, and where its figures go.
#[derive(Clone)]
struct Place {
    plan: Arc<Plan>,
    n: usize,
    metrics: ExecutionPlanMetricsSet,
}

/// One worker of one pipeline, to the end of the source.
async fn work(
    shared: Arc<Shared>,
    place: Place,
    mut worker: Worker,
    mut puller: Puller,
    mut output: Output,
) -> Result<Part, Stop> {
    let sink = place.plan.pipelines[place.n].sink;
    let figures = Figures::new(&place.metrics);
    let mut held = worker.memory_bytes();
    loop {
        let timer = figures.in_source.timer();
        let Some(batch) = puller.next().await? else { break };
        timer.done();
        if let Some(table) = puller.table() {
            worker.set_table(table);
        }
        worker.push(batch);
        let mut longest = Duration::ZERO;
        loop {
            let started = Instant::now();
            let more = worker.step()?;
            let step = started.elapsed();
            figures.in_steps.add_duration(step);
            longest = longest.max(step);
            checkpoint().await;
            while let Some((columns, rows)) = worker.emitted() {
                output.push(columns, rows, &shared.handed_out).await?;
            }
            if !more {
                break;
            }
        }
        puller.took(longest);
        if worker.memory_bytes() > held + STEP_BYTES {
            held = shared.hold(sink, &mut worker, held).await?;
        }
    }
    shared.hold(sink, &mut worker, held).await?;
    output.finish(&shared.handed_out).await?;
    // Of a pipeline in parts, those of the whole.
    let mut seen = worker.seen();
    if let Source::Parts { .. } = place.plan.pipelines[place.n].source {
        seen.rows_in = 0;
    }
    if let Output::Files(..) = output {
        seen.rows_out = 0;
    }
    figures.finish(seen, puller.bytes_in(), shared.context.session_config());
    Ok(worker.into_part()?)
}

/// How often operators have spilled, and how many bytes.
fn spilled(plan: &dyn ExecutionPlan) -> (usize, usize) {
    let own = plan.metrics().unwrap_or_default();
    let own = (own.spill_count().unwrap_or(0), own.spilled_bytes().unwrap_or(0));
    plan.children()
        .into_iter()
        .map(|child| spilled(child.as_ref()))
        .fold(own, |sum, child| (sum.0 + child.0, sum.1 + child.1))
}

/// Of the values: batches may be slices of the same arrays.
fn bytes(groups: &[Groups]) -> usize {
    groups.iter().flat_map(|g| &g.columns).map(|c| value_bytes(c.as_ref(), None)).sum()
}

fn internal(what: &str) -> Stop {
    Error::internal(what).into()
}

/// Whether nothing can come of a pipeline: it probes an empty table that every row must match in.
fn is_void(plan: &Plan, n: usize, sinks: &Sinks) -> bool {
    plan.pipelines[n].steps.iter().any(|step| match step {
        Step::Probe(probe) => match &sinks[probe.sink] {
            Some(Finished::Table(built)) => built.table.rows() == 0 && probe.kind.needs_match(),
            _ => false,
        },
        _ => false,
    })
}

/// Whether a pipeline after the `n`th reads what the sink has become.
fn is_read_after(plan: &Plan, sink: usize, n: usize) -> bool {
    plan.pipelines[n + 1..].iter().any(|pipeline| pipeline.reads(sink))
}
