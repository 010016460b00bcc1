//! Runs a query: from relations in memory, row by row.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use thalweg_base::{Error, Result};

use crate::query::expr::{self, Context, Env, Expr};
use crate::query::source;
use crate::query::{
    Body, Combine, Cte, CteQuery, Distinct, Group, Key, Query, Select, Window, WindowFunction,
};
use crate::value::{Row, Value};

/// Rows of a recursive query.
const RECURSIVE_ROWS_MAX: usize = 1_000_000;

/// The rows of a query, of which a subquery may be asked many times.
pub fn run(ctx: &Context, query: &Query, around: Option<&Env>) -> Result<Rc<Vec<Row>>> {
    if query.correlated {
        return rows(ctx, query, around).map(Rc::new);
    }
    if let Some(known) = query.once.get() {
        return Ok(Rc::clone(known));
    }
    let found = Rc::new(rows(ctx, query, around)?);
    Ok(Rc::clone(query.once.get_or_init(|| found)))
}

fn rows(ctx: &Context, query: &Query, around: Option<&Env>) -> Result<Vec<Row>> {
    for cte in &query.ctes {
        define(ctx, cte, around)?;
    }
    let mut found = match &query.body {
        Body::Select(select) => self::select(ctx, select, &query.order, around)?,
        Body::Values(lines) => {
            let env = Env::of(&[], 0, around);
            lines.iter().map(|line| expr::list(line, ctx, &env)).collect::<Result<_>>()?
        }
        Body::Query(inner) => run(ctx, inner, around)?.to_vec(),
        Body::Combined { kind, all, left, right } => {
            let left = run(ctx, left, around)?.to_vec();
            let right = run(ctx, right, around)?.to_vec();
            combine(*kind, *all, left, right)
        }
    };
    sort(&mut found, &query.order);
    if let Body::Select(select) = &query.body
        && let Distinct::On(columns) = &select.distinct
    {
        let mut seen = HashSet::new();
        found.retain(|row| seen.insert(columns.iter().map(|c| row[*c].clone()).collect::<Row>()));
    }
    let env = Env::of(&[], 0, around);
    let number = |e: &Option<Expr>| -> Result<Option<usize>> {
        let Some(e) = e else { return Ok(None) };
        match e.eval(ctx, &env)? {
            Value::Null => Ok(None),
            value => match value.as_int().and_then(|n| usize::try_from(n).ok()) {
                Some(n) => Ok(Some(n)),
                None => Err(Error::user("LIMIT and OFFSET must not be negative").code("2201W")),
            },
        }
    };
    if let Some(offset) = number(&query.offset)? {
        found.drain(..offset.min(found.len()));
    }
    if let Some(limit) = number(&query.limit)? {
        found.truncate(limit);
    }
    let width = query.columns.len();
    found.iter_mut().for_each(|row| row.truncate(width));
    Ok(found)
}

fn define(ctx: &Context, cte: &Cte, around: Option<&Env>) -> Result<()> {
    let query = cte.query.borrow();
    let result = match query.as_ref() {
        None => return Err(Error::internal("a WITH query that is not there")),
        Some(CteQuery::Plain(query)) => run(ctx, query, around)?,
        Some(CteQuery::Recursive { first, next, all }) => {
            let mut seen = HashSet::new();
            let mut fresh =
                |rows: &mut Vec<Row>| rows.retain(|row| *all || seen.insert(row.clone()));
            let mut working = rows(ctx, first, around)?;
            fresh(&mut working);
            let mut result = vec![];
            while !working.is_empty() {
                result.extend(working.iter().cloned());
                if result.len() > RECURSIVE_ROWS_MAX {
                    return Err(Error::resources(format!(
                        "WITH RECURSIVE \"{}\" has more than {RECURSIVE_ROWS_MAX} rows",
                        cte.name
                    )));
                }
                *cte.rows.borrow_mut() = Rc::new(working);
                working = rows(ctx, next, around)?;
                fresh(&mut working);
            }
            Rc::new(result)
        }
    };
    *cte.rows.borrow_mut() = result;
    Ok(())
}

fn combine(kind: Combine, all: bool, mut left: Vec<Row>, right: Vec<Row>) -> Vec<Row> {
    if kind == Combine::Union {
        left.extend(right);
    } else {
        // How often the right side has each row.
        let mut counts: HashMap<Row, usize> = HashMap::new();
        right.into_iter().for_each(|row| *counts.entry(row).or_default() += 1);
        left.retain(|row| {
            let found = match counts.get_mut(row) {
                Some(count) if all => {
                    let there = *count > 0;
                    *count = count.saturating_sub(1);
                    there
                }
                Some(_) => true,
                None => false,
            };
            found == (kind == Combine::Intersect)
        });
    }
    if !all {
        let mut seen = HashSet::new();
        left.retain(|row| seen.insert(row.clone()));
    }
    left
}

fn sort(rows: &mut [Row], keys: &[Key]) {
    if keys.is_empty() {
        return;
    }
    rows.sort_by(|a, b| {
        keys.iter()
            .map(|key| {
                let (a, b) = (&a[key.column], &b[key.column]);
                order(a, b, key.descending, key.nulls_first)
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    });
}

fn order(a: &Value, b: &Value, descending: bool, nulls_first: bool) -> std::cmp::Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) if descending => b.cmp(a),
        (false, false) => a.cmp(b),
        (a, b) if nulls_first => b.cmp(&a),
        (a, b) => a.cmp(&b),
    }
}

fn select(ctx: &Context, select: &Select, order: &[Key], around: Option<&Env>) -> Result<Vec<Row>> {
    let filter: Vec<&Expr> = select.filter.iter().collect();
    let input = match &select.from {
        Some(from) => source::rows(ctx, from, &filter, None, around)?,
        None => {
            let env = Env::of(&[], 0, around);
            let mut holds = true;
            for f in filter {
                holds = holds && f.is_true(ctx, &env)?;
            }
            if holds { vec![vec![]] } else { vec![] }
        }
    };
    // A row of the input or of a group, and the group's aggregates.
    let (rows, aggregates) = match &select.group {
        None => (input, vec![]),
        Some(group) => grouped(ctx, group, input, around)?,
    };
    let none = vec![];
    let of_group = |i: usize| aggregates.get(i).unwrap_or(&none).as_slice();
    let mut windows = vec![vec![]; if select.windows.is_empty() { 0 } else { rows.len() }];
    for window in &select.windows {
        let env = |i: usize| Env { aggregates: of_group(i), ..Env::of(&rows[i], 0, around) };
        let values = self::window(ctx, window, rows.len(), &env)?;
        for (all, value) in windows.iter_mut().zip(values) {
            all.push(value);
        }
    }
    let mut result = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        ctx.step()?;
        let windows = windows.get(i).unwrap_or(&none).as_slice();
        let env = Env { aggregates: of_group(i), windows, ..Env::of(row, 0, around) };
        if select.sets.is_empty() {
            result.push(expr::list(&select.items, ctx, &env)?);
            continue;
        }
        let mut sets = vec![];
        for (set, arguments) in &select.sets {
            sets.push((set.run)(ctx, &expr::list(arguments, ctx, &env)?, &set.types)?);
        }
        for n in 0..sets.iter().map(Vec::len).max().unwrap_or(0) {
            ctx.step()?;
            let values: Row = sets
                .iter()
                .map(|set| match set.get(n) {
                    Some(row) if row.len() == 1 => row[0].clone(),
                    Some(row) => Value::Row(row.as_slice().into()),
                    None => Value::Null,
                })
                .collect();
            let env = Env { sets: &values, ..env };
            result.push(expr::list(&select.items, ctx, &env)?);
        }
    }
    if let Distinct::Yes(width) = select.distinct {
        debug_assert!(order.iter().all(|key| key.column < width));
        let mut seen = HashSet::new();
        result.retain(|row| seen.insert(row[..width].to_vec()));
    }
    Ok(result)
}

/// The first row of each group, and its aggregates.
fn grouped(
    ctx: &Context,
    group: &Group,
    input: Vec<Row>,
    around: Option<&Env>,
) -> Result<(Vec<Row>, Vec<Row>)> {
    let mut places: HashMap<Row, usize> = HashMap::new();
    let mut groups: Vec<Vec<Row>> = vec![];
    if group.keys.is_empty() {
        groups.push(input);
    } else {
        for row in input {
            ctx.step()?;
            let key = expr::list(&group.keys, ctx, &Env::of(&row, 0, around))?;
            let place = *places.entry(key).or_insert(groups.len());
            if place == groups.len() {
                groups.push(vec![]);
            }
            groups[place].push(row);
        }
    }
    let (mut firsts, mut aggregates) = (vec![], vec![]);
    for rows in groups {
        let values = group.aggregates.iter().map(|a| a.run(ctx, &rows, around));
        let values = values.collect::<Result<Row>>()?;
        // Without a row there is but one group, and no column outside aggregates.
        let first = rows.into_iter().next().unwrap_or_default();
        if let Some(having) = &group.having {
            let env = Env { aggregates: &values, ..Env::of(&first, 0, around) };
            if !having.is_true(ctx, &env)? {
                continue;
            }
        }
        firsts.push(first);
        aggregates.push(values);
    }
    Ok((firsts, aggregates))
}

fn window<'e>(
    ctx: &Context,
    window: &Window,
    count: usize,
    env: &dyn Fn(usize) -> Env<'e>,
) -> Result<Vec<Value>> {
    let mut partitions: HashMap<Row, Vec<usize>> = HashMap::new();
    let mut keys = Vec::with_capacity(count);
    for i in 0..count {
        let env = env(i);
        partitions.entry(expr::list(&window.partition, ctx, &env)?).or_default().push(i);
        let key = window.order.iter().map(|(e, ..)| e.eval(ctx, &env));
        keys.push(key.collect::<Result<Row>>()?);
    }
    let mut values = vec![Value::Null; count];
    for members in partitions.values_mut() {
        members.sort_by(|a, b| {
            let each = keys[*a].iter().zip(&keys[*b]).zip(&window.order);
            each.map(|((a, b), (_, descending, nulls_first))| {
                order(a, b, *descending, *nulls_first)
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
        });
        let (mut rank, mut dense, mut peers) = (0, 0, 0);
        for (at, i) in members.iter().enumerate() {
            if at == 0 || keys[*i] != keys[members[at - 1]] {
                rank = at as i64 + 1;
                dense += 1;
                let same = members[at..].iter().take_while(|j| keys[**j] == keys[*i]).count();
                peers = at + same;
            }
            values[*i] = match &window.function {
                WindowFunction::RowNumber => Value::Int(at as i64 + 1),
                WindowFunction::Rank => Value::Int(rank),
                WindowFunction::DenseRank => Value::Int(dense),
                WindowFunction::Aggregate(aggregate) => {
                    let frame = &members[..peers];
                    let rows: Vec<Row> = frame.iter().map(|j| env(*j).row.to_vec()).collect();
                    aggregate.run(ctx, &rows, env(*i).parent)?
                }
            };
        }
    }
    Ok(values)
}
