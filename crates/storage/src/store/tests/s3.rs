//! `RemoteStore` on a real server of S3, behind a proxy that fails as networks do. Started by
//! `make s3` (dev/s3/check.py), which says where both are.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use parking_lot::{Mutex, MutexGuard};
use thalweg_base::limits::REMOTE_REQUEST_BYTES_MAX;
use thalweg_base::{Kind, Prng};

use super::super::Store;
use super::super::cached::CachedStore;
use super::super::remote::{Patience, RemoteStore};

/// The proxy, which one test has at a time, as what it does to requests holds for all.
struct Proxy {
    _alone: MutexGuard<'static, ()>,
    control: Mutex<(TcpStream, BufReader<TcpStream>)>,
}

impl Proxy {
    fn take() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock();
        let address = env::var("THALWEG_S3_CONTROL").expect("run by dev/s3/check.py");
        let stream = TcpStream::connect(address).unwrap();
        let control = Mutex::new((stream.try_clone().unwrap(), BufReader::new(stream)));
        let proxy = Proxy { _alone: alone, control };
        proxy.tell("start");
        proxy.tell("pass");
        proxy
    }

    /// One command of `dev/s3/proxy.py`, and its answer.
    fn tell(&self, command: &str) -> u64 {
        let mut control = self.control.lock();
        writeln!(control.0, "{command}").unwrap();
        let mut answer = String::new();
        control.1.read_line(&mut answer).unwrap();
        answer.trim().parse().unwrap_or_else(|_| panic!("{command}: {answer}"))
    }

    /// Of all that have come so far.
    fn requests(&self) -> u64 {
        self.tell("requests")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tell("start");
        self.tell("pass");
    }
}

fn builder() -> AmazonS3Builder {
    AmazonS3Builder::from_env()
}

fn patience() -> Patience {
    Patience { timeout: Duration::from_secs(5), ..Default::default() }
}

/// A store with a prefix that no other test or run uses.
fn store(test: &str) -> RemoteStore {
    let prefix = format!("{test}/{}", super::super::remote::nonce());
    RemoteStore::s3(builder(), "bucket", &prefix, patience()).unwrap()
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 239) as u8).collect()
}

fn write(store: &dyn Store, name: &str, content: &[u8]) {
    let mut writer = store.create(name).unwrap();
    content.chunks(3_000_000).for_each(|piece| writer.write(piece).unwrap());
    writer.finish().unwrap();
}

/// Ranges near and far, in order.
fn some_ranges(random: &mut Prng, bytes: u64) -> Vec<Range<u64>> {
    let mut at = random.below(bytes / 4);
    let mut ranges = Vec::new();
    while at < bytes {
        let end = (at + 1 + random.below(bytes / 10)).min(bytes);
        ranges.push(at..end);
        at = end + random.below(bytes / 5);
    }
    ranges
}

#[track_caller]
fn check_read(store: &dyn Store, name: &str, content: &[u8], ranges: &[Range<u64>]) {
    let read = store.read(name, content.len() as u64, ranges).unwrap();
    for (buffer, range) in read.iter().zip(ranges) {
        assert!(
            buffer.as_slice() == &content[range.start as usize..range.end as usize],
            "{range:?}"
        );
    }
}

#[test]
#[ignore = "needs a server: make s3"]
fn conforms() {
    let _proxy = Proxy::take();
    let store = store("conforms");
    super::conforms(&|| Arc::new(store.clone()));
}

#[test]
#[ignore = "needs a server: make s3"]
fn large_objects_go_in_parts() {
    let proxy = Proxy::take();
    let store = store("parts");
    let content = content(REMOTE_REQUEST_BYTES_MAX * 7 / 2);
    write(&store, "extents/large", &content);
    check_read(&store, "extents/large", &content, &[0..1, 100..content.len() as u64]);
    let before = proxy.requests();
    let mut writer = store.create("extents/dropped").unwrap();
    writer.write(&content).unwrap();
    drop(writer);
    assert!(proxy.requests() > before, "parts were sent");
    assert!(!store.exists("extents/dropped").unwrap());
    let large = |l: &super::super::Listed| (l.name.clone(), l.bytes);
    let listed: Vec<_> = store.list("extents/").unwrap().iter().map(large).collect();
    assert_eq!(listed, [("extents/large".to_owned(), content.len() as u64)]);
}

#[test]
#[ignore = "needs a server: make s3"]
fn a_listing_may_have_many_pages() {
    let _proxy = Proxy::take();
    let store = store("pages");
    thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..150 {
                    assert!(store.put_new(&format!("log/{thread}-{i}"), b"x").unwrap());
                }
            });
        }
    });
    assert_eq!(store.list("log/").unwrap().len(), 1200);
}

#[test]
#[ignore = "needs a server: make s3"]
fn refusals_that_pass_are_tried_again() {
    let proxy = Proxy::take();
    let store = store("refusals");
    let content = content(REMOTE_REQUEST_BYTES_MAX * 2);
    for status in [500, 503, 429] {
        proxy.tell(&format!("refuse {status} 3"));
        let name = format!("extents/{status}");
        write(&store, &name, &content);
        check_read(&store, &name, &content, &some_ranges(&mut Prng::new(1), content.len() as u64));
        let log = format!("log/{status}");
        assert!(store.put_new(&log, b"one").unwrap());
        assert!(!store.put_new(&log, b"two").unwrap());
        assert_eq!(store.get(&log).unwrap().unwrap(), b"one");
        store.list("log/").unwrap();
        store.remove(&log).unwrap();
        assert!(!store.exists(&log).unwrap());
    }
}

#[test]
#[ignore = "needs a server: make s3"]
fn answers_that_break_off_are_continued() {
    let proxy = Proxy::take();
    let store = store("cut");
    let content = content(3_000_000);
    write(&store, "extents/a", &content);
    let mut random = Prng::new(2);
    for _ in 0..10 {
        proxy.tell("cut 2");
        check_read(&store, "extents/a", &content, &some_ranges(&mut random, content.len() as u64));
    }
    for fault in ["cut 1", "cut 3", "lose 1", "lose 2"] {
        let again = || proxy.tell(fault);
        again();
        assert!(store.put_new("log/1", b"one").unwrap(), "{fault}");
        again();
        assert_eq!(store.get("log/1").unwrap().unwrap(), b"one", "{fault}");
        again();
        assert_eq!(store.list("log/").unwrap().len(), 1, "{fault}");
        again();
        store.remove("log/1").unwrap();
        again();
        write(&store, "extents/b", &vec![7; REMOTE_REQUEST_BYTES_MAX + 1]);
        assert!(store.exists("extents/b").unwrap());
        store.remove("extents/b").unwrap();
    }
}

#[test]
#[ignore = "needs a server: make s3"]
fn a_put_whose_answer_is_lost_still_says_who_won() {
    let proxy = Proxy::take();
    let store = store("lost");
    assert!(store.put_new("log/0", b"first").unwrap());
    for lost in 1..=2 {
        proxy.tell(&format!("lose {lost}"));
        let name = format!("log/{lost}");
        assert!(store.put_new(&name, b"mine").unwrap(), "{lost} answers lost");
        assert_eq!(store.get(&name).unwrap().unwrap(), b"mine");
        proxy.tell("lose 1");
        assert!(!store.put_new(&name, b"yours").unwrap());
        assert_eq!(store.get(&name).unwrap().unwrap(), b"mine");
    }
    for round in 0..10 {
        proxy.tell("lose 2");
        let name = format!("race/{round}");
        let race = |racer: u8| store.put_new(&name, &[racer; 1000]).unwrap();
        let won: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|racer| scope.spawn(move || race(racer))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|&&won| won).count(), 1, "{won:?}");
        let winner = won.iter().position(|&won| won).unwrap();
        assert_eq!(store.get(&name).unwrap().unwrap(), [winner as u8; 1000]);
    }
}

#[test]
#[ignore = "needs a server: make s3"]
fn a_server_that_dies_and_comes_back_is_waited_for() {
    let proxy = Proxy::take();
    let store = store("dies");
    let content = content(2_000_000);
    write(&store, "extents/a", &content);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (store, content) = (&store, &content);
            scope.spawn(move || {
                let mut random = Prng::new(seed);
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(6) {
                    let ranges = some_ranges(&mut random, content.len() as u64);
                    check_read(store, "extents/a", content, &ranges);
                }
            });
        }
        scope.spawn(|| {
            for round in 0..2 {
                thread::sleep(Duration::from_millis(500));
                proxy.tell("kill");
                thread::sleep(Duration::from_secs(1));
                proxy.tell("start");
                assert!(store.put_new(&format!("log/{round}"), b"one").unwrap());
            }
        });
    });
}

#[test]
#[ignore = "needs a server: make s3"]
fn a_server_that_stays_away_is_an_error_in_time() {
    let proxy = Proxy::take();
    let patience = Patience {
        retries_max: 3,
        give_up_after: Duration::from_secs(3),
        timeout: Duration::from_secs(1),
        ..Default::default()
    };
    let store = RemoteStore::s3(builder(), "bucket", "away", patience).unwrap();
    proxy.tell("kill");
    let start = Instant::now();
    let error = store.read("extents/a", 5, &[0..1]).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.message().starts_with("cannot read \"s3://bucket/away/extents/a\": "), "{error}");
    assert!(error.hint_text().is_some(), "{error:#}");
    let error = store.put_new("log/1", b"one").unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    drop(store.create("extents/a").unwrap());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());

    let nowhere = builder().with_endpoint("http://127.0.0.1:9");
    let store = RemoteStore::s3(nowhere, "bucket", "away", patience).unwrap();
    let error = store.list("log/").unwrap_err();
    assert!(error.message().contains("Connection refused"), "{error}");
    assert!(error.hint_text().unwrap().contains("AWS_ENDPOINT"), "{error:#}");
}

#[test]
#[ignore = "needs a server: make s3"]
fn slow_answers_are_awaited_side_by_side_and_not_for_ever() {
    let proxy = Proxy::take();
    let store = store("slow");
    let content = content(8_000_000);
    write(&store, "extents/a", &content);
    proxy.tell("slow 300");
    let far: Vec<Range<u64>> = (0..12).map(|i| i * 600_000..i * 600_000 + 1000).collect();
    let start = Instant::now();
    check_read(&store, "extents/a", &content, &far);
    let took = start.elapsed();
    assert!(took < Duration::from_millis(12 * 300 / 2), "12 requests of 300 ms took {took:?}");

    let names: Vec<String> = (0..16).map(|i| format!("log/{i}")).collect();
    let start = Instant::now();
    assert_eq!(store.get_many(&names).unwrap(), vec![None; 16]);
    let took = start.elapsed();
    assert!(took < Duration::from_millis(16 * 300 / 2), "16 requests of 300 ms took {took:?}");

    proxy.tell("slow 3000");
    let patience = Patience {
        timeout: Duration::from_millis(300),
        retries_max: 1,
        give_up_after: Duration::from_secs(2),
        ..Default::default()
    };
    let hasty = RemoteStore::s3(builder(), "bucket", "slow", patience).unwrap();
    let error = hasty.get("log/1").unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.hint_text().unwrap().contains("later"), "{error:#}");
}

#[test]
#[ignore = "needs a server: make s3"]
fn what_is_wrong_with_the_settings_is_said() {
    let _proxy = Proxy::take();
    let wrong = builder().with_secret_access_key("wrong");
    let store = RemoteStore::s3(wrong, "bucket", "shop", patience()).unwrap();
    let unknown = builder().with_access_key_id("nobody");
    let stranger = RemoteStore::s3(unknown, "bucket", "shop", patience()).unwrap();
    for store in [store, stranger] {
        let errors = [
            store.list("log/").unwrap_err(),
            store.put_new("log/1", b"one").unwrap_err(),
            store.get("log/1").unwrap_err(),
            store.exists("log/1").unwrap_err(),
            store.read("extents/a", 5, &[0..1]).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), Kind::Io);
            assert!(error.message().contains("\"s3://bucket/shop/"), "{error}");
            assert!(error.hint_text().unwrap().contains("AWS_SECRET_ACCESS_KEY"), "{error:#}");
        }
    }
    let store = RemoteStore::s3(builder(), "absent", "shop", patience()).unwrap();
    let error = store.list("log/").unwrap_err();
    assert!(error.hint_text().unwrap().contains("create the bucket"), "{error:#}");
}

#[test]
#[ignore = "needs a server: make s3"]
fn without_credentials_nothing_is_tried() {
    let endpoint = AmazonS3Builder::new().with_endpoint("http://127.0.0.1:9");
    let error = RemoteStore::s3(endpoint.clone(), "bucket", "shop", patience()).unwrap_err();
    assert_eq!(error.kind(), Kind::User);
    assert!(error.hint_text().unwrap().contains("AWS_ACCESS_KEY_ID"), "{error:#}");
    RemoteStore::s3(endpoint.with_skip_signature(true), "bucket", "shop", patience()).unwrap();
}

#[test]
#[ignore = "needs a server: make s3"]
fn a_cached_read_asks_nothing() {
    let proxy = Proxy::take();
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(store("cached"));
    let content = content(5_000_000);
    write(&*store, "extents/a", &content);
    let open = || CachedStore::new(store.clone(), folder.path().to_owned(), 1 << 30).unwrap();
    let ranges = some_ranges(&mut Prng::new(3), content.len() as u64);
    check_read(&open(), "extents/a", &content, &ranges);
    let before = proxy.requests();
    check_read(&open(), "extents/a", &content, &ranges);
    assert_eq!(proxy.requests(), before);
}
