//! What a statement has for the whole of its binding.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::TableReference;
use datafusion::logical_expr::planner::ContextProvider;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, Query};

use crate::expr::Place;
use crate::failure::{Failure, Result, wrong};
use crate::kept::needed;
use crate::scope::Scope;
use crate::unnest::has_subquery;

/// Binds the queries of one statement.
pub struct Binder<'a> {
    /// Tables and functions by their names.
    pub(crate) names: &'a dyn ContextProvider,
    /// Qualifiers of the items of the `FROM` clauses that the query being bound can see.
    taken: RefCell<Taken>,
    /// Counts names that nobody wrote.
    number: Cell<usize>,
}

/// Names in use, in the order in which they were taken.
#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    order: Vec<String>,
}

impl Taken {
    fn insert(&mut self, name: &str) -> bool {
        let is_new = self.names.insert(name.to_string());
        if is_new {
            self.order.push(name.to_string());
        }
        is_new
    }

    fn truncate(&mut self, length: usize) {
        for name in self.order.drain(length..) {
            self.names.remove(&name);
        }
    }
}

/// A query that is bound.
pub struct Bound {
    /// Its columns have names that are theirs alone.
    pub plan: LogicalPlan,
    /// What the columns are called, in order; two may have one title.
    pub titles: Vec<String>,
}

/// A plan with what the text can call its columns.
#[derive(Clone)]
pub(crate) struct Relation {
    pub plan: LogicalPlan,
    pub columns: Vec<Output>,
}

/// A column of a relation.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub title: String,
    /// What PostgreSQL calls it, if the title is the expression as it is written.
    pub other: Option<String>,
    pub column: datafusion::common::Column,
    pub data_type: DataType,
    pub nullable: bool,
    /// A literal in quotes without a type of its own.
    pub unknown: bool,
}

/// A named query of a `WITH` clause, and those that were named before it.
pub(crate) struct Named {
    pub name: String,
    pub relation: Relation,
    /// Whether something has named it before.
    pub used: Cell<bool>,
    pub before: Ctes,
}

/// The named queries that a place sees; the last one first.
pub(crate) type Ctes = Option<Rc<Named>>;

pub(crate) fn named<'n>(ctes: &'n Ctes, name: &str) -> Option<&'n Named> {
    let mut now = ctes.as_deref();
    while let Some(found) = now {
        if found.name == name {
            return Some(found);
        }
        now = found.before.as_deref();
    }
    None
}

impl<'a> Binder<'a> {
    pub fn new(names: &'a dyn ContextProvider) -> Self {
        Binder { names, taken: RefCell::default(), number: Cell::new(0) }
    }

    /// Binds a whole query.
    ///
    /// # Errors
    /// The query is wrong, or has something that the binder does not cover.
    pub fn query(&self, query: &Query) -> Result<Bound> {
        let relation = self.bind_query(query, None, &None)?;
        let titles = relation.columns.into_iter().map(|c| c.title).collect();
        Ok(Bound { plan: self.settled(relation.plan)?, titles })
    }

    /// Binds a query whose rows are put into columns of these types; where there is `None`, they stay what
    /// they are. The last columns may be missing if `fewer` says so.
    ///
    /// # Errors
    /// The query is wrong or gives another number of columns, or has something that the binder does not
    /// cover.
    pub fn assigned(
        &self,
        query: &Query,
        types: &[Option<DataType>],
        fewer: bool,
    ) -> Result<Bound> {
        let relation = self.rows_for(query, types, fewer)?;
        let titles = relation.columns.into_iter().map(|c| c.title).collect();
        Ok(Bound { plan: self.settled(relation.plan)?, titles })
    }

    /// A plan that is bound, with joins in the place of subqueries. Rows that stand in it once are not kept:
    /// subqueries in rows that are would stay, so that it is asked before as well.
    fn settled(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        needed(self.unnested(needed(plan)?)?)
    }

    /// Binds the default of a column of this type.
    ///
    /// # Errors
    /// The expression is wrong, names a column or has a subquery, or its values are no such column's.
    pub fn default(&self, sql: &ast::Expr, to: &DataType) -> Result<Expr> {
        let scope = Self::nothing();
        let place = Place::of_rows(&scope, &None, "DEFAULT expressions");
        let value = match self.expr(sql, place) {
            Err(Failure::Wrong(e)) if matches!(e.sqlstate(), "42703" | "42P01") => {
                return wrong("0A000", "cannot use column reference in DEFAULT expression");
            }
            found => found?,
        };
        if has_subquery(&value.expr) {
            return wrong("0A000", "cannot use subquery in DEFAULT expression");
        }
        // Texts are instants of the session's zone, whatever zone the column shows.
        let seen = self.of_session(to).unwrap_or_else(|| to.clone());
        Ok(value.assigned(&seen)?.cast(to).expr)
    }

    /// A qualifier that no table in sight has: `name`, if it is free.
    pub(crate) fn qualifier(&self, name: &str) -> TableReference {
        let mut taken = self.taken.borrow_mut();
        let mut own = name.to_string();
        let mut number = 1;
        while !taken.insert(&own) {
            number += 1;
            own = format!("{name}_{number}");
        }
        TableReference::bare(own)
    }

    /// Binds what sees the tables around it, and whose own tables nobody sees afterwards: two subqueries
    /// of one text are equal plans, which are computed once.
    pub(crate) fn apart<T>(&self, bind: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.taken.borrow().order.len();
        let bound = bind();
        self.taken.borrow_mut().truncate(before);
        bound
    }

    /// The qualifier that a table has if nothing else has it.
    pub(crate) fn qualifier_of(&self, table: &TableReference) -> TableReference {
        if self.taken.borrow_mut().insert(&table.to_string()) {
            return table.clone();
        }
        self.qualifier(table.table())
    }

    /// A name for a column that nobody can write.
    pub(crate) fn fresh(&self, what: &str) -> String {
        self.number.set(self.number.get() + 1);
        format!("__{what}_{}", self.number.get())
    }

    /// What an expression without any table may name.
    pub(crate) fn nothing() -> Scope<'static> {
        Scope::default()
    }
}

/// The parts of a table's name, as a scope compares them.
pub(crate) fn parts(table: &TableReference) -> Arc<[String]> {
    match table {
        TableReference::Bare { table } => Arc::from([table.to_string()]),
        TableReference::Partial { schema, table } => {
            Arc::from([schema.to_string(), table.to_string()])
        }
        TableReference::Full { catalog, schema, table } => {
            Arc::from([catalog.to_string(), schema.to_string(), table.to_string()])
        }
    }
}
