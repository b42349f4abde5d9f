//! How long an association may be used: so many packets and so many bytes (RFC 4301 section 4.4.2.1). Near the end it is
//! told once, so that somebody sees to another; at the end nothing passes any more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Limits; `u64::MAX` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) soft_packets: u64,
    pub(crate) soft_bytes: u64,
    pub(crate) hard_packets: u64,
    pub(crate) hard_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { soft_packets: u64::MAX, soft_bytes: u64::MAX, hard_packets: u64::MAX, hard_bytes: u64::MAX }
    }
}

/// What has been used. One worker writes it, others read it: there are no read-modify-write operations.
#[derive(Debug, Default)]
pub(crate) struct Used {
    packets: AtomicU64,
    bytes: AtomicU64,
    told: AtomicBool,
}

impl Used {
    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a packet of so many bytes may still pass.
    #[inline(always)]
    pub(crate) fn allows(&self, limits: &Limits, bytes: u64) -> bool {
        self.packets() < limits.hard_packets && self.bytes().saturating_add(bytes) <= limits.hard_bytes
    }

    /// Counts a packet; whether a soft limit has been reached with it, for the first time.
    #[inline(always)]
    pub(crate) fn count(&self, limits: &Limits, bytes: u64) -> bool {
        let (packets, bytes) = (self.packets() + 1, self.bytes().saturating_add(bytes));
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        (packets >= limits.soft_packets || bytes >= limits.soft_bytes) && !self.told.swap(true, Ordering::Relaxed)
    }
}
