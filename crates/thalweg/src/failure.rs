//! How a command ends when it does not end well.

use std::io::{self, Write};
use std::process::ExitCode;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use thalweg_base::Error;
use thalweg_engine::Notice;

pub type Outcome<T = ()> = Result<T, Failure>;

#[derive(Debug)]
pub enum Failure {
    Error(Error),
    /// Whoever read our output has left (`thalweg sql … | head`): nothing is wrong.
    PipeClosed,
}

impl Failure {
    /// Tells the user on stderr and picks the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::PipeClosed => ExitCode::SUCCESS,
            Failure::Error(error) => {
                print(&error);
                ExitCode::from(error.kind().exit_code())
            }
        }
    }
}

/// `error: …`, `detail: …`, `hint: …` on stderr.
pub fn print(error: &Error) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(io::stderr(), "error: {error:#}");
}

/// The same of what is no reason to stop.
pub fn warn(error: &Error) {
    let _ = writeln!(io::stderr(), "warning: {error:#}");
}

/// `notice: …` and `hint: …`, as a statement tells them beside its answer.
pub fn tell(notice: &Notice) {
    let _ = writeln!(io::stderr(), "{}: {}", notice.severity.name().to_lowercase(), notice.message);
    if let Some(hint) = &notice.hint {
        let _ = writeln!(io::stderr(), "hint: {hint}");
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::Error(Error::io("cannot write the output", error)),
        }
    }
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => error.into(),
            error => Error::unsupported(format!("cannot write the result in this format: {error}"))
                .hint("CAST the column to another type, or choose another --format")
                .into(),
        }
    }
}

impl From<ParquetError> for Failure {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(error) => (*error).into(),
                Err(inner) => Failure::from(ArrowError::ExternalError(inner)),
            },
            error => Failure::from(ArrowError::ParquetError(error.to_string())),
        }
    }
}
