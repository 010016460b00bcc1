//! Nanoseconds per row: `cargo test --release -- --ignored --nocapture nanoseconds`.

use std::time::Instant;

use arrow::array::{Int32Array, Int64Array, StringViewArray};
use thalweg_base::Prng;

use super::*;

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

/// The time this thread was on a core, whatever else the machine does.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
}

/// Builds from `keys`, looks up `probes` and prints what a row of each costs on one thread.
fn measure(name: &str, keys: &[i64], probes: &[i64], key: DataType) {
    let spec = Spec {
        key_types: vec![key.clone()],
        payload_types: vec![DataType::Int64],
        nulls_equal: false,
        keep_null_keys: false,
    };
    let per = |start: f64, rows: usize| (cpu_ns() - start) / rows as f64;
    let built = batches(keys, &key);
    let payload = batches(keys, &DataType::Int64);
    let probed = batches(probes, &key);
    let mut best = [f64::MAX; 5];
    let mut found = 0;
    let mut longest = 0.0f64;
    for _ in 0..5 {
        let start = cpu_ns();
        let mut part = Collected::new(&spec);
        for (keys, payload) in built.iter().zip(&payload) {
            part.push(&[Arc::clone(keys)], &[Arc::clone(payload)], keys.len()).unwrap();
        }
        best[0] = best[0].min(per(start, keys.len()));
        let building = Building::new(spec.clone(), vec![part]).unwrap();
        for phase in 0..building.phases() {
            let start = cpu_ns();
            for task in 0..building.tasks(phase) {
                let start = cpu_ns();
                building.run(phase, task).unwrap();
                longest = longest.max((cpu_ns() - start) * 1e-6);
            }
            best[1 + phase] = best[1 + phase].min(per(start, keys.len()));
        }
        let start = cpu_ns();
        let table = building.finish().unwrap();
        best[3] = best[3].min(per(start, keys.len()));
        let mut scratch = Scratch::default();
        let mut out = Vec::new();
        found = 0;
        let mut times = Vec::new();
        for batch in &probed {
            let keys = std::slice::from_ref(batch);
            let start = Instant::now();
            table.lookup(keys, batch.len(), &mut scratch, &mut out).unwrap();
            times.push(start.elapsed().as_secs_f64() * 1e9 / batch.len() as f64);
            found += usize::from(out[0] != NONE);
        }
        // The quarter of the batches that nobody else held up.
        times.sort_by(f64::total_cmp);
        best[4] = best[4].min(times[times.len() / 4]);
    }
    let [push, prepare, insert, finish, lookup] = best;
    println!(
        "{name:40} push {push:5.2}  prepare {prepare:5.2}  insert {insert:5.2}  finish {finish:4.2}  \
         lookup {lookup:6.2} ns/row  (longest task {longest:.2} ms, found {found}/{})",
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
    let mut random = Prng::new(2);
    let mut pick = |keys: &[i64], hits: u64| -> Vec<i64> {
        let of = |r: &mut Prng| {
            let key = keys[r.below(keys.len() as u64) as usize];
            if r.below(100) < hits { key } else { key.wrapping_add(0x7000_0000) }
        };
        (0..4_000_000).map(|_| of(&mut random)).collect()
    };
    let p = pick(&dense, 100);
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
