//! Columns that are written in other letters than they have: `SELECT CustomerID FROM 'file.csv'`.
//!
//! A name without quotes means the column in lower case, which the planner looks for. If there is
//! none, it means the only column that is the same without regard to case; two such columns are an
//! error that lists them. A statement that the planner finds no column for comes here: its scopes
//! are gone through, and such names are written as the columns are, with quotes.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result as DfResult, SchemaError, TableReference};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    OrderBy, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Statement, TableFactor, TableWithJoins, VisitorMut,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use super::{column, ident};
use crate::error::into_datafusion;
use crate::walk::walk_mut;

/// Whether the planner found no column of a name.
pub fn is_missing(e: &DataFusionError) -> bool {
    match e {
        DataFusionError::SchemaError(inner, _) => {
            matches!(inner.as_ref(), SchemaError::FieldNotFound { .. })
        }
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            is_missing(inner)
        }
        DataFusionError::Shared(inner) => is_missing(inner),
        DataFusionError::Collection(all) => all.iter().any(is_missing),
        _ => false,
    }
}

/// The statement with its columns in their own letters; `None` if there is nothing to change.
pub async fn settled(
    state: &SessionState,
    statement: &DfStatement,
) -> DfResult<Option<DfStatement>> {
    let mut tables = HashMap::new();
    for reference in state.resolve_table_references(statement)? {
        let Ok(schema) = state.schema_for_ref(reference.clone()) else { continue };
        if let Some(table) = schema.table(reference.table()).await? {
            let schema = table.schema();
            let columns = schema.fields().iter().map(|f| f.name().clone()).collect();
            tables.insert(reference, columns);
        }
    }
    let has_capitals = |columns: &Vec<String>| columns.iter().any(|c| c.to_lowercase() != *c);
    if !tables.values().any(has_capitals) {
        return Ok(None);
    }
    let mut settled = statement.clone();
    let mut inner = &mut settled;
    while let DfStatement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    let query = match inner {
        DfStatement::Statement(statement) => match statement.as_mut() {
            Statement::Query(query) => Some(query.as_mut()),
            Statement::CreateTable(create) => create.query.as_deref_mut(),
            Statement::CreateView(create) => Some(create.query.as_mut()),
            Statement::Insert(insert) => insert.source.as_deref_mut(),
            _ => None,
        },
        DfStatement::CopyTo(copy) => match &mut copy.source {
            datafusion::sql::parser::CopyToSource::Query(query) => Some(query.as_mut()),
            datafusion::sql::parser::CopyToSource::Relation(_) => None,
        },
        _ => None,
    };
    let Some(query) = query else { return Ok(None) };
    let mut cased = Cased { tables: &tables, views: vec![], changed: false, found: Ok(()) };
    cased.query(query, &[]);
    cased.found.map_err(into_datafusion)?;
    Ok(cased.changed.then_some(settled))
}

/// What stands in FROM, and its columns; `None`: they are not known.
#[derive(Clone, Debug)]
struct Relation {
    name: Option<String>,
    columns: Option<Vec<String>>,
}

type Scope = Vec<Relation>;

struct Cased<'a> {
    tables: &'a HashMap<TableReference, Vec<String>>,
    /// Common table expressions, the innermost last.
    views: Vec<(String, Option<Vec<String>>)>,
    changed: bool,
    found: Result<()>,
}

impl Cased<'_> {
    /// The columns that the query gives. `outer`: the scopes around it, the nearest last.
    fn query(&mut self, query: &mut Query, outer: &[Scope]) -> Option<Vec<String>> {
        let views = self.views.len();
        if let Some(with) = &mut query.with {
            for cte in &mut with.cte_tables {
                let name = ident(&cte.alias.name);
                if with.recursive {
                    // It may name itself; its columns are known afterwards.
                    self.views.push((name.clone(), None));
                }
                let columns = self.query(&mut cte.query, outer);
                if with.recursive {
                    self.views.pop();
                }
                let columns = match cte.alias.columns.is_empty() {
                    true => columns,
                    false => Some(cte.alias.columns.iter().map(|c| ident(&c.name)).collect()),
                };
                self.views.push((name, columns));
            }
        }
        let columns = self.body(&mut query.body, query.order_by.as_mut(), outer);
        self.views.truncate(views);
        columns
    }

    fn body(
        &mut self,
        body: &mut SetExpr,
        order: Option<&mut OrderBy>,
        outer: &[Scope],
    ) -> Option<Vec<String>> {
        match body {
            SetExpr::Select(select) => self.select(select, order, outer),
            SetExpr::Query(query) => self.query(query, outer),
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.body(left, None, outer);
                self.body(right, None, outer);
                columns
            }
            _ => None,
        }
    }

    fn select(
        &mut self,
        select: &mut Select,
        order: Option<&mut OrderBy>,
        outer: &[Scope],
    ) -> Option<Vec<String>> {
        let mut scopes = outer.to_vec();
        scopes.push(vec![]);
        for tables in &mut select.from {
            self.joins(tables, &mut scopes);
        }
        let mut names = vec![];
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => self.expr(expr, &scopes, &[]),
                SelectItem::ExprWithAlias { expr, alias } => {
                    self.expr(expr, &scopes, &[]);
                    names.push(ident(alias));
                }
                _ => {}
            }
        }
        for expr in
            [&mut select.selection, &mut select.having, &mut select.qualify].into_iter().flatten()
        {
            self.expr(expr, &scopes, &names);
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(|key| self.expr(key, &scopes, &names));
        }
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(|key| self.expr(key, &scopes, &names));
        }
        if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order {
            keys.iter_mut().for_each(|key| self.expr(&mut key.expr, &scopes, &names));
        }
        let scope = scopes.pop()?;
        let mut columns = vec![];
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => columns.push(ident(alias)),
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => columns.push(ident(name)),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                    columns.push(parts.last().map(ident).unwrap_or_default());
                }
                SelectItem::UnnamedExpr(expr) => columns.push(expr.to_string()),
                SelectItem::Wildcard(_) => {
                    for relation in &scope {
                        columns.extend(relation.columns.clone()?);
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let name = last(name);
                    let relation = scope.iter().find(|r| r.name == name)?;
                    columns.extend(relation.columns.clone()?);
                }
                _ => return None,
            }
        }
        Some(columns)
    }

    /// Adds what is joined to the last of the scopes.
    fn joins(&mut self, tables: &mut TableWithJoins, scopes: &mut Vec<Scope>) {
        self.factor(&mut tables.relation, scopes);
        for join in &mut tables.joins {
            self.factor(&mut join.relation, scopes);
            let (JoinOperator::Join(on)
            | JoinOperator::Inner(on)
            | JoinOperator::Left(on)
            | JoinOperator::LeftOuter(on)
            | JoinOperator::Right(on)
            | JoinOperator::RightOuter(on)
            | JoinOperator::FullOuter(on)
            | JoinOperator::LeftSemi(on)
            | JoinOperator::RightSemi(on)
            | JoinOperator::LeftAnti(on)
            | JoinOperator::RightAnti(on)) = &mut join.join_operator
            else {
                continue;
            };
            match on {
                JoinConstraint::On(expr) => self.expr(expr, scopes, &[]),
                JoinConstraint::Using(names) => {
                    for name in names {
                        if let [ObjectNamePart::Identifier(name)] = &mut name.0[..] {
                            self.name(name, scopes, &[]);
                        }
                    }
                }
                JoinConstraint::Natural | JoinConstraint::None => {}
            }
        }
    }

    fn factor(&mut self, factor: &mut TableFactor, scopes: &mut Vec<Scope>) {
        let (columns, alias, own) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let view = match &name.0[..] {
                    [_] => {
                        let name = last(name);
                        self.views.iter().rev().find(|(view, _)| Some(view) == name.as_ref())
                    }
                    _ => None,
                };
                let columns = match view {
                    Some((_, columns)) => columns.clone(),
                    None => object_name_to_table_reference(name.clone(), true)
                        .ok()
                        .and_then(|reference| self.tables.get(&reference).cloned()),
                };
                (columns, alias, last(name))
            }
            TableFactor::Derived { lateral, subquery, alias, .. } => {
                let outer = if *lateral { scopes.len() } else { scopes.len() - 1 };
                (self.query(subquery, &scopes[..outer]), alias, None)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                if alias.is_none() {
                    return self.joins(table_with_joins, scopes);
                }
                let mut inner = scopes.clone();
                inner.push(vec![]);
                self.joins(table_with_joins, &mut inner);
                (None, alias, None)
            }
            TableFactor::Table { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => (None, alias, None),
            _ => (None, &mut None, None),
        };
        let mut relation = Relation { name: own, columns };
        if let Some(alias) = alias {
            relation.name = Some(ident(&alias.name));
            if !alias.columns.is_empty() {
                relation.columns = Some(alias.columns.iter().map(|c| ident(&c.name)).collect());
            }
        }
        if let Some(scope) = scopes.last_mut() {
            scope.push(relation);
        }
    }

    /// Names of results that stand for themselves are `aliases`.
    fn expr(&mut self, expr: &mut Expr, scopes: &[Scope], aliases: &[String]) {
        let mut visitor = Columns { cased: self, scopes, aliases, depth: 0 };
        let _ = walk_mut(expr, &mut visitor);
    }

    fn name(&mut self, name: &mut Ident, scopes: &[Scope], aliases: &[String]) {
        if name.quote_style.is_some() || aliases.contains(&ident(name)) {
            return;
        }
        for scope in scopes.iter().rev() {
            if scope.iter().any(|relation| relation.columns.is_none()) {
                return;
            }
            let columns = scope.iter().filter_map(|relation| relation.columns.as_ref()).flatten();
            let mut columns: Vec<&str> = columns.map(String::as_str).collect();
            columns.sort_unstable();
            columns.dedup();
            if self.written(name, &columns) {
                return;
            }
        }
    }

    /// Whether it is one of these columns.
    fn written(&mut self, name: &mut Ident, columns: &[&str]) -> bool {
        match column(columns.iter().copied(), name) {
            Ok(Some(at)) => {
                if columns[at] != ident(name) {
                    *name = Ident { span: name.span, ..Ident::with_quote('"', columns[at]) };
                    self.changed = true;
                }
                true
            }
            Ok(None) => false,
            Err(e) => {
                self.found = Err(e);
                true
            }
        }
    }

    fn qualified(&mut self, parts: &mut [Ident], scopes: &[Scope]) {
        for at in (1..parts.len()).rev() {
            let qualifier = Some(ident(&parts[at - 1]));
            for scope in scopes.iter().rev() {
                if let Some(relation) = scope.iter().find(|relation| relation.name == qualifier) {
                    if let Some(columns) = &relation.columns {
                        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
                        self.written(&mut parts[at], &columns);
                    }
                    return;
                }
            }
        }
        // A field of a column.
        if let Some(first) = parts.first_mut() {
            self.name(first, scopes, &[]);
        }
    }
}

fn last(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(|part| part.as_ident()).map(ident)
}

struct Columns<'a, 'b> {
    cased: &'a mut Cased<'b>,
    scopes: &'a [Scope],
    aliases: &'a [String],
    /// Queries around what is visited, which have been gone through on their own.
    depth: usize,
}

impl VisitorMut for Columns<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            self.cased.query(query, self.scopes);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0 {
            match expr {
                Expr::Identifier(name) => self.cased.name(name, self.scopes, self.aliases),
                Expr::CompoundIdentifier(parts) => self.cased.qualified(parts, self.scopes),
                _ => {}
            }
        }
        match self.cased.found {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Two columns that differ by case alone, and a name that may mean either.
pub fn ambiguous(name: &str, columns: &[&str]) -> Error {
    let all: Vec<String> = columns.iter().map(|c| quoted(c)).collect();
    Error::user(format!("column {} is ambiguous: it may be {}", quoted(name), all.join(" or ")))
        .code("42702")
        .hint("write the name in double quotes, as the column has it")
}
