//! One walk over parsed statements for everybody.
//!
//! The parser's walk is generic, and every type of visitor makes a copy of it for each of some
//! 300 types of nodes: seven of them were half of this crate's code. These are two.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Query, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

/// Calls the hooks that [`Any`] passes on; others are never called.
pub fn walk(node: &impl Visit, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
    node.visit(&mut Any(visitor))
}

/// Calls the hooks that [`AnyMut`] passes on; others are never called.
pub fn walk_mut(
    node: &mut impl VisitMut,
    visitor: &mut dyn VisitorMut<Break = ()>,
) -> ControlFlow<()> {
    node.visit(&mut AnyMut(visitor))
}

struct Any<'a>(&'a mut dyn Visitor<Break = ()>);

impl Visitor for Any<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0.pre_visit_query(query)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.0.pre_visit_table_factor(factor)
    }
}

struct AnyMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

impl VisitorMut for AnyMut<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.0.pre_visit_query(query)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.0.post_visit_query(query)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.0.pre_visit_table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.0.pre_visit_expr(expr)
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.0.post_visit_expr(expr)
    }
}
