use arrow::array::{BooleanArray, Int32Array, StringViewArray};
use arrow::compute::SortOptions;
use arrow::datatypes::Int32Type;
use thalweg_base::Prng;

use super::*;

/// A value, its keys, and its group; and whether a filter lets the row pass, if it says.
#[derive(Clone)]
struct Row {
    value: Option<String>,
    keys: (Option<i32>, Option<String>),
    group: usize,
    passes: Option<bool>,
}

/// Values of keys are of many lengths, so that a better one may need more room or less.
fn rows(count: usize, groups: u64, random: &mut Prng) -> Vec<Row> {
    let mut number = 0;
    let mut row = || {
        number += 1;
        let value = format!("value {number} that no view has room for");
        Row {
            value: (random.below(6) > 0).then_some(value),
            keys: (
                (random.below(9) > 0).then(|| random.below(20) as i32 - 10),
                (random.below(9) > 0).then(|| "z".repeat(random.below(60) as usize)),
            ),
            group: random.below(groups) as usize,
            passes: (random.below(8) > 0).then(|| random.below(5) > 0),
        }
    };
    (0..count).map(|_| row()).collect()
}

#[derive(Clone, Copy, Debug)]
struct Case {
    order: Option<[SortOptions; 2]>,
    is_last: bool,
    ignores_nulls: bool,
}

fn cases() -> Vec<Case> {
    let ascending = SortOptions { descending: false, nulls_first: false };
    let descending = SortOptions { descending: true, nulls_first: true };
    let orders = [None, Some([ascending, descending]), Some([descending, ascending])];
    let mut cases = vec![];
    for order in orders {
        for is_last in [false, true] {
            for ignores_nulls in [false, true] {
                cases.push(Case { order, is_last, ignores_nulls });
            }
        }
    }
    cases
}

fn best(case: Case) -> Best {
    let [a, b] = case.order.unwrap_or_default();
    let keys = vec![(DataType::Int32, a), (DataType::Utf8View, b)];
    let order = case.order.is_some().then(|| Arc::new(RowKeys::new(keys).unwrap()));
    Best::new(DataType::Utf8View, order, case.is_last, case.ignores_nulls)
}

fn columns(rows: &[Row], case: Case) -> (Vec<ArrayRef>, BooleanArray) {
    let texts = |of: &dyn Fn(&Row) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringViewArray>())
    };
    let mut columns = vec![texts(&|row| row.value.clone())];
    if case.order.is_some() {
        columns.push(Arc::new(rows.iter().map(|row| row.keys.0).collect::<Int32Array>()));
        columns.push(texts(&|row| row.keys.1.clone()));
    }
    (columns, rows.iter().map(|row| row.passes).collect())
}

fn update(best: &mut Best, rows: &[Row], case: Case, count: usize) {
    let (columns, filter) = columns(rows, case);
    let groups: Vec<usize> = rows.iter().map(|row| row.group).collect();
    best.update_batch(&columns, &groups, Some(&filter), count).unwrap();
}

fn compare<T: Ord>(a: &Option<T>, b: &Option<T>, by: SortOptions) -> std::cmp::Ordering {
    let nulls_last = !by.nulls_first;
    match (a, b) {
        (Some(a), Some(b)) => {
            if by.descending {
                b.cmp(a)
            } else {
                a.cmp(b)
            }
        }
        _ => match nulls_last {
            true => a.is_none().cmp(&b.is_none()),
            false => b.is_none().cmp(&a.is_none()),
        },
    }
}

fn expected(rows: &[Row], case: Case, count: usize) -> Vec<Option<String>> {
    let counts =
        |row: &&Row| row.passes == Some(true) && (row.value.is_some() || !case.ignores_nulls);
    let of_group = |group: usize| {
        let mut best: Option<&Row> = None;
        for row in rows.iter().filter(|row| row.group == group).filter(counts) {
            let is_better = match (best, case.order) {
                (None, _) => true,
                (Some(_), None) => case.is_last,
                (Some(best), Some([a, b])) => {
                    let order = compare(&row.keys.0, &best.keys.0, a)
                        .then_with(|| compare(&row.keys.1, &best.keys.1, b));
                    if case.is_last { order.is_gt() } else { order.is_lt() }
                }
            };
            if is_better {
                best = Some(row);
            }
        }
        best.and_then(|row| row.value.clone())
    };
    (0..count).map(of_group).collect()
}

fn given(values: &ArrayRef) -> Vec<Option<String>> {
    values.as_string_view().iter().map(|text| text.map(str::to_string)).collect()
}

#[test]
fn the_best_row_of_each_group_is_found() {
    for case in cases() {
        for count in [0, 1, 2_000, 60_000] {
            let rows = rows(count, 700, &mut Prng::new(count as u64));
            let mut best = best(case);
            rows.chunks(1_000).for_each(|rows| update(&mut best, rows, case, 700));
            best.grow(703).unwrap();
            // Rows that were the best once are not kept for ever.
            assert!(best.rows <= 703 * 2 + ROWS_KEPT + 1_000);
            assert_eq!(given(&best.evaluate(EmitTo::All).unwrap()), expected(&rows, case, 703));
            update(&mut best, &rows[..count.min(10)], case, 700);
            let again = given(&best.evaluate(EmitTo::All).unwrap());
            assert_eq!(again, expected(&rows[..count.min(10)], case, 700));
        }
    }
}

#[test]
fn values_that_get_better_with_each_row_are_kept_once() {
    let by = SortOptions { descending: true, nulls_first: false };
    let order = Some(Arc::new(RowKeys::new(vec![(DataType::Int32, by)]).unwrap()));
    let mut best = Best::new(DataType::Int32, order, false, false);
    for start in (0..200_000).step_by(1_000) {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(start..start + 1_000));
        let groups: Vec<usize> = (0..1_000).collect();
        best.update_batch(&[Arc::clone(&numbers), numbers], &groups, None, 1_000).unwrap();
        assert!(best.rows <= 2_000 + ROWS_KEPT + 1_000);
        assert!(best.keys.bytes.len() <= 1_000 * 5 * 2);
    }
    let values = best.evaluate(EmitTo::All).unwrap();
    assert_eq!(values.as_primitive::<Int32Type>().value(7), 199_007);
}

#[test]
fn the_first_groups_are_given_out_before_the_others() {
    for case in cases() {
        let mut rows = rows(900, 40, &mut Prng::new(9));
        let mut best = best(case);
        update(&mut best, &rows[..450], case, 40);
        assert_eq!(
            given(&best.evaluate(EmitTo::First(15)).unwrap()),
            expected(&rows[..450], case, 15)
        );
        rows[450..].iter_mut().for_each(|row| row.group = row.group.max(15) - 15);
        update(&mut best, &rows[450..], case, 25);
        rows[450..].iter_mut().for_each(|row| row.group += 15);
        let all = expected(&rows, case, 40);
        let of_left = given(&best.evaluate(EmitTo::All).unwrap());
        // Group 15 is that of all that were lower.
        assert_eq!(of_left[..], all[15..]);
    }
}

#[test]
fn states_are_merged() {
    for case in cases() {
        let all = rows(1_200, 50, &mut Prng::new(21));
        let (mut merged, mut of_rows) = (best(case), best(case));
        for part in all.chunks(300) {
            let mut worker = best(case);
            update(&mut worker, part, case, 50);
            let state = worker.state(EmitTo::All).unwrap();
            merged.merge_batch(&state, &(0..50).collect::<Vec<_>>(), 50).unwrap();
            let (columns, filter) = columns(part, case);
            let state = worker.convert_to_state(&columns, Some(&filter)).unwrap();
            let groups: Vec<usize> = part.iter().map(|row| row.group).collect();
            of_rows.merge_batch(&state, &groups, 50).unwrap();
        }
        let wanted = expected(&all, case, 50);
        assert_eq!(given(&merged.evaluate(EmitTo::All).unwrap()), wanted, "{case:?}");
        assert_eq!(given(&of_rows.evaluate(EmitTo::All).unwrap()), wanted, "{case:?}");
    }
}

#[test]
fn structs_hold_no_texts_of_others() {
    let texts = StringViewArray::from_iter_values(
        (0..8_192).map(|n| format!("a text of some length, number {n}")),
    );
    let bytes = texts.get_buffer_memory_size();
    let fields = vec![Field::new("text", DataType::Utf8View, true)].into();
    let value: ArrayRef = Arc::new(StructArray::new(fields, vec![Arc::new(texts)], None));
    let mut best = Best::new(value.data_type().clone(), None, false, false);
    best.update_batch(&[Arc::clone(&value)], &vec![0; value.len()], None, 1).unwrap();
    assert!(best.size() < bytes / 10);
    let mut one = OneGroup::new(Box::new(best));
    let state = one.state().unwrap();
    assert_eq!(state.len(), 2);
    let first = datafusion::common::ScalarValue::try_from_array(&value, 0).unwrap();
    assert_eq!(state[0], first);
}
