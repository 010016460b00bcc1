//! The corpus of the fuzzers and its mutants, without a fuzzer: what was found once stays found.
//!
//! `FUZZ_SECONDS=600 cargo test --workspace --lib fuzzing` goes on for so long with each target.

use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, StringViewArray,
};
use thalweg_base::fuzzing::check;

use super::*;
use crate::extent::Layout;
use crate::table::TableSpec;
use crate::transaction::RowSet;

/// In `make test`, of each target.
const MUTANTS: u64 = 300;

/// Tests run in the folder of their package.
fn corpus(target: &str) -> PathBuf {
    Path::new("../../fuzz/corpus").join(target)
}

#[test]
fn delimited_text_does_no_harm() {
    check(&corpus("csv"), 1, MUTANTS, csv);
}

#[test]
fn json_does_no_harm() {
    check(&corpus("json"), 4, MUTANTS, json);
}

#[test]
fn extents_do_no_harm() {
    check(&corpus("extent"), 2, MUTANTS, extent);
}

#[test]
fn logs_do_no_harm() {
    check(&corpus("catalog"), 3, MUTANTS, catalog);
}

/// Makes the inputs that were not found but written: after a change of the storage format.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn write_the_corpus() {
    for (name, head, text) in TEXTS {
        write("csv", name, &[head.as_slice(), text.as_bytes()].concat());
    }
    for (name, columns) in [("numbers", numbers()), ("texts", texts()), ("empty", vec![])] {
        let (record, file) = an_extent(columns);
        for mend in [0, 1] {
            let length = (record.len() as u32).to_le_bytes();
            let input = [&[mend], length.as_slice(), &record, &file].concat();
            write("extent", &format!("{name}-{mend}"), &input);
        }
    }
    for commits in [0, 3, 9] {
        write("catalog", &format!("{commits}-commits"), &a_log(commits));
    }
}

fn write(target: &str, name: &str, input: &[u8]) {
    fs::create_dir_all(corpus(target)).unwrap();
    fs::write(corpus(target).join(name), input).unwrap();
}

const TEXTS: [(&str, [u8; 3], &str); 9] = [
    ("plain", [0, 0, 32], "id,name,price\n1,one,1.50\n2,,2\n3,\"\",-3e2\n"),
    ("no-header", [12, 0, 6], "1,a\n2,b\r\n\n3,\"c\n\"\"d\"\"\"\n"),
    (
        "dates",
        [0, 0, 64],
        "d,t,z,c\n2024-02-29,2024-02-29 10:00:00.5,2024-02-29T10:00:00Z,10:00\n,,,\n",
    ),
    ("quotes", [1, 5, 20], "a;'b'\n'x;\\'y';2\nz;''\n"),
    ("trailing", [15, 0, 2], "1|x|\n2|y|\n"),
    ("nulls", [8, 8, 10], "a\tb\nNA\t1\n00501\tNULL\n18446744073709551616\t+4\n"),
    (
        "every-type",
        [0, 0, 33],
        "a,b,c,d,e,f,g,h,i\n1,x,1e300,12.34,2024-01-01,2024-01-01 00:00:00,true,23:59:59,255\nx,,nan,1.234,2024-13-01,,t,24:00,256\n",
    ),
    ("utf-8", [0, 0, 3], "\u{feff}ä,b\nü漢,\"\u{1f600}\"\n"),
    ("ragged", [0, 0, 9], "a,b\n1,2\n3\n4,5,6\n\"open\n"),
];

fn numbers() -> Vec<ArrayRef> {
    let n = 2000;
    vec![
        Arc::new(Int64Array::from_iter_values(0..n)),
        Arc::new(Int64Array::from_iter(
            (0..n).map(|i| (i % 7 > 0).then_some(i * 1_000_003 % 5000)),
        )),
        Arc::new(Float64Array::from_iter_values((0..n).map(|i| i as f64 / 4.0))),
        Arc::new(
            Decimal128Array::from_iter_values((0..n).map(|i| i128::from(i) * 101))
                .with_precision_and_scale(20, 2)
                .unwrap(),
        ),
        Arc::new(Date32Array::from_iter_values((0..n as i32).map(|i| i / 50))),
        Arc::new(BooleanArray::from_iter((0..n).map(|i| Some(i % 3 == 0)))),
    ]
}

fn texts() -> Vec<ArrayRef> {
    let some = |i: i32| (i % 5 > 0).then(|| format!("customer number {i} of many"));
    vec![
        Arc::new(StringViewArray::from_iter_values((0..600).map(|i| format!("city {}", i % 9)))),
        Arc::new(StringViewArray::from_iter((0..600).map(some))),
        Arc::new(StringViewArray::from_iter_values((0..600).map(|_| "always the same words"))),
    ]
}

/// The record of its metadata, and its file.
fn an_extent(columns: Vec<ArrayRef>) -> (Vec<u8>, Vec<u8>) {
    let (db, store) = memory();
    let columns =
        if columns.is_empty() { vec![Arc::new(Int64Array::from(vec![1])) as _] } else { columns };
    let extent = written(&db, &batch(columns), None);
    let file = store.get(&object_name(extent.extent().id)).unwrap().unwrap();
    let at = extent.extent().record().metadata.range();
    let frame = &file[at.start as usize..at.end as usize];
    (unframed(frame), file)
}

/// A log with everything in it that a log can have.
fn a_log(commits: usize) -> Vec<u8> {
    let (db, store) = memory();
    let rows = batch(texts());
    for i in 0..commits {
        let mut tx = db.begin();
        match i {
            0 => {
                tx.create_schema("sales", false).unwrap();
                let mut spec = TableSpec { cluster_by: vec![1], ..TableSpec::default() };
                spec.defaults = vec![None, Some("'word'".to_owned()), None];
                tx.create_table("sales", "t", rows.schema(), spec).unwrap();
            }
            3 => {
                let version = tx.snapshot().table("sales", "t").unwrap().clone();
                let mut deleted = RowSet::default();
                deleted.insert(&[1, 5, 6, 7, 599]);
                tx.delete(&version, &deleted).unwrap();
            }
            5 => {
                let table = tx.snapshot().table("sales", "t").unwrap().id;
                let value: ArrayRef = Arc::new(Int64Array::from(vec![7]));
                let field = Field::new("extra", DataType::Int64, true);
                tx.add_column(table, field, Some(value), Some("7".to_owned())).unwrap();
            }
            7 => tx.set_property("retention_ms", Some("5".to_owned())).unwrap(),
            8 => {
                let table = tx.snapshot().table("sales", "t").unwrap().id;
                tx.truncate(table).unwrap();
            }
            _ => {
                let table = tx.snapshot().table("sales", "t").unwrap().clone();
                let mut columns = rows.columns().to_vec();
                if table.columns.len() > 3 {
                    columns.push(Arc::new(Int64Array::from_iter_values(0..600)));
                }
                let fields = table.arrow_schema.clone();
                let rows = RecordBatch::try_new(fields, columns).unwrap();
                tx.append(table.id, vec![written(&db, &rows, Some(Layout::of(&table)))]).unwrap();
            }
        }
        tx.commit().unwrap();
    }
    let mut names: Vec<String> = store.list("log/").unwrap().into_iter().map(|l| l.name).collect();
    names.sort();
    let mut input = Vec::new();
    for name in names {
        let (number, kind) = name["log/".len()..].split_once('.').unwrap();
        let record = unframed(&store.get(&name).unwrap().unwrap());
        input.push(if kind == "commit" { b'C' } else { b'K' });
        input.push(number.parse().unwrap());
        input.extend((record.len() as u32).to_le_bytes());
        input.extend(record);
    }
    input
}

fn memory() -> (Database, MemoryStore) {
    let options = Options { now_ms: Arc::new(|| 1_000_000), seed: 7, ..Options::default() };
    let store = MemoryStore::default();
    (Database::on(Arc::new(store.clone()), None, options).unwrap(), store)
}

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_from_iter(columns.into_iter().zip('a'..).map(|(c, n)| (n.to_string(), c)))
        .map(nullable)
        .unwrap()
}

fn nullable(batch: RecordBatch) -> RecordBatch {
    let fields = batch
        .schema()
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_nullable(true))
        .collect::<Vec<_>>();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).unwrap()
}

fn written(db: &Database, rows: &RecordBatch, layout: Option<Layout>) -> crate::NewExtent {
    let layout = layout.unwrap_or_else(|| Layout::of_new(rows.schema(), &TableSpec::default()));
    let mut writer = db.extent_writer(layout);
    writer.push(rows).unwrap();
    writer.flush().unwrap();
    while writer.step().unwrap() {}
    writer.finish().unwrap().remove(0)
}

/// The record alone.
fn unframed(frame: &[u8]) -> Vec<u8> {
    const HEAD_BYTES: usize = 7 + 1 + 2 + 8 + 4;
    frame[HEAD_BYTES..].to_vec()
}
