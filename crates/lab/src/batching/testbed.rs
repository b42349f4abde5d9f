//! Testbeds on which pipelines run: simulated time, or this machine's cores.
//!
//! Both count in the same way, so the results of a run have the same form on both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_control::Log;
use forebay_graph::{
    RunToCompletion, Scheduler, WeightedFair,
    drive::{Ended, shut_down_team},
};
use forebay_instance::{ControlInputs, Instance, SimulatedTeam, Simulation, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, load};
use forebay_protocol::{Action, SchedulerKind, report::Report};
use forebay_units::{Nanos, Ticks};

use super::costs::{BATCH, Costs};
use super::scenario::{Change, Scenario};
use super::watch::{Moment, Watch};
use crate::{LabError, Progress};

/// A turn counts as a stall of the machine (another program or the host had the core) only if it is at least this long.
const STALL: Nanos = Nanos(100_000);
/// The interval at which a run checks whether the user has interrupted it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A turn counts as a stall only if it is at least this many times as long as the longest expected turn.
const STALL_TURNS: f64 = 2.0;

/// A testbed for pipelines.
#[derive(Clone, Debug)]
pub(super) struct Testbed {
    /// Whether time is simulated.
    pub(super) simulated: bool,
    costs: Costs,
    /// The functions that were run. Functions whose cost is set by their pipeline are left out.
    functions: Arc<Mutex<BTreeSet<&'static str>>>,
    /// Set when the user has interrupted the experiment. Runs then end early.
    stop: Arc<AtomicBool>,
}

/// The results of a run.
pub(super) struct Run {
    /// The periods, including those before the controller settled.
    pub(super) moments: Vec<Moment>,
    /// The report on the time after the controller settled.
    pub(super) report: Report,
    /// The report on the whole run.
    pub(super) whole: Report,
    /// The number of packets of the whole run that are unaccounted for.
    pub(super) missing: i64,
    /// The number of modules that run.
    pub(super) modules: usize,
    /// The triggers of the last period that counted and kept all objectives, for modules that had a trigger.
    pub(super) triggers: Vec<(String, usize)>,
}

impl Testbed {
    pub(super) fn new(simulated: bool, costs: Costs, stop: Arc<AtomicBool>) -> Self {
        Self { simulated, costs, functions: Arc::default(), stop }
    }

    /// Returns the same testbed in simulated time.
    pub(super) fn simulated(&self) -> Self {
        Self { simulated: true, ..self.clone() }
    }

    /// Returns the costs of calls for all functions that were run.
    pub(super) fn costs(&self) -> Costs {
        self.costs.clone().with(&self.functions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the ticks per second of the testbed's clock.
    pub(super) fn hertz(&self) -> f64 {
        if self.simulated { Simulation::frequency() } else { Tsc.frequency() }.hertz()
    }

    /// Performs runs and returns their results in the order of the scenarios. In simulated time, where runs do not
    /// disturb each other, several are performed at once. `keep` selects the part of each run that is returned. Returns
    /// the error of the first run that failed; then no results are returned.
    pub(super) fn all<T: Send>(
        &self,
        scenarios: &[Scenario],
        progress: &mut dyn Progress,
        keep: impl Fn(Run) -> T + Sync,
    ) -> Result<Vec<T>, LabError> {
        progress.begin(scenarios.len());
        // In simulated time, the real time that a run takes is unknown beforehand.
        if !self.simulated {
            progress.expect(scenarios.iter().map(|scenario| scenario.span.end().0 as f64 / 1e9).sum());
        }
        let began = Instant::now();
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(scenarios.len());
        let threads = if self.simulated { cores } else { 1 };
        let (next, keep) = (AtomicUsize::new(0), &keep);
        let mut kept: Vec<Option<T>> = scenarios.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let (sender, made) = channel();
            for _ in 0..threads {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(scenario) = scenarios.get(at) else { return };
                        // After an error the receiver is closed, and the thread ends.
                        if sender.send((at, self.run(scenario).map(keep))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (at, run) in made {
                progress.step(&scenarios[at].name);
                let first = kept.iter().all(Option::is_none);
                kept[at] = Some(run?);
                if first && self.simulated {
                    let each = began.elapsed().as_secs_f64();
                    progress.expect(each * scenarios.len() as f64 / threads.max(1) as f64);
                }
                if progress.is_stopped() {
                    // Runs in progress end by themselves. No further run is started.
                    next.store(scenarios.len(), Ordering::Relaxed);
                    return Err(LabError::Interrupted);
                }
            }
            Ok::<_, LabError>(())
        })?;
        Ok(kept.into_iter().flatten().collect())
    }

    /// Performs one run.
    pub(super) fn run(&self, scenario: &Scenario) -> Result<Run, LabError> {
        let frequency = if self.simulated { Simulation::frequency() } else { Tsc.frequency() };
        let loaded = load(&scenario.source, Conditions { frequency, simulated: self.simulated })?;
        let functions = Costs::functions_of(&loaded.plans[0], &scenario.special);
        self.functions.lock().unwrap_or_else(PoisonError::into_inner).extend(functions);
        match (self.simulated, loaded.plans[0].scheduler) {
            (false, _) => self.measured(scenario, loaded),
            (true, SchedulerKind::RunToCompletion) => self.in_simulation::<RunToCompletion>(scenario, loaded),
            (true, SchedulerKind::WeightedFair) => self.in_simulation::<WeightedFair>(scenario, loaded),
        }
    }

    /// Performs a run in simulated time, with the costs of this testbed.
    fn in_simulation<S: Scheduler>(&self, scenario: &Scenario, loaded: Loaded) -> Result<Run, LabError> {
        let watch = Watch::new(scenario.flow, scenario.module.clone(), None);
        let log: Box<dyn Log> = Box::new(watch.clone());
        let costs = self.costs.of_plan(&loaded.plans[0], &scenario.special);
        let mut team = SimulatedTeam::<S>::with_log(loaded.plans, &costs, Some(loaded.made), Some(log))?;
        let frequency = Simulation::frequency();
        let instant = |at: Nanos| Ticks::ZERO + frequency.ticks(at);
        let mut changes = scenario.changes.iter().peekable();
        let mut settled = None;
        for end in [scenario.span.settled(), scenario.span.end()] {
            while let Some((at, change)) = changes.next_if(|(at, _)| *at < end) {
                Self::go_on(team.run_unless(instant(*at), &self.stop))?;
                match *change {
                    Change::Objective(slo) => team.set_objectives(slo),
                    Change::Offer(factor) => {
                        let actions = [Action::SetOffer { factor }];
                        let refused = team.workers.iter_mut().find_map(|worker| worker.apply(&actions).err());
                        refused.map_or(Ok(()), |error| Err(trouble(scenario, error.to_string())))?;
                    }
                }
            }
            Self::go_on(team.run_unless(instant(end), &self.stop))?;
            settled.get_or_insert_with(|| team.board.read(team.workers[0].clock().now()));
        }
        let last = team.board.read(team.workers[0].clock().now());
        let first = settled.unwrap_or_else(|| team.board.nothing());
        let report = team.board.report(&first, &last);
        no_troubles(scenario, &shut_down_team(&mut team.workers))?;
        let whole = team.board.report(&team.board.nothing(), &team.board.read(team.workers[0].clock().now()));
        Ok(Run::new(&watch, report, whole))
    }

    /// Returns an error if the user has stopped the run.
    fn go_on(ended: Ended) -> Result<(), LabError> {
        if ended == Ended::Stopped { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Performs a run on this machine's cores.
    fn measured(&self, scenario: &Scenario, loaded: Loaded) -> Result<Run, LabError> {
        let Loaded { plans, cores, made, .. } = loaded;
        // The longest turn without a stall is estimated before the run, so that the measured costs of the run do not
        // move the threshold.
        let costs = self.costs.of_plan(&plans[0], &scenario.special);
        let turn: u64 = costs.iter().map(|cost| cost.per_batch + cost.per_packet * BATCH as u64).sum();
        let stall = Nanos(((turn as f64 * STALL_TURNS) as u64).max(STALL.0));
        let watch = Watch::new(scenario.flow, scenario.module.clone(), Some(stall));
        let control_inputs = ControlInputs { costs: self.costs.profiled(), log: Some(Box::new(watch.clone())) };
        let instance = start(plans, choose(&cores)?, made, Box::new(|_| None), control_inputs)?;
        let done = drive(scenario, &*instance, &self.stop);
        let outcome = instance.end();
        let report = done?;
        no_troubles(scenario, &outcome.troubles)?;
        let board = instance.board();
        let whole = board.report(&board.nothing(), &board.read(outcome.at));
        Ok(Run::new(&watch, report, whole))
    }
}

/// Runs a pipeline to the end, applying all changes on the way. The pipeline must have been started directly before,
/// because the times of changes count from this call. Returns the report on the time after the controller settled.
fn drive(scenario: &Scenario, instance: &dyn Instance, stop: &AtomicBool) -> Result<Report, LabError> {
    let began = Instant::now();
    let wait = |at: Nanos| {
        let at = began + Duration::from_nanos(at.0);
        loop {
            let remaining = at.saturating_duration_since(Instant::now());
            match (stop.load(Ordering::Relaxed), remaining.is_zero()) {
                (true, _) => return Err(LabError::Interrupted),
                (false, true) => return Ok(()),
                (false, false) => std::thread::sleep(remaining.min(LOOK_EVERY)),
            }
        }
    };
    let board = instance.board();
    let mut changes = scenario.changes.iter().peekable();
    let mut settled = None;
    for end in [scenario.span.settled(), scenario.span.end()] {
        while let Some((at, change)) = changes.next_if(|(at, _)| *at < end) {
            wait(*at)?;
            let refused = match *change {
                Change::Offer(factor) => instance.act(&[Action::SetOffer { factor }]),
                Change::Objective(slo) => set_objective(scenario, instance, slo),
            };
            refused.map_err(|error| trouble(scenario, error))?;
        }
        wait(end)?;
        settled.get_or_insert_with(|| board.read(Tsc.now()));
    }
    let first = settled.unwrap_or_else(|| board.nothing());
    Ok(board.report(&first, &board.read(Tsc.now())))
}

/// Reloads the configuration with another objective for every flow that has one. These flows must be the first flows of
/// the configuration.
fn set_objective(scenario: &Scenario, instance: &dyn Instance, slo: Nanos) -> Result<(), String> {
    let flows = scenario.source.text().matches("\n    slo: ").count();
    let set = |source: forebay_pipeline::Source, flow| source.set(format!("flows.{flow}.slo={}ns", slo.0));
    let source = (0..flows).fold(scenario.source.clone(), set);
    instance.reload(&source, &mut || Ok(())).map(drop).map_err(|error| error.to_string())
}

/// Returns an error that names the scenario.
fn trouble(scenario: &Scenario, troubles: String) -> LabError {
    LabError::Trouble { pipeline: scenario.name.clone(), troubles }
}

/// Returns an error if a port or module failed during the run. Each entry has its name and its report.
fn no_troubles(scenario: &Scenario, troubles: &[(String, String)]) -> Result<(), LabError> {
    if troubles.is_empty() {
        return Ok(());
    }
    let troubles: Vec<_> = troubles.iter().map(|(name, trouble)| format!("{name}: {trouble}")).collect();
    Err(trouble(scenario, troubles.join("; ")))
}

impl Run {
    /// Combines the periods that `watch` has recorded with the two reports. Takes the periods from `watch`, which is
    /// then empty.
    fn new(watch: &Watch, report: Report, whole: Report) -> Self {
        let (layout, moments, kept) = watch.take();
        let modules = layout.as_ref().map_or(0, |layout| layout.running().count());
        let missing = i64::try_from(whole.packets.missing()).unwrap_or(i64::MAX);
        let names = layout.into_iter().flat_map(|layout| layout.modules).map(|module| module.name);
        let triggers = names.zip(kept).filter(|(_, trigger)| *trigger > 0).collect();
        Self { moments, report, whole, missing, modules, triggers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::scenario::{Pipeline, Rule, Span};

    /// A controller first decides after 1, 2, 4 and 8 ms. These periods must be marked as brief.
    #[test]
    fn periods_that_a_controller_begins_with_are_brief() {
        let span = Span { period: Nanos(10_000_000), periods: 1 };
        let sets = ["rate=10kpps".to_owned()];
        let scenario = Pipeline::new("l2l3", &["n=1"]).under(&Rule::new("null"), &sets, span).expect("a use case");
        let testbed = Testbed::new(true, Costs::published(), Arc::default());
        let run = testbed.run(&scenario).expect("it runs");
        let brief: Vec<_> = run.moments.iter().map(|moment| moment.brief).collect();
        assert_eq!((&brief[..4], brief.len()), (&[true; 4][..], 11));
        assert!(!brief[4..].contains(&true) && run.settled().len() == 1);
        let functions = testbed.costs().origins;
        assert!(functions.contains_key("ip_lookup") && !functions.contains_key("acl"), "{functions:?}");
    }

    /// Regression: an interrupted run continued to its end, which took minutes in some parts.
    #[test]
    fn an_interrupted_run_ends_in_the_middle() {
        let span = Span { period: Nanos(3_600_000_000_000), periods: 1 };
        let scenario = Pipeline::new("l2l3", &["n=1"]).under(&Rule::new("null"), &["rate=10kpps".to_owned()], span);
        let stop = Arc::new(AtomicBool::new(true));
        for simulated in [true, false] {
            let testbed = Testbed::new(simulated, Costs::published(), Arc::clone(&stop));
            let ended = testbed.run(scenario.as_ref().expect("a use case"));
            assert!(matches!(ended, Err(LabError::Interrupted)), "simulated: {simulated}");
        }
    }
}
