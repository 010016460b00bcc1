//! Functions of numbers that PostgreSQL has: `width_bucket` and `div`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::Error;

use thalweg_errors::into_datafusion;

/// `width_bucket(value, low, high, count)`: which of so many spans of equal width a value is in; 0
/// below, count + 1 above. `width_bucket(value, thresholds)`: how many of the thresholds it reaches.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct WidthBucket {
    signature: Signature,
}

impl Default for WidthBucket {
    fn default() -> Self {
        WidthBucket { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for WidthBucket {
    fn name(&self) -> &str {
        "width_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let number = |t: &DataType| t.is_numeric() || t.is_null();
        match types {
            [value, DataType::List(item)] if number(value) && number(item.data_type()) => {
                let item = item.as_ref().clone().with_data_type(DataType::Float64);
                Ok(vec![DataType::Float64, DataType::List(Arc::new(item))])
            }
            [value, low, high, count] if [value, low, high, count].into_iter().all(number) => {
                // Decimals and integers are compared exactly.
                let exact = |t: &&DataType| t.is_integer() || matches!(t, DataType::Decimal128(..));
                let data_type = match [value, low, high].iter().all(exact) {
                    true => DataType::Decimal128(38, 10),
                    false => DataType::Float64,
                };
                Ok(vec![data_type.clone(), data_type.clone(), data_type, DataType::Int64])
            }
            _ => plan_err!(
                "width_bucket takes a value, two bounds and a count, or a value and an array of thresholds"
            ),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let mut buckets = Vec::with_capacity(rows);
        for row in 0..rows {
            buckets.push(match arrays.iter().any(|array| array.is_null(row)) {
                true => None,
                false => Some(bucket(&arrays, row)?),
            });
        }
        let buckets: ArrayRef = Arc::new(Int32Array::from(buckets));
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&buckets, 0)?)),
            false => Ok(ColumnarValue::Array(buckets)),
        }
    }
}

fn bucket(arrays: &[ArrayRef], row: usize) -> Result<i32> {
    let wrong = |what: &str| {
        Err(into_datafusion(Error::user(format!("width_bucket: {what}")).code("2201G")))
    };
    let [value, low, high, count] = arrays else {
        let thresholds = arrays[1].as_list::<i32>().value(row);
        let thresholds = thresholds.as_primitive::<Float64Type>();
        if thresholds.null_count() > 0 {
            return wrong("a threshold is NULL");
        }
        let value = arrays[0].as_primitive::<Float64Type>().value(row);
        return Ok(thresholds.values().partition_point(|t| *t <= value) as i32);
    };
    let count = count.as_primitive::<Int64Type>().value(row);
    if count <= 0 || count >= i64::from(i32::MAX) {
        return wrong("the count is greater than zero, and an int");
    }
    let share = |value: f64, low: f64, high: f64| {
        ((value - low) / (high - low) * count as f64).floor() as i64
    };
    let bucket = if *value.data_type() == DataType::Float64 {
        let number = |array: &ArrayRef| array.as_primitive::<Float64Type>().value(row);
        let (value, low, high) = (number(value), number(low), number(high));
        if value.is_nan() || low.is_nan() || high.is_nan() {
            return wrong("NaN is in no bucket");
        }
        if !low.is_finite() || !high.is_finite() {
            return wrong("a bound is not finite");
        }
        if low == high {
            return wrong("the bounds are the same");
        }
        let (below, above) = match low < high {
            true => (value < low, value >= high),
            false => (value > low, value <= high),
        };
        match (below, above) {
            (true, _) => 0,
            (_, true) => count + 1,
            _ => share(value, low, high).clamp(0, count - 1) + 1,
        }
    } else {
        let number =
            |array: &ArrayRef| array.as_primitive::<arrow::datatypes::Decimal128Type>().value(row);
        let (value, low, high) = (number(value), number(low), number(high));
        if low == high {
            return wrong("the bounds are the same");
        }
        let (value, low, high) =
            if low < high { (value, low, high) } else { (-value, -low, -high) };
        if value < low {
            0
        } else if value >= high {
            count + 1
        } else {
            match (value - low).checked_mul(count.into()) {
                Some(scaled) => (scaled / (high - low)) as i64 + 1,
                None => share(value as f64, low as f64, high as f64).clamp(0, count - 1) + 1,
            }
        }
    };
    i32::try_from(bucket).or_else(|_| exec_err!("width_bucket: the bucket is out of range"))
}

/// `div(a, b)`: how often b goes into a as a whole, towards zero.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Div {
    signature: Signature,
}

impl Default for Div {
    fn default() -> Self {
        Div { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Div {
    fn name(&self) -> &str {
        "div"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [a, b] = types else { return plan_err!("div takes two numbers") };
        let scale = |t: &DataType| match t {
            DataType::Decimal128(_, scale) => Some(*scale),
            t if t.is_integer() || t.is_null() => Some(0),
            _ => None,
        };
        match (scale(a), scale(b)) {
            (Some(a), Some(b)) => {
                let data_type = DataType::Decimal128(38, a.max(b));
                Ok(vec![data_type.clone(), data_type])
            }
            _ if a.is_numeric() && b.is_numeric() => Ok(vec![DataType::Float64, DataType::Float64]),
            _ => plan_err!("div takes two numbers"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Float64, ..] => Ok(DataType::Float64),
            _ => Ok(DataType::Decimal128(38, 0)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        use arrow::datatypes::Decimal128Type;
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let by_zero = || into_datafusion(Error::user("division by zero").code("22012"));
        if let (Some(a), Some(b)) = (
            arrays[0].as_primitive_opt::<Float64Type>(),
            arrays[1].as_primitive_opt::<Float64Type>(),
        ) {
            let quotient = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
                (Some(_), Some(0.0)) => Err(by_zero()),
                (Some(a), Some(b)) => Ok(Some((a / b).trunc())),
                _ => Ok(None),
            };
            let quotients: Result<arrow::array::Float64Array> =
                a.iter().zip(b).map(quotient).collect();
            let quotients: ArrayRef = Arc::new(quotients?);
            return match scalar {
                true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&quotients, 0)?)),
                false => Ok(ColumnarValue::Array(quotients)),
            };
        }
        let (a, b) = (
            arrays[0].as_primitive::<Decimal128Type>(),
            arrays[1].as_primitive::<Decimal128Type>(),
        );
        let mut quotients = Vec::with_capacity(rows);
        for row in 0..rows {
            quotients.push(match a.is_null(row) || b.is_null(row) {
                true => None,
                false if b.value(row) == 0 => {
                    return Err(by_zero());
                }
                false => Some(a.value(row) / b.value(row)),
            });
        }
        let quotients =
            arrow::array::Decimal128Array::from(quotients).with_precision_and_scale(38, 0)?;
        let quotients: ArrayRef = Arc::new(quotients);
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&quotients, 0)?)),
            false => Ok(ColumnarValue::Array(quotients)),
        }
    }
}
