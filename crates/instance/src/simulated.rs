//! A pipeline in simulated time: all its workers on one thread, the same every time.

mod rearranging;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use forebay_control::{Costs, Log};
use forebay_graph::drive::{Ended, simulate_team, wind_up_team};
use forebay_graph::report::{Kind, Origin};
use forebay_graph::{Cost, MakeError, Plan, RunToCompletion, Scheduler, SchedulerKind, WeightedFair, Worker};
use forebay_measure::machine::Cpu;
use forebay_measure::{Clock, Frequency, Nanos, Simulated};
use forebay_models::batching::Line;
use forebay_packet::Ticks;
use forebay_pipeline::Made;

use crate::board::Board;
use crate::running::{Outcome, Watch};
use crate::steering::{Helm, Steering};
use crate::succession::members;
use crate::threads::StartError;

/// A tick of simulated time is a nanosecond.
const HERTZ: f64 = 1e9;
/// How much simulated time passes between two looks at the stop flag.
const SLICE: Nanos = Nanos(1_000_000);
/// The same while nothing happens, in a run without a duration.
const LONGEST_SLICE: Nanos = Nanos(64_000_000);

/// The workers of a pipeline in simulated time, for whoever lets time pass, and what they count.
pub struct SimulatedTeam<S: Scheduler> {
    /// The workers, by their numbers.
    pub workers: Vec<Worker<Simulated, S>>,
    /// What is counted.
    pub board: Arc<Board>,
    /// What sets the triggers, and when it does next.
    helm: Option<(Helm, Ticks)>,
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
        Self::told(plans, costs, made, None)
    }

    /// The same where `log` sees what is decided.
    ///
    /// # Errors
    /// A plan that cannot run.
    pub fn told(
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
        let steering = control.map(|settings| Steering::new(settings.clone(), &plans[0], known).map(Arc::new));
        let steering = steering.transpose().map_err(MakeError::from)?;
        let (team, workers) = members(plans, costs, || Simulated::new(frequency), |_| None)?;
        let cpu = Cpu { model: "simulated clock".to_owned(), tsc_ghz: HERTZ / 1e9 };
        let origin = Origin { kind: Kind::Simulated, cpu, cores: vec![None; workers.len()] };
        let telemetries = workers.iter().map(Worker::telemetry).collect();
        let board = Arc::new(Board::new(Ticks::ZERO, telemetries, team, origin, steering.clone()));
        let helm = steering.map(|steering| {
            let helm = Helm::new(steering, board.telemetries(), Ticks::ZERO, Ticks::ZERO, log.as_deref_mut())?;
            let first = frequency.ticks(helm.patience());
            Ok::<_, StartError>((helm, first))
        });
        let (helm, costs) = (helm.transpose()?, costs.to_vec());
        Ok(Self { workers, board, helm, log, made, costs, watch: Box::new(|_| None) })
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
        if let Some((helm, _)) = &mut self.helm {
            helm.set_objectives(slo, self.log.as_deref_mut());
        }
    }

    /// How many turns the workers have had.
    fn turns(&self) -> u64 {
        self.workers.iter().map(Worker::turns).sum()
    }

    /// Lets time pass until `until`; whatever sets the triggers does so once a period, in no time.
    pub fn run(&mut self, until: Ticks) -> Ended {
        loop {
            let next = self.helm.as_ref().map_or(until, |(_, next)| (*next).min(until));
            let ended = simulate_team(&mut self.workers, next);
            if let Some((helm, at)) = &mut self.helm
                && next == *at
                && ended != Ended::Finished
            {
                let actions = helm.decide(next, self.log.as_deref_mut());
                let trouble = self.workers.iter_mut().find_map(|worker| worker.apply(actions).err());
                helm.steering.note(trouble.map(|error| error.to_string()));
                // A move takes time.
                let now = if self.move_modules() { self.latest().max(next) } else { next };
                if let Some((helm, at)) = &mut self.helm {
                    *at = now + Simulation::frequency().ticks(helm.patience());
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
        let mut team = SimulatedTeam::<S>::told(plans, costs, Some(made), log)?;
        team.observe(watch);
        let board = Arc::clone(&team.board);
        let thread = std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            let until = duration.map_or(Ticks::NEVER, |duration| frequency.ticks(duration));
            // The slices are always cut alike, so that every run of one seed is the same: longer ones where nothing
            // happens, which a capture may have days of.
            let (mut next, mut slice) = (Ticks::ZERO, SLICE);
            while next < until && !stop.load(Ordering::Relaxed) {
                let before = team.turns();
                next = (next + frequency.ticks(slice)).min(until);
                if team.run(next) == Ended::Finished {
                    break;
                }
                let idle = duration.is_none() && team.turns() - before <= team.workers.len() as u64;
                slice = if idle { Nanos((slice.0 * 2).min(LONGEST_SLICE.0)) } else { SLICE };
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
