//! Which queries run wholly on pipelines: the model and its text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::text::{Options, Table, titled};

/// What a plan has that is wholly on pipelines. The last is no operator of rows: it waits for the
/// pipelines of subqueries, and puts the one value of each where those of the query read it.
const OURS: [&str; 4] = ["PipelineExec", "Pipeline", "ScanExec", "ScalarSubqueryExec"];

/// The plans of one suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// `TPC-H SF 0.001`.
    pub data: String,
    pub queries: Vec<QueryCoverage>,
    /// How many of them are wholly on pipelines.
    pub whole: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryCoverage {
    pub query: String,
    /// 0: a scan does it all, or no part of it is covered.
    pub pipelines: usize,
    /// Operations of the pipelines that only a processor in the process that made the plan can run.
    #[serde(default)]
    pub opaque: usize,
    /// The operators that are not of pipelines and how often each is in the plan, the most frequent
    /// first.
    pub others: Vec<(String, usize)>,
}

impl QueryCoverage {
    /// `operators`: how often each is in the plan.
    pub fn new(query: &str, operators: BTreeMap<String, usize>, opaque: usize) -> QueryCoverage {
        let pipelines = operators.get("Pipeline").copied().unwrap_or(0);
        let others = operators.into_iter().filter(|(name, _)| !OURS.contains(&name.as_str()));
        let mut others: Vec<_> = others.collect();
        // Those of the same number stay in the order of their names.
        others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        QueryCoverage { query: query.to_string(), pipelines, opaque, others }
    }

    pub fn is_whole(&self) -> bool {
        self.others.is_empty()
    }
}

impl Coverage {
    pub fn new(data: String, queries: Vec<QueryCoverage>) -> Coverage {
        let whole = queries.iter().filter(|q| q.is_whole()).count();
        Coverage { data, queries, whole }
    }

    pub fn title(&self) -> String {
        format!("{}: what runs on pipelines", self.data)
    }

    /// `13 of 13 wholly on pipelines, 12 without an opaque operation`.
    pub fn remark(&self) -> String {
        let clear = self.queries.iter().filter(|q| q.is_whole() && q.opaque == 0).count();
        let (whole, all) = (self.whole, self.queries.len());
        format!("{whole} of {all} wholly on pipelines, {clear} without an opaque operation")
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |q: &QueryCoverage| {
            let other = |(name, count): &(String, usize)| match count {
                1 => name.clone(),
                count => format!("{count} {name}"),
            };
            let others = match q.is_whole() {
                true => "none".to_string(),
                false => q.others.iter().map(other).collect::<Vec<_>>().join(", "),
            };
            vec![q.query.clone(), q.pipelines.to_string(), q.opaque.to_string(), others]
        };
        self.queries.iter().map(row).collect()
    }
}

pub const HEADER: [&str; 4] = ["Query", "Pipelines", "Opaque", "Other operators"];

pub fn text(coverage: &Coverage, options: Options) -> String {
    let mut table = Table::new(&HEADER);
    coverage.rows().into_iter().for_each(|row| table.row(row));
    titled(&coverage.title(), table, options) + &format!("* {}\n", coverage.remark())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_query_is_whole_or_its_other_operators_are_named() {
        let expected = "\
TPC-H SF 0.001: what runs on pipelines
Query | Pipelines | Opaque |                                Other operators
------|-----------|--------|-----------------------------------------------
Q6    |         2 |      0 |                                           none
Q16   |         4 |      3 | 2 RepartitionExec, HashJoinExec, WindowAggExec
* 1 of 2 wholly on pipelines, 1 without an opaque operation
";
        assert_eq!(text(&sample::coverage(), Options::default()), expected);
    }
}
