//! Clocks and instants: what `AT TIME ZONE` and casts between `timestamp` and `timestamptz` do, and an
//! instant plus an interval.
//!
//! Where a clock is set forward, it skips times; such a time is read by the clock of before, as
//! PostgreSQL does: 02:30 of that night is 03:30. Where it is set back, it shows times twice; the second
//! is meant.

use std::sync::{Arc, LazyLock};

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use thalweg_base::Error;
use thalweg_base::text::quoted;

use super::calendar::{DAY_US, date_of, days_in_month, days_of, offset};
use super::interval_key::INTERVAL;
use thalweg_errors::into_datafusion;

const SECOND_US: i64 = 1_000_000;

/// What the clocks of a zone show.
#[derive(Clone, Copy, Debug)]
pub enum Zone {
    /// Seconds east of UTC.
    Fixed(i32),
    Named(Tz),
}

/// Abbreviations that PostgreSQL knows, and their hours east of UTC.
const ABBREVIATIONS: [(&str, i32); 26] = [
    ("utc", 0),
    ("gmt", 0),
    ("z", 0),
    ("zulu", 0),
    ("ut", 0),
    ("est", -5),
    ("edt", -4),
    ("cst", -6),
    ("cdt", -5),
    ("mst", -7),
    ("mdt", -6),
    ("pst", -8),
    ("pdt", -7),
    ("akst", -9),
    ("akdt", -8),
    ("hst", -10),
    ("wet", 0),
    ("west", 1),
    ("cet", 1),
    ("cest", 2),
    ("eet", 2),
    ("eest", 3),
    ("msk", 3),
    ("bst", 1),
    ("ist", 2),
    ("jst", 9),
];

impl Zone {
    /// By its name in the IANA database, an abbreviation, or an offset such as `+02:00`.
    pub fn named(name: &str) -> Option<Zone> {
        let trimmed = name.trim();
        let lower = trimmed.to_lowercase();
        if let Some((_, hours)) = ABBREVIATIONS.iter().find(|(short, _)| *short == lower) {
            return Some(Zone::Fixed(hours * 3600));
        }
        if let Some(seconds) = offset_of(trimmed) {
            return Some(Zone::Fixed(seconds));
        }
        trimmed.parse().or_else(|_| capitals(&lower).parse()).ok().map(Zone::Named)
    }

    /// As above.
    ///
    /// # Errors
    /// 22023: there is no such zone.
    pub fn required(name: &str) -> Result<Zone> {
        Zone::named(name).ok_or_else(|| {
            into_datafusion(
                Error::user(format!("time zone {} not recognized", quoted(name)))
                    .code("22023")
                    .hint("write a name such as Europe/Vienna, or an offset such as +02:00"),
            )
        })
    }

    /// Seconds east of UTC at an instant.
    fn offset(&self, us: i64) -> i64 {
        match self {
            Zone::Fixed(seconds) => i64::from(*seconds),
            Zone::Named(zone) => i64::from(offset(us, zone)),
        }
    }

    /// Seconds east of UTC when its clocks show a time.
    pub fn offset_at_clock(&self, local_us: i64) -> i64 {
        let Zone::Named(_) = self else { return self.offset(0) };
        let before = self.offset(local_us.saturating_sub(DAY_US));
        let after = self.offset(local_us.saturating_add(DAY_US));
        if before == after {
            return before;
        }
        let is = |offset: i64| self.offset(local_us.saturating_sub(offset * SECOND_US)) == offset;
        if is(after) { after } else { before }
    }

    /// What its clocks show at an instant.
    pub fn clock(&self, us: i64) -> Option<i64> {
        us.checked_add(self.offset(us) * SECOND_US)
    }

    /// The instant at which its clocks show a time.
    pub fn instant(&self, local_us: i64) -> Option<i64> {
        local_us.checked_sub(self.offset_at_clock(local_us) * SECOND_US)
    }
}

/// Whether a type's zone is one whose clocks show UTC.
pub fn is_utc(zone: &str) -> bool {
    matches!(zone, "+00:00" | "UTC" | "Etc/UTC")
}

/// `+02`, `-0530`, `+05:30`, `+05:30:15`: seconds.
fn offset_of(text: &str) -> Option<i32> {
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let body = &text[1..];
    let digits: String = body.chars().filter(|c| *c != ':').collect();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let parts: Vec<&str> = match body.contains(':') {
        true => body.split(':').collect(),
        false => match digits.len() {
            1 | 2 => vec![body],
            3 | 4 => vec![&body[..body.len() - 2], &body[body.len() - 2..]],
            _ => return None,
        },
    };
    let mut seconds = 0;
    for (part, unit) in parts.iter().zip([3600, 60, 1]) {
        seconds += part.parse::<i32>().ok()? * unit;
    }
    (parts.len() <= 3 && seconds < 16 * 3600).then_some(sign * seconds)
}

/// `america/new_york` → `America/New_York`
fn capitals(lower: &str) -> String {
    let mut at_start = true;
    let capital = |c: char| {
        let c = if at_start { c.to_ascii_uppercase() } else { c };
        at_start = !c.is_ascii_alphanumeric();
        c
    };
    lower.chars().map(capital).collect()
}

fn out_of_range() -> datafusion::common::DataFusionError {
    into_datafusion(Error::user("timestamp out of range").code("22008"))
}

/// An instant after an interval has passed, by the clocks of a zone: months and days keep the time of day.
pub fn plus(zone: &Zone, us: i64, span: IntervalMonthDayNano) -> Option<i64> {
    let mut us = us;
    if span.months != 0 {
        let local = zone.clock(us)?;
        let (year, month, day) = date_of(local.div_euclid(DAY_US));
        let months = year * 12 + month - 1 + i64::from(span.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        let days = days_of(year, month, day.min(days_in_month(year, month)));
        us = zone.instant(days.checked_mul(DAY_US)?.checked_add(local.rem_euclid(DAY_US))?)?;
    }
    if span.days != 0 {
        let local = zone.clock(us)?;
        us = zone.instant(local.checked_add(i64::from(span.days) * DAY_US)?)?;
    }
    us.checked_add(span.nanoseconds / 1000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `clock_of(instant, zone)`: what the clocks of the zone show.
    Clock,
    /// `instant_of(clock, zone, session's zone)`: when they show it, as a type of the session's zone.
    Instant,
    /// `timezone(zone, time)`: one or the other, for the planner that knows no `AT TIME ZONE`. Its
    /// instants are of UTC.
    Other,
    /// `instant_plus(instant, interval)`: by the zone of the instant's type.
    Plus,
    /// `instant_minus(instant, interval)`
    Minus,
}

/// What turns clocks into instants and back.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Zones {
    kind: Kind,
    signature: Signature,
}

fn function(kind: Kind) -> Arc<ScalarUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Zones { kind, signature }))
}

pub static CLOCK_OF: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Kind::Clock));
pub static INSTANT_OF: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Kind::Instant));
pub static TIMEZONE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Kind::Other));
pub static INSTANT_PLUS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Kind::Plus));
pub static INSTANT_MINUS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Kind::Minus));

impl ScalarUDFImpl for Zones {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Clock => "clock_of",
            Kind::Instant => "instant_of",
            Kind::Other => "timezone",
            Kind::Plus => "instant_plus",
            Kind::Minus => "instant_minus",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on its arguments", self.name())
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        let time = args.arg_fields.get(usize::from(self.kind == Kind::Other));
        let Some(DataType::Timestamp(unit, zone)) = time.map(|t| t.data_type()) else {
            return plan_err!("{} takes a timestamp", self.name());
        };
        let data_type = match self.kind {
            Kind::Other if zone.is_some() => DataType::Timestamp(*unit, None),
            Kind::Other => DataType::Timestamp(*unit, Some("+00:00".into())),
            Kind::Clock => DataType::Timestamp(*unit, None),
            Kind::Instant => {
                let session = args.scalar_arguments.get(2).copied().flatten();
                let Some(Some(session)) = session.map(|s| s.try_as_str().flatten()) else {
                    return plan_err!("instant_of takes the name of a zone");
                };
                DataType::Timestamp(*unit, Some(session.into()))
            }
            Kind::Plus | Kind::Minus => DataType::Timestamp(*unit, zone.clone()),
        };
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(arrow::datatypes::Field::new(self.name(), data_type, nullable)))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut kind = self.kind;
        if kind == Kind::Other {
            args.args.reverse();
            kind = match args.args[0].data_type() {
                DataType::Timestamp(_, Some(_)) => Kind::Clock,
                _ => Kind::Instant,
            };
        }
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let times = args.args[0].clone().into_array(rows)?;
        let DataType::Timestamp(unit, own) = times.data_type().clone() else {
            return plan_err!("{} takes a timestamp", self.name());
        };
        let per_second = per_second(unit);
        let counts = cast(&times, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        let counts = match kind {
            Kind::Clock => {
                by_zone(counts, &args.args[1], per_second, |zone, us| Some(zone.offset(us)))?
            }
            Kind::Instant => by_zone(counts, &args.args[1], per_second, |zone, us| {
                Some(-zone.offset_at_clock(us))
            })?,
            _ => {
                let zone = Zone::required(own.as_deref().unwrap_or("UTC"))?;
                let spans = cast(&args.args[1].clone().into_array(rows)?, &INTERVAL)?;
                let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
                let mut moved = Vec::with_capacity(rows);
                for row in 0..rows {
                    if counts.is_null(row) || spans.is_null(row) {
                        moved.push(None);
                        continue;
                    }
                    let span = match self.kind {
                        Kind::Plus => Some(spans.value(row)),
                        _ => negated(spans.value(row)),
                    };
                    let count = counts.value(row);
                    let after = span.and_then(|span| {
                        let us = as_micros(count, per_second)?;
                        let delta = i128::from(plus(&zone, us, span)?) - i128::from(us);
                        let delta = delta * i128::from(per_second) / i128::from(SECOND_US);
                        i64::try_from(i128::from(count) + delta).ok()
                    });
                    moved.push(Some(after.ok_or_else(out_of_range)?));
                }
                Int64Array::from(moved)
            }
        };
        let values: ArrayRef = Arc::new(counts);
        let values = cast(&values, &DataType::Timestamp(unit, None))?;
        let values = match args.return_field.data_type() {
            DataType::Timestamp(unit, Some(zone)) => labelled(&values, *unit, zone),
            _ => values,
        };
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

fn negated(span: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(
        span.months.checked_neg()?,
        span.days.checked_neg()?,
        span.nanoseconds.checked_neg()?,
    ))
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn as_micros(count: i64, per_second: i64) -> Option<i64> {
    match per_second {
        1_000_000_000 => Some(count.div_euclid(1000)),
        _ => count.checked_mul(SECOND_US / per_second),
    }
}

/// The same instants under another zone's name.
pub fn labelled(array: &ArrayRef, unit: TimeUnit, zone: &Arc<str>) -> ArrayRef {
    use arrow::datatypes::{
        TimestampMicrosecondType as Us, TimestampMillisecondType as Ms,
        TimestampNanosecondType as Ns, TimestampSecondType as S,
    };
    macro_rules! label {
        ($t:ty) => {
            Arc::new(array.as_primitive::<$t>().clone().with_timezone(Arc::clone(zone)))
        };
    }
    match unit {
        TimeUnit::Second => label!(S),
        TimeUnit::Millisecond => label!(Ms),
        TimeUnit::Microsecond => label!(Us),
        TimeUnit::Nanosecond => label!(Ns),
    }
}

/// Each count moved by so many seconds as its zone says.
fn by_zone(
    counts: &Int64Array,
    zones: &ColumnarValue,
    per_second: i64,
    seconds: impl Fn(&Zone, i64) -> Option<i64>,
) -> Result<Int64Array> {
    let moved = |zone: &Zone, count: i64| -> Result<i64> {
        let us = as_micros(count, per_second).ok_or_else(out_of_range)?;
        let seconds = seconds(zone, us).ok_or_else(out_of_range)?;
        count.checked_add(seconds * per_second).ok_or_else(out_of_range)
    };
    let array = match zones {
        ColumnarValue::Scalar(name) => match name.try_as_str().flatten() {
            None => return Ok(Int64Array::new_null(counts.len())),
            Some(name) => {
                let zone = Zone::required(name)?;
                return counts.iter().map(|c| c.map(|c| moved(&zone, c)).transpose()).collect();
            }
        },
        ColumnarValue::Array(array) => cast(array, &DataType::Utf8)?,
    };
    let names = array.as_string::<i32>();
    let mut last: Option<(&str, Zone)> = None;
    let mut values = Vec::with_capacity(counts.len());
    for (count, name) in counts.iter().zip(names) {
        let (Some(count), Some(name)) = (count, name) else {
            values.push(None);
            continue;
        };
        let zone = match last {
            Some((known, zone)) if known == name => zone,
            _ => Zone::required(name)?,
        };
        last = Some((name, zone));
        values.push(Some(moved(&zone, count)?));
    }
    Ok(Int64Array::from(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        days_of(year, month, day) * DAY_US + (hour * 60 + minute) * 60 * SECOND_US
    }

    #[test]
    fn clocks_that_are_moved_are_read_as_postgresql_reads_them() {
        let zone = Zone::named("america/new_york").unwrap();
        let check = |local: i64, instant: i64| assert_eq!(zone.instant(local), Some(instant));
        check(us(2024, 1, 30, 12, 0), us(2024, 1, 30, 17, 0));
        check(us(2024, 7, 1, 12, 0), us(2024, 7, 1, 16, 0));
        // Skipped, and shown twice.
        check(us(2024, 3, 10, 2, 30), us(2024, 3, 10, 7, 30));
        check(us(2024, 11, 3, 1, 30), us(2024, 11, 3, 6, 30));
        check(us(2024, 3, 10, 1, 59), us(2024, 3, 10, 6, 59));
        check(us(2024, 3, 10, 3, 0), us(2024, 3, 10, 7, 0));
        check(us(2024, 11, 3, 0, 59), us(2024, 11, 3, 4, 59));
        check(us(2024, 11, 3, 2, 0), us(2024, 11, 3, 7, 0));
        assert_eq!(zone.clock(us(2024, 11, 3, 5, 30)), Some(us(2024, 11, 3, 1, 30)));
    }

    #[test]
    fn months_and_days_keep_the_time_of_day() {
        let zone = Zone::named("America/New_York").unwrap();
        let start = us(2024, 3, 9, 17, 0);
        let day = IntervalMonthDayNano::new(0, 1, 0);
        assert_eq!(plus(&zone, start, day), Some(us(2024, 3, 10, 16, 0)));
        let hours = IntervalMonthDayNano::new(0, 0, DAY_US * 1000);
        assert_eq!(plus(&zone, start, hours), Some(us(2024, 3, 10, 17, 0)));
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(plus(&zone, us(2024, 1, 31, 17, 0), month), Some(us(2024, 2, 29, 17, 0)));
    }

    #[test]
    fn zones_have_names_abbreviations_and_offsets() {
        for (name, seconds) in [
            ("UTC", 0),
            ("est", -18_000),
            ("+02", 7_200),
            ("-05:30", -19_800),
            ("+0530", 19_800),
            ("+00:00", 0),
        ] {
            assert!(matches!(Zone::named(name), Some(Zone::Fixed(s)) if s == seconds), "{name}");
        }
        for name in ["", "Mars/Olympus", "+99", "+1:2:3:4", "x"] {
            assert!(Zone::named(name).is_none(), "{name}");
        }
    }
}
