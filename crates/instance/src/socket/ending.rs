//! Clients that wait for the end of the run.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::lines::Lines;
use super::values::Ended;

/// How often it is looked whether the client is still there.
const LOOK: Duration = Duration::from_millis(50);
/// How long the run's end waits for those that are to be told of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The end of a run, once it is there.
#[derive(Default)]
pub struct Ending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ended: Option<Ended>,
    /// Connections that wait, or are being told.
    waiting: usize,
}

impl Ending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end until `tell` has told of it, or the client has gone.
    pub(super) fn wait(&self, lines: &mut Lines<'_>, tell: impl FnOnce(Ended) -> io::Result<()>) -> io::Result<()> {
        self.state().waiting += 1;
        // Leaves also where the client does.
        let _waiting = Waiting(self);
        loop {
            let state = self.state();
            if let Some(ended) = state.ended.clone() {
                drop(state);
                return tell(ended);
            }
            drop(self.changed.wait_timeout(state, LOOK));
            if lines.is_over()? {
                return Ok(());
            }
        }
    }

    /// Tells those that wait how the run ended. They have a second to take it.
    pub fn announce(&self, ended: Ended) {
        let mut state = self.state();
        state.ended = Some(ended);
        self.changed.notify_all();
        let until = Instant::now() + PATIENCE;
        while state.waiting > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct Waiting<'e>(&'e Ending);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
        self.0.changed.notify_all();
    }
}
