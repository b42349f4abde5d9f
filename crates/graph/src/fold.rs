//! Folding: modules of several branches that have the same function, with different parameters, run as one.
//!
//! A batch that is split over n branches becomes n small batches, and each of them costs a call of every module on its
//! path. If the branches' modules have the same function, the pipeline compiler lets the first module run for all of
//! them, with the parameters of each branch. So the batch stays whole. A packet's flow word determines its branch.
//! Reports show flows, counters and drops of the configured modules.

use forebay_packet::{MAX_BATCH, Packet};

use crate::context::Context;
use crate::function::Function;

/// The branch of each packet, for a function that runs for several modules ([`Declare::FOLD`](crate::Declare::FOLD)).
#[derive(Clone, Copy, Debug)]
pub struct Branches<'a>(pub(crate) &'a [u32]);

impl Branches<'_> {
    /// Returns the packet's branch: the index of its module among those of the fold.
    #[inline(always)]
    #[must_use]
    pub fn of(self, packet: &Packet) -> usize {
        self.0.get(packet.flow() as usize).map_or(0, |branch| *branch as usize)
    }
}

/// A value for each module of a fold.
///
/// A packet of an unknown branch is treated as one of the first branch. Only a defect can cause this.
pub struct PerBranch<T> {
    each: Vec<T>,
    /// By branch, while a batch is being split from its end to its start: the packet that was found last, as its index
    /// plus 1. Otherwise 0.
    found: Box<[u16]>,
    parts: Box<Parts>,
}

/// The packets of a batch, by branch.
struct Parts {
    /// By index in the batch: the next packet of the same branch, as its index plus 1.
    next: [u16; MAX_BATCH],
    /// By index in the batch: the packet's branch.
    branch: [u32; MAX_BATCH],
}

/// The indices in a batch of one branch's packets, in order.
pub struct Places<'a> {
    next: &'a [u16; MAX_BATCH],
    at: u16,
}

impl Iterator for Places<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let index = usize::from(self.at.checked_sub(1)?);
        self.at = self.next[index % MAX_BATCH];
        Some(index)
    }
}

impl<F: Function> PerBranch<F> {
    /// Runs the branch's own function if all packets of a batch have the same flow word, and so the same branch.
    /// Returns whether the function ran.
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
    /// Creates the values from one value for each branch. There must be at least one.
    #[must_use]
    pub fn new(each: Vec<T>) -> Self {
        let parts = Box::new(Parts { next: [0; MAX_BATCH], branch: [0; MAX_BATCH] });
        Self { found: vec![0; each.len()].into(), each, parts }
    }

    /// Returns the value of the packet's branch.
    #[inline(always)]
    pub fn of(&self, branches: Branches<'_>, packet: &Packet) -> &T {
        self.each.get(branches.of(packet)).unwrap_or_else(|| &self.each[0])
    }

    /// Returns the value of the packet's branch, which the caller may change.
    #[inline(always)]
    pub fn of_mut(&mut self, branches: Branches<'_>, packet: &Packet) -> &mut T {
        let branch = branches.of(packet);
        &mut self.each[if branch < self.found.len() { branch } else { 0 }]
    }

    /// Returns the value of the branch that all packets of a batch are in. `None` if the batch is empty or its packets
    /// have different flow words. The packets of a burst usually have the same flow word.
    #[inline]
    pub fn common(&mut self, branches: Branches<'_>, batch: &[Packet]) -> Option<&mut T> {
        let first = batch.first()?;
        let alike = batch.iter().all(|packet| packet.flow() == first.flow());
        alike.then(|| self.of_mut(branches, first))
    }

    /// Calls `process` once for each branch in the batch, with the branch's value, the batch, and the indices of the
    /// branch's packets. The branches come in the order of their first packets in the batch.
    #[inline]
    pub fn each(
        &mut self,
        branches: Branches<'_>,
        batch: &mut [Packet],
        mut process: impl FnMut(&mut T, &mut [Packet], Places<'_>),
    ) {
        let Self { each, found, parts } = self;
        let Parts { next, branch } = &mut **parts;
        // From the last packet to the first, so that `found` ends up with the first packet of each branch.
        for (index, packet) in batch.iter().enumerate().rev() {
            let of = branches.of(packet);
            let of = if of < found.len() { of } else { 0 };
            let index = index % MAX_BATCH;
            (next[index], branch[index]) = (found[of], of as u32);
            found[of] = index as u16 + 1;
        }
        for first in 0..batch.len() {
            let of = branch[first % MAX_BATCH] as usize;
            // Only the first packet of a branch matches; then the branch is done.
            if found[of] == first as u16 + 1 {
                found[of] = 0;
                process(&mut each[of], batch, Places { next, at: first as u16 + 1 });
            }
        }
    }
}

/// The module at which packets of a flow word first run folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The index of the fold in [`Plan::folds`](crate::Plan::folds).
    pub(crate) fold: usize,
    /// The index of the module in the fold.
    pub(crate) branch: usize,
}

/// Returns, by module, its fold and its index in the fold.
pub(crate) fn positions(folds: &[Vec<usize>], modules: usize) -> Vec<Option<Arrival>> {
    let mut positions = vec![None; modules];
    for (fold, members) in folds.iter().enumerate() {
        for (branch, &member) in members.iter().enumerate() {
            positions[member] = Some(Arrival { fold, branch });
        }
    }
    positions
}
