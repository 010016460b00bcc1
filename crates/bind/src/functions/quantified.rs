//! `x < ANY (list)` and `x < ALL (list)`, with SQL's three values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt32Array};
use arrow::compute::kernels::cmp;
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::Error;

use super::{is_one, shaped, untyped_null};

/// Whether a value compares with one of the items of a list, or with all of them. Both are of one type.
pub(crate) fn quantified(op: Operator, all: bool) -> Arc<ScalarUDF> {
    let name = format!("{}_{}", name_of(op), if all { "all" } else { "any" });
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Quantified { op, all, name, signature }))
}

fn name_of(op: Operator) -> &'static str {
    match op {
        Operator::Eq => "equal",
        Operator::NotEq => "unequal",
        Operator::Lt => "less",
        Operator::LtEq => "not_greater",
        Operator::Gt => "greater",
        _ => "not_less",
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    op: Operator,
    all: bool,
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let is_one = is_one(&args.args);
        let rows = if is_one { 1 } else { args.number_rows };
        let values = args.args[0].to_array(rows)?;
        let lists = args.args[1].to_array(rows)?;
        let Some(lists) = lists.as_list_opt::<i32>() else {
            let error = Error::internal(format!("{} of no list", self.name));
            return Err(DataFusionError::External(Box::new(error)));
        };
        shaped(Arc::new(self.found(&values, lists)?), is_one)
    }
}

impl Quantified {
    fn found(&self, values: &ArrayRef, lists: &ListArray) -> Result<BooleanArray> {
        let offsets = lists.value_offsets();
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let items = lists.values().slice(first, last - first);
        let length = |row: usize| (offsets[row + 1] - offsets[row]) as usize;
        let rows = (0..lists.len()).flat_map(|row| std::iter::repeat_n(row as u32, length(row)));
        let values = take(values, &UInt32Array::from_iter_values(rows), None)?;
        let compared = match self.op {
            Operator::Eq => cmp::eq(&values, &items),
            Operator::NotEq => cmp::neq(&values, &items),
            Operator::Lt => cmp::lt(&values, &items),
            Operator::LtEq => cmp::lt_eq(&values, &items),
            Operator::Gt => cmp::gt(&values, &items),
            _ => cmp::gt_eq(&values, &items),
        }?;
        let decided = |row: usize| {
            if lists.is_null(row) {
                return None;
            }
            let from = offsets[row] as usize - first;
            let mut known = true;
            for item in from..from + length(row) {
                match compared.is_valid(item) {
                    true if compared.value(item) != self.all => return Some(!self.all),
                    true => {}
                    false => known = false,
                }
            }
            known.then_some(self.all)
        };
        Ok((0..lists.len()).map(decided).collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn a_list_has_three_answers() {
        let items = vec![
            Some(vec![Some(1), Some(3)]),
            Some(vec![Some(1), None]),
            Some(vec![]),
            None,
            Some(vec![None, Some(3)]),
        ];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(items);
        let check = |op, all, value: Option<i32>, expected: [Option<bool>; 5]| {
            let values: ArrayRef = Arc::new(Int32Array::from(vec![value; 5]));
            let name = String::new();
            let signature = Signature::any(2, Volatility::Immutable);
            let function = Quantified { op, all, name, signature };
            // A list that does not begin at the first item of its values.
            for from in 0..5 {
                let found =
                    function.found(&values.slice(from, 5 - from), &lists.slice(from, 5 - from));
                assert_eq!(
                    found.unwrap().iter().collect::<Vec<_>>(),
                    expected[from..],
                    "{op} {all}"
                );
            }
        };
        let (yes, no) = (Some(true), Some(false));
        check(Operator::Eq, false, Some(3), [yes, None, no, None, yes]);
        check(Operator::Eq, true, Some(3), [no, no, yes, None, None]);
        check(Operator::NotEq, true, Some(3), [no, None, yes, None, no]);
        check(Operator::Lt, false, Some(2), [yes, None, no, None, yes]);
        check(Operator::GtEq, true, Some(0), [no, no, yes, None, no]);
        check(Operator::Eq, false, None, [None, None, no, None, None]);
    }
}
