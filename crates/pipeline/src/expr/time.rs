//! Points of time: their parts, and what they are cut to.
//!
//! Days are taken apart by multiplications of 32 bits (Neri and Schneider, "Euclidean affine functions
//! and their application to calendar algorithms"), which a processor does for several at once. Points of
//! time that lie near each other, as those of one batch mostly do, are counted in 32 bits from the first
//! of them; and of days that are few beside the rows, each is taken apart once.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal64Array, Int32Array, Int64Array,
    PrimitiveArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{
    DataType, Date32Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use thalweg_base::calendar::{DAY_US, date_of, days_of};
use thalweg_base::{Error, Result};
use thalweg_ir::op::{DatePart, DateUnit};

use crate::encoding::{NARROW_DIGITS, bounds, internal};

/// A part of each date or timestamp.
pub fn part(part: DatePart, array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Date32 => of_dates(part, array),
        DataType::Timestamp(TimeUnit::Second, _) => {
            of_timestamps::<TimestampSecondType, 1>(part, array)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            of_timestamps::<TimestampMillisecondType, 1_000>(part, array)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            of_timestamps::<TimestampMicrosecondType, 1_000_000>(part, array)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            of_timestamps::<TimestampNanosecondType, 1_000_000_000>(part, array)
        }
        other => Err(Error::internal(format!("a part of {other}"))),
    }
}

fn of_dates(part: DatePart, array: &ArrayRef) -> Result<ArrayRef> {
    let dates = array.as_primitive::<Date32Type>();
    let nulls = dates.nulls().cloned();
    let days = || dates.values().iter().map(|&day| i64::from(day));
    let parts = || {
        let (low, high) = bounds(dates.values().iter().copied())?;
        let after = |&day: &i32| day.wrapping_sub(low) as u32;
        of_few_days(part, low.into()..=high.into(), dates.values().iter().map(after))
    };
    match part {
        DatePart::Hour | DatePart::Minute => {
            Ok(Arc::new(Int32Array::new(vec![0; dates.len()].into(), nulls)))
        }
        DatePart::Second => decimals(vec![0; dates.len()], nulls),
        DatePart::Epoch => {
            let seconds: Vec<i64> = days().map(|day| day * 86_400).collect();
            Ok(Arc::new(Int64Array::new(seconds.into(), nulls)))
        }
        part => {
            let parts = parts().unwrap_or_else(|| of_days(part, days));
            Ok(Arc::new(Int32Array::new(parts.into(), nulls)))
        }
    }
}

/// Points of time that are counted in 32 bits from one of them or before: what of these counts is less
/// than the last bit of a unit does not tell which unit a point lies in.
struct Near<'a> {
    counts: &'a [i64],
    /// A multiple of what was asked for.
    base: i64,
    last: i64,
}

impl<'a> Near<'a> {
    /// From a multiple of `period` on. `None`: there are none, or nothing lies before the first of them.
    fn new(counts: &'a [i64], period: i64) -> Option<Self> {
        let (low, high) = bounds(counts.iter().copied())?;
        let base = low.checked_sub(low.rem_euclid(period))?;
        Some(Near { counts, base, last: high.checked_sub(base)? })
    }

    /// In which unit after the base each of them lies. `None`: they are too far apart for 32 bits.
    #[inline(always)]
    fn units<U: Unit>(&self) -> Option<impl ExactSizeIterator<Item = u32> + use<'a, U>> {
        let base = self.base;
        u32::try_from(self.last >> U::SHIFT).ok()?;
        Some(self.counts.iter().map(move |&count| ((count - base) >> U::SHIFT) as u32 / U::ODD))
    }
}

/// A unit of time: what it is divided by are constants of the loop.
trait Unit {
    /// Of the counts that a second has so many of.
    const COUNT: i64;
    const SHIFT: u32 = Self::COUNT.trailing_zeros();
    const ODD: u32 = {
        let odd = Self::COUNT >> Self::SHIFT;
        assert!(odd <= u32::MAX as i64);
        odd as u32
    };
}

struct Day<const SECOND: i64>;
struct Hour<const SECOND: i64>;
struct Minute<const SECOND: i64>;

impl<const SECOND: i64> Unit for Day<SECOND> {
    const COUNT: i64 = 86_400 * SECOND;
}

impl<const SECOND: i64> Unit for Hour<SECOND> {
    const COUNT: i64 = 3_600 * SECOND;
}

impl<const SECOND: i64> Unit for Minute<SECOND> {
    const COUNT: i64 = 60 * SECOND;
}

/// Which unit of a period each point of time lies in, of which a period has so many.
fn within<U: Unit, const UNITS: u32>(counts: &[i64]) -> Vec<i32> {
    let period = U::COUNT * i64::from(UNITS);
    let near = Near::new(counts, period);
    match near.as_ref().and_then(Near::units::<U>) {
        Some(all) => all.map(|n| (n % UNITS) as i32).collect(),
        None => counts.iter().map(|count| (count.rem_euclid(period) / U::COUNT) as i32).collect(),
    }
}

/// Of timestamps of which a second has so many.
fn of_timestamps<T: ArrowPrimitiveType<Native = i64>, const SECOND: i64>(
    part: DatePart,
    array: &ArrayRef,
) -> Result<ArrayRef> {
    let times = array.as_primitive::<T>();
    let (counts, mut nulls) = (times.values(), times.nulls().cloned());
    if SECOND < 1_000_000 {
        // What microseconds do not hold has no parts.
        let factor = 1_000_000 / SECOND;
        let fits = |count: i64| count.checked_mul(factor).is_some();
        if !counts.iter().all(|&count| fits(count)) {
            let all = BooleanBuffer::collect_bool(counts.len(), |row| fits(counts[row]));
            nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(all)));
        }
    }
    let micros = |count: i64| match SECOND {
        1_000_000_000 => count.div_euclid(1_000),
        _ => count.wrapping_mul(1_000_000 / SECOND.min(1_000_000)),
    };
    let numbers = |values: Vec<i32>| -> Result<ArrayRef> {
        Ok(Arc::new(Int32Array::new(values.into(), nulls.clone())))
    };
    match part {
        DatePart::Hour => numbers(within::<Hour<SECOND>, 24>(counts)),
        DatePart::Minute => numbers(within::<Minute<SECOND>, 60>(counts)),
        DatePart::Second => {
            let second = |&count: &i64| micros(count.rem_euclid(60 * SECOND));
            decimals(counts.iter().map(second).collect(), nulls)
        }
        DatePart::Epoch => decimals(counts.iter().map(|&count| micros(count)).collect(), nulls),
        part => {
            let day = Day::<SECOND>::COUNT;
            let parts = || {
                let near = Near::new(counts, day)?;
                let days = near.base / day..=(near.base + near.last).div_euclid(day);
                of_few_days(part, days, near.units::<Day<SECOND>>()?)
            };
            let days = || counts.iter().map(|count| count.div_euclid(day));
            numbers(parts().unwrap_or_else(|| of_days(part, days)))
        }
    }
}

/// Decimals with six digits after the point.
fn decimals(values: Vec<i64>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let narrow = Decimal64Array::new(values.into(), nulls);
    Ok(Arc::new(narrow.with_precision_and_scale(NARROW_DIGITS, 6).map_err(internal)?))
}

/// Of so many rows one day, or more, is taken apart for all.
const FEW_DAYS: usize = 4;

/// A part of days that are so many after the first of a few. `None`: they are not few.
fn of_few_days(
    part: DatePart,
    days: RangeInclusive<i64>,
    after: impl ExactSizeIterator<Item = u32>,
) -> Option<Vec<i32>> {
    let span = usize::try_from(days.end().checked_sub(*days.start())?).ok()?;
    if span >= after.len() / FEW_DAYS {
        return None;
    }
    let parts = of_days(part, || days.clone());
    Some(after.map(|n| parts[n as usize]).collect())
}

/// A part of each of these days since 1970-01-01, which `days` gives as often as it is asked.
fn of_days<I: Iterator<Item = i64>>(part: DatePart, days: impl Fn() -> I) -> Vec<i32> {
    let weekday = |day: i64, sunday: i64| (day + sunday).rem_euclid(7) as i32;
    match part {
        // 1970-01-01 was a Thursday.
        DatePart::DayOfWeek => return days().map(|day| weekday(day, 4)).collect(),
        DatePart::IsoDayOfWeek => return days().map(|day| weekday(day, 3) + 1).collect(),
        _ => {}
    }
    let is_week = part == DatePart::Week;
    if !days().all(|day| FAST.contains(&(day + i64::from(is_week) * 3))) {
        return days().map(|day| slow(part, day)).collect();
    }
    match part {
        DatePart::Year => days().map(|day| christian(Civil::of(day).year)).collect(),
        DatePart::Quarter => days().map(|day| (Civil::of(day).month as i32 + 2) / 3).collect(),
        DatePart::Month => days().map(|day| Civil::of(day).month as i32).collect(),
        DatePart::Day => days().map(|day| Civil::of(day).day as i32).collect(),
        DatePart::DayOfYear => days().map(|day| Civil::of(day).day_of_year as i32).collect(),
        _ => days()
            .map(|day| {
                // A week is of the year that its Thursday is of.
                let thursday = day - i64::from(weekday(day, 3)) + 3;
                (Civil::of(thursday).day_of_year as i32 - 1) / 7 + 1
            })
            .collect(),
    }
}

/// A part of a day that may be any.
fn slow(part: DatePart, day: i64) -> i32 {
    let (year, month, date) = date_of(day);
    let day_of_year = |day: i64| day - days_of(date_of(day).0, 1, 1) + 1;
    let value = match part {
        DatePart::Year => return christian(year as i32),
        DatePart::Quarter => (month + 2) / 3,
        DatePart::Month => month,
        DatePart::Day => date,
        DatePart::DayOfYear => day_of_year(day),
        _ => (day_of_year(day - (day + 3).rem_euclid(7) + 3) - 1) / 7 + 1,
    };
    value as i32
}

/// There is no year 0.
fn christian(year: i32) -> i32 {
    year - i32::from(year <= 0)
}

/// Cycles of 400 years that are added to have no days below zero, and their days.
const CYCLES: u32 = 740;
const CYCLE_DAYS: u32 = 146_097;
/// Days from the first of March of the year 0 to 1970-01-01.
const EPOCH_DAYS: u32 = 719_468;
/// Days since 1970-01-01 that are taken apart by 32 bits: all that timestamps of microseconds have.
const FAST: std::ops::Range<i64> = -106_800_000..900_000_000;

const _: () = assert!(-FAST.start < (EPOCH_DAYS + CYCLES * CYCLE_DAYS) as i64);
const _: () =
    assert!(4 * (FAST.end + (EPOCH_DAYS + CYCLES * CYCLE_DAYS) as i64) + 3 < u32::MAX as i64);

/// A day of the calendar.
#[derive(Clone, Copy)]
struct Civil {
    year: i32,
    month: u32,
    day: u32,
    day_of_year: u32,
}

impl Civil {
    /// Of a day within [`FAST`].
    #[inline(always)]
    fn of(day: i64) -> Civil {
        let n = (day as u32).wrapping_add(EPOCH_DAYS + CYCLES * CYCLE_DAYS);
        // Years begin in March, so that the day that may be missing is their last.
        let in_century = 4 * n + 3;
        let century = in_century / CYCLE_DAYS;
        let day_of_century = in_century % CYCLE_DAYS / 4;
        let product = u64::from(4 * day_of_century + 3) * 2_939_745;
        let year_of_century = (product >> 32) as u32;
        let day_of_year = product as u32 / 2_939_745 / 4;
        let in_month = 2_141 * day_of_year + 197_913;
        let (month, day) = (in_month >> 16, (in_month & 0xffff) / 2_141);
        let of_next = day_of_year >= 306;
        let year = 100 * century + year_of_century;
        // Whether the year that begins with January has a day in February more, of the one that
        // began in March.
        let is_leap =
            if year_of_century == 0 { century.is_multiple_of(4) } else { year.is_multiple_of(4) };
        let from_january = match of_next {
            true => day_of_year - 305,
            false => day_of_year + 60 + u32::from(is_leap),
        };
        Civil {
            year: year as i32 - (400 * CYCLES) as i32 + i32::from(of_next),
            month: if of_next { month - 12 } else { month },
            day: day + 1,
            day_of_year: from_january,
        }
    }
}

/// Timestamps of microseconds at the beginnings of what they lie in. What stands in the place of a NULL
/// is cut as well: the arithmetic wraps.
pub fn truncated(unit: DateUnit, array: &ArrayRef) -> Result<ArrayRef> {
    let times = array.as_primitive_opt::<TimestampMicrosecondType>();
    let times =
        times.ok_or_else(|| Error::internal(format!("{} is cut to a unit", array.data_type())))?;
    let to_day = |us: i64, begin: fn(i64) -> i64| begin(us.div_euclid(DAY_US)).wrapping_mul(DAY_US);
    fn multiple(us: i64, of: i64) -> i64 {
        us.wrapping_sub(us.rem_euclid(of))
    }
    type Times = PrimitiveArray<TimestampMicrosecondType>;
    let cut: Times = match unit {
        DateUnit::Millisecond => times.unary(|us| multiple(us, 1_000)),
        DateUnit::Second => times.unary(|us| multiple(us, 1_000_000)),
        DateUnit::Minute => times.unary(|us| multiple(us, 60_000_000)),
        DateUnit::Hour => times.unary(|us| multiple(us, 3_600_000_000)),
        DateUnit::Day => times.unary(|us| multiple(us, DAY_US)),
        DateUnit::Week => times.unary(|us| to_day(us, |day| day - (day + 3).rem_euclid(7))),
        DateUnit::Month => {
            times.unary(|us| to_day(us, |day| day + 1 - i64::from(Civil::of(day).day)))
        }
        DateUnit::Quarter => times.unary(|us| {
            to_day(us, |day| {
                let civil = Civil::of(day);
                days_of(civil.year.into(), i64::from((civil.month - 1) / 3 * 3 + 1), 1)
            })
        }),
        DateUnit::Year => {
            times.unary(|us| to_day(us, |day| day + 1 - i64::from(Civil::of(day).day_of_year)))
        }
    };
    Ok(Arc::new(cut.with_data_type(array.data_type().clone())))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, TimestampMicrosecondArray, TimestampSecondArray};
    use arrow::compute::{DatePart as Of, date_part};
    use arrow::datatypes::{Decimal64Type, Int32Type, Int64Type};
    use thalweg_base::Prng;

    use super::*;

    #[test]
    fn every_day_of_some_centuries_is_taken_apart() {
        let first = days_of(-801, 12, 25);
        let last = days_of(2801, 1, 7);
        for day in (first..last).chain(FAST.end - 1000..FAST.end).chain(FAST.start..FAST.start + 9)
        {
            let civil = Civil::of(day);
            let found = (i64::from(civil.year), i64::from(civil.month), i64::from(civil.day));
            assert_eq!(found, date_of(day), "{day}");
            let first = days_of(found.0, 1, 1);
            assert_eq!(i64::from(civil.day_of_year), day - first + 1, "{day}");
        }
    }

    #[test]
    fn parts_are_those_that_arrow_has() {
        let mut random = Prng::new(1);
        for days in [8000 * 365, 400, 90, 20, 3, 1] {
            let span = DAY_US * days;
            for around in [0, -DAY_US * 800_000, DAY_US * 20_000] {
                let time = |_| Some(around + random.below(span as u64) as i64 - span / 2);
                let mut times: Vec<Option<i64>> = (0..2000).map(time).collect();
                let edges = [Some(0), Some(-1), Some(1), None, Some(-DAY_US), Some(DAY_US - 1)];
                times.extend(edges.map(|us| Some(around + us?)));
                check(&(Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef));
            }
        }
    }

    /// The parts of microseconds, and of what they are in other units.
    fn check(array: &ArrayRef) {
        let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Nanosecond];
        let others = units.map(|unit| DataType::Timestamp(unit, None)).into_iter();
        let others = others.chain([DataType::Date32]);
        // What nanoseconds do not hold is NULL.
        let others = others.map(|to| arrow::compute::cast(array, &to).unwrap());
        let arrays: Vec<ArrayRef> = others.chain([Arc::clone(array)]).collect();
        for (ours, theirs) in [
            (DatePart::Year, Of::Year),
            (DatePart::Quarter, Of::Quarter),
            (DatePart::Month, Of::Month),
            (DatePart::Week, Of::Week),
            (DatePart::Day, Of::Day),
            (DatePart::DayOfWeek, Of::DayOfWeekSunday0),
            (DatePart::IsoDayOfWeek, Of::DayOfWeekMonday0),
            (DatePart::DayOfYear, Of::DayOfYear),
            (DatePart::Hour, Of::Hour),
            (DatePart::Minute, Of::Minute),
        ] {
            for array in &arrays {
                let is_clock = matches!(ours, DatePart::Hour | DatePart::Minute);
                if is_clock && *array.data_type() == DataType::Date32 {
                    continue;
                }
                let found = part(ours, array).unwrap();
                let expected = date_part(array, theirs).unwrap();
                let expected = expected.as_primitive::<Int32Type>();
                let expected: Int32Array = match ours {
                    DatePart::Year => expected.unary(christian),
                    DatePart::IsoDayOfWeek => expected.unary(|day| day + 1),
                    _ => expected.clone(),
                };
                assert_eq!(found.as_primitive::<Int32Type>(), &expected, "{ours:?}");
            }
        }
    }

    #[test]
    fn days_and_instants_beyond_all_years_have_parts() {
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX, i32::MIN, 0]));
        let years = part(DatePart::Year, &dates).unwrap();
        assert_eq!(
            years.as_primitive::<Int32Type>().values().as_ref(),
            [5_881_580, -5_877_642, 1970]
        );
        let weeks = part(DatePart::Week, &dates).unwrap();
        assert_eq!(weeks.as_primitive::<Int32Type>().value(2), 1);
        let epoch = part(DatePart::Epoch, &dates).unwrap();
        assert_eq!(epoch.as_primitive::<Int64Type>().value(0), i64::from(i32::MAX) * 86_400);
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX, i64::MIN]));
        let years = part(DatePart::Year, &times).unwrap();
        assert_eq!(years.as_primitive::<Int32Type>().values().as_ref(), [294_247, -290_309]);
        // Seconds that are no microseconds of 64 bits have none.
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX, 60]));
        for each in [DatePart::Year, DatePart::Hour, DatePart::Epoch, DatePart::Week] {
            let found = part(each, &seconds).unwrap();
            assert!(found.is_null(0) && found.is_valid(1), "{each:?}");
        }
    }

    #[test]
    fn seconds_have_digits_after_their_point() {
        let times: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![-1, 61_500_000, 3_600_000_000]));
        let second = part(DatePart::Second, &times).unwrap();
        let second = second.as_primitive::<Decimal64Type>();
        assert_eq!(second.values().as_ref(), [59_999_999, 1_500_000, 0]);
        let epoch = part(DatePart::Epoch, &times).unwrap();
        assert_eq!(epoch.as_primitive::<Decimal64Type>().value(0), -1);
    }

    #[test]
    fn times_are_cut() {
        let us = |y, m, d, s: i64| days_of(y, m, d) * DAY_US + s * 1_000_000 + 7;
        let time = us(2024, 8, 29, 3_723);
        let before = us(-1, 2, 28, 0);
        let check = |unit, expected: [i64; 2]| {
            let times = TimestampMicrosecondArray::from(vec![Some(time), Some(before), None])
                .with_timezone("UTC");
            let cut = truncated(unit, &(Arc::new(times) as ArrayRef)).unwrap();
            let zone = Some("UTC".into());
            assert_eq!(cut.data_type(), &DataType::Timestamp(TimeUnit::Microsecond, zone));
            let cut = cut.as_primitive::<TimestampMicrosecondType>();
            assert!(cut.is_null(2));
            assert_eq!([cut.value(0), cut.value(1)], expected, "{unit:?}");
        };
        check(DateUnit::Millisecond, [time - 7, before - 7]);
        check(DateUnit::Second, [time - 7, before - 7]);
        check(DateUnit::Minute, [us(2024, 8, 29, 3_720) - 7, before - 7]);
        check(DateUnit::Hour, [us(2024, 8, 29, 3_600) - 7, before - 7]);
        check(DateUnit::Day, [us(2024, 8, 29, 0) - 7, before - 7]);
        check(DateUnit::Week, [us(2024, 8, 26, 0) - 7, us(-1, 2, 22, 0) - 7]);
        check(DateUnit::Month, [us(2024, 8, 1, 0) - 7, us(-1, 2, 1, 0) - 7]);
        check(DateUnit::Quarter, [us(2024, 7, 1, 0) - 7, us(-1, 1, 1, 0) - 7]);
        check(DateUnit::Year, [us(2024, 1, 1, 0) - 7, us(-1, 1, 1, 0) - 7]);
    }
}
