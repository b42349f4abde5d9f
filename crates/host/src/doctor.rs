//! Checks a machine for faults that reduce the performance of a pipeline. Each finding has evidence and a fix.
//!
//! Each check reads facts about the machine and the pipeline that will run. If the facts of a check cannot be read, its
//! result is "n/a", and not "ok" or a finding.

mod clocks;
mod cores;
mod interrupts;
mod memory;
mod neighbours;
mod nodes;
mod power;
mod quota;
mod reverse_path;
mod rights;
mod siblings;

use std::net::IpAddr;

use serde::Serialize;

use crate::cpu::Cpu;
use crate::fact::{Evidence, Fact};
use crate::host::Host;
use crate::list::KernelList;

/// A core counts as busy if it works for at least this share of its time.
const BUSY: f64 = 0.05;

/// The pipeline that will run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Intent {
    /// The pipeline's name. `None` if the machine is checked without a pipeline.
    pub pipeline: Option<String>,
    /// The pipeline's workers.
    pub workers: Vec<Worker>,
    /// The pipeline's ports.
    pub ports: Vec<Port>,
    /// The memory of one worker's packet pool, in bytes.
    pub pool_bytes: u64,
    /// The addresses for which the pipeline replies.
    #[serde(skip)]
    pub addresses: Vec<IpAddr>,
}

/// A worker that will run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// The worker's core. `None` if no core is available.
    pub core: Option<usize>,
    /// True if another pipeline already runs on this core.
    pub shared: bool,
}

/// A port that will be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// The port's name.
    pub name: String,
    /// The port's type, for example `af_packet`.
    pub kind: String,
    /// The port's interface. `None` if the port uses no interface.
    pub interface: Option<String>,
    /// True if the interface is in another network namespace, where it cannot be read.
    pub elsewhere: bool,
    /// The numbers of the workers that use the port.
    pub workers: Vec<usize>,
    /// True if the host's own stack also receives the incoming frames.
    #[serde(skip)]
    pub host: bool,
    /// The address that the host gets at this port. `None` if the host gets no address there.
    #[serde(skip)]
    pub address: Option<IpAddr>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No fault was found.
    Ok,
    /// The pipeline cannot run.
    Stops,
    /// The fault costs performance.
    Costs,
    /// The fault may cost performance. This depends on other conditions.
    May,
    /// A fact that needs no fix.
    Info,
    /// The facts are unavailable, so there is no result.
    #[serde(rename = "n/a")]
    NotAvailable,
}

impl State {
    /// Returns the text that tables show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Stops => "stops",
            Self::Costs => "costs",
            Self::May => "may cost",
            Self::Info => "info",
            Self::NotAvailable => "n/a",
        }
    }

    /// Returns true if the check has found something to report.
    #[must_use]
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Stops | Self::Costs | Self::May | Self::Info)
    }
}

/// A check. `docs/doctor.md` contains its texts.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The stable name of the check.
    pub id: &'static str,
    /// The condition that is checked, as a clause that is true without a fault.
    pub looks_at: &'static str,
    /// The cost of a fault, with its source.
    pub cost: &'static str,
    /// The fix of a fault.
    pub fix: &'static str,
    /// The function that determines the result.
    judge: fn(&Case<'_>) -> Verdict,
}

/// All checks, in the order in which they are reported.
pub const CHECKS: &[Check] = &[
    cores::WORKER_CORES,
    rights::CAPABILITIES,
    neighbours::ARP_FLUX,
    neighbours::ARP_ANNOUNCE,
    reverse_path::RP_FILTER,
    quota::CPU_QUOTA,
    cores::CORE_LOAD,
    siblings::SMT_SIBLING,
    cores::STEAL,
    interrupts::IRQ_AFFINITY,
    cores::ISOLATED_CORES,
    cores::TIMER_TICK,
    nodes::NUMA_MISMATCH,
    nodes::NUMA_MEMORY,
    nodes::NUMA_WORKERS,
    nodes::NUMA_BALANCING,
    memory::HUGE_PAGES,
    power::GOVERNOR,
    power::FREQUENCY_LIMIT,
    power::C_STATES,
    clocks::INVARIANT_TSC,
    clocks::CLOCKSOURCE,
    clocks::HARDWARE_COUNTERS,
];

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The check's name.
    pub id: &'static str,
    /// The result.
    pub state: State,
    /// The result in one sentence.
    pub says: String,
    /// The files and values on which the result is based.
    pub evidence: Vec<Evidence>,
    /// The cost of a finding. `None` if there is no finding.
    pub cost: Option<&'static str>,
    /// The fix of a finding: commands, and comments that begin with `#`.
    pub remedy: Vec<String>,
}

/// All outcomes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The pipeline that was checked.
    #[serde(flatten)]
    pub intent: Intent,
    /// The outcomes of the checks.
    pub checks: Vec<Outcome>,
}

impl Diagnosis {
    /// Returns true if a finding costs performance or prevents the pipeline from running.
    #[must_use]
    pub fn has_cost(&self) -> bool {
        self.checks.iter().any(|outcome| matches!(outcome.state, State::Stops | State::Costs))
    }

    /// Returns the findings.
    pub fn findings(&self) -> impl Iterator<Item = &Outcome> {
        self.checks.iter().filter(|outcome| outcome.state.is_finding())
    }
}

/// Makes all checks of a machine for the pipeline that will run.
#[must_use]
pub fn examine(host: &Host, intent: &Intent) -> Diagnosis {
    let case = Case { host, intent };
    let outcome = |check: &Check| {
        let Verdict { state, says, evidence, remedy } = (check.judge)(&case);
        Outcome { id: check.id, state, says, evidence, cost: state.is_finding().then_some(check.cost), remedy }
    };
    Diagnosis { intent: intent.clone(), checks: CHECKS.iter().map(outcome).collect() }
}

/// Makes only the check `arp-flux`. Returns its result if it found a fault in the host's ARP settings.
#[must_use]
pub fn arp_flux(host: &Host, intent: &Intent) -> Option<Outcome> {
    let Verdict { state, says, evidence, remedy } = (neighbours::ARP_FLUX.judge)(&Case { host, intent });
    let Check { id, cost, .. } = neighbours::ARP_FLUX;
    (state == State::Costs).then_some(Outcome { id, state, says, evidence, cost: Some(cost), remedy })
}

/// The machine and the pipeline that a check examines.
struct Case<'a> {
    host: &'a Host,
    intent: &'a Intent,
}

impl Case<'_> {
    /// Returns the cores that the workers will use.
    fn wanted(&self) -> KernelList {
        self.intent.workers.iter().filter_map(|worker| worker.core).collect()
    }

    /// Returns the workers' cores that are online, or all workers' cores if the online cores are unknown. Only the
    /// check `worker-cores` reports missing cores.
    fn cores(&self) -> KernelList {
        let wanted = self.wanted();
        self.host.online.value().map_or_else(|| wanted.clone(), |online| wanted.and(online))
    }

    /// Returns the facts about the workers' cores. For every core without facts, adds the reason to `each`.
    fn cpus(&self, each: &mut Observations) -> Vec<&Cpu> {
        let find = |core: usize| {
            let cpu = self.host.cpu(core);
            if cpu.is_none() {
                let why = self.host.online.why().unwrap_or_else(|| format!("core {core} does not exist"));
                each.unknown.push(why);
            }
            cpu
        };
        self.cores().iter().filter_map(find).collect()
    }

    /// Returns the online cores without a worker. Empty if the online cores are unknown.
    fn other_cores(&self) -> KernelList {
        self.host.online.value().map(|online| online.without(&self.cores())).unwrap_or_default()
    }

    /// Returns the NUMA nodes of the workers' cores. Returns `None` if the node of one of these cores is unknown.
    fn nodes(&self) -> Option<KernelList> {
        let nodes: Option<Vec<usize>> = self.cores().iter().map(|core| self.host.cpu(core)?.node).collect();
        nodes.map(|nodes| nodes.into_iter().collect())
    }

    /// Returns true if there is only one NUMA node, so that all memory is near. Returns `None` if the number of nodes
    /// is unknown.
    fn has_one_node(&self) -> Option<bool> {
        self.host.nodes_online.value().map(|nodes| nodes.len() == 1)
    }
}

/// The result of a check function. The fields are those of [`Outcome`].
struct Verdict {
    state: State,
    says: String,
    evidence: Vec<Evidence>,
    remedy: Vec<String>,
}

impl Verdict {
    /// Returns the result of a check without a fault.
    fn ok(says: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Self { state: State::Ok, says: says.into(), evidence, remedy: Vec::new() }
    }

    /// Returns the result of a check whose facts are unavailable, with the reason.
    fn unknown(why: impl Into<String>) -> Self {
        Self { state: State::NotAvailable, says: why.into(), evidence: Vec::new(), remedy: Vec::new() }
    }

    /// Returns a finding.
    fn found(state: State, says: impl Into<String>, evidence: Vec<Evidence>, remedy: Vec<String>) -> Self {
        Self { state, says: says.into(), evidence, remedy }
    }

    /// Combines observations about several things (cores, interfaces). If there is a fault, the result is a finding,
    /// for which `says` returns the state, the sentence and the fix. Otherwise, if a thing is unknown, the result is
    /// unknown. Otherwise, the result is ok, with the sentence `fine`.
    fn of_each(
        each: Observations,
        says: impl FnOnce(&[String]) -> (State, String, Vec<String>),
        fine: impl Into<String>,
    ) -> Self {
        let Observations { wrong, evidence, unknown, fine: seen } = each;
        if !wrong.is_empty() {
            let (state, text, remedy) = says(&wrong);
            return Self::found(state, text, evidence, remedy);
        }
        match unknown.into_iter().next() {
            Some(why) => Self::unknown(why),
            None => Self::ok(fine, seen),
        }
    }
}

/// Observations about several things.
#[derive(Default)]
struct Observations {
    /// A description of each fault.
    wrong: Vec<String>,
    /// Evidence of the faults.
    evidence: Vec<Evidence>,
    /// Reasons why things are unknown.
    unknown: Vec<String>,
    /// Evidence of the things that are ok.
    fine: Vec<Evidence>,
}

impl Observations {
    /// Adds a fault, with its description.
    fn wrong(&mut self, what: impl Into<String>, evidence: impl IntoIterator<Item = Evidence>) {
        self.wrong.push(what.into());
        self.evidence.extend(evidence);
    }

    /// Adds the reason why a fact is unknown. Adds nothing if the fact is known.
    fn unknown<T>(&mut self, fact: &Fact<T>) {
        self.unknown.extend(fact.why());
    }
}

/// Lists things in a sentence: up to four things, or three things and the number of the others.
fn listed(things: &[String]) -> String {
    if things.len() <= 4 {
        return things.join(", ");
    }
    format!("{} and {} more", things[..3].join(", "), things.len() - 3)
}

/// Formats a share as whole percents.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns the numbers of cores for a sentence, for example `cores 1-3`.
fn named(cores: &KernelList) -> String {
    format!("core{} {cores}", if cores.len() == 1 { "" } else { "s" })
}
