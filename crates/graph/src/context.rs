//! What a function is given besides its batch: the time, and where to put each packet.

use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet, Pool, Ticks};

use crate::gate::Gate;
use crate::shelf::{Key, Shelf};

/// Packets that a function made or let go in one call, each with its gate.
pub(crate) type Emitted = Vec<(Packet, Gate)>;

/// The verdicts on one batch.
pub(crate) struct Verdicts {
    gates: Box<[Gate; MAX_BATCH]>,
    /// The gate of the whole batch, while no packet has been decided on its own.
    all: Option<Gate>,
}

impl Verdicts {
    pub(crate) fn new() -> Self {
        Self { gates: Box::new([Gate::FIRST; MAX_BATCH]), all: Some(Gate::FIRST) }
    }

    /// Forgets the last batch: until told otherwise, everything goes to the first gate.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.all = Some(Gate::FIRST);
    }

    /// Puts the whole batch on one gate.
    #[inline]
    pub(crate) fn set_all(&mut self, gate: Gate) {
        self.all = Some(gate);
    }

    /// The gate of the whole batch, where there is one.
    #[inline]
    pub(crate) fn all(&self) -> Option<Gate> {
        self.all
    }

    /// Each packet's gate, where they were decided one by one.
    #[inline]
    pub(crate) fn gates(&self) -> &[Gate; MAX_BATCH] {
        &self.gates
    }

    #[inline]
    fn each(&mut self, len: usize) -> &mut [Gate] {
        let len = len.min(MAX_BATCH);
        if let Some(gate) = self.all.take() {
            self.gates[..len].fill(gate);
        }
        &mut self.gates[..len]
    }
}

/// A call's surroundings. A function decides where packets go, and can create, hold and release packets, only here.
///
/// What is not decided goes out through the first gate.
pub struct Context<'a> {
    pub(crate) now: Ticks,
    /// Packets in the batch.
    pub(crate) len: usize,
    /// When the function wants to be woken.
    pub(crate) wake: Ticks,
    pub(crate) verdicts: &'a mut Verdicts,
    pub(crate) emitted: &'a mut Emitted,
    pub(crate) created: &'a [Counter],
    pub(crate) shelf: &'a mut Shelf,
    pub(crate) pool: &'a Pool,
}

impl Context<'_> {
    /// The time, read once for the worker's turn.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.now
    }

    /// Asks that the function be [woken](crate::Function::wake) at `instant`, or earlier where it has asked before.
    pub fn wake_at(&mut self, instant: Ticks) {
        self.wake = self.wake.min(instant);
    }

    /// Puts the whole batch on one gate.
    #[inline]
    pub fn all(&mut self, gate: Gate) {
        self.verdicts.set_all(gate);
    }

    /// The gates of the batch's packets, one each in order, to be written: all on the first gate until then.
    #[inline]
    pub fn each(&mut self) -> &mut [Gate] {
        self.verdicts.each(self.len)
    }

    /// Puts the packet at `index` of the batch on `gate`, the others staying where they are.
    #[inline]
    pub fn put(&mut self, index: usize, gate: Gate) {
        if let Some(slot) = self.verdicts.each(self.len).get_mut(index) {
            *slot = gate;
        }
    }

    /// Keeps the packet at `index` of the batch in the module when the call returns. It stays the module's until the
    /// function [`release`](Self::release)s it by the key given here.
    pub fn hold(&mut self, index: usize) -> Key {
        self.put(index, Gate::HOLD);
        self.shelf.reserve(index)
    }

    /// Sends a held packet on through `gate` (a drop or a consumption is a gate too), after this call's own packets;
    /// `false` where no packet is held under the key.
    pub fn release(&mut self, key: Key, gate: Gate) -> bool {
        let Some(packet) = self.shelf.take(key) else { return false };
        self.emitted.push((packet, gate));
        true
    }

    /// The held packet under `key`.
    pub fn held(&mut self, key: Key) -> Option<&mut Packet> {
        self.shelf.get(key)
    }

    /// A new, empty packet, on the flow and with the arrival time of `origin`, that leaves through `gate` after this
    /// call's own packets; counted under the function's declared creation `reason`. `None` where the pool is
    /// exhausted (counted by the pool).
    pub fn create(&mut self, reason: usize, gate: Gate, origin: &Packet) -> Option<&mut Packet> {
        let mut packet = self.pool.take()?;
        packet.set_flow(origin.flow());
        packet.set_arrival(origin.arrival(), origin.arrival_clock());
        self.created.get(reason)?.add(1);
        self.emitted.push((packet, gate));
        self.emitted.last_mut().map(|(packet, _)| packet)
    }
}
