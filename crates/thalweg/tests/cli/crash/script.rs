//! What the killed processes do: an endless script, and what the database holds after each step.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_base::Prng;
use thalweg_engine::{Config, Engine, Session};

use super::state;

/// Snapshots are kept for a moment only, so that files are removed while processes are killed.
pub const SETUP: [&str; 4] = [ORDERS, ITEMS, EVENTS, "SET thalweg.retention_ms = 1500"];

const ORDERS: &str = "CREATE TABLE orders (id BIGINT NOT NULL, customer INT, \
    amount DECIMAL(12, 2), day DATE, note VARCHAR) CLUSTER BY (day)";
const ITEMS: &str =
    "CREATE TABLE items (id BIGINT, line INT, price DOUBLE) PARTITION BY HASH (id) INTO 3";
const EVENTS: &str = "CREATE TABLE events (id BIGINT, what VARCHAR)";

/// The columns of `orders` that are always there, from a number named `value`.
const ORDER: &str = "value, CAST(value % 97 AS INT), CAST(value % 10007 AS DECIMAL(12, 2)), \
    CAST('2024-01-' || lpad(CAST(value % 28 + 1 AS VARCHAR), 2, '0') AS DATE), 'order ' || value";

/// Of one table, about: more are deleted.
const ROWS_MAX: usize = 8_000;

pub struct Step {
    pub kind: &'static str,
    pub work: Work,
    /// In which the database may be found, in this order: as it was, as it is at last, and
    /// between them what the step commits on its way.
    pub states: Vec<String>,
}

#[derive(Debug)]
pub enum Work {
    /// Together one step.
    Sql(Vec<String>),
    /// The arguments of `thalweg load` behind the database.
    Load(Vec<String>),
}

pub struct Script {
    random: Prng,
    engine: Arc<Engine>,
    session: Session,
    state: String,
    /// Where input files lie.
    folder: PathBuf,
    /// Numbers are used once.
    next: u64,
    /// About how many `orders`, `items` and `events` there are.
    rows: [usize; 3],
    /// A column of `orders` that comes and goes.
    extra: Option<String>,
}

const TABLES: [&str; 3] = ["orders", "items", "events"];

impl Script {
    pub fn new(seed: u64, folder: &Path) -> Script {
        let config = Config { threads: 2, cache_bytes_max: Some(0), ..Config::default() };
        let engine = Engine::open(":memory:", config).unwrap();
        std::fs::create_dir_all(folder).unwrap();
        let mut script = Script {
            random: Prng::new(seed),
            session: engine.session(),
            engine,
            state: String::new(),
            folder: folder.to_owned(),
            next: 1,
            rows: [0; 3],
            extra: None,
        };
        for sql in &SETUP[..3] {
            script.run(sql);
        }
        script.state = state(script.engine.database());
        script
    }

    pub fn next(&mut self) -> Step {
        if let Some(table) = (0..3).find(|&t| self.rows[t] > ROWS_MAX) {
            return match self.random.below(4) {
                0 => {
                    self.rows[table] = 0;
                    self.sql("TRUNCATE", vec![format!("TRUNCATE TABLE {}", TABLES[table])])
                }
                _ => {
                    self.rows[table] /= 4;
                    let rest = self.random.below(4);
                    let delete = format!("DELETE FROM {} WHERE id % 4 <> {rest}", TABLES[table]);
                    self.sql("DELETE", vec![delete])
                }
            };
        }
        match self.random.below(32) {
            0..4 => {
                let insert = self.insert();
                self.sql("INSERT", vec![insert])
            }
            4..8 => {
                let table = self.table();
                let file = self.csv(table, None);
                self.sql("COPY", vec![copy(table, &file)])
            }
            8..10 => {
                let delete = self.delete();
                self.sql("DELETE", vec![delete])
            }
            10..13 => {
                let update = self.update();
                self.sql("UPDATE", vec![update])
            }
            13..16 => self.merge(),
            16..19 => {
                let alter = self.alter();
                self.sql("ALTER TABLE", vec![alter])
            }
            19..22 => self.transaction(),
            22..25 => {
                let table = TABLES[self.table()];
                self.sql("OPTIMIZE TABLE", vec![format!("OPTIMIZE TABLE {table}")])
            }
            25..28 => self.sql("VACUUM", vec!["VACUUM".to_owned()]),
            28..30 => self.load(),
            _ => self.load_in_steps(),
        }
    }

    fn run(&self, sql: &str) {
        let ran = self.engine.block_on(async { self.session.query(sql).await?.collect().await });
        ran.unwrap_or_else(|e| panic!("{e:#}\nin {sql}"));
    }

    fn sql(&mut self, kind: &'static str, statements: Vec<String>) -> Step {
        statements.iter().for_each(|sql| self.run(sql));
        self.step(kind, Work::Sql(statements), vec![])
    }

    fn step(&mut self, kind: &'static str, work: Work, between: Vec<String>) -> Step {
        let before = std::mem::replace(&mut self.state, state(self.engine.database()));
        let mut states = vec![before];
        states.extend(between);
        states.push(self.state.clone());
        Step { kind, work, states }
    }

    fn table(&mut self) -> usize {
        self.random.below(3) as usize
    }

    /// Numbers that no row has yet.
    fn numbers(&mut self, table: usize) -> std::ops::Range<u64> {
        let from = self.next;
        self.next += 50 + self.random.below(900);
        self.rows[table] += (self.next - from) as usize;
        from..self.next
    }

    fn insert(&mut self) -> String {
        let table = self.table();
        let numbers = self.numbers(table);
        let series = format!("FROM generate_series({}, {})", numbers.start, numbers.end - 1);
        match table {
            0 => format!(
                "INSERT INTO orders (id, customer, amount, day, note) SELECT {ORDER} {series}"
            ),
            1 => format!(
                "INSERT INTO items SELECT value, CAST(value % 5 AS INT), value * 0.5 {series}"
            ),
            _ => format!("INSERT INTO events SELECT value, 'event ' || (value % 13) {series}"),
        }
    }

    /// A file of new rows.
    fn csv(&mut self, table: usize, path: Option<PathBuf>) -> PathBuf {
        let numbers = self.numbers(table);
        let path = path.unwrap_or_else(|| self.folder.join(format!("{}.csv", numbers.start)));
        let mut text = String::new();
        text += match table {
            0 => "id,customer,amount,day,note\n",
            1 => "id,line,price\n",
            _ => "id,what\n",
        };
        for n in numbers {
            match table {
                0 => writeln!(
                    text,
                    "{n},{},{}.{:02},2024-02-{:02},",
                    n % 89,
                    n % 999,
                    n % 100,
                    n % 28 + 1
                ),
                1 => writeln!(text, "{n},{},{}.25", n % 5, n % 77),
                _ => writeln!(text, "{n},\"event, \"\"{n}\"\"\""),
            }
            .unwrap();
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn delete(&mut self) -> String {
        let (table, rest) = (TABLES[self.table()], self.random.below(7));
        format!("DELETE FROM {table} WHERE id % 7 = {rest}")
    }

    fn update(&mut self) -> String {
        let rest = self.random.below(11);
        match self.random.below(3) {
            0 => format!(
                "UPDATE orders SET amount = amount + 1, note = 'changed' WHERE id % 11 = {rest}"
            ),
            // The column that decides the bucket: rows move.
            1 => format!("UPDATE items SET id = id + 1, price = price * 2 WHERE id % 11 = {rest}"),
            _ => format!("UPDATE events SET what = what || '!' WHERE id % 11 = {rest}"),
        }
    }

    fn merge(&mut self) -> Step {
        let numbers = self.numbers(0);
        let merge = format!(
            "MERGE INTO orders t USING (SELECT value AS id, CAST(value % 50 AS INT) AS customer \
             FROM generate_series({}, {})) s ON t.id = s.id \
             WHEN MATCHED AND s.customer < 10 THEN DELETE \
             WHEN MATCHED THEN UPDATE SET customer = s.customer + 1000 \
             WHEN NOT MATCHED THEN INSERT (id, customer) VALUES (s.id, s.customer)",
            numbers.start.saturating_sub(1500).max(1),
            numbers.end - 1
        );
        self.sql("MERGE", vec![merge])
    }

    fn alter(&mut self) -> String {
        let name = format!("extra_{}", self.next);
        self.next += 1;
        match self.extra.take() {
            None => {
                let value = self.random.below(100);
                self.extra = Some(name.clone());
                format!("ALTER TABLE orders ADD COLUMN {name} INT DEFAULT {value}")
            }
            Some(old) if self.random.below(2) == 0 => {
                self.extra = Some(name.clone());
                format!("ALTER TABLE orders RENAME COLUMN {old} TO {name}")
            }
            Some(old) => format!("ALTER TABLE orders DROP COLUMN {old}"),
        }
    }

    /// Over several tables, sometimes with something that is undone.
    fn transaction(&mut self) -> Step {
        let mut statements = vec!["BEGIN".to_owned()];
        for i in 0..2 + self.random.below(4) {
            let statement = match self.random.below(5) {
                0 | 1 => self.insert(),
                2 => self.delete(),
                3 => self.update(),
                _ => self.alter(),
            };
            if i == 1 && self.random.below(3) == 0 {
                statements.push("SAVEPOINT here".to_owned());
                statements.push("DELETE FROM events".to_owned());
                statements.push("ROLLBACK TO here".to_owned());
            }
            statements.push(statement);
        }
        statements.push("COMMIT".to_owned());
        self.sql("BEGIN … COMMIT", statements)
    }

    /// Several files into two tables, all or nothing.
    fn load(&mut self) -> Step {
        let tables = [self.table(), self.table()];
        let files: Vec<(usize, PathBuf)> = (0..2 + self.random.below(3) as usize)
            .map(|i| (tables[i % 2], self.csv(tables[i % 2], None)))
            .collect();
        self.run("BEGIN");
        files.iter().for_each(|(table, file)| self.run(&copy(*table, file)));
        self.run("COMMIT");
        let mut args = vec!["--quiet".to_owned(), "--header".to_owned()];
        for (table, name) in TABLES.iter().enumerate() {
            let of_table = files.iter().filter(|(t, _)| *t == table);
            let names: Vec<String> = of_table.map(|(_, f)| f.display().to_string()).collect();
            if !names.is_empty() {
                args.push(format!("{name}={}", names.join(",")));
            }
        }
        self.step("load", Work::Load(args), vec![])
    }

    /// A folder of files, each a commit of its own; once killed, it goes on with the next one.
    fn load_in_steps(&mut self) -> Step {
        let table = self.table();
        let folder = self.folder.join(format!("steps-{}", self.next));
        let files = 2 + self.random.below(3);
        let mut between = Vec::new();
        for i in 0..files {
            let file = self.csv(table, Some(folder.join(format!("{i}.csv"))));
            self.run(&copy(table, &file));
            if i + 1 < files {
                between.push(state(self.engine.database()));
            }
        }
        let path = folder.display().to_string();
        let options = ["--commit-every", "1", "--resume", "--quiet", "--header"];
        let args = [TABLES[table], &path].into_iter().chain(options);
        self.step("load in steps", Work::Load(args.map(str::to_owned).collect()), between)
    }
}

fn copy(table: usize, file: &Path) -> String {
    format!("COPY {} FROM '{}' (FORMAT csv, HEADER true)", TABLES[table], file.display())
}
