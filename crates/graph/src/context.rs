//! What a function is given besides its batch: the time, and where to put each packet.

use std::sync::Arc;

use forebay_measure::Counter;
use forebay_packet::{ArrivalClock, MAX_BATCH, Packet, Pool, WORDS, Word};
use forebay_units::Ticks;

use crate::fold::Branches;
use crate::gate::Gate;
use crate::shelf::{Key, Shelf};

/// Packets that a function made or let go in one call, each with its gate.
pub(crate) type Emitted = Vec<(Packet, Gate)>;

/// What calls of a worker's functions share.
pub(crate) struct Desk {
    /// Whether the function that was called has decided anything: set by all that decides, emits or asks to be woken.
    /// While it is not, all packets go to the function's first gate, and there is nothing else to do after the call.
    pub(crate) touched: bool,
    /// Whether it has asked for places on its shelf: those that it did not use are taken back.
    promised: bool,
    /// The gate of the whole batch, while no packet has been decided on its own.
    all: Option<Gate>,
    /// The time, read once a turn and again when packets leave.
    pub(crate) now: Ticks,
    /// When the function wants to be woken.
    pub(crate) wake: Ticks,
    /// Whether the run waits for that.
    pub(crate) keeps: bool,
    pub(crate) emitted: Emitted,
    pub(crate) pool: Pool,
    /// By module: what its function holds.
    pub(crate) shelves: Vec<Shelf>,
    /// By module: the counters of its function's reasons to create packets.
    created: Vec<Arc<[Counter]>>,
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

    /// What a call of `module` on `len` packets is given, the desk being [clear](Self::clear).
    #[inline]
    pub(crate) fn context<'a>(&'a mut self, module: usize, len: usize, branches: &'a [u32]) -> Context<'a> {
        Context { desk: self, module, len, branches: Branches(branches) }
    }

    /// Forgets what the function of `module` decided.
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

    /// The gate that all `len` packets of the batch share, where there is one.
    #[inline]
    pub(crate) fn common_gate(&self, len: usize) -> Option<Gate> {
        self.all.or_else(|| {
            let gates = &self.gates[..len.min(MAX_BATCH)];
            if Gate::are_alike(gates) { gates.first().copied() } else { None }
        })
    }

    /// The gate of the packet at `index` of the batch.
    pub(crate) fn gate(&self, index: usize) -> Gate {
        self.all.unwrap_or(self.gates[index % MAX_BATCH])
    }

    /// The gates of the batch's packets, one each in order, to be written; and the shelves.
    #[inline]
    pub(crate) fn each(&mut self, len: usize) -> (&mut [Gate], &mut [Shelf]) {
        self.touched = true;
        let gates = &mut self.gates[..len.min(MAX_BATCH)];
        if let Some(gate) = self.all.take() {
            gates.fill(gate);
        }
        (gates, &mut self.shelves)
    }

    /// A place for the next module, whose function counts what it creates here.
    pub(crate) fn add_module(&mut self, created: Arc<[Counter]>) {
        self.shelves.push(Shelf::default());
        self.created.push(created);
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
    branches: Branches<'a>,
}

impl<'a> Context<'a> {
    /// Which of the modules that it runs for packets are in, for a function that was made of several
    /// ([`Declare::FOLD`](crate::Declare::FOLD)).
    #[inline]
    #[must_use]
    pub fn branches(&self) -> Branches<'a> {
        self.branches
    }

    /// The time: when the worker's turn began, or packets last left in it.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.desk.now
    }

    /// Asks that the function be [woken](crate::Function::wake) at `instant`, or earlier where it has asked before.
    pub fn wake_at(&mut self, instant: Ticks) {
        self.desk.touched = true;
        self.desk.keeps = true;
        self.desk.wake = self.desk.wake.min(instant);
    }

    /// The same for housekeeping, such as the removal of sessions that have ended: a run whose sources are used up does
    /// not wait for it.
    pub fn look_at(&mut self, instant: Ticks) {
        self.desk.touched = true;
        self.desk.wake = self.desk.wake.min(instant);
    }

    /// Puts the whole batch on one gate.
    #[inline]
    pub fn all(&mut self, gate: Gate) {
        self.desk.put_all(gate);
    }

    /// Lets the packets of `batch` for which `usual` is true go on through the first gate; the others are asked for
    /// their gates one by one. As long as all are usual, this is a loop and nothing else.
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

    /// The rest of a batch, from the first packet that is not usual on: out of line, so that what it needs does not
    /// burden the other.
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

    /// The gates of the batch's packets, one each in order, to be written: all on the first gate until then.
    #[inline]
    pub fn each(&mut self) -> &mut [Gate] {
        self.desk.each(self.len).0
    }

    /// Puts the packet at `index` of the batch on `gate`, the others staying where they are. Meant for the few packets
    /// that go another way than the rest, as those that are dropped do.
    #[cold]
    #[inline(never)]
    pub fn put(&mut self, index: usize, gate: Gate) {
        if let Some(slot) = self.desk.each(self.len).0.get_mut(index) {
            *slot = gate;
        }
    }

    /// Keeps the packet at `index` of the batch in the module when the call returns. It stays the module's until the
    /// function [`release`](Self::release)s it by the key given here.
    pub fn hold(&mut self, index: usize) -> Key {
        self.put(index, Gate::HOLD);
        (self.desk.touched, self.desk.promised) = (true, true);
        self.shelf().reserve(index)
    }

    /// Sends a held packet on through `gate` (a drop or a consumption is a gate too), after this call's own packets;
    /// `false` where no packet is held under the key.
    pub fn release(&mut self, key: Key, gate: Gate) -> bool {
        let Some(packet) = self.shelf().take(key) else { return false };
        self.emit(packet, gate);
        true
    }

    /// The held packet under `key`.
    pub fn held(&mut self, key: Key) -> Option<&mut Packet> {
        self.shelf().get(key)
    }

    /// A new, empty packet, on the flow and with the arrival time and the metadata words of `origin`, that leaves through
    /// `gate` after this call's own packets; counted under the function's declared creation `reason`. `None` where the pool
    /// is exhausted (counted by the pool).
    pub fn create(&mut self, reason: usize, gate: Gate, origin: &Packet) -> Option<&mut Packet> {
        let mut packet = self.desk.pool.take()?;
        packet.set_flow(origin.flow());
        packet.set_arrival(origin.arrival(), origin.arrival_clock());
        // What was decided of the packet holds of what is made of it: its next hop, its session, where it came from.
        for word in (0..WORDS).filter_map(Word::new) {
            packet.set_word(word, origin.word(word));
        }
        self.desk.created[self.module].get(reason)?.add(1);
        self.emit(packet, gate);
        self.desk.emitted.last_mut().map(|(packet, _)| packet)
    }

    /// The same of the function's own accord, when no packet has come that it belongs to: on `flow`, which is that of a packet
    /// which came before, and arrived now.
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
