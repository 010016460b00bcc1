//! `(a, b) OVERLAPS (c, d)`: whether two spans of time have a moment in common.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, is_one, shaped};

/// Of four times of one type: the ends of one span, in either order, and those of another.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Overlaps {
    signature: Signature,
}

pub(crate) fn overlaps() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| {
        let signature = Signature::any(4, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Overlaps { signature }))
    });
    Arc::clone(&FUNCTION)
}

impl ScalarUDFImpl for Overlaps {
    fn name(&self) -> &str {
        "overlaps"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let one = is_one(&args.args);
        let rows = if one { 1 } else { args.number_rows };
        let counts = args.args.iter().map(|arg| {
            let array = arg.to_array(rows)?;
            Ok(cast(&array, &DataType::Int64)?)
        });
        let counts = counts.collect::<Result<Vec<ArrayRef>>>()?;
        let value = |at: usize, row: usize| {
            let counts = counts[at].as_primitive::<Int64Type>();
            counts.is_valid(row).then(|| counts.value(row))
        };
        let each = (0..rows).map(|row| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|at| value(at, row));
            share((a, b), (c, d))
        });
        shaped(Arc::new(each.collect::<BooleanArray>()), one)
    }
}

/// A span begins with the earlier of its ends, and does not have its later one, unless both are the same.
/// One that is not known decides nothing where the other does.
fn share(one: (Option<i64>, Option<i64>), other: (Option<i64>, Option<i64>)) -> Option<bool> {
    let ends = |(a, b): (Option<i64>, Option<i64>)| match (a, b) {
        (Some(a), Some(b)) => Some((a.min(b), Some(a.max(b)))),
        (Some(known), None) | (None, Some(known)) => Some((known, None)),
        (None, None) => None,
    };
    let (one, other) = (ends(one)?, ends(other)?);
    if one.0 == other.0 {
        return (one.1.is_some() && other.1.is_some()).then_some(true);
    }
    let (earlier, later) = if one.0 < other.0 { (one, other) } else { (other, one) };
    match (earlier.1, later.1) {
        (None, _) => None,
        (Some(end), _) if later.0 < end => Some(true),
        (Some(_), None) => None,
        (Some(_), Some(_)) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_share_a_moment_or_touch() {
        let check = |a, b, c, d, expected| {
            assert_eq!(share((a, b), (c, d)), expected, "({a:?}, {b:?}) ({c:?}, {d:?})");
            assert_eq!(share((c, d), (b, a)), expected, "({c:?}, {d:?}) ({b:?}, {a:?})");
        };
        check(Some(1), Some(5), Some(3), Some(9), Some(true));
        check(Some(1), Some(3), Some(3), Some(9), Some(false));
        check(Some(3), Some(3), Some(3), Some(9), Some(true));
        check(Some(1), Some(1), Some(1), Some(1), Some(true));
        check(Some(1), None, Some(3), Some(9), None);
        check(Some(1), Some(5), Some(3), None, Some(true));
        check(Some(1), Some(2), Some(3), None, None);
        check(None, None, Some(3), Some(9), None);
    }
}
