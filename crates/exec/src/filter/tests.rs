use arrow::array::{DictionaryArray, StringViewArray};
use arrow::datatypes::Field;
use datafusion::common::DFSchema;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::prelude::SessionContext;
use futures::executor::block_on;
use thalweg_base::Prng;
use thalweg_storage::expand;

use super::*;
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, DataType, UInt8Type, UInt16Type, UInt32Type,
};

const STRING: DataType = DataType::Utf8View;

/// Over a table of two strings, `s` and `t`.
fn conjunct(sql: &str) -> Conjunct {
    Conjunct::new(physical(sql), &schema()).unwrap()
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("s", STRING, true), Field::new("t", STRING, true)]))
}

fn physical(sql: &str) -> Arc<dyn PhysicalExpr> {
    let (context, schema) = (SessionContext::new(), DFSchema::try_from(schema()).unwrap());
    let expr = context.parse_sql_expr(sql, &schema).unwrap();
    context.create_physical_expr(expr, &schema).unwrap()
}

fn dictionary<K: ArrowDictionaryKeyType>(keys: &[Option<usize>], values: &[&str]) -> ArrayRef {
    let keys = keys.iter().map(|key| key.map(K::Native::usize_as)).collect();
    let values = Arc::new(StringViewArray::from(values.to_vec()));
    Arc::new(DictionaryArray::<K>::try_new(keys, values).unwrap())
}

fn column(encoded: ArrayRef) -> Column {
    Column::new(encoded, STRING)
}

fn plain(encoded: &ArrayRef) -> Column {
    column(expand(encoded, &STRING).unwrap())
}

#[test]
fn a_dictionary_is_filtered_as_its_rows_are() {
    let values = ["", "a", "ab", "abc", "something longer than a view", "12", "never"];
    let predicates = [
        "s = 'a'",
        "s <> 'a'",
        "s > 'ab'",
        "s LIKE '%b%'",
        "s IN ('a', '12', 'x')",
        "s NOT IN ('a', '12')",
        "s IS NULL",
        "s IS NOT NULL",
        "s IS NULL OR length(s) > 2",
        "CASE WHEN s IS NULL THEN true ELSE s = 'ab' END",
        "s = 'nowhere'",
        "s < 'z'",
        "s = NULL",
        "length(s) >= 0",
        "CASE WHEN s = 'a' THEN true WHEN s IS NULL THEN NULL ELSE s > 'b' END",
        "s = t",
    ];
    let mut random = Prng::new(7);
    let (mut judged, rows) = (0, 100);
    for sql in predicates {
        let conjunct = conjunct(sql);
        for round in 0..60 {
            let nulls = round % 3;
            let mut keys = |values: u64| -> Vec<Option<usize>> {
                let key = |_| match nulls {
                    0 => Some(random.below(values) as usize),
                    1 => (random.below(3) > 0).then(|| random.below(values) as usize),
                    _ => None,
                };
                (0..rows).map(key).collect()
            };
            let (s, t) = (keys(6), dictionary::<UInt8Type>(&keys(3), &values[..3]));
            let s = match round % 4 {
                0 => dictionary::<UInt8Type>(&s, &values),
                1 => dictionary::<UInt16Type>(&s, &values),
                _ => dictionary::<UInt32Type>(&s, &values),
            };
            let before = match round % 5 {
                0 => Selection::all(rows),
                share => {
                    let mask = (0..rows).map(|_| random.below(4) >= share as u64 % 4);
                    Selection::of(mask.collect())
                }
            };
            let (mut encoded, mut expected) = (before.clone(), before);
            let needed = |s: Column, t: Column, selection: &mut Selection| {
                let both = [&s, &t];
                let needed: Vec<_> = conjunct.columns.iter().map(|c| both[*c]).collect();
                let judged = judges(&conjunct, &needed, selection.len());
                narrow(&conjunct, selection, &needed).unwrap();
                judged
            };
            judged +=
                usize::from(needed(column(Arc::clone(&s)), column(Arc::clone(&t)), &mut encoded));
            assert!(!needed(plain(&s), plain(&t), &mut expected));
            assert_eq!(rows_of(&encoded), rows_of(&expected), "{sql}");
            assert_eq!(encoded.len(), rows_of(&encoded).len());
        }
    }
    assert!(judged > 700, "{judged}");
}

fn narrow(conjunct: &Conjunct, selection: &mut Selection, columns: &[&Column]) -> Result<()> {
    block_on(conjunct.narrow(selection, columns, &Time::new()))
}

fn judges(conjunct: &Conjunct, columns: &[&Column], rows: usize) -> bool {
    block_on(conjunct.judge(columns, rows, &Time::new())).is_some()
}

fn rows_of(selection: &Selection) -> Vec<u32> {
    let all = (0..selection.rows() as u32).collect();
    selection.clone().into_positions().unwrap_or(all)
}

#[test]
fn values_of_other_rows_raise_no_errors() {
    let conjunct = conjunct("CAST(s AS BIGINT) > 5");
    let keys = [Some(0), Some(1), Some(2), Some(1), Some(0), Some(1), Some(1), Some(0)];
    // Few enough that only they are shown to the predicate, and more than there are values.
    let keys: Vec<_> = keys.iter().copied().cycle().take(80).collect();
    let encoded = column(dictionary::<UInt8Type>(&keys, &["x", "7", "y"]));
    let sevens = [1, 3, 5, 6, 9];
    let mut selection = Selection::of((0..80).map(|row| sevens.contains(&row)).collect());
    narrow(&conjunct, &mut selection, &[&encoded]).unwrap();
    assert_eq!(rows_of(&selection), sevens);
    assert!(narrow(&conjunct, &mut Selection::all(80), &[&encoded]).is_err());
}

#[test]
fn what_differs_from_row_to_row_is_not_asked_once() {
    let encoded = column(dictionary::<UInt8Type>(&[Some(0); 64], &["a"]));
    assert!(judges(&conjunct("s = 'a'"), &[&encoded], 64));
    assert!(!judges(&conjunct("random() < 0.5 OR s = 'b'"), &[&encoded], 64));
    // Nor what is cheaper to ask of the rows.
    assert!(!judges(&conjunct("s = 'a'"), &[&encoded], 1));
}

#[test]
fn dynamic_filters_are_asked_once_per_value_and_counted_by_rows() {
    let s = Arc::new(expressions::Column::new("s", 0)) as Arc<dyn PhysicalExpr>;
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![s], lit(true)));
    let conjunct = Conjunct::new(Arc::clone(&dynamic) as _, &schema()).unwrap();
    assert!(conjunct.dynamic);
    let keys: Vec<_> = (0..90).map(|row| (row % 3 < 2).then_some(row % 3)).collect();
    let encoded = column(dictionary::<UInt8Type>(&keys, &["a", "b"]));
    let mut selection = Selection::all(90);
    narrow(&conjunct, &mut selection, &[&encoded]).unwrap();
    assert_eq!((selection.len(), conjunct.pass_share()), (90, 1.0));
    dynamic.update(physical("s >= 'b'")).unwrap();
    narrow(&conjunct, &mut selection, &[&encoded]).unwrap();
    assert_eq!(rows_of(&selection), (0..90).filter(|row| row % 3 == 1).collect::<Vec<_>>());
    assert_eq!(conjunct.pass_share(), 120.0 / 180.0);
}

/// Over a table of a date and two whole numbers.
fn numbers() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("d", DataType::Date32),
        field("n", DataType::Int32),
        field("m", DataType::Int32),
    ]))
}

/// As a planner would find it, of few expressions.
fn native(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Expr> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let side = |side: &Arc<dyn PhysicalExpr>| {
        if let Some(column) = side.downcast_ref::<expressions::Column>() {
            let data_type = schema.field(column.index()).data_type().clone();
            return Some(Box::new(thalweg_ir::Expr::Register(column.index(), data_type)));
        }
        let literal = side.downcast_ref::<Literal>()?;
        let literal = literal.value().to_array_of_size(1).ok()?;
        thalweg_pipeline::literal::of(&literal).map(|l| Box::new(thalweg_ir::Expr::Literal(l)))
    };
    let expr = match binary.op() {
        Operator::Or | Operator::And => return None,
        op => {
            thalweg_ir::Expr::Compare(comparison(op)?, side(binary.left())?, side(binary.right())?)
        }
    };
    let types = schema.fields().iter().map(|f| f.data_type().clone()).collect();
    thalweg_pipeline::prepared::condition(&expr, types).unwrap()
}

#[test]
fn numbers_near_each_other_are_filtered_as_their_rows_are() {
    use arrow::array::{Date32Array, Int8Array, Int16Array, Int32Array};
    let schema = numbers();
    let physical = |sql: &str| {
        let (context, schema) = (SessionContext::new(), DFSchema::try_from(Arc::clone(&schema)));
        let (expr, schema) = (context.parse_sql_expr(sql, schema.as_ref().unwrap()), schema);
        context.create_physical_expr(expr.unwrap(), &schema.unwrap()).unwrap()
    };
    let predicates = [
        ("extract(day FROM d) IN (1, 2, 5)", true),
        ("d IS NULL OR extract(month FROM d) = 12", true),
        ("n % 3 = 1", true),
        ("n IS NULL", true),
        ("100 / n > 5", false),
        ("m * m > 30", true),
        ("m <> n", false),
        ("n < m", false),
        ("m < n OR n = m", false),
    ];
    let mut random = Prng::new(11);
    let (rows, mut judged) = (900, 0);
    for (sql, may_be_judged) in predicates {
        let plain = Conjunct::new(physical(sql), &schema).unwrap();
        let translated =
            plain.translated(&schema, &mut |expr, schema| Ok(native(expr, schema))).unwrap();
        let has_native = ["m <> n", "n < m", "m < n OR n = m"].contains(&sql);
        assert_eq!(translated.is_native(), has_native, "{sql}");
        for round in 0..24 {
            let nulls = round % 2 == 1;
            let mut values = |first: i64, below: u64| -> Vec<Option<i64>> {
                let value =
                    |_| (!nulls || random.below(5) > 0).then(|| first + random.below(below) as i64);
                (0..rows).map(value).collect()
            };
            // A span that is small, or too large; what a NULL stands on is 0.
            let span = if round % 3 == 0 { 400 } else { 40 };
            let (d, n, m) = (values(-20, span), values(-20, 40), values(-9, 50));
            fn small(values: &[Option<i64>]) -> impl Iterator<Item = Option<i32>> {
                values.iter().map(|v| v.map(|v| v as i32))
            }
            let d: ArrayRef = match round % 4 {
                0 => Arc::new(small(&d).collect::<Date32Array>()),
                _ => Arc::new(d.iter().map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
            };
            let n: ArrayRef = match round % 4 {
                0 => Arc::new(small(&n).collect::<Int32Array>()),
                _ => Arc::new(n.iter().map(|v| v.map(|v| v as i8)).collect::<Int8Array>()),
            };
            let m: ArrayRef =
                Arc::new(m.iter().map(|v| v.map(|v| v as i16)).collect::<Int16Array>());
            let encoded = [d, n, m];
            let column = |i: usize| {
                Column::new(Arc::clone(&encoded[i]), schema.field(i).data_type().clone())
            };
            let columns: Vec<Column> = plain.columns.iter().map(|&i| column(i)).collect();
            let columns: Vec<&Column> = columns.iter().collect();
            let mut before = Selection::all(rows);
            if round % 5 > 0 {
                let share = round as u64 % 5 + 1;
                before = Selection::of((0..rows).map(|_| random.below(6) < share).collect());
            }
            // Row by row, in plain.
            let arrays: Vec<ArrayRef> = columns.iter().map(|c| c.piece(0..rows).unwrap()).collect();
            let expected = plain.evaluate(arrays, rows);
            let span = block_on(plain.judge_span(&columns, before.len(), &Time::new()));
            judged += usize::from(span.is_some());
            assert!(may_be_judged || span.is_none(), "{sql}");
            for conjunct in [&plain, &translated] {
                let mut selection = before.clone();
                match (&expected, narrow(conjunct, &mut selection, &columns)) {
                    (Ok(expected), found) => {
                        found.unwrap();
                        let mut naive = before.clone();
                        naive.intersect(expected);
                        assert_eq!(rows_of(&selection), rows_of(&naive), "{sql}");
                    }
                    // The row that fails may not be asked for.
                    (Err(_), Err(_)) => {}
                    (Err(_), Ok(())) => assert!(before.len() < rows, "{sql}"),
                }
            }
        }
    }
    assert!(judged > 60, "{judged}");
}
