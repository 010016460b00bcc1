//! The `thalweg` command: load files, run SQL, look inside a database, measure it.
//!
//! Reading order: [`commands`] (what each subcommand takes and does), [`statement`] (one SQL
//! statement from text to output), [`output`] (the formats), then the small parts they share:
//! [`catalog`], [`script`], [`calibration`], [`state`], [`progress`], [`interrupt`], [`failure`].

mod calibration;
mod catalog;
mod commands;
mod database;
mod failure;
mod interrupt;
mod output;
mod progress;
mod script;
mod state;
mod statement;

/// Batches are allocated on one thread and freed on another all day long: the case the system's
/// allocator is worst at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    match commands::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
