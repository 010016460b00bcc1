//! ClickBench's one table, `hits`: views of pages as a counter on many web sites records them, a
//! million per scale factor, in the order in which they happened.
//!
//! ClickBench's own rows, 100 million of real and obfuscated traffic, have to be downloaded. These
//! have its columns and the shape of its values: users, sites, pages and phrases of which few are
//! frequent and most are seen once, nine of ten rows without a search phrase, July 2013 with its
//! nights and weekends. A hit is a step of a session: whatever a user brings (an address, a
//! screen, a language) is the same in all of a user's rows, and the referer of a step is the page
//! before it. What the queries name is there: counter 62, which has 6 % of the rows, where real
//! traffic had 0.7 %, so that a hundredth of ClickBench's rows is enough for `OFFSET 10000`; the
//! hashes of two of its pages; and user 435090932899640449, who comes back twice a million rows.
//!
//! * here: who looks at which page, and when.
//! * `text`: domains, addresses, titles and phrases.
//! * `columns`: the 105 columns of a hit.
//!
//! Only whole numbers, multiplications and divisions decide what is drawn: unlike `powf` and
//! `ln`, they give the same on every machine.

mod columns;
mod text;

use std::ops::Range;
use std::sync::Arc;

use thalweg_base::Prng;

use self::text::Words;
use super::Source;
use super::blocks::{Cut, blocks};

pub(super) const SEED: u64 = 0x436c_6963_6b42_656e;

const ROWS_PER_SCALE: f64 = 1_000_000.0;
const ROWS_PER_BLOCK: u64 = 8192;

/// 2013-07-01, in seconds since 1970-01-01; a Monday.
const FIRST_SECOND: i64 = 15_887 * 86_400;
const DAYS: usize = 31;
/// How much of a day's traffic each of its hours has, and how much of it a day of the week.
const HOURS: [u64; 24] =
    [30, 19, 13, 10, 9, 11, 18, 30, 45, 58, 65, 68, 69, 68, 68, 68, 67, 65, 64, 66, 70, 71, 64, 47];
const WEEKDAYS: [u64; 7] = [108, 109, 107, 106, 102, 84, 84];

const SITES: u64 = 6000;
/// Counter 62 is the second in size.
const COUNTER_62: u64 = 1;
/// Of its two most frequent pages; Q40 and Q41 name them.
const HASHES_OF_62: [i64; 2] = [2_868_770_270_353_813_622, 3_594_120_000_172_545_465];

/// Q19 looks for this user, who begins a session in every 64th block.
const RETURNING_USER: i64 = 435_090_932_899_640_449;
const RETURNS_EVERY_BLOCKS: u64 = 64;

/// As many sessions go on at a time. A step continues any of them, or begins another in its place:
/// so they have three steps on average, and some have dozens.
const OPEN_SESSIONS: u64 = 256;

/// Of all steps.
const SESSION_START_PERCENT: u64 = 35;
const REFRESH_PERCENT: u64 = 11;
const HOME_PAGE_PERCENT: u64 = 35;
/// Of the beginnings of sessions; the others have no referer.
const ADVERTISED_PERCENT: u64 = 2;
const SEARCHED_PERCENT: u64 = 45;
const LINKED_PERCENT: u64 = 23;

pub(super) fn source(scale_factor: f64) -> Source {
    let rows = ((ROWS_PER_SCALE * scale_factor).round() as u64).max(1);
    let web = Arc::new(Web::new(rows));
    let cut = Cut { items: rows, items_per_block: ROWS_PER_BLOCK, rows_per_item: 1 };
    blocks(SEED, "hits", columns::fields(), cut, move |rows, random| {
        columns::arrays(&web.hits(rows, random), &web)
    })
}

/// What all blocks share.
struct Web {
    rows: u64,
    users: u64,
    phrases: u64,
    /// The traffic before each hour of the month, and that of the whole month.
    hours: Vec<u64>,
    /// The weight of all sites up to each, itself included.
    sites: Vec<u64>,
    words: Words,
}

/// A number that stands for a thing, from which all else about the thing is drawn. Every property
/// has a salt of its own.
#[derive(Clone, Copy, Debug)]
struct Seed(u64);

impl Seed {
    fn number(self, salt: u64) -> u64 {
        Prng::new(self.0 ^ salt.wrapping_mul(0xa24b_aed4_963e_e407)).next_u64()
    }

    fn below(self, salt: u64, n: u64) -> u64 {
        Prng::new(self.number(salt)).below(n)
    }

    fn percent(self, salt: u64, percent: u64) -> bool {
        self.below(salt, 100) < percent
    }

    fn pick<T: Copy>(self, salt: u64, values: &[T]) -> T {
        values[self.below(salt, values.len() as u64) as usize]
    }
}

/// A page of a site, both by rank: 0 is the most frequent, and of pages the home page.
#[derive(Clone, Copy, Debug)]
struct Page {
    site: u64,
    number: u64,
}

impl Page {
    fn seed(self) -> Seed {
        Seed(Seed(self.site).number(1) ^ Seed(self.number).number(2))
    }

    fn hash(self) -> i64 {
        match self {
            Page { site: COUNTER_62, number: number @ 0..=1 } => HASHES_OF_62[number as usize],
            _ => self.seed().number(3) as i64,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Referer {
    Nothing,
    Page(Page),
    /// The results of a search engine; without the phrase where it keeps that to itself.
    Search {
        engine: usize,
        phrase: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Session {
    user_id: i64,
    user: Seed,
    seed: Seed,
    page: Page,
    referer: Referer,
    advertised: bool,
}

/// A row.
#[derive(Clone, Copy, Debug)]
struct Hit {
    row: u64,
    /// Seconds since 1970-01-01.
    time: i64,
    seed: Seed,
    session: Session,
    first: bool,
    refresh: bool,
    page: Page,
    referer: Referer,
}

impl Web {
    fn new(rows: u64) -> Web {
        let mut total = 0;
        let mut hours = vec![0];
        for day in 0..DAYS {
            for hour in HOURS {
                total += hour * WEEKDAYS[day % 7];
                hours.push(total);
            }
        }
        let mut until = 0;
        let sites = (0..SITES).map(|site| {
            until += weight(site);
            until
        });
        let sites = sites.collect();
        // For about 18 distinct users and six distinct phrases per hundred rows.
        let (users, phrases) = ((rows * 3 / 10).max(1), (rows * 3 / 20).max(1));
        Web { rows, users, phrases, hours, sites, words: Words::new() }
    }

    /// Traffic is spread evenly inside an hour.
    fn time(&self, row: u64) -> i64 {
        let total = *self.hours.last().unwrap_or(&1);
        let at = (u128::from(row) * u128::from(total) / u128::from(self.rows)) as u64;
        let hour = self.hours.partition_point(|before| *before <= at) - 1;
        let (from, to) = (self.hours[hour], self.hours[hour + 1]);
        FIRST_SECOND + hour as i64 * 3600 + ((at - from) * 3600 / (to - from)) as i64
    }

    fn site(&self, random: &mut Prng) -> u64 {
        let total = self.sites.last().copied().unwrap_or(1);
        let at = random.below(total);
        self.sites.partition_point(|until| *until <= at) as u64
    }

    /// A page for every four rows; the sites without that many rows have a few.
    fn pages(&self, site: u64) -> u64 {
        let total = self.sites.last().copied().unwrap_or(1);
        let rows = u128::from(self.rows) * u128::from(weight(site)) / u128::from(total);
        (rows as u64 / 4).max(3)
    }

    fn page(&self, random: &mut Prng, site: u64) -> Page {
        let home = random.below(100) < HOME_PAGE_PERCENT;
        let number = if home { 0 } else { 1 + skewed(random, self.pages(site), 3) };
        Page { site, number }
    }

    fn session(&self, random: &mut Prng) -> Session {
        let user = Seed(skewed(random, self.users, 2));
        let site = self.site(random);
        let way = random.below(100);
        let advertised = way < ADVERTISED_PERCENT;
        let referer = if way < ADVERTISED_PERCENT + SEARCHED_PERCENT {
            let engine = text::SEARCH_ENGINES_BY_SHARE[random.below(20) as usize];
            let tells = !advertised && random.below(100) < 75;
            let phrase = tells.then(|| skewed(random, self.phrases, 3));
            Referer::Search { engine, phrase }
        } else if way < ADVERTISED_PERCENT + SEARCHED_PERCENT + LINKED_PERCENT {
            let from = self.site(random);
            Referer::Page(self.page(random, from))
        } else {
            Referer::Nothing
        };
        Session {
            // Positive, as ClickBench's are.
            user_id: (user.number(4) >> 1) as i64,
            user,
            seed: Seed(random.next_u64()),
            page: self.page(random, site),
            referer,
            advertised,
        }
    }

    fn hits(&self, rows: Range<u64>, random: &mut Prng) -> Vec<Hit> {
        let mut open: Vec<Session> = (0..OPEN_SESSIONS).map(|_| self.session(random)).collect();
        let returns = (rows.start / ROWS_PER_BLOCK).is_multiple_of(RETURNS_EVERY_BLOCKS);
        let first_row = rows.start;
        let hit = |row: u64| {
            let session = &mut open[random.below(OPEN_SESSIONS) as usize];
            let way = random.below(100);
            let first = way < SESSION_START_PERCENT || (returns && row == first_row);
            let refresh = !first && way < SESSION_START_PERCENT + REFRESH_PERCENT;
            if first {
                *session = self.session(random);
                if returns && row == first_row {
                    session.user_id = RETURNING_USER;
                    session.user = Seed(RETURNING_USER as u64);
                }
            } else if !refresh {
                session.referer = Referer::Page(session.page);
                session.page = self.page(random, session.page.site);
            }
            Hit {
                row,
                time: self.time(row),
                seed: Seed(random.next_u64()),
                session: *session,
                first,
                refresh,
                page: session.page,
                referer: session.referer,
            }
        };
        rows.map(hit).collect()
    }
}

/// Zipf's law, a little flatter at its head: the first site has 12 %, the second 6 %.
fn weight(site: u64) -> u64 {
    10_000_000_000 / (10 * site + 9)
}

/// Below `n`; the greater the power, the more often a small number: `k` is drawn about
/// `k^(1/power - 1)` as often as 1. It needs no table of `n` weights, as Zipf's law would.
fn skewed(random: &mut Prng, n: u64, power: u32) -> u64 {
    let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let share = (0..power).fold(1.0, |product, _| product * uniform);
    ((share * n as f64) as u64).min(n - 1)
}
