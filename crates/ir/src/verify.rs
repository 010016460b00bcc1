//! Whether a plan is well-formed: everything it names is there, is finished by then, and is of the type
//! that is said.
//!
//! A plan may come from another process. One that passes here makes nobody who reads it fail, but for
//! what is opaque in it: the numbers of sources and of [opaque](crate::Opaque) code, which only those
//! know who have the sources and the code.

use std::collections::BTreeSet;

use arrow_schema::{DataType, TimeUnit};
use thalweg_base::{Error, Result};

use crate::aggregate::{self, Kind, added_scale, is_native};
use crate::expr::{DEPTH_MAX, Expr, Operation, Register};
use crate::op::{integer_digits, is_signed};
use crate::plan::{Join, Pipeline, Plan, Probe, Sink, Source, Step, TableRows};
use crate::window::{self, is_covered};
use crate::{Arithmetic, Opaque, sort, table};

impl Plan {
    /// Whether it can be run.
    ///
    /// # Errors
    /// What is wrong, and in which pipeline or sink.
    pub fn verify(&self) -> Result<()> {
        for (n, sink) in self.sinks.iter().enumerate() {
            verify_sink(sink).map_err(|wrong| error(format!("sink #{n}: {wrong}")))?;
        }
        // Sinks that no later pipeline feeds.
        let mut finished = BTreeSet::new();
        for (n, pipeline) in self.pipelines.iter().enumerate() {
            let verifier = Verifier { plan: self, finished: &finished };
            let verified = verifier.pipeline(pipeline);
            verified.map_err(|wrong| error(format!("pipeline {n}: {wrong}")))?;
            if finished.contains(&pipeline.sink) {
                return Err(error(format!("pipeline {n} feeds a sink that was read before")));
            }
            if !self.pipelines[n + 1..].iter().any(|later| later.sink == pipeline.sink) {
                finished.insert(pipeline.sink);
            }
        }
        Ok(())
    }
}

fn error(wrong: String) -> Error {
    Error::internal(format!("a plan of pipelines is not well-formed: {wrong}"))
}

/// What is wrong, in words.
type Verified<T = ()> = std::result::Result<T, String>;

fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Verified {
    if holds { Ok(()) } else { Err(wrong()) }
}

fn ensure_type(what: &str, found: &DataType, expected: &DataType) -> Verified {
    ensure(found == expected, || format!("{what} is of {found} and not of {expected}"))
}

fn ensure_types(what: &str, found: &[DataType], expected: &[DataType]) -> Verified {
    ensure(found.len() == expected.len(), || {
        format!("{what}: there are {} and not {}", found.len(), expected.len())
    })?;
    let mut pairs = found.iter().zip(expected).enumerate();
    pairs
        .try_for_each(|(n, (found, expected))| ensure_type(&format!("{what} {n}"), found, expected))
}

fn verify_sink(sink: &Sink) -> Verified {
    match sink {
        Sink::Build(table::Spec { .. }) | Sink::Emit(_) | Sink::Discard => Ok(()),
        Sink::Aggregate(spec) => spec.functions.iter().enumerate().try_for_each(|(n, function)| {
            let argument = |&a: &usize| spec.argument_types.get(a).cloned();
            let types: Option<Vec<_>> = function.arguments.iter().map(argument).collect();
            let types = types.ok_or_else(|| format!("function {n} has an argument too many"))?;
            ensure_sound(&function.result)?;
            verify_aggregate(&function.kind, &types, &function.result)
                .map_err(|wrong| format!("function {n}: {wrong}"))
        }),
        Sink::Sort(spec) => verify_sort(spec),
        Sink::Window(spec) => {
            verify_sort(&spec.sort)?;
            let payload = &spec.sort.payload_types;
            ensure(spec.columns <= payload.len(), || "there are more columns than payload".into())?;
            let key = |&k: &usize| payload.get(k).cloned();
            let found: Option<Vec<_>> = spec.keys.iter().map(key).collect();
            let found = found.ok_or("a key is no column of the payload")?;
            let expected: Vec<_> = spec.sort.keys.iter().map(|(t, _)| t.clone()).collect();
            ensure_types("keys", &found, &expected)?;
            spec.functions.iter().enumerate().try_for_each(|(n, function)| {
                verify_window(function, spec).map_err(|wrong| format!("function {n}: {wrong}"))
            })
        }
    }
}

fn verify_sort(spec: &sort::Spec) -> Verified {
    ensure(!spec.keys.is_empty(), || "there is no key to sort by".into())?;
    ensure(spec.together <= spec.keys.len(), || "more keys are together than there are".into())?;
    let sorted = spec.keys.iter().all(|(t, _)| is_sorted(t));
    ensure(sorted, || "values of a key have no order".into())
}

/// Whether rows can be put in the order of values of a type.
fn is_sorted(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        List(field) | LargeList(field) | FixedSizeList(field, _) => is_sorted(field.data_type()),
        Struct(fields) => fields.iter().all(|field| is_sorted(field.data_type())),
        Dictionary(_, value) => is_sorted(value),
        Map(..) | Union(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_) => false,
        _ => true,
    }
}

fn verify_aggregate(kind: &Kind, arguments: &[DataType], result: &DataType) -> Verified {
    if let Kind::External(Opaque { .. }) = kind {
        return Ok(());
    }
    ensure(is_native(kind, arguments), || format!("there is no {kind:?} of {arguments:?}"))?;
    let wrong = || format!("the {kind:?} of {arguments:?} is no {result}");
    let right = match kind {
        Kind::CountRows | Kind::Count | Kind::CountOfCounts => *result == DataType::Int64,
        Kind::Sum => match (&arguments[0], result) {
            (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => from == to,
            (DataType::Float64, to) => *to == DataType::Float64,
            (from, DataType::UInt64) => from.is_unsigned_integer(),
            // Whatever the argument, a sum of integers is of 64 bits.
            (from, DataType::Int64) => from.is_integer() && *from != DataType::UInt64,
            _ => false,
        },
        Kind::Min | Kind::Max => arguments[0] == *result,
        Kind::Avg | Kind::AvgOfSums => added_scale(&arguments[0], result).is_some(),
        Kind::External(_) => true,
    };
    ensure(right, wrong)
}

fn verify_window(function: &window::Function, spec: &window::Spec) -> Verified {
    use window::Kind;
    let payload = &spec.sort.payload_types;
    let argument = |&a: &usize| payload.get(a).cloned();
    let types: Option<Vec<_>> = function.arguments.iter().map(argument).collect();
    let types = types.ok_or("it has an argument that is no column of the payload")?;
    let order_keys = spec.sort.keys.len() - spec.sort.together;
    ensure(function.order_keys <= order_keys, || {
        "it is ordered by more keys than there are".into()
    })?;
    ensure(is_covered(function, &types), || "there is no such function of its frame".into())?;
    let result = &function.result;
    ensure_sound(result)?;
    let no_arguments = || ensure(types.is_empty(), || "it has arguments".into());
    match &function.kind {
        Kind::RowNumber | Kind::Rank | Kind::DenseRank => {
            no_arguments()?;
            ensure_type("its result", result, &DataType::UInt64)
        }
        Kind::PercentRank | Kind::CumeDist => {
            no_arguments()?;
            ensure_type("its result", result, &DataType::Float64)
        }
        Kind::Ntile(tiles) => {
            no_arguments()?;
            ensure(*tiles > 0, || "there are no tiles".into())?;
            ensure_type("its result", result, &DataType::UInt64)
        }
        Kind::Shifted(_, default) => {
            ensure_types("its arguments", &types, std::slice::from_ref(result))?;
            ensure_type("its default", &default.data_type, result)?;
            ensure(default.is_valid(), || format!("{default} is no value of {result}"))
        }
        Kind::First | Kind::Last | Kind::Nth(_) => {
            ensure_types("its arguments", &types, std::slice::from_ref(result))
        }
        Kind::Aggregate(kind) => verify_aggregate(kind, &types, result),
    }
}

/// What is known where a pipeline stands.
struct Verifier<'a> {
    plan: &'a Plan,
    /// Sinks that are finished.
    finished: &'a BTreeSet<usize>,
}

/// A register: its type, and whether it comes from the table of a probe.
struct Known {
    data_type: DataType,
    of_table: bool,
}

impl Verifier<'_> {
    fn pipeline(&self, pipeline: &Pipeline) -> Verified {
        self.source(pipeline)?;
        pipeline.types.iter().try_for_each(ensure_sound)?;
        let known = |t: &DataType| Known { data_type: t.clone(), of_table: false };
        let mut registers: Vec<_> = pipeline.types.iter().map(known).collect();
        for (n, step) in pipeline.steps.iter().enumerate() {
            self.step(step, &mut registers).map_err(|wrong| format!("step {n}: {wrong}"))?;
        }
        let inputs = pipeline.inputs.iter().map(|input| self.expr(input, &registers));
        let inputs = inputs.collect::<Verified<Vec<_>>>()?;
        let sink = self.plan.sinks.get(pipeline.sink);
        let sink = sink.ok_or_else(|| format!("there is no sink #{}", pipeline.sink))?;
        let expected = match sink {
            Sink::Build(spec) => [&spec.key_types[..], &spec.payload_types].concat(),
            Sink::Aggregate(spec) => {
                let filters = vec![DataType::Boolean; filters(spec)?];
                [&spec.key_types[..], &spec.argument_types, &filters].concat()
            }
            Sink::Sort(spec) => sorted_types(spec),
            Sink::Window(spec) => sorted_types(&spec.sort),
            Sink::Emit(types) => types.clone(),
            Sink::Discard => vec![],
        };
        ensure_types("inputs", &inputs, &expected)
    }

    fn source(&self, pipeline: &Pipeline) -> Verified {
        let types = &pipeline.types;
        match &pipeline.source {
            Source::External(_) => Ok(()),
            Source::Groups(sink) => match self.finished(*sink)? {
                sink @ (Sink::Aggregate(_) | Sink::Sort(_) | Sink::Window(_)) => {
                    ensure_types("registers", types, &sink.output_types())
                }
                other => Err(format!("sink #{sink} has no groups: it is {other}")),
            },
            Source::Table { sink, rows } => {
                let mut expected = self.table(*sink)?.payload_types.clone();
                match rows {
                    TableRows::Matched | TableRows::Unmatched => {}
                    TableRows::Marked => expected.push(DataType::Boolean),
                    TableRows::NotIn => ensure(!expected.is_empty(), || {
                        "rows without a key were looked up".to_string()
                    })?,
                }
                ensure_types("registers", types, &expected)
            }
            Source::Parts { rows, table, registers } => {
                let keys = &self.table(*table)?.key_types;
                let Sink::Emit(given) = self.finished(*rows)? else {
                    return Err(format!("sink #{rows} has no rows to be split"));
                };
                let of = |&register: &Register| types.get(register).cloned();
                let values: Option<Vec<_>> = registers.iter().map(of).collect();
                let values = values.ok_or("there is a value of no register")?;
                ensure(registers.is_sorted_by(|a, b| a < b), || {
                    "registers are in no order".into()
                })?;
                ensure_types("rows", given, &[&keys[..], &values].concat())
            }
        }
    }

    fn finished(&self, sink: usize) -> Verified<&Sink> {
        let found = self.plan.sinks.get(sink).filter(|_| self.finished.contains(&sink));
        found.ok_or_else(|| format!("sink #{sink} is not finished by then"))
    }

    fn table(&self, sink: usize) -> Verified<&table::Spec> {
        match self.finished(sink)? {
            Sink::Build(spec) => Ok(spec),
            other => Err(format!("sink #{sink} is no table: it is {other}")),
        }
    }

    fn step(&self, step: &Step, registers: &mut Vec<Known>) -> Verified {
        match step {
            Step::Filter(conjuncts) => conjuncts.iter().try_for_each(|conjunct| {
                ensure_type("a condition", &self.expr(conjunct, registers)?, &DataType::Boolean)
            }),
            Step::Map(exprs) => {
                for expr in exprs {
                    let data_type = self.expr(expr, registers)?;
                    registers.push(Known { data_type, of_table: false });
                }
                Ok(())
            }
            Step::Fetch { sink, row } => {
                let rows = registers.get(*row).ok_or("rows are in no register")?;
                ensure_type("the number of a row", &rows.data_type, &DataType::UInt32)?;
                extend(registers, &self.table(*sink)?.payload_types);
                Ok(())
            }
            Step::Probe(probe) => self.probe(probe, registers),
        }
    }

    fn probe(&self, probe: &Probe, registers: &mut Vec<Known>) -> Verified {
        let table = self.table(probe.sink)?;
        let keys = probe.keys.iter().map(|key| self.expr(key, registers));
        ensure_types("keys", &keys.collect::<Verified<Vec<_>>>()?, &table.key_types)?;
        let before = registers.len();
        extend(registers, &table.payload_types);
        if let Some(condition) = &probe.condition {
            ensure_type("its condition", &self.expr(condition, registers)?, &DataType::Boolean)?;
            let not_in = matches!(probe.kind, Join::MarkTable { not_in: true });
            ensure(!not_in, || "NOT IN has a condition".into())?;
        }
        if !probe.kind.adds_payload() {
            registers.truncate(before);
        }
        if probe.kind == Join::Mark {
            registers.push(Known { data_type: DataType::Boolean, of_table: false });
        }
        Ok(())
    }

    /// Its type, which is the one that it says.
    fn expr(&self, expr: &Expr, registers: &[Known]) -> Verified<DataType> {
        self.nested(expr, registers, 0)
    }

    fn nested(&self, expr: &Expr, registers: &[Known], depth: usize) -> Verified<DataType> {
        ensure(depth < DEPTH_MAX, || "an expression is nested too deeply".into())?;
        let of = |e: &Expr| self.nested(e, registers, depth + 1);
        let boolean = |e: &Expr| ensure_type("a truth", &of(e)?, &DataType::Boolean);
        match expr {
            Expr::Register(register, data_type) => {
                let known = registers.get(*register);
                let known = known.ok_or_else(|| format!("there is no register {register} yet"))?;
                ensure_type(&format!("register {register}"), &known.data_type, data_type)?;
            }
            Expr::Row(register) => {
                let of_table = registers.get(*register).is_some_and(|known| known.of_table);
                ensure(of_table, || format!("register {register} comes from no table"))?;
            }
            Expr::Literal(literal) => {
                ensure_sound(&literal.data_type)?;
                let wrong = || format!("{literal} is no value of {}", literal.data_type);
                ensure(literal.is_valid(), wrong)?;
            }
            Expr::Compare(_, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                ensure(a == b, || format!("{a} is compared with {b}"))?;
                ensure(!a.is_nested(), || format!("values of {a} are compared"))?;
            }
            Expr::And(a, b) | Expr::Or(a, b) => {
                boolean(a)?;
                boolean(b)?;
            }
            Expr::Not(a) => boolean(a)?,
            Expr::IsNull(a) => {
                of(a)?;
            }
            Expr::Arithmetic(arithmetic, a, b, result) => {
                let expected = computed(*arithmetic, &of(a)?, &of(b)?)?;
                ensure_type("its result", result, &expected)?;
            }
            Expr::Widen(a, result) => {
                let from = of(a)?;
                ensure_sound(result)?;
                ensure(widens(&from, result), || format!("a {from} is not widened to {result}"))?;
            }
            Expr::Call(operation, arguments, result) => {
                let types = arguments.iter().map(of).collect::<Verified<Vec<_>>>()?;
                ensure_sound(result)?;
                self.operation(operation, &types, result)?;
            }
        }
        Ok(expr.data_type())
    }

    fn operation(&self, called: &Operation, types: &[DataType], result: &DataType) -> Verified {
        match called {
            Operation::Subquery(sink) => {
                let Sink::Emit(given) = self.finished(*sink)? else {
                    return Err(format!("sink #{sink} is no scalar subquery"));
                };
                ensure_types("arguments", types, &[])?;
                ensure_types("the value", given, std::slice::from_ref(result))
            }
            Operation::Op(op) => {
                let given = op.result_type(types);
                let given = given.ok_or_else(|| format!("{op} does not take {types:?}"))?;
                ensure_type("its result", result, &given)
            }
            Operation::Opaque(_) => Ok(()),
        }
    }
}

/// Whether there can be values of a type: the name of one says more than that.
fn is_sound(data_type: &DataType) -> bool {
    use DataType::*;
    let decimal = |precision: u8, scale: i8, max: u8| {
        (1..=max).contains(&precision) && i16::from(scale).abs() <= i16::from(max)
    };
    match data_type {
        Decimal32(p, s) => decimal(*p, *s, arrow_schema::DECIMAL32_MAX_PRECISION),
        Decimal64(p, s) => decimal(*p, *s, arrow_schema::DECIMAL64_MAX_PRECISION),
        Decimal128(p, s) => decimal(*p, *s, arrow_schema::DECIMAL128_MAX_PRECISION),
        Decimal256(p, s) => decimal(*p, *s, arrow_schema::DECIMAL256_MAX_PRECISION),
        Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        FixedSizeBinary(width) => *width >= 0,
        FixedSizeList(field, width) => *width >= 0 && is_sound(field.data_type()),
        List(field) | LargeList(field) | ListView(field) | LargeListView(field) => {
            is_sound(field.data_type())
        }
        Struct(fields) => fields.iter().all(|field| is_sound(field.data_type())),
        Dictionary(key, value) => key.is_dictionary_key_type() && is_sound(value),
        Map(..) | Union(..) | RunEndEncoded(..) => false,
        _ => true,
    }
}

fn ensure_sound(data_type: &DataType) -> Verified {
    ensure(is_sound(data_type), || format!("there are no values of {data_type}"))
}

/// How many filters come with every batch; each is one that a function names.
fn filters(spec: &aggregate::Spec) -> Verified<usize> {
    let named: BTreeSet<_> = spec.functions.iter().filter_map(|f| f.filter).collect();
    ensure(named.iter().copied().eq(0..named.len()), || "a filter is missing".into())?;
    Ok(named.len())
}

fn sorted_types(spec: &sort::Spec) -> Vec<DataType> {
    let keys = spec.keys.iter().map(|(t, _)| t.clone());
    keys.chain(spec.payload_types.iter().cloned()).collect()
}

fn extend(registers: &mut Vec<Known>, payload: &[DataType]) {
    let known = |t: &DataType| Known { data_type: t.clone(), of_table: true };
    registers.extend(payload.iter().map(known));
}

/// The type of what is computed of decimals: all digits that there may be, up to those of 128 bits.
fn computed(arithmetic: Arithmetic, a: &DataType, b: &DataType) -> Verified<DataType> {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (a, b) else {
        return Err(format!("there is no arithmetic of {a} and {b}"));
    };
    let max = i16::from(arrow_schema::DECIMAL128_MAX_PRECISION);
    let [p1, p2] = [p1, p2].map(|&p| i16::from(p));
    let [s1, s2] = [s1, s2].map(|&s| i16::from(s));
    let (precision, scale) = match arithmetic {
        Arithmetic::Add | Arithmetic::Subtract => {
            let scale = s1.max(s2);
            (scale + (p1 - s1).max(p2 - s2) + 1, scale)
        }
        Arithmetic::Multiply => (p1 + p2 + 1, s1 + s2),
    };
    let (precision, scale) = (u8::try_from(precision.min(max)), i8::try_from(scale));
    match (precision, scale) {
        (Ok(precision), Ok(scale)) if i16::from(scale) <= max => {
            Ok(DataType::Decimal128(precision, scale))
        }
        _ => Err(format!("{a} and {b} have too many digits")),
    }
}

/// Whether a cast only says that a number is a decimal, or one of more digits.
pub fn widens(from: &DataType, to: &DataType) -> bool {
    let digits = match from {
        DataType::Decimal128(precision, scale) => Some((*precision, *scale)),
        integer => integer_digits(integer).filter(|_| is_signed(integer)).map(|digits| (digits, 0)),
    };
    let holds = |(precision, scale)| matches!(to, DataType::Decimal128(p, s) if *p >= precision && *s == scale);
    digits.is_some_and(holds)
}
