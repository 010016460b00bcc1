//! A batch on its way through a pipeline: registers for some rows, gathered as late as possible.
//!
//! A filter or a join does not move values. It changes which row of what it came from a row of the
//! batch stands for: the *origin* of a register, which it shares with those that came the same way.
//! Values are gathered when somebody asks for them, and expressions are evaluated then.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use crate::encoding::{internal, uncompacted, value_bytes};
use crate::expr::{Evaluate, Expr, Register};

/// Rows of runs that are worth it, on average.
const RUN_ROWS_MIN: (usize, usize) = (4, 3);

/// See the module's documentation.
#[derive(Clone)]
pub struct Batch {
    rows: usize,
    columns: Vec<Column>,
    /// For each row of the batch the row of the values it stands for; NULL: of none, its values
    /// are NULL.
    origins: Vec<UInt32Array>,
    /// The logical types of the first registers, which may be compact.
    types: Arc<[DataType]>,
}

#[derive(Clone)]
enum Column {
    /// Nobody reads it any more.
    Absent,
    /// One value for each row of the batch.
    Dense(ArrayRef),
    /// Values that `origins[…]` picks from.
    Taken(ArrayRef, usize),
    Computed(Arc<Expr>),
}

impl Batch {
    /// A batch of arrays that have a value for each row.
    pub fn new(columns: Vec<ArrayRef>, rows: usize) -> Self {
        debug_assert!(columns.iter().all(|c| c.len() == rows));
        let columns = columns.into_iter().map(Column::Dense).collect();
        Batch { rows, columns, origins: Vec::new(), types: Arc::default() }
    }

    /// A batch of which only these of `count` registers have values.
    pub fn of_some(registers: &[Register], values: &[ArrayRef], count: usize, rows: usize) -> Self {
        let mut batch = Batch::new(vec![], rows);
        batch.columns.resize(count, Column::Absent);
        for (register, values) in registers.iter().zip(values) {
            batch.columns[*register] = Column::Dense(Arc::clone(values));
        }
        batch
    }

    /// The first registers are of these types, and may be compact: see [`crate::encoding`].
    pub fn compact_of(mut self, types: &Arc<[DataType]>) -> Self {
        self.types = Arc::clone(types);
        self
    }

    /// The named rows of arrays.
    pub fn taken(columns: Vec<ArrayRef>, rows: UInt32Array) -> Self {
        let mut batch = Batch::new(vec![], rows.len());
        batch.extend(columns, rows);
        batch
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// `rows` rows of it, from row `from` on.
    pub fn slice(&self, from: usize, rows: usize) -> Batch {
        let column = |column: &Column| match column {
            Column::Dense(values) => Column::Dense(values.slice(from, rows)),
            other => other.clone(),
        };
        let origins = self.origins.iter().map(|origin| origin.slice(from, rows));
        Batch {
            rows,
            columns: self.columns.iter().map(column).collect(),
            origins: origins.collect(),
            types: Arc::clone(&self.types),
        }
    }

    /// Bytes that have to be read by who reads all its registers once.
    pub fn bytes(&self) -> usize {
        let bytes = |column: &Column| match column {
            Column::Absent | Column::Computed(_) => 0,
            Column::Dense(values) => value_bytes(values, None),
            Column::Taken(values, origin) => value_bytes(values, Some(&self.origins[*origin])),
        };
        self.columns.iter().map(bytes).sum()
    }

    /// Adds a register, which is evaluated if and when it is read.
    pub fn compute(&mut self, expr: &Arc<Expr>) {
        self.columns.push(Column::Computed(Arc::clone(expr)));
    }

    /// Adds a register of one value per row.
    pub fn push(&mut self, values: ArrayRef) {
        debug_assert_eq!(values.len(), self.rows);
        self.columns.push(Column::Dense(values));
    }

    /// Adds registers whose values are the named rows of `columns`, in their order.
    pub fn extend(&mut self, columns: impl IntoIterator<Item = ArrayRef>, rows: UInt32Array) {
        debug_assert_eq!(rows.len(), self.rows);
        let origin = self.origins.len();
        self.origins.push(rows);
        self.columns.extend(columns.into_iter().map(|c| Column::Taken(c, origin)));
    }

    /// The values of a register, maybe in an encoded form.
    pub fn column(&mut self, register: Register) -> Result<ArrayRef> {
        let values = self.compact(register)?;
        let Some(logical) = self.types.get(register) else { return Ok(values) };
        let values = uncompacted(&values, logical)?;
        self.columns[register] = Column::Dense(Arc::clone(&values));
        Ok(values)
    }

    /// As `column`, for who takes any [words](crate::encoding::words): they may be compact.
    pub fn compact(&mut self, register: Register) -> Result<ArrayRef> {
        let values = match &self.columns[register] {
            Column::Dense(values) => return Ok(Arc::clone(values)),
            Column::Taken(values, origin) => {
                take(values, &self.origins[*origin], None).map_err(internal)?
            }
            Column::Computed(expr) => Arc::clone(expr).encoded(self)?,
            Column::Absent => {
                return Err(Error::internal(format!("register {register} was dropped too early")));
            }
        };
        self.columns[register] = Column::Dense(Arc::clone(&values));
        Ok(values)
    }

    /// For each row the row of the values that a register was taken from.
    pub fn origin(&self, register: Register) -> Result<ArrayRef> {
        match &self.columns[register] {
            Column::Taken(_, origin) => Ok(Arc::new(self.origins[*origin].clone())),
            _ => Err(Error::internal(format!("register {register} comes from no table any more"))),
        }
    }

    /// The first rows of runs of rows that have all these registers from the same row of what they were
    /// taken from, and of each row the number of its run: a join gives the matches of a row one after
    /// the other. `None`: the registers come from elsewhere, or there are nearly as many runs as rows.
    pub fn runs(&self, registers: &[Register]) -> Option<(Batch, Vec<u32>)> {
        let mut columns = vec![Column::Absent; self.columns.len()];
        let mut common = None;
        for &register in registers {
            match &self.columns[register] {
                Column::Taken(values, origin) if common.is_none_or(|common| common == *origin) => {
                    common = Some(*origin);
                    columns[register] = Column::Taken(Arc::clone(values), 0);
                }
                _ => return None,
            }
        }
        let origin = &self.origins[common?];
        let rows = origin.values();
        let begins = |n: usize| n == 0 || rows[n] != rows[n - 1];
        let count = (0..rows.len()).filter(|&n| begins(n)).count();
        if origin.null_count() > 0 || count * RUN_ROWS_MIN.0 > rows.len() * RUN_ROWS_MIN.1 {
            return None;
        }
        let (mut firsts, mut runs) = (Vec::with_capacity(count), Vec::with_capacity(rows.len()));
        for (n, &row) in rows.iter().enumerate() {
            if begins(n) {
                firsts.push(row);
            }
            runs.push(firsts.len() as u32 - 1);
        }
        let (origins, types) = (vec![firsts.into()], Arc::clone(&self.types));
        Some((Batch { rows: count, columns, origins, types }, runs))
    }

    /// Lets go of all registers for which `live` does not hold.
    pub fn retain(&mut self, live: &[bool]) {
        for (column, live) in self.columns.iter_mut().zip(live) {
            if !live {
                *column = Column::Absent;
            }
        }
    }

    /// Becomes the batch of the rows at `positions`, which may come in any order and repeat.
    pub fn pick(&mut self, positions: UInt32Array) -> Result<()> {
        let mut used = vec![None; self.origins.len()];
        let mut origins = Vec::with_capacity(self.origins.len() + 1);
        let mut dense = None;
        for column in &mut self.columns {
            match column {
                Column::Absent | Column::Computed(_) => {}
                Column::Dense(values) => {
                    let origin = *dense.get_or_insert_with(|| {
                        origins.push(positions.clone());
                        origins.len() - 1
                    });
                    *column = Column::Taken(Arc::clone(values), origin);
                }
                Column::Taken(_, origin) => {
                    if used[*origin].is_none() {
                        origins.push(compose(&self.origins[*origin], &positions)?);
                        used[*origin] = Some(origins.len() - 1);
                    }
                    *origin = used[*origin].unwrap_or_default();
                }
            }
        }
        self.rows = positions.len();
        self.origins = origins;
        Ok(())
    }
}

fn compose(origin: &UInt32Array, positions: &UInt32Array) -> Result<UInt32Array> {
    if origin.nulls().is_none() && positions.nulls().is_none() {
        let from = origin.values();
        return Ok(positions.values().iter().map(|&p| from[p as usize]).collect::<Vec<_>>().into());
    }
    let rows = take(origin, positions, None).map_err(internal)?;
    Ok(arrow::array::AsArray::as_primitive::<arrow::datatypes::UInt32Type>(&rows).clone())
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;
    use crate::expr::One;

    fn ints(batch: &mut Batch, register: Register) -> Vec<Option<i64>> {
        let column = batch.column(register).unwrap();
        let column: &Int64Array = arrow::array::AsArray::as_primitive(&column);
        column.iter().collect()
    }

    #[test]
    fn runs_are_rows_taken_from_the_same_row() {
        let values: Vec<ArrayRef> = [[10, 11, 12], [20, 21, 22]]
            .map(|v| Arc::new(Int64Array::from(v.to_vec())) as _)
            .into();
        let mut batch = Batch::new(vec![Arc::clone(&values[0])], 3);
        batch.pick(vec![0, 1, 1, 1, 2, 2, 0, 0].into()).unwrap();
        batch.extend(values, vec![2, 2, 2, 0, 0, 0, 2, 2].into());
        let (mut firsts, runs) = batch.runs(&[1, 2]).unwrap();
        assert_eq!(runs, [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(ints(&mut firsts, 1), [Some(12), Some(10), Some(12)]);
        assert_eq!(ints(&mut firsts, 2), [Some(22), Some(20), Some(22)]);

        assert_eq!(batch.runs(&[0]).unwrap().1, [0, 1, 1, 1, 2, 2, 3, 3]);
        assert!(batch.runs(&[0, 1]).is_none(), "from two tables");
        assert!(batch.runs(&[]).is_none());
        // Nothing repeats often enough.
        batch.pick(vec![0, 3, 5, 6, 3].into()).unwrap();
        assert!(batch.runs(&[1]).is_none());
        ints(&mut batch, 1);
        batch.pick(vec![0, 0, 0].into()).unwrap();
        assert!(batch.runs(&[1, 2]).is_none(), "one was read");
    }

    #[test]
    fn rows_are_picked_again_and_again() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![10, 11, 12, 13]));
        let mut batch = Batch::new(vec![a], 4);
        batch.pick(vec![3, 1, 1].into()).unwrap();
        let b: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
        batch.extend([b], UInt32Array::from(vec![Some(1), None, Some(0)]));
        assert_eq!(batch.bytes(), 2 * 3 * 8);
        assert_eq!(ints(&mut batch, 0), [Some(13), Some(11), Some(11)]);
        batch.pick(vec![1, 0].into()).unwrap();
        assert_eq!(ints(&mut batch, 0), [Some(11), Some(13)]);
        assert_eq!(ints(&mut batch, 1), [None, Some(8)]);
        batch.pick(vec![1].into()).unwrap();
        assert_eq!(ints(&mut batch, 1), [Some(8)]);
    }

    #[test]
    fn compact_registers_are_read_in_their_type_unless_words_will_do() {
        use arrow::array::{AsArray, Int8Array, Int16Array};
        use arrow::datatypes::{Decimal64Type, TimestampSecondType};
        let narrow: ArrayRef = Arc::new(Int8Array::from(vec![Some(-1), None, Some(3)]));
        let wider: ArrayRef = Arc::new(Int16Array::from(vec![500, 600, 700]));
        let seconds = DataType::Timestamp(arrow::datatypes::TimeUnit::Second, None);
        let types = [DataType::Decimal128(15, 2), seconds, DataType::Int16].into();
        let columns = vec![narrow, Arc::clone(&wider), Arc::clone(&wider)];
        let mut batch = Batch::new(columns, 3).compact_of(&types).slice(0, 3);
        batch.pick(vec![2, 1].into()).unwrap();
        assert_eq!(batch.compact(0).unwrap().data_type(), &DataType::Int8);
        let cents = batch.column(0).unwrap();
        assert_eq!(
            cents.as_primitive::<Decimal64Type>().iter().collect::<Vec<_>>(),
            [Some(3), None]
        );
        let times = batch.column(1).unwrap();
        assert_eq!(times.as_primitive::<TimestampSecondType>().values().as_ref(), [700, 600]);
        assert_eq!(batch.compact(1).unwrap().data_type(), times.data_type());
        assert_eq!(batch.column(2).unwrap().data_type(), &DataType::Int16);
    }

    #[test]
    fn a_slice_has_all_registers() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![10, 11, 12, 13]));
        let b: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
        let mut batch = Batch::new(vec![a], 4);
        batch.extend([b], UInt32Array::from(vec![Some(1), None, Some(0), Some(1)]));
        let mut slice = batch.slice(1, 2);
        assert_eq!(slice.rows(), 2);
        assert_eq!(ints(&mut slice, 0), [Some(11), Some(12)]);
        assert_eq!(ints(&mut slice, 1), [None, Some(7)]);
        slice.pick(vec![1].into()).unwrap();
        assert_eq!(ints(&mut slice, 0), [Some(12)]);
        assert_eq!(ints(&mut batch, 1), [Some(8), None, Some(7), Some(8)]);
    }

    #[test]
    fn a_computed_register_is_evaluated_for_the_rows_that_are_left() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let mut batch = Batch::new(vec![Arc::clone(&a)], 3);
        let of = |value: i64| Box::new(Expr::Literal(One(Arc::new(Int64Array::from(vec![value])))));
        let register = Box::new(Expr::Register(0, a.data_type().clone()));
        batch.compute(&Arc::new(Expr::Compare(crate::expr::Comparison::Less, of(1), register)));
        batch.pick(vec![0, 2].into()).unwrap();
        let truths = batch.column(1).unwrap();
        assert_eq!(truths.as_ref(), &arrow::array::BooleanArray::from(vec![false, true]));
    }
}
