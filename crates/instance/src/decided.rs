//! What a controller has decided, added up for whoever asks.

use forebay_control::Settings;
use forebay_measure::{Clock, Distribution, Histogram, Tsc};
use forebay_protocol::{
    Decision, Layout, ShortCause, ShortFlow, Snapshot, TriggerChange,
    report::{ChangeReport, ControlReport, MoveReport, ShortCauseReport, ShortReport, UnkeptReport},
};
use forebay_units::Ticks;

/// What has been decided of a pipeline of one shape.
pub struct Decided {
    report: ControlReport,
    /// By module: its last change's place in the report.
    places: Vec<Option<usize>>,
    /// What decisions took, in ticks.
    took: Histogram,
}

impl Decided {
    /// Nothing yet.
    #[must_use]
    pub fn new(settings: &Settings, layout: &Layout) -> Self {
        let report = ControlReport {
            controller: settings.controller.name.to_owned(),
            period_ms: settings.period.0 as f64 / 1e6,
            guard: settings.guard,
            ..ControlReport::default()
        };
        Self { report, places: vec![None; layout.modules.len()], took: Histogram::new() }
    }

    /// What has been decided.
    #[must_use]
    pub fn report(&self) -> ControlReport {
        let took: Distribution = self.took.read();
        let micros = |ticks: u64| Tsc.frequency().micros(ticks as f64);
        let took_us = took.quantile(0.5).zip(took.max()).map(|(median, most)| (micros(median), micros(most)));
        ControlReport { took_us, ..self.report.clone() }
    }

    /// Says that the last decision was not carried out, or that it was.
    pub(crate) fn note(&mut self, trouble: Option<String>) {
        self.report.trouble = trouble;
    }

    /// Says why modules that should go to another worker do not, or that none should.
    pub(crate) fn tell_unmoved(&mut self, unmoved: Option<String>) {
        self.report.unmoved = unmoved;
    }

    /// Says what has moved.
    pub(crate) fn tell_moved(&mut self, moved: MoveReport) {
        let ControlReport { moves, unmoved, .. } = &mut self.report;
        *unmoved = None;
        if moves.len() == ControlReport::MOVES {
            moves.remove(0);
        }
        moves.push(moved);
    }

    /// Adds what was decided after a period, and how long that took, where it was measured.
    pub fn tell(&mut self, layout: &Layout, snapshot: &Snapshot, actions: &Decision, took: Option<Ticks>) {
        took.into_iter().for_each(|took| self.took.record(took.0, 1));
        let report = &mut self.report;
        report.periods += 1;
        let missed = layout.flows.iter().zip(&snapshot.flows).filter(|(flow, told)| told.missed(flow));
        if let Some(shortest) = missed.filter_map(|(flow, _)| flow.slo_s).min_by(f64::total_cmp) {
            report.violated += 1;
            report.stalled += u64::from(snapshot.workers.iter().any(|worker| worker.had_turn_of(shortest / 2.0)));
        }
        for change in &actions.changes {
            let told = changed(layout, snapshot.at_s, change);
            match self.places[change.module] {
                Some(place) => report.changes[place] = told,
                None => {
                    self.places[change.module] = Some(report.changes.len());
                    report.changes.push(told);
                }
            }
        }
        report.unkept.clear();
        report.unkept.extend(actions.unkept.iter().map(|unkept| UnkeptReport {
            flow: layout.flows[unkept.flow].name.clone(),
            least_us: unkept.least_s * 1e6,
            slo_us: unkept.slo_s * 1e6,
            cause: unkept.cause,
        }));
        report.short.clear();
        report.short.extend(actions.short.iter().map(|told| short(layout, told)));
    }
}

fn changed(layout: &Layout, at_s: f64, change: &TriggerChange) -> ChangeReport {
    ChangeReport {
        at_s,
        module: layout.modules[change.module].name.clone(),
        from: change.from,
        to: change.to,
        why: change.reason,
        flow: change.flow.map(|flow| layout.flows[flow].name.clone()),
    }
}

fn short(layout: &Layout, short: &ShortFlow) -> ShortReport {
    let Layout { flows, modules, .. } = layout;
    let module = |at: usize| modules[at].name.clone();
    ShortReport {
        flow: flows[short.flow].name.clone(),
        rate_pps: short.rate,
        min_rate_pps: flows[short.flow].min_rate.unwrap_or(short.stated),
        min_rate_bps: flows[short.flow].min_rate_bits,
        cause: match short.cause {
            ShortCause::Time { worker, load } => ShortCauseReport::Time { worker, load },
            ShortCause::Together { with, module: at } => {
                ShortCauseReport::Together { with: flows[with].name.clone(), module: module(at) }
            }
            ShortCause::Held { module: at } => ShortCauseReport::Held { module: module(at) },
        },
    }
}
