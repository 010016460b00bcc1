//! Is the answer right? Compares our rows with another engine's, or with TPC-H's published ones.
//!
//! Integers, decimals, strings and dates must be equal. Floating-point numbers may differ by
//! rounding (`FLOAT_TOLERANCE`), and a decimal is compared with one of another scale, or with a
//! floating-point number, only as far as both have digits. Rows must come in the order that the
//! query asks for; among equal sort keys, and where it asks for none, any order is right.
//! Where a LIMIT or an OFFSET cuts through equal sort keys, any of the tied rows is right, and a
//! note says so.

mod cell;
mod order;
mod published;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

pub use cell::{Cell, Rows};
pub use order::Order;
pub use published::{against_published, published};

/// Relative difference allowed between two floating-point numbers: sums of doubles depend on
/// the order of their terms.
pub const FLOAT_TOLERANCE: f64 = 1e-9;

/// Two answers agree, and where that needed a tolerance, a note says which.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    pub rows: usize,
    pub notes: Vec<String>,
}

/// The first difference between two answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// From 1, in our answer; None where the answers differ as a whole.
    pub row: Option<usize>,
    pub column: Option<String>,
    pub ours: String,
    pub theirs: String,
    pub reason: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.row, &self.column) {
            (Some(row), Some(column)) => write!(f, "row {row}, column \"{column}\": ")?,
            (Some(row), None) => write!(f, "row {row}: ")?,
            (None, _) => {}
        }
        write!(f, "{}: ours {}, theirs {}", self.reason, self.ours, self.theirs)
    }
}

impl std::error::Error for Mismatch {}

/// Boxed: it is large, and rare.
pub type Verdict = Result<Agreement, Box<Mismatch>>;

/// Checks that two answers to one query agree; `Order::of_sql` tells what order it asks for.
pub fn compare(ours: &Rows, theirs: &Rows, order: &Order) -> Verdict {
    compare_with(ours, theirs, order, &[], &|_, a, b| a.agrees(b))
}

/// `agrees(column, ours, theirs)` decides for every value; in columns that are not `inexact` it
/// is `Cell::agrees`.
fn compare_with(
    ours: &Rows,
    theirs: &Rows,
    order: &Order,
    inexact: &[usize],
    agrees: &dyn Fn(usize, &Cell, &Cell) -> bool,
) -> Verdict {
    for (reason, a, b) in [
        ("number of columns", ours.columns.len(), theirs.columns.len()),
        ("number of rows", ours.rows.len(), theirs.rows.len()),
    ] {
        if a != b {
            return Err(Box::new(Mismatch {
                row: None,
                column: None,
                ours: a.to_string(),
                theirs: b.to_string(),
                reason: reason.to_string(),
            }));
        }
    }

    let mut exact = exact_columns(ours, theirs);
    for &column in inexact {
        exact[column] = false;
    }
    let comparison = Comparison { ours, theirs, agrees, exact };
    let rows = ours.rows.len();
    let mut agreement = Agreement { rows, notes: Vec::new() };
    let mut start = 0;
    while start < rows {
        let end = comparison.tied_until(start, &order.keys);
        for row in start..end {
            for &key in &order.keys {
                if !comparison.cell_agrees(row, row, key) {
                    return Err(comparison.mismatch(row, row, Some(key), "the sort key differs"));
                }
            }
        }
        match comparison.multiset(start, end) {
            Ok(()) => {}
            // Which of several tied rows a LIMIT lets through, or an OFFSET leaves out, is nobody's
            // mistake, provided that every key the query sorts by was there to be compared.
            Err(mismatch) if end == rows && order.complete && order.limit == Some(rows) => {
                agreement.notes.push(format!("a tie at the LIMIT, {mismatch}"));
            }
            Err(mismatch) if start == 0 && order.complete && order.offset > 0 => {
                agreement.notes.push(format!("a tie at the OFFSET, {mismatch}"));
            }
            Err(mismatch) => return Err(mismatch),
        }
        start = end;
    }
    Ok(agreement)
}

struct Comparison<'a> {
    ours: &'a Rows,
    theirs: &'a Rows,
    agrees: &'a dyn Fn(usize, &Cell, &Cell) -> bool,
    /// Columns where values agree only if their `Cell::key`s are equal.
    exact: Vec<bool>,
}

/// A column is exact if neither side has a floating-point number in it, and all its decimals
/// have one scale.
fn exact_columns(ours: &Rows, theirs: &Rows) -> Vec<bool> {
    (0..ours.columns.len())
        .map(|column| {
            let mut scale = None;
            ours.rows.iter().chain(&theirs.rows).all(|row| match row[column] {
                Cell::Float(_) => false,
                Cell::Decimal(_, s) => *scale.get_or_insert(s) == s,
                _ => true,
            })
        })
        .collect()
}

impl Comparison<'_> {
    fn cell_agrees(&self, our_row: usize, their_row: usize, column: usize) -> bool {
        (self.agrees)(
            column,
            &self.ours.rows[our_row][column],
            &self.theirs.rows[their_row][column],
        )
    }

    fn first_difference(&self, our_row: usize, their_row: usize) -> Option<usize> {
        (0..self.ours.columns.len()).find(|&c| !self.cell_agrees(our_row, their_row, c))
    }

    /// One past the last row that has the sort keys of `start`, on either side.
    fn tied_until(&self, start: usize, keys: &[usize]) -> usize {
        let tied = |rows: &[Vec<Cell>], row: usize| {
            keys.iter().all(|&key| rows[row - 1][key].agrees(&rows[row][key]))
        };
        let rows = self.ours.rows.len();
        (start + 1..rows)
            .find(|&row| !tied(&self.ours.rows, row) && !tied(&self.theirs.rows, row))
            .unwrap_or(rows)
    }

    /// Do the rows `start..end` agree in some order?
    ///
    /// Theirs are sorted into buckets by their exact columns, so that the search for a partner,
    /// which inexact columns need, is a short one: mostly the bucket has a single row.
    fn multiset(&self, start: usize, end: usize) -> Result<(), Box<Mismatch>> {
        if end - start == 1 {
            return match self.first_difference(start, start) {
                None => Ok(()),
                column => Err(self.mismatch(start, start, column, "the value differs")),
            };
        }
        let mut buckets: HashMap<String, Vec<usize>> = HashMap::new();
        for row in (start..end).rev() {
            buckets.entry(self.exact_key(&self.theirs.rows[row])).or_default().push(row);
        }
        for row in start..end {
            let found = buckets.get_mut(&self.exact_key(&self.ours.rows[row])).and_then(|bucket| {
                // From the back: there lie the first rows, and equal order is the common case.
                let at = bucket.iter().rposition(|&r| self.first_difference(row, r).is_none())?;
                Some(bucket.remove(at))
            });
            if found.is_none() {
                let left: Vec<usize> = buckets.into_values().flatten().collect();
                return Err(self.unmatched(row, &left));
            }
        }
        Ok(())
    }

    fn exact_key(&self, row: &[Cell]) -> String {
        let mut key = String::new();
        for (cell, _) in row.iter().zip(&self.exact).filter(|(_, exact)| **exact) {
            cell.write_key(&mut key);
        }
        key
    }

    /// Our `row` has no partner: shows it beside the row of theirs that comes closest.
    fn unmatched(&self, row: usize, left: &[usize]) -> Box<Mismatch> {
        let columns = self.ours.columns.len();
        let equal = |r: usize| (0..columns).filter(|&c| self.cell_agrees(row, r, c)).count();
        let closest = left.iter().copied().max_by_key(|&r| (equal(r), std::cmp::Reverse(r)));
        match closest {
            Some(r) if equal(r) > 0 => {
                self.mismatch(row, r, self.first_difference(row, r), "the closest row differs")
            }
            _ => Box::new(Mismatch {
                row: Some(row + 1),
                column: None,
                ours: self.ours.row_text(row),
                theirs: "no such row".to_string(),
                reason: "the row is only in our answer".to_string(),
            }),
        }
    }

    fn mismatch(
        &self,
        ours: usize,
        theirs: usize,
        column: Option<usize>,
        reason: &str,
    ) -> Box<Mismatch> {
        let text = |rows: &Rows, row: usize| match column {
            Some(column) => rows.rows[row][column].to_string(),
            None => rows.row_text(row),
        };
        Box::new(Mismatch {
            row: Some(ours + 1),
            column: column.map(|c| self.ours.columns[c].clone()),
            ours: text(self.ours, ours),
            theirs: text(self.theirs, theirs),
            reason: reason.to_string(),
        })
    }
}
