//! Why a query has no plan.

use datafusion::common::DataFusionError;
use thalweg_base::Error;

/// Result of everything that binds.
pub type Result<T> = std::result::Result<T, Failure>;

#[derive(Debug)]
pub enum Failure {
    /// The query is wrong.
    Wrong(Error),
    /// DataFusion refuses a part of the plan or of an expression.
    Refused(Box<DataFusionError>),
    /// The binder has no rule for this construct yet.
    NotCovered(&'static str),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Wrong(e)
    }
}

impl From<DataFusionError> for Failure {
    fn from(e: DataFusionError) -> Self {
        match e {
            // One of ours that came through a traversal of DataFusion's.
            DataFusionError::External(inner) => match inner.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(other) => Failure::Refused(Box::new(DataFusionError::External(other))),
            },
            e => Failure::Refused(Box::new(e)),
        }
    }
}

/// An error of the statement's author, with PostgreSQL's code for it.
pub fn wrong<T>(code: &'static str, message: impl Into<String>) -> Result<T> {
    Err(Failure::Wrong(Error::user(message).code(code)))
}

pub fn not_covered<T>(what: &'static str) -> Result<T> {
    Err(Failure::NotCovered(what))
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Wrong(e) => write!(f, "{e}"),
            Failure::Refused(e) => write!(f, "{e}"),
            Failure::NotCovered(what) => write!(f, "{what} is not covered by the binder"),
        }
    }
}

impl std::error::Error for Failure {}
