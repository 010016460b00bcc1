//! `corr`, `regr_slope` and their like, and the variance of a population: by sums that are kept as PostgreSQL
//! keeps them.
//!
//! DataFusion's have another meaning at the edges: `regr_r2` of a constant `y` is NULL and not 1, `corr` of what
//! has a NaN is NULL and not NaN, and the variance of one NaN is zero. By groups it takes `corr` from sums of
//! squares, of which little is left where the numbers are large beside their distances. The sums here are those
//! of Youngs and Cramer ("Some results relevant to choice of sum and sum-of-product algorithms", 1971), and
//! of batches with many rows of a group those of [`spread`](crate::spread).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};
use thalweg_base::{Error, Result};
use thalweg_errors::into_datafusion;
use thalweg_storage::canonical_f64;

use crate::delegated::delegated;
use crate::spread::{Plane, planes};

/// What is made of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Figure {
    Correlation,
    Slope,
    Intercept,
    Determination,
    AverageX,
    AverageY,
    SquaresX,
    SquaresY,
    Products,
    /// Of one argument, which is `y` and `x` at once.
    Variance,
    Deviation,
}

impl Figure {
    fn of(name: &str) -> Option<Figure> {
        Some(match name {
            "corr" => Figure::Correlation,
            "regr_slope" => Figure::Slope,
            "regr_intercept" => Figure::Intercept,
            "regr_r2" => Figure::Determination,
            "regr_avgx" => Figure::AverageX,
            "regr_avgy" => Figure::AverageY,
            "regr_sxx" => Figure::SquaresX,
            "regr_syy" => Figure::SquaresY,
            "regr_sxy" => Figure::Products,
            "var_pop" => Figure::Variance,
            "stddev_pop" => Figure::Deviation,
            _ => return None,
        })
    }

    /// `None`: NULL, where there are no rows, or the others are not divided by zero.
    fn from(self, all: &Sums) -> Option<f64> {
        let Sums { count, x, xx, y, yy, xy } = *all;
        if count == 0.0 {
            return None;
        }
        let value = match self {
            Figure::Correlation if xx == 0.0 || yy == 0.0 => return None,
            Figure::Correlation => xy / (xx * yy).sqrt(),
            Figure::Slope | Figure::Intercept | Figure::Determination if xx == 0.0 => return None,
            Figure::Slope => xy / xx,
            Figure::Intercept => (y - x * xy / xx) / count,
            // Every line through values that are all the same explains them.
            Figure::Determination if yy == 0.0 => 1.0,
            Figure::Determination => (xy * xy) / (xx * yy),
            Figure::AverageX => x / count,
            Figure::AverageY => y / count,
            Figure::SquaresX => xx,
            Figure::SquaresY => yy,
            Figure::Products => xy,
            Figure::Variance => xx / count,
            Figure::Deviation => (xx / count).sqrt(),
        };
        Some(canonical_f64(value))
    }
}

/// How many pairs there are, what they add up to, and the sums of the squares and of the products of their
/// distances from their means.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    count: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, y: f64, x: f64) -> Result<()> {
        let before = *self;
        self.count += 1.0;
        self.x += x;
        self.y += y;
        if before.count > 0.0 {
            let (to_x, to_y) = (x * self.count - self.x, y * self.count - self.y);
            let scale = 1.0 / (self.count * before.count);
            self.xx += to_x * to_x * scale;
            self.yy += to_y * to_y * scale;
            self.xy += to_x * to_y * scale;
        } else {
            // What is no number has no distance from itself.
            self.xx = if x.is_finite() { 0.0 } else { f64::NAN };
            self.yy = if y.is_finite() { 0.0 } else { f64::NAN };
            self.xy = if x.is_finite() && y.is_finite() { 0.0 } else { f64::NAN };
        }
        self.checked([before.x, x], [before.y, y])
    }

    fn merge(&mut self, other: &Sums) -> Result<()> {
        if other.count == 0.0 {
            return Ok(());
        }
        if self.count == 0.0 {
            *self = *other;
            return Ok(());
        }
        let before = *self;
        self.count += other.count;
        let apart_x = before.x / before.count - other.x / other.count;
        let apart_y = before.y / before.count - other.y / other.count;
        let weight = before.count * other.count / self.count;
        self.x += other.x;
        self.y += other.y;
        self.xx += other.xx + weight * apart_x * apart_x;
        self.yy += other.yy + weight * apart_y * apart_y;
        self.xy += other.xy + weight * apart_x * apart_y;
        self.checked([before.x, other.x], [before.y, other.y])
    }

    /// Sums of finite numbers are finite, or the aggregate has no value.
    fn checked(&self, x: [f64; 2], y: [f64; 2]) -> Result<()> {
        let are_finite = |values: [f64; 2]| values.iter().all(|value| value.is_finite());
        let of_x = are_finite(x) && (self.x.is_infinite() || self.xx.is_infinite());
        let of_y = are_finite(y) && (self.y.is_infinite() || self.yy.is_infinite());
        let of_both = are_finite(x) && are_finite(y) && self.xy.is_infinite();
        match of_x || of_y || of_both {
            true => Err(Error::user("value out of range: overflow").code("22003")),
            false => Ok(()),
        }
    }

    /// Of the pairs of a batch.
    fn of(plane: &Plane) -> Sums {
        let Plane { y, x, .. } = plane;
        Sums {
            count: x.count,
            x: x.total(),
            xx: x.squares(),
            y: y.total(),
            yy: y.squares(),
            xy: plane.products(),
        }
    }

    fn state(&self) -> [f64; 6] {
        [self.count, self.x, self.xx, self.y, self.yy, self.xy]
    }

    fn of_states(states: &[Float64Array], at: usize) -> Sums {
        let [count, x, xx, y, yy, xy] = [0, 1, 2, 3, 4, 5].map(|part| states[part].value(at));
        Sums { count, x, xx, y, yy, xy }
    }
}

/// DataFusion's aggregate with these sums.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Regression {
    inner: Arc<AggregateUDF>,
    figure: Figure,
}

impl Regression {
    /// `None`: it is no figure that is made of these sums.
    pub fn of(inner: Arc<AggregateUDF>) -> Option<AggregateUDF> {
        let figure = Figure::of(inner.name())?;
        Some(AggregateUDF::new_from_impl(Regression { inner, figure }))
    }
}

impl AggregateUDFImpl for Regression {
    delegated! { inner: name aliases signature coerce_types return_type documentation }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> DfResult<Vec<FieldRef>> {
        let field = |part: &str| {
            let name = format!("{}[{part}]", args.name);
            Arc::new(Field::new(name, DataType::Float64, true))
        };
        Ok(["count", "x", "xx", "y", "yy", "xy"].map(field).to_vec())
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(One { figure: self.figure, sums: Sums::default() }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _: AccumulatorArgs<'_>,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups { figure: self.figure, sums: vec![] }))
    }
}

/// The pairs of `y` and `x`; a lone argument is both.
fn pairs(values: &[ArrayRef]) -> DfResult<(Float64Array, Float64Array)> {
    let double = |array: &ArrayRef| -> DfResult<Float64Array> {
        Ok(cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
    };
    let y = double(&values[0])?;
    let x = values.get(1).map_or(Ok(y.clone()), double)?;
    Ok((y, x))
}

fn states(values: &[ArrayRef]) -> Vec<Float64Array> {
    values.iter().map(|part| part.as_primitive::<Float64Type>().clone()).collect()
}

/// The sums of one group.
#[derive(Debug)]
struct One {
    figure: Figure,
    sums: Sums,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let (y, x) = pairs(values)?;
        if let Some(planes) = planes(&y, &x, std::iter::repeat_n(0, x.len()), None, 1) {
            return self.sums.merge(&Sums::of(&planes[0])).map_err(into_datafusion);
        }
        for (y, x) in y.iter().zip(&x) {
            if let (Some(y), Some(x)) = (y, x) {
                self.sums.add(y, x).map_err(into_datafusion)?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let states = states(values);
        for at in 0..values[0].len() {
            self.sums.merge(&Sums::of_states(&states, at)).map_err(into_datafusion)?;
        }
        Ok(())
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(self.sums.state().map(ScalarValue::from).to_vec())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::Float64(self.figure.from(&self.sums)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sums of many groups.
#[derive(Debug)]
struct Groups {
    figure: Figure,
    sums: Vec<Sums>,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> DfResult<()> {
        self.sums.resize(total, Sums::default());
        let (y, x) = pairs(values)?;
        if let Some(planes) = planes(&y, &x, groups.iter().copied(), filter, total) {
            let mut each = self.sums.iter_mut().zip(&planes);
            return each
                .try_for_each(|(sums, plane)| sums.merge(&Sums::of(plane)))
                .map_err(into_datafusion);
        }
        for (at, &group) in groups.iter().enumerate() {
            let is_asked = filter.is_none_or(|f| f.is_valid(at) && f.value(at));
            if is_asked && y.is_valid(at) && x.is_valid(at) {
                self.sums[group].add(y.value(at), x.value(at)).map_err(into_datafusion)?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> DfResult<()> {
        self.sums.resize(total, Sums::default());
        let states = states(values);
        for (at, &group) in groups.iter().enumerate() {
            let other = Sums::of_states(&states, at);
            self.sums[group].merge(&other).map_err(into_datafusion)?;
        }
        Ok(())
    }

    /// The rows as groups of their own.
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DfResult<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Groups { figure: self.figure, sums: vec![] };
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn evaluate(&mut self, emit: EmitTo) -> DfResult<ArrayRef> {
        let sums = emit.take_needed(&mut self.sums);
        let figures = sums.iter().map(|sums| self.figure.from(sums));
        Ok(Arc::new(figures.collect::<Float64Array>()))
    }

    fn state(&mut self, emit: EmitTo) -> DfResult<Vec<ArrayRef>> {
        let sums: Vec<[f64; 6]> =
            emit.take_needed(&mut self.sums).iter().map(Sums::state).collect();
        let part = |part: usize| {
            let values = sums.iter().map(|state| state[part]);
            Arc::new(Float64Array::from_iter_values(values)) as ArrayRef
        };
        Ok((0..6).map(part).collect())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.capacity() * size_of::<Sums>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pairs: &[(f64, f64)]) -> Sums {
        let mut sums = Sums::default();
        pairs.iter().try_for_each(|(y, x)| sums.add(*y, *x)).unwrap();
        sums
    }

    #[test]
    fn figures_at_the_edges() {
        let check = |figure: Figure, pairs: &[(f64, f64)], expected: Option<f64>| {
            let value = figure.from(&sums(pairs));
            assert_eq!(value.map(f64::to_bits), expected.map(f64::to_bits), "{figure:?} {pairs:?}");
        };
        let nan = f64::NAN;
        let constant = [(5.0, 1.0), (5.0, 2.0), (5.0, 3.0)];
        check(Figure::Determination, &constant, Some(1.0));
        check(Figure::Correlation, &constant, None);
        check(Figure::Slope, &constant, Some(0.0));
        check(Figure::Slope, &[(1.0, 5.0), (2.0, 5.0)], None);
        check(Figure::Correlation, &[(1.0, nan), (2.0, 5.0)], Some(nan));
        check(Figure::Correlation, &[(f64::INFINITY, 1.0), (2.0, 5.0)], Some(nan));
        check(Figure::AverageX, &[(1.0, f64::INFINITY), (2.0, 5.0)], Some(f64::INFINITY));
        check(Figure::Variance, &[(nan, nan)], Some(nan));
        check(Figure::Variance, &[(7.0, 7.0)], Some(0.0));
        check(Figure::Products, &[], None);
    }

    #[test]
    fn sums_are_merged() {
        let pairs = [(1.0, 2.0), (4.0, -3.0), (2.5, 8.0), (7.0, 1.0), (0.0, 0.5)];
        for at in 0..=pairs.len() {
            let (mut first, second) = (sums(&pairs[..at]), sums(&pairs[at..]));
            first.merge(&second).unwrap();
            for (a, b) in first.state().into_iter().zip(sums(&pairs).state()) {
                assert!((a - b).abs() < 1e-12, "{at}: {a} {b}");
            }
        }
        assert!(Sums::default().add(f64::MAX, 1.0).is_ok());
        assert!(sums(&[(f64::MAX, 1.0)]).add(-f64::MAX, 1.0).is_err());
    }
}
