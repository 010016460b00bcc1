//! A subtree of DataFusion's operators as pipelines, and what these read and leave behind.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_plan::ExecutionPlan;
use thalweg_pipeline::ir::Plan;

use crate::scan::ScanExec;

/// A subtree as pipelines, and what they read.
pub struct Compiled {
    pub plan: Plan,
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
