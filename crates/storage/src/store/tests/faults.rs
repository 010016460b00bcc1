//! `LocalStore` on a disk that fails: whatever happens, an object is whole or absent, and what was
//! reported as done stays done.

use std::path::Path;

use super::super::fault::{Fault, FaultDisk};
use super::super::{LocalStore, Store};

const ROOT: &str = "/shop";

fn store(disk: &FaultDisk) -> LocalStore<FaultDisk> {
    LocalStore::on(disk.clone(), Path::new(ROOT))
}

/// Some sectors, so that tearing shows.
fn content(of: u8) -> Vec<u8> {
    vec![of; 2000]
}

/// Puts two objects and writes one in pieces. Returns what was reported as done.
fn work(disk: &FaultDisk) -> Vec<(&'static str, Vec<u8>)> {
    let store = store(disk);
    let mut done = Vec::new();
    let pieces = || {
        let mut writer = store.create("extents/1")?;
        writer.write(&content(1)[..700])?;
        writer.write(&content(1)[700..])?;
        writer.finish()
    };
    if pieces().is_ok() {
        done.push(("extents/1", content(1)));
    }
    for (name, of) in [("log/1", 2), ("log/2", 3)] {
        if let Ok(true) = store.put_new(name, &content(of)) {
            done.push((name, content(of)));
        }
    }
    done
}

/// After a restart: all that was done is there, and nothing in the log is torn. (An unfinished
/// extent may be: no commit names it.)
#[track_caller]
fn check(disk: &FaultDisk, done: &[(&str, Vec<u8>)], story: &str) {
    let store = store(disk);
    for (name, content) in done {
        let found = store.get(name).unwrap();
        assert_eq!(found.as_ref(), Some(content), "{name} was done, {story}");
    }
    for listed in store.list("log/").unwrap() {
        let found = store.get(&listed.name).unwrap().unwrap();
        let whole = [content(2), content(3)].contains(&found);
        assert!(whole, "{} is torn, {story}", listed.name);
    }
}

fn each_fault(mut then: impl FnMut(&FaultDisk, u64, Fault, u64)) {
    let quiet = FaultDisk::new(0);
    assert_eq!(work(&quiet).len(), 3);
    let calls = quiet.calls();
    assert!(calls > 15, "{calls}");
    for fault in [Fault::Error, Fault::Short, Fault::Torn, Fault::Full, Fault::PowerCut] {
        for call in 0..calls {
            for seed in 0..20 {
                let disk = FaultDisk::new(seed);
                disk.fail_at(call, fault);
                then(&disk, call, fault, seed);
            }
        }
    }
}

#[test]
fn an_object_is_whole_or_absent_after_any_fault_and_a_power_cut() {
    each_fault(|disk, call, fault, seed| {
        let done = work(disk);
        let story = format!("{fault:?} at call {call}, seed {seed}");
        if fault == Fault::Short {
            assert_eq!(done.len(), 3, "a short write is no failure, {story}");
        }
        if !disk.is_off() {
            check(disk, &done, &story);
        }
        check(&disk.power_cut(), &done, &story);
    });
}

#[test]
fn what_failed_can_be_tried_again() {
    each_fault(|disk, call, fault, seed| {
        let first = work(disk);
        let story = format!("{fault:?} at call {call}, seed {seed}");
        let disk = if disk.is_off() { disk.power_cut() } else { disk.clone() };
        disk.make_space();
        let store = store(&disk);
        drop(store.lock(std::time::Duration::ZERO).unwrap());
        for (name, of) in [("log/1", 2), ("log/2", 3)] {
            let new = store.put_new(name, &content(of)).unwrap();
            assert!(!new || first.iter().all(|(done, _)| *done != name), "{story}");
            assert_eq!(store.get(name).unwrap(), Some(content(of)), "{name}, {story}");
        }
        let left = disk.power_cut();
        let done = [("log/1", content(2)), ("log/2", content(3))];
        check(&left, &done, &story);
    });
}

#[test]
fn what_is_seen_can_be_made_durable() {
    each_fault(|disk, call, fault, seed| {
        work(disk);
        if disk.is_off() {
            return;
        }
        let seen = |disk| {
            let listed = store(disk).list("log/").unwrap();
            listed.into_iter().map(|l| l.name).collect::<Vec<_>>()
        };
        let before = seen(disk);
        disk.stop_failing();
        store(disk).sync("log/").unwrap();
        let story = format!("{fault:?} at call {call}, seed {seed}");
        assert_eq!(seen(&disk.power_cut()), before, "{story}");
    });
}

#[test]
fn a_writer_killed_anywhere_leaves_nothing_after_a_sweep() {
    let quiet = FaultDisk::new(0);
    work(&quiet);
    for call in 0..quiet.calls() {
        for seed in 0..50 {
            let disk = FaultDisk::new(seed);
            disk.fail_at(call, Fault::PowerCut);
            work(&disk);
            let left = disk.power_cut();
            let store = store(&left);
            drop(store.lock(std::time::Duration::ZERO).unwrap());
            assert_eq!(left.temporary_files(), 0, "call {call}, seed {seed}");
        }
    }
}

#[test]
fn random_faults_lose_nothing_that_was_done() {
    for seed in 0..500 {
        let mut disk = FaultDisk::new(seed);
        disk.fail_randomly(12);
        let mut done: Vec<(String, Vec<u8>)> = Vec::new();
        let mut store_now = store(&disk);
        for i in 0..60u8 {
            let name = format!("log/{i}");
            if let Ok(true) = store_now.put_new(&name, &content(i)) {
                done.push((name, content(i)));
            }
            disk.make_space();
            if disk.is_off() {
                disk = disk.power_cut();
                disk.fail_randomly(12);
                store_now = store(&disk);
            }
        }
        let disk = disk.power_cut();
        let store = store(&disk);
        for (name, content) in &done {
            assert_eq!(store.get(name).unwrap().as_ref(), Some(content), "{name}, seed {seed}");
        }
        for listed in store.list("log/").unwrap() {
            let of: u8 = listed.name[4..].parse().unwrap();
            assert_eq!(store.get(&listed.name).unwrap(), Some(content(of)), "seed {seed}");
        }
    }
}
