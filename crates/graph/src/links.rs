//! The rings between the workers of one pipeline.
//!
//! A ring belongs to one pair of workers and one kind of crossing. Different kinds do not share rings, because a worker
//! that cannot hand over packets still takes packets of some kinds. So workers never wait for each other in a cycle.

use forebay_packet::{Batch, Packet};

use crate::placement::{Origin, Placement};
use crate::plan::{Plan, Target};
use crate::ring::{Head, Receiver, Sender, ring};

/// A ring has room for at least this number of packets, and for at least four of the largest batches.
const ITEMS: usize = 1_024;

/// Why packets go to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Crossing {
    /// The packets have entered by a port, and another worker has their session. A worker that cannot hand over such
    /// packets takes no packets from its ports.
    Entry,
    /// Another worker has the next module. A worker that cannot hand over such packets takes no packets from ports.
    /// From other workers it takes only packets that leave. Workers hand over such packets in one direction only
    /// ([`Placement::circle`]).
    Work,
    /// The packets leave by another worker's port. A worker always takes such packets, because it does not hand them
    /// over again. A worker that cannot hand over such packets takes no packets of the other kinds.
    Leave,
}

impl Crossing {
    /// Returns the crossing from `origin` to `target`.
    pub(crate) fn of(origin: Origin, target: Target) -> Self {
        match (origin, target) {
            (Origin::Port(_), Target::Module(_)) => Self::Entry,
            (Origin::Gate(_), Target::Module(_)) => Self::Work,
            (_, Target::Port(_) | Target::Drop) => Self::Leave,
        }
    }
}

/// The sending end of a ring.
pub(crate) struct Out {
    /// The worker that receives.
    pub(crate) to: usize,
    pub(crate) crossing: Crossing,
    sender: Sender<Packet>,
}

impl Out {
    /// Sends a batch to node `tag` of the other worker, at the time `at`. Returns false, and does not change the batch,
    /// if the ring has no room for it.
    #[inline]
    pub(crate) fn send(&mut self, tag: u32, at: u64, batch: &mut Batch) -> bool {
        self.sender.has_room(batch.len()) && self.sender.send(Head { tag, at }, &mut batch.drain())
    }
}

/// The receiving end of a ring.
pub(crate) struct In {
    pub(crate) crossing: Crossing,
    /// The worker that sends.
    from: usize,
    receiver: Receiver<Packet>,
}

impl In {
    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// Returns when the next message was sent, if there is one.
    #[inline]
    pub(crate) fn sent_at(&mut self) -> Option<u64> {
        self.receiver.peek().map(|head| head.at)
    }

    /// Takes the next message into `batch`, which must be empty. Returns the node of this worker to which the packets
    /// go. `None` if there is no message.
    #[inline]
    pub(crate) fn take(&mut self, batch: &mut Batch) -> Option<usize> {
        // A message is a batch, and all batches of a pipeline have the same capacity, so it fits.
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

/// Creates the rings that a pipeline needs with this placement. `plan` is the plan of any of its workers. Returns, by
/// worker, its ends of the rings.
#[must_use]
pub fn links(plan: &Plan, placement: &Placement) -> Vec<Links> {
    let mut links: Vec<Links> = (0..placement.workers).map(|_| Links::default()).collect();
    let mut needed = Vec::new();
    let mut need = |from: &[usize], origin: Origin, target: Target| {
        for from_worker in from {
            let receivers = placement.leads(*from_worker, origin, target).unwrap_or_default();
            let receivers = receivers.iter().filter(|to_worker| *to_worker != from_worker);
            needed.extend(receivers.map(|to_worker| (*from_worker, *to_worker, Crossing::of(origin, target))));
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
    // The order in which a worker reads its rings must not depend on the order of creation.
    links.iter_mut().for_each(|links| links.ins.sort_by_key(|from| (from.crossing, from.from)));
    links
}
