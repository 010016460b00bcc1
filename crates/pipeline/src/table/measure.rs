//! Nanoseconds per row: `cargo test --release -- --ignored --nocapture nanoseconds`.

use std::time::Instant;

use arrow::array::{Int32Array, Int64Array, StringViewArray};
use thalweg_base::Prng;

use super::*;
use crate::phases::Phases;

const BATCH: usize = 8192;

fn batches(values: &[i64], key: &DataType) -> Vec<ArrayRef> {
    let array = |values: &[i64]| -> ArrayRef {
        match key {
            DataType::Int32 => {
                Arc::new(Int32Array::from_iter_values(values.iter().map(|&v| v as i32)))
            }
            DataType::Int64 => Arc::new(Int64Array::from(values.to_vec())),
            _ => Arc::new(StringViewArray::from_iter_values(
                values.iter().map(|v| format!("customer#{v:012}")),
            )),
        }
    };
    values.chunks(BATCH).map(array).collect()
}

/// Builds from `keys`, looks up `probes` and prints what a row of each costs on one thread.
fn measure(name: &str, keys: &[i64], probes: &[i64], key: DataType) {
    let spec = Spec {
        key_types: vec![key.clone()],
        payload_types: vec![DataType::Int64],
        nulls_equal: false,
        keep_null_keys: false,
    };
    let built = batches(keys, &key);
    let payload = batches(keys, &DataType::Int64);
    let probed = batches(probes, &key);
    // The least time of each step is that in which nobody else held it up.
    let mut steps = Vec::<Vec<f64>>::new();
    let mut found = 0;
    for _ in 0..7 {
        let mut times = [const { Vec::new() }; 5];
        let mut timed = |kind: usize, step: &mut dyn FnMut()| {
            let start = Instant::now();
            step();
            times[kind].push(start.elapsed().as_secs_f64() * 1e9);
        };
        let mut part = Collected::new(&spec);
        for (keys, payload) in built.iter().zip(&payload) {
            timed(0, &mut || {
                part.push(&[Arc::clone(keys)], &[Arc::clone(payload)], keys.len()).unwrap();
            });
        }
        let building = Building::new(spec.clone(), vec![part]).unwrap();
        for phase in 0..building.phases() {
            for task in 0..building.tasks(phase) {
                timed(1 + phase, &mut || building.run(phase, task).unwrap());
            }
        }
        let table = building.finish().unwrap();
        let mut scratch = Scratch::default();
        let mut out = Vec::new();
        found = 0;
        for batch in &probed {
            let keys = std::slice::from_ref(batch);
            timed(4, &mut || table.lookup(keys, batch.len(), &mut scratch, &mut out).unwrap());
            found += usize::from(out[0] != NONE);
        }
        steps.resize_with(5, Vec::new);
        for (least, times) in steps.iter_mut().zip(times) {
            least.resize(times.len(), f64::MAX);
            least.iter_mut().zip(times).for_each(|(least, time)| *least = least.min(time));
        }
    }
    let longest = steps[1..4].iter().flatten().copied().fold(0.0, f64::max) * 1e-6;
    let per = |kind: usize, rows: usize| steps[kind].iter().sum::<f64>() / rows as f64;
    println!(
        "{name:40} push {:5.2}  touch {:5.2}  prepare {:5.2}  insert {:5.2}  lookup {:6.2} ns/row  \
         (longest task {longest:.2} ms, found {found}/{})",
        per(0, keys.len()),
        per(1, keys.len()),
        per(2, keys.len()),
        per(3, keys.len()),
        per(4, probes.len()),
        probed.len()
    );
}

#[test]
#[ignore = "a measurement, for a release build"]
fn nanoseconds() {
    let mut random = Prng::new(1);
    let mut shuffled = |n: i64, stretch: i64| {
        let mut keys = (0..n).map(|i| i.wrapping_mul(stretch)).collect::<Vec<_>>();
        random.shuffle(&mut keys);
        keys
    };
    let dense = shuffled(200_000, 1);
    let many = shuffled(1_500_000, 1);
    let sparse = shuffled(1_500_000, 0x1_0000_0001);
    let few = shuffled(30_000, 0x1_0000_0001);
    for (rows, range, key) in [
        (147_000, 6_000_000, DataType::Int64),
        (147_000, 6_000_000, DataType::Int32),
        (147_000, 1 << 50, DataType::Int64),
        (20_000, 6_000_000, DataType::Int64),
        (1_000, 6_000_000, DataType::Int64),
        (1_500_000, 60_000_000, DataType::Int64),
        (1_500_000, 1 << 50, DataType::Int64),
    ] {
        let keys = shuffled(rows, range / rows);
        for (hits, sorted) in [(10, true), (10, false), (100, true), (100, false)] {
            let mut random = Prng::new(3);
            // What misses lies between what hits.
            let of = |r: &mut Prng| {
                let key = keys[r.below(keys.len() as u64) as usize];
                if r.below(100) < hits { key } else { key + 1 + r.below(3) as i64 }
            };
            let mut probes = (0..3_000_000).map(|_| of(&mut random)).collect::<Vec<_>>();
            if sorted {
                probes.sort_unstable();
            }
            let order = if sorted { "sorted" } else { "random" };
            let name = format!("{rows} of {range}, {order}, {hits} %");
            measure(&name, &keys, &probes, key.clone());
        }
    }
    let mut random = Prng::new(2);
    let mut pick = |keys: &[i64], hits: u64| -> Vec<i64> {
        let of = |r: &mut Prng| {
            let key = keys[r.below(keys.len() as u64) as usize];
            if r.below(100) < hits { key } else { key.wrapping_add(0x7000_0000) }
        };
        (0..4_000_000).map(|_| of(&mut random)).collect()
    };
    let p = pick(&dense, 100);
    let tiny = &dense.iter().copied().filter(|&k| k < 4096).collect::<Vec<_>>();
    measure("dense 4 Ki, i32", tiny, &pick(tiny, 100), DataType::Int32);
    measure("dense 200 Ki, i32", &dense, &p, DataType::Int32);
    measure("dense 200 Ki, i64", &dense, &p, DataType::Int64);
    measure("dense 200 Ki, i64, half found", &dense, &pick(&dense, 50), DataType::Int64);
    measure("dense 1.5 M, i32", &many, &pick(&many, 100), DataType::Int32);
    measure("hashed 30 k, i64", &few, &pick(&few, 100), DataType::Int64);
    measure("hashed 30 k, i64, 5 % found", &few, &pick(&few, 5), DataType::Int64);
    let p = pick(&sparse, 100);
    measure("hashed 1.5 M, i64", &sparse, &p, DataType::Int64);
    measure("hashed 1.5 M, i64, 5 % found", &sparse, &pick(&sparse, 5), DataType::Int64);
    let text = &sparse[..500_000];
    let p = pick(text, 100)[..1_000_000].to_vec();
    measure("text 500 k", text, &p, DataType::Utf8View);
}
