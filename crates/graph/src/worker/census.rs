//! Where every packet is: the invariant of the whole engine, checked at a turn's end.

use forebay_measure::Clock;
use serde::{Deserialize, Serialize};

use super::Worker;
use crate::port::PortCounters;
use crate::scheduler::Scheduler;
use crate::telemetry::{ReasonCounters, Telemetry};

/// How many packets came to be, and what became of them.
///
/// `entered + created + taken = left + dropped + consumed + queued + held + in_flight + handed`, at any moment between
/// turns. Over all workers of a pipeline, what was handed over and not taken yet is on its way between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Entered by ports.
    pub entered: u64,
    /// Created by functions.
    pub created: u64,
    /// Taken from other workers.
    pub taken: u64,
    /// Left by ports, and the outside has them.
    pub left: u64,
    /// Dropped, for whatever reason.
    pub dropped: u64,
    /// Ended in functions.
    pub consumed: u64,
    /// Wait in modules' queues.
    pub queued: u64,
    /// Held by functions.
    pub held: u64,
    /// Given to a kernel or device that has not finished with them.
    pub in_flight: u64,
    /// Given to other workers.
    pub handed: u64,
}

impl Census {
    /// Reads the counters; the gauges (queued, held, in flight) are those of the worker's last sweep.
    #[must_use]
    pub fn of(telemetry: &Telemetry) -> Self {
        let ports =
            |count: fn(&PortCounters) -> u64| telemetry.ports.iter().map(|port| count(&port.counters)).sum::<u64>();
        let modules = |of: fn(&crate::telemetry::ModuleTelemetry) -> &ReasonCounters| {
            telemetry.modules.iter().map(|module| of(module).total()).sum::<u64>()
        };
        let worker = &telemetry.worker;
        let refused: u64 = telemetry.ports.iter().map(|port| port.refused.get()).sum();
        Self {
            entered: ports(|counters| counters.received.get()),
            created: modules(|module| &module.creates),
            taken: worker.taken.get(),
            left: ports(|counters| counters.sent.get()).saturating_sub(worker.in_flight.get()),
            dropped: modules(|module| &module.drops)
                + telemetry.modules.iter().map(|module| module.turned_away.get()).sum::<u64>()
                + worker.unwanted.get()
                + worker.no_gate.get()
                + worker.wound_up.get()
                + refused,
            consumed: modules(|module| &module.consumes),
            queued: worker.queued.get(),
            held: worker.held.get(),
            in_flight: worker.in_flight.get(),
            handed: worker.handed.get(),
        }
    }

    /// Adds another worker's, or an earlier graph's.
    pub fn add(&mut self, other: &Self) {
        let Self { entered, created, taken, left, dropped, consumed, queued, held, in_flight, handed } = self;
        *entered += other.entered;
        *created += other.created;
        *taken += other.taken;
        *left += other.left;
        *dropped += other.dropped;
        *consumed += other.consumed;
        *queued += other.queued;
        *held += other.held;
        *in_flight += other.in_flight;
        *handed += other.handed;
    }

    /// How many packets are unaccounted for: 0, or there is a defect.
    #[must_use]
    pub fn missing(&self) -> i128 {
        let sum = |counts: &[u64]| counts.iter().map(|count| i128::from(*count)).sum::<i128>();
        let there = [self.left, self.dropped, self.consumed, self.queued, self.held, self.in_flight, self.handed];
        sum(&[self.entered, self.created, self.taken]) - sum(&there)
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Where every packet is. Exact between turns.
    #[must_use]
    pub fn census(&mut self) -> Census {
        self.publish();
        Census::of(&self.telemetry)
    }

    /// Writes the gauges: what waits where.
    pub(super) fn publish(&self) {
        let worker = &self.telemetry.worker;
        worker.queued.set(self.nodes.iter().map(|node| node.input.len() as u64).sum());
        for &module in &self.buffered {
            let (counters, input) = (&self.counters[module], &self.nodes[module].input);
            counters.arrivals.set(input.turns());
            counters.arrived.set(input.arrived(counters.packets.get() + input.len() as u64));
            counters.queued.set(input.len() as u64);
            counters.oldest.set(if input.len() > 0 { self.desk.now.since(input.since()).0 } else { 0 });
        }
        if S::SHARES {
            let queues = self.counters.iter().zip(&self.nodes);
            queues.for_each(|(counters, node)| counters.queued.set(node.input.len() as u64));
        }
        worker.held.set(self.desk.shelves.iter().map(|shelf| shelf.len() as u64).sum());
        worker
            .in_flight
            .set(self.gateways.iter().flat_map(|gateway| &gateway.port).map(|port| port.in_flight() as u64).sum());
        let until = self.exhausted_after.unwrap_or_else(|| self.desk.pool.exhausted());
        worker.exhausted.set(until - self.exhausted_before);
    }
}
