//! Casts between intervals and times of day: the time that an interval leaves on the clock, and the interval from
//! midnight.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64NanosecondType, TimeUnit,
};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, is_one, shaped, untyped_null};
use crate::types::INTERVAL;

const DAY_NS: i64 = 86_400_000_000_000;
pub(crate) const TIME: DataType = DataType::Time64(TimeUnit::Nanosecond);

/// What is made of the value of the other type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeOfDay {
    /// A time of day, and not an interval.
    is_time: bool,
    signature: Signature,
}

/// Of an [`INTERVAL`] its time, without its days and months, as a [`TIME`]: `-01:00` is `23:00`.
pub(crate) fn of_interval() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| function(true));
    Arc::clone(&FUNCTION)
}

/// Of a [`TIME`] the [`INTERVAL`] from midnight.
pub(crate) fn as_interval() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| function(false));
    Arc::clone(&FUNCTION)
}

fn function(is_time: bool) -> Function {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(TimeOfDay { is_time, signature }))
}

impl ScalarUDFImpl for TimeOfDay {
    fn name(&self) -> &str {
        if self.is_time { "time_of_interval" } else { "interval_of_time" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.is_time { TIME } else { INTERVAL })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let values = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        let made: ArrayRef =
            if let Some(spans) = values.as_primitive_opt::<IntervalMonthDayNanoType>() {
                let time = |span: IntervalMonthDayNano| span.nanoseconds.rem_euclid(DAY_NS);
                Arc::new(spans.unary::<_, Time64NanosecondType>(time))
            } else if let Some(times) = values.as_primitive_opt::<Time64NanosecondType>() {
                let span = |ns| IntervalMonthDayNano::new(0, 0, ns);
                Arc::new(times.unary::<_, IntervalMonthDayNanoType>(span))
            } else {
                return exec_err!("the time of day of the type {}", values.data_type());
            };
        shaped(made, one)
    }
}
