//! What `string_agg` is made of where DataFusion has no such aggregate: lists of texts, joined.
//!
//! * `join_delimited`: each text behind its own delimiter
//! * `join_once`: texts that are in the list once, in their order

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Joined {
    /// `join_once`
    once: bool,
    signature: Signature,
}

impl Joined {
    pub fn new(once: bool) -> Joined {
        Joined { once, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &str {
        if self.once { "join_once" } else { "join_delimited" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match (self.once, types) {
            (false, [DataType::List(_)]) => Ok(types.to_vec()),
            (true, [DataType::List(_), _, DataType::Boolean]) => {
                Ok(vec![types[0].clone(), DataType::Utf8View, DataType::Boolean])
            }
            _ => plan_err!("{} takes a list of texts", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let lists = columns[0].as_list::<i32>();
        let mut out = StringViewBuilder::new();
        for row in 0..rows {
            let joined = match (lists.is_null(row), &columns[1..]) {
                (true, _) => None,
                (false, [delimiters, descending]) => {
                    let delimiters = cast(delimiters, &DataType::Utf8View)?;
                    let delimiters = delimiters.as_string_view();
                    let delimiter =
                        if delimiters.is_null(row) { "" } else { delimiters.value(row) };
                    once(&lists.value(row), delimiter, descending.as_boolean().value(row))?
                }
                (false, _) => each(&lists.value(row))?,
            };
            out.append_option(joined);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

fn each(pairs: &ArrayRef) -> Result<Option<String>> {
    let mut joined: Option<String> = None;
    for pair in pairs.as_list::<i32>().iter().flatten() {
        let pair = cast(&pair, &DataType::Utf8View)?;
        let pair = pair.as_string_view();
        if pair.len() != 2 || pair.is_null(1) {
            continue;
        }
        match &mut joined {
            None => joined = Some(pair.value(1).to_string()),
            Some(joined) => {
                if !pair.is_null(0) {
                    joined.push_str(pair.value(0));
                }
                joined.push_str(pair.value(1));
            }
        }
    }
    Ok(joined)
}

fn once(texts: &ArrayRef, delimiter: &str, descending: bool) -> Result<Option<String>> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let mut texts: Vec<&str> = texts.as_string_view().iter().flatten().collect();
    texts.sort_unstable();
    if descending {
        texts.reverse();
    }
    Ok((!texts.is_empty()).then(|| texts.join(delimiter)))
}
