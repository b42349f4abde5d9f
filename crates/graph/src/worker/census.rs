//! Counts where every packet is. The invariant of the engine: packets that entered, were created or were taken from
//! other workers have left, were dropped, consumed or handed over, or are still in the worker.

use forebay_measure::Clock;
use forebay_protocol::Census;

use super::Worker;
use crate::port::PortCounters;
use crate::scheduler::Scheduler;
use crate::telemetry::{ReasonCounters, Telemetry};

impl Telemetry {
    /// Returns where every packet is. The numbers of packets that are queued, held and in flight are those of the
    /// worker's last sweep.
    #[must_use]
    pub fn census(&self) -> Census {
        let ports = |count: fn(&PortCounters) -> u64| self.ports.iter().map(|port| count(&port.counters)).sum::<u64>();
        let modules = |of: fn(&crate::telemetry::ModuleTelemetry) -> &ReasonCounters| {
            self.modules.iter().map(|module| of(module).total()).sum::<u64>()
        };
        let worker = &self.worker;
        let refused: u64 = self.ports.iter().map(|port| port.refused.get()).sum();
        Census {
            entered: ports(|counters| counters.received.get()),
            created: modules(|module| &module.creates),
            taken: worker.taken.get(),
            out: ports(|counters| counters.sent.get()).saturating_sub(worker.in_flight.get()),
            dropped: modules(|module| &module.drops)
                + self.modules.iter().map(|module| module.turned_away.get()).sum::<u64>()
                + worker.unwanted.get()
                + worker.no_gate.get()
                + worker.held_at_close.get()
                + refused,
            consumed: modules(|module| &module.consumes),
            queued: worker.queued.get(),
            held: worker.held.get(),
            in_flight: worker.in_flight.get(),
            handed: worker.handed.get(),
        }
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Returns where every packet is. Exact between turns.
    #[must_use]
    pub fn census(&mut self) -> Census {
        self.publish();
        self.telemetry.census()
    }

    /// Updates the gauges: the packets that are queued, held and in flight, the state of the buffers, and how often the
    /// pool was exhausted. Only the worker's own thread may call this.
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
