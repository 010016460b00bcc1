//! The protocol over a socket, by tokio-postgres; and whatever bytes a client may send.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, RecordBatch, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::datatypes::DataType;
use bytes::{BufMut, BytesMut};
use futures::{SinkExt, TryStreamExt, pin_mut};
use thalweg_base::Prng;
use thalweg_engine::{Config as EngineConfig, Engine};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::encode::{Format, Rows};
use super::message::{self, Message};
use super::{cursor, parameter};
use crate::{Config, Server};

fn served() -> Server {
    let engine = EngineConfig { threads: 2, ..EngineConfig::default() };
    let engine = Engine::open(":memory:", engine).unwrap();
    let config = Config { pg: Some("127.0.0.1:0".parse().unwrap()), ..Config::default() };
    Server::start(engine, config).unwrap()
}

/// Runs `work` with a client of a server of its own.
fn with_client<F: Future<Output = ()>>(work: impl FnOnce(Client) -> F) {
    let server = served();
    let address = server.pg().unwrap();
    let options = format!("host=127.0.0.1 port={} user=thalweg", address.port());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (client, connection) = tokio_postgres::connect(&options, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        work(client).await;
        connection.await.unwrap().unwrap();
    });
    server.shutdown();
}

#[test]
fn a_driver_queries_with_parameters() {
    with_client(|client| async move {
        client.batch_execute("CREATE TABLE t (i int, s varchar, d double, b bytea)").await.unwrap();
        let insert = "INSERT INTO t VALUES ($1, $2, $3, $4)";
        let values: [(i32, Option<&str>, f64, &[u8]); 2] =
            [(1, Some("it's"), 1.5, &[0, 255]), (2, None, -0.0, &[])];
        for (i, s, d, b) in values {
            assert_eq!(client.execute(insert, &[&i, &s, &d, &b]).await.unwrap(), 1);
        }
        let select = client.prepare("SELECT s, d, b, count(*) OVER () FROM t WHERE i = $1").await;
        let select = select.unwrap();
        assert_eq!(select.params(), [Type::INT4]);
        let names: Vec<_> = select.columns().iter().map(|c| c.name()).collect();
        assert_eq!(names, ["s", "d", "b", "count"]);
        let row = client.query_one(&select, &[&1_i32]).await.unwrap();
        assert_eq!(row.get::<_, Option<&str>>(0), Some("it's"));
        assert_eq!((row.get::<_, f64>(1), row.get::<_, &[u8]>(2)), (1.5, &[0_u8, 255][..]));
        assert_eq!(row.get::<_, i64>(3), 1);
        let found = client.simple_query("SELECT 1; SELECT i FROM t ORDER BY i DESC").await.unwrap();
        let rows = found.iter().filter_map(|m| match m {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(rows.collect::<Vec<_>>(), ["1", "2", "1"]);
    });
}

#[test]
fn a_driver_copies_both_ways() {
    with_client(|client| async move {
        client.batch_execute("CREATE TABLE t (i int, s varchar)").await.unwrap();
        let sink = client.copy_in("COPY t FROM STDIN (FORMAT binary)").await.unwrap();
        let writer = BinaryCopyInWriter::new(sink, &[Type::INT4, Type::TEXT]);
        pin_mut!(writer);
        for i in 0..20_000_i32 {
            let s = (i % 2 == 0).then(|| i.to_string());
            writer.as_mut().write(&[&i, &s]).await.unwrap();
        }
        assert_eq!(writer.finish().await.unwrap(), 20_000);
        let sink = client.copy_in("COPY t FROM STDIN").await.unwrap();
        pin_mut!(sink);
        // In pieces that end amid a line, and amid an escape.
        for piece in ["20000\ta\\", "tb\n2000", "1\t\\N\n"] {
            sink.send(bytes::Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        assert_eq!(sink.finish().await.unwrap(), 2);
        let out =
            client.copy_out("COPY (SELECT * FROM t WHERE i >= 19999 ORDER BY i) TO STDOUT CSV");
        let out: Vec<bytes::Bytes> = out.await.unwrap().try_collect().await.unwrap();
        assert_eq!(out.concat(), b"19999,\n20000,a\tb\n20001,\n");
        let broken = client.copy_in("COPY t FROM STDIN").await.unwrap();
        pin_mut!(broken);
        broken.send(bytes::Bytes::from_static(b"1\tx\nno\tx\n")).await.unwrap();
        let error = broken.finish().await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("line 2"), "{error:?}");
        let count = client.query_one("SELECT count(*) FROM t", &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 20_002);
    });
}

#[test]
fn a_driver_cancels_and_rolls_back() {
    with_client(|mut client| async move {
        client.batch_execute("CREATE TABLE t (i int)").await.unwrap();
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO t VALUES ($1)", &[&1_i32]).await.unwrap();
        let error = transaction.query("SELECT nosuch FROM t", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::UNDEFINED_COLUMN));
        let error = transaction.query("SELECT 1", &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
        transaction.rollback().await.unwrap();
        let token = client.cancel_token();
        let cancelling = async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            token.cancel_query(NoTls).await.unwrap();
        };
        let endless = client.query("SELECT count(*) FROM generate_series(1, 100000000000)", &[]);
        let (ended, ()) = tokio::join!(endless, cancelling);
        assert_eq!(ended.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
        let count = client.query_one("SELECT count(*) FROM t", &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 0);
    });
}

#[test]
fn types_of_values_are_told_by_where_they_stand() {
    with_client(|client| async move {
        client.batch_execute("CREATE TABLE p (i int, ts timestamp, l int[])").await.unwrap();
        let cases: [(&str, &[Type]); 6] = [
            ("SELECT make_interval(days => $1), make_time(1, 2, $2)", &[Type::INT4, Type::FLOAT8]),
            ("SELECT ln($1)", &[Type::FLOAT8]),
            (
                "SELECT g FROM generate_series(1, $1) AS s(g) WHERE g > $2",
                &[Type::INT4, Type::INT4],
            ),
            ("SELECT i FROM p WHERE ts BETWEEN $1 AND $1 + interval '1 day'", &[Type::TIMESTAMP]),
            ("SELECT i FROM p WHERE l @> $1 AND $2 && l", &[Type::INT4_ARRAY, Type::INT4_ARRAY]),
            ("SELECT sum(i) OVER (ORDER BY i ROWS $1 PRECEDING) FROM p", &[Type::INT8]),
        ];
        for (sql, expected) in cases {
            let prepared = client.prepare(sql).await.unwrap();
            assert_eq!(prepared.params(), expected, "{sql}");
        }
    });
}

#[test]
fn statements_give_the_columns_that_were_told() {
    with_client(|client| async move {
        client
            .batch_execute("CREATE TABLE c (i int, f float8); INSERT INTO c VALUES (2, 1.5)")
            .await
            .unwrap();
        let select = client.prepare("SELECT f, i FROM c WHERE i = $1").await.unwrap();
        let all = client.prepare("SELECT * FROM c").await.unwrap();
        let change = client.prepare("UPDATE c SET i = i RETURNING f").await.unwrap();
        let sum = "SELECT i + $1, count(*) FROM c GROUP BY $1, i ORDER BY $1";
        let sum = client.prepare_typed(sum, &[Type::INT4]).await.unwrap();
        assert_eq!(client.query_one(&select, &[&2_i32]).await.unwrap().get::<_, f64>(0), 1.5);
        assert_eq!(client.query_one(&change, &[]).await.unwrap().get::<_, f64>(0), 1.5);
        client.batch_execute("ALTER TABLE c ALTER COLUMN f TYPE bigint").await.unwrap();
        let (two, none): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 0]) = ([&2_i32], []);
        for (statement, values) in [(&select, &two[..]), (&all, &none[..]), (&change, &none[..])] {
            let error = client.query(statement, values).await.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
            let error = error.as_db_error().unwrap();
            assert_eq!(error.message(), "cached plan must not change result type");
            assert_eq!(error.routine(), Some("RevalidateCachedQuery"));
        }
        // A bigint is told to be one, whether it is small or not.
        let wide = "SELECT CASE WHEN f >= $1 THEN $1 ELSE 0 END, $1 + 1, ARRAY[$1] FROM c";
        let wide = client.prepare_typed(wide, &[Type::INT8]).await.unwrap();
        for value in [1_i64, 9_000_000_000] {
            let row = client.query_one(&wide, &[&value]).await.unwrap();
            assert_eq!(row.get::<_, i64>(0), if value == 1 { 1 } else { 0 });
            assert_eq!(row.get::<_, i64>(1), value + 1);
            assert_eq!(row.get::<_, Vec<i64>>(2), [value]);
        }
        let day = client.prepare_typed("SELECT $1::date + 1", &[Type::TEXT]).await.unwrap();
        assert_eq!(day.columns()[0].type_(), &Type::DATE);
        // What is not touched goes on, and a number is no position of a column.
        assert_eq!(client.query_one(&sum, &[&7_i32]).await.unwrap().get::<_, i32>(0), 9);
        let again = client.query_one("SELECT f, i FROM c WHERE i = $1", &[&2_i32]).await.unwrap();
        assert_eq!(again.get::<_, i64>(0), 2);
    });
}

#[test]
fn cursors_end_with_the_savepoint_that_they_are_declared_behind() {
    with_client(|client| async move {
        let declare =
            |name: &str| format!("DECLARE {name} CURSOR FOR SELECT i FROM sv ORDER BY i;");
        let (before, behind, inner) = (declare("before"), declare("behind"), declare("inner_"));
        client.batch_execute("CREATE TABLE sv (i int); INSERT INTO sv VALUES (1)").await.unwrap();
        let script = format!(
            "BEGIN; {before} SAVEPOINT a; INSERT INTO sv VALUES (2); {behind} FETCH 1 FROM behind; \
             SAVEPOINT b; {inner} RELEASE b; ROLLBACK TO a"
        );
        client.batch_execute(&script).await.unwrap();
        let rows = client.simple_query("FETCH ALL FROM before").await.unwrap();
        let rows = rows.iter().filter(|m| matches!(m, SimpleQueryMessage::Row(_)));
        assert_eq!(rows.count(), 1);
        for gone in ["behind", "inner_"] {
            let error = client.batch_execute(&format!("FETCH ALL FROM {gone}")).await.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::INVALID_CURSOR_NAME), "{gone}");
            client.batch_execute("ROLLBACK TO a").await.unwrap();
        }
        client.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// The kinds of the messages that answer `messages`, after a login.
fn answers(server: &Server, messages: &[(u8, &[u8])]) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.pg().unwrap()).unwrap();
    let mut sent = b"\0\0\0\x16\0\x03\0\0user\0thalweg\0\0".to_vec();
    for (kind, body) in messages {
        sent.push(*kind);
        sent.put_u32(4 + body.len() as u32);
        sent.extend_from_slice(body);
    }
    sent.extend_from_slice(b"X\0\0\0\x04");
    stream.write_all(&sent).unwrap();
    let mut received = vec![];
    stream.read_to_end(&mut received).unwrap();
    let mut kinds = String::new();
    let mut rest = &received[..];
    while let [kind, a, b, c, d, ..] = rest {
        kinds.push(char::from(*kind));
        rest = &rest[1 + u32::from_be_bytes([*a, *b, *c, *d]) as usize..];
    }
    let begun = kinds.find('Z').expect("it is let in");
    kinds[begun + 1..].to_owned()
}

#[test]
fn what_cannot_be_planned_is_not_prepared() {
    let server = served();
    let create: (u8, &[u8]) = (b'Q', b"CREATE TABLE t (i int)\0");
    let broken: (u8, &[u8]) = (b'P', b"s\0SELECT nosuch FROM t\0\0\0");
    let whole: (u8, &[u8]) = (b'P', b"s\0SELECT i FROM t\0\0\0");
    let describe: (u8, &[u8]) = (b'D', b"Ss\0");
    let sync: (u8, &[u8]) = (b'S', b"");
    let found = answers(&server, &[create, broken, describe, sync, whole, describe, sync]);
    assert_eq!(found, "CZ1EZ1tTZ");
    // What was sound stays, and works again when its table is back.
    let drop: (u8, &[u8]) = (b'Q', b"DROP TABLE t\0");
    let found =
        answers(&server, &[whole, describe, sync, drop, describe, sync, create, describe, sync]);
    assert_eq!(found, "1tTZCZEZCZtTZ");
    server.shutdown();
}

/// What is written in either form is read back as it was.
#[test]
fn values_go_there_and_back() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![true, false])),
        Arc::new(Int32Array::from(vec![i32::MIN, 7])),
        Arc::new(Int64Array::from(vec![i64::MAX, -1])),
        Arc::new(Float64Array::from(vec![1e-300, f64::INFINITY])),
        Arc::new(StringArray::from(vec!["", "ü'\"\\"])),
        Arc::new(BinaryArray::from(vec![&b"\0\xff"[..], b""])),
        Arc::new(Date32Array::from(vec![-719_162, 20_000])),
        Arc::new(Time64MicrosecondArray::from(vec![0, 86_399_999_999])),
        Arc::new(TimestampMicrosecondArray::from(vec![-1, 1_700_000_000_123_456])),
        Arc::new(
            Decimal128Array::from(vec![-1, 12_345_678_901_234_567_890])
                .with_precision_and_scale(30, 6)
                .unwrap(),
        ),
    ];
    for column in columns {
        let batch = RecordBatch::try_from_iter([("c", Arc::clone(&column))]).unwrap();
        for format in [Format::Text, Format::Binary] {
            let rows = Rows::new(&batch, &[format]).unwrap();
            for row in 0..2 {
                rows.each(row, &mut BytesMut::new(), |value| {
                    let value = Some(value.unwrap().to_vec().into());
                    let read =
                        parameter::read(value, format, 0, column.data_type(), "UTC").unwrap();
                    // Numerics have the digits that they have.
                    let read = arrow::compute::cast(&read, column.data_type()).unwrap();
                    assert_eq!(&read, &column.slice(row, 1), "{format:?} {}", column.data_type());
                });
            }
        }
    }
}

/// Messages that a driver sends, as their bytes.
fn proper() -> Vec<Vec<u8>> {
    let message = |kind: u8, body: &[u8]| {
        let mut bytes = vec![kind];
        bytes.put_u32(4 + body.len() as u32);
        bytes.extend_from_slice(body);
        bytes
    };
    vec![
        message(b'Q', b"SELECT 1\0"),
        message(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17"),
        message(b'B', b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01"),
        message(b'D', b"Ss\0"),
        message(b'E', b"\0\0\0\0\x0a"),
        message(b'C', b"Pp\0"),
        message(b'S', b""),
        message(b'd', b"1\t2\n"),
        message(b'p', b"SCRAM-SHA-256\0\0\0\0\x02n,"),
    ]
}

/// Changed bytes, cut ends, joined messages: errors, but neither panics nor lengths that are
/// believed.
#[test]
fn no_bytes_break_the_messages() {
    let proper = proper();
    let mut rng = Prng::new(7);
    let (mut understood, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = vec![];
        for _ in 0..1 + rng.below(3) {
            bytes.extend_from_slice(&proper[rng.below(proper.len() as u64) as usize]);
        }
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        bytes.truncate(1 + rng.below(bytes.len() as u64) as usize);
        let _ = message::opening(&mut BytesMut::from(&bytes[..]));
        let mut buffer = BytesMut::from(&bytes[..]);
        loop {
            match message::message(&mut buffer, 1 << 20) {
                Ok(None) => break,
                Ok(Some(_)) => understood += 1,
                Err(_) => {
                    refused += 1;
                    break;
                }
            }
        }
    }
    assert!(understood > 50_000 && refused > 20_000, "{understood} {refused}");
}

#[test]
fn no_bytes_break_the_values() {
    let types = [
        DataType::Boolean,
        DataType::Int32,
        DataType::Float64,
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        DataType::Decimal128(38, 10),
        super::types::list(DataType::Int32),
        super::types::list(super::types::list(DataType::Utf8)),
        super::types::data_type(super::types::TIMESTAMPTZ).unwrap(),
        super::types::data_type(super::types::INTERVAL).unwrap(),
    ];
    let alphabet = b"{}\",\\ 0123456789-+.eENaNULLtrue\0\xff:T";
    let mut rng = Prng::new(11);
    for round in 0..200_000 {
        let length = rng.below(40) as usize;
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| match round % 2 {
                0 => alphabet[rng.below(alphabet.len() as u64) as usize],
                _ => rng.below(4) as u8 * 85,
            })
            .collect();
        let data_type = &types[rng.below(types.len() as u64) as usize];
        let format = if round % 4 < 2 { Format::Text } else { Format::Binary };
        let oid = [0, 16, 20, 23, 26, 700, 1007, 1082, 1184, 1186, 1700, 2950, 3802]
            [rng.below(13) as usize];
        let value = Some(bytes.clone().into());
        if let Ok(read) = parameter::read(value, format, oid, data_type, "UTC") {
            assert_eq!(read.len(), 1);
        }
        bytes.retain(u8::is_ascii);
        let _ = cursor::parse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn messages_are_what_drivers_send() {
    let read = |bytes: &[u8]| message::message(&mut BytesMut::from(bytes), 1 << 20).unwrap();
    let all = proper();
    assert_eq!(read(&all[0]), Some(Message::Query("SELECT 1".into())));
    let Some(Message::Bind(bind)) = read(&all[2]) else { panic!("no Bind") };
    assert_eq!(bind.values, [Some(vec![0, 0, 0, 7].into()), None]);
    assert_eq!((bind.formats, bind.result_formats), (vec![1], vec![1]));
    assert_eq!(read(&all[0][..6]), None);
    let too_long = [&b"Q"[..], &(2_u32 << 20).to_be_bytes()].concat();
    message::message(&mut BytesMut::from(&too_long[..]), 1 << 20).unwrap_err();
}
