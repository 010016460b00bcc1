//! Aggregates over frames that move: `avg(x) OVER (ORDER BY t ROWS 6 PRECEDING)`.
//!
//! DataFusion takes what leaves a frame back out of the total. Of floats that is wrong: a NaN or an infinity
//! never leaves again, and beside 1e20 a 1 is lost before it counts. And many aggregates cannot do it. So the
//! totals of these are merged, never subtracted: a frame is two stacks of rows, and a row that leaves takes
//! its total from the older one.
//!
//! ```text
//! rows          1  2  3  4 | 5  6
//! older stack   1234  234  34  4        each with all that follow in the stack
//! newer stack   5  6, and their total 56
//! frame of 3 … 6                        34 and 56
//! ```
//!
//! And DataFusion turns a window round where rows come in the opposite order: the rows of a frame then come to
//! `array_agg` from its end. These aggregates cannot be turned round.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, SetMonotonicity,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use thalweg_storage::canonical_f64;

use crate::delegated::delegated;

/// The aggregate as it is computed over windows; `None`: DataFusion's own is right for these arguments.
pub fn moving(function: &AggregateUDF, arguments: &[DataType]) -> Option<AggregateUDF> {
    let floats = arguments.iter().any(DataType::is_floating);
    let is_right = match function.name() {
        "count" | "min" | "max" | "median" => true,
        "sum" | "avg" => !floats,
        _ => false,
    };
    (!is_right).then(|| AggregateUDF::new_from_impl(Moving(function.clone())))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Moving(AggregateUDF);

impl AggregateUDFImpl for Moving {
    delegated! { 0: name signature coerce_types return_type state_fields }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.0.return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.default_value(data_type)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.inner().order_sensitivity()
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.0.supports_within_group_clause()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn set_monotonicity(&self, _: &DataType) -> SetMonotonicity {
        SetMonotonicity::NotMonotonic
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let floats = args.expr_fields.iter().any(|field| field.data_type().is_floating());
        if let (true, Some(figure)) = (floats && !args.is_distinct, Figure::of(self.name())) {
            let result = args.return_field.data_type().clone();
            return Ok(Box::new(MovingFloats { figure, result, rows: Queue::default() }));
        }
        let call = Call {
            function: self.0.clone(),
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        };
        Ok(Box::new(MovingStates { call, rows: Queue::default() }))
    }
}

/// The rows of a frame in two stacks, each with what it comes to.
#[derive(Debug)]
struct Queue<T> {
    /// Totals of a row of the older stack and all that follow in it; the last is that of the oldest row.
    older: Vec<T>,
    newer: Vec<T>,
    /// Of the newer ones, if there are any.
    total: Option<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { older: vec![], newer: vec![], total: None }
    }
}

impl<T: Clone> Queue<T> {
    /// `merged` gives the total of two, the earlier one first.
    fn push(&mut self, row: T, merged: impl Fn(&T, &T) -> Result<T>) -> Result<()> {
        self.total = Some(match &self.total {
            Some(total) => merged(total, &row)?,
            None => row.clone(),
        });
        self.newer.push(row);
        Ok(())
    }

    fn pop(&mut self, merged: impl Fn(&T, &T) -> Result<T>) -> Result<()> {
        if self.older.is_empty() {
            for row in self.newer.drain(..).rev() {
                self.older.push(match self.older.last() {
                    Some(following) => merged(&row, following)?,
                    None => row,
                });
            }
            self.total = None;
        }
        self.older.pop();
        Ok(())
    }

    /// The totals that come to that of the frame, in the order of its rows.
    fn totals(&self) -> impl Iterator<Item = &T> {
        self.older.last().into_iter().chain(&self.total)
    }
}

/// Of floats: how many, their sum, their mean and the sum of their squared distances from it.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u64,
    sum: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn one(value: f64) -> Moments {
        let squares = if value.is_finite() { 0.0 } else { f64::NAN };
        Moments { count: 1, sum: value, mean: value, squares }
    }

    fn merged(&self, other: &Moments) -> Result<Moments> {
        Ok(self.and(*other))
    }

    fn and(self, other: Moments) -> Moments {
        if self.count == 0 {
            return other;
        }
        if other.count == 0 {
            return self;
        }
        let count = self.count + other.count;
        let (own, others, all) = (self.count as f64, other.count as f64, count as f64);
        let distance = other.mean - self.mean;
        Moments {
            count,
            sum: self.sum + other.sum,
            mean: self.mean + distance * others / all,
            squares: self.squares + other.squares + distance * distance * own * others / all,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Figure {
    Sum,
    Average,
    /// Divided by the count less this, and perhaps its root.
    Variance {
        less: u64,
        root: bool,
    },
}

impl Figure {
    fn of(name: &str) -> Option<Figure> {
        Some(match name {
            "sum" => Figure::Sum,
            "avg" => Figure::Average,
            "var" | "var_samp" => Figure::Variance { less: 1, root: false },
            "var_pop" => Figure::Variance { less: 0, root: false },
            "stddev" | "stddev_samp" => Figure::Variance { less: 1, root: true },
            "stddev_pop" => Figure::Variance { less: 0, root: true },
            _ => return None,
        })
    }

    fn from(self, all: Moments) -> Option<f64> {
        match self {
            _ if all.count == 0 => None,
            Figure::Sum => Some(all.sum),
            Figure::Average => Some(all.sum / all.count as f64),
            Figure::Variance { less, .. } if all.count <= less => None,
            Figure::Variance { less, root } => {
                let variance = all.squares / (all.count - less) as f64;
                Some(if root { variance.sqrt() } else { variance })
            }
        }
    }
}

#[derive(Debug)]
struct MovingFloats {
    figure: Figure,
    result: DataType,
    rows: Queue<Moments>,
}

impl Accumulator for MovingFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = cast(&values[0], &DataType::Float64)?;
        for value in values.as_primitive::<Float64Type>() {
            let row = value.map_or_else(Moments::default, Moments::one);
            self.rows.push(row, Moments::merged)?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        (0..values[0].len()).try_for_each(|_| self.rows.pop(Moments::merged))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.rows.totals().fold(Moments::default(), |all, total| all.and(*total));
        let figure = self.figure.from(all).map(canonical_f64);
        ScalarValue::Float64(figure).cast_to(&self.result)
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + (self.rows.older.capacity() + self.rows.newer.capacity()) * size_of::<Moments>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        datafusion::common::internal_err!("frames have no state that is merged")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        datafusion::common::internal_err!("frames have no state that is merged")
    }
}

/// What an accumulator is made from.
#[derive(Debug)]
struct Call {
    function: AggregateUDF,
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

/// The state of an accumulator.
type State = Vec<ScalarValue>;

impl Call {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }

    /// One that has seen the rows of these states, in their order.
    fn of<'a>(&self, states: impl Iterator<Item = &'a State>) -> Result<Box<dyn Accumulator>> {
        let mut all = self.accumulator()?;
        for state in states {
            let columns = state.iter().map(|value| value.to_array_of_size(1));
            all.merge_batch(&columns.collect::<Result<Vec<_>>>()?)?;
        }
        Ok(all)
    }

    fn merged(&self, one: &State, following: &State) -> Result<State> {
        self.of([one, following].into_iter())?.state()
    }
}

/// Two stacks of states, for aggregates that know no better.
#[derive(Debug)]
struct MovingStates {
    call: Call,
    rows: Queue<State>,
}

impl Accumulator for MovingStates {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in 0..values.first().map_or(0, |values| values.len()) {
            let mut one = self.call.accumulator()?;
            let row: Vec<ArrayRef> = values.iter().map(|values| values.slice(row, 1)).collect();
            one.update_batch(&row)?;
            self.rows.push(one.state()?, |one, following| self.call.merged(one, following))?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values.first().map_or(0, |values| values.len()) {
            self.rows.pop(|one, following| self.call.merged(one, following))?;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.call.of(self.rows.totals())?.evaluate()
    }

    fn size(&self) -> usize {
        let Queue { older, newer, total } = &self.rows;
        let states = older.iter().chain(newer).chain(total);
        size_of_val(self) + states.flatten().map(ScalarValue::size).sum::<usize>()
    }

    fn state(&mut self) -> Result<State> {
        datafusion::common::internal_err!("frames have no state that is merged")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        datafusion::common::internal_err!("frames have no state that is merged")
    }
}
