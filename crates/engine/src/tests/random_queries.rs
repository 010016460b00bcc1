//! Random queries over random tables have the same rows on pipelines as on DataFusion's operators.

use arrow::util::display::{ArrayFormatter, FormatOptions};
use thalweg_base::Prng;

use crate::config::Config;
use crate::engine::Engine;
use crate::session::Session;

fn rows(engine: &Engine, session: &Session, sql: &str) -> Result<Vec<String>, String> {
    let collected = engine.block_on(async { session.query(sql).await?.collect().await });
    let options = FormatOptions::new().with_null("NULL");
    let mut rows = vec![];
    for batch in collected.map_err(|e| format!("{e:#}"))? {
        let columns = batch.columns().iter();
        let columns: Vec<_> =
            columns.map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let values = columns.iter().map(|c| c.value(row).to_string());
            rows.push(values.collect::<Vec<_>>().join(" | "));
        }
    }
    rows.sort();
    Ok(rows)
}

struct Generator {
    random: Prng,
}

impl Generator {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.below(from.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    /// A column of a table that goes by this name.
    fn column(&mut self, table: &str) -> String {
        format!("{table}.{}", self.pick(&["i", "b", "s", "d", "t", "u"]))
    }

    fn condition(&mut self, table: &str) -> String {
        match self.random.below(10) {
            0 => format!("{table}.i < {}", self.random.below(40)),
            1 => format!("{table}.b BETWEEN {} AND 900", self.random.below(500)),
            2 => format!("{table}.s IN ('s1', 's3', 's17', 'none')"),
            3 => format!("{table}.s LIKE '%1%'"),
            4 => format!("{table}.d * 2 > {}.5", self.random.below(300)),
            5 => format!("{table}.t >= DATE '2024-02-01'"),
            6 => format!("{table}.i IS NULL OR {table}.s <> 's2'"),
            7 => format!("NOT ({table}.u > 3)"),
            8 => format!("{table}.s = {table}.v"),
            _ => format!("{table}.b % 3 = 1 AND {table}.i IS NOT NULL"),
        }
    }

    /// Two tables, or a third as well, and what they go by.
    fn from(&mut self) -> (String, Vec<&'static str>) {
        let mut from = format!("{} x", self.pick(&["p", "q", "r", "e"]));
        let mut names = vec!["x"];
        for name in ["y", "z"] {
            if self.one_in(2) {
                break;
            }
            let kind = self.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
            let key = self.pick(&["i", "b", "s", "d", "t"]);
            let last = names[names.len() - 1];
            from += &format!(
                " {kind} {} {name} ON {last}.{key} = {name}.{key}",
                self.pick(&["p", "q", "r", "e"])
            );
            if self.one_in(3) {
                let other = self.pick(&["i", "s", "t"]);
                from += &format!(" AND {last}.{other} = {name}.{other}");
            }
            if self.one_in(4) {
                from += &format!(" AND {last}.u < {name}.u");
            }
            names.push(name);
        }
        (from, names)
    }

    /// Each row of a table, with functions of those around it.
    fn windows(&mut self) -> String {
        let table = self.pick(&["p", "p", "q", "r", "e"]);
        let mut outputs = vec!["x.k".to_string()];
        for i in 0..1 + self.random.below(4) {
            let partition = self.pick(&["", "", "PARTITION BY x.s", "PARTITION BY x.i, x.u"]);
            let order =
                self.pick(&["x.k", "x.k", "x.s DESC NULLS LAST, x.k", "x.d", "x.t DESC", ""]);
            // Only with a key are places in the order those of the rows.
            let placed = order.ends_with("x.k");
            let frames = ["", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"];
            let grouped = [
                "GROUPS BETWEEN 1 PRECEDING AND 2 FOLLOWING",
                "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            ];
            let rows = [
                "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
                "ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
                "ROWS UNBOUNDED PRECEDING",
            ];
            let frame = match self.random.below(3) {
                0 => self.pick(&frames),
                1 if !order.is_empty() => self.pick(&grouped),
                2 if placed => self.pick(&rows),
                _ => "",
            };
            let any = [
                "count(*)",
                "count(x.i)",
                "sum(x.b)",
                "sum(x.i)",
                "sum(x.d)",
                "avg(x.d)",
                "min(x.s)",
                "max(x.t)",
                "min(x.d)",
                "max(x.b)",
                "rank()",
                "dense_rank()",
                "percent_rank()",
                "cume_dist()",
                "avg(x.b)",
                "median(x.b)",
                "count(x.s) FILTER (WHERE x.u > 2)",
            ];
            let of_places = [
                "row_number()",
                "ntile(4)",
                "lag(x.s)",
                "lead(x.d, 2)",
                "lag(x.b, 3, -7)",
                "first_value(x.d)",
                "last_value(x.s)",
                "nth_value(x.b, 2)",
                "lead(x.i, -1, 5)",
                "first_value(x.i) IGNORE NULLS",
                "nth_value(x.d, -2)",
            ];
            let function = match placed && self.one_in(2) {
                true => self.pick(&of_places),
                false => self.pick(&any),
            };
            let order = if order.is_empty() { String::new() } else { format!("ORDER BY {order}") };
            outputs.push(format!("{function} OVER ({partition} {order} {frame}) AS w{i}"));
        }
        let filter = match self.one_in(2) {
            true => format!(" WHERE {}", self.condition("x")),
            false => String::new(),
        };
        format!("SELECT {} FROM {table} x{filter}", outputs.join(", "))
    }

    /// Of one table or two: three may have millions of rows together.
    fn one_or_two(&mut self) -> (String, Vec<&'static str>) {
        loop {
            let (from, names) = self.from();
            if names.len() < 3 {
                return (from, names);
            }
        }
    }

    /// Groups of several sizes.
    fn grouping_sets(&mut self) -> String {
        let (from, names) = self.one_or_two();
        let mut keys: Vec<String> = (0..1 + self.random.below(3))
            .map(|_| {
                let name = self.pick(&names);
                self.column(name)
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let all = keys.join(", ");
        let sets = match self.random.below(4) {
            0 => format!("ROLLUP ({all})"),
            1 => format!("CUBE ({all})"),
            2 => format!("GROUPING SETS (({all}), ({}), ())", keys[0]),
            _ => {
                let single: Vec<String> = keys.iter().map(|k| format!("({k})")).collect();
                format!("GROUPING SETS ({}, ({}))", single.join(", "), keys[0])
            }
        };
        let name = self.pick(&names);
        let functions = self.pick(&[
            "count(*), sum(?.b), avg(?.d)",
            "count(?.i), min(?.s), max(?.t), sum(?.d)",
            "avg(?.b), avg(?.d), sum(?.i) FILTER (WHERE ?.u > 2)",
            "count(DISTINCT ?.s), sum(?.b)",
        ]);
        let functions = functions.replace('?', name);
        format!("SELECT {all}, grouping({}), {functions} FROM {from} GROUP BY {sets}", keys[0])
    }

    /// Groups by texts of a small table that is joined to a large one.
    fn texts_of_a_table(&mut self) -> String {
        let keys = self.pick(&["r.s", "r.s, r.v", "r.s, p.u", "r.v, r.t, r.s", "p.u, r.s, r.i"]);
        let on = self.pick(&["p.i = r.k", "p.u = r.k", "p.k = r.k", "p.i = r.k AND p.b > r.b"]);
        let functions = self.pick(&[
            "count(*), sum(p.b), avg(p.d)",
            "avg(p.b), count(p.s) FILTER (WHERE p.b > 300), avg(p.d), min(p.t)",
            "sum(r.d), max(p.s), min(p.d), count(r.i)",
            "avg(r.b), max(r.v)",
        ]);
        let grouped = match self.one_in(3) {
            true => format!("ROLLUP ({keys})"),
            false => keys.to_string(),
        };
        format!("SELECT {keys}, {functions} FROM p JOIN r ON {on} GROUP BY {grouped}")
    }

    /// Groups that are asked for more than once.
    fn shared(&mut self) -> String {
        let (from, names) = self.one_or_two();
        let name = self.pick(&names);
        let key = self.pick(&["i", "s", "t"]);
        let grouped = format!(
            "SELECT {name}.{key} AS g, count(*) AS n, sum({name}.b) AS m FROM {from} GROUP BY 1"
        );
        let rest = self.pick(&[
            "SELECT a.g, a.n, b.m FROM c a JOIN c b ON a.g = b.g WHERE a.n < b.m",
            "SELECT a.g, a.m FROM c a WHERE a.m > (SELECT avg(m) FROM c)",
            "SELECT a.g, a.n, b.g FROM c a JOIN c b ON a.n = b.n WHERE a.m = (SELECT max(m) FROM c)",
            "SELECT a.g, (SELECT max(n) FROM c WHERE m < (SELECT avg(m) FROM c)) FROM c a \
             JOIN q ON a.n = q.k WHERE q.u <> (SELECT m FROM c ORDER BY m DESC, n LIMIT 1)",
            "SELECT count(*) FROM c WHERE m > (SELECT min(m) FROM c WHERE n < 0)",
            "SELECT count(*), sum(m) FROM c WHERE n = (SELECT n FROM c WHERE g IS NULL)",
            "SELECT n, count(*) FROM (SELECT n FROM c UNION ALL SELECT m FROM c) GROUP BY n",
            "SELECT a.g, rank() OVER (ORDER BY a.m), b.n FROM c a LEFT JOIN c b ON a.n = b.m",
            "SELECT g FROM c WHERE n IN (SELECT n FROM c WHERE m > 900) ORDER BY n, g LIMIT 7",
        ]);
        format!("WITH c AS ({grouped}) {rest}")
    }

    fn query(&mut self) -> String {
        match self.random.below(7) {
            0 => return self.windows(),
            1 => return self.grouping_sets(),
            2 => return self.shared(),
            3 => return self.texts_of_a_table(),
            _ => {}
        }
        let (from, names) = self.from();
        let mut conditions = vec![];
        while self.one_in(2) {
            let name = self.pick(&names);
            conditions.push(self.condition(name));
        }
        if self.one_in(4) {
            let (not, name) = (self.pick(&["", "NOT "]), self.pick(&names));
            let (table, key) = (self.pick(&["p", "q", "r", "e"]), self.pick(&["i", "b", "s", "d"]));
            let more = if self.one_in(2) { format!(" AND w.u <> {name}.u") } else { String::new() };
            conditions.push(format!(
                "{not}EXISTS (SELECT 1 FROM {table} w WHERE w.{key} = {name}.{key}{more})"
            ));
        }
        if self.one_in(4) {
            let (not, name) = (self.pick(&["", "NOT "]), self.pick(&names));
            let (table, key) = (self.pick(&["p", "q", "r", "e"]), self.pick(&["i", "b", "s", "d"]));
            let some = self.condition("w");
            conditions
                .push(format!("{name}.{key} {not}IN (SELECT w.{key} FROM {table} w WHERE {some})"));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        let mut outputs = vec![];
        for i in 0..1 + self.random.below(3) {
            let name = self.pick(&names);
            outputs.push(format!("{} AS c{i}", self.column(name)));
        }
        let named: Vec<String> = (0..outputs.len()).map(|i| format!("c{i}")).collect();
        match self.random.below(5) {
            0 => format!("SELECT DISTINCT {} FROM {from}{filter}", outputs.join(", ")),
            1 => format!(
                "SELECT {} FROM {from}{filter} ORDER BY {} LIMIT {}",
                outputs.join(", "),
                named.iter().map(|n| format!("{n} DESC NULLS LAST")).collect::<Vec<_>>().join(", "),
                self.random.below(50)
            ),
            _ => {
                let mut functions = vec!["count(*)".to_string()];
                for _ in 0..1 + self.random.below(4) {
                    let name = self.pick(&names);
                    let function = self.pick(&[
                        "count(?.i)",
                        "sum(?.i)",
                        "sum(?.b)",
                        "sum(?.d)",
                        "avg(?.d)",
                        "min(?.s)",
                        "max(?.s)",
                        "min(?.t)",
                        "max(?.d)",
                        "sum(?.d * (1 - ?.d))",
                        "min(?.u)",
                        "count(DISTINCT ?.s)",
                        "sum(?.i) FILTER (WHERE ?.u > 2)",
                        "bool_and(?.i > 5)",
                        "avg(?.i)",
                        "median(?.b)",
                    ]);
                    functions.push(function.replace('?', name));
                }
                let functions = functions.join(", ");
                if self.one_in(4) {
                    return format!("SELECT {functions} FROM {from}{filter}");
                }
                let keys: Vec<&str> =
                    outputs.iter().map(|o| o.split(" AS ").next().unwrap_or(o)).collect();
                let having = if self.one_in(4) { " HAVING count(*) > 1" } else { "" };
                let (outputs, keys) = (outputs.join(", "), keys.join(", "));
                format!("SELECT {outputs}, {functions} FROM {from}{filter} GROUP BY {keys}{having}")
            }
        }
    }
}

#[test]
fn random_queries_have_the_same_rows_as_on_operators() {
    let engine = Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap();
    let (on, off) = (engine.session(), engine.session());
    rows(&engine, &off, "SET thalweg.pipelines = off").unwrap();
    for (table, count) in [("p", 700), ("q", 90), ("r", 11), ("e", 0)] {
        let columns = "i INT, b BIGINT, s VARCHAR, v VARCHAR, d DECIMAL(12, 2), t DATE, u BIGINT, \
                       k BIGINT";
        rows(&engine, &on, &format!("CREATE TABLE {table} ({columns})")).unwrap();
        // Of one table nearly every row has a text of its own.
        let texts = if table == "r" { 31 } else { 23 };
        // Several inserts, so that there are several chunks with dictionaries of their own.
        for part in 0..3 {
            let sql = format!(
                "INSERT INTO {table} SELECT CASE WHEN n % 7 <> 3 THEN (n * 13) % 50 END, \
                 (n * 71) % 1000, CASE WHEN n % 11 > 0 THEN 's' || (n * {part} % {texts}) END, \
                 's' || (n % 5), CASE WHEN n % 13 > 0 THEN ((n * 37) % 400)::DECIMAL(12, 2) / 4 END, \
                 DATE '2024-01-01' + (n % 90)::INT, n % 6, n \
                 FROM (SELECT value + {part} * {count} AS n FROM range(0, {count}))"
            );
            rows(&engine, &on, &sql).unwrap_or_else(|e| panic!("{e}: {sql}"));
        }
    }
    let mut generator = Generator { random: Prng::new(20) };
    let (mut filled, mut piped, mut late) = (0, 0, 0);
    for _ in 0..400 {
        let sql = generator.query();
        let expected = rows(&engine, &off, &sql);
        let found = rows(&engine, &on, &sql);
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                assert!(expected == found, "{sql}\n{expected:#?}\n{found:#?}")
            }
            (Err(a), Err(b)) => assert_eq!(a, b, "{sql}"),
            _ => panic!("{sql}\n{expected:?}\n{found:?}"),
        }
        filled += usize::from(expected.is_ok_and(|rows| !rows.is_empty()));
        let plan = rows(&engine, &on, &format!("EXPLAIN {sql}")).unwrap();
        piped += usize::from(plan.iter().any(|line| line.contains("PipelineExec")));
        late += usize::from(plan.iter().any(|line| line.contains("fetch from")));
    }
    // The queries are worth asking.
    assert!(filled > 250 && piped > 260, "{filled} have rows, {piped} run on pipelines");
    assert!(late > 10, "{late} group by rows of a table");
}
