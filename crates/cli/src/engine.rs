//! A worker on a thread of its own: started, waited for, stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail};
use forebay_graph::drive::{Mailbox, poll, simulate};
use forebay_graph::report::{Kind, Origin};
use forebay_graph::{Cost, Observer, Plan, RunToCompletion, Scheduler, SchedulerKind, Telemetry, WeightedFair, Worker};
use forebay_measure::machine::{Cpu, allowed_cores, pin_to};
use forebay_measure::{Clock, Frequency, Nanos, Simulated, Tsc};
use forebay_packet::Ticks;

/// A tick of simulated time is a nanosecond.
const SIMULATED_HERTZ: f64 = 1e9;
/// How much simulated time passes between two looks at the stop flag.
const SLICE: Nanos = Nanos(1_000_000);
/// How long a simulated run takes when nothing is said.
const SIMULATED_DURATION: Nanos = Nanos(100_000_000);

/// How a worker runs.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// By this machine's clock, bound to a core.
    Real { core: usize },
    /// In simulated time; each module's calls take what is given here.
    Simulated { costs: Vec<Cost> },
}

impl Mode {
    /// What a tick is worth.
    pub(crate) fn frequency(simulated: bool) -> Frequency {
        if simulated { Frequency::new(SIMULATED_HERTZ) } else { Tsc.frequency() }
    }

    /// The present instant, as the worker's clock will tell it when it starts.
    pub(crate) fn now(simulated: bool) -> Ticks {
        if simulated { Ticks::ZERO } else { Tsc.now() }
    }

    fn origin(&self) -> Origin {
        match self {
            Self::Real { core } => Origin { kind: Kind::Measured, cpu: Cpu::this(), core: Some(*core) },
            Self::Simulated { .. } => {
                let cpu = Cpu { model: "simulated clock".to_owned(), tsc_ghz: SIMULATED_HERTZ / 1e9 };
                Origin { kind: Kind::Simulated, cpu, core: None }
            }
        }
    }
}

/// The core to run on: the one asked for where it is allowed, else the last that is.
pub(crate) fn choose_core(asked: Option<usize>) -> anyhow::Result<usize> {
    let allowed = allowed_cores();
    let last = *allowed.last().context("the system does not say on which cores this process may run")?;
    match asked {
        None => Ok(last),
        Some(core) if allowed.contains(&core) => Ok(core),
        Some(core) => {
            let allowed = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            bail!("core {core} is not one that this process may run on: allowed are {allowed}")
        }
    }
}

/// What a worker's run came to.
pub(crate) struct Outcome {
    /// When it ended, on the worker's clock.
    pub(crate) at: Ticks,
    /// Ports and modules that failed: which and why.
    pub(crate) troubles: Vec<(String, String)>,
}

/// A running worker.
pub(crate) struct Engine {
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) origin: Origin,
    /// When it began, on its clock.
    pub(crate) began: Ticks,
    thread: JoinHandle<Outcome>,
}

impl Engine {
    /// Starts a worker; it ends by itself, after `duration`, or when `stop` is set.
    pub(crate) fn start(
        plan: Plan,
        mode: Mode,
        duration: Option<Nanos>,
        observer: Option<Box<dyn Observer>>,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let origin = mode.origin();
        let (started, starts) = sync_channel(1);
        // The worker is made on its own thread and core, so that its memory is near them.
        let thread = std::thread::Builder::new().name("worker-0".to_owned()).spawn(move || {
            let run = match plan.scheduler {
                SchedulerKind::RunToCompletion => run::<RunToCompletion>,
                SchedulerKind::WeightedFair => run::<WeightedFair>,
            };
            run(plan, mode, duration, observer, &stop, &started)
        })?;
        match starts.recv() {
            Ok(Ok((telemetry, began))) => Ok(Self { telemetry, origin, began, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(anyhow!("the worker ended before it began")),
        }
    }

    /// Whether the run is over.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end.
    pub(crate) fn join(self) -> anyhow::Result<Outcome> {
        self.thread.join().map_err(|_| anyhow!("the worker's thread panicked: this is a defect of Forebay"))
    }
}

type Started = SyncSender<anyhow::Result<(Arc<Telemetry>, Ticks)>>;

/// A whole run under one scheduler.
fn run<S: Scheduler>(
    plan: Plan,
    mode: Mode,
    duration: Option<Nanos>,
    observer: Option<Box<dyn Observer>>,
    stop: &AtomicBool,
    started: &Started,
) -> Outcome {
    match mode {
        Mode::Real { core } => run_real::<S>(plan, core, duration, observer, stop, started),
        Mode::Simulated { costs } => run_simulated::<S>(plan, costs, duration, observer, stop, started),
    }
}

/// Makes a worker and says so; nothing where it could not be made, which is said, too.
fn make<C: Clock, S: Scheduler>(
    plan: Plan,
    clock: C,
    costs: Vec<Cost>,
    observer: Option<Box<dyn Observer>>,
    started: &Started,
) -> Option<(Worker<C, S>, Ticks)> {
    let (answer, made) = match Worker::new(plan, clock, costs) {
        Ok(mut worker) => {
            worker.observe(observer);
            let began = worker.clock().now();
            (Ok((worker.telemetry(), began)), Some((worker, began)))
        }
        Err(error) => (Err(error.into()), None),
    };
    // The other side waits for this and nothing else.
    let _ = started.send(answer);
    made
}

/// Ends a run: nothing stays queued or held, ports are closed, the observer tells what it has left.
fn end<C: Clock, S: Scheduler>(worker: &mut Worker<C, S>) -> Outcome {
    let troubles = worker.wind_up().err().unwrap_or_default();
    worker.observe(None);
    Outcome { at: worker.clock().now(), troubles }
}

/// An outcome that nobody will look at: the start has failed.
fn never() -> Outcome {
    Outcome { at: Ticks::ZERO, troubles: Vec::new() }
}

fn run_real<S: Scheduler>(
    plan: Plan,
    core: usize,
    duration: Option<Nanos>,
    observer: Option<Box<dyn Observer>>,
    stop: &AtomicBool,
    started: &Started,
) -> Outcome {
    if let Err(error) = pin_to(core) {
        let _ = started.send(Err(anyhow!("the worker cannot be bound to core {core}: {error}")));
        return never();
    }
    let Some((mut worker, began)) = make::<_, S>(plan, Tsc, Vec::new(), observer, started) else { return never() };
    let until = duration.map(|duration| began + Tsc.frequency().ticks(duration));
    // Nobody sends actions yet: triggers are set before the start.
    let (_, actions) = rtrb::RingBuffer::new(1);
    poll(&mut worker, &mut Mailbox { stop, until, actions }, |_, _| {});
    end(&mut worker)
}

fn run_simulated<S: Scheduler>(
    plan: Plan,
    costs: Vec<Cost>,
    duration: Option<Nanos>,
    observer: Option<Box<dyn Observer>>,
    stop: &AtomicBool,
    started: &Started,
) -> Outcome {
    let frequency = Mode::frequency(true);
    let Some((mut worker, began)) = make::<_, S>(plan, Simulated::new(frequency), costs, observer, started) else {
        return never();
    };
    let until = began + frequency.ticks(duration.unwrap_or(SIMULATED_DURATION));
    // The slices are always cut alike, so that every run of one seed is the same.
    let mut next = began;
    while next < until && !stop.load(Ordering::Relaxed) {
        next = (next + frequency.ticks(SLICE)).min(until);
        if simulate(&mut worker, next) == forebay_graph::drive::Ended::Finished {
            break;
        }
    }
    end(&mut worker)
}
