//! The search alone, over graphs made of numbers.

use thalweg_base::Prng;

use super::super::search::{Class, Condition, Graph, Relation, Tree, bits, cost, rows, search};

fn relation(rows: f64) -> Relation {
    Relation { rows, base_rows: rows, single_row: false, keys: Vec::new() }
}

fn class(members: &[(usize, f64)]) -> Class {
    Class { members: members.to_vec() }
}

fn star(facts: f64, dimensions: &[(f64, f64)]) -> Graph {
    let mut graph = Graph { relations: vec![relation(facts)], ..Graph::default() };
    for (i, &(base_rows, share)) in dimensions.iter().enumerate() {
        graph.relations.push(Relation { rows: base_rows * share, ..relation(base_rows) });
        graph.classes.push(class(&[(0, base_rows), (i + 1, base_rows)]));
    }
    graph
}

fn show(tree: &Tree) -> String {
    match tree {
        Tree::Relation(r) => r.to_string(),
        Tree::Join(build, probe) => format!("({} {})", show(build), show(probe)),
    }
}

fn random(prng: &mut Prng, n: usize) -> Graph {
    let mut graph = Graph::default();
    for _ in 0..n {
        let base_rows = 10f64.powi(1 + prng.below(6) as i32);
        let rows = (base_rows / 10f64.powi(prng.below(3) as i32)).max(1.0);
        graph.relations.push(Relation { rows, ..relation(base_rows) });
    }
    for r in 1..n {
        let other = prng.below(r as u64) as usize;
        let distinct = |r: usize| (graph.relations[r].base_rows / 3.0).max(1.0);
        graph.classes.push(class(&[(other, distinct(other)), (r, distinct(r))]));
    }
    if n > 2 {
        graph.conditions.push(Condition { set: 0b110, share: 0.3, sides: None });
    }
    graph
}

/// The least cost over all trees without cross products, by trying them all.
fn brute_force(graph: &Graph, set: u64) -> Vec<Tree> {
    if set.count_ones() == 1 {
        return vec![Tree::Relation(set.trailing_zeros() as usize)];
    }
    let mut trees = Vec::new();
    let mut left = (set - 1) & set;
    while left != 0 {
        let right = set & !left;
        let joined = graph.classes.iter().any(|c| {
            let within = |s: u64| c.members.iter().any(|(r, _)| s >> r & 1 == 1);
            within(left) && within(right)
        });
        if joined {
            for l in brute_force(graph, left) {
                for r in brute_force(graph, right) {
                    trees.push(Tree::Join(Box::new(l.clone()), Box::new(r.clone())));
                }
            }
        }
        left = (left - 1) & set;
    }
    trees
}

#[test]
fn a_star_is_probed_through_its_dimensions_most_selective_first() {
    let graph = star(6e6, &[(2556.0, 1.0), (2e5, 0.04), (2e3, 0.2)]);
    let (tree, _) = search(&graph);
    assert_eq!(show(&tree), "(1 (3 (2 0)))");
}

#[test]
fn nothing_is_cheaper_than_what_the_search_finds() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let n = 2 + prng.below(4) as usize;
        let graph = random(&mut prng, n);
        let (tree, found) = search(&graph);
        let least = brute_force(&graph, (1 << n) - 1)
            .iter()
            .map(|t| cost(&graph, t))
            .fold(f64::INFINITY, f64::min);
        assert!((found - least).abs() <= least * 1e-9, "seed {seed}: {found} {least}");
        assert!((found - cost(&graph, &tree)).abs() <= found * 1e-9, "seed {seed}");
    }
}

#[test]
fn the_greedy_search_is_not_far_off() {
    let mut worst = 1.0f64;
    for seed in 0..40 {
        let mut prng = Prng::new(1000 + seed);
        let n = 7 + prng.below(3) as usize;
        let graph = random(&mut prng, n);
        let least = search(&graph).1;
        // Isolated single rows make the graph too large for the exhaustive search.
        let mut large = graph.clone();
        for _ in 0..10 {
            large.relations.push(Relation { single_row: true, ..relation(1.0) });
        }
        worst = worst.max(search(&large).1 / least);
    }
    println!("greedy, worst ratio: {worst:.2}");
    assert!(worst < 5.0, "{worst}");
}

#[test]
fn an_implied_equality_counts_once() {
    let mut graph = Graph::default();
    graph.relations.extend([relation(100.0), relation(1000.0), relation(1e4)]);
    graph.classes.push(class(&[(0, 100.0), (1, 1000.0), (2, 1000.0)]));
    assert_eq!(rows(&graph, 0b111), 100.0 * 1e3 * 1e4 / 1e3 / 1e3);
}

#[test]
fn a_composite_key_keeps_the_rows_that_refer_to_it() {
    // lineitem and partsupp of TPC-H.
    let mut graph = Graph::default();
    graph.relations.extend([relation(6e6), relation(8e5)]);
    graph.classes.push(class(&[(0, 2e5), (1, 2e5)]));
    graph.classes.push(class(&[(0, 1e4), (1, 1e4)]));
    let guessed = rows(&graph, 0b11);
    assert!((1e6..=6e6).contains(&guessed), "{guessed}");
    graph.relations[1].keys.push(0b11);
    assert_eq!(rows(&graph, 0b11), 6e6);
}

#[test]
fn a_graph_without_edges_is_crossed() {
    let mut graph = Graph::default();
    graph.relations.extend([relation(10.0), relation(1e3), relation(5.0)]);
    let (tree, _) = search(&graph);
    assert_eq!(tree.set(), 0b111);
    assert_eq!(search(&graph).0, tree);
}

#[test]
fn keys_over_several_relations() {
    // x(0) + y(1) = z(2): 0 and 1 have to be crossed first.
    let mut graph = Graph::default();
    graph.relations.extend([relation(10.0), relation(20.0), relation(5e3)]);
    graph.conditions.push(Condition { set: 0b111, share: 1e-3, sides: Some((0b011, 0b100)) });
    assert_eq!(show(&search(&graph).0), "((0 1) 2)");
}

#[test]
fn eight_relations_take_less_than_a_millisecond() {
    let dimensions: Vec<(f64, f64)> = (1..8).map(|i| (f64::from(i) * 1e3, 0.1)).collect();
    let graph = star(1e7, &dimensions);
    let started = std::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(bits(search(&graph).0.set()).count(), 8);
    }
    // An unoptimised build on a busy machine is given room; a release build takes a tenth.
    let each = started.elapsed() / 10;
    println!("8 relations: {each:?}");
    assert!(each.as_millis() < 50, "{each:?}");
}
