//! The table a statement changes, and queries over it.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Query, SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins,
    Value, VisitMut, VisitorMut, With,
};
use datafusion::sql::sqlparser::parser::Parser;
use thalweg_base::text::{nearest, quoted};
use thalweg_base::{Error, Result};
use thalweg_storage::{RelationKind, Snapshot, Table};

use thalweg_exec::ROW_ID;

use crate::dialect::Thalweg;
use crate::names::{self, CATALOG, PUBLIC, ROWS, decorate};
use crate::sql_type::sql_type;
use crate::walk::walk_mut;

/// The table that a statement changes.
pub struct Target {
    pub table: Arc<Table>,
    pub schema: String,
    /// What the statement calls it.
    pub alias: String,
    /// The table with its row ids, for the FROM of a query.
    pub factor: TableFactor,
}

impl Target {
    /// `what` is the statement's verb.
    pub fn new(snapshot: &Snapshot, factor: &TableFactor, what: &str) -> Result<Target> {
        let mut factor = factor.clone();
        let TableFactor::Table { name, alias, args: None, version: None, .. } = &mut factor else {
            return Err(Error::user(format!("{what} takes a table, not {factor}")));
        };
        let (schema, table) = table(snapshot, name, what)?;
        if alias.as_ref().is_some_and(|a| !a.columns.is_empty()) {
            return Err(Error::unsupported(format!("{what} cannot rename the table's columns"))
                .hint("name the table alone: AS x"));
        }
        let alias_name =
            alias.as_ref().map_or_else(|| table.name.clone(), |a| names::ident(&a.name));
        decorate(name, alias, ROWS);
        Ok(Target { table, schema, alias: alias_name, factor })
    }

    /// `schema.table`, for people.
    pub fn name(&self) -> String {
        full_name(&self.schema, &self.table.name)
    }

    pub fn column(&self, name: &str) -> Expr {
        qualified(&self.alias, name)
    }

    pub fn row_id(&self) -> Expr {
        self.column(ROW_ID)
    }

    /// The table's column that `name` means on the left of an assignment.
    pub fn index(&self, name: &ObjectName) -> Result<usize> {
        let parts: Vec<String> = name.0.iter().map(|p| part(p.as_ident())).collect();
        let (_, qualifier) = parts.split_last().expect("a name has a part");
        let known = match qualifier {
            [] => true,
            [table] => *table == self.alias,
            [schema, table] => *schema == self.schema && *table == self.table.name,
            _ => false,
        };
        match name.0.last().and_then(|part| part.as_ident()) {
            Some(ident) if known => index(&self.table, &self.name(), ident),
            _ => Err(no_column(&self.table, &self.name(), &names::folded(name))),
        }
    }

    /// What a column gets that a statement does not name.
    pub fn default(&self, column: usize) -> Result<Expr> {
        default(&self.table, column)
    }

    /// A value that UPDATE or MERGE writes for a column, as the query over the table has it. What the column
    /// gets of it is for [`plan_rows`](super::apply::plan_rows) to say.
    pub fn value(&self, column: usize, value: Expr) -> Result<Expr> {
        match &value {
            v if is_default(v) => self.default(column),
            Expr::Value(v) if matches!(v.value, Value::Placeholder(_)) => {
                // So that the type of the parameter can be told. Some types have no name that can be read.
                let data_type = sql_type(self.table.arrow_schema.field(column).data_type());
                Ok(expression(&format!("CAST({value} AS {data_type})")).unwrap_or(value))
            }
            _ => Ok(value),
        }
    }

    /// Names `schema.table.column` of the target, which the query knows by its alias alone.
    pub fn unqualify(&self, node: &mut impl VisitMut) {
        let mut visitor =
            Unqualify { schema: &self.schema, table: &self.table.name, alias: &self.alias };
        let _ = walk_mut(node, &mut visitor);
    }
}

/// `relation.column`
pub fn qualified(relation: &str, column: &str) -> Expr {
    let part = |text: &str| Ident::with_quote('"', text);
    Expr::CompoundIdentifier(vec![part(relation), part(column)])
}

/// `schema.table`, for people.
pub fn full_name(schema: &str, name: &str) -> String {
    if schema == PUBLIC { name.to_string() } else { format!("{schema}.{name}") }
}

fn part(ident: Option<&Ident>) -> String {
    ident.map(names::ident).unwrap_or_default()
}

/// Schema, name and kind of the relation called `name`.
pub fn relation(
    snapshot: &Snapshot,
    name: &ObjectName,
) -> Result<(String, String, Option<RelationKind>)> {
    let parts: Vec<String> = name.0.iter().map(|p| part(p.as_ident())).collect();
    let reference = match &parts[..] {
        [table] => TableReference::bare(table.as_str()),
        [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
        [catalog, schema, table] => {
            TableReference::full(catalog.as_str(), schema.as_str(), table.as_str())
        }
        _ => return Err(Error::user(format!("{name} is not the name of a table"))),
    };
    let (schema, name) = names::split_name(&reference)?;
    names::check_not_system(&schema)?;
    let kind = snapshot.schemas.get(&schema).and_then(|s| s.relation(&name));
    Ok((schema, name, kind))
}

/// The stored table called `name`, and its schema. `what` is the statement's verb.
pub fn table(snapshot: &Snapshot, name: &ObjectName, what: &str) -> Result<(String, Arc<Table>)> {
    let (schema, name, kind) = relation(snapshot, name)?;
    if let Some(table) = snapshot.table(&schema, &name) {
        return Ok((schema, Arc::clone(table)));
    }
    let full = full_name(&schema, &name);
    Err(match kind {
        Some(kind) => Error::unsupported(format!("{what}: {} is a {}", quoted(&full), kind.name()))
            .hint("only stored tables can be changed, those of CREATE TABLE and load"),
        None => names::no_table(&full),
    })
}

/// The column called `ident` of a table, whose whole name is for errors.
pub fn index(table: &Table, whole_name: &str, ident: &Ident) -> Result<usize> {
    let columns = table.arrow_schema.fields().iter().map(|f| f.name().as_str());
    names::column(columns, ident)?.ok_or_else(|| no_column(table, whole_name, &names::ident(ident)))
}

fn no_column(table: &Table, whole_name: &str, wanted: &str) -> Error {
    let fields = table.arrow_schema.fields();
    let all: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
    let near = nearest(wanted, all.iter().copied());
    let hint = near.map_or_else(
        || format!("its columns are {}", all.join(", ")),
        |near| format!("did you mean {near}?"),
    );
    names::no_column(whole_name, wanted).hint(hint)
}

/// What a column gets that a statement does not name.
pub fn default(table: &Table, column: usize) -> Result<Expr> {
    let text = table.columns[column].default.as_deref().unwrap_or("NULL");
    expression(text)
}

/// An expression from its text, which was parsed once before.
pub fn expression(text: &str) -> Result<Expr> {
    let parsed = Parser::new(&Thalweg).try_with_sql(text).and_then(|mut p| p.parse_expr());
    parsed.map_err(|e| Error::corrupt(format!("the stored expression {text} is broken: {e}")))
}

/// Whether an expression is the word DEFAULT.
pub fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(i)
        if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

pub fn aliased(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) }
}

pub fn alone(relation: TableFactor) -> TableWithJoins {
    TableWithJoins { relation, joins: vec![] }
}

/// `[WITH …] SELECT projection FROM from [WHERE selection]`
pub fn select(
    with: Option<With>,
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Query {
    let mut query = blank();
    query.with = with;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = projection;
        select.from = from;
        select.selection = selection;
    }
    query
}

/// The parser knows the defaults of the many parts of a query.
fn blank() -> Query {
    match Parser::parse_sql(&Thalweg, "SELECT 1").map(|mut s| s.pop()) {
        Ok(Some(Statement::Query(query))) => *query,
        other => unreachable!("SELECT 1 is a query, not {other:?}"),
    }
}

/// `(query) AS alias`
pub fn derived(query: Query, alias: &str) -> TableFactor {
    TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias: Some(self::alias(Ident::with_quote('"', alias))),
        sample: None,
    }
}

/// `name AS alias`
pub fn named(name: ObjectName, alias: Option<Ident>) -> TableFactor {
    TableFactor::Table {
        name,
        alias: alias.map(self::alias),
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

fn alias(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: vec![], at: None }
}

/// `function(arguments)`
pub fn call(function: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e)));
    Expr::Function(Function {
        name: Ident::new(function).into(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

struct Unqualify<'a> {
    schema: &'a str,
    table: &'a str,
    alias: &'a str,
}

impl VisitorMut for Unqualify<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr {
            let names: Vec<String> = parts.iter().map(names::ident).collect();
            let ours = match &names[..] {
                [schema, table, _] => schema == self.schema && table == self.table,
                [catalog, schema, table, _] => {
                    catalog == CATALOG && schema == self.schema && table == self.table
                }
                _ => false,
            };
            if ours {
                let column = parts.pop().expect("three or four");
                *parts = vec![Ident::with_quote('"', self.alias), column];
            }
        }
        ControlFlow::Continue(())
    }
}
