//! What a snapshot says of its period as a whole: whether it tells anything, whether packets queue, what flows took.

use forebay_graph::snapshot::{DelaySnapshot, FlowSnapshot, WorkerSnapshot};
use forebay_graph::{FlowLayout, Layout, Snapshot};

/// The share of its time that a worker has something to do where it has no time to spare.
const FULL: f64 = 0.98;
/// A turn of at least so many seconds, and so many times longer than the longest that there should be, is the machine's doing.
const STALL_S: f64 = 100e-6;
const STALL_TURNS: f64 = 2.0;

/// Where the rate of all packets changes by more than this part it is other traffic.
const ANOTHER: f64 = 0.25;

/// Packets a second, of all flows.
pub(crate) fn rate(snapshot: &Snapshot) -> f64 {
    snapshot.flows.iter().map(|flow| flow.packets).sum::<u64>() as f64 / snapshot.period_s
}

/// Whether it is other traffic, by the rates of all packets.
pub(crate) fn is_another(was: f64, is: f64) -> bool {
    (is - was).abs() > ANOTHER * was
}

/// Whether the machine was elsewhere for long in this period: what was seen says nothing of what will be.
pub(crate) fn stalled(layout: &Layout, snapshot: &Snapshot) -> bool {
    let stall = STALL_S.max(STALL_TURNS * full_turns(layout, snapshot).fold(0.0, f64::max));
    // The time that the system reports as taken by the machine is left out of everything. The rest is as good as any.
    snapshot.workers.iter().any(|worker| worker.had_turn_of(stall) && !worker.knows_away())
}

/// Whether a worker had no time to spare.
pub(crate) fn full(worker: &WorkerSnapshot, snapshot: &Snapshot) -> bool {
    worker.busy_s >= FULL * worker.there_s(snapshot.period_s)
}

/// By worker: what a turn takes in which each of its modules that packets came to is called with the largest batch, in seconds (Batchy
/// section 4.1).
pub(crate) fn full_turns(layout: &Layout, snapshot: &Snapshot) -> impl Iterator<Item = f64> {
    let call = |at: usize| snapshot.modules[at].cost_s.0 + snapshot.modules[at].cost_s.1 * layout.batch as f64;
    let turn = move |worker: usize| {
        let on_it =
            layout.running().filter(|(at, module)| snapshot.modules[*at].came > 0 && module.workers.contains(&worker));
        on_it.map(|(at, _)| call(at)).sum::<f64>()
    };
    (0..layout.workers).map(turn)
}

/// Whether packets queue at ports when a worker is slow: where they come only when they are asked for, it is always busy. Where some
/// come so and others by themselves, these hardly wait for more than a turn although it is.
pub(crate) fn queues(snapshot: &Snapshot) -> bool {
    let queues = |worker: &WorkerSnapshot| {
        let turn = worker.busy_s / worker.busy_turns.max(1) as f64;
        let least = if full(worker, snapshot) { turn } else { 0.0 };
        worker.port_wait_s.is_some_and(|wait| wait.mean > least)
    };
    snapshot.workers.iter().any(queues)
}

/// By flow: what its packets took, in seconds, at its percentile; where few left, or none, at least as long as the oldest waits.
/// The part that the machine added is left out as far as it is known: no trigger wins it back. `None` without packets.
pub(crate) fn delays(layout: &Layout, snapshot: &Snapshot) -> Vec<Option<f64>> {
    let delay = |(flow, told): (&FlowLayout, &FlowSnapshot)| {
        let oldest = flow.path.iter().map(|at| snapshot.modules[*at].oldest_s).fold(0.0, f64::max);
        // Of a flow that none left of it is all that is known.
        told.delay_s.map_or((oldest > 0.0).then_some(oldest), |delay| Some(chosen(told, delay, oldest)))
    };
    layout.flows.iter().zip(&snapshot.flows).map(delay).collect()
}

/// The same as equation 12 counts them, of the packet that waits longest: twice the mean, so that what a buffer adds is
/// half of its longest wait for a flow whose mean counts. Objectives are then
/// [twice](forebay_graph::Percentile::longest) as long, too.
pub(crate) fn longest_delays(layout: &Layout, snapshot: &Snapshot) -> Vec<Option<f64>> {
    let longest = |(flow, delay): (&FlowLayout, Option<f64>)| Some(delay? * flow.percentile.longest());
    layout.flows.iter().zip(delays(layout, snapshot)).map(longest).collect()
}

/// Returns the delay of a flow at its percentile, the oldest that waits among them; where the machine took time from
/// workers, without that: the oldest may wait for nothing else.
pub(crate) fn chosen(flow: &FlowSnapshot, delay: DelaySnapshot, oldest: f64) -> f64 {
    flow.undisturbed_s.unwrap_or(delay.chosen.max(oldest))
}

#[cfg(test)]
mod tests {
    use forebay_graph::snapshot::ModuleSnapshot;

    use super::*;
    use crate::testing::{flow, layout};

    /// Where the system tells what the machine took, a long turn says that it took it, and no more.
    #[test]
    fn a_period_is_stalled_only_as_far_as_is_not_known_why() {
        let layout = layout(Vec::new(), Vec::new());
        let mut worker = WorkerSnapshot { busy_s: 0.04, busy_turns: 10, long_s: 0.05, ..WorkerSnapshot::default() };
        worker.long_turns[5] = 10;
        let of = |away_s: Option<f64>| Snapshot {
            period_s: 0.1,
            workers: vec![WorkerSnapshot { away_s, ..worker }],
            ..Snapshot::default()
        };
        let told = [None, Some(0.0), Some(0.01), Some(0.05)].map(|away| stalled(&layout, &of(away)));
        assert_eq!(told, [true, true, true, false]);
        let snapshot = of(Some(0.06));
        assert!(full(&snapshot.workers[0], &snapshot), "it is busy in all the time that it has");
        assert!(!full(&of(None).workers[0], &of(None)));
    }

    /// An idle flow whose packets lie in a buffer looked perfect.
    #[test]
    fn of_a_flow_that_has_stopped_the_oldest_packet_is_the_delay() {
        let layout = layout(Vec::new(), vec![flow("f", &[0], Some(1e-3))]);
        let told = |chosen: Option<f64>, oldest_s: f64| {
            let delay_s = chosen.map(|chosen| DelaySnapshot { chosen, ..DelaySnapshot::default() });
            let snapshot = Snapshot {
                modules: vec![ModuleSnapshot { oldest_s, ..ModuleSnapshot::default() }],
                flows: vec![FlowSnapshot { delay_s, ..FlowSnapshot::default() }],
                ..Snapshot::default()
            };
            delays(&layout, &snapshot)[0]
        };
        assert_eq!((told(None, 0.0), told(None, 5e-3)), (None, Some(5e-3)));
        assert_eq!((told(Some(1e-4), 0.0), told(Some(1e-4), 5e-3)), (Some(1e-4), Some(5e-3)));
    }
}
