//! The joins of well-known benchmarks, named in an unlucky order, with the statistics of
//! scale factor 1.

use super::{Stub, check, sessions};

fn ssb() -> Vec<(&'static str, Stub)> {
    vec![
        (
            "lineorder",
            Stub::new(6_001_215)
                .int("lo_custkey", 20_000, 1, 30_000)
                .int("lo_partkey", 200_000, 1, 200_000)
                .int("lo_suppkey", 2000, 1, 2000)
                .int("lo_orderdate", 2406, 19_920_101, 19_980_802)
                .int("lo_revenue", 3_000_000, 80_000, 10_474_950)
                .int("lo_supplycost", 13_000, 54_000, 125_000),
        ),
        (
            "customer",
            Stub::new(30_000).key("c_custkey").text("c_nation", 25, "ALGERIA", "VIETNAM").text(
                "c_region",
                5,
                "AFRICA",
                "MIDDLE EAST",
            ),
        ),
        (
            "supplier",
            Stub::new(2000).key("s_suppkey").text("s_nation", 25, "ALGERIA", "VIETNAM").text(
                "s_region",
                5,
                "AFRICA",
                "MIDDLE EAST",
            ),
        ),
        (
            "part",
            Stub::new(200_000)
                .key("p_partkey")
                .text("p_mfgr", 5, "MFGR#1", "MFGR#5")
                .text("p_category", 25, "MFGR#11", "MFGR#55")
                .text("p_brand1", 1000, "MFGR#1101", "MFGR#5540"),
        ),
        (
            "date",
            Stub::new(2556)
                .int("d_datekey", 2556, 19_920_101, 19_981_230)
                .int("d_year", 7, 1992, 1998),
        ),
    ]
}

fn tpch() -> Vec<(&'static str, Stub)> {
    vec![
        ("region", Stub::new(5).key("r_regionkey").text("r_name", 5, "AFRICA", "MIDDLE EAST")),
        (
            "nation",
            Stub::new(25).key("n_nationkey").text("n_name", 25, "ALGERIA", "VIETNAM").int(
                "n_regionkey",
                5,
                1,
                5,
            ),
        ),
        ("supplier", Stub::new(10_000).key("s_suppkey").int("s_nationkey", 25, 1, 25)),
        ("customer", Stub::new(150_000).key("c_custkey").int("c_nationkey", 25, 1, 25)),
        (
            "part",
            Stub::new(200_000)
                .key("p_partkey")
                .text("p_name", 199_997, "almond antique", "yellow white")
                .text("p_type", 150, "ECONOMY ANODIZED BRASS", "STANDARD POLISHED TIN"),
        ),
        (
            "partsupp",
            Stub::new(800_000)
                .int("ps_partkey", 200_000, 1, 200_000)
                .int("ps_suppkey", 10_000, 1, 10_000)
                .decimal("ps_supplycost", 99_901, 100, 100_000),
        ),
        (
            "orders",
            Stub::new(1_500_000)
                .int("o_orderkey", 1_500_000, 1, 6_000_000)
                .int("o_custkey", 99_996, 1, 150_000)
                .date("o_orderdate", 2406, 8035, 10_440),
        ),
        (
            "lineitem",
            Stub::new(6_001_215)
                .int("l_orderkey", 1_500_000, 1, 6_000_000)
                .int("l_partkey", 200_000, 1, 200_000)
                .int("l_suppkey", 10_000, 1, 10_000)
                .decimal("l_extendedprice", 933_900, 90_100, 10_494_950)
                .decimal("l_discount", 11, 0, 10)
                .int("l_quantity", 50, 1, 50)
                .date("l_shipdate", 2526, 8037, 10_561),
        ),
    ]
}

fn tpcds() -> Vec<(&'static str, Stub)> {
    vec![
        (
            "catalog_sales",
            Stub::new(1_441_548)
                .int("cs_item_sk", 18_000, 1, 18_000)
                .int("cs_order_number", 160_000, 1, 160_000)
                .int("cs_bill_cdemo_sk", 140_000, 1, 1_920_800)
                .int("cs_bill_hdemo_sk", 7200, 1, 7200)
                .int("cs_sold_date_sk", 1836, 2_450_815, 2_452_654)
                .int("cs_ship_date_sk", 1933, 2_450_817, 2_452_744)
                .int("cs_promo_sk", 300, 1, 300)
                .int("cs_quantity", 100, 1, 100),
        ),
        (
            "catalog_returns",
            Stub::new(144_067).int("cr_item_sk", 17_999, 1, 18_000).int(
                "cr_order_number",
                94_000,
                1,
                160_000,
            ),
        ),
        (
            "inventory",
            Stub::new(11_745_000)
                .int("inv_date_sk", 261, 2_450_815, 2_452_635)
                .int("inv_item_sk", 18_000, 1, 18_000)
                .int("inv_warehouse_sk", 5, 1, 5)
                .int("inv_quantity_on_hand", 1001, 0, 1000),
        ),
        ("warehouse", Stub::new(5).key("w_warehouse_sk").text("w_warehouse_name", 5, "A", "Z")),
        (
            "item",
            Stub::new(18_000)
                .key("i_item_sk")
                .text("i_item_desc", 14_000, "A", "Youthful")
                .text("i_color", 92, "almond", "yellow")
                .decimal("i_current_price", 2800, 9, 9999),
        ),
        (
            "customer_demographics",
            Stub::new(1_920_800).key("cd_demo_sk").text("cd_marital_status", 5, "D", "W"),
        ),
        (
            "household_demographics",
            Stub::new(7200).key("hd_demo_sk").int("hd_income_band_sk", 20, 1, 20).text(
                "hd_buy_potential",
                6,
                "0-500",
                "Unknown",
            ),
        ),
        ("income_band", Stub::new(20).key("ib_income_band_sk")),
        (
            "date_dim",
            Stub::new(73_049)
                .int("d_date_sk", 73_049, 2_415_022, 2_488_070)
                .date("d_date", 73_049, -25_567, 47_481)
                .int("d_week_seq", 10_436, 1, 10_436)
                .int("d_year", 201, 1900, 2100),
        ),
        ("promotion", Stub::new(300).key("p_promo_sk")),
        (
            "store_sales",
            Stub::new(2_880_404)
                .int("ss_item_sk", 18_000, 1, 18_000)
                .int("ss_ticket_number", 240_000, 1, 240_000)
                .int("ss_customer_sk", 90_000, 1, 100_000)
                .int("ss_cdemo_sk", 250_000, 1, 1_920_800)
                .int("ss_hdemo_sk", 7200, 1, 7200)
                .int("ss_addr_sk", 50_000, 1, 50_000)
                .int("ss_store_sk", 6, 1, 12)
                .int("ss_promo_sk", 300, 1, 300)
                .int("ss_sold_date_sk", 1823, 2_450_816, 2_452_642)
                .decimal("ss_list_price", 19_000, 100, 20_000),
        ),
        (
            "store_returns",
            Stub::new(287_514).int("sr_item_sk", 18_000, 1, 18_000).int(
                "sr_ticket_number",
                168_000,
                1,
                240_000,
            ),
        ),
        ("store", Stub::new(12).key("s_store_sk").text("s_store_name", 8, "able", "ought")),
        (
            "customer",
            Stub::new(100_000)
                .key("c_customer_sk")
                .int("c_current_cdemo_sk", 97_000, 1, 1_920_800)
                .int("c_current_hdemo_sk", 7200, 1, 7200)
                .int("c_current_addr_sk", 43_000, 1, 50_000)
                .int("c_first_sales_date_sk", 3644, 2_448_998, 2_452_648)
                .int("c_first_shipto_date_sk", 3644, 2_449_028, 2_452_678),
        ),
        ("customer_address", Stub::new(50_000).key("ca_address_sk").text("ca_city", 977, "A", "Z")),
    ]
}

#[tokio::test]
async fn ssb_q2_1() {
    let sql = "SELECT sum(lo_revenue), d_year, p_brand1 FROM date, lineorder, supplier, part \
        WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey \
        AND p_category = 'MFGR#12' AND s_region = 'AMERICA' GROUP BY d_year, p_brand1";
    check(&sessions(ssb()), sql, "(date (supplier (part lineorder)))", 5.0).await;
}

#[tokio::test]
async fn ssb_q4_1() {
    let sql = "SELECT d_year, c_nation, sum(lo_revenue - lo_supplycost) \
        FROM date, part, lineorder, customer, supplier \
        WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey \
        AND lo_orderdate = d_datekey AND c_region = 'AMERICA' AND s_region = 'AMERICA' \
        AND (p_mfgr = 'MFGR#1' OR p_mfgr = 'MFGR#2') GROUP BY d_year, c_nation";
    check(&sessions(ssb()), sql, "(date (part (customer (supplier lineorder))))", 4.0).await;
}

#[tokio::test]
async fn tpch_q5() {
    let sql = "SELECT n_name, sum(l_extendedprice * (1 - l_discount)) \
        FROM customer, supplier, lineitem, orders, nation, region \
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey \
        AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey \
        AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01' \
        GROUP BY n_name";
    check(
        &sessions(tpch()),
        sql,
        "(supplier ((((region nation) customer) orders) lineitem))",
        10.0,
    )
    .await;
}

#[tokio::test]
async fn tpch_q7() {
    let sql = "SELECT supp_nation, cust_nation, l_year, sum(volume) FROM ( \
        SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, \
          extract(year FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume \
        FROM nation n2, customer, orders, lineitem, supplier, nation n1 \
        WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey \
        AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey \
        AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')) \
        AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping \
        GROUP BY supp_nation, cust_nation, l_year";
    check(&sessions(tpch()), sql, "(((n2 customer) orders) ((n1 supplier) lineitem))", 1.0).await;
}

#[tokio::test]
async fn tpch_q8() {
    let sql = "SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) FROM ( \
        SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation \
        FROM lineitem, orders, customer, supplier, nation n1, nation n2, region, part \
        WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey \
        AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey \
        AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey \
        AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' \
        AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations GROUP BY o_year";
    check(
        &sessions(tpch()),
        sql,
        "(n2 (((region n1) (((part lineitem) orders) customer)) supplier))",
        20.0,
    )
    .await;
}

#[tokio::test]
async fn tpch_q9() {
    let sql = "SELECT nation, o_year, sum(amount) FROM ( \
        SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year, \
          l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount \
        FROM orders, lineitem, partsupp, supplier, nation, part \
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey \
        AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey \
        AND p_name LIKE '%green%') AS profit GROUP BY nation, o_year";
    check(&sessions(tpch()), sql, "((((nation supplier) (part partsupp)) lineitem) orders)", 2.0)
        .await;
}

#[tokio::test]
async fn tpcds_q72() {
    let sql = "SELECT i_item_desc, w_warehouse_name, d1.d_week_seq, count(*) \
        FROM catalog_sales JOIN inventory ON (cs_item_sk = inv_item_sk) \
        JOIN warehouse ON (w_warehouse_sk = inv_warehouse_sk) JOIN item ON (i_item_sk = cs_item_sk) \
        JOIN customer_demographics ON (cs_bill_cdemo_sk = cd_demo_sk) \
        JOIN household_demographics ON (cs_bill_hdemo_sk = hd_demo_sk) \
        JOIN date_dim d1 ON (cs_sold_date_sk = d1.d_date_sk) \
        JOIN date_dim d2 ON (inv_date_sk = d2.d_date_sk) \
        JOIN date_dim d3 ON (cs_ship_date_sk = d3.d_date_sk) \
        LEFT JOIN promotion ON (cs_promo_sk = p_promo_sk) \
        LEFT JOIN catalog_returns ON (cr_item_sk = cs_item_sk AND cr_order_number = cs_order_number) \
        WHERE d1.d_week_seq = d2.d_week_seq AND inv_quantity_on_hand < cs_quantity \
        AND d3.d_date > d1.d_date + INTERVAL '5' DAY AND hd_buy_potential = '>10000' \
        AND d1.d_year = 1999 AND cd_marital_status = 'D' \
        GROUP BY i_item_desc, w_warehouse_name, d1.d_week_seq";
    check(&sessions(tpcds()), sql, "Left(Left((((((((household_demographics (d1 catalog_sales)) customer_demographics) d3) d2) inventory) item) warehouse) promotion) catalog_returns)", 20.0).await;
}

#[tokio::test]
async fn tpcds_q64() {
    let sql = "SELECT i_item_sk, s_store_name, count(*) \
        FROM date_dim d1, date_dim d2, date_dim d3, customer_demographics cd1, customer_demographics cd2, \
          household_demographics hd1, household_demographics hd2, customer_address ad1, customer_address ad2, \
          income_band ib1, income_band ib2, promotion, store, customer, item, store_returns, store_sales, \
          (SELECT cs_item_sk AS cs_ui_item, sum(cs_quantity) AS sold FROM catalog_sales, catalog_returns \
           WHERE cs_item_sk = cr_item_sk AND cs_order_number = cr_order_number GROUP BY cs_item_sk) cs_ui \
        WHERE ss_store_sk = s_store_sk AND ss_sold_date_sk = d1.d_date_sk AND ss_customer_sk = c_customer_sk \
        AND ss_cdemo_sk = cd1.cd_demo_sk AND ss_hdemo_sk = hd1.hd_demo_sk AND ss_addr_sk = ad1.ca_address_sk \
        AND ss_item_sk = i_item_sk AND ss_item_sk = sr_item_sk AND ss_ticket_number = sr_ticket_number \
        AND ss_item_sk = cs_ui_item AND c_current_cdemo_sk = cd2.cd_demo_sk \
        AND c_current_hdemo_sk = hd2.hd_demo_sk AND c_current_addr_sk = ad2.ca_address_sk \
        AND c_first_sales_date_sk = d2.d_date_sk AND c_first_shipto_date_sk = d3.d_date_sk \
        AND ss_promo_sk = p_promo_sk AND hd1.hd_income_band_sk = ib1.ib_income_band_sk \
        AND hd2.hd_income_band_sk = ib2.ib_income_band_sk AND cd1.cd_marital_status <> cd2.cd_marital_status \
        AND i_color IN ('purple', 'burlywood', 'indian') AND i_current_price BETWEEN 64 AND 74 \
        AND d1.d_year = 1999 GROUP BY i_item_sk, s_store_name";
    check(&sessions(tpcds()), sql, "((((((((((((((store (((item RightSemi(catalog_returns catalog_sales)) store_returns) store_sales)) promotion) d1) hd1) ib1) ad1) customer) hd2) ib2) ad2) d3) d2) cd2) cd1)", 2.0).await;
}
