//! Everyday operations, a table of eight million events per scale factor and two small ones beside it: what
//! each query of the suite does with many rows is one thing, such as a moving sum or a count of different
//! texts.
//!
//! * `events`: what happened when, to whom and for how much, in the order of time, with few regions, many
//!   users and a great many sessions; one quantity in seventeen is NULL.
//! * `users`: all who may be there, some of whom never are.
//! * `prices`: of each product in each season.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    StringViewBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, TimeUnit};
use thalweg_base::Prng;

use super::Source;
use super::blocks::{Cut, blocks};

pub(super) const SEED: u64 = 0x6f70_6572_6174_696f;

const EVENTS_PER_SCALE: f64 = 8_000_000.0;
const ROWS_PER_BLOCK: u64 = 8192;

/// 2023-01-01, as days since 1970-01-01.
const FIRST_DAY: i32 = 19_358;
const SECONDS_PER_EVENT: u64 = 4;
const DAY_S: u64 = 86_400;

const USERS: u64 = 100_000;
/// Of those in the table of users; the others have no event.
const KNOWN_USERS: u64 = 120_000;
const PRODUCTS: u64 = 10_000;
const REGIONS: u64 = 25;
const COUNTRIES: u64 = 180;
const SEASONS: u64 = 5;
const SEASON_DAYS: i32 = 100;

fn price(digits: u8) -> DataType {
    DataType::Decimal128(digits, 2)
}

pub(super) fn sources(scale_factor: f64) -> Vec<Source> {
    let events = ((EVENTS_PER_SCALE * scale_factor).round() as u64).max(1);
    // Eight events of each session.
    let sessions = (events / 8).max(1);
    let cut = |items| Cut { items, items_per_block: ROWS_PER_BLOCK, rows_per_item: 1 };
    let field = |name, data_type| Field::new(name, data_type, false);
    vec![
        blocks(
            SEED,
            "events",
            vec![
                field("id", DataType::Int64),
                field("happened", DataType::Timestamp(TimeUnit::Microsecond, None)),
                field("day", DataType::Date32),
                field("user_id", DataType::Int32),
                field("product", DataType::Int32),
                field("region", DataType::Utf8View),
                field("session", DataType::Utf8View),
                Field::new("quantity", DataType::Int32, true),
                field("price", price(12)),
                field("score", DataType::Float64),
                field("paid", DataType::Boolean),
            ],
            cut(events),
            move |rows, random| happened(rows, random, sessions),
        ),
        blocks(
            SEED,
            "users",
            vec![
                field("id", DataType::Int32),
                field("country", DataType::Utf8View),
                field("joined", DataType::Date32),
                field("closed", DataType::Boolean),
            ],
            cut(KNOWN_USERS),
            users,
        ),
        blocks(
            SEED,
            "prices",
            vec![
                field("product", DataType::Int32),
                field("valid_from", DataType::Date32),
                field("valid_to", DataType::Date32),
                field("list_price", price(12)),
            ],
            cut(PRODUCTS * SEASONS),
            prices,
        ),
    ]
}

fn happened(rows: Range<u64>, random: &mut Prng, sessions: u64) -> Vec<ArrayRef> {
    let many = (rows.end - rows.start) as usize;
    let second = |row: u64| row * SECONDS_PER_EVENT;
    let micros: TimestampMicrosecondArray = rows
        .clone()
        .map(|row| {
            let since = second(row) * 1_000_000 + random.below(SECONDS_PER_EVENT * 1_000_000);
            Some(i64::from(FIRST_DAY) * DAY_S as i64 * 1_000_000 + since as i64)
        })
        .collect();
    let day = |row: u64| FIRST_DAY + (second(row) / DAY_S) as i32;
    let mut draw = |below: u64| (0..many).map(|_| random.below(below)).collect::<Vec<_>>();
    let integers = |drawn: Vec<u64>| {
        Arc::new(drawn.into_iter().map(|n| Some(n as i32)).collect::<Int32Array>())
    };
    let user = integers(draw(USERS));
    let product = integers(draw(PRODUCTS));
    let region = texts(draw(REGIONS).into_iter().map(|n| format!("region {n}")));
    let session = texts(draw(sessions).into_iter().map(|n| format!("session {n}")));
    let quantity: Int32Array =
        draw(17 * 100).into_iter().map(|n| (n % 17 != 0).then_some((n / 17) as i32)).collect();
    let cents = draw(1_000_000).into_iter().map(|n| Some(i128::from(n)));
    let cents = cents.collect::<Decimal128Array>().with_data_type(price(12));
    let score: Float64Array = draw(1_000_003).into_iter().map(|n| Some(n as f64 / 7.0)).collect();
    let paid: BooleanArray = draw(3).into_iter().map(|n| Some(n == 0)).collect();
    vec![
        Arc::new(rows.clone().map(|row| Some(row as i64)).collect::<Int64Array>()),
        Arc::new(micros),
        Arc::new(rows.map(|row| Some(day(row))).collect::<Date32Array>()),
        user,
        product,
        region,
        session,
        Arc::new(quantity),
        Arc::new(cents),
        Arc::new(score),
        Arc::new(paid),
    ]
}

fn users(rows: Range<u64>, random: &mut Prng) -> Vec<ArrayRef> {
    let country = texts(rows.clone().map(|_| format!("country {}", random.below(COUNTRIES))));
    let joined = rows.clone().map(|_| Some(FIRST_DAY - random.below(1000) as i32));
    let joined: Date32Array = joined.collect();
    let closed: BooleanArray = rows.clone().map(|_| Some(random.below(10) == 0)).collect();
    vec![
        Arc::new(rows.map(|row| Some(row as i32)).collect::<Int32Array>()),
        country,
        Arc::new(joined),
        Arc::new(closed),
    ]
}

fn prices(rows: Range<u64>, random: &mut Prng) -> Vec<ArrayRef> {
    let from = |row: u64| FIRST_DAY + (row % SEASONS) as i32 * SEASON_DAYS;
    let cents = rows.clone().map(|_| Some(i128::from(random.below(1_000_000))));
    let cents = cents.collect::<Decimal128Array>().with_data_type(price(12));
    vec![
        Arc::new(rows.clone().map(|row| Some((row / SEASONS) as i32)).collect::<Int32Array>()),
        Arc::new(rows.clone().map(|row| Some(from(row))).collect::<Date32Array>()),
        Arc::new(rows.map(|row| Some(from(row) + SEASON_DAYS - 1)).collect::<Date32Array>()),
        Arc::new(cents),
    ]
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(values.size_hint().0);
    values.for_each(|value| builder.append_value(value));
    Arc::new(builder.finish())
}
