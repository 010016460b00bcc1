//! Expressions whose names are resolved, and what they come to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use regex::Regex;
use thalweg_base::{Error, Result};

use crate::query::Query;
use crate::query::exec;
use crate::query::functions::Scalar;
use crate::relation::Environment;
use crate::text;
use crate::types::Oid;
use crate::value::{Row, Value};

/// What is true for the whole of one statement.
pub struct Context<'a> {
    pub env: &'a dyn Environment,
    pub parameters: &'a [Option<Arc<str>>],
    steps: Cell<u64>,
    patterns: RefCell<HashMap<(String, bool), Regex>>,
}

/// Pairs of rows that one statement may look at.
const STEPS_MAX: u64 = 200_000_000;
/// Steps between two looks at whether the statement is to stop.
const STEPS_UNWATCHED: u64 = 4096;

impl<'a> Context<'a> {
    pub fn new(env: &'a dyn Environment, parameters: &'a [Option<Arc<str>>]) -> Self {
        Context { env, parameters, steps: Cell::new(0), patterns: RefCell::default() }
    }

    /// To be called once per row or pair of rows.
    pub fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if !steps.is_multiple_of(STEPS_UNWATCHED) {
            return Ok(());
        }
        if self.env.stopped() {
            return Err(Error::cancelled("the statement was cancelled"));
        }
        if steps > STEPS_MAX {
            return Err(Error::resources("the query over the catalog looks at too many rows")
                .hint("join the relations by their OIDs"));
        }
        Ok(())
    }

    /// Whether a POSIX regular expression is in the text.
    pub fn matches(&self, text: &str, pattern: &str, ignore_case: bool) -> Result<bool> {
        let key = (pattern.to_string(), ignore_case);
        if let Some(regex) = self.patterns.borrow().get(&key) {
            return Ok(regex.is_match(text));
        }
        let regex = regex::RegexBuilder::new(pattern)
            .case_insensitive(ignore_case)
            .build()
            .map_err(|e| Error::user(format!("invalid regular expression: {e}")).code("2201B"))?;
        let found = regex.is_match(text);
        self.patterns.borrow_mut().insert(key, regex);
        Ok(found)
    }
}

/// The row that expressions are of, and those of the queries around.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    pub row: &'a [Value],
    /// The number of the row's first column in its query.
    pub base: usize,
    pub aggregates: &'a [Value],
    pub windows: &'a [Value],
    pub sets: &'a [Value],
    pub parent: Option<&'a Env<'a>>,
}

impl<'a> Env<'a> {
    pub fn of(row: &'a [Value], base: usize, parent: Option<&'a Env<'a>>) -> Self {
        Env { row, base, aggregates: &[], windows: &[], sets: &[], parent }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Match { negated: bool, ignore_case: bool },
    Like { negated: bool, ignore_case: bool, escape: Option<char> },
}

pub enum Expr {
    Const(Value),
    Parameter(usize),
    /// Of the row of the query that is so many levels around this one.
    Column {
        depth: usize,
        index: usize,
    },
    Aggregate(usize),
    Window(usize),
    /// What a set-returning function of the SELECT list gives for this row of its result.
    Set(usize),
    Call {
        function: Scalar,
        arguments: Vec<Expr>,
        types: Vec<Oid>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    IsTrue {
        expr: Box<Expr>,
        wanted: bool,
    },
    IsDistinct(Box<Expr>, Box<Expr>),
    Compare {
        op: Op,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// `op ANY (array)`, `op ALL (array)`
    Quantified {
        op: Op,
        left: Box<Expr>,
        array: Box<Expr>,
        all: bool,
    },
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    Cast {
        expr: Box<Expr>,
        from: Oid,
        to: Oid,
        typmod: i32,
    },
    Array(Vec<Expr>),
    Row(Vec<Expr>),
    Field(Box<Expr>, usize),
    Subscript {
        array: Box<Expr>,
        index: Box<Expr>,
        first: i64,
    },
    Scalar(Rc<Query>),
    Exists(Rc<Query>),
    ArrayOf(Rc<Query>),
    /// `op ANY (SELECT …)`
    QuantifiedQuery {
        op: Op,
        left: Box<Expr>,
        query: Rc<Query>,
        all: bool,
    },
}

impl Expr {
    pub fn null() -> Self {
        Expr::Const(Value::Null)
    }

    pub fn cast(self, from: Oid, to: Oid, typmod: i32) -> Self {
        Expr::Cast { expr: Box::new(self), from, to, typmod }
    }

    /// Calls `see` with each part, this one first.
    pub fn visit(&self, see: &mut dyn FnMut(&Expr)) {
        see(self);
        match self {
            Expr::Const(_)
            | Expr::Parameter(_)
            | Expr::Column { .. }
            | Expr::Aggregate(_)
            | Expr::Window(_)
            | Expr::Set(_)
            | Expr::Scalar(_)
            | Expr::Exists(_)
            | Expr::ArrayOf(_) => {}
            Expr::Call { arguments: list, .. }
            | Expr::And(list)
            | Expr::Or(list)
            | Expr::Coalesce(list)
            | Expr::Array(list)
            | Expr::Row(list) => list.iter().for_each(|e| e.visit(see)),
            Expr::Not(e)
            | Expr::IsNull(e)
            | Expr::IsTrue { expr: e, .. }
            | Expr::Cast { expr: e, .. }
            | Expr::Field(e, _)
            | Expr::QuantifiedQuery { left: e, .. } => e.visit(see),
            Expr::IsDistinct(a, b)
            | Expr::Compare { left: a, right: b, .. }
            | Expr::Quantified { left: a, array: b, .. }
            | Expr::Subscript { array: a, index: b, .. } => {
                a.visit(see);
                b.visit(see);
            }
            Expr::Case { operand, branches, otherwise } => {
                operand.iter().for_each(|e| e.visit(see));
                for (when, then) in branches {
                    when.visit(see);
                    then.visit(see);
                }
                otherwise.visit(see);
            }
        }
    }

    /// Which columns of its own query it needs.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs { first: usize::MAX, last: 0, all: false };
        self.visit(&mut |e| match e {
            Expr::Column { depth: 0, index } => {
                needs.first = needs.first.min(*index);
                needs.last = needs.last.max(*index + 1);
            }
            Expr::Scalar(q) | Expr::Exists(q) | Expr::ArrayOf(q) => needs.all |= q.correlated,
            Expr::QuantifiedQuery { query, .. } => needs.all |= query.correlated,
            Expr::Aggregate(_) | Expr::Window(_) | Expr::Set(_) => needs.all = true,
            _ => {}
        });
        needs
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Needs {
    first: usize,
    /// One past the last.
    last: usize,
    /// A query inside may need any of them.
    all: bool,
}

impl Needs {
    pub fn none(&self) -> bool {
        !self.all && self.last == 0
    }

    /// Whether columns `from..to` are enough.
    pub fn within(&self, from: usize, to: usize) -> bool {
        !self.all && (self.last == 0 || (self.first >= from && self.last <= to))
    }
}

impl Expr {
    pub fn eval(&self, ctx: &Context, env: &Env) -> Result<Value> {
        Ok(match self {
            Expr::Const(value) => value.clone(),
            Expr::Parameter(number) => match ctx.parameters.get(*number) {
                Some(value) => value.clone().map_or(Value::Null, Value::Text),
                None => {
                    return Err(
                        Error::user(format!("there is no parameter ${}", number + 1)).code("42P02")
                    );
                }
            },
            Expr::Column { depth, index } => {
                let mut of = env;
                for _ in 0..*depth {
                    of = of.parent.ok_or_else(|| lost("a query around it"))?;
                }
                let at = index.checked_sub(of.base).and_then(|i| of.row.get(i));
                at.cloned().ok_or_else(|| lost("a column"))?
            }
            Expr::Aggregate(i) => env.aggregates.get(*i).cloned().ok_or_else(|| lost("a group"))?,
            Expr::Window(i) => env.windows.get(*i).cloned().ok_or_else(|| lost("a window"))?,
            Expr::Set(i) => env.sets.get(*i).cloned().ok_or_else(|| lost("a set"))?,
            Expr::Call { function, arguments, types } => {
                let values: Row = list(arguments, ctx, env)?;
                if function.strict && values.iter().any(Value::is_null) {
                    return Ok(Value::Null);
                }
                (function.run)(ctx, &values, types)?
            }
            Expr::And(parts) => {
                let mut result = Value::Bool(true);
                for part in parts {
                    match part.eval(ctx, env)? {
                        Value::Bool(false) => return Ok(Value::Bool(false)),
                        Value::Null => result = Value::Null,
                        _ => {}
                    }
                }
                result
            }
            Expr::Or(parts) => {
                let mut result = Value::Bool(false);
                for part in parts {
                    match part.eval(ctx, env)? {
                        Value::Bool(true) => return Ok(Value::Bool(true)),
                        Value::Null => result = Value::Null,
                        _ => {}
                    }
                }
                result
            }
            Expr::Not(e) => match e.eval(ctx, env)? {
                Value::Bool(b) => Value::Bool(!b),
                _ => Value::Null,
            },
            Expr::IsNull(e) => match e.eval(ctx, env)? {
                Value::Row(fields) => fields.iter().all(Value::is_null).into(),
                value => value.is_null().into(),
            },
            Expr::IsTrue { expr, wanted } => {
                matches!(expr.eval(ctx, env)?, Value::Bool(b) if b == *wanted).into()
            }
            Expr::IsDistinct(a, b) => (a.eval(ctx, env)? != b.eval(ctx, env)?).into(),
            Expr::Compare { op, left, right } => {
                compare(ctx, *op, &left.eval(ctx, env)?, &right.eval(ctx, env)?)?
            }
            Expr::Quantified { op, left, array, all } => {
                let left = left.eval(ctx, env)?;
                let array = array.eval(ctx, env)?;
                let Some(values) = array.as_array() else { return Ok(Value::Null) };
                quantified(ctx, *op, &left, values.iter(), *all)?
            }
            Expr::Case { operand, branches, otherwise } => {
                let operand = operand.as_ref().map(|o| o.eval(ctx, env)).transpose()?;
                for (when, then) in branches {
                    let when = when.eval(ctx, env)?;
                    let taken = match &operand {
                        Some(operand) => compare(ctx, Op::Eq, operand, &when)?.is_true(),
                        None => when.is_true(),
                    };
                    if taken {
                        return then.eval(ctx, env);
                    }
                }
                otherwise.eval(ctx, env)?
            }
            Expr::Coalesce(parts) => {
                for part in parts {
                    let value = part.eval(ctx, env)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Value::Null
            }
            Expr::Cast { expr, from, to, typmod } => {
                text::cast(&expr.eval(ctx, env)?, *from, *to, *typmod, ctx.env)?
            }
            Expr::Array(parts) => Value::array(list(parts, ctx, env)?),
            Expr::Row(parts) => Value::Row(list(parts, ctx, env)?.into()),
            Expr::Field(e, at) => match e.eval(ctx, env)? {
                Value::Row(fields) => fields.get(*at).cloned().unwrap_or(Value::Null),
                _ => Value::Null,
            },
            Expr::Subscript { array, index, first } => {
                match (array.eval(ctx, env)?, index.eval(ctx, env)?.as_int()) {
                    (Value::Array(values), Some(index)) => usize::try_from(index - first)
                        .ok()
                        .and_then(|at| values.get(at).cloned())
                        .unwrap_or(Value::Null),
                    _ => Value::Null,
                }
            }
            Expr::Scalar(query) => {
                let rows = exec::run(ctx, query, Some(env))?;
                if rows.len() > 1 {
                    let message = "more than one row returned by a subquery used as an expression";
                    return Err(Error::user(message).code("21000"));
                }
                rows.first().map_or(Value::Null, |row| row[0].clone())
            }
            Expr::Exists(query) => (!exec::run(ctx, query, Some(env))?.is_empty()).into(),
            Expr::ArrayOf(query) => {
                let rows = exec::run(ctx, query, Some(env))?;
                Value::array(rows.iter().map(|row| row[0].clone()))
            }
            Expr::QuantifiedQuery { op, left, query, all } => {
                let left = left.eval(ctx, env)?;
                let rows = exec::run(ctx, query, Some(env))?;
                if let Value::Row(_) = left {
                    let values: Vec<Value> =
                        rows.iter().map(|row| Value::Row(row.as_slice().into())).collect();
                    quantified(ctx, *op, &left, values.iter(), *all)?
                } else {
                    quantified(ctx, *op, &left, rows.iter().map(|row| &row[0]), *all)?
                }
            }
        })
    }

    pub fn is_true(&self, ctx: &Context, env: &Env) -> Result<bool> {
        Ok(self.eval(ctx, env)?.is_true())
    }
}

pub fn list(exprs: &[Expr], ctx: &Context, env: &Env) -> Result<Row> {
    exprs.iter().map(|e| e.eval(ctx, env)).collect()
}

fn lost(what: &str) -> Error {
    Error::internal(format!("a query over the catalog refers to {what} that is not there"))
}

fn quantified<'v>(
    ctx: &Context,
    op: Op,
    left: &Value,
    values: impl Iterator<Item = &'v Value>,
    all: bool,
) -> Result<Value> {
    let mut result = Value::Bool(all);
    for value in values {
        match compare(ctx, op, left, value)? {
            Value::Bool(b) if b != all => return Ok(Value::Bool(b)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}

/// NULL if one side is.
pub fn compare(ctx: &Context, op: Op, left: &Value, right: &Value) -> Result<Value> {
    if left.is_null() || right.is_null() {
        return Ok(Value::Null);
    }
    let (text, pattern) = (left.as_text(), right.as_text());
    Ok(Value::Bool(match op {
        Op::Match { negated, ignore_case } => {
            let (Some(text), Some(pattern)) = (text, pattern) else { return Ok(Value::Null) };
            ctx.matches(text, pattern, ignore_case)? != negated
        }
        Op::Like { negated, ignore_case, escape } => {
            let (Some(text), Some(pattern)) = (text, pattern) else { return Ok(Value::Null) };
            ctx.matches(text, &of_like(pattern, escape), ignore_case)? != negated
        }
        _ => {
            let Some(ordering) = left.compare(right) else { return Ok(Value::Null) };
            match op {
                Op::Eq => ordering.is_eq(),
                Op::Ne => ordering.is_ne(),
                Op::Lt => ordering.is_lt(),
                Op::Le => ordering.is_le(),
                Op::Gt => ordering.is_gt(),
                _ => ordering.is_ge(),
            }
        }
    }))
}

/// The regular expression that matches what a LIKE pattern does.
fn of_like(pattern: &str, escape: Option<char>) -> String {
    let mut regex = String::from("(?s)^");
    let mut chars = pattern.chars();
    let push = |c: char, regex: &mut String| *regex += &regex::escape(c.encode_utf8(&mut [0; 4]));
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                if let Some(next) = chars.next() {
                    push(next, &mut regex);
                }
            }
            '%' => regex += ".*",
            '_' => regex.push('.'),
            c => push(c, &mut regex),
        }
    }
    regex + "$"
}

#[cfg(test)]
mod tests {
    use super::of_like;

    #[test]
    fn like_is_a_regular_expression() {
        assert_eq!(of_like("a%b_", Some('\\')), "(?s)^a.*b.$");
        assert_eq!(of_like("pg/_%", Some('/')), "(?s)^pg_.*$");
        assert_eq!(of_like("a.b\\%", Some('\\')), "(?s)^a\\.b%$");
    }
}
