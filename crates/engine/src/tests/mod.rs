//! Tests of parts below the engine that need one.

mod query_log;
