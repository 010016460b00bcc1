//! How what is not ours is written down: types of values by their names, which Arrow reads again.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use arrow_schema::DataType;

/// Parentheses within one another that the name of a type may have: Arrow's reader calls itself once for
/// each.
const NESTED_MAX: usize = 32;

fn read<E: Error>(name: &str) -> Result<DataType, E> {
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTED_MAX {
            return Err(E::custom("a type is nested too deeply"));
        }
    }
    name.parse().map_err(|e| E::custom(format!("{name:?} is no type: {e}")))
}

pub mod data_type {
    use super::*;

    pub fn serialize<S: Serializer>(it: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(it)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
        read(&String::deserialize(deserializer)?)
    }
}

pub mod data_types {
    use super::*;

    pub fn serialize<S: Serializer>(all: &[DataType], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(ToString::to_string))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<DataType>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().map(|name| read(name)).collect()
    }
}

/// Types, and the order of their values.
pub mod sort_keys {
    use arrow_schema::SortOptions;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Key(#[serde(with = "data_type")] DataType, bool, bool);

    pub fn serialize<S: Serializer>(
        all: &[(DataType, SortOptions)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let key = |(t, o): &(DataType, SortOptions)| Key(t.clone(), o.descending, o.nulls_first);
        serializer.collect_seq(all.iter().map(key))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(DataType, SortOptions)>, D::Error> {
        let keys = Vec::<Key>::deserialize(deserializer)?;
        let key = |Key(data_type, descending, nulls_first)| {
            (data_type, SortOptions { descending, nulls_first })
        };
        Ok(keys.into_iter().map(key).collect())
    }
}
