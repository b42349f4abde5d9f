//! Backpressure: an overloaded module stops the ports that feed it, or the chain that leads to it (NFVnice section
//! 3.3).
//!
//! Only ports and the starts of chains are stopped, never a module in between. Packets that have entered can always go
//! on. So every overload ends, and no module waits for itself. A queue can exceed its high mark only by the packets
//! that were already on their way.

use crate::scheduler::{Topology, WhenFull};

/// A module's marks, in packets.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The module becomes overloaded when at least this number of packets waits.
    high: u32,
    /// The overload ends when at most this number of packets waits.
    low: u32,
    when_full: WhenFull,
}

/// The overloaded modules, and the ports and chains that they stop.
#[derive(Debug)]
pub(super) struct Pressure {
    /// By module.
    marks: Box<[Mark]>,
    /// By module: the ports whose packets can come to it.
    sources: Vec<Vec<u32>>,
    /// By module: the first module of the chain that leads only to it.
    heads: Vec<u32>,
    /// By port: whether its packets can wait there until the module at its entry has no packets left. This is false if
    /// that module drops packets when it is overloaded. It is also false if gates or other workers feed the module,
    /// because then it might always have packets.
    waits: Box<[bool]>,
    /// By port: the number of overloaded modules that stop it.
    holding: Box<[u32]>,
    /// By module: the number of overloaded modules for which it refuses packets.
    refusing: Box<[u32]>,
}

impl Pressure {
    pub(super) fn new(topology: &Topology) -> Self {
        let batch = topology.batch as u32;
        let marks = topology.shares.iter().map(|share| {
            let of = |percent: u32| (u64::from(share.marks.queue) * u64::from(percent) / 100) as u32;
            // The low mark is at least a batch, so above it there are enough packets to run on, whatever the trigger.
            // Therefore an overloaded module is ready, or waits only for its rate limit.
            let low = of(share.marks.low).max(batch);
            Mark { high: of(share.marks.high).max(low + batch), low, when_full: share.marks.when_full }
        });
        let waits = |entry: &Option<usize>| {
            entry.is_some_and(|entry| {
                let alone = topology.fed_otherwise.get(entry).is_none_or(|fed| !fed);
                alone && topology.shares[entry].marks.when_full == WhenFull::Wait
            })
        };
        Self {
            waits: topology.entries.iter().map(waits).collect(),
            marks: marks.collect(),
            sources: topology.sources(),
            heads: topology.chain_heads(),
            holding: vec![0; topology.entries.len()].into(),
            refusing: vec![0; topology.shares.len()].into(),
        }
    }

    /// Returns whether `waiting` packets overload a module.
    pub(super) fn is_high(&self, module: usize, waiting: usize) -> bool {
        self.marks.get(module).is_some_and(|mark| waiting >= mark.high as usize)
    }

    /// Returns whether `waiting` packets end a module's overload.
    pub(super) fn is_low(&self, module: usize, waiting: usize) -> bool {
        self.marks.get(module).is_none_or(|mark| waiting <= mark.low as usize)
    }

    /// Begins a module's overload. Returns the module that now starts to refuse packets, if any. The caller must call
    /// [`end`](Self::end) before it begins the overload of the same module again, because overloads are counted.
    pub(super) fn begin(&mut self, module: usize) -> Option<usize> {
        match self.marks[module].when_full {
            WhenFull::Wait => {
                self.sources[module].iter().for_each(|port| self.holding[*port as usize] += 1);
                None
            }
            WhenFull::Drop => {
                let head = self.heads[module] as usize;
                self.refusing[head] += 1;
                (self.refusing[head] == 1).then_some(head)
            }
        }
    }

    /// Ends a module's overload. Returns the module that now stops refusing packets, if any.
    pub(super) fn end(&mut self, module: usize) -> Option<usize> {
        match self.marks[module].when_full {
            WhenFull::Wait => {
                self.sources[module].iter().for_each(|port| self.holding[*port as usize] -= 1);
                None
            }
            WhenFull::Drop => {
                let head = self.heads[module] as usize;
                self.refusing[head] -= 1;
                (self.refusing[head] == 0).then_some(head)
            }
        }
    }

    /// Returns whether the packets of a port can wait there while the module at the port's entry has packets to run on.
    #[inline]
    pub(super) fn waits(&self, port: usize) -> bool {
        self.waits.get(port).is_some_and(|waits| *waits)
    }

    /// Returns whether a port must not be read, because an overloaded module stops it.
    #[inline]
    pub(super) fn holds(&self, port: usize) -> bool {
        self.holding.get(port).is_some_and(|holding| *holding > 0)
    }
}
