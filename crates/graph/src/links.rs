//! The rings between the workers of one pipeline.
//!
//! A ring is for one pair of workers and one kind of crossing. Kinds do not share rings, because what a worker may
//! refuse to take while it cannot give depends on the kind; by that, workers never wait for each other in a circle.

use forebay_packet::{Batch, Packet};

use crate::placement::{Origin, Placement};
use crate::plan::{Plan, Target};
use crate::ring::{Head, Receiver, Sender, ring};

/// How many packets a ring holds, or four of the largest batches.
const ITEMS: usize = 1_024;

/// Why packets go to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Crossing {
    /// They have entered by a port, and their session is another worker's. A worker that cannot give these takes none
    /// from its ports.
    Entry,
    /// The next module is another worker's. A worker that cannot give these takes nothing new at all. Workers give these
    /// to each other in one direction only ([`Placement::circle`]).
    Work,
    /// They leave by another worker's port. These are always taken: they go nowhere else.
    Leave,
}

impl Crossing {
    /// What leads from `origin` to `target`.
    pub(crate) fn of(origin: Origin, target: Target) -> Self {
        match (origin, target) {
            (Origin::Port(_), Target::Module(_)) => Self::Entry,
            (Origin::Gate(_), Target::Module(_)) => Self::Work,
            (_, Target::Port(_) | Target::Drop) => Self::Leave,
        }
    }
}

/// The giving end of a ring.
pub(crate) struct Out {
    pub(crate) to: usize,
    pub(crate) crossing: Crossing,
    sender: Sender<Packet>,
}

impl Out {
    /// Sends a batch to node `tag`; `false`, and the batch left as it is, where the ring has no room for it.
    #[inline]
    pub(crate) fn send(&mut self, tag: u32, at: u64, batch: &mut Batch) -> bool {
        self.sender.has_room(batch.len()) && self.sender.send(Head { tag, at }, &mut batch.drain())
    }
}

/// The taking end of a ring.
pub(crate) struct In {
    pub(crate) crossing: Crossing,
    from: usize,
    receiver: Receiver<Packet>,
}

impl In {
    /// When the next message was sent, where there is one.
    #[inline]
    pub(crate) fn sent_at(&mut self) -> Option<u64> {
        self.receiver.peek().map(|head| head.at)
    }

    /// Takes the next message into `batch`, which is empty; for which node it is.
    #[inline]
    pub(crate) fn take(&mut self, batch: &mut Batch) -> Option<usize> {
        // A message is a batch, and all batches of a pipeline are of one size: it fits.
        let head = self.receiver.receive(|packet| drop(batch.push(packet)))?;
        Some(head.tag as usize)
    }
}

/// A worker's ends of the rings.
#[derive(Default)]
pub struct Links {
    pub(crate) outs: Vec<Out>,
    pub(crate) ins: Vec<In>,
}

/// The rings that `plan` needs when it is placed like this: each worker's ends.
#[must_use]
pub fn links(plan: &Plan, placement: &Placement) -> Vec<Links> {
    let mut links: Vec<Links> = (0..placement.workers).map(|_| Links::default()).collect();
    let mut needed = Vec::new();
    let mut need = |from: &[usize], origin: Origin, target: Target| {
        for giver in from {
            let takers = placement.leads(*giver, origin, target).unwrap_or_default();
            let takers = takers.iter().filter(|taker| *taker != giver);
            needed.extend(takers.map(|taker| (*giver, *taker, Crossing::of(origin, target))));
        }
    };
    for (number, (module, workers)) in plan.modules.iter().zip(&placement.modules).enumerate() {
        module.gates.iter().for_each(|(_, target)| need(workers, Origin::Gate(number), *target));
    }
    for (number, (port, workers)) in plan.ports.iter().zip(&placement.ports).enumerate() {
        if let Some(target) = port.entry {
            need(workers, Origin::Port(number), target);
        }
    }
    needed.sort_unstable();
    needed.dedup();
    for (from, to, crossing) in needed {
        let (sender, receiver) = ring(ITEMS.max(4 * plan.batch), plan.batch);
        links[from].outs.push(Out { to, crossing, sender });
        links[to].ins.push(In { crossing, from, receiver });
    }
    // Always in the same order, whatever the order in which they were made.
    links.iter_mut().for_each(|links| links.ins.sort_by_key(|from| (from.crossing, from.from)));
    links
}
