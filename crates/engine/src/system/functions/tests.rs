//! The list says what can be called, all of it, and docs/functions.md says the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use thalweg_base::{Error, Result};
use thalweg_bind::catalogue::{Function, INTERNAL, Kind};

use crate::bound;
use crate::config::Config;
use crate::engine::Engine;
use crate::session::Session;

fn session() -> Session {
    Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap().session()
}

fn all(session: &Session) -> Vec<Function> {
    bound::functions(&session.inner().context.state())
}

fn run(session: &Session, sql: &str) -> Result<()> {
    let rows = async { session.query(sql).await?.collect().await };
    session.engine().block_on(rows).map(drop)
}

fn is_unknown(error: &Error, name: &str) -> bool {
    error.message() == format!("function {name} does not exist")
}

/// What is a function only without parentheses.
const WITHOUT_PARENTHESES: [&str; 2] = ["localtime", "localtimestamp"];

/// What stands between the arguments of forms that are called like no function.
const FORMS: [&str; 6] = [" FROM ", " IN ", " PLACING ", " AS ", "(query)", "FOR"];

/// A call without arguments: whoever knows the name says that these are missing, if they are.
fn call(function: &Function) -> String {
    let name = format!("\"{}\"", function.name);
    if WITHOUT_PARENTHESES.contains(&function.name.as_str()) {
        return format!("SELECT {}", function.name);
    }
    match function.kind {
        Kind::Table => format!("SELECT * FROM {name}()"),
        Kind::Window => format!("SELECT {name}() OVER ()"),
        _ => format!("SELECT {name}()"),
    }
}

#[test]
fn every_name_in_it_can_be_called_and_its_examples_run() {
    let session = session();
    let mut wrong = vec![];
    for function in all(&session) {
        let is_form = function.kind == Kind::Operator
            || FORMS.iter().any(|word| function.arguments.contains(word));
        if !is_form
            && let Err(e) = run(&session, &call(&function))
            && is_unknown(&e, &function.name)
        {
            wrong.push(format!("{}: {e}", function.name));
        }
        if let Some(example) = &function.example
            && let Err(e) = run(&session, example)
        {
            wrong.push(format!("{example}: {e}"));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_function_that_is_registered_is_in_it_unless_it_cannot_be_called() {
    let session = session();
    let state = session.inner().context.state();
    let listed: BTreeSet<String> = all(&session).into_iter().map(|f| f.name).collect();
    let registered = (state.scalar_functions().keys())
        .chain(state.higher_order_functions().keys())
        .chain(state.aggregate_functions().keys())
        .chain(state.window_functions().keys())
        .chain(state.table_functions().keys());
    for name in registered {
        if INTERNAL.contains(&name.as_str()) {
            assert!(!listed.contains(name), "{name}");
            let error = run(&session, &format!("SELECT {name}(1)")).expect_err(name);
            assert!(is_unknown(&error, name), "{error}");
        } else {
            assert!(listed.contains(name), "{name} is registered and not listed");
        }
    }
}

#[test]
fn every_function_says_what_it_is_for_and_what_it_takes() {
    let session = session();
    let all = all(&session);
    let silent: BTreeSet<&str> = all
        .iter()
        .filter(|f| f.description.as_ref().is_none_or(String::is_empty))
        .map(|f| f.name.as_str())
        .collect();
    assert!(silent.is_empty(), "without a description: {silent:?}");
    let of = |name: &str| -> Vec<(&str, Option<&str>)> {
        let named = all.iter().filter(|f| f.name == name && f.kind != Kind::Operator);
        named.map(|f| (f.arguments.as_str(), f.returns.as_deref())).collect()
    };
    assert_eq!(of("upper"), [("text", Some("text"))]);
    assert_eq!(
        of("mod"),
        [("bigint, bigint", Some("bigint")), ("numeric, numeric", Some("numeric"))]
    );
    assert_eq!(of("row_number"), [("", Some("bigint"))]);
    assert_eq!(of("coalesce"), [("VARIADIC anyelement", Some("anyelement"))]);
}

#[test]
fn a_call_with_other_arguments_says_which_there_are() {
    let session = session();
    let error = run(&session, "SELECT upper('a', 'b')").expect_err("two texts");
    assert_eq!(error.hint_text(), Some("there is upper(text); add explicit casts"));
    let error = run(&session, "SELECT uper('a')").expect_err("no such name");
    assert_eq!(error.hint_text(), Some("did you mean upper? SHOW FUNCTIONS lists all"));
}

#[test]
fn the_page_of_the_docs_is_up_to_date() {
    let page = page(&all(&session()));
    // Of the folder that the tests run in: a clone that shares the target folder has another.
    let path = Path::new("../../docs/functions.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/functions.md is written");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == page,
        "docs/functions.md is not what system.functions says: `make docs` writes it"
    );
}

/// A table for each kind, with one line per function.
fn page(all: &[Function]) -> String {
    let mut page = String::from(
        "# Functions and operators\n\n\
         `SELECT * FROM system.functions` lists what is here, and this page is made from it: `make docs` \
         writes it anew. Types are written as PostgreSQL writes them; *anyelement* is a value of any type, \
         *anyarray* a list of such values, and after VARIADIC there may be any number of values. \
         [sql.md](sql.md) says what differs from PostgreSQL.\n",
    );
    let mut aliases: BTreeMap<(&str, Kind), BTreeSet<&str>> = BTreeMap::new();
    for function in all {
        if let Some(first) = &function.alias_of {
            aliases.entry((first, function.kind)).or_default().insert(&function.name);
        }
    }
    for (kind, title) in [
        (Kind::Scalar, "Of one row"),
        (Kind::Aggregate, "Aggregates"),
        (Kind::Window, "Of a window"),
        (Kind::Table, "In FROM"),
        (Kind::Operator, "Operators"),
    ] {
        let mut functions: BTreeMap<&str, Vec<&Function>> = BTreeMap::new();
        for function in all.iter().filter(|f| f.kind == kind && f.alias_of.is_none()) {
            functions.entry(&function.name).or_default().push(function);
        }
        let _ = writeln!(page, "\n## {title}\n\n| call | gives | what it is |\n|---|---|---|");
        for (name, ways) in functions {
            let calls = ways.iter().map(|way| match (kind, way.arguments.split_once(", ")) {
                (Kind::Operator, Some((l, r))) => code(&format!("{l} {name} {r}")),
                _ => code(&format!("{name}({})", way.arguments)),
            });
            let calls: Vec<String> = calls.collect();
            let gives: Vec<&str> = ways
                .iter()
                .map(|way| way.returns.as_deref().unwrap_or("as its arguments say"))
                .collect();
            let same = gives.iter().all(|g| *g == gives[0]);
            let gives = if same { gives[0].to_string() } else { gives.join("<br>") };
            let mut text = ways[0].description.clone().unwrap_or_default().replace('|', "\\|");
            if let Some(others) = aliases.get(&(name, kind)) {
                let others: Vec<String> = others.iter().map(|name| code(name)).collect();
                let _ = write!(text, " Also {}.", others.join(", "));
            }
            if let Some(example) = &ways[0].example {
                let _ = write!(text, " {}", code(example));
            }
            let _ = writeln!(page, "| {} | {gives} | {} |", calls.join("<br>"), text.trim());
        }
    }
    page
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}
