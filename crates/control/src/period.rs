//! Properties of a whole period: whether it is usable, whether packets queue, and the delays of flows.
//!
//! The *machine* is the host or another thread that has a worker's core for some time.

use forebay_protocol::{
    FlowLayout, Layout, Snapshot,
    snapshot::{DelaySnapshot, FlowSnapshot, WorkerSnapshot},
};

/// A worker counts as having no spare time if it is busy for at least this fraction of the time in which it has its
/// core.
const FULL: f64 = 0.98;
/// A turn counts as a stall of the machine only if it takes at least this time, in seconds.
const STALL_S: f64 = 100e-6;
/// A turn counts as a stall of the machine only if it takes at least this multiple of the longest expected turn, and at
/// least `STALL_S`.
const STALL_TURNS: f64 = 2.0;

/// Traffic counts as other traffic if the rate of all packets differs by more than this fraction.
const ANOTHER: f64 = 0.25;

/// Returns the packets per second of all flows.
pub(crate) fn rate(snapshot: &Snapshot) -> f64 {
    snapshot.flows.iter().map(|flow| flow.packets).sum::<u64>() as f64 / snapshot.period_s
}

/// Returns whether the rate `is` belongs to other traffic than the rate `was`.
pub(crate) fn is_another(was: f64, is: f64) -> bool {
    (is - was).abs() > ANOTHER * was
}

/// Returns whether the machine stalled for long in this period: a worker had a turn that was much longer than its calls
/// can take. The figures of the period then do not predict the next period.
pub(crate) fn stalled(layout: &Layout, snapshot: &Snapshot) -> bool {
    let stall = STALL_S.max(STALL_TURNS * full_turns(layout, snapshot).fold(0.0, f64::max));
    // If the system reports the time that the machine took, this time is already excluded from the figures, and they
    // are valid.
    snapshot.workers.iter().any(|worker| worker.had_turn_of(stall) && !worker.knows_away())
}

/// Returns whether a worker had no spare time.
pub(crate) fn full(worker: &WorkerSnapshot, snapshot: &Snapshot) -> bool {
    worker.busy_s >= FULL * worker.there_s(snapshot.period_s)
}

/// Returns for each worker the time of a turn in which each of its active modules is called with the largest batch, in
/// seconds (Batchy section 4.1).
pub(crate) fn full_turns(layout: &Layout, snapshot: &Snapshot) -> impl Iterator<Item = f64> {
    let call = |at: usize| snapshot.modules[at].cost_s.0 + snapshot.modules[at].cost_s.1 * layout.batch as f64;
    let turn = move |worker: usize| {
        let on_it =
            layout.running().filter(|(at, module)| snapshot.modules[*at].came > 0 && module.workers.contains(&worker));
        on_it.map(|(at, _)| call(at)).sum::<f64>()
    };
    (0..layout.workers).map(turn)
}

/// Returns whether packets queue at ports because a worker is slow. For a worker with spare time, packets queue if they
/// wait at all. For a worker that is always busy, packets queue if their mean wait is longer than a turn. A worker
/// whose packets are generated on request is always busy without queues. If it also gets other packets, these usually
/// wait for at most one turn.
pub(crate) fn queues(snapshot: &Snapshot) -> bool {
    let queues = |worker: &WorkerSnapshot| {
        let turn = worker.busy_s / worker.busy_turns.max(1) as f64;
        let least = if full(worker, snapshot) { turn } else { 0.0 };
        worker.port_wait_s.is_some_and(|wait| wait.mean > least)
    };
    snapshot.workers.iter().any(queues)
}

/// Returns for each flow its delay in seconds at its percentile, but at least the age of the oldest waiting packet. If
/// the time that the machine added to the delay is known, this time is excluded, because no trigger can change it.
/// `None` for a flow without packets.
pub(crate) fn delays(layout: &Layout, snapshot: &Snapshot) -> Vec<Option<f64>> {
    let delay = |(flow, seen): (&FlowLayout, &FlowSnapshot)| {
        let oldest = flow.path.iter().map(|at| snapshot.modules[*at].oldest_s).fold(0.0, f64::max);
        // If no packet of a flow departed, only the age of the oldest waiting packet is known.
        seen.delay_s.map_or((oldest > 0.0).then_some(oldest), |delay| Some(chosen(seen, delay, oldest)))
    };
    layout.flows.iter().zip(&snapshot.flows).map(delay).collect()
}

/// Returns the [`delays`] in the form of equation 12, for the packet that waits longest. The delay of a flow with a
/// mean objective is doubled, because a buffer adds half of its longest wait to the mean. The objective must then be
/// [doubled](forebay_units::Percentile::longest), too.
pub(crate) fn longest_delays(layout: &Layout, snapshot: &Snapshot) -> Vec<Option<f64>> {
    let longest = |(flow, delay): (&FlowLayout, Option<f64>)| Some(delay? * flow.percentile.longest());
    layout.flows.iter().zip(delays(layout, snapshot)).map(longest).collect()
}

/// Returns a flow's delay at its percentile, but at least the age of the oldest waiting packet. If the machine took
/// time from workers, the delay without that time is used, because the oldest packet may be waiting only for the
/// machine.
pub(crate) fn chosen(flow: &FlowSnapshot, delay: DelaySnapshot, oldest: f64) -> f64 {
    flow.undisturbed_s.unwrap_or(delay.chosen.max(oldest))
}

#[cfg(test)]
mod tests {
    use forebay_protocol::snapshot::ModuleSnapshot;

    use super::*;
    use crate::testing::{flow, layout};

    /// If the system reports the time that the machine took, a long turn that it explains is not a stall.
    #[test]
    fn only_unexplained_long_turns_are_stalls() {
        let layout = layout(Vec::new(), Vec::new());
        let mut worker = WorkerSnapshot { busy_s: 0.04, busy_turns: 10, long_s: 0.05, ..WorkerSnapshot::default() };
        worker.long_turns[5] = 10;
        let of = |away_s: Option<f64>| Snapshot {
            period_s: 0.1,
            workers: vec![WorkerSnapshot { away_s, ..worker }],
            ..Snapshot::default()
        };
        let stalls = [None, Some(0.0), Some(0.01), Some(0.05)].map(|away| stalled(&layout, &of(away)));
        assert_eq!(stalls, [true, true, true, false]);
        let snapshot = of(Some(0.06));
        assert!(full(&snapshot.workers[0], &snapshot), "it is busy in all of its available time");
        assert!(!full(&of(None).workers[0], &of(None)));
    }

    /// Regression test: an idle flow with packets in a buffer seemed to have no delay.
    #[test]
    fn the_delay_of_a_stopped_flow_is_the_age_of_its_oldest_packet() {
        let layout = layout(Vec::new(), vec![flow("f", &[0], Some(1e-3))]);
        let delay = |chosen: Option<f64>, oldest_s: f64| {
            let delay_s = chosen.map(|chosen| DelaySnapshot { chosen, ..DelaySnapshot::default() });
            let snapshot = Snapshot {
                modules: vec![ModuleSnapshot { oldest_s, ..ModuleSnapshot::default() }],
                flows: vec![FlowSnapshot { delay_s, ..FlowSnapshot::default() }],
                ..Snapshot::default()
            };
            delays(&layout, &snapshot)[0]
        };
        assert_eq!((delay(None, 0.0), delay(None, 5e-3)), (None, Some(5e-3)));
        assert_eq!((delay(Some(1e-4), 0.0), delay(Some(1e-4), 5e-3)), (Some(1e-4), Some(5e-3)));
    }
}
