//! What a function is given besides its batch: the time, and where to put each packet.

use std::sync::Arc;

use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet, Pool, Ticks};

use crate::gate::Gate;
use crate::shelf::{Key, Shelf};

/// Packets that a function made or let go in one call, each with its gate.
pub(crate) type Emitted = Vec<(Packet, Gate)>;

/// The verdicts on one batch.
pub(crate) struct Verdicts {
    /// The gate of the whole batch, while no packet has been decided on its own.
    all: Option<Gate>,
    gates: [Gate; MAX_BATCH],
}

impl Verdicts {
    fn new() -> Self {
        Self { gates: [Gate::FIRST; MAX_BATCH], all: Some(Gate::FIRST) }
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

    /// The gate that all `len` packets of the batch share, where there is one.
    #[inline]
    pub(crate) fn common(&self, len: usize) -> Option<Gate> {
        self.all.or_else(|| {
            let gates = &self.gates[..len.min(MAX_BATCH)];
            if Gate::are_alike(gates) { gates.first().copied() } else { None }
        })
    }

    /// The gates of the batch's packets, one each in order, to be written.
    #[inline]
    pub(crate) fn each(&mut self, len: usize) -> &mut [Gate] {
        let gates = &mut self.gates[..len.min(MAX_BATCH)];
        if let Some(gate) = self.all.take() {
            gates.fill(gate);
        }
        gates
    }
}

/// What calls of a worker's functions share.
pub(crate) struct Desk {
    pub(crate) verdicts: Verdicts,
    /// The time, read once a turn.
    pub(crate) now: Ticks,
    /// When the function that is being called wants to be woken.
    pub(crate) wake: Ticks,
    pub(crate) emitted: Emitted,
    pub(crate) pool: Pool,
    /// By module: what its function holds.
    pub(crate) shelves: Vec<Shelf>,
    /// By module: the counters of its function's reasons to create packets.
    pub(crate) created: Vec<Arc<[Counter]>>,
}

impl Desk {
    pub(crate) fn new(pool: Pool, now: Ticks) -> Self {
        Self {
            verdicts: Verdicts::new(),
            now,
            wake: Ticks::NEVER,
            emitted: Emitted::with_capacity(MAX_BATCH),
            pool,
            shelves: Vec::new(),
            created: Vec::new(),
        }
    }

    /// A place for the next module, whose function counts what it creates here.
    pub(crate) fn add_module(&mut self, created: Arc<[Counter]>) {
        self.shelves.push(Shelf::default());
        self.created.push(created);
    }

    /// What a call of `module` on `len` packets is given.
    #[inline]
    pub(crate) fn context(&mut self, module: usize, len: usize) -> Context<'_> {
        self.verdicts.reset();
        self.wake = Ticks::NEVER;
        Context { desk: self, module, len }
    }
}

/// A call's surroundings. A function decides where packets go, and can create, hold and release packets, only here.
///
/// What is not decided goes out through the first gate.
pub struct Context<'a> {
    desk: &'a mut Desk,
    module: usize,
    /// Packets in the batch.
    len: usize,
}

impl Context<'_> {
    /// The time, read once for the worker's turn.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.desk.now
    }

    /// Asks that the function be [woken](crate::Function::wake) at `instant`, or earlier where it has asked before.
    pub fn wake_at(&mut self, instant: Ticks) {
        self.desk.wake = self.desk.wake.min(instant);
    }

    /// Puts the whole batch on one gate.
    #[inline]
    pub fn all(&mut self, gate: Gate) {
        self.desk.verdicts.set_all(gate);
    }

    /// The gates of the batch's packets, one each in order, to be written: all on the first gate until then.
    #[inline]
    pub fn each(&mut self) -> &mut [Gate] {
        self.desk.verdicts.each(self.len)
    }

    /// Puts the packet at `index` of the batch on `gate`, the others staying where they are. Meant for the few packets
    /// that go another way than the rest, as those that are dropped do.
    #[cold]
    #[inline(never)]
    pub fn put(&mut self, index: usize, gate: Gate) {
        if let Some(slot) = self.desk.verdicts.each(self.len).get_mut(index) {
            *slot = gate;
        }
    }

    /// Keeps the packet at `index` of the batch in the module when the call returns. It stays the module's until the
    /// function [`release`](Self::release)s it by the key given here.
    pub fn hold(&mut self, index: usize) -> Key {
        self.put(index, Gate::HOLD);
        self.shelf().reserve(index)
    }

    /// Sends a held packet on through `gate` (a drop or a consumption is a gate too), after this call's own packets;
    /// `false` where no packet is held under the key.
    pub fn release(&mut self, key: Key, gate: Gate) -> bool {
        let Some(packet) = self.shelf().take(key) else { return false };
        self.desk.emitted.push((packet, gate));
        true
    }

    /// The held packet under `key`.
    pub fn held(&mut self, key: Key) -> Option<&mut Packet> {
        self.shelf().get(key)
    }

    /// A new, empty packet, on the flow and with the arrival time of `origin`, that leaves through `gate` after this
    /// call's own packets; counted under the function's declared creation `reason`. `None` where the pool is
    /// exhausted (counted by the pool).
    pub fn create(&mut self, reason: usize, gate: Gate, origin: &Packet) -> Option<&mut Packet> {
        let mut packet = self.desk.pool.take()?;
        packet.set_flow(origin.flow());
        packet.set_arrival(origin.arrival(), origin.arrival_clock());
        self.desk.created[self.module].get(reason)?.add(1);
        self.desk.emitted.push((packet, gate));
        self.desk.emitted.last_mut().map(|(packet, _)| packet)
    }

    fn shelf(&mut self) -> &mut Shelf {
        &mut self.desk.shelves[self.module]
    }
}
