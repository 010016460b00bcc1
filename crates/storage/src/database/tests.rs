use std::os::unix::fs::FileExt;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema, SchemaRef};
use tempfile::TempDir;
use thalweg_base::Kind;

use super::*;
use crate::check::CheckProgress;
use crate::table::TableSpec;
use thalweg_base::TableId;

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
    open_with(dir, Options::default())
}

fn open_with(dir: &TempDir, options: Options) -> Result<Database> {
    let options = Options { cache_bytes_max: 64 << 20, lock_wait: Duration::ZERO, ..options };
    Database::open(&dir.path().join("db"), options)
}

/// Old snapshots are not kept.
fn keep_nothing(db: &Database) {
    let mut tx = db.begin();
    tx.set_property(RETENTION_PROPERTY, Some("0".to_owned())).unwrap();
    tx.commit().unwrap();
}

fn layout() -> Layout {
    Layout::of_new(schema(), &TableSpec::default())
}

/// `rows` rows in chunks of 1000, five chunks an extent, as table `t`.
fn fill(db: &Database, rows: i64) -> TableId {
    let limits = Limits { chunk_rows: 1000, run_bytes: 1 << 20, extent_bytes: 1 << 12 };
    let mut writer = db.small_writer(layout(), limits);
    for start in (0..rows).step_by(700) {
        writer.push(&batch(start..(start + 700).min(rows))).unwrap();
        while writer.step().unwrap() {}
    }
    let mut tx = db.begin();
    let id = tx.create_table("public", "t", schema(), TableSpec::default()).unwrap();
    tx.append(id, writer.finish().unwrap()).unwrap();
    tx.commit().unwrap();
    id
}

/// Reads the whole table back through segments.
fn contents(db: &Database) -> Result<Vec<i64>> {
    read(db, &db.snapshot())
}

fn read(db: &Database, snapshot: &Snapshot) -> Result<Vec<i64>> {
    let contents = snapshot.table("public", "t").unwrap().contents()?;
    let mut numbers = Vec::new();
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let mut arrays = Vec::new();
        for segment in db.read(&chunk, &[1, 0])? {
            arrays.push(segment.decode_plain()?);
        }
        assert_eq!(arrays[0].len(), chunk.rows);
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
    let known = |snapshot: &Snapshot, table: &str, column| {
        let table = snapshot.table("public", table).unwrap();
        table.contents().unwrap().column_statistics(column)
    };
    let statistics = known(&before, "t", 1);
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
    assert_eq!(format!("{statistics:?}"), format!("{:?}", known(&snapshot, "t", 1)));

    let mut tx = db.begin();
    let clustered = TableSpec { cluster_by: vec![1], ..TableSpec::default() };
    assert_ne!(tx.create_table("public", "t2", schema(), clustered).unwrap(), id);
    tx.commit().unwrap();
    drop((db, snapshot));
    let snapshot = open(&dir).unwrap().snapshot();
    assert_eq!(snapshot.table("public", "t2").unwrap().cluster_by, [1]);
    assert_eq!(known(&snapshot, "t2", 0).distinct, Some(0));
}

#[test]
fn chunk_statistics_are_joined_over_extents() {
    let db = Database::memory(Options::default()).unwrap();
    fill(&db, 12_345);
    let snapshot = db.snapshot();
    let table = snapshot.table("public", "t").unwrap().contents().unwrap();
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
        keep_nothing(&db);
        let id = fill(&db, 3_000);
        let pinned = db.snapshot();
        let before = files(&dir);
        let mut tx = db.begin();
        if replace {
            tx.truncate(id).unwrap();
        } else {
            tx.drop_table("public", "t").unwrap();
        }
        tx.commit().unwrap();
        db.vacuum().unwrap();
        assert_eq!(files(&dir), before, "somebody still reads them");
        let chunk = pinned.table("public", "t").unwrap().contents().unwrap().chunk(2);
        let segment = db.read(&chunk, &[0]).unwrap().remove(0);
        db.decode(segment).unwrap();
        assert!(db.cached(&chunk, 0).is_some());
        drop((pinned, chunk));
        assert_eq!(files(&dir).len(), 0);
        assert_eq!(db.cache_stats().bytes, 0, "a dropped extent leaves the cache");
    }
}

#[test]
fn old_snapshots_can_be_asked_for_until_their_retention_has_passed() {
    let dir = TempDir::new().unwrap();
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(1_000_000));
    let now = clock.clone();
    let now_ms = Arc::new(move || now.load(Ordering::Relaxed));
    let options = || Options { now_ms: now_ms.clone(), ..Options::default() };
    let db = open_with(&dir, options()).unwrap();
    let id = fill(&db, 3_000);
    clock.fetch_add(1_000, Ordering::Relaxed);
    let mut tx = db.begin();
    tx.truncate(id).unwrap();
    let empty = tx.commit().unwrap();
    for reopen in [false, true] {
        let db = if reopen { open_with(&dir, options()).unwrap() } else { db.clone() };
        db.vacuum().unwrap();
        assert_eq!(contents(&db).unwrap().len(), 0);
        let old = db.snapshot_at(AsOf::Snapshot(SnapshotId(1))).unwrap();
        assert_eq!(read(&db, &old).unwrap().len(), 3_000);
        let old = db.snapshot_at(AsOf::TimeMs(1_000_500)).unwrap();
        assert_eq!((old.id, old.time_ms), (SnapshotId(1), 1_000_000));
        assert_eq!(db.snapshot_at(AsOf::TimeMs(1_001_000)).unwrap().id, empty.id);
        assert_eq!(db.snapshot_at(AsOf::TimeMs(5)).unwrap().id, SnapshotId(0));
        assert!(
            db.snapshot_at(AsOf::Snapshot(SnapshotId(9)))
                .unwrap_err()
                .message()
                .contains("no snapshot 9")
        );
    }
    clock.fetch_add(RETENTION_MS, Ordering::Relaxed);
    let vacuumed = db.vacuum().unwrap();
    assert!(vacuumed.extents > 0 && vacuumed.bytes > 0, "{vacuumed:?}");
    assert_eq!(files(&dir).len(), 0);
    let e = db.snapshot_at(AsOf::Snapshot(SnapshotId(1))).unwrap_err();
    assert!(e.kind() == Kind::User && e.message().contains("no longer kept"), "{e:?}");
}

#[test]
fn many_commits_are_replayed_from_checkpoints() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    for i in 0..150 {
        let mut tx = db.begin();
        tx.create_view("public", "v", &format!("SELECT {i}"), true).unwrap();
        tx.commit().unwrap();
    }
    let again = open(&dir).unwrap();
    assert_eq!(again.snapshot().schemas["public"].views["v"].sql, "SELECT 149");
    assert_eq!(again.history().len(), 150);
    let old = again.snapshot_at(AsOf::Snapshot(SnapshotId(70))).unwrap();
    assert_eq!(old.schemas["public"].views["v"].sql, "SELECT 69");
    keep_nothing(&db);
    assert!(db.vacuum().unwrap().log_objects > 100);
    assert_eq!(open(&dir).unwrap().snapshot().id, SnapshotId(151));
}

#[test]
fn a_second_process_reads_while_the_first_writes() {
    let dir = TempDir::new().unwrap();
    let writer = open(&dir).unwrap();
    let reader = open(&dir).unwrap();
    fill(&writer, 3_000);
    assert!(reader.snapshot().table("public", "t").is_none());
    assert!(reader.may_be_behind());
    reader.refresh().unwrap();
    assert_eq!(contents(&reader).unwrap().len(), 3_000);
    // Where temporary files are on a disk of this machine.
    assert!(!reader.may_be_behind());

    let guard = writer.writing().unwrap();
    let e = reader.begin();
    let mut e = e;
    e.create_schema("s", false).unwrap();
    let e = e.commit().unwrap_err();
    assert_eq!(e.kind(), Kind::Resources, "{e:?}");
    assert!(e.hint_text().is_some() || e.detail_text().is_some(), "{e:?}");
    drop(guard);
    let mut tx = reader.begin();
    tx.create_schema("s", false).unwrap();
    tx.commit().unwrap();
    let mut tx = writer.begin();
    tx.create_schema("s", false).unwrap();
    assert_eq!(tx.commit().unwrap_err().kind(), Kind::Conflict, "it has not seen the other's");
    assert!(writer.snapshot().schemas.contains_key("s"));
}

#[test]
fn a_check_finds_what_is_damaged_and_only_that() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    fill(&db, 3_000);
    let report = db.check(true, &CheckProgress::default()).unwrap();
    assert!(report.faults.is_empty() && report.chunks == 3, "{report:?}");
    let path = files(&dir)[0].clone();
    let mut bytes = fs::read(&path).unwrap();
    bytes[70] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = open(&dir).unwrap().check(false, &CheckProgress::default()).unwrap();
    let faults: Vec<_> = report.faults.iter().map(Error::message).collect();
    assert!(
        matches!(faults[..], [file, chunk] if file.contains(".vortex") && chunk.contains("chunk 0")),
        "{faults:?}"
    );
    assert!(faults.iter().all(|f| f.contains("public.t")), "{faults:?}");
}

#[test]
fn uncommitted_extents_leave_no_files() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    let id = fill(&db, 10);
    let mut writer = db.extent_writer(layout());
    writer.push(&batch(0..10)).unwrap();
    writer.flush().unwrap();
    assert!(writer.step().unwrap());
    assert_eq!(files(&dir).len(), 2);
    drop(writer);
    assert_eq!(files(&dir).len(), 1);

    let mut writer = db.extent_writer(layout());
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
    fs::write(extents.join("00000000000000ff.vortex"), "half a file").unwrap();
    fs::write(extents.join("notes.txt"), "mine").unwrap();
    let db = open(&dir).unwrap();
    assert_eq!(files(&dir).len(), before + 1);
    assert_eq!(contents(&db).unwrap().len(), 3_000);
}

/// Fills a database, lets `harm` at its first extent file, and returns the error of reading it.
fn damage(harm: impl FnOnce(&Path)) -> Error {
    let dir = TempDir::new().unwrap();
    fill(&open(&dir).unwrap(), 3_000);
    harm(&files(&dir)[0]);
    let db = open(&dir).expect("a damaged table must not lock up the others");
    let e = contents(&db).unwrap_err();
    assert_eq!(e.kind(), Kind::Corrupt, "{e:?}");
    assert!(e.message().contains(".vortex"), "{e:?}");
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
    assert!(damage(|path| fs::remove_file(path).unwrap()).message().contains("missing"));
    assert!(damage(|path| write(path, 70, b"not this")).message().contains("damaged"));
}

#[test]
fn a_damaged_catalog_is_an_error() {
    let harms: [fn(&mut Vec<u8>); 5] = [
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.clear(),
        |bytes| bytes.fill(0x5a),
        |bytes| bytes[..9].copy_from_slice(b"not ours!"),
        |bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        },
    ];
    for harm in harms {
        for object in ["00000000000000000000.checkpoint", "00000000000000000001.commit"] {
            let dir = TempDir::new().unwrap();
            fill(&open(&dir).unwrap(), 3_000);
            let path = dir.path().join("db/log").join(object);
            let mut bytes = fs::read(&path).unwrap();
            harm(&mut bytes);
            fs::write(&path, bytes).unwrap();
            let e = open(&dir).err().unwrap();
            assert_eq!(e.kind(), Kind::Corrupt, "{e:?}");
            assert!(e.message().contains(object), "{e:?}");
        }
    }
}

#[test]
fn a_missing_commit_is_an_error() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    fill(&db, 10);
    keep_nothing(&db);
    fs::remove_file(dir.path().join("db/log/00000000000000000001.commit")).unwrap();
    let e = open(&dir).err().unwrap();
    assert!(e.kind() == Kind::Corrupt && e.message().contains("1.commit"), "{e:?}");
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
    fs::write(taken.join("extents/0000000000000001.vortex"), "data of a lost catalog").unwrap();
    assert_eq!(refuse(&taken, true, "not a database"), Kind::User);

    let interrupted = dir.path().join("interrupted");
    fs::create_dir_all(interrupted.join("extents")).unwrap();
    fs::write(interrupted.join("lock"), "").unwrap();
    Database::open(&interrupted, Options::default()).unwrap();

    let old = dir.path().join("old");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("catalog.redb"), "format 1").unwrap();
    assert_eq!(refuse(&old, true, "storage format 1"), Kind::Unsupported);
}

#[test]
fn reads_are_scattered_in_the_order_asked() {
    let dir = TempDir::new().unwrap();
    let db = open(&dir).unwrap();
    fill(&db, 2_500);
    let chunk = db.snapshot().table("public", "t").unwrap().contents().unwrap().chunk(1);
    let segments = db.read(&chunk, &[1, 0]).unwrap();
    assert_eq!(segments.iter().map(|s| s.place).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn the_cache_serves_what_was_decoded() {
    let db = Database::memory(Options { cache_bytes_max: 8 << 20, ..Options::default() }).unwrap();
    fill(&db, 2_500);
    let chunk = db.snapshot().table("public", "t").unwrap().contents().unwrap().chunk(0);
    assert!(db.cached(&chunk, 0).is_none());
    let decoded = db.decode(db.read(&chunk, &[0]).unwrap().remove(0)).unwrap();
    assert!(Arc::ptr_eq(&decoded, &db.cached(&chunk, 0).unwrap()));
    let stats = db.cache_stats();
    assert_eq!((stats.hits, stats.misses, stats.bytes_max), (1, 1, 8 << 20));
    assert!(stats.bytes >= 2_000);
}
