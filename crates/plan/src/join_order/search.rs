//! In which order, and with which side built, are these relations joined?
//!
//! A pure core: numbers in, a [`Tree`] out, no plan and no schema. Up to
//! `JOIN_ORDER_DP_RELATIONS_MAX` relations every bushy tree without needless cross products
//! is considered by dynamic programming over subsets (DPsub; Vance and Maier, SIGMOD 1996;
//! Moerkotte and Neumann, VLDB 2006). Beyond, the cheaper of two greedy trees is taken: the
//! pair with the least result first (GOO; Fegaras, 1998), and a left-deep one that starts at
//! the largest relation and always adds the relation that leaves the fewest rows, which is how
//! a star is best joined.
//!
//! # Cost
//!
//! The sum over all joins of what is built, probed and put out, in rows (C_out of Cluet and
//! Moerkotte, ICDT 1995, with the sides weighed). Reading the relations costs the same in
//! every order and is left out.
//!
//! # Rows
//!
//! The rows of a set of relations are the same however they are joined, hence computed per
//! set: relation by relation, in the order of their indices, each multiplied by the share its
//! join with those before keeps.
//!
//! * Columns that are all equal form one [`Class`]. The share is `1 / max` of the distinct
//!   values of the newcomer and of the least of those before it. A class counts once per
//!   relation, so an implied equality (`a = b`, `b = c`, `a = c`) is not counted twice.
//! * Several classes at once are a composite key. Their distinct values multiply, but no
//!   further than the rows of one table; if a table is known to be unique in them, they are its
//!   rows. Where both products had to be held back this way, either side may be the key that
//!   the other refers to, and nothing in single-column statistics tells which: the geometric
//!   mean of both is taken.

use std::cmp::Ordering;

use thalweg_base::limits::JOIN_ORDER_DP_RELATIONS_MAX;

/// Relations of one search: a set of them is a `u64`.
pub const RELATIONS_MAX: usize = 64;

/// Inserting a row into a hash table against looking one up: hashing and comparing are the
/// same, but the row is also copied into the table and the chain is written at random.
const BUILD_COST: f64 = 2.0;
const PROBE_COST: f64 = 1.0;
/// A row gathered from both sides.
const OUTPUT_COST: f64 = 0.5;
/// A pair of rows compared by a nested loop. Vectorised, hence far cheaper than a lookup.
const PAIR_COST: f64 = 0.1;

/// A set of relations, by index.
pub type Set = u64;

#[derive(Clone, Debug)]
pub struct Relation {
    /// Rows after the relation's own filters.
    pub rows: f64,
    /// Rows its columns' distinct values refer to.
    pub base_rows: f64,
    /// It cannot have more than one row: a cross product with it is harmless.
    pub single_row: bool,
    /// Sets of classes (bits of class indices, of the first 64) in which it is unique.
    pub keys: Vec<u64>,
}

/// Columns, at most one per relation, that the query makes equal.
#[derive(Clone, Debug)]
pub struct Class {
    /// Relation and the distinct values of its column.
    pub members: Vec<(usize, f64)>,
}

impl Class {
    fn set(&self) -> Set {
        self.members.iter().fold(0, |set, &(r, _)| set | 1 << r)
    }

    fn least_distinct(&self, of: Set) -> Option<f64> {
        let in_set = self.members.iter().filter(|(r, _)| of >> r & 1 == 1);
        in_set.map(|&(_, d)| d).min_by(f64::total_cmp)
    }
}

/// A condition over several relations that is no equality of two columns.
#[derive(Clone, Debug)]
pub struct Condition {
    pub set: Set,
    pub share: f64,
    /// An equality of expressions, each over its own set: usable as a hash-join key.
    pub sides: Option<(Set, Set)>,
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub relations: Vec<Relation>,
    pub classes: Vec<Class>,
    pub conditions: Vec<Condition>,
}

/// The first input of a join is the one built.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    Relation(usize),
    Join(Box<Tree>, Box<Tree>),
}

impl Tree {
    pub fn set(&self) -> Set {
        match self {
            Tree::Relation(r) => 1 << r,
            Tree::Join(l, r) => l.set() | r.set(),
        }
    }

    fn join(build: Tree, probe: Tree) -> Tree {
        Tree::Join(Box::new(build), Box::new(probe))
    }
}

/// The cheapest tree found, and its cost.
///
/// Deterministic: of equal costs the first wins, in the order of the relations' indices.
pub fn search(graph: &Graph) -> (Tree, f64) {
    assert!(!graph.relations.is_empty() && graph.relations.len() <= RELATIONS_MAX);
    let search = Search::new(graph);
    if graph.relations.len() <= JOIN_ORDER_DP_RELATIONS_MAX {
        let (tree, cost) = search.exhaustive();
        // Keys over several relations can leave a connected graph without a plan that avoids
        // cross products; the greedy search allows them.
        if let Some(tree) = tree {
            return (tree, cost);
        }
    }
    let pairs = search.greedy_pairs();
    let star = search.greedy_star();
    if star.1 < pairs.1 { star } else { pairs }
}

/// The cost of joining as `tree` says.
pub fn cost(graph: &Graph, tree: &Tree) -> f64 {
    Search::new(graph).tree(tree).0
}

/// Rows of the join of all relations in `set`.
pub fn rows(graph: &Graph, set: Set) -> f64 {
    Search::new(graph).rows(set).max(1.0)
}

struct Search<'a> {
    graph: &'a Graph,
    /// Per relation: those it has a class in common with.
    neighbours: Vec<Set>,
    /// Per relation: the indices of its classes.
    classes: Vec<Vec<usize>>,
    class_sets: Vec<Set>,
    /// Connected parts of the graph.
    components: Vec<Set>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Self {
        let n = graph.relations.len();
        let class_sets: Vec<Set> = graph.classes.iter().map(Class::set).collect();
        let mut neighbours = vec![0; n];
        let mut classes = vec![Vec::new(); n];
        for (c, class) in graph.classes.iter().enumerate() {
            for &(r, _) in &class.members {
                neighbours[r] |= class_sets[c] & !(1 << r);
                classes[r].push(c);
            }
        }
        let mut search = Search { graph, neighbours, classes, class_sets, components: Vec::new() };
        let mut rest = full(n);
        while rest != 0 {
            let component = search.component(rest & rest.wrapping_neg());
            search.components.push(component);
            rest &= !component;
        }
        search
    }

    fn component(&self, mut set: Set) -> Set {
        loop {
            let mut grown = set | self.neighbourhood(set);
            for (a, b) in self.graph.conditions.iter().filter_map(|c| c.sides) {
                if (a | b) & grown != 0 {
                    grown |= a | b;
                }
            }
            if grown == set {
                return set;
            }
            set = grown;
        }
    }

    fn neighbourhood(&self, set: Set) -> Set {
        bits(set).fold(0, |all, r| all | self.neighbours[r])
    }

    fn equal(&self, left: Set, right: Set) -> bool {
        self.neighbourhood(left) & right != 0
            || self.graph.conditions.iter().filter_map(|c| c.sides).any(|(a, b)| {
                (a & !left == 0 && b & !right == 0) || (b & !left == 0 && a & !right == 0)
            })
    }

    /// A cross product is considered between whole components, which nothing connects, and
    /// with a relation of a single row.
    fn crossable(&self, left: Set, right: Set) -> bool {
        let whole = |set: Set| self.components.iter().all(|&c| c & set == 0 || c & !set == 0);
        let single = |set: Set| {
            set.count_ones() == 1 && self.graph.relations[set.trailing_zeros() as usize].single_row
        };
        single(left) || single(right) || (whole(left) && whole(right))
    }

    fn rows(&self, set: Set) -> f64 {
        let mut before = 0;
        let mut rows = 1.0;
        for r in bits(set) {
            rows *= self.graph.relations[r].rows * self.share(before, r);
            before |= 1 << r;
        }
        rows
    }

    /// Share of `before` × `relation` that their join keeps; all of `before` have lower
    /// indices, or the share would depend on the order.
    fn share(&self, before: Set, relation: usize) -> f64 {
        let with = before | 1 << relation;
        let mut share = 1.0;
        for condition in &self.graph.conditions {
            if condition.set & !with == 0 && condition.set >> relation & 1 == 1 {
                share *= condition.share;
            }
        }
        let mut shared = 0;
        let mut single = 1.0f64;
        let (mut here, mut there) = (1.0f64, 1.0f64);
        let mut used = 0u64;
        let mut common = before;
        for &c in &self.classes[relation] {
            if self.class_sets[c] & before == 0 {
                continue;
            }
            let class = &self.graph.classes[c];
            let newcomer = class.least_distinct(1 << relation).unwrap_or(1.0);
            let present = class.least_distinct(before).unwrap_or(1.0);
            shared += 1;
            single = single.max(newcomer).max(present);
            here *= newcomer;
            there *= present;
            common &= self.class_sets[c];
            if c < 64 {
                used |= 1 << c;
            }
        }
        if shared == 0 {
            return share;
        }
        // Rows of the table that is unique in these columns: the other side refers to it.
        let unique = |r: usize| {
            let relation = &self.graph.relations[r];
            relation.keys.iter().any(|&k| k & !used == 0).then_some(relation.base_rows)
        };
        let known = bits(common | 1 << relation).filter_map(unique).reduce(f64::max);
        // A relation that holds all of the columns bounds their combinations.
        let base_rows = |r: usize| self.graph.relations[r].base_rows;
        let here_held = here.min(base_rows(relation));
        let there_held = bits(common).map(base_rows).fold(there, f64::min);
        let combined = match known {
            Some(rows) => rows,
            None if shared > 1 && here_held < here && there_held < there => {
                (here_held * there_held).sqrt()
            }
            None => here_held.max(there_held),
        };
        share / combined.max(single).max(1.0)
    }

    /// Cost of one join, the smaller side built, and whether that is the second one.
    fn join(&self, left: (Set, f64), right: (Set, f64), output: f64) -> (f64, bool) {
        if !self.equal(left.0, right.0) {
            let cost = left.1 * right.1 * PAIR_COST + output * OUTPUT_COST;
            return (cost, right.1 < left.1);
        }
        let (build, probe) = (left.1.min(right.1), left.1.max(right.1));
        (build * BUILD_COST + probe * PROBE_COST + output * OUTPUT_COST, right.1 < left.1)
    }

    /// Cost and rows of a tree as it stands, that is with the first input built.
    fn tree(&self, tree: &Tree) -> (f64, f64) {
        match tree {
            Tree::Relation(r) => (0.0, self.graph.relations[*r].rows.max(1.0)),
            Tree::Join(build, probe) => {
                let (build_cost, build_rows) = self.tree(build);
                let (probe_cost, probe_rows) = self.tree(probe);
                let (left, right) = (build.set(), probe.set());
                let output = self.rows(left | right).max(1.0);
                let (mut cost, swap) = self.join((left, build_rows), (right, probe_rows), output);
                if swap {
                    cost += (build_rows - probe_rows) * (BUILD_COST - PROBE_COST);
                }
                (build_cost + probe_cost + cost, output)
            }
        }
    }

    fn exhaustive(&self) -> (Option<Tree>, f64) {
        let n = self.graph.relations.len();
        let sets = 1usize << n;
        let mut rows = vec![1.0f64; sets];
        let mut neighbourhoods = vec![0; sets];
        for set in 1..sets {
            let last = set.ilog2() as usize;
            let before = set & !(1 << last);
            rows[set] =
                rows[before] * self.graph.relations[last].rows * self.share(before as Set, last);
            neighbourhoods[set] = neighbourhoods[before] | self.neighbours[last];
        }
        for r in &mut rows {
            *r = r.max(1.0);
        }
        // Least cost and the side to build; infinite where a set has no plan.
        let mut best = vec![(f64::INFINITY, 0usize); sets];
        for r in 0..n {
            best[1 << r].0 = 0.0;
        }
        let plain = self.components.len() == 1
            && self.graph.conditions.iter().all(|c| c.sides.is_none())
            && !self.graph.relations.iter().any(|r| r.single_row);
        for set in 3..sets {
            if set.is_power_of_two() {
                continue;
            }
            // Each split once: the part with the lowest relation is `left`.
            let lowest = set & set.wrapping_neg();
            let mut right = set & !lowest;
            let splits = right;
            while right != 0 {
                let left = set & !right;
                let below = best[left].0 + best[right].0;
                if below < best[set].0 {
                    let (l, r) = (left as Set, right as Set);
                    let adjacent = neighbourhoods[left] & r != 0;
                    if adjacent || (!plain && (self.equal(l, r) || self.crossable(l, r))) {
                        let (cost, swap) = if adjacent {
                            let (build, probe) =
                                (rows[left].min(rows[right]), rows[left].max(rows[right]));
                            let cost =
                                build * BUILD_COST + probe * PROBE_COST + rows[set] * OUTPUT_COST;
                            (cost, rows[right] < rows[left])
                        } else {
                            self.join((l, rows[left]), (r, rows[right]), rows[set])
                        };
                        if below + cost < best[set].0 {
                            best[set] = (below + cost, if swap { right } else { left });
                        }
                    }
                }
                right = (right - 1) & splits;
            }
        }
        let all = sets - 1;
        let cost = best[all].0;
        (cost.is_finite().then(|| extract(&best, all)), cost)
    }

    fn greedy_pairs(&self) -> (Tree, f64) {
        let mut parts: Vec<Part> = (0..self.graph.relations.len()).map(|r| self.leaf(r)).collect();
        // results[i][j], j < i: what joining the two would give.
        let mut results: Vec<Vec<Rank>> = Vec::new();
        for i in 0..parts.len() {
            results.push((0..i).map(|j| self.rank(&parts[i], &parts[j])).collect());
        }
        while parts.len() > 1 {
            let mut least: Option<(Rank, usize, usize)> = None;
            for (i, row) in results.iter().enumerate() {
                for (j, rank) in row.iter().enumerate() {
                    if least.as_ref().is_none_or(|(l, ..)| rank.before(l)) {
                        least = Some((*rank, i, j));
                    }
                }
            }
            let Some((_, i, j)) = least else { break };
            // `swap_remove` of the higher index first leaves the lower one in place.
            let second = parts.swap_remove(i);
            results.swap_remove(i);
            let moved = parts.len();
            let first = std::mem::replace(&mut parts[j], self.leaf(0));
            parts[j] = self.joined(first, second);
            // Row and column `i` now belong to what was last; row and column `j` are new.
            results = (0..moved)
                .map(|a| {
                    (0..a)
                        .map(|b| {
                            if a == j || b == j || a == i || b == i {
                                self.rank(&parts[a], &parts[b])
                            } else {
                                results[a][b]
                            }
                        })
                        .collect()
                })
                .collect();
        }
        parts.pop().map(|p| (p.tree, p.cost)).unwrap_or((Tree::Relation(0), 0.0))
    }

    fn greedy_star(&self) -> (Tree, f64) {
        let n = self.graph.relations.len();
        let size = |r: &usize| self.graph.relations[*r].rows;
        // `max_by` keeps the last of equals: reversed, the first.
        let fact = (0..n).rev().max_by(|a, b| size(a).total_cmp(&size(b))).unwrap_or(0);
        let mut part = self.leaf(fact);
        let mut rest = full(n) & !(1 << fact);
        while rest != 0 {
            let mut least: Option<(Rank, usize)> = None;
            for r in bits(rest) {
                let rank = self.rank(&part, &self.leaf(r));
                if least.as_ref().is_none_or(|(l, _)| rank.before(l)) {
                    least = Some((rank, r));
                }
            }
            let Some((_, r)) = least else { break };
            part = self.joined(part, self.leaf(r));
            rest &= !(1 << r);
        }
        (part.tree, part.cost)
    }

    fn leaf(&self, r: usize) -> Part {
        let rows = self.graph.relations[r].rows.max(1.0);
        Part { tree: Tree::Relation(r), set: 1 << r, rows, cost: 0.0 }
    }

    fn rank(&self, a: &Part, b: &Part) -> Rank {
        let set = a.set | b.set;
        let equal = self.equal(a.set, b.set);
        let conditioned = || {
            self.graph
                .conditions
                .iter()
                .any(|c| c.set & !set == 0 && c.set & a.set != 0 && c.set & b.set != 0)
        };
        let single = |p: &Part| {
            p.set.count_ones() == 1
                && self.graph.relations[p.set.trailing_zeros() as usize].single_row
        };
        let hashed = equal || ((single(a) || single(b)) && conditioned());
        Rank { cross: !hashed, rows: self.rows(set).max(1.0), inputs: a.rows + b.rows }
    }

    fn joined(&self, a: Part, b: Part) -> Part {
        let set = a.set | b.set;
        let rows = self.rows(set).max(1.0);
        let (cost, swap) = self.join((a.set, a.rows), (b.set, b.rows), rows);
        let cost = a.cost + b.cost + cost;
        let tree = if swap { Tree::join(b.tree, a.tree) } else { Tree::join(a.tree, b.tree) };
        Part { tree, set, rows, cost }
    }
}

/// A tree under construction.
struct Part {
    tree: Tree,
    set: Set,
    rows: f64,
    cost: f64,
}

/// Which pair is joined first: one without a cross product, with the least result, of the
/// least inputs.
#[derive(Clone, Copy)]
struct Rank {
    cross: bool,
    rows: f64,
    inputs: f64,
}

impl Rank {
    fn before(&self, other: &Rank) -> bool {
        let order = self.cross.cmp(&other.cross);
        let order = order.then(self.rows.total_cmp(&other.rows));
        order.then(self.inputs.total_cmp(&other.inputs)) == Ordering::Less
    }
}

fn extract(best: &[(f64, usize)], set: usize) -> Tree {
    if set.is_power_of_two() {
        return Tree::Relation(set.trailing_zeros() as usize);
    }
    let build = best[set].1;
    Tree::join(extract(best, build), extract(best, set & !build))
}

fn full(n: usize) -> Set {
    if n >= 64 { Set::MAX } else { (1 << n) - 1 }
}

/// The members of a set, ascending.
pub fn bits(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let bit = set.trailing_zeros() as usize;
        set &= set - 1;
        Some(bit)
    })
}
