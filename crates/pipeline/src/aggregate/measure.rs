//! Measurements, not tests:
//! `cargo test --release -p thalweg-pipeline measure -- --ignored --nocapture --test-threads 1`.

use std::hint::black_box;

use arrow::array::*;
use arrow::datatypes::*;
use thalweg_base::Prng;

use super::*;
use crate::phases::Phases;

/// Seconds that this thread has had a processor: other builds may be running.
fn now() -> f64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: that is the C library's function of 64-bit Linux, and `time` is its struct.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.seconds as f64 + time.nanoseconds as f64 * 1e-9
}

const BATCH: usize = 16 << 10;

struct Load {
    name: &'static str,
    spec: Spec,
    /// (keys, arguments) of every batch.
    batches: Vec<(Vec<ArrayRef>, Vec<ArrayRef>)>,
    /// How often they all come. Few batches many times are in the cache, as those are that an
    /// operator before has just made.
    rounds: usize,
    /// Who take turns at them.
    workers: usize,
    /// The keys that the groups are grouped by again.
    by: &'static [usize],
}

/// Runs it five times, and prints the least of each: nanoseconds a row to group them, to sort the
/// groups, and to merge them.
fn measure(load: Load) {
    let spec = Arc::new(load.spec);
    let rows: usize =
        load.batches.iter().map(|(keys, _)| keys[0].len()).sum::<usize>() * load.rounds;
    let mut best = [f64::MAX; 3];
    let (mut groups, mut bytes, mut longest) = (0, 0, 0.0f64);
    for _ in 0..5 {
        let start = now();
        let part = |_| Partial::new(&spec, load.workers).unwrap();
        let mut parts: Vec<Partial> = (0..load.workers).map(part).collect();
        let batches = (0..load.rounds).flat_map(|_| &load.batches).enumerate();
        for (i, (keys, arguments)) in batches {
            let part = &mut parts[i % load.workers];
            part.push(keys, arguments, &[], keys[0].len()).unwrap();
        }
        let pushed = now() - start;
        bytes = parts.iter().map(Partial::memory_bytes).sum();
        let start = now();
        let merging = Merging::new(Arc::clone(&spec), parts).unwrap();
        let merging = merging.apart_by(load.by).unwrap();
        longest = 0.0;
        for phase in 0..merging.phases() {
            for task in 0..merging.tasks(phase) {
                let start = now();
                merging.run(phase, task).unwrap();
                longest = longest.max(now() - start);
            }
        }
        let sorted = now() - start;
        groups = 0;
        for part in 0..merging.parts() {
            let start = now();
            groups +=
                black_box(merging.groups(part).unwrap()).iter().map(|g| g.rows).sum::<usize>();
            longest = longest.max(now() - start);
        }
        best[0] = best[0].min(pushed);
        best[1] = best[1].min(sorted);
        best[2] = best[2].min(now() - start - sorted);
    }
    println!(
        "{:44} {:6.2} + {:6.2} + {:6.2} ns/row, {groups} groups, {:.1} MB, longest task {:.2} ms",
        load.name,
        best[0] * 1e9 / rows as f64,
        best[1] * 1e9 / rows as f64,
        best[2] * 1e9 / rows as f64,
        bytes as f64 / 1e6,
        longest * 1e3,
    );
}

fn function(kind: Kind, argument: usize, result: DataType) -> Function {
    let arguments = if matches!(kind, Kind::CountRows) { vec![] } else { vec![argument] };
    Function { kind, arguments, filter: None, result }
}

fn sum(argument: usize) -> Function {
    function(Kind::Sum, argument, DataType::Decimal128(25, 2))
}

fn decimals(rows: usize, below: u64, random: &mut Prng) -> ArrayRef {
    let values: Decimal64Array = (0..rows).map(|_| Some(random.below(below) as i64)).collect();
    Arc::new(values.with_precision_and_scale(18, 2).unwrap())
}

fn letters(rows: usize, values: &[&str], random: &mut Prng) -> ArrayRef {
    let keys: UInt8Array =
        (0..rows).map(|_| Some(random.below(values.len() as u64) as u8)).collect();
    Arc::new(DictionaryArray::new(keys, Arc::new(StringViewArray::from(values.to_vec()))))
}

const MONEY: DataType = DataType::Decimal128(15, 2);

fn pricing_summary(random: &mut Prng) -> Load {
    let averages = [0, 1, 4].map(|i| function(Kind::Avg, i, DataType::Decimal128(19, 6)));
    let batch = |_| {
        let keys = vec![letters(BATCH, &["A", "N"], random), letters(BATCH, &["F", "O"], random)];
        let columns = [5000, 10_000_000, 1 << 30, 1 << 37, 11];
        (keys, columns.iter().map(|&below| decimals(BATCH, below, random)).collect())
    };
    Load {
        name: "TPC-H 1: 4 groups, 5 sums, 3 averages, count",
        batches: (0..2).map(batch).collect(),
        rounds: 100,
        workers: 1,
        by: &[],
        spec: Spec {
            key_types: vec![DataType::Utf8View; 2],
            argument_types: vec![MONEY; 5],
            functions: (0..4)
                .map(sum)
                .chain(averages)
                .chain([function(Kind::CountRows, 0, DataType::Int64)])
                .collect(),
        },
    }
}

fn brands_by_year(random: &mut Prng) -> Load {
    let brands: Vec<String> = (0..1000).map(|i| format!("MFGR#{i}")).collect();
    let brands: ArrayRef = Arc::new(StringViewArray::from_iter_values(brands));
    let batch = |_| {
        let codes: UInt16Array = (0..BATCH).map(|_| Some(random.below(1000) as u16)).collect();
        let years: Int32Array = (0..BATCH).map(|_| Some(1992 + random.below(7) as i32)).collect();
        let brand = DictionaryArray::new(codes, Arc::clone(&brands));
        let keys: Vec<ArrayRef> = vec![Arc::new(years), Arc::new(brand)];
        (keys, vec![decimals(BATCH, 10_000_000, random)])
    };
    Load {
        name: "SSB 2.1: 7000 groups of year and brand",
        batches: (0..2).map(batch).collect(),
        rounds: 100,
        workers: 1,
        by: &[],
        spec: Spec {
            key_types: vec![DataType::Int32, DataType::Utf8View],
            argument_types: vec![MONEY],
            functions: vec![sum(0)],
        },
    }
}

/// Four rows an order, one order after the other, or anywhere.
fn orders(clustered: bool, random: &mut Prng) -> Load {
    const ROWS: u64 = 6_000_000;
    let batch = |b: u64| {
        let key = |i: u64| match clustered {
            true => (b * BATCH as u64 + i) / 4,
            false => random.below(ROWS / 4),
        };
        let keys: Int64Array = (0..BATCH as u64)
            .map(key)
            .map(|order| Some((order / 8 * 32 + order % 8) as i64))
            .collect();
        let keys: Vec<ArrayRef> = vec![Arc::new(keys)];
        (keys, vec![decimals(BATCH, 5000, random)])
    };
    Load {
        name: match clustered {
            true => "TPC-H 18: 1.5 M groups, clustered",
            false => "1.5 M groups, at random",
        },
        batches: (0..ROWS / BATCH as u64).map(batch).collect(),
        rounds: 1,
        workers: 1,
        by: &[],
        spec: Spec {
            key_types: vec![DataType::Int64],
            argument_types: vec![MONEY],
            functions: vec![sum(0)],
        },
    }
}

fn texts(rows: u64, of: u64, digits: usize, random: &mut Prng) -> Load {
    let batch = |_| {
        let text = |_| format!("Customer#{:0digits$}", random.below(of));
        let keys = StringViewArray::from_iter_values((0..BATCH).map(text));
        let keys: Vec<ArrayRef> = vec![Arc::new(keys)];
        (keys, vec![])
    };
    Load {
        name: match of {
            10_000 => "strings at random, 10,000 of them, count",
            1_000_000 if digits > 9 => "long strings at random, 1 M of them, count",
            1_000_000 => "strings at random, 1 M of them, count",
            _ => "strings, nearly all distinct, count",
        },
        batches: (0..rows / BATCH as u64).map(batch).collect(),
        rounds: if of == 10_000 { 50 } else { 1 },
        workers: if of == 1_000_000 { 2 } else { 1 },
        by: &[],
        spec: Spec {
            key_types: vec![DataType::Utf8View],
            argument_types: vec![],
            functions: vec![function(Kind::CountRows, 0, DataType::Int64)],
        },
    }
}

/// Nearly all rows are groups, and there are 18,000 of what they are grouped by again.
fn suppliers_of_parts(random: &mut Prng) -> Load {
    let values = |count: usize, name: &str| -> Vec<String> {
        (0..count).map(|i| format!("{name} {i}")).collect()
    };
    let (brands, types) = (values(25, "Brand"), values(150, "Anodized brushed tin"));
    let [brands, types] =
        [brands, types].map(|v| -> ArrayRef { Arc::new(StringViewArray::from(v)) });
    let batch = |_| {
        let mut codes = |values: &ArrayRef| -> ArrayRef {
            let code = |_| Some(random.below(values.len() as u64) as u8);
            let codes: UInt8Array = (0..BATCH / 2).map(code).collect();
            Arc::new(DictionaryArray::new(codes, Arc::clone(values)))
        };
        let (brands, types) = (codes(&brands), codes(&types));
        let sizes: Int32Array = (0..BATCH / 2).map(|_| Some(random.below(8) as i32)).collect();
        let suppliers: Int64Array =
            (0..BATCH / 2).map(|_| Some(random.below(10_000) as i64)).collect();
        (vec![brands, types, Arc::new(sizes) as _, Arc::new(suppliers) as _], vec![])
    };
    let text = DataType::Utf8View;
    Load {
        name: "TPC-H 16: 119,000 groups of two workers",
        batches: (0..15).map(batch).collect(),
        rounds: 1,
        workers: 2,
        by: &[0, 1, 2],
        spec: Spec {
            key_types: vec![text.clone(), text, DataType::Int32, DataType::Int64],
            argument_types: vec![],
            functions: vec![],
        },
    }
}

/// Rows joined to 38,000 customers, with their texts.
fn named_customers(random: &mut Prng) -> Load {
    const CUSTOMERS: u64 = 38_000;
    let mut texts = |length: u64| -> ArrayRef {
        let text = |i| format!("{i:0width$}", width = (length / 2 + random.below(length)) as usize);
        Arc::new(StringViewArray::from_iter_values((0..CUSTOMERS).map(text)))
    };
    let texts = [18, 15, 25, 73].map(&mut texts);
    let batch = |_| {
        let rows: UInt32Array =
            (0..BATCH / 2).map(|_| Some(random.below(CUSTOMERS) as u32)).collect();
        let numbers: Int64Array = rows.iter().map(|row| row.map(|row| row as i64 * 4)).collect();
        let mut keys: Vec<ArrayRef> = vec![Arc::new(numbers)];
        let taken = texts.iter().map(|texts| arrow::compute::take(texts, &rows, None).unwrap());
        keys.extend(taken);
        (keys, vec![decimals(BATCH / 2, 10_000_000, random)])
    };
    Load {
        name: "TPC-H 10: 38,000 groups with 4 texts each",
        batches: (0..15).map(batch).collect(),
        rounds: 1,
        workers: 2,
        by: &[],
        spec: Spec {
            key_types: [vec![DataType::Int64], vec![DataType::Utf8View; 4]].concat(),
            argument_types: vec![MONEY],
            functions: vec![sum(0)],
        },
    }
}

macro_rules! measurements {
    ($($name:ident: $load:expr;)*) => {$(
        #[test]
        #[ignore = "a measurement"]
        fn $name() {
            let load: fn(&mut Prng) -> Load = $load;
            measure(load(&mut Prng::new(7)));
        }
    )*};
}

measurements! {
    pricing: pricing_summary;
    brands: brands_by_year;
    orders_clustered: |random| orders(true, random);
    orders_at_random: |random| orders(false, random);
    suppliers: suppliers_of_parts;
    customers: named_customers;
    texts_distinct: |random| texts(1_000_000, 1 << 40, 9, random);
    texts_many: |random| texts(8_000_000, 1_000_000, 9, random);
    texts_long: |random| texts(4_000_000, 1_000_000, 41, random);
    texts_few: |random| texts(40_000, 10_000, 9, random);
}
