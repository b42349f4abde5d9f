//! Runs modules: takes a batch from a queue, adds the cost of the call to the clock, and forwards each packet along its
//! route.
//!
//! The loop follows the engine's loop (`graph`, `worker/run.rs`) step by step. It is separate code, because the
//! engine's loop moves packets and calls functions, and this loop moves runs of packets along known routes. A change of
//! one loop needs the same change of the other one: `tests/agreement/exact.rs` compares every period, call by call.

use forebay_graph::{Scheduler, Took};
use forebay_measure::histogram::Sample;
use forebay_units::Ticks;

use super::Worker;
use crate::queue::{Bundle, Queue, Run};
use crate::ring::Ring;
use crate::scene::{GONE, NO_FLOW, NodeType};
use crate::tally::Tally;
use crate::time::Picos;

impl<S: Scheduler> Worker<S> {
    /// Runs ready modules until the turn ends. Returns true if a module ran.
    pub(super) fn run(&mut self, rings: &mut [Ring]) -> bool {
        let mut any = false;
        self.stuck = [false; 3];
        while let Some(node) = self.waiting.pop() {
            self.scheduler.ready(node);
        }
        let mut bundle = Bundle::default();
        while let Some(node) = self.scheduler.next() {
            if S::SHARES && !self.queues[node].is_ready() {
                self.refill(node);
            }
            let mut left = self.budget;
            while self.queues[node].take(&mut bundle) {
                if S::SHARES {
                    self.scheduler.take(node, &self.empty_batch, self.queues[node].len() as usize);
                }
                left = left.saturating_sub(bundle.packets);
                self.run_from(node, &mut bundle, rings);
                let waits = self.waiting.last() == Some(&node);
                any |= !waits;
                let more = self.queues[node].is_ready() && !waits;
                if S::SHARES {
                    self.scheduler.ran(node, more);
                    break;
                }
                if !more {
                    break;
                }
                if left == 0 {
                    self.scheduler.ready(node);
                    break;
                }
            }
        }
        any
    }

    /// Runs a batch through the node `at`. As long as the whole batch may go straight on to the next node, it also runs
    /// that node. The batch is empty afterwards.
    fn run_from(&mut self, mut at: usize, bundle: &mut Bundle, rings: &mut [Ring]) {
        while at < self.modules {
            let (size, cost) = (u64::from(bundle.packets), self.costs[at]);
            let counted = &mut self.tally.modules[at];
            counted.packets += size;
            counted.calls += 1;
            self.calls += 1;
            let took = Picos(cost.fixed.0 + cost.each.0 * size);
            self.clock += took;
            let next = self.route(bundle);
            self.scheduler.charge(at, size as usize, Took::Exactly(Ticks(took.0)));
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
        self.depart(at, bundle, rings);
    }

    /// Moves each packet of a batch to its next hop, and puts it into the queue of that node. If the whole batch may
    /// bypass the queue of one node, the batch stays in `bundle` and the node is returned.
    fn route(&mut self, bundle: &mut Bundle) -> Option<usize> {
        let hops = &self.scene.hops;
        bundle.runs.iter_mut().for_each(|run| run.at += 1);
        let next = bundle.runs.first().map_or(GONE, |run| hops[run.at as usize]);
        if bundle.runs.iter().all(|run| hops[run.at as usize] == next) {
            let node = next as usize;
            if next == GONE {
                self.tally.gone += u64::from(bundle.packets);
                bundle.clear();
                return None;
            }
            let single_feed = self.scene.workers[self.id].single_feed[node];
            if single_feed && self.queues[node].passes() && self.scheduler.straight_on(node) {
                return Some(node);
            }
            self.put(node, bundle);
            return None;
        }
        for run in bundle.runs.drain(..) {
            let next = self.scene.hops[run.at as usize];
            if next == GONE {
                self.tally.gone += u64::from(run.count);
            } else {
                put_run(
                    &mut self.queues[next as usize],
                    &mut self.scheduler,
                    &mut self.tally,
                    next as usize,
                    run,
                    self.now,
                );
            }
        }
        bundle.packets = 0;
        None
    }

    /// Puts a whole batch into a node's queue, or drops it if the scheduler refuses it. The batch is empty afterwards.
    pub(super) fn put(&mut self, node: usize, bundle: &mut Bundle) {
        if S::SHARES && self.scheduler.refuses(node) {
            self.tally.modules[node].turned_away += u64::from(bundle.packets);
            return bundle.clear();
        }
        let queue = &mut self.queues[node];
        if queue.push_all(bundle, self.now) {
            mark_ready(&mut self.scheduler, node, queue);
        }
    }

    /// Handles a batch at a node that is not a module: the node spreads the packets, sends them to another worker, or
    /// sends them by a port. The batch is empty afterwards. `at` of each run is the hop of `node`.
    fn depart(&mut self, node: usize, bundle: &mut Bundle, rings: &mut [Ring]) {
        match self.plan().nodes[node] {
            NodeType::Spread => {
                return self.spread(bundle);
            }
            NodeType::Transfer(ring, drops) => return self.cross(node, (ring, drops), bundle, rings),
            NodeType::Module | NodeType::Out => {}
        }
        self.now = self.clock;
        for run in bundle.runs.drain(..) {
            let (flow, count) = (self.scene.hops[run.at as usize + 1], u64::from(run.count));
            let delay = self.now.since(run.arrival).nanos();
            self.delay += delay * count;
            self.tally.left += count;
            if flow == NO_FLOW {
                continue;
            }
            let counts = &mut self.tally.flows[flow as usize];
            counts.packets += count;
            counts.delay.add(Sample::new(delay), count);
            if self.objectives[flow as usize].is_some_and(|objective| delay > objective) {
                counts.violations += count;
            }
        }
        bundle.packets = 0;
    }

    /// Moves each packet to its next hop, which leads to its session's worker, and puts it into the queue of that node.
    /// As in the engine, the scheduler does not refuse these packets, and a backlog is not reported.
    pub(super) fn spread(&mut self, bundle: &mut Bundle) {
        for run in bundle.runs.drain(..) {
            let run = Run { at: run.at + 1, ..run };
            let node = self.scene.hops[run.at as usize] as usize;
            let queue = &mut self.queues[node];
            if queue.push(run, self.now) {
                self.scheduler.ready(node);
            }
        }
        bundle.packets = 0;
    }

    /// Sends a batch to another worker. If the ring is full and `drops` is a module, the batch is dropped and counted
    /// for this module. If the ring is full and `drops` is `None`, the batch goes back to the queue of the node. The
    /// batch is empty afterwards.
    fn cross(&mut self, node: usize, (ring, drops): (usize, Option<usize>), bundle: &mut Bundle, rings: &mut [Ring]) {
        bundle.runs.iter_mut().for_each(|run| run.at += 1);
        if !rings[ring].send(bundle, self.clock) {
            if let Some(module) = drops {
                self.tally.modules[module].turned_away += u64::from(bundle.packets);
                return bundle.clear();
            }
            bundle.runs.iter_mut().for_each(|run| run.at -= 1);
            self.stuck[self.scene.rings[ring].crossing as usize] = true;
            self.queues[node].put_back(bundle);
            // The node is tried again in the next turn, because a full ring stays full until this turn ends.
            self.waiting.push(node);
        }
    }
}

/// Puts packets into a node's queue, or drops them if the scheduler refuses them.
fn put_run<S: Scheduler>(queue: &mut Queue, scheduler: &mut S, tally: &mut Tally, node: usize, run: Run, now: Picos) {
    if S::SHARES && scheduler.refuses(node) {
        tally.modules[node].turned_away += u64::from(run.count);
    } else if queue.push(run, now) {
        mark_ready(scheduler, node, queue);
    }
}

/// Reports to the scheduler that a node can run. If more packets wait there than fit into a batch, also reports their
/// number, by which the scheduler detects an overloaded module. Called after a push that returned true. The engine's
/// counterpart is `report_ready`. Both must call the scheduler in the same order.
fn mark_ready<S: Scheduler>(scheduler: &mut S, node: usize, queue: &Queue) {
    scheduler.ready(node);
    if S::SHARES && queue.has_backlog() {
        scheduler.fill(node, queue.len() as usize);
    }
}
