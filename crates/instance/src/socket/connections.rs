//! The open connections. Their number is limited, and a new connection can displace an idle one.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::lines::Patience;

/// The largest number of open connections.
pub(super) const MOST_CONNECTIONS: usize = 64;

/// The open connections.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<Arc<Connection>>>);

/// An open connection.
pub(super) struct Connection {
    stream: UnixStream,
    /// When the server began to wait for the client; `None` while the server carries out a request.
    waiting: Mutex<Option<Instant>>,
    /// Whether the client has sent a request.
    has_requested: AtomicBool,
    /// Whether the connection was displaced by another one.
    displaced: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    /// Adds a new connection. If there are [`MOST_CONNECTIONS`] already, it displaces a connection that has been idle
    /// long enough. Returns `None` if there is no such connection. Connections without any request are displaced
    /// first, and of those of one kind the one that has been idle longest. The caller must call [`leave`](Self::leave)
    /// at the end.
    pub(super) fn enter(&self, stream: UnixStream, patience: Patience) -> Option<Arc<Connection>> {
        let mut all = lock(&self.0);
        if all.len() >= MOST_CONNECTIONS {
            let longest =
                all.iter().enumerate().filter_map(|(index, open)| Some((open.is_spare(patience)?, index))).min()?.1;
            let spare = all.swap_remove(longest);
            spare.displaced.store(true, Ordering::Relaxed);
            // The connection's thread reads the end of the stream, and ends the connection.
            let _ = spare.stream.shutdown(Shutdown::Read);
        }
        let waiting = Mutex::new(Some(Instant::now()));
        let (has_requested, displaced) = (AtomicBool::new(false), AtomicBool::new(false));
        let new = Arc::new(Connection { stream, waiting, has_requested, displaced });
        all.push(Arc::clone(&new));
        Some(new)
    }

    /// Removes a connection. A displaced connection has been removed already.
    pub(super) fn leave(&self, connection: &Arc<Connection>) {
        lock(&self.0).retain(|known| !Arc::ptr_eq(known, connection));
    }
}

impl Connection {
    /// Returns the start of the idle time if the connection has been idle long enough to be displaced. The result is an
    /// order: the least is displaced first, and connections without any request are less than all others.
    fn is_spare(&self, patience: Patience) -> Option<(bool, Instant)> {
        let has_requested = self.has_requested.load(Ordering::Relaxed);
        let least = if has_requested { patience.idle } else { patience.silent };
        lock(&self.waiting).filter(|since| since.elapsed() >= least).map(|since| (has_requested, since))
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Records whether the server waits for the client from now on.
    pub(super) fn set_waiting(&self, waiting: bool) {
        *lock(&self.waiting) = waiting.then(Instant::now);
    }

    /// Records that the client has sent a request.
    pub(super) fn note_request(&self) {
        self.has_requested.store(true, Ordering::Relaxed);
    }

    /// Returns why the server ended the connection; `None` if the client ended it.
    pub(super) fn why_over(&self) -> Option<&'static str> {
        let displaced = self.displaced.load(Ordering::Relaxed);
        displaced.then_some("the server closed this idle connection to accept another client: connect again")
    }
}
