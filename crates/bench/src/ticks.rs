//! Measures ticks per packet: runs the pipeline on this machine for a given time. Instructions and core cycles are
//! measured too, if workers can read the processor's counters themselves.

use std::time::Duration;

use forebay_graph::{Meter, Plan};
use forebay_instance::{ControlInputs, Instance, Outcome, StartError};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::PipelineParts;
use forebay_protocol::{
    SchedulerKind,
    report::{Packets, Report, Spent, Timing, WorkerReport},
};
use serde::{Deserialize, Serialize};

use crate::disturbance::{Disturbance, Witness};
use crate::hardware::{HardwareCounts, Watch};
use crate::meter::{WhyNot, meter};

/// The time for which a pipeline runs before the measurement begins. If half of the measured time is shorter, the
/// pipeline runs for that time instead. Meanwhile, caches and tables fill, and the frequency governor settles.
const WARM_UP: Duration = Duration::from_millis(200);

/// The results of a run on this machine.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The report of the measured span.
    pub report: Report,
    /// Packet counts from the start to the end of the run, the warm-up included.
    pub whole: Packets,
    /// Ticks per second.
    pub hertz: f64,
    /// The processor's counts of the measured span.
    pub counted: HardwareCounts,
    /// The reason why workers have no metered figures. `None` if they have some.
    pub unmetered: Option<String>,
    /// Disturbances of the workers during the measured span.
    pub disturbances: Vec<Disturbance>,
    /// True if all sources had ended before the measured span was over.
    pub ended: bool,
    /// Errors at the end of the run, each with the port or module that it concerns.
    pub troubles: Vec<(String, String)>,
}

impl Timed {
    /// Effective CPU utilisation of all workers, without the time of machine stalls.
    #[must_use]
    pub fn cur(&self) -> f64 {
        let workers = &self.report.workers;
        workers.iter().map(cur).sum::<f64>() / workers.len().max(1) as f64
    }

    /// Packets per second that the workers can process without loss: the rate that entered, divided by the utilisation
    /// of the busiest worker.
    #[must_use]
    pub fn capacity(&self) -> Option<f64> {
        let busiest = self.report.workers.iter().map(cur).fold(0.0, f64::max);
        let entered = self.report.packets.entered as f64 / self.report.duration_s;
        (busiest > 0.0 && entered > 0.0).then(|| entered / busiest)
    }

    /// Ticks of busy turns per packet that entered, without machine stalls and without the ticks that timing itself
    /// added.
    #[must_use]
    pub fn cpp(&self) -> Option<f64> {
        let workers = self.report.workers.iter();
        let share: f64 =
            workers.map(|worker| worker.busy - worker.machine_stalls.busy_share - worker.timing_share).sum();
        self.per_packet(share * self.report.duration_s * self.hertz)
    }

    /// Ticks that belong to no module, no port and no hand-over, per packet that entered. This residue is measured, not
    /// calculated as a difference.
    #[must_use]
    pub fn residue(&self) -> Option<f64> {
        let residue = |worker: &WorkerReport| Some(worker.residue_ticks_per_turn? * worker.busy_turns as f64);
        let workers = self.report.workers.iter().filter(|worker| worker.busy_turns > 0);
        self.per_packet(workers.map(residue).sum::<Option<f64>>()?)
    }

    /// The timing of each part of the chain ([`TimedPart`]).
    #[must_use]
    pub fn parts(&self) -> Vec<TimedPart<'_>> {
        let Report { modules, ports, workers, .. } = &self.report;
        let modules = modules.iter().map(|module| {
            let timing = Timing {
                ticks_per_packet: module.ticks_per_packet,
                ticks_per_batch: module.ticks_per_batch,
                batch_mean: module.batch_mean,
                metered: module.metered,
            };
            TimedPart {
                name: module.name.clone(),
                kind: PartType::Module,
                packets: module.packets,
                timing,
                workers: &module.workers,
            }
        });
        let ports = ports.iter().flat_map(|port| {
            let part = |kind: PartType, packets, timing| {
                let name = kind.part_name(&port.name);
                TimedPart { name, kind, packets, timing, workers: &[] }
            };
            [(PartType::Receive, port.received, port.receiving), (PartType::Send, port.sent, port.sending)]
                .map(|(kind, packets, timing)| part(kind, packets, timing))
        });
        let rings = workers.iter().filter(|worker| worker.handed + worker.taken > 0).map(|worker| TimedPart {
            name: PartType::HandOver.part_name(&format!("worker {}", worker.id)),
            kind: PartType::HandOver,
            packets: worker.handed + worker.taken,
            timing: worker.handover,
            workers: std::slice::from_ref(&worker.id),
        });
        let parts = modules.chain(ports.filter(|part| part.packets > 0)).chain(rings);
        parts.collect()
    }

    /// Instructions per core cycle of busy turns, over all workers. `None` if a busy worker has no metered figures.
    #[must_use]
    pub fn eipc(&self) -> Option<f64> {
        let busy = self.report.workers.iter().filter(|worker| worker.busy_turns > 0);
        let mut all = busy.map(|worker| {
            let (spent, turns) = (worker.metered?, worker.busy_turns as f64);
            Some([spent.instructions * turns, spent.cycles * turns])
        });
        let [instructions, cycles] =
            all.try_fold([0.0; 2], |sum, of| of.map(|of: [f64; 2]| [sum[0] + of[0], sum[1] + of[1]]))?;
        Spent { instructions, cycles }.ipc()
    }

    /// Packets per second calculated from the counters: f_cpu · CUR · eIPC / IPP, summed over all workers, with `ipp`
    /// instructions per packet that entered. It should equal the rate that entered.
    #[must_use]
    pub fn by_counters(&self, ipp: f64) -> Option<f64> {
        let instructions = |worker: &WorkerReport| {
            let hertz = self.counted.core_hertz(worker.id, self.report.duration_s)?;
            Some(hertz * cur(worker) * worker.metered?.ipc()?)
        };
        let busy = self.report.workers.iter().filter(|worker| worker.busy_turns > 0);
        let all: f64 = busy.map(instructions).sum::<Option<_>>()?;
        (ipp > 0.0 && all > 0.0).then(|| all / ipp)
    }

    /// Returns `ticks` divided by the packets that entered, or `None` if no packet entered.
    fn per_packet(&self, ticks: f64) -> Option<f64> {
        (self.report.packets.entered > 0).then(|| ticks / self.report.packets.entered as f64)
    }
}

/// The busy share of a worker's time, without the time of machine stalls.
pub(crate) fn cur(worker: &WorkerReport) -> f64 {
    let (running, stalls) = (1.0 - worker.machine_stalls.share, &worker.machine_stalls);
    if running > 0.0 { ((worker.busy - stalls.busy_share) / running).clamp(0.0, 1.0) } else { 0.0 }
}

/// The type of a part of the chain that a packet passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartType {
    /// A module.
    #[default]
    Module,
    /// A port that the packet enters through.
    Receive,
    /// A port that the packet leaves through. The accounting of its flow is included.
    Send,
    /// The rings to and from other workers.
    HandOver,
}

impl PartType {
    /// Returns the name of this part of the module, port or worker `name`.
    #[must_use]
    pub(crate) fn part_name(self, name: &str) -> String {
        let direction = match self {
            Self::Module => return name.to_owned(),
            Self::Receive => "receive",
            Self::Send => "send",
            Self::HandOver => "hand-over",
        };
        format!("{name}.{direction}")
    }
}

/// A part of the chain with its packets and timing in the measured span.
#[derive(Clone, Debug)]
pub struct TimedPart<'t> {
    /// The module's name, or the port's or worker's name with the direction.
    pub name: String,
    /// The type of the part.
    pub kind: PartType,
    /// The number of packets.
    pub packets: u64,
    /// Ticks and metered figures of these packets.
    pub timing: Timing,
    /// The workers that run the part; empty if unknown.
    pub workers: &'t [usize],
}

/// Runs `plans` on `cores`, gives each worker a meter, and measures for `span`.
///
/// # Errors
/// [`StartError`].
pub fn measure(plans: Vec<Plan>, cores: &[usize], made: PipelineParts, span: Duration) -> Result<Timed, StartError> {
    let why_not = WhyNot::default();
    let mut timed = measure_with(plans, cores, made, span, || meter(&why_not))?;
    if let Some(reason) = why_not.get() {
        timed.unmetered = Some(reason.to_string());
    }
    Ok(timed)
}

/// Like [`measure`], but `meter` creates the meter of each worker. If such a meter has stored a reason why it cannot be
/// read, the caller must copy it to `unmetered` of the result.
fn measure_with(
    mut plans: Vec<Plan>,
    cores: &[usize],
    made: PipelineParts,
    span: Duration,
    meter: impl Fn() -> Box<dyn Meter>,
) -> Result<Timed, StartError> {
    plans.iter_mut().for_each(|plan| plan.meter = Some(meter()));
    let shares = plans.iter().any(|plan| plan.scheduler == SchedulerKind::WeightedFair);
    let instance = forebay_instance::start(plans, cores, made, Box::new(|_| None), ControlInputs::default())?;
    let board = instance.board();
    std::thread::sleep(WARM_UP.min(span / 2));
    let threads = instance.threads();
    let (watch, witness) = (Watch::begin(&threads), Witness::look(&threads));
    let earlier = board.read(Tsc.now());
    std::thread::sleep(span);
    let (report, ended) = (board.report(&earlier, &board.read(Tsc.now())), board.is_quiet());
    let (disturbances, counted) = (Witness::look(&threads).since(&witness), watch.end());
    let Outcome { at, troubles } = Instance::end(&*instance);
    let whole = board.report(&board.nothing(), &board.read(at)).packets;
    let unmetered = if shares {
        Some("no calls were metered, because the scheduler weighted-fair times the calls itself".to_owned())
    } else {
        let metered = report.workers.iter().any(|worker| worker.metered.is_some());
        (!metered).then(|| "no busy turn was metered".to_owned())
    };
    Ok(Timed { report, whole, hertz: Tsc.frequency().hertz(), counted, unmetered, disturbances, ended, troubles })
}

#[cfg(test)]
mod tests;
