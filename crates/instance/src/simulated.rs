//! A pipeline in simulated time: all its workers on one thread, the same every time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use forebay_graph::drive::{Ended, simulate_team, wind_up_team};
use forebay_graph::report::{Kind, Origin};
use forebay_graph::{
    Cost, MakeError, Plan, RunToCompletion, Scheduler, SchedulerKind, Team, WeightedFair, Worker, links,
};
use forebay_measure::machine::Cpu;
use forebay_measure::{Clock, Frequency, Nanos, Simulated};
use forebay_packet::{Pool, Ticks};

use crate::board::Board;
use crate::running::{Outcome, Watch};
use crate::threads::StartError;

/// A tick of simulated time is a nanosecond.
const HERTZ: f64 = 1e9;
/// How much simulated time passes between two looks at the stop flag.
const SLICE: Nanos = Nanos(1_000_000);

/// The workers of a pipeline in simulated time, for whoever lets time pass, and what they count.
pub struct SimulatedTeam<S: Scheduler> {
    /// The workers, by their numbers.
    pub workers: Vec<Worker<Simulated, S>>,
    /// What is counted.
    pub board: Board,
}

impl<S: Scheduler> SimulatedTeam<S> {
    /// Makes the workers of `plans`, which were made for simulated time; their modules' calls take `costs`.
    ///
    /// # Errors
    /// A plan that cannot run.
    pub fn new(plans: Vec<Plan>, costs: &[Cost]) -> Result<Self, MakeError> {
        let team = Arc::new(Team::new(plans.len()));
        let rings = links(&plans[0], &plans[0].placement);
        let mut workers: Vec<Worker<Simulated, S>> = Vec::new();
        for (plan, ring) in plans.into_iter().zip(rings) {
            let pool = Pool::new(plan.pool).map_err(MakeError::from)?;
            let clock = Simulated::new(Simulation::frequency());
            workers.push(Worker::member(plan, clock, costs.to_vec(), pool, ring, Arc::clone(&team))?);
        }
        let cpu = Cpu { model: "simulated clock".to_owned(), tsc_ghz: HERTZ / 1e9 };
        let origin = Origin { kind: Kind::Simulated, cpu, cores: vec![None; workers.len()] };
        let telemetries = workers.iter().map(Worker::telemetry).collect();
        let board = Board::new(Ticks::ZERO, telemetries, team, origin);
        Ok(Self { workers, board })
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
    /// left to do.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        plans: Vec<Plan>,
        costs: &[Cost],
        duration: Nanos,
        watch: Watch,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, StartError> {
        match plans[0].scheduler {
            SchedulerKind::RunToCompletion => Self::of::<RunToCompletion>(plans, costs, duration, watch, stop),
            SchedulerKind::WeightedFair => Self::of::<WeightedFair>(plans, costs, duration, watch, stop),
        }
    }

    fn of<S: Scheduler + 'static>(
        plans: Vec<Plan>,
        costs: &[Cost],
        duration: Nanos,
        mut watch: Watch,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, StartError> {
        let frequency = Self::frequency();
        let SimulatedTeam { mut workers, board } = SimulatedTeam::<S>::new(plans, costs)?;
        for (id, worker) in workers.iter_mut().enumerate() {
            worker.observe(watch(id));
        }
        let board = Arc::new(board);
        let thread = std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            let until = Ticks::ZERO + frequency.ticks(duration);
            // The slices are always cut alike, so that every run of one seed is the same.
            let mut next = Ticks::ZERO;
            while next < until && !stop.load(Ordering::Relaxed) {
                next = (next + frequency.ticks(SLICE)).min(until);
                if simulate_team(&mut workers, next) == Ended::Finished {
                    break;
                }
            }
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
