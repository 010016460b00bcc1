//! A statement of a client while it runs.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use thalweg_base::{Error, QueryId};

use crate::context::Context;
use crate::statement::{Protocol, Statement};

/// A statement while it runs; what is known of it at the end is told when this is dropped.
pub struct Running {
    context: Arc<Context>,
    protocol: Protocol,
    sql: String,
    user: String,
    began: SystemTime,
    since: Instant,
    pub query: Option<QueryId>,
    pub rows: u64,
    pub bytes: u64,
    pub error: Option<Error>,
}

impl Running {
    pub fn new(context: &Arc<Context>, protocol: Protocol, user: &str, sql: &str) -> Running {
        Running {
            context: Arc::clone(context),
            protocol,
            sql: thalweg_engine::access::redact(sql).into_owned(),
            user: user.into(),
            began: SystemTime::now(),
            since: Instant::now(),
            query: None,
            rows: 0,
            bytes: 0,
            error: None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.metrics.statement(&Statement {
            protocol: self.protocol,
            sql: &self.sql,
            user: &self.user,
            query: self.query,
            began: self.began,
            took: self.since.elapsed(),
            rows: self.rows,
            bytes: self.bytes,
            error: self.error.as_ref(),
            parent: None,
        });
    }
}
