//! Predicates over statistics: what they are made of, and what they can come to.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Datum, Scalar, make_comparator};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::{eq, lt, lt_eq};
use arrow::compute::{CastOptions, SortOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use thalweg_storage::ChunkStatistics;

use super::domain::Domain;
use super::outcomes::Outcomes;

/// What is known of a list of containers: the chunks of an extent, or extents as a whole.
pub trait Containers {
    fn len(&self) -> usize;

    /// Bounds and counts of a column, one element per container.
    fn statistics(&self, column: usize) -> Arc<ChunkStatistics>;

    /// Whether container `at` may hold a value with this hash ([`thalweg_storage::value_hashes`])
    /// in `column`. `false` must be certain.
    fn may_hold(&self, column: usize, at: usize, hash: u64) -> bool;
}

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At bounds and counts alone.
    Bounds,
    /// At [`Containers::may_hold`] as well.
    Values,
}

/// A filter as far as statistics can say something about it.
#[derive(Debug)]
pub enum Predicate {
    /// Anything may come of it.
    Unknown,
    Constant(Option<bool>),
    Not(Box<Predicate>),
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
    /// One of them; which, is not known.
    Either(Vec<Predicate>),
    IsTrue(Box<Predicate>),
    IsUnknown(Box<Predicate>),
    IsNull(Term),
    Less {
        left: Operand,
        right: Operand,
        or_equal: bool,
    },
    Equal {
        left: Operand,
        right: Operand,
    },
    Member(Member),
    Domain(Domain),
}

/// A column, and casts of it that keep its order.
#[derive(Clone, Debug)]
pub struct Term {
    pub column: usize,
    pub casts: Vec<DataType>,
}

#[derive(Clone, Debug)]
pub enum Operand {
    Term(Term),
    /// Not NULL.
    Value(Scalar<ArrayRef>),
}

/// `term = value`, `term IN (values)`.
#[derive(Debug)]
pub struct Member {
    pub term: Term,
    /// Ascending, each once, none NULL, of the term's type.
    pub values: ArrayRef,
    /// Of `values`, where the term is a bare column of a type that has hashes.
    pub hashes: Option<Vec<u64>>,
    /// Whether the list has a NULL, too.
    pub null: bool,
}

/// One question about some containers.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    pub containers: &'a dyn Containers,
    pub look: Look,
    /// Containers not asked about: their answer may be anything.
    pub asked: &'a BooleanBuffer,
}

impl Predicate {
    pub fn outcomes(&self, question: Question<'_>) -> Outcomes {
        let containers = question.containers.len();
        let fold = |parts: &[Predicate], start: Outcomes, join: fn(&Outcomes, &Outcomes) -> _| {
            parts.iter().fold(start, |all, part| join(&all, &part.outcomes(question)))
        };
        match self {
            Predicate::Unknown => Outcomes::any(containers),
            Predicate::Constant(value) => Outcomes::constant(*value, containers),
            Predicate::Not(inner) => !inner.outcomes(question),
            Predicate::And(parts) => {
                fold(parts, Outcomes::constant(Some(true), containers), |a, b| a & b)
            }
            Predicate::Or(parts) => {
                fold(parts, Outcomes::constant(Some(false), containers), |a, b| a | b)
            }
            Predicate::Either(parts) => match parts.split_first() {
                Some((first, rest)) => fold(rest, first.outcomes(question), |a, b| a.either(b)),
                None => Outcomes::any(containers),
            },
            Predicate::IsTrue(inner) => inner.outcomes(question).test_true(),
            Predicate::IsUnknown(inner) => inner.outcomes(question).test_null(),
            Predicate::IsNull(term) => {
                let range = Range::of(&Operand::Term(term.clone()), question.containers);
                let never = BooleanBuffer::new_unset(containers);
                Outcomes { yes: range.null, no: range.value, null: never }
            }
            Predicate::Less { left, right, or_equal } => {
                let left = Range::of(left, question.containers);
                let right = Range::of(right, question.containers);
                let kernels: (Kernel, Kernel) = if *or_equal { (lt_eq, lt) } else { (lt, lt_eq) };
                let (least, most) = kernels;
                let both = &left.value & &right.value;
                Outcomes {
                    yes: &both & &possible(left.low.against(&right.high, least), containers),
                    no: &both & &possible(right.low.against(&left.high, most), containers),
                    null: &left.null | &right.null,
                }
            }
            Predicate::Equal { left, right } => {
                let left = Range::of(left, question.containers);
                let right = Range::of(right, question.containers);
                left.equals(&right, containers)
            }
            Predicate::Member(member) => member.outcomes(question),
            Predicate::Domain(domain) => domain.outcomes(question.containers),
        }
    }

    /// The columns of which [`Look::Values`] may say more than the bounds.
    pub fn hashed_columns(&self) -> Vec<usize> {
        let mut columns = vec![];
        self.collect_hashed(&mut columns);
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    fn collect_hashed(&self, columns: &mut Vec<usize>) {
        match self {
            Predicate::Not(inner) | Predicate::IsTrue(inner) | Predicate::IsUnknown(inner) => {
                inner.collect_hashed(columns);
            }
            Predicate::And(parts) | Predicate::Or(parts) | Predicate::Either(parts) => {
                parts.iter().for_each(|part| part.collect_hashed(columns));
            }
            Predicate::Member(Member { term, hashes: Some(_), .. }) => columns.push(term.column),
            _ => {}
        }
    }
}

impl Member {
    fn outcomes(&self, question: Question<'_>) -> Outcomes {
        let containers = question.containers.len();
        let range = Range::of(&Operand::Term(self.term.clone()), question.containers);
        let mut outcomes = match self.values.len() {
            0 => Outcomes::constant(Some(false), containers),
            1 => range
                .equals(&Range::value(&Scalar::new(self.values.clone()), containers), containers),
            _ => self.among(&range, containers),
        };
        if let (Look::Values, Some(hashes)) = (question.look, &self.hashes) {
            let asked = &outcomes.yes & question.asked;
            let mut within = self.within(&range, containers);
            let yes = BooleanBuffer::collect_bool(containers, |i| {
                asked.value(i)
                    && within(i)
                        .any(|v| question.containers.may_hold(self.term.column, i, hashes[v]))
            });
            outcomes.yes = yes;
        }
        outcomes.yes = &outcomes.yes & &range.value;
        outcomes.no = &outcomes.no & &range.value;
        outcomes.null = range.null;
        if self.null {
            // Not to be found in a list with a NULL is neither yes nor no.
            outcomes.null = &outcomes.null | &outcomes.no;
            outcomes.no = BooleanBuffer::new_unset(containers);
        }
        outcomes
    }

    fn among(&self, range: &Range, containers: usize) -> Outcomes {
        let mut within = self.within(range, containers);
        let yes = BooleanBuffer::collect_bool(containers, |i| !within(i).is_empty());
        // A chunk of one value, which is listed, has no other.
        let single = certain(range.low.against(&range.high, eq), containers);
        Outcomes { no: !&(&yes & &single), yes, null: BooleanBuffer::new_unset(containers) }
    }

    /// Of each container, the positions of the values that lie within its bounds.
    fn within<'a>(
        &'a self,
        range: &'a Range,
        containers: usize,
    ) -> impl FnMut(usize) -> std::ops::Range<usize> + 'a {
        let order = SortOptions::default();
        let compare = |bound: &'a Bound| match bound {
            Bound::Each(bounds) if bounds.len() == containers => {
                let compare = make_comparator(&self.values, bounds, order).ok()?;
                Some((bounds, compare))
            }
            _ => None,
        };
        let (low, high) = (compare(&range.low), compare(&range.high));
        let len = self.values.len();
        move |i| {
            let from = match &low {
                Some((bounds, compare)) if bounds.is_valid(i) => {
                    partition_point(len, |v| compare(v, i).is_lt())
                }
                _ => 0,
            };
            let to = match &high {
                Some((bounds, compare)) if bounds.is_valid(i) => {
                    partition_point(len, |v| compare(v, i).is_le())
                }
                _ => len,
            };
            from..to.max(from)
        }
    }
}

/// The first of `0..len` for which `before` is false; it must be true of all that come earlier.
fn partition_point(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Where the values of an operand lie, and whether it may be NULL or not NULL.
struct Range {
    low: Bound,
    high: Bound,
    null: BooleanBuffer,
    value: BooleanBuffer,
}

enum Bound {
    /// Of each container; NULL: unknown.
    Each(ArrayRef),
    Same(Scalar<ArrayRef>),
    Unknown,
}

type Kernel = fn(&dyn Datum, &dyn Datum) -> Result<BooleanArray, ArrowError>;

impl Range {
    fn of(operand: &Operand, containers: &dyn Containers) -> Self {
        let term = match operand {
            Operand::Value(value) => return Range::value(value, containers.len()),
            Operand::Term(term) => term,
        };
        let statistics = containers.statistics(term.column);
        let (rows, nulls) = (statistics.rows.values(), statistics.nulls.values());
        Range {
            low: Bound::Each(statistics.mins.clone()).cast(&term.casts),
            high: Bound::Each(statistics.maxs.clone()).cast(&term.casts),
            null: BooleanBuffer::collect_bool(rows.len(), |i| nulls[i] > 0),
            value: BooleanBuffer::collect_bool(rows.len(), |i| nulls[i] < rows[i]),
        }
    }

    fn value(value: &Scalar<ArrayRef>, containers: usize) -> Self {
        Range {
            low: Bound::Same(value.clone()),
            high: Bound::Same(value.clone()),
            null: BooleanBuffer::new_unset(containers),
            value: BooleanBuffer::new_set(containers),
        }
    }

    fn equals(&self, other: &Range, containers: usize) -> Outcomes {
        let both = &self.value & &other.value;
        let meet = &possible(self.low.against(&other.high, lt_eq), containers)
            & &possible(other.low.against(&self.high, lt_eq), containers);
        let same = &(&certain(self.low.against(&self.high, eq), containers)
            & &certain(other.low.against(&other.high, eq), containers))
            & &certain(self.low.against(&other.low, eq), containers);
        Outcomes { yes: &both & &meet, no: &both & &!&same, null: &self.null | &other.null }
    }
}

impl Bound {
    fn cast(self, casts: &[DataType]) -> Self {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        casts.iter().fold(self, |bound, to| match bound {
            // A bound that does not fit says nothing; then none of them does.
            Bound::Each(bounds) => {
                cast_with_options(&bounds, to, &options).map_or(Bound::Unknown, Bound::Each)
            }
            other => other,
        })
    }

    /// Compares container by container; `None`: unknown for all.
    fn against(&self, other: &Bound, kernel: Kernel) -> Option<BooleanArray> {
        let datum = |bound: &Bound| -> Option<Box<dyn Datum>> {
            match bound {
                Bound::Each(bounds) => Some(Box::new(bounds.clone())),
                Bound::Same(value) => Some(Box::new(value.clone())),
                Bound::Unknown => None,
            }
        };
        // Types that do not compare say nothing either.
        kernel(&*datum(self)?, &*datum(other)?).ok()
    }
}

/// What is not known to be false.
fn possible(result: Option<BooleanArray>, containers: usize) -> BooleanBuffer {
    match spread(result, containers) {
        Some(array) => match array.nulls() {
            Some(nulls) => array.values() | &!nulls.inner(),
            None => array.values().clone(),
        },
        None => BooleanBuffer::new_set(containers),
    }
}

/// What is known to be true.
fn certain(result: Option<BooleanArray>, containers: usize) -> BooleanBuffer {
    match spread(result, containers) {
        Some(array) => match array.nulls() {
            Some(nulls) => array.values() & nulls.inner(),
            None => array.values().clone(),
        },
        None => BooleanBuffer::new_unset(containers),
    }
}

/// Two values that are the same for all containers compare to one answer for all.
fn spread(result: Option<BooleanArray>, containers: usize) -> Option<BooleanArray> {
    let array = result?;
    if array.len() == containers {
        return Some(array);
    }
    let one = (array.len() == 1 && array.is_valid(0)).then(|| array.value(0))?;
    Some(BooleanArray::new(BooleanBuffer::collect_bool(containers, |_| one), None))
}
