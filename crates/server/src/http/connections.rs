//! Bounds the number of open connections. If there are too many, the one that has been silent longest is closed, so
//! that clients that open connections and send nothing cannot lock others out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
    /// Counts the uses of all connections. The number of a connection's last use shows how long it has been
    /// silent.
    uses: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: BTreeMap<u64, Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// The number of the last use.
    used: AtomicU64,
    close: Notify,
}

/// An open connection. It is counted until the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    entry: Arc<Entry>,
    connections: Arc<Connections>,
    _counted: Arc<Counted>,
}

#[derive(Debug)]
struct Counted {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default(), uses: AtomicU64::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. If there are too many, closes the one that has been silent longest.
    pub(super) fn enter(self: &Arc<Self>) -> Slot {
        let entry = Arc::new(Entry { used: AtomicU64::new(self.use_number()), close: Notify::new() });
        let mut open = self.lock();
        if open.all.len() >= self.most {
            let oldest = open.all.iter().min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
            if let Some(number) = oldest.map(|(number, _)| *number)
                && let Some(oldest) = open.all.remove(&number)
            {
                oldest.close.notify_one();
            }
        }
        let number = open.next;
        open.next += 1;
        open.all.insert(number, Arc::clone(&entry));
        drop(open);
        Slot {
            entry,
            connections: Arc::clone(self),
            _counted: Arc::new(Counted { number, connections: Arc::clone(self) }),
        }
    }

    fn use_number(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }
}

impl Slot {
    /// Records that the client has sent or read something.
    pub(super) fn touch(&self) {
        self.entry.used.store(self.connections.use_number(), Ordering::Relaxed);
    }

    /// Returns when the connection must be closed because another one needs its room.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let entry = Arc::clone(&self.entry);
        async move { entry.close.notified().await }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_connection_that_was_silent_longest_is_closed() {
        let connections = Connections::new(2);
        let first = connections.enter();
        let second = connections.enter();
        first.touch();
        let _third = connections.enter();
        second.closed().await;
        assert_eq!(connections.lock().all.len(), 2);
        drop((first, second));
        assert_eq!(connections.lock().all.len(), 1);
    }
}
