//! The relations, functions and queries of a FROM.

use std::rc::Rc;

use sqlparser::ast::{self, JoinConstraint, JoinOperator, TableFactor};
use thalweg_base::{Error, Result, Subject};

use super::query::push_conjuncts;
use super::{Binder, Place, Scope, ScopeColumn, Typed, name, unsupported};
use crate::query::expr::{Expr, Op};
use crate::query::functions::{self, Set};
use crate::query::{JoinKind, Output, Source};
use crate::types::{self, Class};

impl Binder<'_> {
    pub(super) fn from(
        &self,
        from: &[ast::TableWithJoins],
        scope: &mut Scope,
    ) -> Result<Option<Source>> {
        let mut all: Option<Source> = None;
        for table in from {
            let source = self.joins(table, scope)?;
            all = Some(match all {
                None => source,
                Some(left) => Source::Join {
                    kind: JoinKind::Inner,
                    left: Box::new(left),
                    right: Box::new(source),
                    on: vec![],
                },
            });
        }
        Ok(all)
    }

    fn joins(&self, table: &ast::TableWithJoins, scope: &mut Scope) -> Result<Source> {
        let mut left = self.factor(&table.relation, scope)?;
        for join in &table.joins {
            let middle = scope.columns.len();
            let right = self.factor(&join.relation, scope)?;
            use JoinOperator as J;
            let (kind, constraint) = match &join.join_operator {
                J::Join(c) | J::Inner(c) | J::CrossJoin(c) => (JoinKind::Inner, c),
                J::Left(c) | J::LeftOuter(c) => (JoinKind::Left, c),
                J::Right(c) | J::RightOuter(c) => (JoinKind::Right, c),
                J::FullOuter(c) => (JoinKind::Full, c),
                _ => return Err(unsupported("this kind of join")),
            };
            let mut on = vec![];
            match constraint {
                JoinConstraint::On(condition) => {
                    let place = Place { scope, collected: None };
                    push_conjuncts(self.condition(condition, place)?, &mut on);
                }
                JoinConstraint::None => {}
                JoinConstraint::Using(names) => {
                    for column in names {
                        let column = name::parts(column).pop().unwrap_or_default();
                        on.push(self.equal(scope, left.base(), middle, &column)?);
                    }
                }
                JoinConstraint::Natural => {
                    let shown = |c: &&ScopeColumn| !c.hidden && !c.merged;
                    let of_left = scope.columns[left.base()..middle].iter().filter(shown);
                    let of_left: Vec<String> = of_left.map(|c| c.name.clone()).collect();
                    let both = scope.columns[middle..].iter().filter(shown);
                    let both: Vec<String> =
                        both.map(|c| c.name.clone()).filter(|n| of_left.contains(n)).collect();
                    for column in both {
                        on.push(self.equal(scope, left.base(), middle, &column)?);
                    }
                }
            }
            left = Source::Join { kind, left: Box::new(left), right: Box::new(right), on };
        }
        Ok(left)
    }

    /// `USING (column)`
    fn equal(&self, scope: &mut Scope, start: usize, middle: usize, column: &str) -> Result<Expr> {
        let find = |from: usize, to: usize| {
            (from..to)
                .find(|i| scope.columns[*i].name == column && !scope.columns[*i].merged)
                .ok_or_else(|| no_column(column))
        };
        let (a, b) = (find(start, middle)?, find(middle, scope.columns.len())?);
        scope.columns[b].merged = true;
        let typed =
            |index: usize| Typed::new(Expr::Column { depth: 0, index }, scope.columns[index].oid);
        let (left, right) = self.comparable(typed(a), typed(b), "=")?;
        Ok(Expr::Compare { op: Op::Eq, left: Box::new(left), right: Box::new(right) })
    }

    fn factor(&self, factor: &TableFactor, scope: &mut Scope) -> Result<Source> {
        match factor {
            TableFactor::Table { name, alias, args: None, with_ordinality: false, .. } => {
                self.relation(name, alias.as_ref(), scope)
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.function(name, &args.args, *with_ordinality, alias.as_ref(), scope)
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.function(name, args, *with_ordinality, alias.as_ref(), scope)
            }
            TableFactor::UNNEST { array_exprs, alias, with_ordinality, .. } => {
                let place = Place { scope, collected: None };
                let mut calls = vec![];
                for array in array_exprs {
                    let typed = self.expr(array, place)?;
                    let oid = typed.oid;
                    let set = functions::set("unnest", &[oid]);
                    calls.push((set.ok_or_else(|| no_function("unnest"))?, vec![typed.expr]));
                }
                Ok(functions_of(calls, "unnest", *with_ordinality, alias.as_ref(), scope))
            }
            TableFactor::Derived { lateral, subquery, alias, .. } => {
                let parent = if *lateral { Some(&*scope) } else { scope.parent };
                let query = self.query(subquery, parent)?;
                let base = scope.columns.len();
                let table = alias.as_ref().map(|a| name::ident(&a.name)).unwrap_or_default();
                push(scope, None, &table, &query.columns, alias.as_ref());
                Ok(Source::Query { query: Rc::new(query), lateral: *lateral, base })
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let base = scope.columns.len();
                let source = self.joins(table_with_joins, scope)?;
                if let Some(alias) = alias {
                    for column in &mut scope.columns[base..] {
                        column.table = name::ident(&alias.name);
                        column.schema = None;
                    }
                }
                Ok(source)
            }
            _ => Err(unsupported("this in a FROM")),
        }
    }

    fn relation(
        &self,
        name: &ast::ObjectName,
        alias: Option<&ast::TableAlias>,
        scope: &mut Scope,
    ) -> Result<Source> {
        let parts = name::parts(name);
        let called = parts.last().cloned().unwrap_or_default();
        let base = scope.columns.len();
        let table = alias.map_or(called.clone(), |a| name::ident(&a.name));
        if parts.len() == 1 {
            let ctes = self.ctes.borrow();
            if let Some(cte) = ctes.iter().rev().find(|c| c.name == called) {
                // What it stands for changes while it is made.
                if cte.query.borrow().is_none() {
                    self.lowest.set(0);
                }
                push(scope, None, &table, &cte.columns, alias);
                return Ok(Source::Cte { cte: Rc::clone(cte), base });
            }
        }
        let schema = match parts.as_slice() {
            [_] => "pg_catalog",
            [.., schema, _] => schema,
            [] => "",
        };
        let relation = self.env.relation(schema, &called)?.ok_or_else(|| {
            let name = parts.join(".");
            Error::user(format!("relation \"{name}\" does not exist"))
                .code("42P01")
                .about(Subject::Relation(name))
        })?;
        let column = |name: &str, oid| Output { name: name.into(), oid, typmod: -1, fields: None };
        let columns: Vec<Output> =
            relation.columns.iter().map(|c| column(&c.name, c.oid)).collect();
        let schema = alias.is_none().then_some(schema);
        push(scope, schema, &table, &columns, alias);
        for (name, oid) in [("tableoid", types::OID), ("xmin", types::XID)] {
            push(scope, schema, &table, &[column(name, oid)], None);
            if let Some(last) = scope.columns.last_mut() {
                last.hidden = true;
            }
        }
        Ok(Source::Relation { relation, base })
    }

    fn function(
        &self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        ordinality: bool,
        alias: Option<&ast::TableAlias>,
        scope: &mut Scope,
    ) -> Result<Source> {
        let called = name::parts(name).pop().unwrap_or_default();
        let place = Place { scope, collected: None };
        let mut typed = vec![];
        for arg in args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = arg else {
                return Err(unsupported("this argument"));
            };
            typed.push(self.expr(expr, place)?);
        }
        let call = match functions::set(&called, &typed.iter().map(|t| t.oid).collect::<Vec<_>>()) {
            Some(_) => self.set_call(&called, typed)?,
            // One row of what a plain function gives.
            None => {
                let value = self.call(&called, typed)?;
                let columns = match &value.fields {
                    Some(fields) => fields.to_vec(),
                    None => vec![(called.clone(), value.oid)],
                };
                let set =
                    Set { run: |_, a, _| Ok(vec![a.to_vec()]), columns, types: vec![value.oid] };
                (set, vec![value.expr])
            }
        };
        Ok(functions_of(vec![call], &called, ordinality, alias, scope))
    }

    /// A call of a function that gives rows, with its arguments in the types that it takes.
    pub(super) fn set_call(&self, name: &str, typed: Vec<Typed>) -> Result<(Set, Vec<Expr>)> {
        let mut arguments = vec![];
        let mut types = vec![];
        for (at, argument) in typed.into_iter().enumerate() {
            let wanted = match (name, at, types::class(argument.oid)) {
                ("generate_series", _, Class::Unknown) => types::INT4,
                ("generate_subscripts", 1, _) => types::INT4,
                ("regexp_split_to_table" | "string_to_table", ..) => types::TEXT,
                ("pg_partition_ancestors" | "pg_partition_tree", ..) => types::REGCLASS,
                (_, _, Class::Unknown) => types::TEXT,
                _ => argument.oid,
            };
            types.push(wanted);
            arguments.push(self.coerce(argument, wanted)?);
        }
        if matches!(name, "unnest" | "generate_subscripts" | "_pg_expandarray")
            && types.first().is_none_or(|t| types::class(*t) != Class::Array)
        {
            return Err(no_function(name));
        }
        let set = functions::set(name, &types).ok_or_else(|| no_function(name))?;
        Ok((set, arguments))
    }
}

fn functions_of(
    calls: Vec<(Set, Vec<Expr>)>,
    called: &str,
    ordinality: bool,
    alias: Option<&ast::TableAlias>,
    scope: &mut Scope,
) -> Source {
    let base = scope.columns.len();
    let table = alias.map_or(called.to_string(), |a| name::ident(&a.name));
    let mut columns: Vec<Output> = vec![];
    for (set, _) in &calls {
        let is_plain = set.columns.len() == 1;
        columns.extend(set.columns.iter().map(|(name, oid)| Output {
            // One column is called as the function is.
            name: if is_plain && calls.len() == 1 { table.clone() } else { name.clone() },
            oid: *oid,
            typmod: -1,
            fields: None,
        }));
    }
    if ordinality {
        let name = "ordinality".to_string();
        columns.push(Output { name, oid: types::INT8, typmod: -1, fields: None });
    }
    push(scope, None, &table, &columns, alias);
    Source::Functions { calls, ordinality, base, width: columns.len() }
}

fn push(
    scope: &mut Scope,
    schema: Option<&str>,
    table: &str,
    columns: &[Output],
    alias: Option<&ast::TableAlias>,
) {
    let aliases = alias.map_or(&[][..], |a| a.columns.as_slice());
    for (at, column) in columns.iter().enumerate() {
        scope.columns.push(ScopeColumn {
            schema: schema.map(Into::into),
            table: table.into(),
            name: aliases.get(at).map_or(column.name.clone(), |a| name::ident(&a.name)),
            oid: column.oid,
            typmod: column.typmod,
            fields: column.fields.clone(),
            hidden: false,
            merged: false,
        });
    }
}

pub(super) fn no_column(name: &str) -> Error {
    let subject = Subject::Column(None, name.into());
    Error::user(format!("column \"{name}\" does not exist")).code("42703").about(subject)
}

pub(super) fn no_function(name: &str) -> Error {
    Error::user(format!("function {name} does not exist for these arguments")).code("42883")
}
