//! Texts of a declared length: `varchar(n)` and `char(n)`, also as items of lists.
//!
//! Arrow has one type for all texts, so a column's field says in its metadata what it was declared as, and
//! keeps that in the catalog. Tables of older programs say nothing, and hold any text.
//!
//! What is too long is refused when it is written; blanks at its end may be cut for it to fit, as the SQL
//! standard wants. `char(n)` is kept without the blanks at its end, which do not count when it is compared.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StringViewBuilder};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field};
use thalweg_base::{Error, Result};

/// Of a field's metadata: `varchar(3)` or `char(3)`, and `varchar(3)[]` of a list.
pub const TYPE_KEY: &str = thalweg_base::text::DECLARED_TYPE_KEY;

/// What a column of texts was declared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLength {
    pub characters: u32,
    /// `char(n)`, and not `varchar(n)`.
    pub blank_padded: bool,
    /// Levels of lists that the texts are items of.
    pub lists: u8,
}

impl TextLength {
    /// `None`: the field is no text, or one of any length.
    pub fn of(field: &Field) -> Option<TextLength> {
        TextLength::declared(field).filter(|length| length.lists == 0)
    }

    /// The same also of lists of texts.
    pub fn declared(field: &Field) -> Option<TextLength> {
        let mut declared = field.metadata().get(TYPE_KEY)?.as_str();
        let (mut data_type, mut lists) = (field.data_type(), 0);
        while let Some(items) = declared.strip_suffix("[]") {
            let (DataType::List(item) | DataType::LargeList(item)) = data_type else { return None };
            (declared, data_type, lists) = (items, item.data_type(), lists + 1);
        }
        let is_text =
            matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
        let (name, rest) = declared.split_once('(')?;
        let characters = rest.strip_suffix(')')?.parse().ok()?;
        let blank_padded = match name {
            "varchar" => false,
            "char" => true,
            _ => return None,
        };
        is_text.then_some(TextLength { characters, blank_padded, lists })
    }

    /// As `CREATE TABLE` spells it.
    pub fn name(self) -> String {
        let name = if self.blank_padded { "char" } else { "varchar" };
        format!("{name}({}){}", self.characters, "[]".repeat(self.lists.into()))
    }

    /// The field, declared so.
    pub fn declare(self, field: Field) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.insert(TYPE_KEY.into(), self.name());
        field.with_metadata(metadata)
    }

    /// The part of a text that is kept; `None`: it is too long.
    fn kept(self, text: &str) -> Option<&str> {
        let shown = if self.blank_padded { text.trim_end_matches(' ') } else { text };
        // A character has one byte or more.
        let most = self.characters as usize;
        if shown.len() <= most {
            return Some(shown);
        }
        match shown.char_indices().nth(most) {
            None => Some(shown),
            Some((end, _)) => shown[end..].bytes().all(|b| b == b' ').then_some(&shown[..end]),
        }
    }

    /// As much of a text as the length has room for: what an explicit cast gives.
    pub fn cut(self, text: &str) -> &str {
        let end =
            text.char_indices().nth(self.characters as usize).map_or(text.len(), |(at, _)| at);
        let cut = &text[..end];
        if self.blank_padded { cut.trim_end_matches(' ') } else { cut }
    }
}

/// A column as its field was declared.
///
/// # Errors
/// 22001: a text is too long.
pub fn fit(array: ArrayRef, field: &Field) -> Result<ArrayRef> {
    match TextLength::declared(field) {
        Some(length) => fit_length(array, length, field.name()),
        None => Ok(array),
    }
}

fn fit_length(array: ArrayRef, length: TextLength, column: &str) -> Result<ArrayRef> {
    if let Some(lists) = array.as_list_opt::<i32>() {
        let (item, offsets, values, nulls) = lists.clone().into_parts();
        let values = without_hidden(lists, values)?;
        let fitting = fit_length(Arc::clone(&values), length, column)?;
        return Ok(match Arc::ptr_eq(&fitting, &values) {
            true => array,
            false => Arc::new(ListArray::new(item, offsets, fitting, nulls)),
        });
    }
    let Some(texts) = array.as_string_view_opt() else { return Ok(array) };
    let fits = |text: &str| length.kept(text).is_some_and(|kept| kept.len() == text.len());
    if texts.iter().flatten().all(fits) {
        return Ok(array);
    }
    let mut kept = StringViewBuilder::with_capacity(texts.len());
    for text in texts {
        match text.map(|text| length.kept(text)) {
            None => kept.append_null(),
            Some(Some(text)) => kept.append_value(text),
            Some(None) => {
                let name = if length.blank_padded { "character" } else { "character varying" };
                return Err(Error::user(format!(
                    "value too long for type {name}({})",
                    length.characters
                ))
                .code("22001")
                .detail(format!("column \"{column}\""))
                .hint("an explicit cast to the type cuts what is too long"));
            }
        }
    }
    Ok(Arc::new(kept.finish()))
}

/// The items of lists; NULL in the place of those that no list shows: a list that is NULL may have items, and
/// a slice of lists has those of all.
fn without_hidden(lists: &ListArray, values: ArrayRef) -> Result<ArrayRef> {
    let mut hidden = vec![true; values.len()];
    for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
        let offsets = lists.value_offsets();
        hidden[offsets[row] as usize..offsets[row + 1] as usize].fill(false);
    }
    match hidden.contains(&true) {
        true => nullif(&values, &BooleanArray::from(hidden))
            .map_err(|e| Error::internal(format!("items of lists that are not shown: {e}"))),
        false => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ListBuilder, StringViewArray};

    use super::*;

    #[test]
    fn what_is_too_long_is_refused_and_blanks_are_cut() {
        let check = |declared: &str, text: &str, expected: Option<&str>| {
            let field = Field::new("a", DataType::Utf8View, true)
                .with_metadata([(TYPE_KEY.to_string(), declared.to_string())].into());
            let array: ArrayRef = Arc::new(StringViewArray::from(vec![Some(text), None]));
            let made = fit(array, &field);
            let made = made.as_ref().map(|a| a.as_string_view().value(0)).ok();
            assert_eq!(made, expected, "{text:?} as {declared}");
        };
        check("varchar(3)", "abc", Some("abc"));
        check("varchar(3)", "äöü", Some("äöü"));
        check("varchar(3)", "abcd", None);
        check("varchar(3)", "ab    ", Some("ab "));
        check("varchar(3)", "ab", Some("ab"));
        check("char(3)", "ab    ", Some("ab"));
        check("char(3)", "abcd", None);
        check("char(3)", "äö ", Some("äö"));
    }

    #[test]
    fn items_of_lists_are_as_long_as_declared() {
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        lists.append_value([Some("abcd"), None]);
        lists.append_value([Some("abc  "), None]);
        lists.append_null();
        let all = lists.finish();
        let item = Field::new_list_field(DataType::Utf8View, true);
        let field = Field::new("a", DataType::List(Arc::new(item)), true)
            .with_metadata([(TYPE_KEY.to_string(), "varchar(3)[]".to_string())].into());
        assert_eq!(TextLength::declared(&field).unwrap().name(), "varchar(3)[]");
        assert!(TextLength::of(&field).is_none());
        let error = fit(Arc::new(all.clone()), &field).unwrap_err();
        assert_eq!(error.sqlstate(), "22001");
        // The first list is not one of the slice.
        let fitting = fit(Arc::new(all.slice(1, 2)), &field).unwrap();
        let texts = fitting.as_list::<i32>().value(0);
        assert_eq!(texts.as_string_view().value(0), "abc");
        assert!(texts.is_null(1) && fitting.is_null(1));
    }

    #[test]
    fn a_cast_cuts() {
        let varying = TextLength { characters: 3, blank_padded: false, lists: 0 };
        assert_eq!(varying.cut("äöüß"), "äöü");
        assert_eq!(varying.cut("a   b"), "a  ");
        assert_eq!(TextLength { blank_padded: true, ..varying }.cut("a   b"), "a");
    }
}
