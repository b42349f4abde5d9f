//! The rings between workers: messages of a batch each, in their order, with room for so much.

use std::collections::VecDeque;

use crate::queue::Bundle;
use crate::time::Picos;

/// Packets that a ring has room for, or four of the largest batches; and what a message takes besides: as the engine's.
const PACKETS: u32 = 1_024;
const WORDS: u32 = 2;

/// A ring. Its slots are told by how many were used before, so that what is left unused at its end counts as in the engine's.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    messages: VecDeque<Message>,
    slots: u64,
    written: u64,
    read: u64,
    /// Bundles to be used again.
    spares: Vec<Bundle>,
}

#[derive(Clone, Debug)]
struct Message {
    at: Picos,
    bundle: Bundle,
    /// The slot after it.
    end: u64,
}

impl Ring {
    /// For batches of up to `batch` packets.
    pub(crate) fn new(batch: u32) -> Self {
        let packets = PACKETS.max(4 * batch);
        let slots = (packets + packets.div_ceil(batch) * WORDS).next_power_of_two();
        Self { messages: VecDeque::new(), slots: slots.into(), written: 0, read: 0, spares: Vec::new() }
    }

    /// Sends a batch; `false`, and the batch left as it is, where there is no room.
    pub(crate) fn send(&mut self, bundle: &mut Bundle, now: Picos) -> bool {
        let wanted = u64::from(bundle.packets + WORDS);
        let before_end = self.slots - self.written % self.slots;
        // A message is in one piece: what does not fit before the end goes to the start.
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

    /// When the next message was sent.
    pub(crate) fn sent_at(&self) -> Option<Picos> {
        self.messages.front().map(|message| message.at)
    }

    /// Takes the next message, where it was sent by `now`.
    pub(crate) fn take(&mut self, now: Picos, into: &mut Bundle) -> bool {
        if self.sent_at().is_none_or(|at| at > now) {
            return false;
        }
        let Some(message) = self.messages.pop_front() else { return false };
        self.read = message.end;
        self.spares.push(std::mem::replace(into, message.bundle));
        true
    }

    /// How many packets are on their way.
    pub(crate) fn packets(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.bundle.packets)).sum()
    }
}
