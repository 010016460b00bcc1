use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DataFusionError, JoinSide, JoinType, NullEquality};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::{GreedyMemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{Partitioning, displayable};
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use thalweg_base::{Kind, Prng};

use super::*;
use thalweg_errors::from_datafusion;
use thalweg_runtime::Unrefused;

const JOIN_TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// What one random case is made of.
#[derive(Clone, Debug)]
struct Case {
    join_type: JoinType,
    mode: PartitionMode,
    null_equality: NullEquality,
    filter: bool,
    dynamic_filter: bool,
    two_keys: bool,
    /// The probe side is partitioned by its keys, also where the join does not ask for it.
    probe_hashed: bool,
    outputs: usize,
    left_rows: usize,
    right_rows: usize,
    keys: u64,
    nulls_percent: u64,
    batch_rows: usize,
    project: bool,
    seed: u64,
}

impl Case {
    fn random(prng: &mut Prng) -> Self {
        let mut one_in = |n| prng.below(n) == 0;
        let (partitioned, null_equal) = (one_in(2), one_in(3));
        let (filter, dynamic_filter, two_keys) = (one_in(2), one_in(3), one_in(2));
        let (probe_hashed, project, empty_left, empty_right) =
            (one_in(2), one_in(3), one_in(20), one_in(20));
        Case {
            join_type: JOIN_TYPES[prng.below(10) as usize],
            mode: if partitioned { PartitionMode::Partitioned } else { PartitionMode::CollectLeft },
            null_equality: if null_equal {
                NullEquality::NullEqualsNull
            } else {
                NullEquality::NullEqualsNothing
            },
            filter,
            dynamic_filter,
            two_keys,
            probe_hashed,
            outputs: 1 + prng.below(4) as usize,
            left_rows: if empty_left { 0 } else { 1 + prng.below(3000) as usize },
            right_rows: if empty_right { 0 } else { 1 + prng.below(3000) as usize },
            keys: 400 + prng.below(2000),
            // Rows with NULL can be one key with many rows, which no split parts.
            nulls_percent: if null_equal { prng.below(3) } else { prng.below(60) },
            batch_rows: 50 + prng.below(500) as usize,
            project,
            seed: prng.next_u64(),
        }
    }

    fn table(&self, rows: usize, salt: u64, inputs: usize) -> Arc<dyn ExecutionPlan> {
        let mut prng = Prng::new(self.seed ^ salt);
        let schema = schema();
        let mut partitions = vec![vec![]; inputs];
        let mut left = rows;
        while left > 0 {
            let n = left.min(self.batch_rows);
            left -= n;
            let mut key = || {
                let null = prng.below(100) < self.nulls_percent;
                (!null).then(|| prng.below(self.keys) as i64)
            };
            let k: Int64Array = (0..n).map(|_| key()).collect();
            let texts: Vec<_> = (0..n).map(|_| key().map(|k| format!("key {}", k % 7))).collect();
            let s: StringViewArray = texts.iter().map(Option::as_deref).collect();
            let d: DictionaryArray<Int32Type> = texts.iter().map(Option::as_deref).collect();
            let v: Int64Array = (0..n).map(|_| Some(prng.below(1000) as i64)).collect();
            let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(s), Arc::new(v), Arc::new(d)];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).expect("fits");
            // As a scan gives them, too: slices of the same buffers.
            let half = n / 2;
            let to = &mut partitions[prng.below(inputs as u64) as usize];
            to.extend([batch.slice(0, half), batch.slice(half, n - half)]);
        }
        MemorySourceConfig::try_new_exec(&partitions, schema, None).expect("is a plan")
    }

    fn join(&self) -> HashJoinExec {
        let keys = if self.two_keys { vec![0, 1] } else { vec![0] };
        let schema = schema();
        let column = |i: usize| Arc::new(Column::new(schema.field(i).name(), i)) as _;
        let keys: Vec<Arc<dyn PhysicalExpr>> = keys.into_iter().map(column).collect();
        let hashed = |plan| {
            let partitioning = Partitioning::Hash(keys.clone(), self.outputs);
            Arc::new(RepartitionExec::try_new(plan, partitioning).expect("is a plan"))
        };
        let mut left = self.table(self.left_rows, 1, 2);
        let mut right = self.table(self.right_rows, 2, self.outputs);
        if self.mode == PartitionMode::Partitioned {
            (left, right) = (hashed(left), hashed(right));
        } else {
            left = Arc::new(CoalescePartitionsExec::new(left));
            if self.probe_hashed {
                right = hashed(right);
            }
        }
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(keys.clone(), lit(true)));
        if self.dynamic_filter {
            let predicate = Arc::clone(&dynamic) as _;
            right = Arc::new(FilterExec::try_new(predicate, right).expect("is a plan"));
        }
        let on = keys.iter().map(|key| (Arc::clone(key), Arc::clone(key))).collect();
        let join = HashJoinExecBuilder::new(left, right, on, self.join_type)
            .with_partition_mode(self.mode)
            .with_null_equality(self.null_equality)
            .with_filter(self.filter.then(filter));
        let join = join.build().expect("is a join");
        let join = match self.project {
            true => {
                let last = join.schema().fields().len() - 1;
                join.with_projection(Some(vec![last, 0])).expect("is there")
            }
            false => join,
        };
        match self.dynamic_filter {
            true => join.with_dynamic_filter_expr(dynamic).expect("fits the probe side"),
            false => join,
        }
    }

    /// Whether rows must come out of the same partition as always.
    fn partitions_matter(&self) -> bool {
        self.mode == PartitionMode::Partitioned
            || matches!(
                self.join().properties().output_partitioning(),
                Partitioning::Hash(_, outputs) if *outputs > 1
            )
    }
}

fn schema() -> SchemaRef {
    let dictionary = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("v", DataType::Int64, true),
        Field::new("d", dictionary, true),
    ]))
}

/// `left.v < right.v`
fn filter() -> JoinFilter {
    let field = |name| Field::new(name, DataType::Int64, true);
    let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 2, side });
    let expression =
        BinaryExpr::new(Arc::new(Column::new("l", 0)), Operator::Lt, Arc::new(Column::new("r", 1)));
    let schema = Schema::new(vec![field("l"), field("r")]);
    JoinFilter::new(Arc::new(expression), columns.into(), Arc::new(schema))
}

const SMALL: Bounds = Bounds { parts: 4, splits: 4, buffer_bytes: 16 * 1024 };

fn spilling(join: HashJoinExec) -> Arc<SpillJoinExec> {
    Arc::new(SpillJoinExec::new(join, SMALL))
}

type Pool = Unrefused<TrackConsumersPool<GreedyMemoryPool>>;

fn context(memory_bytes: usize, batch_rows: usize) -> Arc<TaskContext> {
    let names = NonZeroUsize::new(3).expect("not zero");
    let pool = TrackConsumersPool::new(GreedyMemoryPool::new(memory_bytes), names);
    let pool: Pool = Unrefused(pool);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool));
    let runtime = runtime.build_arc().expect("builds");
    let config = SessionConfig::new().with_batch_size(batch_rows);
    Arc::new(TaskContext::default().with_session_config(config).with_runtime(runtime))
}

/// The rows of each partition, in order of their text. `in_turn`: a partition is executed when the
/// one before has ended.
async fn rows(
    plan: Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    in_turn: bool,
) -> Result<Vec<Vec<String>>> {
    let mut tasks = vec![];
    for partition in 0..plan.properties().output_partitioning().partition_count() {
        let stream = plan.execute(partition, Arc::clone(context))?;
        let mut task = tokio::spawn(async move {
            let batches: Vec<RecordBatch> = stream.try_collect().await?;
            let mut lines: Vec<String> = batches.iter().flat_map(lines).collect();
            lines.sort_unstable();
            Ok::<_, DataFusionError>(lines)
        });
        if in_turn {
            let done = (&mut task).await.expect("does not panic");
            task = tokio::spawn(async { done });
        }
        tasks.push(task);
    }
    let mut partitions = vec![];
    for task in tasks {
        partitions.push(task.await.expect("does not panic")?);
    }
    Ok(partitions)
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).expect("can be shown"))
        .collect();
    let line = |row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(line).collect()
}

fn flat(partitions: Vec<Vec<String>>) -> Vec<String> {
    let mut all: Vec<String> = partitions.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

/// Tasks that were aborted are dropped a moment later.
async fn all_given_back(context: &TaskContext) {
    let runtime = context.runtime_env();
    let left = || (runtime.memory_pool.reserved(), runtime.disk_manager.used_disk_space());
    for _ in 0..500 {
        if left() == (0, 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pool = runtime.memory_pool.downcast_ref::<Pool>().expect("made here");
    let holders = pool.0.report_top(5);
    panic!("bytes of memory and of disk that are not given back: {:?}, by {holders}", left());
}

/// Whether it spilled.
async fn check(case: &Case, memory_bytes: usize, in_turn: bool) -> bool {
    let plenty = context(usize::MAX, case.batch_rows);
    let expected = rows(Arc::new(case.join()), &plenty, false).await.expect("runs");
    let context = context(memory_bytes, case.batch_rows);
    let join = spilling(case.join());
    let got = rows(Arc::clone(&join) as _, &context, in_turn);
    let got = tokio::time::timeout(Duration::from_secs(60), got).await;
    let got = got.unwrap_or_else(|_| {
        let plan = DisplayableExecutionPlan::with_metrics(join.as_ref()).indent(true).to_string();
        panic!("{case:?} in {memory_bytes}, in turn: {in_turn}, hangs:\n{plan}")
    });
    let got = got.unwrap_or_else(|e| panic!("{case:?} in {memory_bytes}: {e}"));
    let metrics = join.metrics().expect("has metrics");
    let row_count = expected.iter().map(Vec::len).sum();
    assert_eq!(metrics.output_rows(), Some(row_count), "{case:?} in {memory_bytes}");
    if case.partitions_matter() {
        assert!(got == expected, "{case:?} in {memory_bytes}");
    } else {
        assert!(flat(got) == flat(expected), "{case:?} in {memory_bytes}");
    }
    // While the plan is still there.
    all_given_back(&context).await;
    metrics.spill_count() > Some(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_joins_give_the_same_rows_with_little_memory() {
    let cases = std::env::var("CASES").map_or(60, |n| n.parse().expect("is a number"));
    let seed = std::env::var("SEED").map_or(1, |n| n.parse().expect("is a number"));
    let mut prng = Prng::new(seed);
    let mut spilled = 0;
    for _ in 0..cases {
        let case = Case::random(&mut prng);
        let memory_bytes = 20_000 + prng.below(200_000) as usize;
        // With a dynamic filter DataFusion has the partitions wait for one another.
        let in_turn = !case.dynamic_filter && prng.below(4) == 0;
        spilled += usize::from(check(&case, memory_bytes, in_turn).await);
    }
    assert!((cases / 4..cases).contains(&spilled), "{spilled} of {cases} spilled");
}

fn plain() -> Case {
    Case {
        join_type: JoinType::Inner,
        mode: PartitionMode::CollectLeft,
        null_equality: NullEquality::NullEqualsNothing,
        filter: false,
        dynamic_filter: false,
        two_keys: false,
        probe_hashed: false,
        outputs: 2,
        left_rows: 3000,
        right_rows: 3000,
        keys: 1000,
        nulls_percent: 0,
        batch_rows: 500,
        project: false,
        seed: 7,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_and_mode_spills() {
    for join_type in JOIN_TYPES {
        for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
            for probe_hashed in [false, true] {
                let case = Case { join_type, mode, probe_hashed, filter: true, ..plain() };
                assert!(check(&case, 50_000, false).await, "{case:?} does not spill");
                assert!(!check(&case, 50_000_000, false).await, "{case:?} spills");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_match_nothing_are_split_though_their_keys_are_all_null() {
    let case = Case { join_type: JoinType::Full, nulls_percent: 100, ..plain() };
    assert!(check(&case, 50_000, false).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_with_more_rows_than_memory_is_an_error_that_names_it() {
    for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
        let case = Case { keys: 1, mode, right_rows: 10, ..plain() };
        let context = context(50_000, 500);
        let e = rows(spilling(case.join()), &context, false).await.expect_err("does not fit");
        let e = from_datafusion(e);
        assert_eq!(e.kind(), Kind::Resources, "{e:#}");
        assert_eq!(e.message(), "a join on k = k does not fit into memory");
        assert!(e.detail_text().is_some_and(|d| d.contains("256 parts")), "{e:#}");
        assert!(e.hint_text().is_some(), "{e:#}");
        all_given_back(&context).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_dropped_half_way_gives_all_back() {
    let mut prng = Prng::new(3);
    for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
        for round in 0..10 {
            let case = Case { mode, keys: 100, seed: round, ..plain() };
            let context = context(60_000, 200);
            let join = spilling(case.join());
            let mut streams = vec![];
            for partition in 0..2 {
                streams.push(join.execute(partition, Arc::clone(&context)).expect("executes"));
            }
            for _ in 0..prng.below(12) {
                let stream = &mut streams[prng.below(2) as usize];
                let next = tokio::time::timeout(Duration::from_millis(5), stream.next()).await;
                assert!(!matches!(next, Ok(Some(Err(_)))), "{next:?}");
            }
            drop(streams);
            if mode == PartitionMode::Partitioned {
                // A RepartitionExec keeps what nobody took until the plan is dropped.
                drop(join);
            }
            all_given_back(&context).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_can_be_executed_again() {
    for memory_bytes in [50_000, 50_000_000] {
        let context = context(memory_bytes, 500);
        let join: Arc<dyn ExecutionPlan> = spilling(plain().join());
        let first = flat(rows(Arc::clone(&join), &context, false).await.expect("runs"));
        let again = flat(rows(Arc::clone(&join), &context, false).await.expect("runs"));
        assert_eq!(join.metrics().and_then(|m| m.output_rows()), Some(2 * first.len()));
        let reset = reset_plan_states(join).expect("is reset");
        assert_eq!(reset.metrics().and_then(|m| m.output_rows()), None);
        let third = flat(rows(reset, &context, false).await.expect("runs"));
        assert!(first == again && first == third);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_across_parts() {
    for rows_max in [0, 1, 777, 1_000_000] {
        let case = Case { outputs: 1, ..plain() };
        let all =
            rows(Arc::new(case.join()), &context(usize::MAX, 500), false).await.expect("runs");
        let join = case.join().builder().with_fetch(Some(rows_max)).build().expect("is a join");
        let context = context(50_000, 500);
        let got = rows(spilling(join), &context, false).await.expect("runs");
        assert_eq!(got[0].len(), all[0].len().min(rows_max));
        all_given_back(&context).await;
    }
}

#[test]
fn it_takes_the_place_of_joins_that_promise_no_order() {
    let join: Arc<dyn ExecutionPlan> = Arc::new(plain().join());
    let shown = displayable(join.as_ref()).indent(false).to_string();
    let wrapped = spill_joins(join).expect("is wrapped");
    assert_eq!(wrapped.name(), "SpillJoinExec");
    assert_eq!(displayable(wrapped.as_ref()).indent(false).to_string(), shown);

    let case = Case { join_type: JoinType::LeftAnti, ..plain() };
    let not_in = case.join().builder().with_null_aware(true).build_exec().expect("is a join");
    assert_eq!(spill_joins(not_in).expect("is left alone").name(), "HashJoinExec");
}
