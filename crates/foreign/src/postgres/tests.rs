use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use tokio_postgres::types::Type;

use super::connection::Address;
use super::decode::{decode, read_of};
use super::{Postgres, select};
use crate::cells::{Cell, Cells, Read};
use crate::{Comparison, Condition, Constant, Table, Test, Wanted};

#[test]
fn passwords_are_not_shown() {
    for text in [
        "host=h port=5433 dbname=d user=u password='s3 cret' sslmode=verify-full",
        "postgresql://u:s3%20cret@h:5433/d?sslmode=verify-full",
    ] {
        let address = Address::parse(text).unwrap();
        assert_eq!(address.shown, "host=h port=5433 dbname=d user=u");
        assert_eq!(address.config.get_password(), Some(&b"s3 cret"[..]));
        assert!(Postgres::has_own_password(text).unwrap());
    }
    for text in ["host=h password=s3 cret", "host=h port=x password=s3", "dbname=s3", "s3"] {
        let error = Address::parse(text).err().unwrap();
        assert!(!format!("{error:#}").contains("s3"), "{error:#}");
    }
    assert!(!Postgres::has_own_password("host=/tmp password=x").unwrap());
    assert!(!Postgres::has_own_password("host=h").unwrap());
    assert!(Postgres::is_url("postgres://h/d") && !Postgres::is_url("postgres.db"));
}

#[test]
fn types_and_their_digits() {
    let modifier = |digits: i32, scale: i32| (digits << 16 | scale & 0x7ff) + 4;
    for (modifier, expected) in [
        (-1, Read::Numeric(38, 10)),
        (modifier(10, 2), Read::Numeric(10, 2)),
        (modifier(3, -2), Read::Numeric(5, 0)),
        (modifier(2, 5), Read::Numeric(5, 5)),
        (modifier(60, 4), Read::Numeric(38, 4)),
        (modifier(900, 800), Read::Numeric(38, 10)),
    ] {
        assert_eq!(read_of(&Type::NUMERIC, modifier), expected);
    }
    assert_eq!(read_of(&Type::UUID, -1), Read::AsText);
    assert_eq!(read_of(&Type::INT4_ARRAY, -1), Read::List(Box::new(Read::Int)));
    assert_eq!(read_of(&Type::JSONB_ARRAY, -1), Read::List(Box::new(Read::AsText)));
}

fn numeric(groups: &[u16], weight: i16, sign: u16) -> Vec<u8> {
    let head = [groups.len() as u16, weight as u16, sign, 0];
    head.iter().chain(groups).flat_map(|n| n.to_be_bytes()).collect()
}

#[test]
fn numerics_are_exact_or_refused() {
    let value = |raw: &[u8], digits, scale| {
        let read = Read::Numeric(digits, scale);
        let mut cells = Cells::new(&read);
        decode(Some(raw), &read, &mut cells)?;
        let Cells::Numeric(builder) = &mut cells else { panic!() };
        Ok::<_, String>(builder.finish().value(0))
    };
    // 12345.67, -0.0001, 10000, 0
    assert_eq!(value(&numeric(&[1, 2345, 6700], 1, 0), 7, 2), Ok(1_234_567));
    assert_eq!(value(&numeric(&[1], -1, 0x4000), 10, 4), Ok(-1));
    assert_eq!(value(&numeric(&[1], 1, 0), 38, 10), Ok(10_i128.pow(14)));
    assert_eq!(value(&numeric(&[], 0, 0), 1, 0), Ok(0));
    assert!(
        value(&numeric(&[1, 2345, 6700], 1, 0), 6, 2).unwrap_err().contains("before the point")
    );
    assert!(value(&numeric(&[6710], -1, 0), 7, 2).unwrap_err().contains("behind the point"));
    assert!(value(&numeric(&[1], -300, 0), 38, 10).unwrap_err().contains("behind the point"));
    assert!(value(&numeric(&[1], 300, 0), 38, 10).unwrap_err().contains("before the point"));
    assert!(value(&numeric(&[], 0, 0xc000), 38, 10).unwrap_err().contains("NaN"));
    assert!(value(&[0, 1], 38, 10).is_err());
}

#[test]
fn damaged_values_are_errors() {
    for read in [
        Read::Boolean,
        Read::Int,
        Read::BigInt,
        Read::Double,
        Read::Date,
        Read::Time,
        Read::Interval,
        Read::Timestamp,
        Read::List(Box::new(Read::Int)),
    ] {
        for raw in [
            &b""[..],
            &[0, 0, 0],
            &[255; 21],
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255],
        ] {
            // None of these may panic.
            let _ = decode(Some(raw), &read, &mut Cells::new(&read));
        }
    }
    let infinity = i32::MAX.to_be_bytes();
    let error = decode(Some(&infinity), &Read::Date, &mut Cells::new(&Read::Date)).unwrap_err();
    assert!(error.contains("infinity"));
    assert!(Cells::new(&Read::Int).push(Cell::Text("a")).is_err());
}

#[test]
fn what_the_server_is_asked() {
    let table = Table {
        schema: "s".into(),
        name: "a\"b".into(),
        columns: Arc::new(Schema::new(vec![
            Field::new("t", DataType::Utf8View, true),
            Field::new("N", DataType::Int64, true),
            Field::new("u", DataType::Utf8View, true),
        ])),
        why: vec!["declared text".into(), "declared int8".into(), "declared uuid".into()],
        rows: None,
        reads: vec![Read::Text, Read::BigInt, Read::AsText].into(),
    };
    let is = |column, op, constant| Condition { column, test: Test::Is(op, constant) };
    let wanted = Wanted {
        columns: vec![1, 2],
        conditions: vec![
            is(0, Comparison::Less, Constant::Text("it's \\".into())),
            is(0, Comparison::Equal, Constant::Text("x".into())),
            is(1, Comparison::GreaterOrEqual, Constant::Integer(-3)),
            Condition {
                column: 1,
                test: Test::OneOf(vec![Constant::Integer(1), Constant::Integer(2)]),
            },
        ],
        limit: Some(7),
    };
    assert_eq!(
        select(&table, &wanted),
        "SELECT \"N\", \"u\"::text FROM \"s\".\"a\"\"b\" WHERE \"t\" < 'it''s \\' COLLATE \"C\" AND \
         \"t\" = 'x' AND \"N\" >= (-3) AND \"N\" IN (1), (2)) LIMIT 7"
            .replace("IN (1), (2))", "IN ((1), (2))")
    );
    let none = Wanted::default();
    assert_eq!(select(&table, &none), "SELECT  FROM \"s\".\"a\"\"b\"");
}
