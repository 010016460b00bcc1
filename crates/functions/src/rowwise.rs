//! Functions that are given one row after the other: each says what it takes, what it gives, and how it
//! comes from the values of a row.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BinaryViewArray, BooleanBuilder, Int32Builder,
    Int64Array, ListBuilder, StringViewArray, StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::Result;

use super::regexp::Known;
use thalweg_errors::into_datafusion;

/// An argument of one row.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    Null,
    Text(&'a str),
    Bytes(&'a [u8]),
    Number(i64),
}

impl<'a> Arg<'a> {
    pub fn text(self) -> &'a str {
        match self {
            Arg::Text(text) => text,
            _ => "",
        }
    }

    pub fn bytes(self) -> &'a [u8] {
        match self {
            Arg::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    pub fn number(self) -> i64 {
        match self {
            Arg::Number(number) => number,
            _ => 0,
        }
    }
}

/// What a function gives for one row.
#[derive(Debug)]
pub enum Value {
    Null,
    Text(String),
    Bytes(Vec<u8>),
    Number(i32),
    Truth(bool),
    Texts(Vec<Option<String>>),
    /// Lists, each of which is a row.
    Lists(Vec<Vec<Option<String>>>),
}

/// What a function makes of the arguments of one row.
pub type Call = fn(&[Arg<'_>], &mut Known) -> Result<Value>;

/// A way in which a call may be written anew when it is planned.
pub type Rewrite = fn(&[Expr]) -> Result<Option<Expr>>;

/// A function: its arguments by letters, `t` for a text, `b` for bytes and `n` for a whole number, one
/// word for each way to call it.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    pub name: &'static str,
    pub takes: &'static str,
    pub gives: Gives,
    pub call: Call,
    pub rewrite: Option<Rewrite>,
    /// It is called for NULLs as well.
    pub of_nulls: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    Text,
    Bytes,
    Number,
    Truth,
    Texts,
    Lists,
}

impl Gives {
    fn data_type(self) -> DataType {
        match self {
            Gives::Text => DataType::Utf8View,
            Gives::Bytes => DataType::Binary,
            Gives::Number => DataType::Int32,
            Gives::Truth => DataType::Boolean,
            Gives::Texts => DataType::new_list(DataType::Utf8View, true),
            Gives::Lists => DataType::new_list(Gives::Texts.data_type(), true),
        }
    }
}

pub const fn function(
    name: &'static str,
    takes: &'static str,
    gives: Gives,
    call: Call,
) -> Function {
    Function { name, takes, gives, call, rewrite: None, of_nulls: false }
}

#[derive(Debug)]
pub struct Rowwise {
    function: Function,
    signature: Signature,
}

impl Rowwise {
    pub fn new(function: Function) -> Rowwise {
        Rowwise { function, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn is_null(&self, args: &[Arg<'_>]) -> bool {
        !self.function.of_nulls && args.iter().any(|arg| matches!(arg, Arg::Null))
    }
}

impl PartialEq for Rowwise {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
    }
}

impl Eq for Rowwise {}

impl std::hash::Hash for Rowwise {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(data_type, T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_))
}

/// What an argument is given as, by its letter.
fn taken(letter: char, data_type: &DataType) -> Option<DataType> {
    let is_null = *data_type == DataType::Null;
    match letter {
        't' if is_null || is_text(data_type) => Some(DataType::Utf8View),
        'b' if is_null || is_bytes(data_type) => Some(DataType::BinaryView),
        'n' if is_null || data_type.is_integer() => Some(DataType::Int64),
        _ => None,
    }
}

impl ScalarUDFImpl for Rowwise {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        let ways = self.function.takes.split(' ').filter(|way| way.len() == types.len());
        let as_way = |way: &str| {
            way.chars().zip(types).map(|(letter, t)| taken(letter, t)).collect::<Option<Vec<_>>>()
        };
        match ways.filter_map(as_way).next() {
            Some(types) => Ok(types),
            None => plan_err!("{} is not called with these arguments", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.function.gives.data_type())
    }

    fn is_strict(&self) -> bool {
        !self.function.of_nulls
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        match self.function.rewrite.map(|rewrite| rewrite(&args)) {
            Some(Ok(Some(expr))) => Ok(ExprSimplifyResult::Simplified(expr)),
            // Whether a row is asked at all is seen when it is run.
            Some(Ok(None) | Err(_)) | None => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let columns = args.args.iter().map(Column::of).collect::<DfResult<Vec<_>>>()?;
        let mut out = Out::new(self.function.gives);
        let mut known = Known::default();
        let mut now = Vec::with_capacity(columns.len());
        for row in 0..rows {
            now.clear();
            now.extend(columns.iter().map(|column| column.value(row)));
            let value = match self.is_null(&now) {
                true => Value::Null,
                false => (self.function.call)(&now, &mut known).map_err(into_datafusion)?,
            };
            out.push(value);
        }
        let out = out.finish();
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?)),
            false => Ok(ColumnarValue::Array(out)),
        }
    }
}

/// The values of one argument.
enum Column {
    Nulls,
    Texts(StringViewArray, bool),
    Bytes(BinaryViewArray, bool),
    Numbers(Int64Array, bool),
}

impl Column {
    fn of(value: &ColumnarValue) -> DfResult<Column> {
        let (array, is_one) = match value {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
        };
        Ok(match array.data_type() {
            DataType::Null => Column::Nulls,
            t if is_text(t) => {
                let array = cast(&array, &DataType::Utf8View)?;
                Column::Texts(array.as_string_view().clone(), is_one)
            }
            t if is_bytes(t) => {
                let array = cast(&array, &DataType::BinaryView)?;
                Column::Bytes(array.as_binary_view().clone(), is_one)
            }
            _ => {
                let array = cast(&array, &DataType::Int64)?;
                Column::Numbers(array.as_primitive::<Int64Type>().clone(), is_one)
            }
        })
    }

    fn value(&self, row: usize) -> Arg<'_> {
        let place = |is_one: bool| if is_one { 0 } else { row };
        match self {
            Column::Nulls => Arg::Null,
            Column::Texts(array, is_one) => {
                let at = place(*is_one);
                if array.is_null(at) { Arg::Null } else { Arg::Text(array.value(at)) }
            }
            Column::Bytes(array, is_one) => {
                let at = place(*is_one);
                if array.is_null(at) { Arg::Null } else { Arg::Bytes(array.value(at)) }
            }
            Column::Numbers(array, is_one) => {
                let at = place(*is_one);
                if array.is_null(at) { Arg::Null } else { Arg::Number(array.value(at)) }
            }
        }
    }
}

enum Out {
    Texts(StringViewBuilder),
    Bytes(BinaryBuilder),
    Numbers(Int32Builder),
    Truths(BooleanBuilder),
    Lists(ListBuilder<StringViewBuilder>),
    ListsOfLists(ListBuilder<ListBuilder<StringViewBuilder>>),
}

impl Out {
    fn new(gives: Gives) -> Out {
        let texts = StringViewBuilder::new;
        match gives {
            Gives::Text => Out::Texts(texts()),
            Gives::Bytes => Out::Bytes(BinaryBuilder::new()),
            Gives::Number => Out::Numbers(Int32Builder::new()),
            Gives::Truth => Out::Truths(BooleanBuilder::new()),
            Gives::Texts => Out::Lists(ListBuilder::new(texts())),
            Gives::Lists => Out::ListsOfLists(ListBuilder::new(ListBuilder::new(texts()))),
        }
    }

    /// What a function does not give is NULL.
    fn push(&mut self, value: Value) {
        match self {
            Out::Texts(out) => match value {
                Value::Text(text) => out.append_value(text),
                _ => out.append_null(),
            },
            Out::Bytes(out) => match value {
                Value::Bytes(bytes) => out.append_value(bytes),
                _ => out.append_null(),
            },
            Out::Numbers(out) => match value {
                Value::Number(number) => out.append_value(number),
                _ => out.append_null(),
            },
            Out::Truths(out) => match value {
                Value::Truth(truth) => out.append_value(truth),
                _ => out.append_null(),
            },
            Out::Lists(out) => match value {
                Value::Texts(texts) => out.append_value(texts),
                _ => out.append_null(),
            },
            Out::ListsOfLists(out) => match value {
                Value::Lists(lists) => {
                    for list in lists {
                        out.values().append_value(list);
                    }
                    out.append(true);
                }
                _ => out.append_null(),
            },
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Out::Texts(mut out) => Arc::new(out.finish()),
            Out::Bytes(mut out) => Arc::new(out.finish()),
            Out::Numbers(mut out) => Arc::new(out.finish()),
            Out::Truths(mut out) => Arc::new(out.finish()),
            Out::Lists(mut out) => Arc::new(out.finish()),
            Out::ListsOfLists(mut out) => Arc::new(out.finish()),
        }
    }
}
