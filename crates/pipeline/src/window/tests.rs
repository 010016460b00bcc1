use arrow::array::{AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use proptest::prelude::*;

use super::*;
use crate::sort;

const UNBOUNDED: Bound = Bound::Unbounded;

/// Partition, what orders within it, the place of the row, and a value.
type Row = (i64, i64, i64, Option<i64>);

fn function(kind: Kind, frame: Frame, order_keys: usize, result: DataType) -> Function {
    let arguments = match kind {
        Kind::Aggregate(aggregate::Kind::CountRows) => vec![],
        _ => vec![3],
    };
    Function { kind, arguments, order_keys, frame, result }
}

/// The results of a function, by the place of the row.
fn computed(rows: &[Row], function: &Function) -> Vec<Option<i64>> {
    let column = |f: &dyn Fn(&Row) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.iter().map(f).collect::<Int64Array>())
    };
    let columns =
        [column(&|r| Some(r.0)), column(&|r| Some(r.1)), column(&|r| Some(r.2)), column(&|r| r.3)];
    let keys = vec![(DataType::Int64, SortOptions::default()); 3];
    let payload_types = vec![DataType::Int64; 4];
    let spec = Spec {
        sort: sort::Spec { keys, payload_types, fetch: None, together: 1 },
        columns: 3,
        keys: vec![0, 1, 2],
        functions: vec![function.clone()],
    };
    let mut parts: Vec<_> = (0..3).map(|_| Collected::new(&spec.sort).unwrap()).collect();
    for (n, start) in (0..rows.len()).step_by(700).enumerate() {
        let length = 700.min(rows.len() - start);
        let slice = columns.each_ref().map(|c| c.slice(start, length));
        parts[n % 3].push(&slice[..3], &slice, length).unwrap();
    }
    let windowing = Windowing::new(spec, parts).unwrap();
    for phase in 0..windowing.phases() {
        (0..windowing.tasks(phase)).rev().for_each(|task| windowing.run(phase, task).unwrap());
    }
    let mut results = vec![None; rows.len()];
    for batch in windowing.finish().unwrap() {
        let places = batch.columns[2].as_primitive::<Int64Type>().values();
        let values = batch.columns[3].as_primitive::<Int64Type>();
        for (&place, value) in places.iter().zip(values) {
            results[place as usize] = Some(value);
        }
    }
    results.into_iter().map(Option::unwrap).collect()
}

/// The values that each row's function sees, by the place of the row.
fn frames(rows: &[Row], frame: Frame, order_keys: usize) -> Vec<Vec<Option<i64>>> {
    let mut sorted = rows.to_vec();
    sorted.sort_by_key(|r| (r.0, r.1, r.2));
    let mut frames = vec![vec![]; rows.len()];
    for partition in sorted.chunk_by(|a, b| a.0 == b.0) {
        let key = |r: &Row| match order_keys {
            0 => (0, 0),
            1 => (r.1, 0),
            _ => (r.1, r.2),
        };
        // What bounds count: rows, or runs of peers.
        let mut unit = vec![0i64; partition.len()];
        for i in 1..partition.len() {
            let next = frame.unit == Unit::Rows || key(&partition[i - 1]) != key(&partition[i]);
            unit[i] = unit[i - 1] + i64::from(next);
        }
        for (i, row) in partition.iter().enumerate() {
            let seen = (0..partition.len()).filter(|&j| {
                let after = match frame.start {
                    Bound::Unbounded => true,
                    Bound::Distance(d) => unit[j] >= unit[i] + d,
                };
                let before = match frame.end {
                    Bound::Unbounded => true,
                    Bound::Distance(d) => unit[j] <= unit[i] + d,
                };
                after && before
            });
            frames[row.2 as usize] = seen.map(|j| partition[j].3).collect();
        }
    }
    frames
}

fn bound() -> impl Strategy<Value = Bound> {
    prop_oneof![Just(UNBOUNDED), Just(Bound::Distance(0)), (-4i64..5).prop_map(Bound::Distance)]
}

fn frame() -> impl Strategy<Value = Frame> {
    (any::<bool>(), bound(), bound()).prop_map(|(rows, start, end)| {
        let unit = if rows { Unit::Rows } else { Unit::Peers };
        Frame { unit, start, end }
    })
}

fn check(rows: &[Row], frame: Frame, order_keys: usize) {
    let frames = frames(rows, frame, order_keys);
    let values = |f: &Vec<Option<i64>>| f.iter().flatten().copied().collect::<Vec<_>>();
    let of = |kind| computed(rows, &function(kind, frame, order_keys, DataType::Int64));
    let expected = |f: &dyn Fn(&Vec<Option<i64>>) -> Option<i64>| -> Vec<Option<i64>> {
        frames.iter().map(f).collect()
    };
    use thalweg_ir::aggregate::Kind::{Count, CountRows, Max, Min, Sum};
    let sum = |f: &Vec<Option<i64>>| values(f).into_iter().reduce(|a, b| a + b);
    assert_eq!(of(Kind::Aggregate(Sum)), expected(&sum));
    assert_eq!(of(Kind::Aggregate(Min)), expected(&|f| values(f).into_iter().min()));
    assert_eq!(of(Kind::Aggregate(Max)), expected(&|f| values(f).into_iter().max()));
    assert_eq!(of(Kind::Aggregate(Count)), expected(&|f| Some(values(f).len() as i64)));
    assert_eq!(of(Kind::Aggregate(CountRows)), expected(&|f| Some(f.len() as i64)));
    assert_eq!(of(Kind::First), expected(&|f| f.first().copied().flatten()));
    assert_eq!(of(Kind::Last), expected(&|f| f.last().copied().flatten()));
    assert_eq!(of(Kind::Nth(2)), expected(&|f| f.get(1).copied().flatten()));
    assert_eq!(of(Kind::Nth(-2)), expected(&|f| f.iter().nth_back(1).copied().flatten()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn functions_see_the_rows_of_their_frames(
        rows in prop::collection::vec(
            (0i64..4, 0i64..5, prop::option::weighted(0.8, -9i64..9)), 0..60),
        frame in frame(),
        order_keys in 0usize..3,
    ) {
        let place = |(at, (a, b, v)): (usize, &(i64, i64, Option<i64>))| (*a, *b, at as i64, *v);
        let rows: Vec<Row> = rows.iter().enumerate().map(place).collect();
        check(&rows, frame, order_keys);
    }
}

#[test]
fn partitions_may_be_smaller_and_larger_than_batches() {
    // One of most rows, and thousands of a few.
    let rows = (0..50_000i64).map(|n| {
        let partition = if n % 5 > 0 { 700 } else { n % 3_000 };
        (partition, n * 31 % 97, n, (n % 13 > 0).then_some(n % 1_001))
    });
    let rows: Vec<Row> = rows.collect();
    let frame = Frame { unit: Unit::Rows, start: Bound::Distance(-2), end: Bound::Distance(1) };
    let sum = Kind::Aggregate(aggregate::Kind::Sum);
    let sums = computed(&rows, &function(sum, frame, 2, DataType::Int64));
    let mut sorted = rows.clone();
    sorted.sort_by_key(|r| (r.0, r.1, r.2));
    for (i, row) in sorted.iter().enumerate() {
        let seen = &sorted[i.saturating_sub(2)..(i + 2).min(sorted.len())];
        let seen = seen.iter().filter(|other| other.0 == row.0).filter_map(|other| other.3);
        assert_eq!(sums[row.2 as usize], seen.reduce(|a, b| a + b), "{row:?}");
    }
}

#[test]
fn sums_of_doubles_forget_what_has_left_the_frame() {
    let values = Arc::new(Float64Array::from(vec![1e300, 1.0, 2.0, f64::INFINITY, 5.0]));
    let kind = aggregate::Kind::Sum;
    let frame = Frame { unit: Unit::Rows, start: Bound::Distance(-1), end: Bound::Distance(0) };
    let function = function(Kind::Aggregate(kind.clone()), frame, 1, DataType::Float64);
    let function = over_all(&Function { arguments: vec![0], ..function }, &kind);
    let arguments: [ArrayRef; 1] = [values];
    let by_row = ByRow::new(&function, &arguments, 5, false, &no_pause);
    let mut by_row = at_once(by_row).unwrap().unwrap();
    let frames = Frames::new(vec![0, 0, 1, 2, 4], vec![1, 2, 3, 4, 5]);
    let sums = by_row.results(&frames).unwrap();
    let sums = sums.as_primitive::<Float64Type>().values();
    assert_eq!(sums.as_ref(), [1e300, 1e300, 3.0, f64::INFINITY, 5.0]);
}

#[test]
fn the_first_tiles_have_a_row_more() {
    let tiles = |rows, tiles| (0..rows).map(|row| ntile(row, rows, tiles)).collect::<Vec<_>>();
    assert_eq!(tiles(10, 4), [1, 1, 1, 2, 2, 2, 3, 3, 4, 4]);
    assert_eq!(tiles(3, 5), [1, 2, 3]);
    assert_eq!(tiles(4, 2), [1, 1, 2, 2]);
}
