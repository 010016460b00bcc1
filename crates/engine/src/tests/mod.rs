//! Tests of parts below the engine that need one.

mod explained_pipelines;
mod query_log;
mod skipped_chunks;
mod spilled_joins;
