//! Which names an expression may use, and which columns these are.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::TableAlias;
use thalweg_base::Error;
use thalweg_base::text::nearest;

use crate::failure::{Failure, Result, not_covered, wrong};
use crate::name::{Part, located, shown};
use crate::nested::subquery;
use crate::typed::Typed;
use crate::types::TextKind;

/// A column that the text can name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What qualifies it: a table's name or alias, with the names of its schema and database before it if
    /// these were written.
    pub table: Option<Arc<[String]>>,
    pub name: String,
    /// The column itself; its qualifier is no other's in the statement.
    pub column: Column,
    pub data_type: DataType,
    pub nullable: bool,
    /// One of two columns that `USING` merges. A name without a qualifier means the merged column, and so
    /// does `*`.
    pub hidden: bool,
    /// A second name of a column: `*` gives the column once, under the other.
    pub also: bool,
    /// A literal in quotes without a type of its own, as a column of a subquery.
    pub unknown: bool,
    /// Whether blanks at its end count where it is compared.
    pub text: TextKind,
}

impl Entry {
    pub fn typed(&self) -> Typed {
        Typed {
            expr: Expr::Column(self.column.clone()),
            data_type: self.data_type.clone(),
            nullable: self.nullable,
            unknown: false,
            text: self.text,
        }
    }

    /// As a query within the one that has the column sees it.
    pub(crate) fn outer(&self) -> Typed {
        let field = Field::new(&self.column.name, self.data_type.clone(), self.nullable);
        let expr = Expr::OuterReferenceColumn(Arc::new(field), self.column.clone());
        Typed { expr, ..self.typed() }
    }

    fn is_of(&self, qualifier: &[Part]) -> bool {
        let Some(table) = &self.table else { return false };
        let n = qualifier.len();
        n <= table.len() && table[table.len() - n..].iter().zip(qualifier).all(|(t, q)| q.is(t))
    }
}

/// The names of one query, and those of the queries around it.
#[derive(Clone, Default)]
pub struct Scope<'p> {
    pub entries: Vec<Entry>,
    /// Items of the select list so far, by alias: a name that is no column may be one of them.
    pub aliases: Vec<(String, Typed)>,
    pub parent: Option<&'p Scope<'p>>,
    /// Aggregates of this query that stand in queries within it, and the columns that hold them.
    pub aggregates: Rc<RefCell<Vec<(Expr, String)>>>,
    /// The clause that the query within stands in, if it takes no aggregates of this one.
    pub without_aggregates: Option<&'static str>,
}

impl<'p> Scope<'p> {
    pub fn within(parent: Option<&'p Scope<'p>>) -> Self {
        Scope { parent, ..Scope::default() }
    }

    /// Whether it is a column of this query.
    fn has(&self, column: &Column) -> bool {
        self.entries.iter().any(|entry| entry.column == *column)
            || self.aggregates.borrow().iter().any(|(_, name)| *name == column.name)
    }

    /// The query around that an aggregate of these expressions belongs to: the nearest one whose columns
    /// they name. `None` if that is this query, or they name no columns at all.
    pub fn level<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<Option<&Scope<'p>>> {
        let mut is_own = false;
        let mut has_query = false;
        let mut outer: Vec<Column> = vec![];
        for expr in exprs {
            expr.apply(|e| {
                match e {
                    Expr::Column(_) => is_own = true,
                    Expr::OuterReferenceColumn(_, column) => outer.push(column.clone()),
                    _ => {}
                }
                for e in subquery(e).iter().flat_map(|s| &s.outer_ref_columns) {
                    if let Expr::OuterReferenceColumn(_, column) = e {
                        has_query = true;
                        is_own |= self.has(column);
                        outer.push(column.clone());
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if is_own || outer.is_empty() {
            return Ok(None);
        }
        let mut now = self.parent;
        while let Some(scope) = now {
            if outer.iter().any(|column| scope.has(column)) {
                return match has_query {
                    true => not_covered("an aggregate of an outer query over a subquery"),
                    false => Ok(Some(scope)),
                };
            }
            now = scope.parent;
        }
        Ok(None)
    }

    /// An aggregate of this query, as the query within that has it sees it. `name` is for a new one.
    pub fn lifted(&self, aggregate: Typed, name: String) -> Result<Typed> {
        let expr = aggregate.expr.transform_up(|e| {
            Ok(match e {
                Expr::OuterReferenceColumn(_, column) if self.has(&column) => {
                    Transformed::yes(Expr::Column(column))
                }
                e => Transformed::no(e),
            })
        })?;
        let expr = expr.data;
        let mut aggregates = self.aggregates.borrow_mut();
        let name = match aggregates.iter().find(|(other, _)| *other == expr) {
            Some((_, name)) => name.clone(),
            None => {
                aggregates.push((expr, name.clone()));
                name
            }
        };
        let field = Field::new(&name, aggregate.data_type.clone(), true);
        let expr = Expr::OuterReferenceColumn(Arc::new(field), Column::from_name(name));
        Ok(Typed { expr, nullable: true, ..aggregate })
    }

    /// Whether all columns are of the table with this name.
    pub fn is_of_one_table(&self, qualifier: &[Part]) -> bool {
        !self.entries.is_empty() && self.entries.iter().all(|entry| entry.is_of(qualifier))
    }

    /// The type of a column of this query.
    pub fn type_of(&self, column: &Column) -> Option<DataType> {
        let entry = self.entries.iter().find(|entry| entry.column == *column)?;
        Some(entry.data_type.clone())
    }

    /// What a name means: a column of this query, an alias, a column of a query around it. The second
    /// value is how many of the parts name it; what is behind them are fields of a struct.
    pub fn find(&self, parts: &[Part]) -> Result<(Typed, usize)> {
        // `t.c` at every level before `c.field` at any.
        for used in (1..=parts.len()).rev() {
            let mut scope = Some(self);
            let mut is_outer = false;
            while let Some(now) = scope {
                if let Some(entry) = now.find_one(&parts[..used], parts)? {
                    let found = if is_outer { entry.outer() } else { entry.typed() };
                    return Ok((found, used));
                }
                if !is_outer
                    && let [part] = parts
                    && let Some(found) = now.alias(part)
                {
                    return Ok((found, 1));
                }
                // A table of this query hides those of its name around it, with all of their columns.
                if used > 1 && now.has_table(&parts[..used - 1]) {
                    break;
                }
                scope = now.parent;
                is_outer = true;
            }
        }
        Err(Failure::Wrong(self.missing(parts)))
    }

    /// An alias of the select list.
    pub fn alias(&self, part: &Part) -> Option<Typed> {
        let mut found = self.aliases.iter().filter(|(name, _)| part.is(name));
        let (_, first) = found.next()?;
        // Two items of one name that are the same expression are no choice.
        found.all(|(_, other)| other.expr == first.expr).then(|| first.clone())
    }

    /// The column of this query's own tables that all of `parts` name, which are the first of `written`.
    pub fn find_one(&self, parts: &[Part], written: &[Part]) -> Result<Option<&Entry>> {
        let Some((name, qualifier)) = parts.split_last() else { return Ok(None) };
        let candidates = |also: bool| {
            self.entries.iter().filter(move |entry| {
                entry.also == also
                    && match qualifier.is_empty() {
                        true => !entry.hidden,
                        false => entry.is_of(qualifier),
                    }
            })
        };
        // Second names count where no column has the name for its first.
        for also in [false, true] {
            let exact: Vec<&Entry> = candidates(also).filter(|e| e.name == name.text).collect();
            let found = match exact.is_empty() && !name.quoted {
                true => candidates(also).filter(|e| name.is(&e.name)).collect(),
                false => exact,
            };
            match found[..] {
                [] => {}
                [one] => return Ok(Some(one)),
                [first, ..] if found.iter().all(|e| e.column == first.column) => {
                    return Ok(Some(first));
                }
                _ => return Err(Failure::Wrong(ambiguous(written, &found))),
            }
        }
        Ok(None)
    }

    /// What a column is called that was written so: by its own letters.
    pub fn title(&self, column: &Column, written: String) -> String {
        let is = |entry: &&Entry| {
            entry.column == *column && entry.name.to_lowercase() == written.to_lowercase()
        };
        self.entries.iter().find(is).map_or(written, |entry| entry.name.clone())
    }

    pub fn has_table(&self, qualifier: &[Part]) -> bool {
        self.entries.iter().any(|e| e.is_of(qualifier))
    }

    /// The columns of `*` or of `t.*`.
    pub fn columns(&self, qualifier: Option<&[Part]>) -> Vec<&Entry> {
        let of = |e: &&Entry| match qualifier {
            _ if e.also => false,
            None => !e.hidden,
            Some(qualifier) => e.is_of(qualifier),
        };
        self.entries.iter().filter(of).collect()
    }

    fn missing(&self, parts: &[Part]) -> Error {
        let text = shown(parts);
        if parts.len() > 1 && !self.has_table(&parts[..parts.len() - 1]) {
            let table = shown(&parts[..parts.len() - 1]);
            let error = Error::user(format!("missing FROM-clause entry for table \"{table}\""));
            let error = located(error.code("42P01"), &parts[0]);
            let tables = self.tables();
            return match tables.is_empty() {
                true => error,
                false => error.hint(format!("the tables here are {}", tables.join(", "))),
            };
        }
        let message = match parts.len() {
            1 => format!("column \"{text}\" does not exist"),
            _ => format!("column {text} does not exist"),
        };
        let error = located(Error::user(message).code("42703"), &parts[0]);
        if let Some(entry) = self.similar(&parts[parts.len() - 1].text) {
            return error.hint(format!("did you mean {}?", qualified(entry)));
        }
        let columns: Vec<String> = self.columns(None).into_iter().map(qualified).collect();
        match columns.len() {
            1..=COLUMNS_SHOWN_MAX => {
                error.hint(format!("the columns here are {}", columns.join(", ")))
            }
            _ => error,
        }
    }

    /// The names of the tables, each once.
    fn tables(&self) -> Vec<String> {
        let mut names: Vec<String> = vec![];
        for table in self.entries.iter().filter_map(|e| e.table.as_deref()) {
            if let Some(name) = table.last().map(|name| spelled(name))
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        names
    }

    /// The column whose name is nearest to a misspelt one.
    fn similar(&self, name: &str) -> Option<&Entry> {
        let scopes = std::iter::successors(Some(self), |scope| scope.parent);
        let entries = scopes.flat_map(|scope| &scope.entries);
        let near = nearest(name, entries.clone().map(|entry| entry.name.as_str()))?;
        entries.clone().find(|entry| entry.name == near)
    }
}

/// Columns that a hint lists.
const COLUMNS_SHOWN_MAX: usize = 12;

/// A name as a statement has to write it.
fn spelled(name: &str) -> String {
    let is_plain = !name.is_empty()
        && name
            .chars()
            .all(|c| c == '_' || c.is_ascii_digit() || (c.is_alphabetic() && !c.is_uppercase()));
    if is_plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn qualified(entry: &Entry) -> String {
    match entry.table.as_deref().and_then(|t| t.last()) {
        Some(table) => format!("{}.{}", spelled(table), spelled(&entry.name)),
        None => spelled(&entry.name),
    }
}

fn ambiguous(parts: &[Part], found: &[&Entry]) -> Error {
    let all: Vec<String> = found.iter().map(|e| qualified(e)).collect();
    let error = Error::user(format!("column reference \"{}\" is ambiguous", shown(parts)));
    let hint = format!("it could be {}", all.join(" or "));
    located(error.code("42702").hint(hint), &parts[0])
}

/// Rows, and the names of their columns.
pub(crate) struct Rows {
    pub plan: LogicalPlan,
    pub entries: Vec<Entry>,
}

/// `AS t (a, b)`
pub(crate) fn rename(entries: &mut [Entry], alias: &TableAlias) -> Result<()> {
    if alias.at.is_some() || alias.columns.iter().any(|c| c.data_type.is_some()) {
        return not_covered("this alias");
    }
    if alias.columns.len() > entries.len() {
        return wrong(
            "42P10",
            format!(
                "table \"{}\" has {} columns available but {} columns specified",
                Part::of(&alias.name).text,
                entries.len(),
                alias.columns.len()
            ),
        );
    }
    for (entry, column) in entries.iter_mut().zip(&alias.columns) {
        entry.name = Part::of(&column.name).text;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(table: &str, name: &str, id: &str) -> Entry {
        Entry {
            table: Some(Arc::from([table.to_string()])),
            name: name.into(),
            column: Column::new(Some(id), name),
            data_type: DataType::Int32,
            nullable: true,
            hidden: false,
            also: false,
            text: TextKind::Any,
            unknown: false,
        }
    }

    fn part(text: &str) -> Part {
        Part { text: text.into(), quoted: false, place: None }
    }

    #[test]
    fn names_are_found_by_case_only_where_they_must_be() {
        let entries = vec![entry("t", "A", "t"), entry("t", "b", "t"), entry("u", "B", "u")];
        let scope = Scope { entries, ..Scope::default() };
        let found = |parts: &[Part]| {
            scope.find(parts).map(|(t, _)| t.expr.to_string()).map_err(|f| match f {
                Failure::Wrong(e) => e.to_string(),
                other => format!("{other:?}"),
            })
        };
        assert_eq!(found(&[part("a")]), Ok("t.A".into()));
        assert_eq!(found(&[part("b")]), Ok("t.b".into()), "the exact name comes first");
        assert_eq!(found(&[part("u"), part("b")]), Ok("u.B".into()));
        assert_eq!(
            found(&[Part { text: "a".into(), quoted: true, place: None }]),
            Err("column \"a\" does not exist".into())
        );
        assert_eq!(
            found(&[part("v"), part("a")]),
            Err("missing FROM-clause entry for table \"v\"".into())
        );
    }
}
