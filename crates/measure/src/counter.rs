//! Counters that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count, written by one thread only.
///
/// Adding is a plain load and store, no locked instruction: with a second writer increments would be lost, so a
/// counter belongs to one worker. Readers see some recent value.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts `n` more. Only the counter's one writer calls this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the count: for gauges. Only the counter's one writer calls this.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The count so far.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
