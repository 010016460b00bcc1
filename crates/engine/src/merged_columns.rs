//! `JOIN … USING (c)` makes one column `c` of two.
//!
//! DataFusion's planner takes that of the left side for it, which is NULL where a right or a full join
//! has no row there. So a `FROM` item with such a join is written with `ON`, and the column by what it
//! stands for:
//!
//! ```text
//! SELECT c, x FROM a FULL JOIN b USING (c)   =>   SELECT coalesce(a.c, b.c) AS c, x
//!                                                 FROM a FULL JOIN b ON a.c = b.c
//! ```
//!
//! This is done with names alone, so what depends on the columns that tables have is refused: `NATURAL`
//! with an outer join that keeps the right side, and a column that several tables on the left may have.

use std::ops::ControlFlow;

use datafusion::common::Result as DfResult;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderByKind, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut,
    VisitorMut, WildcardAdditionalOptions,
};
use thalweg_base::Error;

use crate::error::into_datafusion;
use crate::names;
use crate::walk::walk_mut;

/// Writes the joins of all queries of a statement so that their columns are what they are meant to be.
pub fn merge(statement: &mut Statement) -> DfResult<()> {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    let Statement::Statement(statement) = inner else { return Ok(()) };
    let mut merging = Merging { refused: None };
    let _ = walk_mut(statement.as_mut(), &mut merging);
    merging.refused.map_or(Ok(()), |e| Err(into_datafusion(e)))
}

struct Merging {
    refused: Option<Error>,
}

impl VisitorMut for Merging {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        match of_query(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.refused = Some(e);
                ControlFlow::Break(())
            }
        }
    }
}

fn of_query(query: &mut Query) -> Result<(), Error> {
    let ordered = query.order_by.is_some();
    match query.body.as_mut() {
        SetExpr::Select(select) => {
            let merged = of_select(select, ordered)?;
            let order = query.order_by.as_mut().map(|by| &mut by.kind);
            if let Some(OrderByKind::Expressions(keys)) = order {
                let named = |column: &Merged| select.projection.iter().any(|i| names_it(i, column));
                // What the result has is meant first.
                let merged: Vec<Merged> = merged.into_iter().filter(|m| !named(m)).collect();
                for key in keys {
                    replace(&mut key.expr, &merged);
                }
            }
            Ok(())
        }
        body => of_branches(body),
    }
}

fn of_branches(body: &mut SetExpr) -> Result<(), Error> {
    match body {
        SetExpr::Select(select) => of_select(select, false).map(|_| ()),
        SetExpr::SetOperation { left, right, .. } => {
            of_branches(left)?;
            of_branches(right)
        }
        _ => Ok(()),
    }
}

/// A column of `USING`, and what it stands for.
#[derive(Clone)]
struct Merged {
    name: String,
    ident: Ident,
    expr: Expr,
}

/// A table of a `FROM` item.
struct Joined {
    name: Ident,
    /// Its columns that are merged with others.
    merged: Vec<Ident>,
}

fn of_select(select: &mut Select, ordered: bool) -> Result<Vec<Merged>, Error> {
    let mut all = vec![];
    let mut lists = vec![];
    for item in &mut select.from {
        let needed = keeps_right(item);
        let merges = item.joins.iter().any(|j| using(&j.join_operator).is_some());
        if !(needed || merges && ordered) {
            lists.push(None);
            continue;
        }
        let mut written = item.clone();
        match of_item(&mut written) {
            Ok((joined, merged)) => {
                *item = written;
                lists.push(Some((joined, merged.clone())));
                all.extend(merged);
            }
            Err(e) if needed => return Err(e),
            Err(_) => lists.push(None),
        }
    }
    if all.is_empty() {
        return Ok(all);
    }
    let mut projection = vec![];
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => {
                for (from, list) in select.from.iter().zip(&lists) {
                    expand(from, list.as_ref(), &mut projection)?;
                }
            }
            SelectItem::Wildcard(_) => {
                return Err(Error::unsupported(
                    "* EXCLUDE, REPLACE or RENAME over a join USING that keeps the rows of its \
                     right side is not supported",
                )
                .hint("list the columns"));
            }
            SelectItem::UnnamedExpr(mut expr) => {
                let text = match &expr {
                    Expr::Identifier(name) => name.clone(),
                    other => Ident::with_quote('"', other.to_string()),
                };
                projection.push(match replace(&mut expr, &all) {
                    true => SelectItem::ExprWithAlias { expr, alias: text },
                    false => SelectItem::UnnamedExpr(expr),
                });
            }
            SelectItem::ExprWithAlias { mut expr, alias } => {
                replace(&mut expr, &all);
                projection.push(SelectItem::ExprWithAlias { expr, alias });
            }
            other => projection.push(other),
        }
    }
    select.projection = projection;
    replace(&mut select.distinct, &all);
    replace(&mut select.selection, &all);
    replace(&mut select.group_by, &all);
    replace(&mut select.having, &all);
    replace(&mut select.named_window, &all);
    replace(&mut select.qualify, &all);
    Ok(all)
}

fn keeps_right(item: &TableWithJoins) -> bool {
    item.joins.iter().any(|join| {
        use JoinOperator::*;
        matches!(
            &join.join_operator,
            Right(JoinConstraint::Using(_) | JoinConstraint::Natural)
                | RightOuter(JoinConstraint::Using(_) | JoinConstraint::Natural)
                | FullOuter(JoinConstraint::Using(_) | JoinConstraint::Natural)
        )
    })
}

fn using(join: &JoinOperator) -> Option<&Vec<ObjectName>> {
    use JoinOperator::*;
    match join {
        Join(JoinConstraint::Using(columns))
        | Inner(JoinConstraint::Using(columns))
        | Left(JoinConstraint::Using(columns))
        | LeftOuter(JoinConstraint::Using(columns))
        | Right(JoinConstraint::Using(columns))
        | RightOuter(JoinConstraint::Using(columns))
        | FullOuter(JoinConstraint::Using(columns)) => Some(columns),
        _ => None,
    }
}

/// The joins of a `FROM` item by `ON`, its tables, and the columns that it merges: the last first, as
/// `*` gives them.
fn of_item(item: &mut TableWithJoins) -> Result<(Vec<Joined>, Vec<Merged>), Error> {
    let mut tables = vec![table(&item.relation)?];
    let mut merged: Vec<Merged> = vec![];
    for join in &mut item.joins {
        let Some(columns) = using(&join.join_operator).cloned() else {
            use JoinOperator::*;
            match &mut join.join_operator {
                Join(JoinConstraint::On(on))
                | Inner(JoinConstraint::On(on))
                | Left(JoinConstraint::On(on))
                | LeftOuter(JoinConstraint::On(on))
                | Right(JoinConstraint::On(on))
                | RightOuter(JoinConstraint::On(on))
                | FullOuter(JoinConstraint::On(on)) => {
                    replace(on, &merged);
                }
                CrossJoin(JoinConstraint::None) => {}
                _ => {
                    return Err(Error::unsupported(
                        "NATURAL beside a right or full join by the names of columns is not \
                         supported",
                    )
                    .hint("write USING (…) with the columns that both sides have"));
                }
            }
            tables.push(table(&join.relation)?);
            continue;
        };
        let mut right = table(&join.relation)?;
        let mut on: Option<Expr> = None;
        let mut now = vec![];
        for column in &columns {
            let [ast::ObjectNamePart::Identifier(ident)] = column.0.as_slice() else {
                return Err(Error::user(format!("USING takes names of columns, not {column}")));
            };
            let name = names::ident(ident);
            let left = match (merged.iter().position(|m| m.name == name), tables.as_mut_slice()) {
                (Some(at), _) => merged.remove(at).expr,
                (None, [only]) => {
                    only.merged.push(ident.clone());
                    Expr::CompoundIdentifier(vec![only.name.clone(), ident.clone()])
                }
                (None, _) => {
                    return Err(Error::unsupported(format!(
                        "USING ({ident}) with several tables on the left is not supported beside \
                         a right or full join by the names of columns"
                    ))
                    .hint("write ON, with the table that has the column"));
                }
            };
            right.merged.push(ident.clone());
            let of_right = Expr::CompoundIdentifier(vec![right.name.clone(), ident.clone()]);
            let equal = Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: ast::BinaryOperator::Eq,
                right: Box::new(of_right.clone()),
            };
            on = Some(match on.take() {
                None => equal,
                Some(others) => Expr::BinaryOp {
                    left: Box::new(others),
                    op: ast::BinaryOperator::And,
                    right: Box::new(equal),
                },
            });
            use JoinOperator::*;
            let expr = match &join.join_operator {
                Right(_) | RightOuter(_) => of_right,
                FullOuter(_) => coalesce(left, of_right),
                _ => left,
            };
            now.push(Merged { name, ident: ident.clone(), expr });
        }
        if let (Some(on), Some(constraint)) = (on, constraint(&mut join.join_operator)) {
            *constraint = JoinConstraint::On(on);
        }
        now.append(&mut merged);
        merged = now;
        tables.push(right);
    }
    Ok((tables, merged))
}

fn constraint(join: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator::*;
    match join {
        Join(c) | Inner(c) | Left(c) | LeftOuter(c) | Right(c) | RightOuter(c) | FullOuter(c) => {
            Some(c)
        }
        _ => None,
    }
}

fn table(factor: &TableFactor) -> Result<Joined, Error> {
    let name = match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, alias: None, args: None, .. } => {
            name.0.last().and_then(|part| part.as_ident()).cloned()
        }
        _ => None,
    };
    let name = name.ok_or_else(|| {
        Error::unsupported(format!(
            "{factor} has no name, and is joined by the names of columns with a join that keeps \
             the rows of its right side"
        ))
        .hint("give it an alias, or write ON")
    })?;
    Ok(Joined { name, merged: vec![] })
}

fn coalesce(left: Expr, right: Expr) -> Expr {
    let argument = |expr| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr));
    Expr::Function(ast::Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument(left), argument(right)],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// What `*` is of a `FROM` item.
fn expand(
    item: &TableWithJoins,
    list: Option<&(Vec<Joined>, Vec<Merged>)>,
    projection: &mut Vec<SelectItem>,
) -> Result<(), Error> {
    let all_of = |name: Ident, but: &[Ident]| {
        let columns = but.iter().map(|ident| ObjectName::from(vec![ident.clone()])).collect();
        let opt_exclude = match but.is_empty() {
            true => None,
            false => Some(ast::ExcludeSelectItem::Multiple(columns)),
        };
        SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name])),
            WildcardAdditionalOptions { opt_exclude, ..Default::default() },
        )
    };
    let Some((tables, merged)) = list else {
        if item.joins.iter().any(|j| using(&j.join_operator).is_some()) {
            return Err(Error::unsupported("* over several joins USING is not supported here")
                .hint("list the columns"));
        }
        for factor in std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation))
        {
            projection.push(all_of(table(factor)?.name, &[]));
        }
        return Ok(());
    };
    for column in merged {
        let (expr, alias) = (column.expr.clone(), column.ident.clone());
        projection.push(SelectItem::ExprWithAlias { expr, alias });
    }
    for table in tables {
        projection.push(all_of(table.name.clone(), &table.merged));
    }
    Ok(())
}

fn names_it(item: &SelectItem, column: &Merged) -> bool {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => names::ident(alias) == column.name,
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => names::ident(name) == column.name,
        _ => false,
    }
}

/// Puts what merged columns stand for in the place of their names; whether there was one.
fn replace(node: &mut impl VisitMut, merged: &[Merged]) -> bool {
    let mut replacing = Replacing { merged, depth: 0, replaced: false };
    let _ = walk_mut(node, &mut replacing);
    replacing.replaced
}

struct Replacing<'a> {
    merged: &'a [Merged],
    /// Of subqueries, in which a name may mean something else.
    depth: usize,
    replaced: bool,
}

impl VisitorMut for Replacing<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(ident) = expr
        {
            let name = names::ident(ident);
            if let Some(column) = self.merged.iter().find(|m| m.name == name) {
                *expr = column.expr.clone();
                self.replaced = true;
            }
        }
        ControlFlow::Continue(())
    }
}
