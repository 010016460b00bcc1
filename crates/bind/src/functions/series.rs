//! `generate_series` of numerics.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, Decimal128Builder, ListBuilder};
use arrow::datatypes::{DataType, Decimal128Type, Field};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::limits::LIST_ITEMS_MADE_MAX;

use super::{Function, failed, is_one, shaped};

/// Of three decimals of one type: the first, the last, and the step between two.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    signature: Signature,
}

pub(crate) fn series() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| {
        let signature = Signature::any(3, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Series { signature }))
    });
    Arc::clone(&FUNCTION)
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        "numeric_series"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(DataType::new_list(types[0].clone(), true))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let one = is_one(&args.args);
        let rows = if one { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let DataType::Decimal128(precision, scale) = arrays[0].data_type() else {
            return exec_err!("a series of {}", arrays[0].data_type());
        };
        let data_type = DataType::Decimal128(*precision, *scale);
        let items = Decimal128Builder::new().with_data_type(data_type.clone());
        let field = Field::new_list_field(data_type, true);
        let mut lists = ListBuilder::new(items).with_field(Arc::new(field));
        let mut made = 0_usize;
        for row in 0..rows {
            let value = |array: &ArrayRef| {
                array.is_valid(row).then(|| array.as_primitive::<Decimal128Type>().value(row))
            };
            let (Some(mut now), Some(last), Some(step)) =
                (value(&arrays[0]), value(&arrays[1]), value(&arrays[2]))
            else {
                lists.append(false);
                continue;
            };
            if step == 0 {
                return failed("22023", "step size cannot equal zero");
            }
            while if step > 0 { now <= last } else { now >= last } {
                made += 1;
                if made > LIST_ITEMS_MADE_MAX {
                    return failed(
                        "54000",
                        format!(
                            "generate_series would make more than {LIST_ITEMS_MADE_MAX} items of one batch of rows"
                        ),
                    );
                }
                lists.values().append_value(now);
                match now.checked_add(step) {
                    Some(next) => now = next,
                    None => break,
                }
            }
            lists.append(true);
        }
        shaped(Arc::new(lists.finish()), one)
    }
}
