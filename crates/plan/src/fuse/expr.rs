//! DataFusion's expressions as those of pipelines; [`operation`] knows the operations among them.

mod operation;

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    self, BinaryExpr, CastExpr, Column, IsNotNullExpr, IsNullExpr, NotExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use thalweg_ir::expr::DEPTH_MAX;
use thalweg_ir::verify::widens;
use thalweg_ir::{Arithmetic, Expr, Literal, Operation};
use thalweg_pipeline::literal;
use thalweg_pipeline::prepared::condition;

use super::function::{Foreign, Foreigners, nullable};
use crate::as_written;
use thalweg_errors::into_datafusion;
use thalweg_exec::{ScanExec, SubqueryValue, comparison, may_fail, remap};

/// The scan with its predicates as pipelines have them, where these know all of one. `None`: there are none.
pub fn translated(scan: &ScanExec) -> Result<Option<ScanExec>> {
    scan.translated(&mut |expr, schema| {
        let types: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let columns = types.iter().cloned().enumerate().map(|(i, t)| Expr::Register(i, t));
        let columns: Vec<Expr> = columns.collect();
        let expr = Translator::default().translate(expr, schema, &columns)?;
        condition(&expr, types).map_err(into_datafusion)
    })
}

/// What expressions of one plan have in common.
#[derive(Default)]
pub struct Translator {
    pub foreigners: Foreigners,
    /// The scalar subqueries that come before.
    pub subqueries: Vec<SubqueryValue>,
}

impl Translator {
    /// The expression over `columns`, which stand for those of `schema`.
    pub fn translate(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        columns: &[Expr],
    ) -> Result<Expr> {
        // What walks an expression calls itself once for each level, of which one here may be two there.
        match 2 * depth(expr) < DEPTH_MAX {
            true => self.translated(expr, schema, columns),
            false => self.foreign(expr, schema, columns),
        }
    }

    fn translated(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        columns: &[Expr],
    ) -> Result<Expr> {
        let expr = as_written::shown(expr);
        if let Some(column) = expr.downcast_ref::<Column>() {
            return Ok(columns[column.index()].clone());
        }
        if let Some(literal) = expr.downcast_ref::<expressions::Literal>()
            && let Some(literal) = literal::of(&literal.value().to_array_of_size(1)?)
        {
            return Ok(Expr::Literal(literal));
        }
        if let Some(subquery) = expr.downcast_ref::<ScalarSubqueryExpr>()
            && let Some(value) = self.subqueries.iter().find(|value| value.is_of(subquery))
        {
            let value = Operation::Subquery(value.sink);
            return Ok(Expr::Call(value, vec![], expr.data_type(schema)?));
        }
        let mut sub = |e: &Arc<dyn PhysicalExpr>| self.translated(e, schema, columns).map(Box::new);
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return Ok(Expr::Not(sub(not.arg())?));
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return Ok(Expr::IsNull(sub(is_null.arg())?));
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            return Ok(Expr::Not(Box::new(Expr::IsNull(sub(is_not_null.arg())?))));
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            let types = (binary.left().data_type(schema)?, binary.right().data_type(schema)?);
            if let Some(comparison) = comparison(binary.op())
                && types.0 == types.1
                && !types.0.is_nested()
            {
                return Ok(Expr::Compare(comparison, sub(binary.left())?, sub(binary.right())?));
            }
            // The right side is asked where the left leaves it open: there it fails, or does not.
            let and = *binary.op() == Operator::And;
            if (and || *binary.op() == Operator::Or)
                && types == (DataType::Boolean, DataType::Boolean)
            {
                let (left, right) = (sub(binary.left())?, sub(binary.right())?);
                return Ok(if and { Expr::And(left, right) } else { Expr::Or(left, right) });
            }
            if let Some(arithmetic) = arithmetic(binary.op())
                && matches!(types, (DataType::Decimal128(..), DataType::Decimal128(..)))
            {
                let result = expr.data_type(schema)?;
                let (left, right) = (sub(binary.left())?, sub(binary.right())?);
                return Ok(Expr::Arithmetic(arithmetic, left, right, result));
            }
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>()
            && widens(&cast.expr().data_type(schema)?, cast.cast_type())
        {
            return Ok(Expr::Widen(sub(cast.expr())?, cast.cast_type().clone()));
        }
        if let Some((op, operands)) = operation::of(expr, schema)? {
            let operands = operands.iter().map(|e| self.translated(e, schema, columns));
            let operands = operands.collect::<Result<Vec<_>>>()?;
            let types: Vec<DataType> = operands.iter().map(Expr::data_type).collect();
            let result = expr.data_type(schema)?;
            if op.result_type(&types).as_ref() == Some(&result) {
                return Ok(Expr::Call(Operation::Op(op), operands, result));
            }
        }
        self.foreign(expr, schema, columns)
    }

    /// The conjuncts of a condition.
    pub fn conjuncts(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        columns: &[Expr],
    ) -> Result<Vec<Expr>> {
        let mut conjuncts = split_conjunction(expr);
        // A rule may have moved a condition before the one that guarded it: each is asked only of the rows
        // that have passed those before.
        conjuncts.sort_by_key(|e| may_fail(e));
        conjuncts.into_iter().map(|e| self.translate(e, schema, columns)).collect()
    }

    /// What pipelines have no operation for.
    fn foreign(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        columns: &[Expr],
    ) -> Result<Expr> {
        let mut read: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
        read.sort_unstable();
        read.dedup();
        let field =
            |&i: &usize| (schema.field(i).name().clone(), schema.field(i).data_type().clone());
        let compact = nullable(read.iter().map(field));
        let over = remap(expr, |i| read.binary_search(&i).expect("collected above"), &compact)?;
        let function = Foreign { expr: over, schema: compact, pure: !is_volatile(expr) };
        let arguments = read.iter().map(|&i| columns[i].clone()).collect();
        let function = Operation::Opaque(self.foreigners.function(function));
        Ok(Expr::Call(function, arguments, expr.data_type(schema)?))
    }
}

/// Levels of an expression.
fn depth(expr: &Arc<dyn PhysicalExpr>) -> usize {
    1 + expr.children().into_iter().map(depth).max().unwrap_or(0)
}

fn arithmetic(op: &Operator) -> Option<Arithmetic> {
    Some(match op {
        Operator::Plus => Arithmetic::Add,
        Operator::Minus => Arithmetic::Subtract,
        Operator::Multiply => Arithmetic::Multiply,
        _ => return None,
    })
}

/// Whether a literal that is not NULL: what COUNT counts as a row.
pub fn is_constant(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<expressions::Literal>().is_some_and(|l| !l.value().is_null())
}

/// NULL as a value of that type.
pub fn null(data_type: &DataType) -> Expr {
    Expr::Literal(Literal::null(data_type.clone()))
}
