//! A running pipeline: on threads in real time, or in simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_control::Log;
use forebay_graph::{Cost, Plan};
use forebay_instance::{ControlInputs, Cores, Instance, Outcome, PipelineCounters, Simulation, Watch};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::PipelineParts;
use forebay_units::{Frequency, Nanos, Ticks};

/// Duration of a simulated run that has no `--duration` and does not end by itself.
pub(crate) const SIMULATED_DURATION: Nanos = Nanos(100_000_000);

/// The mode in which workers run.
pub(crate) enum Mode {
    /// In real time, each worker bound to its core.
    Real { cores: Cores, made: Box<PipelineParts>, control_inputs: ControlInputs },
    /// In simulated time; `costs` has the cost of each module's calls.
    Simulated { costs: Vec<Cost>, made: Box<PipelineParts>, log: Option<Box<dyn Log>> },
}

/// Returns the frequency of the workers' clock.
pub(crate) fn frequency(simulated: bool) -> Frequency {
    if simulated { Simulation::frequency() } else { Tsc.frequency() }
}

/// Returns the present instant of the workers' clock. In simulated time, this is the start of the clock, 0.
pub(crate) fn now(simulated: bool) -> Ticks {
    if simulated { Ticks::ZERO } else { Tsc.now() }
}

/// A running pipeline.
pub(crate) enum Engine {
    Real {
        instance: Arc<dyn Instance>,
        /// The end of the run; `None` if it has no time limit.
        until: Option<Instant>,
    },
    Simulated(Simulation),
}

impl Engine {
    /// Starts the workers. They end when their sources are exhausted, after `duration`, or when `stop` is set. In real
    /// time, the caller must check [`is_over`](Self::is_over) and call [`end`](Self::end).
    pub(crate) fn start(
        plans: Vec<Plan>,
        mode: Mode,
        duration: Option<Nanos>,
        watch: Watch,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        Ok(match mode {
            Mode::Real { cores, made, control_inputs } => {
                let instance = forebay_instance::start(plans, &cores, *made, watch, control_inputs)?;
                instance.keep_cores_free();
                Self::Real { instance, until: duration.map(|span| Instant::now() + Duration::from_nanos(span.0)) }
            }
            Mode::Simulated { costs, made, log } => {
                let stop = Arc::clone(stop);
                Self::Simulated(Simulation::start(plans, &costs, duration, watch, stop, *made, log)?)
            }
        })
    }

    /// Returns the shared counters of the workers.
    pub(crate) fn board(&self) -> Arc<PipelineCounters> {
        match self {
            Self::Real { instance, .. } => instance.board(),
            Self::Simulated(simulation) => simulation.board(),
        }
    }

    /// Returns true if the run has ended or should end now.
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

    /// Returns the earliest instant at which a held packet may continue. Returns `None` if no packet is held, if more
    /// packets may come from outside, and in simulated time.
    pub(crate) fn waits_until(&self) -> Option<Ticks> {
        match self {
            Self::Real { instance, .. } => instance.board().waits_until(),
            Self::Simulated(_) => None,
        }
    }

    /// Returns how long the caller may sleep: `patience`, or less if the run ends earlier.
    pub(crate) fn patience(&self, patience: Duration) -> Duration {
        match self {
            Self::Real { until: Some(until), .. } => patience.min(until.saturating_duration_since(Instant::now())),
            _ => patience,
        }
    }

    /// Ends the run, and waits until the workers have ended.
    pub(crate) fn end(self) -> Outcome {
        match self {
            Self::Real { instance, .. } => instance.end(),
            Self::Simulated(simulation) => simulation.join(),
        }
    }
}
