//! What a statement asks of the binder: whole queries, rows for a table, defaults of columns.

use arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, Query};

use crate::binder::Binder;
use crate::failure::{Failure, Result, wrong};
use crate::kept::needed;
use crate::nested::has_subquery;
use crate::place::Place;

/// A query that is bound.
pub struct Bound {
    /// Its columns have names that are theirs alone.
    pub plan: LogicalPlan,
    /// What the columns are called, in order; two may have one title.
    pub titles: Vec<String>,
}

impl Binder<'_> {
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
}
