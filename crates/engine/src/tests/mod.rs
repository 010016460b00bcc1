//! Tests of parts below the engine that need one.

mod estimates;
mod explained_pipelines;
mod query_log;
mod random_queries;
mod skipped_chunks;
mod spilled;
