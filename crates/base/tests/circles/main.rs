//! Inside a crate imports run one way: a module never needs one that needs it.
//!
//! A file and the modules in its folder may know each other: they are one part of the crate. A circle
//! must lie wholly within one part; the root of the crate is a part of its own. A name that is handed
//! on by `pub use` counts for the module that it comes from, and what is compiled for tests alone does
//! not count.

mod modules;
mod source;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use modules::{Crate, Mention};

/// Imports that close a circle and stay: the file, the module that it names, and why it does.
const ALLOWED: [(&str, &str, &str); 2] = [
    (
        "crates/pipeline/src/batch.rs",
        "crate::expr",
        "a batch has registers that are computed when they are first read, and an expression reads \
         the registers of a batch",
    ),
    (
        "dev/bench/src/worker.rs",
        "crate::memory",
        "a worker is the same program started anew: it does what the suite that starts it asks for",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The roots of the workspace's libraries and programs.
fn roots() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["crates", "dev"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let source = entry.unwrap().path().join("src");
            found.extend(["lib.rs", "main.rs"].map(|name| source.join(name)));
        }
    }
    found.retain(|file| file.exists());
    found.sort();
    found
}

type Graph = BTreeMap<Vec<String>, BTreeMap<Vec<String>, Vec<Mention>>>;

fn graph(read: &Crate) -> Graph {
    let mut graph = Graph::new();
    for names in read.modules.keys() {
        let known: &mut BTreeMap<_, Vec<Mention>> = graph.entry(names.clone()).or_default();
        for mention in read.mentions(names) {
            known.entry(mention.target.clone()).or_default().push(mention);
        }
    }
    graph
}

/// The modules on the shortest way from one module to another, both included.
fn way(graph: &Graph, from: &[String], to: &[String]) -> Option<Vec<Vec<String>>> {
    let mut before: BTreeMap<&[String], &[String]> = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(names) = open.pop_front() {
        for known in graph[names].keys() {
            if known == to {
                let mut way = vec![to.to_vec(), names.to_vec()];
                let mut at = names;
                while at != from {
                    at = before[at];
                    way.push(at.to_vec());
                }
                way.reverse();
                return Some(way);
            }
            if known != from && !before.contains_key(known.as_slice()) {
                before.insert(known, names);
                open.push_back(known);
            }
        }
    }
    None
}

fn all_reached<'a>(graph: &'a Graph, from: &'a Vec<String>) -> BTreeSet<&'a Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(names) = open.pop() {
        open.extend(graph[names].keys().filter(|known| reached.insert(*known)));
    }
    reached
}

/// The sets of modules that all need each other; a module that none needs back is one alone.
fn circles(graph: &Graph) -> BTreeSet<BTreeSet<Vec<String>>> {
    let reached: BTreeMap<_, _> =
        graph.keys().map(|names| (names, all_reached(graph, names))).collect();
    let circle = |(names, known): (&&Vec<String>, &BTreeSet<&Vec<String>>)| {
        let circle = known.iter().filter(|other| reached[**other].contains(names));
        circle.chain([names]).map(|names| (*names).clone()).collect()
    };
    reached.iter().map(circle).collect()
}

/// The part of the crate that a module is of: a file and what is in its folder.
fn part(names: &[String]) -> Option<&String> {
    names.first()
}

/// The modules of a circle in groups: those that need each other also without the other parts.
fn groups(graph: &Graph, circle: &BTreeSet<Vec<String>>) -> Vec<BTreeSet<Vec<String>>> {
    let mut within = Graph::new();
    for names in circle {
        let mut known = graph[names].clone();
        known.retain(|other, _| circle.contains(other) && part(other) == part(names));
        within.insert(names.clone(), known);
    }
    circles(&within).into_iter().collect()
}

/// An order of a circle's groups in which few imports lead back: those that know least of what is
/// left go first (Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc set
/// problem", 1993).
fn ordered(graph: &Graph, circle: &BTreeSet<Vec<String>>) -> Vec<BTreeSet<Vec<String>>> {
    // Within a part imports are not to be changed if that can be avoided.
    const WITHIN: usize = 1_000;
    let mut left = groups(graph, circle);
    let (mut low, mut high) = (Vec::new(), VecDeque::new());
    let weight = |from: &BTreeSet<Vec<String>>, to: &BTreeSet<Vec<String>>| -> usize {
        let weight = |names: &Vec<String>, known: &Vec<String>| {
            let mentions = graph[names].get(known).map_or(0, Vec::len);
            if part(names) == part(known) { mentions * WITHIN } else { mentions }
        };
        from.iter().map(|names| to.iter().map(|known| weight(names, known)).sum::<usize>()).sum()
    };
    while !left.is_empty() {
        let scores = left.iter().enumerate().map(|(at, group)| {
            let others = || left.iter().filter(|other| *other != group);
            let knows: usize = others().map(|other| weight(group, other)).sum();
            let known: usize = others().map(|other| weight(other, group)).sum();
            match (knows, known) {
                (0, _) => (isize::MAX, at, true),
                (_, 0) => (isize::MAX, at, false),
                _ => (known as isize - knows as isize, at, true),
            }
        });
        let (_, at, is_low) = scores.max().expect("some are left");
        let group = left.remove(at);
        if is_low {
            low.push(group);
        } else {
            high.push_front(group);
        }
    }
    low.extend(high);
    low
}

/// The imports of a circle that lead back, each with the way on which it closes the circle.
fn told(read: &Crate, graph: &Graph, circle: &BTreeSet<Vec<String>>) -> String {
    let order = ordered(graph, circle);
    let name = |names: &Vec<String>| match names.is_empty() {
        true => "the root".to_owned(),
        false => names.join("::"),
    };
    let mut told = format!("a circle of {} modules\n", circle.len());
    for (at, group) in order.iter().enumerate() {
        let later = || order[at + 1..].iter().flatten();
        let pairs = group.iter().flat_map(|low| later().map(move |high| (low, high)));
        for (low, high) in pairs {
            let Some(mentions) = graph[low].get(high) else { continue };
            for mention in mentions {
                let file = &read.modules[low].file;
                told += &format!("  {file}:{} names {}\n", mention.line, mention.path);
            }
            let back = way(graph, high, low).expect("they are in one circle");
            let back: Vec<String> = back.iter().map(name).collect();
            told += &format!("    and back: {}\n", back.join(" -> "));
        }
    }
    told
}

/// Circles of more than one part.
fn wrong(graph: &Graph) -> Vec<BTreeSet<Vec<String>>> {
    let is_wrong = |circle: &BTreeSet<Vec<String>>| {
        circle.iter().map(|names| part(names)).collect::<BTreeSet<_>>().len() > 1
    };
    circles(graph).into_iter().filter(is_wrong).collect()
}

/// The circles of the workspace but for what is allowed, and what is allowed without need.
fn found(allowed: &[(&str, &str, &str)]) -> String {
    let mut found = String::new();
    let mut needed = vec![false; allowed.len()];
    for file in roots() {
        let read = Crate::read(&file, &root());
        let whole = graph(&read);
        let edge = |(file, named, _): &(&str, &str, &str)| {
            let low = read.modules.iter().find(|(_, module)| module.file == *file)?.0.clone();
            Some((low, named.split("::").skip(1).map(str::to_owned).collect::<Vec<_>>()))
        };
        let edges: Vec<_> = allowed.iter().map(edge).collect();
        let without = |but: Option<usize>| {
            let mut cut = whole.clone();
            let kept = edges.iter().enumerate().filter(|(at, _)| Some(*at) != but);
            for (low, high) in kept.filter_map(|(_, edge)| edge.as_ref()) {
                cut.get_mut(low).expect("a module of the crate").remove(high);
            }
            cut
        };
        let cut = without(None);
        for circle in wrong(&cut) {
            found += &format!("{}: {}", read.modules[&Vec::new()].file, told(&read, &cut, &circle));
        }
        for (at, _) in edges.iter().enumerate().filter(|(_, edge)| edge.is_some()) {
            needed[at] |= wrong(&without(Some(at))).len() > wrong(&cut).len();
        }
    }
    for ((file, named, _), _) in allowed.iter().zip(needed).filter(|(_, needed)| !needed) {
        found += &format!("{file} need not be allowed to name {named}: take it off the list\n");
    }
    found
}

#[test]
fn imports_run_one_way() {
    let found = found(&ALLOWED);
    assert!(found.is_empty(), "imports that close circles:\n{found}");
}

#[test]
fn a_circle_is_one_of_several_parts() {
    let graph = |imports: &[(&str, &str)]| {
        let names = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
        let mut graph = Graph::new();
        for (low, high) in imports {
            let mention = Mention { line: 1, path: (*high).to_owned(), target: names(high) };
            graph.entry(names(high)).or_default();
            graph.entry(names(low)).or_default().insert(names(high), vec![mention]);
        }
        graph
    };
    let is_wrong = |imports: &[(&str, &str)]| !wrong(&graph(imports)).is_empty();
    assert!(!is_wrong(&[("a", "b"), ("b", "c"), ("a", "c")]));
    assert!(!is_wrong(&[("a", "a::b"), ("a::b", "a::c"), ("a::c", "a"), ("d", "a::c")]));
    assert!(
        !is_wrong(&[("a::b", "c"), ("c", "a")]),
        "the file does not know what is in its folder"
    );
    assert!(is_wrong(&[("a", "b"), ("b", "a")]));
    assert!(is_wrong(&[("a", "a::b"), ("a::b", "c"), ("c", "a")]));
}
