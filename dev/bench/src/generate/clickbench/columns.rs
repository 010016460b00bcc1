//! The columns of a hit, under ClickBench's names, in its order and of its types. What no query
//! asks for is drawn simply, but varies as it does in real traffic: most of it has one frequent
//! value.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Int16Array, Int32Array, Int64Array, StringViewBuilder,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, TimeUnit};

use self::Column::{BigInt, Date, Integer, SmallInt, Text, Timestamp};
use super::text::{SEARCH_ENGINES, address, phrase, referer, title};
use super::{COUNTER_62, Hit, Referer, Web};

enum Column {
    BigInt(fn(&Hit) -> i64),
    Integer(fn(&Hit) -> i32),
    SmallInt(fn(&Hit) -> i16),
    /// Seconds since 1970-01-01.
    Timestamp(fn(&Hit) -> i64),
    /// Days since 1970-01-01.
    Date(fn(&Hit) -> i32),
    /// Appends the value, or nothing for an empty string.
    Text(fn(&Hit, &Web, &mut String)),
}

pub(super) fn fields() -> impl Iterator<Item = Field> {
    COLUMNS.iter().map(|(name, column)| {
        let data_type = match column {
            BigInt(_) => DataType::Int64,
            Integer(_) => DataType::Int32,
            SmallInt(_) => DataType::Int16,
            Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Date(_) => DataType::Date32,
            Text(_) => DataType::Utf8View,
        };
        Field::new(*name, data_type, false)
    })
}

pub(super) fn arrays(hits: &[Hit], web: &Web) -> Vec<ArrayRef> {
    let array = |(_, column): &(&str, Column)| -> ArrayRef {
        match column {
            BigInt(of) => Arc::new(Int64Array::from_iter_values(hits.iter().map(of))),
            Integer(of) => Arc::new(Int32Array::from_iter_values(hits.iter().map(of))),
            SmallInt(of) => Arc::new(Int16Array::from_iter_values(hits.iter().map(of))),
            Date(of) => Arc::new(Date32Array::from_iter_values(hits.iter().map(of))),
            Timestamp(of) => {
                let microseconds = hits.iter().map(|hit| of(hit) * 1_000_000);
                Arc::new(TimestampMicrosecondArray::from_iter_values(microseconds))
            }
            Text(of) => {
                let mut builder = StringViewBuilder::with_capacity(hits.len());
                let mut text = String::new();
                for hit in hits {
                    text.clear();
                    of(hit, web, &mut text);
                    builder.append_value(&text);
                }
                Arc::new(builder.finish())
            }
        }
    };
    COLUMNS.iter().map(array).collect()
}

/// Width, height.
const SCREENS: [(i16, i16); 16] = [
    (1366, 768),
    (1366, 768),
    (1366, 768),
    (1280, 1024),
    (1280, 1024),
    (1920, 1080),
    (1920, 1080),
    (1440, 900),
    (1600, 900),
    (1280, 800),
    (1024, 768),
    (1680, 1050),
    (1152, 864),
    (1360, 768),
    (1920, 1200),
    (2560, 1440),
];
const MOBILE_SCREENS: [(i16, i16); 5] =
    [(768, 1024), (320, 480), (320, 568), (480, 800), (720, 1280)];

/// `MobilePhone`, `MobilePhoneModel`.
const PHONES: [(i16, &str); 20] = [
    (1, "iPad"),
    (1, "iPad"),
    (1, "iPad"),
    (1, "iPad"),
    (5, "iPhone 4"),
    (5, "iPhone 5"),
    (5, "iPhone"),
    (7, "GT-I9300"),
    (7, "GT-P5100"),
    (7, "GT-N7000"),
    (10, "Lumia 920"),
    (10, "N8-00"),
    (12, "Xperia Z"),
    (12, "LT26i"),
    (22, "One X"),
    (22, "Desire S"),
    (26, "A1-810"),
    (32, "Ideos"),
    (34, "Nexus 7"),
    (118, "Highscreen Boost"),
];

const LANGUAGES: [(&str, &str); 10] = [
    ("ru", "RU"),
    ("ru", "RU"),
    ("ru", "RU"),
    ("ru", "RU"),
    ("ru", "RU"),
    ("ru", "UA"),
    ("uk", "UA"),
    ("ru", "BY"),
    ("en", "US"),
    ("de", "DE"),
];
const TIME_ZONES: [i16; 10] = [240, 240, 240, 240, 240, 180, 180, 360, 420, 60];
const ADVERTISERS: [i16; 12] = [2, 2, 2, 2, 2, 27, 27, 13, 45, 44, 3, 62];
const CURRENCIES: [(&str, i16); 4] = [("RUB", 643), ("RUB", 643), ("USD", 840), ("EUR", 978)];
const SOCIAL_NETWORKS: [&str; 3] = ["vkontakte", "facebook", "twitter"];

fn mobile(hit: &Hit) -> bool {
    hit.session.user.percent(50, 7)
}

fn screen(hit: &Hit) -> (i16, i16) {
    match mobile(hit) {
        true => hit.session.user.pick(51, &MOBILE_SCREENS),
        false => hit.session.user.pick(51, &SCREENS),
    }
}

fn phone(hit: &Hit) -> Option<(i16, &'static str)> {
    // Of some the model is not known.
    let known = mobile(hit) && hit.session.user.percent(52, 80);
    known.then(|| hit.session.user.pick(53, &PHONES))
}

/// A window is rarely as large as the screen, and each user has other bars above and beside it.
fn window(hit: &Hit, screen: i16, salt: u64, bars: u64, resized: u64) -> i16 {
    let bars = hit.session.seed.below(salt, bars) as i16;
    let resized = match hit.session.seed.percent(salt + 1, 30) {
        true => hit.session.seed.below(salt + 2, resized) as i16,
        false => 0,
    };
    (screen - bars - resized).max(100)
}

fn address_v4(hit: &Hit) -> i32 {
    // Not the few numbers at the end from which Q35 could not subtract 3.
    hit.session.user.number(54) as i32 | 1 << 10
}

/// A session that an advertisement began says so in all of its rows' labels, most do not.
fn label(hit: &Hit, salt: u64, labels: &[&str], out: &mut String) {
    if hit.session.advertised && hit.session.seed.percent(salt, 60) {
        out.push_str(hit.session.seed.pick(salt + 1, labels));
    }
}

/// Milliseconds of which most are few; 0 where they were not measured.
fn milliseconds(hit: &Hit, salt: u64, most: u64) -> i32 {
    if hit.seed.percent(55, 70) {
        return 0;
    }
    let most = hit.seed.below(salt, most) + 1;
    hit.seed.below(salt + 1, most) as i32
}

fn searched(hit: &Hit) -> Option<usize> {
    match hit.referer {
        Referer::Search { engine, .. } if hit.first && !hit.session.advertised => Some(engine),
        _ => None,
    }
}

fn seller(hit: &Hit) -> bool {
    hit.seed.percent(56, 1)
}

const COLUMNS: [(&str, Column); 105] = [
    ("WatchID", BigInt(|h| (super::Seed(h.row).number(60) >> 1) as i64)),
    ("JavaEnable", SmallInt(|h| h.session.user.percent(61, 75).into())),
    ("Title", Text(|h, web, out| title(h.page, &web.words, out))),
    ("GoodEvent", SmallInt(|_| 1)),
    ("EventTime", Timestamp(|h| h.time)),
    ("EventDate", Date(|h| (h.time / 86_400) as i32)),
    (
        "CounterID",
        Integer(|h| match h.page.site {
            COUNTER_62 => 62,
            // A prime number of counters: no two sites share one.
            site => (site as i32 * 7919 + 3859) % 250_007 + 63,
        }),
    ),
    ("ClientIP", Integer(address_v4)),
    // Of few regions come most users.
    (
        "RegionID",
        Integer(|h| {
            let most = h.session.user.below(62, 5000) + 1;
            let most = h.session.user.below(63, most) + 1;
            h.session.user.below(64, most) as i32 + 2
        }),
    ),
    ("UserID", BigInt(|h| h.session.user_id)),
    ("CounterClass", SmallInt(|h| super::Seed(h.page.site).pick(65, &[0, 0, 0, 0, 0, 0, 1, -1]))),
    (
        "OS",
        SmallInt(|h| match mobile(h) {
            true => h.session.user.pick(66, &[30, 30, 43, 61, 34]),
            false => h.session.user.pick(66, &[2, 2, 2, 2, 44, 44, 44, 44, 44, 5, 109, 45, 56, 3]),
        }),
    ),
    (
        "UserAgent",
        SmallInt(|h| h.session.user.pick(67, &[3, 3, 3, 2, 2, 2, 5, 5, 7, 7, 33, 82, 42, 4, 88])),
    ),
    ("URL", Text(|h, web, out| address(h.page, &web.words, out))),
    ("Referer", Text(|h, web, out| referer(h.referer, &web.words, out))),
    ("IsRefresh", SmallInt(|h| h.refresh.into())),
    ("RefererCategoryID", SmallInt(|h| category(&h.referer, 68, 17_000))),
    ("RefererRegionID", Integer(|h| category(&h.referer, 69, 500).into())),
    ("URLCategoryID", SmallInt(|h| category(&Referer::Page(h.page), 68, 17_000))),
    ("URLRegionID", Integer(|h| category(&Referer::Page(h.page), 69, 500).into())),
    ("ResolutionWidth", SmallInt(|h| screen(h).0)),
    ("ResolutionHeight", SmallInt(|h| screen(h).1)),
    ("ResolutionDepth", SmallInt(|h| h.session.user.pick(70, &[24, 24, 24, 32, 32, 16, 0]))),
    ("FlashMajor", SmallInt(|h| flash(h).0)),
    ("FlashMinor", SmallInt(|h| flash(h).1)),
    ("FlashMinor2", Text(|h, _, out| out.push_str(flash(h).2))),
    ("NetMajor", SmallInt(|h| h.session.user.pick(71, &[0, 0, 0, 2, 3, 4]))),
    ("NetMinor", SmallInt(|h| h.session.user.pick(71, &[0, 0, 0, 0, 5, 0]))),
    ("UserAgentMajor", SmallInt(|h| h.session.user.below(72, 29) as i16)),
    ("UserAgentMinor", Text(|h, _, out| out.push_str(h.session.user.pick(73, &["0", "1", "57"])))),
    ("CookieEnable", SmallInt(|h| h.session.user.percent(74, 98).into())),
    ("JavascriptEnable", SmallInt(|h| h.session.user.percent(75, 97).into())),
    ("IsMobile", SmallInt(|h| mobile(h).into())),
    ("MobilePhone", SmallInt(|h| phone(h).map_or(0, |phone| phone.0))),
    ("MobilePhoneModel", Text(|h, _, out| out.push_str(phone(h).map_or("", |phone| phone.1)))),
    (
        "Params",
        Text(|h, _, out| {
            if h.seed.percent(76, 3) {
                out.push_str("{\"step\":");
                out.push_str(h.seed.pick(77, &["1", "2", "3", "\"cart\"", "\"order\""]));
                out.push('}');
            }
        }),
    ),
    ("IPNetworkID", Integer(|h| (address_v4(h) >> 8).rem_euclid(4_000_000))),
    (
        "TraficSourceID",
        SmallInt(|h| match (h.first, h.referer) {
            // From page to page of one site.
            (false, _) => h.seed.pick(78, &[-1, -1, -1, -1, -1, -1, -1, -1, -1, 6]),
            (true, _) if h.session.advertised => 3,
            (true, Referer::Nothing) => 0,
            (true, Referer::Page(_)) => 1,
            (true, Referer::Search { .. }) => 2,
        }),
    ),
    ("SearchEngineID", SmallInt(|h| searched(h).map_or(0, |engine| SEARCH_ENGINES[engine].1))),
    (
        "SearchPhrase",
        Text(|h, web, out| {
            if let (Some(_), Referer::Search { phrase: Some(number), .. }) =
                (searched(h), h.referer)
            {
                phrase(number, &web.words, out);
            }
        }),
    ),
    (
        "AdvEngineID",
        SmallInt(|h| match h.first && h.session.advertised {
            true => h.session.seed.pick(79, &ADVERTISERS),
            false => 0,
        }),
    ),
    ("IsArtifical", SmallInt(|h| h.seed.percent(80, 2).into())),
    ("WindowClientWidth", SmallInt(|h| window(h, screen(h).0, 81, 60, 400))),
    ("WindowClientHeight", SmallInt(|h| window(h, screen(h).1, 84, 250, 200))),
    ("ClientTimeZone", SmallInt(|h| h.session.user.pick(87, &TIME_ZONES))),
    ("ClientEventTime", Timestamp(|h| h.time + clock_error(h))),
    ("SilverlightVersion1", SmallInt(|h| silverlight(h) * 5)),
    ("SilverlightVersion2", SmallInt(silverlight)),
    ("SilverlightVersion3", Integer(|h| i32::from(silverlight(h)) * 20_125)),
    ("SilverlightVersion4", SmallInt(|_| 0)),
    (
        "PageCharset",
        Text(|h, _, out| {
            let charsets = ["utf-8", "utf-8", "windows-1251", "windows-1251", ""];
            out.push_str(super::Seed(h.page.site).pick(88, &charsets));
        }),
    ),
    ("CodeVersion", Integer(|h| super::Seed(h.page.site).pick(89, &[1601, 1601, 291, 1602, 0]))),
    ("IsLink", SmallInt(|h| h.seed.percent(90, 12).into())),
    ("IsDownload", SmallInt(|h| h.seed.percent(91, 1).into())),
    ("IsNotBounce", SmallInt(|h| h.seed.percent(92, 30).into())),
    (
        "FUniqID",
        BigInt(|h| match h.session.user.percent(93, 60) {
            true => (h.session.user.number(94) >> 1) as i64,
            false => 0,
        }),
    ),
    (
        "OriginalURL",
        Text(|h, web, out| {
            if h.seed.percent(95, 5) {
                address(h.page, &web.words, out);
                out.push_str("#original");
            }
        }),
    ),
    ("HID", Integer(|h| h.seed.below(96, 1 << 30) as i32)),
    ("IsOldCounter", SmallInt(|_| 0)),
    ("IsEvent", SmallInt(|_| 0)),
    ("IsParameter", SmallInt(|_| 0)),
    ("DontCountHits", SmallInt(|h| h.seed.percent(97, 4).into())),
    ("WithHash", SmallInt(|_| 0)),
    ("HitColor", Text(|h, _, out| out.push_str(h.seed.pick(98, &["F", "F", "F", "T", "g", "5"])))),
    (
        "LocalEventTime",
        Timestamp(|h| {
            let minutes = i64::from(h.session.user.pick(87, &TIME_ZONES));
            h.time + clock_error(h) + minutes * 60
        }),
    ),
    ("Age", SmallInt(|h| h.session.user.pick(99, &[0, 0, 0, 16, 22, 31, 39, 55]))),
    ("Sex", SmallInt(|h| h.session.user.pick(100, &[0, 0, 0, 1, 2]))),
    ("Income", SmallInt(|h| h.session.user.pick(101, &[0, 0, 0, 1, 2, 3, 4]))),
    (
        "Interests",
        SmallInt(|h| match h.session.user.percent(102, 50) {
            true => h.session.user.below(103, 32_000) as i16,
            false => 0,
        }),
    ),
    ("Robotness", SmallInt(|h| h.session.user.pick(104, &[0, 0, 0, 0, 0, 0, 0, 1, 13]))),
    // Some come through a proxy.
    (
        "RemoteIP",
        Integer(|h| match h.session.user.percent(105, 80) {
            true => address_v4(h),
            false => h.session.user.number(106) as i32,
        }),
    ),
    ("WindowName", Integer(|h| h.session.seed.pick(107, &[-1, -1, -1, 1546, 8711, 44_106]))),
    ("OpenerName", Integer(|h| h.session.seed.pick(108, &[-1, -1, -1, -1, 315, 2718]))),
    ("HistoryLength", SmallInt(|h| h.seed.below(109, 25) as i16 - 1)),
    ("BrowserLanguage", Text(|h, _, out| out.push_str(h.session.user.pick(110, &LANGUAGES).0))),
    ("BrowserCountry", Text(|h, _, out| out.push_str(h.session.user.pick(110, &LANGUAGES).1))),
    (
        "SocialNetwork",
        Text(|h, _, out| {
            if h.seed.below(111, 500) == 0 {
                out.push_str(h.seed.pick(112, &SOCIAL_NETWORKS));
            }
        }),
    ),
    (
        "SocialAction",
        Text(|h, _, out| {
            if h.seed.below(111, 500) == 0 {
                out.push_str(h.seed.pick(113, &["like", "share"]));
            }
        }),
    ),
    ("HTTPError", SmallInt(|h| if h.seed.below(114, 400) == 0 { 404 } else { 0 })),
    ("SendTiming", Integer(|h| milliseconds(h, 115, 8000))),
    ("DNSTiming", Integer(|h| milliseconds(h, 117, 500))),
    ("ConnectTiming", Integer(|h| milliseconds(h, 119, 1500))),
    ("ResponseStartTiming", Integer(|h| milliseconds(h, 121, 4000))),
    ("ResponseEndTiming", Integer(|h| milliseconds(h, 123, 6000))),
    ("FetchTiming", Integer(|h| milliseconds(h, 125, 12_000))),
    ("SocialSourceNetworkID", SmallInt(|h| social(h).map_or(0, |network| network + 1))),
    (
        "SocialSourcePage",
        Text(|h, _, out| {
            if let Some(network) = social(h) {
                out.push_str("http://www.");
                out.push_str(SOCIAL_NETWORKS[network as usize]);
                out.push_str(".com/id");
                out.push_str(&h.session.seed.below(127, 1_000_000).to_string());
            }
        }),
    ),
    ("ParamPrice", BigInt(|h| if seller(h) { h.seed.below(128, 100_000) as i64 } else { 0 })),
    (
        "ParamOrderID",
        Text(|h, _, out| {
            if seller(h) {
                out.push_str(&h.seed.below(129, 10_000_000).to_string());
            }
        }),
    ),
    (
        "ParamCurrency",
        Text(|h, _, out| {
            if seller(h) {
                out.push_str(h.seed.pick(130, &CURRENCIES).0);
            }
        }),
    ),
    ("ParamCurrencyID", SmallInt(|h| if seller(h) { h.seed.pick(130, &CURRENCIES).1 } else { 0 })),
    ("OpenstatServiceName", Text(|h, _, out| label(h, 131, &["direct.yandex.ru", "begun"], out))),
    ("OpenstatCampaignID", Text(|h, _, out| label(h, 133, &["3310214", "5127789", "770"], out))),
    ("OpenstatAdID", Text(|h, _, out| label(h, 135, &["118432201", "97611230", "4"], out))),
    ("OpenstatSourceID", Text(|h, _, out| label(h, 137, &["premium", "search:1", "none"], out))),
    ("UTMSource", Text(|h, _, out| label(h, 139, &["yandex", "google", "mail"], out))),
    ("UTMMedium", Text(|h, _, out| label(h, 141, &["cpc", "banner", "email"], out))),
    ("UTMCampaign", Text(|h, _, out| label(h, 143, &["summer", "july_sale", "brand"], out))),
    ("UTMContent", Text(|h, _, out| label(h, 145, &["text1", "text2", "240x400"], out))),
    ("UTMTerm", Text(|h, _, out| label(h, 147, &["avto", "kupit iphone", "turizm"], out))),
    ("FromTag", Text(|h, _, out| label(h, 149, &["top", "rss", "widget"], out))),
    ("HasGCLID", SmallInt(|h| (h.session.advertised && h.session.seed.percent(151, 20)).into())),
    (
        "RefererHash",
        BigInt(|h| match h.referer {
            // What ClickBench has for an empty one.
            Referer::Nothing => -296_158_784_638_538_920,
            Referer::Page(page) => page.hash(),
            Referer::Search { engine, phrase } => {
                super::Seed(phrase.unwrap_or(u64::MAX)).number(152 + engine as u64) as i64
            }
        }),
    ),
    ("URLHash", BigInt(|h| h.page.hash())),
    ("CLID", Integer(|h| if h.session.user.percent(160, 3) { 1_914_018 } else { 0 })),
];

/// Of half of the sites it is not known.
fn category(of: &Referer, salt: u64, categories: u64) -> i16 {
    match of {
        Referer::Page(page) => {
            let site = super::Seed(page.site);
            if site.percent(salt + 200, 50) { site.below(salt, categories) as i16 } else { 0 }
        }
        _ => 0,
    }
}

fn flash(hit: &Hit) -> (i16, i16, &'static str) {
    const VERSIONS: [(i16, i16, &str); 8] = [
        (11, 7, "700"),
        (11, 7, "700"),
        (11, 8, "800"),
        (11, 6, "602"),
        (10, 3, "183"),
        (9, 0, "124"),
        (0, 0, ""),
        (0, 0, ""),
    ];
    hit.session.user.pick(170, &VERSIONS)
}

fn silverlight(hit: &Hit) -> i16 {
    hit.session.user.percent(171, 25).into()
}

/// Most clocks are right to a minute.
fn clock_error(hit: &Hit) -> i64 {
    let most = if hit.session.user.percent(172, 90) { 60 } else { 36_000 };
    hit.session.user.below(173, most) as i64 - most as i64 / 2
}

fn social(hit: &Hit) -> Option<i16> {
    let network = hit.session.seed.below(174, 200) as i16;
    (hit.first && network < 3).then_some(network)
}
