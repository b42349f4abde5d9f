//! Batch control of a running pipeline: what is decided once a period, and what is told of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::{Costs, Log, Pilot, Profiled, Settings};
use forebay_graph::report::ControlReport;
use forebay_graph::{Action, FlowError, Layout, Plan, Sampler, SetupError, Telemetry};
use forebay_measure::{Clock, Nanos, Tsc};
use forebay_packet::Ticks;

use crate::decided::Decided;

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
    told: Mutex<Decided>,
}

impl Steering {
    /// Of the pipeline that `plan` is of.
    pub(crate) fn new(settings: Settings, plan: &Plan, costs: Costs) -> Result<Self, FlowError> {
        let layout = plan.layout()?;
        let told = Decided::new(&settings, &layout);
        Ok(Self { settings, layout, costs, told: Mutex::new(told) })
    }

    fn told(&self) -> MutexGuard<'_, Decided> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been decided.
    pub(crate) fn report(&self) -> ControlReport {
        self.told().report()
    }

    /// Says that the last decision was not carried out, or that it was.
    pub(crate) fn note(&self, trouble: Option<String>) {
        self.told().note(trouble);
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
        self.steering.told().tell(&self.steering.layout, snapshot, actions, Some(took));
        if let Some(log) = log {
            log.period(snapshot, actions);
        }
        &actions.all
    }
}
