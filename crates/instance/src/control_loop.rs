//! Batch control of a running pipeline: what is decided once a period, and what is told of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_control::{ControllerRunner, Costs, Decomposer, Log, Move, Profiled, Settings};
use forebay_graph::{FlowError, Plan, Sampler, SetupError, Telemetry};
use forebay_measure::{Away, Clock, Tsc};
use forebay_protocol::{
    Action, Layout,
    report::{ControlReport, MoveReport},
};
use forebay_units::{Nanos, Ticks};

use crate::decided::Decided;

/// How soon the first decision is made; every further one takes twice as long, until it is a period.
const FIRST: Nanos = Nanos(1_000_000);

/// What whoever sets triggers is given besides the configuration.
#[derive(Default)]
pub struct ControlInputs {
    /// By function, or by [module](ControlInputs::module_key): what a call costs, as was measured before.
    pub costs: BTreeMap<String, Profiled>,
    /// Who sees what is decided.
    pub log: Option<Box<dyn Log>>,
}

impl ControlInputs {
    /// The key of one module's own cost in [`costs`](Self::costs), which counts before its function's.
    #[must_use]
    pub fn module_key(name: &str) -> String {
        format!("module {name}")
    }
}

/// What sets the triggers of a pipeline of a certain shape.
pub(crate) struct ControlLoop {
    pub(crate) settings: Settings,
    layout: Layout,
    costs: Costs,
    /// By flow: the modules on its way, where some may go to other workers.
    ways: Vec<Vec<usize>>,
    /// Of all arrangements of one configuration.
    told: Arc<Mutex<Decided>>,
}

impl ControlLoop {
    /// Of the pipeline that `plan` is of.
    pub(crate) fn new(settings: Settings, plan: &Plan, costs: Costs) -> Result<Self, FlowError> {
        let layout = plan.layout()?;
        let ways = if settings.workers > layout.workers { plan.ways()? } else { Vec::new() };
        let told = Decided::new(&settings, &layout);
        Ok(Self { settings, layout, costs, ways, told: Arc::new(Mutex::new(told)) })
    }

    /// Of the same pipeline in another arrangement, whose modules cost this as far as is known.
    fn rearranged(&self, layout: Layout, costs: Costs) -> Self {
        let (settings, told) = (self.settings.clone(), Arc::clone(&self.told));
        Self { settings, layout, costs, ways: Vec::new(), told }
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
pub(crate) struct Decider {
    pub(crate) control_loop: Arc<ControlLoop>,
    runner: ControllerRunner,
    sampler: Sampler,
    decided: u32,
    /// What parts flows, where they may.
    decomposer: Option<Decomposer>,
    /// Why the last move could not be made, until it is not wanted any more.
    failure: Option<String>,
}

impl Decider {
    /// For what workers count, which are of the same graph; the run began at `began`, and what was counted until now is the past.
    pub(crate) fn new(
        control_loop: Arc<ControlLoop>,
        telemetries: Vec<Arc<Telemetry>>,
        began: Ticks,
        now: Ticks,
        log: Option<&mut (dyn Log + 'static)>,
    ) -> Result<Self, SetupError> {
        let runner =
            ControllerRunner::new(&control_loop.settings, control_loop.layout.clone(), control_loop.costs.clone())?;
        if let Some(log) = log {
            log.begin(&control_loop.settings, &control_loop.layout);
        }
        let decomposer = Decomposer::new(&control_loop.settings, &control_loop.layout, control_loop.ways.clone());
        Ok(Self {
            control_loop,
            runner,
            sampler: Sampler::new(telemetries, began, now),
            decided: 0,
            decomposer,
            failure: None,
        })
    }

    /// What is to change its worker after the period that was just decided on.
    pub(crate) fn rearrangement(&mut self) -> Option<Move> {
        let decomposer = self.decomposer.as_mut()?;
        let layout = self.runner.layout();
        let next = decomposer.decide(layout, self.sampler.last());
        let unmoved = decomposer.unmoved().map(|unmoved| {
            let (flow, worker) = (&layout.flows[unmoved.flow].name, unmoved.worker);
            let why = if unmoved.workers {
                format!("all {} workers of `control.workers` are in use", layout.workers)
            } else {
                "what is in its way is on its own, or cannot be on another worker".to_owned()
            };
            format!("{flow} cannot keep its objective on worker {worker}: {why}")
        });
        if !decomposer.is_thwarted() {
            self.failure = None;
        }
        self.control_loop.told().tell_unmoved(unmoved.or_else(|| self.failure.clone()));
        next
    }

    /// What will decide once this has moved.
    pub(crate) fn control_loop_after(&self, moved: &Move) -> Arc<ControlLoop> {
        Arc::new(self.control_loop.rearranged(moved.layout.clone(), self.runner.costs().clone()))
    }

    /// The triggers and hold limits that are in force, what was just decided included.
    pub(crate) fn in_force(&self) -> Vec<Action> {
        let modules = self.sampler.last().modules.iter().enumerate().filter(|(_, told)| told.trigger > 0);
        let before = modules.flat_map(|(module, told)| {
            let hold = Nanos((told.hold_s * 1e9) as u64);
            [Action::SetTrigger { module, trigger: told.trigger }, Action::SetHold { module, hold }]
        });
        before.chain(self.runner.last().actions.iter().cloned()).collect()
    }

    /// It has moved: `next` decides from now on, for workers that count here. No packets were taken from ports for `pause_us`.
    pub(crate) fn moved(
        &mut self,
        moved: &Move,
        next: Arc<ControlLoop>,
        telemetries: Vec<Arc<Telemetry>>,
        (began, now): (Ticks, Ticks),
        pause_us: f64,
        mut log: Option<&mut (dyn Log + 'static)>,
    ) -> Result<(), SetupError> {
        let layout = self.runner.layout();
        let told = MoveReport {
            at_s: moved.at_s,
            modules: moved.modules.iter().map(|module| layout.modules[*module].name.clone()).collect(),
            from: moved.from,
            to: moved.to,
            why: moved.why,
            flow: moved.flow.map(|flow| layout.flows[flow].name.clone()),
            turn_us: moved.turn_s * 1e6,
            pause_us,
        };
        if let Some(log) = &mut log {
            log.moved(&told);
        }
        next.told().tell_moved(told);
        let mut decomposer = self.decomposer.take();
        if let Some(decomposer) = &mut decomposer {
            decomposer.moved(moved);
        }
        *self = Self { decomposer, ..Self::new(next, telemetries, began, now, log)? };
        Ok(())
    }

    /// It could not be moved.
    pub(crate) fn stayed(&mut self, wanted: &Move, why: String) {
        self.control_loop.told().tell_unmoved(Some(why.clone()));
        self.failure = Some(why);
        self.decomposer.iter_mut().for_each(|decomposer| decomposer.stayed(wanted));
    }

    /// How long after this decision the next is made, in nanoseconds: nothing is known when a pipeline starts, and it need not wait
    /// for long.
    pub(crate) fn patience(&self) -> Nanos {
        Nanos((FIRST.0 << self.decided.min(32)).min(self.control_loop.settings.period.0))
    }

    /// Gives every flow that has an objective this one.
    pub(crate) fn set_objectives(&mut self, slo: Nanos, log: Option<&mut (dyn Log + 'static)>) {
        self.runner.set_objectives(slo);
        if let Some(log) = log {
            log.begin(&self.control_loop.settings, self.runner.layout());
        }
    }

    /// Returns the changes after the period that ends now. `away` is the time that the machine took from each worker.
    pub(crate) fn decide(&mut self, now: Ticks, away: &[Away], log: Option<&mut (dyn Log + 'static)>) -> &[Action] {
        let start = Tsc.now();
        self.decided = self.decided.saturating_add(1);
        let snapshot = self.sampler.take(now, away);
        self.runner.decide(snapshot);
        let took = Tsc.now().since(start);
        let actions = self.runner.last();
        // The objectives may have changed since the control loop was created.
        self.control_loop.told().tell(self.runner.layout(), snapshot, actions, Some(took));
        if let Some(log) = log {
            log.period(snapshot, actions);
        }
        &actions.actions
    }
}

#[cfg(test)]
mod tests {
    use forebay_graph::{Cost, RunToCompletion};
    use forebay_pipeline::{Conditions, load, usecase};

    use super::*;
    use crate::simulated::{SimulatedTeam, Simulation};

    /// Turns were held against the objectives of the beginning.
    #[test]
    fn long_turns_are_held_against_the_objective_in_force() {
        let sets = ["rate=100kpps", "slo=1s", "control.batching=null", "control.period=1ms"].map(str::to_owned);
        let source = usecase("l2l3", &sets).unwrap_or_else(|problems| panic!("{problems}"));
        let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
        let loaded = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
        let costs = vec![Cost { per_batch: 10_000, per_packet: 0 }; loaded.plans[0].modules.len()];
        let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, Some(loaded.made)).expect("a plan");
        let mut stalled = |slo, until| {
            team.set_objectives(slo);
            // In simulated time no turn is told as long.
            team.board.telemetries()[0].worker.long.busy_turns[0].add(1);
            team.run(Ticks(until));
            let control_loop = team.board.state().control_loop.clone().expect("a controller");
            (control_loop.report().violated, control_loop.report().stalled)
        };
        assert_eq!(stalled(Nanos(1_000_000_000), 1_000_000), (0, 0));
        assert_eq!(stalled(Nanos(10_000), 2_000_000), (1, 1));
    }
}
