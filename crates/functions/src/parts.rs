//! `extract`, `date_part` and `date_trunc`, with PostgreSQL's fields and types.
//!
//! What DataFusion's functions give the same is left to them when a statement is planned: they prune
//! chunks by years, and their kernels take no row apart.
//!
//! | field | type |
//! |---|---|
//! | `second` | numeric with six digits after the point |
//! | `milliseconds` | numeric with three |
//! | `epoch` | numeric with six; of a date a bigint |
//! | `julian` | of a date a bigint, else numeric |
//! | all others | int; of a span bigint |

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Decimal128Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Int32Type, IntervalMonthDayNano, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

use super::calendar::{DAY_US, Parts, Times, date_of, days_of, floored};
use super::zones::{Zone, is_utc};

/// The names of a field that PostgreSQL knows, in small letters, as one.
pub fn field(name: &str) -> Result<&'static str> {
    let name = name.trim().trim_matches(['\'', '"']).to_lowercase();
    Ok(match name.as_str() {
        "y" | "yr" | "yrs" | "year" | "years" => "year",
        "mon" | "mons" | "month" | "months" => "month",
        "d" | "day" | "days" => "day",
        "h" | "hr" | "hrs" | "hour" | "hours" => "hour",
        "m" | "min" | "mins" | "minute" | "minutes" => "minute",
        "s" | "sec" | "secs" | "second" | "seconds" => "second",
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => "millisecond",
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => "microsecond",
        "ns" | "nanosecond" | "nanoseconds" => "nanosecond",
        "w" | "week" | "weeks" | "isoweek" => "week",
        "qtr" | "quarter" | "quarters" => "quarter",
        "dec" | "decs" | "decade" | "decades" => "decade",
        "c" | "cent" | "century" | "centuries" => "century",
        "mil" | "mils" | "millenium" | "millennium" | "millennia" => "millennium",
        "dow" | "dayofweek" | "day_of_week" | "weekday" => "dow",
        "isodow" => "isodow",
        "doy" | "dayofyear" | "day_of_year" => "doy",
        "isoyear" => "isoyear",
        "epoch" => "epoch",
        "j" | "jd" | "julian" => "julian",
        "timezone" => "timezone",
        "timezone_h" | "timezone_hour" => "timezone_hour",
        "timezone_m" | "timezone_minute" => "timezone_minute",
        _ => {
            return exec_err!(
                "there is no field \"{name}\" of a time: year, quarter, month, week, day, dow, doy, hour, minute, second, epoch and their like are"
            );
        }
    })
}

fn is_point(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

fn coerced(types: &[DataType], name: &str) -> Result<Vec<DataType>> {
    let [field, value] = types else {
        return plan_err!("{name} takes the name of a field and a time");
    };
    if !is_text(field) {
        return plan_err!("the field of {name} is a text, and no {field}");
    }
    let value = match value {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        value => value.clone(),
    };
    let value = match value {
        DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
        text if is_text(&text) => DataType::Timestamp(TimeUnit::Microsecond, None),
        time if time.is_temporal() => time,
        other => {
            return plan_err!(
                "{name} takes a date, a time or an interval, and no {other}: cast it"
            );
        }
    };
    Ok(vec![field.clone(), value])
}

/// The field that a call names, if it does so by a literal.
fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn constant(value: &ColumnarValue, name: &str) -> Result<String> {
    match value {
        ColumnarValue::Scalar(scalar) => match scalar.try_as_str() {
            Some(Some(text)) => Ok(text.to_string()),
            _ => exec_err!("the field of {name} is a text"),
        },
        ColumnarValue::Array(_) => exec_err!("the field of {name} is a constant text"),
    }
}

/// `date_part(field, time)`, which `extract(field FROM time)` becomes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct DatePart {
    other: Arc<ScalarUDF>,
    signature: Signature,
    aliases: Vec<String>,
}

impl DatePart {
    pub fn new(other: Arc<ScalarUDF>) -> DatePart {
        let aliases = vec!["datepart".into()];
        DatePart { other, signature: Signature::user_defined(Volatility::Immutable), aliases }
    }
}

/// Whether DataFusion gives the same.
fn is_others(field: &str, data_type: &DataType) -> bool {
    let fields = ["quarter", "month", "week", "day", "dow", "isodow", "doy"];
    let clock = ["hour", "minute"];
    match data_type {
        // Its clocks go on after the tables of zones end.
        DataType::Timestamp(_, Some(zone)) if !is_utc(zone) => field == "nanosecond",
        DataType::Timestamp(..) => {
            fields.contains(&field) || clock.contains(&field) || field == "nanosecond"
        }
        data_type if is_date(data_type) => fields.contains(&field),
        DataType::Time32(_) | DataType::Time64(_) => field == "nanosecond",
        _ => false,
    }
}

/// Years as DataFusion counts them, which has a year 0: the one before the year 1 is -1.
fn is_year(field: &str, data_type: &DataType) -> bool {
    matches!(field, "year" | "isoyear") && is_point(data_type)
}

fn part_type(field: &str, data_type: &DataType) -> DataType {
    match field {
        "second" => DataType::Decimal128(8, 6),
        "millisecond" => DataType::Decimal128(8, 3),
        "epoch" | "julian" if is_date(data_type) => DataType::Int64,
        "epoch" => DataType::Decimal128(22, 6),
        "julian" => DataType::Decimal128(29, 20),
        "nanosecond" => DataType::Int64,
        _ if is_point(data_type) => DataType::Int32,
        _ if matches!(data_type, DataType::Time32(_) | DataType::Time64(_)) => DataType::Int32,
        _ => DataType::Int64,
    }
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        "date_part"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        coerced(types, "date_part")
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of date_part depends on its field")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let name = args.scalar_arguments.first().copied().flatten();
        let Some(name) = name.and_then(|value| value.try_as_str().flatten()) else {
            return plan_err!("the field of date_part is a constant text");
        };
        let data_type = args.arg_fields[1].data_type();
        let field = field(name)?;
        let data_type = match is_others(field, data_type) {
            true if field == "nanosecond" => DataType::Int64,
            true => DataType::Int32,
            false => part_type(field, data_type),
        };
        let nullable = args.arg_fields[1].is_nullable();
        Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
    }

    /// A year is a range of times, of which chunks know whether they have any.
    fn preimage(
        &self,
        args: &[Expr],
        value: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        match value {
            Expr::Literal(ScalarValue::Int32(Some(1..)), _) => {
                self.other.preimage(args, value, info)
            }
            _ => Ok(PreimageResult::None),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = field(&constant(&args.args[0], self.name())?)?;
        let data_type = args.args[1].data_type();
        let is_quick = is_others(field, &data_type) || is_year(field, &data_type);
        // Arrow's calendar ends with the year 262142, and gives NULL from there on.
        if is_quick && let Some(found) = self.quickly(field, args.clone())? {
            return Ok(found);
        }
        let scalar = matches!(args.args[1], ColumnarValue::Scalar(_));
        let array =
            args.args.swap_remove(1).into_array(if scalar { 1 } else { args.number_rows })?;
        let values = parts(field, &array)?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

impl DatePart {
    /// By DataFusion's function; `None`: it has no value for one of the times.
    fn quickly(&self, field: &str, mut args: ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
        args.args[0] = ColumnarValue::Scalar(ScalarValue::from(field));
        let is_year = is_year(field, &args.args[1].data_type());
        let given = nulls(&args.args[1]);
        let found = self.other.invoke_with_args(args)?;
        if nulls(&found) > given {
            return Ok(None);
        }
        if !is_year {
            return Ok(Some(found));
        }
        let christian = |year: i32| if year <= 0 { year - 1 } else { year };
        Ok(Some(match found {
            ColumnarValue::Scalar(ScalarValue::Int32(year)) => {
                ColumnarValue::Scalar(ScalarValue::Int32(year.map(christian)))
            }
            ColumnarValue::Array(years) => {
                let years = years.as_primitive::<Int32Type>();
                ColumnarValue::Array(Arc::new(years.unary::<_, Int32Type>(christian)))
            }
            other => return exec_err!("a year of the type {}", other.data_type()),
        }))
    }
}

fn nulls(value: &ColumnarValue) -> usize {
    match value {
        ColumnarValue::Array(array) => array.null_count(),
        ColumnarValue::Scalar(value) => usize::from(value.is_null()),
    }
}

fn parts(field: &str, array: &ArrayRef) -> Result<ArrayRef> {
    let times = Times::new(array)?;
    let mut values = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        values.push(
            times.parts(row)?.map(|parts| value(field, &parts, array.data_type())).transpose()?,
        );
    }
    Ok(match part_type(field, array.data_type()) {
        DataType::Decimal128(precision, scale) => {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale)?)
        }
        DataType::Int64 => {
            Arc::new(Int64Array::from_iter(values.into_iter().map(|v| v.map(|v| v as i64))))
        }
        _ => Arc::new(Int32Array::from_iter(values.into_iter().map(|v| v.map(|v| v as i32)))),
    })
}

/// In units of the type's last digit.
fn value(field: &str, p: &Parts, data_type: &DataType) -> Result<i128> {
    let micros = i128::from(p.second) * 1_000_000 + i128::from(p.micros);
    let needs_date = || match is_point(data_type) {
        true => Ok(()),
        false => exec_err!("{field} is no field of {data_type}"),
    };
    let of_year = |year: i64| match (year > 0, p.is_span) {
        (_, true) | (true, _) => i128::from(year),
        (false, false) => i128::from(year - 1),
    };
    Ok(match field {
        "second" => micros,
        "millisecond" => micros,
        "microsecond" => micros,
        "nanosecond" => micros * 1000,
        "hour" if !is_date(data_type) => p.hour.into(),
        "minute" if !is_date(data_type) => p.minute.into(),
        "hour" | "minute" => 0,
        "day" => p.day.into(),
        "month" => p.month.into(),
        "year" => of_year(p.year),
        "quarter" if p.is_span => i128::from(p.month / 3 + 1),
        "quarter" => i128::from((p.month - 1) / 3 + 1),
        "decade" if p.is_span => (p.year / 10).into(),
        "decade" => p.year.div_euclid(10).into(),
        "century" if p.is_span => (p.year / 100).into(),
        "century" if p.year > 0 => ((p.year + 99) / 100).into(),
        "century" => (-((99 - (p.year - 1)) / 100)).into(),
        "millennium" if p.is_span => (p.year / 1000).into(),
        "millennium" if p.year > 0 => ((p.year + 999) / 1000).into(),
        "millennium" => (-((999 - (p.year - 1)) / 1000)).into(),
        "epoch" if is_date(data_type) => i128::from(p.days()) * 86_400,
        "epoch" if p.is_span => {
            // A year has 365.25 days, a month 30.
            let years = i128::from(p.year) * 31_557_600;
            let days = i128::from(p.month * 30 + p.day) * 86_400;
            (years + days) * 1_000_000 + i128::from(p.time_us())
        }
        "epoch" => {
            let offset = i128::from(p.offset_s.unwrap_or(0)) * 1_000_000;
            i128::from(p.days()) * i128::from(DAY_US) + i128::from(p.time_us()) - offset
        }
        "julian" => {
            needs_date()?;
            match is_date(data_type) {
                true => p.julian().into(),
                false => {
                    let unit = 10_i128.pow(20);
                    let within = i128::from(p.time_us()) * unit / i128::from(DAY_US);
                    i128::from(p.julian()) * unit + within
                }
            }
        }
        "timezone" | "timezone_hour" | "timezone_minute" => {
            let Some(offset) = p.offset_s else {
                return exec_err!("{field} is no field of {data_type}, which has no zone");
            };
            match field {
                "timezone" => offset.into(),
                "timezone_hour" => (offset / 3600).into(),
                _ => (offset / 60 % 60).into(),
            }
        }
        _ => {
            needs_date()?;
            match field {
                "week" => p.iso_week().1.into(),
                "isoyear" => of_year(p.iso_week().0),
                "dow" => p.weekday().into(),
                "isodow" => ((p.weekday() + 6) % 7 + 1).into(),
                "doy" => p.day_of_year().into(),
                _ => return exec_err!("{field} is no field of {data_type}"),
            }
        }
    })
}

/// `date_trunc(field, time)`
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct DateTrunc {
    other: Arc<ScalarUDF>,
    signature: Signature,
    aliases: Vec<String>,
}

impl DateTrunc {
    pub fn new(other: Arc<ScalarUDF>) -> DateTrunc {
        let aliases = vec!["datetrunc".into()];
        DateTrunc { other, signature: Signature::user_defined(Volatility::Immutable), aliases }
    }
}

const TRUNCATED_BY_OTHERS: [&str; 10] = [
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
];

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        "date_trunc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let mut types = coerced(types, "date_trunc")?;
        if is_date(&types[1]) {
            types[1] = DataType::Timestamp(TimeUnit::Microsecond, None);
        }
        if matches!(types[1], DataType::Interval(_) | DataType::Duration(_)) {
            types[1] = DataType::Interval(IntervalUnit::MonthDayNano);
        }
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of date_trunc is that of its second argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let time = &args.arg_fields[1];
        Ok(Arc::new(Field::new(self.name(), time.data_type().clone(), time.is_nullable())))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if let [name, time] = &args[..]
            && let Some(name) = literal(name)
            && let Ok(DataType::Timestamp(unit, zone)) = info.get_data_type(time)
            && unit != TimeUnit::Microsecond
            && zone.as_deref().is_none_or(is_utc)
            && let Ok(field) = field(name)
            && TRUNCATED_BY_OTHERS.contains(&field)
        {
            let args = vec![lit(field), time.clone()];
            let call = ScalarFunction::new_udf(Arc::clone(&self.other), args);
            return Ok(ExprSimplifyResult::Simplified(Expr::ScalarFunction(call)));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = field(&constant(&args.args[0], self.name())?)?;
        let data_type = args.args[1].data_type();
        let is_span = matches!(data_type, DataType::Interval(_));
        if let DataType::Timestamp(_, Some(zone)) = &data_type
            && !is_utc(zone)
        {
            return self.by_clock(field, zone, args);
        }
        if matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _))
            && TRUNCATED_BY_OTHERS.contains(&field)
        {
            return cut_micros(field, &args);
        }
        if !is_span && TRUNCATED_BY_OTHERS.contains(&field) {
            args.args[0] = ColumnarValue::Scalar(ScalarValue::from(field));
            return self.other.invoke_with_args(args);
        }
        let scalar = matches!(args.args[1], ColumnarValue::Scalar(_));
        let array =
            args.args.swap_remove(1).into_array(if scalar { 1 } else { args.number_rows })?;
        let times = Times::new(&array)?;
        let values: ArrayRef = if is_span {
            let mut spans = Vec::with_capacity(array.len());
            for row in 0..array.len() {
                spans.push(times.parts(row)?.map(|parts| shorter(field, parts)).transpose()?);
            }
            Arc::new(IntervalMonthDayNanoArray::from(spans))
        } else {
            let mut moments = Vec::with_capacity(array.len());
            for row in 0..array.len() {
                moments.push(times.parts(row)?.map(|parts| earlier(field, &parts)).transpose()?);
            }
            let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from(moments));
            cast(&moments, &data_type)?
        };
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

/// Timestamps of microseconds, whose years DataFusion's function does not reach.
fn cut_micros(field: &str, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let scalar = matches!(args.args[1], ColumnarValue::Scalar(_));
    let array = args.args[1].to_array(if scalar { 1 } else { args.number_rows })?;
    let times = array.as_primitive::<TimestampMicrosecondType>();
    let to_multiple = |us: i64, of: i64| us.wrapping_sub(us.rem_euclid(of));
    let to_date = |us: i64, date: fn(i64) -> i64| date(us.div_euclid(DAY_US)).wrapping_mul(DAY_US);
    let cut = |us: i64| match field {
        "microsecond" => us,
        "millisecond" => to_multiple(us, 1_000),
        "second" => to_multiple(us, 1_000_000),
        "minute" => to_multiple(us, 60_000_000),
        "hour" => to_multiple(us, 3_600_000_000),
        "day" => to_multiple(us, DAY_US),
        // 1970-01-01 was a Thursday.
        "week" => to_date(us, |days| days - (days + 3).rem_euclid(7)),
        "month" => to_date(us, |days| {
            let (year, month, _) = date_of(days);
            days_of(year, month, 1)
        }),
        "quarter" => to_date(us, |days| {
            let (year, month, _) = date_of(days);
            days_of(year, (month - 1) / 3 * 3 + 1, 1)
        }),
        _ => to_date(us, |days| days_of(date_of(days).0, 1, 1)),
    };
    // What stands in the place of a NULL is cut as well: the arithmetic wraps.
    let values = times.unary::<_, TimestampMicrosecondType>(cut);
    let values: ArrayRef = Arc::new(values.with_data_type(array.data_type().clone()));
    match scalar {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
        false => Ok(ColumnarValue::Array(values)),
    }
}

impl DateTrunc {
    /// An instant is cut as the clocks of its zone show it. Within a day the clocks are those of the
    /// instant itself, even if they are about to be moved.
    fn by_clock(
        &self,
        field: &'static str,
        zone: &str,
        mut args: ScalarFunctionArgs,
    ) -> Result<ColumnarValue> {
        let clocks = Zone::required(zone)?;
        let scalar = matches!(args.args[1], ColumnarValue::Scalar(_));
        let rows = if scalar { 1 } else { args.number_rows };
        let data_type = args.args[1].data_type();
        let instant = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        let instants = floored(&args.args.swap_remove(1).into_array(rows)?, &instant)?;
        let instants = instants.as_primitive::<TimestampMicrosecondType>();
        let beyond = || exec_datafusion_err!("timestamp out of range");
        let local = instants.try_unary::<_, TimestampMicrosecondType, _>(|us| {
            clocks.clock(us).ok_or_else(beyond)
        })?;
        let cut = DateTrunc::new(Arc::clone(&self.other)).invoke_with_args(ScalarFunctionArgs {
            args: vec![
                ColumnarValue::Scalar(ScalarValue::from(field)),
                ColumnarValue::Array(Arc::new(local.with_timezone_opt(None::<&str>))),
            ],
            arg_fields: vec![],
            number_rows: rows,
            return_field: Arc::new(Field::new(
                self.name(),
                DataType::Timestamp(TimeUnit::Microsecond, None),
                true,
            )),
            config_options: args.config_options,
        })?;
        let cut = cut.into_array(rows)?;
        let cut = cut.as_primitive::<TimestampMicrosecondType>();
        let is_within_day =
            ["microsecond", "millisecond", "second", "minute", "hour"].contains(&field);
        let values = cut.iter().zip(instants).map(|(cut, us)| {
            let (Some(cut), Some(us)) = (cut, us) else { return Ok(None) };
            let back = match is_within_day {
                true => clocks.clock(us).map(|local| us - (local - cut)),
                false => clocks.instant(cut),
            };
            back.map(Some).ok_or_else(beyond)
        });
        let values = values.collect::<Result<TimestampMicrosecondArray>>()?;
        let values: ArrayRef = Arc::new(values.with_timezone(zone));
        let values = cast(&values, &data_type)?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

/// The first moment of the decade, century or millennium.
fn earlier(field: &str, p: &Parts) -> Result<i64> {
    let year = match field {
        "decade" => p.year.div_euclid(10) * 10,
        "century" if p.year > 0 => (p.year + 99) / 100 * 100 - 99,
        "century" => -((99 - (p.year - 1)) / 100) * 100 + 1,
        "millennium" if p.year > 0 => (p.year + 999) / 1000 * 1000 - 999,
        "millennium" => -((999 - (p.year - 1)) / 1000) * 1000 + 1,
        _ => return exec_err!("date_trunc cannot cut a time to its {field}"),
    };
    let us = days_of(year, 1, 1).checked_mul(DAY_US);
    match us.and_then(|us| us.checked_sub(i64::from(p.offset_s.unwrap_or(0)) * 1_000_000)) {
        Some(us) => Ok(us),
        None => exec_err!("timestamp out of range"),
    }
}

fn shorter(field: &str, mut p: Parts) -> Result<IntervalMonthDayNano> {
    const ORDER: [&str; 11] = [
        "microsecond",
        "millisecond",
        "second",
        "minute",
        "hour",
        "day",
        "month",
        "quarter",
        "year",
        "decade",
        "century",
    ];
    let Some(level) =
        ORDER.iter().position(|name| *name == field).or((field == "millennium").then_some(11))
    else {
        return exec_err!("date_trunc cannot cut an interval to its {field}");
    };
    if level >= 1 {
        p.micros = p.micros / 1000 * 1000;
    }
    if level >= 2 {
        p.micros = 0;
    }
    if level >= 3 {
        p.second = 0;
    }
    if level >= 4 {
        p.minute = 0;
    }
    if level >= 5 {
        p.hour = 0;
    }
    if level >= 6 {
        p.day = 0;
    }
    match level {
        7 => p.month = p.month / 3 * 3,
        8.. => p.month = 0,
        _ => {}
    }
    p.year = match level {
        9 => p.year / 10 * 10,
        10 => p.year / 100 * 100,
        11 => p.year / 1000 * 1000,
        _ => p.year,
    };
    let months = p.year * 12 + p.month;
    Ok(IntervalMonthDayNano::new(months as i32, p.day as i32, p.time_us() * 1000))
}
