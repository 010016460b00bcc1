//! Clauses of a `CREATE TABLE` that the parser and our own reading of it know.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use thalweg_base::{Error, Result};

/// Clauses of a `CREATE TABLE` that DataFusion's planner refuses.
#[derive(Debug, Default)]
pub struct Clauses {
    pub cluster_by: Vec<String>,
    /// Column and number of buckets; the parser has cut it out of the text.
    pub partition_by: Option<(String, u32)>,
}

impl Clauses {
    /// Removes `CLUSTER BY` from the statement.
    pub fn take(&mut self, statement: &mut Statement) -> Result<()> {
        let create = match statement {
            Statement::Statement(inner) => match inner.as_mut() {
                ast::Statement::CreateTable(create) => create,
                _ => return self.refuse(),
            },
            _ => return self.refuse(),
        };
        if create.partition_by.is_some() {
            return Err(Error::unsupported("only PARTITION BY HASH (column) INTO n is supported")
                .hint("CLUSTER BY (columns) orders rows by ranges, so that queries skip chunks"));
        }
        let columns = match create.cluster_by.take() {
            Some(
                ast::WrappedCollection::Parentheses(columns)
                | ast::WrappedCollection::NoWrapping(columns),
            ) => columns,
            None => return Ok(()),
        };
        self.cluster_by = names_of(&columns);
        Ok(())
    }

    fn refuse(&self) -> Result<()> {
        match self.partition_by {
            None => Ok(()),
            Some(_) => Err(Error::user("PARTITION BY HASH belongs to CREATE TABLE")),
        }
    }
}

/// `CLUSTER BY (a, b)` is one row of two columns to the parser.
pub(crate) fn names_of(columns: &[ast::Expr]) -> Vec<String> {
    let columns = columns.iter().flat_map(|expr| match expr {
        ast::Expr::Tuple(columns) => columns.iter().collect(),
        other => vec![other],
    });
    columns.map(column_name).collect()
}

/// An unquoted name is folded to lower case, as everywhere else.
pub(crate) fn column_name(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Identifier(i) if i.quote_style.is_none() => i.value.to_lowercase(),
        ast::Expr::Identifier(i) => i.value.clone(),
        // `CLUSTER BY (a)` alone is a parenthesised expression.
        ast::Expr::Nested(inner) => column_name(inner),
        other => other.to_string(),
    }
}
