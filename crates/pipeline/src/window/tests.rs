use arrow::array::{AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use proptest::prelude::*;

use arrow::compute::{SortOptions, cast};

use super::results::{ntile, over_all};
use super::*;
use crate::aggregate::framed::{ByRow, Frames};
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
    computed_together(rows, std::slice::from_ref(function)).remove(0)
}

/// The same of any numbers, where the second key is ordered so.
fn computed_as_doubles(rows: &[Row], function: &Function, second: SortOptions) -> Vec<Option<f64>> {
    all_computed(rows, std::slice::from_ref(function), second).remove(0)
}

/// The same of several functions.
fn computed_together(rows: &[Row], functions: &[Function]) -> Vec<Vec<Option<i64>>> {
    let all = all_computed(rows, functions, SortOptions::default());
    let whole = |results: Vec<Option<f64>>| -> Vec<Option<i64>> {
        results.into_iter().map(|result| result.map(|result| result as i64)).collect()
    };
    all.into_iter().map(whole).collect()
}

fn all_computed(
    rows: &[Row],
    functions: &[Function],
    second: SortOptions,
) -> Vec<Vec<Option<f64>>> {
    let column = |f: &dyn Fn(&Row) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.iter().map(f).collect::<Int64Array>())
    };
    let columns =
        [column(&|r| Some(r.0)), column(&|r| Some(r.1)), column(&|r| Some(r.2)), column(&|r| r.3)];
    let mut keys = vec![(DataType::Int64, SortOptions::default()); 3];
    keys[1].1 = second;
    let payload_types = vec![DataType::Int64; 4];
    let spec = Spec {
        sort: sort::Spec { keys, payload_types, fetch: None, together: 1 },
        columns: 3,
        keys: vec![0, 1, 2],
        functions: functions.to_vec(),
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
    let mut results = vec![vec![None; rows.len()]; functions.len()];
    for batch in windowing.finish().unwrap() {
        let places = batch.columns[2].as_primitive::<Int64Type>().values();
        for (results, values) in results.iter_mut().zip(&batch.columns[3..]) {
            let values = cast(values, &DataType::Float64).unwrap();
            for (&place, value) in places.iter().zip(values.as_primitive::<Float64Type>()) {
                results[place as usize] = Some(value);
            }
        }
    }
    let all = |results: Vec<Option<_>>| results.into_iter().map(Option::unwrap).collect();
    results.into_iter().map(all).collect()
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

/// Rows of few partitions, each of several batches, and of many that are small; with few peers or many.
fn few_partitions(rows: i64, keys: i64) -> Vec<Row> {
    let row = |n: i64| {
        let partition = if n % 50 == 0 { n % 1_000 } else { -(n % 2) };
        (partition, n * 7_919 % keys, n, (n % 13 > 0).then_some(n % 1_001))
    };
    (0..rows).map(row).collect()
}

#[test]
fn large_partitions_are_computed_piece_by_piece() {
    let near = |start, end| Frame {
        unit: Unit::Rows,
        start: Bound::Distance(start),
        end: Bound::Distance(end),
    };
    let peers = |start, end| Frame { unit: Unit::Peers, start, end };
    let (none, end) = (near(0, 0), Bound::Distance(0));
    use thalweg_ir::aggregate::Kind::{Count, CountRows, Max, Sum};
    for (keys, descending) in [(100_000, true), (300, false), (3, true), (1, false)] {
        let rows = few_partitions(70_000, keys);
        let option = SortOptions { descending, nulls_first: !descending };
        let mut sorted = rows.clone();
        let order = |r: &Row| if descending { -r.1 } else { r.1 };
        sorted.sort_by_key(|r| (r.0, order(r), r.2));
        // A function of the rows of a partition, and of the place of the row among them.
        type Model<'a> = &'a dyn Fn(&[Row], usize) -> Option<f64>;
        let check = |kind: Kind, frame: Frame, result: DataType, model: Model| {
            let name = format!("{kind:?} {frame:?} {keys}");
            let function = function(kind, frame, 1, result);
            let found = computed_as_doubles(&rows, &function, option);
            for partition in sorted.chunk_by(|a, b| a.0 == b.0) {
                // All rows of small partitions, and some of the others.
                for at in (0..partition.len()).filter(|at| partition.len() < 100 || at % 1_499 < 4)
                {
                    let place = partition[at].2 as usize;
                    assert_eq!(found[place], model(partition, at), "{name} {:?}", partition[at]);
                }
            }
        };
        let first = |p: &[Row], at: usize| p.partition_point(|r| order(r) < order(&p[at]));
        let behind = |p: &[Row], at: usize| p.partition_point(|r| order(r) <= order(&p[at]));
        let changes = |p: &[Row], at: usize| {
            let mut distinct: Vec<i64> = p[..=at].iter().map(order).collect();
            distinct.dedup();
            distinct.len()
        };
        let value = |r: Option<&Row>| r.and_then(|r| r.3).map(|v| v as f64);
        let whole = DataType::UInt64;
        let share = DataType::Float64;
        check(Kind::RowNumber, none, whole.clone(), &|_, at| Some(at as f64 + 1.0));
        check(Kind::Rank, none, whole.clone(), &|p, at| Some(first(p, at) as f64 + 1.0));
        check(Kind::DenseRank, none, whole.clone(), &|p, at| Some(changes(p, at) as f64));
        check(Kind::PercentRank, none, share.clone(), &|p, at| {
            let others = p.len() as f64 - 1.0;
            Some(if others == 0.0 { 0.0 } else { first(p, at) as f64 / others })
        });
        check(Kind::CumeDist, none, share, &|p, at| Some(behind(p, at) as f64 / p.len() as f64));
        check(Kind::Ntile(7), none, whole, &|p, at| {
            Some(ntile(at as u64, p.len() as u64, 7) as f64)
        });
        let number = DataType::Int64;
        for distance in [-1i64, 1, -17_000, 40_000] {
            for default in
                [thalweg_ir::Literal::null(number.clone()), thalweg_ir::Literal::int64(-5)]
            {
                let beyond = (!default.is_null()).then_some(-5.0);
                check(Kind::Shifted(distance, default), none, number.clone(), &|p, at| {
                    let row = usize::try_from(at as i64 + distance).ok();
                    row.filter(|&row| row < p.len()).map_or(beyond, |row| value(p.get(row)))
                });
            }
        }
        let until_peers = peers(UNBOUNDED, end);
        check(Kind::First, until_peers, number.clone(), &|p, _| value(p.first()));
        check(Kind::Last, until_peers, number.clone(), &|p, at| value(p.get(behind(p, at) - 1)));
        check(Kind::Nth(20_000), until_peers, number.clone(), &|p, at| {
            value(p[..behind(p, at)].get(19_999))
        });
        let before = peers(Bound::Distance(-1), Bound::Distance(-1));
        check(Kind::First, before, number.clone(), &|p, at| {
            let row = first(p, at).checked_sub(1)?;
            value(p.get(first(p, row)))
        });
        check(Kind::Aggregate(CountRows), until_peers, number.clone(), &|p, at| {
            Some(behind(p, at) as f64)
        });
        for (start, end) in [(-3, 4), (-2, -1), (1, 2), (5, 2), (-1, -4), (-8_192, 1), (0, 9_000)] {
            fn seen(p: &[Row], at: usize, start: i64, end: i64) -> &[Row] {
                let bound = |distance: i64| {
                    (at as i64).saturating_add(distance).clamp(0, p.len() as i64) as usize
                };
                let start = bound(start);
                &p[start..bound(end.saturating_add(1)).max(start)]
            }
            let frame = near(start, end);
            let values = |p: &[Row], at: usize| -> Vec<i64> {
                seen(p, at, start, end).iter().filter_map(|r| r.3).collect()
            };
            check(Kind::Aggregate(Sum), frame, number.clone(), &|p, at| {
                values(p, at).into_iter().reduce(|a, b| a + b).map(|sum| sum as f64)
            });
            check(Kind::Aggregate(Max), frame, number.clone(), &|p, at| {
                values(p, at).into_iter().max().map(|max| max as f64)
            });
            check(Kind::Aggregate(Count), frame, number.clone(), &|p, at| {
                Some(values(p, at).len() as f64)
            });
            check(Kind::Last, frame, number.clone(), &|p, at| {
                value(seen(p, at, start, end).last())
            });
        }
    }
}

#[test]
fn some_functions_see_pieces_and_others_their_whole_unit() {
    let rows: Vec<Row> = few_partitions(50_000, 40_000);
    let frame = |start| Frame { unit: Unit::Rows, start, end: Bound::Distance(0) };
    let number = || DataType::Int64;
    let sum = |start| function(Kind::Aggregate(aggregate::Kind::Sum), frame(start), 2, number());
    let functions = vec![
        function(Kind::RowNumber, frame(UNBOUNDED), 2, DataType::UInt64),
        sum(UNBOUNDED),
        sum(Bound::Distance(-2)),
    ];
    let alone: Vec<_> = functions.iter().map(|function| computed(&rows, function)).collect();
    let mut sorted = rows.clone();
    sorted.sort_by_key(|r| (r.0, r.1, r.2));
    for partition in sorted.chunk_by(|a, b| a.0 == b.0) {
        let mut running = None;
        for (at, row) in partition.iter().enumerate() {
            let place = row.2 as usize;
            running = row.3.map_or(running, |v| Some(running.unwrap_or(0) + v));
            let last = partition[at.saturating_sub(2)..=at].iter().filter_map(|r| r.3);
            assert_eq!(alone[0][place], Some(at as i64 + 1));
            assert_eq!(alone[1][place], running);
            assert_eq!(alone[2][place], last.reduce(|a, b| a + b));
        }
    }
    let together = computed_together(&rows, &functions);
    assert_eq!(together, alone);
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
