//! Metrics and health, for operators: figures and words, no rows and no text of statements.

mod listener;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use self::listener::Limited;
use crate::context::{Context, Phase};

/// What there is, for whoever asks for something else.
const PAGES: &str = "\
/metrics  figures, for Prometheus (OpenMetrics)
/healthz  200 as long as the process lives
/readyz   200 if statements are accepted and the database can be read
";

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The longest that the database may take to answer.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

struct Shared {
    context: Arc<Context>,
    /// One question to the database at a time: it may hang.
    asking: Arc<Semaphore>,
}

/// Answers until the server has stopped all else.
pub async fn serve(listener: TcpListener, context: Arc<Context>) {
    let shared =
        Arc::new(Shared { context: Arc::clone(&context), asking: Arc::new(Semaphore::new(1)) });
    let router = Router::new()
        .route("/", get(async || (StatusCode::OK, [(CONTENT_TYPE, TEXT)], PAGES)))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || (StatusCode::OK, [(CONTENT_TYPE, TEXT)], "alive\n")))
        .route("/readyz", get(ready))
        .fallback(unknown)
        .method_not_allowed_fallback(async |method: Method| {
            let why = format!("{method} is not understood here: GET is\n");
            (StatusCode::METHOD_NOT_ALLOWED, [(CONTENT_TYPE, TEXT)], why)
        })
        .with_state(shared);
    let stopped = async move { context.reached(Phase::Stopped).await };
    // It does not fail: accepting is tried again.
    let _ = axum::serve(Limited::new(listener), router).with_graceful_shutdown(stopped).await;
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    // It counts files and asks the scheduler: not for the threads that clients are heard on.
    let text = tokio::task::spawn_blocking(move || shared.context.metrics.text()).await;
    match text {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the figures cannot be read\n").into_response()
        }
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let (status, word) = match readiness(&shared).await {
        Ok(()) => (StatusCode::OK, "ready\n".to_string()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    };
    (status, [(CONTENT_TYPE, TEXT)], word).into_response()
}

async fn readiness(shared: &Shared) -> Result<(), &'static str> {
    const SILENT: &str = "the database does not answer";
    if shared.context.phase() != Phase::Running {
        return Err("the server is ending");
    }
    let Ok(asking) = Arc::clone(&shared.asking).try_acquire_owned() else {
        // Somebody else is asking right now: that is either short, or the answer.
        let asked = tokio::time::timeout(READY_TIMEOUT, shared.asking.acquire()).await;
        return asked.map(drop).map_err(|_| SILENT);
    };
    let engine = Arc::clone(&shared.context.engine);
    let question = tokio::task::spawn_blocking(move || {
        let _asking = asking;
        engine.database().refresh().map(drop)
    });
    match tokio::time::timeout(READY_TIMEOUT, question).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => {
            // What lies where is for the log, not for whoever asks.
            tracing::error!(error = format!("{error:#}"), "the database cannot be read");
            Err("the database cannot be read")
        }
        Ok(Err(_)) | Err(_) => Err(SILENT),
    }
}

async fn unknown(request: Request) -> Response {
    let path = request.uri().path();
    let shown: String = path.chars().take(100).collect();
    let text = format!("there is no {shown}; there is\n{PAGES}");
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, TEXT)], text).into_response()
}

#[cfg(test)]
mod tests;
