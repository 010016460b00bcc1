//! What every store must do, run over each of them.
#![expect(clippy::single_range_in_vec_init, reason = "a list of ranges may have one")]

mod cached;
mod faults;
mod remote;
mod s3;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use object_store::memory::InMemory;
use thalweg_base::Kind;

use super::blocks::Blocks;
use super::cached::CachedStore;
use super::disk::{Disk, DiskFile, OsDisk};
use super::fault::FaultDisk;
use super::reading::ALIGNMENT;
use super::{LocalStore, MemoryStore, Store};

/// Opens one more handle to the same place.
type Open<'a> = &'a (dyn Fn() -> Arc<dyn Store> + Sync);

fn conforms(open: Open) {
    puts_once(open);
    one_racer_wins(open);
    writes_in_pieces(open);
    leaves_nothing_unfinished(open);
    lists_and_removes(open);
    reads_ranges(open);
    reports_damage(open);
    locks_out_others(open);
}

#[test]
fn local() {
    let folder = tempfile::tempdir().unwrap();
    // Two levels that nobody has made yet.
    let root = folder.path().join("made/lazily");
    conforms(&|| Arc::new(LocalStore::open(&root)));
}

#[test]
fn memory() {
    let store = MemoryStore::default();
    conforms(&|| Arc::new(store.clone()));
}

#[test]
fn faultless() {
    let disk = FaultDisk::new(1);
    conforms(&|| Arc::new(LocalStore::on(disk.clone(), Path::new("/srv/shop"))));
}

#[test]
fn remote() {
    let objects = Arc::new(InMemory::new());
    conforms(&|| Arc::new(remote::store(&objects)));
}

#[test]
fn cached() {
    let objects = Arc::new(InMemory::new());
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let remote = Arc::new(remote::store(&objects));
        CachedStore::new(remote, folder.path().to_owned(), 1 << 30).unwrap()
    };
    conforms(&|| Arc::new(open()));
}

fn puts_once(open: Open) {
    let store = open();
    assert_eq!(store.get("log/1.commit").unwrap(), None);
    assert!(!store.exists("log/1.commit").unwrap());
    assert!(store.put_new("log/1.commit", b"one").unwrap());
    assert!(!store.put_new("log/1.commit", b"two").unwrap());
    assert_eq!(store.get("log/1.commit").unwrap().unwrap(), b"one");
    assert_eq!(open().get("log/1.commit").unwrap().unwrap(), b"one");
    assert!(store.exists("log/1.commit").unwrap());
    if store.path("").is_some() {
        assert!(!store.exists("log").unwrap(), "a folder is no object");
    }
    assert!(store.put_new("log/empty", b"").unwrap());
    assert_eq!(store.get("log/empty").unwrap().unwrap(), b"");
    let names = ["log/empty", "log/none", "log/1.commit"].map(str::to_owned);
    let many = store.get_many(&names).unwrap();
    assert_eq!(many, [Some(b"".to_vec()), None, Some(b"one".to_vec())]);
    assert_eq!(store.get_many(&[]).unwrap().len(), 0);
    assert!(store.put_new("format", b"2").unwrap(), "outside of all folders");
    assert_eq!(store.get("format").unwrap().unwrap(), b"2");
}

fn one_racer_wins(open: Open) {
    for round in 0..5 {
        let name = format!("race/{round}");
        let start = Barrier::new(4);
        let race = |racer: u8| {
            let store = open();
            start.wait();
            store.put_new(&name, &[racer; 1000]).unwrap()
        };
        let won: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|racer| scope.spawn(move || race(racer))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|&&won| won).count(), 1, "{won:?}");
        let winner = won.iter().position(|&won| won).unwrap();
        assert_eq!(open().get(&name).unwrap().unwrap(), [winner as u8; 1000]);
    }
    let names: Vec<String> = open().list("race/").unwrap().into_iter().map(|l| l.name).collect();
    assert_eq!(names.len(), 5, "losers leave nothing: {names:?}");
}

fn writes_in_pieces(open: Open) {
    let store = open();
    let mut writer = store.create("extents/a.vortex").unwrap();
    writer.write(b"some ").unwrap();
    writer.write(b"").unwrap();
    writer.write(b"rows").unwrap();
    writer.finish().unwrap();
    assert_eq!(open().get("extents/a.vortex").unwrap().unwrap(), b"some rows");
    store.create("extents/nothing.vortex").unwrap().finish().unwrap();
    assert_eq!(store.get("extents/nothing.vortex").unwrap().unwrap(), b"");
}

fn leaves_nothing_unfinished(open: Open) {
    let store = open();
    let mut writer = store.create("extents/b.vortex").unwrap();
    writer.write(&[7; 100_000]).unwrap();
    drop(writer);
    assert_eq!(store.get("extents/b.vortex").unwrap(), None);
    let names: Vec<String> = store.list("extents/").unwrap().into_iter().map(|l| l.name).collect();
    assert!(!names.iter().any(|name| name.contains("b.vortex")), "{names:?}");
}

fn lists_and_removes(open: Open) {
    let store = open();
    store.sync("none/").unwrap();
    assert_eq!(store.list("none/").unwrap(), []);
    for (name, bytes) in
        [("some/one", 1), ("some/two", 2), ("some/deeper/three", 3), ("somewhere", 4)]
    {
        assert!(store.put_new(name, &vec![0; bytes]).unwrap());
    }
    let list = |folder| {
        let mut listed: Vec<_> =
            open().list(folder).unwrap().into_iter().map(|l| (l.name, l.bytes)).collect();
        listed.sort();
        listed
    };
    assert_eq!(list("some/"), [("some/one".to_owned(), 1), ("some/two".to_owned(), 2)]);
    assert!(list("").contains(&("somewhere".to_owned(), 4)));
    assert!(list("").iter().all(|(name, _)| !name.contains('/')));
    let modified = store.list("some/").unwrap()[0].modified;
    assert!(modified.elapsed().unwrap_or_default() < Duration::from_secs(3600), "{modified:?}");

    store.remove("some/one").unwrap();
    store.remove("some/one").unwrap();
    store.remove("none/at all").unwrap();
    assert!(!open().exists("some/one").unwrap());
    assert_eq!(list("some/"), [("some/two".to_owned(), 2)]);
    assert!(store.put_new("some/one", b"again").unwrap(), "a removed name is free");
}

fn reads_ranges(open: Open) {
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let bytes = content.len() as u64;
    let store = open();
    let mut writer = store.create("extents/ranges").unwrap();
    content.chunks(700_001).for_each(|piece| writer.write(piece).unwrap());
    writer.finish().unwrap();
    let check = |wanted: &[Range<u64>]| {
        let read = store.read("extents/ranges", bytes, wanted).unwrap();
        let direct = store.read_direct("extents/ranges", bytes, wanted).unwrap();
        // Where the system can tell that it is in memory, or there is nothing else.
        let at_once = [false, true].map(|d| store.read_at_once("extents/ranges", bytes, wanted, d));
        let in_memory = store.path("").is_none() && store.is_private();
        assert!(!in_memory || at_once.iter().all(Option::is_some));
        for read in [read, direct].into_iter().chain(at_once.into_iter().flatten()) {
            assert_eq!(read.len(), wanted.len());
            for (buffer, range) in read.iter().zip(wanted) {
                assert_eq!(buffer.as_slice(), &content[range.start as usize..range.end as usize]);
                // As all that is written in pieces.
                let aligned = range.start % ALIGNMENT as u64 == 0 && !range.is_empty();
                if aligned && (store.path("").is_some() || store.is_remote()) {
                    assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
                }
            }
        }
    };
    check(&[]);
    check(&[0..bytes]);
    check(&[5..5]);
    check(&[0..1, 1..2, 10..20, 5000..6000]);
    check(&[0..10, 1_000_000..1_000_100, 1_000_200..1_000_300, 2_999_990..bytes]);
    check(&[0..4096, 4096..4097, 8191..8192, 8192..8192, 64 << 10..bytes]);
    let many: Vec<Range<u64>> = (0..1000).map(|i| i * 2000..i * 2000 + 1500).collect();
    check(&many);
    // A hint changes nothing, nor fails.
    for wanted in
        [&[][..], &[5..5], &many, &[0..10, 2_999_990..bytes + 7], &[u64::MAX - 1..u64::MAX]]
    {
        store.read_ahead("extents/ranges", wanted);
        store.read_ahead("extents/nosuch", wanted);
    }
    check(&many);
    for wanted in
        [&[0..bytes + 1][..], &[bytes..bytes + 1], &[10..20, 5..7], &[u64::MAX - 1..u64::MAX]]
    {
        for read in [Store::read, Store::read_direct] {
            let error = read(&*store, "extents/ranges", bytes, wanted).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        }
        assert!(store.read_at_once("extents/ranges", bytes, wanted, false).is_none());
    }
    assert!(store.read_at_once("extents/ranges", bytes - 1, &[0..1], false).is_none());
    assert!(store.read_at_once("extents/nosuch", bytes, &[0..1], false).is_none());
}

fn reports_damage(open: Open) {
    let store = open();
    assert!(store.put_new("extents/short", b"12345").unwrap());
    let error = store.read("extents/short", 6, &[0..1]).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().ends_with("has 5 bytes, and 6 were written"), "{error}");
    assert!(error.message().contains(&store.locate("extents/short")), "{error}");
    // A reader that has it open must not see what is gone.
    assert_eq!(store.read("extents/short", 5, &[0..1]).unwrap()[0].as_slice(), b"1");
    store.remove("extents/short").unwrap();
    let error = store.read("extents/short", 5, &[0..1]).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().ends_with("is missing"), "{error}");
    assert!(error.hint_text().unwrap().contains("backup"));
}

fn locks_out_others(open: Open) {
    let (mine, other) = (open(), open());
    let Some(guard) = mine.lock(Duration::ZERO).unwrap() else { return };
    let error = other.lock(Duration::from_millis(20)).err().expect("it is taken");
    assert_eq!(error.kind(), Kind::Resources);
    let process = format!("process {} on ", std::process::id());
    assert!(error.message().starts_with(&process), "{error}");
    assert!(mine.list("").unwrap().iter().all(|l| l.name != "lock"), "it is no object");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock(Duration::from_secs(60)).unwrap().is_some());
        thread::sleep(Duration::from_millis(50));
        drop(guard);
        assert!(waiting.join().unwrap());
    });
    drop(mine.lock(Duration::ZERO).unwrap().expect("free again"));
}

#[test]
fn sweeps_what_a_dead_writer_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path());
    assert!(store.put_new("log/1", b"one").unwrap());
    std::fs::write(folder.path().join("log/.2.0123456789abcdef"), b"half").unwrap();
    assert_eq!(store.list("log/").unwrap().len(), 1);
    drop(store.lock(Duration::ZERO).unwrap());
    let left: Vec<_> = std::fs::read_dir(folder.path().join("log")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn says_who_may_not_write() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log"), b"a file").unwrap();
    let error = LocalStore::open(folder.path()).put_new("log/1", b"one").unwrap_err();
    assert!(error.message().starts_with("cannot write \""), "{error}");
    assert!(error.message().contains("log/1"), "{error}");
}

#[test]
fn keeps_a_bounded_number_of_files_open() {
    use thalweg_base::limits::OPEN_FILES_MAX;
    let disk = FaultDisk::new(1);
    let store = LocalStore::on(disk, Path::new("/"));
    for i in 0..OPEN_FILES_MAX + 10 {
        let name = format!("extents/{i}");
        assert!(store.put_new(&name, &[i as u8]).unwrap());
        assert_eq!(store.read(&name, 1, &[0..1]).unwrap()[0].as_slice(), [i as u8]);
    }
    assert_eq!(store.open_files(), OPEN_FILES_MAX);
    store.remove(&format!("extents/{}", OPEN_FILES_MAX + 9)).unwrap();
    assert_eq!(store.open_files(), OPEN_FILES_MAX - 1);
}

#[test]
fn a_file_that_was_cut_is_corrupt_however_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path());
    assert!(store.put_new("extents/cut", &[7; 100_000]).unwrap());
    assert_eq!(store.read("extents/cut", 100_000, &[0..100_000]).unwrap()[0].len(), 100_000);
    // While it is open: its length was right.
    for left in [50_000, 49_152, 0] {
        let file = std::fs::File::options().write(true).open(folder.path().join("extents/cut"));
        file.unwrap().set_len(left).unwrap();
        for read in [Store::read, Store::read_direct] {
            let error =
                read(&store, "extents/cut", 100_000, &[0..100, 60_000..70_000]).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            assert!(error.message().ends_with("ends within a chunk"), "{error}");
        }
        let wanted = &[60_000..70_000];
        assert!(store.read_at_once("extents/cut", 100_000, wanted, false).is_none());
    }
}

#[test]
fn reads_directly_what_the_system_has_not_in_memory() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("object");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let file = OsDisk.open(&path).unwrap();
    file.sync_all().unwrap();
    if !file.is_in_memory(0..1 << 20) {
        eprintln!("this kernel does not say what it has in memory");
        return;
    }
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if file.is_in_memory(0..1 << 20) || OsDisk.open_direct(&path).unwrap().is_none() {
        eprintln!("this file system is in memory");
        return;
    }
    let store = LocalStore::open(folder.path());
    assert_eq!(store.read_direct("object", 1 << 20, &[0..1 << 20]).unwrap()[0].len(), 1 << 20);
    assert!(!file.is_in_memory(0..1 << 20), "a direct read leaves no copy");
    assert_eq!(store.read("object", 1 << 20, &[0..1 << 20]).unwrap()[0].len(), 1 << 20);
    assert!(file.is_in_memory(0..1 << 20));
}

#[test]
fn memory_of_reads_is_used_again_and_bounded() {
    let blocks = Blocks::default();
    let read = |span: Range<u64>| {
        let fill = |buffer: &mut [u8], offset: u64, bytes: usize| {
            assert_eq!((offset % 4096, buffer.as_ptr() as usize % 4096), (0, 0));
            assert!(bytes as u64 == span.end - offset && buffer.len().is_multiple_of(4096));
            buffer.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
            Ok(())
        };
        let found = blocks.read(span.clone(), fill).unwrap();
        assert!(found.iter().zip(span).all(|(byte, at)| *byte == at as u8));
        found
    };
    let held = read(5000..600_000);
    let slice = held.slice_unaligned(10..20);
    drop(held);
    assert_eq!(blocks.idle_bytes(), 0, "a part of it is still read");
    drop(slice);
    let idle = blocks.idle_bytes();
    assert!((595_000..900_000).contains(&idle), "{idle}");
    drop(read(0..100));
    assert_eq!(blocks.idle_bytes(), idle, "nothing was allocated");
    let many: Vec<_> = (0..40).map(|i| read(i..i + (2 << 20))).collect();
    drop(many);
    assert!((24 << 20..=32 << 20).contains(&blocks.idle_bytes()), "{}", blocks.idle_bytes());
    assert!(blocks.read(0..10, |_, _, _| Err(std::io::ErrorKind::Other.into())).is_err());
}
