//! Which share of the rows does a predicate keep?
//!
//! Uniform values between the least and the greatest, independent columns: Selinger et al.,
//! SIGMOD 1979, whose constants are kept where nothing better is known. The bounds of one
//! column in a conjunction (`x >= 5 AND x <= 7`, which is also what `BETWEEN` is simplified
//! to) are combined into one interval; they are anything but independent.

use datafusion::common::{Column as Name, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};

use super::Column;

/// `expression = value` (Selinger).
const EQUAL_GUESS: f64 = 1.0 / 10.0;
/// `expression < value` (Selinger).
const RANGE_GUESS: f64 = 1.0 / 3.0;
/// `expression BETWEEN a AND b` (Selinger).
const BETWEEN_GUESS: f64 = 1.0 / 4.0;
/// Anything else that is true or false.
const PREDICATE_GUESS: f64 = 1.0 / 3.0;
/// Membership in a subquery's result.
const SUBQUERY_GUESS: f64 = 1.0 / 2.0;
/// `LIKE 'abc%'`. The geometric mean over the prefix patterns of TPC-H (`forest%` 1/92,
/// `MEDIUM POLISHED%` 1/30, `PROMO%` 1/6).
const LIKE_PREFIX_GUESS: f64 = 0.04;
/// `LIKE '%abc%'` and `LIKE '%abc'` (TPC-H: `%green%` 1/18, `%BRASS` 1/5).
const LIKE_CONTAINS_GUESS: f64 = 0.1;
/// For each further part of a pattern such as `%special%requests%`.
const LIKE_PART_FACTOR: f64 = 0.3;

/// No predicate is trusted to keep less than this: it would hide every later factor.
pub const SHARE_MIN: f64 = 1e-9;
/// A negated predicate or an anti join is never taken to be without effect.
pub const SHARE_MAX: f64 = 0.99;

/// Characters of a string that take part in an interpolation: more do not fit an `f64`.
const TEXT_CHARS_MAX: usize = 12;

/// What is left of values so large that differences between them, and sums of these, may be too large for a number.
const NARROWING: f64 = 1.0 / 8.0;

/// What a conjunction leaves.
pub struct Selected {
    /// Share of the rows, within `SHARE_MIN..=1`.
    pub share: f64,
    /// Columns whose domain it narrows, as they are afterwards.
    pub columns: Vec<(Name, Column)>,
}

/// Finds a column's statistics.
pub type Columns<'a, 'c> = dyn Fn(&Name) -> Option<&'c Column> + 'a;

/// The bounds on one column, as shares of its rows below them.
struct Interval<'a> {
    name: &'a Name,
    column: &'a Column,
    below: f64,
    above: f64,
    least: Option<&'a ScalarValue>,
    greatest: Option<&'a ScalarValue>,
}

/// Estimates predicates that must all hold.
pub fn conjunction<'a>(predicates: &[&'a Expr], columns: &Columns<'_, 'a>) -> Selected {
    let mut share = 1.0;
    let mut intervals: Vec<Interval<'a>> = Vec::new();
    let mut narrowed: Vec<(Name, Column)> = Vec::new();
    // Bounds without a known range, per column: one third each, one quarter for both.
    let mut guessed: Vec<(&Name, bool)> = Vec::new();
    let mut bound = |name: &'a Name, op: Operator, value: &'a ScalarValue, share: &mut f64| {
        let column = columns(name);
        let Some((column, cut)) = column.and_then(|c| Some((c, position(c, op, value)?))) else {
            match guessed.iter_mut().find(|(n, between)| *n == name && !between) {
                Some((_, between)) => {
                    *between = true;
                    *share *= BETWEEN_GUESS / RANGE_GUESS;
                }
                None => {
                    guessed.push((name, false));
                    *share *= RANGE_GUESS;
                }
            }
            return;
        };
        let at = intervals.iter().position(|i| i.name == name).unwrap_or_else(|| {
            intervals.push(Interval {
                name,
                column,
                below: 0.0,
                above: 1.0,
                least: None,
                greatest: None,
            });
            intervals.len() - 1
        });
        let interval = &mut intervals[at];
        match op {
            Operator::Gt | Operator::GtEq if cut >= interval.below => {
                interval.below = cut;
                interval.least = Some(value);
            }
            Operator::Lt | Operator::LtEq if cut <= interval.above => {
                interval.above = cut;
                interval.greatest = Some(value);
            }
            _ => {}
        }
    };
    for &predicate in predicates {
        if let Some((name, op, value)) = comparison(predicate) {
            match op {
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                    bound(name, op, value, &mut share);
                    continue;
                }
                Operator::Eq => {
                    if let Some(column) = columns(name) {
                        let range = Some((value.clone(), value.clone()));
                        narrowed.push((
                            name.clone(),
                            Column {
                                distinct: Some(1.0),
                                nulls: 0.0,
                                range: range.or(column.range.clone()),
                            },
                        ));
                    }
                }
                _ => {}
            }
        }
        match predicate {
            Expr::Between(Between { expr, negated: false, low, high }) => {
                if let (Some(name), Some(low), Some(high)) =
                    (column_of(expr), literal(low), literal(high))
                {
                    bound(name, Operator::GtEq, low, &mut share);
                    bound(name, Operator::LtEq, high, &mut share);
                    continue;
                }
            }
            Expr::InList(list) if !list.negated => {
                if let Some((name, column)) =
                    column_of(&list.expr).and_then(|n| Some((n, columns(n)?)))
                {
                    let values = list.list.len() as f64;
                    let distinct = column.distinct.map_or(values, |d| d.min(values));
                    narrowed.push((
                        name.clone(),
                        Column {
                            distinct: Some(distinct),
                            nulls: 0.0,
                            range: column.range.clone(),
                        },
                    ));
                }
            }
            _ => {}
        }
        share *= selectivity(predicate, columns);
    }
    for interval in intervals {
        let column = interval.column;
        let least_share = 1.0 / column.distinct.unwrap_or(f64::INFINITY);
        let kept = (interval.above - interval.below).max(least_share).clamp(SHARE_MIN, 1.0);
        share *= kept * (1.0 - column.nulls);
        let range = column.range.clone().map(|(min, max)| {
            (interval.least.cloned().unwrap_or(min), interval.greatest.cloned().unwrap_or(max))
        });
        narrowed.push((
            interval.name.clone(),
            Column { distinct: column.distinct.map(|d| (d * kept).max(1.0)), nulls: 0.0, range },
        ));
    }
    Selected { share: bounded(share), columns: narrowed }
}

/// A share of rows within its bounds; a guess where products of huge and of tiny numbers came to no number.
fn bounded(share: f64) -> f64 {
    if share.is_nan() { PREDICATE_GUESS } else { share.clamp(SHARE_MIN, 1.0) }
}

/// Estimates one predicate.
pub fn selectivity<'a>(predicate: &'a Expr, columns: &Columns<'_, 'a>) -> f64 {
    let share = match predicate {
        Expr::Alias(alias) => selectivity(&alias.expr, columns),
        Expr::Literal(value, _) => match value {
            ScalarValue::Boolean(Some(true)) => 1.0,
            _ => SHARE_MIN,
        },
        Expr::Column(_) => SUBQUERY_GUESS,
        Expr::Not(inner) | Expr::IsNotTrue(inner) | Expr::IsFalse(inner) => {
            negated(selectivity(inner, columns))
        }
        Expr::IsTrue(inner) | Expr::IsNotFalse(inner) => selectivity(inner, columns),
        Expr::IsNull(inner) | Expr::IsUnknown(inner) => nulls(inner, columns),
        Expr::IsNotNull(inner) | Expr::IsNotUnknown(inner) => 1.0 - nulls(inner, columns),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (l, r) = (selectivity(left, columns), selectivity(right, columns));
            l + r - l * r
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
            conjunction(&split_conjunction(predicate), columns).share
        }
        Expr::BinaryExpr(binary) => compared(predicate, binary, columns),
        Expr::Between(between) => {
            let inside =
                match (column_of(&between.expr), literal(&between.low), literal(&between.high)) {
                    (Some(name), Some(low), Some(high)) => columns(name)
                        .and_then(|c| {
                            let below = position(c, Operator::GtEq, low)?;
                            let above = position(c, Operator::LtEq, high)?;
                            Some((above - below).max(1.0 / c.distinct.unwrap_or(f64::INFINITY)))
                        })
                        .unwrap_or(BETWEEN_GUESS),
                    _ => BETWEEN_GUESS,
                };
            if between.negated { negated(inside) } else { inside }
        }
        Expr::InList(list) => {
            let column = column_of(&list.expr).and_then(columns);
            let inside: f64 = list.list.iter().map(|v| equal(column, literal(v))).sum();
            if list.negated { negated(inside.min(1.0)) } else { inside }
        }
        Expr::Like(pattern) | Expr::SimilarTo(pattern) => {
            let matching = like(pattern, columns);
            if pattern.negated { negated(matching) } else { matching }
        }
        Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => SUBQUERY_GUESS,
        _ => PREDICATE_GUESS,
    };
    bounded(share)
}

fn negated(share: f64) -> f64 {
    (1.0 - share).max(1.0 - SHARE_MAX)
}

fn nulls(expr: &Expr, columns: &Columns<'_, '_>) -> f64 {
    column_of(expr).and_then(columns).map_or(EQUAL_GUESS, |c| c.nulls)
}

fn compared<'a>(predicate: &'a Expr, binary: &'a BinaryExpr, columns: &Columns<'_, 'a>) -> f64 {
    if let Some((name, op, value)) = comparison(predicate) {
        let column = columns(name);
        return match op {
            Operator::Eq => equal(column, Some(value)),
            Operator::IsNotDistinctFrom if value.is_null() => {
                column.map_or(EQUAL_GUESS, |c| c.nulls)
            }
            Operator::IsNotDistinctFrom => equal(column, Some(value)),
            Operator::NotEq | Operator::IsDistinctFrom => negated(equal(column, Some(value))),
            Operator::Lt | Operator::LtEq => {
                column.and_then(|c| position(c, op, value)).unwrap_or(RANGE_GUESS)
            }
            Operator::Gt | Operator::GtEq => {
                column.and_then(|c| Some(1.0 - position(c, op, value)?)).unwrap_or(RANGE_GUESS)
            }
            _ => PREDICATE_GUESS,
        };
    }
    let distinct = |e| column_of(e).and_then(columns).and_then(|c| c.distinct);
    let pair = match (distinct(&binary.left), distinct(&binary.right)) {
        (None, None) => EQUAL_GUESS,
        (l, r) => 1.0 / l.unwrap_or(1.0).max(r.unwrap_or(1.0)).max(1.0),
    };
    match binary.op {
        Operator::Eq | Operator::IsNotDistinctFrom => pair,
        Operator::NotEq | Operator::IsDistinctFrom => negated(pair),
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => RANGE_GUESS,
        _ => PREDICATE_GUESS,
    }
}

fn equal(column: Option<&Column>, value: Option<&ScalarValue>) -> f64 {
    let Some(column) = column else { return EQUAL_GUESS };
    if let (Some(value), Some((min, max))) = (value, &column.range) {
        let outside = |a: &ScalarValue, b: &ScalarValue| match (number(a), number(b)) {
            (Some(a), Some(b)) => a < b,
            _ => text(a).zip(text(b)).is_some_and(|(a, b)| a < b),
        };
        if value.is_null() || outside(value, min) || outside(max, value) {
            return SHARE_MIN;
        }
    }
    column.distinct.map_or(EQUAL_GUESS, |d| (1.0 - column.nulls) / d.max(1.0))
}

fn like(pattern: &Like, columns: &Columns<'_, '_>) -> f64 {
    let column = column_of(&pattern.expr).and_then(columns);
    let Some(text) = literal(&pattern.pattern).and_then(text) else { return LIKE_CONTAINS_GUESS };
    let parts = text.split(['%', '_']).filter(|part| !part.is_empty()).count();
    if !text.contains(['%', '_']) {
        return equal(column, literal(&pattern.pattern));
    }
    let first = match parts {
        0 => 1.0,
        _ if text.starts_with(['%', '_']) => LIKE_CONTAINS_GUESS,
        _ => LIKE_PREFIX_GUESS,
    };
    let share = first * LIKE_PART_FACTOR.powi(parts.saturating_sub(1).min(8) as i32);
    // A column of 25 values cannot keep one row in a hundred.
    let least = column.and_then(|c| c.distinct).map_or(0.0, |d| 1.0 / d.max(1.0));
    share.max(least)
}

/// `column op value`, the literal moved to the right, casts of the column looked through:
/// they keep the order of numbers and times, which is all that is used.
fn comparison(predicate: &Expr) -> Option<(&Name, Operator, &ScalarValue)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = predicate else { return None };
    match (column_of(left), literal(right)) {
        (Some(name), Some(value)) => Some((name, *op, value)),
        _ => Some((column_of(right)?, op.swap()?, literal(left)?)),
    }
}

fn column_of(expr: &Expr) -> Option<&Name> {
    match expr {
        Expr::Column(name) => Some(name),
        Expr::Cast(cast) => column_of(&cast.expr),
        Expr::TryCast(cast) => column_of(&cast.expr),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// Share of `column`'s rows below the bound: `x < value` for `<` and `>=`, `x <= value` for
/// `<=` and `>`. The values are taken to be equally spaced, so that an upper bound on one of
/// the 11 discounts of TPC-H keeps elevenths.
fn position(column: &Column, op: Operator, value: &ScalarValue) -> Option<f64> {
    let (min, max) = column.range.as_ref()?;
    let (min, max, at) = match (number(min), number(max), number(value)) {
        // Made smaller, so that the widest range there is has a width.
        (Some(min), Some(max), Some(at)) if is_wide(min, max, at) => {
            (min * NARROWING, max * NARROWING, at * NARROWING)
        }
        (Some(min), Some(max), Some(at)) => (min, max, at),
        _ => interpolated(text(min)?, text(max)?, text(value)?),
    };
    let step = match column.distinct {
        Some(d) if d > 1.0 => (max - min) / (d - 1.0),
        _ => 0.0,
    };
    let inclusive = matches!(op, Operator::LtEq | Operator::Gt);
    let width = max - min + step;
    if width <= 0.0 {
        let below = if inclusive { at >= max } else { at > max };
        return Some(if below { 1.0 } else { 0.0 });
    }
    let below = at - min + if inclusive { step } else { 0.0 };
    let share = below / width;
    // A step may still be too large for a number, and so the width: then nothing is known.
    (!share.is_nan()).then(|| share.clamp(0.0, 1.0))
}

/// Whether two of the values may be further apart than the largest number.
fn is_wide(min: f64, max: f64, at: f64) -> bool {
    [min, max, at].into_iter().any(|value| value.abs() > f64::MAX * NARROWING)
}

/// Values between two bounds, if they can be counted: integers and days.
pub(super) fn span(min: &ScalarValue, max: &ScalarValue) -> Option<f64> {
    let day = 86_400.0;
    let unit = match min {
        ScalarValue::Int8(_) | ScalarValue::Int16(_) | ScalarValue::Int32(_) => 1.0,
        ScalarValue::Int64(_) | ScalarValue::Boolean(_) => 1.0,
        ScalarValue::UInt8(_) | ScalarValue::UInt16(_) | ScalarValue::UInt32(_) => 1.0,
        ScalarValue::UInt64(_) => 1.0,
        ScalarValue::Date32(_) => day,
        _ => return None,
    };
    Some(((number(max)? - number(min)?) / unit + 1.0).max(1.0))
}

/// A number that orders like the value; dates and timestamps in seconds, so that one can be
/// compared with the other.
fn number(value: &ScalarValue) -> Option<f64> {
    let scaled = |v: f64, scale: i8| v / 10f64.powi(i32::from(scale));
    let number = match value {
        ScalarValue::Boolean(v) => f64::from(u8::from((*v)?)),
        ScalarValue::Int8(v) => f64::from((*v)?),
        ScalarValue::Int16(v) => f64::from((*v)?),
        ScalarValue::Int32(v) => f64::from((*v)?),
        ScalarValue::Int64(v) => (*v)? as f64,
        ScalarValue::UInt8(v) => f64::from((*v)?),
        ScalarValue::UInt16(v) => f64::from((*v)?),
        ScalarValue::UInt32(v) => f64::from((*v)?),
        ScalarValue::UInt64(v) => (*v)? as f64,
        ScalarValue::Float32(v) => f64::from((*v)?),
        ScalarValue::Float64(v) => (*v)?,
        ScalarValue::Decimal32(v, _, scale) => scaled(f64::from((*v)?), *scale),
        ScalarValue::Decimal64(v, _, scale) => scaled((*v)? as f64, *scale),
        ScalarValue::Decimal128(v, _, scale) => scaled((*v)? as f64, *scale),
        ScalarValue::Decimal256(v, _, scale) => scaled((*v)?.to_string().parse().ok()?, *scale),
        ScalarValue::Date32(v) => f64::from((*v)?) * 86_400.0,
        ScalarValue::Date64(v) => (*v)? as f64 / 1e3,
        ScalarValue::TimestampSecond(v, _) => (*v)? as f64,
        ScalarValue::TimestampMillisecond(v, _) => (*v)? as f64 / 1e3,
        ScalarValue::TimestampMicrosecond(v, _) => (*v)? as f64 / 1e6,
        ScalarValue::TimestampNanosecond(v, _) => (*v)? as f64 / 1e9,
        ScalarValue::Time32Second(v) => f64::from((*v)?),
        ScalarValue::Time32Millisecond(v) => f64::from((*v)?) / 1e3,
        ScalarValue::Time64Microsecond(v) => (*v)? as f64 / 1e6,
        ScalarValue::Time64Nanosecond(v) => (*v)? as f64 / 1e9,
        ScalarValue::DurationSecond(v) => (*v)? as f64,
        ScalarValue::DurationMillisecond(v) => (*v)? as f64 / 1e3,
        ScalarValue::DurationMicrosecond(v) => (*v)? as f64 / 1e6,
        ScalarValue::DurationNanosecond(v) => (*v)? as f64 / 1e9,
        ScalarValue::Dictionary(_, inner) => return self::number(inner),
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn text(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(v) | ScalarValue::Utf8View(v) | ScalarValue::LargeUtf8(v) => v.as_deref(),
        ScalarValue::Dictionary(_, inner) => text(inner),
        _ => None,
    }
}

/// Strings as fractions: what follows their common prefix, read as digits of a base as large
/// as the kinds of characters seen (PostgreSQL's `convert_string_to_scalar`).
fn interpolated(min: &str, max: &str, at: &str) -> (f64, f64, f64) {
    let all = [min.as_bytes(), max.as_bytes(), at.as_bytes()];
    let prefix = all[0].iter().zip(all[1]).take_while(|(a, b)| a == b).count();
    if at.len() < prefix || at.as_bytes()[..prefix] != all[0][..prefix] {
        // Before or behind every value there is.
        return (0.0, 1.0, if at < min { -1.0 } else { 2.0 });
    }
    let (mut low, mut high) = (u8::MAX, u8::MIN);
    for byte in all.iter().flat_map(|s| s[prefix..].iter().take(TEXT_CHARS_MAX)) {
        let (first, last) = match byte {
            b'0'..=b'9' => (b'0', b'9'),
            b'a'..=b'z' => (b'a', b'z'),
            b'A'..=b'Z' => (b'A', b'Z'),
            _ => (*byte, *byte),
        };
        low = low.min(first);
        high = high.max(last);
    }
    let base = f64::from(high.saturating_sub(low)) + 1.0;
    let fraction = |s: &[u8]| {
        let mut unit = 1.0;
        let mut sum = 0.0;
        for byte in s[prefix..].iter().take(TEXT_CHARS_MAX) {
            unit /= base;
            sum += f64::from(byte.saturating_sub(low)) * unit;
        }
        sum
    };
    (fraction(all[0]), fraction(all[1]), fraction(all[2]))
}
