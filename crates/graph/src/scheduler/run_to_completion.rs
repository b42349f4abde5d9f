//! Run to completion: all ready nodes run, in topological order, once a turn.

use forebay_units::Ticks;

use super::{Scheduler, Topology};

/// Runs all ready nodes in topological order, once a turn. So packets of branches that meet again are together when the
/// next module runs.
#[derive(Debug)]
pub struct RunToCompletion {
    /// The ready nodes, one bit for each node.
    ready: Box<[u64]>,
    /// The index of the present word of `ready`.
    at: usize,
    /// The nodes of the present word that may still run in this turn.
    mask: u64,
}

impl Scheduler for RunToCompletion {
    const NAME: &'static str = "run-to-completion";
    const SHARES: bool = false;

    fn new(topology: &Topology) -> Self {
        Self { ready: vec![0; topology.nodes.div_ceil(64).max(1)].into(), at: 0, mask: u64::MAX }
    }

    #[inline]
    fn begin(&mut self, _: Ticks) {
        (self.at, self.mask) = (0, u64::MAX);
    }

    #[inline]
    fn ready(&mut self, node: usize) {
        if let Some(word) = self.ready.get_mut(node / 64) {
            *word |= 1 << (node % 64);
        }
    }

    #[inline]
    fn next(&mut self) -> Option<usize> {
        loop {
            let word = self.ready.get_mut(self.at)?;
            let may_run = *word & self.mask;
            if may_run != 0 {
                let bit = may_run.trailing_zeros();
                *word &= !(1 << bit);
                // If this node or an earlier one becomes ready again, it waits for the next turn.
                self.mask = u64::MAX << bit << 1;
                return Some(self.at * 64 + bit as usize);
            }
            (self.at, self.mask) = (self.at + 1, u64::MAX);
        }
    }

    #[inline]
    fn peek(&self) -> Option<usize> {
        let word = self.ready.get(self.at)? & self.mask;
        (word != 0).then(|| self.at * 64 + word.trailing_zeros() as usize)
    }

    fn is_idle(&self) -> bool {
        self.ready.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: usize) -> RunToCompletion {
        RunToCompletion::new(&Topology { nodes, ..Topology::default() })
    }

    #[test]
    fn ready_nodes_run_in_order_and_once() {
        let mut scheduler = of(200);
        for node in [130, 3, 63, 64, 3, 199] {
            scheduler.ready(node);
        }
        scheduler.begin(Ticks::ZERO);
        let order: Vec<_> = std::iter::from_fn(|| scheduler.next()).collect();
        assert_eq!(order, [3, 63, 64, 130, 199]);
        assert!(scheduler.is_idle());
    }

    #[test]
    fn later_nodes_run_in_this_turn_and_earlier_ones_in_the_next() {
        let mut scheduler = of(70);
        scheduler.ready(5);
        scheduler.begin(Ticks::ZERO);
        assert_eq!(scheduler.next(), Some(5));
        for node in [5, 4, 6, 69] {
            scheduler.ready(node);
        }
        assert_eq!([scheduler.next(), scheduler.next(), scheduler.next()], [Some(6), Some(69), None]);
        scheduler.begin(Ticks::ZERO);
        assert_eq!([scheduler.next(), scheduler.next(), scheduler.next()], [Some(4), Some(5), None]);
    }
}
