//! The calls of Flight: each finds out who calls, and goes to the module of its command.

use std::any::Any as Payload;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, PollInfo, PutResult, Result as ActionResult, SchemaResult, Ticket,
};
use futures::{FutureExt, Stream, stream};
use prost::Message;
use thalweg_base::{Error, Result, text};
use tonic::{Request, Response, Status, Streaming};

use super::auth::{self, Caller, HandshakeStream};
use super::prepared::PreparedStatements;
use super::sessions::Sessions;
use super::status::{malformed, status};
use super::tickets::Tickets;
use super::transactions::Transactions;
use super::{info, ingest, metadata, options, prepared, statements, tickets, transactions};
use crate::auth::User;
use crate::context::{Context, Phase};
use crate::statement::Protocol;

/// What all calls share.
pub struct State {
    pub context: Arc<Context>,
    pub sessions: Sessions,
    pub transactions: Transactions,
    pub prepared: PreparedStatements,
    pub tickets: Tickets,
}

impl State {
    pub fn new(context: Arc<Context>) -> Self {
        State {
            context,
            sessions: Sessions::new(),
            transactions: transactions::new(),
            prepared: prepared::new(),
            tickets: tickets::new(),
        }
    }

    /// Drops what nobody came back for.
    pub fn sweep(&self) {
        self.tickets.sweep();
        self.prepared.sweep();
        self.transactions.sweep();
        self.sessions.sweep();
    }

    /// A password takes a while to check, on purpose.
    pub async fn check_password(
        &self,
        user: String,
        password: String,
        from: Option<IpAddr>,
    ) -> Result<User> {
        let context = Arc::clone(&self.context);
        let checked = move || context.authenticator.password(&user, &password, from);
        let checked = tokio::task::spawn_blocking(checked).await;
        let failed = |_| Err(Error::internal("the password could not be checked"));
        checked
            .unwrap_or_else(failed)
            .inspect_err(|_| self.context.metrics.rejected(Protocol::Flight))
    }

    /// A call, unless the server stops meanwhile.
    async fn guarded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T, Status> {
        let call = AssertUnwindSafe(call).catch_unwind();
        tokio::select! {
            biased;
            result = call => match result {
                Ok(result) => result.map_err(|e| status(&e)),
                Err(panic) => Err(status(&panicked(&*panic))),
            },
            () = self.context.reached(Phase::Stopped) => Err(status(&stopped())),
        }
    }
}

/// The statement is cut off: the server stops.
pub fn stopped() -> Error {
    Error::cancelled("the server was stopped").code("57P01")
}

pub fn panicked(panic: &(dyn Payload + Send)) -> Error {
    let text = text::of_panic(panic).unwrap_or("no message");
    Error::internal(format!("a call panicked: {text}"))
}

pub struct Service(pub Arc<State>);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = HandshakeStream;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<ActionResult>;
    type ListActionsStream = Answers<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<HandshakeStream>, Status> {
        self.0.guarded(auth::handshake(&self.0, request)).await
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let (metadata, extensions, descriptor) = request.into_parts();
        let call = async {
            let caller = Caller::of(&self.0, &metadata, &extensions).await?;
            let info = match command(&descriptor.cmd)? {
                Command::CommandStatementQuery(query) => {
                    statements::info(&self.0, &caller, query).await?
                }
                Command::CommandPreparedStatementQuery(query) => {
                    prepared::info(&self.0, &caller, &query.prepared_statement_handle).await?
                }
                other => metadata::info(&other, &descriptor.cmd)?,
            };
            Ok(Response::new(info.with_descriptor(descriptor)))
        };
        self.0.guarded(call).await
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let (metadata, extensions, descriptor) = request.into_parts();
        let call = async {
            let caller = Caller::of(&self.0, &metadata, &extensions).await?;
            let schema = match command(&descriptor.cmd)? {
                Command::CommandStatementQuery(query) => {
                    statements::schema(&self.0, &caller, query).await?
                }
                Command::CommandPreparedStatementQuery(query) => {
                    prepared::schema(&self.0, &caller, &query.prepared_statement_handle)?
                }
                other => metadata::schema(&other)?,
            };
            let schema = statements::ipc_schema(&schema)?;
            Ok(Response::new(SchemaResult { schema }))
        };
        self.0.guarded(call).await
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        let (metadata, extensions, ticket) = request.into_parts();
        let call = async {
            let caller = Caller::of(&self.0, &metadata, &extensions).await?;
            let rows: Self::DoGetStream = match command(&ticket.ticket)? {
                Command::TicketStatementQuery(ticket) => {
                    Box::pin(tickets::rows(&self.0, &caller, ticket.statement_handle)?)
                }
                other => Box::pin(metadata::rows(&self.0, &caller, other).await?),
            };
            Ok(Response::new(rows))
        };
        self.0.guarded(call).await
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let (metadata, extensions, mut messages) = request.into_parts();
        let call = async {
            let caller = Caller::of(&self.0, &metadata, &extensions).await?;
            let first = messages.message().await.map_err(|e| malformed("the first message", e))?;
            let first = first.ok_or_else(|| malformed("the upload", "it is empty"))?;
            let descriptor = first.flight_descriptor.as_ref();
            let text = descriptor.ok_or_else(|| malformed("the upload", "it names no command"))?;
            let result = match command(&text.cmd)? {
                Command::CommandStatementUpdate(update) => {
                    statements::update(&self.0, &caller, update).await?
                }
                Command::CommandStatementIngest(request) => {
                    ingest::run(&self.0, &caller, request, first, messages).await?
                }
                Command::CommandPreparedStatementQuery(query) => {
                    let handle = query.prepared_statement_handle;
                    prepared::bind(&self.0, &caller, handle, first, messages).await?
                }
                Command::CommandPreparedStatementUpdate(update) => {
                    let handle = update.prepared_statement_handle;
                    prepared::update(&self.0, &caller, &handle, first, messages).await?
                }
                other => return Err(unknown("DoPut", other.type_url())),
            };
            let result = PutResult { app_metadata: result.into() };
            let answer: Self::DoPutStream = Box::pin(stream::iter([Ok(result)]));
            Ok(Response::new(answer))
        };
        self.0.guarded(call).await
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        let (metadata, extensions, action) = request.into_parts();
        let call = async {
            let caller = Caller::of(&self.0, &metadata, &extensions).await?;
            let mut cookie = None;
            let (kind, body) = (action.r#type.as_str(), &action.body);
            let result = match kind {
                "CreatePreparedStatement" => {
                    Some(prepared::create(&self.0, &caller, unpack(body)?).await?)
                }
                "ClosePreparedStatement" => {
                    prepared::close(&self.0, &caller, &unpack(body)?)?;
                    None
                }
                "BeginTransaction" => Some(transactions::begin(&self.0, &caller).await?),
                "EndTransaction" => {
                    transactions::end(&self.0, &caller, &unpack(body)?).await?;
                    None
                }
                "BeginSavepoint" => {
                    Some(transactions::begin_savepoint(&self.0, &caller, unpack(body)?).await?)
                }
                "EndSavepoint" => {
                    transactions::end_savepoint(&self.0, &caller, &unpack(body)?).await?;
                    None
                }
                "CancelFlightInfo" => Some(tickets::cancel_flight(&self.0, &caller, body)?),
                "CancelQuery" => Some(tickets::cancel_query(&self.0, &caller, &unpack(body)?)?),
                "SetSessionOptions" => {
                    let (result, set) = options::set(&self.0, &caller, body).await?;
                    cookie = set;
                    Some(result)
                }
                "GetSessionOptions" => Some(options::get(&self.0, &caller).await?),
                "CloseSession" => {
                    let (result, set) = options::close(&self.0, &caller)?;
                    cookie = set;
                    Some(result)
                }
                other => return Err(unknown("DoAction", other)),
            };
            let results = result.into_iter().map(|body| Ok(ActionResult { body: body.into() }));
            let answer: Self::DoActionStream = Box::pin(stream::iter(results));
            let mut response = Response::new(answer);
            if let Some(cookie) = cookie {
                response.metadata_mut().insert("set-cookie", cookie);
            }
            Ok(response)
        };
        self.0.guarded(call).await
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        let (metadata, extensions, _) = request.into_parts();
        let call = async {
            Caller::of(&self.0, &metadata, &extensions).await?;
            let actions = info::ACTIONS.iter().map(|(name, description)| {
                Ok(ActionType { r#type: name.to_string(), description: description.to_string() })
            });
            let answer: Self::ListActionsStream = Box::pin(stream::iter(actions));
            Ok(Response::new(answer))
        };
        self.0.guarded(call).await
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(status(&unsupported("ListFlights", "CommandGetTables lists the tables")))
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        Err(status(&unsupported("PollFlightInfo", "GetFlightInfo starts the statement")))
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(status(&unsupported("DoExchange", "DoPut sends rows, DoGet brings them")))
    }
}

fn command(bytes: &[u8]) -> Result<Command> {
    let any = Any::decode(bytes).map_err(|e| malformed("the command", e))?;
    Command::try_from(any).map_err(|e| malformed("the command", e))
}

/// The body of an action of Flight SQL.
fn unpack<T: arrow_flight::sql::ProstMessageExt>(body: &[u8]) -> Result<T> {
    let any = Any::decode(body).map_err(|e| malformed("the body of the action", e))?;
    let message = any.unpack().map_err(|e| malformed("the body of the action", e))?;
    message.ok_or_else(|| malformed("the body of the action", "it is another message"))
}

pub fn unknown(call: &str, what: &str) -> Error {
    let what: String = what.chars().take(100).collect();
    Error::unsupported(format!("{call} does not know {what:?}"))
        .hint("the server speaks Arrow Flight SQL; Substrait plans are not supported")
}

fn unsupported(call: &str, hint: &str) -> Error {
    Error::unsupported(format!("{call} is not supported")).hint(hint)
}
