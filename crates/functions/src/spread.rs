//! Variances of batches with many rows of a group.
//!
//! The sums of [`regression`](crate::regression), and DataFusion's of `variance` and `stddev`, take a division
//! for each row, and the next row of the group waits for it. Here the rows of a batch are added up first, as
//! distances from one of them ([`Line`], [`Plane`]), and what they come to is merged with what was there
//! before (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983). That is as exact
//! as long as the one row is not far from the mean, of which the sums tell ([`Line::is_tame`]).
//!
//! Groups of few rows are added row by row: there it is no slower, and the last digit is PostgreSQL's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, UInt64Array};
use arrow::datatypes::{Float64Type, UInt64Type};
use datafusion::common::cast::as_float64_array;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};
use thalweg_storage::canonical_f64;

use crate::delegated::delegated;

/// Rows of a batch for each group there is, from which on they are added up first.
const ROWS_MIN: usize = 16;

/// Sums below it may be squared, and multiplied by how many rows there are.
const TAME: f64 = 1e100;

/// How many times the squares of the distances from one number may be those from the mean: it costs as many
/// bits as the square root has.
const FAR: f64 = 32.0;

/// Whether so many rows of so many groups are worth it.
fn are_many(rows: usize, groups: usize) -> bool {
    rows >= ROWS_MIN * groups
}

/// Some numbers as distances from the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    pub count: f64,
    base: f64,
    sum: f64,
    squares: f64,
}

impl Line {
    pub fn total(&self) -> f64 {
        self.base * self.count + self.sum
    }

    fn mean(&self) -> f64 {
        self.base + self.sum / self.count
    }

    /// Of the distances from the mean.
    pub fn squares(&self) -> f64 {
        (self.squares - self.sum * self.sum / self.count).max(0.0)
    }

    /// Whether nothing that is made of it is beyond all numbers, and little is lost of the squares where the
    /// first number is taken for the mean. Otherwise the rows are added one by one.
    fn is_tame(&self) -> bool {
        self.total().abs() < TAME
            && self.squares < TAME * TAME
            && (self.count == 0.0 || self.squares <= FAR * self.squares())
    }
}

/// Some pairs of numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plane {
    pub y: Line,
    pub x: Line,
    products: f64,
}

impl Plane {
    /// Of the distances from the means.
    pub fn products(&self) -> f64 {
        // Of none at all it is 0, as of squares.
        self.products - self.y.sum * self.x.sum / self.x.count.max(1.0)
    }

    fn is_tame(&self) -> bool {
        self.y.is_tame() && self.x.is_tame()
    }
}

/// How many numbers, or pairs, a group has, and the first of them. These lie apart from the sums, and what is
/// added to these is one value of several: a processor that has stored two numbers waits if they are read as
/// one.
#[derive(Clone, Copy)]
struct First<const N: usize> {
    count: u64,
    base: [f64; N],
}

impl<const N: usize> First<N> {
    const NONE: Self = First { count: 0, base: [0.0; N] };

    /// How far the next lies from the first.
    #[inline(always)]
    fn apart(&mut self, next: [f64; N]) -> [f64; N] {
        if self.count == 0 {
            self.base = next;
        }
        self.count += 1;
        std::array::from_fn(|n| next[n] - self.base[n])
    }

    fn line(&self, n: usize, sum: f64, squares: f64) -> Line {
        Line { count: self.count as f64, base: self.base[n], sum, squares }
    }
}

/// Calls `add` with each row that is asked for and no NULL, and its group.
fn each(
    groups: impl Iterator<Item = usize>,
    filter: Option<&BooleanArray>,
    columns: &[&Float64Array],
    mut add: impl FnMut(usize, usize),
) {
    if filter.is_none() && columns.iter().all(|column| column.null_count() == 0) {
        groups.enumerate().for_each(|(row, group)| add(row, group));
        return;
    }
    for (row, group) in groups.enumerate() {
        let is_asked = filter.is_none_or(|f| f.is_valid(row) && f.value(row));
        if is_asked && columns.iter().all(|column| column.is_valid(row)) {
            add(row, group);
        }
    }
}

/// The numbers of each of so many groups. `None`: they are to be added row by row.
pub fn lines(
    values: &Float64Array,
    groups: impl Iterator<Item = usize>,
    filter: Option<&BooleanArray>,
    total: usize,
) -> Option<Vec<Line>> {
    if !are_many(values.len(), total) {
        return None;
    }
    let numbers = values.values();
    let (mut firsts, mut sums) = (vec![First::NONE; total], vec![[0.0; 2]; total]);
    each(groups, filter, &[values], |row, group| {
        let [apart] = firsts[group].apart([numbers[row]]);
        let sums = &mut sums[group];
        sums[0] += apart;
        sums[1] += apart * apart;
    });
    let line = |(first, [sum, squares]): (&First<1>, [f64; 2])| first.line(0, sum, squares);
    let lines: Vec<Line> = firsts.iter().zip(sums).map(line).collect();
    lines.iter().all(Line::is_tame).then_some(lines)
}

/// The pairs of each of so many groups, as [`lines`].
pub fn planes(
    y: &Float64Array,
    x: &Float64Array,
    groups: impl Iterator<Item = usize>,
    filter: Option<&BooleanArray>,
    total: usize,
) -> Option<Vec<Plane>> {
    if !are_many(x.len(), total) {
        return None;
    }
    let (ys, xs) = (y.values(), x.values());
    let (mut firsts, mut sums) = (vec![First::NONE; total], vec![[0.0; 5]; total]);
    each(groups, filter, &[y, x], |row, group| {
        let [apart_y, apart_x] = firsts[group].apart([ys[row], xs[row]]);
        let sums = &mut sums[group];
        sums[0] += apart_y;
        sums[1] += apart_x;
        sums[2] += apart_y * apart_y;
        sums[3] += apart_x * apart_x;
        sums[4] += apart_y * apart_x;
    });
    let plane = |(first, [y, x, yy, xx, products]): (&First<2>, [f64; 5])| Plane {
        y: first.line(0, y, yy),
        x: first.line(1, x, xx),
        products,
    };
    let planes: Vec<Plane> = firsts.iter().zip(sums).map(plane).collect();
    planes.iter().all(Plane::is_tame).then_some(planes)
}

/// How many numbers there are, their mean, and the sum of the squares of their distances from it, as
/// DataFusion keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// As Welford does ("Note on a method for calculating corrected sums of squares and products", 1962).
    fn add(&mut self, x: f64) {
        self.count += 1;
        let apart = x - self.mean;
        self.mean += apart / self.count as f64;
        self.squares += apart * (x - self.mean);
    }

    /// Means that are the same stay what they are: what is all the same has no variance, however many rows
    /// there are of it.
    fn merge(&mut self, other: Moments) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { other } else { *self };
            return;
        }
        let (before, others) = (self.count as f64, other.count as f64);
        self.count += other.count;
        let (apart, share) = (other.mean - self.mean, others / self.count as f64);
        self.mean += apart * share;
        self.squares += other.squares + apart * apart * before * share;
    }

    fn of(line: &Line) -> Moments {
        match line.count == 0.0 {
            true => Moments::default(),
            false => {
                Moments { count: line.count as u64, mean: line.mean(), squares: line.squares() }
            }
        }
    }

    fn of_states(states: &[ArrayRef], at: usize) -> Moments {
        Moments {
            count: states[0].as_primitive::<UInt64Type>().value(at),
            mean: states[1].as_primitive::<Float64Type>().value(at),
            squares: states[2].as_primitive::<Float64Type>().value(at),
        }
    }
}

/// DataFusion's `variance` or `stddev` of a sample.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Spread {
    inner: Arc<AggregateUDF>,
    figure: Figure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Figure {
    Variance,
    Deviation,
}

impl Figure {
    /// NULL of less than two.
    fn from(self, moments: &Moments) -> Option<f64> {
        let others = moments.count.checked_sub(1).filter(|&others| others > 0)?;
        let variance = moments.squares / others as f64;
        Some(canonical_f64(match self {
            Figure::Variance => variance,
            Figure::Deviation => variance.sqrt(),
        }))
    }
}

impl Spread {
    /// `None`: it is another aggregate.
    pub fn of(inner: Arc<AggregateUDF>) -> Option<AggregateUDF> {
        let figure = match inner.name() {
            "var" => Figure::Variance,
            "stddev" => Figure::Deviation,
            _ => return None,
        };
        Some(AggregateUDF::new_from_impl(Spread { inner, figure }))
    }
}

impl AggregateUDFImpl for Spread {
    delegated! {
        inner:
        name aliases signature coerce_types return_type documentation state_fields
        create_sliding_accumulator
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.inner.accumulator(args),
            false => Ok(Box::new(One { figure: self.figure, moments: Moments::default() })),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        _: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups { figure: self.figure, moments: vec![] }))
    }
}

/// The moments of one group.
#[derive(Debug)]
struct One {
    figure: Figure,
    moments: Moments,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers = as_float64_array(&values[0])?;
        match lines(numbers, std::iter::repeat_n(0, numbers.len()), None, 1) {
            Some(lines) => self.moments.merge(Moments::of(&lines[0])),
            None => numbers.iter().flatten().for_each(|number| self.moments.add(number)),
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let all = (0..states[0].len()).map(|at| Moments::of_states(states, at));
        all.for_each(|other| self.moments.merge(other));
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Moments { count, mean, squares } = self.moments;
        Ok(vec![count.into(), mean.into(), squares.into()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.figure.from(&self.moments)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The moments of many groups.
struct Groups {
    figure: Figure,
    moments: Vec<Moments>,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.moments.resize(total, Moments::default());
        let numbers = as_float64_array(&values[0])?;
        if let Some(lines) = lines(numbers, groups.iter().copied(), filter, total) {
            let each = self.moments.iter_mut().zip(&lines);
            each.for_each(|(moments, line)| moments.merge(Moments::of(line)));
            return Ok(());
        }
        each(groups.iter().copied(), filter, &[numbers], |row, group| {
            self.moments[group].add(numbers.value(row));
        });
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.moments.resize(total, Moments::default());
        for (at, &group) in groups.iter().enumerate() {
            self.moments[group].merge(Moments::of_states(states, at));
        }
        Ok(())
    }

    /// The rows as groups of their own.
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Groups { figure: self.figure, moments: vec![] };
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let moments = emit.take_needed(&mut self.moments);
        let figures = moments.iter().map(|moments| self.figure.from(moments));
        Ok(Arc::new(figures.collect::<Float64Array>()))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let moments = emit.take_needed(&mut self.moments);
        let counts = moments.iter().map(|moments| moments.count);
        let numbers = |of: fn(&Moments) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(moments.iter().map(of)))
        };
        let counts: ArrayRef = Arc::new(UInt64Array::from_iter_values(counts));
        Ok(vec![counts, numbers(|moments| moments.mean), numbers(|moments| moments.squares)])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.moments.capacity() * size_of::<Moments>()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::functions_aggregate::variance::VarianceGroupsAccumulator;
    use datafusion::physical_expr::expressions::StatsType;
    use thalweg_base::Prng;

    use super::*;

    /// The mean and the sum of the squares of the distances from it, each added up with what rounding
    /// leaves of it.
    fn exact(values: &[f64]) -> (f64, f64) {
        fn sum(values: impl Iterator<Item = f64>) -> f64 {
            let (mut sum, mut rest) = (0.0_f64, 0.0);
            for value in values {
                let next = sum + value;
                rest += match sum.abs() >= value.abs() {
                    true => (sum - next) + value,
                    false => (value - next) + sum,
                };
                sum = next;
            }
            sum + rest
        }
        let count = values.len() as f64;
        let mean = sum(values.iter().copied()) / count;
        // The mean is rounded as well.
        let off = sum(values.iter().map(|v| v - mean));
        (mean, sum(values.iter().map(|v| (v - mean) * (v - mean))) - off * off / count)
    }

    const ROWS: usize = 640;

    fn all(random: &mut Prng) -> Vec<Vec<f64>> {
        let mut unit = || random.below(1 << 40) as f64 / (1_u64 << 40) as f64;
        let levels = [(0.0, 0.0), (1e6, 0.0), (1e9, 0.0), (0.0, 1e9), (-1e3, 1e3)];
        let level = |(level, step): (f64, f64), n: usize| level + step * (n / ROWS / 3) as f64;
        let mut all: Vec<Vec<f64>> = levels
            .iter()
            .map(|&levels| (0..9 * ROWS).map(|n| level(levels, n) + unit()).collect())
            .collect();
        // One that is far off, and comes first.
        let mut far = all[0].clone();
        far[0] = 1e9;
        all.push(far);
        all
    }

    fn groups() -> Groups {
        Groups { figure: Figure::Variance, moments: vec![] }
    }

    fn datafusions() -> VarianceGroupsAccumulator {
        VarianceGroupsAccumulator::new(StatsType::Sample)
    }

    /// The mean and the squares of the only group.
    fn added(mut groups: impl GroupsAccumulator, values: &[f64]) -> (f64, f64) {
        for batch in values.chunks(ROWS) {
            let batch: ArrayRef = Arc::new(Float64Array::from(batch.to_vec()));
            groups.update_batch(&[batch], &[0; ROWS], None, 1).unwrap();
        }
        let state = groups.state(EmitTo::All).unwrap();
        let number = |n: usize| state[n].as_primitive::<Float64Type>().value(0);
        (number(1), number(2))
    }

    #[test]
    fn batches_at_once_are_as_exact_as_row_by_row() {
        let mut random = Prng::new(5);
        for values in all(&mut random) {
            let expected = exact(&values);
            let at_once = added(groups(), &values);
            let by_row = added(datafusions(), &values);
            let off = |found: f64, expected: f64| ((found - expected) / expected).abs();
            let check = |at_once, by_row, expected| {
                let (at_once, by_row) = (off(at_once, expected), off(by_row, expected));
                assert!(at_once <= 2.0 * by_row + 1e-14, "{at_once} {by_row} {:?}", &values[..3]);
            };
            check(at_once.0, by_row.0, expected.0);
            check(at_once.1, by_row.1, expected.1);
        }
    }

    #[test]
    fn groups_filters_and_nulls_are_told_apart() {
        let mut random = Prng::new(7);
        let mut number = || (random.below(20) > 0).then(|| random.below(1000) as f64);
        let (y, x): (Vec<_>, Vec<_>) = (0..500).map(|_| (number(), number())).unzip();
        let (y, x) = (Float64Array::from(y), Float64Array::from(x));
        let groups: Vec<usize> = (0..500).map(|n| n * n % 7).collect();
        let filter: BooleanArray =
            (0..500).map(|n| [Some(true), Some(false), None][n % 3]).collect();
        for filter in [None, Some(&filter)] {
            let each = || groups.iter().copied();
            let lines = lines(&x, each(), filter, 7).unwrap();
            let planes = planes(&y, &x, each(), filter, 7).unwrap();
            for group in 0..7 {
                let is_asked = |&n: &usize| {
                    groups[n] == group && x.is_valid(n) && filter.is_none_or(|_| n % 3 == 0)
                };
                let rows: Vec<usize> = (0..500).filter(is_asked).collect();
                let sum = |rows: &[usize], of: &dyn Fn(usize) -> f64| -> f64 {
                    rows.iter().map(|&n| of(n)).sum()
                };
                assert_eq!(lines[group].count, rows.len() as f64);
                assert_eq!(lines[group].total(), sum(&rows, &|n| x.value(n)));
                let mean = lines[group].mean();
                let squares = sum(&rows, &|n| (x.value(n) - mean).powi(2));
                assert!((lines[group].squares() - squares).abs() < 1e-6);
                let rows: Vec<usize> = rows.into_iter().filter(|&n| y.is_valid(n)).collect();
                let Plane { y: of_y, x: of_x, .. } = planes[group];
                assert_eq!([of_y.count, of_x.count], [rows.len() as f64; 2]);
                let products = |n| (y.value(n) - of_y.mean()) * (x.value(n) - of_x.mean());
                assert!((planes[group].products() - sum(&rows, &products)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn what_no_sum_holds_is_added_row_by_row() {
        let check = |first: f64, then: f64, is_at_once: bool| {
            let mut values = vec![then; ROWS];
            values[0] = first;
            let found = lines(&values.into(), std::iter::repeat_n(0, ROWS), None, 1);
            assert_eq!(found.is_some(), is_at_once, "{first} {then}");
        };
        check(1.0, 1.0, true);
        check(0.0, -0.0, true);
        check(1e200, 1.0, false);
        check(1e200, 1e200, false);
        check(f64::NAN, 1.0, false);
        check(f64::INFINITY, f64::INFINITY, false);
        check(1.0, f64::NEG_INFINITY, false);
        check(1e9, 1.0, false);
        let few = lines(&vec![1.0; ROWS].into(), std::iter::repeat_n(0, ROWS), None, ROWS);
        assert!(few.is_none());
    }

    #[test]
    fn few_rows_of_a_group_are_added_as_datafusion_does() {
        let mut random = Prng::new(3);
        for total in [1, 7, 60] {
            let rows = ROWS_MIN * total - 1;
            let number = |n: usize| match (n % 11, n % 97) {
                (0, _) => None,
                (_, 5) => Some(f64::NAN),
                _ => Some(random.below(1000) as f64 / 7.0),
            };
            let values: ArrayRef = Arc::new((0..rows).map(number).collect::<Float64Array>());
            let places: Vec<usize> = (0..rows).map(|n| n * n % total).collect();
            let (mut ours, mut theirs) = (groups(), datafusions());
            let values = [values];
            ours.update_batch(&values, &places, None, total).unwrap();
            theirs.update_batch(&values, &places, None, total).unwrap();
            assert_eq!(
                format!("{:?}", ours.evaluate(EmitTo::All).unwrap()),
                format!("{:?}", theirs.evaluate(EmitTo::All).unwrap())
            );
        }
    }

    #[test]
    fn what_is_all_the_same_has_no_variance() {
        for value in [0.1, 1e9 / 3.0, -7.3e-12] {
            let (mut first, mut second) = (groups(), groups());
            for rows in [700, 3, 641, 8192, 1] {
                let batch: ArrayRef = Arc::new(Float64Array::from(vec![value; rows]));
                first.update_batch(std::slice::from_ref(&batch), &vec![0; rows], None, 1).unwrap();
                second.update_batch(&[batch], &vec![0; rows], None, 1).unwrap();
                let state = second.state(EmitTo::All).unwrap();
                first.merge_batch(&state, &[0], 1).unwrap();
            }
            assert_eq!(first.moments[0].squares, 0.0);
            assert_eq!(first.moments[0].mean, value);
        }
    }
}
