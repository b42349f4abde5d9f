//! One trial on a running pipeline: its sources offer a load for some time, and the lost packets are counted.
//!
//! The pipeline keeps running between trials; only the load of its sources changes ([`Action::SetOffer`]). As in RFC
//! 2544, section 23, a trial begins when no packets are in flight, and is evaluated when none are in flight any more.
//! So its counts are exact. Packets that were due by the schedule count as offered, whether they were received or not.
//! Exception: packets do not count if they became due at the end of the load, while a worker was without its core.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_graph::{
    Cost, Plan, Scheduler, Worker,
    drive::{Ended, simulate_team},
    report::Reading,
};
use forebay_instance::{Instance, PipelineCounters, SimulatedTeam, Simulation, StartError};
use forebay_measure::{Clock, Simulated, Tsc};
use forebay_protocol::{Action, report::Report};
use forebay_units::{Nanos, Ticks};

use crate::disturbance::{Disturbance, TOLERATED, Witness};
use crate::search::{Trial, Trials};

/// The time for which the load is offered before a trial without counting, to warm up caches and branch predictors.
const WARM_UP: Duration = Duration::from_millis(10);
/// The number of batches of each source that may still wait when its load ends. All further waiting packets count as
/// lost, because they form a growing queue, which would overflow in a longer trial. Packets that would have become due
/// in the turn in which the load ended never become due.
const WAITING_BATCHES: usize = 1;
/// The longest time for packets to leave after the load has ended, as in RFC 2544, section 23. Packets that are held
/// for longer stay in the pipeline.
const SETTLE: Duration = Duration::from_secs(2);
/// The time between two checks for packets in flight.
const LOOK: Duration = Duration::from_micros(300);
/// Drop reasons that are caused by overload. All other drops are decisions of functions.
const OVERLOAD: [&str; 2] = ["backpressure", "refused"];

/// Trials cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The load of a source cannot be set.
    #[error(
        "port '{port}' ({kind}): a search cannot set its load: allowed are generators with a `rate` and no `count`"
    )]
    Source {
        /// The port.
        port: String,
        /// The type of the port.
        kind: &'static str,
    },
    /// There is no source.
    #[error("no packets enter by any port: a search needs a generator with a `rate`")]
    NoSource,
    /// A worker refuses to change its load, or does not respond.
    #[error("the load cannot be set: {0}")]
    Act(String),
    /// A worker has ended unexpectedly.
    #[error("a worker has ended unexpectedly: this is a defect of Forebay")]
    Died,
}

/// The configured load of the sources of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Packets per second, over all sources.
    pps: f64,
    /// The names of the sources.
    ports: Vec<String>,
    /// The number of packets, over all sources, that may wait at the end of a trial without being counted as lost.
    waiting: f64,
    /// The number of packets that may wait in addition because sources send in bursts, at the configured load. For
    /// another load it changes in proportion.
    burst: f64,
}

impl Load {
    /// Returns the load that the sources of `plans` offer.
    ///
    /// # Errors
    /// [`TrialError::Source`] and [`TrialError::NoSource`].
    pub fn of(plans: &mut [Plan]) -> Result<Self, TrialError> {
        let mut load = Self { pps: 0.0, ports: Vec::new(), waiting: 0.0, burst: 0.0 };
        for plan in plans {
            for port in plan.ports.iter_mut().filter(|port| port.entry.is_some()) {
                let Some(open) = &mut port.open else { continue };
                let Some(offer) = open.port.schedule().and_then(|source| source.offer()) else {
                    return Err(TrialError::Source { port: port.name.clone(), kind: port.kind });
                };
                load.pps += offer.pps;
                load.burst += offer.burst;
                load.waiting += (WAITING_BATCHES * plan.batch) as f64;
                if !load.ports.contains(&port.name) {
                    load.ports.push(port.name.clone());
                }
            }
        }
        if load.pps > 0.0 { Ok(load) } else { Err(TrialError::NoSource) }
    }

    /// Packets per second, over all sources.
    #[must_use]
    pub fn pps(&self) -> f64 {
        self.pps
    }

    /// Returns the number of packets that entered through the sources.
    fn received(&self, report: &Report) -> u64 {
        self.of_sources(report).map(|port| port.received).sum()
    }

    /// Returns the ports of `report` that are sources of this load.
    fn of_sources<'r>(&self, report: &'r Report) -> impl Iterator<Item = &'r forebay_protocol::report::PortReport> {
        report.ports.iter().filter(|port| self.ports.contains(&port.name))
    }

    /// Returns the offered and the lost packets of a trial at `factor` times the configured load. `all` is the report
    /// on the whole trial, `after` is the report on the time after the load had ended. Packets are lost if the queue of
    /// their source was full, if they were dropped because of overload, or if too many packets still waited when the
    /// load ended.
    fn tally(&self, all: &Report, after: &Report, factor: f64) -> (u64, u64) {
        let dropped: u64 = self.of_sources(all).map(|port| port.dropped).sum();
        let overload = all
            .packets
            .dropped
            .iter()
            .filter(|(name, _)| name.rsplit_once('.').is_some_and(|(_, reason)| OVERLOAD.contains(&reason)));
        let waiting = self.received(after) as f64 - self.waiting - self.burst * factor;
        let lost = dropped + overload.map(|(_, count)| count).sum::<u64>() + waiting.max(0.0) as u64;
        let offered = self.received(all) + dropped;
        (offered, lost.min(offered))
    }
}

/// A pipeline whose load can be set, and its clock.
trait Bench {
    /// Sets the load of every source with a rate to `factor` times its configured rate. With 0, only packets that are
    /// already due still come. When this returns without an error, all workers have the new load: [`run`] reads the
    /// counters next. After an error, some workers may have the new load, and others the previous load.
    fn offer(&mut self, factor: f64) -> Result<(), TrialError>;
    /// Lets `span` pass on the bench's own clock.
    fn pass(&mut self, span: Duration);
    /// Lets time pass until no packets are in flight, or for [`SETTLE`] at most. Packets that are still in flight then
    /// are not an error.
    fn settle(&mut self) -> Result<(), TrialError>;
    /// Reads all counters now.
    fn read(&self) -> Reading;
    /// Returns the counters, which make a report of two readings.
    fn board(&self) -> &PipelineCounters;
}

/// The counts of a trial.
struct Tally {
    /// The number of packets that were due and that the workers' sources noticed.
    offered: u64,
    /// The number of due packets that were lost.
    lost: u64,
    /// The largest share of time, over all workers, in which the worker was without its core during busy turns.
    stalled: f64,
}

/// Runs a trial of `pps` packets per second: warms up, offers the load for `span`, waits for packets in flight, counts.
/// At the end, the load is 0.
fn run<B: Bench>(bench: &mut B, load: &Load, pps: f64, span: Duration) -> Result<Tally, TrialError> {
    let factor = pps / load.pps;
    bench.offer(factor)?;
    bench.pass(WARM_UP.min(span));
    bench.offer(0.0)?;
    bench.settle()?;
    let begun = bench.read();
    bench.offer(factor)?;
    bench.pass(span);
    bench.offer(0.0)?;
    let ended = bench.read();
    bench.settle()?;
    let settled = bench.read();
    let between = |earlier, later| bench.board().report(earlier, later);
    let all = between(&begun, &settled);
    let (offered, lost) = load.tally(&all, &between(&ended, &settled), factor);
    let stalled = all.workers.iter().map(|worker| worker.machine_stalls.busy_share).fold(0.0, f64::max);
    Ok(Tally { offered, lost, stalled })
}

/// Runs trials on this machine.
pub struct Measured {
    bench: Real,
    load: Load,
    /// Disturbances of the workers in the last trial.
    disturbances: Vec<Disturbance>,
}

/// A pipeline that runs on this machine.
struct Real {
    instance: Arc<dyn Instance>,
    board: Arc<PipelineCounters>,
}

impl Measured {
    /// Creates trials on a running pipeline. `load` must be the load of the plans from which it was started
    /// ([`Load::of`]).
    #[must_use]
    pub fn new(instance: Arc<dyn Instance>, load: Load) -> Self {
        let board = instance.board();
        Self { bench: Real { instance, board }, load, disturbances: Vec::new() }
    }

    /// Disturbances of the workers in the last trial.
    #[must_use]
    pub fn disturbances(&self) -> &[Disturbance] {
        &self.disturbances
    }
}

impl Trials for Measured {
    type Error = TrialError;

    /// Runs a trial. The trial is void if packets were lost and a worker was without its core for more than
    /// [`TOLERATED`] of the time. This time is reported by the system and by the worker's own clock
    /// ([`Stalls`](forebay_protocol::report::Stalls)).
    fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, TrialError> {
        let (began, threads) = (Instant::now(), self.bench.instance.threads());
        let before = Witness::look(&threads);
        let Tally { offered, lost, stalled } = run(&mut self.bench, &self.load, pps, span)?;
        self.disturbances = Witness::look(&threads).since(&before);
        let void = lost > 0 && (stalled > TOLERATED || self.disturbances.iter().any(Disturbance::voids));
        Ok(Trial { offered, lost, void, took: began.elapsed() })
    }
}

impl Bench for Real {
    fn offer(&mut self, factor: f64) -> Result<(), TrialError> {
        self.instance.act(&[Action::SetOffer { factor }]).map_err(TrialError::Act)
    }

    fn pass(&mut self, span: Duration) {
        std::thread::sleep(span);
    }

    fn settle(&mut self) -> Result<(), TrialError> {
        let until = Instant::now() + SETTLE;
        let mut before = None;
        while Instant::now() < until {
            // Each worker responds between two turns. If the counts have not changed since the last response, no
            // packets are in flight.
            let Some(census) = self.instance.census() else {
                return Err(if self.instance.has_died() {
                    TrialError::Died
                } else {
                    TrialError::Act("a worker does not respond".to_owned())
                });
            };
            if before.replace(census) == Some(census) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn read(&self) -> Reading {
        self.board.read(Tsc.now())
    }

    fn board(&self) -> &PipelineCounters {
        &self.board
    }
}

/// Runs trials in simulated time with given costs of calls. So the rate that the pipeline can forward is known, and
/// every run has the same result.
pub struct Emulated<S: Scheduler> {
    bench: Virtual<S>,
    load: Load,
}

/// Workers in simulated time, which the calling thread runs.
struct Virtual<S: Scheduler> {
    workers: Vec<Worker<Simulated, S>>,
    board: Arc<PipelineCounters>,
}

/// Simulated trials cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum EmulateError {
    /// The sources do not allow trials.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A plan cannot run.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl<S: Scheduler> Emulated<S> {
    /// Creates trials of `plans`, which must be made for simulated time. Calls of modules take `costs`.
    ///
    /// # Errors
    /// [`EmulateError`].
    pub fn new(mut plans: Vec<Plan>, costs: &[Cost]) -> Result<Self, EmulateError> {
        let load = Load::of(&mut plans)?;
        let SimulatedTeam { workers, board, .. } = SimulatedTeam::new(plans, costs, None)?;
        Ok(Self { bench: Virtual { workers, board }, load })
    }

    /// Returns the configured load of the sources.
    #[must_use]
    pub fn load(&self) -> &Load {
        &self.load
    }
}

impl<S: Scheduler> Trials for Emulated<S> {
    type Error = TrialError;

    fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, TrialError> {
        let began = self.bench.now();
        let Tally { offered, lost, .. } = run(&mut self.bench, &self.load, pps, span)?;
        let took = Simulation::frequency().seconds(self.bench.now().since(began));
        Ok(Trial { offered, lost, void: false, took: Duration::from_secs_f64(took) })
    }
}

impl<S: Scheduler> Virtual<S> {
    /// Returns the time of the worker that is ahead of all others.
    fn now(&self) -> Ticks {
        self.workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default()
    }

    /// Runs all workers for `span` of simulated time. Returns [`Ended::Finished`] if they have no work left.
    fn run_for(&mut self, span: Duration) -> Ended {
        let span = Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let until = self.now() + Simulation::frequency().ticks(span);
        let ended = simulate_team(&mut self.workers, until);
        // The clock advances even if there is no work.
        self.workers.iter().for_each(|worker| worker.clock().advance_to(until));
        ended
    }
}

impl<S: Scheduler> Bench for Virtual<S> {
    fn offer(&mut self, factor: f64) -> Result<(), TrialError> {
        let actions = [Action::SetOffer { factor }];
        let all = self.workers.iter_mut().try_for_each(|worker| worker.apply(&actions));
        all.map_err(|error| TrialError::Act(error.to_string()))
    }

    fn pass(&mut self, span: Duration) {
        self.run_for(span);
    }

    fn settle(&mut self) -> Result<(), TrialError> {
        let until = self.now() + Simulation::frequency().ticks(Nanos(SETTLE.as_nanos() as u64));
        while self.now() < until && self.run_for(LOOK) != Ended::Finished {}
        Ok(())
    }

    fn read(&self) -> Reading {
        self.board.read(self.now())
    }

    fn board(&self) -> &PipelineCounters {
        &self.board
    }
}

#[cfg(test)]
mod tests;
