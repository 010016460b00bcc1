//! Subqueries within expressions, and what has to hold where they are asked.
//!
//! A subquery is computed for all rows around it at once. Where a CASE, a COALESCE, AND or OR looks at it
//! for some of them only, and it may fail for the others, it is computed for those:
//!
//! ```text
//! CASE WHEN x = 0 THEN 0 ELSE (SELECT 1 / t.x) END       the domain is that of the rows where
//!                                                        (x = 0) IS NOT TRUE
//! ```

use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, Operator};

use super::attach::Below;
use super::{Standing, has_subquery};
use crate::binder::Binder;
use crate::failure::Result;
use crate::nested::subquery;
use crate::typed::binary;

/// Functions that look at an argument only where those before it are NULL.
const FIRST_KNOWN: [&str; 3] = ["coalesce", "ifnull", "nvl"];

impl Binder<'_> {
    /// An expression whose subqueries are columns of `below`.
    pub(super) fn value_below(
        &self,
        expr: Expr,
        standing: Standing,
        below: &mut Below<'_, '_>,
    ) -> Result<Expr> {
        if !has_subquery(&expr) {
            return Ok(expr);
        }
        let guards = below.guards();
        let value = match expr {
            Expr::BinaryExpr(chain) if matches!(chain.op, Operator::And | Operator::Or) => {
                self.chain_below(chain.op, *chain.left, *chain.right, standing, below)
            }
            Expr::Case(case) => self.case_below(case, standing, below),
            Expr::ScalarFunction(call) if FIRST_KNOWN.contains(&call.func.name()) => {
                let mut args = vec![];
                for arg in call.args {
                    let arg = self.value_below(arg, standing, below)?;
                    below.guard(arg.clone().is_null());
                    args.push(arg);
                }
                Ok(Expr::ScalarFunction(ScalarFunction::new_udf(call.func, args)))
            }
            // The value that a subquery is compared with may have one itself.
            other => {
                let within =
                    other.map_children(|child| match self.value_below(child, standing, below) {
                        Ok(child) => Ok(Transformed::yes(child)),
                        Err(failure) => Err(DataFusionError::from(failure)),
                    });
                let expr = within?.data;
                match subquery(&expr) {
                    None => Ok(expr),
                    Some(_) => match self.found_below(expr, standing, below)? {
                        Some(expr) => Ok(expr),
                        None => {
                            Err(DataFusionError::Internal("a value became a join".into()).into())
                        }
                    },
                }
            }
        };
        below.unguard(guards);
        value
    }

    /// AND and OR. A chain of them leans to the left, and may be long.
    fn chain_below(
        &self,
        op: Operator,
        left: Expr,
        right: Expr,
        standing: Standing,
        below: &mut Below<'_, '_>,
    ) -> Result<Expr> {
        let mut operands = vec![right];
        let mut now = left;
        loop {
            match now {
                Expr::BinaryExpr(chain) if chain.op == op => {
                    operands.push(*chain.right);
                    now = *chain.left;
                }
                first => {
                    operands.push(first);
                    break;
                }
            }
        }
        let mut all: Option<Expr> = None;
        for operand in operands.into_iter().rev() {
            let operand = self.value_below(operand, standing, below)?;
            below.guard(match op {
                Operator::And => Expr::IsNotFalse(Box::new(operand.clone())),
                _ => Expr::IsNotTrue(Box::new(operand.clone())),
            });
            all = Some(match all {
                None => operand,
                Some(before) => binary(before, op, operand),
            });
        }
        all.ok_or_else(|| DataFusionError::Internal("AND of nothing".into()).into())
    }

    fn case_below(
        &self,
        case: Case,
        standing: Standing,
        below: &mut Below<'_, '_>,
    ) -> Result<Expr> {
        let Case { expr, when_then_expr, else_expr } = case;
        let operand = match expr {
            Some(operand) => Some(self.value_below(*operand, standing, below)?),
            None => None,
        };
        let mut branches = vec![];
        for (when, then) in when_then_expr {
            let when = self.value_below(*when, standing, below)?;
            let holds = match &operand {
                Some(operand) => binary(operand.clone(), Operator::Eq, when.clone()),
                None => when.clone(),
            };
            let guards = below.guards();
            below.guard(Expr::IsTrue(Box::new(holds.clone())));
            let then = self.value_below(*then, standing, below)?;
            below.unguard(guards);
            below.guard(Expr::IsNotTrue(Box::new(holds)));
            branches.push((Box::new(when), Box::new(then)));
        }
        let otherwise = match else_expr {
            Some(otherwise) => Some(Box::new(self.value_below(*otherwise, standing, below)?)),
            None => None,
        };
        Ok(Expr::Case(Case {
            expr: operand.map(Box::new),
            when_then_expr: branches,
            else_expr: otherwise,
        }))
    }
}
