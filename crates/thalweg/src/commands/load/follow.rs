//! `--follow`: files that come into folders are loaded as they come.
//!
//! A file counts as complete when its size and time have not changed between two looks. What has
//! been loaded is known by the catalog, from the same commits that brought the rows: a restart
//! after a crash at any moment loads no file twice and leaves none out.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_base::{Error, Kind, Result, text};
use thalweg_engine::{
    Engine, Load, LoadProgress, LoadReport, LoadRequest, Session, stamp, table_name,
};
use thalweg_storage::{LoadedFile, load};

use super::report::counted;
use super::targets::Target;
use super::{Args, load as the_load};
use crate::failure::{self, Outcome};
use crate::interrupt::Watch;

/// How soon Ctrl-C is noticed between two looks.
const NAP: Duration = Duration::from_millis(50);

/// Names of files shown in a line.
const NAMES_SHOWN: usize = 3;

/// Refuses what can never have a file; nothing need be there yet.
pub fn check(targets: &[Target]) -> Result<Vec<LoadRequest>> {
    for file in targets.iter().flat_map(|t| &t.files) {
        if load::address(Path::new(file)).is_some() {
            return Err(Error::unsupported(format!(
                "{} is on another machine, which is not followed",
                load::shown(Path::new(file))
            ))
            .hint("leave --follow out, and load it again when it is another one"));
        }
        if !Path::new(file).exists() && !load::is_pattern(file) {
            return Err(Error::user(format!(
                "there is no folder {} to follow",
                text::quoted(file)
            ))
            .hint("make it first, or name a pattern, such as 'inbox/*.csv'"));
        }
    }
    Ok(vec![])
}

/// What is known of the files of one table.
struct Following<'a> {
    target: &'a Target,
    /// As they were at the last look.
    seen: HashMap<PathBuf, LoadedFile>,
    /// Versions that were told about, because they cannot be loaded or came too late.
    told: HashMap<PathBuf, LoadedFile>,
    /// How many could not be loaded.
    left_out: u64,
}

pub fn follow(
    args: &Args,
    targets: &[Target],
    engine: &Arc<Engine>,
    session: &Session,
    watch: &Watch,
) -> Outcome {
    let mut following: Vec<_> = targets
        .iter()
        .map(|target| Following { target, seen: HashMap::new(), told: HashMap::new(), left_out: 0 })
        .collect();
    let mut trouble = None;
    if !args.quiet {
        say(&format!("following {}; Ctrl-C ends it", places(targets)));
    }
    while !watch.pressed() {
        match turn(args, &mut following, engine, session, watch) {
            Ok(()) => trouble = None,
            Err(e) if passes(&e) => {
                let message = format!("{e:#}");
                if trouble.as_ref() != Some(&message) {
                    failure::print(&e);
                    say("it is tried again");
                    trouble = Some(message);
                }
            }
            Err(e) => return Err(e.into()),
        }
        let next = Instant::now() + args.every;
        while !watch.pressed() && Instant::now() < next {
            std::thread::sleep(NAP.min(next - Instant::now()));
        }
    }
    match following.iter().map(|one| one.left_out).sum() {
        0 => Ok(()),
        n => Err(Error::user(format!("{} could not be loaded", counted(n, "file"))).into()),
    }
}

/// Looks once, and loads what is there.
fn turn(
    args: &Args,
    following: &mut [Following<'_>],
    engine: &Arc<Engine>,
    session: &Session,
    watch: &Watch,
) -> Result<()> {
    let mut ready = vec![];
    for (i, one) in following.iter_mut().enumerate() {
        ready.extend(one.look(engine)?.into_iter().map(|file| (i, file)));
    }
    if ready.is_empty() {
        return Ok(());
    }
    bring(args, following, ready, engine, session, watch)
}

/// Whether the same may go well later: another process writes, a disk is full, a folder away.
fn passes(error: &Error) -> bool {
    matches!(error.kind(), Kind::Resources | Kind::Conflict | Kind::Io)
}

impl Following<'_> {
    /// Files that are complete and not in the table yet.
    fn look(&mut self, engine: &Arc<Engine>) -> Result<Vec<PathBuf>> {
        let snapshot = engine.database().snapshot();
        let (schema, name) = table_name(&self.target.table)?;
        let loaded: HashMap<&str, &LoadedFile> = match snapshot.table(&schema, &name) {
            Some(table) => table.loaded_files.iter().map(|f| (f.path.as_str(), f)).collect(),
            None => HashMap::new(),
        };
        let mut ready = vec![];
        let mut seen = HashMap::new();
        for path in load::expand_present(&self.target.files)? {
            // Gone since it was listed, or still empty.
            let Some(now) = stamp(&path).ok().filter(|s| s.bytes > 0) else { continue };
            let known = self.told.get(&path) == Some(&now);
            match loaded.get(now.path.as_str()) {
                Some(before) if **before == now || known => {}
                Some(_) => {
                    say(&format!(
                        "{}: {} has changed since it was loaded, and is not loaded again",
                        self.target.table,
                        path.display()
                    ));
                    self.told.insert(path.clone(), now.clone());
                }
                None if known => {}
                None if self.seen.get(&path) == Some(&now) => ready.push(path.clone()),
                None => {}
            }
            seen.insert(path, now);
        }
        self.seen = seen;
        Ok(ready)
    }
}

/// Loads files in one transaction; if that fails for one of them, each in its own.
fn bring(
    args: &Args,
    following: &mut [Following<'_>],
    ready: Vec<(usize, PathBuf)>,
    engine: &Arc<Engine>,
    session: &Session,
    watch: &Watch,
) -> Result<()> {
    let started = Instant::now();
    match attempt(args, following, &ready, engine, session) {
        Ok(reports) => {
            for (i, one) in following.iter().enumerate() {
                let files: Vec<_> = ready.iter().filter(|(of, _)| *of == i).collect();
                let report = reports.iter().find(|r| r.table == one.target.table);
                if let (Some(report), false, false) = (report, files.is_empty(), args.quiet) {
                    say(&line(report, files.iter().map(|(_, path)| path), started.elapsed()));
                }
            }
            Ok(())
        }
        Err(_) if watch.pressed() => Ok(()),
        Err(e) if !matches!(e.kind(), Kind::User | Kind::Unsupported) => Err(e),
        Err(e) => {
            let [(i, path)] = &ready[..] else {
                for file in ready {
                    if !watch.pressed() {
                        bring(args, following, vec![file], engine, session, watch)?;
                    }
                }
                return Ok(());
            };
            failure::print(&e);
            say(&format!("{} is left out until it changes", path.display()));
            let one = &mut following[*i];
            if let Some(stamp) = one.seen.get(path) {
                one.told.insert(path.clone(), stamp.clone());
            }
            one.left_out += 1;
            Ok(())
        }
    }
}

fn attempt(
    args: &Args,
    following: &[Following<'_>],
    ready: &[(usize, PathBuf)],
    engine: &Arc<Engine>,
    session: &Session,
) -> Result<Vec<LoadReport>> {
    let mut requests = vec![];
    for (i, one) in following.iter().enumerate() {
        let files = ready.iter().filter(|(of, _)| *of == i);
        let files: Vec<String> = files.map(|(_, f)| f.to_string_lossy().into_owned()).collect();
        if files.is_empty() {
            continue;
        }
        let mut request = one.target.request(&files)?;
        // The first files make the table; for those that come later it is there.
        let (schema, name) = table_name(&one.target.table)?;
        if engine.database().snapshot().table(&schema, &name).is_some() {
            request.columns = None;
            request.types = vec![];
            request.cluster_by = vec![];
            request.partition_by = None;
        }
        requests.push(request);
    }
    // Somebody else may have loaded them since.
    let load = Load { resume: true, ..the_load(args, requests) };
    engine.block_on(session.load(load, Arc::new(LoadProgress::default())))
}

/// `events: a.csv, b.csv: 1,200 rows, 3 bad rows left out, 4.0 MiB in 1.20 s`
fn line<'a>(
    report: &LoadReport,
    files: impl ExactSizeIterator<Item = &'a PathBuf>,
    elapsed: Duration,
) -> String {
    let count = files.len();
    let name = |p: &PathBuf| p.file_name().unwrap_or(p.as_os_str()).to_string_lossy().into_owned();
    let mut names: Vec<String> = files.take(NAMES_SHOWN).map(name).collect();
    if count > NAMES_SHOWN {
        names.push(format!("{} more", text::count((count - NAMES_SHOWN) as u64)));
    }
    let rejected = match report.rejects.len() as u64 {
        0 => String::new(),
        n => format!(", {} left out", counted(n, "bad row")),
    };
    format!(
        "{}: {}: {}{rejected}, {} in {}",
        report.table,
        names.join(", "),
        counted(report.rows, "row"),
        text::bytes(report.raw_bytes),
        text::seconds(elapsed.as_secs_f64())
    )
}

fn places(targets: &[Target]) -> String {
    let files: Vec<&str> = targets.iter().flat_map(|t| &t.files).map(String::as_str).collect();
    files.join(", ")
}

/// One line on stdout, at once: whoever reads the log is waiting for it.
fn say(line: &str) {
    let mut out = std::io::stdout();
    // Without a reader the files are still to be loaded.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
