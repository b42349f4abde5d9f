//! Records each period of a run: the values that tables and plots need, instead of the whole snapshot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::{Log, Settings};
use forebay_protocol::{Decision, Layout, Snapshot};
use forebay_units::Nanos;
use serde::Serialize;

use super::scenario::{FIRST, SETTLED};

/// A recorded period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// The time at which the period ended, in seconds since the run began.
    pub at_s: f64,
    /// The packets per second that left.
    pub rate_pps: f64,
    /// The packets per second of flows without an objective.
    pub bulk_pps: f64,
    /// Whether a flow missed its objective: too many of its packets had a longer delay.
    pub violated: bool,
    /// Whether the machine was busy elsewhere: a worker had a turn so long that another program or the host must have
    /// had its core. Always false in simulated time.
    pub stalled: bool,
    /// Whether the period was shorter than the control period. After a start or a reload, a controller decides several
    /// times at shorter intervals.
    pub brief: bool,
    /// The delay of the flow that came nearest to its objective, as a multiple of the objective. The delay is taken at
    /// the objective's percentile. At most 1 if no flow missed its objective. `None` if no packet of a flow with an
    /// objective left.
    pub worst: Option<f64>,
    /// The delay of the watched flow at its percentile, in microseconds.
    pub delay_us: Option<f64>,
    /// The objective of the watched flow, in microseconds.
    pub slo_us: Option<f64>,
    /// The trigger of the watched module.
    pub trigger: Option<usize>,
    /// The packets per call: the mean over modules.
    pub batch: Option<f64>,
}

/// A period shorter than this share of the control period is brief.
const WHOLE: f64 = 0.9;

impl Moment {
    /// Returns whether the period counts: it is a whole period, and the machine was not busy elsewhere.
    pub(super) fn counts(&self) -> bool {
        !self.stalled && !self.brief
    }

    /// Returns whether the period counts and an objective was missed in it.
    pub(super) fn missed(&self) -> bool {
        self.violated && self.counts()
    }
}

/// A log that records the periods of a run.
#[derive(Clone)]
pub(super) struct Watch {
    /// The index of the flow whose delay and objective are recorded.
    flow: usize,
    /// The module whose trigger is recorded.
    module: Option<String>,
    /// A turn of at least this length is a stall of the machine. `None` in simulated time, which has no stalls.
    stall: Option<Nanos>,
    recorded: Arc<Mutex<Recorded>>,
}

/// The recorded periods and the state of the recording.
#[derive(Default)]
struct Recorded {
    /// The pipeline. `None` until a controller has started.
    layout: Option<Layout>,
    /// The control period.
    period: Nanos,
    /// The number of decisions since the controller started.
    decided: u32,
    moments: Vec<Moment>,
    /// The triggers, by module, of the last period that counted and kept all objectives after the controller had
    /// settled.
    kept: Vec<usize>,
}

impl Watch {
    /// Creates a log that watches the flow with this index and the trigger of this module. Clones record into the same
    /// list, so the caller keeps one for [`take`](Self::take).
    pub(super) fn new(flow: usize, module: Option<String>, stall: Option<Nanos>) -> Self {
        Self { flow, module, stall, recorded: Arc::default() }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pipeline, all periods, and the triggers (by module) of the last period that counted and kept all
    /// objectives. Clears the record.
    pub(super) fn take(&self) -> (Option<Layout>, Vec<Moment>, Vec<usize>) {
        let Recorded { layout, moments, kept, .. } = std::mem::take(&mut *self.recorded());
        (layout, moments, kept)
    }
}

/// Returns the record of a period. `brief` is copied into it.
fn moment(watch: &Watch, layout: &Layout, brief: bool, snapshot: &Snapshot) -> Moment {
    let (mut violated, mut worst) = (false, None::<f64>);
    for (flow, observed) in layout.flows.iter().zip(&snapshot.flows) {
        let Some(slo) = flow.slo_s else { continue };
        let missed = observed.missed(flow);
        violated |= missed;
        if let Some(delay) = observed.delay_s.filter(|_| observed.packets > 0) {
            let part = delay.chosen / slo;
            let part = if missed { part } else { part.min(1.0) };
            worst = Some(worst.map_or(part, |worst| worst.max(part)));
        }
    }
    let flow = layout.flows.get(watch.flow).zip(snapshot.flows.get(watch.flow));
    let module = layout.modules.iter().position(|module| watch.module.as_ref() == Some(&module.name));
    let batches: Vec<f64> = snapshot.modules.iter().filter_map(|module| module.batch()).collect();
    let packets: u64 = snapshot.flows.iter().map(|flow| flow.packets).sum();
    let bulk = layout.flows.iter().zip(&snapshot.flows).filter(|(flow, _)| flow.slo_s.is_none());
    let bulk: u64 = bulk.map(|(_, observed)| observed.packets).sum();
    Moment {
        at_s: snapshot.at_s,
        rate_pps: packets as f64 / snapshot.period_s,
        bulk_pps: bulk as f64 / snapshot.period_s,
        violated,
        stalled: watch
            .stall
            .is_some_and(|stall| snapshot.workers.iter().any(|worker| worker.had_turn_of(stall.0 as f64 / 1e9))),
        brief,
        worst,
        delay_us: flow.and_then(|(_, observed)| Some(observed.delay_s?.chosen * 1e6)),
        slo_us: flow.and_then(|(flow, _)| Some(flow.slo_s? * 1e6)),
        trigger: module.map(|at| snapshot.modules[layout.modules[at].leader].trigger),
        batch: (!batches.is_empty()).then(|| batches.iter().sum::<f64>() / batches.len() as f64),
    }
}

impl Log for Watch {
    fn begin(&mut self, settings: &Settings, layout: &Layout) {
        let mut recorded = self.recorded();
        recorded.layout = Some(layout.clone());
        recorded.kept.clear();
        (recorded.period, recorded.decided) = (settings.period, 0);
    }

    fn period(&mut self, snapshot: &Snapshot, _: &Decision) {
        let mut recorded = self.recorded();
        let recorded = &mut *recorded;
        if let Some(layout) = &recorded.layout {
            // Only the short periods directly after the start of a controller are brief. If a controller continues with
            // other objectives, its periods are whole ones. A later period that is shorter because the last decision
            // was late is not brief.
            let early = FIRST.0 << recorded.decided.min(32) < recorded.period.0;
            let brief = early && snapshot.period_s < WHOLE * recorded.period.0 as f64 / 1e9;
            let moment = moment(self, layout, brief, snapshot);
            if moment.counts() && !moment.violated && recorded.decided >= SETTLED {
                recorded.kept = layout.modules.iter().map(|module| snapshot.modules[module.leader].trigger).collect();
            }
            recorded.decided = recorded.decided.saturating_add(1);
            recorded.moments.push(moment);
        }
    }
}
