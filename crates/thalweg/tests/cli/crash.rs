//! `kill -9` at any moment: afterwards the database holds exactly what was acknowledged, or that
//! and the statement that was under way; nothing is damaged, and nothing is left over.
//!
//! A seeded script of statements and loads runs in the real program, which says when each is done.
//! At some moment it is killed, the database is opened and compared, and the next process goes on
//! from what was found, so that damage would add up. What a step should do is known from a
//! database in memory, in this process, where the step ran before.
//!
//! A third of the moments are a share of the time that such a step takes. The others are aimed: a
//! little after the program began to write files, or to commit, where most of what can go wrong
//! lies.
//!
//! `make crash` runs it for long: `KILLS=500 SEED=7`.

mod script;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{cast, filter, sum};
use arrow::datatypes::{DataType, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use thalweg_base::{Prng, SnapshotId};
use thalweg_storage::{AsOf, CheckProgress, Database, Options, Table};

use crate::Place;
use script::{Script, Step, Work};

/// In `make test`.
const KILLS: u64 = 12;

/// Steps given to one process.
const STEPS_MAX: usize = 5;

/// Where a process writes, and where it commits.
const WRITTEN: &[&str] = &["extents", "log"];
const LOG: &[&str] = &["log"];

/// How long before a process counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_killed_process_leaves_what_was_committed() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect(name));
    let kills = number("KILLS");
    let mut suite = Suite::new(number("SEED").unwrap_or(1), kills.is_some());
    suite.run(kills.unwrap_or(KILLS));
    eprintln!("{}", suite.summary());
}

struct Suite {
    place: Place,
    seed: u64,
    /// Of the moments; the script has its own.
    random: Prng,
    script: Script,
    /// To be done, the first one perhaps in part.
    steps: VecDeque<Step>,
    /// Which of the first step's states the database is in.
    at: usize,
    kills: u64,
    statements: u64,
    tally: BTreeMap<&'static str, Tally>,
    /// How long steps take: of a kind, and whether the start of the process is part of it.
    pace: HashMap<(&'static str, bool), Duration>,
    shows_progress: bool,
    begun: Instant,
}

/// Of kills while steps of one kind were under way, how the database was found.
#[derive(Default)]
struct Tally {
    before: u64,
    between: u64,
    after: u64,
    /// The step changes nothing that a query could see.
    either: u64,
}

/// A process that is at work.
struct Running {
    child: Child,
    /// Each is a statement that is done.
    acknowledged: Receiver<()>,
    errors: JoinHandle<String>,
}

/// What a process came to.
struct Ended {
    /// How many steps it was given.
    steps: usize,
    /// How many of them are done as a whole.
    acknowledged: usize,
    killed: bool,
}

impl Suite {
    fn new(seed: u64, shows_progress: bool) -> Suite {
        let place = Place::new();
        let script = Script::new(seed, &place.path("in"));
        let suite = Suite {
            place,
            seed,
            random: Prng::new(!seed),
            script,
            steps: VecDeque::new(),
            at: 0,
            kills: 0,
            statements: 0,
            tally: BTreeMap::new(),
            pace: HashMap::new(),
            shows_progress,
            begun: Instant::now(),
        };
        let setup = script::SETUP.join(";\n");
        suite.place.run(&["sql", "shop", "--create", "-c", &setup]).succeeds();
        suite
    }

    fn run(&mut self, kills: u64) {
        while self.kills < kills {
            while self.steps.len() < STEPS_MAX {
                self.steps.push_back(self.script.next());
            }
            let before = self.kills;
            let ended = self.process();
            self.compare(&ended);
            if self.shows_progress && self.kills > before && self.kills.is_multiple_of(25) {
                let (kills_done, seconds) = (self.kills, self.begun.elapsed().as_secs());
                eprintln!("crash: {kills_done} of {kills} kills, {seconds} s, seed {}", self.seed);
            }
        }
    }

    /// Runs the next steps in a process and kills it, if it does not come to its end before.
    fn process(&mut self) -> Ended {
        let (mut running, statements) = self.spawn();
        let mut done = Done::new(statements);
        let target = self.random.below(done.steps() as u64) as usize;
        let kind = (self.steps[target].kind, target == 0);
        let pace = *self.pace.entry(kind).or_insert(Duration::from_millis(200));
        let pause = pace * self.random.below(1300) as u32 / 1000;
        let aim = match self.random.below(3) {
            0 => None,
            1 => Some((WRITTEN, pause / 3)),
            _ => Some((LOG, pause / 40)),
        };
        let mut alive = true;
        while alive && done.acknowledged() < target {
            alive = self.wait(&running, &mut done, PATIENCE);
        }
        if let (true, Some((folders, pause))) = (alive, aim) {
            let files = self.files(folders);
            let deadline = Instant::now() + PATIENCE;
            while alive && self.files(folders) == files && Instant::now() < deadline {
                alive = self.wait(&running, &mut done, Duration::ZERO);
            }
            std::thread::sleep(pause);
        } else if alive {
            let moment = Instant::now() + pause;
            while alive && Instant::now() < moment {
                let left = moment.saturating_duration_since(Instant::now());
                alive = self.wait(&running, &mut done, left);
            }
        }
        // One that has ended is not harmed.
        let _ = running.child.kill();
        let status = running.child.wait().unwrap();
        let errors = running.errors.join().unwrap();
        running.acknowledged.iter().for_each(|()| done.statement());
        self.statements += done.statements as u64;
        let killed = status.code().is_none();
        assert!(killed || status.success(), "{errors}\n{}", self.story(&done));
        if !killed {
            done.all();
            if let Work::Load(_) = self.steps[0].work {
                // It acknowledges nothing but by ending.
                self.pace.insert(kind, done.last.elapsed());
            }
        } else if done.acknowledged() <= target {
            // That it may come to its end some time.
            self.pace.insert(kind, pace * 9 / 8);
        }
        Ended { steps: done.steps(), acknowledged: done.acknowledged(), killed }
    }

    /// The process for the first steps, and how many statements each of them has.
    fn spawn(&self) -> (Running, Vec<usize>) {
        let mut command = self.command();
        let statements = match &self.steps[0].work {
            Work::Load(args) => {
                command.args(["load", "shop"]).args(args);
                vec![1]
            }
            Work::Sql(_) => {
                let sql = self.steps.iter().map_while(|step| match &step.work {
                    Work::Sql(statements) => Some(statements),
                    Work::Load(_) => None,
                });
                let steps: Vec<_> = sql.collect();
                let text: Vec<&str> = steps.iter().flat_map(|s| s.iter().map(|s| &**s)).collect();
                let script = self.place.write("script.sql", &text.join(";\n"));
                command.args(["sql", "shop", "--timing", "-f"]).arg(script);
                steps.iter().map(|s| s.len()).collect()
            }
        };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, acknowledged) = channel();
        // What was said before the end is read after it, too: so none is missed.
        let errors = std::thread::spawn(move || {
            let mut errors = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                match line.starts_with("time: ") {
                    true => drop(sender.send(())),
                    false => errors.push_str(&format!("{line}\n")),
                }
            }
            errors
        });
        (Running { child, acknowledged, errors }, statements)
    }

    /// The program that Cargo built for this test, or another build of it.
    fn command(&self) -> Command {
        match std::env::var_os("THALWEG") {
            None => crate::command(self.place.folder.path()),
            Some(program) => {
                let mut command = Command::new(program);
                command.current_dir(self.place.folder.path());
                command
            }
        }
    }

    /// Waits for the next statement to be done; `false`: the process has ended.
    fn wait(&mut self, running: &Running, done: &mut Done, limit: Duration) -> bool {
        match running.acknowledged.recv_timeout(limit) {
            Ok(()) => {
                let step = done.acknowledged();
                done.statement();
                if done.acknowledged() > step {
                    let kind = (self.steps[step].kind, step == 0);
                    let pace = self.pace.entry(kind).or_insert(done.since);
                    *pace = (*pace * 3 + done.since) / 4;
                }
                true
            }
            Err(RecvTimeoutError::Timeout) => {
                assert!(limit < PATIENCE, "a process hangs\n{}", self.story(done));
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// All names in these folders of the database.
    fn files(&self, folders: &[&str]) -> BTreeSet<PathBuf> {
        let entries = folders.iter().map(|f| std::fs::read_dir(self.database().join(f)).ok());
        entries.flatten().flatten().flatten().map(|e| e.path()).collect()
    }

    fn database(&self) -> PathBuf {
        self.place.path("shop")
    }

    /// Opens the database and compares all there is with what may be there.
    fn compare(&mut self, ended: &Ended) {
        let under_way = ended.acknowledged;
        // All were done: then only the last state of the last one will do.
        let finished = under_way == ended.steps;
        let (step, from) = match finished {
            true => (under_way - 1, self.steps[under_way - 1].states.len() - 1),
            false => (under_way, if under_way == 0 { self.at } else { 0 }),
        };
        let legal = &self.steps[step].states;
        let kind = if finished { "nothing" } else { self.steps[step].kind };
        let story = format!(
            "kill {}, while {kind} was under way, seed {}: {:?}",
            self.kills + 1,
            self.seed,
            self.steps[step].work
        );
        let now_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let options = Options {
            cache_bytes_max: 0,
            create: false,
            // It stands still: what is kept must not change while we look.
            now_ms: Arc::new(move || now_ms as u64),
            ..Options::default()
        };
        let db = Database::open(&self.database(), options)
            .unwrap_or_else(|e| panic!("the database does not open: {e:#}\n{story}"));
        let found = state(&db);
        let Some(place) = (from..legal.len()).find(|&i| legal[i] == found) else {
            let legal = legal[from..].join("-- or\n");
            panic!("found\n{found}-- where there may be\n{legal}-- {story}");
        };
        let report = db.check(true, &CheckProgress::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}\n{story}", report.faults);
        check_files(&db, &self.database(), &story);

        if ended.killed {
            self.kills += 1;
            let tally = self.tally.entry(kind).or_default();
            let last = legal.len() - 1;
            *match place {
                place if finished || place == last && legal[from] != found => &mut tally.after,
                _ if legal[from] == legal[last] => &mut tally.either,
                0 => &mut tally.before,
                _ => &mut tally.between,
            } += 1;
        }
        let passed = place == legal.len() - 1;
        self.steps.drain(..if passed { step + 1 } else { step });
        self.at = if passed { 0 } else { place };
    }

    fn story(&self, done: &Done) -> String {
        let (step, seed) = (done.acknowledged().min(self.steps.len() - 1), self.seed);
        format!("after kill {}, seed {seed}: {:?}", self.kills, self.steps[step].work)
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "{} kills, {} statements, {:.0} s, seed {}; the database was found\n{:20}{:>8}{:>9}{:>8}{:>9}\n",
            self.kills,
            self.statements,
            self.begun.elapsed().as_secs_f64(),
            self.seed,
            "killed while",
            "before",
            "between",
            "after",
            "either"
        );
        for (kind, Tally { before, between, after, either }) in &self.tally {
            text += &format!("{kind:20}{before:8}{between:9}{after:8}{either:9}\n");
        }
        text
    }
}

impl Drop for Suite {
    /// What a failure was about stays to be looked at.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.place.folder.disable_cleanup(true);
            eprintln!("seed {}; the database is {:?}", self.seed, self.database());
        }
    }
}

/// How far a process has come.
struct Done {
    /// Per step, how many there are.
    wanted: Vec<usize>,
    statements: usize,
    last: Instant,
    /// How long the last step took.
    since: Duration,
}

impl Done {
    fn new(wanted: Vec<usize>) -> Done {
        Done { wanted, statements: 0, last: Instant::now(), since: Duration::ZERO }
    }

    fn steps(&self) -> usize {
        self.wanted.len()
    }

    fn statement(&mut self) {
        let before = self.acknowledged();
        self.statements += 1;
        if self.acknowledged() > before {
            self.since = self.last.elapsed();
            self.last = Instant::now();
        }
    }

    fn all(&mut self) {
        self.statements = self.wanted.iter().sum();
    }

    /// Whole steps.
    fn acknowledged(&self) -> usize {
        let ends = self.wanted.iter().scan(0, |end, n| {
            *end += n;
            Some(*end)
        });
        ends.take_while(|&end| end <= self.statements).count()
    }
}

/// All that queries can see, as text: equal if and only if (but for a collision) the tables are.
fn state(db: &Database) -> String {
    let snapshot = db.snapshot();
    snapshot
        .named_tables()
        .map(|(schema, table)| format!("{schema}.{}", of_table(db, table)))
        .collect()
}

fn of_table(db: &Database, table: &Table) -> String {
    let fields = table.arrow_schema.fields();
    let columns: Vec<String> = fields
        .iter()
        .zip(table.columns.iter())
        .map(|(f, column)| {
            let null = if f.is_nullable() { "" } else { " not null" };
            let default = column.default.as_ref().map_or(String::new(), |d| format!(" = {d}"));
            format!("{} {}{null}{default}", f.name(), f.data_type())
        })
        .collect();
    let contents = table.contents().unwrap();
    let mut sums = vec![0i64; fields.len()];
    let mut hashes: Vec<u64> = Vec::new();
    for i in 0..contents.chunks() {
        let chunk = contents.chunk(i);
        let live = chunk.live().map(|live| BooleanArray::new(live, None));
        let column = |c: usize| -> ArrayRef {
            let array = db.cached(&chunk, c).unwrap_or_else(|| {
                let segment = db.read(&chunk, &[c]).unwrap().pop().unwrap();
                db.decode(segment).unwrap()
            });
            live.as_ref().map_or(array.clone(), |live| filter(&array, live).unwrap())
        };
        let arrays: Vec<ArrayRef> = (0..fields.len()).map(column).collect();
        for (total, array) in sums.iter_mut().zip(&arrays) {
            if array.data_type().is_integer() {
                let wide = cast(array, &DataType::Int64).unwrap();
                *total += sum(wide.as_primitive::<Int64Type>()).unwrap_or(0);
            }
        }
        let options = FormatOptions::new().with_null("∅");
        let texts: Vec<_> =
            arrays.iter().map(|a| ArrayFormatter::try_new(a, &options).unwrap()).collect();
        hashes.extend((0..chunk.live_rows()).map(|row| {
            let mut hasher = DefaultHasher::new();
            texts.iter().for_each(|t| t.value(row).to_string().hash(&mut hasher));
            hasher.finish()
        }));
    }
    hashes.sort_unstable();
    let mut hasher = DefaultHasher::new();
    hashes.hash(&mut hasher);
    format!(
        "{} ({}) clustered by {:?}, {:?}: {} rows, sums {sums:?}, hash {:016x}\n",
        table.name,
        columns.join(", "),
        table.cluster_by,
        table.partition_by,
        hashes.len(),
        hasher.finish()
    )
}

/// The files are those of the snapshots that may be asked for, and nothing else is there.
fn check_files(db: &Database, path: &Path, story: &str) {
    // A folder that is not there yet is empty.
    let names = |folder: PathBuf| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut named = BTreeSet::new();
    for id in db.oldest_snapshot().0..=db.snapshot().id.0 {
        let snapshot = db.snapshot_at(AsOf::Snapshot(SnapshotId(id)));
        let snapshot = snapshot.unwrap_or_else(|e| panic!("{e:#}\n{story}"));
        for extent in snapshot.tables().flat_map(|t| &t.extents) {
            let file = extent.extent.path().unwrap();
            named.insert(file.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    let files = names(path.join("extents"));
    let (orphans, missing) = (files.difference(&named), named.difference(&files));
    assert!(
        files == named,
        "orphans {:?}, missing {:?}\n{story}",
        orphans.collect::<Vec<_>>(),
        missing.collect::<Vec<_>>()
    );
    let in_log = |name: &String| {
        let number = name.strip_suffix(".commit").or_else(|| name.strip_suffix(".checkpoint"));
        number.is_some_and(|n| n.len() == 20 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let log = names(path.join("log"));
    assert!(log.iter().all(in_log), "{log:?}\n{story}");
    let all = names(path.to_owned());
    assert!(all.iter().all(|n| ["extents", "lock", "log"].contains(&&**n)), "{all:?}\n{story}");
}
