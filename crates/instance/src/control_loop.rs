//! Batch control of a running pipeline: one decision per period, and the report about the decisions.

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

use crate::decision_summary::DecisionSummary;

/// The time until the first decision. After each decision the time until the next one doubles, up to the period.
const FIRST: Nanos = Nanos(1_000_000);

/// The inputs of the control loop that do not come from the configuration.
#[derive(Default)]
pub struct ControlInputs {
    /// The measured costs of a call, by function or by [module](ControlInputs::module_key).
    pub costs: BTreeMap<String, Profiled>,
    /// Receives every period and its decision.
    pub log: Option<Box<dyn Log>>,
}

impl ControlInputs {
    /// Returns the key of one module's costs in [`costs`](Self::costs). A module's costs take precedence over the costs
    /// of its function.
    #[must_use]
    pub fn module_key(name: &str) -> String {
        format!("module {name}")
    }
}

/// The control loop of one pipeline layout: its settings, and the results of its decisions. The control thread and the
/// counters for reports share it. The address of this value identifies the configuration in force: the control thread
/// compares addresses to notice a reload.
pub(crate) struct ControlLoop {
    pub(crate) settings: Settings,
    layout: Layout,
    /// The known costs of the modules when the control loop was created.
    costs: Costs,
    /// The modules on the path of each flow. Empty if no module may move to another worker. Also empty after a move,
    /// because the [`Decomposer`] has the paths then.
    paths: Vec<Vec<usize>>,
    /// The results. All arrangements of one configuration share them.
    results: Arc<Mutex<DecisionSummary>>,
}

impl ControlLoop {
    /// Creates the control loop for the pipeline of `plan`.
    pub(crate) fn new(settings: Settings, plan: &Plan, costs: Costs) -> Result<Self, FlowError> {
        let layout = plan.layout()?;
        let paths = if settings.workers > layout.workers { plan.ways()? } else { Vec::new() };
        let results = DecisionSummary::new(&settings, &layout);
        Ok(Self { settings, layout, costs, paths, results: Arc::new(Mutex::new(results)) })
    }

    /// Returns the control loop for the same pipeline after modules have moved. `costs` are the known costs of the
    /// modules. The results are shared with the present control loop.
    fn rearranged(&self, layout: Layout, costs: Costs) -> Self {
        let (settings, results) = (self.settings.clone(), Arc::clone(&self.results));
        Self { settings, layout, costs, paths: Vec::new(), results }
    }

    fn results(&self) -> MutexGuard<'_, DecisionSummary> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the report about all decisions.
    pub(crate) fn report(&self) -> ControlReport {
        self.results().report()
    }

    /// Records why the last decision was not carried out, for the report; `None` if it was carried out.
    pub(crate) fn note(&self, trouble: Option<String>) {
        self.results().note(trouble);
    }
}

/// Makes the decisions of a control loop, one per period. After a reload, the caller must create another decider.
pub(crate) struct Decider {
    pub(crate) control_loop: Arc<ControlLoop>,
    runner: ControllerRunner,
    /// Reads the counters of each period.
    sampler: Sampler,
    /// The number of decisions.
    decided: u32,
    /// Moves modules to other workers, if the configuration allows it.
    decomposer: Option<Decomposer>,
    /// Why the last move failed. Cleared when the decomposer no longer wants a failed move.
    failure: Option<String>,
}

impl Decider {
    /// Creates a decider for workers of one graph, which count in `telemetries`. The run began at `began`. Counts up to
    /// `now` are ignored.
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
        let decomposer = Decomposer::new(&control_loop.settings, &control_loop.layout, control_loop.paths.clone());
        Ok(Self {
            control_loop,
            runner,
            sampler: Sampler::new(telemetries, began, now),
            decided: 0,
            decomposer,
            failure: None,
        })
    }

    /// Returns the move of modules to make after the last decision, if there is one. The caller must then call
    /// [`moved`](Self::moved) or [`move_failed`](Self::move_failed). Also records for the report why modules cannot
    /// move that should move.
    pub(crate) fn rearrangement(&mut self) -> Option<Move> {
        let decomposer = self.decomposer.as_mut()?;
        let layout = self.runner.layout();
        let next = decomposer.decide(layout, self.sampler.last());
        let unmoved = decomposer.unmoved().map(|unmoved| {
            let (flow, worker) = (&layout.flows[unmoved.flow].name, unmoved.worker);
            let why = if unmoved.workers {
                format!("all {} workers of `control.workers` are in use", layout.workers)
            } else {
                "the modules that can move to another worker take too little time to make a difference".to_owned()
            };
            format!("{flow} cannot keep its objective on worker {worker}: {why}")
        });
        if !decomposer.is_thwarted() {
            self.failure = None;
        }
        self.control_loop.results().set_unmoved(unmoved.or_else(|| self.failure.clone()));
        next
    }

    /// Returns the control loop to use after this move.
    pub(crate) fn control_loop_after(&self, moved: &Move) -> Arc<ControlLoop> {
        Arc::new(self.control_loop.rearranged(moved.layout.clone(), self.runner.costs().clone()))
    }

    /// Returns the triggers and hold limits in force, including those of the last decision. New workers need them,
    /// because they begin with the settings of the configuration.
    pub(crate) fn in_force(&self) -> Vec<Action> {
        let modules = self.sampler.last().modules.iter().enumerate().filter(|(_, sample)| sample.trigger > 0);
        let before = modules.flat_map(|(module, sample)| {
            let hold = Nanos((sample.hold_s * 1e9) as u64);
            [Action::SetTrigger { module, trigger: sample.trigger }, Action::SetHold { module, hold }]
        });
        before.chain(self.runner.last().actions.iter().cloned()).collect()
    }

    /// Switches to the control loop `next` after a move. The workers count in `telemetries`, and took no packets from
    /// ports for `pause_us` microseconds. The run began at `began`, and counts up to `now` are ignored.
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
        let report = MoveReport {
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
            log.moved(&report);
        }
        next.results().add_move(report);
        let mut decomposer = self.decomposer.take();
        if let Some(decomposer) = &mut decomposer {
            decomposer.moved(moved);
        }
        *self = Self { decomposer, ..Self::new(next, telemetries, began, now, log)? };
        Ok(())
    }

    /// Records that a move failed, and why.
    pub(crate) fn move_failed(&mut self, wanted: &Move, why: String) {
        self.control_loop.results().set_unmoved(Some(why.clone()));
        self.failure = Some(why);
        self.decomposer.iter_mut().for_each(|decomposer| decomposer.stayed(wanted));
    }

    /// Returns the time until the next decision. It is short at first: the triggers of a new pipeline are guesses, and
    /// should not stay in force for a whole period.
    pub(crate) fn wait(&self) -> Nanos {
        Nanos((FIRST.0 << self.decided.min(32)).min(self.control_loop.settings.period.0))
    }

    /// Sets the delay objective of each flow that already has a delay objective to `slo`.
    pub(crate) fn set_objectives(&mut self, slo: Nanos, log: Option<&mut (dyn Log + 'static)>) {
        self.runner.set_objectives(slo);
        if let Some(log) = log {
            log.begin(&self.control_loop.settings, self.runner.layout());
        }
    }

    /// Returns the actions for the period after `now`, from the counters of the period before `now`. `away` is the time
    /// that the machine (the host, or other threads on its core) took from each worker since the run began. The caller
    /// must apply the actions and [note](ControlLoop::note) an error.
    pub(crate) fn decide(&mut self, now: Ticks, away: &[Away], log: Option<&mut (dyn Log + 'static)>) -> &[Action] {
        let start = Tsc.now();
        self.decided = self.decided.saturating_add(1);
        let snapshot = self.sampler.take(now, away);
        self.runner.decide(snapshot);
        let took = Tsc.now().since(start);
        let actions = self.runner.last();
        // The objectives may have changed since the control loop was created.
        self.control_loop.results().record(self.runner.layout(), snapshot, actions, Some(took));
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

    /// Regression: long turns were compared with the objectives of the start, not with those in force.
    #[test]
    fn long_turns_are_compared_with_the_objective_in_force() {
        let sets = ["rate=100kpps", "slo=1s", "control.batching=null", "control.period=1ms"].map(str::to_owned);
        let source = usecase("l2l3", &sets).unwrap_or_else(|problems| panic!("{problems}"));
        let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
        let loaded = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
        let costs = vec![Cost { per_batch: 10_000, per_packet: 0 }; loaded.plans[0].modules.len()];
        let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, Some(loaded.made)).expect("a plan");
        let mut stalled = |slo, until| {
            team.set_objectives(slo);
            // In simulated time the worker records no long turns.
            team.board.telemetries()[0].worker.long.busy_turns[0].add(1);
            team.run(Ticks(until));
            let control_loop = team.board.state().control_loop.clone().expect("a controller");
            (control_loop.report().violated, control_loop.report().stalled)
        };
        assert_eq!(stalled(Nanos(1_000_000_000), 1_000_000), (0, 0));
        assert_eq!(stalled(Nanos(10_000), 2_000_000), (1, 1));
    }
}
