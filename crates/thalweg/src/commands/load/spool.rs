//! Input that can be read only once: standard input and pipes, such as a shell's `<(…)`.
//!
//! A load reads its files twice, to find out the columns and then for the rows, and from many
//! places at a time. What comes through a pipe is therefore written to a file first.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use thalweg_base::{Error, Result, text};

use super::targets::Target;

/// A folder of spooled input; gone when it is dropped.
pub struct Spool(PathBuf);

impl Drop for Spool {
    fn drop(&mut self) {
        // It lies where the system clears up after programs that do not.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Puts files in the place of pipes.
pub fn spool(targets: &mut [Target]) -> Result<Option<Spool>> {
    let mut spool: Option<Spool> = None;
    for file in targets.iter_mut().flat_map(|t| &mut t.files) {
        let from: Box<dyn Read> = match file.as_str() {
            "-" => Box::new(io::stdin()),
            path if is_pipe(Path::new(path)) => Box::new(
                File::open(path)
                    .map_err(|e| Error::io(format!("cannot open {}", text::quoted(path)), e))?,
            ),
            _ => continue,
        };
        let folder = match &spool {
            Some(spool) => spool.0.clone(),
            None => {
                let folder = std::env::temp_dir().join(format!("thalweg-{}", std::process::id()));
                fs::create_dir(&folder).map_err(|e| cannot(&folder, e))?;
                spool.insert(Spool(folder)).0.clone()
            }
        };
        let name = if file == "-" { "stdin" } else { file.trim_matches('/') };
        let path = folder.join(name.replace('/', "-"));
        copy(from, &path)?;
        *file = path.to_string_lossy().into_owned();
    }
    Ok(spool)
}

fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_fifo())
}

fn copy(mut from: Box<dyn Read>, path: &Path) -> Result<()> {
    let mut file = File::create_new(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Error::user("standard input can be loaded only once"),
        _ => cannot(path, e),
    })?;
    io::copy(&mut from, &mut file).map(drop).map_err(|e| cannot(path, e))
}

fn cannot(path: &Path, e: io::Error) -> Error {
    let path = text::quoted(&path.to_string_lossy());
    Error::io(format!("cannot keep the input in {path}"), e)
        .hint("TMPDIR names another folder; or write the input to a file and load that")
}
