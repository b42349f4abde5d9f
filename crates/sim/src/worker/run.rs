//! Runs modules: takes a batch from a queue, spends what the call costs, and puts each packet where its way leads.

use forebay_graph::{Scheduler, Took};
use forebay_measure::histogram::Sample;
use forebay_packet::Ticks;

use super::Worker;
use crate::queue::{Bundle, Queue, Run};
use crate::ring::Ring;
use crate::scene::{GONE, NO_FLOW, Place};
use crate::tally::Tally;
use crate::time::Picos;

impl<S: Scheduler> Worker<S> {
    /// Runs what is ready until the turn ends; whether anything ran.
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
                    self.scheduler.take(node, &self.nothing, self.queues[node].len() as usize);
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

    /// Runs a batch through a module and, as long as all of it goes on to one that nothing else feeds, through those that
    /// follow. The batch is empty afterwards.
    fn run_from(&mut self, mut at: usize, bundle: &mut Bundle, rings: &mut [Ring]) {
        while at < self.modules {
            let (size, price) = (u64::from(bundle.packets), self.prices[at]);
            let counted = &mut self.tally.modules[at];
            counted.packets += size;
            counted.calls += 1;
            self.calls += 1;
            let took = Picos(price.fixed.0 + price.each.0 * size);
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

    /// Puts a batch where its packets go next. `Some`: all of it goes straight on to this node, and is still in `bundle`.
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
            let alone = self.scene.workers[self.id].alone[node];
            if alone && self.queues[node].passes() && self.scheduler.straight_on(node) {
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

    /// Puts a whole batch into a node's queue; it is left empty.
    pub(super) fn put(&mut self, node: usize, bundle: &mut Bundle) {
        if S::SHARES && self.scheduler.refuses(node) {
            self.tally.modules[node].turned_away += u64::from(bundle.packets);
            return bundle.clear();
        }
        let queue = &mut self.queues[node];
        if queue.push_all(bundle, self.now) {
            tell_ready(&mut self.scheduler, node, queue);
        }
    }

    /// Lets a batch leave by a node past the modules; it is empty afterwards, or waits there.
    fn depart(&mut self, node: usize, bundle: &mut Bundle, rings: &mut [Ring]) {
        match self.site().nodes[node] {
            Place::Spread => {
                return self.spread(bundle);
            }
            Place::Away(ring, drops) => return self.cross(node, (ring, drops), bundle, rings),
            Place::Module | Place::Out => {}
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
            let told = &mut self.tally.flows[flow as usize];
            told.packets += count;
            told.delay.add(Sample::new(delay), count);
            if self.objectives[flow as usize].is_some_and(|objective| delay > objective) {
                told.violations += count;
            }
        }
        bundle.packets = 0;
    }

    /// Puts each packet where its session's worker is reached.
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

    /// Gives a batch to another worker. Where its ring is full, the batch waits at the node, or is dropped.
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
            // Not in this turn: nothing changes in it.
            self.waiting.push(node);
        }
    }
}

/// Puts packets into a node's queue.
fn put_run<S: Scheduler>(queue: &mut Queue, scheduler: &mut S, tally: &mut Tally, node: usize, run: Run, now: Picos) {
    if S::SHARES && scheduler.refuses(node) {
        tally.modules[node].turned_away += u64::from(run.count);
    } else if queue.push(run, now) {
        tell_ready(scheduler, node, queue);
    }
}

/// Says that a node can run, and how much waits there where that is more than a batch.
fn tell_ready<S: Scheduler>(scheduler: &mut S, node: usize, queue: &Queue) {
    scheduler.ready(node);
    if S::SHARES && queue.has_backlog() {
        scheduler.fill(node, queue.len() as usize);
    }
}
