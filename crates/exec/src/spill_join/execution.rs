//! One execution of a join: what its output partitions share, and how they go on without memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, JoinType, NullEquality, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::{MetricsSet, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, SpillManager};
use futures::future::{BoxFuture, Shared as SharedFuture};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use thalweg_base::{Error, text};

use super::Bounds;
use super::build::{Collected, Granted, collect};
use super::handover::Handover;
use super::sides;
use crate::spill_file::{Part, manager, read};
use crate::split::Split;
use thalweg_errors::into_datafusion;
use thalweg_runtime::{Beside, checkpoint};

pub struct Execution {
    shared: Arc<Shared>,
    /// Of a build side that all outputs share; each of them drives it.
    build: Option<SharedFuture<BoxFuture<'static, BuildResult>>>,
    started: Vec<AtomicBool>,
    unfinished: AtomicUsize,
}

/// Each output gets the error.
type BuildResult = std::result::Result<Build, Arc<DataFusionError>>;

/// How a build side that all outputs share came out.
#[derive(Clone)]
enum Build {
    /// In memory.
    Whole,
    /// In files. Each output splits its own probe rows.
    Left(Arc<Vec<Part>>),
    /// In files, with all probe rows. Each output takes whole pairs.
    Pairs(Pairs),
}

/// What is still to be joined, part by part.
type Pairs = Arc<Mutex<Vec<Pair>>>;

/// Rows of both sides of which none has a match outside.
struct Pair {
    left: Part,
    right: Part,
    /// How often they have been split.
    depth: usize,
}

struct Shared {
    /// The join as it runs while the build side is in memory.
    join: HashJoinExec,
    left: Arc<Handover>,
    right: Arc<Handover>,
    context: Arc<TaskContext>,
    /// One per build side.
    granted: Vec<Arc<Granted>>,
    granted_contexts: Vec<Arc<TaskContext>>,
    left_files: SpillManager,
    right_files: SpillManager,
    bounds: Bounds,
}

impl Execution {
    pub fn new(
        join: &HashJoinExec,
        context: &Arc<TaskContext>,
        spills: SpillMetrics,
        bounds: Bounds,
    ) -> Result<Arc<Self>> {
        let left = Arc::new(Handover::of(join.left()));
        let right = Arc::new(Handover::of(join.right()));
        let inputs = vec![Arc::clone(&left) as _, Arc::clone(&right) as _];
        let filter = dynamic_filter(join);
        // So that its table goes with this execution.
        let mut running = join.builder().reset_state().with_new_children(inputs)?.build()?;
        if let Some(filter) = filter {
            running = running.with_dynamic_filter_expr(filter)?;
        }
        let outputs = join.properties().output_partitioning().partition_count();
        let one_build = *join.partition_mode() == PartitionMode::CollectLeft;
        let builds = if one_build { 1 } else { outputs };
        let granted: Vec<_> = (0..builds).map(|_| Granted::new(context)).collect();
        let files = |side: &Arc<dyn ExecutionPlan>| manager(side.schema(), context, spills.clone());
        let shared = Arc::new(Shared {
            left_files: files(join.left()),
            right_files: files(join.right()),
            join: running,
            left,
            right,
            context: Arc::clone(context),
            granted_contexts: granted.iter().map(|g| g.context(context)).collect(),
            granted,
            bounds,
        });
        let mut build = None;
        if one_build {
            shared.left.open(0, context)?;
            let shared = Arc::clone(&shared);
            build = Some(async move { shared.build().await.map_err(Arc::new) }.boxed().shared());
        }
        Ok(Arc::new(Execution {
            shared,
            build,
            started: (0..outputs).map(|_| AtomicBool::new(false)).collect(),
            unfinished: AtomicUsize::new(outputs),
        }))
    }

    pub fn output(&self, partition: usize) -> Result<SendableRecordBatchStream> {
        if self.started[partition].swap(true, Ordering::Relaxed) {
            return internal_err!("partition {partition} of a join was executed twice");
        }
        let shared = Arc::clone(&self.shared);
        shared.right.open(partition, &shared.context)?;
        // Made now, though perhaps for nothing: dropped, it tells the other partitions that the
        // dynamic filter gets nothing from this one.
        let context = &shared.granted_contexts[if self.build.is_some() { 0 } else { partition }];
        let whole = shared.join.execute(partition, Arc::clone(context))?;
        let schema = shared.join.schema();
        let stream = match self.build.clone() {
            Some(build) => stream::once(async move {
                let build = build.await.map_err(DataFusionError::Shared)?;
                shared.go_on(build, partition, whole).await
            })
            .try_flatten()
            .boxed(),
            None => {
                shared.left.open(partition, &shared.context)?;
                stream::once(shared.build_and_go_on(partition, whole)).try_flatten().boxed()
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    /// Drops what `partition` did not use. Whether it was the last.
    pub fn finish(&self, partition: usize) -> bool {
        let shared = &self.shared;
        match &self.build {
            None => {
                drop((shared.left.take(partition), shared.right.take(partition)));
                shared.granted[partition].settle();
            }
            // Otherwise its probe rows are taken, or may be, by others.
            Some(build) => {
                if let Some(Ok(Build::Whole)) = build.peek() {
                    drop(shared.right.take(partition));
                }
            }
        }
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub fn metrics(&self) -> MetricsSet {
        self.shared.join.metrics().unwrap_or_default()
    }
}

pub fn dynamic_filter(join: &HashJoinExec) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    let filter = join.dynamic_expressions_produced().pop()?;
    Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok()
}

impl Shared {
    /// Collects the build side that all outputs share.
    async fn build(self: Arc<Self>) -> Result<Build> {
        let mut left = self.left.take(0);
        let granted = &self.granted[0];
        let collected = match collect(&mut left, granted.reservation(), 0).await? {
            Collected::All(batches) => {
                self.left.put(0, in_memory(&self.left, batches));
                return Ok(Build::Whole);
            }
            Collected::Some(batches) => batches,
        };
        if let Some(filter) = dynamic_filter(&self.join) {
            filter.mark_complete();
        }
        let outputs = self.right.properties().output_partitioning().partition_count();
        // Files shared by all outputs; each should find some.
        let parts = self.bounds.parts.max(outputs);
        let keeps_partitions = match self.join.properties().output_partitioning() {
            Partitioning::UnknownPartitioning(_) | Partitioning::RoundRobinBatch(_) => false,
            _ => outputs > 1,
        };
        let lefts = self.split_left(collected, left, 1, parts, granted).await?;
        if keeps_partitions {
            return Ok(Build::Left(Arc::new(lefts)));
        }
        // A pair needs the probe rows of all outputs, whichever of them are polled, and when.
        let _buffers = self.buffers(outputs);
        let split = self.right_to_files(1, parts)?;
        let mut tasks = vec![];
        for partition in 0..outputs {
            self.right.open(partition, &self.context)?;
            let (split, right) = (Arc::clone(&split), self.right.take(partition));
            tasks.push(Beside::spawn(sides::write(split, vec![], right, None)));
        }
        for task in tasks {
            task.join().await??;
        }
        let rights = split.finish()?;
        Ok(Build::Pairs(Arc::new(Mutex::new(pairs(lefts, rights, 1)))))
    }

    /// The rows of one output, once the build side has come out so.
    async fn go_on(
        self: Arc<Self>,
        build: Build,
        partition: usize,
        whole: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        match build {
            Build::Whole => {
                self.settle_when_built(0, partition);
                Ok(whole)
            }
            Build::Left(lefts) => {
                drop(whole);
                let right = self.right.take(partition);
                let rights = self.split_right(right, 1, lefts.len()).await?;
                let pairs = pairs(lefts.to_vec(), rights, 1);
                Ok(self.join_pairs(Arc::new(Mutex::new(pairs))))
            }
            Build::Pairs(pairs) => {
                drop(whole);
                Ok(self.join_pairs(pairs))
            }
        }
    }

    /// Collects the build side of one partition, and gives its rows.
    async fn build_and_go_on(
        self: Arc<Self>,
        partition: usize,
        whole: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        let mut left = self.left.take(partition);
        let granted = &self.granted[partition];
        match collect(&mut left, granted.reservation(), 0).await? {
            Collected::All(batches) => {
                self.left.put(partition, in_memory(&self.left, batches));
                self.settle_when_built(partition, partition);
                Ok(whole)
            }
            Collected::Some(batches) => {
                drop(whole);
                let right = self.right.take(partition);
                let pairs = self.split(batches, left, right, 1, granted).await?;
                Ok(self.join_pairs(Arc::new(Mutex::new(pairs))))
            }
        }
    }

    /// The join asks for its first probe rows when its table is built.
    fn settle_when_built(&self, build: usize, partition: usize) {
        let granted = Arc::clone(&self.granted[build]);
        let right = self.right.take(partition);
        let schema = right.schema();
        let right = stream::once(async move {
            granted.settle();
            right
        });
        let right = RecordBatchStreamAdapter::new(schema, right.flatten());
        self.right.put(partition, Box::pin(right));
    }

    fn left_to_files(&self, depth: usize, parts: usize) -> Result<Arc<Split>> {
        let keys = self.join.on().iter().map(|(left, _)| Arc::clone(left));
        self.to_files(keys.collect(), depth, parts, &self.left_files)
    }

    fn right_to_files(&self, depth: usize, parts: usize) -> Result<Arc<Split>> {
        let keys = self.join.on().iter().map(|(_, right)| Arc::clone(right));
        self.to_files(keys.collect(), depth, parts, &self.right_files)
    }

    fn to_files(
        &self,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        depth: usize,
        parts: usize,
        files: &SpillManager,
    ) -> Result<Arc<Split>> {
        let nulls_match_nothing = self.join.null_equality() == NullEquality::NullEqualsNothing;
        let hashes = sides::hashes(keys, depth, nulls_match_nothing);
        Split::new(hashes, parts, self.bounds.buffer_bytes, files.clone()).map(Arc::new)
    }

    /// What the rows on their way to files take. It is not asked for: nothing else frees memory.
    fn buffers(&self, writers: usize) -> MemoryReservation {
        let consumer = MemoryConsumer::new("HashJoinSpill").with_can_spill(true);
        let reservation = consumer.register(self.context.memory_pool());
        reservation.grow(writers * self.bounds.buffer_bytes);
        reservation
    }

    /// Splits both sides of a pair, of whose build side some was `collected`.
    async fn split(
        &self,
        collected: Vec<RecordBatch>,
        left: SendableRecordBatchStream,
        right: SendableRecordBatchStream,
        depth: usize,
        granted: &Granted,
    ) -> Result<Vec<Pair>> {
        let parts = self.bounds.parts;
        let lefts = self.split_left(collected, left, depth, parts, granted).await?;
        Ok(pairs(lefts, self.split_right(right, depth, parts).await?, depth))
    }

    async fn split_left(
        &self,
        collected: Vec<RecordBatch>,
        rest: SendableRecordBatchStream,
        depth: usize,
        parts: usize,
        granted: &Granted,
    ) -> Result<Vec<Part>> {
        let _buffer = self.buffers(1);
        let split = self.left_to_files(depth, parts)?;
        sides::write(Arc::clone(&split), collected, rest, Some(granted)).await?;
        granted.settle();
        split.finish()
    }

    async fn split_right(
        &self,
        right: SendableRecordBatchStream,
        depth: usize,
        parts: usize,
    ) -> Result<Vec<Part>> {
        let _buffer = self.buffers(1);
        let split = self.right_to_files(depth, parts)?;
        sides::write(Arc::clone(&split), vec![], right, None).await?;
        split.finish()
    }

    /// Joins pair after pair until there are no more.
    fn join_pairs(self: Arc<Self>, pairs: Pairs) -> SendableRecordBatchStream {
        let schema = self.join.schema();
        let rows_left = self.join.fetch();
        let state = Output { shared: self, pairs, joined: None, rows_left };
        let batches = stream::try_unfold(state, |mut state| async move {
            Ok(state.next().await?.map(|batch| (batch, state)))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    /// The rows of a pair; `None` if it was split instead, or gives none.
    async fn join_pair(
        &self,
        pair: Pair,
        pairs: &Pairs,
    ) -> Result<Option<SendableRecordBatchStream>> {
        if !self.gives_rows(&pair) {
            return Ok(None);
        }
        let granted = Granted::new(&self.context);
        let mut left = read(&self.left_files, pair.left)?;
        let right = read(&self.right_files, pair.right)?;
        let free_bytes = self.bounds.buffer_bytes;
        let batches = match collect(&mut left, granted.reservation(), free_bytes).await? {
            Collected::All(batches) => batches,
            Collected::Some(_) if pair.depth == self.bounds.splits => {
                return Err(self.does_not_fit(granted.reservation().size()));
            }
            Collected::Some(batches) => {
                let parts = self.split(batches, left, right, pair.depth + 1, &granted).await?;
                pairs.lock().extend(parts);
                return Ok(None);
            }
        };
        let left = Handover::holding(in_memory(&self.left, batches));
        let join = self
            .join
            .builder()
            .with_partition_mode(PartitionMode::Partitioned)
            .with_new_children(vec![Arc::new(left), Arc::new(Handover::holding(right))])?
            .build()?;
        Ok(Some(join.execute(0, granted.context(&self.context))?))
    }

    fn gives_rows(&self, pair: &Pair) -> bool {
        use JoinType as J;
        let join = self.join.join_type();
        let unmatched_left = matches!(join, J::Left | J::Full | J::LeftAnti | J::LeftMark);
        let unmatched_right = matches!(join, J::Right | J::Full | J::RightAnti | J::RightMark);
        (pair.left.is_some() || unmatched_right) && (pair.right.is_some() || unmatched_left)
    }

    fn does_not_fit(&self, bytes: usize) -> DataFusionError {
        let equal = |(left, right): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| {
            format!("{} = {}", fmt_sql(left.as_ref()), fmt_sql(right.as_ref()))
        };
        let keys = self.join.on().iter().map(equal).collect::<Vec<_>>().join(" AND ");
        let parts = self.bounds.parts.pow(self.bounds.splits as u32);
        into_datafusion(
            Error::resources(format!("a join on {keys} does not fit into memory"))
                .detail(format!(
                    "its smaller side was split into {} parts on disk; one of them takes more than {}, so many of its rows must have the same key",
                    text::count(parts as u64),
                    text::bytes(bytes as u64),
                ))
                .hint("raise --memory, run fewer queries at once, or group or filter the rows of the commonest keys before they are joined"),
        )
    }
}

fn pairs(lefts: Vec<Part>, rights: Vec<Part>, depth: usize) -> Vec<Pair> {
    let pairs = lefts.into_iter().zip(rights);
    pairs.map(|(left, right)| Pair { left, right, depth }).collect()
}

/// DataFusion looks at each batch as it comes, so there is a pause between them.
fn in_memory(side: &Handover, batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
    let batches = stream::iter(batches).then(|batch| async {
        checkpoint().await;
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(side.schema(), batches))
}

/// One output, whose build side is on disk.
struct Output {
    shared: Arc<Shared>,
    pairs: Pairs,
    joined: Option<SendableRecordBatchStream>,
    rows_left: Option<usize>,
}

impl Output {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.rows_left != Some(0) {
            if let Some(joined) = &mut self.joined {
                if let Some(batch) = joined.next().await {
                    return Ok(Some(self.limited(batch?)));
                }
                self.joined = None;
            }
            let next = self.pairs.lock().pop();
            let Some(pair) = next else { return Ok(None) };
            self.joined = self.shared.join_pair(pair, &self.pairs).await?;
        }
        Ok(None)
    }

    fn limited(&mut self, batch: RecordBatch) -> RecordBatch {
        let Some(rows_left) = &mut self.rows_left else { return batch };
        let rows = batch.num_rows().min(*rows_left);
        *rows_left -= rows;
        batch.slice(0, rows)
    }
}
