use std::fs;
use std::path::PathBuf;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema as ArrowSchema, SchemaRef};

use super::*;
use crate::check::CheckProgress;
use crate::database::RETENTION_PROPERTY;
use crate::extent::Layout;
use crate::store::fault::FaultDisk;
use crate::store::{LocalStore, MemoryStore};
use crate::table::TableSpec;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn open(&self, name: &str) -> Database {
        Database::open(&self.path(name), Options::default()).unwrap()
    }

    fn backup(&self, database: &Database) -> Result<BackupReport> {
        let progress = CopyProgress::default();
        database.backup(&self.text("archive"), &RemoteOptions::default(), false, &progress)
    }

    fn restore(&self, target: &str, snapshot: Option<u64>) -> Result<RestoreReport> {
        let (archive, target) = (self.text("archive"), self.text(target));
        let snapshot = snapshot.map(SnapshotId);
        let progress = CopyProgress::default();
        restore(&archive, &target, snapshot, &RemoteOptions::default(), &progress)
    }

    fn verify(&self) -> Result<BackupInfo> {
        let (archive, remote) = (self.text("archive"), RemoteOptions::default());
        verify_backup(&archive, None, &remote, &CopyProgress::default())
    }

    /// The extents in a place.
    fn extents(&self, name: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(name).join("extents")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

fn schema() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![Field::new("n", DataType::Int64, true)]))
}

/// Makes the table if it is not there.
fn try_insert(db: &Database, numbers: std::ops::Range<i64>) -> Result<()> {
    let mut tx = db.begin();
    let snapshot = tx.snapshot().clone();
    let (id, layout) = match snapshot.table("public", "t") {
        Some(table) => (table.id, Layout::of(table)),
        None => {
            let layout = Layout::of_new(schema(), &TableSpec::default());
            (tx.create_table("public", "t", schema(), TableSpec::default())?, layout)
        }
    };
    let mut writer = db.extent_writer(layout);
    let column = Arc::new(Int64Array::from_iter_values(numbers));
    writer.push(&RecordBatch::try_new(schema(), vec![column]).unwrap())?;
    writer.flush()?;
    while writer.step()? {}
    tx.append(id, writer.finish()?)?;
    tx.commit().map(drop)
}

fn insert(db: &Database, numbers: std::ops::Range<i64>) {
    try_insert(db, numbers).unwrap();
}

fn truncate(db: &Database) {
    let mut tx = db.begin();
    let id = tx.snapshot().table("public", "t").unwrap().id;
    tx.truncate(id).unwrap();
    tx.commit().unwrap();
}

fn keep_nothing(db: &Database) {
    let mut tx = db.begin();
    tx.set_property(RETENTION_PROPERTY, Some("0".into())).unwrap();
    tx.commit().unwrap();
}

fn numbers(db: &Database) -> Vec<i64> {
    let snapshot = db.refresh().unwrap();
    let contents = snapshot.table("public", "t").unwrap().contents().unwrap();
    let mut numbers = Vec::new();
    for chunk in 0..contents.chunks() {
        for segment in db.read(&contents.chunk(chunk), &[0]).unwrap() {
            let array = segment.decode_plain().unwrap();
            numbers.extend(array.as_primitive::<Int64Type>().values());
        }
    }
    numbers.sort_unstable();
    numbers
}

fn upto(end: i64) -> Vec<i64> {
    (0..end).collect()
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn each_backup_adds_what_is_new_and_each_can_be_restored() {
    let place = Place::new();
    let db = place.open("db");
    insert(&db, 0..100);
    let first = place.backup(&db).unwrap();
    assert_eq!((first.extents_copied, first.info.extents, first.was_there), (1, 1, false));
    insert(&db, 100..200);
    let second = place.backup(&db).unwrap();
    assert_eq!((second.extents_copied, second.info.extents), (1, 2));
    let again = place.backup(&db).unwrap();
    assert_eq!((again.extents_copied, again.bytes_copied, again.was_there), (0, 0, true));
    truncate(&db);
    insert(&db, 0..50);
    let third = place.backup(&db).unwrap();
    assert_eq!((third.extents_copied, third.info.extents), (1, 1));

    let all = backups(&place.text("archive"), &RemoteOptions::default()).unwrap();
    assert_eq!(all, [&first, &second, &third].map(|b| b.info.clone()));
    place.restore("newest", None).unwrap();
    place.restore("first", Some(first.info.snapshot.0)).unwrap();
    place.restore("second", Some(second.info.snapshot.0)).unwrap();
    for (name, want) in [("newest", 50), ("first", 100), ("second", 200)] {
        let restored = place.open(name);
        assert_eq!(numbers(&restored), upto(want), "{name}");
        let report = restored.check(true, &CheckProgress::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        // It is a database like any other.
        insert(&restored, 1000..1010);
        assert_eq!(numbers(&place.open(name)).len(), want as usize + 10);
    }
    let error = place.restore("none", Some(77)).unwrap_err();
    assert!(error.hint_text().unwrap().contains(&third.info.snapshot.to_string()), "{error:?}");
    assert!(!place.path("none").exists());
}

#[test]
fn a_backup_goes_on_where_it_was_stopped() {
    let place = Place::new();
    let db = place.open("db");
    (0..4).for_each(|i| insert(&db, i * 10..i * 10 + 10));
    let progress = CopyProgress::default();
    progress.stop.store(true, Ordering::Relaxed);
    let remote = RemoteOptions::default();
    let stopped = db.backup(&place.text("archive"), &remote, false, &progress).unwrap_err();
    assert_eq!(stopped.kind(), thalweg_base::Kind::Cancelled);
    // What a crash leaves: a part of one extent, and another as a whole.
    let extents = place.extents("db");
    fs::create_dir_all(place.path("archive/extents")).unwrap();
    let there = |path: &Path| place.path("archive/extents").join(path.file_name().unwrap());
    fs::write(there(&extents[0]), &fs::read(&extents[0]).unwrap()[..100]).unwrap();
    fs::copy(&extents[1], there(&extents[1])).unwrap();
    let error = place.restore("early", None).unwrap_err();
    assert!(error.message().contains("there is no backup"), "{error:?}");
    let report = place.backup(&db).unwrap();
    assert_eq!((report.extents_copied, report.info.extents), (3, 4));

    // The same of a restoration.
    fs::create_dir_all(place.path("new/extents")).unwrap();
    let there = |path: &Path| place.path("new/extents").join(path.file_name().unwrap());
    fs::copy(&extents[0], there(&extents[0])).unwrap();
    fs::copy(&extents[1], there(&extents[1])).unwrap();
    damage(&there(&extents[1]));
    let restored = place.restore("new", None).unwrap();
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert_eq!(restored.bytes_copied, extents[1..].iter().map(|p| size(p)).sum::<u64>());
    assert_eq!(numbers(&place.open("new")), upto(40));
}

#[test]
fn nothing_is_overwritten_and_nothing_is_mixed() {
    let place = Place::new();
    let db = place.open("db");
    insert(&db, 0..10);
    let backup = place.backup(&db).unwrap();
    // A database, and a directory with something else.
    let error = place.restore("db", None).unwrap_err();
    assert!(error.message().contains("there is a database at"), "{error:?}");
    fs::create_dir(place.path("letters")).unwrap();
    fs::write(place.path("letters/a.txt"), "dear").unwrap();
    let error = place.restore("letters", None).unwrap_err();
    assert!(format!("{error:#}").contains("a.txt"), "{error:?}");
    let (remote, progress) = (RemoteOptions::default(), CopyProgress::default());
    for other in ["db", "letters"] {
        let error = db.backup(&place.text(other), &remote, false, &progress).unwrap_err();
        assert_eq!(error.kind(), thalweg_base::Kind::User, "{error:?}");
    }
    // Extents of something else.
    fs::create_dir_all(place.path("stray/extents")).unwrap();
    fs::write(place.path("stray/extents/0123456789abcdef.vortex"), "x").unwrap();
    let error = place.restore("stray", None).unwrap_err();
    assert!(format!("{error:#}").contains("0123456789abcdef"), "{error:?}");
    // Another database, and another life of this one.
    let other = place.open("other");
    (0..5).for_each(|i| insert(&other, i..i + 1));
    let error = place.backup(&other).unwrap_err();
    assert!(error.message().contains("another database"), "{error:?}");
    place.restore("life", Some(backup.info.snapshot.0)).unwrap();
    insert(&db, 10..20);
    place.backup(&db).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let life = place.open("life");
    insert(&life, 10..30);
    let error = place.backup(&life).unwrap_err();
    assert!(error.message().contains("another state"), "{error:?}");
}

#[test]
fn damage_is_found_and_named() {
    let place = Place::new();
    let db = place.open("db");
    insert(&db, 0..1000);
    insert(&db, 1000..2000);
    place.backup(&db).unwrap();
    place.verify().unwrap();
    // In the archive: the check finds it, a restoration refuses it, the next backup mends it.
    let broken = place.extents("archive")[1].clone();
    damage(&broken);
    let error = place.verify().unwrap_err();
    assert_eq!(error.kind(), thalweg_base::Kind::Corrupt);
    let file = broken.file_name().unwrap().to_str().unwrap();
    assert!(error.message().contains(file), "{error:?}");
    let error = place.restore("new", None).unwrap_err();
    assert!(error.message().contains(file), "{error:?}");
    assert!(!place.path("new/log").exists());
    let (remote, progress) = (RemoteOptions::default(), CopyProgress::default());
    let mended = db.backup(&place.text("archive"), &remote, true, &progress).unwrap();
    assert_eq!((mended.extents_copied, mended.was_there), (1, true));
    place.verify().unwrap();
    place.restore("new", None).unwrap();
    // In the database: nothing of it becomes a backup.
    insert(&db, 2000..3000);
    let archived = place.extents("archive");
    let new = place
        .extents("db")
        .into_iter()
        .find(|path| archived.iter().all(|there| there.file_name() != path.file_name()));
    damage(&new.unwrap());
    let error = place.backup(&db).unwrap_err();
    assert_eq!(error.kind(), thalweg_base::Kind::Corrupt, "{error:?}");
    assert_eq!(backups(&place.text("archive"), &remote).unwrap().len(), 1);
    // And of a manifest.
    let manifest = place.path("archive/backups").read_dir().unwrap().next().unwrap().unwrap();
    damage(&manifest.path());
    let error = place.verify().unwrap_err();
    assert!(error.message().contains(ENDING), "{error:?}");
}

#[test]
fn what_is_being_copied_is_not_removed_by_another_process() {
    let place = Place::new();
    let writer = place.open("db");
    keep_nothing(&writer);
    insert(&writer, 0..100);
    // Another process, as far as the store can tell.
    let reader = place.open("db");
    let (pin, checkpoint) = reader.pinned().unwrap();
    let named = extents(&checkpoint).count();
    assert_eq!(named, 1);
    truncate(&writer);
    insert(&writer, 0..1);
    writer.vacuum().unwrap();
    // One that opens sweeps too.
    drop(place.open("db"));
    let records: Vec<&ExtentRecord> = extents(&checkpoint).collect();
    let store: &dyn Store = &**reader.store();
    assert!(is_intact(store, records[0], &|_| Ok(())).unwrap());
    drop(pin);
    drop(reader);
    writer.vacuum().unwrap();
    assert_eq!(place.extents("db").len(), 1);
    assert!(fs::read_dir(place.path("db/pins")).unwrap().next().is_none());
}

#[test]
fn backups_while_others_write_are_snapshots() {
    let place = Place::new();
    let writer = place.open("db");
    keep_nothing(&writer);
    insert(&writer, 0..10);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 10;
            while !stop.load(Ordering::Relaxed) {
                insert(&writer, next..next + 10);
                next += 10;
                if next % 50 == 0 {
                    truncate(&writer);
                    insert(&writer, 0..next);
                }
                if next % 70 == 0 {
                    writer.vacuum().unwrap();
                }
            }
        });
        let options = Options { sweep: false, ..Options::default() };
        let reader = Database::open(&place.path("db"), options).unwrap();
        for i in 0..12 {
            let done = place.backup(&reader).unwrap();
            let name = format!("copy{i}");
            place.restore(&name, Some(done.info.snapshot.0)).unwrap();
            let restored = place.open(&name);
            // After a truncation and before its insert there is nothing.
            let found = numbers(&restored);
            assert_eq!(found, upto(found.len() as i64), "snapshot {}", done.info.snapshot);
            let report = restored.check(true, &CheckProgress::default()).unwrap();
            assert!(report.faults.is_empty(), "{:?}", report.faults);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// The place of the backups fails at any call, and loses what was not durable; then the same again
/// of a restoration.
#[test]
fn whatever_fails_there_is_a_whole_backup_or_none() {
    for seed in 0..40 {
        let source = Arc::new(MemoryStore::default());
        let db = Database::on(source, None, Options { seed, ..Options::default() }).unwrap();
        let mut disk = FaultDisk::new(seed);
        let mut whole = 0;
        for round in 1..=6 {
            insert(&db, (round - 1) * 10..round * 10);
            disk.fail_randomly(12);
            let store = |disk: &FaultDisk| -> Arc<dyn Store> {
                Arc::new(LocalStore::on(disk.clone(), Path::new("/archive")))
            };
            let failing = store(&disk);
            if backup_to(&db, &failing, round % 2 == 0, &CopyProgress::default()).is_ok() {
                whole = round;
            }
            drop(failing);
            disk = disk.power_cut();
            let archive = store(&disk);
            let found = listed(&*archive).unwrap();
            // What was reported is there.
            assert!(found.last().copied().unwrap_or(0) >= whole as u64, "seed {seed}");
            let Some(newest) = found.last() else { continue };
            // What is there is whole.
            let target = FaultDisk::new(seed + 1000);
            target.fail_randomly(20);
            let fresh = |disk: &FaultDisk| -> Arc<dyn Store> {
                Arc::new(LocalStore::on(disk.clone(), Path::new("/new")))
            };
            let failed = restore_to(&*archive, &fresh(&target), None, &CopyProgress::default());
            let target = target.power_cut();
            let to = fresh(&target);
            if to.list(LOG).unwrap().is_empty() {
                assert!(failed.is_err(), "seed {seed}: {failed:?}");
                restore_to(&*archive, &to, None, &CopyProgress::default()).unwrap();
            }
            let restored = Database::on(fresh(&target), None, Options::default()).unwrap();
            assert_eq!(numbers(&restored), upto(10 * *newest as i64), "seed {seed}");
        }
    }
}
