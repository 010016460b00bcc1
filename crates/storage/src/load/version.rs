//! Which version of a file is read.

use std::path::Path;
use std::time::UNIX_EPOCH;

use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use super::source::{address, version_there};
use crate::catalog::LoadedFile;

/// The [`stamp`] of a file that is to be read.
pub fn version(path: &Path) -> Result<LoadedFile> {
    if let Some(address) = address(path) {
        let (path, bytes, modified_ns) = version_there(address)?;
        return Ok(LoadedFile { path, bytes, modified_ns });
    }
    let failed = |e| Error::io(format!("cannot open {}", quoted(&path.to_string_lossy())), e);
    stamp(path).map_err(failed)
}

/// What a file is remembered by: its path without links, and its version.
pub fn stamp(path: &Path) -> std::io::Result<LoadedFile> {
    let meta = path.metadata()?;
    let modified = meta.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(LoadedFile {
        path: path.canonicalize()?.to_string_lossy().into_owned(),
        bytes: meta.len(),
        modified_ns: modified.as_nanos() as u64,
    })
}
