//! The results of a controller's decisions, summed up for reports.

use forebay_control::Settings;
use forebay_measure::{Clock, Distribution, Histogram, Tsc};
use forebay_protocol::{
    Decision, Layout, ShortCause, ShortFlow, Snapshot, TriggerChange, UnkeptCause, UnkeptObjective,
    report::{ChangeReport, ControlReport, MoveReport, ShortCauseReport, ShortReport, UnkeptReport},
};
use forebay_units::Ticks;

/// The sum of all decisions for one pipeline layout.
pub struct DecisionSummary {
    report: ControlReport,
    /// By module, the index of its last change in the report. The report has at most one change per module.
    change_indexes: Vec<Option<usize>>,
    /// The durations of decisions, in ticks.
    took: Histogram,
}

impl DecisionSummary {
    /// Returns the state before the first decision.
    #[must_use]
    pub fn new(settings: &Settings, layout: &Layout) -> Self {
        let report = ControlReport {
            controller: settings.controller.name.to_owned(),
            period_ms: settings.period.0 as f64 / 1e6,
            guard: settings.guard,
            ..ControlReport::default()
        };
        Self { report, change_indexes: vec![None; layout.modules.len()], took: Histogram::new() }
    }

    /// Returns the report about all decisions.
    #[must_use]
    pub fn report(&self) -> ControlReport {
        let took: Distribution = self.took.read();
        let micros = |ticks: u64| Tsc.frequency().micros(ticks as f64);
        let took_us = took.quantile(0.5).zip(took.max()).map(|(median, most)| (micros(median), micros(most)));
        ControlReport { took_us, ..self.report.clone() }
    }

    /// Records why the last decision was not carried out; `None` if it was carried out.
    pub(crate) fn note(&mut self, trouble: Option<String>) {
        self.report.trouble = trouble;
    }

    /// Records why modules that should move to another worker cannot move; `None` if there are no such modules.
    pub(crate) fn set_unmoved(&mut self, unmoved: Option<String>) {
        self.report.unmoved = unmoved;
    }

    /// Records a move. Removes the oldest one if there are [`ControlReport::MOVES`] already.
    pub(crate) fn add_move(&mut self, moved: MoveReport) {
        let ControlReport { moves, unmoved, .. } = &mut self.report;
        *unmoved = None;
        if moves.len() == ControlReport::MOVES {
            moves.remove(0);
        }
        moves.push(moved);
    }

    /// Adds the decision after the period of `snapshot`. `layout` must have the modules and flows of that period.
    /// `took` is the duration of the decision, if it was measured.
    pub fn record(&mut self, layout: &Layout, snapshot: &Snapshot, actions: &Decision, took: Option<Ticks>) {
        took.into_iter().for_each(|took| self.took.record(took.0, 1));
        let report = &mut self.report;
        report.periods += 1;
        let missed = layout.flows.iter().zip(&snapshot.flows).filter(|(flow, sample)| sample.missed(flow));
        if let Some(shortest) = missed.filter_map(|(flow, _)| flow.slo_s).min_by(f64::total_cmp) {
            report.violated += 1;
            report.stalled += u64::from(snapshot.workers.iter().any(|worker| worker.had_turn_of(shortest / 2.0)));
        }
        for change in &actions.changes {
            let change_report = change_report(layout, snapshot.at_s, change);
            match self.change_indexes[change.module] {
                Some(index) => report.changes[index] = change_report,
                None => {
                    self.change_indexes[change.module] = Some(report.changes.len());
                    report.changes.push(change_report);
                }
            }
        }
        report.unkept.clear();
        let guard = report.guard;
        report.unkept.extend(actions.unkept.iter().filter(|unkept| is_beyond(unkept, guard)).map(|unkept| {
            UnkeptReport {
                flow: layout.flows[unkept.flow].name.clone(),
                least_us: unkept.least_s * 1e6,
                slo_us: unkept.slo_s * 1e6,
                cause: unkept.cause,
            }
        }));
        report.short.clear();
        report.short.extend(actions.short.iter().map(|short| short_report(layout, short)));
    }
}

/// Returns whether the controller's estimate exceeds the objective without its reserve. If the machine ran other work,
/// packets were late in the period although triggers can keep the objective. The estimate for a flow that is held back
/// excludes its queue.
fn is_beyond(unkept: &UnkeptObjective, guard: f64) -> bool {
    unkept.cause == UnkeptCause::Share || unkept.least_s > (1.0 - guard) * unkept.slo_s
}

fn change_report(layout: &Layout, at_s: f64, change: &TriggerChange) -> ChangeReport {
    ChangeReport {
        at_s,
        module: layout.modules[change.module].name.clone(),
        from: change.from,
        to: change.to,
        why: change.reason,
        flow: change.flow.map(|flow| layout.flows[flow].name.clone()),
    }
}

fn short_report(layout: &Layout, short: &ShortFlow) -> ShortReport {
    let Layout { flows, modules, .. } = layout;
    let module_name = |index: usize| modules[index].name.clone();
    ShortReport {
        flow: flows[short.flow].name.clone(),
        rate_pps: short.rate,
        min_rate_pps: flows[short.flow].min_rate.unwrap_or(short.stated),
        min_rate_bps: flows[short.flow].min_rate_bits,
        cause: match short.cause {
            ShortCause::Time { worker, load } => ShortCauseReport::Time { worker, load },
            ShortCause::Together { with, module } => {
                ShortCauseReport::Together { with: flows[with].name.clone(), module: module_name(module) }
            }
            ShortCause::Held { module } => ShortCauseReport::Held { module: module_name(module) },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: after a stall of the machine, an objective of 1 ms was reported as kept by no trigger, with an
    /// estimate of 174 us.
    #[test]
    fn an_objective_that_the_estimate_keeps_is_not_reported() {
        let is_reported = |least_us: f64, cause| {
            let unkept = UnkeptObjective { flow: 0, least_s: least_us * 1e-6, slo_s: 1e-3, cause };
            is_beyond(&unkept, 0.05)
        };
        for cause in [UnkeptCause::Slow, UnkeptCause::Time, UnkeptCause::Load, UnkeptCause::Stated] {
            assert_eq!(
                [174.0, 949.0, 951.0, 2e3].map(|least_us| is_reported(least_us, cause)),
                [false, false, true, true]
            );
        }
        assert!(is_reported(174.0, UnkeptCause::Share));
    }
}
