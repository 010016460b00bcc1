//! Queries over the catalog: which statements are such, and how they run.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::{self, Expr, Query, Statement, TableFactor, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use thalweg_base::{Kind, Result};
use thalweg_pgcatalog::database::{Catalog, INFORMATION_SCHEMA, PG_CATALOG};
use thalweg_pgcatalog::{Description, Oid, is_of_server};
use thalweg_storage::Snapshot;

use thalweg_errors::from_datafusion;
use thalweg_runtime::{Run, blocking};

use super::database::{Wanted, describe as describe_database};
use super::environment::Seen;
use super::{answer, statics};
use crate::names::CATALOG;
use crate::session::Inner;
use crate::statement::Started;
use crate::titles::Titles;
use crate::{depth, names};

/// A query over nothing but the catalog.
pub(crate) struct Asked {
    query: Box<Query>,
    wanted: Wanted,
    /// `information_schema` alone is the planner's, as long as it has what is asked for.
    pub first: bool,
}

/// Words that make a look at the statement worth it. Those that may be a column's name too are
/// here only if a query without a FROM may have them.
fn is_telling(word: &[u8]) -> bool {
    const WORDS: &[&str] = &[
        "information_schema",
        "current_schema",
        "current_schemas",
        "current_database",
        "current_catalog",
        "current_user",
        "session_user",
        "current_role",
        "user",
        "version",
        "current_setting",
        "set_config",
        "format_type",
        "obj_description",
        "col_description",
        "shobj_description",
        "quote_ident",
        "quote_literal",
        "txid_current",
        "getdatabaseencoding",
        // Types of names; `region` and `registered` are columns of many tables.
        "regclass",
        "regcollation",
        "regconfig",
        "regdictionary",
        "regnamespace",
        "regoper",
        "regoperator",
        "regproc",
        "regprocedure",
        "regrole",
        "regtype",
    ];
    const BEGINNINGS: &[&str] = &["pg_", "to_reg", "has_", "inet_", "_pg_"];
    let begins = |start: &&str| {
        word.len() > start.len() && word[..start.len()].eq_ignore_ascii_case(start.as_bytes())
    };
    WORDS.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes())) || BEGINNINGS.iter().any(begins)
}

/// Whether it may be a query over the catalog: a look at the text, which other statements are
/// spared any other work by.
fn may_be(sql: &str) -> bool {
    let first = sql.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let begins =
        |word: &str| first.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    // A comment before it may say anything.
    if !["select", "with", "values", "table", "--", "/*"].iter().any(|word| begins(word)) {
        return false;
    }
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    sql.as_bytes().split(|b| !is_word(b)).any(is_telling)
}

impl Asked {
    pub fn of(sql: &str) -> Option<Asked> {
        if !may_be(sql) || depth::check(sql).is_err() {
            return None;
        }
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?;
        let query = match statements.pop()? {
            Statement::Query(query) if statements.is_empty() => query,
            _ => return None,
        };
        let statics = statics::statics();
        let mut look = Look::new(&statics);
        if query.visit(&mut look).is_break() {
            return None;
        }
        let names = |name: &str| look.relations.contains(name);
        let wanted = Wanted {
            columns: names("pg_attribute") || names("columns"),
            definitions: names("pg_views") || names("views"),
        };
        let first = match look.relations.is_empty() {
            true => look.server && !look.foreign,
            false => look.pg_catalog || look.server,
        };
        (first || !look.relations.is_empty()).then_some(Asked { query, wanted, first })
    }

    async fn seen(
        &self,
        session: &Arc<Inner>,
        run: Option<&Arc<Run>>,
        snapshot: &Arc<Snapshot>,
    ) -> Seen {
        let database = describe_database(session, snapshot, self.wanted).await;
        Seen::new(Arc::clone(session), run.cloned(), Arc::clone(snapshot), database)
    }

    pub async fn run(
        &self,
        session: &Arc<Inner>,
        run: &Arc<Run>,
        state: &SessionState,
        snapshot: &Arc<Snapshot>,
    ) -> Result<Started> {
        let seen = self.seen(session, Some(run), snapshot).await;
        let query = self.query.clone();
        let batch = blocking(move || {
            let (columns, rows) = thalweg_pgcatalog::query(&query, &seen, &[], &[])?;
            answer::rows(&columns, &rows, &seen)
        })
        .await
        .map_err(from_datafusion)?;
        let plan: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[vec![batch.clone()]], batch.schema(), None)
                .map_err(from_datafusion)?;
        Ok(Started::Rows(plan, Titles::default(), Box::new(state.clone())))
    }
}

/// Whether the planner may know what our own evaluator does not.
pub(crate) fn may_be_planned(e: &thalweg_base::Error) -> bool {
    e.kind() == Kind::Unsupported || matches!(e.sqlstate(), "42883" | "42P01" | "42704")
}

/// What a query over the catalog takes and gives, without running it; `None` if it is none.
/// `types` are those of the parameters that the client has said, 0 the others.
pub(crate) async fn describe(
    session: &Arc<Inner>,
    sql: &str,
    types: &[Oid],
) -> Option<Result<Description>> {
    let asked = Asked::of(sql).filter(|asked| asked.first)?;
    let snapshot = session.catalog.snapshot();
    let seen = asked.seen(session, None, &snapshot).await;
    let types = types.to_vec();
    let described =
        blocking(move || thalweg_pgcatalog::describe(&asked.query, &seen, &types)).await;
    Some(described.map_err(from_datafusion))
}

/// What a query names.
struct Look<'a> {
    statics: &'a thalweg_pgcatalog::database::Statics,
    ctes: HashSet<String>,
    relations: HashSet<String>,
    pg_catalog: bool,
    /// Functions about the server, or types of names.
    server: bool,
    /// Functions that only the planner knows.
    foreign: bool,
}

impl<'a> Look<'a> {
    fn new(statics: &'a thalweg_pgcatalog::database::Statics) -> Self {
        Look {
            statics,
            ctes: HashSet::new(),
            relations: HashSet::new(),
            pg_catalog: false,
            server: false,
            foreign: false,
        }
    }

    /// Breaks at a relation that is not of the catalog.
    fn relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        let parts: Vec<String> = name
            .0
            .iter()
            .map(|part| part.as_ident().map_or(part.to_string(), names::ident))
            .collect();
        let (schema, relation) = match parts.as_slice() {
            [name] if self.ctes.contains(name) => return ControlFlow::Continue(()),
            [name] => (PG_CATALOG, name),
            [schema, name] => (schema.as_str(), name),
            [catalog, schema, name] if catalog == CATALOG => (schema.as_str(), name),
            _ => return ControlFlow::Break(()),
        };
        let own = matches!(schema, PG_CATALOG | INFORMATION_SCHEMA);
        // A relation that is not there is an error of ours only if the schema is named.
        if !own || (parts.len() == 1 && !Catalog::knows(self.statics, schema, relation)) {
            return ControlFlow::Break(());
        }
        self.pg_catalog |= schema == PG_CATALOG;
        self.relations.insert(relation.clone());
        ControlFlow::Continue(())
    }
}

impl Visitor for Look<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if let Some(with) = &query.with {
            self.ctes.extend(with.cte_tables.iter().map(|cte| names::ident(&cte.alias.name)));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: None, .. } => self.relation(name),
            // A function that gives rows: `FROM pg_catalog.pg_get_keywords()`.
            TableFactor::Table { name, args: Some(_), .. } => {
                let mut parts = name.0.iter().filter_map(|part| part.as_ident()).map(names::ident);
                self.server |= parts.next().is_some_and(|schema| schema == PG_CATALOG);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|part| part.as_ident());
                let name = name.map(names::ident).unwrap_or_default();
                self.server |= is_of_server(&name) || function.name.0.len() > 1;
                // Types are the planner's, but in queries over the catalog.
                self.foreign |= !thalweg_pgcatalog::knows_function(&name) || name == "pg_typeof";
            }
            Expr::Identifier(name) => {
                self.server |=
                    name.quote_style.is_none() && is_of_server(&name.value.to_lowercase());
            }
            Expr::Cast { data_type, .. } => {
                let name = data_type.to_string().to_lowercase();
                let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
                self.server |= name.starts_with("reg") || matches!(name, "oid" | "name");
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queries_over_the_catalog_are_taken() {
        let first = |sql: &str| Asked::of(sql).map(|asked| asked.first);
        assert_eq!(first("SELECT relname FROM pg_class"), Some(true));
        assert_eq!(first("SELECT 1 FROM pg_catalog.pg_class c, t WHERE c.relname = t.a"), None);
        assert_eq!(first("SELECT version FROM t"), None);
        assert_eq!(first("SELECT version()"), Some(true));
        assert_eq!(first("SELECT 't'::regclass::oid"), Some(true));
        assert_eq!(first("SELECT 1 FROM information_schema.tables"), Some(false));
        assert_eq!(first("WITH pg_x AS (SELECT 1) SELECT * FROM pg_x"), None);
        assert_eq!(first("SELECT sin(1), version()"), None);
        assert_eq!(first("INSERT INTO t SELECT 1 FROM pg_class"), None);
        assert_eq!(first("select current_user"), Some(true));
        assert!(!may_be("SELECT region, registered FROM orders"));
        assert!(may_be("SELECT 't'::RegType, 1 FROM t"));
    }
}
