//! Joins and sorts that memory is refused for, beside the same without a limit.

use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;

use crate::{Config, Engine, Session};

struct Tables {
    engine: Arc<Engine>,
    session: Session,
}

impl Tables {
    /// `small` fits 3 MiB, `large` and `wide` do not.
    fn new(memory_bytes_max: Option<u64>) -> Self {
        let config = Config { threads: 2, memory_bytes_max, ..Config::default() };
        let engine = Engine::open(":memory:", config).unwrap();
        let tables = Tables { session: engine.session(), engine };
        for sql in [
            "CREATE TABLE large AS SELECT value % 28000 AS k, value AS n, \
             CASE WHEN value % 11 > 0 THEN value % 20000 END AS m, \
             'some text that is not short ' || (value % 36000)::VARCHAR AS t FROM range(0, 80000)",
            "CREATE TABLE wide AS SELECT value + 12000 AS k, value AS w, \
             CASE WHEN value % 7 > 0 THEN value END AS m, \
             CASE WHEN value % 2 = 0 THEN 0.0 ELSE -0.0 END * value AS f, \
             (value / 4)::DECIMAL(30, 2) AS d, \
             'some text that is not short ' || value::VARCHAR AS t FROM range(0, 48000)",
            "CREATE TABLE small AS SELECT value * 3 AS k, value AS s FROM range(0, 3000)",
        ] {
            tables.run(sql);
        }
        tables
    }

    fn run(&self, sql: &str) -> String {
        let batches =
            self.engine.block_on(async { self.session.query(sql).await?.collect().await });
        let batches = batches.unwrap_or_else(|e| panic!("{sql}: {e:#}"));
        pretty_format_batches(&batches).unwrap().to_string()
    }

    /// Rows in no order.
    fn rows(&self, sql: &str) -> Vec<String> {
        let mut rows: Vec<_> = self.run(sql).lines().map(str::to_string).collect();
        rows.sort_unstable();
        rows
    }
}

const WHOLE: &str = "count(*), count(a.k), count(b.k), sum(a.n), sum(b.w), min(a.t), max(b.t)";

#[test]
fn tables_in_parts_give_what_whole_ones_give() {
    let (limited, unlimited) = (Tables::new(Some(3 << 20)), Tables::new(None));
    let mut joins = vec![];
    for (i, kind) in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"].into_iter().enumerate() {
        let conditions = [
            "a.k = b.k",
            "a.t = b.t",
            "a.k = b.k AND a.n % 3 < b.w % 5",
            "a.m IS NOT DISTINCT FROM b.m AND a.n % 1000 = b.w % 1000",
            "a.n * 0.0 = b.f AND a.k = b.k",
            "(a.k / 4)::DECIMAL(30, 2) = b.d AND a.t = b.t",
        ];
        // Half of all pairs, which takes half the time.
        for on in conditions.iter().skip(i % 2).step_by(2) {
            joins.push(format!("SELECT {WHOLE} FROM large a {kind} wide b ON {on}"));
        }
    }
    joins.extend(
        [
            "SELECT count(*), sum(n), min(t) FROM large a WHERE EXISTS (SELECT 1 FROM wide b WHERE a.t = b.t AND a.n <> b.w)",
            "SELECT count(*), sum(w), min(t) FROM wide a WHERE NOT EXISTS (SELECT 1 FROM large b WHERE a.t = b.t AND b.n % 2 = 0)",
            "SELECT count(*), sum(n) FROM large a WHERE EXISTS (SELECT 1 FROM wide b WHERE a.t = b.t) OR a.n < 1000",
            "SELECT count(*), sum(w) FROM wide WHERE t NOT IN (SELECT t FROM large WHERE n % 5 > 0)",
            "SELECT count(*), sum(w) FROM wide WHERE m NOT IN (SELECT m FROM large WHERE m > 100)",
            "SELECT count(*), sum(w) FROM wide WHERE m NOT IN (SELECT m FROM large)",
            // One after the other, in one pipeline and with a table in memory between them.
            "SELECT count(*), sum(a.n + b.w + c.n), max(b.t || c.t) FROM large a JOIN wide b ON a.k = b.k \
             JOIN small s ON a.n % 7000 = s.k JOIN large c ON b.t = c.t",
            "SELECT count(*), sum(a.n), sum(b.w), sum(c.n) FROM large a LEFT JOIN wide b ON a.t = b.t \
             FULL JOIN large c ON b.w = c.n",
            // Groups that go to files, too; and what is asked for twice.
            "SELECT count(*), sum(g), max(t) FROM (SELECT b.t, a.n % 40000 AS n, count(*) AS g \
             FROM large a JOIN wide b ON a.k = b.k GROUP BY 1, 2)",
            "WITH j AS (SELECT a.k, sum(b.w) AS s FROM large a JOIN wide b ON a.t = b.t GROUP BY a.k) \
             SELECT count(*), sum(x.s - y.s) FROM j x JOIN j y ON x.k = y.k + 1",
            // Rows as they come.
            "SELECT a.n, b.w, b.t FROM large a JOIN wide b ON a.k = b.k WHERE a.n % 977 = 3",
            "SELECT a.n, b.w FROM large a FULL JOIN wide b ON a.t = b.t WHERE coalesce(a.n, b.w) % 499 = 3",
        ]
        .map(str::to_string),
    );
    let mut spilled = 0;
    for sql in &joins {
        assert_eq!(limited.rows(sql), unlimited.rows(sql), "{sql}");
        let plan = limited.run(&format!("EXPLAIN ANALYZE {sql}"));
        assert!(!plan.contains("given_up"), "{sql}: {plan}");
        spilled += usize::from(plan.contains("spill_count=") && !plan.contains("spill_count=0"));
    }
    assert!(spilled * 4 > joins.len() * 3, "{spilled} of {} spilled", joins.len());
}

#[test]
fn sorts_in_files_give_what_those_in_memory_give() {
    let (limited, unlimited) = (Tables::new(Some(3 << 20)), Tables::new(None));
    for sql in [
        "SELECT * FROM large ORDER BY t, n",
        "SELECT t FROM large ORDER BY m DESC NULLS LAST, n",
        "SELECT n FROM large ORDER BY t DESC, n LIMIT 5 OFFSET 79990",
        "SELECT a.n, b.t FROM large a JOIN wide b ON a.k = b.k ORDER BY b.t, a.n",
        "SELECT f, d, t, t || w FROM wide ORDER BY f DESC, w",
        "SELECT t, count(*) AS c, max(n) FROM large GROUP BY t ORDER BY c, t",
    ] {
        assert_eq!(limited.run(sql), unlimited.run(sql), "{sql}");
        let plan = limited.run(&format!("EXPLAIN ANALYZE {sql}"));
        assert!(!plan.contains("given_up"), "{sql}: {plan}");
        let has_spilled = plan.contains("spill_count=") && !plan.contains("spill_count=0");
        assert!(has_spilled, "{sql}: {plan}");
    }
}

#[test]
fn ordered_aggregates_and_whole_partitions_in_files_give_what_those_in_memory_give() {
    let (limited, unlimited) = (Tables::new(Some(3 << 20)), Tables::new(None));
    for sql in [
        "SELECT count(*), min(x), max(x), sum(length(x)) \
         FROM (SELECT k, string_agg(t, ',' ORDER BY n DESC) AS x FROM large GROUP BY k)",
        "SELECT count(*), sum(x[1]), sum(x[2]) \
         FROM (SELECT t, array_agg(n ORDER BY m, n) AS x FROM large GROUP BY t)",
        "SELECT count(*), min(t), max(t), sum(n) \
         FROM (SELECT DISTINCT ON (t) t, n FROM large ORDER BY t, m DESC, n)",
        "SELECT count(*), sum(c), sum(s) FROM (SELECT count(*) OVER (PARTITION BY t || '.') AS c, \
         sum(n) OVER (PARTITION BY t || '.') AS s FROM large)",
        "SELECT n, max(n) OVER (PARTITION BY m % 100) FROM large WHERE n % 997 = 3",
    ] {
        assert_eq!(limited.rows(sql), unlimited.rows(sql), "{sql}");
    }
}
