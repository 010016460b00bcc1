//! `thalweg load --follow`, which runs until it is interrupted.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::{Place, Ran, command};

/// Generous: the machine may be busy and the build unoptimised.
const SOON: Duration = Duration::from_secs(60);

struct Follower<'p> {
    place: &'p Place,
    child: Child,
}

impl Place {
    fn follow(&self, more: &[&str]) -> Follower<'_> {
        let args = ["load", "test.db", "t", "inbox", "--follow", "--every", "100ms"];
        let child = command(self.folder.path())
            .args(args)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Follower { place: self, child }
    }
}

impl Follower<'_> {
    /// Waits until the table has so many rows, which a reader of the same database can see.
    #[track_caller]
    fn reaches(&mut self, rows: u64) {
        let start = Instant::now();
        loop {
            let ran = self.place.csv("SELECT count(*) AS n FROM t");
            if ran.out == format!("n\n{rows}\n") {
                return;
            }
            if start.elapsed() > SOON || self.child.try_wait().unwrap().is_some() {
                let _ = self.child.kill();
                panic!("{rows} rows are expected: {ran:?}, {:?}", self.ended());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ctrl-C.
    fn interrupt(mut self) -> Ran {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        self.ended()
    }

    fn ended(&mut self) -> Ran {
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Ran { args: "load --follow".into(), code, out, err }
    }
}

/// The lines of stderr, but those of a wait for another process that ended well: whoever opens the
/// database holds its lock for a moment, which may be long on a busy machine.
fn troubles(ran: &Ran) -> Vec<&str> {
    let waited = |line: &str| {
        line.ends_with("is writing to \"test.db\"") || line.starts_with("hint: wait until it ends")
    };
    ran.err.lines().filter(|line| !waited(line)).collect()
}

#[test]
fn files_are_loaded_as_they_come_and_never_twice() {
    let place = Place::new();
    place.write("inbox/1.csv", "n,s\n1,x\n");
    let mut follower = place.follow(&[]);
    follower.reaches(1);
    place.write("inbox/2.csv", "n,s\n2,x\n3,y\n");
    place.write("inbox/.3.csv.tmp", "n,s\n2,x\n");
    follower.reaches(3);
    let ran = follower.interrupt();
    assert_eq!((ran.code, troubles(&ran)), (0, vec![]), "{ran:?}");
    assert_eq!(ran.err.is_empty(), !ran.out.contains("it is tried again"), "{ran:?}");
    assert!(ran.out.contains("t: 1.csv: 1 row") && ran.out.contains("t: 2.csv: 2 rows"), "{ran:?}");

    // What was loaded is known after a restart; what came meanwhile is loaded.
    place.write("inbox/4.csv", "n,s\n4,x\n");
    let mut follower = place.follow(&[]);
    follower.reaches(4);
    place.write("inbox/1.csv", "n,s\n1,x\n5,changed\n");
    place.write("inbox/5.csv", "n,s\nbad,x\n");
    place.write("inbox/6.csv", "n,s\n6,x\n");
    follower.reaches(5);
    std::thread::sleep(Duration::from_millis(500));
    let ran = follower.interrupt();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("5.csv\", line 2"), "{ran:?}");
    assert!(ran.out.contains("5.csv is left out until it changes"), "{ran:?}");
    assert!(ran.out.contains("1.csv has changed since it was loaded"), "{ran:?}");
    place.csv("SELECT sum(n) AS n FROM t").prints("n\n16\n");
}
