//! Whole statements: what a role may with which grants, and what is left of a secret.

use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use datafusion::sql::parser::Statement;
use thalweg_base::Result;

use super::grant::{Object, Privilege as P};
use super::needs::{Need, READ_FILES, WRITE_FILES};
use super::role::PG_MAINTAIN;
use crate::config::Config;
use crate::engine::Engine;
use crate::parse::{self, Parsed};
use crate::session::Session;

fn engine(statements: &[&str]) -> (Arc<Engine>, Session) {
    let engine = Engine::open(":memory:", Config::default()).expect("it opens");
    let session = engine.session();
    for sql in statements {
        rows(&session, sql).expect(sql);
    }
    (engine, session)
}

fn rows(session: &Session, sql: &str) -> Result<String> {
    let batches = session.engine().block_on(async { session.query(sql).await?.collect().await })?;
    Ok(pretty_format_batches(&batches).expect("they can be shown").to_string())
}

const TABLES: [&str; 3] =
    ["CREATE TABLE t (a INT, b VARCHAR)", "CREATE SCHEMA s", "CREATE VIEW s.v AS SELECT 1 AS a"];

#[test]
fn statements_need() {
    let (engine, session) = engine(&TABLES);
    let snapshot = engine.database().snapshot();
    let t = || Object::relation("public", "t");
    let on = |privileges: &[P]| -> Vec<Need> {
        privileges.iter().map(|p| Need::Privilege(*p, t())).collect()
    };
    let create = |schema: &str| Need::Privilege(P::Create, Object::Schema(schema.into()));
    let table = [
        ("SELECT * FROM t", vec![]),
        ("SHOW TABLES", vec![]),
        ("INSERT INTO t VALUES (1, 'x')", on(&[P::Insert])),
        ("INSERT INTO thalweg.public.t SELECT * FROM t", on(&[P::Insert])),
        ("INSERT INTO t VALUES (1, 'x') RETURNING a", on(&[P::Insert, P::Select])),
        ("INSERT OVERWRITE t VALUES (1, 'x')", on(&[P::Insert, P::Delete])),
        ("UPDATE t SET a = 1", on(&[P::Update])),
        ("UPDATE t SET a = -1, b = DEFAULT", on(&[P::Update])),
        ("UPDATE t SET a = a + 1", on(&[P::Update, P::Select])),
        ("UPDATE t AS x SET a = 1 WHERE b = 'x'", on(&[P::Update, P::Select])),
        ("UPDATE t SET a = 1 RETURNING b", on(&[P::Update, P::Select])),
        ("DELETE FROM t", on(&[P::Delete])),
        ("DELETE FROM t WHERE a = 1", on(&[P::Delete, P::Select])),
        ("DELETE FROM t USING s.v WHERE t.a = v.a", on(&[P::Delete, P::Select])),
        ("WITH x AS (SELECT 1) DELETE FROM t", on(&[P::Delete])),
        ("EXPLAIN DELETE FROM t", on(&[P::Delete])),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1, 'x')", on(&[P::Insert])),
        ("TRUNCATE t", on(&[P::Truncate])),
        (
            "MERGE INTO t USING s.v ON t.a = v.a WHEN MATCHED THEN DELETE \
             WHEN NOT MATCHED THEN INSERT VALUES (1, 'x')",
            on(&[P::Select, P::Delete, P::Insert]),
        ),
        ("ALTER TABLE t ADD COLUMN c INT", vec![Need::Owner(t())]),
        ("DROP TABLE t", vec![Need::Owner(t())]),
        ("DROP TABLE IF EXISTS nosuch", vec![]),
        ("DROP VIEW s.v", vec![Need::Owner(Object::relation("s", "v"))]),
        ("DROP SCHEMA s CASCADE", vec![Need::Owner(Object::Schema("s".into()))]),
        ("CREATE TABLE u (a INT)", vec![create("public")]),
        ("CREATE TABLE s.u AS SELECT 1", vec![create("s")]),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", vec![create("public"), Need::Owner(t())]),
        ("CREATE VIEW s.w AS SELECT 1", vec![create("s")]),
        ("CREATE SCHEMA x", vec![Need::Privilege(P::Create, Object::Database)]),
        (
            "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION 'x.csv'",
            vec![READ_FILES, create("public")],
        ),
        ("EXPLAIN COPY t TO 'x.csv'", vec![WRITE_FILES]),
        ("VACUUM", vec![Need::Member(PG_MAINTAIN, "VACUUM the database")]),
        ("VACUUM t", vec![Need::Member(PG_MAINTAIN, "VACUUM the database")]),
        ("OPTIMIZE TABLE t", on(&[P::Maintain])),
        ("PREPARE p AS DELETE FROM t", vec![]),
    ];
    let state = session.inner().context.state();
    for (sql, expected) in table {
        let statement: Statement = match parse::parse(&state, sql).expect(sql) {
            Parsed::Sql(statement, _) => statement,
            _ => panic!("{sql}"),
        };
        assert_eq!(super::needs(&statement, &snapshot), expected, "{sql}");
    }
}

#[test]
fn no_role_gets_the_plan_or_the_rows_of_another() {
    let (engine, root) = engine(&[
        "CREATE TABLE t AS SELECT 42 AS a",
        "CREATE ROLE ann",
        "CREATE ROLE bob",
        "GRANT SELECT ON t TO ann",
    ]);
    let (ann, bob) = (engine.session_as("ann").unwrap(), engine.session_as("bob").unwrap());
    let sql = "SELECT sum(a) FROM t";
    for _ in 0..3 {
        assert!(rows(&root, sql).unwrap().contains("42"));
        assert!(rows(&ann, sql).unwrap().contains("42"));
        assert_eq!(rows(&bob, sql).unwrap_err().sqlstate(), "42501");
    }
    // Ann's own plan is kept, for her.
    let before = engine.reused_plans();
    rows(&ann, sql).unwrap();
    assert_eq!(engine.reused_plans(), before + 1);
    // The next statement sees that it was revoked.
    rows(&root, "REVOKE SELECT ON t FROM ann").unwrap();
    assert_eq!(rows(&ann, sql).unwrap_err().sqlstate(), "42501");
    // One that computes the same at the same time is asked first, too.
    engine.block_on(async {
        let many = (0..20).map(|i| {
            let session = if i % 2 == 0 {
                root.engine().session()
            } else {
                engine.session_as("bob").unwrap()
            };
            async move { (i, session.query(sql).await.map(drop)) }
        });
        for (i, result) in futures::future::join_all(many).await {
            assert_eq!(result.is_ok(), i % 2 == 0, "{i}");
        }
    });
    // Who prepared it need not be who may run it.
    rows(&root, "PREPARE p AS SELECT a FROM t WHERE a > $1").unwrap();
    rows(&root, "EXECUTE p(1)").unwrap();
    rows(&root, "SET ROLE bob").unwrap();
    assert_eq!(rows(&root, "EXECUTE p(1)").unwrap_err().sqlstate(), "42501");
    assert_eq!(rows(&root, sql).unwrap_err().sqlstate(), "42501");
}

#[test]
fn names_that_are_the_engines_own_cannot_be_typed() {
    let (engine, _root) = engine(&["CREATE TABLE t AS SELECT 42 AS a", "CREATE ROLE bob"]);
    let bob = engine.session_as("bob").unwrap();
    for name in ["t\0rows", "t\0into", "t\u{0}1"] {
        for sql in [
            format!("SELECT * FROM \"{name}\""),
            format!("SELECT * FROM '{name}'"),
            format!("DELETE FROM \"{name}\""),
        ] {
            assert_eq!(rows(&bob, &sql).unwrap_err().sqlstate(), "22021", "{sql:?}");
        }
    }
    for sql in ["SELECT * FROM U&\"t\\0000rows\"", "SELECT * FROM E't\\000into'"] {
        assert!(rows(&bob, sql).is_err(), "{sql}");
    }
}

#[test]
fn a_query_is_stopped_by_who_may() {
    let (engine, root) = engine(&[
        "CREATE ROLE ann",
        "CREATE ROLE bob",
        "CREATE ROLE eve SUPERUSER",
        "CREATE ROLE stopper IN ROLE pg_signal_backend",
    ]);
    let session = |name: &str| engine.session_as(name).unwrap();
    let long = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b";
    for (whose, by, allowed) in [
        ("ann", "bob", false),
        ("ann", "ann", true),
        ("ann", "stopper", true),
        ("eve", "stopper", false),
        ("ann", "eve", true),
        ("eve", "thalweg", true),
    ] {
        let victim = session(whose);
        engine.block_on(async {
            let answer = victim.query(long).await.expect("it runs");
            let id = answer.query().0;
            let killed = session(by).query(&format!("KILL QUERY {id}")).await;
            match allowed {
                true => assert!(killed.is_ok() && answer.collect().await.is_err(), "{whose} {by}"),
                false => assert_eq!(killed.err().unwrap().sqlstate(), "42501", "{whose} {by}"),
            }
        });
    }
    drop(root);
}

/// What must be nowhere.
const SECRET: &str = "hunter2hunter2";

#[test]
fn a_password_is_nowhere_to_be_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let engine = Engine::open(&path.to_string_lossy(), Config::default()).unwrap();
    let session = engine.session();
    let mut said = vec![];
    let mut run = |sql: &str| match rows(&session, sql) {
        Ok(text) => said.push(text),
        Err(e) => said.push(format!("{e:#} {e:?}")),
    };
    for sql in [
        "CREATE ROLE ann LOGIN PASSWORD '$'",
        "CREATE USER bob WITH ENCRYPTED PASSWORD $$$$$",
        "ALTER ROLE ann PASSWORD E'$'",
        "ALTER ROLE ann PASSWORD \"$\"",
        "ALTER ROLE ann PASSWORD $",
        "ALTER ROLE ann PASSWORD",
        "ALTER ROLE ann PASWORD '$'",
        "ALTER ROLE ann PASSWORD '$' NONSENSE",
        "ALTER ROLE ann PASSWORD '$' VALID UNTIL 'nonsense'",
        "ALTER ROLE nosuch PASSWORD '$'",
        "ALTER ROLE ann PASSWORD '$",
        "EXPLAIN CREATE ROLE eve PASSWORD '$'",
        "PREPARE p AS CREATE ROLE eve PASSWORD '$'",
        "CREATE ROLE eve PASSWORD '$'; SELECT 1",
        "-- comment\n ALTER /* x */ USER ann PASSWORD '$'",
    ] {
        let sql =
            sql.replace("$$$$$", &format!("$x${SECRET}$x$")).replace("'$", &format!("'{SECRET}"));
        let sql = sql.replace("\"$\"", &format!("\"{SECRET}\""));
        run(&sql);
        let _ = session.check_syntax(&sql).map_err(|e| assert!(!format!("{e:#}").contains(SECRET)));
    }
    for (name, _) in
        [("queries", 0), ("query_log", 0), ("roles", 0), ("grants", 0), ("snapshots", 0)]
    {
        run(&format!("SELECT * FROM system.{name}"));
    }
    for sql in ["SHOW QUERIES", "SHOW ALL", "SELECT * FROM information_schema.tables"] {
        run(sql);
    }
    let token = rows(&session, "ALTER ROLE ann ADD TOKEN 'ci'").unwrap();
    let token =
        token.split('|').map(str::trim).find(|t| t.starts_with("thalweg_")).unwrap().to_owned();
    let seen = rows(&session, "SELECT query FROM system.query_log").unwrap();
    assert!(seen.contains("ALTER ROLE ann PASSWORD '***'"), "{seen}");
    for text in said.iter().chain([&seen]) {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("SCRAM-SHA-256$") && !text.contains(&token), "{text}");
    }
    assert!(
        engine.roles().unwrap().named("ann").unwrap().verifier.as_ref().unwrap().matches(SECRET)
    );
    assert!(!format!("{:?}", engine.roles().unwrap()).contains("stored_key"));
    drop((session, engine));
    // Nor in the files.
    let mut folders = vec![path];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            for secret in [SECRET, token.as_str()] {
                assert!(!bytes.windows(secret.len()).any(|w| w == secret.as_bytes()), "{path:?}");
            }
        }
    }
    assert!(files > 3);
}

#[test]
fn a_session_begins_in_its_roles_workload() {
    let (engine, root) = engine(&[
        "CREATE WORKLOAD nightly",
        "CREATE ROLE ann WORKLOAD nightly",
        "CREATE WORKLOAD other",
    ]);
    let ann = engine.session_as("ann").unwrap();
    assert!(rows(&ann, "SHOW thalweg.workload").unwrap().contains("nightly"));
    rows(&ann, "SET thalweg.workload = 'default'").unwrap();
    rows(&ann, "SET thalweg.workload = 'nightly'").unwrap();
    assert_eq!(rows(&ann, "SET thalweg.workload = 'other'").unwrap_err().sqlstate(), "42501");
    assert_eq!((ann.user(), ann.session_user()), ("ann".into(), "ann".into()));
    rows(&root, "SET ROLE ann").unwrap();
    assert_eq!((root.user(), root.session_user()), ("ann".into(), "thalweg".into()));
    assert_eq!(engine.session_as("nosuch").err().unwrap().sqlstate(), "42704");
}

#[test]
fn changes_of_roles_at_the_same_time_are_not_lost() {
    let (engine, root) = engine(&["CREATE ROLE ann", "CREATE TABLE t (a INT)"]);
    engine.block_on(async {
        let many = (0..8).map(|i| {
            let session = engine.session();
            async move {
                session.query(&format!("CREATE ROLE r{i}")).await.map(drop)?;
                session.query(&format!("GRANT r{i} TO ann")).await.map(drop)?;
                session.query(&format!("GRANT SELECT ON t TO r{i}")).await.map(drop)
            }
        });
        for result in futures::future::join_all(many).await {
            result.expect("it is tried again");
        }
    });
    let roles = rows(
        &root,
        "SELECT count(DISTINCT role_id) AS n FROM system.roles WHERE role_name LIKE 'r%'",
    );
    assert!(roles.unwrap().contains("8 |"));
    let access = engine.roles().unwrap();
    assert_eq!(access.named("ann").unwrap().member_of.len(), 8);
}

#[test]
fn postgresqls_catalog_knows_the_roles() {
    let (engine, _root) = engine(&[
        "CREATE TABLE t AS SELECT 42 AS a",
        "CREATE TABLE open AS SELECT 1 AS a",
        "CREATE ROLE bob LOGIN IN ROLE pg_maintain",
        "GRANT SELECT ON open TO bob",
    ]);
    let bob = engine.session_as("bob").unwrap();
    let first = |sql: &str| rows(&bob, sql).expect(sql);
    assert!(first("SELECT current_user AS u").contains("bob"));
    for (table, expected) in [("t", "f"), ("open", "t")] {
        let sql = format!("SELECT has_table_privilege('{table}', 'SELECT') AS may");
        assert!(first(&sql).contains(&format!("| {expected}")), "{}", first(&sql));
    }
    assert!(first("SELECT rolname FROM pg_roles WHERE rolname = 'bob'").contains("bob"));
    assert_eq!(rows(&bob, "SELECT * FROM pg_class, t").unwrap_err().sqlstate(), "42501");
}
