//! A pipeline in simulated time: all its workers on one thread, the same every time.

mod rearranging;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use forebay_control::{Costs, Log};
use forebay_graph::{
    Cost, MakeError, Plan, RunToCompletion, Scheduler, WeightedFair, Worker,
    drive::{Ended, simulate_team, wind_up_team},
    report::RunFacts,
};
use forebay_measure::{Clock, Simulated};
use forebay_models::batching::Line;
use forebay_pipeline::Made;
use forebay_protocol::{
    SchedulerKind,
    report::{Cpu, FigureSource},
};
use forebay_units::{Frequency, Nanos, Ticks};

use crate::board::Board;
use crate::control_loop::{ControlLoop, Decider};
use crate::running::{Outcome, Watch};
use crate::succession::members;
use crate::threads::StartError;

/// A tick of simulated time is a nanosecond.
const HERTZ: f64 = 1e9;
/// How much simulated time passes between two looks at the stop flag, while packets are on their way.
const SLICE: Nanos = Nanos(1_000_000);
/// After how many decisions in a row over periods without packets a controller waits for the next packet.
const IDLE_DECISIONS: u32 = 64;

/// The workers of a pipeline in simulated time, for whoever lets time pass, and what they count.
pub struct SimulatedTeam<S: Scheduler> {
    /// The workers, by their numbers.
    pub workers: Vec<Worker<Simulated, S>>,
    /// What is counted.
    pub board: Arc<Board>,
    /// What sets the triggers, and when it does next.
    decider: Option<(Decider, Ticks)>,
    /// Decisions in a row that nothing happened before, and the turns with work until the last one.
    idle: (u32, u64),
    log: Option<Box<dyn Log>>,
    /// What it is made of, and what calls take: modules may change their worker.
    made: Option<Made>,
    costs: Vec<Cost>,
    /// Who watches workers.
    watch: Watch,
}

impl<S: Scheduler> SimulatedTeam<S> {
    /// Makes the workers of `plans`, which were made for simulated time; their modules' calls take `costs`. Triggers are set as
    /// the configuration that they are `made` of says; what sets them knows the costs.
    ///
    /// # Errors
    /// A plan that cannot run.
    pub fn new(plans: Vec<Plan>, costs: &[Cost], made: Option<Made>) -> Result<Self, StartError> {
        Self::with_log(plans, costs, made, None)
    }

    /// Does the same as [`new`](Self::new), and passes each period and its decision to `log`.
    ///
    /// # Errors
    /// A plan that cannot run.
    pub fn with_log(
        plans: Vec<Plan>,
        costs: &[Cost],
        made: Option<Made>,
        mut log: Option<Box<dyn Log>>,
    ) -> Result<Self, StartError> {
        let frequency = Simulation::frequency();
        let known = (0..plans[0].modules.len()).map(|module| {
            let Cost { per_batch, per_packet } = costs.get(module).copied().unwrap_or_default();
            Line { fixed: frequency.seconds(Ticks(per_batch)), each: frequency.seconds(Ticks(per_packet)) }
        });
        let known = Costs::Known(known.collect());
        let control = made.as_ref().and_then(Made::control);
        let control_loop = control.map(|settings| ControlLoop::new(settings.clone(), &plans[0], known).map(Arc::new));
        let control_loop = control_loop.transpose().map_err(MakeError::from)?;
        let (team, workers) = members(plans, costs, || Simulated::new(frequency), |_| None)?;
        let cpu = Cpu { model: "simulated clock".to_owned(), tsc_ghz: HERTZ / 1e9 };
        let origin = RunFacts { kind: FigureSource::Simulated, cpu, cores: vec![None; workers.len()] };
        let telemetries = workers.iter().map(Worker::telemetry).collect();
        let board = Arc::new(Board::new(Ticks::ZERO, telemetries, team, origin, control_loop.clone()));
        let decider = control_loop.map(|control_loop| {
            let decider =
                Decider::new(control_loop, board.telemetries(), Ticks::ZERO, Ticks::ZERO, log.as_deref_mut())?;
            let first = frequency.ticks(decider.patience());
            Ok::<_, StartError>((decider, first))
        });
        let (decider, costs) = (decider.transpose()?, costs.to_vec());
        Ok(Self { workers, board, decider, idle: (0, 0), log, made, costs, watch: Box::new(|_| None) })
    }

    /// Has each worker, those that will join included, watched by an observer that `watch` makes for it.
    pub fn observe(&mut self, mut watch: Watch) {
        self.workers.iter_mut().enumerate().for_each(|(id, worker)| worker.observe(watch(id)));
        self.watch = watch;
    }

    /// Gives every flow that has an objective this one from now on, as a reload does to a pipeline that runs.
    pub fn set_objectives(&mut self, slo: Nanos) {
        let ticks = Simulation::frequency().ticks(slo);
        for flow in self.board.telemetries().iter().flat_map(|told| &told.flows) {
            if flow.plan.slo.is_some() {
                flow.set_objective(ticks);
            }
        }
        if let Some((decider, _)) = &mut self.decider {
            decider.set_objectives(slo, self.log.as_deref_mut());
        }
    }

    /// How many turns of the workers had something to do.
    fn busy_turns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.telemetry().worker.busy_turns.get()).sum()
    }

    /// The earliest instant at which a worker may have something to do.
    fn due(&mut self) -> Option<Ticks> {
        self.workers.iter_mut().filter_map(Worker::due).min()
    }

    /// When the controller decides next after a decision at `now`. Captures may have gaps of years: after some periods
    /// without packets it waits for the next ones.
    fn next_decision(&mut self, now: Ticks, patience: Ticks) -> Ticks {
        let busy = self.busy_turns();
        self.idle = if busy == self.idle.1 { (self.idle.0.saturating_add(1), busy) } else { (0, busy) };
        let due = if self.idle.0 >= IDLE_DECISIONS { self.due() } else { None };
        due.map_or(now + patience, |due| due.max(now + patience))
    }

    /// Lets time pass until `until`; whatever sets the triggers does so once a period, in no time.
    pub fn run(&mut self, until: Ticks) -> Ended {
        self.run_unless(until, &AtomicBool::new(false))
    }

    /// The same, but for `stop`, which ends it before a decision of the controller ([`Ended::Stopped`]).
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
                // A move takes time.
                let now = if self.move_modules() { self.latest().max(next) } else { next };
                if let Some(patience) = self.decider.as_ref().map(|(decider, _)| decider.patience()) {
                    let next = self.next_decision(now, Simulation::frequency().ticks(patience));
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
    board: Arc<Board>,
    thread: JoinHandle<Outcome>,
}

impl Simulation {
    /// What a tick is worth.
    #[must_use]
    pub fn frequency() -> Frequency {
        Frequency::new(HERTZ)
    }

    /// Starts the workers, whose modules' calls take `costs`; they run for `duration`, or until `stop` is set or nothing is
    /// left to do. Without a duration only the last two end the run.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        plans: Vec<Plan>,
        costs: &[Cost],
        duration: Option<Nanos>,
        watch: Watch,
        stop: Arc<AtomicBool>,
        made: Made,
        log: Option<Box<dyn Log>>,
    ) -> Result<Self, StartError> {
        match plans[0].scheduler {
            SchedulerKind::RunToCompletion => {
                Self::of::<RunToCompletion>(plans, costs, duration, watch, stop, made, log)
            }
            SchedulerKind::WeightedFair => Self::of::<WeightedFair>(plans, costs, duration, watch, stop, made, log),
        }
    }

    fn of<S: Scheduler + 'static>(
        plans: Vec<Plan>,
        costs: &[Cost],
        duration: Option<Nanos>,
        watch: Watch,
        stop: Arc<AtomicBool>,
        made: Made,
        log: Option<Box<dyn Log>>,
    ) -> Result<Self, StartError> {
        let frequency = Self::frequency();
        let mut team = SimulatedTeam::<S>::with_log(plans, costs, Some(made), log)?;
        team.observe(watch);
        let board = Arc::clone(&team.board);
        let thread = std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            let until = duration.map_or(Ticks::NEVER, |duration| frequency.ticks(duration));
            // The slices are always cut alike, so that every run of one seed is the same. Time in which nothing happens
            // is one slice: a capture may have years of it.
            let mut next = Ticks::ZERO;
            while next < until && !stop.load(Ordering::Relaxed) {
                let end = next + frequency.ticks(SLICE);
                next = team.due().map_or(end, |due| due.max(end)).min(until);
                if team.run(next) == Ended::Finished {
                    break;
                }
            }
            let SimulatedTeam { mut workers, .. } = team;
            let troubles = wind_up_team(&mut workers);
            workers.iter_mut().for_each(|worker| worker.observe(None));
            let at = workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default();
            Outcome { at, troubles }
        })?;
        Ok(Self { board, thread })
    }

    /// What is counted.
    #[must_use]
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Whether the run is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end.
    #[must_use]
    pub fn join(self) -> Outcome {
        let defect = || ("worker".to_owned(), "its thread panicked: this is a defect of Forebay".to_owned());
        self.thread.join().unwrap_or_else(|_| Outcome { at: Ticks::ZERO, troubles: vec![defect()] })
    }
}
