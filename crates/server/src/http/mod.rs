//! Metrics and health, for operators.

use std::sync::Arc;

use tokio::net::TcpListener;

use crate::context::{Context, Phase};

/// Accepts connections until the server drains; returns when the last of them has ended.
pub async fn serve(_listener: TcpListener, context: Arc<Context>) {
    context.reached(Phase::Draining).await;
}
