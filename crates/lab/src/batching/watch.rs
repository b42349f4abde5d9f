//! What is kept of each period of a run: what tables and plots need, and not the whole snapshot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::{Log, Settings};
use forebay_graph::{Actions, Layout, Snapshot};
use forebay_measure::Nanos;
use serde::Serialize;

use super::scenario::{FIRST, SETTLED};

/// A period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// When it ended, in seconds since the run began.
    pub at_s: f64,
    /// Packets a second that left.
    pub rate_pps: f64,
    /// Those of them that belong to flows without an objective.
    pub bulk_pps: f64,
    /// Whether more packets of a flow than may were above their objective.
    pub violated: bool,
    /// Whether the machine was elsewhere in a turn of it.
    pub stalled: bool,
    /// Whether it was shorter than a period: one of the first that a controller decides on, which it does anew after a reload.
    pub brief: bool,
    /// The percentile of the flow that came nearest to its objective, in parts of that; `None` where no packet of such a flow left.
    pub worst: Option<f64>,
    /// The watched flow's percentile, in microseconds.
    pub delay_us: Option<f64>,
    /// The watched flow's objective, in microseconds.
    pub slo_us: Option<f64>,
    /// The watched module's trigger.
    pub trigger: Option<usize>,
    /// Packets a call, the mean over modules.
    pub batch: Option<f64>,
}

/// What is shorter than this part of a period is none.
const WHOLE: f64 = 0.9;

impl Moment {
    /// Whether it counts where periods do: it is a whole one, and the machine was there.
    pub(super) fn counts(&self) -> bool {
        !self.stalled && !self.brief
    }

    /// Whether it counts, and an objective was missed in it.
    pub(super) fn missed(&self) -> bool {
        self.violated && self.counts()
    }
}

/// Watches a run.
#[derive(Clone)]
pub(super) struct Watch {
    flow: usize,
    module: Option<String>,
    /// A turn as long as this is a stall of the machine; `None`: there is no machine.
    stall: Option<Nanos>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    layout: Option<Layout>,
    /// A control period.
    period: Nanos,
    /// Decisions since the controller began.
    decided: u32,
    moments: Vec<Moment>,
    /// Triggers of the last period that counted and kept all objectives, once the controller had settled, by module.
    kept: Vec<usize>,
}

impl Watch {
    pub(super) fn new(flow: usize, module: Option<String>, stall: Option<Nanos>) -> Self {
        Self { flow, module, stall, seen: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pipeline, all periods, and the triggers of the last that counted and kept all objectives, by module.
    pub(super) fn take(&self) -> (Option<Layout>, Vec<Moment>, Vec<usize>) {
        let Seen { layout, moments, kept, .. } = std::mem::take(&mut *self.seen());
        (layout, moments, kept)
    }
}

/// The period as it is kept.
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
        let mut seen = self.seen();
        seen.layout = Some(layout.clone());
        seen.kept.clear();
        (seen.period, seen.decided) = (settings.period, 0);
    }

    fn period(&mut self, snapshot: &Snapshot, _: &Actions) {
        let mut seen = self.seen();
        let seen = &mut *seen;
        if let Some(layout) = &seen.layout {
            // Where a controller only goes on with other objectives, the period is a whole one; and one that is cut short because the
            // last was late is as good as any.
            let early = FIRST.0 << seen.decided.min(32) < seen.period.0;
            let brief = early && snapshot.period_s < WHOLE * seen.period.0 as f64 / 1e9;
            let moment = moment(self, layout, brief, snapshot);
            if moment.counts() && !moment.violated && seen.decided >= SETTLED {
                seen.kept = layout.modules.iter().map(|module| snapshot.modules[module.leader].trigger).collect();
            }
            seen.decided = seen.decided.saturating_add(1);
            seen.moments.push(moment);
        }
    }
}
