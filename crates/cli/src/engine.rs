//! A pipeline that runs: for real on threads of its own, or in simulated time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::{Cost, Observer, Place, Plan, Telemetry, Visit};
use forebay_instance::{Board, Instance, Outcome, Simulation, Watch};
use forebay_measure::{Clock, Frequency, Nanos, Tsc};
use forebay_packet::{Packet, Ticks};
use forebay_pipeline::Made;

/// How long a simulated run takes when nothing is said.
const SIMULATED_DURATION: Nanos = Nanos(100_000_000);

/// How workers run.
pub(crate) enum Mode {
    /// By this machine's clock, each bound to its core.
    Real { cores: Vec<usize>, made: Box<Made> },
    /// In simulated time; each module's calls take what is given here.
    Simulated { costs: Vec<Cost> },
}

/// What a tick is worth.
pub(crate) fn frequency(simulated: bool) -> Frequency {
    if simulated { Simulation::frequency() } else { Tsc.frequency() }
}

/// The present instant, as the workers' clock will tell it when they start.
pub(crate) fn now(simulated: bool) -> Ticks {
    if simulated { Ticks::ZERO } else { Tsc.now() }
}

/// A running pipeline.
pub(crate) enum Engine {
    Real {
        instance: Arc<dyn Instance>,
        /// When the run is to end; `None`: not by itself.
        until: Option<Instant>,
    },
    Simulated(Simulation),
}

impl Engine {
    /// Starts the workers; they end when their sources are used up, after `duration`, or when `stop` is set.
    pub(crate) fn start(
        plans: Vec<Plan>,
        mode: Mode,
        duration: Option<Nanos>,
        observer: Option<Box<dyn Observer>>,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let watch = shared(observer);
        Ok(match mode {
            Mode::Real { cores, made } => {
                let instance = forebay_instance::start(plans, &cores, *made, watch)?;
                Self::Real { instance, until: duration.map(|span| Instant::now() + Duration::from_nanos(span.0)) }
            }
            Mode::Simulated { costs } => {
                let duration = duration.unwrap_or(SIMULATED_DURATION);
                Self::Simulated(Simulation::start(plans, &costs, duration, watch, Arc::clone(stop))?)
            }
        })
    }

    /// What is counted.
    pub(crate) fn board(&self) -> Arc<Board> {
        match self {
            Self::Real { instance, .. } => instance.board(),
            Self::Simulated(simulation) => simulation.board(),
        }
    }

    /// Whether the run is over, or is to end now.
    pub(crate) fn is_over(&self, stop: &AtomicBool) -> bool {
        match self {
            Self::Real { instance, until } => {
                stop.load(Ordering::Relaxed)
                    || until.is_some_and(|until| Instant::now() >= until)
                    || instance.board().is_quiet()
                    || instance.has_died()
            }
            Self::Simulated(simulation) => simulation.is_over(),
        }
    }

    /// How long nobody need look, if not longer than `patience`.
    pub(crate) fn patience(&self, patience: Duration) -> Duration {
        match self {
            Self::Real { until: Some(until), .. } => patience.min(until.saturating_duration_since(Instant::now())),
            _ => patience,
        }
    }

    /// Ends the run, and waits for the end.
    pub(crate) fn end(self) -> Outcome {
        match self {
            Self::Real { instance, .. } => instance.end(),
            Self::Simulated(simulation) => simulation.join(),
        }
    }
}

/// One observer for all workers, also those that will join.
pub(crate) fn shared(observer: Option<Box<dyn Observer>>) -> Watch {
    let all = observer.map(|observer| Shared(Arc::new(Mutex::new(observer))));
    Box::new(move |_| all.clone().map(|all| Box::new(all) as Box<dyn Observer>))
}

/// Workers that are watched are slow, and may well wait for each other.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Observer>>>);

impl Shared {
    fn with<R>(&self, tell: impl FnOnce(&mut dyn Observer) -> R) -> R {
        tell(&mut **self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Shared {
    fn graph(&mut self, telemetry: &Telemetry) {
        self.with(|observer| observer.graph(telemetry));
    }

    fn entered(&mut self, port: usize, packet: &mut Packet) -> u8 {
        self.with(|observer| observer.entered(port, packet))
    }

    fn visited(&mut self, visit: &Visit<'_>) {
        self.with(|observer| observer.visited(visit));
    }

    fn dropped(&mut self, place: Place, reason: &'static str, packet: &Packet) {
        self.with(|observer| observer.dropped(place, reason, packet));
    }

    fn left(&mut self, port: usize, flow: Option<usize>, packet: &Packet) {
        self.with(|observer| observer.left(port, flow, packet));
    }

    fn consumed(&mut self, module: usize, reason: &'static str, packet: &Packet) {
        self.with(|observer| observer.consumed(module, reason, packet));
    }

    fn done(&self) -> bool {
        self.with(|observer| observer.done())
    }
}
