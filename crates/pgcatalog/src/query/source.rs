//! The rows of a FROM: scans with what is asked of them, and joins.

use std::collections::HashMap;

use thalweg_base::{Error, Result};

use crate::query::exec;
use crate::query::expr::{self, Context, Env, Expr, Op};
use crate::query::{JoinKind, SYSTEM_COLUMNS, Source};
use crate::relation::Relation;
use crate::value::{Row, Value};

/// From so many rows on, a relation is asked by an index rather than read.
const INDEXED_ROWS_MIN: usize = 16;

/// Rows that a join may have: they are all in memory.
const ROWS_MAX: usize = 250_000;

fn bounded(rows: &[Row]) -> Result<()> {
    if rows.len() <= ROWS_MAX {
        return Ok(());
    }
    Err(Error::resources(format!("a join over the catalog has more than {ROWS_MAX} rows"))
        .hint("join the relations by their OIDs"))
}

/// The rows of `source` for which all of `filter` holds. `left` are the columns before it, which
/// it may refer to; `around` is the row of the query around.
pub fn rows(
    ctx: &Context,
    source: &Source,
    filter: &[&Expr],
    left: Option<&Env>,
    around: Option<&Env>,
) -> Result<Vec<Row>> {
    let base = source.base();
    let keep = |found: Vec<Row>| -> Result<Vec<Row>> {
        if filter.is_empty() {
            return Ok(found);
        }
        let mut kept = vec![];
        for row in found {
            ctx.step()?;
            if all(ctx, filter, &Env::of(&row, base, around))? {
                kept.push(row);
            }
        }
        Ok(kept)
    };
    match source {
        Source::Relation { relation, base } => scan(ctx, relation, *base, filter, around),
        Source::Query { query, lateral, .. } => {
            let around = if *lateral { left.or(around) } else { around };
            keep(exec::run(ctx, query, around)?.to_vec())
        }
        Source::Cte { cte, .. } => {
            let found = cte.rows.borrow().to_vec();
            keep(found)
        }
        Source::Functions { calls, ordinality, width, .. } => {
            let empty = Env::of(&[], 0, around);
            let env = left.unwrap_or(&empty);
            let mut sets = vec![];
            for (set, arguments) in calls {
                let found = (set.run)(ctx, &expr::list(arguments, ctx, env)?, &set.types)?;
                sets.push((found, set.columns.len()));
            }
            let count = sets.iter().map(|(rows, _)| rows.len()).max().unwrap_or(0);
            let mut found = vec![];
            for n in 0..count {
                let mut row: Row = Vec::with_capacity(*width);
                for (rows, columns) in &sets {
                    match rows.get(n) {
                        Some(values) => row.extend(values.iter().cloned()),
                        None => row.extend(std::iter::repeat_n(Value::Null, *columns)),
                    }
                }
                if *ordinality {
                    row.push(Value::Int(n as i64 + 1));
                }
                found.push(row);
            }
            keep(found)
        }
        Source::Join { kind, left: a, right: b, on } => {
            join(ctx, *kind, a, b, on, filter, left, around)
        }
    }
}

fn all(ctx: &Context, filter: &[&Expr], env: &Env) -> Result<bool> {
    for f in filter {
        if !f.is_true(ctx, env)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn full_row(relation: &Relation, at: usize) -> Row {
    let mut row = Vec::with_capacity(relation.columns.len() + SYSTEM_COLUMNS);
    row.extend(relation.rows[at].iter().cloned());
    row.push(relation.oid.into());
    row.push(Value::Int(1));
    row
}

/// `column = value` or `column = ANY (array)`, whose other side is known before the scan: the
/// column, and that side.
fn wanted(f: &Expr, base: usize, columns: usize) -> Option<(usize, &Expr, bool)> {
    let column = |e: &Expr| match e {
        Expr::Column { depth: 0, index } => {
            index.checked_sub(base).filter(|column| *column < columns)
        }
        _ => None,
    };
    match f {
        Expr::Compare { op: Op::Eq, left, right } => {
            let forth = column(left).map(|c| (c, right.as_ref(), false));
            let found = forth.or_else(|| column(right).map(|c| (c, left.as_ref(), false)))?;
            found.1.needs().none().then_some(found)
        }
        Expr::Quantified { op: Op::Eq, left, array, all: false } => {
            array.needs().none().then_some((column(left)?, array.as_ref(), true))
        }
        _ => None,
    }
}

fn scan(
    ctx: &Context,
    relation: &Relation,
    base: usize,
    filter: &[&Expr],
    around: Option<&Env>,
) -> Result<Vec<Row>> {
    let columns = relation.columns.len();
    let indexed = relation.rows.len() >= INDEXED_ROWS_MIN;
    let found = filter.iter().filter(|_| indexed).find_map(|f| wanted(f, base, columns));
    let places: Vec<u32> = match found {
        Some((column, value, is_array)) => {
            let value = value.eval(ctx, &Env::of(&[], base, around))?;
            match (value, is_array) {
                (Value::Null, _) => vec![],
                (Value::Array(values), true) => {
                    let values = values.iter().filter(|v| !v.is_null());
                    let mut all: Vec<u32> = values.flat_map(|v| relation.find(column, v)).collect();
                    all.sort_unstable();
                    all.dedup();
                    all
                }
                (value, _) => relation.find(column, &value),
            }
        }
        None => (0..relation.rows.len() as u32).collect(),
    };
    let mut rows = vec![];
    for at in places {
        ctx.step()?;
        let row = full_row(relation, at as usize);
        if all(ctx, filter, &Env::of(&row, base, around))? {
            rows.push(row);
        }
    }
    Ok(rows)
}

#[allow(clippy::too_many_arguments)]
fn join(
    ctx: &Context,
    kind: JoinKind,
    a: &Source,
    b: &Source,
    on: &[Expr],
    filter: &[&Expr],
    outer_left: Option<&Env>,
    around: Option<&Env>,
) -> Result<Vec<Row>> {
    let (start, middle, end) = (a.base(), b.base(), b.end());
    let of_left = |e: &Expr| e.needs().within(start, middle);
    let of_right = |e: &Expr| e.needs().within(middle, end);
    // What each side is asked for, what a pair must fulfil, and what the result must.
    let (mut left_filter, mut right_filter): (Vec<&Expr>, Vec<&Expr>) = (vec![], vec![]);
    let (mut pairs, mut after): (Vec<&Expr>, Vec<&Expr>) = (vec![], vec![]);
    for f in filter.iter().copied() {
        match kind {
            JoinKind::Inner | JoinKind::Left if of_left(f) => left_filter.push(f),
            JoinKind::Inner | JoinKind::Right if of_right(f) => right_filter.push(f),
            JoinKind::Inner => pairs.push(f),
            _ => after.push(f),
        }
    }
    for f in on {
        match kind {
            JoinKind::Inner | JoinKind::Right if of_left(f) => left_filter.push(f),
            JoinKind::Inner | JoinKind::Left if of_right(f) => right_filter.push(f),
            _ => pairs.push(f),
        }
    }
    let left_rows = rows(ctx, a, &left_filter, outer_left, around)?;
    let joined = Joined { ctx, kind, b, start, middle, end, around };
    let mut found = if b.is_lateral() {
        joined.lateral(left_rows, &right_filter, &pairs)?
    } else {
        joined.hashed(left_rows, &right_filter, &pairs)?
    };
    if !after.is_empty() {
        let mut kept = vec![];
        for row in found {
            ctx.step()?;
            if all(ctx, &after, &Env::of(&row, start, around))? {
                kept.push(row);
            }
        }
        found = kept;
    }
    Ok(found)
}

struct Joined<'a> {
    ctx: &'a Context<'a>,
    kind: JoinKind,
    b: &'a Source,
    start: usize,
    middle: usize,
    end: usize,
    around: Option<&'a Env<'a>>,
}

impl Joined<'_> {
    fn keeps_left(&self) -> bool {
        matches!(self.kind, JoinKind::Left | JoinKind::Full)
    }

    fn without_right(&self, mut left: Row) -> Row {
        left.extend(std::iter::repeat_n(Value::Null, self.end - self.middle));
        left
    }

    /// The right side anew for each row of the left.
    fn lateral(&self, left: Vec<Row>, filter: &[&Expr], pairs: &[&Expr]) -> Result<Vec<Row>> {
        let mut found = vec![];
        for row in left {
            let matches = {
                let env = Env::of(&row, self.start, self.around);
                rows(self.ctx, self.b, filter, Some(&env), self.around)?
            };
            let before = found.len();
            for right in matches {
                self.ctx.step()?;
                let mut both = row.clone();
                both.extend(right);
                if all(self.ctx, pairs, &Env::of(&both, self.start, self.around))? {
                    found.push(both);
                }
            }
            if found.len() == before && self.keeps_left() {
                found.push(self.without_right(row));
            }
            bounded(&found)?;
        }
        Ok(found)
    }

    fn hashed(&self, left: Vec<Row>, filter: &[&Expr], pairs: &[&Expr]) -> Result<Vec<Row>> {
        let (ctx, around) = (self.ctx, self.around);
        // `left = right` of the pairs, and what else they must fulfil.
        let (mut keys, mut rest): (Vec<(&Expr, &Expr)>, Vec<&Expr>) = (vec![], vec![]);
        for f in pairs {
            let Expr::Compare { op: Op::Eq, left, right } = f else {
                rest.push(f);
                continue;
            };
            let of_left = |e: &Expr| e.needs().within(self.start, self.middle);
            let of_right = |e: &Expr| !e.needs().none() && e.needs().within(self.middle, self.end);
            if of_left(left) && of_right(right) {
                keys.push((left, right));
            } else if of_left(right) && of_right(left) {
                keys.push((right, left));
            } else {
                rest.push(f);
            }
        }
        // A few rows of the left look theirs up in a relation's own index.
        if let (Source::Relation { relation, base }, Some((key, Expr::Column { depth: 0, index }))) =
            (self.b, keys.first())
            && !matches!(self.kind, JoinKind::Right | JoinKind::Full)
            && *index < base + relation.columns.len()
            && left.len() * 2 < relation.rows.len()
        {
            let mut found = vec![];
            for row in left {
                let key = key.eval(ctx, &Env::of(&row, self.start, around))?;
                let before = found.len();
                let places = match key.is_null() {
                    true => vec![],
                    false => relation.find(index - base, &key),
                };
                for at in places {
                    ctx.step()?;
                    let mut both = row.clone();
                    both.extend(full_row(relation, at as usize));
                    let env = Env::of(&both, self.start, around);
                    if all(ctx, filter, &env)? && all(ctx, pairs, &env)? {
                        found.push(both);
                    }
                }
                if found.len() == before && self.keeps_left() {
                    found.push(self.without_right(row));
                }
                bounded(&found)?;
            }
            return Ok(found);
        }
        let right = rows(ctx, self.b, filter, None, around)?;
        let mut table: HashMap<Row, Vec<usize>> = HashMap::new();
        let mut everything = vec![];
        if keys.is_empty() {
            everything = (0..right.len()).collect();
        } else {
            for (at, row) in right.iter().enumerate() {
                let env = Env::of(row, self.middle, around);
                let key = keys.iter().map(|(_, right)| right.eval(ctx, &env));
                let key = key.collect::<Result<Row>>()?;
                if !key.iter().any(Value::is_null) {
                    table.entry(key).or_default().push(at);
                }
            }
        }
        let mut taken = vec![false; right.len()];
        let mut found = vec![];
        for row in left {
            let matches = if keys.is_empty() {
                &everything
            } else {
                let env = Env::of(&row, self.start, around);
                let key = keys.iter().map(|(left, _)| left.eval(ctx, &env));
                let key = key.collect::<Result<Row>>()?;
                table.get(&key).unwrap_or(const { &Vec::new() })
            };
            let before = found.len();
            for at in matches {
                ctx.step()?;
                let mut both = row.clone();
                both.extend(right[*at].iter().cloned());
                if all(ctx, &rest, &Env::of(&both, self.start, around))? {
                    taken[*at] = true;
                    found.push(both);
                }
            }
            if found.len() == before && self.keeps_left() {
                found.push(self.without_right(row));
            }
            bounded(&found)?;
        }
        if matches!(self.kind, JoinKind::Right | JoinKind::Full) {
            for (row, _) in right.into_iter().zip(taken).filter(|(_, taken)| !taken) {
                let mut both = vec![Value::Null; self.middle - self.start];
                both.extend(row);
                found.push(both);
            }
        }
        Ok(found)
    }
}
