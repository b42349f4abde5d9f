//! The lifetime of an association: a number of packets and of bytes (RFC 4301 section 4.4.2.1). When the association
//! reaches a soft limit, this is reported once, so that the association can be replaced. A packet that would exceed a
//! hard limit does not pass.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limits of an association; `u64::MAX` means no limit. The bytes are the bytes of the inner packet in
/// `esp_encrypt`, and of the encrypted text in `esp_decrypt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The soft limit of packets. It is reported when this number of packets is reached.
    pub(crate) soft_packets: u64,
    /// The soft limit of bytes. It is reported when this number of bytes is reached.
    pub(crate) soft_bytes: u64,
    /// The largest number of packets.
    pub(crate) hard_packets: u64,
    /// The largest number of bytes.
    pub(crate) hard_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { soft_packets: u64::MAX, soft_bytes: u64::MAX, hard_packets: u64::MAX, hard_bytes: u64::MAX }
    }
}

/// The packets and bytes used so far. One worker writes them and other threads read them, so there are no
/// read-modify-write operations.
#[derive(Debug, Default)]
pub(crate) struct Used {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// True after a soft limit was reported.
    reported: AtomicBool,
}

impl Used {
    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if a packet of this number of bytes keeps to the hard limits.
    #[inline(always)]
    pub(crate) fn allows(&self, limits: &Limits, bytes: u64) -> bool {
        self.packets() < limits.hard_packets && self.bytes().saturating_add(bytes) <= limits.hard_bytes
    }

    /// Counts a packet. Returns true if it is the first packet that reaches a soft limit.
    #[inline(always)]
    pub(crate) fn count(&self, limits: &Limits, bytes: u64) -> bool {
        let (packets, bytes) = (self.packets() + 1, self.bytes().saturating_add(bytes));
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        (packets >= limits.soft_packets || bytes >= limits.soft_bytes) && !self.reported.swap(true, Ordering::Relaxed)
    }
}
