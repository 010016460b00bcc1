//! Which crate knows which: what ARCHITECTURE.md draws is what the manifests say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Libraries that a crate must have a reason to know.
const HEAVY: [&str; 3] = ["datafusion", "vortex", "tokio"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of the drawing, from `base` on: a crate, and what it knows.
fn drawn() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, after) = text.split_once("```text\nbase\n").expect("there is the drawing");
    let (lines, _) = after.split_once("\n```").expect("it ends");
    let line = |line: &str| {
        let (name, knows) = line.split_once(' ').expect("a crate and what it knows");
        (name.to_owned(), knows.split(',').map(|known| known.trim().to_owned()).collect())
    };
    let mut drawn: BTreeMap<_, _> = lines.lines().map(line).collect();
    drawn.insert("base".into(), BTreeSet::new());
    drawn
}

/// What a manifest names under `[dependencies]`, as far as it is of the house or heavy.
fn declared(manifest: &str) -> BTreeSet<String> {
    let sections = manifest.split("\n[").filter(|s| s.starts_with("dependencies]"));
    let names = sections.flat_map(str::lines).filter_map(|line| line.split(['.', ' ', '=']).next());
    let known = names.filter_map(|name| match name.strip_prefix("thalweg-") {
        Some(own) => Some(own),
        None => HEAVY.contains(&name).then_some(name),
    });
    known.map(str::to_owned).collect()
}

#[test]
fn crates_know_each_other_as_they_are_drawn() {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        found.insert(name, declared(&manifest));
    }
    let drawn = drawn();
    for (name, known) in &found {
        let told = drawn.get(name).unwrap_or_else(|| panic!("{name} is not in ARCHITECTURE.md"));
        let differs: Vec<_> = known.symmetric_difference(told).collect();
        assert!(differs.is_empty(), "{name} and ARCHITECTURE.md differ in {differs:?}");
    }
    assert_eq!(found.len(), drawn.len(), "ARCHITECTURE.md has a crate that is not there");
}
