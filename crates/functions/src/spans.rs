//! Spans between points of time, and points made of numbers: `age`, `justify_days` and its like,
//! `make_date`, `make_timestamp`, `make_interval`, and what `-` between timestamps gives.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::Error;

use super::calendar::{DAY_US, Parts, Times, checked_date, days_in_month};
use thalweg_errors::into_datafusion;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `age(later, earlier)`: in years, months, days and time, as a calendar counts.
    Age,
    /// `later - earlier` of timestamps: in days and time.
    Difference,
    /// The same of a duration.
    OfDuration,
    JustifyDays,
    JustifyHours,
    JustifyInterval,
    MakeDate,
    MakeInterval,
    MakeTime,
    MakeTimestamp,
}

pub const KINDS: [Kind; 10] = [
    Kind::Age,
    Kind::Difference,
    Kind::OfDuration,
    Kind::JustifyDays,
    Kind::JustifyHours,
    Kind::JustifyInterval,
    Kind::MakeDate,
    Kind::MakeInterval,
    Kind::MakeTime,
    Kind::MakeTimestamp,
];

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Spans {
    kind: Kind,
    signature: Signature,
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

impl Spans {
    pub fn new(kind: Kind) -> Spans {
        Spans { kind, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Spans {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Age => "age",
            Kind::Difference => "timestamp_difference",
            Kind::OfDuration => "interval_of_duration",
            Kind::JustifyDays => "justify_days",
            Kind::JustifyHours => "justify_hours",
            Kind::JustifyInterval => "justify_interval",
            Kind::MakeDate => "make_date",
            Kind::MakeInterval => "make_interval",
            Kind::MakeTime => "make_time",
            Kind::MakeTimestamp => "make_timestamp",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let whole = |n: usize| vec![DataType::Int64; n];
        let with_seconds = |n: usize| {
            let mut types = whole(n);
            types.push(DataType::Float64);
            types
        };
        let wanted = match self.kind {
            Kind::Age | Kind::Difference => {
                if types.len() != 2 {
                    return plan_err!(
                        "{} takes two timestamps; age(x, current_date) is the age of x backwards",
                        self.name()
                    );
                }
                types.iter().map(|t| point(t, self.name())).collect::<Result<Vec<_>>>()?
            }
            Kind::OfDuration => match types {
                [DataType::Duration(_) | DataType::Null] => {
                    vec![DataType::Duration(TimeUnit::Microsecond)]
                }
                _ => return plan_err!("{} takes a duration", self.name()),
            },
            Kind::JustifyDays | Kind::JustifyHours | Kind::JustifyInterval => match types {
                [DataType::Interval(_) | DataType::Duration(_) | DataType::Null] => vec![INTERVAL],
                _ => return plan_err!("{} takes an interval", self.name()),
            },
            Kind::MakeInterval => match types.len() {
                n @ 0..7 => whole(n),
                7 => with_seconds(6),
                n => {
                    return plan_err!(
                        "make_interval takes years, months, weeks, days, hours, mins and secs, and not {n} numbers"
                    );
                }
            },
            Kind::MakeDate => match types.len() {
                3 => whole(3),
                _ => return plan_err!("make_date takes a year, a month and a day"),
            },
            Kind::MakeTime => match types.len() {
                3 => with_seconds(2),
                _ => return plan_err!("make_time takes an hour, minutes and seconds"),
            },
            Kind::MakeTimestamp => match types.len() {
                6 => with_seconds(5),
                _ => {
                    return plan_err!(
                        "make_timestamp takes a year, a month, a day, an hour, minutes and seconds"
                    );
                }
            },
        };
        let is_number = |t: &DataType| t.is_numeric() || t.is_null();
        let numbers = matches!(
            self.kind,
            Kind::MakeDate | Kind::MakeInterval | Kind::MakeTime | Kind::MakeTimestamp
        );
        match numbers && !types.iter().all(is_number) {
            true => plan_err!("{} takes numbers", self.name()),
            false => Ok(wanted),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::MakeTimestamp => TIMESTAMP,
            Kind::MakeDate => DataType::Date32,
            Kind::MakeTime => DataType::Time64(TimeUnit::Microsecond),
            _ => INTERVAL,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let result = self.rows(&arrays, rows)?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn point(data_type: &DataType, name: &str) -> Result<DataType> {
    match data_type {
        DataType::Timestamp(_, zone) => {
            Ok(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        DataType::Date32
        | DataType::Date64
        | DataType::Null
        | DataType::Utf8
        | DataType::Utf8View
        | DataType::LargeUtf8 => Ok(TIMESTAMP),
        other => plan_err!("{name} takes timestamps, and no {other}"),
    }
}

impl Spans {
    fn rows(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        match self.kind {
            Kind::Age | Kind::Difference => {
                let (later, earlier) = (Times::new(&arrays[0])?, Times::new(&arrays[1])?);
                let mut spans = Vec::with_capacity(rows);
                for row in 0..rows {
                    let (Some(a), Some(b)) = (later.parts(row)?, earlier.parts(row)?) else {
                        spans.push(None);
                        continue;
                    };
                    spans.push(Some(match self.kind {
                        Kind::Age => age(a, b),
                        _ => difference(&a, &b),
                    }));
                }
                Ok(Arc::new(IntervalMonthDayNanoArray::from(spans)))
            }
            Kind::OfDuration => {
                let durations =
                    arrays[0].as_primitive::<arrow::datatypes::DurationMicrosecondType>();
                let span = |us| in_days(i128::from(us));
                Ok(Arc::new(durations.unary::<_, arrow::datatypes::IntervalMonthDayNanoType>(span)))
            }
            Kind::JustifyDays | Kind::JustifyHours | Kind::JustifyInterval => {
                let spans = cast(&arrays[0], &INTERVAL)?;
                let spans = spans.as_primitive::<arrow::datatypes::IntervalMonthDayNanoType>();
                Ok(Arc::new(spans.unary::<_, arrow::datatypes::IntervalMonthDayNanoType>(|span| {
                    self.justified(span)
                })))
            }
            Kind::MakeDate | Kind::MakeInterval | Kind::MakeTime | Kind::MakeTimestamp => {
                self.made(arrays, rows)
            }
        }
    }

    fn justified(&self, span: IntervalMonthDayNano) -> IntervalMonthDayNano {
        const DAY_NS: i64 = DAY_US * 1000;
        let (mut months, mut days, mut ns) =
            (i64::from(span.months), i64::from(span.days), span.nanoseconds);
        if self.kind != Kind::JustifyDays {
            days += ns / DAY_NS;
            ns %= DAY_NS;
        }
        if self.kind != Kind::JustifyHours {
            months += days / 30;
            days %= 30;
        }
        // All parts get one sign, that of the largest.
        let all = self.kind == Kind::JustifyInterval;
        if self.kind != Kind::JustifyHours {
            let below = if all && days == 0 { ns } else { days };
            if months > 0 && below < 0 {
                days += 30;
                months -= 1;
            } else if months < 0 && below > 0 {
                days -= 30;
                months += 1;
            }
        }
        if self.kind != Kind::JustifyDays {
            if days > 0 && ns < 0 {
                ns += DAY_NS;
                days -= 1;
            } else if days < 0 && ns > 0 {
                ns -= DAY_NS;
                days += 1;
            }
        }
        IntervalMonthDayNano::new(months as i32, days as i32, ns)
    }

    fn made(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let has_seconds = match self.kind {
            Kind::MakeDate => false,
            Kind::MakeInterval => arrays.len() == 7,
            _ => true,
        };
        let (whole, seconds) = match has_seconds {
            true => arrays.split_at(arrays.len() - 1),
            false => (arrays, &[][..]),
        };
        let mut values: Vec<Option<(Vec<i64>, f64)>> = Vec::with_capacity(rows);
        for row in 0..rows {
            if arrays.iter().any(|array| array.is_null(row)) {
                values.push(None);
                continue;
            }
            let numbers = whole.iter().map(|a| a.as_primitive::<Int64Type>().value(row));
            let seconds =
                seconds.first().map_or(0.0, |a| a.as_primitive::<Float64Type>().value(row));
            values.push(Some((numbers.collect(), seconds)));
        }
        let all = |make: &dyn Fn(&[i64], f64) -> Option<i64>| -> Result<Vec<Option<i64>>> {
            let value = |value: &Option<(Vec<i64>, f64)>| match value {
                None => Ok(None),
                Some((numbers, seconds)) => match make(numbers, *seconds) {
                    Some(value) => Ok(Some(value)),
                    None => Err(into_datafusion(
                        Error::user(format!("{}: a field is out of range", self.name()))
                            .code("22008"),
                    )),
                },
            };
            values.iter().map(value).collect()
        };
        Ok(match self.kind {
            Kind::MakeTime => {
                let times = all(&|n, s| clock(n[0], n[1], s))?;
                Arc::new(Time64MicrosecondArray::from(times))
            }
            Kind::MakeDate => {
                let days = all(&|n, _| i32::try_from(date(n)?).ok().map(i64::from))?;
                let days = days.into_iter().map(|days| days.map(|days| days as i32));
                Arc::new(days.collect::<Date32Array>())
            }
            Kind::MakeTimestamp => {
                let moments = all(&|n, s| {
                    let days = date(n)?;
                    days.checked_mul(DAY_US)?.checked_add(clock(n[3], n[4], s)?)
                })?;
                Arc::new(TimestampMicrosecondArray::from(moments))
            }
            _ => {
                let mut spans = Vec::with_capacity(rows);
                for value in &values {
                    let Some((n, seconds)) = value else {
                        spans.push(None);
                        continue;
                    };
                    let n = |i: usize| n.get(i).copied().unwrap_or(0);
                    let months = n(0).checked_mul(12).and_then(|m| m.checked_add(n(1)));
                    let days = n(2).checked_mul(7).and_then(|d| d.checked_add(n(3)));
                    let minutes = n(4).checked_mul(60).and_then(|m| m.checked_add(n(5)));
                    let ns = minutes
                        .and_then(|m| m.checked_mul(60_000_000_000))
                        .and_then(|ns| ns.checked_add((seconds * 1e6).round() as i64 * 1000));
                    let (Some(Ok(months)), Some(Ok(days)), Some(ns)) =
                        (months.map(i32::try_from), days.map(i32::try_from), ns)
                    else {
                        return exec_err!("make_interval: a field is out of range");
                    };
                    spans.push(Some(IntervalMonthDayNano::new(months, days, ns)));
                }
                Arc::new(IntervalMonthDayNanoArray::from(spans))
            }
        })
    }
}

/// Days since 1970 of a year, a month and a day; there is no year 0, and those before it are negative.
fn date(n: &[i64]) -> Option<i64> {
    // What a date holds; beyond it the calendar would overflow.
    let is_year = n[0] != 0 && (-5_000_000..=5_874_897).contains(&n[0]);
    let year = if n[0] < 0 { n[0] + 1 } else { n[0] };
    is_year.then(|| checked_date(year, n[1], n[2])).flatten()
}

/// Microseconds of a time of day.
fn clock(hour: i64, minute: i64, seconds: f64) -> Option<i64> {
    let us = (seconds * 1e6).round() as i64;
    let valid =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60_000_000).contains(&us)
            || hour == 24 && minute == 0 && us == 0;
    valid.then_some((hour * 60 + minute) * 60_000_000 + us)
}

fn instant_us(p: &Parts) -> i128 {
    let clock = i128::from(p.days()) * i128::from(DAY_US) + i128::from(p.time_us());
    clock - i128::from(p.offset_s.unwrap_or(0)) * 1_000_000
}

fn difference(a: &Parts, b: &Parts) -> IntervalMonthDayNano {
    in_days(instant_us(a) - instant_us(b))
}

fn in_days(us: i128) -> IntervalMonthDayNano {
    let day = i128::from(DAY_US);
    IntervalMonthDayNano::new(0, (us / day) as i32, (us % day * 1000) as i64)
}

/// Field by field from the earlier to the later; a day that is missing is borrowed from the month of
/// the earlier one.
fn age(a: Parts, b: Parts) -> IntervalMonthDayNano {
    let key = |p: &Parts| (p.days(), p.time_us());
    let (sign, later, earlier) = if key(&a) < key(&b) { (-1, b, a) } else { (1, a, b) };
    let mut us = later.time_us() - earlier.time_us();
    let mut days = later.day - earlier.day;
    let mut months = (later.year - earlier.year) * 12 + later.month - earlier.month;
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        days += days_in_month(earlier.year, earlier.month);
        months -= 1;
    }
    IntervalMonthDayNano::new((sign * months) as i32, (sign * days) as i32, sign * us * 1000)
}
