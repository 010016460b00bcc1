//! Names as a statement writes them.

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use thalweg_base::{Error, Place};

use crate::failure::{Result, not_covered, wrong};

/// A name as it was written.
#[derive(Clone, Debug)]
pub struct Part {
    /// Folded to lower case unless it is quoted.
    pub text: String,
    pub quoted: bool,
    /// Line and character in the text of the statement.
    pub place: Option<(u32, u32)>,
}

impl Part {
    pub fn of(ident: &Ident) -> Part {
        let start = ident.span.start;
        let place = (start.line > 0).then_some((start.line as u32, start.column as u32));
        match ident.quote_style {
            Some(_) => Part { text: ident.value.clone(), quoted: true, place },
            None => Part { text: ident.value.to_lowercase(), quoted: false, place },
        }
    }

    pub fn is(&self, name: &str) -> bool {
        self.text == name || (!self.quoted && name.to_lowercase() == self.text)
    }
}

/// The parts of a name as messages show it.
pub fn shown(parts: &[Part]) -> String {
    parts.iter().map(|p| p.text.as_str()).collect::<Vec<_>>().join(".")
}

/// The error, at the place where the name is written.
pub(crate) fn located(error: Error, part: &Part) -> Error {
    match part.place {
        Some((line, column)) => error.at(Place::Line(line, column)),
        None => error,
    }
}

/// The parts of a name; those that are no identifiers are not covered.
pub(crate) fn parts(name: &ObjectName) -> Result<Vec<Part>> {
    let parts: Option<Vec<Part>> = name.0.iter().map(|p| p.as_ident().map(Part::of)).collect();
    match parts {
        Some(parts) => Ok(parts),
        None => not_covered("this name"),
    }
}

/// A table's name, as the catalog has it.
pub(crate) fn reference(name: &ObjectName) -> Result<TableReference> {
    let idents: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
    let Some(idents) = idents else { return not_covered("this name of a table") };
    let text = |ident: &Ident| Part::of(ident).text;
    match idents[..] {
        [table] => Ok(TableReference::bare(text(table))),
        [schema, table] => Ok(TableReference::partial(text(schema), text(table))),
        [catalog, schema, table] => {
            Ok(TableReference::full(text(catalog), text(schema), text(table)))
        }
        _ => wrong("42601", format!("improper qualified name (too many dotted names): {name}")),
    }
}
