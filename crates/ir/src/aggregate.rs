//! Groups of rows, and functions of them.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::{Opaque, written};

/// What to aggregate, and by what. All types are logical ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spec<A = Opaque> {
    #[serde(with = "written::data_types")]
    pub key_types: Vec<DataType>,
    /// Of the evaluated expressions that the functions' arguments name. An expression that several
    /// functions use is best given once: they then share its state.
    #[serde(with = "written::data_types")]
    pub argument_types: Vec<DataType>,
    pub functions: Vec<Function<A>>,
}

/// One aggregate function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function<A = Opaque> {
    pub kind: Kind<A>,
    /// Indices into [`Spec::argument_types`].
    pub arguments: Vec<usize>,
    /// FILTER (WHERE …): an index into the filters given with every batch.
    pub filter: Option<usize>,
    #[serde(with = "written::data_type")]
    pub result: DataType,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind<A = Opaque> {
    /// COUNT(*)
    CountRows,
    /// Rows none of whose arguments is NULL.
    Count,
    Sum,
    Min,
    Max,
    Avg,
    /// Of groups of groups: rows in all, of counts; 0 if there are none.
    CountOfCounts,
    /// Of groups of groups: the average, of sums and of counts.
    AvgOfSums,
    /// A function that is no part of plans.
    External(A),
}

/// Digits that an average of decimals keeps above those of its argument: 4 for its scale, 9 for
/// the number of rows. A sum that may need more than 38 is kept in more than 128 bits, as
/// DataFusion keeps it in 256.
const AVG_HEADROOM_DIGITS: u8 = 13;
const DECIMAL128_DIGITS: u8 = 38;

/// How the values of a type are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As words.
    Word,
    /// As words with the highest bit flipped.
    Unsigned,
    /// By the total order of IEEE 754: NaN with a sign, -∞ … -0.0, 0.0 … ∞, NaN.
    Float,
    Decimal,
    Bytes,
}

/// How the values of a type are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Int,
    Float,
    /// `exact`: beyond 128 bits rather than wrapping.
    Decimal {
        exact: bool,
    },
}

/// `None`: MIN and MAX have no code for values of that type.
pub fn order(data_type: &DataType) -> Option<Order> {
    use DataType::*;
    Some(match data_type {
        Float16 | Float32 | Float64 => Order::Float,
        UInt64 => Order::Unsigned,
        Decimal128(..) => Order::Decimal,
        t if is_bytes(t) => Order::Bytes,
        t if is_word(t) => Order::Word,
        _ => return None,
    })
}

/// `None`: SUM has no code for values of that type.
pub fn number(data_type: &DataType) -> Option<Number> {
    match data_type {
        t if t.is_integer() => Some(Number::Int),
        DataType::Float64 => Some(Number::Float),
        DataType::Decimal128(..) => Some(Number::Decimal { exact: false }),
        _ => None,
    }
}

/// Whether a function over arguments of these logical types is a part of plans; `External` never is.
pub fn is_native<A>(kind: &Kind<A>, argument_types: &[DataType]) -> bool {
    match (kind, argument_types) {
        (Kind::CountRows, []) | (Kind::Count, [_, ..]) => true,
        (Kind::Sum, [t]) => number(t).is_some(),
        (Kind::Avg, [t]) => is_averaged(t),
        (Kind::Min | Kind::Max, [t]) => order(t).is_some(),
        (Kind::CountOfCounts, [DataType::Int64]) => true,
        (Kind::AvgOfSums, [t, DataType::Int64]) => is_averaged(t),
        _ => false,
    }
}

fn is_averaged(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float64 | DataType::Decimal128(..))
}

/// Whether its results for groups can be combined to those for larger groups, which an average can if
/// sums and counts are there.
pub fn is_combined<A>(kind: &Kind<A>, argument_types: &[DataType]) -> bool {
    match (kind, argument_types) {
        (Kind::Avg, [DataType::Decimal128(precision, _)]) => !is_beyond_128_bits(*precision),
        (Kind::External(_) | Kind::CountOfCounts | Kind::AvgOfSums, _) => false,
        _ => is_native(kind, argument_types),
    }
}

/// Whether results over frames that move can be made of those up to each row, or of parts.
pub fn is_framed<A>(kind: &Kind<A>, argument_types: &[DataType]) -> bool {
    match (kind, argument_types) {
        (Kind::Avg | Kind::AvgOfSums, [DataType::Decimal128(precision, _), ..]) => {
            !is_beyond_128_bits(*precision)
        }
        _ => is_native(kind, argument_types),
    }
}

/// Whether an average of decimals of that precision needs a larger sum.
pub fn is_beyond_128_bits(precision: u8) -> bool {
    precision.saturating_add(AVG_HEADROOM_DIGITS) > DECIMAL128_DIGITS
}

/// Digits behind the point that an average has more than what it is of; `None`: there is no average of
/// that type with that result.
pub fn added_scale(argument: &DataType, result: &DataType) -> Option<u32> {
    match (argument, result) {
        (DataType::Float64, DataType::Float64) => Some(0),
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => {
            let more = u32::try_from(i16::from(*to) - i16::from(*from)).ok()?;
            (more <= DECIMAL128_DIGITS.into()).then_some(more)
        }
        _ => None,
    }
}

/// Whether values are text or binary.
pub fn is_bytes(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

/// Whether values are integers of at most 64 bits, or stored as such.
pub fn is_word(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Boolean
            | Int8
            | Int16
            | Int32
            | Int64
            | UInt8
            | UInt16
            | UInt32
            | UInt64
            | Date32
            | Date64
            | Time32(_)
            | Time64(_)
            | Timestamp(..)
            | Decimal32(..)
            | Decimal64(..)
    )
}

impl<A> Spec<A> {
    /// The logical types of groups: of the keys, then of the results.
    pub fn output_types(&self) -> Vec<DataType> {
        let results = self.functions.iter().map(|f| f.result.clone());
        self.key_types.iter().cloned().chain(results).collect()
    }

    /// How many filters come with every batch.
    pub fn filters(&self) -> usize {
        self.functions.iter().filter_map(|f| f.filter).max().map_or(0, |last| last + 1)
    }

    /// The same with other functions in the place of those that are no part of plans.
    pub fn map<B, E>(&self, external: &mut impl FnMut(&A) -> Result<B, E>) -> Result<Spec<B>, E> {
        let functions = self.functions.iter().map(|function| function.map(external));
        Ok(Spec {
            key_types: self.key_types.clone(),
            argument_types: self.argument_types.clone(),
            functions: functions.collect::<Result<_, E>>()?,
        })
    }
}

impl<A> Function<A> {
    pub fn map<B, E>(
        &self,
        external: &mut impl FnMut(&A) -> Result<B, E>,
    ) -> Result<Function<B>, E> {
        Ok(Function {
            kind: self.kind.map(external)?,
            arguments: self.arguments.clone(),
            filter: self.filter,
            result: self.result.clone(),
        })
    }
}

impl<A> Kind<A> {
    pub fn map<B, E>(&self, external: &mut impl FnMut(&A) -> Result<B, E>) -> Result<Kind<B>, E> {
        Ok(match self {
            Kind::CountRows => Kind::CountRows,
            Kind::Count => Kind::Count,
            Kind::Sum => Kind::Sum,
            Kind::Min => Kind::Min,
            Kind::Max => Kind::Max,
            Kind::Avg => Kind::Avg,
            Kind::CountOfCounts => Kind::CountOfCounts,
            Kind::AvgOfSums => Kind::AvgOfSums,
            Kind::External(own) => Kind::External(external(own)?),
        })
    }
}
