//! Clients that wait for the end of the run.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_protocol::response::Ended;

use super::lines::Lines;

/// The interval at which the server checks whether the client has disconnected.
const LOOK: Duration = Duration::from_millis(50);
/// The time that waiting clients have to read the response at the end of the run.
const PATIENCE: Duration = Duration::from_secs(1);

/// The end of a run, and the clients that wait for it. The owner of the run must call [`announce`](Self::announce)
/// before the process ends.
#[derive(Default)]
pub struct Ending {
    state: Mutex<State>,
    /// Notified when the run has ended, and when a connection no longer waits.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The end of the run; `None` before it.
    ended: Option<Ended>,
    /// The number of connections that wait for the end of the run, or whose response is being sent.
    waiting: usize,
}

impl Ending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the end of the run and sends it, or until the client disconnects.
    pub(super) fn wait(&self, lines: &mut Lines<'_>, send: impl FnOnce(Ended) -> io::Result<()>) -> io::Result<()> {
        // Counts the connection down in every case.
        let _waiting = self.delay();
        loop {
            let state = self.state();
            if let Some(ended) = state.ended.clone() {
                drop(state);
                return send(ended);
            }
            drop(self.changed.wait_timeout(state, LOOK));
            if lines.is_over()? {
                return Ok(());
            }
        }
    }

    /// Delays the end of the run until the returned guard is dropped: the connection must still send a response.
    pub(super) fn delay(&self) -> Waiting<'_> {
        self.state().waiting += 1;
        Waiting(self)
    }

    /// Sends the end of the run to the waiting clients. Waits until they, and the clients of other requests that
    /// [delay](Self::delay) the end, have their response, at most for a second.
    pub fn announce(&self, ended: Ended) {
        let mut state = self.state();
        state.ended = Some(ended);
        self.changed.notify_all();
        let until = Instant::now() + PATIENCE;
        while state.waiting > 0 {
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Counts a waiting connection, also if its thread panics.
pub(super) struct Waiting<'e>(&'e Ending);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
        self.0.changed.notify_all();
    }
}
