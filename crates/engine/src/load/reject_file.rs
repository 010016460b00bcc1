//! The rows that a load left out, as a CSV file.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::load::Reject;

use thalweg_errors::from_datafusion;
use thalweg_runtime::blocking;

/// Writes `rejects` to `path`, if there is one; also when there are none, so that the file always
/// tells of the last load. It appears whole, or not at all.
pub(super) async fn write(path: Option<&Path>, rejects: Vec<Arc<Reject>>) -> Result<()> {
    let Some(path) = path.map(Path::to_owned) else { return Ok(()) };
    blocking(move || {
        put(&path, &rejects).map_err(|e| {
            Error::io(
                format!("cannot write the rejected rows to {}", quoted(&path.to_string_lossy())),
                e,
            )
            .hint("name another file with --rejects; nothing was loaded")
        })
    })
    .await
    .map_err(from_datafusion)
}

fn put(path: &Path, rejects: &[Arc<Reject>]) -> std::io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = (|| {
        let mut file = BufWriter::new(File::create(&partial)?);
        writeln!(file, "file,line,column,value,reason,record")?;
        for reject in rejects {
            let fields = [
                Some(&*reject.path.to_string_lossy()),
                Some(&*reject.line.to_string()),
                reject.column.as_deref(),
                reject.value.as_deref(),
                Some(&reject.reason),
                Some(&reject.record),
            ]
            .map(field);
            writeln!(file, "{}", fields.join(","))?;
        }
        file.into_inner()?.sync_all()?;
        fs::rename(&partial, path)
    })();
    if written.is_err() {
        // What is left of it helps nobody.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// NULL is an empty field, the empty string a quoted one.
fn field(value: Option<&str>) -> String {
    match value {
        None => String::new(),
        Some(v) if v.is_empty() || v.contains(['"', ',', '\n', '\r']) => {
            format!("\"{}\"", v.replace('"', "\"\""))
        }
        Some(v) => v.to_owned(),
    }
}
