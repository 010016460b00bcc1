//! Input files whose next piece any worker may take.
//!
//! Each file has a lock, held while its next block is read, decompressed and cut. A worker that
//! finds a file's lock taken goes on to the next file, so that one slow decompression keeps only
//! itself waiting; with a single file the workers take turns reading and work in parallel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_base::{Error, Result};

use super::input::{cannot, empty, shown};
use super::source::{address, bytes_there};

/// The files of one input; `S` is what an open one is read with.
pub(super) struct Turns<S> {
    files: Vec<InputFile<S>>,
}

pub(super) struct InputFile<S> {
    /// Among the files given.
    pub index: usize,
    pub path: Arc<PathBuf>,
    pub bytes: u64,
    /// Bytes taken from disk so far.
    pub done: Arc<AtomicU64>,
    exhausted: AtomicBool,
    /// `None`: not opened yet, or no longer open.
    source: Mutex<Option<S>>,
}

impl<S> Turns<S> {
    /// Files are opened as their turn comes; here they only have to exist.
    pub(super) fn new(files: Vec<PathBuf>) -> Result<Turns<S>> {
        let files = files.into_iter().enumerate().map(|(index, path)| {
            Ok(InputFile {
                index,
                bytes: check(&path)?,
                path: Arc::new(path),
                done: Arc::default(),
                exhausted: AtomicBool::new(false),
                source: Mutex::new(None),
            })
        });
        Ok(Turns { files: files.collect::<Result<_>>()? })
    }

    /// What `advance` makes of the first file that is free and has something left; `None` when
    /// all files are used up. `advance` gets a file and its source, returns `None` at the file's
    /// end, and is then not called for it again.
    pub(super) fn next<T>(
        &self,
        advance: impl Fn(&InputFile<S>, &mut Option<S>) -> Option<T>,
    ) -> Option<T> {
        let take = |file: &InputFile<S>, source: &mut Option<S>| {
            if file.exhausted.load(Ordering::Acquire) {
                return None;
            }
            let taken = advance(file, source);
            if taken.is_none() {
                *source = None;
                file.exhausted.store(true, Ordering::Release);
                file.done.store(file.bytes, Ordering::Relaxed);
            }
            taken
        };
        loop {
            let mut busy = None;
            for file in self.files.iter().filter(|f| !f.exhausted.load(Ordering::Acquire)) {
                match file.source.try_lock() {
                    Some(mut source) => {
                        if let Some(taken) = take(file, &mut source) {
                            return Some(taken);
                        }
                    }
                    None => busy = busy.or(Some(file)),
                }
            }
            let file = busy?;
            if let Some(taken) = take(file, &mut file.source.lock()) {
                return Some(taken);
            }
        }
    }

    pub(super) fn files(&self) -> &[InputFile<S>] {
        &self.files
    }

    /// Bytes of the files read so far, as they lie on disk.
    pub(super) fn bytes_done(&self) -> u64 {
        self.files.iter().map(|f| f.done.load(Ordering::Relaxed).min(f.bytes)).sum()
    }

    /// Bytes of all files together, as they lie on disk.
    pub(super) fn bytes_total(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }
}

fn check(path: &Path) -> Result<u64> {
    if let Some(address) = address(path) {
        return match bytes_there(address)? {
            Some(0) => Err(empty(path)),
            bytes => Ok(bytes.unwrap_or(0)),
        };
    }
    let meta = fs::metadata(path).map_err(|e| cannot("open", path, e))?;
    if meta.is_dir() {
        return Err(Error::user(format!("{} is a folder, not a file", shown(path))));
    }
    if meta.is_file() && meta.len() == 0 {
        return Err(empty(path));
    }
    Ok(meta.len())
}
