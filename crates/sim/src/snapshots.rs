//! Builds snapshots of the counts of each period, as the engine's sampler does.

use forebay_measure::Distribution;
use forebay_protocol::{
    Snapshot,
    snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot, WorkerSnapshot},
};
use forebay_units::Percentile;

use crate::scene::Scene;
use crate::tally::{ModuleTally, Tally};
use crate::team::Workers;
use crate::worker::CallCost;

/// A percentile needs at least this number of packets above it. Until a flow has sent so many packets, the delays of
/// further periods are added to the delays of earlier periods (as in the engine).
const ENOUGH_ABOVE: f64 = 1.0;
/// The largest number of periods whose delays are added up (as in the engine).
const MAX_PERIODS: u32 = 10;

/// Builds the snapshots of successive periods.
pub(crate) struct Snapshots {
    /// The last snapshot. It is overwritten for each period.
    snapshot: Snapshot,
    /// By flow: the percentile of its delay objective.
    percentiles: Vec<Percentile>,
    /// By flow: mean bytes per packet. Present only if a rate objective is in bits.
    lengths: Option<Vec<f64>>,
    /// By flow: the delays of the last periods, collected until enough of them lie above the percentile, and the number
    /// of these periods.
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

    /// Returns the snapshot of a period. The period ended at `at` and lasted `span`, both in seconds. `counted` are the
    /// counts of the period by worker, and `costs` the costs of a call by module.
    pub(crate) fn take(
        &mut self,
        (at, span): (f64, f64),
        counted: &[Tally],
        team: &dyn Workers,
        costs: &[CallCost],
    ) -> &mut Snapshot {
        let snapshot = &mut self.snapshot;
        (snapshot.at_s, snapshot.period_s) = (at, span);
        for (number, module) in snapshot.modules.iter_mut().enumerate() {
            let (now, cost) = (team.module(number), costs[number]);
            let sum = |of: fn(&ModuleTally) -> u64| counted.iter().map(|tally| of(&tally.modules[number])).sum::<u64>();
            (module.packets, module.calls, module.came) = (sum(|it| it.packets), sum(|it| it.calls), sum(|it| it.came));
            module.arrived = (sum(|it| it.arrived), sum(|it| it.arrivals));
            let seconds = cost.fixed.seconds() * module.calls as f64 + cost.each.seconds() * module.packets as f64;
            module.timed = (module.calls, module.packets, seconds);
            (module.trigger, module.hold_s, module.weight) = (now.trigger, now.hold.seconds(), now.weight);
            (module.queued, module.oldest_s) = (now.queued, now.oldest.seconds());
        }
        for (number, flow) in snapshot.flows.iter_mut().enumerate() {
            let (delays, periods) = &mut self.delays[number];
            (flow.packets, flow.violations) = (0, 0);
            for counts in counted.iter().map(|tally| &tally.flows[number]) {
                flow.packets += counts.packets;
                flow.violations += counts.violations;
                delays.merge(&counts.delay);
            }
            flow.bytes = self.lengths.as_ref().map_or(0, |lengths| (flow.packets as f64 * lengths[number]) as u64);
            *periods += 1;
            let percentile = self.percentiles[number];
            flow.delay_s = delay(delays, percentile);
            if percentile.samples_above(delays.samples()) >= ENOUGH_ABOVE || *periods >= MAX_PERIODS {
                (*delays, *periods) = (Distribution::default(), 0);
            }
        }
        for (tally, worker) in counted.iter().zip(&mut snapshot.workers) {
            (worker.busy_s, worker.busy_turns) = (tally.busy as f64 / 1e12, tally.busy_turns);
            worker.port_wait_s = delay(&tally.port_wait, Percentile::Of(99.0));
        }
        snapshot
    }

    /// Returns a snapshot for the next period. All values equal those of the last snapshot, except the time.
    pub(crate) fn again(&mut self) -> &Snapshot {
        self.snapshot.at_s += self.snapshot.period_s;
        &self.snapshot
    }
}

/// Returns the figures of delays in nanoseconds, converted to seconds. `None` without delays.
fn delay(seen: &Distribution, percentile: Percentile) -> Option<DelaySnapshot> {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let quantile = |share: f64| seen.quantile(share).map(seconds);
    let (p95, p99, mean) = (quantile(0.95)?, quantile(0.99)?, seen.mean()? / 1e9);
    let chosen = percentile.share().map_or(Some(mean), quantile)?;
    Some(DelaySnapshot { mean, p95, p99, chosen })
}
