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

/// The candidate that is most like a name, if one is so like it that it may have been meant.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let most = (name.chars().count() / 3).clamp(1, 3);
    let distances = candidates.map(|c| (distance(&name, &c.to_lowercase(), most), c));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= most && distance < name.chars().count()).then_some(near)
}

/// How many characters have to be changed, added or left out (Levenshtein), as long as these are
/// not more than `most`.
fn distance(a: &str, b: &str, most: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Two columns that differ by case alone, and a name that may mean either.
fn ambiguous(name: &str, columns: &[&str]) -> Error {
    let all: Vec<String> = columns.iter().map(|c| quoted(c)).collect();
    Error::user(format!("column {} is ambiguous: it may be {}", quoted(name), all.join(" or ")))
        .code("42702")
        .hint("write the name in double quotes, as the column has it")
}
