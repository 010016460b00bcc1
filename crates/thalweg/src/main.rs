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
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
mod processor;
mod progress;
mod script;
mod state;
mod statement;

use thalweg_engine::runtime::{Allocator, allocate_with};

/// Batches are allocated on one thread and freed on another all day long: the case the system's
/// allocator is worst at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the allocator keeps memory that was freed before the system gets it back. A query wants as
/// much again as the one before it, and pages that come back from the system are cleared first: a
/// fifth of the time of queries that hold much, at the allocator's own second.
const KEPT_MS: std::ffi::c_long = 10_000;

/// The same where there is little memory.
const KEPT_BRIEFLY_MS: std::ffi::c_long = 100;

/// mimalloc's number for the option, in its versions 2 and 3.
const PURGE_DELAY: std::ffi::c_int = 15;

unsafe extern "C" {
    safe fn mi_option_set_default(option: std::ffi::c_int, value: std::ffi::c_long);
    safe fn mi_collect(force: bool);
}

/// Unless MIMALLOC_PURGE_DELAY says for how long.
fn keep_freed_memory(long: bool) {
    mi_option_set_default(PURGE_DELAY, if long { KEPT_MS } else { KEPT_BRIEFLY_MS });
}

fn main() -> std::process::ExitCode {
    keep_freed_memory(true);
    allocate_with(Allocator { trim: || mi_collect(true), keep: keep_freed_memory });
    match commands::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
