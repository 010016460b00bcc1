//! The text that is kept of a view: its query, in which instants mean the same in sessions of other zones.
//!
//! A text in quotes that is an instant is read in the zone of the session that makes the view, as in PostgreSQL,
//! which keeps the instant and not the text. `WHERE at >= '2024-01-01'` does not say in itself that the text is
//! one: the plan of the query does.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Cast, DdlStatement, Expr, LogicalPlan, TryCast};
use datafusion::sql::sqlparser::ast::Value;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};
use thalweg_base::Result;
use thalweg_errors::from_datafusion;
use thalweg_functions::text_as::TextAs;
use thalweg_plan::zones::{has_instants, in_zone, stored};

use crate::defaults::in_utc;
use crate::dialect::Thalweg;
use crate::statement;

/// The text that is kept of a `CREATE VIEW` whose query has this plan.
///
/// # Errors
/// The plan cannot be looked through.
pub async fn kept(state: &SessionState, sql: &str, query: &LogicalPlan) -> Result<String> {
    let uses = Uses::of(query).map_err(from_datafusion)?;
    let texts = texts(sql);
    let is_instant = |text: &Text| uses.instants.get(&text.value).cloned();
    // One that is an instant in one place and something else in another has to be told apart.
    let is_both = |text: &Text| is_instant(text).is_some() && uses.others.contains(&text.value);
    let mut found: Vec<Option<DataType>> = texts.iter().map(is_instant).collect();
    if texts.iter().any(is_both) {
        let marked: Vec<Option<String>> = texts.iter().enumerate().map(mark_if(&is_both)).collect();
        let places = uses_of_text(state, &replaced(sql, &texts, &marked, quoted)).await;
        for (place, mark) in found.iter_mut().zip(marked) {
            if let Some(mark) = mark {
                *place = places.as_ref().and_then(|uses| uses.instants.get(&mark).cloned());
            }
        }
    }
    let mut settled = vec![None; texts.len()];
    for ((text, data_type), settled) in texts.iter().zip(found).zip(&mut settled) {
        if let Some(data_type) = data_type
            && depends_on_zone(&text.value, &data_type)
        {
            let value = Value::SingleQuotedString(text.value.clone());
            *settled = Some(in_utc(state, &value, &data_type)?);
        }
    }
    Ok(replaced(sql, &texts, &settled, quoted))
}

/// The texts that are to be told apart, each with its number behind it.
fn mark_if(is_both: impl Fn(&Text) -> bool) -> impl Fn((usize, &Text)) -> Option<String> {
    move |(number, text)| is_both(text).then(|| format!("{}\u{1}{number}", text.value))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What texts in quotes are in a plan.
#[derive(Default)]
struct Uses {
    instants: HashMap<String, DataType>,
    others: HashSet<String>,
}

impl Uses {
    fn of(plan: &LogicalPlan) -> DfResult<Uses> {
        let mut uses = Uses::default();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|e| Ok(uses.see(e)))?;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(uses)
    }

    fn see(&mut self, expr: &Expr) -> TreeNodeRecursion {
        let of_cast = match expr {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                literal(expr).zip(Some(field.data_type()))
            }
            _ => None,
        };
        match of_cast {
            Some((text, data_type)) if has_instants(data_type) => {
                self.instants.insert(text.to_owned(), data_type.clone());
                return TreeNodeRecursion::Jump;
            }
            _ => self.others.extend(literal(expr).map(str::to_owned)),
        }
        TreeNodeRecursion::Continue
    }
}

fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// The same of the plan of a `CREATE VIEW` with marks in its texts. `None`: there is none, since a text is read
/// while the query is planned; such a text stays what it is.
async fn uses_of_text(state: &SessionState, sql: &str) -> Option<Uses> {
    let parsed = statement::parse(state, sql).ok()?;
    match statement::plan(state, parsed).await.ok()? {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => Uses::of(&view.input).ok(),
        _ => None,
    }
}

/// Whether a text is another instant in a session of another zone: one that names a zone is not. What is no
/// instant at all fails when it is asked for.
fn depends_on_zone(text: &str, data_type: &DataType) -> bool {
    let to = stored(data_type);
    let read = |zone: &str| -> Option<ArrayRef> {
        let of_zone = in_zone(&to, Some(zone)).unwrap_or_else(|| to.clone());
        let value = TextAs::new(of_zone, false).array(&StringArray::from(vec![text])).ok()?;
        cast(&value, &to).ok()
    };
    match (read("+00:00"), read("+05:00")) {
        (Some(here), Some(there)) => *here != *there,
        _ => false,
    }
}

/// A text in quotes.
struct Text {
    value: String,
    /// Its bytes with the quotes.
    range: Range<usize>,
}

/// The texts in quotes of a statement, in their order.
fn texts(sql: &str) -> Vec<Text> {
    let Ok(tokens) = Tokenizer::new(&Thalweg, sql).tokenize_with_location() else { return vec![] };
    let mut lines = vec![0];
    lines.extend(sql.match_indices('\n').map(|(at, _)| at + 1));
    let offset = |place: Location| {
        let start = *lines.get(place.line.checked_sub(1)? as usize)?;
        let column = place.column.checked_sub(1)? as usize;
        let ends = std::iter::once(sql.len() - start);
        sql[start..].char_indices().map(|(at, _)| at).chain(ends).nth(column).map(|at| start + at)
    };
    let texts = tokens.into_iter().filter_map(|token| {
        let value = match token.token {
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text)
            | Token::NationalStringLiteral(text) => text,
            Token::DollarQuotedString(text) => text.value,
            _ => return None,
        };
        Some(Text { value, range: offset(token.span.start)?..offset(token.span.end)? })
    });
    texts.collect()
}

/// A statement with other texts where there are some.
fn replaced(
    sql: &str,
    texts: &[Text],
    by: &[Option<String>],
    written: impl Fn(&str) -> String,
) -> String {
    let mut made = String::with_capacity(sql.len());
    let mut before = 0;
    for (text, by) in texts.iter().zip(by) {
        if let Some(by) = by {
            made.push_str(&sql[before..text.range.start]);
            made.push_str(&written(by));
            before = text.range.end;
        }
    }
    made.push_str(&sql[before..]);
    made
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    #[test]
    fn texts_are_found_where_they_stand() {
        let sql = "SELECT 'é', 'it''s', -- 'no'\n  E'a\\n', $$d$$, \"t\" FROM x";
        let found = texts(sql);
        let values: Vec<&str> = found.iter().map(|text| text.value.as_str()).collect();
        assert_eq!(values, ["é", "it's", "a\n", "d"]);
        let written: Vec<&str> = found.iter().map(|text| &sql[text.range.clone()]).collect();
        assert_eq!(written, ["'é'", "'it''s'", "E'a\\n'", "$$d$$"]);
        let by = [None, Some("o'k".to_owned()), None, Some("x".to_owned())];
        let made = replaced(sql, &found, &by, quoted);
        assert_eq!(made, "SELECT 'é', 'o''k', -- 'no'\n  E'a\\n', 'x', \"t\" FROM x");
    }

    #[test]
    fn instants_with_a_zone_depend_on_none() {
        let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Vienna".into()));
        let list = DataType::List(Field::new_list_field(instant.clone(), true).into());
        let check = |text: &str, data_type: &DataType, expected: bool| {
            assert_eq!(depends_on_zone(text, data_type), expected, "{text}");
        };
        check("2024-01-01 00:00", &instant, true);
        check("2024-01-01", &instant, true);
        check("2024-01-01 00:00+02", &instant, false);
        check("2024-01-01 00:00Z", &instant, false);
        check("no instant", &instant, false);
        check("{2024-01-01,NULL}", &list, true);
        check("{NULL}", &list, false);
    }
}
