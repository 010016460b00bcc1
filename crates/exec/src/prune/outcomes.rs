//! What a predicate can come to, container by container.

use std::ops::{BitAnd, BitOr, Not};

use arrow::buffer::BooleanBuffer;

/// For each container, which of SQL's three truth values a predicate can have on one of its rows.
///
/// This is the abstract interpretation of three-valued logic: each operator maps what its operands
/// can be to what it can be. Every answer may be too wide, and a `yes` that is missing would lose
/// rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcomes {
    pub yes: BooleanBuffer,
    pub no: BooleanBuffer,
    pub null: BooleanBuffer,
}

impl Outcomes {
    /// Nothing is known.
    pub fn any(containers: usize) -> Self {
        let all = BooleanBuffer::new_set(containers);
        Outcomes { yes: all.clone(), no: all.clone(), null: all }
    }

    pub fn constant(value: Option<bool>, containers: usize) -> Self {
        let (all, none) =
            (BooleanBuffer::new_set(containers), BooleanBuffer::new_unset(containers));
        let of = |is: bool| if is { all.clone() } else { none.clone() };
        Outcomes {
            yes: of(value == Some(true)),
            no: of(value == Some(false)),
            null: of(value.is_none()),
        }
    }

    /// `IS UNKNOWN`.
    pub fn test_null(self) -> Self {
        let never = BooleanBuffer::new_unset(self.null.len());
        Outcomes { no: &self.yes | &self.no, yes: self.null, null: never }
    }

    /// `IS TRUE`.
    pub fn test_true(self) -> Self {
        let never = BooleanBuffer::new_unset(self.null.len());
        Outcomes { no: &self.no | &self.null, yes: self.yes, null: never }
    }

    /// One of the two, whichever.
    pub fn either(&self, other: &Outcomes) -> Self {
        Outcomes {
            yes: &self.yes | &other.yes,
            no: &self.no | &other.no,
            null: &self.null | &other.null,
        }
    }
}

impl Not for Outcomes {
    type Output = Outcomes;

    fn not(self) -> Outcomes {
        Outcomes { yes: self.no, no: self.yes, null: self.null }
    }
}

impl BitAnd for &Outcomes {
    type Output = Outcomes;

    fn bitand(self, other: &Outcomes) -> Outcomes {
        let passes = |o: &Outcomes| &o.yes | &o.null;
        Outcomes {
            yes: &self.yes & &other.yes,
            no: &self.no | &other.no,
            null: &(&self.null & &passes(other)) | &(&other.null & &passes(self)),
        }
    }
}

impl BitOr for &Outcomes {
    type Output = Outcomes;

    fn bitor(self, other: &Outcomes) -> Outcomes {
        let fails = |o: &Outcomes| &o.no | &o.null;
        Outcomes {
            yes: &self.yes | &other.yes,
            no: &self.no & &other.no,
            null: &(&self.null & &fails(other)) | &(&other.null & &fails(self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One container per set of outcomes, the empty set included.
    fn all_sets() -> Outcomes {
        let of = |bit: usize| BooleanBuffer::collect_bool(8, |set| set >> bit & 1 == 1);
        Outcomes { yes: of(0), no: of(1), null: of(2) }
    }

    fn values(outcomes: &Outcomes, i: usize) -> Vec<Option<bool>> {
        [(&outcomes.yes, Some(true)), (&outcomes.no, Some(false)), (&outcomes.null, None)]
            .into_iter()
            .filter(|(bits, _)| bits.value(i))
            .map(|(_, value)| value)
            .collect()
    }

    /// The outcome of an operator is what its operands' outcomes give, no less and no more.
    fn check(
        operator: impl Fn(&Outcomes, &Outcomes) -> Outcomes,
        rule: impl Fn(Option<bool>, Option<bool>) -> Option<bool>,
    ) {
        let sets = all_sets();
        for i in 0..8 {
            for j in 0..8 {
                let pick = |bits: &BooleanBuffer, at: usize| bits.slice(at, 1);
                let one = |at| Outcomes {
                    yes: pick(&sets.yes, at),
                    no: pick(&sets.no, at),
                    null: pick(&sets.null, at),
                };
                let got = values(&operator(&one(i), &one(j)), 0);
                for value in [Some(true), Some(false), None] {
                    let possible = values(&sets, i)
                        .iter()
                        .any(|a| values(&sets, j).iter().any(|b| rule(*a, *b) == value));
                    let operands = !values(&sets, i).is_empty() && !values(&sets, j).is_empty();
                    if operands {
                        assert_eq!(got.contains(&value), possible, "{i} {j} {value:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn connectives_follow_three_valued_logic() {
        check(
            |a, b| a & b,
            |a, b| match (a, b) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
        );
        check(
            |a, b| a | b,
            |a, b| match (a, b) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
        );
        check(|a, _| !a.clone(), |a, _| a.map(|a| !a));
        check(|a, _| a.clone().test_null(), |a, _| Some(a.is_none()));
        check(|a, _| a.clone().test_true(), |a, _| Some(a == Some(true)));
    }
}
