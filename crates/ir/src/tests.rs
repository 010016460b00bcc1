//! Plans that are written down and read again, and plans that are not well-formed.

use std::sync::Arc;

use arrow_schema::{DataType, SortOptions};
use proptest::prelude::*;

use crate::literal::Value;
use crate::window::{Bound, Frame, Unit};
use crate::*;

const INT: DataType = DataType::Int64;

fn register(register: Register, data_type: DataType) -> Expr {
    Expr::Register(register, data_type)
}

fn pipeline(source: Source, types: &[DataType], sink: usize) -> Pipeline {
    let names = (0..types.len()).map(|n| format!("c{n}")).collect();
    let inputs = types.iter().cloned().enumerate().map(|(n, t)| register(n, t));
    let (types, inputs) = (types.to_vec(), inputs.collect());
    Pipeline { source, types, names, steps: vec![], sink, inputs }
}

/// A plan with all kinds of steps and sinks: a scalar subquery, a table that is probed, groups, a window,
/// and a sort.
fn whole() -> Plan {
    let money = DataType::Decimal128(15, 2);
    let count = pipeline(Source::External(0), &[INT], 0);
    let build = pipeline(Source::External(1), &[INT, DataType::Utf8View], 1);
    let mut build = Pipeline { inputs: build.inputs, ..build };
    build.inputs.push(register(0, INT));
    let mut group = pipeline(Source::External(2), &[INT, money.clone(), DataType::Utf8View], 2);
    let subquery = Expr::Call(Operation::Subquery(0), vec![], INT);
    let like = Opaque { number: 0, pure: true, shown: "s LIKE 'a%'".into() };
    let like = Expr::Call(
        Operation::Opaque(like),
        vec![register(2, DataType::Utf8View)],
        DataType::Boolean,
    );
    let less = Expr::Compare(Comparison::Less, register(0, INT).into(), subquery.into());
    let missing = Expr::Not(Expr::IsNull(register(1, money.clone()).into()).into());
    let wide = DataType::Decimal128(16, 2);
    let sum = Expr::Arithmetic(
        Arithmetic::Add,
        register(1, money.clone()).into(),
        register(1, money.clone()).into(),
        wide.clone(),
    );
    let probe = Probe {
        sink: 1,
        keys: vec![register(0, INT)],
        kind: Join::Pairs { outer: false, mark: false },
        condition: Some(Expr::Compare(
            Comparison::NotEqual,
            register(4, DataType::Utf8View).into(),
            Expr::Literal(Literal {
                data_type: DataType::Utf8View,
                value: Value::Text("it's".into()),
            })
            .into(),
        )),
    };
    group.steps = vec![
        Step::Filter(vec![Expr::Or(less.into(), like.into()), missing]),
        Step::Map(vec![Arc::new(sum)]),
        Step::Probe(probe),
    ];
    group.names.extend(["twice".into(), "name".into(), "key".into()]);
    group.inputs =
        vec![Expr::Row(4), register(3, wide.clone()), Expr::Literal(Literal::boolean(true))];
    let total = DataType::Decimal128(26, 2);
    let functions = vec![
        aggregate::Function {
            kind: aggregate::Kind::Sum,
            arguments: vec![0],
            filter: Some(0),
            result: total.clone(),
        },
        aggregate::Function {
            kind: aggregate::Kind::External(Opaque {
                number: 0,
                pure: true,
                shown: "median(x)".into(),
            }),
            arguments: vec![0],
            filter: None,
            result: DataType::Float64,
        },
    ];
    let spec = aggregate::Spec {
        key_types: vec![DataType::UInt32],
        argument_types: vec![wide],
        functions,
    };
    let mut late =
        pipeline(Source::Groups(2), &[DataType::UInt32, total.clone(), DataType::Float64], 3);
    late.steps = vec![Step::Fetch { sink: 1, row: 0 }];
    late.names.extend(["name".into(), "key".into()]);
    let name = register(3, DataType::Utf8View);
    late.inputs = vec![name.clone(), name, register(1, total.clone())];
    let window = window::Spec {
        sort: sort::Spec {
            keys: vec![(DataType::Utf8View, SortOptions::default())],
            payload_types: vec![DataType::Utf8View, total.clone()],
            fetch: None,
            together: 1,
        },
        columns: 2,
        keys: vec![0],
        functions: vec![window::Function {
            kind: window::Kind::Shifted(-1, Literal::null(total.clone())),
            arguments: vec![1],
            order_keys: 0,
            frame: Frame { unit: Unit::Rows, start: Bound::Unbounded, end: Bound::Distance(0) },
            result: total.clone(),
        }],
    };
    let out = [DataType::Utf8View, total.clone(), total.clone()];
    let mut sorted = pipeline(Source::Groups(3), &out, 4);
    sorted.inputs.insert(0, register(0, DataType::Utf8View));
    let sort = sort::Spec {
        keys: vec![(DataType::Utf8View, SortOptions { descending: true, nulls_first: false })],
        payload_types: out.to_vec(),
        fetch: Some(10),
        together: 0,
    };
    Plan {
        pipelines: vec![count, build, group, late, sorted, pipeline(Source::Groups(4), &out, 5)],
        sinks: vec![
            Sink::Emit(vec![INT]),
            Sink::Build(table::Spec {
                key_types: vec![INT],
                payload_types: vec![DataType::Utf8View, INT],
                nulls_equal: false,
                keep_null_keys: false,
            }),
            Sink::Aggregate(Arc::new(spec)),
            Sink::Window(window),
            Sink::Sort(sort),
            Sink::Emit(out.to_vec()),
        ],
    }
}

#[track_caller]
fn check_refused(change: impl FnOnce(&mut Plan), wrong: &str) {
    let mut plan = whole();
    change(&mut plan);
    let found = plan.verify().expect_err(wrong).to_string();
    assert!(found.contains(wrong), "{found:?} does not say {wrong:?}");
}

#[test]
fn a_plan_is_written_down_and_read_again() {
    let plan = whole();
    plan.verify().unwrap();
    assert_eq!(Plan::from_bytes(&plan.to_bytes().unwrap()).unwrap(), plan);
    assert_eq!(plan.opaque(), 2);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

/// Writes what the fuzzer begins with. To be run again when the form of plans changes.
#[test]
#[ignore = "it writes into the repository"]
fn write_the_corpus() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/plan");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("whole"), whole().to_bytes().unwrap()).unwrap();
}

#[test]
fn what_is_not_there_is_refused() {
    check_refused(|p| p.pipelines[2].sink = 9, "pipeline 2: there is no sink #9");
    check_refused(|p| p.pipelines[3].source = Source::Groups(9), "sink #9 is not finished");
    check_refused(|p| p.pipelines[3].source = Source::Groups(3), "sink #3 is not finished");
    check_refused(|p| p.pipelines[4].source = Source::Groups(1), "sink #1 has no groups");
    check_refused(|p| p.pipelines[3].steps[0] = Step::Fetch { sink: 2, row: 0 }, "is no table");
    check_refused(|p| p.pipelines[3].steps[0] = Step::Fetch { sink: 1, row: 9 }, "no register");
    check_refused(|p| p.pipelines[0].inputs[0] = register(1, INT), "no register 1 yet");
    check_refused(|p| p.pipelines[2].inputs[0] = Expr::Row(1), "register 1 comes from no table");
    check_refused(|p| drop(p.pipelines[5].inputs.pop()), "inputs: there are 2 and not 3");
    let subquery = |sink| Expr::Call(Operation::Subquery(sink), vec![], INT);
    check_refused(|p| p.pipelines[1].inputs[0] = subquery(1), "sink #1 is not finished");
    check_refused(|p| p.pipelines[2].inputs[0] = subquery(1), "sink #1 is no scalar subquery");
}

#[test]
fn what_is_of_another_type_is_refused() {
    let text = || register(2, DataType::Utf8View);
    check_refused(|p| p.pipelines[2].steps[0] = Step::Filter(vec![text()]), "a condition is of");
    check_refused(
        |p| {
            let compared = Expr::Compare(Comparison::Equal, text().into(), register(0, INT).into());
            p.pipelines[2].steps[0] = Step::Filter(vec![compared]);
        },
        "Utf8View is compared with Int64",
    );
    check_refused(|p| p.pipelines[0].inputs[0] = register(0, DataType::Int32), "register 0 is of");
    check_refused(
        |p| {
            let wrong = Literal { data_type: INT, value: Value::Boolean(true) };
            p.pipelines[0].inputs[0] = Expr::Literal(wrong);
        },
        "true is no value of Int64",
    );
    for name in ["Decimal128(39, 2)", "FixedSizeBinary(-1)", "Time64(Second)", "List(Time32(ns))"] {
        let Ok(data_type) = name.parse::<DataType>() else { continue };
        check_refused(
            |p| p.pipelines[0].inputs[0] = Expr::Literal(Literal::null(data_type)),
            "there are no values",
        );
    }
    check_refused(
        |p| {
            let wide = Expr::Widen(register(0, INT).into(), DataType::Decimal128(18, 0));
            p.pipelines[2].steps[1] = Step::Map(vec![Arc::new(wide)]);
        },
        "not widened",
    );
    check_refused(
        |p| {
            let Sink::Aggregate(spec) = &mut p.sinks[2] else { unreachable!() };
            Arc::make_mut(spec).functions[0].result = INT;
        },
        "function 0: the Sum of",
    );
    check_refused(
        |p| {
            let Sink::Window(spec) = &mut p.sinks[3] else { unreachable!() };
            spec.keys[0] = 1;
        },
        "sink #3: keys 0 is of",
    );
    check_refused(
        |p| {
            let Sink::Sort(spec) = &mut p.sinks[4] else { unreachable!() };
            spec.together = 2;
        },
        "more keys are together",
    );
}

#[test]
fn expressions_have_a_depth() {
    let nested = |levels: usize| {
        (0..levels)
            .fold(Expr::<Literal>::Literal(Literal::boolean(true)), |e, _| Expr::Not(e.into()))
    };
    let deepest = nested(expr::DEPTH_MAX - 1);
    let bytes = postcard::to_stdvec(&deepest).unwrap();
    assert_eq!(postcard::from_bytes::<Expr>(&bytes).unwrap(), deepest);
    check_refused(
        |p| p.pipelines[2].steps[0] = Step::Filter(vec![nested(expr::DEPTH_MAX)]),
        "nested too deeply",
    );
    let bytes = postcard::to_stdvec(&nested(expr::DEPTH_MAX)).unwrap();
    postcard::from_bytes::<Expr>(&bytes).unwrap_err();
    let list = "List(".repeat(100_000);
    serde_json::from_str::<Literal>(&format!("{{\"data_type\":\"{list}\",\"value\":\"Null\"}}"))
        .unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a plan's bytes become, it is read or refused, and verified or refused.
    #[test]
    fn damaged_plans_are_refused(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = postcard::to_stdvec(&whole()).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(plan) = postcard::from_bytes::<Plan>(&bytes) {
            let _ = plan.verify();
            let again = postcard::to_stdvec(&plan).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Plan>(&again).unwrap(), plan);
        }
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(plan) = postcard::from_bytes::<Plan>(&bytes) {
            let _ = plan.verify();
        }
    }
}
