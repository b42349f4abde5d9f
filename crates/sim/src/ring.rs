//! The rings between workers: FIFO queues of messages with a bounded capacity. A message holds one batch.

use std::collections::VecDeque;

use crate::queue::Bundle;
use crate::time::Picos;

/// Filled with batches of the largest size, a ring has room for at least this number of packets, or for four such
/// batches if these are more packets (as in the engine).
const PACKETS: u32 = 1_024;
/// The number of slots that a message needs in addition to one slot per packet, as in the engine.
const WORDS: u32 = 2;

/// A ring. A position is the number of slots used since the start, including slots that stay empty at the end of the
/// ring because the next message does not fit there. The ring is thus full exactly when the engine's ring is full.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// The messages that were sent and not taken yet, the oldest first.
    messages: VecDeque<Message>,
    /// The number of slots, a power of two.
    slots: u64,
    /// The position after the last message that was sent.
    written: u64,
    /// The position after the last message that was taken.
    read: u64,
    /// Empty bundles for reuse.
    spares: Vec<Bundle>,
}

#[derive(Clone, Debug)]
struct Message {
    /// The time at which the message was sent.
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

    /// Sends a batch and leaves it empty. If the ring is full, returns `false` and does not change the batch.
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

    /// Returns the time at which the next message was sent. `None` if the ring is empty.
    pub(crate) fn sent_at(&self) -> Option<Picos> {
        self.messages.front().map(|message| message.at)
    }

    /// Moves the batch of the next message into the empty `into`. Returns `false` if no message was sent until `now`.
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
