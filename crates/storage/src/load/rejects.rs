//! What is wrong in the input, and whether the load goes on.
//!
//! Workers meet bad rows in no particular order, yet what is reported must not depend on who was
//! faster. So every fault has a [`Position`], and one position is *decisive*: that of the first
//! fault that ends the load (the one bad row too many, or a file that cannot be read on). What
//! lies behind it is not read any more; what lies before it is read to its end, and may move it
//! further to the front. When no work is left, it is the same for any number of workers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_base::limits::LOAD_REJECT_BYTES_MAX;
use thalweg_base::{Error, Result, text};

use super::input::shown;

/// A place in the input, ordered as the files were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub file: usize,
    /// Line of a text file, row of another, from 1; 0 for the file as a whole.
    pub line: u64,
}

/// How a place within a file is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Line,
    Row,
}

/// A row that is not loaded, and why.
#[derive(Clone, Debug)]
pub struct Reject {
    pub path: Arc<PathBuf>,
    /// Where the row begins: the line of a text file, or the row of another, from 1.
    pub line: u64,
    pub column: Option<String>,
    pub value: Option<String>,
    /// One clause, such as `"x" is not a valid BIGINT`.
    pub reason: String,
    /// The row as it stands in the file; of Parquet and Arrow the value is all there is.
    pub record: String,
    pub(super) unit: Unit,
    pub(super) detail: Option<String>,
    pub(super) hint: String,
}

impl Reject {
    /// `"x.csv", line 3, column "a": "q" is not a valid BIGINT`
    pub fn message(&self) -> String {
        let unit = match self.unit {
            Unit::Line => "line",
            Unit::Row => "row",
        };
        let column = self.column.as_ref().map(|c| format!(", column {}", text::quoted(c)));
        let column = column.unwrap_or_default();
        format!("{}, {unit} {}{column}: {}", shown(&self.path), self.line, self.reason)
    }

    fn error(&self) -> Error {
        let error = Error::user(self.message()).hint(&self.hint);
        match &self.detail {
            Some(detail) => error.detail(detail),
            None => error,
        }
    }

    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, String::len);
        size_of::<Reject>() + value + self.reason.len() + self.record.len()
    }
}

/// Rejected rows named by the error of a load that has too many of them.
const NAMED: usize = 5;

/// All faults of one input, shared by its workers.
pub(super) struct Faults {
    /// Bad rows that are put aside before the load fails.
    rejects_max: u64,
    /// Bad rows are only counted.
    ignoring: bool,
    rejected: AtomicU64,
    decided: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first `rejects_max + 1` of those found.
    rejects: BTreeMap<Position, Reject>,
    bytes: usize,
    fatal: Option<(Position, Error)>,
}

impl Faults {
    pub(super) fn new(rejects_max: u64) -> Faults {
        Faults {
            rejects_max,
            ignoring: false,
            rejected: AtomicU64::new(0),
            decided: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Leaves bad rows out without end, and without keeping them.
    pub(super) fn ignoring(mut self, so: bool) -> Faults {
        self.ignoring = so;
        if so {
            self.rejects_max = u64::MAX;
        }
        self
    }

    /// Rows put aside so far.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed).min(self.rejects_max)
    }

    pub(super) fn failed(&self) -> bool {
        self.decided.load(Ordering::Acquire)
    }

    pub(super) fn reject(&self, position: Position, reject: Reject) {
        if self.ignoring {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut state = self.state.lock();
        state.bytes += reject.bytes();
        if state.rejects.insert(position, reject).is_none() {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        if state.rejects.len() as u64 > self.rejects_max.saturating_add(1)
            && let Some((_, last)) = state.rejects.pop_last()
        {
            state.bytes -= last.bytes();
        }
        if state.rejects.len() as u64 > self.rejects_max {
            self.decided.store(true, Ordering::Release);
        }
        if state.bytes > LOAD_REJECT_BYTES_MAX {
            let error = Error::user(format!(
                "the rejected rows take more than {}",
                text::bytes(LOAD_REJECT_BYTES_MAX as u64)
            ))
            .hint("so many bad rows are a wrong type, delimiter or NULL spelling: look at the first ones");
            self.fatal_in(&mut state, position, error);
        }
    }

    /// A fault after which its file cannot be read on.
    pub(super) fn fatal(&self, position: Position, error: Error) {
        self.fatal_in(&mut self.state.lock(), position, error);
    }

    fn fatal_in(&self, state: &mut State, position: Position, error: Error) {
        if state.fatal.as_ref().is_none_or(|(first, _)| position < *first) {
            state.fatal = Some((position, error));
        }
        self.decided.store(true, Ordering::Release);
    }

    /// Whether what lies at `position` can no longer change the outcome.
    #[inline]
    pub(super) fn settled(&self, position: Position) -> bool {
        self.decided.load(Ordering::Acquire)
            && self.state.lock().decisive(self.rejects_max).is_some_and(|d| position > d)
    }

    /// The rows put aside, in order, or the error that ends the load; all work must be done.
    pub(super) fn outcome(&self) -> (Vec<Arc<Reject>>, Result<()>) {
        let mut state = self.state.lock();
        let decisive = state.decisive(self.rejects_max);
        let fatal = state.fatal.take().filter(|(at, _)| Some(*at) == decisive);
        let rejects = std::mem::take(&mut state.rejects).into_iter();
        let rejects: Vec<Arc<Reject>> = rejects
            .filter(|(at, _)| decisive.is_none_or(|decisive| *at <= decisive))
            .map(|(_, reject)| Arc::new(reject))
            .collect();
        let result = match (fatal, decisive) {
            (Some((_, error)), _) => Err(error),
            (None, Some(_)) => Err(self.too_many(&rejects)),
            (None, None) => Ok(()),
        };
        (rejects, result)
    }

    fn too_many(&self, rejects: &[Arc<Reject>]) -> Error {
        match rejects {
            [] => Error::internal("a load without bad rows failed for them"),
            [only] if self.rejects_max == 0 => only.error(),
            [first, ..] => {
                let named: Vec<String> = rejects.iter().take(NAMED).map(|r| r.message()).collect();
                Error::user(format!(
                    "more than {} bad rows; nothing was loaded",
                    text::count(self.rejects_max)
                ))
                .detail(format!("the first are\n  {}", named.join("\n  ")))
                .hint(&first.hint)
            }
        }
    }
}

impl State {
    fn decisive(&self, rejects_max: u64) -> Option<Position> {
        let too_many = (self.rejects.len() as u64 > rejects_max)
            .then(|| self.rejects.last_key_value().map(|(at, _)| *at))
            .flatten();
        let fatal = self.fatal.as_ref().map(|(at, _)| *at);
        [too_many, fatal].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: usize, line: u64) -> Position {
        Position { file, line }
    }

    fn reject(line: u64) -> Reject {
        Reject {
            path: Arc::new("x.csv".into()),
            line,
            column: Some("a".into()),
            value: Some("q".into()),
            reason: "\"q\" is not a valid BIGINT".into(),
            record: "q".into(),
            unit: Unit::Line,
            detail: None,
            hint: "mend it".into(),
        }
    }

    /// Faults in any order of arrival lead to the same outcome.
    #[test]
    fn the_first_faults_decide() {
        let places = [at(0, 9), at(0, 3), at(2, 1), at(1, 7), at(1, 2)];
        for turn in 0..places.len() {
            for (rejects_max, lines) in [(0, vec![3]), (1, vec![3, 9]), (2, vec![3, 9, 2])] {
                let faults = Faults::new(rejects_max);
                for step in 0..places.len() {
                    let place = places[(turn + step) % places.len()];
                    faults.reject(place, reject(place.line));
                }
                let last = lines[lines.len() - 1];
                assert!(faults.settled(at(2, 2)));
                assert!(!faults.settled(at(0, last.min(3))));
                assert_eq!(faults.rejected(), rejects_max);
                let (rejects, result) = faults.outcome();
                assert_eq!(rejects.iter().map(|r| r.line).collect::<Vec<_>>(), lines);
                let message = format!("{:#}", result.unwrap_err());
                assert!(message.contains("\"x.csv\", line 3, column \"a\": \"q\""), "{message}");
            }
            let faults = Faults::new(5);
            for step in 0..places.len() {
                let place = places[(turn + step) % places.len()];
                faults.reject(place, reject(place.line));
            }
            let (rejects, result) = faults.outcome();
            assert_eq!((rejects.len(), result.is_ok()), (5, true));
        }
    }

    #[test]
    fn what_cannot_be_read_counts_where_it_is() {
        let unreadable = || Error::user("cut short");
        // Too many bad rows before it.
        let faults = Faults::new(1);
        faults.fatal(at(1, 5), unreadable());
        faults.reject(at(0, 1), reject(1));
        assert!(!faults.settled(at(1, 4)) && faults.settled(at(1, 6)));
        faults.reject(at(1, 2), reject(2));
        assert!(faults.settled(at(1, 4)));
        let (rejects, result) = faults.outcome();
        assert_eq!(rejects.len(), 2);
        assert!(result.unwrap_err().message().contains("more than 1 bad rows"));
        // Too many only behind it.
        let faults = Faults::new(1);
        faults.reject(at(2, 1), reject(1));
        faults.reject(at(2, 2), reject(2));
        faults.fatal(at(1, 5), unreadable());
        let (rejects, result) = faults.outcome();
        assert_eq!(rejects.len(), 0);
        assert_eq!(result.unwrap_err().message(), "cut short");
    }
}
