//! Files that declare their types: the columns of all of them together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use thalweg_base::{Error, Result, text};

use super::{Inferred, InferredColumn};
use crate::load::conform::wider;
use crate::load::input::shown;
use crate::load::layout::{find, sql_type, unique_names};
use crate::stored_type;

struct Column<'a> {
    name: String,
    data_type: DataType,
    /// The file that declared this type first.
    from: &'a Path,
    files: usize,
    /// The types it was declared with before it got wider.
    narrower: Vec<String>,
}

/// `declared` has the schema of each file by its place in `paths`.
pub(super) fn combine(
    paths: &[Arc<PathBuf>],
    declared: &BTreeMap<usize, SchemaRef>,
    known: Option<&SchemaRef>,
) -> Result<Inferred> {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for (&file, schema) in declared {
        let path = paths[file].as_path();
        let names = unique_names(schema.fields().iter().map(|f| f.name().clone()));
        for (field, unique) in schema.fields().iter().zip(names) {
            // A table may have columns whose names differ in case alone.
            let is_known = known.is_some_and(|known| known.index_of(field.name()).is_ok());
            let name = if is_known { field.name().clone() } else { unique };
            let name = name.as_str();
            if known.is_some_and(|known| find(known, name).is_some()) {
                continue;
            }
            let data_type = stored_type(field.data_type()).ok_or_else(|| {
                Error::unsupported(format!(
                    "{}, column {}: a table cannot have a column of type {}",
                    shown(path),
                    text::quoted(name),
                    field.data_type()
                ))
                .hint("declare the columns with another type for it, or leave it out of the file")
            })?;
            // Where there is nothing but NULL any other file knows better.
            let untyped = *field.data_type() == DataType::Null;
            let same = |c: &&mut Column<'_>| c.name.to_lowercase() == name.to_lowercase();
            match columns.iter_mut().find(same) {
                None => columns.push(Column {
                    name: name.to_owned(),
                    data_type: if untyped { DataType::Null } else { data_type },
                    from: path,
                    files: 1,
                    narrower: Vec::new(),
                }),
                Some(column) => {
                    column.files += 1;
                    if !untyped {
                        widen(column, data_type, path)?;
                    }
                }
            }
        }
    }
    let files = declared.len();
    let columns = columns.into_iter().map(|column| InferredColumn {
        why: why(&column, files),
        name: column.name,
        data_type: match column.data_type {
            DataType::Null => DataType::Utf8View,
            data_type => data_type,
        },
        nulls: None,
        null_spellings: Vec::new(),
        order: None,
    });
    Ok(Inferred { columns: columns.collect(), rows: None, header: None, dialects: Vec::new() })
}

fn widen<'a>(column: &mut Column<'a>, data_type: DataType, path: &'a Path) -> Result<()> {
    let Some(both) = wider(&column.data_type, &data_type) else {
        return Err(Error::user(format!(
            "column {} is {} in {} and {} in {}",
            text::quoted(&column.name),
            sql_type(&column.data_type),
            shown(column.from),
            sql_type(&data_type),
            shown(path)
        ))
        .hint("declare the columns (`--columns`) with a type that holds both, such as VARCHAR, or load the files into different tables"));
    };
    if both != column.data_type {
        if column.data_type != DataType::Null {
            column.narrower.push(sql_type(&column.data_type));
        }
        column.data_type = both;
        column.from = path;
    }
    Ok(())
}

fn why(column: &Column<'_>, files: usize) -> String {
    let name = column.from.file_name().map_or(column.from, Path::new);
    let mut why = if column.narrower.is_empty() {
        "declared by the files".to_owned()
    } else {
        format!("{} holds more; {} before it", shown(name), column.narrower.join(", "))
    };
    if column.files < files {
        why += &format!("; in {} of {} files", column.files, files);
    }
    why
}
