use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, DictionaryArray, Int64Array, StringViewArray, UInt8Array,
    UInt16Array,
};
use arrow::datatypes::Int64Type;
use proptest::prelude::*;

use super::*;
use crate::encoding::expand;
use crate::expr::kernel::Kernel;
use crate::expr::{Comparison, Function};
use thalweg_ir::Literal;

fn register(n: usize) -> Expr {
    Expr::Register(n, DataType::Int64)
}

fn literal(n: i64) -> Expr {
    Expr::Literal(One(Arc::new(Int64Array::from(vec![n]))))
}

fn text(t: &str) -> Expr {
    Expr::Literal(One(Arc::new(StringViewArray::from(vec![t]))))
}

fn operation(op: Op, arguments: Vec<Expr>) -> Expr {
    let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
    let result = op.result_type(&types).unwrap_or_else(|| panic!("{op} does not take {types:?}"));
    let kernel = Callee::Kernel(Arc::new(Kernel::new(&op).unwrap()));
    Expr::Call(kernel, arguments, result)
}

fn compare(comparison: Comparison, a: Expr, b: Expr) -> Expr {
    Expr::Compare(comparison, Box::new(a), Box::new(b))
}

fn batch(columns: &[Vec<Option<i64>>]) -> Batch {
    let rows = columns[0].len();
    let columns = columns.iter().map(|c| Arc::new(Int64Array::from(c.clone())) as ArrayRef);
    Batch::new(columns.collect(), rows)
}

fn ints(expr: &Expr, batch: &mut Batch) -> Result<Vec<Option<i64>>> {
    Ok(expr.plain(batch)?.as_primitive::<Int64Type>().iter().collect())
}

/// A number itself, at a price: who calls it is counted, with how many rows.
#[derive(Debug, Default)]
struct Dear(AtomicUsize);

impl Function for Dear {
    fn call(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.0.fetch_add(rows, Ordering::Relaxed);
        Ok(Arc::clone(&arguments[0]))
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn describe(&self, _: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dear")
    }
}

#[test]
fn a_branch_fails_for_the_rows_that_reach_it_alone() {
    // CASE WHEN b = 0 THEN -1 WHEN 12 / b > 3 THEN 12 / b ELSE 100 / (b - 4) END
    let by = |a: i64, b: Expr| operation(Op::Divide, vec![literal(a), b]);
    let less = operation(Op::Subtract, vec![register(0), literal(4)]);
    let case = operation(
        Op::Case,
        vec![
            compare(Comparison::Equal, register(0), literal(0)),
            literal(-1),
            compare(Comparison::Greater, by(12, register(0)), literal(3)),
            by(12, register(0)),
            by(100, less),
        ],
    );
    let values = vec![Some(0), Some(2), Some(3), None, Some(6), Some(0), Some(14)];
    let found = ints(&case, &mut batch(&[values])).unwrap();
    assert_eq!(found, [Some(-1), Some(6), Some(4), None, Some(50), Some(-1), Some(10)]);
    let found = ints(&case, &mut batch(&[vec![Some(4), Some(0)]]));
    assert_eq!(found.err().and_then(|e| e.code_text()), Some("22012"));
    assert_eq!(ints(&case, &mut batch(&[vec![]])).unwrap(), []);
}

#[test]
fn what_is_dear_is_computed_for_the_rows_that_need_it() {
    let dear = Arc::new(Dear::default());
    let call = Expr::Call(Callee::Function(dear.clone()), vec![register(0)], DataType::Int64);
    let case = operation(
        Op::Case,
        vec![compare(Comparison::Less, register(0), literal(2)), literal(0), call],
    );
    let values = (0..5).map(Some).collect();
    let found = ints(&case, &mut batch(&[values])).unwrap();
    assert_eq!(found, [0, 0, 2, 3, 4].map(Some));
    assert_eq!(dear.0.load(Ordering::Relaxed), 3);
    let dear = Arc::new(Dear::default());
    let call = Expr::Call(Callee::Function(dear.clone()), vec![register(1)], DataType::Int64);
    let coalesce = operation(Op::Coalesce, vec![register(0), call, literal(9)]);
    let columns = [vec![Some(1), None, None], vec![Some(2), Some(3), None]];
    assert_eq!(ints(&coalesce, &mut batch(&columns)).unwrap(), [1, 3, 9].map(Some));
    assert_eq!(dear.0.load(Ordering::Relaxed), 2);
}

#[test]
fn the_values_of_a_dictionary_are_asked_once() {
    let dear = Arc::new(Dear::default());
    let register = || Expr::Register(0, DataType::Utf8View);
    let call = Expr::Call(Callee::Function(dear.clone()), vec![register()], DataType::Utf8View);
    let case = operation(
        Op::Case,
        vec![compare(Comparison::Equal, register(), text("a")), text("first"), call],
    );
    let values: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", "c"]));
    let keys = [Some(0), Some(1), None, Some(2), Some(1), Some(0), None];
    let column = || -> ArrayRef {
        Arc::new(DictionaryArray::new(UInt16Array::from(keys.to_vec()), Arc::clone(&values)))
    };
    let found = case.plain(&mut Batch::new(vec![column()], keys.len())).unwrap();
    let expected = StringViewArray::from(vec![
        Some("first"),
        Some("b"),
        None,
        Some("c"),
        Some("b"),
        Some("first"),
        None,
    ]);
    assert_eq!(found.as_ref(), &expected as &dyn Array);
    // Of the values, and of NULL, those that are no "a".
    assert_eq!(dear.0.load(Ordering::Relaxed), 3);

    // A text of each value is a dictionary as well.
    let upper = operation(Op::Upper, vec![register()]);
    let found = upper.encoded(&mut Batch::new(vec![column()], keys.len())).unwrap();
    assert_eq!(found.as_any_dictionary().values().len(), 3);
    let found = expand(&found, &DataType::Utf8View).unwrap();
    let expected = [Some("A"), Some("B"), None, Some("C"), Some("B"), Some("A"), None];
    assert_eq!(found.as_ref(), &StringViewArray::from(expected.to_vec()) as &dyn Array);

    let item = |t: &str| crate::literal::of(&StringViewArray::from(vec![t])).unwrap();
    let items = vec![item("b"), item("x"), Literal::null(DataType::Utf8View)];
    let list = operation(Op::In { list: items, negated: true }, vec![register()]);
    let found = list.encoded(&mut Batch::new(vec![column()], keys.len())).unwrap();
    let expected = [None, Some(false), None, None, Some(false), None, None];
    assert_eq!(found.as_boolean(), &BooleanArray::from(expected.to_vec()));

    let coalesce = operation(Op::Coalesce, vec![register(), text("none")]);
    let found = coalesce.plain(&mut Batch::new(vec![column()], keys.len())).unwrap();
    assert_eq!(found.null_count(), 0);
    assert_eq!(found.as_string_view().value(2), "none");

    let nullif = operation(Op::NullIf, vec![register(), text("b")]);
    let found = nullif.plain(&mut Batch::new(vec![column()], keys.len())).unwrap();
    assert_eq!(found.null_count(), 4);
}

#[test]
fn values_that_no_row_has_fail_nothing() {
    let values: ArrayRef = Arc::new(StringViewArray::from(vec!["abc", "", "z"]));
    let keys = UInt8Array::from(vec![0, 0, 0, 2]);
    let column: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    let length = operation(Op::Characters, vec![Expr::Register(0, DataType::Utf8View)]);
    let length = operation(Op::Cast(DataType::Int64), vec![length]);
    let by = operation(Op::Divide, vec![literal(6), length]);
    assert_eq!(ints(&by, &mut Batch::new(vec![column], 4)).unwrap(), [2, 2, 2, 6].map(Some));
}

#[test]
fn what_is_decided_by_the_left_side_does_not_fail() {
    let by = operation(Op::Divide, vec![literal(6), register(0)]);
    let large = compare(Comparison::Greater, by, literal(2));
    let zero = compare(Comparison::Equal, register(0), literal(0));
    let values = vec![Some(0), Some(2), None, Some(6), Some(0)];
    let either = Expr::Or(Box::new(zero.clone()), Box::new(large.clone()));
    let found = either.plain(&mut batch(std::slice::from_ref(&values))).unwrap();
    let expected = [Some(true), Some(true), None, Some(false), Some(true)];
    assert_eq!(found.as_boolean(), &BooleanArray::from(expected.to_vec()));
    let both = Expr::And(Box::new(Expr::Not(Box::new(zero.clone()))), Box::new(large.clone()));
    let found = both.plain(&mut batch(std::slice::from_ref(&values))).unwrap();
    let expected = [Some(false), Some(true), None, Some(false), Some(false)];
    assert_eq!(found.as_boolean(), &BooleanArray::from(expected.to_vec()));
    let both = Expr::And(Box::new(zero), Box::new(large));
    assert!(both.plain(&mut batch(&[values])).is_err());
}

#[test]
fn choices_within_one_another_are_asked_a_bounded_number_of_times() {
    // What fails is kept from its rows by the outermost condition alone.
    let by = operation(Op::Divide, vec![literal(6), register(0)]);
    let is = |n: i64| compare(Comparison::Less, register(0), literal(n));
    let mut choice = by;
    for n in 0..60 {
        choice = operation(Op::Case, vec![is(-1000 - n), literal(n), choice]);
    }
    let zero = compare(Comparison::Equal, register(0), literal(0));
    let choice = operation(Op::Case, vec![zero, literal(-1), choice]);
    let values = vec![Some(0), Some(2), Some(-1030), Some(6), None];
    let found = ints(&choice, &mut batch(&[values])).unwrap();
    assert_eq!(found, [Some(-1), Some(3), Some(29), Some(1), None]);
}

/// What is computed row by row.
fn naive(values: &[Option<i64>], bounds: &[(i64, i64)], otherwise: bool) -> Vec<Option<i64>> {
    let one = |value: &Option<i64>| {
        let branch = bounds.iter().find(|(bound, _)| value.is_some_and(|v| v < *bound));
        match branch {
            Some((_, result)) if result % 3 == 0 => value.map(|v| v + result),
            Some((_, result)) => Some(*result),
            None => value.filter(|_| otherwise),
        }
    };
    values.iter().map(one).collect()
}

proptest! {
    #[test]
    fn a_case_is_what_it_is_row_by_row(
        values in prop::collection::vec(prop::option::of(-50_i64..50), 0..300),
        bounds in prop::collection::vec((-50_i64..50, 0_i64..9), 1..6),
        otherwise: bool,
        picks in prop::collection::vec(0_u32..300, 0..200),
    ) {
        let mut arguments = vec![];
        for (bound, result) in &bounds {
            arguments.push(compare(Comparison::Less, register(0), literal(*bound)));
            arguments.push(match result % 3 {
                0 => operation(Op::Add, vec![register(0), literal(*result)]),
                _ => literal(*result),
            });
        }
        if otherwise {
            arguments.push(register(0));
        }
        let case = operation(Op::Case, arguments);
        let mut all = batch(std::slice::from_ref(&values));
        prop_assert_eq!(ints(&case, &mut all).unwrap(), naive(&values, &bounds, otherwise));
        // Of rows that are taken from others.
        let picks: Vec<u32> = picks.into_iter().filter(|&p| (p as usize) < values.len()).collect();
        let values: Vec<_> = picks.iter().map(|&p| values[p as usize]).collect();
        all.pick(picks.into()).unwrap();
        prop_assert_eq!(ints(&case, &mut all).unwrap(), naive(&values, &bounds, otherwise));
    }

    #[test]
    fn the_first_that_is_not_null_is_taken(
        rows in prop::collection::vec(prop::array::uniform3(prop::option::of(0_i64..9)), 0..200),
    ) {
        let column = |n: usize| rows.iter().map(|row| row[n]).collect::<Vec<_>>();
        let dear = Expr::Call(Callee::Function(Arc::new(Dear::default())), vec![register(1)], DataType::Int64);
        let coalesce = operation(Op::Coalesce, vec![register(0), dear, register(2)]);
        let found = ints(&coalesce, &mut batch(&[column(0), column(1), column(2)])).unwrap();
        let expected: Vec<_> = rows.iter().map(|[a, b, c]| a.or(*b).or(*c)).collect();
        prop_assert_eq!(found, expected);
    }
}
