//! Where the table of a sheet begins, and what its columns are called.

use std::collections::BTreeMap;
use std::mem::discriminant;

use super::cells::{Cell, Row, letters};
use super::options::BookOptions;
use crate::load::layout::unique_names;

/// Rows above a table that are taken for titles, at most.
const TITLES_MAX: usize = 16;

pub(super) struct Found {
    /// How many of the rows that were looked at are above the first row of values.
    pub begins: usize,
    /// By the columns of the sheet.
    pub names: BTreeMap<u32, String>,
}

/// `rows` are the first of the sheet that have a value.
pub(super) fn find(rows: &[Row], options: &BookOptions) -> Found {
    // Who says where it is, or that there is no header, leaves nothing to be found above it.
    let is_told = options.range.is_some() || options.header == Some(false);
    let above = if is_told { 0 } else { titles(rows) };
    let table = &rows[above..];
    let has_header = options.header.unwrap_or_else(|| is_header(table));
    let columns = table.iter().flat_map(|(_, cells)| cells.keys().copied());
    let mut columns: Vec<u32> = columns.collect();
    columns.sort_unstable();
    columns.dedup();
    let header = table.first().filter(|_| has_header).map(|(_, cells)| cells);
    let name = |column: &u32| {
        let named = header.and_then(|cells| cells.get(column)).map(Cell::name);
        named.filter(|name| !name.is_empty()).unwrap_or_else(|| letters(*column))
    };
    let names = unique_names(columns.iter().map(name));
    Found {
        begins: above + usize::from(header.is_some()),
        names: columns.into_iter().zip(names).collect(),
    }
}

/// The name of a column that the rows at first did not have.
pub(super) fn unnamed(column: u32, names: &BTreeMap<u32, String>) -> String {
    let own = letters(column);
    let all = names.values().cloned().chain([own.clone()]);
    unique_names(all).pop().unwrap_or(own)
}

/// How many rows are titles: texts alone, in at most half as many cells as the rows below have, of which
/// there are three or an empty row before them: of two cells, one may as well be missing.
fn titles(rows: &[Row]) -> usize {
    let is_text = |(_, cells): &&Row| cells.values().all(|cell| matches!(cell, Cell::Text(_)));
    let is_narrow = |at: usize| {
        let rest = &rows[at + 1..];
        let widest = rest.iter().take(TITLES_MAX).map(|(_, cells)| cells.len()).max().unwrap_or(0);
        let cells = rows[at].1.len();
        let table = at + 1 + rest.iter().take_while(|(_, next)| next.len() <= cells).count();
        let is_apart =
            rows[at..rows.len().min(table + 1)].windows(2).any(|pair| pair[1].0 > pair[0].0 + 1);
        cells * 2 <= widest && (widest > 2 || is_apart)
    };
    let narrow = |at: &usize| is_text(&&rows[*at]) && is_narrow(*at);
    (0..rows.len().min(TITLES_MAX)).take_while(narrow).count()
}

/// Whether the first row names the columns: its cells are no values of theirs, or all are different texts of
/// which none comes again in its column, or years that follow each other.
fn is_header(rows: &[Row]) -> bool {
    let Some(((_, first), below)) = rows.split_first() else { return false };
    let mut years: Vec<f64> = Vec::new();
    let (mut is_other, mut has_text, mut comes_again) = (false, false, false);
    for (column, cell) in first {
        let values = || below.iter().filter_map(|(_, cells)| cells.get(column));
        let same = values().filter(|value| discriminant(*value) == discriminant(cell)).count();
        match cell {
            Cell::Text(_) => {
                has_text = true;
                is_other |= same == 0 && values().next().is_some();
                comes_again |= values().any(|value| value == cell);
            }
            Cell::Number(x) if (1900.0..2101.0).contains(x) && x.fract() == 0.0 => years.push(*x),
            Cell::Date(_) if same == 0 && values().next().is_some() => is_other = true,
            _ => return false,
        }
    }
    let steps = |by: f64| years.windows(2).all(|pair| pair[1] - pair[0] == by);
    let are_years = years.is_empty() || years.len() > 1 && (steps(1.0) || steps(-1.0));
    if !are_years || !has_text && !is_other {
        return false;
    }
    let mut names: Vec<String> = first.values().map(|cell| cell.name().to_lowercase()).collect();
    let cells = names.len();
    names.sort_unstable();
    names.dedup();
    is_other || names.len() == cells && !comes_again
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Row> {
        let cell = |text: &&str| match text.parse() {
            Ok(x) => Cell::Number(x),
            Err(_) if text.starts_with("20") => Cell::Date((*text).to_owned()),
            Err(_) => Cell::Text((*text).to_owned()),
        };
        let row = |(at, row): (usize, &&[&str])| {
            let filled = row.iter().enumerate().filter(|(_, text)| !text.is_empty());
            (at as u32, filled.map(|(column, text)| (column as u32, cell(text))).collect())
        };
        rows.iter().enumerate().map(row).collect()
    }

    fn found(cells: &[&[&str]]) -> (usize, String) {
        let Found { begins, names } = find(&rows(cells), &BookOptions::default());
        (begins, names.into_values().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn headers_are_found() {
        let own = |begins, names: &str| (begins, names.to_owned());
        assert_eq!(found(&[&["id", "name"], &["1", "a"]]), own(1, "id name"));
        assert_eq!(found(&[&["1", "a"], &["2", "b"]]), own(0, "A B"));
        assert_eq!(found(&[&["a", "b"], &["x", "y"]]), own(1, "a b"));
        assert_eq!(found(&[&["a", "b"], &["a", "y"]]), own(0, "A B"));
        assert_eq!(found(&[&["land", "2020", "2021"], &["x", "1", "2"]]), own(1, "land 2020 2021"));
        assert_eq!(found(&[&["x", "2020", "7"], &["y", "1", "2"]]), own(0, "A B C"));
        assert_eq!(found(&[&["a", "2024-01-01"], &["x", "1"]]), own(1, "a 2024-01-01"));
        assert_eq!(found(&[&["a", "A", ""], &["1", "2", "3"]]), own(1, "a A_1 C"));
        let titled: &[&[&str]] = &[&["Sales"], &["by day"], &["id", "n", "v"], &["1", "2", "3"]];
        assert_eq!(found(titled), own(3, "id n v"));
        // One cell of two is a value with its neighbour missing, if it is a number.
        assert_eq!(found(&[&["1"], &["2", "b"], &["3", "c"]]), own(0, "A B"));
        assert_eq!(found(&[&["x"], &["y", "b"], &["x", "c"]]), own(0, "A B"));
    }
}
