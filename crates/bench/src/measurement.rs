//! A measurement: the figures of a pipeline, each with its origin.

use std::collections::BTreeMap;

use forebay_measure::events::Event;
use forebay_protocol::report::{Cpu, LostLines, Stalls};
use serde::{Deserialize, Serialize};

use crate::counting::Counts;
use crate::disturbance::Disturbance;
use crate::hardware::Hardware;
use crate::rates::Rates;
use crate::ticks::{PartType, Timed, TimedPart, cur};

/// The origin of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured by this machine's clocks and counters.
    Measured,
    /// Counted under callgrind, in an emulated processor.
    Emulated,
    /// Not available on this host.
    #[serde(rename = "n/a")]
    NotAvailable,
}

impl Origin {
    /// The name in JSON and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Emulated => "emulated",
            Self::NotAvailable => "n/a",
        }
    }

    /// Returns `origin`, or [`Self::NotAvailable`] if the figure is unknown.
    fn of<T>(figure: Option<&T>, origin: Self) -> Self {
        figure.map_or(Self::NotAvailable, |_| origin)
    }
}

/// The origins of a module's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The origin of `cpp_ticks`.
    pub cpp_ticks: Origin,
    /// The origin of `ipp`.
    pub ipp: Origin,
    /// The origin of `ipc` and `core_cpp`.
    pub ipc: Origin,
    /// The origin of `packets_per_call`.
    pub packets_per_call: Origin,
}

/// The figures of a module, a port or a hand-over. Unknown figures are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// The name of the part.
    pub name: String,
    /// The type of the part.
    #[serde(default)]
    pub kind: PartType,
    /// The number of packets in the measured span.
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
    /// Instructions per tick. This is not the IPC, because the core's clock differs from the time-stamp counter. `None`
    /// also if the timed run had other batches than the counted run.
    pub instructions_per_tick: Option<f64>,
    /// Packets per call.
    pub packets_per_call: Option<f64>,
    /// The origins of these figures.
    pub source: Sources,
}

/// A worker's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// The number of the worker.
    pub id: usize,
    /// The core that it ran on.
    pub core: Option<usize>,
    /// Effective CPU utilisation: the share of ticks in busy turns.
    pub cur: f64,
    /// Instructions per core cycle, idle turns included.
    #[serde(default)]
    pub ipc: Option<f64>,
    /// Instructions per core cycle of busy turns.
    #[serde(default)]
    pub eipc: Option<f64>,
    /// Disturbances during the measured span.
    #[serde(default)]
    pub disturbance: Option<Disturbance>,
    /// Turns with work.
    #[serde(default)]
    pub busy_turns: u64,
    /// Ticks that belong to no module, no port and no hand-over, per busy turn.
    pub residue_ticks_per_turn: Option<f64>,
    /// Machine stalls. Their ticks are left out of all other figures.
    #[serde(default)]
    pub stalls: Stalls,
    /// The share of the time in which the worker slept or waited voluntarily. A worker polls, so this should be 0.
    pub slept: Option<f64>,
}

/// The timed run and the counted run count as the same work if the relative difference of their mean batches is at most
/// this value.
const ALIKE: f64 = 0.1;
/// A measurement is void if a worker was without its core for more than this share of the time.
const TOO_MUCH: f64 = 0.1;

impl Worker {
    /// True if the worker was without its core for too much of the time. Then the whole measurement is void.
    fn is_void(&self) -> bool {
        // Voluntary sleep is not a fault of the machine.
        let gone = self.stalls.share - self.slept.unwrap_or(0.0);
        gone.max(self.disturbance.map_or(0.0, |disturbance| disturbance.away())) > TOO_MUCH
    }
}

/// The whole chain's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Packets per second that the workers can process without loss: the rate that entered, divided by the utilisation
    /// of the busiest worker. Fuller batches may allow more.
    pub pps: Option<f64>,
    /// Packets per second that entered.
    pub entered_pps: f64,
    /// Ticks of busy turns per packet that entered.
    pub cpp_ticks: Option<f64>,
    /// Effective CPU utilisation, of all workers.
    pub cur: f64,
    /// Instructions per packet that entered, ports and the engine included.
    pub ipp: Option<f64>,
    /// Instructions that belong to no module and no port, per packet that entered.
    pub residue_ipp: Option<f64>,
    /// Ticks that belong to no module, no port and no hand-over, per packet that entered. They are measured, not
    /// calculated as a difference.
    pub residue_ticks: Option<f64>,
    /// The sum of the ticks of all modules, ports and hand-overs and of the residue, per packet that entered. Each is
    /// measured by itself, so the difference from `cpp_ticks` shows the error of `cpp_ticks`.
    pub sum_ticks: Option<f64>,
    /// Packets that entered per busy turn.
    #[serde(default)]
    pub packets_per_turn: Option<f64>,
    /// True if a worker was without its core for more time than allowed. Then no figure is reliable.
    #[serde(default)]
    pub void: bool,
    /// The non-drop rate: packets per second without loss, from a search.
    #[serde(default)]
    pub ndr_pps: Option<f64>,
    /// The partial drop rate: packets per second with at most 0.5 % loss, from a search.
    #[serde(default)]
    pub pdr_pps: Option<f64>,
    /// Packets per second calculated from the processor's counters and the counted instructions: f_cpu · CUR · eIPC /
    /// IPP. `entered_pps` is measured independently and should be equal, except that a busy chain may execute other
    /// instructions than the counted run.
    #[serde(default)]
    pub pps_by_counters: Option<f64>,
    /// The processor's counts, if they are available.
    #[serde(flatten)]
    pub hardware: Hardware,
}

/// All figures of a pipeline. This is the output of `forebay measure --json` and part of saved files. A new field needs
/// a default, so that files of earlier versions can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The pipeline's name.
    pub pipeline: String,
    /// The version of Forebay.
    pub forebay: String,
    /// The machine and its clock.
    pub cpu: Cpu,
    /// The instruction set of the counted instructions.
    pub instruction_set: Option<String>,
    /// The build profile of the program whose instructions are counted: `release`, or `debug` with its internal checks.
    #[serde(default)]
    pub profile: Option<String>,
    /// Figures by module in topological order, then by port, then by worker for hand-over.
    pub modules: Vec<Module>,
    /// Figures by worker.
    pub workers: Vec<Worker>,
    /// Figures of the whole chain.
    pub chain: Chain,
    /// The reasons for missing processor events.
    #[serde(default)]
    pub unavailable: BTreeMap<Event, String>,
    /// The reason why `ipc` and `core_cpp` of modules, and `eipc`, are missing. `None` if they are not missing.
    #[serde(default)]
    pub unmetered: Option<String>,
    /// The search for the non-drop and partial drop rates, if there was one.
    #[serde(default)]
    pub search: Option<Rates>,
    /// Lines that are missing in files of modules. The list is left out of the JSON text if it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_lines: Vec<LostLines>,
}

impl Measurement {
    /// Combines the figures of a timed run and of a counted run of the same pipeline. Without `counts`, the figures
    /// that need instructions are `None`.
    #[must_use]
    pub fn of(timed: &Timed, counts: Option<&Counts>) -> Self {
        let report = &timed.report;
        let module = |part: TimedPart<'_>| {
            let counted = counts.and_then(|counts| counts.per_packet(&part.name, part.kind));
            let (cpp_ticks, packets_per_call) = (part.timing.ticks_per_packet, part.timing.batch_mean);
            // The cost of a call is shared by the packets of its batch. If the batch sizes differ, the two runs did
            // different work.
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
        // If a part had packets but was never timed, the sum is unknown.
        let parts = modules.iter().filter(|part| part.packets > 0);
        let parts: Option<f64> = parts.map(|part| Some(part.cpp_ticks? * part.packets as f64)).sum();
        let entered = report.packets.entered as f64;
        let of = |id: usize| timed.disturbances.iter().find(|disturbance| disturbance.worker == id);
        let workers = report.workers.iter().map(|worker| Worker {
            id: worker.id,
            core: worker.core,
            cur: cur(worker),
            ipc: timed.counted.ipc(worker.id),
            eipc: worker.metered.and_then(|spent| spent.ipc()),
            disturbance: of(worker.id).copied(),
            busy_turns: worker.busy_turns,
            residue_ticks_per_turn: worker.residue_ticks_per_turn,
            stalls: worker.machine_stalls,
            slept: of(worker.id).and_then(Disturbance::slept),
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

    /// Adds the rates that a search found.
    #[must_use]
    pub fn with_rates(mut self, rates: Rates) -> Self {
        (self.chain.ndr_pps, self.chain.pdr_pps) = rates.rates();
        self.search = Some(rates);
        self
    }
}
