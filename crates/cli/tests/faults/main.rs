//! Failures around a running pipeline: interfaces, peers, readers, disks, files, and the end by `kill -9`. Each failure
//! is reported or counted, no packet is lost silently, and the pipeline recovers when the failure ends.

mod broken;
mod disks;
mod forebay;
mod interfaces;
mod killed;
mod memory;
mod namespaces;
mod readers;
mod states;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a guard that lets only one of these tests run at a time: each starts processes that use a whole core.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
