//! A plan that is ready to be run: its literals are arrays, and what it calls is code.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::row::{RowConverter, SortField};
use thalweg_base::{Error, Result};
use thalweg_ir::{Literal, Opaque, Operation};

use crate::aggregate::External;
use crate::expr::kernel::Kernel;
use crate::expr::{Callee, Function, One};
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
