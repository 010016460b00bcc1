//! Why a query has no plan.

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::Spanned;
use datafusion::sql::sqlparser::tokenizer::Location;
use thalweg_base::{Error, Place, Subject};

/// Result of everything that binds.
pub type Result<T> = std::result::Result<T, Failure>;

/// Line and character of the statement's text, both counted from 1.
pub type Start = (u32, u32);

#[derive(Debug)]
pub enum Failure {
    /// The query is wrong.
    Wrong(Error),
    /// DataFusion refuses a part of the plan or of an expression.
    Refused(Box<DataFusionError>, Option<Start>),
    /// The binder has no rule for this construct yet.
    NotCovered(&'static str, Option<Start>),
}

impl Failure {
    /// With the place where the text begins that it is about, unless one within that is known.
    pub(crate) fn within(self, start: Start) -> Failure {
        match self {
            Failure::Wrong(e) => Failure::Wrong(e.within(start.0, start.1)),
            Failure::Refused(e, known) => Failure::Refused(e, known.or(Some(start))),
            Failure::NotCovered(what, known) => Failure::NotCovered(what, known.or(Some(start))),
        }
    }
}

/// Failures get the place of what was bound. Whoever binds a part does so first: the innermost place stays.
pub(crate) trait Placed {
    /// Of an expression, a clause or an item of one.
    fn at(self, sql: &impl Spanned) -> Self;

    /// Of an operator, by what stands left of it.
    fn behind(self, left: &impl Spanned) -> Self;
}

impl<T> Placed for Result<T> {
    #[inline(always)]
    fn at(self, sql: &impl Spanned) -> Self {
        match self {
            Err(failure) => Err(match start(sql.span().start) {
                Some(start) => failure.within(start),
                None => failure,
            }),
            found => found,
        }
    }

    #[inline(always)]
    fn behind(self, left: &impl Spanned) -> Self {
        match self {
            Err(Failure::Wrong(e))
                if matches!(e.place(), Some(Place::Of(Subject::Operator(_)))) =>
            {
                Err(Failure::Wrong(match start(left.span().end) {
                    Some((line, column)) => e.within(line, column),
                    None => e,
                }))
            }
            other => other,
        }
    }
}

/// `None` if the text does not have it: a statement that was put together has no places.
fn start(at: Location) -> Option<Start> {
    let whole = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    (at.line > 0).then(|| (whole(at.line), whole(at.column)))
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
                Err(other) => Failure::Refused(Box::new(DataFusionError::External(other)), None),
            },
            e => Failure::Refused(Box::new(e), None),
        }
    }
}

/// An error of the statement's author, with PostgreSQL's code for it.
pub fn wrong<T>(code: &'static str, message: impl Into<String>) -> Result<T> {
    Err(Failure::Wrong(Error::user(message).code(code)))
}

pub fn not_covered<T>(what: &'static str) -> Result<T> {
    Err(Failure::NotCovered(what, None))
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Wrong(e) => write!(f, "{e}"),
            Failure::Refused(e, _) => write!(f, "{e}"),
            Failure::NotCovered(what, _) => write!(f, "{what} is not supported"),
        }
    }
}

impl std::error::Error for Failure {}
