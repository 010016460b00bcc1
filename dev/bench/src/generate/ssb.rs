//! The Star Schema Benchmark (O'Neil, O'Neil, Chen, revision 3): a fact table, `lineorder`,
//! of about 6 million rows per scale factor, and four dimensions.
//!
//! All sums of money are in cents.
//!
//! Where the specification leaves a choice, this follows its published generator: order keys
//! fill 8 of every 32 values, orders end 151 days before the calendar does so that the dates
//! of commitment exist in it, and a brand's number has no leading zero.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringViewBuilder};
use arrow::datatypes::{DataType, Field};
use thalweg_base::Prng;

use super::Source;
use super::blocks::{Cut, blocks};
use super::write::civil;

pub(super) const SEED: u64 = 0x5353_4220_7265_7633;

const ORDERS_PER_SCALE: f64 = 1_500_000.0;
const CUSTOMERS_PER_SCALE: f64 = 30_000.0;
const SUPPLIERS_PER_SCALE: f64 = 2_000.0;
const PARTS_AT_SCALE_1: f64 = 200_000.0;

const LINES_MAX: u64 = 7;
const LINES_MEAN: u64 = 4;

/// At 7 lines each, a block of orders is within the 8 Ki rows of a batch.
const ORDERS_PER_BLOCK: u64 = 1024;
const ROWS_PER_BLOCK: u64 = 4096;

/// 1992-01-01, as days since 1970-01-01.
const FIRST_DAY: i32 = 8035;
/// 1992-01-01 to 1998-12-31, two of them leap years.
const DAYS: u64 = 7 * 365 + 2;
/// Orders end on 1998-08-02, as in TPC-H.
const ORDER_DAYS: u64 = DAYS - 151;
const COMMIT_DAYS: (i64, i64) = (30, 90);

const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const SHIP_MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"];

/// Five of each region; their order gives the country code of a phone number.
const NATIONS: [(&str, &str); 25] = [
    ("ALGERIA", "AFRICA"),
    ("ARGENTINA", "AMERICA"),
    ("BRAZIL", "AMERICA"),
    ("CANADA", "AMERICA"),
    ("EGYPT", "MIDDLE EAST"),
    ("ETHIOPIA", "AFRICA"),
    ("FRANCE", "EUROPE"),
    ("GERMANY", "EUROPE"),
    ("INDIA", "ASIA"),
    ("INDONESIA", "ASIA"),
    ("IRAN", "MIDDLE EAST"),
    ("IRAQ", "MIDDLE EAST"),
    ("JAPAN", "ASIA"),
    ("JORDAN", "MIDDLE EAST"),
    ("KENYA", "AFRICA"),
    ("MOROCCO", "AFRICA"),
    ("MOZAMBIQUE", "AFRICA"),
    ("PERU", "AMERICA"),
    ("CHINA", "ASIA"),
    ("ROMANIA", "EUROPE"),
    ("SAUDI ARABIA", "MIDDLE EAST"),
    ("VIETNAM", "ASIA"),
    ("RUSSIA", "EUROPE"),
    ("UNITED KINGDOM", "EUROPE"),
    ("UNITED STATES", "AMERICA"),
];

const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];
const CONTAINERS: [&[&str]; 2] = [
    &["SM", "LG", "MED", "JUMBO", "WRAP"],
    &["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"],
];

/// 94 of them, as the specification counts.
const COLORS: &str = "almond amber antique aquamarine azure beige bisque black blanched blue \
    blush brown burlywood burnished chartreuse chiffon chocolate coral cornflower cornsilk \
    cream crimson cyan dark deep dim dodger drab firebrick floral forest frosted gainsboro \
    ghost goldenrod green grey honeydew hot indian ivory khaki lace lavender lawn lemon light \
    lime linen magenta maroon medium metallic midnight mint misty moccasin navajo navy olive \
    orange orchid pale papaya peach peru pink plum powder puff purple red rose rosy royal \
    saddle salmon sandy seashell sienna sky slate smoke snow spring steel tan thistle tomato \
    turquoise violet wheat white yellow";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Month and day.
const HOLIDAYS: [(u32, u32); 6] = [(1, 1), (5, 1), (7, 4), (11, 11), (12, 25), (12, 26)];

#[derive(Clone, Copy)]
struct Sizes {
    orders: u64,
    customers: u64,
    suppliers: u64,
    parts: u64,
}

impl Sizes {
    fn at(scale_factor: f64) -> Sizes {
        let scaled = |base: f64| ((base * scale_factor) as u64).max(1);
        // The number of parts grows with the logarithm; below 1 that would be none.
        let parts = if scale_factor < 1.0 {
            scaled(PARTS_AT_SCALE_1)
        } else {
            (PARTS_AT_SCALE_1 * (1.0 + scale_factor.log2()).floor()) as u64
        };
        Sizes {
            orders: scaled(ORDERS_PER_SCALE),
            customers: scaled(CUSTOMERS_PER_SCALE),
            suppliers: scaled(SUPPLIERS_PER_SCALE),
            parts,
        }
    }
}

pub(super) fn sources(scale_factor: f64) -> Vec<Source> {
    let sizes = Sizes::at(scale_factor);
    vec![
        table("dates", DATES, DAYS, DAYS, 1, |days, _| dates(days)),
        table("customer", CUSTOMER, sizes.customers, ROWS_PER_BLOCK, 1, customers),
        table("supplier", SUPPLIER, sizes.suppliers, ROWS_PER_BLOCK, 1, suppliers),
        table("part", PART, sizes.parts, ROWS_PER_BLOCK, 1, parts),
        table(
            "lineorder",
            LINEORDER,
            sizes.orders,
            ORDERS_PER_BLOCK,
            LINES_MEAN,
            move |orders, random| lineorders(orders, random, &sizes),
        ),
    ]
}

/// A table made in blocks of `per_block` of its `items`.
fn table(
    name: &'static str,
    columns: &'static [(&'static str, DataType)],
    items: u64,
    per_block: u64,
    rows_per_item: u64,
    make: impl Fn(Range<u64>, &mut Prng) -> Vec<ArrayRef> + Copy + Send + Sync + 'static,
) -> Source {
    let cut = Cut { items, items_per_block: per_block, rows_per_item };
    let columns = columns.iter().map(|(name, ty)| Field::new(*name, ty.clone(), false));
    blocks(SEED, name, columns, cut, make)
}

const INT: DataType = DataType::Int32;
const BIGINT: DataType = DataType::Int64;
const TEXT: DataType = DataType::Utf8View;

const LINEORDER: &[(&str, DataType)] = &[
    ("lo_orderkey", BIGINT),
    ("lo_linenumber", INT),
    ("lo_custkey", INT),
    ("lo_partkey", INT),
    ("lo_suppkey", INT),
    ("lo_orderdate", INT),
    ("lo_orderpriority", TEXT),
    ("lo_shippriority", INT),
    ("lo_quantity", INT),
    ("lo_extendedprice", INT),
    ("lo_ordtotalprice", INT),
    ("lo_discount", INT),
    ("lo_revenue", INT),
    ("lo_supplycost", INT),
    ("lo_tax", INT),
    ("lo_commitdate", INT),
    ("lo_shipmode", TEXT),
];

fn lineorders(orders: Range<u64>, random: &mut Prng, sizes: &Sizes) -> Vec<ArrayRef> {
    let rows_max = (orders.end - orders.start) as usize * LINES_MAX as usize;
    let mut orderkey: Vec<i64> = Vec::with_capacity(rows_max);
    let int = || Vec::<i32>::with_capacity(rows_max);
    let mut linenumber = int();
    let mut custkey = int();
    let mut partkey = int();
    let mut suppkey = int();
    let mut orderdate = int();
    let mut priority = StringViewBuilder::with_capacity(rows_max);
    let mut quantity = int();
    let mut extendedprice = int();
    let mut ordtotalprice = int();
    let mut discount = int();
    let mut revenue = int();
    let mut supplycost = int();
    let mut tax = int();
    let mut commitdate = int();
    let mut shipmode = StringViewBuilder::with_capacity(rows_max);
    for order in orders {
        let order_key = sparse_key(order + 1);
        let customer = key(random, sizes.customers);
        let order_day = random.below(ORDER_DAYS) as i32;
        let order_priority = pick(random, &PRIORITIES);
        let lines = 1 + random.below(LINES_MAX) as i32;
        let mut total = 0;
        for line in 1..=lines {
            let part = key(random, sizes.parts);
            let price = part_price(part);
            let pieces = number(random, 1, 50);
            let percent_off = number(random, 0, 10);
            let percent_tax = number(random, 0, 8);
            let extended = price * pieces;
            let earned = percent(extended, 100 - percent_off);
            total += percent(earned, 100 + percent_tax);
            orderkey.push(order_key);
            linenumber.push(line);
            custkey.push(customer);
            partkey.push(part);
            suppkey.push(key(random, sizes.suppliers));
            orderdate.push(date_key(order_day));
            priority.append_value(order_priority);
            quantity.push(pieces);
            extendedprice.push(extended);
            discount.push(percent_off);
            revenue.push(earned);
            supplycost.push(percent(price, 60));
            tax.push(percent_tax);
            let days = number(random, COMMIT_DAYS.0, COMMIT_DAYS.1);
            commitdate.push(date_key(order_day + days));
            shipmode.append_value(pick(random, &SHIP_MODES));
        }
        ordtotalprice.extend((0..lines).map(|_| total));
    }
    let shippriority = vec![0; linenumber.len()];
    vec![
        Arc::new(Int64Array::from(orderkey)),
        ints(linenumber),
        ints(custkey),
        ints(partkey),
        ints(suppkey),
        ints(orderdate),
        Arc::new(priority.finish()),
        ints(shippriority),
        ints(quantity),
        ints(extendedprice),
        ints(ordtotalprice),
        ints(discount),
        ints(revenue),
        ints(supplycost),
        ints(tax),
        ints(commitdate),
        Arc::new(shipmode.finish()),
    ]
}

/// 1, 2, … 7, 32, 33, … 39, 64, …: a quarter of the keys is used, as if orders had been deleted.
fn sparse_key(order: u64) -> i64 {
    ((order >> 3 << 5) | (order & 7)) as i64
}

/// At most 2,099.00, so that 50 pieces are far below 2^31 cents; the formula is TPC-H's.
fn part_price(part: i32) -> i32 {
    90_000 + (part / 10) % 20_001 + 100 * (part % 1000)
}

/// Truncated, as `dbgen` does. 64 bits, since the product is beyond 2^31.
fn percent(cents: i32, percent: i32) -> i32 {
    (i64::from(cents) * i64::from(percent) / 100) as i32
}

const CUSTOMER: &[(&str, DataType)] = &[
    ("c_custkey", INT),
    ("c_name", TEXT),
    ("c_address", TEXT),
    ("c_city", TEXT),
    ("c_nation", TEXT),
    ("c_region", TEXT),
    ("c_phone", TEXT),
    ("c_mktsegment", TEXT),
];

fn customers(rows: Range<u64>, random: &mut Prng) -> Vec<ArrayRef> {
    let mut columns = parties("Customer", rows.clone(), random);
    columns.push(texts(rows.map(|_| pick(random, &SEGMENTS))));
    columns
}

const SUPPLIER: &[(&str, DataType)] = &[
    ("s_suppkey", INT),
    ("s_name", TEXT),
    ("s_address", TEXT),
    ("s_city", TEXT),
    ("s_nation", TEXT),
    ("s_region", TEXT),
    ("s_phone", TEXT),
];

fn suppliers(rows: Range<u64>, random: &mut Prng) -> Vec<ArrayRef> {
    parties("Supplier", rows, random)
}

/// The columns that customers and suppliers share, in their order.
fn parties(kind: &str, rows: Range<u64>, random: &mut Prng) -> Vec<ArrayRef> {
    let homes: Vec<(usize, u64)> = rows
        .clone()
        .map(|_| (random.below(NATIONS.len() as u64) as usize, random.below(10)))
        .collect();
    let keys = rows.map(|row| row as i32 + 1);
    let nation = |&(nation, _): &(usize, u64)| NATIONS[nation];
    vec![
        ints(keys.clone().collect()),
        texts(keys.map(|key| format!("{kind}#{key:09}"))),
        texts(homes.iter().map(|_| address(random))),
        texts(homes.iter().map(|home| format!("{:<9.9}{}", nation(home).0, home.1))),
        texts(homes.iter().map(|home| nation(home).0)),
        texts(homes.iter().map(|home| nation(home).1)),
        texts(homes.iter().map(|home| {
            let [a, b] = [(); 2].map(|()| random.range(100, 999));
            format!("{}-{a}-{b}-{}", home.0 + 10, random.range(1000, 9999))
        })),
    ]
}

/// 10 to 25 characters, among them commas and blanks, as loaders must expect them.
fn address(random: &mut Prng) -> String {
    const CHARACTERS: &[u8; 64] =
        b"0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ,";
    let length = random.range(10, 25);
    (0..length).map(|_| char::from(CHARACTERS[random.below(64) as usize])).collect()
}

const PART: &[(&str, DataType)] = &[
    ("p_partkey", INT),
    ("p_name", TEXT),
    ("p_mfgr", TEXT),
    ("p_category", TEXT),
    ("p_brand1", TEXT),
    ("p_color", TEXT),
    ("p_type", TEXT),
    ("p_size", INT),
    ("p_container", TEXT),
];

fn parts(rows: Range<u64>, random: &mut Prng) -> Vec<ArrayRef> {
    let colors: Vec<&str> = COLORS.split(' ').collect();
    // The digits of manufacturer and category, and the number of the brand: 5 × 5 × 40.
    let brands: Vec<[i32; 3]> = rows
        .clone()
        .map(|_| [number(random, 1, 5), number(random, 1, 5), number(random, 1, 40)])
        .collect();
    let names: Vec<[&str; 2]> =
        rows.clone().map(|_| [pick(random, &colors), pick(random, &colors)]).collect();
    vec![
        ints(rows.clone().map(|row| row as i32 + 1).collect()),
        texts(names.iter().map(|name| name.join(" "))),
        texts(brands.iter().map(|[mfgr, _, _]| format!("MFGR#{mfgr}"))),
        texts(brands.iter().map(|[mfgr, category, _]| format!("MFGR#{mfgr}{category}"))),
        texts(brands.iter().map(|[mfgr, category, brand]| format!("MFGR#{mfgr}{category}{brand}"))),
        texts(names.iter().map(|name| name[0])),
        texts(rows.clone().map(|_| TYPES.map(|words| pick(random, words)).join(" "))),
        ints(rows.clone().map(|_| number(random, 1, 50)).collect()),
        texts(rows.map(|_| CONTAINERS.map(|words| pick(random, words)).join(" "))),
    ]
}

const DATES: &[(&str, DataType)] = &[
    ("d_datekey", INT),
    ("d_date", TEXT),
    ("d_dayofweek", TEXT),
    ("d_month", TEXT),
    ("d_year", INT),
    ("d_yearmonthnum", INT),
    ("d_yearmonth", TEXT),
    ("d_daynuminweek", INT),
    ("d_daynuminmonth", INT),
    ("d_daynuminyear", INT),
    ("d_monthnuminyear", INT),
    ("d_weeknuminyear", INT),
    ("d_sellingseason", TEXT),
    ("d_lastdayinweekfl", INT),
    ("d_lastdayinmonthfl", INT),
    ("d_holidayfl", INT),
    ("d_weekdayfl", INT),
];

/// A day of the calendar. Weeks begin on Sunday, but the weeks of a year count from its first
/// day, so that each but the last has seven days.
#[derive(Clone, Copy)]
struct Day {
    year: i32,
    month: u32,
    day: u32,
    day_in_week: usize,
    day_in_year: i32,
    last_in_month: bool,
}

impl Day {
    fn new(index: i32) -> Day {
        // 1970-01-01 was a Thursday.
        const THURSDAY: i32 = 4;
        let days = FIRST_DAY + index;
        let (year, month, day) = civil(days);
        let new_year = (0..).find(|back| {
            let (_, month, day) = civil(days - back);
            (month, day) == (1, 1)
        });
        Day {
            year,
            month,
            day,
            day_in_week: (days + THURSDAY).rem_euclid(7) as usize,
            day_in_year: new_year.map_or(1, |back| back + 1),
            last_in_month: civil(days + 1).1 != month,
        }
    }

    fn month_name(self) -> &'static str {
        MONTHS[self.month as usize - 1]
    }

    fn season(self) -> &'static str {
        match self.month {
            1..=3 => "Winter",
            4 => "Spring",
            5..=8 => "Summer",
            9..=10 => "Fall",
            _ => "Christmas",
        }
    }
}

fn dates(days: Range<u64>) -> Vec<ArrayRef> {
    let calendar: Vec<Day> = days.map(|day| Day::new(day as i32)).collect();
    let int = |of: fn(&Day) -> i32| ints(calendar.iter().map(of).collect());
    let flag = |of: fn(&Day) -> bool| ints(calendar.iter().map(|d| i32::from(of(d))).collect());
    vec![
        int(|d| d.year * 10_000 + d.month as i32 * 100 + d.day as i32),
        texts(calendar.iter().map(|d| format!("{} {}, {}", d.month_name(), d.day, d.year))),
        texts(calendar.iter().map(|d| WEEKDAYS[d.day_in_week])),
        texts(calendar.iter().map(|d| d.month_name())),
        int(|d| d.year),
        int(|d| d.year * 100 + d.month as i32),
        texts(calendar.iter().map(|d| format!("{:.3}{}", d.month_name(), d.year))),
        int(|d| d.day_in_week as i32 + 1),
        int(|d| d.day as i32),
        int(|d| d.day_in_year),
        int(|d| d.month as i32),
        int(|d| (d.day_in_year - 1) / 7 + 1),
        texts(calendar.iter().map(|d| d.season())),
        flag(|d| d.day_in_week == 6),
        flag(|d| d.last_in_month),
        flag(|d| HOLIDAYS.contains(&(d.month, d.day))),
        flag(|d| (1..=5).contains(&d.day_in_week)),
    ]
}

/// 19920101 for day 0.
fn date_key(day: i32) -> i32 {
    let (year, month, day) = civil(FIRST_DAY + day);
    year * 10_000 + month as i32 * 100 + day as i32
}

fn key(random: &mut Prng, rows: u64) -> i32 {
    random.below(rows) as i32 + 1
}

fn number(random: &mut Prng, lo: i64, hi: i64) -> i32 {
    random.range(lo, hi) as i32
}

fn pick<'a>(random: &mut Prng, words: &[&'a str]) -> &'a str {
    words[random.below(words.len() as u64) as usize]
}

fn ints(values: Vec<i32>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

fn texts(values: impl Iterator<Item = impl AsRef<str>>) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(values.size_hint().0);
    values.for_each(|value| builder.append_value(value));
    Arc::new(builder.finish())
}
