//! Checks a machine for anything that would cost a pipeline performance, with evidence and a fix for each finding.
//!
//! Each check reads facts about the machine and the pipeline that will run. If its facts cannot be read, the check
//! reports that: the result is neither "ok" nor a finding.

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

/// The share of a core's time from which on the core counts as busy.
const BUSY: f64 = 0.05;

/// The pipeline that will run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Intent {
    /// The pipeline's name; `None` if the machine is checked for any pipeline.
    pub pipeline: Option<String>,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Memory of one worker's packet pool, in bytes.
    pub pool_bytes: u64,
    /// The addresses for which the pipeline replies.
    #[serde(skip)]
    pub addresses: Vec<IpAddr>,
}

/// A worker that will run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// Its core; `None` if no core is available for it.
    pub core: Option<usize>,
    /// True if another pipeline already runs on that core.
    pub shared: bool,
}

/// A port that will be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its interface.
    pub interface: Option<String>,
    /// True if the interface is in another network namespace, where it cannot be read.
    pub elsewhere: bool,
    /// The workers that use it, by number.
    pub workers: Vec<usize>,
    /// True if the host's own stack also receives the incoming frames.
    #[serde(skip)]
    pub host: bool,
    /// The host's address at this port.
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
    /// The fault may cost performance, depending on other conditions.
    May,
    /// A fact that needs no fix.
    Info,
    /// The facts are unavailable.
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

    /// Returns whether the check found something.
    #[must_use]
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Stops | Self::Costs | Self::May | Self::Info)
    }
}

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its stable name.
    pub id: &'static str,
    /// The condition that it checks.
    pub looks_at: &'static str,
    /// The cost of a fault, with its source.
    pub cost: &'static str,
    /// How to fix a fault.
    pub fix: &'static str,
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
    /// The files and values that the result is based on.
    pub evidence: Vec<Evidence>,
    /// The cost of a finding.
    pub cost: Option<&'static str>,
    /// How to fix a finding: commands, or lines that begin with `#`.
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
    /// Returns whether a finding costs performance or keeps the pipeline from running.
    #[must_use]
    pub fn has_cost(&self) -> bool {
        self.checks.iter().any(|outcome| matches!(outcome.state, State::Stops | State::Costs))
    }

    /// Returns the findings.
    pub fn findings(&self) -> impl Iterator<Item = &Outcome> {
        self.checks.iter().filter(|outcome| outcome.state.is_finding())
    }
}

/// Checks a machine for the pipeline that will run.
#[must_use]
pub fn examine(host: &Host, intent: &Intent) -> Diagnosis {
    let case = Case { host, intent };
    let outcome = |check: &Check| {
        let Verdict { state, says, evidence, remedy } = (check.judge)(&case);
        Outcome { id: check.id, state, says, evidence, cost: state.is_finding().then_some(check.cost), remedy }
    };
    Diagnosis { intent: intent.clone(), checks: CHECKS.iter().map(outcome).collect() }
}

/// Returns the result of the check `arp-flux` alone if it found a fault in the host's ARP settings.
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

    /// Returns the workers' cores that exist, as far as that is known. Only the check `worker-cores` reports missing
    /// cores.
    fn cores(&self) -> KernelList {
        let wanted = self.wanted();
        self.host.online.value().map_or_else(|| wanted.clone(), |online| wanted.and(online))
    }

    /// Returns the facts about the workers' cores. Adds the reason to `each` for every core without facts.
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

    /// Returns the online cores without a worker.
    fn other_cores(&self) -> KernelList {
        self.host.online.value().map(|online| online.without(&self.cores())).unwrap_or_default()
    }

    /// Returns the nodes of the workers' cores; `None` if one of them is unknown.
    fn nodes(&self) -> Option<KernelList> {
        let nodes: Option<Vec<usize>> = self.cores().iter().map(|core| self.host.cpu(core)?.node).collect();
        nodes.map(|nodes| nodes.into_iter().collect())
    }

    /// Returns whether there is only one NUMA node, so that all memory is near; `None` if that is unknown.
    fn has_one_node(&self) -> Option<bool> {
        self.host.nodes_online.value().map(|nodes| nodes.len() == 1)
    }
}

/// The result of a check function.
struct Verdict {
    state: State,
    says: String,
    evidence: Vec<Evidence>,
    remedy: Vec<String>,
}

impl Verdict {
    fn ok(says: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Self { state: State::Ok, says: says.into(), evidence, remedy: Vec::new() }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self { state: State::NotAvailable, says: why.into(), evidence: Vec::new(), remedy: Vec::new() }
    }

    fn found(state: State, says: impl Into<String>, evidence: Vec<Evidence>, remedy: Vec<String>) -> Self {
        Self { state, says: says.into(), evidence, remedy }
    }

    /// Combines the results of several things (cores, interfaces). If one of them is wrong, the result is a finding.
    /// Otherwise, if one of them is unknown, the result is unknown. Otherwise it is ok.
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
    fn wrong(&mut self, what: impl Into<String>, evidence: impl IntoIterator<Item = Evidence>) {
        self.wrong.push(what.into());
        self.evidence.extend(evidence);
    }

    fn unknown<T>(&mut self, fact: &Fact<T>) {
        self.unknown.extend(fact.why());
    }
}

/// Lists several things in a sentence.
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

/// Names cores in a sentence.
fn named(cores: &KernelList) -> String {
    format!("core{} {cores}", if cores.len() == 1 { "" } else { "s" })
}
