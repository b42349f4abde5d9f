//! Folding: modules of branches that do the same with different parameters run as one.
//!
//! A batch that is split over n branches is n small batches, each of which pays for a call of every module on its way. Where the
//! branches' modules are of one kind, the pipeline compiler lets the first of them run for all, with all their parameters, and the
//! batch stays whole. Which branch a packet is in, its flow word says already. Flows, counters and drops are told as written.

use forebay_packet::{MAX_BATCH, Packet};

use crate::context::Context;
use crate::function::Function;

/// Which branch packets are in, for a function that runs for several modules ([`Declare::FOLD`](crate::Declare::FOLD)).
#[derive(Clone, Copy, Debug)]
pub struct Branches<'a>(pub(crate) &'a [u32]);

impl Branches<'_> {
    /// The packet's branch: the place of its module among those that the function was made of.
    #[inline(always)]
    #[must_use]
    pub fn of(self, packet: &Packet) -> usize {
        self.0.get(packet.flow() as usize).map_or(0, |branch| *branch as usize)
    }
}

/// What each of the modules has of its own that a function runs for.
///
/// A packet of no known branch, of which there is none but by a defect, is treated as one of the first.
pub struct PerBranch<T> {
    each: Vec<T>,
    /// By branch: its last packet that was found, in a batch that is being parted; 0 for none, else the place and one.
    found: Box<[u16]>,
    parts: Box<Parts>,
}

/// The packets of a batch by branches.
struct Parts {
    /// By place in the batch: the next one of the same branch, likewise.
    next: [u16; MAX_BATCH],
    /// By place in the batch: its packet's branch.
    branch: [u32; MAX_BATCH],
}

/// Places in a batch of the packets of one branch, in order.
pub struct Places<'a> {
    next: &'a [u16; MAX_BATCH],
    at: u16,
}

impl Iterator for Places<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let place = usize::from(self.at.checked_sub(1)?);
        self.at = self.next[place % MAX_BATCH];
        Some(place)
    }
}

impl<F: Function> PerBranch<F> {
    /// Runs the branch's own function where all packets of a batch are of one branch; whether they were.
    #[inline]
    pub fn run_common(&mut self, batch: &mut [Packet], context: &mut Context<'_>) -> bool {
        let branches = context.branches();
        self.common(branches, batch).is_some_and(|only| {
            only.process(batch, context);
            true
        })
    }
}

impl<T> PerBranch<T> {
    /// What branches have, of at least one.
    #[must_use]
    pub fn new(each: Vec<T>) -> Self {
        let parts = Box::new(Parts { next: [0; MAX_BATCH], branch: [0; MAX_BATCH] });
        Self { found: vec![0; each.len()].into(), each, parts }
    }

    /// What the packet's branch has.
    #[inline(always)]
    pub fn of(&self, branches: Branches<'_>, packet: &Packet) -> &T {
        self.each.get(branches.of(packet)).unwrap_or_else(|| &self.each[0])
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn of_mut(&mut self, branches: Branches<'_>, packet: &Packet) -> &mut T {
        let branch = branches.of(packet);
        &mut self.each[if branch < self.found.len() { branch } else { 0 }]
    }

    /// What the branch has that all packets of a batch are in, where it is one: mostly so where traffic comes in bursts.
    #[inline]
    pub fn common(&mut self, branches: Branches<'_>, batch: &[Packet]) -> Option<&mut T> {
        let first = batch.first()?;
        let alike = batch.iter().all(|packet| packet.flow() == first.flow());
        alike.then(|| self.of_mut(branches, first))
    }

    /// Calls `process` with what each branch of the batch has and where its packets are, in the order in which branches appear.
    #[inline]
    pub fn each(
        &mut self,
        branches: Branches<'_>,
        batch: &mut [Packet],
        mut process: impl FnMut(&mut T, &mut [Packet], Places<'_>),
    ) {
        let Self { each, found, parts } = self;
        let Parts { next, branch } = &mut **parts;
        // From the last on, so that what was found last of a branch is its first in the end.
        for (place, packet) in batch.iter().enumerate().rev() {
            let of = branches.of(packet);
            let of = if of < found.len() { of } else { 0 };
            let place = place % MAX_BATCH;
            (next[place], branch[place]) = (found[of], of as u32);
            found[of] = place as u16 + 1;
        }
        for first in 0..batch.len() {
            let of = branch[first % MAX_BATCH] as usize;
            // Where it has been, nothing is found any more.
            if found[of] == first as u16 + 1 {
                found[of] = 0;
                process(&mut each[of], batch, Places { next, at: first as u16 + 1 });
            }
        }
    }
}

/// Where packets of a flow word arrive first that run folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The fold, by its place in [`Plan::folds`](crate::Plan::folds).
    pub(crate) fold: usize,
    /// The member.
    pub(crate) branch: usize,
}

/// By module: its fold, and its place in it.
pub(crate) fn places(folds: &[Vec<usize>], modules: usize) -> Vec<Option<Arrival>> {
    let mut places = vec![None; modules];
    for (fold, members) in folds.iter().enumerate() {
        for (branch, &member) in members.iter().enumerate() {
            places[member] = Some(Arrival { fold, branch });
        }
    }
    places
}
