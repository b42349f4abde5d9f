//! A measurement: the figures of a pipeline, each with where it comes from.

use std::collections::BTreeMap;

use forebay_graph::report::{LostLines, Stalls};
use forebay_measure::events::Event;
use forebay_measure::machine::Cpu;
use serde::{Deserialize, Serialize};

use crate::counting::Counts;
use crate::disturbance::Disturbance;
use crate::hardware::Hardware;
use crate::rates::Rates;
use crate::ticks::{Kind, Part, Timed, cur};

/// How a figure came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// By this machine's clocks and counters.
    Measured,
    /// Counted under callgrind, in simulated time.
    Emulated,
    /// This host cannot tell.
    #[serde(rename = "n/a")]
    NotAvailable,
}

impl Origin {
    /// As JSON and tables say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Emulated => "emulated",
            Self::NotAvailable => "n/a",
        }
    }

    fn of<T>(figure: Option<&T>, origin: Self) -> Self {
        figure.map_or(Self::NotAvailable, |_| origin)
    }
}

/// Where a module's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Of the ticks, and of packets per call.
    pub cpp_ticks: Origin,
    /// Of the instructions.
    pub ipp: Origin,
    /// Of instructions per core cycle, and of core cycles per packet.
    pub ipc: Origin,
    /// Of packets per call.
    pub packets_per_call: Origin,
}

/// The figures of a module, a port or a hand-over. What cannot be told is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub kind: Kind,
    /// Packets that it had while it was measured.
    #[serde(default)]
    pub packets: u64,
    /// Ticks of the time-stamp counter per packet.
    pub cpp_ticks: Option<f64>,
    /// Instructions per packet.
    pub ipp: Option<f64>,
    /// Instructions per core cycle.
    pub ipc: Option<f64>,
    /// Core cycles per packet.
    #[serde(default)]
    pub core_cpp: Option<f64>,
    /// Instructions per tick, which is no IPC: the core's clock is another one. `None` too where batches were others than
    /// those that were counted.
    pub instructions_per_tick: Option<f64>,
    /// Packets per call.
    pub packets_per_call: Option<f64>,
    /// Where they come from.
    pub source: Sources,
}

/// A worker's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub id: usize,
    /// The core that it ran on.
    pub core: Option<usize>,
    /// Effective CPU utilisation: ticks of turns that had something to do, of all.
    pub cur: f64,
    /// Instructions per core cycle, idle turns included.
    #[serde(default)]
    pub ipc: Option<f64>,
    /// The same of turns that had something to do.
    #[serde(default)]
    pub eipc: Option<f64>,
    /// What disturbed it while it was measured.
    #[serde(default)]
    pub disturbance: Option<Disturbance>,
    /// Turns in which there was something to do.
    #[serde(default)]
    pub busy_turns: u64,
    /// Ticks of such a turn that were no module's, no port's and no hand-over's.
    pub residue_ticks_per_turn: Option<f64>,
    /// When the machine was elsewhere. Their ticks count for nothing else.
    #[serde(default)]
    pub stalls: Stalls,
    /// The share of the time for which it slept or waited for something: it is a poll loop, and should not.
    pub slept: Option<f64>,
}

/// By which share batches may differ from those that were counted, for ticks and instructions to be of the same work.
const ALIKE: f64 = 0.1;
/// The share of a worker's time that it may be without its core; with more, what was measured is not to be believed.
const TOO_MUCH: f64 = 0.1;

impl Worker {
    fn is_void(&self) -> bool {
        // What it slept of itself is no fault of the machine's.
        let gone = self.stalls.share - self.slept.unwrap_or(0.0);
        gone.max(self.disturbance.map_or(0.0, |disturbance| disturbance.away())) > TOO_MUCH
    }
}

/// The whole chain's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Packets a second that its workers can take without loss: as many times more than entered as the busiest has time. Fuller
    /// batches may take more.
    pub pps: Option<f64>,
    /// Packets a second that entered.
    pub entered_pps: f64,
    /// Ticks of busy turns per packet that entered.
    pub cpp_ticks: Option<f64>,
    /// Effective CPU utilisation, of all workers.
    pub cur: f64,
    /// Instructions per packet that entered, ports and the engine included.
    pub ipp: Option<f64>,
    /// Instructions of no module and no port, per packet that entered.
    pub residue_ipp: Option<f64>,
    /// Ticks per packet that entered which are no module's, no port's and no hand-over's: measured, not a difference.
    pub residue_ticks: Option<f64>,
    /// Ticks of all modules, ports and hand-overs, and the residue, per packet that entered: each measured by itself, so
    /// that they say how far `cpp_ticks` is to be believed.
    pub sum_ticks: Option<f64>,
    /// Packets that entered per turn in which there was something to do.
    #[serde(default)]
    pub packets_per_turn: Option<f64>,
    /// Whether the machine was elsewhere for more of the time than allowed: then nothing here is to be believed.
    #[serde(default)]
    pub void: bool,
    /// The non-drop rate: packets a second that came through without loss, as a search found.
    #[serde(default)]
    pub ndr_pps: Option<f64>,
    /// The partial drop rate: packets a second that came through where at most 0.5 % were lost.
    #[serde(default)]
    pub pdr_pps: Option<f64>,
    /// Packets a second by the processor's counters and the counted instructions: f_cpu · CUR · eIPC / IPP. `entered_pps`, which
    /// nothing of it is made of, must be the same but for what the instructions of a busy chain differ from those of this run.
    #[serde(default)]
    pub pps_by_counters: Option<f64>,
    /// What the processor counted, where it does.
    #[serde(flatten)]
    pub hardware: Hardware,
}

/// All figures. What earlier versions did not tell has a default, so that what they saved can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The pipeline's name.
    pub pipeline: String,
    /// The version of Forebay.
    pub forebay: String,
    /// The machine and its clock.
    pub cpu: Cpu,
    /// The instruction set that instructions are counted of.
    pub instruction_set: Option<String>,
    /// The profile of the program that instructions are counted of: `release`, or `debug` where it checks itself.
    #[serde(default)]
    pub profile: Option<String>,
    /// By module, in topological order, then by port and by worker for hand-over.
    pub modules: Vec<Module>,
    /// By worker.
    pub workers: Vec<Worker>,
    /// The whole.
    pub chain: Chain,
    /// Why the processor's events that are missing are.
    #[serde(default)]
    pub unavailable: BTreeMap<Event, String>,
    /// Why `ipc` and `core_cpp` of modules, and `eipc`, are missing, where they are.
    #[serde(default)]
    pub unmetered: Option<String>,
    /// The search for the rates without and with little loss, where there was one.
    #[serde(default)]
    pub search: Option<Rates>,
    /// Lines that files of modules lack; left out where all are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_lines: Vec<LostLines>,
}

impl Measurement {
    /// Puts figures of a real run and of a counted one together.
    #[must_use]
    pub fn of(timed: &Timed, counts: Option<&Counts>) -> Self {
        let report = &timed.report;
        let module = |part: Part<'_>| {
            let counted = counts.and_then(|counts| counts.per_packet(&part.name, part.kind));
            let (cpp_ticks, packets_per_call) = (part.timing.ticks_per_packet, part.timing.batch_mean);
            // What a call costs falls on as many packets in both, or the two are of different work.
            let batch = counts.and_then(|counts| counts.packets_per_call(&part.name, part.kind));
            let alike = packets_per_call.zip(batch).is_some_and(|(is, was)| (is / was - 1.0).abs() <= ALIKE);
            let ipc = part.timing.metered.and_then(|spent| spent.ipc());
            Module {
                name: part.name,
                kind: part.kind,
                packets: part.packets,
                cpp_ticks,
                ipp: counted,
                ipc,
                core_cpp: part.timing.metered.map(|spent| spent.cycles),
                instructions_per_tick: counted.zip(cpp_ticks.filter(|_| alike)).map(|(count, ticks)| count / ticks),
                packets_per_call,
                source: Sources {
                    cpp_ticks: Origin::of(cpp_ticks.as_ref(), Origin::Measured),
                    ipp: Origin::of(counted.as_ref(), Origin::Emulated),
                    ipc: Origin::of(ipc.as_ref(), Origin::Measured),
                    packets_per_call: Origin::of(packets_per_call.as_ref(), Origin::Measured),
                },
            }
        };
        let modules: Vec<_> = timed.parts().into_iter().map(module).collect();
        // What had packets and was never timed leaves the sum unknown.
        let parts = modules.iter().filter(|part| part.packets > 0);
        let parts: Option<f64> = parts.map(|part| Some(part.cpp_ticks? * part.packets as f64)).sum();
        let entered = report.packets.entered as f64;
        let of = |id: usize| timed.disturbances.iter().find(|disturbance| disturbance.worker == id);
        let workers = report.workers.iter().map(|told| Worker {
            id: told.id,
            core: told.core,
            cur: cur(told),
            ipc: timed.counted.ipc(told.id),
            eipc: told.metered.and_then(|spent| spent.ipc()),
            disturbance: of(told.id).copied(),
            busy_turns: told.busy_turns,
            residue_ticks_per_turn: told.residue_ticks_per_turn,
            stalls: told.machine_stalls,
            slept: of(told.id).and_then(Disturbance::slept),
        });
        let workers: Vec<_> = workers.collect();
        let busy_turns: u64 = workers.iter().map(|worker| worker.busy_turns).sum();
        let of_counts = |instructions: fn(&Counts) -> u64| {
            let counts = counts.filter(|counts| counts.served.packets > 0)?;
            Some(instructions(counts) as f64 / counts.served.packets as f64)
        };
        let ipp = of_counts(|counts| counts.all);
        let hardware = timed.counted.figures(report.packets.entered, timed.cur());
        let chain = Chain {
            pps: timed.capacity(),
            entered_pps: entered / report.duration_s,
            cpp_ticks: timed.cpp(),
            cur: timed.cur(),
            ipp,
            residue_ipp: of_counts(Counts::residue),
            residue_ticks: timed.residue(),
            sum_ticks: parts.zip(timed.residue()).map(|(parts, residue)| parts / entered + residue),
            packets_per_turn: (busy_turns > 0).then(|| entered / busy_turns as f64),
            void: workers.iter().any(Worker::is_void),
            ndr_pps: None,
            pdr_pps: None,
            pps_by_counters: ipp.and_then(|ipp| timed.by_counters(ipp)),
            hardware: Hardware { eipc: timed.eipc(), ..hardware },
        };
        Self {
            pipeline: report.pipeline.clone(),
            forebay: report.forebay.clone().into_owned(),
            cpu: report.cpu.clone(),
            instruction_set: counts.map(|counts| counts.instruction_set.clone()),
            profile: counts.map(|counts| counts.served.build.profile.clone()),
            modules,
            workers,
            chain,
            unavailable: timed.counted.unavailable.clone(),
            unmetered: timed.unmetered.clone(),
            search: None,
            lost_lines: report.lost_lines.clone(),
        }
    }

    /// The same with the rates that a search found.
    #[must_use]
    pub fn with_rates(mut self, rates: Rates) -> Self {
        (self.chain.ndr_pps, self.chain.pdr_pps) = rates.rates();
        self.search = Some(rates);
        self
    }
}
