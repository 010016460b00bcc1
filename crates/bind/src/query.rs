//! Queries: `WITH`, set operations, `ORDER BY` and `LIMIT` around one `SELECT` or several.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{
    self, LockClause, LockType, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, SetOperator,
    SetQuantifier, Value, Values, With,
};

use crate::binder::{Binder, Ctes, Named, Output, Relation};
use crate::call::{sort, sorted};
use crate::failure::{Placed, Result, not_covered, wrong};
use crate::kept::kept;
use crate::name::Part;
use crate::nested::has_subquery;
use crate::place::Place;
use crate::scope::Scope;
use crate::select::{Order, unsupported_clause};
use crate::typed::Typed;
use crate::types::{self, DIGITS_MAX, TEXT, TextKind, common, united};

impl Binder<'_> {
    pub(crate) fn bind_query(
        &self,
        query: &Query,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Relation> {
        self.apart(|| self.bind_parts(query, parent, ctes)).at(query)
    }

    fn bind_parts(
        &self,
        query: &Query,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Relation> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        let clauses = [
            // A query sees one snapshot, which nobody changes.
            (!locks.iter().all(is_shared), "FOR UPDATE"),
            (for_clause.is_some(), "this FOR clause of a query"),
            (settings.is_some(), "SETTINGS of a query"),
            (format_clause.is_some(), "FORMAT of a query"),
            (!pipe_operators.is_empty(), "|> in a query"),
        ];
        if let Some((_, clause)) = clauses.iter().find(|(is_written, _)| *is_written) {
            return Err(unsupported_clause(clause));
        }
        let own = match with {
            Some(with) => self.with(with, parent, ctes)?,
            None => ctes.clone(),
        };
        let order = match order_by {
            None => Order::default(),
            Some(OrderBy { kind, interpolate: None }) => match kind {
                OrderByKind::Expressions(by) => Order { by, all: None },
                OrderByKind::All(options) => Order { by: &[], all: Some(options) },
            },
            Some(_) => return not_covered("INTERPOLATE"),
        };
        let relation = match body.as_ref() {
            SetExpr::Select(select) => {
                self.select(select, &order, parent, &own).at(body.as_ref())?
            }
            other => {
                let relation = self.set_expr(other, parent, &own)?;
                self.ordered(relation, &order, parent, &own)?
            }
        };
        let is_ordered = order.all.is_some() || !order.by.is_empty();
        let around = (parent, &own);
        self.limited(relation, is_ordered, limit_clause.as_ref(), fetch.as_ref(), around)
    }

    fn with(&self, with: &With, parent: Option<&Scope<'_>>, ctes: &Ctes) -> Result<Ctes> {
        let mut own = ctes.clone();
        let mut names = HashSet::new();
        for cte in &with.cte_tables {
            if cte.from.is_some() {
                return not_covered("FROM of a WITH query");
            }
            let name = Part::of(&cte.alias.name).text;
            if !names.insert(name.clone()) {
                return wrong(
                    "42712",
                    format!("WITH query name \"{name}\" specified more than once"),
                );
            }
            let mut relation = match with.recursive {
                true => self.recursive(&name, cte, parent, &own).at(cte)?,
                false => self.bind_query(&cte.query, parent, &own)?,
            };
            let columns = &cte.alias.columns;
            if columns.len() > relation.columns.len() {
                return wrong(
                    "42P10",
                    format!(
                        "WITH query \"{name}\" has {} columns available but {} columns specified",
                        relation.columns.len(),
                        columns.len()
                    ),
                );
            }
            for (output, column) in relation.columns.iter_mut().zip(columns) {
                output.title = Part::of(&column.name).text;
                output.other = None;
            }
            // It may be named more than once.
            relation.plan = kept(relation.plan)?;
            own = Some(Rc::new(Named { name, relation, used: Cell::new(false), before: own }));
        }
        Ok(own)
    }

    /// A query that may name itself: its first part, and what is added again and again until there is
    /// nothing new.
    fn recursive(
        &self,
        name: &str,
        cte: &ast::Cte,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Relation> {
        let query = &cte.query;
        let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } =
            query.body.as_ref()
        else {
            return self.bind_query(query, parent, ctes);
        };
        let is_distinct = match set_quantifier {
            SetQuantifier::All => false,
            SetQuantifier::None | SetQuantifier::Distinct => true,
            _ => return not_covered("BY NAME"),
        };
        if !names_itself(right, name) {
            return self.bind_query(query, parent, ctes);
        }
        let is_plain = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none();
        if !is_plain {
            return not_covered("ORDER BY or LIMIT of a recursive query");
        }
        let first = self.apart(|| self.set_expr(left, parent, ctes))?;
        // The columns have the names that the alias gives them, for those who name the query within it.
        let mut titles: Vec<String> = first.columns.iter().map(|c| c.title.clone()).collect();
        for (title, column) in titles.iter_mut().zip(&cte.alias.columns) {
            *title = Part::of(&column.name).text;
        }
        let mut taken = HashSet::new();
        if !titles.iter().all(|title| taken.insert(title)) {
            return not_covered("a recursive query with two columns of one name");
        }
        let columns = first.columns.iter().zip(&titles).map(|(output, title)| {
            let typed = Typed::new(
                Expr::Column(output.column.clone()),
                output.data_type.clone(),
                output.nullable,
            );
            let to = match output.data_type {
                DataType::Utf8 => TEXT,
                // What the steps calculate has more digits.
                DataType::Decimal128(_, scale) => DataType::Decimal128(DIGITS_MAX, scale.max(16)),
                ref own => own.clone(),
            };
            typed.cast(&to).expr.alias(title)
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(first.plan).project(columns)?.build()?;
        let outputs = |plan: &LogicalPlan| -> Vec<Output> {
            let fields = plan.schema().columns().into_iter().zip(plan.schema().fields());
            let outputs = fields.zip(&titles).map(|((column, field), title)| Output {
                title: title.clone(),
                other: None,
                column,
                data_type: field.data_type().clone(),
                nullable: true,
                unknown: false,
            });
            outputs.collect()
        };
        let schema = Arc::clone(plan.schema().inner());
        let fields = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let source = self.names.create_cte_work_table(name, schema)?;
        let itself = LogicalPlanBuilder::scan(name, source, None)?.build()?;
        let columns = outputs(&itself);
        let itself = Relation { plan: itself, columns };
        let own = Some(Rc::new(Named {
            name: name.into(),
            relation: itself,
            used: Cell::new(false),
            before: ctes.clone(),
        }));
        let further = self.apart(|| self.set_expr(right, parent, &own))?;
        if further.columns.len() != titles.len() {
            return wrong("42601", "each UNION query must have the same number of columns");
        }
        let types = plan.schema().fields().iter().map(|f| f.data_type().clone());
        let columns = further.columns.iter().zip(types).zip(&titles);
        let columns = columns.map(|((output, to), title)| {
            let expr = Expr::Column(output.column.clone());
            let typed = Typed::new(expr, output.data_type.clone(), output.nullable);
            let is_open = output.unknown || output.data_type == DataType::Null;
            let fits = is_open
                || (types::is_decimal(&to) && types::is_exact(&output.data_type))
                || common(&to, &output.data_type).as_ref() == Some(&to);
            match fits {
                true => Ok(typed.cast(&to).expr.alias(title)),
                false => wrong(
                    "42804",
                    format!(
                        "recursive query \"{name}\" column \"{title}\" has type {} in non-recursive term but type {} overall",
                        types::name(&to),
                        types::name(&output.data_type)
                    ),
                ),
            }
        });
        let columns = columns.collect::<Result<Vec<Expr>>>()?;
        let further = LogicalPlanBuilder::from(further.plan).project(columns)?.build()?;
        let builder = LogicalPlanBuilder::from(plan);
        let plan = builder.to_recursive_query(name.into(), further, is_distinct)?.build()?;
        Ok(Relation { columns: outputs(&plan), plan })
    }

    fn set_expr(
        &self,
        body: &SetExpr,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Relation> {
        match body {
            SetExpr::Select(select) => {
                self.select(select, &Order::default(), parent, ctes).at(body)
            }
            SetExpr::Query(query) => self.bind_query(query, parent, ctes),
            SetExpr::Values(values) => self.values(values, parent, ctes),
            SetExpr::SetOperation { .. } => {
                // A program writes long chains, and they lean to the left.
                let mut steps = vec![];
                let mut now = body;
                while let SetExpr::SetOperation { left, op, set_quantifier, right } = now {
                    steps.push((*op, *set_quantifier, right.as_ref()));
                    now = left;
                }
                let mut relation = self.apart(|| self.set_expr(now, parent, ctes))?;
                for (op, quantifier, right) in steps.into_iter().rev() {
                    let sql = right;
                    let right = self.apart(|| self.set_expr(sql, parent, ctes))?;
                    relation = self.set_operation(relation, op, quantifier, right).at(sql)?;
                }
                Ok(relation)
            }
            _ => not_covered("this body of a query"),
        }
    }

    fn set_operation(
        &self,
        left: Relation,
        op: SetOperator,
        quantifier: SetQuantifier,
        right: Relation,
    ) -> Result<Relation> {
        let (all, by_name) = match quantifier {
            SetQuantifier::All => (true, false),
            SetQuantifier::None | SetQuantifier::Distinct => (false, false),
            SetQuantifier::AllByName => (true, true),
            SetQuantifier::ByName | SetQuantifier::DistinctByName => (false, true),
        };
        let (left, right) = if by_name { by_names(left, right)? } else { (left, right) };
        let verb = op.to_string();
        if left.columns.len() != right.columns.len() {
            return wrong(
                "42601",
                format!("each {verb} query must have the same number of columns"),
            );
        }
        let mut types = vec![];
        for (l, r) in left.columns.iter().zip(&right.columns) {
            let open = |o: &Output| o.unknown || o.data_type == DataType::Null;
            types.push(match (open(l), open(r)) {
                (true, true) if l.data_type == r.data_type => l.data_type.clone(),
                (true, true) => TEXT,
                (true, false) => r.data_type.clone(),
                (false, true) => l.data_type.clone(),
                (false, false) => match united(&l.data_type, &r.data_type) {
                    Some(both) => both,
                    None => {
                        return wrong(
                            "42804",
                            format!(
                                "{verb} types {} and {} cannot be matched",
                                types::name(&l.data_type),
                                types::name(&r.data_type)
                            ),
                        );
                    }
                },
            });
        }
        let unknown: Vec<bool> =
            left.columns.iter().zip(&right.columns).map(|(l, r)| l.unknown && r.unknown).collect();
        let nullable = |l: &Output, r: &Output| match op {
            SetOperator::Union => l.nullable || r.nullable,
            _ => l.nullable,
        };
        let nullable: Vec<bool> =
            left.columns.iter().zip(&right.columns).map(|(l, r)| nullable(l, r)).collect();
        let titles: Vec<(String, Option<String>)> =
            left.columns.iter().map(|c| (c.title.clone(), c.other.clone())).collect();
        // Where a part of a UNION is found to be empty, the other takes its place under the names that the
        // UNION's columns have: all parts call them alike.
        let alike = match op {
            SetOperator::Union if left.plan.schema().columns() != right.plan.schema().columns() => {
                Some(self.names_apart(&left.columns))
            }
            _ => None,
        };
        let alike = alike.as_deref();
        let (left, right) =
            (self.as_types(left, &types, alike)?, self.as_types(right, &types, alike)?);
        let plan = match (op, all) {
            (SetOperator::Union, true) => LogicalPlanBuilder::from(left).union(right)?.build()?,
            (SetOperator::Union, false) => {
                LogicalPlanBuilder::from(left).union_distinct(right)?.build()?
            }
            (SetOperator::Intersect, false) => LogicalPlanBuilder::intersect(left, right, false)?,
            (SetOperator::Except, false) => LogicalPlanBuilder::except(left, right, false)?,
            (SetOperator::Intersect, true) => self.counted(left, JoinType::LeftSemi, right)?,
            (SetOperator::Except, true) => self.counted(left, JoinType::LeftAnti, right)?,
            _ => return not_covered("this set operation"),
        };
        let columns = plan.schema().columns();
        let outputs =
            titles.into_iter().zip(columns).zip(types).zip(unknown.into_iter().zip(nullable));
        let outputs =
            outputs.map(|((((title, other), column), data_type), (unknown, nullable))| Output {
                title,
                other,
                column,
                data_type,
                nullable,
                unknown,
            });
        Ok(Relation { columns: outputs.collect(), plan })
    }

    /// INTERSECT ALL and EXCEPT ALL: equal rows are numbered on both sides, and each is compared with that
    /// of its number.
    fn counted(
        &self,
        left: LogicalPlan,
        kind: JoinType,
        right: LogicalPlan,
    ) -> Result<LogicalPlan> {
        let shown: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
        // Each side has a name of its own for its numbers: one without a qualifier is confused with others.
        let left = self.numbered(left, &self.fresh("number"))?;
        let own = self.qualifier("__set");
        let right = self.numbered(right, &self.fresh("number"))?;
        let right = LogicalPlanBuilder::from(right).alias(own)?.build()?;
        let pairs = left.schema().columns().into_iter().zip(right.schema().columns());
        let pairs = pairs.map(|(l, r)| (Expr::Column(l), Expr::Column(r))).collect();
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            pairs,
            None,
            kind,
            JoinConstraint::On,
            NullEquality::NullEqualsNull,
            false,
        )?;
        Ok(LogicalPlanBuilder::from(LogicalPlan::Join(join)).project(shown)?.build()?)
    }

    /// With a last column that numbers equal rows.
    fn numbered(&self, plan: LogicalPlan, name: &str) -> Result<LogicalPlan> {
        let Some(row_number) = self.names.get_window_meta("row_number") else {
            return not_covered("row_number");
        };
        let mut call = WindowFunction::new(row_number, vec![]);
        call.params.partition_by = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let number = Expr::WindowFunction(Box::new(call)).alias(name);
        Ok(LogicalPlanBuilder::from(plan).window([number])?.build()?)
    }

    /// One side of a set operation: its columns as these types, under names without qualifiers: these, or
    /// their own.
    fn as_types(
        &self,
        relation: Relation,
        types: &[DataType],
        names: Option<&[String]>,
    ) -> Result<LogicalPlan> {
        let mut taken = HashSet::new();
        let is_plain = relation.columns.iter().zip(types).all(|(output, data_type)| {
            output.data_type == *data_type && taken.insert(output.column.name.clone())
        });
        if is_plain && names.is_none() {
            return Ok(relation.plan);
        }
        let names = match names {
            Some(names) => names.to_vec(),
            None => self.names_apart(&relation.columns),
        };
        let columns = relation.columns.iter().zip(types).zip(names);
        let columns = columns.map(|((output, data_type), name)| {
            let expr = Expr::Column(output.column.clone());
            let typed = Typed::new(expr, output.data_type.clone(), output.nullable);
            typed.cast(data_type).expr.alias(name)
        });
        let columns: Vec<Expr> = columns.collect();
        Ok(LogicalPlanBuilder::from(relation.plan).project(columns)?.build()?)
    }

    /// The names of columns, with another one where two have the same.
    fn names_apart(&self, columns: &[Output]) -> Vec<String> {
        let mut taken = HashSet::new();
        let name = |output: &Output| {
            let name = output.column.name.clone();
            if taken.insert(name.clone()) { name } else { self.fresh(&name) }
        };
        columns.iter().map(name).collect()
    }

    fn values(&self, values: &Values, parent: Option<&Scope<'_>>, ctes: &Ctes) -> Result<Relation> {
        let rows = self.rows_of(values, parent, ctes)?;
        let width = rows[0].len();
        let mut unknown = vec![];
        let mut cast = vec![Vec::with_capacity(width); rows.len()];
        let mut rows: Vec<_> = rows.into_iter().map(Vec::into_iter).collect();
        for _ in 0..width {
            let column: Vec<Typed> = rows.iter_mut().filter_map(Iterator::next).collect();
            unknown.push(column.iter().all(Typed::is_open) && column.iter().any(|t| t.unknown));
            let column = self.same_type(column, "VALUES")?;
            cast.iter_mut().zip(column).for_each(|(row, value)| row.push(value.expr));
        }
        of_values(cast, unknown)
    }

    fn rows_of(
        &self,
        values: &Values,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Vec<Vec<Typed>>> {
        let scope = Scope::within(parent);
        let place = Place::of_rows(&scope, ctes, "VALUES");
        let mut rows: Vec<Vec<Typed>> = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            let values = self.exprs(&row.content, place)?;
            if rows.first().is_some_and(|first| first.len() != values.len()) {
                let error = wrong("42601", "VALUES lists must all be the same length");
                return match row.content.first() {
                    Some(first) => error.at(first),
                    None => error,
                };
            }
            rows.push(values);
        }
        if rows.first().is_none_or(Vec::is_empty) {
            return wrong("42601", "VALUES needs at least one value");
        }
        Ok(rows)
    }

    /// A query whose rows are put into columns of these types; where there is `None`, they stay what they
    /// are. Each value of `VALUES` is put into its column by itself, whatever stands above and below it.
    /// The last columns may be missing if `fewer` says so.
    pub(crate) fn rows_for(
        &self,
        query: &Query,
        types: &[Option<DataType>],
        fewer: bool,
    ) -> Result<Relation> {
        let converted = |value: Typed, to: &Option<DataType>| match to {
            Some(to) => value.assigned(to),
            None => Ok(value),
        };
        if let SetExpr::Values(values) = query.body.as_ref()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
        {
            let ctes = match &query.with {
                Some(with) => self.with(with, None, &None)?,
                None => None,
            };
            let rows = self.rows_of(values, None, &ctes)?;
            check_width(rows[0].len(), types, fewer).at(query)?;
            let rows = rows.into_iter().zip(&values.rows).map(|(row, written)| {
                let row = row.into_iter().zip(types).zip(&written.content);
                row.map(|((value, to), sql)| Ok(converted(value, to).at(sql)?.expr)).collect()
            });
            let rows: Vec<Vec<Expr>> = rows.collect::<Result<_>>()?;
            let unknown = vec![false; rows[0].len()];
            return of_values(rows, unknown);
        }
        let relation = self.bind_query(query, None, &None)?;
        check_width(relation.columns.len(), types, fewer).at(query)?;
        let columns = relation.columns.iter().zip(types).map(|(output, to)| {
            let expr = Expr::Column(output.column.clone());
            let mut value = Typed::new(expr, output.data_type.clone(), output.nullable);
            value.unknown = output.unknown;
            Ok(converted(value, to)?.expr.alias(self.fresh("assigned")))
        });
        let columns = columns.collect::<Result<Vec<Expr>>>().at(query)?;
        let titles = relation.columns.iter().map(|output| output.title.clone());
        let titles: Vec<String> = titles.collect();
        let plan = LogicalPlanBuilder::from(relation.plan).project(columns)?.build()?;
        let columns = plan.schema().columns().into_iter().zip(plan.schema().fields());
        let columns = columns.zip(titles).map(|((column, field), title)| Output {
            title,
            other: None,
            column,
            data_type: field.data_type().clone(),
            nullable: true,
            unknown: false,
        });
        Ok(Relation { columns: columns.collect(), plan })
    }

    /// The order of a set operation, which may name the columns of its result.
    fn ordered(
        &self,
        relation: Relation,
        order: &Order<'_>,
        parent: Option<&Scope<'_>>,
        ctes: &Ctes,
    ) -> Result<Relation> {
        if let Some(options) = order.all {
            let by = relation.columns.iter();
            let by = by.map(|output| sort(Expr::Column(output.column.clone()), options));
            let by: Vec<_> = by.collect();
            let plan = sorted(relation.plan.into(), by)?.build()?;
            return Ok(Relation { plan, columns: relation.columns });
        }
        if order.by.is_empty() {
            return Ok(relation);
        }
        let mut scope = Scope::within(parent);
        scope.entries = relation
            .columns
            .iter()
            .map(|output| crate::scope::Entry {
                table: None,
                name: output.title.clone(),
                column: output.column.clone(),
                data_type: output.data_type.clone(),
                nullable: output.nullable,
                hidden: false,
                also: false,
                text: TextKind::Any,
                unknown: false,
            })
            .collect();
        let place = Place::of_rows(&scope, ctes, "ORDER BY of a set operation");
        let mut sorts = vec![];
        for by in order.by {
            let expr = match at(by) {
                Some(at) => {
                    let output = at.checked_sub(1).and_then(|at| relation.columns.get(at));
                    match output {
                        Some(output) => Expr::Column(output.column.clone()),
                        None => {
                            return wrong(
                                "42P10",
                                format!("ORDER BY position {at} is not in select list"),
                            )
                            .at(by);
                        }
                    }
                }
                None => self.value(&by.expr, place)?.expr,
            };
            sorts.push(self.sort(expr, by).at(by)?);
        }
        let plan = sorted(relation.plan.into(), sorts)?.build()?;
        Ok(Relation { plan, columns: relation.columns })
    }
}

/// Both sides with all columns that either has, in one order; the others are NULL.
fn by_names(left: Relation, right: Relation) -> Result<(Relation, Relation)> {
    let mut titles: Vec<String> = vec![];
    for side in [&left, &right] {
        for (at, output) in side.columns.iter().enumerate() {
            if side.columns[..at].iter().any(|before| before.title == output.title) {
                let title = &output.title;
                return wrong("42701", format!("BY NAME with two columns called \"{title}\""));
            }
            if !titles.contains(&output.title) {
                titles.push(output.title.clone());
            }
        }
    }
    let with_all = |side: Relation| -> Result<Relation> {
        let mut exprs = vec![];
        let mut columns = vec![];
        for title in &titles {
            match side.columns.iter().find(|output| output.title == *title) {
                Some(output) => {
                    exprs.push(Expr::Column(output.column.clone()));
                    columns.push(output.clone());
                }
                None => {
                    exprs.push(lit(ScalarValue::Null).alias(title));
                    columns.push(Output {
                        title: title.clone(),
                        other: None,
                        column: Column::from_name(title),
                        data_type: DataType::Null,
                        nullable: true,
                        unknown: false,
                    });
                }
            }
        }
        let plan = LogicalPlanBuilder::from(side.plan).project(exprs)?.build()?;
        Ok(Relation { plan, columns })
    };
    Ok((with_all(left)?, with_all(right)?))
}

/// `FOR SHARE`
fn is_shared(lock: &LockClause) -> bool {
    lock.lock_type == LockType::Share
}

/// Whether it is a text that was cast to a length.
fn declares_length(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name().starts_with("cut_"))
}

fn check_width(given: usize, types: &[Option<DataType>], fewer: bool) -> Result<()> {
    match given.cmp(&types.len()) {
        Ordering::Equal => Ok(()),
        Ordering::Less if fewer => Ok(()),
        Ordering::Less => wrong("42601", "INSERT has more target columns than expressions"),
        Ordering::Greater => wrong("42601", "INSERT has more expressions than target columns"),
    }
}

/// Rows that are written out. `unknown` are the columns of literals that have no type yet.
fn of_values(rows: Vec<Vec<Expr>>, unknown: Vec<bool>) -> Result<Relation> {
    let is_apart = |e: &Expr| has_subquery(e) || declares_length(e) || e.contains_outer();
    let plan = match rows.iter().flatten().any(is_apart) {
        false => LogicalPlanBuilder::values(rows)?.build()?,
        // Queries are computed for rows, columns of an outer query are joined to them, and what declares its
        // length may stand beside what does not: each of these rows is a SELECT of its own.
        true => {
            let mut all: Option<LogicalPlanBuilder> = None;
            for row in rows {
                let named = (1..).zip(row).map(|(n, value)| value.alias(format!("column{n}")));
                let named: Vec<Expr> = named.collect();
                let one = LogicalPlanBuilder::empty(true).project(named)?;
                all = Some(match all {
                    None => one,
                    Some(before) => before.union(one.build()?)?,
                });
            }
            let Some(all) = all else { return not_covered("VALUES without rows") };
            all.build()?
        }
    };
    let columns = plan.schema().columns().into_iter().zip(plan.schema().fields());
    let outputs = columns.zip(unknown).map(|((column, field), unknown)| Output {
        title: column.name.clone(),
        other: None,
        column,
        data_type: field.data_type().clone(),
        nullable: true,
        unknown,
    });
    Ok(Relation { columns: outputs.collect(), plan })
}

/// Whether a part of a recursive query is the recursive one.
fn names_itself(body: &SetExpr, name: &str) -> bool {
    let found = ast::visit_relations(body, |relation| {
        let is = match &relation.0[..] {
            [part] => part.as_ident().is_some_and(|ident| Part::of(ident).text == name),
            _ => false,
        };
        if is { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found.is_break()
}

/// `ORDER BY 2`
fn at(by: &OrderByExpr) -> Option<usize> {
    match &by.expr {
        ast::Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}
