//! Points of time and spans taken apart, as PostgreSQL's date functions see them.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, DurationMicrosecondType, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::temporal_conversions::as_datetime_with_timezone;
use datafusion::common::{Result, exec_err};
use thalweg_base::calendar::within_zone_tables;
pub use thalweg_base::calendar::{DAY_US, date_of, days_of, is_leap};

const MONTH_DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        _ => MONTH_DAYS[(month - 1) as usize],
    }
}

/// A date that exists, as days since 1970-01-01.
pub fn checked_date(year: i64, month: i64, day: i64) -> Option<i64> {
    let exists = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    exists.then(|| days_of(year, month, day))
}

/// A point of time on the clock of its zone, or a span, in its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Year 0 is 1 BC. Of a span: whole years.
    pub year: i64,
    /// 1 to 12; of a span -11 to 11.
    pub month: i64,
    pub day: i64,
    /// Of a span: any number.
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub micros: i64,
    /// Seconds east of UTC, of a point of time that has a zone.
    pub offset_s: Option<i32>,
    pub is_span: bool,
}

impl Parts {
    /// Of microseconds since 1970-01-01 on a clock.
    pub fn of_clock(us: i64) -> Parts {
        let (year, month, day) = date_of(us.div_euclid(DAY_US));
        let us = us.rem_euclid(DAY_US);
        Parts {
            year,
            month,
            day,
            hour: us / 3_600_000_000,
            minute: us / 60_000_000 % 60,
            second: us / 1_000_000 % 60,
            micros: us % 1_000_000,
            offset_s: None,
            is_span: false,
        }
    }

    /// The midnight of days since 1970-01-01.
    pub fn of_days(days: i64) -> Parts {
        let (year, month, day) = date_of(days);
        Parts { year, month, day, ..Parts::default() }
    }

    pub fn of_span(months: i64, days: i64, us: i64) -> Parts {
        Parts {
            year: months / 12,
            month: months % 12,
            day: days,
            hour: us / 3_600_000_000,
            minute: us / 60_000_000 % 60,
            second: us / 1_000_000 % 60,
            micros: us % 1_000_000,
            offset_s: None,
            is_span: true,
        }
    }

    /// Days since 1970-01-01.
    pub fn days(&self) -> i64 {
        days_of(self.year, self.month, self.day)
    }

    pub fn time_us(&self) -> i64 {
        ((self.hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros
    }

    /// 0 is Sunday.
    pub fn weekday(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    pub fn day_of_year(&self) -> i64 {
        self.days() - days_of(self.year, 1, 1) + 1
    }

    /// Year and week of ISO 8601: week 1 has the first Thursday.
    pub fn iso_week(&self) -> (i64, i64) {
        let days = self.days();
        let monday = days - (days + 3).rem_euclid(7);
        let (year, _, _) = date_of(monday + 3);
        let first = days_of(year, 1, 4);
        let first = first - (first + 3).rem_euclid(7);
        (year, (monday - first) / 7 + 1)
    }

    pub fn julian(&self) -> i64 {
        self.days() + 2_440_588
    }
}

/// A column of times or spans whose rows can be taken apart.
pub enum Times {
    Date(ArrayRef),
    /// Microseconds since 1970, and the zone.
    Timestamp(ArrayRef, Option<Tz>),
    Time(ArrayRef),
    Interval(ArrayRef),
    Duration(ArrayRef),
}

impl Times {
    pub fn new(array: &ArrayRef) -> Result<Times> {
        Ok(match array.data_type() {
            DataType::Date32 => Times::Date(array.clone()),
            DataType::Date64 => Times::Date(cast(array, &DataType::Date32)?),
            DataType::Timestamp(_, zone) => {
                let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                let zone = zone.as_ref().map(|zone| zone.parse()).transpose()?;
                Times::Timestamp(floored(array, &data_type)?, zone)
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                Times::Time(cast(array, &DataType::Time64(TimeUnit::Microsecond))?)
            }
            DataType::Interval(_) => {
                Times::Interval(cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?)
            }
            DataType::Duration(_) => {
                Times::Duration(cast(array, &DataType::Duration(TimeUnit::Microsecond))?)
            }
            other => return exec_err!("{other} is neither a time nor a span"),
        })
    }

    /// `None` is NULL.
    pub fn parts(&self, row: usize) -> Result<Option<Parts>> {
        let array = match self {
            Times::Date(a)
            | Times::Timestamp(a, _)
            | Times::Time(a)
            | Times::Interval(a)
            | Times::Duration(a) => a,
        };
        if array.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match self {
            Times::Date(a) => {
                // In microseconds the last dates would leave the range of 64 bits.
                Parts::of_days(i64::from(a.as_primitive::<Date32Type>().value(row)))
            }
            Times::Timestamp(a, zone) => {
                let us = a.as_primitive::<TimestampMicrosecondType>().value(row);
                match zone {
                    None => Parts::of_clock(us),
                    Some(zone) => {
                        let offset_s = offset(us, zone);
                        let mut parts = Parts::of_clock(us + i64::from(offset_s) * 1_000_000);
                        parts.offset_s = Some(offset_s);
                        parts
                    }
                }
            }
            Times::Time(a) => {
                Parts::of_span(0, 0, a.as_primitive::<Time64MicrosecondType>().value(row))
            }
            Times::Interval(a) => {
                let IntervalMonthDayNano { months, days, nanoseconds } =
                    a.as_primitive::<IntervalMonthDayNanoType>().value(row);
                Parts::of_span(months.into(), days.into(), nanoseconds / 1000)
            }
            Times::Duration(a) => {
                Parts::of_span(0, 0, a.as_primitive::<DurationMicrosecondType>().value(row))
            }
        }))
    }
}

/// Nanoseconds before 1970 belong to the microsecond before, not after.
pub fn floored(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, _) = array.data_type() else {
        return exec_err!("{} is no timestamp", array.data_type());
    };
    if *unit != TimeUnit::Nanosecond {
        return Ok(cast(array, data_type)?);
    }
    let ns = cast(array, &DataType::Int64)?;
    let us = ns
        .as_primitive::<Int64Type>()
        .unary::<_, TimestampMicrosecondType>(|ns| ns.div_euclid(1000));
    // The counts are instants already: a cast to a zone would take them for what its clocks show.
    let zone = match data_type {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    Ok(Arc::new(us.with_timezone_opt(zone)))
}

/// Seconds east of UTC at an instant.
pub fn offset(us: i64, zone: &Tz) -> i32 {
    let us = within_zone_tables(us);
    let local = as_datetime_with_timezone::<TimestampMicrosecondType>(us, *zone);
    local.map_or(0, |local| {
        ((local.naive_local().and_utc().timestamp_micros() - us) / 1_000_000) as i32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_both_ways() {
        for days in (-1_000_000..3_000_000).step_by(997) {
            let (year, month, day) = date_of(days);
            assert_eq!(checked_date(year, month, day), Some(days));
        }
        assert_eq!(checked_date(1900, 2, 29), None);
        assert_eq!(date_of(-719_528), (0, 1, 1));
    }

    #[test]
    fn weeks_are_those_of_iso_8601() {
        for (date, week) in [
            ((2021, 1, 3), (2020, 53)),
            ((2021, 1, 4), (2021, 1)),
            ((2024, 12, 30), (2025, 1)),
            ((2024, 2, 29), (2024, 9)),
        ] {
            let parts = Parts::of_clock(days_of(date.0, date.1, date.2) * DAY_US);
            assert_eq!(parts.iso_week(), week, "{date:?}");
        }
    }
}
