//! A client of Flight SQL against a server on loopback.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int64Type, Schema};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any,
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementUpdate, CommandStatementIngest, DoPutUpdateResult, EndTransaction,
    ProstMessageExt, SqlInfo, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor,
    FlightInfo,
};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use thalweg_engine::{Config as EngineConfig, Engine};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::options::{
    GetSessionOptionsResult, OptionValue, SessionOptionValue, SetSessionOptionsRequest,
    SetSessionOptionsResult,
};
use super::status::SQLSTATE;
use crate::auth::Authenticator;
use crate::config::{Authentication, Config};
use crate::connections::Connections;
use crate::context::{Context, Phase};
use crate::metrics::Metrics;
use crate::server::Server;

type Client = FlightSqlServiceClient<Channel>;

/// Runs `test` with a server on a database in memory.
fn with_server<F: Future<Output = ()>>(config: Config, test: impl FnOnce(Fixture) -> F) {
    let engine = EngineConfig { threads: 2, ..EngineConfig::default() };
    let engine = Engine::open(":memory:", engine).unwrap();
    engine.block_on(async {
        for name in ["ada", "bob"] {
            let role = format!("CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'secret'");
            engine.session().query(&role).await.unwrap();
        }
    });
    let flight = Some("127.0.0.1:0".parse().unwrap());
    let server = Server::start(engine, Config { flight, ..config }).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let uri = format!("http://{}", server.flight().unwrap());
    runtime.block_on(test(Fixture { uri }));
    server.shutdown();
}

fn check<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    with_server(Config::default(), test);
}

struct Fixture {
    uri: String,
}

impl Fixture {
    async fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(self.uri.clone()).unwrap();
        Client::new(endpoint.connect().await.unwrap())
    }

    async fn logged_in(&self) -> Client {
        let mut client = self.client().await;
        client.handshake("ada", "secret").await.unwrap();
        client
    }
}

async fn fetch(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    client.do_get(ticket).await?.try_collect().await
}

async fn query(client: &mut Client, sql: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(sql.to_string(), None).await?;
    fetch(client, info).await
}

async fn number(client: &mut Client, sql: &str) -> i64 {
    let batches = query(client, sql).await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn update(client: &mut Client, sql: &str) -> Result<i64, FlightError> {
    client.execute_update(sql.to_string(), None).await
}

fn failed<T>(result: Result<T, FlightError>) -> Status {
    match result.err() {
        Some(FlightError::Tonic(status)) => *status,
        Some(other) => panic!("no status: {other}"),
        None => panic!("it succeeded"),
    }
}

fn sqlstate(status: &Status) -> String {
    let value = status.metadata().get(SQLSTATE);
    value.map(|v| v.to_str().unwrap().to_string()).unwrap_or_default()
}

fn rows(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Int64Array = ids.into_iter().map(Some).collect();
    let texts: StringArray = ids.iter().flatten().map(|id| Some(format!("text {id}"))).collect();
    RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef), ("text", Arc::new(texts))])
        .unwrap()
}

fn ingest(
    table: &str,
    if_absent: TableNotExistOption,
    if_present: TableExistsOption,
) -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: if_absent as i32,
            if_exists: if_present as i32,
        }),
        table: table.into(),
        schema: None,
        catalog: None,
        temporary: false,
        transaction_id: None,
        options: HashMap::new(),
    }
}

async fn send(
    client: &mut Client,
    command: CommandStatementIngest,
    batches: Vec<RecordBatch>,
) -> Result<i64, FlightError> {
    client.execute_ingest(command, futures::stream::iter(batches.into_iter().map(Ok))).await
}

#[test]
fn rows_come_as_plain_types() {
    check(async |server| {
        let mut client = server.client().await;
        let info = client.execute("SELECT 1 AS n, 'one' AS t".into(), None).await.unwrap();
        let schema = info.clone().try_decode_schema().unwrap();
        assert_eq!(schema.field(1).data_type(), &DataType::Utf8);
        let batches = fetch(&mut client, info).await.unwrap();
        assert_eq!(batches[0].schema().fields(), schema.fields());
        assert_eq!(batches[0].column(1).as_string::<i32>().value(0), "one");
        let sql = "SELECT count(*) FROM generate_series(1, 1000000) AS t(i) WHERE i % 2 = 0";
        assert_eq!(number(&mut client, sql).await, 500_000);
        let batches = query(&mut client, "SELECT i FROM generate_series(1, 300000) AS t(i)").await;
        assert_eq!(batches.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 300_000);
        // No row, but its columns.
        let none = query(&mut client, "SELECT 1 AS n WHERE false").await.unwrap();
        assert_eq!(none.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
    });
}

#[test]
fn a_ticket_is_for_one_use() {
    check(async |server| {
        let mut client = server.client().await;
        let info = client.execute("SELECT 1".into(), None).await.unwrap();
        fetch(&mut client, info.clone()).await.unwrap();
        assert_eq!(failed(fetch(&mut client, info.clone()).await).code(), Code::NotFound);
        let mut other = server.client().await;
        other.handshake("bob", "secret").await.unwrap();
        let info = client.execute("SELECT 1".into(), None).await.unwrap();
        assert_eq!(failed(fetch(&mut other, info).await).code(), Code::NotFound);
    });
}

#[test]
fn errors_say_what_and_why() {
    check(async |server| {
        let mut client = server.client().await;
        let status = failed(query(&mut client, "SELECT * FROM nowhere").await);
        assert_eq!((status.code(), sqlstate(&status).as_str()), (Code::NotFound, "42P01"));
        assert!(status.message().contains("hint: "), "{}", status.message());
        let status = failed(query(&mut client, "SELEC 1").await);
        assert_eq!(status.code(), Code::InvalidArgument);
        // After rows have been sent.
        let sql = "SELECT 1 / (100000 - i) FROM generate_series(1, 100000) AS t(i)";
        let status = failed(query(&mut client, sql).await);
        assert_eq!((status.code(), sqlstate(&status).as_str()), (Code::InvalidArgument, "22012"));
        let ticket = arrow_flight::Ticket::new("garbage");
        assert_eq!(failed(client.do_get(ticket).await).code(), Code::InvalidArgument);
        let status = failed(client.do_action(Action::new("Dance", "")).await);
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

#[test]
fn updates_count_their_rows() {
    check(async |server| {
        let mut client = server.client().await;
        assert_eq!(update(&mut client, "CREATE TABLE t (a INT)").await.unwrap(), 0);
        assert_eq!(update(&mut client, "INSERT INTO t VALUES (1), (2), (3)").await.unwrap(), 3);
        assert_eq!(update(&mut client, "UPDATE t SET a = a + 1 WHERE a > 1").await.unwrap(), 2);
        let returned = update(&mut client, "DELETE FROM t WHERE a = 4 RETURNING a").await.unwrap();
        assert_eq!(returned, 1);
        // A change that a client takes for a query runs once.
        let info = client.execute("INSERT INTO t VALUES (7)".into(), None).await.unwrap();
        assert_eq!(info.total_records, 1);
        assert!(fetch(&mut client, info).await.unwrap().is_empty());
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 3);
    });
}

#[test]
fn a_token_keeps_a_session() {
    check(async |server| {
        let mut client = server.logged_in().await;
        update(&mut client, "SET thalweg.deadline_ms = 12345").await.unwrap();
        let mut again = server.client().await;
        again.set_token(client.token().unwrap().clone());
        let shown = query(&mut again, "SHOW thalweg.deadline_ms").await.unwrap();
        assert_eq!(shown[0].column(1).as_string::<i32>().value(0), "12345");
        update(&mut client, "BEGIN").await.unwrap();
        update(&mut client, "CREATE TABLE t (a INT)").await.unwrap();
        update(&mut client, "ROLLBACK").await.unwrap();
        assert!(query(&mut client, "SELECT * FROM t").await.is_err());
        // By a name of its own.
        let mut named = server.client().await;
        named.set_header("x-session-id", "mine");
        update(&mut named, "SET thalweg.deadline_ms = 777").await.unwrap();
        let shown = query(&mut named, "SHOW thalweg.deadline_ms").await.unwrap();
        assert_eq!(shown[0].column(1).as_string::<i32>().value(0), "777");
        // Without one it would be lost.
        let mut alone = server.client().await;
        let status = failed(update(&mut alone, "SET thalweg.deadline_ms = 1").await);
        assert_eq!(sqlstate(&status), "08003");
        assert_eq!(sqlstate(&failed(update(&mut alone, "-- x\nBEGIN").await)), "08003");
        update(&mut alone, "SET thalweg.policy = 'fair'").await.unwrap();
        // A token that the server does not know.
        alone.set_token("thalweg-session-old".into());
        assert_eq!(failed(query(&mut alone, "SELECT 1").await).code(), Code::Unauthenticated);
    });
}

#[test]
fn strangers_are_kept_out() {
    let config = Config { authentication: Authentication::Scram, ..Config::default() };
    with_server(config, async |server| {
        let mut client = server.client().await;
        let status = failed(query(&mut client, "SELECT 1").await);
        assert_eq!((status.code(), sqlstate(&status).as_str()), (Code::Unauthenticated, "28000"));
        assert!(client.handshake("ada", "wrong").await.is_err());
        client.set_token("guessed".into());
        assert_eq!(failed(query(&mut client, "SELECT 1").await).code(), Code::Unauthenticated);
        assert_eq!(failed(client.get_catalogs().await).code(), Code::Unauthenticated);
        let command = ingest("t", TableNotExistOption::Create, TableExistsOption::Fail);
        let status = failed(send(&mut client, command, vec![rows(0..3)]).await);
        assert_eq!(status.code(), Code::Unauthenticated);
        let listed = client.inner_mut().list_actions(arrow_flight::Empty {}).await;
        assert_eq!(listed.err().unwrap().code(), Code::Unauthenticated);
    });
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    let handshake_timeout = Duration::from_millis(300);
    let config = Config { handshake_timeout, connections_max: 1, ..Config::default() };
    with_server(config, async |server| {
        use tokio::io::AsyncReadExt;
        let address = server.uri.trim_start_matches("http://").to_string();
        // The server's clock begins before the client knows that it is connected.
        let begun = Instant::now();
        let mut silent = tokio::net::TcpStream::connect(&address).await.unwrap();
        let mut bytes = vec![];
        let read = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut bytes));
        let _ = read.await.expect("closed by the server");
        assert!(begun.elapsed() >= handshake_timeout);
        // Its place is free again, and one that has been let in may be silent.
        let mut client = server.client().await;
        query(&mut client, "SELECT 1").await.unwrap();
        tokio::time::sleep(2 * handshake_timeout).await;
        query(&mut client, "SELECT 1").await.unwrap();
        // There is no second place.
        let mut second = tokio::net::TcpStream::connect(&address).await.unwrap();
        assert_eq!(second.read(&mut [0; 1]).await.unwrap_or(0), 0);
    });
}

#[test]
fn transactions_are_apart_from_their_client() {
    check(async |server| {
        let mut client = server.client().await;
        let id = client.begin_transaction().await.unwrap();
        let within = Some(id.clone());
        client.execute_update("CREATE TABLE t (a INT)".into(), within.clone()).await.unwrap();
        client.execute_update("INSERT INTO t VALUES (1)".into(), within.clone()).await.unwrap();
        let info = client.execute("SELECT a FROM t".into(), within.clone()).await.unwrap();
        assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 1);
        assert!(query(&mut client, "SELECT * FROM t").await.is_err());
        let status = failed(client.execute_update("COMMIT".into(), within.clone()).await);
        assert_eq!(sqlstate(&status), "25001");
        client.end_transaction(id.clone(), EndTransaction::Commit).await.unwrap();
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 1);
        let over = client.execute_update("INSERT INTO t VALUES (2)".into(), within).await;
        assert_eq!(sqlstate(&failed(over)), "25000");

        let id = client.begin_transaction().await.unwrap();
        client.execute_update("DELETE FROM t".into(), Some(id.clone())).await.unwrap();
        client.end_transaction(id, EndTransaction::Rollback).await.unwrap();
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 1);

        // An error fails it; then a commit says so.
        let id = client.begin_transaction().await.unwrap();
        assert!(
            client.execute_update("NONSENSE".into(), Some(id.clone())).await.is_err()
                || client.execute("SELECT * FROM gone".into(), Some(id.clone())).await.is_err()
        );
        let status = failed(client.end_transaction(id, EndTransaction::Commit).await);
        assert_eq!(sqlstate(&status), "25P02");
    });
}

#[test]
fn statements_are_prepared_and_run_with_values() {
    check(async |server| {
        let mut client = server.client().await;
        update(&mut client, "CREATE TABLE t (id BIGINT, text VARCHAR)").await.unwrap();
        let mut insert =
            client.prepare("INSERT INTO t VALUES ($1, $2)".into(), None).await.unwrap();
        assert_eq!(insert.parameter_schema().unwrap().fields().len(), 2);
        assert!(insert.dataset_schema().unwrap().fields().is_empty());
        insert.set_parameters(rows(0..5)).unwrap();
        assert_eq!(insert.execute_update().await.unwrap(), 5);
        insert.set_parameters(rows([7])).unwrap();
        assert_eq!(insert.execute_update().await.unwrap(), 1);
        insert.close().await.unwrap();

        let sql = "SELECT text FROM t WHERE id = ?";
        let mut select = client.prepare(sql.into(), None).await.unwrap();
        let schema = select.dataset_schema().unwrap();
        assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
        assert_eq!(sqlstate(&failed(select.execute().await)), "07001");
        for id in [3, 7] {
            let ids: ArrayRef = Arc::new(Int64Array::from(vec![id]));
            select.set_parameters(RecordBatch::try_from_iter([("id", ids)]).unwrap()).unwrap();
            let info = select.execute().await.unwrap();
            let batches = fetch(&mut client, info).await.unwrap();
            assert_eq!(batches[0].column(0).as_string::<i32>().value(0), format!("text {id}"));
        }
        select.set_parameters(rows(0..2)).unwrap();
        assert_eq!(sqlstate(&failed(select.execute().await)), "07001");

        // All rows or none.
        let mut divide =
            client.prepare("INSERT INTO t VALUES (10 / $1, 'x')".into(), None).await.unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 0]));
        divide.set_parameters(RecordBatch::try_from_iter([("id", ids)]).unwrap()).unwrap();
        assert!(divide.execute_update().await.is_err());
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 6);
    });
}

/// As JDBC's driver sends a statement without values.
#[test]
fn an_empty_schema_means_no_values() {
    check(async |server| {
        let mut client = server.client().await;
        update(&mut client, "CREATE TABLE t (a INT)").await.unwrap();
        let query = "INSERT INTO t VALUES (1), (2)".to_string();
        let request = ActionCreatePreparedStatementRequest { query, transaction_id: None };
        let body = request.as_any().encode_to_vec();
        let action = Action::new("CreatePreparedStatement", body);
        let mut results = client.do_action(action).await.unwrap();
        let body = results.message().await.unwrap().unwrap().body;
        let created: ActionCreatePreparedStatementResult =
            Any::decode(&*body).unwrap().unpack().unwrap().unwrap();
        let prepared_statement_handle = created.prepared_statement_handle;
        let command = CommandPreparedStatementUpdate { prepared_statement_handle };
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let messages: Vec<_> = FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(descriptor))
            .with_schema(Arc::new(Schema::empty()))
            .build(futures::stream::empty())
            .try_collect()
            .await
            .unwrap();
        let mut results = client.do_put(futures::stream::iter(messages)).await.unwrap();
        let result = results.message().await.unwrap().unwrap();
        let result = DoPutUpdateResult::decode(&*result.app_metadata).unwrap();
        assert_eq!(result.record_count, 2);
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 2);
    });
}

#[test]
fn batches_are_ingested() {
    use {TableExistsOption as E, TableNotExistOption as N};
    check(async |server| {
        let mut client = server.client().await;
        let batches = || vec![rows(0..50_000), rows(50_000..50_007)];
        let absent = send(&mut client, ingest("t", N::Fail, E::Append), batches()).await;
        assert_eq!(failed(absent).code(), Code::NotFound);
        let created = send(&mut client, ingest("t", N::Create, E::Fail), batches()).await;
        assert_eq!(created.unwrap(), 50_007);
        let present = send(&mut client, ingest("t", N::Create, E::Fail), batches()).await;
        assert_eq!(failed(present).code(), Code::AlreadyExists);
        let more = send(&mut client, ingest("t", N::Fail, E::Append), vec![rows(0..3)]).await;
        assert_eq!(more.unwrap(), 3);
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 50_010);
        let replaced =
            send(&mut client, ingest("t", N::Create, E::Replace), vec![rows(0..9)]).await;
        assert_eq!(replaced.unwrap(), 9);
        assert_eq!(number(&mut client, "SELECT sum(id)::BIGINT FROM t").await, 36);

        let id = client.begin_transaction().await.unwrap();
        let mut command = ingest("t", N::Fail, E::Append);
        command.transaction_id = Some(id.clone());
        assert_eq!(send(&mut client, command, vec![rows(0..5)]).await.unwrap(), 5);
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 9);
        client.end_transaction(id, EndTransaction::Commit).await.unwrap();
        assert_eq!(number(&mut client, "SELECT count(*) FROM t").await, 14);

        let mut command = ingest("u", N::Create, E::Fail);
        command.temporary = true;
        let refused = send(&mut client, command, vec![rows(0..5)]).await;
        assert_eq!(failed(refused).code(), Code::Unimplemented);
        let mut command = ingest("u", N::Create, E::Fail);
        command.catalog = Some("other".into());
        assert_eq!(sqlstate(&failed(send(&mut client, command, vec![rows(0..5)]).await)), "3D000");
    });
}

#[test]
fn the_database_describes_itself() {
    check(async |server| {
        let mut client = server.client().await;
        update(&mut client, "CREATE TABLE t (a INT, b VARCHAR NOT NULL)").await.unwrap();
        update(&mut client, "CREATE VIEW v AS SELECT a FROM t").await.unwrap();
        let info = client.get_catalogs().await.unwrap();
        let batches = fetch(&mut client, info).await.unwrap();
        assert_eq!(batches[0].column(0).as_string::<i32>().value(0), "thalweg");
        let info = client.get_db_schemas(CommandGetDbSchemas {
            catalog: None,
            db_schema_filter_pattern: Some("pub%".into()),
        });
        let info = info.await.unwrap();
        let batches = fetch(&mut client, info).await.unwrap();
        assert_eq!(batches[0].column(1).as_string::<i32>().value(0), "public");
        let wanted = CommandGetTables {
            catalog: Some("thalweg".into()),
            db_schema_filter_pattern: Some("public".into()),
            table_name_filter_pattern: None,
            table_types: vec!["TABLE".into(), "VIEW".into()],
            include_schema: true,
        };
        let info = client.get_tables(wanted).await.unwrap();
        let batches = fetch(&mut client, info).await.unwrap();
        let names: Vec<_> = batches[0].column(2).as_string::<i32>().iter().flatten().collect();
        assert_eq!(names, ["t", "v"]);
        let encoded = batches[0].column(4).as_binary::<i32>();
        let schema = arrow_flight::SchemaResult { schema: encoded.value(0).to_vec().into() };
        let schema = arrow::datatypes::Schema::try_from(&schema).unwrap();
        assert_eq!(schema.field(1).data_type(), &DataType::Utf8);
        assert!(!schema.field(1).is_nullable());
        assert_eq!(schema.field(0).metadata()["ARROW:FLIGHT:SQL:TYPE_NAME"], "int");
        let info = client.get_table_types().await.unwrap();
        assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 3);
        let names = vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerTransaction];
        let info = client.get_sql_info(names).await.unwrap();
        assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 2);
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await;
        let batches = fetch(&mut client, info.unwrap()).await.unwrap();
        assert!(batches[0].num_rows() > 10);
        let keys = CommandGetPrimaryKeys { catalog: None, db_schema: None, table: "t".into() };
        let info = client.get_primary_keys(keys).await.unwrap();
        assert_eq!(info.clone().try_decode_schema().unwrap().fields().len(), 6);
        let batches = fetch(&mut client, info).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
    });
}

#[test]
fn a_query_is_cancelled() {
    check(async |server| {
        let mut client = server.client().await;
        let endless = "SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)";
        let running = "SELECT count(*) FROM system.queries WHERE query LIKE '%100000000000%' \
                       AND query NOT LIKE '%system.queries%'";
        // By its FlightInfo.
        let info = client.execute(endless.into(), None).await.unwrap();
        let request = CancelFlightInfoRequest::new(info.clone()).encode_to_vec();
        let action = Action::new("CancelFlightInfo", request);
        let mut results = client.do_action(action).await.unwrap();
        let result = results.message().await.unwrap().unwrap();
        let result = CancelFlightInfoResult::decode(&*result.body).unwrap();
        assert_eq!(result.status(), CancelStatus::Cancelled);
        assert_eq!(failed(fetch(&mut client, info).await).code(), Code::NotFound);
        // By going away.
        let info = client.execute(endless.into(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let mut stream = client.do_get(ticket).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
        assert!(waited.is_err(), "it has rows");
        assert_eq!(number(&mut client, running).await, 1);
        drop(stream);
        let begun = Instant::now();
        while number(&mut client, running).await > 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "it still runs");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn options_of_a_session() {
    check(async |server| {
        let mut client = server.logged_in().await;
        let text =
            |text: &str| SessionOptionValue { option_value: Some(OptionValue::Text(text.into())) };
        let session_options = HashMap::from([
            (
                "thalweg.deadline_ms".to_string(),
                SessionOptionValue { option_value: Some(OptionValue::Integer(99)) },
            ),
            ("catalog".to_string(), text("other")),
            ("no_such".to_string(), text("x")),
            ("a; DROP TABLE t".to_string(), text("x")),
            ("thalweg.share_work".to_string(), text("per'haps")),
        ]);
        let request = SetSessionOptionsRequest { session_options }.encode_to_vec();
        let action = Action::new("SetSessionOptions", request);
        let mut results = client.do_action(action).await.unwrap();
        let body = results.message().await.unwrap().unwrap().body;
        let result = SetSessionOptionsResult::decode(&*body).unwrap();
        let errors: HashMap<_, _> =
            result.errors.iter().map(|(n, e)| (n.as_str(), e.value)).collect();
        let expected =
            [("catalog", 2), ("no_such", 1), ("a; DROP TABLE t", 1), ("thalweg.share_work", 2)];
        assert_eq!(errors, HashMap::from(expected));
        let mut results = client.do_action(Action::new("GetSessionOptions", "")).await.unwrap();
        let body = results.message().await.unwrap().unwrap().body;
        let options = GetSessionOptionsResult::decode(&*body).unwrap().session_options;
        assert_eq!(options["thalweg.deadline_ms"], text("99"));
        assert_eq!(options["catalog"], text("thalweg"));
        client.do_action(Action::new("CloseSession", "")).await.unwrap();
        assert_eq!(failed(query(&mut client, "SELECT 1").await).code(), Code::Unauthenticated);
    });
}

#[test]
fn a_cookie_keeps_a_session() {
    check(async |server| {
        let mut client = server.client().await;
        let deadline = SessionOptionValue { option_value: Some(OptionValue::Integer(4321)) };
        let session_options = HashMap::from([("thalweg.deadline_ms".to_string(), deadline)]);
        let request = SetSessionOptionsRequest { session_options }.encode_to_vec();
        let action = tonic::Request::new(Action::new("SetSessionOptions", request));
        let response = client.inner_mut().do_action(action).await.unwrap();
        let cookie = response.metadata().get("set-cookie").unwrap().to_str().unwrap().to_string();
        drop(response);
        client.set_header("cookie", cookie.split(';').next().unwrap());
        let shown = query(&mut client, "SHOW thalweg.deadline_ms").await.unwrap();
        assert_eq!(shown[0].column(1).as_string::<i32>().value(0), "4321");
        client.set_header("cookie", "arrow_flight_session_id=guessed");
        assert_eq!(sqlstate(&failed(query(&mut client, "SELECT 1").await)), "08003");
    });
}

#[test]
fn a_server_that_drains_lets_rows_end() {
    let engine = EngineConfig { threads: 2, ..EngineConfig::default() };
    let engine = Engine::open(":memory:", engine).unwrap();
    let flight = Some("127.0.0.1:0".parse().unwrap());
    let server = Server::start(engine, Config { flight, ..Config::default() }).unwrap();
    let fixture = Fixture { uri: format!("http://{}", server.flight().unwrap()) };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut stream = runtime.block_on(async {
        let mut client = fixture.client().await;
        let sql = "SELECT i, repeat('x', 100) FROM generate_series(1, 2000000) AS t(i)";
        let info = client.execute(sql.into(), None).await.unwrap();
        client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap()
    });
    let draining = std::thread::spawn(move || server.shutdown());
    let rows = runtime.block_on(async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            rows += batch.unwrap().num_rows();
        }
        rows
    });
    assert_eq!(rows, 2_000_000);
    drop(stream);
    draining.join().unwrap();
}

#[test]
fn connections_may_be_encrypted() {
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};
    use tonic::transport::{Certificate, ClientTlsConfig};

    let certified = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let engine = EngineConfig { threads: 2, ..EngineConfig::default() };
    let engine = Engine::open(":memory:", engine).unwrap();
    let (phase, watched) = tokio::sync::watch::channel(Phase::Running);
    let context = Arc::new(Context {
        authenticator: Authenticator::new(Arc::clone(&engine), Authentication::Trust, None),
        connections: Connections::new(10),
        metrics: Metrics::new(&engine, &Config::default()).unwrap(),
        tls: Some(Arc::new(tls)),
        phase: watched,
        config: Config::default(),
        engine,
    });
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(super::serve(listener, context));
        let ca = Certificate::from_pem(certified.cert.pem());
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
        let endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(ca)).unwrap();
        let mut client = Client::new(endpoint.connect().await.unwrap());
        assert_eq!(number(&mut client, "SELECT 1::BIGINT").await, 1);
        // Nothing is said to those who do not encrypt.
        let plain = Endpoint::from_shared(format!("http://localhost:{port}")).unwrap();
        let refused = match plain.connect().await {
            Ok(channel) => Client::new(channel).get_catalogs().await.is_err(),
            Err(_) => true,
        };
        assert!(refused);
        drop(client);
        phase.send(Phase::Draining).unwrap();
        serving.await.unwrap();
    });
}
