//! What `thalweg calibrate` has measured, as it is kept for the commands that come later.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_s_to_datetime;
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result, text};
use thalweg_engine::calibration::Calibration;

use crate::failure::Outcome;
use crate::output::sink::Sink;
use crate::state;

/// Of the file. One of another version is measured anew rather than read.
const VERSION: u32 = 1;
const AGAIN: &str = "`thalweg calibrate` measures and writes it again";

/// The file: figures of a machine, and when they were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    version: u32,
    /// In UTC.
    pub measured: String,
    pub cores: usize,
    pub array_bytes: u64,
    pub one_thread_bytes_per_s: u64,
    pub threads: usize,
    pub all_threads_bytes_per_s: u64,
    pub dependent_lookup_ns: f64,
    pub independent_lookup_ns: f64,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Kept {
    /// As of now, on this machine.
    pub fn new(figures: &Calibration) -> Kept {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let measured = timestamp_s_to_datetime(now.try_into().unwrap_or(i64::MAX));
        let tenths = |ns: f64| (ns * 10.0).round() / 10.0;
        Kept {
            version: VERSION,
            measured: measured.map(|time| time.to_string()).unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            array_bytes: figures.bytes,
            one_thread_bytes_per_s: figures.one_thread_bytes_per_s,
            threads: figures.threads,
            all_threads_bytes_per_s: figures.all_threads_bytes_per_s,
            dependent_lookup_ns: tenths(figures.dependent_ns),
            independent_lookup_ns: tenths(figures.independent_ns),
        }
    }

    /// `None`: there is no such file.
    ///
    /// # Errors
    /// It cannot be read, is of another version, or is none of ours.
    pub fn read(path: &Path) -> Result<Option<Kept>> {
        let name = text::quoted(&path.to_string_lossy());
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(format!("cannot read {name}"), e)),
        };
        let damaged = |e: &dyn std::fmt::Display| {
            Error::corrupt(format!("{name} holds no figures of this machine"))
                .detail(e.to_string())
                .hint(AGAIN)
        };
        let Version { version } = serde_json::from_slice(&bytes).map_err(|e| damaged(&e))?;
        if version != VERSION {
            let message = format!("{name} is of version {version}, and not {VERSION}");
            return Err(Error::user(message).hint(AGAIN));
        }
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|e| damaged(&e))?;
        if kept.one_thread_bytes_per_s == 0 {
            return Err(damaged(&"a bandwidth of 0"));
        }
        Ok(Some(kept))
    }

    /// The file is there as a whole or as it was before.
    pub fn write(&self, path: &Path) -> Outcome {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| {
                let folder = text::quoted(&folder.to_string_lossy());
                Error::io(format!("cannot make the folder {folder}"), e)
                    .hint("--file keeps the figures elsewhere")
            })?;
        }
        let mut sink = Sink::file(path)?;
        writeln!(sink, "{}", self.json())?;
        sink.finish()
    }

    pub fn json(&self) -> String {
        // Numbers and text: there is nothing in it that JSON does not have.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Where they are kept unless the user says otherwise, and where all commands look for them.
pub fn path() -> Option<PathBuf> {
    state::path("calibration.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Calibration {
        Calibration {
            bytes: 1 << 29,
            one_thread_bytes_per_s: 12_345_678_901,
            all_threads_bytes_per_s: 23_456_789_012,
            threads: 2,
            dependent_ns: 98.76,
            independent_ns: 9.84,
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/there/yet.json");
        assert_eq!(Kept::read(&path).unwrap(), None);
        let kept = Kept::new(&figures());
        assert_eq!((kept.dependent_lookup_ns, kept.independent_lookup_ns), (98.8, 9.8));
        // Such as 2026-01-31 12:00:00.
        assert_eq!(kept.measured.len(), 19, "{}", kept.measured);
        kept.write(&path).unwrap();
        assert_eq!(Kept::read(&path).unwrap(), Some(kept.clone()));
        kept.write(&path).unwrap();
        let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1);
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_version_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.json");
        let good = Kept::new(&figures()).json();
        let check = |content: &str, words: &str| {
            std::fs::write(&path, content).unwrap();
            let error = format!("{:#}", Kept::read(&path).unwrap_err());
            for word in [words, "calibration.json", "thalweg calibrate"] {
                assert!(error.contains(word), "{word} is not in {error}");
            }
        };
        check("", "holds no figures");
        check(&good[..good.len() / 2], "holds no figures");
        check("{\"version\": 1}", "missing field");
        check("{\"version\": 99, \"else\": true}", "version 99");
        check(&good.replace("12345678901", "0"), "a bandwidth of 0");
    }
}
