use std::os::unix::fs::FileExt;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema};
use tempfile::TempDir;
use thalweg_base::Kind;

use super::*;

fn schema() -> SchemaRef {
    let text = Field::new("text", DataType::Utf8View, false);
    Arc::new(ArrowSchema::new(vec![Field::new("n", DataType::Int64, true), text]))
}

fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
    let text =
        StringViewArray::from_iter_values(rows.clone().map(|n| format!("this is row number {n}")));
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter(rows)), Arc::new(text)])
        .unwrap()
}

fn open(dir: &TempDir) -> Result<Database> {
    Database::open(&dir.path().join("db"), Options { cache_bytes_max: 64 << 20, create: true })
}

/// `rows` rows in chunks of 1000, five chunks an extent, as table `t`.
fn fill(db: &Database, rows: i64) -> TableId {
    let limits = Limits { chunk_rows: 1000, run_bytes: 1 << 20, extent_bytes: 1 << 14 };
    let mut writer = db.small_writer(schema(), &[], limits);
    for start in (0..rows).step_by(700) {
        writer.push(&batch(start..(start + 700).min(rows))).unwrap();
        while writer.step().unwrap() {}
    }
    let mut tx = db.begin();
    let id = tx.create_table("public", "t", schema(), vec![]).unwrap();
    tx.append(id, writer.finish().unwrap()).unwrap();
    tx.commit().unwrap();
    id
}

/// Reads the whole table back through segments.
fn contents(db: &Database) -> Result<Vec<i64>> {
    let snapshot = db.snapshot();
    let table = snapshot.table("public", "t").unwrap();
    let mut numbers = Vec::new();
    for i in 0..table.chunks() {
        let chunk = table.chunk(i);
        let mut arrays = Vec::new();
        for segment in db.read(&chunk.extent, chunk.chunk, &[1, 0])? {
            arrays.push(db.decode(segment)?);
        }
        assert_eq!(arrays[0].len() as u64, chunk.rows);
        for (n, text) in
            arrays[1].as_primitive::<Int64Type>().values().iter().zip(arrays[0].as_string_view())
        {
            assert_eq!(text.unwrap(), format!("this is row number {n}"));
            numbers.push(*n);
        }
    }
    Ok(numbers)
}

fn files(dir: &TempDir) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir.path().join("db/extents")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn everything_is_there_after_a_reopen() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    let id = fill(&db, 12_345);
    let mut tx = db.begin();
    tx.create_schema("other", false).unwrap();
    tx.create_view("other", "v", "SELECT 1", false).unwrap();
    tx.create_external("public", "e", "CREATE EXTERNAL TABLE …").unwrap();
    let before = tx.commit().unwrap();
    let statistics = before.table("public", "t").unwrap().column_statistics(1);
    assert!(db.stored_bytes() > 0);
    drop((db, before));

    let db = open(&dir).unwrap();
    let snapshot = db.snapshot();
    let table = snapshot.table("public", "t").unwrap();
    assert_eq!((snapshot.id.0, table.id, table.rows(), table.chunks()), (2, id, 12_345, 13));
    assert!(table.extents.len() > 1, "{table:?}");
    assert_eq!(contents(&db).unwrap(), (0..12_345).collect::<Vec<_>>());
    assert_eq!(snapshot.schemas["other"].views["v"].sql, "SELECT 1");
    assert_eq!(snapshot.schemas["public"].externals["e"].sql, "CREATE EXTERNAL TABLE …");
    assert_eq!(format!("{statistics:?}"), format!("{:?}", table.column_statistics(1)));

    let mut tx = db.begin();
    assert_ne!(tx.create_table("public", "t2", schema(), vec![1]).unwrap(), id);
    tx.commit().unwrap();
    drop((db, snapshot));
    let snapshot = open(&dir).unwrap().snapshot();
    assert_eq!(snapshot.table("public", "t2").unwrap().cluster_by, [1]);
    assert_eq!(snapshot.table("public", "t2").unwrap().column_statistics(0).distinct, Some(0));
}

#[test]
fn chunk_statistics_are_joined_over_extents() {
    let db = Database::memory(Options::default()).unwrap();
    fill(&db, 12_345);
    let snapshot = db.snapshot();
    let table = snapshot.table("public", "t").unwrap();
    let statistics = table.chunk_statistics(0);
    assert_eq!(statistics.len(), table.chunks());
    assert_eq!(statistics.mins.as_primitive::<Int64Type>().value(12), 12_000);
    assert_eq!(statistics.maxs.as_primitive::<Int64Type>().value(12), 12_344);
    assert_eq!(statistics.rows.values().iter().sum::<u64>(), 12_345);
    let column = table.column_statistics(0);
    assert!((11_500..13_200).contains(&column.distinct.unwrap()), "{column:?}");
    assert_eq!(column.value_bytes, 12_345 * 8);
    assert_eq!(contents(&db).unwrap().len(), 12_345);
}

#[test]
fn a_pinned_snapshot_outlives_drop_and_replace() {
    for replace in [false, true] {
        let dir = TempDir::new().unwrap();
        let db = open(&dir).unwrap();
        let id = fill(&db, 3_000);
        let pinned = db.snapshot();
        let before = files(&dir);
        let mut tx = db.begin();
        if replace {
            tx.replace(id, vec![]).unwrap();
        } else {
            tx.drop_table("public", "t").unwrap();
        }
        tx.commit().unwrap();
        assert_eq!(files(&dir), before, "somebody still reads them");
        let chunk = pinned.table("public", "t").unwrap().chunk(2);
        let segment = db.read(&chunk.extent, chunk.chunk, &[0]).unwrap().remove(0);
        db.decode(segment).unwrap();
        assert!(db.cached(&chunk.extent, chunk.chunk, 0).is_some());
        drop((pinned, chunk));
        assert_eq!(files(&dir).len(), 0);
        assert_eq!(db.cache_stats().bytes, 0, "a dropped extent leaves the cache");
    }
}

#[test]
fn uncommitted_extents_leave_no_files() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    let id = fill(&db, 10);
    let mut writer = db.extent_writer(schema(), &[]).unwrap();
    writer.push(&batch(0..10)).unwrap();
    writer.flush().unwrap();
    assert!(writer.step().unwrap());
    assert_eq!(files(&dir).len(), 2);
    drop(writer);
    assert_eq!(files(&dir).len(), 1);

    let mut writer = db.extent_writer(schema(), &[]).unwrap();
    writer.push(&batch(0..10)).unwrap();
    let mut tx = db.begin();
    tx.append(id, writer.finish().unwrap()).unwrap();
    drop(tx);
    assert_eq!(files(&dir).len(), 1);
}

#[test]
fn orphans_are_swept_and_strangers_are_not() {
    let dir = TempDir::new().unwrap();
    fill(&open(&dir).unwrap(), 3_000);
    let extents = dir.path().join("db/extents");
    let before = files(&dir).len();
    fs::write(extents.join("00000099.vortex"), "half a file").unwrap();
    fs::write(extents.join("notes.txt"), "mine").unwrap();
    let db = open(&dir).unwrap();
    assert_eq!(files(&dir).len(), before + 1);
    assert_eq!(contents(&db).unwrap().len(), 3_000);
    let mut tx = db.begin();
    let id = tx.create_table("public", "u", schema(), vec![]).unwrap();
    let mut writer = db.extent_writer(schema(), &[]).unwrap();
    writer.push(&batch(0..1)).unwrap();
    tx.append(id, writer.finish().unwrap()).unwrap();
    tx.commit().unwrap();
    assert!(extents.join("00000100.vortex").exists(), "a swept id is not used again");
}

/// Fills a database, lets `harm` at its first extent file, and returns the error of reading it.
fn damage(harm: impl FnOnce(&Path)) -> Error {
    let dir = TempDir::new().unwrap();
    fill(&open(&dir).unwrap(), 3_000);
    harm(&files(&dir)[0]);
    let db = open(&dir).expect("a damaged table must not lock up the others");
    let e = contents(&db).unwrap_err();
    assert_eq!(e.kind(), Kind::Corrupt, "{e:?}");
    assert!(e.message().contains("00000001.vortex"), "{e:?}");
    let mut tx = db.begin();
    tx.drop_table("public", "t").unwrap();
    tx.commit().unwrap();
    e
}

#[test]
fn damaged_extents_are_corrupt_and_named() {
    let write = |path: &Path, at: u64, bytes: &[u8]| {
        fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    };
    let cut = |path: &Path, by: u64| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() - by).unwrap();
    };
    assert!(damage(|path| cut(path, 1)).message().contains("were written"));
    assert!(damage(|path| cut(path, 5_000)).message().contains("were written"));
    assert!(damage(|path| write(path, 0, b"NOPE")).message().contains("magic"));
    assert!(damage(|path| fs::remove_file(path).unwrap()).message().contains("missing"));
    assert!(damage(|path| write(path, 70, &[0xff; 8])).message().contains("damaged"));
}

#[test]
fn a_damaged_catalog_is_an_error() {
    let harms: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.truncate(100),
        |bytes| bytes.fill(0x5a),
        |bytes| bytes[..9].copy_from_slice(b"not redb!"),
        |bytes| bytes.truncate(bytes.len() / 2),
    ];
    for harm in harms {
        let dir = TempDir::new().unwrap();
        fill(&open(&dir).unwrap(), 3_000);
        let path = dir.path().join("db/catalog.redb");
        let mut bytes = fs::read(&path).unwrap();
        harm(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let e = open(&dir).err().unwrap();
        assert_eq!(e.kind(), Kind::Corrupt, "{e:?}");
        assert!(e.message().contains("catalog.redb"), "{e:?}");
    }
}

#[test]
fn one_process_at_a_time() {
    let dir = TempDir::new().unwrap();
    let first = open(&dir).unwrap();
    let e = open(&dir).err().unwrap();
    assert_eq!(e.kind(), Kind::Resources);
    assert!(e.message().contains("in use by another process") && e.hint_text().is_some(), "{e:?}");
    drop(first);
    open(&dir).unwrap();
}

#[test]
fn places_that_are_no_database() {
    let dir = TempDir::new().unwrap();
    let refuse = |path: &Path, create: bool, text: &str| {
        let e = Database::open(path, Options { create, ..Options::default() }).err().unwrap();
        assert!(e.message().contains(text) && e.hint_text().is_some(), "{e:?}");
        e.kind()
    };
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(refuse(&file, true, "is a file"), Kind::User);
    assert_eq!(refuse(dir.path(), true, "not a database"), Kind::User);
    assert_eq!(refuse(&dir.path().join("absent"), false, "no database"), Kind::User);
    assert!(!dir.path().join("absent").exists());
    let taken = dir.path().join("taken");
    fs::create_dir_all(taken.join("extents")).unwrap();
    fs::write(taken.join("extents/00000001.vortex"), "data of a lost catalog").unwrap();
    assert_eq!(refuse(&taken, true, "not a database"), Kind::User);

    let interrupted = dir.path().join("interrupted");
    fs::create_dir_all(interrupted.join("extents")).unwrap();
    fs::write(interrupted.join("catalog.redb.new-7"), "half").unwrap();
    Database::open(&interrupted, Options::default()).unwrap();
}

#[test]
fn reads_are_scattered_in_the_order_asked() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    fill(&db, 2_500);
    let snapshot = db.snapshot();
    let chunk = snapshot.table("public", "t").unwrap().chunk(1);
    let columns: Vec<usize> =
        db.read(&chunk.extent, chunk.chunk, &[1, 0, 1]).unwrap().iter().map(|s| s.column).collect();
    assert_eq!(columns, [1, 0, 1]);
}

#[test]
fn the_cache_serves_what_was_decoded() {
    let db = Database::memory(Options { cache_bytes_max: 8 << 20, create: true }).unwrap();
    fill(&db, 2_500);
    let snapshot = db.snapshot();
    let chunk = snapshot.table("public", "t").unwrap().chunk(0);
    assert!(db.cached(&chunk.extent, 0, 0).is_none());
    let decoded = db.decode(db.read(&chunk.extent, 0, &[0]).unwrap().remove(0)).unwrap();
    assert!(Arc::ptr_eq(&decoded, &db.cached(&chunk.extent, 0, 0).unwrap()));
    let stats = db.cache_stats();
    assert_eq!((stats.hits, stats.misses, stats.bytes_max), (1, 1, 8 << 20));
    assert!(stats.bytes >= 8_000);
}
