//! Files into tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use sqllogictest::{
    MakeConnection, Record, Runner, default_validator, parse_file, strict_column_validator,
};

use crate::connection::Connection;
use crate::home::{Home, package};
use crate::mode::{DISK, MODES, Mode};
use crate::value::Column;

/// Set to write the engine's answers into the files instead of comparing them.
const COMPLETE: &str = "THALWEG_SLT_COMPLETE";
/// The first line of a file that must not lose its session.
const KEEP_SESSION: &str = "# keep session";
/// Set to a version of the storage format to write its database anew.
const MAKE_FORMAT: &str = "THALWEG_SLT_MAKE_FORMAT";
/// Failures shown per file; the first is often the cause of the rest.
const FAILURES_SHOWN_MAX: usize = 10;

/// Every file in every mode, as tests named `mode::folder/file`.
pub fn trials() -> Vec<Trial> {
    let root = package().join("files");
    let mut files = vec![];
    collect(&root, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no .slt file under {root:?}");
    let complete = std::env::var_os(COMPLETE).is_some();
    if let Some(version) = std::env::var_os(MAKE_FORMAT) {
        return vec![Trial::test("make", move || make(&formats().join(version)))];
    }
    let modes = if complete { &MODES[..1] } else { &MODES[..] };
    let mut trials = vec![];
    for mode in modes {
        for file in &files {
            let name = file.strip_prefix(&root).unwrap_or(file).with_extension("");
            let (name, file) = (format!("{}::{}", mode.name, name.display()), file.clone());
            trials.push(Trial::test(name, move || {
                let home = home(&file, mode, None)?;
                if complete { rewrite(&file, &home) } else { compare(&file, &home) }
            }));
        }
    }
    if !complete {
        trials.extend(format_trials());
    }
    trials
}

/// A database of each version of the storage format that there was, and what must be found in it.
fn formats() -> PathBuf {
    package().join("formats")
}

fn format_trials() -> Vec<Trial> {
    let mut versions: Vec<PathBuf> = folder(&formats()).collect();
    versions.sort();
    assert!(!versions.is_empty(), "no version of the storage format is pinned");
    let trial = |version: PathBuf| {
        let name = version.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(format!("format::{name}"), move || {
            let home = home(&version.join("check.slt"), &DISK, Some(&version.join("database")))?;
            compare(&version.join("check.slt"), &home)
        })
    };
    versions.into_iter().map(trial).collect()
}

fn make(version: &Path) -> Result<(), Failed> {
    let file = version.join("make.slt");
    let home = home(&file, &DISK, None)?;
    compare(&file, &home)?;
    home.save(&version.join("database")).map_err(|e| format!("{e:#}").into())
}

fn folder(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let path = path.to_owned();
    entries.map(move |entry| entry.unwrap_or_else(|e| panic!("{path:?}: {e}")).path())
}

fn collect(root: &Path, files: &mut Vec<PathBuf>) {
    for path in folder(root) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "slt") {
            files.push(path);
        }
    }
}

fn home(file: &Path, mode: &'static Mode, database: Option<&Path>) -> Result<Arc<Home>, Failed> {
    let keep_session = std::fs::read_to_string(file)?.starts_with(KEEP_SESSION);
    Ok(Arc::new(Home::new(mode, keep_session, database).map_err(|e| format!("{e:#}"))?))
}

fn runner(home: &Arc<Home>) -> Runner<Connection, impl MakeConnection<Conn = Connection>> {
    let (home, connections) = (Arc::clone(home), AtomicUsize::new(0));
    let mut runner = Runner::new(move || {
        let number = connections.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Connection::new(Arc::clone(&home), number)))
    });
    runner.with_normalizer(String::clone);
    runner.with_validator(default_validator);
    runner.with_column_validator(strict_column_validator);
    runner
}

/// Goes on after a failure: one that changes a result does not hide the next.
fn compare(file: &Path, home: &Arc<Home>) -> Result<(), Failed> {
    let mut runner = runner(home);
    let mut failures = vec![];
    for record in parse_file::<Column>(file).map_err(|e| e.to_string())? {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        if let Err(e) = runner.run(record) {
            failures.push(e.to_string());
        }
    }
    let count = failures.len();
    if count == 0 {
        return Ok(());
    }
    failures.truncate(FAILURES_SHOWN_MAX);
    Err(format!("{count} failed\n{}", failures.join("\n")).into())
}

fn rewrite(file: &Path, home: &Arc<Home>) -> Result<(), Failed> {
    let mut runner = runner(home);
    let update = runner.update_test_file(
        file,
        " ",
        default_validator,
        String::clone,
        strict_column_validator,
    );
    futures::executor::block_on(update).map_err(|e| e.to_string())?;
    Ok(())
}
