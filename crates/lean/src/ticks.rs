//! Ticks per packet, measured: the pipeline runs on this machine for a while. Instructions and core cycles likewise, where the
//! processor's counters can be read by workers themselves.

use std::time::Duration;

use forebay_graph::report::{Packets, Report, Spent, Timing, WorkerReport};
use forebay_graph::{Meter, Plan, SchedulerKind};
use forebay_instance::{Instance, Outcome, StartError, Steer};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::Made;
use serde::{Deserialize, Serialize};

use crate::disturbance::{Disturbance, Witness};
use crate::hardware::{Counted, Watch};
use crate::meter::{WhyNot, meter};

/// How long a pipeline runs before it is measured, at the most; at least half of what is measured. Caches and tables fill,
/// the governor makes up its mind.
const WARM_UP: Duration = Duration::from_millis(200);

/// What a real run has shown.
#[derive(Clone, Debug)]
pub struct Timed {
    /// What happened while it was measured.
    pub report: Report,
    /// Where all packets are that came from the start to the end, the warm-up included.
    pub whole: Packets,
    /// Ticks a second.
    pub hertz: f64,
    /// What the processor counted meanwhile.
    pub counted: Counted,
    /// Why workers' meters told nothing of their parts, where they did not.
    pub unmetered: Option<String>,
    /// What disturbed workers meanwhile.
    pub disturbances: Vec<Disturbance>,
    /// Whether all sources had ended before the time was up.
    pub ended: bool,
    /// What went wrong at its end.
    pub troubles: Vec<(String, String)>,
}

impl Timed {
    /// Effective CPU utilisation of all workers, of the time in which the machine was there.
    #[must_use]
    pub fn cur(&self) -> f64 {
        let workers = &self.report.workers;
        workers.iter().map(cur).sum::<f64>() / workers.len().max(1) as f64
    }

    /// Packets a second that they can take without loss: as many times more than entered as the busiest worker has time.
    #[must_use]
    pub fn capacity(&self) -> Option<f64> {
        let busiest = self.report.workers.iter().map(cur).fold(0.0, f64::max);
        let entered = self.report.packets.entered as f64 / self.report.duration_s;
        (busiest > 0.0 && entered > 0.0).then(|| entered / busiest)
    }

    /// Ticks a packet that entered, of busy turns in which the machine was not elsewhere, without the ticks that timing
    /// added to them.
    #[must_use]
    pub fn cpp(&self) -> Option<f64> {
        let workers = self.report.workers.iter();
        let share: f64 =
            workers.map(|worker| worker.busy - worker.machine_stalls.busy_share - worker.timing_share).sum();
        self.per_packet(share * self.report.duration_s * self.hertz)
    }

    /// Ticks a packet that entered of what was no module's, no port's and no hand-over's: measured by itself.
    #[must_use]
    pub fn residue(&self) -> Option<f64> {
        let worker = |told: &WorkerReport| Some(told.residue_ticks_per_turn? * told.busy_turns as f64);
        let workers = self.report.workers.iter().filter(|worker| worker.busy_turns > 0);
        self.per_packet(workers.map(worker).sum::<Option<f64>>()?)
    }

    /// Ticks a packet that entered of all that has a part in it ([`Part`]).
    #[must_use]
    pub fn parts(&self) -> Vec<Part<'_>> {
        let Report { modules, ports, workers, .. } = &self.report;
        let modules = modules.iter().map(|told| {
            let timing = Timing {
                ticks_per_packet: told.ticks_per_packet,
                ticks_per_batch: told.ticks_per_batch,
                batch_mean: told.batch_mean,
                metered: told.metered,
            };
            Part { name: told.name.clone(), kind: Kind::Module, packets: told.packets, timing, workers: &told.workers }
        });
        let ports = ports.iter().flat_map(|told| {
            let part = |kind: Kind, packets, timing| {
                let name = kind.of(&told.name);
                Part { name, kind, packets, timing, workers: &[] }
            };
            [(Kind::Receive, told.received, told.receiving), (Kind::Send, told.sent, told.sending)]
                .map(|(kind, packets, timing)| part(kind, packets, timing))
        });
        let rings = workers.iter().filter(|told| told.handed + told.taken > 0).map(|told| Part {
            name: Kind::HandOver.of(&format!("worker {}", told.id)),
            kind: Kind::HandOver,
            packets: told.handed + told.taken,
            timing: told.handover,
            workers: std::slice::from_ref(&told.id),
        });
        let parts = modules.chain(ports.filter(|part| part.packets > 0)).chain(rings);
        parts.collect()
    }

    /// Instructions per core cycle of busy turns, of all workers that had any, or not at all.
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

    /// Packets a second by the counters: f_cpu · CUR · eIPC / IPP of all workers, with `ipp` instructions a packet that entered.
    /// The other side of it is what entered.
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

    fn per_packet(&self, ticks: f64) -> Option<f64> {
        (self.report.packets.entered > 0).then(|| ticks / self.report.packets.entered as f64)
    }
}

/// A worker's busy turns of all, of the time in which the machine was there.
pub(crate) fn cur(worker: &WorkerReport) -> f64 {
    let (there, stalls) = (1.0 - worker.machine_stalls.share, &worker.machine_stalls);
    if there > 0.0 { ((worker.busy - stalls.busy_share) / there).clamp(0.0, 1.0) } else { 0.0 }
}

/// What a packet may meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A module.
    #[default]
    Module,
    /// A port that it enters by.
    Receive,
    /// A port that it leaves by; its flow's accounts are there, too.
    Send,
    /// The rings to and from other workers.
    HandOver,
}

impl Kind {
    /// What this part of a module, port or worker is called.
    #[must_use]
    pub(crate) fn of(self, name: &str) -> String {
        let did = match self {
            Self::Module => return name.to_owned(),
            Self::Receive => "receive",
            Self::Send => "send",
            Self::HandOver => "hand-over",
        };
        format!("{name}.{did}")
    }
}

/// A part of a chain: what it did while it was measured.
#[derive(Clone, Debug)]
pub struct Part<'t> {
    /// The module's name, or the port's and what it did.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Packets.
    pub packets: u64,
    /// What they cost.
    pub timing: Timing,
    /// The workers that run it, where it is told.
    pub workers: &'t [usize],
}

/// Runs plans on these cores, and measures them for `span`; workers are given meters.
///
/// # Errors
/// [`StartError`].
pub fn measure(plans: Vec<Plan>, cores: &[usize], made: Made, span: Duration) -> Result<Timed, StartError> {
    let why_not = WhyNot::default();
    let mut timed = measure_with(plans, cores, made, span, || meter(&why_not))?;
    if let Some(reason) = why_not.get() {
        timed.unmetered = Some(reason.to_string());
    }
    Ok(timed)
}

fn measure_with(
    mut plans: Vec<Plan>,
    cores: &[usize],
    made: Made,
    span: Duration,
    meter: impl Fn() -> Box<dyn Meter>,
) -> Result<Timed, StartError> {
    plans.iter_mut().for_each(|plan| plan.meter = Some(meter()));
    let shares = plans.iter().any(|plan| plan.scheduler == SchedulerKind::WeightedFair);
    let instance = forebay_instance::start(plans, cores, made, Box::new(|_| None), Steer::default())?;
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
        Some("the scheduler weighted-fair times all calls of some turns and leaves none for a meter".to_owned())
    } else {
        let metered = report.workers.iter().any(|worker| worker.metered.is_some());
        (!metered).then(|| "no busy turn was metered".to_owned())
    };
    Ok(Timed { report, whole, hertz: Tsc.frequency().hertz(), counted, unmetered, disturbances, ended, troubles })
}

#[cfg(test)]
mod tests;
