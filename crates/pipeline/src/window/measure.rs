//! What windows cost: `cargo test --release -p thalweg-pipeline window::measure -- --ignored --nocapture`.

use arrow::array::{Decimal128Array, Float64Array, Int64Array, StringViewArray};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use thalweg_base::Prng;

use super::*;
use crate::sort;

const ROWS: usize = 4_000_000;
const BATCH: usize = 16 * 1024;
const WORKERS: usize = 2;

/// The columns of the rows.
const ID: usize = 0;
const REGION: usize = 1;
const PRICE: usize = 2;
const SCORE: usize = 3;
const USER: usize = 4;

fn types() -> Vec<DataType> {
    use DataType::*;
    vec![Int64, Utf8View, Decimal128(15, 2), Float64, Int64]
}

fn batches() -> Vec<Vec<ArrayRef>> {
    let mut random = Prng::new(7);
    let mut below = move |n: u64| random.below(n) as i64;
    let batch = |start: usize| -> Vec<ArrayRef> {
        let rows = BATCH.min(ROWS - start);
        let regions = (0..rows).map(|_| format!("region {}", below(25))).collect::<Vec<_>>();
        let prices = (0..rows).map(|_| i128::from(below(1_000_000))).collect::<Vec<_>>();
        let scores = (0..rows).map(|_| below(1_000_000) as f64 / 7.0).collect::<Vec<_>>();
        let users = (0..rows).map(|_| below(120_000)).collect::<Vec<_>>();
        let prices = Decimal128Array::from(prices).with_precision_and_scale(15, 2).unwrap();
        vec![
            Arc::new(Int64Array::from_iter_values((start..start + rows).map(|id| id as i64))),
            Arc::new(StringViewArray::from_iter_values(regions)),
            Arc::new(prices),
            Arc::new(Float64Array::from(scores)),
            Arc::new(Int64Array::from(users)),
        ]
    };
    (0..ROWS).step_by(BATCH).map(batch).collect()
}

/// Milliseconds that this thread has had a processor: other builds may be running.
fn now() -> f64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: that is the C library's function of 64-bit Linux, and `time` is its struct.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.seconds as f64 * 1e3 + time.nanoseconds as f64 * 1e-6
}

/// Milliseconds of each phase, and how many of them its longest task takes.
fn run<P: Phases + 'static>(work: P) -> (Vec<(f64, f64)>, P::Output) {
    let mut times = vec![];
    for phase in 0..work.phases() {
        let (mut sum, mut longest) = (0.0, 0.0f64);
        for task in 0..work.tasks(phase) {
            let start = now();
            work.run(phase, task).unwrap();
            sum += now() - start;
            longest = longest.max(now() - start);
        }
        times.push((sum, longest));
    }
    (times, work.finish().unwrap())
}

/// Windows by the first `together` of the keys, the columns that are read besides.
fn measure(
    name: &str,
    batches: &[Vec<ArrayRef>],
    keys: &[(usize, bool)],
    together: usize,
    function: (Kind, Option<usize>, DataType),
    frame: Frame,
) {
    let mut columns: Vec<usize> = keys.iter().map(|(column, _)| *column).collect();
    columns.extend(function.1.filter(|argument| !columns.contains(argument)));
    let at = |column: usize| columns.iter().position(|&c| c == column).unwrap();
    let option = |descending| SortOptions { descending, nulls_first: false };
    let sort = sort::Spec {
        keys: keys
            .iter()
            .map(|&(c, descending)| (types()[c].clone(), option(descending)))
            .collect(),
        payload_types: columns.iter().map(|&c| types()[c].clone()).collect(),
        fetch: None,
        together,
    };
    let spec = Spec {
        sort,
        columns: columns.len(),
        keys: keys.iter().map(|(c, _)| at(*c)).collect(),
        functions: vec![Function {
            kind: function.0,
            arguments: function.1.map(at).into_iter().collect(),
            order_keys: keys.len() - together,
            frame,
            result: function.2,
        }],
    };
    let mut best: Option<(f64, String)> = None;
    for _ in 0..5 {
        let start = now();
        let mut workers: Vec<_> =
            (0..WORKERS).map(|_| Collected::new(&spec.sort).unwrap()).collect();
        for (n, batch) in batches.iter().enumerate() {
            let of = |column: &usize| Arc::clone(&batch[*column]);
            let payload: Vec<ArrayRef> = columns.iter().map(of).collect();
            let keys: Vec<ArrayRef> = keys.iter().map(|(column, _)| of(column)).collect();
            workers[n % WORKERS].push(&keys, &payload, batch[0].len()).unwrap();
        }
        let collected = now() - start;
        let bytes = workers.iter().map(Collected::memory_bytes).sum::<usize>();
        let began = now();
        let windowing = Windowing::new(spec.clone(), workers).unwrap();
        let begun = now() - began;
        let (phases, rows) = run(windowing);
        let all = now() - start;
        assert_eq!(rows.iter().map(|batch| batch.rows).sum::<usize>(), ROWS);
        // What two threads can share, and what one must do.
        let shared: f64 = phases.iter().map(|(sum, longest)| longest.max(sum / 2.0)).sum();
        let elapsed = collected / 2.0 + begun + shared;
        let line = format!(
            "{all:5.0} ms, with two threads {elapsed:5.0} ms: {} MB collected in {collected:.0} ms, \
             {begun:.1} ms, phases and their longest tasks {phases:.0?}",
            bytes >> 20
        );
        if best.as_ref().is_none_or(|(least, _)| elapsed < *least) {
            best = Some((elapsed, line));
        }
    }
    println!("{name:20} {}", best.unwrap().1);
}

#[test]
#[ignore = "a measurement"]
fn windows() {
    let batches = batches();
    let rows = |before, after| Frame {
        unit: Unit::Rows,
        start: Bound::Distance(before),
        end: Bound::Distance(after),
    };
    let frame = rows(0, 0);
    let number = || DataType::UInt64;
    let ntile = (Kind::Ntile(10), None, number());
    measure("ntile", &batches, &[(SCORE, false), (ID, false)], 0, ntile, frame);
    let rank = (Kind::Rank, None, number());
    measure("rank_partition", &batches, &[(REGION, false), (PRICE, true)], 1, rank, frame);
    let lag = Kind::Shifted(-1, thalweg_ir::Literal::null(types()[PRICE].clone()));
    let lag = (lag, Some(PRICE), types()[PRICE].clone());
    measure("lag_partition", &batches, &[(REGION, false), (ID, false)], 1, lag, frame);
    measure(
        "row_number_integer",
        &batches,
        &[(USER, false)],
        0,
        (Kind::RowNumber, None, number()),
        frame,
    );
    let average = (Kind::Aggregate(aggregate::Kind::Avg), Some(SCORE), DataType::Float64);
    measure("moving_average", &batches, &[(REGION, false), (ID, false)], 1, average, rows(-10, 10));
}
