//! Functions of the rows around each row.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::{Literal, Opaque, aggregate, sort, written};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spec<A = Opaque> {
    /// Keys: what rows are partitioned by, which is to be together, then what orders them. Its payload are the columns that
    /// come out, and then all else that is read.
    pub sort: sort::Spec,
    /// The columns of the payload that come out; results come after them.
    pub columns: usize,
    /// Columns of the payload: the keys of the sort.
    pub keys: Vec<usize>,
    pub functions: Vec<Function<A>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function<A = Opaque> {
    pub kind: Kind<A>,
    /// Columns of the payload.
    pub arguments: Vec<usize>,
    /// How many of the keys rows are ordered by: those after the keys of the partition.
    pub order_keys: usize,
    pub frame: Frame,
    #[serde(with = "written::data_type")]
    pub result: DataType,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind<A = Opaque> {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(u64),
    /// The argument so many rows further on, or back; and what is there instead beyond the
    /// partition.
    Shifted(i64, Literal),
    First,
    Last,
    /// Of the frame, from 1; from its end, if it is negative.
    Nth(i64),
    Aggregate(aggregate::Kind<A>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    pub unit: Unit,
    pub start: Bound,
    pub end: Bound,
}

/// What bounds count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    Rows,
    /// Runs of rows that are equal in what orders them: `GROUPS`; and `RANGE`, if no bound has a
    /// distance.
    Peers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bound {
    /// The partition's.
    Unbounded,
    /// Before the current one, if it is negative.
    Distance(i64),
}

impl Frame {
    /// Whether all rows of a partition have the same.
    pub fn is_partition(&self, order_keys: usize) -> bool {
        let fixed = |bound| match bound {
            Bound::Unbounded => true,
            Bound::Distance(0) => self.unit == Unit::Peers && order_keys == 0,
            Bound::Distance(_) => false,
        };
        fixed(self.start) && fixed(self.end)
    }
}

/// Whether all rows of a partition have the same value of a function, in whichever order they are.
pub fn is_of_partition<A>(function: &Function<A>) -> bool {
    matches!(function.kind, Kind::Aggregate(_)) && function.frame.is_partition(function.order_keys)
}

/// Whether plans have a function over such frames of arguments of these types.
pub fn is_covered<A>(function: &Function<A>, argument_types: &[DataType]) -> bool {
    match &function.kind {
        Kind::Aggregate(kind) => {
            function.frame.is_partition(function.order_keys)
                || aggregate::is_framed(kind, argument_types)
        }
        _ => true,
    }
}

impl<A> Spec<A> {
    /// The logical types of what comes out: columns, then results.
    pub fn output_types(&self) -> Vec<DataType> {
        let results = self.functions.iter().map(|f| f.result.clone());
        self.sort.payload_types.iter().take(self.columns).cloned().chain(results).collect()
    }

    /// The same with other functions in the place of those that are no part of plans.
    pub fn map<B, E>(&self, external: &mut impl FnMut(&A) -> Result<B, E>) -> Result<Spec<B>, E> {
        let functions = self.functions.iter().map(|function| function.map(external));
        Ok(Spec {
            sort: self.sort.clone(),
            columns: self.columns,
            keys: self.keys.clone(),
            functions: functions.collect::<Result<_, E>>()?,
        })
    }
}

impl<A> Function<A> {
    pub fn map<B, E>(
        &self,
        external: &mut impl FnMut(&A) -> Result<B, E>,
    ) -> Result<Function<B>, E> {
        let kind = match &self.kind {
            Kind::RowNumber => Kind::RowNumber,
            Kind::Rank => Kind::Rank,
            Kind::DenseRank => Kind::DenseRank,
            Kind::PercentRank => Kind::PercentRank,
            Kind::CumeDist => Kind::CumeDist,
            Kind::Ntile(tiles) => Kind::Ntile(*tiles),
            Kind::Shifted(distance, default) => Kind::Shifted(*distance, default.clone()),
            Kind::First => Kind::First,
            Kind::Last => Kind::Last,
            Kind::Nth(n) => Kind::Nth(*n),
            Kind::Aggregate(kind) => Kind::Aggregate(kind.map(external)?),
        };
        Ok(Function {
            kind,
            arguments: self.arguments.clone(),
            order_keys: self.order_keys,
            frame: self.frame,
            result: self.result.clone(),
        })
    }
}
