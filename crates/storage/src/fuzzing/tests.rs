//! The corpus of the fuzzers and its mutants, without a fuzzer: what was found once stays found.
//!
//! `FUZZ_SECONDS=600 cargo test --workspace --lib fuzzing` goes on for so long with each target.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, StringViewArray,
};
use thalweg_base::Prng;

use super::*;
use crate::extent::Layout;
use crate::table::TableSpec;
use crate::transaction::RowSet;

/// In `make test`, of each target.
const MUTANTS: u64 = 300;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs the corpus and what comes of it by chance; names the input that did harm.
fn check(target: &str, seed: u64, mutants_max: u64, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus(target)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus");
    let inputs: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).unwrap()).collect();
    for (input, file) in inputs.iter().zip(&files) {
        let ran = catch_unwind(|| run(input));
        assert!(ran.is_ok(), "{} did harm", file.display());
    }
    let seconds = std::env::var("FUZZ_SECONDS").ok().map(|s| s.parse().expect("FUZZ_SECONDS"));
    let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut mutants = 0;
    while end.map_or(mutants < mutants_max, |end| Instant::now() < end) {
        let mut random = Prng::new(seed.wrapping_add(mutants));
        let one = &inputs[random.below(inputs.len() as u64) as usize];
        let other = &inputs[random.below(inputs.len() as u64) as usize];
        let input = mutant(one, other, &mut random);
        if catch_unwind(|| run(&input)).is_err() {
            let path = std::env::temp_dir().join(format!("thalweg-{target}-{mutants}"));
            fs::write(&path, &input).unwrap();
            panic!("mutant {mutants} did harm; it is {}", path.display());
        }
        mutants += 1;
    }
    println!("{target}: {} inputs, {mutants} mutants", inputs.len());
}

fn mutant(one: &[u8], other: &[u8], random: &mut Prng) -> Vec<u8> {
    let mut bytes = one.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        let length = random.below(16) as usize + 1;
        match random.below(7) {
            0..3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => {
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', b','][length % 8]
            }
            4 => drop(bytes.drain(at..bytes.len().min(at + length))),
            5 if !other.is_empty() => {
                let from = random.below(other.len() as u64) as usize;
                let piece = &other[from..other.len().min(from + length)];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

#[test]
fn delimited_text_does_no_harm() {
    check("csv", 1, MUTANTS, csv);
}

#[test]
fn extents_do_no_harm() {
    check("extent", 2, MUTANTS, extent);
}

#[test]
fn logs_do_no_harm() {
    check("catalog", 3, MUTANTS, catalog);
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
