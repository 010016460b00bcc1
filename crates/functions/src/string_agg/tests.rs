use arrow::array::{BooleanArray, Int64Array, LargeStringArray, StringViewArray};
use arrow::compute::SortOptions;
use thalweg_base::Prng;

use super::*;

/// A text, its key, and its group; and whether a filter lets the row pass, if it says.
#[derive(Clone)]
struct Row {
    text: Option<String>,
    key: Option<i64>,
    group: usize,
    passes: Option<bool>,
}

fn rows(count: usize, groups: u64, keys: u64, random: &mut Prng) -> Vec<Row> {
    let mut row = || Row {
        text: (random.below(7) > 0).then(|| "abc-é"[..random.below(4) as usize].to_string()),
        key: (random.below(9) > 0).then(|| random.below(keys) as i64 - 3),
        group: random.below(groups) as usize,
        passes: (random.below(8) > 0).then(|| random.below(5) > 0),
    };
    (0..count).map(|_| row()).collect()
}

fn texts(ordered: SortOptions) -> Texts {
    let keys = RowKeys::new(vec![(DataType::Int64, ordered)]).unwrap();
    Texts::new("; ".to_string(), Arc::new(keys))
}

fn update(texts: &mut Texts, rows: &[Row], count: usize) {
    let values: ArrayRef =
        Arc::new(rows.iter().map(|row| row.text.clone()).collect::<StringViewArray>());
    let delimiters: ArrayRef = Arc::new(StringViewArray::from(vec!["; "; rows.len()]));
    let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>());
    let filter = rows.iter().map(|row| row.passes).collect::<BooleanArray>();
    let groups: Vec<usize> = rows.iter().map(|row| row.group).collect();
    texts.update_batch(&[values, delimiters, keys], &groups, Some(&filter), count).unwrap();
}

/// What comes of the rows of each group.
fn expected(rows: &[Row], ordered: SortOptions, count: usize) -> Vec<Option<String>> {
    let of_group = |group: usize| {
        let mut rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.group == group && row.passes == Some(true) && row.text.is_some())
            .collect();
        let SortOptions { descending, nulls_first } = ordered;
        rows.sort_by_key(|row| {
            let null = row.key.is_some() == nulls_first;
            (null, row.key.map(|key| if descending { -key } else { key }))
        });
        let texts: Vec<&str> = rows.iter().filter_map(|row| row.text.as_deref()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    };
    (0..count).map(of_group).collect()
}

fn given(joined: &ArrayRef) -> Vec<Option<String>> {
    let joined: &LargeStringArray = joined.as_string::<i64>();
    joined.iter().map(|text| text.map(str::to_string)).collect()
}

fn orders() -> Vec<SortOptions> {
    let mut orders = vec![];
    for descending in [false, true] {
        for nulls_first in [false, true] {
            orders.push(SortOptions { descending, nulls_first });
        }
    }
    orders
}

#[test]
fn texts_are_joined_by_group() {
    for ordered in orders() {
        for (count, keys) in [(0, 5), (1, 5), (400, 5), (400, 1 << 40)] {
            let random = &mut Prng::new(count as u64 + keys);
            let rows = rows(count, 30, keys, random);
            let mut texts = texts(ordered);
            rows.chunks(64).for_each(|rows| update(&mut texts, rows, 30));
            texts.grow(33).unwrap();
            let joined = texts.evaluate(EmitTo::All).unwrap();
            assert_eq!(given(&joined), expected(&rows, ordered, 33), "{ordered:?}");
            // Nothing is left.
            update(&mut texts, &rows[..count.min(10)], 30);
            let again = given(&texts.evaluate(EmitTo::All).unwrap());
            assert_eq!(again, expected(&rows[..count.min(10)], ordered, 30));
        }
    }
}

#[test]
fn the_first_groups_are_given_out_before_the_others() {
    for ordered in orders() {
        let mut rows = rows(500, 20, 9, &mut Prng::new(3));
        let mut texts = texts(ordered);
        update(&mut texts, &rows[..300], 20);
        let before = given(&texts.evaluate(EmitTo::First(8)).unwrap());
        assert_eq!(before, expected(&rows[..300], ordered, 8));
        // Of the others there come more rows; they are counted from 8 on.
        rows.retain(|row| row.group >= 8);
        rows.iter_mut().for_each(|row| row.group -= 8);
        let first = rows.len() / 2;
        let mut texts = self::texts(ordered);
        let shifted = |row: &Row| Row { group: row.group + 8, ..row.clone() };
        update(&mut texts, &rows[..first].iter().map(shifted).collect::<Vec<_>>(), 20);
        texts.evaluate(EmitTo::First(8)).unwrap();
        update(&mut texts, &rows[first..], 12);
        let after = given(&texts.evaluate(EmitTo::All).unwrap());
        assert_eq!(after, expected(&rows, ordered, 12));
    }
}

#[test]
fn states_are_merged() {
    for ordered in orders() {
        let all = rows(600, 25, 6, &mut Prng::new(11));
        let mut merged = texts(ordered);
        for part in all.chunks(150) {
            let mut worker = texts(ordered);
            update(&mut worker, part, 25);
            let state = worker.state(EmitTo::All).unwrap();
            // Other groups there than here: the last is the first.
            let groups: Vec<usize> = (0..25).rev().collect();
            merged.merge_batch(&state, &groups, 25).unwrap();
        }
        let mut turned = all.clone();
        turned.iter_mut().for_each(|row| row.group = 24 - row.group);
        let joined = given(&merged.evaluate(EmitTo::All).unwrap());
        assert_eq!(joined, expected(&turned, ordered, 25), "{ordered:?}");
    }
}

#[test]
fn rows_become_states() {
    for ordered in orders() {
        let all = rows(90, 6, 4, &mut Prng::new(5));
        let values: ArrayRef =
            Arc::new(all.iter().map(|row| row.text.clone()).collect::<StringViewArray>());
        let keys: ArrayRef = Arc::new(all.iter().map(|row| row.key).collect::<Int64Array>());
        let filter = all.iter().map(|row| row.passes).collect::<BooleanArray>();
        let columns = [Arc::clone(&values), values, keys];
        let state = texts(ordered).convert_to_state(&columns, Some(&filter)).unwrap();
        let groups: Vec<usize> = all.iter().map(|row| row.group).collect();
        let mut merged = texts(ordered);
        merged.merge_batch(&state, &groups, 6).unwrap();
        let joined = given(&merged.evaluate(EmitTo::All).unwrap());
        assert_eq!(joined, expected(&all, ordered, 6));
    }
}

#[test]
fn one_group_is_there_without_rows() {
    for ordered in orders() {
        let mut none = OneGroup::new(Box::new(texts(ordered)));
        let state = none.state().unwrap();
        let state: Vec<ArrayRef> = state.iter().map(|s| s.to_array().unwrap()).collect();
        let mut merged = OneGroup::new(Box::new(texts(ordered)));
        merged.merge_batch(&state).unwrap();
        assert!(merged.evaluate().unwrap().is_null());
        assert!(OneGroup::new(Box::new(texts(ordered))).evaluate().unwrap().is_null());
    }
}
