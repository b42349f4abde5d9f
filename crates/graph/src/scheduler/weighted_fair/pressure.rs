//! Backpressure: what is overloaded stops the ports that feed it, or the chain that leads to it (NFVnice section 3.3).
//!
//! Only ports and the beginnings of chains are held up, never a module in between. What has entered can always go on, so
//! whatever overload there is gets smaller, and nothing can wait for itself. That leaves a queue to grow beyond its high
//! mark by what was under way to it.

use crate::scheduler::{Topology, WhenFull};

/// A module's marks, in packets.
#[derive(Clone, Copy, Debug)]
struct Mark {
    high: u32,
    low: u32,
    when_full: WhenFull,
}

/// Who is overloaded, and whom that holds up.
#[derive(Debug)]
pub(super) struct Pressure {
    marks: Box<[Mark]>,
    /// By module: the ports whose packets can come to it.
    sources: Vec<Vec<u32>>,
    /// By module: where the chain begins that leads to it only.
    heads: Vec<u32>,
    /// By port: whether its packets can wait there until the module where they enter has run dry. Not where that drops
    /// packets when it is overloaded, nor where others feed it: it might never run dry.
    waits: Box<[bool]>,
    /// By port: how many overloaded modules hold it.
    holding: Box<[u32]>,
    /// By module: for how many overloaded modules it refuses packets.
    refusing: Box<[u32]>,
}

impl Pressure {
    pub(super) fn new(topology: &Topology) -> Self {
        let batch = topology.batch as u32;
        let marks = topology.shares.iter().map(|share| {
            let of = |percent: u32| (u64::from(share.marks.queue) * u64::from(percent) / 100) as u32;
            // Above the low mark there are always enough packets to run on, whatever the trigger: it is a batch at the
            // most. So what is overloaded is ready, or waits for its rate limit, and for nothing else.
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

    /// Whether so many packets are too many for a module.
    pub(super) fn is_high(&self, module: usize, waiting: usize) -> bool {
        self.marks.get(module).is_some_and(|mark| waiting >= mark.high as usize)
    }

    /// Whether so many packets are no longer too many for an overloaded module.
    pub(super) fn is_low(&self, module: usize, waiting: usize) -> bool {
        self.marks.get(module).is_none_or(|mark| waiting <= mark.low as usize)
    }

    /// A module is overloaded from now on. The module that refuses packets by that, where it did not before.
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

    /// A module is no longer overloaded. The module that no longer refuses packets by that.
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

    /// Whether what a port has can wait there while its module has something to run on.
    #[inline]
    pub(super) fn waits(&self, port: usize) -> bool {
        self.waits.get(port).is_some_and(|waits| *waits)
    }

    /// Whether a port is not to be read.
    #[inline]
    pub(super) fn holds(&self, port: usize) -> bool {
        self.holding.get(port).is_some_and(|holding| *holding > 0)
    }
}
