//! Functions in FROM that read files: `read_csv('a.csv', header = true)`.
//!
//! Which files they name and what their options mean, the binder does not know: it asks for a table by
//! the text of the call, and whoever looks the tables of a statement up has found the same calls in it.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::sqlparser::ast::{FunctionArg, TableAlias, TableFactor};

use crate::binder::Binder;
use crate::failure::Result;
use crate::name::Part;
use crate::scope::Rows;

/// The functions, each with the name that it has first.
pub const READERS: [(&str, &str); 10] = [
    ("read_csv", "read_csv"),
    ("read_csv_auto", "read_csv"),
    ("read_json", "read_json"),
    ("read_json_auto", "read_json"),
    ("read_ndjson", "read_ndjson"),
    ("read_ndjson_auto", "read_ndjson"),
    ("read_parquet", "read_parquet"),
    ("parquet_scan", "read_parquet"),
    ("read_arrow", "read_arrow"),
    ("read_xlsx", "read_xlsx"),
];

/// The call of one of them.
#[derive(Clone, Debug)]
pub struct Reads<'t> {
    pub name: String,
    pub args: &'t [FunctionArg],
    pub alias: Option<&'t TableAlias>,
}

impl<'t> Reads<'t> {
    /// `None` if the item is something else.
    pub fn of(factor: &'t TableFactor) -> Option<Self> {
        let (name, args, alias) = match factor {
            TableFactor::Function { lateral: _, name, args, with_ordinality: false, alias } => {
                (name, args, alias)
            }
            TableFactor::Table {
                name, alias, args: Some(args), with_ordinality: false, ..
            } if args.settings.is_none() => (name, &args.args, alias),
            _ => return None,
        };
        let [part] = &name.0[..] else { return None };
        let name = Part::of(part.as_ident()?).text;
        READERS.iter().any(|(reader, _)| *reader == name).then(|| Reads {
            name,
            args,
            alias: alias.as_ref(),
        })
    }

    /// What the table is asked for by: two calls with the same arguments are one table.
    pub fn reference(&self) -> TableReference {
        let args: Vec<String> = self.args.iter().map(ToString::to_string).collect();
        TableReference::bare(format!("{}({})", self.name, args.join(", ")))
    }
}

impl Binder<'_> {
    /// The rows of the files.
    pub(crate) fn read(&self, call: &Reads<'_>) -> Result<Rows> {
        let reference = call.reference();
        let source = self.names.get_table_source(reference.clone())?;
        let table = call.alias.map_or(call.name.clone(), |a| Part::of(&a.name).text);
        let own = self.qualifier(&table);
        let plan = LogicalPlanBuilder::scan(reference, source, None)?.alias(own)?.build()?;
        self.scanned(plan, Some(Arc::from([table])), call.alias)
    }
}
