//! A case: a pipeline that is run and timed in windows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_graph::{
    Intake, MakeError, Plan, Port, Ready, RunToCompletion, Scheduler, Telemetry, Waits, WeightedFair, Worker,
};
use forebay_measure::{Clock, Tsc};
use forebay_packet::Batch;
use forebay_protocol::SchedulerKind;
use forebay_units::Ticks;
use serde::Serialize;

use crate::churn::Churn;

/// Packets per window.
const WINDOW: usize = 100_000;
/// Windows per run.
const WINDOWS: usize = 11;

/// The counters of a case's worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    AsShipped,
    /// All counters, but turns are not timed.
    Untimed,
    Nothing,
}

/// A pipeline to be timed.
pub struct Case {
    pub name: &'static str,
    worker: Box<dyn Turns>,
    /// Packets per turn.
    batch: usize,
    /// True if a turn always takes this many packets. The weighted scheduler may leave packets at their ports and take
    /// them later.
    always: bool,
    /// The active counters.
    pub counted: Counted,
    /// Table changes during the case.
    pub churn: Option<Churn>,
    /// True if a window had fewer packets than requested.
    pub starved: bool,
    /// Ticks of the generator, and the packets that it made, in metered windows.
    meter: Arc<Meter>,
    /// For each run: ticks per packet in total.
    pub total: Vec<f64>,
    /// For each run: the generator's part of these ticks.
    pub generator: Vec<f64>,
}

/// A worker with either scheduler.
trait Turns {
    /// Runs this many turns.
    fn turns(&mut self, turns: usize);
    fn telemetry(&self) -> Arc<Telemetry>;
    fn missing(&mut self) -> i128;
}

impl<S: Scheduler> Turns for Worker<Tsc, S> {
    fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn();
        }
    }

    fn telemetry(&self) -> Arc<Telemetry> {
        Self::telemetry(self)
    }

    fn missing(&mut self) -> i128 {
        self.census().missing()
    }
}

fn worker<S: Scheduler + 'static>(plan: Plan, counted: Counted) -> Result<Box<dyn Turns>, MakeError> {
    let mut worker: Worker<_, S> = Worker::new(plan, Tsc, Vec::new())?;
    worker.set_accounting(counted != Counted::Nothing);
    worker.set_timing(counted == Counted::AsShipped);
    Ok(Box::new(worker))
}

/// The cost of a metered generator.
#[derive(Default)]
struct Meter {
    on: AtomicU64,
    ticks: AtomicU64,
    calls: AtomicU64,
    packets: AtomicU64,
}

/// A generator whose calls are timed while the meter is on.
struct Metered {
    port: Box<dyn Port>,
    meter: Arc<Meter>,
}

impl Port for Metered {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        if self.meter.on.load(Ordering::Relaxed) == 0 {
            return self.port.receive(batch, intake);
        }
        let start = Tsc.now();
        let ready = self.port.receive(batch, intake);
        self.meter.ticks.fetch_add(Tsc.now().since(start).0, Ordering::Relaxed);
        self.meter.calls.fetch_add(1, Ordering::Relaxed);
        self.meter.packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
        ready
    }

    fn wait_on(&self) -> Waits<'_> {
        self.port.wait_on()
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        self.port.send(batch, now);
    }
}

impl Case {
    /// Makes a case of `plan`. Its sources must always have packets.
    pub fn new(name: &'static str, mut plan: Plan, counted: Counted) -> Result<Self, MakeError> {
        let meter = Arc::new(Meter::default());
        let (mut batch, always) = (0, plan.scheduler == SchedulerKind::RunToCompletion);
        for source in plan.ports.iter_mut().filter(|port| port.entry.is_some()) {
            let nothing: Box<dyn Port> = Box::new(Nothing);
            if let Some(open) = &mut source.open {
                let port = std::mem::replace(&mut open.port, nothing);
                open.port = Box::new(Metered { port, meter: Arc::clone(&meter) });
            }
            batch += plan.batch;
        }
        let worker = match plan.scheduler {
            SchedulerKind::RunToCompletion => worker::<RunToCompletion>(plan, counted)?,
            SchedulerKind::WeightedFair => worker::<WeightedFair>(plan, counted)?,
        };
        let (total, generator) = (Vec::new(), Vec::new());
        Ok(Self { name, worker, batch, always, counted, churn: None, starved: false, meter, total, generator })
    }

    /// Processes packets without measuring, until the functions' tables are filled.
    pub fn warm(&mut self, packets: usize) {
        self.worker.turns(packets / self.batch);
    }

    /// Makes one run: windows without the meter for the total, then windows with the meter for the generator's part.
    pub fn run(&mut self) {
        self.window();
        let windows: Vec<f64> = match self.churn.take() {
            None => (0..WINDOWS).map(|_| self.window()).collect(),
            Some(mut churn) => {
                let mut windows = Vec::new();
                churn.beside(|done| {
                    while !done.load(Ordering::Relaxed) {
                        windows.push(self.window());
                    }
                });
                self.churn = Some(churn);
                windows
            }
        };
        self.total.push(median(windows));
        self.meter.on.store(1, Ordering::Relaxed);
        let metered: Vec<f64> = (0..WINDOWS).map(|_| self.metered_window()).collect();
        self.meter.on.store(0, Ordering::Relaxed);
        self.generator.push(median(metered));
    }

    fn window(&mut self) -> f64 {
        let turns = WINDOW / self.batch;
        let (start, before) = (Tsc.now(), self.received());
        self.worker.turns(turns);
        let (ticks, packets) = (Tsc.now().since(start).0, self.received() - before);
        // A source that sends fewer packets than requested would make every result look too good.
        let expected = (turns * self.batch) as u64;
        self.starved |= if self.always { packets != expected } else { packets < expected / 10 * 9 };
        ticks as f64 / packets as f64
    }

    /// Returns the number of packets that have entered.
    pub fn received(&self) -> u64 {
        self.worker.telemetry().ports.iter().map(|port| port.counters.received.get()).sum()
    }

    fn metered_window(&mut self) -> f64 {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        self.window();
        let (ticks, calls, packets) = (take(&self.meter.ticks), take(&self.meter.calls), take(&self.meter.packets));
        if packets == 0.0 { 0.0 } else { (ticks - calls * read_cost()).max(0.0) / packets }
    }

    /// Returns the number of unaccounted packets. Results of an engine that loses packets are invalid.
    pub fn missing(&mut self) -> i128 {
        self.worker.missing()
    }
}

/// Returns the ticks that reading the clock adds to a span between two readings.
fn read_cost() -> f64 {
    median(
        (0..64)
            .map(|_| {
                let first = Tsc.now();
                Tsc.now().since(first).0 as f64
            })
            .collect(),
    )
}

/// Replaces a port that was taken out.
struct Nothing;

impl Port for Nothing {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// The result of a case.
#[derive(Serialize)]
pub struct Figure {
    pub name: String,
    pub ticks_per_packet: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

impl Figure {
    /// Returns the median, minimum and maximum of one value per run.
    pub fn of(name: &str, values: Vec<f64>) -> Self {
        let (runs, Spread { median, min, max }) = (values.len(), Spread::of(values));
        Self { name: name.to_owned(), ticks_per_packet: median, min, max, runs }
    }
}

/// The spread of one value per run.
#[derive(Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        let mut values: Vec<_> = values.into_iter().map(rounded).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { median: at(values.len() / 2), min: at(0), max: at(values.len().wrapping_sub(1)) }
    }
}

/// Formats the median and, in parentheses, the minimum and maximum.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (value, after) in [(self.median, " ("), (self.min, " to "), (self.max, ")")] {
            value.fmt(f)?;
            f.write_str(after)?;
        }
        Ok(())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
