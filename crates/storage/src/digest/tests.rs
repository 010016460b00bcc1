use std::sync::Arc;

use arrow::array::{
    BinaryViewArray, Date32Array, Decimal128Array, Int16Array, Int64Array, StringViewArray,
    UInt64Array,
};
use proptest::prelude::*;

use super::*;
use crate::statistics::{StatisticsBuilder, measure};

/// Digests of the chunks, whether or not they pay, after a round through their stored form.
fn digests(chunks: &[ArrayRef], stored_bytes: u64) -> Digests {
    let mut builder = DigestsBuilder::default();
    for chunk in chunks {
        let measured = measure(chunk);
        builder.push(measured.hashes.as_deref(), &measured.sketch, stored_bytes);
    }
    let digests = Digests::new(&builder.bodies);
    Digests::parse(digests.bytes().clone(), chunks.len(), "test").unwrap()
}

/// What an extent of these chunks would store.
fn kept(chunks: &[ArrayRef], stored_bytes: u64) -> Option<Digests> {
    let mut builder = StatisticsBuilder::new(chunks[0].data_type());
    chunks.iter().for_each(|chunk| builder.push(measure(chunk), stored_bytes));
    builder.finish().unwrap().2
}

/// Every value must be found in its chunk.
fn check(chunks: &[ArrayRef], stored_bytes: u64) {
    let digests = digests(chunks, stored_bytes);
    for (i, chunk) in chunks.iter().enumerate() {
        let hashes = value_hashes(chunk).unwrap();
        for row in (0..chunk.len()).filter(|&row| chunk.is_valid(row)) {
            assert!(digests.may_hold(i, hashes[row]), "{:?}", chunk.slice(row, 1));
        }
    }
}

fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// Numbers without order or pattern.
fn scattered(n: u64) -> impl Iterator<Item = i64> {
    (0..n).map(|v| hash_u64(v ^ 0x5eed) as i64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_value_is_ever_missed(
        seeds in proptest::collection::vec(proptest::option::of(any::<i64>()), 0..1500),
        spread in 0..64u32,
        stored_bytes in prop_oneof![Just(0), 0..20_000u64, Just(u64::MAX)],
    ) {
        let numbers = || seeds.iter().map(|v| v.map(|v| v >> spread));
        let text = |v: i64| format!("{v:x}").repeat(1 + (v & 3) as usize);
        check(&[
            Arc::new(numbers().collect::<Int64Array>()) as ArrayRef,
            Arc::new(numbers().map(|v| v.map(|v| v / 2)).collect::<Int64Array>()),
        ], stored_bytes);
        check(&[Arc::new(numbers().map(|v| v.map(|v| v as u64)).collect::<UInt64Array>())], stored_bytes);
        check(&[Arc::new(numbers().map(|v| v.map(|v| v as i16)).collect::<Int16Array>())], stored_bytes);
        check(&[Arc::new(numbers().map(|v| v.map(|v| v as i32)).collect::<Date32Array>())], stored_bytes);
        let wide = numbers().map(|v| v.map(|v| i128::from(v) << 40));
        check(&[Arc::new(wide.collect::<Decimal128Array>())], stored_bytes);
        check(&[Arc::new(numbers().map(|v| v.map(text)).collect::<StringViewArray>())], stored_bytes);
        let binary = numbers().map(|v| v.map(|v| text(v).into_bytes()));
        check(&[Arc::new(binary.collect::<BinaryViewArray>())], stored_bytes);
    }
}

#[test]
fn wrong_maybes_are_as_rare_as_designed() {
    let rate = |bits: u64, distinct: u64| {
        let digests =
            digests(&[integers(scattered(distinct))], distinct * bits * DIGEST_COLUMN_SHARE / 8);
        let bytes = digests.bytes().len() as u64;
        assert!(bytes * 8 <= distinct * bits + 1000, "{bytes} bytes for {distinct} at {bits} bits");
        let probes = 200_000;
        let wrong = (0..probes).filter(|&v| digests.may_hold(0, hash_u64(v << 20 | 1))).count();
        wrong as f64 / probes as f64
    };
    assert_eq!(rate(64, 256), 0.0, "a list");
    assert!(rate(11, 2_000) < 0.012 && rate(11, 40_000) < 0.012);
    assert!(rate(8, 65_536) < 0.05);
    assert!(rate(7, 40_000) < 0.09);
    assert_eq!(rate(5, 40_000), 1.0, "too few bits: no digest");
}

#[test]
fn the_stored_form_is_what_the_documentation_says() {
    let text: ArrayRef = Arc::new(StringViewArray::from(vec!["thalweg", "thalweg"]));
    let none: ArrayRef = Arc::new(StringViewArray::from(vec![None::<&str>]));
    let digests = digests(&[text.clone(), none], 100);
    let hash = (value_hashes(&text).unwrap()[0] >> 32) as u32;
    let mut expected = vec![1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, LIST];
    expected.extend(hash.to_le_bytes());
    expected.push(LIST);
    assert_eq!(digests.bytes().as_slice(), expected);
    assert!(!digests.may_hold(1, u64::from(hash) << 32), "a chunk of nulls holds nothing");
}

/// Files are read for years: neither the hashes nor the filter may change under version 1.
#[test]
fn version_1_is_pinned() {
    let digests = digests(&[integers(scattered(1000))], u64::MAX);
    assert_eq!(crc32fast::hash(digests.bytes()), PINNED_FILTER);
    let values: ArrayRef =
        Arc::new(StringViewArray::from(vec!["", "twelve bytes", "thirteen byte"]));
    assert_eq!(value_hashes(&values).unwrap(), PINNED_STRINGS);
    let values: ArrayRef = Arc::new(Decimal128Array::from(vec![-1, 1 << 100]));
    assert_eq!(value_hashes(&values).unwrap(), PINNED_DECIMALS);
    let values: ArrayRef = Arc::new(UInt64Array::from(vec![0, u64::MAX]));
    assert_eq!(value_hashes(&values).unwrap(), PINNED_INTEGERS);
}

const PINNED_FILTER: u32 = 3_430_528_584;
const PINNED_STRINGS: [u64; 3] =
    [0xe47a_e7d7_607b_a2f3, 0x9231_0408_a036_03c3, 0xb08c_69f6_da77_31bf];
const PINNED_DECIMALS: [u64; 2] = [0xbaa0_8a12_0b16_4b86, 0x36f6_e339_2d6b_a7bc];
const PINNED_INTEGERS: [u64; 2] = [0xd79b_0957_4bb4_eca3, 0xdbf6_3810_2e1b_c93b];

#[test]
fn malformed_digests_are_refused() {
    let sound = digests(&[integers(0..300), integers(5..9)], u64::MAX);
    let bytes = sound.bytes();
    for end in 0..bytes.len() {
        assert!(
            Digests::parse(bytes.slice_with_length(0, end), 2, "cut").is_err(),
            "cut to {end} bytes"
        );
    }
    assert!(Digests::parse(bytes.clone(), 1, "of another extent").is_err());
    for (at, value) in [(0, 2), (4, 3), (8, 255), (15, 255), (16, 3)] {
        let mut bytes = bytes.to_vec();
        bytes[at] = value;
        assert!(Digests::parse(bytes.into(), 2, "changed").is_err(), "byte {at} is {value}");
    }
}

#[test]
fn digests_are_kept_where_they_pay() {
    let chunks = |of: &dyn Fn(i64, i64) -> i64| -> Vec<ArrayRef> {
        (0..8).map(|c| integers((0..4000).map(|row| of(c, row)))).collect()
    };
    let random = |v: i64| hash_u64(v as u64) as i64;
    let plenty = 4000 * 8;
    assert!(kept(&chunks(&|c, row| random(c * 4000 + row)), plenty).is_some(), "random ids");
    assert!(kept(&chunks(&|c, row| random(c * 40 + row % 40)), 100).is_some(), "few per chunk");
    assert!(kept(&chunks(&|c, row| c * 4000 + row), plenty).is_none(), "sorted ids");
    assert!(kept(&chunks(&|c, row| c * 3000 + row), plenty).is_none(), "nearly sorted ids");
    assert!(kept(&chunks(&|_, row| random(row % 7)), plenty).is_none(), "the same in all chunks");
    assert!(kept(&chunks(&|c, row| random(c * 4000 + row)), 4000).is_none(), "narrow values");
    let one = [integers(scattered(4000))];
    assert!(kept(&one, plenty).is_none(), "of one chunk the extent's sketch says as much");
}

#[test]
fn digests_stay_within_their_share_of_the_extent() {
    let of = |n: u64| Some(digests(&[integers(scattered(n))], u64::MAX));
    let size = |d: &Option<Digests>| d.as_ref().unwrap().bytes().len() as u64;
    let (small, large) = (of(100), of(10_000));
    let mut all = [large.clone(), None, small.clone(), large.clone()];
    let budget = size(&small) + size(&large);
    within_budget(&mut all, budget * DIGEST_EXTENT_SHARE);
    assert_eq!(all, [large, None, small, None], "the small one, then the leftmost");
}
