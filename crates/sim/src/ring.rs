//! The rings between workers: FIFO queues of messages with a bounded capacity. A message holds one batch.

use std::collections::VecDeque;

use crate::queue::Bundle;
use crate::time::Picos;

/// The capacity of a ring is this many packets, or four of the largest batches if that is more. Each message needs
/// `WORDS` slots in addition to those of its packets. Both are as in the engine.
const PACKETS: u32 = 1_024;
const WORDS: u32 = 2;

/// A ring. Positions count all slots used since the start, so that the unused slots at the end of the ring are
/// accounted for as in the engine.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    messages: VecDeque<Message>,
    slots: u64,
    written: u64,
    read: u64,
    /// Empty bundles for reuse.
    spares: Vec<Bundle>,
}

#[derive(Clone, Debug)]
struct Message {
    at: Picos,
    bundle: Bundle,
    /// The position after the message.
    end: u64,
}

impl Ring {
    /// Creates a ring for batches of up to `batch` packets.
    pub(crate) fn new(batch: u32) -> Self {
        let packets = PACKETS.max(4 * batch);
        let slots = (packets + packets.div_ceil(batch) * WORDS).next_power_of_two();
        Self { messages: VecDeque::new(), slots: slots.into(), written: 0, read: 0, spares: Vec::new() }
    }

    /// Sends a batch. Returns `false`, and leaves the batch as it is, if the ring is full.
    pub(crate) fn send(&mut self, bundle: &mut Bundle, now: Picos) -> bool {
        let wanted = u64::from(bundle.packets + WORDS);
        let before_end = self.slots - self.written % self.slots;
        // A message is contiguous. A message that does not fit before the end of the ring goes to its start.
        let unused = if wanted <= before_end { 0 } else { before_end };
        let end = self.written + unused + wanted;
        if end - self.read > self.slots {
            return false;
        }
        self.written = end;
        let spare = self.spares.pop().unwrap_or_default();
        self.messages.push_back(Message { at: now, bundle: std::mem::replace(bundle, spare), end });
        true
    }

    /// Returns the time at which the next message was sent.
    pub(crate) fn sent_at(&self) -> Option<Picos> {
        self.messages.front().map(|message| message.at)
    }

    /// Takes the next message if it was sent by `now`.
    pub(crate) fn take(&mut self, now: Picos, into: &mut Bundle) -> bool {
        if self.sent_at().is_none_or(|at| at > now) {
            return false;
        }
        let Some(message) = self.messages.pop_front() else { return false };
        self.read = message.end;
        self.spares.push(std::mem::replace(into, message.bundle));
        true
    }

    /// Returns the number of packets on the ring.
    pub(crate) fn packets(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.bundle.packets)).sum()
    }
}
