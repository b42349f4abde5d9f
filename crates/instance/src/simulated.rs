//! A pipeline in simulated time. All its workers run on one thread, so that every run has the same result.

mod rearranging;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use forebay_control::{Costs, Log};
use forebay_graph::{
    Cost, MakeError, Plan, RunToCompletion, Scheduler, Team, WeightedFair, Worker,
    drive::{Ended, shut_down_team, simulate_team},
    report::RunFacts,
};
use forebay_measure::{Clock, Simulated};
use forebay_models::batching::Line;
use forebay_pipeline::PipelineParts;
use forebay_protocol::{
    SchedulerKind,
    report::{Cpu, FigureSource},
};
use forebay_units::{Frequency, Nanos, Ticks};

use crate::control_loop::{ControlLoop, Decider};
use crate::instance::Outcome;
use crate::pipeline_counters::PipelineCounters;
use crate::succession::members;
use crate::threads::StartError;
use crate::worker_thread::Watch;

/// The frequency of the simulated clock: one tick per nanosecond.
const HERTZ: f64 = 1e9;
/// The least simulated time between two checks of the stop flag.
const SLICE: Nanos = Nanos(1_000_000);
/// After this number of consecutive decisions about periods without packets, the controller waits for the next packet.
const IDLE_DECISIONS: u32 = 64;

/// The workers of a pipeline in simulated time, and their counters. Time passes only in [`run`](Self::run) and
/// [`run_unless`](Self::run_unless).
pub struct SimulatedTeam<S: Scheduler> {
    /// The workers, in the order of their numbers.
    pub workers: Vec<Worker<Simulated, S>>,
    /// The counters.
    pub board: Arc<PipelineCounters>,
    /// The decider, if there is a controller, and the instant of its next decision.
    decider: Option<(Decider, Ticks)>,
    /// The number of consecutive decisions about periods without packets, and the number of busy turns up to the last
    /// decision.
    idle: (u32, u64),
    /// Receives each period and its decision.
    log: Option<Box<dyn Log>>,
    /// The configuration. Without it there is no controller, and modules cannot move.
    made: Option<PipelineParts>,
    /// The costs of calls, by module.
    costs: Vec<Cost>,
    /// Creates the observers of workers.
    watch: Watch,
}

impl<S: Scheduler> SimulatedTeam<S> {
    /// Creates the workers of `plans`, which must be plans for simulated time. `costs` are the costs of the modules'
    /// calls, by module. If the configuration `made` names a controller, the controller sets the triggers and knows
    /// these costs.
    ///
    /// # Errors
    /// Returns an error if a plan cannot run.
    pub fn new(plans: Vec<Plan>, costs: &[Cost], made: Option<PipelineParts>) -> Result<Self, StartError> {
        Self::with_log(plans, costs, made, None)
    }

    /// Does the same as [`new`](Self::new), and passes each period and its decision to `log`.
    ///
    /// # Errors
    /// Returns an error if a plan cannot run.
    pub fn with_log(
        plans: Vec<Plan>,
        costs: &[Cost],
        made: Option<PipelineParts>,
        mut log: Option<Box<dyn Log>>,
    ) -> Result<Self, StartError> {
        let frequency = Simulation::frequency();
        let known = (0..plans[0].modules.len()).map(|module| {
            let Cost { per_batch, per_packet } = costs.get(module).copied().unwrap_or_default();
            Line { fixed: frequency.seconds(Ticks(per_batch)), each: frequency.seconds(Ticks(per_packet)) }
        });
        let known = Costs::Known(known.collect());
        let control = made.as_ref().and_then(PipelineParts::control);
        let control_loop = control.map(|settings| ControlLoop::new(settings.clone(), &plans[0], known).map(Arc::new));
        let control_loop = control_loop.transpose().map_err(MakeError::from)?;
        let team = Arc::new(Team::new(plans.len()));
        let workers = members(plans, &team, costs, || Simulated::new(frequency), |_| None)?;
        let cpu = Cpu { model: "simulated clock".to_owned(), tsc_ghz: HERTZ / 1e9 };
        let origin = RunFacts { kind: FigureSource::Simulated, cpu, cores: vec![None; workers.len()] };
        let telemetries = workers.iter().map(Worker::telemetry).collect();
        let board = Arc::new(PipelineCounters::new(Ticks::ZERO, telemetries, team, origin, control_loop.clone()));
        let decider = control_loop.map(|control_loop| {
            let decider =
                Decider::new(control_loop, board.telemetries(), Ticks::ZERO, Ticks::ZERO, log.as_deref_mut())?;
            let first = frequency.ticks(decider.wait());
            Ok::<_, StartError>((decider, first))
        });
        let (decider, costs) = (decider.transpose()?, costs.to_vec());
        Ok(Self { workers, board, decider, idle: (0, 0), log, made, costs, watch: Box::new(|_| None) })
    }

    /// Sets the observer of each worker, also of workers that join later, to the observer that `watch` creates.
    pub fn observe(&mut self, mut watch: Watch) {
        self.workers.iter_mut().enumerate().for_each(|(id, worker)| worker.observe(watch(id)));
        self.watch = watch;
    }

    /// Sets the delay objective of each flow that already has one to `slo`, as a reload of a running pipeline does.
    pub fn set_objectives(&mut self, slo: Nanos) {
        let ticks = Simulation::frequency().ticks(slo);
        for flow in self.board.telemetries().iter().flat_map(|telemetry| &telemetry.flows) {
            if flow.plan.slo.is_some() {
                flow.set_objective(ticks);
            }
        }
        if let Some((decider, _)) = &mut self.decider {
            decider.set_objectives(slo, self.log.as_deref_mut());
        }
    }

    /// Returns the number of busy turns, over all workers.
    fn busy_turns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.telemetry().worker.busy_turns.get()).sum()
    }

    /// Returns the earliest instant at which a worker may have work.
    fn due(&mut self) -> Option<Ticks> {
        self.workers.iter_mut().filter_map(Worker::due).min()
    }

    /// Returns the instant of the decision that follows a decision at `now`, at least `wait` later. After some periods
    /// without packets the controller waits for the next packet, because captures may have gaps of years.
    fn next_decision(&mut self, now: Ticks, wait: Ticks) -> Ticks {
        let busy = self.busy_turns();
        self.idle = if busy == self.idle.1 { (self.idle.0.saturating_add(1), busy) } else { (0, busy) };
        let due = if self.idle.0 >= IDLE_DECISIONS { self.due() } else { None };
        due.map_or(now + wait, |due| due.max(now + wait))
    }

    /// Lets time pass until `until`. The controller decides once a period. Its decisions take no simulated time.
    pub fn run(&mut self, until: Ticks) -> Ended {
        self.run_unless(until, &AtomicBool::new(false))
    }

    /// Does the same as [`run`](Self::run). If `stop` is set, ends before the next period and returns
    /// [`Ended::Stopped`].
    pub fn run_unless(&mut self, until: Ticks, stop: &AtomicBool) -> Ended {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ended::Stopped;
            }
            let next = self.decider.as_ref().map_or(until, |(_, next)| (*next).min(until));
            let ended = simulate_team(&mut self.workers, next);
            if let Some((decider, at)) = &mut self.decider
                && next == *at
                && ended != Ended::Finished
            {
                let actions = decider.decide(next, &[], self.log.as_deref_mut());
                let trouble = self.workers.iter_mut().find_map(|worker| worker.apply(actions).err());
                decider.control_loop.note(trouble.map(|error| error.to_string()));
                // A move takes simulated time.
                let now = if self.move_modules() { self.latest().max(next) } else { next };
                if let Some(wait) = self.decider.as_ref().map(|(decider, _)| decider.wait()) {
                    let next = self.next_decision(now, Simulation::frequency().ticks(wait));
                    self.decider.iter_mut().for_each(|(_, at)| *at = next);
                }
            }
            if next >= until || ended == Ended::Finished {
                return ended;
            }
        }
    }
}

/// A run in simulated time.
pub struct Simulation {
    board: Arc<PipelineCounters>,
    thread: JoinHandle<Outcome>,
}

impl Simulation {
    /// Returns the frequency of the simulated clock.
    #[must_use]
    pub fn frequency() -> Frequency {
        Frequency::new(HERTZ)
    }

    /// Starts the workers on a thread of their own. `costs` are the costs of the modules' calls, by module. The workers
    /// run until `duration` has passed, `stop` is set or no work remains. Without a `duration` there is no limit.
    ///
    /// # Errors
    /// Returns an error if a plan cannot run or the thread cannot be created.
    pub fn start(
        plans: Vec<Plan>,
        costs: &[Cost],
        duration: Option<Nanos>,
        watch: Watch,
        stop: Arc<AtomicBool>,
        made: PipelineParts,
        log: Option<Box<dyn Log>>,
    ) -> Result<Self, StartError> {
        match plans[0].scheduler {
            SchedulerKind::RunToCompletion => {
                Self::of::<RunToCompletion>(plans, costs, duration, watch, stop, made, log)
            }
            SchedulerKind::WeightedFair => Self::of::<WeightedFair>(plans, costs, duration, watch, stop, made, log),
        }
    }

    /// Does the same as [`start`](Self::start), with the workers' scheduler as a type.
    fn of<S: Scheduler + 'static>(
        plans: Vec<Plan>,
        costs: &[Cost],
        duration: Option<Nanos>,
        watch: Watch,
        stop: Arc<AtomicBool>,
        made: PipelineParts,
        log: Option<Box<dyn Log>>,
    ) -> Result<Self, StartError> {
        let frequency = Self::frequency();
        let mut team = SimulatedTeam::<S>::with_log(plans, costs, Some(made), log)?;
        team.observe(watch);
        let board = Arc::clone(&team.board);
        let thread = std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            let until = duration.map_or(Ticks::NEVER, |duration| frequency.ticks(duration));
            // The slices depend only on simulated time, so that every run with the same seed has the same result. A
            // time without work is one slice, because a capture may have gaps of years.
            let mut next = Ticks::ZERO;
            while next < until && !stop.load(Ordering::Relaxed) {
                let end = next + frequency.ticks(SLICE);
                next = team.due().map_or(end, |due| due.max(end)).min(until);
                if team.run(next) == Ended::Finished {
                    break;
                }
            }
            let SimulatedTeam { mut workers, .. } = team;
            let troubles = shut_down_team(&mut workers);
            workers.iter_mut().for_each(|worker| worker.observe(None));
            let at = workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default();
            Outcome { at, troubles }
        })?;
        Ok(Self { board, thread })
    }

    /// Returns the counters.
    #[must_use]
    pub fn board(&self) -> Arc<PipelineCounters> {
        Arc::clone(&self.board)
    }

    /// Returns whether the run is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the run and returns its result.
    #[must_use]
    pub fn join(self) -> Outcome {
        let defect = || ("worker".to_owned(), "its thread panicked: this is a defect of Forebay".to_owned());
        self.thread.join().unwrap_or_else(|_| Outcome { at: Ticks::ZERO, troubles: vec![defect()] })
    }
}
