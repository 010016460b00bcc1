use std::collections::HashMap;
use std::sync::Arc;
use thalweg_pgcatalog::database::*;
use thalweg_pgcatalog::*;
struct E {
    c: Catalog,
}
impl Environment for E {
    fn relation(&self, s: &str, n: &str) -> thalweg_base::Result<Option<Arc<Relation>>> {
        self.c.relation(s, n)
    }
    fn database(&self) -> &str {
        "thalweg"
    }
    fn user(&self) -> &str {
        "thalweg"
    }
    fn search_path(&self) -> Vec<String> {
        vec!["public".into()]
    }
    fn backend_pid(&self) -> i64 {
        1
    }
    fn now_us(&self) -> i64 {
        0
    }
    fn started_us(&self) -> i64 {
        0
    }
    fn setting(&self, n: &str) -> Option<String> {
        Some(
            match n {
                "search_path" => "\"$user\", public",
                "jit" => "off",
                "default_table_access_method" => "heap",
                _ => return None,
            }
            .into(),
        )
    }
    fn set(&self, _: &str, v: &str, _: bool) -> thalweg_base::Result<String> {
        Ok(v.into())
    }
    fn definition(&self, o: Oid) -> Option<String> {
        self.c.table(o)?.definition.clone()
    }
    fn stored_bytes(&self, o: Oid) -> Option<u64> {
        Some(self.c.table(o)?.bytes)
    }
    fn may(&self, _: Option<&str>, _: Privilege, _: Oid, _: &str) -> bool {
        true
    }
    fn stopped(&self) -> bool {
        false
    }
}
fn main() {
    let mut t = HashMap::new();
    for f in std::fs::read_dir("/tmp/cat-pg/static").unwrap() {
        let p = f.unwrap().path();
        let s = std::fs::read_to_string(&p).unwrap();
        let mut l = s.lines();
        let columns = l.next().unwrap().split('\t').map(String::from).collect();
        let un = |x: &str| {
            let mut o = String::new();
            let mut c = x.chars();
            while let Some(k) = c.next() {
                if k == '\\' {
                    match c.next() {
                        Some('n') => o.push('\n'),
                        Some('t') => o.push('\t'),
                        Some(z) => o.push(z),
                        None => {}
                    }
                } else {
                    o.push(k)
                }
            }
            o
        };
        let rows = l
            .map(|l| l.split('\t').map(|x| if x == "\\N" { None } else { Some(un(x)) }).collect())
            .collect();
        t.insert(
            p.file_stem().unwrap().to_str().unwrap().to_string(),
            StaticTable { columns, rows },
        );
    }
    let statics = Arc::new(Statics::new(t));
    let col = |n: &str, o, m, nn, d: Option<&str>| TableColumn {
        name: n.into(),
        oid: o,
        typmod: m,
        not_null: nn,
        default: d.map(Into::into),
    };
    let tab = |o, n: &str, k, c| Table {
        oid: o,
        name: n.into(),
        kind: k,
        columns: c,
        rows: None,
        bytes: 1000,
        definition: (k == 'v').then(|| " SELECT t.a,\n    t.b\n   FROM t".into()),
    };
    let db = Database {
        name: "thalweg".into(),
        schemas: vec![
            Schema {
                oid: PUBLIC_OID,
                name: "public".into(),
                tables: vec![
                    tab(
                        16385,
                        "t",
                        'r',
                        vec![
                            col("a", types::INT4, -1, true, None),
                            col("b", types::VARCHAR, -1, false, Some("'x'::character varying")),
                            col("c", types::NUMERIC, ((12 << 16) | 2) + 4, false, None),
                            col("d", types::TIMESTAMP, -1, false, None),
                        ],
                    ),
                    tab(
                        16386,
                        "u",
                        'r',
                        vec![
                            col("id", types::INT8, -1, true, None),
                            col("at", types::TIMESTAMPTZ, -1, false, None),
                            col("tags", 1015, -1, false, None),
                            col("ok", types::BOOL, -1, false, Some("true")),
                        ],
                    ),
                    tab(
                        hashed_oid(RELATIONS_FROM, &["public", "v"]),
                        "v",
                        'v',
                        vec![
                            col("a", types::INT4, -1, false, None),
                            col("b", types::VARCHAR, -1, false, None),
                        ],
                    ),
                ],
            },
            Schema {
                oid: hashed_oid(SCHEMAS_FROM, &["s"]),
                name: "s".into(),
                tables: vec![tab(
                    16387,
                    "w",
                    'r',
                    vec![
                        col("x", types::FLOAT4, -1, false, None),
                        col("y", types::FLOAT8, -1, false, None),
                        col("z", types::BYTEA, -1, false, None),
                        col("d", types::DATE, -1, false, None),
                    ],
                )],
            },
        ],
        roles: vec![Role {
            oid: 10,
            name: "thalweg".into(),
            superuser: true,
            can_login: true,
            member_of: vec![],
        }],
        settings: vec![],
        activity: vec![],
    };
    let mut params = vec![];
    let mut show = true;
    let mut fail = 0;
    let mut n = 0;
    let input = std::io::read_to_string(std::io::stdin()).unwrap();
    if std::env::args().any(|a| a == "-q") {
        show = false
    }
    for q in input.split("\n;;\n") {
        if q.trim().is_empty() {
            continue;
        }
        // params: first line "-- params: json-ish separated by \x01"
        params.clear();
        let mut q = q;
        if let Some(r) = q.strip_prefix("--P ") {
            let (l, rest) = r.split_once('\n').unwrap();
            for p in l.split('\u{1}') {
                params.push(if p == "\\N" { None } else { Some(Arc::<str>::from(p)) })
            }
            q = rest;
        }
        n += 1;
        let e = E { c: Catalog::new(Arc::clone(&statics), db.clone()) };
        let start = std::time::Instant::now();
        let parsed =
            sqlparser::parser::Parser::parse_sql(&sqlparser::dialect::PostgreSqlDialect {}, q);
        let r = match &parsed {
            Err(x) => Err(thalweg_base::Error::user(x.to_string())),
            Ok(s) => match &s[0] {
                sqlparser::ast::Statement::Query(b) => query(b, &e, &params, &[]),
                o => Err(thalweg_base::Error::user(format!("not a query {o}"))),
            },
        };
        let ms = start.elapsed().as_millis();
        match r {
            Err(x) => {
                fail += 1;
                println!(
                    "!! {x}\n   in {}",
                    &q.replace('\n', " ")
                        .chars()
                        .take(if show { 300 } else { 3000 })
                        .collect::<String>()
                )
            }
            Ok((c, rows)) => {
                if show {
                    println!("{}", c.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join("|"));
                    for r in &rows {
                        println!(
                            "{}",
                            r.iter()
                                .zip(&c)
                                .map(|(v, c)| print(v, c.oid, &e as &dyn Environment)
                                    .unwrap()
                                    .unwrap_or_default())
                                .collect::<Vec<_>>()
                                .join("|")
                        )
                    }
                }
                println!("({} rows) {ms} ms", rows.len());
            }
        }
    }
    eprintln!("{n} queries, {fail} failed");
}
