//! Names as the planner knows them.

use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, TableAlias};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result, Subject};
use thalweg_errors::no_relation;
use thalweg_pgcatalog::database::PG_CATALOG;

/// A name that is not quoted is folded to lower case.
pub fn ident(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Which of the columns a name means: the very one with quotes; without, the one in lower case, else
/// the only one that is the same without regard to case.
///
/// # Errors
/// Several columns differ by case alone.
pub fn column<'n>(
    columns: impl Iterator<Item = &'n str> + Clone,
    name: &Ident,
) -> Result<Option<usize>> {
    let wanted = ident(name);
    if let Some(at) = columns.clone().position(|column| column == wanted) {
        return Ok(Some(at));
    }
    if name.quote_style.is_some() {
        return Ok(None);
    }
    let same = columns.enumerate().filter(|(_, column)| column.to_lowercase() == wanted);
    let same: Vec<(usize, &str)> = same.collect();
    match &same[..] {
        [] => Ok(None),
        [(at, _)] => Ok(Some(*at)),
        several => {
            let columns: Vec<&str> = several.iter().map(|(_, column)| *column).collect();
            Err(ambiguous(&name.value, &columns))
        }
    }
}

/// The same for each part of a name, joined by points.
pub fn folded(name: &ObjectName) -> String {
    let parts = name.0.iter().map(|part| part.as_ident().map_or(part.to_string(), ident));
    parts.collect::<Vec<_>>().join(".")
}

/// Two columns that differ by case alone, and a name that may mean either.
fn ambiguous(name: &str, columns: &[&str]) -> Error {
    let all: Vec<String> = columns.iter().map(|c| quoted(c)).collect();
    Error::user(format!("column {} is ambiguous: it may be {}", quoted(name), all.join(" or ")))
        .code("42702")
        .hint("write the name in double quotes, as the column has it")
}

/// The one catalog's name, as `information_schema` shows it.
pub const CATALOG: &str = "thalweg";

/// Where a table without a schema name lives.
pub const PUBLIC: &str = "public";

/// The schema of what the database says of itself.
pub const SYSTEM: &str = "system";

/// `t␀rows` is the table with the column that names rows.
pub const ROWS: &str = "rows";

/// And the same for a table that rows are added to, which need not be readable.
pub const TARGET: &str = "into";

/// Schema and name of a relation in our one catalog.
pub(crate) fn split_name(name: &TableReference) -> Result<(String, String)> {
    if let Some(catalog) = name.catalog()
        && catalog != CATALOG
    {
        return Err(Error::user(format!("there is no catalog {}", quoted(catalog)))
            .hint(format!("the one catalog is {CATALOG}; write schema.table")));
    }
    Ok((name.schema().unwrap_or(PUBLIC).to_string(), name.table().to_string()))
}

/// The schema `system` is there always, and nothing can be changed in it.
pub(crate) fn check_not_system(schema: &str) -> Result<()> {
    if [SYSTEM, INFORMATION_SCHEMA, PG_CATALOG].contains(&schema) {
        return Err(Error::user(format!("schema {} cannot be changed", quoted(schema)))
            .code("42501")
            .hint("its tables show what the database is; they are there to be queried"));
    }
    Ok(())
}

/// A statement names a table that is not there.
pub(crate) fn no_table(name: &str) -> Error {
    no_relation(name)
}

/// A statement names a column that the table has not.
pub(crate) fn no_column(table: &str, column: &str) -> Error {
    Error::user(format!("column {} of relation {} does not exist", quoted(column), quoted(table)))
        .code("42703")
        .about(Subject::Column(None, column.into()))
}

/// A statement makes a relation that is there.
pub(crate) fn already_exists(schema: &str, name: &str) -> Error {
    let full = if schema == PUBLIC {
        quoted(name)
    } else {
        format!("{}.{}", quoted(schema), quoted(name))
    };
    Error::user(format!("relation {full} already exists"))
        .code("42P07")
        .hint("use another name, CREATE … IF NOT EXISTS, or drop it first")
}

/// Renames `t` to `t␀suffix AS t`.
pub fn decorate(name: &mut ObjectName, alias: &mut Option<TableAlias>, suffix: &str) {
    let Some(last) = name.0.pop() else { return };
    let table = folded(&ObjectName(vec![last]));
    alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::with_quote('"', &table),
        columns: vec![],
        at: None,
    });
    let decorated = Ident::with_quote('"', format!("{table}\0{suffix}"));
    name.0.push(ObjectNamePart::Identifier(decorated));
}
