//! Where output goes.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};

use thalweg_base::{Error, Result, text};

use crate::failure::Outcome;

/// Output is flushed after every statement, so the buffer may be large.
const BUFFER_BYTES: usize = 256 * 1024;

pub enum Sink {
    Stdout(BufWriter<Stdout>),
    File {
        writer: BufWriter<File>,
        path: PathBuf,
        /// The name under which the file grows, until it is whole.
        partial: Option<PathBuf>,
    },
    #[cfg(test)]
    Memory(Vec<u8>),
}

impl Sink {
    pub fn stdout() -> Sink {
        Sink::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()))
    }

    /// A failed or cancelled command leaves an older file of this name as it was.
    pub fn file(path: &Path) -> Result<Sink> {
        let name = text::quoted(&path.to_string_lossy());
        let fail = |e| Error::io(format!("cannot write {name}"), e);
        // A device or a pipe cannot be replaced, only written to.
        let special = path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
        let partial = (!special).then(|| {
            let mut partial = path.as_os_str().to_owned();
            partial.push(format!(".partial-{}", std::process::id()));
            PathBuf::from(partial)
        });
        if path.is_dir() {
            return Err(Error::user(format!("cannot write {name}: it is a folder")));
        }
        let file = match &partial {
            Some(partial) => File::create(partial),
            None => File::options().write(true).open(path),
        };
        let writer = BufWriter::with_capacity(BUFFER_BYTES, file.map_err(fail)?);
        Ok(Sink::File { writer, path: path.to_owned(), partial })
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Sink::Stdout(_)) && io::stdout().is_terminal()
    }

    /// The file's name, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Sink::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The last byte is written: the file takes its name.
    pub fn finish(mut self) -> Outcome {
        self.flush()?;
        if let Sink::File { path, partial, .. } = &mut self
            && let Some(from) = partial.take()
        {
            std::fs::rename(&from, &path).map_err(|e| {
                Error::io(format!("cannot write {}", text::quoted(&path.to_string_lossy())), e)
            })?;
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Sink::File { partial: Some(partial), .. } = self {
            let _ = std::fs::remove_file(partial);
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stdout(writer) => writer.write(bytes),
            Sink::File { writer, .. } => writer.write(bytes),
            #[cfg(test)]
            Sink::Memory(buffer) => buffer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Stdout(writer) => writer.flush(),
            Sink::File { writer, .. } => writer.flush(),
            #[cfg(test)]
            Sink::Memory(_) => Ok(()),
        }
    }
}
