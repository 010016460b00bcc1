use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::array::{Array, AsArray};
use arrow::compute::concat_batches;
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{
    DataType, Field, Int16Type, Int32Type, Int64Type, Schema, TimestampMicrosecondType,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use thalweg_base::Kind;
use thalweg_engine::{Config, Engine};

use super::*;
use crate::compare::collect;
use crate::load::load;
use crate::workload::Workload;

fn silent(_: Progress) {}

fn rows_of(source: &Source) -> RecordBatch {
    let batches: Vec<RecordBatch> =
        (0..source.parts).flat_map(|p| (source.part)(p)).collect::<Result<_, _>>().unwrap();
    concat_batches(&source.schema, &batches).unwrap()
}

fn table(benchmark: Benchmark, scale_factor: f64, name: &str) -> RecordBatch {
    let sources = benchmark.sources(scale_factor).unwrap();
    rows_of(sources.iter().find(|s| s.name == name).unwrap())
}

fn ints<'a>(batch: &'a RecordBatch, name: &str) -> &'a [i32] {
    batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().values()
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Vec<&'a str> {
    batch.column_by_name(name).unwrap().as_string_view().iter().map(|v| v.unwrap()).collect()
}

fn bytes_of(tables: &[GeneratedTable]) -> Vec<Vec<u8>> {
    tables.iter().flat_map(|t| &t.files).map(|file| fs::read(file).unwrap()).collect()
}

/// A table of one column, whose parts are whatever `part` makes of their number.
fn tiny(parts: usize, part: impl Fn(usize) -> Batches + Send + Sync + 'static) -> Source {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
    Source { name: "tiny", schema, rows_expected: 1, parts, part: Box::new(part) }
}

#[test]
fn tables_have_the_specified_number_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |benchmark, name: &str| {
        let folder = folder.path().join(name);
        generate(benchmark, 0.01, FileFormat::Csv, &folder, 2, &silent)
            .unwrap()
            .into_iter()
            .map(|t| (t.name, t.rows))
            .collect::<Vec<_>>()
    };
    let ssb = rows(Benchmark::Ssb, "ssb");
    let named = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
        rows.iter().map(|(name, rows)| (name.to_string(), *rows)).collect()
    };
    assert_eq!(
        ssb[..4],
        named(&[("dates", 2557), ("customer", 300), ("supplier", 20), ("part", 2000)])
    );
    assert!((59_000..=61_000).contains(&ssb[4].1), "{ssb:?}");
    // As of dbgen itself.
    assert_eq!(
        rows(Benchmark::Tpch, "tpch"),
        named(&[
            ("region", 5),
            ("nation", 25),
            ("supplier", 100),
            ("customer", 1500),
            ("part", 2000),
            ("partsupp", 8000),
            ("orders", 15_000),
            ("lineitem", 60_175),
        ])
    );
}

#[test]
fn ssb_parts_grow_with_the_logarithm() {
    for (scale_factor, rows) in
        [(0.01, 2000), (1.0, 200_000), (2.0, 400_000), (10.0, 800_000), (100.0, 1_400_000)]
    {
        let sources = ssb::sources(scale_factor);
        let part = sources.iter().find(|s| s.name == "part").unwrap();
        assert_eq!(part.rows_expected, rows, "scale factor {scale_factor}");
    }
}

#[test]
fn every_ssb_key_exists() {
    let lineorder = table(Benchmark::Ssb, 0.01, "lineorder");
    let dates = table(Benchmark::Ssb, 0.01, "dates");
    for (name, rows) in [("lo_custkey", 300), ("lo_suppkey", 20), ("lo_partkey", 2000)] {
        let keys = ints(&lineorder, name);
        assert!(keys.iter().all(|key| (1..=rows).contains(key)), "{name}");
        assert!([1, rows].iter().all(|end| keys.contains(end)), "{name} reaches both ends");
    }
    let days = ints(&dates, "d_datekey");
    assert!(days.is_sorted());
    for name in ["lo_orderdate", "lo_commitdate"] {
        assert!(ints(&lineorder, name).iter().all(|d| days.binary_search(d).is_ok()), "{name}");
    }
    let customer = table(Benchmark::Ssb, 0.01, "customer");
    assert!(ints(&customer, "c_custkey").iter().copied().eq(1..=300));
}

/// The orders of a part and of the next must not share keys, nor lines their numbers.
#[test]
fn ssb_orders_are_numbered_without_gaps_or_repeats() {
    let lineorder = table(Benchmark::Ssb, 0.05, "lineorder");
    assert!(ssb::sources(0.05)[4].parts > 1, "more than one part");
    let keys = lineorder.column(0).as_primitive::<Int64Type>().values();
    let lines = ints(&lineorder, "lo_linenumber");
    let total = ints(&lineorder, "lo_ordtotalprice");
    for i in 1..keys.len() {
        if lines[i] == 1 {
            assert!(keys[i - 1] < keys[i], "row {i}");
        } else {
            assert_eq!(
                (keys[i], lines[i], total[i]),
                (keys[i - 1], lines[i - 1] + 1, total[i - 1])
            );
        }
    }
    assert!(keys.iter().all(|key| key % 32 < 8), "8 of every 32 keys");
}

#[test]
fn ssb_money_adds_up() {
    let lineorder = table(Benchmark::Ssb, 0.001, "lineorder");
    let column = |name| ints(&lineorder, name);
    let (quantity, extended) = (column("lo_quantity"), column("lo_extendedprice"));
    let (discount, revenue) = (column("lo_discount"), column("lo_revenue"));
    let supplycost = column("lo_supplycost");
    for i in 0..lineorder.num_rows() {
        let price = extended[i] / quantity[i];
        assert_eq!(extended[i] % quantity[i], 0);
        assert_eq!(
            i64::from(revenue[i]),
            i64::from(extended[i]) * i64::from(100 - discount[i]) / 100
        );
        assert_eq!(supplycost[i], price * 6 / 10);
    }
}

#[test]
fn the_ssb_calendar_is_right() {
    let dates = table(Benchmark::Ssb, 1.0, "dates");
    let row = |key: i32| ints(&dates, "d_datekey").binary_search(&key).unwrap();
    let text = |key, name| texts(&dates, name)[row(key)];
    let int = |key, name| ints(&dates, name)[row(key)];
    assert_eq!(text(19920101, "d_date"), "January 1, 1992");
    assert_eq!(text(19920101, "d_dayofweek"), "Wednesday");
    assert_eq!(text(19920101, "d_yearmonth"), "Jan1992");
    assert_eq!(int(19920229, "d_lastdayinmonthfl"), 1);
    assert_eq!(int(19930228, "d_lastdayinmonthfl"), 1);
    assert_eq!(int(19961231, "d_daynuminyear"), 366);
    assert_eq!(int(19961231, "d_weeknuminyear"), 53);
    assert_eq!(text(19981231, "d_dayofweek"), "Thursday");
    assert_eq!(text(19971201, "d_yearmonth"), "Dec1997");
    assert_eq!(int(19971201, "d_yearmonthnum"), 199712);
    assert_eq!(int(19980801, "d_lastdayinweekfl"), 1, "a Saturday");
    assert_eq!(int(19980801, "d_weekdayfl"), 0);
    assert_eq!(int(19980803, "d_weekdayfl"), 1);
    let week_6 = ints(&dates, "d_weeknuminyear")
        .iter()
        .zip(ints(&dates, "d_year"))
        .filter(|(week, year)| (**week, **year) == (6, 1994));
    assert_eq!(week_6.count(), 7, "Q1.3 asks for a whole week");
}

#[test]
fn ssb_names_are_those_the_queries_ask_for() {
    let supplier = table(Benchmark::Ssb, 1.0, "supplier");
    let part = table(Benchmark::Ssb, 1.0, "part");
    for city in ["UNITED KI1", "UNITED KI5", "UNITED ST0", "CHINA    3"] {
        assert!(texts(&supplier, "s_city").contains(&city), "{city}");
    }
    for (name, expected) in
        [("p_mfgr", 5), ("p_category", 25), ("p_brand1", 1000), ("p_color", 94), ("p_type", 150)]
    {
        let mut values = texts(&part, name);
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), expected, "{name}");
    }
    assert!(texts(&part, "p_brand1").contains(&"MFGR#2221"));
    let brands = texts(&part, "p_brand1").into_iter().zip(texts(&part, "p_category"));
    assert!(brands.into_iter().all(|(brand, category)| brand.starts_with(category)));
}

/// Against the filter factors of the paper's section on queries. A little more than its 1/7
/// falls into each year, because no orders are placed in the last five months. At this scale
/// there are only 200 suppliers, so a fifth of them is a wide guess.
#[test]
fn ssb_queries_select_what_the_paper_says() {
    let [dates, customer, supplier, part, lineorder] =
        ["dates", "customer", "supplier", "part", "lineorder"]
            .map(|name| table(Benchmark::Ssb, 0.1, name));
    let rows = lineorder.num_rows();
    let year: Vec<i32> = ints(&lineorder, "lo_orderdate").iter().map(|d| d / 10_000).collect();
    let month: Vec<i32> = ints(&lineorder, "lo_orderdate").iter().map(|d| d / 100).collect();
    let discount = ints(&lineorder, "lo_discount");
    let quantity = ints(&lineorder, "lo_quantity");
    let through = |keys: &str, of: &RecordBatch, column: &str, accept: &dyn Fn(&str) -> bool| {
        let values = texts(of, column);
        let keys = ints(&lineorder, keys);
        keys.iter().map(|key| accept(values[*key as usize - 1])).collect::<Vec<bool>>()
    };
    let customers_in_asia = through("lo_custkey", &customer, "c_region", &|r| r == "ASIA");
    let suppliers_in_asia = through("lo_suppkey", &supplier, "s_region", &|r| r == "ASIA");
    let customers_in_us = through("lo_custkey", &customer, "c_nation", &|n| n == "UNITED STATES");
    let category = through("lo_partkey", &part, "p_category", &|c| c == "MFGR#12");
    let brands =
        through("lo_partkey", &part, "p_brand1", &|b| ("MFGR#2221"..="MFGR#2228").contains(&b));
    let mfgrs = through("lo_partkey", &part, "p_mfgr", &|m| matches!(m, "MFGR#1" | "MFGR#2"));
    let week = {
        let keys = ints(&dates, "d_datekey");
        let weeks = ints(&dates, "d_weeknuminyear");
        let row = |d: &i32| keys.binary_search(d).unwrap();
        let days = ints(&lineorder, "lo_orderdate").iter();
        days.map(|d| weeks[row(d)] == 6 && d / 10_000 == 1994).collect::<Vec<bool>>()
    };
    let check = |query: &str, expected: f64, tolerance: f64, accept: &dyn Fn(usize) -> bool| {
        let selected = (0..rows).filter(|i| accept(*i)).count() as f64 / rows as f64;
        let ratio = selected / expected;
        assert!(
            (ratio - 1.0).abs() < tolerance,
            "{query}: {selected:.6} selected, {expected:.6} expected"
        );
    };
    check("Q1.1", 1.0 / 7.0 * 3.0 / 11.0 * 0.5, 0.1, &|i| {
        year[i] == 1993 && (1..=3).contains(&discount[i]) && quantity[i] < 25
    });
    check("Q1.2", 1.0 / 84.0 * 3.0 / 11.0 * 0.2, 0.15, &|i| {
        month[i] == 199_401 && (4..=6).contains(&discount[i]) && (26..=35).contains(&quantity[i])
    });
    check("Q1.3", 1.0 / 364.0 * 3.0 / 11.0 * 0.2, 0.25, &|i| {
        week[i] && (5..=7).contains(&discount[i]) && (26..=35).contains(&quantity[i])
    });
    check("Q2.1's part", 1.0 / 25.0, 0.1, &|i| category[i]);
    check("Q2.2's part", 8.0 / 1000.0, 0.25, &|i| brands[i]);
    check("Q3.1", 1.0 / 5.0 / 5.0 * 6.0 / 7.0, 0.35, &|i| {
        customers_in_asia[i] && suppliers_in_asia[i] && (1992..=1997).contains(&year[i])
    });
    check("Q3.2's customer", 1.0 / 25.0, 0.25, &|i| customers_in_us[i]);
    check("Q4.1's part", 2.0 / 5.0, 0.05, &|i| mfgrs[i]);
}

/// The columns of each table, in the words of the specification.
#[test]
fn tpcds_has_all_tables_and_columns() {
    let expected = [
        ("call_center", 31),
        ("catalog_page", 9),
        ("catalog_returns", 27),
        ("catalog_sales", 34),
        ("customer", 18),
        ("customer_address", 13),
        ("customer_demographics", 9),
        ("date_dim", 28),
        ("household_demographics", 5),
        ("income_band", 3),
        ("inventory", 4),
        ("item", 22),
        ("promotion", 19),
        ("reason", 3),
        ("ship_mode", 6),
        ("store", 29),
        ("store_returns", 20),
        ("store_sales", 23),
        ("time_dim", 10),
        ("warehouse", 14),
        ("web_page", 14),
        ("web_returns", 24),
        ("web_sales", 34),
        ("web_site", 26),
    ];
    let sources = tpcds::sources(0.01).unwrap();
    let found: Vec<_> = sources.iter().map(|s| (s.name, s.schema.fields().len())).collect();
    assert_eq!(found, expected);
    for source in &sources {
        let first = (source.part)(0).next().unwrap().unwrap();
        assert!(first.num_rows() > 0, "{} has rows", source.name);
    }
}

#[test]
fn tpcds_has_nulls_and_returns_belong_to_sales() {
    let sales = table(Benchmark::Tpcds, 0.01, "store_sales");
    let returns = table(Benchmark::Tpcds, 0.01, "store_returns");
    let nulls = |name: &str| sales.column_by_name(name).unwrap().null_count();
    assert!(nulls("ss_customer_sk") > 0 && nulls("ss_net_profit") > 0);
    assert_eq!(nulls("ss_item_sk") + nulls("ss_ticket_number"), 0, "they are the key");
    let share = returns.num_rows() as f64 / sales.num_rows() as f64;
    assert!((0.09..0.11).contains(&share), "a tenth comes back, not {share}");
    let pairs = |batch: &RecordBatch, item: &str, ticket: &str| -> Vec<(i64, i32)> {
        let tickets = batch.column_by_name(ticket).unwrap().as_primitive::<Int64Type>();
        tickets.values().iter().copied().zip(ints(batch, item).iter().copied()).collect()
    };
    let mut sold = pairs(&sales, "ss_item_sk", "ss_ticket_number");
    sold.sort_unstable();
    let returned = pairs(&returns, "sr_item_sk", "sr_ticket_number");
    assert!(returned.iter().all(|pair| sold.binary_search(pair).is_ok()));
}

#[test]
fn parts_make_up_the_whole_of_tpcds() {
    let sources = tpcds::sources(0.5).unwrap();
    for name in ["store_sales", "web_returns"] {
        let source = sources.iter().find(|s| s.name == name).unwrap();
        assert!(source.parts > 1, "{name} has parts");
        let rows = rows_of(source).num_rows() as f64;
        let ratio = rows / source.rows_expected as f64;
        assert!((0.9..1.1).contains(&ratio), "{name}: {rows} of {}", source.rows_expected);
    }
}

#[test]
fn clickbench_has_its_schema_and_as_many_rows_as_asked_for() {
    let declared: Vec<(&str, &str)> = include_str!("../../schemas/clickbench.sql")
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\" "))
        .collect();
    let source = clickbench::source(0.001);
    assert_eq!((declared.len(), source.parts, source.rows_expected), (105, 1, 1000));
    for ((name, declared), field) in declared.into_iter().zip(source.schema.fields()) {
        let declared = declared.trim_end_matches(',').strip_suffix(" not null").unwrap();
        let expected = match field.data_type() {
            DataType::Int16 => "smallint",
            DataType::Int32 => "integer",
            DataType::Int64 => "bigint",
            DataType::Date32 => "date",
            DataType::Timestamp(_, None) => "timestamp",
            DataType::Utf8View if name == "HitColor" => "char",
            DataType::Utf8View if name == "UserAgentMinor" => "varchar(255)",
            _ => "varchar",
        };
        assert_eq!((field.name().as_str(), expected), (name, declared));
        assert!(!field.is_nullable());
    }
    assert_eq!(rows_of(&source).num_rows(), 1000);
    let larger = clickbench::source(0.29);
    assert_eq!((larger.parts, larger.rows_expected), (3, 290_000));
}

#[test]
fn clickbench_is_made_in_parts_that_do_not_need_each_other() {
    // 16 blocks and one of 8 rows.
    let source = clickbench::source(0.13108);
    let last = || (source.part)(1).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!((source.parts, last().len(), last()[0].num_rows()), (2, 1, 8));
    assert_eq!(last(), last());
    let hits = rows_of(&clickbench::source(0.001));
    assert_eq!(hits, table(Benchmark::Clickbench, 0.001, "hits"));
    assert_ne!(hits.slice(0, 8), last()[0]);
}

/// Shares and distinct values per hundred rows, which real traffic has about as well.
#[test]
fn clickbench_is_skewed_and_in_the_order_of_time() {
    let hits = table(Benchmark::Clickbench, 0.05, "hits");
    let rows = hits.num_rows();
    let times = hits.column_by_name("EventTime").unwrap();
    let times = times.as_primitive::<TimestampMicrosecondType>().values();
    assert!(times.is_sorted());
    let day = |at: i64| at.div_euclid(86_400_000_000);
    // July 2013.
    assert_eq!((day(times[0]), day(times[rows - 1])), (15_887, 15_917));
    let distinct = |mut values: Vec<u64>| {
        values.sort_unstable();
        values.dedup();
        values.len() * 100 / rows
    };
    let longs = |name: &str| {
        let values = hits.column_by_name(name).unwrap().as_primitive::<Int64Type>().values();
        values.iter().map(|value| *value as u64).collect::<Vec<_>>()
    };
    let share = |name: &str, count: usize, expected: std::ops::Range<usize>| {
        let share = count * 1000 / rows;
        assert!(expected.contains(&share), "{name}: {share} per thousand");
    };
    assert_eq!(distinct(longs("WatchID")), 100);
    assert!((14..22).contains(&distinct(longs("UserID"))), "{}", distinct(longs("UserID")));
    // Small sites have few visits here, each of another page: 25, and 18 of a million rows.
    assert!((14..30).contains(&distinct(longs("URLHash"))), "{}", distinct(longs("URLHash")));
    let phrases = texts(&hits, "SearchPhrase");
    share("SearchPhrase", phrases.iter().filter(|p| !p.is_empty()).count(), 90..140);
    let counters = ints(&hits, "CounterID");
    share("CounterID", counters.iter().filter(|c| **c == 62).count(), 45..70);
    let advertisers = hits.column_by_name("AdvEngineID").unwrap().as_primitive::<Int16Type>();
    share("AdvEngineID", advertisers.values().iter().filter(|a| **a != 0).count(), 4..12);
    let length = texts(&hits, "URL").iter().map(|url| url.len()).sum::<usize>() / rows;
    assert!((60..=80).contains(&length), "addresses have {length} characters");
}

/// Through our loader: Arrow's CSV reader takes an empty string for NULL.
#[test]
fn clickbench_is_the_same_as_csv_and_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::new(Benchmark::Clickbench).unwrap();
    let loaded = |format: FileFormat| {
        let folder = folder.path().join(format.extension());
        let files = generate(Benchmark::Clickbench, 0.001, format, &folder, 2, &silent).unwrap();
        let engine = Engine::open(":memory:", Config::default()).unwrap();
        load(&engine, &workload, &files, &|_| Box::new(())).unwrap();
        let sql = "SELECT * FROM hits ORDER BY \"WatchID\"";
        let (schema, batches) = engine.block_on(collect(&engine.session(), sql)).unwrap();
        concat_batches(&schema, &batches).unwrap()
    };
    let csv = loaded(FileFormat::Csv);
    assert_eq!(csv.num_rows(), 1000);
    assert_eq!(csv, loaded(FileFormat::Parquet));
}

/// What only a million rows have, a twentieth of them has a twentieth of.
#[test]
fn every_clickbench_query_finds_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files =
        generate(Benchmark::Clickbench, 0.05, FileFormat::Parquet, folder.path(), 2, &silent);
    let file = files.unwrap()[0].files[0].to_string_lossy().into_owned();
    let engine = Engine::open(":memory:", Config::default()).unwrap();
    let session = engine.session();
    let run = |sql: &str| engine.block_on(collect(&session, sql)).map(|(_, batches)| batches);
    run(&format!("CREATE VIEW hits AS SELECT * FROM '{file}'")).unwrap();
    let workload = Workload::new(Benchmark::Clickbench).unwrap();
    assert_eq!(workload.queries.len(), 43);
    for (number, query) in workload.queries.iter().enumerate() {
        assert_eq!(query.name, format!("Q{number}"));
        let mut sql = query.statements[0].clone();
        for (of_all, of_these) in [
            ("> 100000", "> 5000"),
            ("offset 10000", "offset 500"),
            ("offset 1000", "offset 50"),
            ("offset 100", "offset 5"),
        ] {
            if sql.contains(of_all) {
                sql = sql.replace(of_all, of_these);
                break;
            }
        }
        let rows: usize = run(&sql).unwrap().iter().map(|batch| batch.num_rows()).sum();
        assert!(rows > 0, "{} finds nothing", query.name);
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for format in [FileFormat::Csv, FileFormat::Parquet] {
        let make = |threads: usize| {
            let folder = folder.path().join(format!("{threads}.{}", format.extension()));
            generate(Benchmark::Ssb, 0.06, format, &folder, threads, &silent).unwrap()
        };
        let (one, many) = (make(1), make(5));
        assert_eq!(bytes_of(&one), bytes_of(&many), "{format}");
        assert!(one.iter().all(|t| t.bytes > 0 && t.rows > 0));
    }
}

#[test]
fn csv_and_parquet_hold_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let make = |benchmark: Benchmark, format: FileFormat| {
        let folder = folder.path().join(format!("{}-{}", benchmark.name(), format.extension()));
        generate(benchmark, 0.001, format, &folder, 2, &silent).unwrap()
    };
    for benchmark in [Benchmark::Ssb, Benchmark::Tpch] {
        let csv = make(benchmark, FileFormat::Csv);
        let parquet = make(benchmark, FileFormat::Parquet);
        for (csv, parquet) in csv.iter().zip(&parquet) {
            let file = File::open(&parquet.files[0]).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let schema = reader.schema().clone();
            let batches: Vec<_> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
            let from_parquet = concat_batches(&schema, &batches).unwrap();
            let reader = ReaderBuilder::new(schema.clone())
                .with_header(true)
                .with_header_validation(true)
                .build(File::open(&csv.files[0]).unwrap())
                .unwrap();
            let batches: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
            let from_csv = concat_batches(&schema, &batches).unwrap();
            assert_eq!(from_csv, from_parquet, "{benchmark} {}", csv.name);
            assert_eq!(from_csv.num_rows() as u64, csv.rows);
        }
    }
}

#[test]
fn nulls_and_empty_strings_differ_in_csv() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Utf8View, true),
        Field::new("b", DataType::Int32, true),
    ]));
    let batch = RecordBatch::try_new(
        schema.clone(),
        vec![
            Arc::new(arrow::array::StringViewArray::from(vec![None, Some(""), Some("x")])),
            Arc::new(arrow::array::Int32Array::from(vec![Some(1), None, Some(-3)])),
        ],
    )
    .unwrap();
    let source = Source {
        name: "t",
        schema,
        rows_expected: 3,
        parts: 1,
        part: Box::new(move |_| Box::new(std::iter::once(Ok(batch.clone())))),
    };
    let folder = tempfile::tempdir().unwrap();
    write::write(&[source], FileFormat::Csv, folder.path(), 1, &silent).unwrap();
    let text = fs::read_to_string(folder.path().join("t.csv")).unwrap();
    assert_eq!(text, "a,b\n,1\n\"\",\nx,-3\n");
}

#[test]
fn a_finished_folder_is_reused_and_a_damaged_one_redone() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/ssb");
    let steps = AtomicU64::new(0);
    let make = || {
        generate(Benchmark::Ssb, 0.001, FileFormat::Csv, &folder, 2, &|_| {
            steps.fetch_add(1, Relaxed);
        })
    };
    let first = make().unwrap();
    let steps_first = steps.load(Relaxed);
    assert!(steps_first > 0);
    assert_eq!(make().unwrap(), first);
    assert_eq!(steps.load(Relaxed), steps_first, "nothing is made twice");
    assert_eq!(fs::read_dir(parent.path().join("a")).unwrap().count(), 1, "no other folder");

    let before = bytes_of(&first);
    fs::write(&first[1].files[0], "damaged").unwrap();
    assert_eq!(make().unwrap(), first);
    assert!(steps.load(Relaxed) > steps_first);
    assert_eq!(bytes_of(&first), before);
}

#[test]
fn what_an_interrupted_run_left_is_cleared() {
    let parent = tempfile::tempdir().unwrap();
    let partial = parent.path().join("ssb.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("lineorder.csv"), "half a li").unwrap();
    fs::write(partial.join("junk"), "").unwrap();
    let folder = parent.path().join("ssb");
    let tables = generate(Benchmark::Ssb, 0.001, FileFormat::Csv, &folder, 2, &silent).unwrap();
    assert!(!partial.exists());
    let mut names: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), tables.len() + 1, "{names:?}");
}

#[test]
fn refusals_name_the_object_and_the_way_out() {
    let parent = tempfile::tempdir().unwrap();
    let refused = |scale_factor, format, folder: &Path| {
        generate(Benchmark::Ssb, scale_factor, format, folder, 1, &silent).unwrap_err()
    };
    let folder = parent.path().join("ssb");
    for scale_factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        let e = refused(scale_factor, FileFormat::Csv, &folder);
        assert_eq!(e.kind(), Kind::User);
        assert!(e.hint_text().is_some(), "{e}");
    }

    generate(Benchmark::Ssb, 0.001, FileFormat::Csv, &folder, 1, &silent).unwrap();
    let e = refused(0.002, FileFormat::Csv, &folder);
    assert!(e.message().ends_with("ssb holds SSB at scale factor 0.001 as CSV"), "{e}");
    assert_eq!(refused(0.001, FileFormat::Parquet, &folder).kind(), Kind::User);

    let foreign = parent.path().join("photos");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("cat.jpg"), "meow").unwrap();
    let e = refused(0.001, FileFormat::Csv, &foreign);
    assert!(e.message().ends_with("photos holds other files"), "{e}");

    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let e = refused(0.001, FileFormat::Csv, &file.join("ssb"));
    assert_eq!(e.kind(), Kind::User);
    assert_eq!(refused(0.001, FileFormat::Csv, Path::new("/")).kind(), Kind::User);
}

#[test]
fn a_folder_in_use_by_another_run_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("ssb");
    let other = Staging::claim(&folder).unwrap();
    let make = || generate(Benchmark::Ssb, 0.001, FileFormat::Csv, &folder, 1, &silent);
    assert_eq!(make().unwrap_err().kind(), Kind::Conflict);
    drop(other);
    assert!(!parent.path().join("ssb.partial").exists(), "a failed run leaves nothing");
    make().unwrap();
}

/// The others wait for the part that never comes; they must not do so for ever.
#[test]
fn a_part_that_fails_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let one = |part: usize| -> Batches {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
        let column = Arc::new(arrow::array::Int32Array::from(vec![part as i32]));
        Box::new(std::iter::once(RecordBatch::try_new(schema, vec![column])))
    };
    let panics = tiny(100, move |part| if part == 7 { panic!("no seven") } else { one(part) });
    let fails = tiny(100, move |part| match part {
        0 => {
            std::thread::sleep(std::time::Duration::from_millis(50));
            Box::new(std::iter::once(Err(ArrowError::ComputeError("no zero".into()))))
        }
        _ => one(part),
    });
    for (source, words) in [(panics, "no seven"), (fails, "no zero")] {
        for threads in [1, 4] {
            let sources = std::slice::from_ref(&source);
            let e = write::write(sources, FileFormat::Csv, folder.path(), threads, &silent)
                .unwrap_err();
            assert_eq!(e.kind(), Kind::Internal);
            assert!(e.message().contains("tiny") && e.message().contains(words), "{e}");
        }
    }
}

#[test]
fn names_are_read_and_printed() {
    for benchmark in Benchmark::ALL {
        assert_eq!(benchmark.name().parse::<Benchmark>().unwrap(), benchmark);
        assert_eq!(benchmark.to_string().parse::<Benchmark>().unwrap(), benchmark);
    }
    let e = "tpcc".parse::<Benchmark>().unwrap_err();
    assert_eq!(e.to_string(), "there is no benchmark \"tpcc\"");
    assert_eq!("CSV".parse::<FileFormat>().unwrap(), FileFormat::Csv);
    assert!("orc".parse::<FileFormat>().is_err());
}
