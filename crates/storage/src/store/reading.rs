//! What all stores share in reading: which ranges go together, and what is wrong with an object.

use std::iter;
use std::ops::Range;

use thalweg_base::{Error, Result};

/// What buffers in memory are aligned to: a cache line, and above any Arrow need.
pub(crate) const ALIGNMENT: usize = 64;

/// Ascending ranges in groups that lie so near each other that one request should fetch them: each with
/// where it begins and ends, of no more than `bytes_max` unless it is a single range.
pub(super) fn near(
    wanted: &[Range<u64>],
    gap_bytes_max: u64,
    bytes_max: u64,
) -> impl Iterator<Item = (Range<u64>, &[Range<u64>])> {
    let mut rest = wanted;
    iter::from_fn(move || {
        let first = rest.first()?;
        let joined = rest.windows(2).take_while(|pair| {
            pair[1].start.saturating_sub(pair[0].end) <= gap_bytes_max
                && pair[1].end.saturating_sub(first.start) <= bytes_max
        });
        let (together, far) = rest.split_at(joined.count() + 1);
        rest = far;
        Some((first.start..together[together.len() - 1].end, together))
    })
}

/// Checks what a caller wants of an object of `bytes` bytes: ranges come from a catalog, which
/// may be damaged.
pub(super) fn check_ranges(located: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<()> {
    let ordered = wanted.windows(2).all(|pair| pair[0].end <= pair[1].start);
    let inside = wanted.iter().all(|r| r.start <= r.end && r.end <= bytes);
    if ordered && inside {
        return Ok(());
    }
    let detail = format!("asked for bytes {wanted:?} of {bytes}");
    Err(Error::corrupt(format!("the catalog does not fit {located}"))
        .detail(detail)
        .hint("restore the database from a backup"))
}

pub(super) fn check_length(located: &str, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::corrupt(format!("{located} has {found} bytes, and {expected} were written"))
        .hint("restore it from a backup, or DROP the table it belongs to"))
}

pub(super) fn missing(located: &str) -> Error {
    Error::corrupt(format!("extent file {located} is missing")).hint(
        "restore it from a backup, or DROP the table it belongs to; files of a database must not be removed by hand",
    )
}

/// Names of objects written in pieces are random: two of a kind are our mistake.
pub(super) fn taken(located: &str) -> Error {
    Error::internal(format!("{located} exists already"))
}
