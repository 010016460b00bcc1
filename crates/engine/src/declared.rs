//! What columns of texts, or of lists of these, are declared as: `varchar(n)` and `char(n)`, which DataFusion's
//! planner takes for texts of any length.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, CharacterLength, DataType as SqlType,
};
use thalweg_base::{Error, Result};
use thalweg_storage::TextLength;

/// PostgreSQL's limit.
const CHARACTERS_MAX: u64 = 10_485_760;

/// The length that a type declares; `None`: it is another type, or a text of any length.
pub fn length(data_type: &SqlType) -> Result<Option<TextLength>> {
    let (length, blank_padded) = match data_type {
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::SquareBracket(item, _),
        ) => {
            let of_items = length(item)?;
            return Ok(of_items.map(|items| TextLength { lists: items.lists + 1, ..items }));
        }
        SqlType::Varchar(length)
        | SqlType::CharacterVarying(length)
        | SqlType::CharVarying(length)
        | SqlType::Nvarchar(length) => (length, false),
        SqlType::Char(length) | SqlType::Character(length) => (length, true),
        _ => return Ok(None),
    };
    let characters = match length {
        Some(CharacterLength::IntegerLength { length, .. }) => *length,
        // As in PostgreSQL.
        None if blank_padded => 1,
        Some(CharacterLength::Max) | None => return Ok(None),
    };
    let name = if blank_padded { "char" } else { "varchar" };
    if characters == 0 {
        return Err(Error::user(format!("length for type {name} must be at least 1")).code("22023"));
    }
    if characters > CHARACTERS_MAX {
        return Err(Error::user(format!("length for type {name} cannot exceed {CHARACTERS_MAX}"))
            .code("22023"));
    }
    Ok(Some(TextLength { characters: characters as u32, blank_padded, lists: 0 }))
}

/// Of each column that a `CREATE TABLE` declares.
pub fn lengths(statement: &Statement) -> Result<Vec<Option<TextLength>>> {
    let Statement::Statement(inner) = statement else { return Ok(vec![]) };
    let ast::Statement::CreateTable(create) = inner.as_ref() else { return Ok(vec![]) };
    create.columns.iter().map(|column| length(&column.data_type)).collect()
}

/// The columns as they were declared.
pub fn declare(schema: &SchemaRef, lengths: &[Option<TextLength>]) -> SchemaRef {
    if lengths.iter().all(Option::is_none) {
        return Arc::clone(schema);
    }
    let lengths = lengths.iter().copied().chain(std::iter::repeat(None));
    let fields = schema.fields().iter().zip(lengths).map(|(field, length)| match length {
        Some(length) => length.declare(field.as_ref().clone()),
        None => field.as_ref().clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}
