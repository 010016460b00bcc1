//! A plan that is ready to be run: its literals are arrays, and what it calls is code.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use thalweg_base::{Error, Result};
use thalweg_ir::{Literal, Opaque, Operation, Source};

use crate::aggregate::External;
use crate::expr::kernel::Kernel;
use crate::expr::{Callee, Expr, Function, One};
use crate::{aggregate, literal};

pub type Plan = thalweg_ir::Plan<One, Callee, aggregate::Code>;
pub type Pipeline = thalweg_ir::Pipeline<One, Callee>;
pub type Step = thalweg_ir::Step<One, Callee>;
pub type Probe = thalweg_ir::Probe<One, Callee>;
pub type Sink = thalweg_ir::Sink<aggregate::Code>;

/// What of a plan is code of the caller's.
#[derive(Clone, Debug, Default)]
pub struct Callees {
    /// By the number of the opaque function.
    pub functions: Vec<Arc<dyn Function>>,
    /// By the number of the opaque aggregate function.
    pub aggregates: Vec<Arc<dyn External>>,
    /// By sink: functions without arguments that give the values of scalar subqueries.
    pub subqueries: BTreeMap<usize, Arc<dyn Function>>,
}

/// Makes of a plan one that can be run. It must have been [verified](thalweg_ir::Plan::verify).
pub fn prepare(plan: &thalweg_ir::Plan, callees: &Callees) -> Result<Plan> {
    let one = |value: &Literal| literal::array(value).map(One);
    let operation = |operation: &Operation| match operation {
        Operation::Subquery(sink) => {
            let value = callees.subqueries.get(sink).cloned().map(Callee::Function);
            value.ok_or_else(|| Error::internal(format!("sink #{sink} is no scalar subquery")))
        }
        Operation::Op(op) => Kernel::new(op).map(Arc::new).map(Callee::Kernel),
        Operation::Opaque(opaque) => named(&callees.functions, opaque).map(Callee::Function),
    };
    let mut external = |opaque: &Opaque| named(&callees.aggregates, opaque).map(aggregate::Code);
    let plan = plan.map(&one, &operation, &mut external)?;
    plan.sinks.iter().try_for_each(check)?;
    Ok(plan)
}

/// Makes a condition over registers of these types ready to be asked by itself, outside of any plan.
/// `None`: it needs code of the caller's.
///
/// # Errors
/// It is not well-formed.
pub fn condition(condition: &thalweg_ir::Expr, types: Vec<DataType>) -> Result<Option<Expr>> {
    let mut is_ours = true;
    condition.calls(&mut |operation| is_ours &= matches!(operation, Operation::Op(_)));
    if !is_ours {
        return Ok(None);
    }
    let pipeline = thalweg_ir::Pipeline {
        source: Source::External(0),
        names: vec![String::new(); types.len()],
        types,
        steps: vec![thalweg_ir::Step::Filter(vec![condition.clone()])],
        sink: 0,
        inputs: vec![],
    };
    let plan =
        thalweg_ir::Plan { pipelines: vec![pipeline], sinks: vec![thalweg_ir::Sink::Discard] };
    plan.verify()?;
    let mut pipelines = prepare(&plan, &Callees::default())?.pipelines;
    match pipelines.pop().and_then(|mut pipeline| pipeline.steps.pop()) {
        Some(Step::Filter(mut conjuncts)) => Ok(conjuncts.pop()),
        _ => Err(Error::internal("a condition was prepared as something else")),
    }
}

fn named<T: ?Sized>(all: &[Arc<T>], opaque: &Opaque) -> Result<Arc<T>> {
    let Opaque { number, shown, .. } = opaque;
    all.get(*number).cloned().ok_or_else(|| {
        Error::internal(format!("{shown} is number {number} of {} that are known here", all.len()))
    })
}

/// Whether rows can be sorted as a sink asks for.
fn check(sink: &Sink) -> Result<()> {
    let sorted = match sink {
        Sink::Sort(spec) => spec,
        Sink::Window(spec) => &spec.sort,
        _ => return Ok(()),
    };
    let fields = sorted.keys.iter().map(|(t, o)| SortField::new_with_options(t.clone(), *o));
    match RowConverter::supports_fields(&fields.collect::<Vec<_>>()) {
        true => Ok(()),
        false => Err(Error::internal("rows have no order by one of their keys")),
    }
}
