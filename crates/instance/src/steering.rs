//! Batch control of a running pipeline: what is decided once a period, and what is told of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::{Costs, Log, Pilot, Profiled, Settings};
use forebay_graph::report::{ChangeReport, ControlReport, ShortCauseReport, ShortReport, UnkeptReport};
use forebay_graph::{
    Action, Actions, FlowError, Layout, Plan, Sampler, SetupError, Short, ShortCause, Snapshot, Telemetry,
};
use forebay_measure::{Clock, Distribution, Histogram, Nanos, Tsc};
use forebay_packet::Ticks;

/// How soon the first decision is made; every further one takes twice as long, until it is a period.
const FIRST: Nanos = Nanos(1_000_000);

/// What whoever sets triggers is given besides the configuration.
#[derive(Default)]
pub struct Steer {
    /// By function: what a call costs, as was measured before.
    pub costs: BTreeMap<String, Profiled>,
    /// Who sees what is decided.
    pub log: Option<Box<dyn Log>>,
}

/// What sets the triggers of a pipeline of a certain shape.
pub(crate) struct Steering {
    pub(crate) settings: Settings,
    layout: Layout,
    costs: Costs,
    told: Mutex<Told>,
}

/// What has been decided.
struct Told {
    report: ControlReport,
    /// By module: its last change's place in the report.
    places: Vec<Option<usize>>,
    /// What decisions took, in ticks.
    took: Histogram,
}

impl Steering {
    /// Of the pipeline that `plan` is of.
    pub(crate) fn new(settings: Settings, plan: &Plan, costs: Costs) -> Result<Self, FlowError> {
        let layout = plan.layout()?;
        let report = ControlReport {
            controller: settings.controller.name.to_owned(),
            period_ms: settings.period.0 as f64 / 1e6,
            guard: settings.guard,
            ..ControlReport::default()
        };
        let told = Told { report, places: vec![None; layout.modules.len()], took: Histogram::new() };
        Ok(Self { settings, layout, costs, told: Mutex::new(told) })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been decided.
    pub(crate) fn report(&self) -> ControlReport {
        let told = self.told();
        let took: Distribution = told.took.read();
        let micros = |ticks: u64| Tsc.frequency().micros(ticks as f64);
        let took_us = took.quantile(0.5).zip(took.max()).map(|(median, most)| (micros(median), micros(most)));
        ControlReport { took_us, ..told.report.clone() }
    }

    /// Says that the last decision was not carried out, or that it was.
    pub(crate) fn note(&self, trouble: Option<String>) {
        self.told().report.trouble = trouble;
    }

    fn short(&self, short: &Short) -> ShortReport {
        let Layout { flows, modules, .. } = &self.layout;
        let module = |at: usize| modules[at].name.clone();
        ShortReport {
            flow: flows[short.flow].name.clone(),
            rate_pps: short.rate,
            min_rate_pps: flows[short.flow].min_rate.unwrap_or(0.0),
            cause: match short.cause {
                ShortCause::Time { worker, load } => ShortCauseReport::Time { worker, load },
                ShortCause::Together { with, module: at } => {
                    ShortCauseReport::Together { with: flows[with].name.clone(), module: module(at) }
                }
                ShortCause::Held { module: at } => ShortCauseReport::Held { module: module(at) },
            },
        }
    }

    fn tell(&self, snapshot: &Snapshot, actions: &Actions, took: Ticks) {
        let Told { report, places, took: all } = &mut *self.told();
        all.record(took.0, 1);
        report.periods += 1;
        let flows = self.layout.flows.iter().zip(&snapshot.flows);
        let above = |slo: Option<f64>, delay: Option<f64>| slo.zip(delay).is_some_and(|(slo, delay)| delay > slo);
        let violated = flows.clone().any(|(flow, told)| above(flow.slo_s, told.delay_s.map(|delay| delay.chosen)));
        report.violated += u64::from(violated);
        for change in &actions.changes {
            let told = ChangeReport {
                at_s: snapshot.at_s,
                module: self.layout.modules[change.module].name.clone(),
                from: change.from,
                to: change.to,
                why: change.why,
                flow: change.flow.map(|flow| self.layout.flows[flow].name.clone()),
            };
            match places[change.module] {
                Some(place) => report.changes[place] = told,
                None => {
                    places[change.module] = Some(report.changes.len());
                    report.changes.push(told);
                }
            }
        }
        report.unkept.clear();
        report.unkept.extend(actions.unkept.iter().map(|unkept| UnkeptReport {
            flow: self.layout.flows[unkept.flow].name.clone(),
            least_us: unkept.least_s * 1e6,
            slo_us: unkept.slo_s * 1e6,
        }));
        report.short.clear();
        report.short.extend(actions.short.iter().map(|short| self.short(short)));
    }
}

/// Decides from period to period.
pub(crate) struct Helm {
    pub(crate) steering: Arc<Steering>,
    pilot: Pilot,
    sampler: Sampler,
    decided: u32,
}

impl Helm {
    /// For what workers count, which are of the same graph; the run began at `began`, and what was counted until now is the past.
    pub(crate) fn new(
        steering: Arc<Steering>,
        telemetries: Vec<Arc<Telemetry>>,
        began: Ticks,
        now: Ticks,
        log: Option<&mut (dyn Log + 'static)>,
    ) -> Result<Self, SetupError> {
        let pilot = Pilot::new(&steering.settings, steering.layout.clone(), steering.costs.clone())?;
        if let Some(log) = log {
            log.begin(&steering.settings, &steering.layout);
        }
        Ok(Self { steering, pilot, sampler: Sampler::new(telemetries, began, now), decided: 0 })
    }

    /// How long after this decision the next is made, in nanoseconds: nothing is known when a pipeline starts, and it need not wait
    /// for long.
    pub(crate) fn patience(&self) -> Nanos {
        Nanos((FIRST.0 << self.decided.min(32)).min(self.steering.settings.period.0))
    }

    /// Gives every flow that has an objective this one.
    pub(crate) fn set_objectives(&mut self, slo: Nanos, log: Option<&mut (dyn Log + 'static)>) {
        self.pilot.set_objectives(slo);
        if let Some(log) = log {
            log.begin(&self.steering.settings, self.pilot.layout());
        }
    }

    /// What is to change after the period that ends now.
    pub(crate) fn decide(&mut self, now: Ticks, log: Option<&mut (dyn Log + 'static)>) -> &[Action] {
        let start = Tsc.now();
        self.decided = self.decided.saturating_add(1);
        let snapshot = self.sampler.take(now);
        let actions = self.pilot.decide(snapshot);
        let took = Tsc.now().since(start);
        self.steering.tell(snapshot, actions, took);
        if let Some(log) = log {
            log.period(snapshot, actions);
        }
        &actions.all
    }
}
