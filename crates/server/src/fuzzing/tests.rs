//! The corpus of the fuzzers and its mutants, without a fuzzer: what was found once stays found.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, CommandGetCatalogs, CommandGetDbSchemas,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate, ProstMessageExt,
    TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, HandshakeRequest};
use futures::TryStreamExt;
use thalweg_base::fuzzing::check;

use super::*;

/// In `make test`, of each target.
const MUTANTS: u64 = 300;

/// Tests run in the folder of their package.
fn corpus(target: &str) -> PathBuf {
    Path::new("../../fuzz/corpus").join(target)
}

#[test]
fn messages_of_postgresql_do_no_harm() {
    check(&corpus("pg"), 1, MUTANTS, pg);
}

#[test]
fn calls_of_flight_do_no_harm() {
    check(&corpus("flight"), 2, MUTANTS, flight);
}

/// Makes the inputs that were not found but written.
#[test]
#[ignore = "writes into fuzz/corpus"]
fn write_the_corpus() {
    for (name, input) in of_pg() {
        write("pg", name, &input);
    }
    for (name, calls) in of_flight() {
        let mut input = vec![];
        for (method, messages) in calls {
            let method = METHODS.iter().position(|m| *m == method).unwrap();
            input.extend([method as u8, messages.len() as u8]);
            for message in messages {
                input.put_u16(message.len() as u16);
                input.extend_from_slice(&message);
            }
        }
        write("flight", name, &input);
    }
}

fn write(target: &str, name: &str, input: &[u8]) {
    fs::create_dir_all(corpus(target)).unwrap();
    fs::write(corpus(target).join(name), input).unwrap();
}

/// As a driver sends them.
fn of_pg() -> Vec<(&'static str, Vec<u8>)> {
    let framed = |mode: u8, messages: &[(u8, &[u8])]| {
        let mut input = vec![mode];
        for (kind, body) in messages {
            input.push(*kind);
            input.put_u16(body.len() as u16);
            input.extend_from_slice(body);
        }
        input
    };
    let raw = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    let insert = b"i\0INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)\0\0\0";
    let row = b"\0i\0\0\0\0\x09\0\0\0\x011\0\0\0\x012\0\0\0\x030.5\0\0\0\x01a\0\0\0\x04\\x00\0\0\0\x031.5\0\0\0\x0a2024-01-01\0\0\0\x132024-01-01 10:00:00\xff\xff\xff\xff\0\0";
    vec![
        ("ssl", raw(0, b"\0\0\0\x08\x04\xd2\x16\x2f")),
        ("gss", raw(0, b"\0\0\0\x08\x04\xd2\x16\x30")),
        ("cancel", raw(0, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02")),
        ("options", raw(0, b"\0\0\0\x41\0\x03\0\x02user\0fuzz\0database\0thalweg\0options\0-c extra_float_digits=2\0\0")),
        ("raw-query", raw(1, b"Q\0\0\0\x0dSELECT 1\0X\0\0\0\x04")),
        ("query", framed(2, &[(b'Q', b"SELECT * FROM t; SELECT 'a' || s, n / 0 FROM t\0")])),
        ("catalog", framed(2, &[(b'Q', b"SELECT c.relname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' AND attnum > 0\0")])),
        ("transaction", framed(2, &[(b'Q', b"BEGIN\0"), (b'Q', b"INSERT INTO t (i) VALUES (3) RETURNING i\0"), (b'Q', b"SELECT nosuch\0"), (b'Q', b"SELECT 1\0"), (b'Q', b"ROLLBACK\0")])),
        ("cursor", framed(2, &[(b'Q', b"BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 1 FROM c; FETCH FORWARD ALL FROM c; CLOSE c; COMMIT\0")])),
        ("settings", framed(2, &[(b'Q', b"SET search_path = public; SHOW server_version; SET thalweg.memory_limit = '10MB'; RESET ALL; DISCARD ALL\0")])),
        ("extended", framed(2, &[(b'P', b"i\0SELECT $1::int + 1, $2::varchar\0\0\x01\0\0\0\x17"), (b'B', b"p\0i\0\0\x02\0\x01\0\0\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x\0\x01\0\x01"), (b'D', b"Si\0"), (b'D', b"Pp\0"), (b'E', b"p\0\0\0\0\x01"), (b'E', b"p\0\0\0\0\0"), (b'C', b"Pp\0"), (b'C', b"Si\0"), (b'H', b""), (b'S', b"")])),
        ("row", framed(2, &[(b'P', insert), (b'B', row), (b'E', b"\0\0\0\0\0"), (b'S', b"")])),
        ("array", framed(2, &[(b'P', b"\0SELECT i FROM t WHERE i = ANY($1)\0\0\x01\0\0\x03\xef"), (b'B', b"\0\0\0\0\0\x01\0\0\0\x07{1,2,3}\0\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")])),
        ("copy-text", framed(2, &[(b'Q', b"COPY t (i, s) FROM STDIN\0"), (b'd', b"1\ta\\tb\n2\t\\N\n"), (b'd', b"3\tx\n"), (b'c', b""), (b'Q', b"SELECT 1\0")])),
        ("copy-csv", framed(2, &[(b'Q', b"COPY t (i, s) FROM STDIN (FORMAT csv, HEADER)\0"), (b'd', b"i,s\n1,\"a\"\"b\"\n"), (b'f', b"no more\0")])),
        ("copy-binary", framed(2, &[(b'Q', b"COPY t (i, s) FROM STDIN (FORMAT binary)\0"), (b'd', b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x\xff\xff"), (b'c', b"")])),
        ("copy-out", framed(2, &[(b'Q', b"COPY (SELECT * FROM t) TO STDOUT (FORMAT binary)\0"), (b'Q', b"COPY t TO STDOUT CSV HEADER\0")])),
        ("sasl", framed(3, &[(b'p', b"SCRAM-SHA-256\0\0\0\0\x18n,,n=stranger,r=abcdefghi"), (b'p', b"c=biws,r=abcdefghi,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")])),
        ("sasl-plus", framed(3, &[(b'p', b"SCRAM-SHA-256-PLUS\0\0\0\0\x20p=tls-server-end-point,,n=,r=abcd")])),
        ("no-password", framed(3, &[(b'Q', b"SELECT 1\0")])),
    ]
}

type Calls = Vec<(&'static str, Vec<Vec<u8>>)>;

fn of_flight() -> Vec<(&'static str, Calls)> {
    let info = |command: Vec<u8>| vec![FlightDescriptor::new_cmd(command).encode_to_vec()];
    let any = |message: &dyn Fn() -> arrow_flight::sql::Any| message().encode_to_vec();
    let query = |sql: &str| {
        let command = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
        command.as_any().encode_to_vec()
    };
    let action = |kind: &str, body: Vec<u8>| vec![Action::new(kind, body).encode_to_vec()];
    let create = |sql: &str| {
        let request =
            ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
        action("CreatePreparedStatement", request.as_any().encode_to_vec())
    };
    let handle = Bytes::from_static(HANDLE);
    let prepared_query =
        CommandPreparedStatementQuery { prepared_statement_handle: handle.clone() };
    let prepared_update =
        CommandPreparedStatementUpdate { prepared_statement_handle: handle.clone() };
    let close = ActionClosePreparedStatementRequest { prepared_statement_handle: handle };
    let ingest = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Fail.into(),
            if_exists: TableExistsOption::Append.into(),
        }),
        table: "t".to_owned(),
        ..Default::default()
    };
    let update = CommandStatementUpdate {
        query: "UPDATE t SET s = 'new' WHERE i = 1".to_owned(),
        transaction_id: None,
    };
    let mut metadata: Calls = vec![];
    for command in [
        any(&|| CommandGetCatalogs {}.as_any()),
        any(&|| {
            CommandGetDbSchemas {
                db_schema_filter_pattern: Some("p%".into()),
                ..Default::default()
            }
            .as_any()
        }),
        any(&|| {
            CommandGetTables {
                include_schema: true,
                table_types: vec!["TABLE".into()],
                ..Default::default()
            }
            .as_any()
        }),
        any(&|| CommandGetTableTypes {}.as_any()),
        any(&|| CommandGetPrimaryKeys { table: "t".into(), ..Default::default() }.as_any()),
        any(&|| CommandGetSqlInfo { info: vec![0, 508, 10_000] }.as_any()),
        any(&|| CommandGetXdbcTypeInfo { data_type: Some(4) }.as_any()),
    ] {
        metadata.push(("GetFlightInfo", info(command.clone())));
        metadata.push(("GetSchema", info(command)));
        metadata.push(("DoGet", vec![]));
    }
    vec![
        (
            "query",
            vec![("GetFlightInfo", info(query("SELECT *, i + 1 FROM t"))), ("DoGet", vec![])],
        ),
        ("schema", vec![("GetSchema", info(query("SELECT s, n FROM t")))]),
        ("error", vec![("GetFlightInfo", info(query("SELECT nosuch FROM t"))), ("DoGet", vec![])]),
        ("metadata", metadata),
        ("update", vec![("DoPut", upload(update.as_any(), None))]),
        ("ingest", vec![("DoPut", upload(ingest.as_any(), Some(rows())))]),
        (
            "prepared",
            vec![
                ("DoAction", create("SELECT i, s FROM t WHERE i = ? OR s = ?")),
                ("DoPut", upload(prepared_query.as_any(), Some(rows().slice(0, 1)))),
                ("GetFlightInfo", info(prepared_query.as_any().encode_to_vec())),
                ("DoGet", vec![]),
                ("DoAction", action("ClosePreparedStatement", close.as_any().encode_to_vec())),
            ],
        ),
        (
            "prepared-update",
            vec![
                ("DoAction", create("INSERT INTO t (i, s) VALUES (?, ?)")),
                ("DoPut", upload(prepared_update.as_any(), Some(rows()))),
            ],
        ),
        (
            "transaction",
            vec![(
                "DoAction",
                action(
                    "BeginTransaction",
                    ActionBeginTransactionRequest {}.as_any().encode_to_vec(),
                ),
            )],
        ),
        (
            "handshake",
            vec![(
                "Handshake",
                vec![HandshakeRequest { protocol_version: 0, payload: "x".into() }.encode_to_vec()],
            )],
        ),
        (
            "lists",
            vec![
                ("ListActions", vec![vec![]]),
                ("ListFlights", vec![vec![]]),
                ("PollFlightInfo", info(query("SELECT 1"))),
                ("DoExchange", vec![vec![]]),
            ],
        ),
        (
            "options",
            vec![
                (
                    "DoAction",
                    action(
                        "SetSessionOptions",
                        b"\x0a\x10\x0a\x06schema\x12\x06\x0a\x04main".to_vec(),
                    ),
                ),
                ("DoAction", action("GetSessionOptions", vec![])),
                ("DoAction", action("CloseSession", vec![])),
            ],
        ),
        (
            "cancel",
            vec![
                ("GetFlightInfo", info(query("SELECT 1"))),
                ("DoAction", action("CancelFlightInfo", b"\x0a\x02\x12\x00".to_vec())),
            ],
        ),
    ]
}

fn rows() -> RecordBatch {
    let i: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let s: ArrayRef = Arc::new(StringArray::from(vec![Some("one"), Some(""), None]));
    RecordBatch::try_from_iter([("i", i), ("s", s)]).unwrap()
}

/// The messages of a `DoPut`.
fn upload(command: arrow_flight::sql::Any, rows: Option<RecordBatch>) -> Vec<Vec<u8>> {
    let mut messages: Vec<FlightData> = match rows {
        None => vec![FlightData::default()],
        Some(rows) => {
            let rows = futures::stream::iter([Ok(rows)]);
            let encoded = FlightDataEncoderBuilder::new().build(rows).try_collect();
            futures::executor::block_on(encoded).unwrap()
        }
    };
    messages[0].flight_descriptor = Some(FlightDescriptor::new_cmd(command.encode_to_vec()));
    messages.iter().map(FlightData::encode_to_vec).collect()
}
