//! Where the command keeps what is the user's and of no database.

use std::path::PathBuf;

/// A file in the folder of the XDG specification; `None`: the environment names no such folder.
pub fn path(file: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    // The specification: a relative path is to be ignored.
    let state = set("XDG_STATE_HOME").filter(|p| p.is_absolute());
    let state = state.or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("thalweg").join(file))
}
