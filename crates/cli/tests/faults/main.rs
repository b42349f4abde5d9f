//! What goes wrong around a running pipeline: interfaces, peers, readers, disks, files, and the end by `kill -9`. All of it is
//! said or counted, nothing is lost silently, and it is over when it is over.

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

/// One of these tests at a time: each has processes that take a core.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
