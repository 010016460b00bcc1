//! Grouping sets: which of them are computed from the groups of which others.

/// The columns of a grouping set, by number.
pub type Set = Vec<usize>;

/// One grouping.
#[derive(Debug, PartialEq, Eq)]
pub struct Level {
    pub set: Set,
    /// The level whose groups it groups; `None`: rows.
    pub of: Option<usize>,
}

/// Levels in an order in which they can be computed, and for each set which of them has its groups.
/// Only the first groups rows, by all columns that any set has; the others group what a level before
/// them has found, that with the fewest columns.
pub fn levels(sets: &[Set]) -> (Vec<Level>, Vec<usize>) {
    let mut all: Set = sets.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let mut wanted: Vec<&Set> = sets.iter().filter(|&set| *set != all).collect();
    wanted.sort_by_key(|set| (std::cmp::Reverse(set.len()), set.to_vec()));
    wanted.dedup();
    let mut levels = vec![Level { set: all, of: None }];
    for set in wanted {
        let finer = |&n: &usize| set.iter().all(|c| levels[n].set.contains(c));
        let of = (0..levels.len()).filter(finer).min_by_key(|&n| levels[n].set.len());
        levels.push(Level { set: set.clone(), of });
    }
    let place = |set: &Set| levels.iter().position(|l| l.set == *set).unwrap_or(0);
    let places = sets.iter().map(place).collect();
    (levels, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sets: &[&[usize]]) -> (Vec<(Set, Option<usize>)>, Vec<usize>) {
        let sets: Vec<Set> = sets.iter().map(|set| set.to_vec()).collect();
        let (levels, places) = levels(&sets);
        (levels.into_iter().map(|l| (l.set, l.of)).collect(), places)
    }

    #[test]
    fn a_rollup_is_a_chain() {
        let (levels, places) = of(&[&[0, 1, 2], &[0, 1], &[0], &[]]);
        let chain =
            [(vec![0, 1, 2], None), (vec![0, 1], Some(0)), (vec![0], Some(1)), (vec![], Some(2))];
        assert_eq!(levels, chain);
        assert_eq!(places, [0, 1, 2, 3]);
    }

    #[test]
    fn sets_without_a_finer_one_have_it_made() {
        let (levels, places) = of(&[&[0], &[1], &[0]]);
        assert_eq!(levels, [(vec![0, 1], None), (vec![0], Some(0)), (vec![1], Some(0))]);
        assert_eq!(places, [1, 2, 1]);
        assert_eq!(of(&[&[], &[]]), (vec![(vec![], None)], vec![0, 0]));
    }
}
