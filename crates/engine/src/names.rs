//! Names as the planner knows them.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

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
