//! Days of the calendar, and years that are like others.

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms"). Year 0 is 1 BC.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

pub fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

/// The last year that the tables of time zones reach.
const TABLES_END: i64 = 2099;

/// The instant itself, or the same in a year whose days are those of its year, as far as the tables of time
/// zones reach: from then on the clocks follow the last rule that a zone has.
pub fn within_zone_tables(us: i64) -> i64 {
    let (year, _, _) = date_of(us.div_euclid(DAY_US));
    if year <= TABLES_END {
        return us;
    }
    let first = |year: i64| days_of(year, 1, 1);
    // Within 28 years, each weekday begins a leap year once, and others three times.
    let is_like =
        |other: &i64| is_leap(*other) == is_leap(year) && (first(*other) - first(year)) % 7 == 0;
    let like = (TABLES_END - 28..TABLES_END).rev().find(is_like).unwrap_or(TABLES_END);
    us - (first(year) - first(like)) * DAY_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_later_year_is_like_one_that_the_tables_have() {
        for year in 2100..2600 {
            for (month, day) in [(1, 1), (2, 28), (3, 31), (12, 31)] {
                let us = days_of(year, month, day) * DAY_US + 12_345;
                let like = within_zone_tables(us);
                let (found, m, d) = date_of(like.div_euclid(DAY_US));
                assert_eq!((m, d, is_leap(found)), (month, day, is_leap(year)), "{year}");
                assert!(found < TABLES_END && (us - like) % (7 * DAY_US) == 0, "{year}");
            }
        }
        let us = days_of(2099, 7, 1) * DAY_US;
        assert_eq!(within_zone_tables(us), us);
    }
}
