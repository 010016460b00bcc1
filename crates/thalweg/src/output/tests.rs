use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::record_batch::RecordBatch;

use super::fit::{Column, layout, pad};
use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect::<Vec<_>>();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn strings(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn written(format: Format, look: Look, batches: &[RecordBatch]) -> Vec<u8> {
    let mut sink = Sink::Memory(Vec::new());
    let mut writer = writer(format, look, &batches[0].schema(), &mut sink).unwrap();
    for batch in batches {
        writer.batch(batch).unwrap();
    }
    writer.finish().unwrap();
    match &mut sink {
        Sink::Memory(bytes) => std::mem::take(bytes),
        _ => unreachable!("it was made of memory"),
    }
}

#[track_caller]
fn check(format: Format, look: Look, batches: &[RecordBatch], want: &str) {
    let got = String::from_utf8(written(format, look, batches)).unwrap();
    assert_eq!(got, want, "\n{got}");
}

const WHOLE: Look = Look { width: None, rows_max: None, expanded: false, plan: false };

#[test]
fn csv_quotes_what_needs_it_and_tells_null_from_empty() {
    let values =
        [Some("plain"), Some(""), None, Some("a,b"), Some("say \"hi\""), Some("two\nlines")];
    let b = batch(vec![("te,xt", strings(&values)), ("n", integers(1..=6))]);
    check(
        Format::Csv,
        WHOLE,
        &[b],
        "\"te,xt\",n\nplain,1\n\"\",2\n,3\n\"a,b\",4\n\"say \"\"hi\"\"\",5\n\"two\nlines\",6\n",
    );
}

#[test]
fn an_empty_result_is_its_header() {
    let b = batch(vec![("a", integers([])), ("b", strings(&[]))]);
    check(Format::Csv, WHOLE, std::slice::from_ref(&b), "a,b\n");
    check(Format::Json, WHOLE, std::slice::from_ref(&b), "");
    check(Format::Table, WHOLE, &[b], "┌───┬───┐\n│ a │ b │\n├───┼───┤\n└───┴───┘\n0 rows\n");
}

#[test]
fn values_are_exact_and_times_are_sql() {
    let decimal = Decimal128Array::from(vec![12345, -5]).with_precision_and_scale(12, 2).unwrap();
    let time = TimestampMicrosecondArray::from(vec![0, 1_500_000]);
    let b = batch(vec![
        ("d", Arc::new(decimal)),
        ("t", Arc::new(time)),
        ("f", Arc::new(Float64Array::from(vec![0.1, f64::NAN]))),
    ]);
    check(
        Format::Csv,
        WHOLE,
        std::slice::from_ref(&b),
        "d,t,f\n123.45,1970-01-01 00:00:00,0.1\n-0.05,1970-01-01 00:00:01.500,NaN\n",
    );
    check(
        Format::Json,
        WHOLE,
        &[b],
        "{\"d\":123.45,\"t\":\"1970-01-01T00:00:00\",\"f\":0.1}\n\
         {\"d\":-0.05,\"t\":\"1970-01-01T00:00:01.500\",\"f\":null}\n",
    );
}

#[test]
fn columns_of_one_name_are_kept_apart() {
    let b = batch(vec![("a", integers([1])), ("a", integers([2])), ("a_2", strings(&[None]))]);
    check(Format::Csv, WHOLE, std::slice::from_ref(&b), "a,a,a_2\n1,2,\n");
    check(Format::Json, WHOLE, &[b], "{\"a\":1,\"a_3\":2,\"a_2\":null}\n");
}

#[test]
fn tables_align_wide_characters_and_numbers() {
    let b = batch(vec![
        ("n", integers([1, 100, -3])),
        ("text", strings(&[Some("漢字"), None, Some("é\u{1b}[31m")])),
    ]);
    check(
        Format::Table,
        WHOLE,
        &[b],
        "┌─────┬─────────────┐\n\
         │   n │ text        │\n\
         ├─────┼─────────────┤\n\
         │   1 │ 漢字        │\n\
         │ 100 │ NULL        │\n\
         │  -3 │ é\\u{1b}[31m │\n\
         └─────┴─────────────┘\n\
         3 rows\n",
    );
}

#[test]
fn a_terminal_sees_both_ends_of_a_long_result() {
    let look = Look { width: Some(80), rows_max: Some(4), ..WHOLE };
    let batches: Vec<_> =
        [0..1, 1..7, 7..8, 8..1000].map(|r| batch(vec![("n", integers(r))])).into();
    check(
        Format::Table,
        look,
        &batches,
        "┌─────┐\n│   n │\n├─────┤\n│   0 │\n│   1 │\n│   ⋮ │\n│ 998 │\n│ 999 │\n└─────┘\n\
         1,000 rows (4 shown)\n",
    );
    let few = [batch(vec![("n", integers(0..4))])];
    let text = String::from_utf8(written(Format::Table, look, &few)).unwrap();
    assert!(text.ends_with("│ 3 │\n└───┘\n4 rows\n"), "{text}");
}

#[test]
fn a_pipe_sees_every_row_and_every_character() {
    let batches: Vec<_> =
        (0..5).map(|i| batch(vec![("n", integers(i * 1000..(i + 1) * 1000))])).collect();
    let text = String::from_utf8(written(Format::Table, WHOLE, &batches)).unwrap();
    assert_eq!(text.lines().count(), 5000 + 5);
    assert!(text.contains("│ 4999 │\n"), "wider than what was measured");
}

#[test]
fn long_texts_are_cut_to_the_terminal_and_numbers_are_not() {
    let look = Look { width: Some(30), rows_max: Some(40), ..WHOLE };
    let b = batch(vec![
        ("n", integers([1234567890123])),
        ("text", strings(&[Some("0123456789012345678901234567890")])),
    ]);
    check(
        Format::Table,
        look,
        &[b],
        "┌───────────────┬────────────┐\n\
         │             n │ text       │\n\
         ├───────────────┼────────────┤\n\
         │ 1234567890123 │ 012345678… │\n\
         └───────────────┴────────────┘\n\
         1 row\n",
    );
}

#[test]
fn columns_that_do_not_fit_are_left_out_from_the_middle() {
    let columns = [Column { width: 10, whole: true }; 8];
    let shown: Vec<_> =
        layout(&columns, Some(50)).shown.iter().map(|c| c.map(|(c, _)| c)).collect();
    assert_eq!(shown, [Some(0), Some(1), None, Some(7)].to_vec());
    // However narrow the terminal, one column is left.
    assert_eq!(layout(&columns, Some(5)).shown.iter().flatten().count(), 1);
    for width in 20..200 {
        let layout = layout(&columns, Some(width));
        let total: usize = layout.shown.iter().map(|c| 3 + c.map_or(1, |(_, w)| w)).sum();
        assert!(total < width, "{width}: {layout:?}");
    }
}

#[test]
fn values_of_several_lines_stay_in_their_column() {
    let b = batch(vec![("n", integers([1])), ("text", strings(&[Some("a\nbcd")]))]);
    check(
        Format::Table,
        WHOLE,
        std::slice::from_ref(&b),
        "┌───┬──────┐\n│ n │ text │\n├───┼──────┤\n│ 1 │ a    │\n│   │ bcd  │\n└───┴──────┘\n1 row\n",
    );
    let expanded = Look { expanded: true, ..WHOLE };
    check(Format::Table, expanded, &[b], "── row 1 ──\nn    │ 1\ntext │ a\n     │ bcd\n1 row\n");
}

#[test]
fn an_explained_plan_is_plain_text() {
    let b = batch(vec![
        ("plan_type", strings(&[Some("logical_plan")])),
        ("plan", strings(&[Some("Filter\n  Scan\n")])),
    ]);
    check(Format::Table, Look { plan: true, ..WHOLE }, &[b], "logical_plan:\nFilter\n  Scan\n");
}

#[test]
fn padding_counts_columns_of_the_terminal() {
    assert_eq!(pad("漢字", 5, false), "漢字 ");
    assert_eq!(pad("漢字漢", 5, false), "漢字…");
    assert_eq!(pad("漢字漢", 4, false), "漢… ");
    assert_eq!(pad("7", 3, true), "  7");
    assert_eq!(pad("abc", 1, false), "…");
}

#[test]
fn binary_formats_read_back() {
    let b = batch(vec![("a", integers([1, 2])), ("a", strings(&[Some("x"), None]))]);
    let parquet = written(Format::Parquet, WHOLE, std::slice::from_ref(&b));
    assert_eq!((&parquet[..4], &parquet[parquet.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
    let arrow = written(Format::Arrow, WHOLE, std::slice::from_ref(&b));
    let reader =
        arrow::ipc::reader::FileReader::try_new(std::io::Cursor::new(arrow), None).unwrap();
    let back: Vec<_> = reader.map(|b| b.unwrap()).collect();
    assert_eq!(back[0].columns(), b.columns());
    assert_eq!(back[0].schema().field(1).name(), "a_2");
}
