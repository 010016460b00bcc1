//! The sink against a model: a hash map of lists of values.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::*;
use arrow::datatypes::*;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use proptest::prelude::*;
use thalweg_base::Prng;

use thalweg_ir::aggregate::is_native;

use super::*;
use crate::encoding::expand;
use crate::phases::Phases;

/// A value of any type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Null,
    Int(i128),
    /// Bits of a double.
    Float(u64),
    Bytes(Vec<u8>),
    List(Vec<i32>),
}

fn key_types() -> Vec<DataType> {
    vec![
        DataType::Int64,
        DataType::Int32,
        DataType::UInt64,
        DataType::Date32,
        DataType::Boolean,
        DataType::Utf8View,
        DataType::Utf8,
        DataType::BinaryView,
        DataType::Decimal128(38, 2),
        DataType::Float64,
        DataType::Float32,
        DataType::new_list(DataType::Int32, true),
    ]
}

fn argument_types() -> Vec<DataType> {
    vec![
        DataType::Int64,
        DataType::Decimal128(15, 2),
        DataType::Decimal128(34, 2),
        DataType::Float64,
        DataType::Utf8View,
        DataType::UInt64,
        DataType::Date32,
        DataType::Boolean,
        DataType::Float32,
    ]
}

/// A random value; `spread` is about how many there are.
fn random(data_type: &DataType, spread: u64, nulls: u64, random: &mut Prng) -> Cell {
    if random.below(100) < nulls {
        return Cell::Null;
    }
    let small = random.below(spread.max(1)) as i64 - spread as i64 / 4;
    match data_type {
        DataType::Boolean => Cell::Int((random.below(2)).into()),
        DataType::UInt64 => match random.below(50) {
            0 => Cell::Int(u64::MAX.into()),
            _ => Cell::Int(small.unsigned_abs().into()),
        },
        DataType::Int64 => match random.below(200) {
            0 => Cell::Int(i64::MIN.into()),
            1 => Cell::Int(i64::MAX.into()),
            _ => Cell::Int(small.into()),
        },
        DataType::Decimal128(precision, _) if *precision > 20 => match random.below(20) {
            0 => Cell::Int(i128::from(small) << 64),
            1 => Cell::Int(i64::MAX.into()),
            _ => Cell::Int(small.into()),
        },
        DataType::Float32 | DataType::Float64 => match random.below(40) {
            0 => Cell::Float(f64::NAN.to_bits()),
            1 => Cell::Float((-0.0f64).to_bits()),
            2 => Cell::Float(0.0f64.to_bits()),
            3 => Cell::Float(f64::INFINITY.to_bits()),
            _ => Cell::Float((small as f64 / 2.0).to_bits()),
        },
        DataType::List(_) => {
            Cell::List((0..random.below(3)).map(|_| random.below(spread) as i32).collect())
        }
        t if t.is_string() || t.is_binary() || *t == DataType::BinaryView => {
            let text = format!("{}{small}", "long text and ".repeat((small % 3).max(0) as usize));
            Cell::Bytes(if small == 0 { vec![] } else { text.into_bytes() })
        }
        _ => Cell::Int(small.into()),
    }
}

/// An array in one of the forms that its type may have.
fn array(data_type: &DataType, cells: &[Cell], random: &mut Prng) -> ArrayRef {
    let ints = || cells.iter().map(|c| if let Cell::Int(v) = c { Some(*v) } else { None });
    let floats = || {
        cells.iter().map(|c| if let Cell::Float(v) = c { Some(f64::from_bits(*v)) } else { None })
    };
    let bytes = || cells.iter().map(|c| if let Cell::Bytes(v) = c { Some(&v[..]) } else { None });
    let texts = || bytes().map(|b| b.map(|b| std::str::from_utf8(b).unwrap()));
    fn dictionary(values: ArrayRef, keys: Vec<Option<u32>>, narrow: bool) -> ArrayRef {
        if narrow && values.len() < 256 {
            let keys: UInt8Array = keys.into_iter().map(|k| k.map(|k| k as u8)).collect();
            return Arc::new(DictionaryArray::new(keys, values));
        }
        Arc::new(DictionaryArray::new(UInt32Array::from(keys), values))
    }
    let is_bytes = matches!(cells.iter().find(|c| **c != Cell::Null), Some(Cell::Bytes(_)));
    if is_bytes && random.below(2) == 0 {
        // Values in another order every time, some twice, and one that no row has.
        let mut values: Vec<Cell> = cells.iter().filter(|c| **c != Cell::Null).cloned().collect();
        if random.below(2) == 0 {
            values.sort_by_key(|c| format!("{c:?}"));
            values.dedup();
        }
        values.push(Cell::Bytes(b"nobody".to_vec()));
        random.shuffle(&mut values);
        let places: HashMap<&Cell, u32> = values.iter().zip(0..).collect();
        let keys = cells.iter().map(|c| places.get(c).copied()).collect();
        let mut plain = Prng::new(1);
        let values = loop {
            let values = array(data_type, &values, &mut plain);
            if values.data_type() == data_type {
                break values;
            }
        };
        return dictionary(values, keys, random.below(2) == 0);
    }
    let compact = matches!(
        data_type,
        DataType::Int64 | DataType::Int32 | DataType::Date32 | DataType::Decimal128(..)
    );
    let small = || ints().map(|v| v.map(i16::try_from).transpose());
    if compact
        && let Ok(small) = small().collect::<Result<Int16Array, _>>()
        && random.below(3) == 0
    {
        return Arc::new(small);
    }
    match data_type {
        DataType::Int64 => Arc::new(ints().map(|v| v.map(|v| v as i64)).collect::<Int64Array>()),
        DataType::Int32 => Arc::new(ints().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::UInt64 => Arc::new(ints().map(|v| v.map(|v| v as u64)).collect::<UInt64Array>()),
        DataType::Date32 => Arc::new(ints().map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        DataType::Boolean => Arc::new(ints().map(|v| v.map(|v| v != 0)).collect::<BooleanArray>()),
        DataType::Utf8View => Arc::new(texts().collect::<StringViewArray>()),
        DataType::Utf8 => Arc::new(texts().collect::<StringArray>()),
        DataType::BinaryView => Arc::new(bytes().collect::<BinaryViewArray>()),
        DataType::Float64 => Arc::new(floats().collect::<Float64Array>()),
        DataType::Float32 => {
            Arc::new(floats().map(|v| v.map(|v| v as f32)).collect::<Float32Array>())
        }
        DataType::Decimal128(precision, scale) => {
            let narrow = ints().all(|v| v.is_none_or(|v| i64::try_from(v).is_ok()));
            if narrow && random.below(2) == 0 {
                let values = ints().map(|v| v.map(|v| v as i64)).collect::<Decimal64Array>();
                return Arc::new(values.with_precision_and_scale(18, *scale).unwrap());
            }
            let values = ints().collect::<Decimal128Array>();
            Arc::new(values.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::List(_) => {
            let lists = cells.iter().map(|c| match c {
                Cell::List(v) => Some(v.iter().map(|&v| Some(v)).collect::<Vec<_>>()),
                _ => None,
            });
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
        }
        other => panic!("no cells of {other}"),
    }
}

fn cell(array: &ArrayRef, row: usize) -> Cell {
    if array.is_null(row) {
        return Cell::Null;
    }
    macro_rules! int {
        ($type:ty) => {
            Cell::Int(array.as_primitive::<$type>().value(row).into())
        };
    }
    match array.data_type() {
        DataType::Int64 => int!(Int64Type),
        DataType::Int32 => int!(Int32Type),
        DataType::UInt64 => int!(UInt64Type),
        DataType::Date32 => int!(Date32Type),
        DataType::Decimal128(..) => int!(Decimal128Type),
        DataType::Boolean => Cell::Int(array.as_boolean().value(row).into()),
        DataType::Float64 => Cell::Float(array.as_primitive::<Float64Type>().value(row).to_bits()),
        DataType::Float32 => {
            Cell::Float(f64::from(array.as_primitive::<Float32Type>().value(row)).to_bits())
        }
        DataType::Utf8View => Cell::Bytes(array.as_string_view().value(row).into()),
        DataType::Utf8 => Cell::Bytes(array.as_string::<i32>().value(row).into()),
        DataType::BinaryView => Cell::Bytes(array.as_binary_view().value(row).into()),
        DataType::List(_) => {
            let list = array.as_list::<i32>().value(row);
            Cell::List(list.as_primitive::<Int32Type>().values().to_vec())
        }
        other => panic!("no cells of {other}"),
    }
}

/// The exclusive or of all numbers, and how many there were.
#[derive(Debug)]
struct Xor;

impl External for Xor {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(XorState(vec![])))
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![DataType::Int64]
    }
}

struct XorState(Vec<i64>);

impl Accumulator for XorState {
    fn update(
        &mut self,
        args: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[u32],
        total: usize,
    ) -> Result<()> {
        self.0.resize(total, 0);
        assert_eq!(*args[0].data_type(), DataType::Decimal128(15, 2));
        let values = args[0].as_primitive::<Decimal128Type>();
        assert_eq!(values.len(), groups.len());
        for (i, &group) in groups.iter().enumerate() {
            let passes = filter.is_none_or(|f| f.is_valid(i) && f.value(i));
            if passes && values.is_valid(i) {
                self.0[group as usize] ^= values.value(i) as i64;
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[u32], total: usize) -> Result<()> {
        self.0.resize(total, 0);
        let values = states[0].as_primitive::<Int64Type>();
        assert_eq!(values.len(), groups.len());
        groups.iter().zip(values.values()).for_each(|(&g, v)| self.0[g as usize] ^= v);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(std::mem::take(&mut self.0))))
    }

    fn memory_bytes(&self) -> usize {
        self.0.capacity() * 8
    }
}

fn function(kind: Kind, arguments: &[usize], filter: Option<usize>) -> Function {
    let result = match (&kind, arguments.first().map(|&i| argument_types()[i].clone())) {
        (Kind::CountRows | Kind::Count | Kind::External(_), _) | (_, None) => DataType::Int64,
        (Kind::Sum, Some(DataType::Decimal128(p, s))) => DataType::Decimal128((p + 10).min(38), s),
        (Kind::Avg, Some(DataType::Decimal128(p, s))) => {
            DataType::Decimal128((p + 4).min(38), s + 4)
        }
        (_, Some(t)) => t,
    };
    Function { kind, arguments: arguments.to_vec(), filter, result }
}

/// All functions over all arguments that they take, plus one of no code here.
fn all_functions() -> Vec<Function> {
    let mut functions = vec![];
    for filter in [None, Some(0), Some(1)] {
        functions.push(function(Kind::CountRows, &[], filter));
        functions.push(function(Kind::Count, &[0, 3], filter));
        functions.push(function(Kind::External(Code(Arc::new(Xor))), &[1], filter));
        for (i, t) in argument_types().into_iter().enumerate() {
            for kind in [Kind::Count, Kind::Sum, Kind::Avg, Kind::Min, Kind::Max] {
                let of_words = matches!(t, DataType::Int64 | DataType::UInt64);
                if is_native(&kind, std::slice::from_ref(&t))
                    && !(of_words && matches!(kind, Kind::Avg))
                {
                    functions.push(function(kind, &[i], filter));
                }
            }
        }
    }
    functions
}

/// What the function makes of those rows' arguments.
fn model(function: &Function, rows: &[&Row]) -> Cell {
    let passes = |row: &&&Row| function.filter.is_none_or(|f| row.filters[f] == Some(true));
    let whole = |row: &&&Row| function.arguments.iter().all(|&i| row.arguments[i] != Cell::Null);
    let rows: Vec<&&Row> = rows.iter().filter(passes).filter(whole).collect();
    let values = || rows.iter().map(|r| r.arguments[function.arguments[0]].clone());
    let ints = || values().map(|v| if let Cell::Int(v) = v { v } else { panic!("{v:?}") });
    let floats = || {
        values().map(|v| if let Cell::Float(v) = v { f64::from_bits(v) } else { panic!("{v:?}") })
    };
    let is_float =
        !function.arguments.is_empty() && matches!(values().next(), Some(Cell::Float(_)));
    match function.kind {
        Kind::CountRows | Kind::Count => Cell::Int(rows.len() as i128),
        Kind::CountOfCounts | Kind::AvgOfSums => {
            panic!("groups of groups are no case of these tests")
        }
        Kind::External(_) => Cell::Int(ints().fold(0, |all, v| all ^ v as i64).into()),
        _ if rows.is_empty() => Cell::Null,
        Kind::Sum if is_float => Cell::Float(floats().sum::<f64>().to_bits()),
        Kind::Avg if is_float => Cell::Float((floats().sum::<f64>() / rows.len() as f64).to_bits()),
        Kind::Sum => {
            let sum = ints().sum::<i128>();
            Cell::Int(match function.result {
                DataType::Int64 => (sum as i64).into(),
                DataType::UInt64 => (sum as u64).into(),
                _ => sum,
            })
        }
        Kind::Avg => Cell::Int(ints().sum::<i128>() * 10_000 / rows.len() as i128),
        Kind::Min if is_float => {
            Cell::Float(floats().min_by(f64::total_cmp).expect("not empty").to_bits())
        }
        Kind::Max if is_float => {
            Cell::Float(floats().max_by(f64::total_cmp).expect("not empty").to_bits())
        }
        Kind::Min | Kind::Max => {
            let order = |cell: &Cell| match cell {
                Cell::Int(v) => (*v, vec![]),
                Cell::Bytes(b) => (0, b.clone()),
                other => panic!("{other:?}"),
            };
            match function.kind {
                Kind::Min => values().min_by_key(order).expect("not empty"),
                _ => values().max_by_key(order).expect("not empty"),
            }
        }
    }
}

/// NaNs are one here: their bits depend on the order of additions.
fn same_nan(cell: Cell) -> Cell {
    match cell {
        Cell::Float(bits) if f64::from_bits(bits).is_nan() => Cell::Float(f64::NAN.to_bits()),
        // A sum of nothing but -0.0 starts at 0.0.
        Cell::Float(bits) if bits << 1 == 0 => Cell::Float(0),
        other => other,
    }
}

struct Row {
    keys: Vec<Cell>,
    arguments: Vec<Cell>,
    filters: [Option<bool>; 2],
}

struct Case {
    seed: u64,
    keys: Vec<DataType>,
    functions: Vec<Function>,
    rows: usize,
    spread: u64,
    nulls: u64,
    batch_rows: u64,
    parts: usize,
    limits: Limits,
    /// Of 100 batches, how many are followed by a spill of their part.
    spills: u64,
    /// Of 100 rows, how many have the keys of the row before.
    repeats: u64,
    /// Rows are in the order of the first key, which the others depend on, but for so many of 1000.
    disorder: Option<u64>,
}

/// The pieces of each part, as a reader of a file gets them.
struct Files(Vec<Vec<RecordBatch>>);

impl Files {
    fn take(&mut self, part: &mut Partial) {
        for sealed in part.spill().unwrap() {
            for (number, piece) in sealed.pieces().unwrap() {
                let mut file = vec![];
                let mut writer = StreamWriter::try_new(&mut file, &piece.schema()).unwrap();
                writer.write(&piece).unwrap();
                writer.finish().unwrap();
                let reader = StreamReader::try_new(&file[..], None).unwrap();
                self.0[number].extend(reader.map(Result::unwrap));
            }
        }
    }
}

fn groups(merging: &Merging) -> Vec<Groups> {
    run(merging);
    (0..merging.parts()).flat_map(|part| merging.groups(part).unwrap()).collect()
}

fn run(merging: &Merging) {
    for phase in 0..merging.phases() {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let task = next.fetch_add(1, Ordering::Relaxed);
                        if task >= merging.tasks(phase) {
                            return;
                        }
                        merging.run(phase, task).unwrap();
                    }
                });
            }
        });
    }
}

/// The groups, as cells of keys and results, sorted.
fn cells(spec: &Spec, groups: &[Groups]) -> Vec<Vec<Cell>> {
    let results = spec.functions.iter().map(|f| &f.result);
    let types: Vec<&DataType> = spec.key_types.iter().chain(results).collect();
    let mut rows = vec![];
    for batch in groups {
        assert!(batch.rows > 0 && batch.rows <= OUTPUT_ROWS_MAX);
        assert_eq!(batch.columns.len(), types.len());
        let columns = batch.columns.iter().zip(&types).enumerate().map(|(i, (column, logical))| {
            assert_eq!(column.len(), batch.rows);
            if i >= spec.key_types.len() {
                assert_eq!(&column.data_type(), logical);
            }
            column.to_data().validate_full().unwrap();
            expand(column, logical).unwrap()
        });
        let columns = columns.collect::<Vec<_>>();
        let row = |i| columns.iter().map(|c| cell(c, i)).collect();
        rows.extend((0..batch.rows).map(row));
    }
    rows
}

fn check(case: &Case) {
    let random_of = &mut Prng::new(case.seed);
    let argument_types = argument_types();
    let mut rows: Vec<Row> = (0..case.rows)
        .map(|_| Row {
            keys: (case.keys.iter())
                .map(|t| random(t, case.spread, case.nulls, random_of))
                .collect(),
            arguments: (argument_types.iter())
                .map(|t| random(t, 1000, case.nulls, random_of))
                .collect(),
            filters: std::array::from_fn(|_| match random_of.below(100) {
                n if n < case.nulls => None,
                n => Some(n < 60),
            }),
        })
        .collect();

    if let Some(disorder) = case.disorder {
        let by_first_key = |row: &Row| match row.keys.first() {
            Some(Cell::Int(first)) => *first,
            _ => i128::MIN,
        };
        rows.sort_by_key(by_first_key);
        for n in 1..rows.len() {
            if rows[n].keys.first() == rows[n - 1].keys.first() && random_of.below(1000) >= disorder
            {
                rows[n].keys = rows[n - 1].keys.clone();
            }
        }
        for _ in 0..rows.len() * disorder as usize / 1000 {
            let [a, b] = [(); 2].map(|()| random_of.below(rows.len() as u64) as usize);
            rows.swap(a, b);
        }
    }
    for n in 1..rows.len() {
        if random_of.below(100) < case.repeats {
            rows[n].keys = rows[n - 1].keys.clone();
        }
    }
    let spec = Arc::new(Spec {
        key_types: case.keys.clone(),
        argument_types: argument_types.clone(),
        functions: case.functions.clone(),
    });
    let mut parts: Vec<Partial> =
        (0..case.parts).map(|_| Partial::with_limits(&spec, case.limits).unwrap()).collect();
    let mut files = Files(vec![vec![]; spill::PARTS]);
    let mut left = &rows[..];
    while !left.is_empty() {
        let n = (1 + random_of.below(case.batch_rows) as usize).min(left.len());
        let (batch, rest) = left.split_at(n);
        left = rest;
        let column = |t: &DataType, cells: Vec<Cell>, r: &mut Prng| array(t, &cells, r);
        // Every row is a run, or the same keys one after the other are.
        let in_runs = case.repeats > 0 && random_of.below(2) == 0;
        let begins = |n: &usize| !in_runs || *n == 0 || batch[*n].keys != batch[*n - 1].keys;
        let firsts: Vec<usize> = (0..n).filter(begins).collect();
        let runs: Vec<u32> =
            (0..n).map(|n| firsts.partition_point(|first| *first <= n) as u32 - 1).collect();
        let key_cells = |i: usize| firsts.iter().map(|&n| batch[n].keys[i].clone()).collect();
        let keys: Vec<ArrayRef> = (case.keys.iter().enumerate())
            .map(|(i, t)| column(t, key_cells(i), random_of))
            .collect();
        let arguments: Vec<ArrayRef> = (argument_types.iter().enumerate())
            .map(|(i, t)| {
                column(t, batch.iter().map(|r| r.arguments[i].clone()).collect(), random_of)
            })
            .collect();
        let filters: Vec<BooleanArray> =
            (0..2).map(|i| batch.iter().map(|r| r.filters[i]).collect()).collect();
        let part = random_of.below(case.parts as u64) as usize;
        let runs = in_runs.then_some(&runs[..]);
        parts[part].push_runs(&keys, runs, &arguments, &filters, n).unwrap();
        assert!(parts[part].memory_bytes() > 0);
        if random_of.below(100) < case.spills {
            files.take(&mut parts[part]);
        }
    }
    let groups = if case.spills == 0 || case.keys.is_empty() {
        groups(&Merging::with_limits(Arc::clone(&spec), parts, case.limits).unwrap())
    } else {
        parts.iter_mut().for_each(|part| files.take(part));
        let merging =
            |pieces: &Vec<_>| Merging::with_pieces(Arc::clone(&spec), pieces, case.limits).unwrap();
        files.0.iter().flat_map(|pieces| groups(&merging(pieces))).collect()
    };

    let mut expected: HashMap<Vec<Cell>, Vec<&Row>> = HashMap::new();
    if case.keys.is_empty() {
        expected.insert(vec![], vec![]);
    }
    for row in &rows {
        let zero = |c: &Cell| match c {
            Cell::Float(bits) if bits << 1 == 0 => Cell::Float(0),
            other => other.clone(),
        };
        expected.entry(row.keys.iter().map(zero).collect()).or_default().push(row);
    }
    let found = cells(&spec, &groups);
    assert_eq!(found.len(), expected.len(), "groups");
    let mut seen = std::collections::HashSet::new();
    for row in found {
        let (keys, results) = row.split_at(case.keys.len());
        assert!(seen.insert(keys.to_vec()), "{keys:?} is there twice");
        let rows = expected.get(keys).unwrap_or_else(|| panic!("there is no group {keys:?}"));
        for (function, result) in case.functions.iter().zip(results) {
            let expected = model(function, rows);
            assert_eq!(
                same_nan(result.clone()),
                same_nan(expected),
                "{function:?} of {} rows of {keys:?}",
                rows.len()
            );
        }
    }
}

fn limits(chunk_groups: usize) -> Limits {
    Limits {
        chunk_groups,
        compare_groups: chunk_groups.min(200) / 4,
        trial_groups: chunk_groups / 2,
        merge_at_once: chunk_groups,
        partition_groups: chunk_groups / 4 + 1,
        gathered_groups: chunk_groups * 4,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn groups_are_those_of_the_model(
        seed in any::<u64>(),
        keys in prop::collection::vec(0..key_types().len(), 0..4),
        functions in prop::collection::vec(0..all_functions().len(), 0..6),
        rows in 0usize..2500,
        spread in prop::sample::select(vec![1u64, 3, 30, 400, 100_000]),
        nulls in prop::sample::select(vec![0u64, 0, 3, 60]),
        batch_rows in prop::sample::select(vec![7u64, 200, 2000]),
        parts in 1usize..4,
        chunk_groups in prop::sample::select(vec![4usize, 64, 1 << 17]),
        spills in prop::sample::select(vec![0u64, 0, 1, 40]),
        repeats in prop::sample::select(vec![0u64, 0, 60]),
        disorder in prop::sample::select(vec![None, Some(0u64), Some(0), Some(2)]),
    ) {
        check(&Case {
            seed,
            keys: keys.iter().map(|&i| key_types()[i].clone()).collect(),
            functions: functions.iter().map(|&i| all_functions()[i].clone()).collect(),
            rows,
            spread,
            nulls,
            batch_rows,
            parts,
            limits: limits(chunk_groups),
            spills,
            repeats,
            disorder,
        });
    }
}

fn case(keys: Vec<DataType>) -> Case {
    Case {
        seed: 1,
        keys,
        functions: all_functions(),
        rows: 1000,
        spread: 50,
        nulls: 5,
        batch_rows: 500,
        parts: 3,
        limits: limits(1 << 17),
        spills: 0,
        repeats: 50,
        disorder: None,
    }
}

#[test]
fn every_function_over_every_key() {
    check(&case(vec![]));
    for key in key_types() {
        for nulls in [0, 5] {
            check(&Case { nulls, ..case(vec![key.clone()]) });
            check(&Case { nulls, spills: 50, ..case(vec![key.clone()]) });
            check(&Case { nulls, disorder: Some(0), spread: 2000, ..case(vec![key.clone()]) });
            check(&Case { nulls, spread: 100_000, limits: limits(64), ..case(vec![key.clone()]) });
        }
    }
}

#[test]
fn without_rows_there_is_a_group_only_without_keys() {
    check(&Case { rows: 0, ..case(vec![]) });
    check(&Case { rows: 0, ..case(vec![DataType::Int64]) });
    let spec =
        Spec { key_types: vec![], argument_types: argument_types(), functions: all_functions() };
    let merging = Merging::new(Arc::new(spec.clone()), vec![]).unwrap();
    assert_eq!(cells(&spec, &groups(&merging)).len(), 1);
}

#[test]
fn many_keys_are_one() {
    let keys = key_types().into_iter().cycle().take(40).collect();
    check(&Case { rows: 300, ..case(keys) });
}

#[test]
fn rows_pass_through_when_they_find_no_groups() {
    let keys = vec![DataType::Utf8View, DataType::Int64];
    check(&Case {
        functions: vec![function(Kind::Sum, &[1], None), function(Kind::Max, &[4], None)],
        rows: 20_000,
        spread: 1 << 40,
        limits: limits(256),
        ..case(keys)
    });
}

/// Texts of all lengths that are stored or compared in ways of their own, many of which begin alike, in
/// groups that are sorted into partitions with their texts, and in groups whose texts stay where they are.
#[test]
fn texts_of_every_length_are_told_apart() {
    const LENGTHS: [usize; 14] = [0, 1, 4, 11, 12, 13, 16, 17, 31, 32, 33, 48, 100, 300];
    let text = |group: u64| {
        // The last bytes alone, the first alone or those in the middle tell texts of a length apart.
        let length = LENGTHS[group as usize % LENGTHS.len()];
        let number = group / LENGTHS.len() as u64;
        let digits = format!("{:x}", number / 3);
        let fill = "-".repeat(length.saturating_sub(digits.len()));
        match number % 3 {
            0 => format!("{fill}{digits}"),
            1 => format!("{digits}{fill}"),
            _ => format!("{}{digits}{}", &fill[fill.len() / 2..], &fill[..fill.len() / 2]),
        }
    };
    let spec = Spec {
        key_types: vec![DataType::Utf8View],
        argument_types: vec![],
        functions: vec![function(Kind::CountRows, &[], None)],
    };
    let spec = Arc::new(spec);
    let ways =
        [(400, 0, false), (4000, 0, false), (4000, 9, false), (4000, 5, true), (30_000, 0, true)];
    for (of, nulls, huge) in ways {
        let random = &mut Prng::new(of + nulls);
        let mut parts: Vec<Partial> =
            (0..3).map(|_| Partial::with_limits(&spec, limits(512)).unwrap()).collect();
        let mut expected: HashMap<Option<String>, i64> = HashMap::new();
        for batch in 0..60 {
            let mut row = |n: u64| match random.below(100) {
                null if null < nulls => None,
                // Longer than any block, and the only ones of some chunks to be that long.
                99 if huge && batch % 8 == 0 => Some(format!("{}{n}", "#".repeat(70_000))),
                _ => Some(text(random.below(of))),
            };
            let texts: Vec<Option<String>> = (0..200).map(|n| row(n % 3)).collect();
            for text in &texts {
                *expected.entry(text.clone()).or_default() += 1;
            }
            let array: ArrayRef = match batch % 5 {
                3 => Arc::new(StringArray::from(texts)),
                4 => {
                    let mut all = StringDictionaryBuilder::<UInt32Type>::new();
                    texts.iter().for_each(|text| all.append_option(text.as_ref()));
                    Arc::new(all.finish())
                }
                _ => Arc::new(StringViewArray::from(
                    texts.iter().map(Option::as_deref).collect::<Vec<_>>(),
                )),
            };
            parts[batch as usize % 3].push(&[array], &[], &[], 200).unwrap();
        }
        let merging = Merging::with_limits(Arc::clone(&spec), parts, limits(512)).unwrap();
        let found = cells(&spec, &groups(&merging));
        assert_eq!(found.len(), expected.len());
        for row in found {
            let key = match &row[0] {
                Cell::Bytes(bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
                _ => None,
            };
            assert_eq!(row[1], Cell::Int(expected[&key].into()), "{key:?}");
        }
    }
}

/// Groups by a number and two texts, of rows that are in order, from so many workers, who take turns.
fn in_order(
    batch_rows: usize,
    workers: usize,
    rows: i64,
    key: impl Fn(i64) -> i64,
    text: impl Fn(i64) -> String,
) -> (Merging, HashMap<(i64, String), i64>) {
    let spec = Arc::new(Spec {
        key_types: vec![DataType::Utf8View, DataType::Date32, DataType::Utf8View],
        argument_types: vec![DataType::Int64],
        functions: vec![function(Kind::Sum, &[0], None)],
    });
    let limits = Limits { merge_at_once: 10, ..limits(5000) };
    let mut parts: Vec<Partial> =
        (0..workers).map(|_| Partial::with_limits(&spec, limits).unwrap()).collect();
    let all = StringViewArray::from_iter_values((0..rows).map(&text));
    let mut expected = HashMap::new();
    for (n, batch) in (0..rows).collect::<Vec<_>>().chunks(batch_rows).enumerate() {
        let texts: Vec<String> = batch.iter().map(|&row| text(row)).collect();
        let dates: Date32Array = batch.iter().map(|&row| Some(key(row) as i32)).collect();
        let short: StringArray = texts.iter().map(|t| Some(&t[..5])).collect();
        let short = arrow::compute::cast(&short, &key_types_dictionary()).unwrap();
        // Texts of a joined table, and now and then of others.
        let rows: UInt32Array = batch.iter().map(|&row| Some(row as u32)).collect();
        let long = match n % 16 {
            3 => Arc::new(StringViewArray::from_iter_values(&texts)),
            _ => arrow::compute::take(&all, &rows, None).unwrap(),
        };
        let keys: [ArrayRef; 3] = [short, Arc::new(dates), long];
        let ones: ArrayRef = Arc::new(Int64Array::from(vec![1; batch.len()]));
        parts[n * batch_rows / 4000 % workers].push(&keys, &[ones], &[], batch.len()).unwrap();
        for (&row, text) in batch.iter().zip(texts) {
            *expected.entry((key(row), text)).or_insert(0) += 1;
        }
    }
    (Merging::with_limits(spec, parts, limits).unwrap(), expected)
}

fn key_types_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8View))
}

#[test]
fn groups_of_rows_in_order_are_not_merged_but_where_workers_meet() {
    let text = |row: i64| format!("{:05} is the text", row / 3);
    type Of<'a, T> = &'a dyn Fn(i64) -> T;
    let check = |batch_rows, workers, key: Of<i64>, text: Of<String>, apart| {
        let (merging, expected) = in_order(batch_rows, workers, 45_500, key, text);
        assert_eq!(merging.phases() == 0, apart);
        run(&merging);
        let mut found = HashMap::new();
        for groups in (0..merging.parts()).flat_map(|part| merging.groups(part).unwrap()) {
            assert!(groups.rows > 0);
            let texts = expand(&groups.columns[2], &DataType::Utf8View).unwrap();
            let short = expand(&groups.columns[0], &DataType::Utf8View).unwrap();
            let dates = groups.columns[1].as_primitive::<Date32Type>();
            let sums = groups.columns[3].as_primitive::<Int64Type>();
            for row in 0..groups.rows {
                let text = texts.as_string_view().value(row).to_string();
                assert_eq!(short.as_string_view().value(row), &text[..5]);
                let group = (dates.value(row).into(), text);
                assert_eq!(found.insert(group, sums.value(row)), None, "each group once");
            }
        }
        assert!(found == expected);
    };
    for workers in 1..4 {
        // Some groups have rows in two batches, and some of these in those of two workers.
        check(1000, workers, &|row| row / 3, &text, true);
        // A text changes alone, also where two workers meet; or a worker's rows begin again.
        check(1000, workers, &|row| row / 3, &|row| text(row + row / 20_000), false);
        check(1000, workers, &|row| row / 3, &|row| text(row + row / 12_000), false);
        check(1000, workers, &|row| row % 30_000 / 3, &text, false);
    }
    // Every other block first, then those between. Where blocks meet, there is a gap in a batch.
    let block = |row: i64| row / 6500 * 2 % 7 * 6500 + row % 6500;
    for workers in 1..4 {
        check(1000, workers, &|row| block(row) / 3, &|row| text(block(row)), true);
    }
    // Every batch of the one has several gaps, which those of the other fill.
    let stripe = |row: i64| {
        let (stretch, row) = (row / 4000, row % 4000);
        stretch / 2 * 8000 + (row / 250 * 2 + stretch % 2) * 250 + row % 250
    };
    check(1000, 2, &stripe, &|row| text(stripe(row) * 3), true);
    // The end of a sequence may be within a batch, but they must not be too short.
    for (length, apart) in [(6500, true), (700, false)] {
        let sequences = 45_500 / length;
        let block = |row: i64| row / length * 2 % sequences * length + row % length;
        check(13_000, 1, &|row| block(row) / 3, &|row| text(block(row)), apart);
    }
    // Those of one worker are between those of another.
    check(1000, 2, &|row| row / 3 % 4000, &|row| text(row % 12_000), false);
}

#[test]
fn groups_come_in_the_order_of_their_key_if_that_is_asked_for() {
    let spec = Arc::new(Spec {
        key_types: vec![DataType::Int64],
        argument_types: vec![DataType::Int64],
        functions: vec![function(Kind::Sum, &[0], None), function(Kind::CountRows, &[], None)],
    });
    let random = &mut Prng::new(3);
    for (workers, values, stretch) in [
        (1, 700, 1),
        (1, 20_000, 1),
        (2, 700, 3),
        (2, 20_000, 3),
        (3, 20_000, 1),
        (2, 900, 1 << 40),
    ] {
        let limits = limits(5000);
        let mut parts: Vec<Partial> =
            (0..workers).map(|_| Partial::with_limits(&spec, limits).unwrap()).collect();
        let mut expected = std::collections::BTreeMap::new();
        for batch in 0..60 {
            let numbers = (0..500).map(|_| (random.below(values) as i64 - 300) * stretch);
            let numbers: Vec<i64> = numbers.collect();
            for &number in &numbers {
                let (sum, count) = expected.entry(number).or_insert((0, 0));
                (*sum, *count) = (*sum + number % 7, *count + 1);
            }
            let sums = Int64Array::from_iter_values(numbers.iter().map(|number| number % 7));
            let keys: ArrayRef = Arc::new(Int64Array::from(numbers));
            parts[batch % workers].push(&[keys], &[Arc::new(sums)], &[], 500).unwrap();
        }
        let merging = Merging::with_limits(Arc::clone(&spec), parts, limits).unwrap();
        let merging = merging.in_order().unwrap();
        let mut found = vec![];
        for groups in groups(&merging) {
            let [keys, sums, counts] =
                [0, 1, 2].map(|c| groups.columns[c].as_primitive::<Int64Type>().values().to_vec());
            found.extend(keys.into_iter().zip(sums.into_iter().zip(counts)));
        }
        let in_order: Vec<_> = expected.into_iter().collect();
        // Of values far apart only what they are is sure.
        if stretch > 1000 {
            found.sort_unstable();
        }
        assert_eq!(found, in_order, "{workers} workers, {values} values");
    }
}

/// Numbers and texts by which rows are grouped, and the groups of one worker of two, counted.
struct Named {
    spec: Arc<Spec>,
    part: Partial,
}

impl Named {
    fn new() -> Self {
        Self::of(DataType::Utf8)
    }

    /// With long texts of that type.
    fn of(long: DataType) -> Self {
        let spec = Arc::new(Spec {
            key_types: vec![DataType::Int64, DataType::Utf8View, long],
            argument_types: vec![],
            functions: vec![function(Kind::CountRows, &[], None)],
        });
        let limits = Limits { compare_groups: 50, ..LIMITS };
        Named { part: Partial::with_limits(&spec, limits).unwrap(), spec }
    }

    /// The second text is long, and NULL in every seventh row. Numbers descend where they are given
    /// to ascend.
    fn push(&mut self, rows: impl Iterator<Item = (i64, usize)>) {
        let rows: Vec<(i64, usize)> = rows.collect();
        for rows in rows.chunks(1500) {
            let numbers = Int64Array::from_iter_values(rows.iter().map(|(number, _)| -number));
            let short = StringViewArray::from_iter_values(rows.iter().map(|(_, n)| n.to_string()));
            let long = |(_, n): &(i64, usize)| (n % 7 > 0).then(|| format!("the text number {n}"));
            let long: StringArray = rows.iter().map(long).collect();
            let long = arrow::compute::cast(&long, &self.spec.key_types[2]).unwrap();
            let keys: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(short), long];
            self.part.push(&keys, &[], &[], rows.len()).unwrap();
        }
    }

    /// The same of texts that a joined table has in one array.
    fn push_joined(&mut self, all: &StringViewArray, rows: impl Iterator<Item = (i64, usize)>) {
        let rows: Vec<(i64, usize)> = rows.collect();
        for rows in rows.chunks(1500) {
            let numbers = Int64Array::from_iter_values(rows.iter().map(|(number, _)| -number));
            let short = StringViewArray::from_iter_values(rows.iter().map(|(_, n)| n.to_string()));
            let places: UInt32Array =
                rows.iter().map(|(_, n)| (n % 7 > 0).then_some(*n as u32)).collect();
            let long = arrow::compute::take(all, &places, None).unwrap();
            let keys: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(short), long];
            self.part.push(&keys, &[], &[], rows.len()).unwrap();
        }
    }

    /// The keys whose texts hashes do without, and how often each count of rows comes.
    fn end(self, others: Vec<Partial>) -> (Option<Vec<bool>>, HashMap<Cell, usize>) {
        let Named { spec, part } = self;
        let unhashed = part.unhashed();
        let parts = std::iter::once(part).chain(others).collect();
        let groups = groups(&Merging::with_limits(Arc::clone(&spec), parts, limits(64)).unwrap());
        let mut counts = HashMap::new();
        for row in cells(&spec, &groups) {
            *counts.entry(row[3].clone()).or_default() += 1;
        }
        (unhashed, counts)
    }
}

#[test]
fn texts_that_each_group_has_for_itself_are_compared() {
    let rows = |from: usize, until: usize| (from..until).map(|n| (n as i64, n));
    // A worker that has met too few groups to compare their texts has hashes that are of them.
    for few in [0, 10] {
        let [mut one, mut other, mut third] = [(); 3].map(|()| Named::new());
        one.push(rows(0, 3000));
        one.push(rows(1000, 2000).flat_map(|row| [row, row]));
        other.push(rows(2500, 5000));
        third.push(rows(0, few));
        let (unhashed, counts) = one.end(vec![other.part, third.part]);
        assert_eq!(unhashed, Some(vec![false, true, true]));
        let expected = HashMap::from([(1, 3500 - few), (2, 500 + few), (3, 1000)]);
        assert_eq!(counts, expected.into_iter().map(|(n, of)| (Cell::Int(n), of)).collect());
    }
}

#[test]
fn texts_of_a_joined_table_are_held_and_not_copied() {
    let all: StringViewArray = (0..9000).map(|n| Some(format!("the text number {n}"))).collect();
    let rows = |from: usize, until: usize| (from..until).map(|n| (n as i64, n));
    let mut alone = Named::of(DataType::Utf8View);
    (0..2).for_each(|_| alone.push_joined(&all, rows(0, 6000)));
    let merging = Merging::with_limits(Arc::clone(&alone.spec), vec![alone.part], LIMITS).unwrap();
    let groups = groups(&merging);
    let buffers = groups.iter().flat_map(|g| g.columns[2].as_string_view().data_buffers());
    assert!(buffers.into_iter().any(|buffer| buffer.ptr_eq(&all.data_buffers()[0])));
    // The other worker has its texts from there as well, or has copied them.
    for joined in [true, false] {
        let [mut one, mut other] = [(); 2].map(|()| Named::of(DataType::Utf8View));
        one.push_joined(&all, rows(0, 6000));
        one.push_joined(&all, rows(0, 7500));
        one.push(rows(0, 3000));
        // A few texts of another table.
        let few: StringViewArray = all.iter().collect();
        one.push_joined(&few, rows(7000, 8000));
        match joined {
            true => other.push_joined(&all, rows(4000, 9000)),
            false => other.push(rows(4000, 9000)),
        }
        let (unhashed, counts) = one.end(vec![other.part]);
        assert_eq!(unhashed, Some(vec![false, true, true]));
        // Thrice: below 3,000, and from 4,000 to 6,000, and from 7,000 to 7,500.
        let expected = HashMap::from([(1, 1000), (2, 1000 + 1000 + 500), (3, 3000 + 2000 + 500)]);
        assert_eq!(counts, expected.into_iter().map(|(n, of)| (Cell::Int(n), of)).collect());
    }
}

#[test]
fn texts_that_alone_tell_groups_apart_are_hashed_whenever_that_is_seen() {
    let expected = HashMap::from([(Cell::Int(2), 20_300)]);
    for numbers_differ in [false, true] {
        let mut named = Named::new();
        for _ in 0..2 {
            named.push((0..300).map(|n| (if numbers_differ { n as i64 } else { 7 }, n)));
            named.push((300..20_300).map(|n| (7, n)));
        }
        assert_eq!(named.end(vec![]), (None, expected.clone()));
    }
}

#[test]
fn averages_overflow_as_errors() {
    let result = DataType::Decimal128(38, 6);
    let spec = Arc::new(Spec {
        key_types: vec![],
        argument_types: vec![DataType::Decimal128(38, 2)],
        functions: vec![Function { kind: Kind::Avg, arguments: vec![0], filter: None, result }],
    });
    let average = |values: Vec<i128>| {
        let mut part = Partial::new(&spec, 1).unwrap();
        let values = Decimal128Array::from(values).with_precision_and_scale(38, 2).unwrap();
        let rows = values.len();
        part.push(&[], &[Arc::new(values)], &[], rows).unwrap();
        let merging = Merging::new(Arc::clone(&spec), vec![part]).unwrap();
        let groups = merging.groups(0)?;
        Ok::<_, thalweg_base::Error>(groups[0].columns[0].as_primitive::<Decimal128Type>().value(0))
    };
    let most = 10i128.pow(38) - 1;
    assert_eq!(average(vec![most, -most, 1]).unwrap(), 3333);
    // The sum needs more than 128 bits, the average does not.
    let large = 10i128.pow(34) - 1;
    assert_eq!(average(vec![large; 30_000]).unwrap(), large * 10_000);
    assert_eq!(average(vec![-large; 30_000]).unwrap(), -large * 10_000);
    let e = average(vec![most; 2]).unwrap_err();
    assert_eq!(e.kind(), thalweg_base::Kind::User);
}

#[test]
fn a_table_is_tried_again_after_a_while() {
    let spec = Arc::new(Spec {
        key_types: vec![DataType::Int64],
        argument_types: vec![],
        functions: vec![],
    });
    let mut part = Partial::with_limits(&spec, limits(10)).unwrap();
    for batch in 0..30 {
        let keys = Int64Array::from_iter_values((batch * 10..batch * 10 + 10).map(|k| -k));
        part.push(&[Arc::new(keys)], &[], &[], 10).unwrap();
    }
    let chunks = part.into_chunks().unwrap();
    let distinct: Vec<usize> = (0..30).filter(|&i| chunks[i].distinct).collect();
    assert_eq!(distinct, [0, 17]);
}

#[test]
fn the_first_table_is_given_up_early_for_a_chunk() {
    let spec = Arc::new(Spec {
        key_types: vec![DataType::Int64],
        argument_types: vec![],
        functions: vec![],
    });
    let chunks = |groups: i64| {
        let mut part = Partial::with_limits(&spec, limits(100)).unwrap();
        for batch in 0..30 {
            let keys =
                Int64Array::from_iter_values((batch * 10..batch * 10 + 10).map(|k| -(k % groups)));
            part.push(&[Arc::new(keys)], &[], &[], 10).unwrap();
        }
        let chunks = part.into_chunks().unwrap();
        chunks.iter().map(|c| (c.groups, c.distinct)).collect::<Vec<_>>()
    };
    assert_eq!(chunks(1000), [(50, true), (100, false), (100, true), (50, false)]);
    // Those of the second half of the first table are seen again.
    assert_eq!(chunks(70), [(50, true), (100, false), (70, true)]);
    assert_eq!(chunks(40), [(40, true)]);
}

#[test]
fn texts_that_many_groups_have_come_as_a_dictionary() {
    let spec = Arc::new(Spec {
        key_types: vec![DataType::Int64, DataType::Utf8View],
        argument_types: vec![],
        functions: vec![],
    });
    // From one worker, as they are, and from two, merged.
    for (workers, texts, dictionary) in
        [(1, 8, true), (2, 8, true), (1, 20_000, false), (2, 20_000, false)]
    {
        let text = |row: i64| (row % 10 > 0).then(|| format!("text number {}", row % texts));
        let parts = (0..workers).map(|worker| {
            let mut part = Partial::new(&spec, workers).unwrap();
            let rows = || (0..40_000i64).filter(|row| row % 3 != worker as i64);
            let numbers: Int64Array = rows().map(Some).collect();
            let texts: StringViewArray = rows().map(text).collect();
            let count = numbers.len();
            part.push(&[Arc::new(numbers), Arc::new(texts)], &[], &[], count).unwrap();
            part
        });
        let merging = Merging::new(Arc::clone(&spec), parts.collect()).unwrap();
        let mut found = 0;
        for batch in groups(&merging) {
            let is_dictionary = matches!(batch.columns[1].data_type(), DataType::Dictionary(..));
            assert_eq!(is_dictionary, dictionary, "{workers} workers, {texts} texts");
            let texts = expand(&batch.columns[1], &DataType::Utf8View).unwrap();
            for (row, number) in
                batch.columns[0].as_primitive::<Int64Type>().values().iter().enumerate()
            {
                let found = texts.as_string_view();
                let found = found.is_valid(row).then(|| found.value(row).to_string());
                assert_eq!(found, text(*number));
            }
            found += batch.rows;
        }
        assert_eq!(found, if workers == 1 { 26_666 } else { 40_000 });
    }
}

/// Groups by a decimal, a text and a number, some of which are NULL, from two workers; and these grouped
/// again by the text and the number. Whether they were told apart, and how many groups there are.
fn grouped_twice(texts: impl Fn(i64) -> i64) -> (bool, usize) {
    const ROWS: i64 = 40_000;
    let inner = Arc::new(Spec {
        key_types: vec![DataType::Decimal128(38, 2), DataType::Utf8View, DataType::Int64],
        argument_types: vec![],
        functions: vec![],
    });
    let outer = Arc::new(Spec {
        key_types: vec![DataType::Utf8View, DataType::Int64],
        argument_types: vec![],
        functions: vec![function(Kind::CountRows, &[], None)],
    });
    let parts = (0..2).map(|worker| {
        let mut part = Partial::with_limits(&inner, limits(4000)).unwrap();
        let rows: Vec<i64> = (0..ROWS).filter(|row| row % 3 != worker).collect();
        for rows in rows.chunks(1500) {
            let large = |row: &i64| i128::from(*row) << if row % 2 == 0 { 70 } else { 0 };
            let decimals: Decimal128Array = rows.iter().map(|row| Some(large(row))).collect();
            let decimals = decimals.with_precision_and_scale(38, 2).unwrap();
            let text = |row: &i64| (row % 29 > 0).then(|| format!("text number {}", texts(*row)));
            let text: StringViewArray = rows.iter().map(text).collect();
            let number: Int64Array =
                rows.iter().map(|row| (row % 13 > 0).then_some(texts(*row) % 7)).collect();
            let keys: [ArrayRef; 3] = [Arc::new(decimals), Arc::new(text), Arc::new(number)];
            part.push(&keys, &[], &[], rows.len()).unwrap();
        }
        part
    });
    let merging = Merging::with_limits(Arc::clone(&inner), parts.collect(), limits(4000)).unwrap();
    let merging = merging.apart_by(&[1, 2]).unwrap();
    let phases = (0..merging.phases())
        .flat_map(|phase| (0..merging.tasks(phase)).map(move |task| (phase, task)));
    phases.for_each(|(phase, task)| merging.run(phase, task).unwrap());
    let apart = merging.is_apart();
    let mut workers: Vec<Partial> = (0..2)
        .map(|_| if apart { Partial::apart(&outer) } else { Partial::new(&outer, 2) }.unwrap())
        .collect();
    for part in 0..merging.parts() {
        for groups in merging.groups(part).unwrap() {
            workers[part % 2].push(&groups.columns[1..], &[], &[], groups.rows).unwrap();
        }
    }
    let merging = Merging::new(Arc::clone(&outer), workers).unwrap();
    // Those of each worker as they are.
    assert_eq!(merging.parts() == 2 && merging.phases() == 0, apart);
    let mut counts = HashMap::new();
    for groups in groups(&merging) {
        let texts = expand(&groups.columns[0], &DataType::Utf8View).unwrap();
        let numbers = expand(&groups.columns[1], &DataType::Int64).unwrap();
        let found = groups.columns[2].as_primitive::<Int64Type>();
        for row in 0..groups.rows {
            let text = texts.as_string_view();
            let text = text.is_valid(row).then(|| text.value(row).to_string());
            let number = numbers.as_primitive::<Int64Type>();
            let number = number.is_valid(row).then(|| number.value(row));
            assert_eq!(counts.insert((text, number), found.value(row)), None, "each group once");
        }
    }
    let mut expected = HashMap::new();
    for row in 0..ROWS {
        let text = (row % 29 > 0).then(|| format!("text number {}", texts(row)));
        let number = (row % 13 > 0).then_some(texts(row) % 7);
        *expected.entry((text, number)).or_insert(0) += 1;
    }
    assert_eq!(counts, expected);
    (apart, counts.len())
}

#[test]
fn groups_that_are_grouped_again_by_some_keys_are_in_parts_by_these() {
    let (apart, counts) = grouped_twice(|row| row % 5000);
    assert!(apart);
    assert!(counts > 5000);
    // Half of the groups would be in one part.
    let (apart, counts) = grouped_twice(|row| if row % 2 == 0 { 0 } else { row % 5000 });
    assert!(!apart);
    assert!(counts > 2500);
    assert!(!grouped_twice(|row| row % 5).0);
}
