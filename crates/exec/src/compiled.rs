//! A subtree of DataFusion's operators as pipelines, and what these read and leave behind.

use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::ExecutionPlan;
use thalweg_base::Error;
use thalweg_errors::from_datafusion;
use thalweg_ir::Plan;
use thalweg_pipeline::expr::Function;
use thalweg_pipeline::prepared::Callees;

use crate::scan::ScanExec;

/// A subtree as pipelines, and what they read.
pub struct Compiled {
    pub plan: Plan,
    /// What its opaque numbers stand for.
    pub callees: Callees,
    pub inputs: Vec<Input>,
    pub values: Vec<SubqueryValue>,
}

/// What is emitted as the value of a scalar subquery, for the expressions of later pipelines.
#[derive(Clone)]
pub struct SubqueryValue {
    pub sink: usize,
    pub index: SubqueryIndex,
    /// Those expressions hold it as well.
    pub results: ScalarSubqueryResults,
}

impl SubqueryValue {
    /// Whether an expression stands for it.
    #[expect(deprecated, reason = "nothing else tells the subqueries of one plan apart")]
    pub fn is_of(&self, expr: &ScalarSubqueryExpr) -> bool {
        self.index == expr.index() && self.results == *expr.results()
    }

    pub fn set(&self, column: &ArrayRef, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let value = ScalarValue::try_from_array(column, 0)?;
        if rows > 1 || self.results.set(self.index, value).is_err() {
            return exec_err!("Scalar subquery returned more than one row");
        }
        Ok(())
    }

    /// NULL if there was no row.
    pub fn finish(&self, data_type: &DataType) -> Result<()> {
        match self.results.get(self.index) {
            Some(_) => Ok(()),
            None => self.results.set(self.index, data_type.try_into()?),
        }
    }

    /// For the subquery to be computed anew.
    pub fn clear(&self) {
        self.results.clear();
    }
}

impl fmt::Debug for SubqueryValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scalar subquery #{}", self.sink)
    }
}

impl Function for SubqueryValue {
    fn call(&self, _: &[ArrayRef], rows: usize) -> thalweg_base::Result<ArrayRef> {
        let unknown = || Error::internal(format!("{self:?} has no value yet"));
        let value = self.results.get(self.index).ok_or_else(unknown)?;
        value.to_array_of_size(rows).map_err(from_datafusion)
    }

    fn is_pure(&self) -> bool {
        true
    }

    fn describe(&self, _: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({self:?})")
    }
}

/// A source of pipelines.
#[derive(Clone)]
pub enum Input {
    Scan(Arc<ScanExec>),
    /// Any other operator.
    Plan(Arc<dyn ExecutionPlan>),
}

impl Input {
    pub fn plan(&self) -> Arc<dyn ExecutionPlan> {
        match self {
            Input::Scan(scan) => Arc::clone(scan) as _,
            Input::Plan(plan) => Arc::clone(plan),
        }
    }
}
