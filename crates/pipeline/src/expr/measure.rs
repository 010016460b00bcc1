//! Nanoseconds per row beside Arrow's kernels: `cargo test --release -- --ignored --nocapture
//! expr::measure`.

use std::hint::black_box;
use std::time::Instant;

use arrow::array::{
    Date32Array, Datum, DictionaryArray, Float64Array, Int64Array, Scalar, StringViewArray,
    TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::{DatePart as Of, cast, date_part, kernels::zip::zip};
use thalweg_base::Prng;

use thalweg_ir::op::{DatePart, DateUnit};
use thalweg_ir::{Literal, Op};

use super::*;

const ROWS: usize = 8192;
const BATCHES: usize = 64;

/// The least time that one of some rounds takes, per row.
fn per_row(mut round: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        for _ in 0..BATCHES {
            round();
        }
        start.elapsed().as_secs_f64()
    };
    (0..9).map(time).fold(f64::MAX, f64::min) * 1e9 / (ROWS * BATCHES) as f64
}

/// An expression over `columns`, beside another way to the same.
fn measure(name: &str, columns: &[ArrayRef], expr: &Expr, other: impl Fn() -> ArrayRef) {
    let ours = per_row(|| {
        let mut batch = Batch::new(columns.to_vec(), ROWS);
        black_box(expr.encoded(&mut batch).unwrap());
    });
    let theirs = per_row(|| {
        black_box(other());
    });
    println!("{name:34} {ours:6.2} ns/row, Arrow {theirs:6.2}: {:5.2} x", theirs / ours);
}

fn operation(op: Op, arguments: Vec<Expr>) -> Expr {
    let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
    let result = op.result_type(&types).unwrap();
    Expr::Call(Callee::Kernel(Arc::new(Kernel::new(&op).unwrap())), arguments, result)
}

fn int(n: i64) -> Expr {
    Expr::Literal(One(Arc::new(Int64Array::from(vec![n]))))
}

fn text(t: &str) -> Expr {
    Expr::Literal(One(Arc::new(StringViewArray::from(vec![t]))))
}

#[test]
#[ignore = "a measurement, for a release build"]
fn nanoseconds() {
    let mut random = Prng::new(1);
    let numbers = Int64Array::from_iter_values((0..ROWS).map(|_| random.below(10_000) as i64));
    let numbers: ArrayRef = Arc::new(numbers);
    let halves: ArrayRef =
        Arc::new(Int64Array::from_iter((0..ROWS).map(|n| (n % 3 > 0).then_some(n as i64))));
    let floats: ArrayRef =
        Arc::new(Float64Array::from_iter_values((0..ROWS).map(|n| n as f64 / 3.0)));
    let span = 20 * 365 * 86_400_000_000;
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(
        (0..ROWS).map(|_| 1_000_000_000_000_000 + random.below(span) as i64),
    ));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (0..ROWS).map(|_| format!("session {:08}", random.below(1_000_000))),
    ));
    let hours = 18 * 3_600_000_000;
    let near: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(
        (0..ROWS).map(|_| 1_700_000_000_000_000 + random.below(hours) as i64),
    ));
    let days: ArrayRef =
        Arc::new(Date32Array::from_iter_values((0..ROWS).map(|_| 19_000 + random.below(9) as i32)));
    let names: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..25).map(|n| format!("region {n}"))));
    let regions = UInt32Array::from_iter_values((0..ROWS).map(|_| random.below(25) as u32));
    let regions: ArrayRef = Arc::new(DictionaryArray::new(regions, names));
    let columns = [&numbers, &halves, &floats, &times, &texts, &near, &days, &regions];
    let columns = columns.map(Arc::clone);
    let logical = columns.each_ref().map(|column| match column.data_type() {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        plain => plain.clone(),
    });
    let column = |n: usize| Expr::Register(n, logical[n].clone());
    let less = |n: i64| Expr::Compare(Comparison::Less, Box::new(column(0)), Box::new(int(n)));
    let run = |name: &str, expr: Expr, other: &dyn Fn() -> ArrayRef| {
        measure(name, &columns, &expr, other);
    };
    let scalar = |n: i64| Scalar::new(Int64Array::from(vec![n]));
    let below = |n: i64| cmp::lt(&columns[0], &scalar(n)).unwrap();

    run("a + 1", operation(Op::Add, vec![column(0), int(1)]), &|| {
        numeric::add(&columns[0], &scalar(1)).unwrap()
    });
    run("a * a", operation(Op::Multiply, vec![column(0), column(0)]), &|| {
        numeric::mul(&columns[0], &columns[0]).unwrap()
    });
    run("a / 7", operation(Op::Divide, vec![column(0), int(7)]), &|| {
        numeric::div(&columns[0], &scalar(7)).unwrap()
    });
    run("x * x", operation(Op::Multiply, vec![column(2), column(2)]), &|| {
        numeric::mul(&columns[2], &columns[2]).unwrap()
    });
    let to_int = DataType::Int32;
    run("a::int", operation(Op::Cast(to_int.clone()), vec![column(0)]), &|| {
        cast(&columns[0], &to_int).unwrap()
    });
    let to_text = DataType::Utf8View;
    run("a::text", operation(Op::Cast(to_text.clone()), vec![column(0)]), &|| {
        cast(&columns[0], &to_text).unwrap()
    });
    run(
        "CASE WHEN a < 5000 THEN a ELSE 0",
        operation(Op::Case, vec![less(5000), column(0), int(0)]),
        &|| zip(&below(5000), &columns[0], &scalar(0)).unwrap(),
    );
    let words = ["low", "middle", "high"].map(|t| Scalar::new(StringViewArray::from(vec![t])));
    run(
        "CASE of three texts",
        operation(
            Op::Case,
            vec![less(1000), text("low"), less(5000), text("middle"), text("high")],
        ),
        &|| {
            let rest = zip(&below(5000), &words[1] as &dyn Datum, &words[2]).unwrap();
            zip(&below(1000), &words[0] as &dyn Datum, &rest).unwrap()
        },
    );
    run("coalesce(b, 0)", operation(Op::Coalesce, vec![column(1), int(0)]), &|| {
        zip(&arrow::compute::is_not_null(&columns[1]).unwrap(), &columns[1], &scalar(0)).unwrap()
    });
    let list: Vec<i64> = vec![1, 5, 77, 102, 340, 341, 999, 1234, 2000, 2001, 3333, 4040, 10_000];
    let items = list.iter().map(|&n| Literal::int64(n)).collect();
    let numbers = Op::In { list: items, negated: false };
    run("a IN (13 numbers)", operation(numbers, vec![column(0)]), &|| {
        let set: std::collections::HashSet<i64> = list.iter().copied().collect();
        let numbers = columns[0].as_primitive::<arrow::datatypes::Int64Type>();
        Arc::new(BooleanArray::from_unary(numbers, |n| set.contains(&n)))
    });
    let words = ["session 00000001", "session 00500000", "x", "session 00999999"];
    let item = |t: &&str| crate::literal::of(&StringViewArray::from(vec![*t])).unwrap();
    let items = Op::In { list: words.iter().map(item).collect(), negated: false };
    run("t IN (4 texts)", operation(items, vec![column(4)]), &|| {
        let set: std::collections::HashSet<&str> = words.into_iter().collect();
        Arc::new(BooleanArray::from_unary(columns[4].as_string_view(), |t| set.contains(t)))
    });
    for pattern in ["session 12%", "%99%", "%9%1%", "%99%00%"] {
        let like = Op::Like { pattern: pattern.into(), negated: false, any_case: false };
        run(&format!("t LIKE '{pattern}'"), operation(like, vec![column(4)]), &|| {
            let pattern = Scalar::new(StringViewArray::from(vec![pattern]));
            Arc::new(arrow::compute::kernels::comparison::like(&columns[4], &pattern).unwrap())
        });
    }
    let characters = |f: fn(&str) -> String| -> ArrayRef {
        Arc::new(columns[4].as_string_view().iter().map(|t| t.map(f)).collect::<StringViewArray>())
    };
    run("substr(t, 9, 2)", operation(Op::Substring, vec![column(4), int(9), int(2)]), &|| {
        characters(|t| t.chars().skip(8).take(2).collect())
    });
    run("upper(t)", operation(Op::Upper, vec![column(4)]), &|| characters(str::to_uppercase));
    run("length(t)", operation(Op::Characters, vec![column(4)]), &|| {
        arrow::compute::kernels::length::length(&columns[4]).unwrap()
    });
    run(
        "t || '/' || t",
        operation(Op::Concatenate, vec![column(4), text("/"), column(4)]),
        &|| characters(|t| format!("{t}/{t}")),
    );
    let length = operation(Op::Characters, vec![column(4)]);
    let length = operation(Op::Cast(DataType::Utf8View), vec![length]);
    let coded = operation(Op::Concatenate, vec![column(7), text("/"), length]);
    run("few || '/' || length(t)", coded, &|| characters(|t| format!("region 1/{}", t.len())));
    for (part, of, on) in [
        (DatePart::DayOfWeek, Of::DayOfWeekSunday0, 6),
        (DatePart::Month, Of::Month, 6),
        (DatePart::Hour, Of::Hour, 5),
        (DatePart::Minute, Of::Minute, 5),
        (DatePart::Month, Of::Month, 5),
    ] {
        let expr = operation(Op::DatePart(part), vec![column(on)]);
        run(&format!("{} near", Op::DatePart(part)), expr, &|| {
            date_part(&columns[on], of).unwrap()
        });
    }
    for (ours, theirs) in [
        (DatePart::Year, Of::Year),
        (DatePart::Month, Of::Month),
        (DatePart::Week, Of::Week),
        (DatePart::DayOfWeek, Of::DayOfWeekSunday0),
        (DatePart::Hour, Of::Hour),
        (DatePart::Minute, Of::Minute),
    ] {
        let expr = operation(Op::DatePart(ours), vec![column(3)]);
        run(&format!("{}", Op::DatePart(ours)), expr, &|| date_part(&columns[3], theirs).unwrap());
    }
    for unit in [DateUnit::Hour, DateUnit::Month] {
        let expr = operation(Op::DateTrunc(unit), vec![column(3)]);
        run(&format!("{}", Op::DateTrunc(unit)), expr, &|| {
            date_part(&columns[3], Of::Month).unwrap()
        });
    }
}
