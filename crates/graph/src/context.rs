//! The context of a call: the time, the gate of each packet, and the packets that the function creates or holds.

use std::sync::Arc;

use forebay_measure::Counter;
use forebay_packet::{ArrivalClock, MAX_BATCH, Packet, Pool, WORDS, Word};
use forebay_units::Ticks;

use crate::fold::Branches;
use crate::gate::Gate;
use crate::shelf::{Key, Shelf};

/// Packets that a function created or released in one call, each with its gate.
pub(crate) type Emitted = Vec<(Packet, Gate)>;

/// The data that all calls of a worker's functions share. For each call, the engine takes a [context](Self::context),
/// moves the packets by the gates, and then [clears](Self::clear) the desk.
pub(crate) struct Desk {
    /// Whether the called function decided anything. Every decision, emission and wake-up request sets it. While it is
    /// false, all packets go to the function's first gate, and nothing else remains to do after the call.
    pub(crate) touched: bool,
    /// Whether the function reserved slots on its shelf. The desk frees the slots that the function did not use.
    promised: bool,
    /// The gate of the whole batch, as long as no packet has a gate of its own.
    all: Option<Gate>,
    /// The time. Read once a turn, and again when packets leave.
    pub(crate) now: Ticks,
    /// The instant at which the function requested to be woken. [`Ticks::NEVER`] without a request.
    pub(crate) wake: Ticks,
    /// Whether the run waits for the instant `wake`, although all sources are used up. The engine resets it when it
    /// sets the timer.
    pub(crate) keeps: bool,
    pub(crate) emitted: Emitted,
    pub(crate) pool: Pool,
    /// By module: the packets that its function holds.
    pub(crate) shelves: Vec<Shelf>,
    /// By module: the counters of its function's creation reasons.
    created: Vec<Arc<[Counter]>>,
    /// By index in the batch: the packet's gate. Valid only if `all` is `None`.
    gates: [Gate; MAX_BATCH],
}

impl Desk {
    pub(crate) fn new(pool: Pool, now: Ticks) -> Self {
        Self {
            touched: false,
            promised: false,
            all: Some(Gate::FIRST),
            now,
            wake: Ticks::NEVER,
            keeps: false,
            emitted: Emitted::with_capacity(MAX_BATCH),
            pool,
            shelves: Vec::new(),
            created: Vec::new(),
            gates: [Gate::FIRST; MAX_BATCH],
        }
    }

    /// Returns the context for a call of `module` on `len` packets. The desk must be [clear](Self::clear).
    #[inline]
    pub(crate) fn context<'a>(&'a mut self, module: usize, len: usize, branches: &'a [u32]) -> Context<'a> {
        Context { desk: self, module, len, branches: Branches(branches) }
    }

    /// Discards the decisions of the function of `module`, and frees the slots that it reserved but did not use. The
    /// engine has taken the emitted packets before.
    #[inline]
    pub(crate) fn clear(&mut self, module: usize) {
        if std::mem::take(&mut self.promised) {
            self.shelves[module].settle();
        }
        (self.touched, self.all, self.wake) = (false, Some(Gate::FIRST), Ticks::NEVER);
    }

    /// Puts the whole batch on one gate.
    #[inline]
    pub(crate) fn put_all(&mut self, gate: Gate) {
        (self.touched, self.all) = (true, Some(gate));
    }

    /// Returns the gate that all `len` packets of the batch share. `None` if their gates differ.
    #[inline]
    pub(crate) fn common_gate(&self, len: usize) -> Option<Gate> {
        self.all.or_else(|| {
            let gates = &self.gates[..len.min(MAX_BATCH)];
            if Gate::are_alike(gates) { gates.first().copied() } else { None }
        })
    }

    /// Returns the gate of the packet at `index` of the batch.
    pub(crate) fn gate(&self, index: usize) -> Gate {
        self.all.unwrap_or(self.gates[index % MAX_BATCH])
    }

    /// Returns the gates of the `len` packets of the batch in order, for writing, and the shelves of all modules. From
    /// then on each packet has a gate of its own.
    #[inline]
    pub(crate) fn each(&mut self, len: usize) -> (&mut [Gate], &mut [Shelf]) {
        self.touched = true;
        let gates = &mut self.gates[..len.min(MAX_BATCH)];
        if let Some(gate) = self.all.take() {
            gates.fill(gate);
        }
        (gates, &mut self.shelves)
    }

    /// Adds the next module. `created` are the counters of its function's creation reasons.
    pub(crate) fn add_module(&mut self, created: Arc<[Counter]>) {
        self.shelves.push(Shelf::default());
        self.created.push(created);
    }
}

/// The tools of a function during a call. Only through the context can a function select gates, and create, hold and
/// release packets.
///
/// A packet without a decision goes out through the first gate.
pub struct Context<'a> {
    desk: &'a mut Desk,
    module: usize,
    /// The number of packets in the batch.
    len: usize,
    branches: Branches<'a>,
}

impl<'a> Context<'a> {
    /// Returns a map from packets to branches. A folded function ([`Declare::FOLD`](crate::Declare::FOLD)) runs for
    /// several modules, and learns from this map in which of these modules a packet is.
    #[inline]
    #[must_use]
    pub fn branches(&self) -> Branches<'a> {
        self.branches
    }

    /// Returns the time at which the worker's turn began. If packets have left in this turn, returns the time at which
    /// they last left.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.desk.now
    }

    /// Requests that the worker [wakes](crate::Function::wake) the function at `instant`. If an earlier instant has
    /// already been requested, the function is woken at that instant instead.
    pub fn wake_at(&mut self, instant: Ticks) {
        self.desk.touched = true;
        self.desk.keeps = true;
        self.desk.wake = self.desk.wake.min(instant);
    }

    /// Requests a wake-up for housekeeping, for example to remove sessions that have ended. When all sources are used
    /// up, the run does not wait for this wake-up, unlike one that [`wake_at`](Self::wake_at) has requested.
    pub fn look_at(&mut self, instant: Ticks) {
        self.desk.touched = true;
        self.desk.wake = self.desk.wake.min(instant);
    }

    /// Puts the whole batch on one gate.
    #[inline]
    pub fn all(&mut self, gate: Gate) {
        self.desk.put_all(gate);
    }

    /// Sends the packets of `batch` for which `usual` is true through the first gate, and calls `otherwise` for the
    /// gate of each other packet. As long as all packets are usual, this is a single loop without other work.
    #[inline(always)]
    pub fn filter(
        &mut self,
        batch: &mut [Packet],
        usual: impl Fn(&mut Packet) -> bool,
        otherwise: impl Fn(&mut Packet) -> Gate,
    ) {
        let mut packets = batch.iter_mut();
        while let Some(packet) = packets.next() {
            if !usual(packet) {
                let first = self.len - 1 - packets.len();
                return self.filter_from(first, batch, usual, otherwise);
            }
        }
    }

    /// Processes the rest of a batch, from the first unusual packet on. This function is not inlined, so that the code
    /// for unusual packets does not slow down the common case.
    #[inline(never)]
    fn filter_from(
        &mut self,
        first: usize,
        batch: &mut [Packet],
        usual: impl Fn(&mut Packet) -> bool,
        otherwise: impl Fn(&mut Packet) -> Gate,
    ) {
        for (index, packet) in batch.iter_mut().enumerate().skip(first) {
            if index == first || !usual(packet) {
                let gate = otherwise(packet);
                if gate != Gate::FIRST {
                    self.put(index, gate);
                }
            }
        }
    }

    /// Returns the gates of the batch's packets in order, for writing. A packet has the first gate until the function
    /// changes it.
    #[inline]
    pub fn each(&mut self) -> &mut [Gate] {
        self.desk.each(self.len).0
    }

    /// Puts the packet at `index` of the batch on `gate`. The other packets keep their gates. Use this for the few
    /// packets of a batch that take another gate than the rest, for example for dropped packets.
    #[cold]
    #[inline(never)]
    pub fn put(&mut self, index: usize, gate: Gate) {
        if let Some(slot) = self.desk.each(self.len).0.get_mut(index) {
            *slot = gate;
        }
    }

    /// Makes the module hold the packet at `index` of the batch after the call, until the function calls
    /// [`release`](Self::release) with the returned key. The key is valid from the next call on. If the function later
    /// puts the packet on another gate in the same call, the packet is not held, and the key finds no packet.
    pub fn hold(&mut self, index: usize) -> Key {
        self.put(index, Gate::HOLD);
        (self.desk.touched, self.desk.promised) = (true, true);
        self.shelf().reserve(index)
    }

    /// Sends a held packet through `gate`, after this call's own packets. `gate` may also [drop](Gate::drop) or
    /// [consume](Gate::consume) the packet. Returns `false` if no packet is held under the key.
    pub fn release(&mut self, key: Key, gate: Gate) -> bool {
        let Some(packet) = self.shelf().take(key) else { return false };
        self.emit(packet, gate);
        true
    }

    /// Returns the packet that is held under `key`. `None` if no packet is held under it.
    pub fn held(&mut self, key: Key) -> Option<&mut Packet> {
        self.shelf().get(key)
    }

    /// Creates an empty packet that leaves through `gate` after this call's own packets. The packet takes the flow, the
    /// arrival time and the metadata words of `origin`. It is counted under `reason`, an index into
    /// [`Declare::CREATES`](crate::Declare::CREATES). Returns `None` if there is no such reason, or if the pool is
    /// exhausted. The pool counts the second case.
    pub fn create(&mut self, reason: usize, gate: Gate, origin: &Packet) -> Option<&mut Packet> {
        let mut packet = self.desk.pool.take()?;
        packet.set_flow(origin.flow());
        packet.set_arrival(origin.arrival(), origin.arrival_clock());
        // The new packet inherits the decisions about its origin: next hop, session, port of entry.
        for word in (0..WORDS).filter_map(Word::new) {
            packet.set_word(word, origin.word(word));
        }
        self.desk.created[self.module].get(reason)?.add(1);
        self.emit(packet, gate);
        self.desk.emitted.last_mut().map(|(packet, _)| packet)
    }

    /// Creates a packet without an origin packet, for a function that sends packets of its own. Its arrival time is
    /// [`now`](Self::now). `flow` is the flow word of an earlier packet. `reason` and the result are as in
    /// [`create`](Self::create).
    pub fn originate(&mut self, reason: usize, gate: Gate, flow: u32) -> Option<&mut Packet> {
        let mut packet = self.desk.pool.take()?;
        packet.set_flow(flow);
        packet.set_arrival(self.desk.now, ArrivalClock::Poll);
        self.desk.created[self.module].get(reason)?.add(1);
        self.emit(packet, gate);
        self.desk.emitted.last_mut().map(|(packet, _)| packet)
    }

    fn emit(&mut self, packet: Packet, gate: Gate) {
        self.desk.touched = true;
        self.desk.emitted.push((packet, gate));
    }

    fn shelf(&mut self) -> &mut Shelf {
        &mut self.desk.shelves[self.module]
    }
}
