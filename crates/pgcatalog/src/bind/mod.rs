//! Resolves the names and types of a query.

mod expr;
mod from;
mod function;
mod name;
mod query;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use thalweg_base::{Error, Result};

use crate::query::aggregate::Aggregate;
use crate::query::expr::Expr;
use crate::query::functions::Set;
use crate::query::{Cte, Fields, Window};
use crate::relation::Environment;
use crate::text;
use crate::types::{self, Class, Oid};
use crate::value::Value;

pub struct Binder<'a> {
    env: &'a dyn Environment,
    /// Types of the parameters as far as they are known.
    pub parameters: RefCell<Vec<Option<Oid>>>,
    /// Those that may be named here, the nearest last.
    ctes: RefCell<Vec<Rc<Cte>>>,
    /// The outermost query whose columns were named so far.
    lowest: Cell<usize>,
}

/// An expression and its type.
struct Typed {
    expr: Expr,
    oid: Oid,
    typmod: i32,
    fields: Option<Fields>,
}

impl Typed {
    fn new(expr: Expr, oid: Oid) -> Self {
        Typed { expr, oid, typmod: -1, fields: None }
    }

    fn bool(expr: Expr) -> Self {
        Typed::new(expr, types::BOOL)
    }

    fn boxed(expr: Expr) -> Box<Expr> {
        Box::new(expr)
    }
}

/// The columns that names may mean: those of a FROM, then those of the queries around.
struct Scope<'p> {
    columns: Vec<ScopeColumn>,
    parent: Option<&'p Scope<'p>>,
    level: usize,
}

#[derive(Clone)]
struct ScopeColumn {
    /// If the relation has no alias.
    schema: Option<String>,
    table: String,
    name: String,
    oid: Oid,
    typmod: i32,
    fields: Option<Fields>,
    /// `*` does not show it.
    hidden: bool,
    /// Equal by USING to one before it, which its name means.
    merged: bool,
}

impl<'p> Scope<'p> {
    fn new(parent: Option<&'p Scope<'p>>) -> Self {
        Scope { columns: vec![], parent, level: parent.map_or(0, |p| p.level) + 1 }
    }

    fn find(&self, schema: Option<&str>, table: Option<&str>, name: &str) -> Result<Option<usize>> {
        let fits = |c: &ScopeColumn| {
            c.name == name
                && table.is_none_or(|t| c.table == t)
                && schema.is_none_or(|s| c.schema.as_deref() == Some(s))
                && (table.is_some() || !c.merged)
        };
        let mut found = (0..self.columns.len()).filter(|i| fits(&self.columns[*i]));
        let Some(first) = found.next() else { return Ok(None) };
        if self.columns[first].hidden && table.is_none() {
            return Ok(Some(first));
        }
        match found.find(|i| !self.columns[*i].hidden) {
            Some(_) => {
                Err(Error::user(format!("column reference \"{name}\" is ambiguous")).code("42702"))
            }
            None => Ok(Some(first)),
        }
    }
}

/// What the SELECT that is being bound has in its expressions.
#[derive(Default)]
struct Collected {
    aggregates: Vec<Aggregate>,
    windows: Vec<Window>,
    sets: Vec<(Set, Vec<Expr>)>,
    /// Expressions of its GROUP BY, as they are written.
    keys: Vec<String>,
    /// Columns that are named outside aggregates and keys.
    bare: Vec<usize>,
}

/// Where an expression stands.
#[derive(Clone, Copy)]
struct Place<'s, 'p> {
    scope: &'s Scope<'p>,
    /// `None` where neither aggregates nor sets may be.
    collected: Option<&'s RefCell<Collected>>,
}

impl<'a> Binder<'a> {
    pub fn new(env: &'a dyn Environment, parameters: Vec<Option<Oid>>) -> Self {
        Binder {
            env,
            parameters: RefCell::new(parameters),
            ctes: RefCell::default(),
            lowest: Cell::new(usize::MAX),
        }
    }

    fn coerce(&self, typed: Typed, to: Oid) -> Result<Expr> {
        self.coerce_with(typed, to, -1)
    }

    fn coerce_with(&self, typed: Typed, to: Oid, typmod: i32) -> Result<Expr> {
        if typed.oid == to && typmod < 0 {
            return Ok(typed.expr);
        }
        Ok(match typed.expr {
            Expr::Const(Value::Null) => Expr::null(),
            // Names in it are looked up once.
            Expr::Const(value) => Expr::Const(text::cast(&value, typed.oid, to, typmod, self.env)?),
            Expr::Parameter(number) => {
                let mut parameters = self.parameters.borrow_mut();
                if parameters.len() <= number {
                    parameters.resize(number + 1, None);
                }
                parameters[number].get_or_insert(to);
                Expr::Parameter(number).cast(types::UNKNOWN, to, typmod)
            }
            expr => expr.cast(typed.oid, to, typmod),
        })
    }

    /// Both sides in a form in which they compare.
    fn comparable(&self, left: Typed, right: Typed, op: &str) -> Result<(Expr, Expr)> {
        let (a, b) = (types::class(left.oid), types::class(right.oid));
        Ok(match (a, b) {
            (Class::Unknown, Class::Unknown) => {
                (self.coerce(left, types::TEXT)?, self.coerce(right, types::TEXT)?)
            }
            (Class::Unknown, _) => {
                let to = right.oid;
                (self.coerce(left, to)?, right.expr)
            }
            (_, Class::Unknown) => {
                let to = left.oid;
                (left.expr, self.coerce(right, to)?)
            }
            (Class::Int, Class::Float) => (self.coerce(left, types::FLOAT8)?, right.expr),
            (Class::Float, Class::Int) => (left.expr, self.coerce(right, types::FLOAT8)?),
            // A name that is compared with an object.
            (Class::Int, Class::Text) if types::is_alias(left.oid) => {
                (self.coerce(left, types::TEXT)?, right.expr)
            }
            (Class::Text, Class::Int) if types::is_alias(right.oid) => {
                (left.expr, self.coerce(right, types::TEXT)?)
            }
            (a, b) if a == b => (left.expr, right.expr),
            _ => return Err(self.no_operator(op, left.oid, right.oid)),
        })
    }

    fn no_operator(&self, op: &str, left: Oid, right: Oid) -> Error {
        let name = |oid: Oid| types::shown(oid, -1).unwrap_or(oid.to_string());
        Error::user(format!("operator does not exist: {} {op} {}", name(left), name(right)))
            .code("42883")
            .hint("a cast of one side may help")
    }

    /// One type for values that stand for each other: of CASE, COALESCE, UNION.
    fn common(&self, types: impl IntoIterator<Item = Oid>) -> Result<Oid> {
        let mut common = types::UNKNOWN;
        for oid in types {
            common = match (types::class(common), types::class(oid)) {
                (Class::Unknown, _) => oid,
                (_, Class::Unknown) => common,
                _ if common == oid => common,
                (Class::Int, Class::Int) => match (common, oid) {
                    (types::INT8, _) | (_, types::INT8) => types::INT8,
                    (types::INT2, other) | (other, types::INT2) => other,
                    (_, other) => other,
                },
                (Class::Int | Class::Float, Class::Int | Class::Float) => types::FLOAT8,
                (Class::Text, Class::Text) => types::TEXT,
                (a, b) if a == b => common,
                _ => {
                    let name = |oid: Oid| types::shown(oid, -1).unwrap_or(oid.to_string());
                    return Err(Error::user(format!(
                        "types {} and {} cannot be matched",
                        name(common),
                        name(oid)
                    ))
                    .code("42804"));
                }
            };
        }
        Ok(if common == types::UNKNOWN { types::TEXT } else { common })
    }
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what} is not supported in a query over the catalog"))
}
