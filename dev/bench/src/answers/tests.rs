use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;

use super::Cell::*;
use super::*;

fn rows(columns: &[&str], rows: &[&[Cell]]) -> Rows {
    Rows {
        columns: columns.iter().map(|c| c.to_string()).collect(),
        rows: rows.iter().map(|r| r.to_vec()).collect(),
    }
}

fn text(s: &str) -> Cell {
    Text(s.to_string())
}

/// Compares one-column answers.
#[track_caller]
fn check(sql: &str, ours: &[Cell], theirs: &[Cell], expected: &str) {
    let answer = |cells: &[Cell]| Rows {
        columns: vec!["a".to_string()],
        rows: cells.iter().map(|c| vec![c.clone()]).collect(),
    };
    let (ours, theirs) = (answer(ours), answer(theirs));
    let verdict = match compare(&ours, &theirs, &Order::of_sql(sql, &ours.columns)) {
        Ok(agreement) if agreement.notes.is_empty() => "equal".to_string(),
        Ok(agreement) => agreement.notes.join("; "),
        Err(mismatch) => mismatch.to_string(),
    };
    assert_eq!(verdict, expected, "{sql}");
}

#[test]
fn values_are_compared_as_far_as_they_have_digits() {
    let pairs = [
        (Int(5), Decimal(500, 2), true),
        (Int(5), Decimal(501, 2), false),
        (Int(5), Float(5.0), true),
        (Int(5), Float(5.1), false),
        (Decimal(12345, 2), Decimal(12345, 2), true),
        (Decimal(12345, 2), Decimal(12346, 2), false),
        (Decimal(12345, 2), Decimal(1234599, 4), true),
        (Decimal(12345, 2), Decimal(1234450, 4), true),
        (Decimal(12345, 2), Decimal(1234600, 4), false),
        (Decimal(25522006, 6), Float(25.522005853257337), true),
        (Decimal(25522006, 6), Float(25.522088853257337), false),
        (Float(1.0), Float(1.0 + 1e-10), true),
        (Float(1.0), Float(1.0 + 1e-8), false),
        (Float(f64::NAN), Float(f64::NAN), true),
        (Float(f64::INFINITY), Float(f64::MAX), false),
        (Float(f64::INFINITY), Float(f64::NEG_INFINITY), false),
        (Date(1), Timestamp(86_400_000_000_000), true),
        (Date(1), Timestamp(86_400_000_000_001), false),
        (Null, text(""), false),
        (Null, Int(0), false),
        (Null, Null, true),
        (text("a"), text("a "), false),
        (Bool(true), Bool(false), false),
        (text("5"), Int(5), false),
        (Int(i128::MAX), Decimal(1, 38), false),
    ];
    for (a, b, equal) in pairs {
        assert_eq!(a.agrees(&b), equal, "{a:?} {b:?}");
        assert_eq!(b.agrees(&a), equal, "{b:?} {a:?}");
    }
}

#[test]
fn rows_come_in_the_order_asked_for() {
    let (up, down) = ([Int(1), Int(2), Int(2)], [Int(2), Int(2), Int(1)]);
    check("SELECT a FROM t", &up, &down, "equal");
    check("SELECT a FROM t ORDER BY a", &up, &up, "equal");
    check(
        "SELECT a FROM t ORDER BY 1 DESC",
        &up,
        &down,
        "row 1, column \"a\": the sort key differs: ours 1, theirs 2",
    );
    check(
        "SELECT a FROM t",
        &up,
        &[Int(1), Int(1), Int(2)],
        "row 3: the row is only in our answer: ours (2), theirs no such row",
    );
    check("SELECT a FROM t", &up, &up[1..], "number of rows: ours 3, theirs 2");
    check("SELECT a FROM t", &[], &[], "equal");
    check(
        "SELECT a FROM t",
        &[Null],
        &[text("")],
        "row 1, column \"a\": the value differs: ours NULL, theirs ''",
    );
}

#[test]
fn tied_rows_come_in_any_order_but_all_of_them_do() {
    let columns = ["key", "name", "sum"];
    let a: &[Cell] = &[Int(1), text("a"), Float(10.0)];
    let b: &[Cell] = &[Int(1), text("b"), Float(20.0)];
    let c: &[Cell] = &[Int(2), text("c"), Float(30.0)];
    let b_near: &[Cell] = &[Int(1), text("b"), Float(20.000000001)];
    let b_wrong: &[Cell] = &[Int(1), text("b"), Float(20.1)];
    let ours = rows(&columns, &[a, b, c]);
    let order = Order::of_sql("SELECT * FROM t ORDER BY t.key", &ours.columns);
    assert!(compare(&ours, &rows(&columns, &[b_near, a, c]), &order).is_ok());
    let mismatch = compare(&ours, &rows(&columns, &[b_wrong, a, c]), &order).unwrap_err();
    assert_eq!(
        mismatch.to_string(),
        "row 2, column \"sum\": the closest row differs: ours 20, theirs 20.1"
    );
    // The same row twice is not the same as two rows.
    assert!(compare(&rows(&columns, &[a, a, c]), &ours, &order).is_err());
}

#[test]
fn a_limit_may_cut_through_a_tie_and_nowhere_else() {
    let columns = ["key", "name"];
    let a: &[Cell] = &[Int(9), text("a")];
    let b: &[Cell] = &[Int(7), text("b")];
    let c: &[Cell] = &[Int(7), text("c")];
    let (ours, theirs) = (rows(&columns, &[a, b]), rows(&columns, &[a, c]));
    let order = |sql| Order::of_sql(sql, &ours.columns);
    let agreement =
        compare(&ours, &theirs, &order("SELECT * FROM t ORDER BY key DESC LIMIT 2")).unwrap();
    assert_eq!(
        agreement.notes,
        ["a tie at the LIMIT, row 2, column \"name\": the value differs: ours 'b', theirs 'c'"]
    );
    for strict in [
        "SELECT * FROM t ORDER BY key DESC",
        "SELECT * FROM t ORDER BY key DESC LIMIT 3",
        "SELECT * FROM t ORDER BY key DESC, name LIMIT 2",
        "SELECT * FROM t ORDER BY key DESC, length(name) LIMIT 2",
    ] {
        assert!(compare(&ours, &theirs, &order(strict)).is_err(), "{strict}");
    }
    let above = (rows(&columns, &[b, a]), rows(&columns, &[c, a]));
    assert!(compare(&above.0, &above.1, &order("SELECT * FROM t ORDER BY key LIMIT 2")).is_err());
}

#[test]
fn an_offset_may_cut_through_a_tie_as_well() {
    let columns = ["key", "name"];
    let a: &[Cell] = &[Int(9), text("a")];
    let b: &[Cell] = &[Int(9), text("b")];
    let c: &[Cell] = &[Int(7), text("c")];
    let d: &[Cell] = &[Int(7), text("d")];
    let (ours, theirs) = (rows(&columns, &[a, c]), rows(&columns, &[b, c]));
    let order = |sql| Order::of_sql(sql, &ours.columns);
    let sql = "SELECT * FROM t ORDER BY key DESC LIMIT 2 OFFSET 1";
    let agreement = compare(&ours, &theirs, &order(sql)).unwrap();
    assert_eq!(
        agreement.notes,
        ["a tie at the OFFSET, row 1, column \"name\": the value differs: ours 'a', theirs 'b'"]
    );
    assert!(compare(&ours, &theirs, &order("SELECT * FROM t ORDER BY key DESC LIMIT 2")).is_err());
    // Not one below the first that is tied.
    let (ours, theirs) = (rows(&columns, &[a, c, c]), rows(&columns, &[a, d, c]));
    let sql = "SELECT * FROM t ORDER BY key DESC OFFSET 1";
    assert!(compare(&ours, &theirs, &order(sql)).is_err());
}

#[test]
fn the_order_is_read_from_the_text() {
    let columns: Vec<String> = ["a", "B c", "total"].map(String::from).to_vec();
    let check = |sql: &str, keys: &[usize], complete: bool, limit: Option<usize>| {
        let offset = if sql.contains("OFFSET 2") { 2 } else { 0 };
        assert_eq!(
            Order::of_sql(sql, &columns),
            Order { keys: keys.to_vec(), complete, limit, offset },
            "{sql}"
        );
    };
    check("SELECT 1", &[], true, None);
    check("SELECT sum(x) OVER (ORDER BY y) FROM (SELECT 1 ORDER BY a LIMIT 3) s", &[], true, None);
    check("select * from t order by TOTAL desc nulls last, 1\nlimit 10;", &[2, 0], true, Some(10));
    check("SELECT * FROM t ORDER BY t.\"B c\" ASC OFFSET 2", &[1], true, None);
    check("SELECT * FROM t ORDER BY a, substring(x, 1, 2), total LIMIT 5", &[0], false, Some(5));
    check("SELECT * FROM t -- ORDER BY a\n WHERE x = 'ORDER BY a' /* LIMIT 3 */", &[], true, None);
    check("SELECT * FROM t ORDER BY a + total", &[], false, None);
    check("SELECT * FROM t ORDER BY 7", &[], false, None);
    check("SELECT * FROM t ORDER BY a FETCH FIRST 4 ROWS ONLY", &[0], true, Some(4));
    check("SELECT 'it''s (' FROM t ORDER BY total", &[2], true, None);
}

#[test]
fn arrow_answers_become_cells() {
    let arrays: Vec<(&str, ArrayRef)> = vec![
        ("int", Arc::new(Int32Array::from(vec![Some(7), None]))),
        ("big", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        (
            "dec",
            Arc::new(Decimal128Array::from(vec![-150, 5]).with_precision_and_scale(15, 2).unwrap()),
        ),
        (
            "huge",
            Arc::new(Decimal128Array::from(vec![12, 0]).with_precision_and_scale(38, 0).unwrap()),
        ),
        ("text", Arc::new(StringViewArray::from(vec![Some(""), None]))),
        ("coded", Arc::new(DictionaryArray::<arrow::datatypes::Int32Type>::from_iter(["x", "y"]))),
        ("date", Arc::new(Date32Array::from(vec![8829, 0]))),
        ("time", Arc::new(TimestampMillisecondArray::from(vec![1, -1]))),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("real", Arc::new(Float32Array::from(vec![0.5, 1.0]))),
        ("nothing", Arc::new(NullArray::new(2))),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>([
                Some(vec![Some(1)]),
                None,
            ])),
        ),
    ];
    let batch = RecordBatch::try_from_iter(arrays).unwrap();
    let answer = Rows::from_batches(&batch.schema(), &[batch.clone(), batch]).unwrap();
    assert_eq!(answer.columns[2], "dec");
    assert_eq!(answer.rows.len(), 4);
    assert_eq!(
        answer.rows[2],
        [
            Int(7),
            Int(u64::MAX.into()),
            Decimal(-150, 2),
            Int(12),
            text(""),
            text("x"),
            Date(8829),
            Timestamp(1_000_000),
            Bool(true),
            Float(0.5),
            Null,
            text("[1]"),
        ]
    );
    assert_eq!(
        answer.row_text(0),
        "(7, 18446744073709551615, -1.50, 12, '', 'x', 1994-03-05, 1970-01-01 00:00:00.001000000, true, 0.5, NULL, '[1]')"
    );
    let empty = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    assert_eq!(Rows::from_batches(&empty, &[]).unwrap(), rows(&["a"], &[]));
}

/// Our answer to Q1 with more digits than are published, as the engine gives it.
fn q1() -> Rows {
    let columns = [
        "l_returnflag",
        "l_linestatus",
        "sum_qty",
        "sum_base_price",
        "sum_disc_price",
        "sum_charge",
        "avg_qty",
        "avg_price",
        "avg_disc",
        "count_order",
    ];
    rows(
        &columns,
        &[
            &[
                text("A"),
                text("F"),
                Decimal(3773410700, 2),
                Decimal(5658655440073, 2),
                Decimal(537582571348700, 4),
                Decimal(55909065222827692, 6),
                Decimal(25522005, 6),
                Decimal(38273129734, 6),
                Decimal(49985, 6),
                Int(1478493),
            ],
            &[
                text("N"),
                text("F"),
                Decimal(99141700, 2),
                Decimal(148750471038, 2),
                Decimal(14130821680541, 4),
                Decimal(1469649223194375, 6),
                Decimal(25516471, 6),
                Decimal(38284467760, 6),
                Decimal(50093, 6),
                Int(38854),
            ],
            &[
                text("N"),
                text("O"),
                Decimal(7447604000, 2),
                Decimal(11170172969774, 2),
                Decimal(1061182303076056, 4),
                Decimal(110367043872497010, 6),
                Decimal(25502226, 6),
                Decimal(38249117988, 6),
                Decimal(49996, 6),
                Int(2920374),
            ],
            &[
                text("R"),
                text("F"),
                Decimal(3771975300, 2),
                Decimal(5656804138090, 2),
                Decimal(537412926846040, 4),
                Decimal(55889619119831932, 6),
                Decimal(25505793, 6),
                Decimal(38250854626, 6),
                Decimal(50009, 6),
                Int(1478870),
            ],
        ],
    )
}

const Q1: &str = "SELECT ... GROUP BY 1, 2 ORDER BY l_returnflag, l_linestatus";

#[test]
fn the_published_answer_is_met_to_its_last_digit() {
    // The average quantity of N|F is published as 25.52 although it is 25.516.
    assert_eq!(against_published(1, Q1, &q1()).unwrap(), Ok(Agreement { rows: 4, notes: vec![] }));
    assert!(against_published(23, Q1, &q1()).is_none());
}

#[test]
fn the_clause_lets_a_sum_differ_a_little_and_a_count_not_at_all() {
    let mut near = q1();
    near.rows[0][3] = Decimal(5658655440073 + 9_900, 2);
    let notes = against_published(1, Q1, &near).unwrap().unwrap().notes;
    assert_eq!(
        notes,
        [
            "within TPC-H clause 2.1.3.5, row 1, column \"sum_base_price\": the value differs: ours 56586554499.73, theirs 56586554400.73"
        ]
    );
    for (column, wrong) in [
        (3, Decimal(5658655440073 + 10_100, 2)),
        (6, Decimal(26_522005, 6)),
        (9, Int(1478494)),
        (1, text("O")),
        (2, Null),
    ] {
        let mut ours = q1();
        ours.rows[0][column] = wrong;
        let mismatch = against_published(1, Q1, &ours).unwrap().unwrap_err();
        assert_eq!(
            (mismatch.row, mismatch.column.as_deref()),
            (Some(1), Some(ours.columns[column].as_str()))
        );
    }
    let mut short = q1();
    short.rows.pop();
    let mismatch = against_published(1, Q1, &short).unwrap().unwrap_err();
    assert_eq!(mismatch.to_string(), "number of rows: ours 3, theirs 4");
}

#[test]
fn every_published_answer_agrees_with_itself() {
    for query in 1..=22 {
        // As text first, to learn which columns are numbers, then typed.
        let nothing = rows(&[], &[]);
        let untyped = published(query, &nothing).unwrap();
        let model = Rows {
            columns: untyped.columns.clone(),
            rows: untyped.rows.iter().map(|row| row.iter().map(guess).collect()).collect(),
        };
        let mut model = model;
        for row in model.rows.iter_mut().filter(|_| query == 11) {
            // The published key is cut; any key that begins like it will do.
            if let Int(key) = &mut row[0] {
                *key = *key * 100 + 7;
            }
        }
        let sql = tpchgen::q_and_a::queries::query(query as i32).unwrap();
        let verdict = against_published(query, sql, &model).unwrap();
        assert_eq!(verdict, Ok(Agreement { rows: untyped.rows.len(), notes: vec![] }), "Q{query}");
    }
}

fn guess(cell: &Cell) -> Cell {
    let Text(field) = cell else { return cell.clone() };
    let field = field.trim();
    match field.split_once('.') {
        Some((a, b)) if b.len() == 2 => {
            format!("{a}{b}").parse().map_or_else(|_| cell.clone(), |v| Decimal(v, 2))
        }
        _ => field.parse().map_or_else(|_| cell.clone(), Int),
    }
}
