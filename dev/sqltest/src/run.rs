//! Files into tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use sqllogictest::{
    MakeConnection, Record, Runner, default_validator, parse_file, strict_column_validator,
};

use crate::connection::{Column, Connection};
use crate::home::Home;
use crate::mode::{MODES, Mode};

/// Set to write the engine's answers into the files instead of comparing them.
const COMPLETE: &str = "THALWEG_SLT_COMPLETE";
/// The first line of a file that must not lose its session.
const KEEP_SESSION: &str = "# keep session";
/// Failures shown per file; the first is often the cause of the rest.
const FAILURES_SHOWN_MAX: usize = 10;

/// Every file in every mode, as tests named `mode::folder/file`.
pub fn trials() -> Vec<Trial> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    let mut files = vec![];
    collect(&root, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no .slt file under {root:?}");
    let complete = std::env::var_os(COMPLETE).is_some();
    let modes = if complete { &MODES[..1] } else { &MODES[..] };
    let mut trials = vec![];
    for mode in modes {
        for file in &files {
            let name = file.strip_prefix(&root).unwrap_or(file).with_extension("");
            let (name, file) = (format!("{}::{}", mode.name, name.display()), file.clone());
            trials.push(Trial::test(name, move || {
                if complete { rewrite(&file, mode) } else { compare(&file, mode) }
            }));
        }
    }
    trials
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    for entry in entries {
        let path = entry.unwrap_or_else(|e| panic!("{folder:?}: {e}")).path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "slt") {
            files.push(path);
        }
    }
}

fn home(file: &Path, mode: &'static Mode) -> Result<Arc<Home>, Failed> {
    let keep_session = std::fs::read_to_string(file)?.starts_with(KEEP_SESSION);
    Ok(Arc::new(Home::new(mode, keep_session).map_err(|e| format!("{e:#}"))?))
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
fn compare(file: &Path, mode: &'static Mode) -> Result<(), Failed> {
    let home = home(file, mode)?;
    let mut runner = runner(&home);
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

fn rewrite(file: &Path, mode: &'static Mode) -> Result<(), Failed> {
    let home = home(file, mode)?;
    let mut runner = runner(&home);
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
