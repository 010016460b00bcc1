//! What a statement has for the whole of its binding.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::ContextProvider;

use crate::failure::Result;
use crate::scope::Scope;

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
