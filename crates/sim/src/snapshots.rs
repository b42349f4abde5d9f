//! Makes snapshots of what has been counted in periods, as the engine's sampler does.

use forebay_graph::Percentile;
use forebay_graph::snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot, Snapshot, WorkerSnapshot};
use forebay_measure::Distribution;

use crate::scene::Scene;
use crate::tally::{ModuleTally, Tally};
use crate::team::Play;
use crate::worker::Price;

/// Packets above the chosen percentile without which it says nothing, and periods after which the packets that there are must
/// do (as in the engine).
const ENOUGH_ABOVE: f64 = 1.0;
const WIDEST: u32 = 10;

/// Makes one snapshot after the other.
pub(crate) struct Snapshots {
    snapshot: Snapshot,
    percentiles: Vec<Percentile>,
    /// By flow: bytes a packet, where any rate objective is in bits.
    lengths: Option<Vec<f64>>,
    /// By flow: delays of the last periods that had too few, and how many those are.
    delays: Vec<(Distribution, u32)>,
}

impl Snapshots {
    pub(crate) fn new(scene: &Scene) -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.modules.resize(scene.layout.modules.len(), ModuleSnapshot::default());
        snapshot.flows.resize(scene.flows, FlowSnapshot::default());
        snapshot.workers.resize(scene.workers.len(), WorkerSnapshot::default());
        let percentiles = scene.layout.flows.iter().map(|flow| flow.percentile).collect();
        let in_bits = scene.layout.flows.iter().any(|flow| flow.min_rate_bits.is_some());
        let lengths = in_bits.then(|| scene.lengths.clone());
        Self { snapshot, percentiles, lengths, delays: vec![<(Distribution, u32)>::default(); scene.flows] }
    }

    /// Of a period that ended at `at` and lasted `span`, in seconds, in which workers counted this.
    pub(crate) fn take(
        &mut self,
        (at, span): (f64, f64),
        counted: &[Tally],
        team: &dyn Play,
        prices: &[Price],
    ) -> &mut Snapshot {
        let snapshot = &mut self.snapshot;
        (snapshot.at_s, snapshot.period_s) = (at, span);
        for (number, told) in snapshot.modules.iter_mut().enumerate() {
            let (now, price) = (team.module(number), prices[number]);
            let sum = |of: fn(&ModuleTally) -> u64| counted.iter().map(|tally| of(&tally.modules[number])).sum::<u64>();
            (told.packets, told.calls, told.came) = (sum(|it| it.packets), sum(|it| it.calls), sum(|it| it.came));
            told.arrived = (sum(|it| it.arrived), sum(|it| it.arrivals));
            let seconds = price.fixed.seconds() * told.calls as f64 + price.each.seconds() * told.packets as f64;
            told.timed = (told.calls, told.packets, seconds);
            (told.trigger, told.hold_s, told.weight) = (now.trigger, now.hold.seconds(), now.weight);
            (told.queued, told.oldest_s) = (now.queued, now.oldest.seconds());
        }
        for (number, told) in snapshot.flows.iter_mut().enumerate() {
            let (delays, periods) = &mut self.delays[number];
            (told.packets, told.violations) = (0, 0);
            for flow in counted.iter().map(|tally| &tally.flows[number]) {
                told.packets += flow.packets;
                told.violations += flow.violations;
                delays.merge(&flow.delay);
            }
            told.bytes = self.lengths.as_ref().map_or(0, |lengths| (told.packets as f64 * lengths[number]) as u64);
            *periods += 1;
            let percentile = self.percentiles[number];
            told.delay_s = delay(delays, percentile);
            if percentile.telling(delays.samples()) >= ENOUGH_ABOVE || *periods >= WIDEST {
                (*delays, *periods) = (Distribution::default(), 0);
            }
        }
        for (tally, told) in counted.iter().zip(&mut snapshot.workers) {
            (told.busy_s, told.busy_turns) = (tally.busy as f64 / 1e12, tally.busy_turns);
            told.port_wait_s = delay(&tally.port_wait, Percentile::Of(99.0));
        }
        snapshot
    }

    /// Of a period like the last, which followed it.
    pub(crate) fn again(&mut self) -> &Snapshot {
        self.snapshot.at_s += self.snapshot.period_s;
        &self.snapshot
    }
}

fn delay(seen: &Distribution, percentile: Percentile) -> Option<DelaySnapshot> {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let quantile = |share: f64| seen.quantile(share).map(seconds);
    let (p95, p99, mean) = (quantile(0.95)?, quantile(0.99)?, seen.mean()? / 1e9);
    let chosen = percentile.share().map_or(Some(mean), quantile)?;
    Some(DelaySnapshot { mean, p95, p99, chosen })
}
