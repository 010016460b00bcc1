//! Tables, subqueries and joins of a `FROM` clause.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::sql::sqlparser::ast::{
    self, Join, JoinConstraint, JoinOperator, ObjectName, Query, TableAlias, TableFactor,
    TableWithJoins,
};
use thalweg_base::Error;

use crate::binder::{Binder, Ctes, Relation, named, parts};
use crate::failure::{Placed, Result, not_covered, wrong};
use crate::kept::is_volatile;
use crate::name::{Part, reference};
use crate::nested::subquery;
use crate::pairs::of_pairs;
use crate::place::Place;
use crate::reads::Reads;
use crate::rows::{RowsOf, gives_rows, is_clock, series_item};
use crate::scope::{Entry, Rows, Scope, rename};
use crate::subquery::check_assigned;
use crate::typed::Typed;
use crate::types::{self, TextKind};

impl Binder<'_> {
    /// All of a `FROM` clause; one row without columns if there is none.
    pub(crate) fn from(
        &self,
        items: &[TableWithJoins],
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        let mut all: Option<Rows> = None;
        for item in items {
            if let Some(left) = all.take() {
                if let Some(item_of) = self.beside(&item.relation, &left, parent, ctes)? {
                    let rows =
                        self.lateral(left, item_of, (JoinType::Inner, None), parent, ctes)?;
                    all = Some(self.with_joins(rows, &item.joins, parent, ctes)?);
                    continue;
                }
                all = Some(left);
            }
            let rows = self.joined(item, parent, ctes)?;
            all = Some(match all {
                None => rows,
                Some(left) => {
                    check_names(&left.entries, &rows.entries)?;
                    let plan =
                        LogicalPlanBuilder::from(left.plan).cross_join(rows.plan)?.build()?;
                    let mut entries = left.entries;
                    entries.extend(rows.entries);
                    Rows { plan, entries }
                }
            });
        }
        match all {
            Some(rows) => Ok(rows),
            None => {
                let plan = LogicalPlanBuilder::empty(true).build()?;
                Ok(Rows { plan, entries: vec![] })
            }
        }
    }

    fn joined(
        &self,
        item: &TableWithJoins,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        let rows = self.factor(&item.relation, parent, ctes)?;
        self.with_joins(rows, &item.joins, parent, ctes)
    }

    fn with_joins(
        &self,
        mut rows: Rows,
        joins: &[Join],
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        for join in joins {
            let item = self.beside(&join.relation, &rows, parent, ctes)?;
            // One that names nothing left of it is as any other, and stands where that may.
            let item = match item {
                Some(_) if keeps_right(join) => {
                    match self.apart(|| self.factor(&join.relation, parent, ctes)) {
                        Ok(_) => None,
                        Err(_) => item,
                    }
                }
                item => item,
            };
            if let Some(item) = item {
                rows = self.join_lateral(rows, join, item, parent, ctes).at(join)?;
                continue;
            }
            let right = self.factor(&join.relation, parent, ctes)?;
            check_names(&rows.entries, &right.entries).at(join)?;
            rows = self.join(rows, join, right, parent, ctes).at(join)?;
        }
        Ok(rows)
    }

    fn factor(
        &self,
        factor: &TableFactor,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        self.any_factor(factor, parent, ctes).at(factor)
    }

    fn any_factor(
        &self,
        factor: &TableFactor,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        if let Some(call) = Reads::of(factor) {
            return self.read(&call);
        }
        if let Some(call) = RowsOf::of(factor)? {
            return self.function(&call, parent, false, ctes);
        }
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                with_hints,
                version: None,
                with_ordinality: false,
                partitions,
                json_path: None,
                sample: None,
                index_hints,
            } if with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty() => {
                self.table(name, alias.as_ref(), ctes)
            }
            // There is nothing left of it that it could name.
            TableFactor::Derived { lateral: _, subquery, alias, sample: None } => {
                let relation = self.bind_query(subquery, parent, ctes)?;
                self.aliased(relation, None, alias.as_ref())
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let mut rows = self.joined(table_with_joins, parent, ctes)?;
                if let Some(alias) = alias {
                    let table: Arc<[String]> = Arc::from([Part::of(&alias.name).text]);
                    rows.entries.retain(|e| !e.hidden);
                    for entry in &mut rows.entries {
                        entry.table = Some(Arc::clone(&table));
                    }
                    rename(&mut rows.entries, alias)?;
                }
                Ok(rows)
            }
            _ => not_covered("this item of FROM"),
        }
    }

    /// `JOIN LATERAL (…) ON …`
    fn join_lateral(
        &self,
        left: Rows,
        join: &Join,
        item: Lateral<'_>,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        use JoinOperator as J;
        let (kind, constraint) = match &join.join_operator {
            J::CrossJoin(c) | J::Join(c) | J::Inner(c) => (JoinType::Inner, c),
            J::Left(c) | J::LeftOuter(c) => (JoinType::Left, c),
            J::Right(_) | J::RightOuter(_) | J::FullOuter(_) => {
                return wrong(
                    "42P10",
                    "a LATERAL subquery may stand right of INNER and LEFT joins alone",
                );
            }
            _ => return not_covered("this kind of join"),
        };
        let condition = match (constraint, &join.join_operator) {
            (JoinConstraint::None, J::CrossJoin(_)) => None,
            (JoinConstraint::On(condition), _) => Some(condition),
            (JoinConstraint::None, _) => {
                return wrong("42601", "JOIN needs ON; write CROSS JOIN LATERAL for every row");
            }
            _ => return not_covered("USING with LATERAL"),
        };
        self.lateral(left, item, (kind, condition), parent, ctes)
    }

    /// An item of FROM that has to stand for each row left of it.
    fn beside<'t>(
        &self,
        factor: &'t TableFactor,
        left: &Rows,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Option<Lateral<'t>>> {
        if let TableFactor::Derived { lateral: true, subquery, alias, sample: None } = factor {
            return Ok(Some(Lateral::Query(subquery, alias.as_ref())));
        }
        let Some(call) = RowsOf::of(factor)? else { return Ok(None) };
        let around = beside_rows(left, parent);
        let args = self.arguments_of(&call, Some(&around), ctes)?;
        let is_of_left = |e: &Expr| match e {
            Expr::OuterReferenceColumn(_, column) => {
                left.entries.iter().any(|entry| entry.column == *column)
            }
            e => subquery(e).is_some_and(|s| !s.outer_ref_columns.is_empty()),
        };
        for arg in &args {
            if arg.expr.exists(|e| Ok(is_of_left(e)))? {
                return Ok(Some(Lateral::Function(call)));
            }
        }
        Ok(None)
    }

    /// What may name the columns left of it. A condition of the join is one of its rows.
    fn lateral(
        &self,
        left: Rows,
        item: Lateral<'_>,
        (mut kind, condition): (JoinType, Option<&ast::Expr>),
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        let around = beside_rows(&left, parent);
        let Rows { mut plan, entries: mut right } = match item {
            Lateral::Query(query, alias) => {
                let relation = self.bind_query(query, Some(&around), ctes)?;
                let name = alias.map(|a| Part::of(&a.name).text);
                let table: Option<Arc<[String]>> = name.map(|name| Arc::from([name]));
                let entries = relation.columns.into_iter().map(|output| Entry {
                    table: table.clone(),
                    name: output.title,
                    column: output.column,
                    data_type: output.data_type,
                    nullable: output.nullable || kind == JoinType::Left,
                    hidden: false,
                    also: false,
                    text: TextKind::Any,
                    unknown: output.unknown,
                });
                let mut entries: Vec<Entry> = entries.collect();
                if let Some(alias) = alias {
                    check_assigned(alias, entries.len())?;
                    rename(&mut entries, alias)?;
                }
                Rows { plan: relation.plan, entries }
            }
            Lateral::Function(call) => {
                // It keeps the rows left of it by itself where there is no condition.
                let keeps = kind == JoinType::Left && condition.is_none_or(is_true);
                if keeps {
                    kind = JoinType::Inner;
                }
                self.function(&call, Some(&around), keeps, ctes)?
            }
        };
        check_names(&left.entries, &right)?;
        if let Some(condition) = condition {
            let mut scope = Scope::within(Some(&around));
            // A name that both sides have is ambiguous, although one is of the query around.
            for entry in right.iter().chain(&left.entries) {
                scope.entries.push(entry.clone());
            }
            let place = Place::of_rows(&scope, ctes, "JOIN conditions");
            let condition = self.condition(condition, place, "JOIN/ON")?;
            let is_always = matches!(&condition, Expr::Literal(value, _) if *value == true.into());
            if !is_always {
                let condition = seen_from_within(condition, &left.entries)?;
                plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
            }
        }
        let columns = right.iter().map(|entry| entry.column.clone()).collect();
        let (plan, columns) = self.dependent_join(left.plan, plan, columns, kind)?;
        for (entry, column) in right.iter_mut().zip(columns) {
            entry.column = column;
        }
        let mut entries = left.entries;
        entries.extend(right);
        Ok(Rows { plan, entries })
    }

    fn table(&self, name: &ObjectName, alias: Option<&TableAlias>, ctes: &Ctes) -> Result<Rows> {
        let reference = reference(name)?;
        if let TableReference::Bare { table } = &reference
            && let Some(named) = named(ctes, table)
        {
            // One that could not be kept.
            if named.used.replace(true) && is_volatile(&named.relation.plan)? {
                return Err(Error::unsupported(format!(
                    "WITH query \"{table}\" gives other rows each time, depends on a query around it, and is read more than once"
                ))
                .hint("put its rows into a table first: CREATE TABLE … AS …")
                .into());
            }
            return self.aliased(named.relation.clone(), Some(table), alias);
        }
        let source = self.names.get_table_source(reference.clone())?;
        let mut builder = LogicalPlanBuilder::scan(reference.clone(), source, None)?;
        let (own, table) = match alias {
            Some(alias) => {
                let name = Part::of(&alias.name).text;
                (self.qualifier(&name), Arc::from([name]))
            }
            None => (self.qualifier_of(&reference), parts(&self.resolved(&reference))),
        };
        if own != reference {
            builder = builder.alias(own)?;
        }
        self.scanned(builder.build()?, Some(table), alias)
    }

    /// With the names of the schema and the database, if they are not written.
    fn resolved(&self, reference: &TableReference) -> TableReference {
        let defaults = &self.names.options().catalog;
        let resolved =
            reference.clone().resolve(&defaults.default_catalog, &defaults.default_schema);
        TableReference::full(resolved.catalog, resolved.schema, resolved.table)
    }

    fn arguments_of(
        &self,
        call: &RowsOf<'_>,
        around: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Vec<Typed>> {
        let scope = Scope::within(around);
        let place = Place::of_rows(&scope, ctes, "functions in FROM");
        call.args.iter().map(|arg| self.expr(arg, place)).collect()
    }

    /// The rows of a function. With `keeps`, there is one of NULLs where it gives none.
    fn function(
        &self,
        call: &RowsOf<'_>,
        around: Option<&Scope<'_>>,
        keeps: bool,
        ctes: &Ctes,
    ) -> Result<Rows> {
        if self.gives_one_value(&call.name) {
            return self.value_of_function(call, around, ctes);
        }
        let args = self.arguments_of(call, around, ctes)?;
        let depends =
            |e: &Expr| matches!(e, Expr::OuterReferenceColumn(..)) || subquery(e).is_some();
        let mut is_constant = !gives_rows(&call.name);
        for arg in &args {
            is_constant &= !arg.expr.exists(|e| Ok(depends(e)))?;
            // A series of numerics is one of lists alone.
            is_constant &= !(call.name == "generate_series" && types::is_decimal(&arg.data_type));
        }
        if is_constant && !keeps {
            return self.table_function(call, args);
        }
        self.rows_of_lists(call, args, keeps)
    }

    /// Whether a function in FROM is one of expressions, and has one row there.
    fn gives_one_value(&self, name: &str) -> bool {
        let gives_rows = gives_rows(name) || matches!(name, "generate_series" | "range");
        !gives_rows
            && (self.names.get_function_meta(name).is_some()
                || self.names.get_aggregate_meta(name).is_some()
                || is_clock(name))
    }

    /// `FROM upper('x') AS u`
    fn value_of_function(
        &self,
        call: &RowsOf<'_>,
        around: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        let scope = Scope::within(around);
        let place = Place::of_rows(&scope, ctes, "functions in FROM");
        let value = self.value(&call.written(), place)?;
        let table = call.alias.map_or(call.name.clone(), |a| Part::of(&a.name).text);
        let own = self.qualifier(&table);
        let name = self.fresh("value");
        let mut entries = vec![Entry {
            table: Some(Arc::from([table.clone()])),
            name: table,
            column: Column::new(Some(own.clone()), &name),
            data_type: value.data_type,
            nullable: value.nullable,
            hidden: false,
            also: false,
            text: TextKind::Any,
            unknown: false,
        }];
        let row = LogicalPlanBuilder::empty(true).project([value.expr.alias(name)])?;
        if let Some(alias) = call.alias {
            rename(&mut entries, alias)?;
        }
        Ok(Rows { plan: row.alias(own)?.build()?, entries })
    }

    fn table_function(&self, call: &RowsOf<'_>, args: Vec<Typed>) -> Result<Rows> {
        let RowsOf { name: function, alias, .. } = call;
        let alias = *alias;
        let item = series_item(function, &args);
        let values = args.into_iter().map(|value| {
            // The functions take the widest of what is alike.
            let to = match &value.data_type {
                DataType::Timestamp(_, zone) => {
                    DataType::Timestamp(TimeUnit::Nanosecond, zone.clone())
                }
                _ if item.is_some() => DataType::Int32,
                t if t.is_signed_integer() => DataType::Int64,
                other => other.clone(),
            };
            value.cast(&to).expr
        });
        let values: Vec<Expr> = values.collect();
        // Scans of one name are taken for one, where subqueries are compared.
        let spelled: Vec<String> = values.iter().map(ToString::to_string).collect();
        let scanned = TableReference::bare(format!("{function}({})", spelled.join(", ")));
        let source = self.names.get_table_function_source(function, values)?;
        let mut builder = LogicalPlanBuilder::scan(scanned.clone(), source, None)?;
        let table = alias.map_or(function.to_string(), |a| Part::of(&a.name).text);
        let own = match alias {
            Some(_) => self.qualifier(&table),
            None => self.qualifier_of(&scanned),
        };
        let columns = builder.schema().iter().map(|(relation, field)| {
            let column = Expr::Column(Column::new(relation.cloned(), field.name()));
            match field.data_type() {
                DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                    let time = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                    let typed = Typed::new(column, field.data_type().clone(), true);
                    typed.cast(&time).expr.alias_qualified(relation.cloned(), field.name())
                }
                _ => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        if columns.iter().any(|column| !matches!(column, Expr::Column(_))) {
            builder = builder.project(columns)?;
        }
        if own != scanned {
            builder = builder.alias(own)?;
        }
        let mut rows = self.scanned(builder.build()?, Some(Arc::from([table.clone()])), alias)?;
        // The one column of a function is called as the function is, beside the name that it has there.
        if let [only] = &rows.entries[..]
            && alias.is_none_or(|alias| alias.columns.is_empty())
            && only.name != table
        {
            let named = Entry { name: table, also: true, ..only.clone() };
            rows.entries.push(named);
        }
        Ok(rows)
    }

    /// A subquery under its alias.
    fn aliased(
        &self,
        relation: Relation,
        name: Option<&str>,
        alias: Option<&TableAlias>,
    ) -> Result<Rows> {
        let name = alias.map(|a| Part::of(&a.name).text).or_else(|| name.map(str::to_string));
        let own = self.qualifier(name.as_deref().unwrap_or("subquery"));
        let plan = LogicalPlanBuilder::from(relation.plan).alias(own)?.build()?;
        let table: Option<Arc<[String]>> = name.map(|name| Arc::from([name]));
        let others: Vec<Option<String>> =
            relation.columns.iter().map(|output| output.other.clone()).collect();
        // Of two columns that have one name below the alias, one has got another.
        let columns = plan.schema().columns().into_iter().zip(plan.schema().fields());
        let entries = relation.columns.into_iter().zip(columns);
        let entries = entries.map(|(output, (column, field))| Entry {
            text: types::text_kind(field),
            table: table.clone(),
            name: output.title,
            column,
            data_type: output.data_type,
            nullable: output.nullable,
            hidden: false,
            also: false,
            unknown: output.unknown,
        });
        let entries = entries.collect();
        let mut rows = Rows { plan, entries };
        if let Some(alias) = alias {
            rename(&mut rows.entries, alias)?;
        }
        let renamed = alias.map_or(0, |alias| alias.columns.len());
        for (at, other) in others.into_iter().enumerate().skip(renamed) {
            if let Some(name) = other {
                rows.entries.push(Entry { name, also: true, ..rows.entries[at].clone() });
            }
        }
        Ok(rows)
    }

    /// The columns of a plan, by the names that they have there.
    pub(crate) fn scanned(
        &self,
        plan: LogicalPlan,
        table: Option<Arc<[String]>>,
        alias: Option<&TableAlias>,
    ) -> Result<Rows> {
        let plan = self.in_session_zone(plan)?;
        let schema = plan.schema();
        let entries = schema.iter().map(|(qualifier, field)| Entry {
            table: table.clone(),
            name: field.name().clone(),
            column: Column::new(qualifier.cloned(), field.name()),
            data_type: field.data_type().clone(),
            nullable: field.is_nullable(),
            hidden: false,
            also: false,
            text: types::text_kind(field),
            unknown: false,
        });
        let mut entries: Vec<Entry> = entries.collect();
        if let Some(alias) = alias {
            rename(&mut entries, alias)?;
        }
        Ok(Rows { plan, entries })
    }

    fn join(
        &self,
        left: Rows,
        join: &Join,
        right: Rows,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Rows> {
        if join.global {
            return not_covered("GLOBAL");
        }
        use JoinOperator as J;
        let (kind, constraint) = match &join.join_operator {
            J::Join(c) | J::Inner(c) => (JoinType::Inner, c),
            J::Left(c) | J::LeftOuter(c) => (JoinType::Left, c),
            J::Right(c) | J::RightOuter(c) => (JoinType::Right, c),
            J::FullOuter(c) => (JoinType::Full, c),
            J::LeftSemi(c) | J::Semi(c) => (JoinType::LeftSemi, c),
            J::LeftAnti(c) | J::Anti(c) => (JoinType::LeftAnti, c),
            J::CrossJoin(JoinConstraint::None) => {
                let plan = LogicalPlanBuilder::from(left.plan).cross_join(right.plan)?.build()?;
                let mut entries = left.entries;
                entries.extend(right.entries);
                return Ok(Rows { plan, entries });
            }
            _ => return not_covered("this kind of join"),
        };
        match constraint {
            JoinConstraint::None => {
                wrong("42601", "JOIN needs ON or USING; write CROSS JOIN for every pair of rows")
            }
            JoinConstraint::On(condition) => {
                let mut scope = Scope::within(parent);
                scope.entries.extend(left.entries.iter().chain(&right.entries).cloned());
                let place = Place::of_rows(&scope, ctes, "JOIN conditions");
                let mut condition = self.condition(condition, place, "JOIN/ON")?;
                if kind != JoinType::Inner {
                    condition = of_pairs(condition, &left.plan, &right.plan);
                }
                let builder = LogicalPlanBuilder::from(left.plan);
                let plan = builder.join_on(right.plan, kind, [condition])?.build()?;
                Ok(Rows { plan, entries: of_join(kind, left.entries, right.entries) })
            }
            JoinConstraint::Using(names) => {
                let names: Vec<Part> = names.iter().map(one_part).collect::<Result<_>>()?;
                self.join_using(left, kind, right, &names)
            }
            JoinConstraint::Natural => {
                let mut names: Vec<Part> = vec![];
                for entry in left.entries.iter().filter(|e| !e.hidden) {
                    let is_both = right.entries.iter().any(|e| !e.hidden && e.name == entry.name);
                    if is_both && !names.iter().any(|n| n.text == entry.name) {
                        names.push(Part { text: entry.name.clone(), quoted: true, place: None });
                    }
                }
                if names.is_empty() {
                    let plan = LogicalPlanBuilder::from(left.plan);
                    let always = Expr::Literal(true.into(), None);
                    let plan = plan.join_on(right.plan, kind, [always])?.build()?;
                    return Ok(Rows { plan, entries: of_join(kind, left.entries, right.entries) });
                }
                self.join_using(left, kind, right, &names)
            }
        }
    }

    fn join_using(&self, left: Rows, kind: JoinType, right: Rows, names: &[Part]) -> Result<Rows> {
        let find = |entries: &[Entry], name: &Part, side: &str| -> Result<usize> {
            let scope = Scope { entries: entries.to_vec(), ..Scope::default() };
            let parts = std::slice::from_ref(name);
            let found = match scope.find_one(parts, parts)? {
                Some(entry) => entry.column.clone(),
                None => {
                    return wrong(
                        "42703",
                        format!(
                            "column \"{}\" specified in USING clause does not exist in {side} table",
                            name.text
                        ),
                    );
                }
            };
            match entries.iter().position(|e| !e.hidden && e.column == found) {
                Some(at) => Ok(at),
                None => not_covered("this USING"),
            }
        };
        for (at, name) in names.iter().enumerate() {
            if names[..at].iter().any(|other| other.text == name.text) {
                return wrong(
                    "42701",
                    format!("column name \"{}\" appears more than once in USING clause", name.text),
                );
            }
        }
        let mut conditions = vec![];
        let mut merged: Vec<(String, Typed)> = vec![];
        let (mut of_left, mut of_right) = (vec![], vec![]);
        for name in names {
            let (l, r) = (find(&left.entries, name, "left")?, find(&right.entries, name, "right")?);
            let (a, b) = (left.entries[l].typed(), right.entries[r].typed());
            let (a, b) = self.comparable(a, Operator::Eq, b)?;
            conditions.push(a.expr.clone().eq(b.expr.clone()));
            let value = match kind {
                JoinType::Right => b,
                JoinType::Full => {
                    let nullable = a.nullable && b.nullable;
                    let both = self.scalar("coalesce", vec![a, b])?;
                    Typed { nullable, ..both }
                }
                _ => a,
            };
            merged.push((left.entries[l].name.clone(), value));
            of_left.push(l);
            of_right.push(r);
        }
        let builder = LogicalPlanBuilder::from(left.plan);
        let mut plan = builder.join_on(right.plan, kind, conditions)?.build()?;
        if matches!(kind, JoinType::LeftSemi | JoinType::LeftAnti) {
            return Ok(Rows { plan, entries: left.entries });
        }
        // What is no column of either table is computed above the join.
        let mut computed = vec![];
        let mut first = vec![];
        for (name, value) in merged {
            let column = match &value.expr {
                Expr::Column(column) => column.clone(),
                _ => {
                    let column = Column::new(Some(self.qualifier("using")), &name);
                    let expr = value.expr.clone();
                    computed.push(expr.alias_qualified(column.relation.clone(), &name));
                    column
                }
            };
            let entry = |table| Entry {
                table,
                name: name.clone(),
                column: column.clone(),
                data_type: value.data_type.clone(),
                nullable: value.nullable,
                hidden: false,
                also: false,
                text: TextKind::Any,
                unknown: false,
            };
            first.push(entry(None));
        }
        if !computed.is_empty() {
            let mut columns: Vec<Expr> =
                plan.schema().columns().into_iter().map(Expr::Column).collect();
            columns.extend(computed);
            plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        }
        let hide = |entries: &[Entry], places: &[usize]| -> Vec<Entry> {
            let hidden = |(at, entry): (usize, &Entry)| Entry {
                hidden: entry.hidden || places.contains(&at),
                ..entry.clone()
            };
            entries.iter().enumerate().map(hidden).collect()
        };
        let (l, r) = (hide(&left.entries, &of_left), hide(&right.entries, &of_right));
        let mut entries = first;
        entries.extend(of_join(kind, l, r));
        Ok(Rows { plan, entries })
    }
}

/// A condition over columns of a query around, as a query within it has to name them.
fn seen_from_within(condition: Expr, around: &[Entry]) -> Result<Expr> {
    // Queries within the condition name the columns of both sides as those of a query around already.
    let seen = condition.transform_up(|e| {
        let Expr::Column(column) = &e else { return Ok(Transformed::no(e)) };
        Ok(match around.iter().find(|entry| entry.column == *column) {
            Some(entry) => Transformed::yes(entry.outer().expr),
            None => Transformed::no(e),
        })
    });
    Ok(seen?.data)
}

/// What stands right of some rows, and may name their columns.
fn beside_rows<'p>(left: &Rows, parent: Option<&'p Scope<'p>>) -> Scope<'p> {
    Scope {
        entries: left.entries.clone(),
        without_aggregates: Some("FROM clause of their own query level"),
        ..Scope::within(parent)
    }
}

/// What stands for each row left of it.
enum Lateral<'t> {
    Query(&'t Query, Option<&'t TableAlias>),
    Function(RowsOf<'t>),
}

/// `ON true`
fn is_true(condition: &ast::Expr) -> bool {
    matches!(condition, ast::Expr::Value(value) if value.value == ast::Value::Boolean(true))
}

/// Those of both sides, which may be NULL where the other side has a row alone.
fn of_join(kind: JoinType, mut left: Vec<Entry>, mut right: Vec<Entry>) -> Vec<Entry> {
    if matches!(kind, JoinType::Left | JoinType::Full) {
        right.iter_mut().for_each(|e| e.nullable = true);
    }
    if matches!(kind, JoinType::Right | JoinType::Full) {
        left.iter_mut().for_each(|e| e.nullable = true);
    }
    if !matches!(kind, JoinType::LeftSemi | JoinType::LeftAnti) {
        left.extend(right);
    }
    left
}

/// Two tables of one `FROM` clause have two names.
fn check_names(left: &[Entry], right: &[Entry]) -> Result<()> {
    for entry in right {
        if let Some(table) = &entry.table
            && left.iter().any(|e| e.table.as_ref() == Some(table))
        {
            let name = table.last().map_or("", |name| name.as_str());
            return wrong("42712", format!("table name \"{name}\" specified more than once"));
        }
    }
    Ok(())
}

fn one_part(name: &ObjectName) -> Result<Part> {
    match &name.0[..] {
        [part] => match part.as_ident() {
            Some(ident) => Ok(Part::of(ident)),
            None => not_covered("this USING"),
        },
        _ => wrong("42601", format!("USING takes names of columns without a table, not {name}")),
    }
}

/// Whether all rows of the table on the right stay.
fn keeps_right(join: &Join) -> bool {
    matches!(
        join.join_operator,
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
    )
}
