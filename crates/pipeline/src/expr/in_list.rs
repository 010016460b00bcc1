//! Whether values are in a list of constants.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, MAX_INLINE_VIEW_LEN, StringViewArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Decimal128Type};
use thalweg_base::{Error, Result};
use thalweg_ir::Literal;

use crate::encoding::words;
use crate::literal;

/// The constants of a list, and what is said of who is among them.
#[derive(Debug)]
pub struct Listed {
    constants: Constants,
    has_null: bool,
    negated: bool,
}

#[derive(Debug)]
enum Constants {
    Words(Words),
    /// Decimals, and those of them that 64 bits hold.
    Wide(HashSet<i128>, Words),
    Texts(Texts),
}

impl Listed {
    /// Of values of one type.
    pub fn new(items: &[Literal], negated: bool) -> Result<Listed> {
        let all = items.len();
        let known = items.iter().filter(|item| !item.is_null());
        let constants = known.map(literal::array).collect::<Result<Vec<_>>>()?;
        let has_null = constants.len() < all;
        let unknown = |t: &DataType| Error::internal(format!("a list of {t}"));
        let constants = match items.first().map(|item| &item.data_type) {
            Some(DataType::Utf8View) => {
                Constants::Texts(Texts::new(constants.iter().map(|one| one.as_string_view())))
            }
            Some(DataType::Decimal128(..)) => {
                let values = constants.iter().map(|one| one.as_primitive::<Decimal128Type>());
                let values: HashSet<i128> = values.map(|one| one.value(0)).collect();
                let narrow = values.iter().filter_map(|&value| i64::try_from(value).ok());
                let narrow = Words::new(narrow.collect());
                Constants::Wide(values, narrow)
            }
            Some(other) => {
                let values = constants.iter().map(|one| {
                    let words = words(one.as_ref()).ok_or_else(|| unknown(other))?;
                    Ok(words[0])
                });
                Constants::Words(Words::new(values.collect::<Result<_>>()?))
            }
            None => return Err(Error::internal("a list without items")),
        };
        Ok(Listed { constants, has_null, negated })
    }

    /// For each value whether it is in the list.
    pub fn has(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let other = || Error::internal(format!("{} is looked for in a list", array.data_type()));
        let found = match &self.constants {
            Constants::Texts(texts) => match array.data_type() {
                DataType::Utf8View => texts.has(array.as_string_view()),
                _ => {
                    let plain = crate::encoding::expand(array, &DataType::Utf8View)?;
                    texts.has(plain.as_string_view())
                }
            },
            Constants::Wide(values, narrow) => match array.as_primitive_opt::<Decimal128Type>() {
                Some(wide) => {
                    let wide = wide.values();
                    BooleanBuffer::collect_bool(wide.len(), |row| values.contains(&wide[row]))
                }
                None => narrow.has(&words(array.as_ref()).ok_or_else(other)?),
            },
            Constants::Words(list) => list.has(&words(array.as_ref()).ok_or_else(other)?),
        };
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let nulls = match (nulls, self.has_null) {
            // A value that is not found may be the one that is not known.
            (Some(nulls), true) => Some(NullBuffer::new(nulls.inner() & &found)),
            (None, true) => Some(NullBuffer::new(found.clone())),
            (nulls, false) => nulls,
        };
        let truths = if self.negated { !&found } else { found };
        Ok(Arc::new(BooleanArray::new(truths, nulls)))
    }
}

/// Bits of a table that tells numbers apart by themselves.
const TABLE_BITS_MAX: u64 = 1 << 17;
/// Numbers that are compared one after the other.
const FEW: usize = 4;

/// A set of numbers.
#[derive(Debug)]
enum Words {
    Few(Vec<i64>),
    /// A bit for each number from the first on.
    Bits(i64, Vec<u64>),
    /// A power of two of slots, each with a number or none; a number lies in the first free one from the
    /// place that its hash gives.
    Hashed(Vec<Option<i64>>),
}

impl Words {
    fn new(mut list: Vec<i64>) -> Words {
        list.sort_unstable();
        list.dedup();
        let (Some(&first), Some(&last)) = (list.first(), list.last()) else {
            return Words::Few(list);
        };
        if list.len() <= FEW {
            return Words::Few(list);
        }
        let span = last.abs_diff(first);
        if span < TABLE_BITS_MAX {
            let mut bits = vec![0; span as usize / 64 + 1];
            for word in list {
                let bit = word.abs_diff(first);
                bits[bit as usize / 64] |= 1 << (bit % 64);
            }
            return Words::Bits(first, bits);
        }
        let mut slots = vec![None; (4 * list.len()).next_power_of_two()];
        for word in list {
            let mut slot = place(word, slots.len());
            while slots[slot].is_some() {
                slot = (slot + 1) % slots.len();
            }
            slots[slot] = Some(word);
        }
        Words::Hashed(slots)
    }

    fn has(&self, words: &[i64]) -> BooleanBuffer {
        match self {
            Words::Few(list) => match list.as_slice() {
                [] => BooleanBuffer::new_unset(words.len()),
                [a] => BooleanBuffer::collect_bool(words.len(), |row| words[row] == *a),
                [a, b] => BooleanBuffer::collect_bool(words.len(), |row| {
                    (words[row] == *a) | (words[row] == *b)
                }),
                list => BooleanBuffer::collect_bool(words.len(), |row| {
                    list.iter().fold(false, |found, word| found | (words[row] == *word))
                }),
            },
            Words::Bits(first, bits) => BooleanBuffer::collect_bool(words.len(), |row| {
                let bit = words[row].wrapping_sub(*first) as u64;
                bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
            }),
            Words::Hashed(_) => {
                BooleanBuffer::collect_bool(words.len(), |row| self.is_hashed(words[row]))
            }
        }
    }

    fn is_hashed(&self, word: i64) -> bool {
        let Words::Hashed(slots) = self else { return false };
        let mut slot = place(word, slots.len());
        while let Some(known) = slots[slot] {
            if known == word {
                return true;
            }
            slot = (slot + 1) % slots.len();
        }
        false
    }
}

/// Where a number belongs among so many slots, a power of two and at least two.
fn place(word: i64, slots: usize) -> usize {
    let hash = (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - slots.trailing_zeros())) as usize
}

/// A set of texts: a power of two of slots, as those of numbers, each with a text and what it is known by.
#[derive(Debug)]
struct Texts {
    slots: Vec<Option<(i64, Box<[u8]>)>>,
}

impl Texts {
    fn new<'a>(list: impl ExactSizeIterator<Item = &'a StringViewArray>) -> Texts {
        let mut texts = Texts { slots: vec![None; (4 * list.len()).next_power_of_two().max(2)] };
        for one in list {
            let (view, text) = (one.views()[0], one.value(0).as_bytes());
            let known = known_by(view, text);
            let mut slot = place(known, texts.slots.len());
            while texts.slots[slot].is_some() {
                slot = (slot + 1) % texts.slots.len();
            }
            texts.slots[slot] = Some((known, text.into()));
        }
        texts
    }

    fn has(&self, array: &StringViewArray) -> BooleanBuffer {
        let (views, nulls) = (array.views(), array.nulls());
        BooleanBuffer::collect_bool(views.len(), |row| {
            // What stands in the place of a NULL may be no text.
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                return false;
            }
            let text = array.value(row).as_bytes();
            let known = known_by(views[row], text);
            let mut slot = place(known, self.slots.len());
            while let Some((other, listed)) = &self.slots[slot] {
                // See `like` for why nothing is not compared with nothing.
                let is_same = || text.is_empty() || listed.as_ref() == text;
                if *other == known && listed.len() == text.len() && is_same() {
                    return true;
                }
                slot = (slot + 1) % self.slots.len();
            }
            false
        })
    }
}

/// Few texts have this in common: it is of the length, the beginning and the end of a text.
fn known_by(view: u128, text: &[u8]) -> i64 {
    let end = match text.last_chunk::<8>() {
        Some(end) if text.len() > MAX_INLINE_VIEW_LEN as usize => u64::from_le_bytes(*end),
        _ => (view >> 64) as u64,
    };
    (view as u64 ^ end.rotate_left(29)) as i64
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Decimal64Array, Decimal128Array, Int32Array, Int64Array, new_null_array,
    };

    use super::*;

    fn list(items: Vec<ArrayRef>, negated: bool) -> Listed {
        let items = items.iter().map(|item| literal::of(item));
        Listed::new(&items.collect::<Option<Vec<_>>>().unwrap(), negated).unwrap()
    }

    fn ints(values: &[i64]) -> Vec<ArrayRef> {
        values.iter().map(|&v| Arc::new(Int64Array::from(vec![v])) as ArrayRef).collect()
    }

    fn found(list: &Listed, array: ArrayRef) -> Vec<Option<bool>> {
        list.has(&array).unwrap().as_boolean().iter().collect()
    }

    #[test]
    fn every_way_of_looking_up_finds_the_same() {
        let far: Vec<i64> = (0..50).map(|n| n * n * n * 1_000_003 - 7).collect();
        let near: Vec<i64> = (0..50).map(|n| n * n - 1000).collect();
        let ends = vec![i64::MIN, i64::MAX, 0, -1, 1, 77];
        for values in [vec![5], vec![5, -3], vec![1, 2, 3], near, far, ends] {
            let list = list(ints(&values), false);
            let mut asked: Vec<i64> = values.iter().flat_map(|&v| [v, v ^ 1, v ^ 64]).collect();
            asked.extend([i64::MIN, i64::MAX, 0, -1]);
            let expected = asked.iter().map(|v| Some(values.contains(v)));
            let array: ArrayRef = Arc::new(Int64Array::from(asked.clone()));
            assert_eq!(found(&list, array), expected.collect::<Vec<_>>(), "{values:?}");
        }
    }

    #[test]
    fn what_may_be_null_is_not_known() {
        let array = || -> ArrayRef { Arc::new(Int64Array::from(vec![Some(1), Some(2), None])) };
        let check = |negated, with_null: bool, expected: [Option<bool>; 3]| {
            let mut items = ints(&[1]);
            if with_null {
                items.push(new_null_array(&DataType::Int64, 1));
            }
            assert_eq!(found(&list(items, negated), array()), expected);
        };
        check(false, false, [Some(true), Some(false), None]);
        check(true, false, [Some(false), Some(true), None]);
        check(false, true, [Some(true), None, None]);
        check(true, true, [Some(false), None, None]);
        let nothing = list(vec![new_null_array(&DataType::Int64, 1)], false);
        assert_eq!(found(&nothing, array()), [None; 3]);
    }

    #[test]
    fn texts_are_found_whether_or_not_they_lie_in_their_views() {
        let text = |t: &str| -> ArrayRef { Arc::new(StringViewArray::from(vec![t])) };
        let list = list(
            vec![text("AIR"), text("a text that is no view"), text(""), text("RAIL"), text("x")],
            false,
        );
        let array: ArrayRef = Arc::new(StringViewArray::from(vec![
            Some("AIR"),
            Some("AIR REG"),
            Some("a text that is no view"),
            Some("a text that is no vieW"),
            Some(""),
            None,
            Some("RAIL"),
        ]));
        let expected =
            [Some(true), Some(false), Some(true), Some(false), Some(true), None, Some(true)];
        assert_eq!(found(&list, Arc::clone(&array)), expected);
        assert_eq!(found(&list, array.slice(1, 3)), expected[1..4]);
        assert_eq!(found(&list, array.slice(0, 0)), []);
    }

    #[test]
    fn decimals_are_found_in_either_form() {
        let one = |v: i128| -> ArrayRef {
            let one = Decimal128Array::from(vec![v]).with_precision_and_scale(38, 2).unwrap();
            Arc::new(one)
        };
        let list = list(vec![one(150), one(10_i128.pow(30))], false);
        let wide = Decimal128Array::from(vec![Some(150), Some(151), Some(10_i128.pow(30)), None]);
        let wide = wide.with_precision_and_scale(38, 2).unwrap();
        let expected = [Some(true), Some(false), Some(true), None];
        assert_eq!(found(&list, Arc::new(wide)), expected);
        let narrow = Decimal64Array::from(vec![150, 0]).with_precision_and_scale(18, 2).unwrap();
        assert_eq!(found(&list, Arc::new(narrow)), [Some(true), Some(false)]);
    }

    #[test]
    fn dates_and_small_integers_are_numbers() {
        let one: ArrayRef = Arc::new(Date32Array::from(vec![-3]));
        assert_eq!(
            found(&list(vec![one], false), Arc::new(Date32Array::from(vec![-3, 3]))),
            [Some(true), Some(false)]
        );
        let one: ArrayRef = Arc::new(Int32Array::from(vec![i32::MIN]));
        let array: ArrayRef = Arc::new(Int32Array::from(vec![i32::MIN, 0]));
        assert_eq!(found(&list(vec![one], true), array), [Some(false), Some(true)]);
    }
}
