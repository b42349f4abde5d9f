//! Who is connected: so many at the most, and none that says nothing keeps another out.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::lines::Patience;

/// How many connections there may be at once.
pub(super) const MOST_CONNECTIONS: usize = 64;

/// The connections that are open.
#[derive(Default)]
pub(super) struct Connections(Mutex<Vec<Arc<Connection>>>);

/// One of them.
pub(super) struct Connection {
    stream: UnixStream,
    /// Since when it has been waited for the client to say something.
    waiting: Mutex<Option<Instant>>,
    /// Whether it has asked anything yet.
    asked: AtomicBool,
    /// Whether its place was given to another.
    displaced: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    /// A place for a new connection; `None` where all are at work. One that has waited longest, and long enough, makes room.
    pub(super) fn enter(&self, stream: UnixStream, patience: Patience) -> Option<Arc<Connection>> {
        let mut all = lock(&self.0);
        if all.len() >= MOST_CONNECTIONS {
            let longest = all.iter().enumerate().filter_map(|(at, it)| Some((it.is_spare(patience)?, at))).min()?.1;
            let spare = all.swap_remove(longest);
            spare.displaced.store(true, Ordering::Relaxed);
            // Its thread finds that nothing more comes.
            let _ = spare.stream.shutdown(Shutdown::Read);
        }
        let waiting = Mutex::new(Some(Instant::now()));
        let (asked, displaced) = (AtomicBool::new(false), AtomicBool::new(false));
        let new = Arc::new(Connection { stream, waiting, asked, displaced });
        all.push(Arc::clone(&new));
        Some(new)
    }

    pub(super) fn leave(&self, connection: &Arc<Connection>) {
        lock(&self.0).retain(|known| !Arc::ptr_eq(known, connection));
    }
}

impl Connection {
    /// Since when it has been waited for the client, where that is long enough for others to be let in instead. Those that
    /// have never asked go first.
    fn is_spare(&self, patience: Patience) -> Option<(bool, Instant)> {
        let asked = self.asked.load(Ordering::Relaxed);
        let least = if asked { patience.asked } else { patience.silent };
        lock(&self.waiting).filter(|since| since.elapsed() >= least).map(|since| (asked, since))
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn set_waiting(&self, waiting: bool) {
        *lock(&self.waiting) = waiting.then(Instant::now);
    }

    pub(super) fn note_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Why nothing more comes from it, where that is not the client's doing.
    pub(super) fn why_over(&self) -> Option<&'static str> {
        let displaced = self.displaced.load(Ordering::Relaxed);
        displaced.then_some("others needed the connection, which had asked nothing for a while: connect again")
    }
}
