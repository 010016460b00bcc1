//! Queries: WITH, SELECT, VALUES, UNION, ORDER BY.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use sqlparser::ast::{self, SelectItem, SetExpr};
use thalweg_base::{Error, Result};

use super::{Binder, Collected, Place, Scope, Typed, name, unsupported};
use crate::query::expr::Expr;
use crate::query::{Body, Combine, Cte, CteQuery, Distinct, Group, Key, Output, Query, Select};
use crate::types;

/// A SELECT on its way: its items may still grow by what it is ordered by.
struct Draft {
    body: Body,
    columns: Vec<Output>,
    order: Vec<Key>,
}

impl Binder<'_> {
    /// The whole statement.
    pub fn statement(&self, query: &ast::Query) -> Result<Query> {
        let mut query = self.query(query, None)?;
        for at in 0..query.columns.len() {
            if query.columns[at].oid == types::UNKNOWN {
                self.retype(&mut query, at, types::TEXT)?;
            }
        }
        Ok(query)
    }

    pub(super) fn query(&self, query: &ast::Query, parent: Option<&Scope>) -> Result<Query> {
        let refused = !query.pipe_operators.is_empty() || query.for_clause.is_some();
        if refused {
            return Err(unsupported("this clause"));
        }
        let around = parent.map_or(0, |p| p.level);
        let before = self.lowest.replace(usize::MAX);
        let known = self.ctes.borrow().len();
        let ctes = match &query.with {
            None => vec![],
            Some(with) => with
                .cte_tables
                .iter()
                .map(|cte| {
                    let cte = self.cte(cte, with.recursive, parent)?;
                    self.ctes.borrow_mut().push(Rc::clone(&cte));
                    Ok(cte)
                })
                .collect::<Result<_>>()?,
        };
        let order = match &query.order_by {
            None => &[],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(order), .. }) => {
                order.as_slice()
            }
            Some(_) => return Err(unsupported("ORDER BY ALL")),
        };
        let draft = self.body(&query.body, order, parent)?;
        let scope = Scope::new(parent);
        let place = Place { scope: &scope, collected: None };
        let number = |e: &ast::Expr| self.coerce(self.expr(e, place)?, types::INT8);
        let (limit, offset) = match (&query.limit_clause, &query.fetch) {
            (None, None) => (None, None),
            (Some(ast::LimitClause::LimitOffset { limit, offset, .. }), fetch) => (
                limit.as_ref().or(fetch.as_ref().and_then(|f| f.quantity.as_ref())),
                offset.as_ref().map(|o| &o.value),
            ),
            (None, Some(fetch)) => (fetch.quantity.as_ref(), None),
            _ => return Err(unsupported("LIMIT a, b")),
        };
        let limit = limit.map(number).transpose()?;
        let offset = offset.map(number).transpose()?;
        self.ctes.borrow_mut().truncate(known);
        let lowest = self.lowest.get();
        self.lowest.set(before.min(lowest));
        Ok(Query {
            ctes,
            body: draft.body,
            order: draft.order,
            limit,
            offset,
            columns: draft.columns,
            correlated: lowest <= around,
            once: OnceCell::new(),
        })
    }

    /// A part of a query that has no WITH, ORDER BY and LIMIT of its own.
    fn part(&self, body: &SetExpr, parent: Option<&Scope>) -> Result<Query> {
        let around = parent.map_or(0, |p| p.level);
        let before = self.lowest.replace(usize::MAX);
        let draft = self.body(body, &[], parent)?;
        let lowest = self.lowest.get();
        self.lowest.set(before.min(lowest));
        Ok(Query {
            ctes: vec![],
            body: draft.body,
            order: draft.order,
            limit: None,
            offset: None,
            columns: draft.columns,
            correlated: lowest <= around,
            once: OnceCell::new(),
        })
    }

    fn cte(&self, cte: &ast::Cte, recursive: bool, parent: Option<&Scope>) -> Result<Rc<Cte>> {
        let called = name::ident(&cte.alias.name);
        let rename = |columns: &mut Vec<Output>| {
            for (column, alias) in columns.iter_mut().zip(&cte.alias.columns) {
                column.name = name::ident(&alias.name);
            }
        };
        let make = |columns: Vec<Output>| Cte {
            name: called.clone(),
            columns,
            query: RefCell::new(None),
            rows: RefCell::default(),
        };
        if recursive
            && let SetExpr::SetOperation {
                op: ast::SetOperator::Union,
                set_quantifier,
                left,
                right,
            } = cte.query.body.as_ref()
        {
            let mut first = self.part(left, parent)?;
            for at in 0..first.columns.len() {
                if first.columns[at].oid == types::UNKNOWN {
                    self.retype(&mut first, at, types::TEXT)?;
                }
            }
            let mut columns = first.columns.clone();
            rename(&mut columns);
            let cte = Rc::new(make(columns));
            self.ctes.borrow_mut().push(Rc::clone(&cte));
            let mut next = self.part(right, parent)?;
            self.ctes.borrow_mut().pop();
            self.same_width(&first, &next)?;
            for (at, column) in first.columns.iter().enumerate() {
                self.retype(&mut next, at, column.oid)?;
            }
            // It reads rows that change while it runs.
            next.correlated = true;
            let all = *set_quantifier == ast::SetQuantifier::All;
            *cte.query.borrow_mut() =
                Some(CteQuery::Recursive { first: Box::new(first), next: Box::new(next), all });
            return Ok(cte);
        }
        let query = self.query(&cte.query, parent)?;
        let mut columns = query.columns.clone();
        rename(&mut columns);
        let cte = make(columns);
        *cte.query.borrow_mut() = Some(CteQuery::Plain(Box::new(query)));
        Ok(Rc::new(cte))
    }

    fn same_width(&self, left: &Query, right: &Query) -> Result<()> {
        if left.columns.len() == right.columns.len() {
            return Ok(());
        }
        Err(Error::user("each UNION query must have the same number of columns").code("42601"))
    }

    fn body(
        &self,
        body: &SetExpr,
        order: &[ast::OrderByExpr],
        parent: Option<&Scope>,
    ) -> Result<Draft> {
        match body {
            SetExpr::Select(select) => self.select(select, order, parent),
            SetExpr::Query(query) => {
                let inner = self.query(query, parent)?;
                let columns = inner.columns.clone();
                let order = by_output(order, &columns)?;
                Ok(Draft { body: Body::Query(Box::new(inner)), columns, order })
            }
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let kind = match op {
                    ast::SetOperator::Union => Combine::Union,
                    ast::SetOperator::Intersect => Combine::Intersect,
                    ast::SetOperator::Except | ast::SetOperator::Minus => Combine::Except,
                };
                let (mut left, mut right) = (self.part(left, parent)?, self.part(right, parent)?);
                self.same_width(&left, &right)?;
                for at in 0..left.columns.len() {
                    let to = self.common([left.columns[at].oid, right.columns[at].oid])?;
                    self.retype(&mut left, at, to)?;
                    self.retype(&mut right, at, to)?;
                }
                let columns = left.columns.clone();
                let order = by_output(order, &columns)?;
                let all = *set_quantifier == ast::SetQuantifier::All;
                let body =
                    Body::Combined { kind, all, left: Box::new(left), right: Box::new(right) };
                Ok(Draft { body, columns, order })
            }
            SetExpr::Values(values) => {
                let scope = Scope::new(parent);
                let place = Place { scope: &scope, collected: None };
                let mut lines: Vec<Vec<Typed>> = vec![];
                for row in &values.rows {
                    let line = row.iter().map(|e| self.expr(e, place));
                    lines.push(line.collect::<Result<_>>()?);
                }
                let width = lines.first().map_or(0, Vec::len);
                if lines.iter().any(|line| line.len() != width) {
                    return Err(
                        Error::user("VALUES lists must all be the same length").code("42601")
                    );
                }
                let mut columns = vec![];
                for at in 0..width {
                    let oid = self.common(lines.iter().map(|line| line[at].oid))?;
                    let name = format!("column{}", at + 1);
                    columns.push(Output { name, oid, typmod: -1, fields: None });
                }
                let lines = lines.into_iter().map(|line| {
                    let each = line.into_iter().zip(&columns);
                    each.map(|(typed, column)| self.coerce(typed, column.oid)).collect()
                });
                let lines = lines.collect::<Result<Vec<Vec<Expr>>>>()?;
                let order = by_output(order, &columns)?;
                Ok(Draft { body: Body::Values(lines), columns, order })
            }
            SetExpr::Table(table) => {
                let name = table.table_name.clone().unwrap_or_default();
                let schema =
                    table.schema_name.as_ref().map(|s| format!("{s}.")).unwrap_or_default();
                Err(unsupported(format!("TABLE {schema}{name}")))
            }
            _ => Err(unsupported("this kind of query")),
        }
    }

    /// Gives a column of a query another type.
    fn retype(&self, query: &mut Query, at: usize, to: types::Oid) -> Result<()> {
        let from = query.columns[at].oid;
        if from == to {
            return Ok(());
        }
        let cast = |expr: &mut Expr| -> Result<()> {
            let inner = std::mem::replace(expr, Expr::null());
            *expr = self.coerce(Typed::new(inner, from), to)?;
            Ok(())
        };
        match &mut query.body {
            Body::Select(select) => cast(&mut select.items[at])?,
            Body::Values(lines) => {
                for line in lines {
                    cast(&mut line[at])?;
                }
            }
            Body::Query(inner) => self.retype(inner, at, to)?,
            Body::Combined { left, right, .. } => {
                self.retype(left, at, to)?;
                self.retype(right, at, to)?;
            }
        }
        query.columns[at].oid = to;
        query.columns[at].typmod = -1;
        Ok(())
    }

    fn select(
        &self,
        select: &ast::Select,
        order: &[ast::OrderByExpr],
        parent: Option<&Scope>,
    ) -> Result<Draft> {
        if select.into.is_some() || select.qualify.is_some() || !select.lateral_views.is_empty() {
            return Err(unsupported("this clause"));
        }
        let mut scope = Scope::new(parent);
        let from = self.from(&select.from, &mut scope)?;
        let scope = scope;
        let mut filter = vec![];
        if let Some(selection) = &select.selection {
            let place = Place { scope: &scope, collected: None };
            push_conjuncts(self.condition(selection, place)?, &mut filter);
        }
        let collected = RefCell::new(Collected::default());
        let place = Place { scope: &scope, collected: Some(&collected) };

        let keys = self.group_keys(select)?;
        let mut key_exprs = vec![];
        let mut key_columns = vec![];
        for key in &keys {
            let typed = self.expr(key, Place { scope: &scope, collected: None })?;
            if let Expr::Column { depth: 0, index } = typed.expr {
                key_columns.push(index);
            }
            key_exprs.push(self.settled(typed)?.expr);
        }
        collected.borrow_mut().keys = keys.iter().map(ToString::to_string).collect();

        let (mut items, mut columns) = (vec![], vec![]);
        let mut written: Vec<Option<String>> = vec![];
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    let called = match item {
                        SelectItem::ExprWithAlias { alias, .. } => name::ident(alias),
                        _ => name::of(expr),
                    };
                    let typed = self.expr(expr, place)?;
                    columns.push(Output {
                        name: called,
                        oid: typed.oid,
                        typmod: typed.typmod,
                        fields: typed.fields,
                    });
                    items.push(typed.expr);
                    written.push(Some(expr.to_string()));
                }
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                    let before = items.len();
                    self.wildcard(item, &scope, &mut items, &mut columns)?;
                    for e in &items[before..] {
                        if let Expr::Column { depth: 0, index } = e {
                            collected.borrow_mut().bare.push(*index);
                        }
                    }
                    written.resize(items.len(), None);
                }
                _ => return Err(unsupported("this item of a SELECT list")),
            }
        }
        let having = match &select.having {
            Some(having) => Some(self.condition(having, place)?),
            None => None,
        };
        let width = items.len();
        let mut order_keys = vec![];
        for by in order {
            let column = self.order_column(by, &columns, &written, &mut items, place)?;
            order_keys.push(key(column, &by.options));
        }
        let distinct = match &select.distinct {
            None | Some(ast::Distinct::All) => Distinct::No,
            Some(ast::Distinct::Distinct) if items.len() > width => {
                return Err(Error::user(
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                )
                .code("42P10"));
            }
            Some(ast::Distinct::Distinct) => Distinct::Yes(width),
            Some(ast::Distinct::On(exprs)) => {
                let mut on = vec![];
                for expr in exprs {
                    let by = ast::OrderByExpr {
                        expr: expr.clone(),
                        options: ast::OrderByOptions { asc: None, nulls_first: None },
                        with_fill: None,
                    };
                    on.push(self.order_column(&by, &columns, &written, &mut items, place)?);
                }
                Distinct::On(on)
            }
        };
        let Collected { aggregates, windows, sets, bare, .. } = collected.into_inner();
        let is_grouped = !keys.is_empty() || !aggregates.is_empty() || having.is_some();
        if is_grouped {
            grouped_by(&scope, &bare, &key_columns)?;
        }
        let group = is_grouped.then_some(Group { keys: key_exprs, aggregates, having });
        let body = Select { from, filter, group, windows, sets, items, distinct };
        Ok(Draft { body: Body::Select(Box::new(body)), columns, order: order_keys })
    }

    /// The expressions of a GROUP BY, with numbers and names of the SELECT list replaced.
    fn group_keys(&self, select: &ast::Select) -> Result<Vec<ast::Expr>> {
        let exprs = match &select.group_by {
            ast::GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
            _ => return Err(unsupported("this GROUP BY")),
        };
        let item = |at: usize| match select.projection.get(at) {
            Some(SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) => Some(e),
            _ => None,
        };
        let alias = |wanted: &ast::Ident| {
            select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias }
                    if name::ident(alias) == name::ident(wanted)
                        && !matches!(expr, ast::Expr::Identifier(_)) =>
                {
                    Some(expr)
                }
                _ => None,
            })
        };
        exprs
            .iter()
            .map(|expr| match expr {
                ast::Expr::Value(v) => match &v.value {
                    ast::Value::Number(n, _) => {
                        let at = n.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                        at.and_then(item).cloned().ok_or_else(|| position(n))
                    }
                    _ => Ok(expr.clone()),
                },
                // A column of the FROM comes before a name of the list; it is found when bound.
                ast::Expr::Identifier(i) => Ok(alias(i).unwrap_or(expr).clone()),
                _ => Ok(expr.clone()),
            })
            .collect()
    }

    /// The column of the items that an ORDER BY names, or a new one.
    fn order_column(
        &self,
        by: &ast::OrderByExpr,
        columns: &[Output],
        written: &[Option<String>],
        items: &mut Vec<Expr>,
        place: Place,
    ) -> Result<usize> {
        if let Some(column) = output_column(&by.expr, columns)? {
            return Ok(column);
        }
        let text = by.expr.to_string();
        if let Some(column) = written.iter().position(|w| w.as_ref() == Some(&text)) {
            return Ok(column);
        }
        let typed = self.expr(&by.expr, place)?;
        items.push(self.settled(typed)?.expr);
        Ok(items.len() - 1)
    }

    fn wildcard(
        &self,
        item: &SelectItem,
        scope: &Scope,
        items: &mut Vec<Expr>,
        columns: &mut Vec<Output>,
    ) -> Result<()> {
        let wanted = match item {
            SelectItem::QualifiedWildcard(
                ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) => Some(name::parts(name)),
            SelectItem::Wildcard(_) => None,
            _ => return Err(unsupported("(…).*")),
        };
        let table = wanted.as_ref().and_then(|parts| parts.last());
        let before = items.len();
        for (index, column) in scope.columns.iter().enumerate() {
            let fits = match table {
                Some(table) => column.table == *table,
                None => !column.merged,
            };
            if !fits || column.hidden {
                continue;
            }
            items.push(Expr::Column { depth: 0, index });
            columns.push(Output {
                name: column.name.clone(),
                oid: column.oid,
                typmod: column.typmod,
                fields: column.fields.clone(),
            });
        }
        match table {
            Some(table) if items.len() == before => {
                Err(Error::user(format!("missing FROM-clause entry for table \"{table}\""))
                    .code("42P01"))
            }
            _ => Ok(()),
        }
    }
}

/// Splits `a AND b`.
pub(super) fn push_conjuncts(expr: Expr, into: &mut Vec<Expr>) {
    match expr {
        Expr::And(parts) => parts.into_iter().for_each(|part| push_conjuncts(part, into)),
        other => into.push(other),
    }
}

/// Refuses columns that are not decided by the groups. A key that is a relation's OID decides all
/// of its columns.
fn grouped_by(scope: &Scope, bare: &[usize], keys: &[usize]) -> Result<()> {
    let decided: Vec<&str> = keys
        .iter()
        .map(|key| &scope.columns[*key])
        .filter(|c| c.name == "oid")
        .map(|c| c.table.as_str())
        .collect();
    for index in bare.iter().filter(|index| !keys.contains(index)) {
        let column = &scope.columns[*index];
        if !decided.contains(&column.table.as_str()) {
            return Err(Error::user(format!(
                "column \"{}.{}\" must appear in the GROUP BY clause or be used in an aggregate \
                 function",
                column.table, column.name
            ))
            .code("42803"));
        }
    }
    Ok(())
}

fn position(number: &str) -> Error {
    Error::user(format!("position {number} is not in select list")).code("42P10")
}

/// A column of the result, by its number or its name.
fn output_column(expr: &ast::Expr, columns: &[Output]) -> Result<Option<usize>> {
    match expr {
        ast::Expr::Value(v) => match &v.value {
            ast::Value::Number(n, _) => {
                let at = n.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                let at = at.filter(|at| *at < columns.len());
                at.map(Some).ok_or_else(|| position(n))
            }
            _ => Ok(None),
        },
        ast::Expr::Identifier(i) => {
            let wanted = name::ident(i);
            Ok(columns.iter().position(|c| c.name == wanted))
        }
        ast::Expr::Nested(inner) => output_column(inner, columns),
        _ => Ok(None),
    }
}

fn key(column: usize, options: &ast::OrderByOptions) -> Key {
    let descending = options.asc == Some(false);
    Key { column, descending, nulls_first: options.nulls_first.unwrap_or(descending) }
}

/// What is not a SELECT can only be ordered by its columns.
fn by_output(order: &[ast::OrderByExpr], columns: &[Output]) -> Result<Vec<Key>> {
    let each = order.iter().map(|by| match output_column(&by.expr, columns)? {
        Some(column) => Ok(key(column, &by.options)),
        None => Err(Error::user("ORDER BY of a UNION takes columns of its result")
            .code("0A000")
            .hint("name a column, or its number")),
    });
    each.collect()
}
