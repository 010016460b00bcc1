//! DataFusion's expressions and aggregate functions as functions that pipelines call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use thalweg_base::{Error, Result};
use thalweg_ir::Opaque;
use thalweg_pipeline::aggregate::{Accumulator, External};
use thalweg_pipeline::expr::Function;
use thalweg_pipeline::prepared::Callees;

use thalweg_errors::from_datafusion;
use thalweg_exec::remap;

/// What of a plan of pipelines is DataFusion's: its numbers in the plan are places in these lists.
#[derive(Default)]
pub struct Foreigners {
    functions: Vec<Arc<Foreign>>,
    aggregates: Vec<Arc<ForeignAggregate>>,
}

impl Foreigners {
    /// The same function has the same number.
    pub fn function(&mut self, function: Foreign) -> Opaque {
        let (shown, pure) = (fmt_sql(function.expr.as_ref()).to_string(), function.pure);
        let known = self.functions.iter().position(|known| known.is_same(&function));
        let number = known.unwrap_or_else(|| {
            self.functions.push(Arc::new(function));
            self.functions.len() - 1
        });
        Opaque { number, pure, shown }
    }

    pub fn aggregate(&mut self, aggregate: &Arc<ForeignAggregate>) -> Opaque {
        self.aggregates.push(Arc::clone(aggregate));
        let shown = aggregate.expr.name().to_string();
        Opaque { number: self.aggregates.len() - 1, pure: true, shown }
    }

    pub fn into_callees(self) -> Callees {
        Callees {
            functions: self.functions.into_iter().map(|f| f as _).collect(),
            aggregates: self.aggregates.into_iter().map(|a| a as _).collect(),
            subqueries: BTreeMap::new(),
        }
    }
}

/// An expression over the columns of `schema`, which are its arguments.
#[derive(Debug)]
pub struct Foreign {
    pub expr: Arc<dyn PhysicalExpr>,
    pub schema: SchemaRef,
    /// The same arguments always give the same value, row by row.
    pub pure: bool,
}

impl Foreign {
    /// Whether both give the same of the same arguments.
    fn is_same(&self, other: &Foreign) -> bool {
        let types =
            |it: &Foreign| it.schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let (own, others): (Vec<DataType>, Vec<DataType>) = (types(self), types(other));
        self.pure && other.pure && own == others && self.expr.eq(&other.expr)
    }
}

impl Function for Foreign {
    fn call(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, arguments.to_vec(), &options);
        let value = self.expr.evaluate(&batch.map_err(|e| from_datafusion(e.into()))?);
        value.and_then(|v| v.into_array(rows)).map_err(from_datafusion)
    }

    fn is_pure(&self) -> bool {
        self.pure
    }

    fn describe(&self, arguments: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = arguments.iter().map(|name| Field::new(name, DataType::Null, true));
        let named = Schema::new(named.collect::<Vec<_>>());
        match remap(&self.expr, |i| i, &named) {
            Ok(expr) => write!(f, "{}", fmt_sql(expr.as_ref())),
            Err(_) => write!(f, "{}", fmt_sql(self.expr.as_ref())),
        }
    }
}

/// An aggregate function of DataFusion.
#[derive(Debug)]
pub struct ForeignAggregate {
    expr: Arc<AggregateFunctionExpr>,
    state_types: Vec<DataType>,
    /// Without keys there is a group that may see no row. DataFusion's accumulators of many groups
    /// take it that every group has one.
    grouped: bool,
}

impl ForeignAggregate {
    pub fn new(
        expr: &Arc<AggregateFunctionExpr>,
        grouped: bool,
    ) -> datafusion::common::Result<Self> {
        let state = expr.state_fields()?;
        let state_types = state.iter().map(|f| f.data_type().clone()).collect();
        Ok(ForeignAggregate { expr: Arc::clone(expr), state_types, grouped })
    }
}

impl External for ForeignAggregate {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        if !self.grouped {
            return Ok(Box::new(Single { expr: Arc::clone(&self.expr), inner: None }));
        }
        let inner = if self.expr.groups_accumulator_supported() {
            self.expr.create_groups_accumulator().map_err(from_datafusion)?
        } else {
            let expr = Arc::clone(&self.expr);
            Box::new(datafusion::physical_expr::GroupsAccumulatorAdapter::new(move || {
                expr.create_accumulator()
            }))
        };
        Ok(Box::new(Wrapped { inner, groups: Vec::new() }))
    }

    fn state_types(&self) -> Vec<DataType> {
        self.state_types.clone()
    }
}

struct Wrapped {
    inner: Box<dyn GroupsAccumulator>,
    groups: Vec<usize>,
}

impl Wrapped {
    fn groups(&mut self, groups: &[u32]) -> &[usize] {
        self.groups.clear();
        self.groups.extend(groups.iter().map(|&g| g as usize));
        &self.groups
    }
}

impl Accumulator for Wrapped {
    fn update(
        &mut self,
        args: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[u32],
        total: usize,
    ) -> Result<()> {
        self.groups(groups);
        self.inner.update_batch(args, &self.groups, filter, total).map_err(from_datafusion)
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[u32], total: usize) -> Result<()> {
        self.groups(groups);
        self.inner.merge_batch(states, &self.groups, total).map_err(from_datafusion)
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>> {
        self.inner.state(EmitTo::All).map_err(from_datafusion)
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        self.inner.evaluate(EmitTo::All).map_err(from_datafusion)
    }

    fn memory_bytes(&self) -> usize {
        self.inner.size() + self.groups.capacity() * size_of::<usize>()
    }
}

/// The only group, of all rows.
struct Single {
    expr: Arc<AggregateFunctionExpr>,
    /// `None`: it has seen nothing since its state was taken.
    inner: Option<Box<dyn datafusion::logical_expr::Accumulator>>,
}

impl Single {
    fn inner(&mut self) -> Result<&mut Box<dyn datafusion::logical_expr::Accumulator>> {
        if self.inner.is_none() {
            self.inner = Some(self.expr.create_accumulator().map_err(from_datafusion)?);
        }
        self.inner.as_mut().ok_or_else(|| Error::internal("an accumulator was not kept"))
    }
}

impl Accumulator for Single {
    fn update(
        &mut self,
        args: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[u32],
        _: usize,
    ) -> Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        let Some(filter) = filter else {
            return self.inner()?.update_batch(args).map_err(from_datafusion);
        };
        let passed = args.iter().map(|array| compute::filter(array, filter));
        let passed = passed.collect::<std::result::Result<Vec<_>, _>>();
        let passed = passed.map_err(|e| from_datafusion(e.into()))?;
        self.inner()?.update_batch(&passed).map_err(from_datafusion)
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[u32], _: usize) -> Result<()> {
        match groups.is_empty() {
            true => Ok(()),
            false => self.inner()?.merge_batch(states).map_err(from_datafusion),
        }
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>> {
        let state = self.inner()?.state().map_err(from_datafusion)?;
        self.inner = None;
        let columns = state.iter().map(|column| column.to_array_of_size(1));
        columns.collect::<std::result::Result<_, _>>().map_err(from_datafusion)
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        let result = self.inner()?.evaluate().map_err(from_datafusion)?;
        result.to_array_of_size(1).map_err(from_datafusion)
    }

    fn memory_bytes(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.size())
    }
}

/// A schema for arrays of these types, any of which may have NULLs.
pub fn nullable(types: impl Iterator<Item = (String, DataType)>) -> SchemaRef {
    let fields = types.map(|(name, t)| Field::new(name, t, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
