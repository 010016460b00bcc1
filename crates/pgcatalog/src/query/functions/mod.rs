//! Functions of PostgreSQL that queries over the catalog call.

mod arrays;
mod catalog;
mod names;
pub mod session;
mod sets;
mod strings;

use thalweg_base::Result;

use crate::query::expr::Context;
use crate::relation::Environment;
use crate::text;
use crate::types::{self, Class, Oid};
use crate::value::Value;

pub use sets::{Set, set};

/// Arguments, and their types.
pub type Run = fn(&Context, &[Value], &[Oid]) -> Result<Value>;

#[derive(Clone, Copy)]
pub struct Scalar {
    pub run: Run,
    /// NULL if an argument is.
    pub strict: bool,
}

/// An argument of any type.
pub const ANY: Oid = 0;
/// A result of the type of the first argument.
const SAME: Oid = Oid::MAX;
/// A result of the type of the first argument's elements.
const ELEMENT: Oid = Oid::MAX - 1;
/// A result that is an array of the second argument's type.
const ARRAY_OF_SECOND: Oid = Oid::MAX - 2;

/// One form of a function. The last argument's type goes for all that follow, if there may be
/// `more`.
pub struct Form {
    name: &'static str,
    arguments: &'static [Oid],
    required: usize,
    more: bool,
    result: Oid,
    strict: bool,
    run: Run,
}

const fn form(name: &'static str, arguments: &'static [Oid], result: Oid, run: Run) -> Form {
    Form { name, arguments, required: arguments.len(), more: false, result, strict: true, run }
}

impl Form {
    const fn required(self, required: usize) -> Self {
        Form { required, ..self }
    }

    const fn more(self) -> Self {
        Form { more: true, ..self }
    }

    /// Called also for NULL.
    const fn with_nulls(self) -> Self {
        Form { strict: false, ..self }
    }

    fn takes(&self, types: &[Oid]) -> bool {
        let count = types.len();
        count >= self.required && (self.more || count <= self.arguments.len())
    }

    fn argument(&self, at: usize) -> Oid {
        let last = self.arguments.last().copied().unwrap_or(ANY);
        self.arguments.get(at).copied().unwrap_or(last)
    }

    /// How many arguments are of just the type that is wanted, and whether all can be made so.
    fn fit(&self, types: &[Oid]) -> Option<usize> {
        let mut exact = 0;
        for (at, found) in types.iter().enumerate() {
            let wanted = self.argument(at);
            let (from, to) = (types::class(*found), types::class(wanted));
            if wanted == *found {
                exact += 2;
            } else if wanted == ANY {
                exact += 1;
            } else if *found == types::UNKNOWN {
                exact += usize::from(to == Class::Text);
            } else if from != to && !(from == Class::Int && to == Class::Float) {
                return None;
            } else {
                exact += 1;
            }
        }
        Some(exact)
    }
}

/// A function that is found: what it wants its arguments to be, and what it gives.
pub struct Resolved {
    pub scalar: Scalar,
    pub arguments: Vec<Oid>,
    pub result: Oid,
}

fn forms() -> impl Iterator<Item = &'static Form> {
    [session::FORMS, catalog::FORMS, names::FORMS, strings::FORMS, arrays::FORMS]
        .into_iter()
        .flatten()
}

/// Whether there is a function by that name, with whatever arguments.
pub fn exists(name: &str) -> bool {
    forms().any(|f| f.name == name) || sets::exists(name)
}

/// Functions that only a server of PostgreSQL's kind has: a statement that calls one is about it.
pub fn is_of_server(name: &str) -> bool {
    session::FORMS.iter().chain(catalog::FORMS).chain(names::FORMS).any(|f| f.name == name)
        || matches!(name, "_pg_expandarray" | "aclexplode" | "generate_subscripts")
}

/// The names of all scalar functions about the server, once each.
pub fn of_server() -> Vec<&'static str> {
    let all = session::FORMS.iter().chain(catalog::FORMS).chain(names::FORMS);
    let mut names: Vec<_> = all.map(|f| f.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub fn scalar(name: &str, types: &[Oid]) -> Option<Resolved> {
    let fitting = forms()
        .filter(|f| f.name == name && f.takes(types))
        .filter_map(|f| Some((f, f.fit(types)?)));
    // Of those that fit alike, the first.
    let (form, _) = fitting.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    let arguments: Vec<Oid> = types
        .iter()
        .enumerate()
        .map(|(at, found)| match (form.argument(at), *found) {
            (ANY, types::UNKNOWN) => types::TEXT,
            (ANY, found) => found,
            (wanted, _) => wanted,
        })
        .collect();
    let first = arguments.first().copied().unwrap_or(types::TEXT);
    let result = match form.result {
        SAME => first,
        ELEMENT => types::element(first).unwrap_or(types::TEXT),
        ARRAY_OF_SECOND => {
            arguments.get(1).and_then(|t| types::array_of(*t)).unwrap_or(types::TEXT)
        }
        result => result,
    };
    Some(Resolved { scalar: Scalar { run: form.run, strict: form.strict }, arguments, result })
}

fn text_of(ctx: &Context, value: &Value, oid: Oid) -> Result<String> {
    Ok(text::print(value, oid, ctx.env)?.unwrap_or_default())
}

fn string(value: &Value) -> &str {
    value.as_text().unwrap_or_default()
}

fn integer(value: &Value) -> i64 {
    value.as_int().unwrap_or_default()
}

/// A value as JSON.
pub fn json(value: &Value, oid: Oid, env: &dyn Environment) -> Result<String> {
    Ok(match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) if oid == types::TIMESTAMPTZ || types::is_alias(oid) => {
            quoted(&text::print(&Value::Int(*n), oid, env)?.unwrap_or_default())
        }
        Value::Int(n) => n.to_string(),
        Value::Float(n) if n.is_finite() => n.to_string(),
        Value::Text(text) if matches!(oid, types::JSON | types::JSONB) => text.to_string(),
        Value::Array(values) => {
            let element = types::element(oid).unwrap_or(types::TEXT);
            let each = values.iter().map(|v| json(v, element, env));
            format!("[{}]", each.collect::<Result<Vec<_>>>()?.join(","))
        }
        other => quoted(&text::print(other, oid, env)?.unwrap_or_default()),
    })
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            c if c < ' ' => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}
