//! Where an expression stands.

use arrow::datatypes::FieldRef;
use datafusion::sql::sqlparser::ast;

use crate::binder::Ctes;
use crate::scope::Scope;

/// What surrounds an expression.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    pub scope: &'p Scope<'p>,
    pub named: &'p Ctes,
    /// The windows that a `WINDOW` clause names.
    pub windows: &'p [ast::NamedWindowDefinition],
    /// The clause, if it takes no aggregates or windows; for messages.
    pub without_aggregates: Option<&'static str>,
    pub without_windows: Option<&'static str>,
    /// The same of functions that give rows.
    pub without_rows: Option<&'static str>,
    /// The parameters of the lambdas around; the innermost last.
    pub variables: &'p [FieldRef],
}

impl<'p> Place<'p> {
    /// A place where neither aggregates nor windows may stand.
    pub fn of_rows(scope: &'p Scope<'p>, named: &'p Ctes, clause: &'static str) -> Self {
        Place {
            scope,
            named,
            windows: &[],
            without_aggregates: Some(clause),
            without_windows: Some(clause),
            without_rows: Some(clause),
            variables: &[],
        }
    }
}

/// Where a function stands whose rows only some of the rows around it would have.
pub(crate) const CHOICE: &str = "CASE or COALESCE";
