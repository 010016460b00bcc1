use std::sync::Arc;

use arrow::array::{Date32Array, Float64Array, Int8Array, Int32Array, Int64Array};
use proptest::prelude::*;
use thalweg_ir::Op;

use super::*;
use crate::expr::kernel::Kernel;
use crate::expr::{Callee, One};

const COMPARISONS: [Comparison; 5] = [
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
    Comparison::Equal,
];

fn compares(comparison: Comparison, a: i64, b: i64) -> bool {
    match comparison {
        Comparison::Less => a < b,
        Comparison::LessOrEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterOrEqual => a >= b,
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
    }
}

/// Numbers that 8 bits hold, in one of the forms that words may have.
fn array(values: &[Option<i64>], form: usize) -> ArrayRef {
    let narrow = values.iter().map(|v| v.map(|v| v as i32));
    match form {
        0 => Arc::new(values.iter().map(|v| v.map(|v| v as i8)).collect::<Int8Array>()),
        1 => Arc::new(narrow.collect::<Int32Array>()),
        2 => Arc::new(narrow.collect::<Date32Array>()),
        _ => Arc::new(Int64Array::from(values.to_vec())),
    }
}

fn register(register: Register, data_type: DataType) -> Box<Expr> {
    Box::new(Expr::Register(register, data_type))
}

proptest! {
    #[test]
    fn pairs_pass_as_they_do_one_by_one(
        probe in prop::collection::vec(prop::option::weighted(0.9, -9i64..9), 1..12),
        payload in prop::collection::vec(prop::option::weighted(0.9, -9i64..9), 1..12),
        tests in prop::collection::vec((0usize..5, 0usize..4, 0usize..4), 1..4),
        from in 0usize..3,
    ) {
        let from = from.min(payload.len() - 1);
        let ready = |(comparison, probe_form, form): &(usize, usize, usize)| Ready {
            probe: Words::of(&array(&probe, *probe_form)).unwrap(),
            comparison: COMPARISONS[*comparison],
            payload: Words::of(&array(&payload, *form).slice(from, payload.len() - from)).unwrap(),
        };
        let early = Early { tests: tests.iter().map(ready).collect() };
        let mut bounds = vec![];
        for (row, left) in probe.iter().enumerate() {
            early.bounds(row, &mut bounds);
            for (at, right) in payload[from..].iter().enumerate() {
                let expected = tests.iter().all(|(comparison, ..)| match (left, right) {
                    (Some(left), Some(right)) => compares(COMPARISONS[*comparison], *left, *right),
                    _ => false,
                });
                prop_assert_eq!(early.passes(&bounds, at as u32), expected);
            }
        }
    }
}

#[test]
fn nothing_is_beyond_the_last_number() {
    let ends: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, 0, i64::MAX]));
    let words = || Words::of(&ends).unwrap();
    for comparison in COMPARISONS {
        let early = Early { tests: vec![Ready { probe: words(), comparison, payload: words() }] };
        let mut bounds = vec![];
        for left in 0..3 {
            early.bounds(left, &mut bounds);
            for right in 0..3 {
                let expected = compares(comparison, left as i64, right as i64);
                assert_eq!(early.passes(&bounds, right), expected, "{comparison:?} {left} {right}");
            }
        }
    }
}

#[test]
fn a_condition_is_taken_apart() {
    let int = |r: Register| register(r, DataType::Int32);
    let compare = |comparison, a, b| Expr::Compare(comparison, a, b);
    let and = |a: Expr, b: Expr| Expr::And(Box::new(a), Box::new(b));
    let check = |condition: &Expr, tests: &[(Register, Comparison, usize)], rest: Option<&Expr>| {
        let found = Condition::new(Some(condition), 3);
        let shown = found.tests.iter().map(|t| (t.register, t.comparison, t.column));
        assert_eq!(shown.collect::<Vec<_>>(), tests);
        let shown = |expr: Option<&Expr>| format!("{expr:?}");
        assert_eq!(shown(found.rest()), shown(rest));
    };
    let below = compare(Comparison::Less, int(0), int(4));
    let above = compare(Comparison::LessOrEqual, int(3), int(1));
    let test = |register, comparison, column| (register, comparison, column);
    let tests = [test(0, Comparison::Less, 1), test(1, Comparison::GreaterOrEqual, 0)];
    check(&and(below.clone(), above.clone()), &tests, None);
    // Of one side, of no words, of another type, and not equal.
    let float = |r: Register| register(r, DataType::Float64);
    let wide = register(1, DataType::Int64);
    for other in [
        compare(Comparison::Less, int(0), int(1)),
        compare(Comparison::Less, int(3), int(4)),
        compare(Comparison::Less, float(0), float(4)),
        compare(Comparison::Less, wide, int(4)),
        compare(Comparison::NotEqual, int(0), int(4)),
        compare(Comparison::Less, register(0, DataType::UInt64), register(4, DataType::UInt64)),
    ] {
        check(&and(other.clone(), below.clone()), &tests[..1], Some(&other));
    }
    // What comes after what may fail waits for it.
    let seven = Expr::Literal(One(Arc::new(Int32Array::from(vec![7]))));
    let kernel = Callee::Kernel(Arc::new(Kernel::new(&Op::Divide).unwrap()));
    let quotient = Expr::Call(kernel, vec![seven.clone(), *int(0)], DataType::Int32);
    let fails = compare(Comparison::Less, Box::new(quotient), Box::new(seven));
    assert!(fails.may_fail());
    let guarded = and(fails.clone(), above.clone());
    check(&and(below, guarded.clone()), &tests[..1], Some(&guarded));
    check(&fails, &[], Some(&fails));
}

#[test]
fn what_has_no_words_with_a_sign_is_not_asked_early() {
    assert!(Words::of(&(Arc::new(Float64Array::from(vec![1.0])) as ArrayRef)).is_none());
    let unsigned: ArrayRef = Arc::new(arrow::array::UInt32Array::from(vec![1]));
    assert!(Words::of(&unsigned).is_none());
}
