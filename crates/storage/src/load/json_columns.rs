//! Builders of columns that JSON values go into: those of [`columns`](super::columns) for single values,
//! and lists and structs of builders.
//!
//! A row that is not right is noticed in the middle of it, when some of what belongs to it has been
//! added. [`JsonColumn::repair`] ends what is open, so that all builders have the same number of rows
//! again; the row itself is dropped later.

use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::{ArrayRef, ListArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef, Fields};
use thalweg_base::{Error, Result};

use super::columns::{Column, Sink, each};
use super::json_options::JsonOptions;
use super::json_value::{Nested, Scratch, Value, Wrong, array, check, object};
use super::layout::{Finder, sql_type};
use super::parse::Bad;
use super::spelling::Spelling;

/// Why a value is none for a column.
pub(super) enum Misfit {
    /// What is between brackets is no JSON.
    Wrong(Wrong),
    /// `path` leads from the column to what does not fit, and is empty if that is all of it.
    Bad { path: String, data_type: DataType, bad: Bad, value: Vec<u8> },
    /// A struct has no such field.
    Unknown(String),
    /// A field of a struct has two values.
    Twice(String),
}

impl From<Wrong> for Misfit {
    fn from(wrong: Wrong) -> Self {
        Misfit::Wrong(wrong)
    }
}

impl Misfit {
    /// The same, seen from what `nested` is a part of.
    fn within(self, nested: Nested<'_>) -> Misfit {
        match self {
            Misfit::Wrong(wrong) => Misfit::Wrong(wrong.within(nested)),
            other => other,
        }
    }

    /// The same, seen from a struct that has it in a field, or from a list that has it as `[]`.
    fn beneath(self, part: &str) -> Misfit {
        let beneath = |path: String| format!("{part}{path}");
        match self {
            Misfit::Wrong(wrong) => Misfit::Wrong(wrong),
            Misfit::Bad { path, data_type, bad, value } => {
                Misfit::Bad { path: beneath(path), data_type, bad, value }
            }
            Misfit::Unknown(path) => Misfit::Unknown(beneath(path)),
            Misfit::Twice(path) => Misfit::Twice(beneath(path)),
        }
    }
}

/// The builder of a column, of the items of lists, or of a field of structs.
#[expect(clippy::large_enum_variant, reason = "there are few columns, and most are of this kind")]
pub(super) enum JsonColumn {
    Single(Column, Spelling),
    List(Box<Lists>),
    Struct(Box<Structs>),
}

pub(super) struct Lists {
    field: FieldRef,
    items: JsonColumn,
    offsets: Vec<i32>,
    valid: NullBufferBuilder,
    /// Items have been added that belong to no list yet.
    open: bool,
    scratch: Scratch,
}

pub(super) struct Structs {
    fields: Fields,
    columns: Vec<JsonColumn>,
    finder: Finder,
    valid: NullBufferBuilder,
    rows: usize,
    open: bool,
    /// Per field the number of the last row that had a value for it, from 1.
    seen: Vec<usize>,
    keys: KeyGuess,
    scratch: Scratch,
}

/// Where each key of the last object went, in its order: the guess for the next one. `None`: it is left
/// out.
#[derive(Default)]
pub(super) struct KeyGuess(Vec<(Vec<u8>, Option<usize>)>);

impl KeyGuess {
    /// Where the key goes that stands at `position` of an object.
    #[inline]
    pub(super) fn target(&self, position: usize, key: &[u8]) -> Option<Option<usize>> {
        self.0.get(position).filter(|(known, _)| known == key).map(|(_, target)| *target)
    }

    pub(super) fn learn(&mut self, position: usize, key: &[u8], target: Option<usize>) {
        self.0.truncate(position);
        self.0.push((key.to_vec(), target));
    }
}

impl JsonColumn {
    /// For columns of `data_type` with room for `rows`; `name` is for the error.
    pub(super) fn new(
        name: &str,
        data_type: &DataType,
        options: &JsonOptions,
        rows: usize,
    ) -> Result<JsonColumn> {
        let scratch = Scratch::default();
        let valid = NullBufferBuilder::new(rows);
        Ok(match data_type {
            DataType::List(field) => {
                let items = JsonColumn::new(name, field.data_type(), options, rows)?;
                let (field, offsets) = (Arc::clone(field), vec![0]);
                let lists = Lists { field, items, offsets, valid, open: false, scratch };
                JsonColumn::List(Box::new(lists))
            }
            DataType::Struct(fields) if !fields.is_empty() => {
                let column = |f: &FieldRef| JsonColumn::new(name, f.data_type(), options, rows);
                JsonColumn::Struct(Box::new(Structs {
                    columns: fields.iter().map(column).collect::<Result<_>>()?,
                    finder: Finder::of(fields),
                    seen: vec![0; fields.len()],
                    fields: fields.clone(),
                    valid,
                    rows: 0,
                    open: false,
                    keys: KeyGuess::default(),
                    scratch,
                }))
            }
            single => {
                let spelling = Spelling::of(&options.spelled(), name, single);
                JsonColumn::Single(Column::new(name, single, rows)?, spelling)
            }
        })
    }

    /// Takes one value; `data_type` is the column's. With `ignore_unknown`, keys that structs have no
    /// field for are left out.
    #[inline]
    pub(super) fn put(
        &mut self,
        value: Value<'_>,
        data_type: &DataType,
        nullable: bool,
        ignore_unknown: bool,
    ) -> Result<(), Misfit> {
        let bad = |bad: Bad, value: &[u8]| {
            let (data_type, value) = (data_type.clone(), value.to_vec());
            Err(Misfit::Bad { path: String::new(), data_type, bad, value })
        };
        match (self, value) {
            (_, Value::Null) if !nullable => bad(Bad::Null, b"null"),
            (JsonColumn::Single(column, spelling), value) => {
                if let Value::Nested(nested) = value {
                    check(nested)?;
                }
                each!(column, sink => single(sink, value, spelling))
                    .or_else(|(why, value)| bad(why, value))
            }
            (column, Value::Null) => {
                column.null();
                Ok(())
            }
            (JsonColumn::List(lists), Value::Nested(nested)) if nested.is_array() => {
                lists.put(nested, ignore_unknown).map_err(|misfit| misfit.within(nested))
            }
            (JsonColumn::Struct(structs), Value::Nested(nested)) if !nested.is_array() => {
                structs.put(nested, ignore_unknown).map_err(|misfit| misfit.within(nested))
            }
            (_, Value::Nested(nested)) => {
                check(nested)?;
                bad(Bad::Syntax, nested.bytes)
            }
            (_, Value::Boolean(value) | Value::Number(value) | Value::Text(value)) => {
                bad(Bad::Syntax, value)
            }
        }
    }

    pub(super) fn null(&mut self) {
        match self {
            JsonColumn::Single(column, _) => each!(column, sink => sink.null()),
            JsonColumn::List(lists) => lists.end(false),
            JsonColumn::Struct(structs) => structs.end(false),
        }
    }

    /// Whole rows.
    pub(super) fn len(&self) -> usize {
        match self {
            JsonColumn::Single(column, _) => each!(column, sink => sink.len()),
            JsonColumn::List(lists) => lists.offsets.len() - 1,
            JsonColumn::Struct(structs) => structs.rows,
        }
    }

    /// Ends a row in the middle of which something was wrong.
    pub(super) fn repair(&mut self) {
        match self {
            JsonColumn::Single(..) => {}
            JsonColumn::List(lists) => {
                lists.items.repair();
                if lists.open {
                    lists.end(false);
                }
            }
            JsonColumn::Struct(structs) => {
                structs.columns.iter_mut().for_each(JsonColumn::repair);
                if structs.open {
                    structs.end(false);
                }
            }
        }
    }

    /// The values so far as an array of exactly `data_type`; the builder is empty again.
    pub(super) fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef> {
        let failed = |e| Error::internal(format!("values of {}: {e}", sql_type(data_type)));
        match self {
            JsonColumn::Single(column, _) => column.finish(data_type),
            JsonColumn::List(lists) => {
                let items = lists.items.finish(lists.field.data_type())?;
                let offsets = std::mem::replace(&mut lists.offsets, vec![0]);
                let offsets = OffsetBuffer::new(offsets.into());
                let (field, valid) = (Arc::clone(&lists.field), lists.valid.finish());
                let lists = ListArray::try_new(field, offsets, items, valid).map_err(failed)?;
                Ok(Arc::new(lists))
            }
            JsonColumn::Struct(structs) => {
                let columns = structs.columns.iter_mut().zip(&structs.fields);
                let columns = columns.map(|(column, field)| column.finish(field.data_type()));
                let columns = columns.collect::<Result<Vec<_>>>()?;
                structs.rows = 0;
                structs.seen.fill(0);
                let (fields, valid) = (structs.fields.clone(), structs.valid.finish());
                Ok(Arc::new(StructArray::try_new(fields, columns, valid).map_err(failed)?))
            }
        }
    }
}

impl Lists {
    fn put(&mut self, nested: Nested<'_>, ignore_unknown: bool) -> Result<(), Misfit> {
        self.open = true;
        let Lists { field, items, scratch, .. } = self;
        array(nested.bytes, scratch, |item| {
            let put = items.put(item, field.data_type(), field.is_nullable(), ignore_unknown);
            put.map_err(|misfit| misfit.beneath("[]"))
        })?;
        self.end(true);
        Ok(())
    }

    fn end(&mut self, valid: bool) {
        // A block has far less than 2 GiB.
        self.offsets.push(self.items.len() as i32);
        self.valid.append(valid);
        self.open = false;
    }
}

impl Structs {
    fn put(&mut self, nested: Nested<'_>, ignore_unknown: bool) -> Result<(), Misfit> {
        self.open = true;
        let Structs { fields, columns, finder, rows, seen, keys, scratch, .. } = self;
        let row = *rows + 1;
        let mut position = 0;
        object(nested.bytes, scratch, |key, value| {
            let target = match keys.target(position, key) {
                Some(target) => target,
                None => {
                    let name = String::from_utf8_lossy(key);
                    let target = finder.find(&name);
                    if target.is_none() && !ignore_unknown {
                        return Err(Misfit::Unknown(format!(".{name}")));
                    }
                    keys.learn(position, key, target);
                    target
                }
            };
            position += 1;
            let Some(target) = target else { return unwanted(value).map_err(Misfit::from) };
            let field = &fields[target];
            if seen[target] == row {
                return Err(Misfit::Twice(format!(".{}", field.name())));
            }
            columns[target]
                .put(value, field.data_type(), field.is_nullable(), ignore_unknown)
                .map_err(|misfit| misfit.beneath(&format!(".{}", field.name())))?;
            seen[target] = row;
            Ok(())
        })?;
        for (target, field) in fields.iter().enumerate() {
            if seen[target] == row {
                continue;
            }
            if !field.is_nullable() {
                let (path, data_type) = (format!(".{}", field.name()), field.data_type().clone());
                return Err(Misfit::Bad { path, data_type, bad: Bad::Null, value: Vec::new() });
            }
            columns[target].null();
        }
        self.end(true);
        Ok(())
    }

    /// Fields that have no value yet have NULL.
    fn end(&mut self, valid: bool) {
        self.rows += 1;
        for column in &mut self.columns {
            if column.len() < self.rows {
                column.null();
            }
        }
        self.valid.append(valid);
        self.open = false;
    }
}

/// A value that nobody asks for has to be JSON all the same.
pub(super) fn unwanted(value: Value<'_>) -> Result<(), Wrong> {
    match value {
        Value::Nested(nested) => check(nested),
        _ => Ok(()),
    }
}

#[inline]
fn single<'v, S: Sink>(
    sink: &mut S,
    value: Value<'v>,
    spelling: &Spelling,
) -> Result<(), (Bad, &'v [u8])> {
    match value {
        Value::Null => {
            sink.null();
            Ok(())
        }
        Value::Nested(nested) if !S::TEXT => Err((Bad::Syntax, nested.bytes)),
        Value::Text(bytes) if !spelling.is_plain() => {
            let mut plain = Vec::new();
            let plain =
                spelling.plain(bytes.trim_ascii(), &mut plain).ok_or((Bad::Syntax, bytes))?;
            sink.value(plain).map_err(|bad| (bad, bytes))
        }
        Value::Boolean(bytes)
        | Value::Number(bytes)
        | Value::Text(bytes)
        | Value::Nested(Nested { bytes, .. }) => sink.value(bytes).map_err(|bad| (bad, bytes)),
    }
}
