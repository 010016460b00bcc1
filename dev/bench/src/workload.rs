//! What is asked: the queries of each benchmark, and the tables they are asked of.

use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};
use thalweg_engine::Session;

use crate::generate::Benchmark;

/// A query as the benchmark numbers it. Two TPC-DS templates are of two statements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Query {
    /// As in tables: `Q1.1`, `Q7`; of operations `moving_sum`.
    pub name: String,
    /// As the benchmark numbers it, where it does so with a whole number: ClickBench from 0.
    pub number: usize,
    pub statements: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Workload {
    pub benchmark: Benchmark,
    pub queries: Vec<Query>,
    /// One `CREATE TABLE` per table.
    pub schema: &'static str,
}

macro_rules! texts {
    ($folder:literal: $($name:literal)*) => {
        [$(($name, include_str!(concat!("../queries/", $folder, "/q", $name, ".sql")))),*]
    };
}

const SSB: [(&str, &str); 13] = texts!("ssb":
    "1.1" "1.2" "1.3" "2.1" "2.2" "2.3" "3.1" "3.2" "3.3" "3.4" "4.1" "4.2" "4.3");

const TPCDS: [(&str, &str); 99] = texts!("tpcds":
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19"
    "20" "21" "22" "23" "24" "25" "26" "27" "28" "29" "30" "31" "32" "33" "34" "35" "36" "37" "38"
    "39" "40" "41" "42" "43" "44" "45" "46" "47" "48" "49" "50" "51" "52" "53" "54" "55" "56" "57"
    "58" "59" "60" "61" "62" "63" "64" "65" "66" "67" "68" "69" "70" "71" "72" "73" "74" "75" "76"
    "77" "78" "79" "80" "81" "82" "83" "84" "85" "86" "87" "88" "89" "90" "91" "92" "93" "94" "95"
    "96" "97" "98" "99");

const TPCH: [(&str, &str); 22] = texts!("tpch":
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19"
    "20" "21" "22");

const CLICKBENCH: [(&str, &str); 43] = texts!("clickbench":
    "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19" "20"
    "21" "22" "23" "24" "25" "26" "27" "28" "29" "30" "31" "32" "33" "34" "35" "36" "37" "38" "39"
    "40" "41" "42");

macro_rules! operations {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../queries/operations/", $name, ".sql")))),*]
    };
}

const OPERATIONS: [(&str, &str); 65] = operations!(
    "array_agg" "cast_text" "coalesce" "correlated" "count_distinct_group"
    "count_distinct_integer" "count_distinct_text" "count_filter" "date_parts" "deviation"
    "distinct_pairs" "except" "first_last" "group_case" "group_day"
    "group_few" "group_hour" "group_many" "group_substring" "group_text"
    "group_two" "having" "in_list" "intersect" "join_anti"
    "join_group" "join_inequality" "join_left" "join_range" "join_self"
    "join_semi" "join_text" "lag_partition" "lag_text" "latest"
    "like_inside" "like_prefix" "max_by" "median" "min_max_text"
    "moving_average" "moving_range" "moving_sum" "ntile" "rank_partition"
    "regexp" "rollup" "row_number" "row_number_integer" "running_sum"
    "running_total" "share" "sort_deep" "sort_text" "string_agg"
    "sum_case" "sum_expression" "sum_filter" "text_functions" "top_k"
    "top_k_filter" "top_k_text" "top_per_group" "union_all" "union_distinct");

impl Workload {
    pub fn new(benchmark: Benchmark) -> Result<Workload> {
        let (queries, schema) = match benchmark {
            Benchmark::Ssb => (numbered(&SSB)?, include_str!("../schemas/ssb.sql")),
            Benchmark::Tpcds => (numbered(&TPCDS)?, include_str!("../schemas/tpcds.sql")),
            Benchmark::Tpch => (numbered(&TPCH)?, include_str!("../schemas/tpch.sql")),
            Benchmark::Clickbench => {
                (numbered(&CLICKBENCH)?, include_str!("../schemas/clickbench.sql"))
            }
            Benchmark::Operations => {
                (named(&OPERATIONS)?, include_str!("../schemas/operations.sql"))
            }
        };
        Ok(Workload { benchmark, queries, schema })
    }

    /// Only the queries of these names (`Q1.1` or `1.1`); all if there are none.
    pub fn only(mut self, names: &[String]) -> Result<Workload> {
        let plain = |name: &str| unpadded(name.trim_start_matches(['Q', 'q'])).to_string();
        for name in names {
            if !self.queries.iter().any(|q| plain(&q.name) == plain(name)) {
                return Err(Error::user(format!("{} has no query \"{name}\"", self.benchmark)));
            }
        }
        if !names.is_empty() {
            self.queries.retain(|q| names.iter().any(|n| plain(n) == plain(&q.name)));
        }
        Ok(self)
    }

    /// The query of this name, as in `Q9`.
    pub fn find(&self, name: &str) -> Result<&Query> {
        let found = self.queries.iter().find(|q| q.name == name);
        found.ok_or_else(|| Error::internal(format!("{} has no query {name}", self.benchmark)))
    }
}

fn numbered(texts: &[(&'static str, &'static str)]) -> Result<Vec<Query>> {
    let query = |(i, (name, text)): (usize, &(&str, &'static str))| {
        let statements = Session::split(text)?;
        let number = name.parse().unwrap_or(i + 1);
        Ok(Query { name: format!("Q{}", unpadded(name)), number, statements })
    };
    texts.iter().enumerate().map(query).collect()
}

fn named(texts: &[(&str, &'static str)]) -> Result<Vec<Query>> {
    let query = |(i, (name, text)): (usize, &(&str, &'static str))| {
        Ok(Query { name: name.to_string(), number: i + 1, statements: Session::split(text)? })
    };
    texts.iter().enumerate().map(query).collect()
}

/// `3` for `03`, and `0` for itself.
fn unpadded(name: &str) -> &str {
    let rest = name.trim_start_matches('0');
    if rest.is_empty() { name } else { rest }
}
