//! What in a machine will cost a pipeline performance, by what that is known, and how to mend it.
//!
//! Each check looks at facts and at what is to run. One whose facts cannot be read says so: it is neither in order nor a fault.

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

/// The share of a core's time from which on something else is said to run there.
const BUSY: f64 = 0.05;

/// What is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Intent {
    /// The pipeline's name; none: the machine is judged for any.
    pub pipeline: Option<String>,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Memory of one worker's packet pool, in bytes.
    pub pool_bytes: u64,
    /// The addresses that the pipeline answers for.
    #[serde(skip)]
    pub addresses: Vec<IpAddr>,
}

/// A worker that is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// Its core; none: no core is left for it.
    pub core: Option<usize>,
    /// Whether another pipeline runs on that core already.
    pub shared: bool,
}

/// A port that is to be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The interface that it is on.
    pub interface: Option<String>,
    /// Whether that is in a network namespace of another name, where it cannot be seen from here.
    pub elsewhere: bool,
    /// Which workers have it, by number.
    pub workers: Vec<usize>,
    /// Whether the host's own stack gets the frames that come in, too.
    #[serde(skip)]
    pub host: bool,
    /// The address that the host has there.
    #[serde(skip)]
    pub address: Option<IpAddr>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In order.
    Ok,
    /// The pipeline cannot run.
    Stops,
    /// It costs performance.
    Costs,
    /// It may: that depends on what else happens.
    May,
    /// Nothing to mend.
    Info,
    /// Its facts cannot be known.
    #[serde(rename = "n/a")]
    NotAvailable,
}

impl State {
    /// As people read it.
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

    /// Whether something was found.
    #[must_use]
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Stops | Self::Costs | Self::May | Self::Info)
    }
}

/// What a check looks at.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, which stays.
    pub id: &'static str,
    /// What it looks at.
    pub looks_at: &'static str,
    /// What it costs when it is not in order, and by what source.
    pub cost: &'static str,
    /// How that is mended.
    pub mend: &'static str,
    judge: fn(&Case<'_>) -> Verdict,
}

/// Every check, in the order in which they are told.
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

/// A check's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Which check.
    pub id: &'static str,
    /// How it ended.
    pub state: State,
    /// In one sentence.
    pub says: String,
    /// What that rests on.
    pub evidence: Vec<Evidence>,
    /// What it costs, of a finding.
    pub cost: Option<&'static str>,
    /// How to mend it, of a finding: commands, or lines that begin with `#`.
    pub remedy: Vec<String>,
}

/// All outcomes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What is to run.
    #[serde(flatten)]
    pub intent: Intent,
    /// By check.
    pub checks: Vec<Outcome>,
}

impl Diagnosis {
    /// Whether something was found that costs performance, or keeps the pipeline from running.
    #[must_use]
    pub fn has_cost(&self) -> bool {
        self.checks.iter().any(|outcome| matches!(outcome.state, State::Stops | State::Costs))
    }

    /// What was found.
    pub fn findings(&self) -> impl Iterator<Item = &Outcome> {
        self.checks.iter().filter(|outcome| outcome.state.is_finding())
    }
}

/// Holds what is to run against a machine.
#[must_use]
pub fn examine(host: &Host, intent: &Intent) -> Diagnosis {
    let case = Case { host, intent };
    let outcome = |check: &Check| {
        let Verdict { state, says, evidence, remedy } = (check.judge)(&case);
        Outcome { id: check.id, state, says, evidence, cost: state.is_finding().then_some(check.cost), remedy }
    };
    Diagnosis { intent: intent.clone(), checks: CHECKS.iter().map(outcome).collect() }
}

/// Returns the fault in the host's part in ARP, if there is one: the check `arp-flux` by itself.
#[must_use]
pub fn arp_flux(host: &Host, intent: &Intent) -> Option<Outcome> {
    let Verdict { state, says, evidence, remedy } = (neighbours::ARP_FLUX.judge)(&Case { host, intent });
    let Check { id, cost, .. } = neighbours::ARP_FLUX;
    (state == State::Costs).then_some(Outcome { id, state, says, evidence, cost: Some(cost), remedy })
}

/// What is judged.
struct Case<'a> {
    host: &'a Host,
    intent: &'a Intent,
}

impl Case<'_> {
    /// The cores that workers are to have.
    fn wanted(&self) -> KernelList {
        self.intent.workers.iter().filter_map(|worker| worker.core).collect()
    }

    /// Those of them that there are, as far as that is known: one check is enough to say that others are not.
    fn cores(&self) -> KernelList {
        let wanted = self.wanted();
        self.host.online.value().map_or_else(|| wanted.clone(), |online| wanted.and(online))
    }

    /// What is known of the workers' cores; of those of which nothing is, `each` is told so.
    fn cpus(&self, each: &mut Each) -> Vec<&Cpu> {
        let find = |core: usize| {
            let cpu = self.host.cpu(core);
            if cpu.is_none() {
                let why = self.host.online.why().unwrap_or_else(|| format!("there is no core {core}"));
                each.unknown.push(why);
            }
            cpu
        };
        self.cores().iter().filter_map(find).collect()
    }

    /// Cores that no worker has.
    fn other_cores(&self) -> KernelList {
        self.host.online.value().map(|online| online.without(&self.cores())).unwrap_or_default()
    }

    /// The nodes of workers' cores; `None` where one's is not known.
    fn nodes(&self) -> Option<KernelList> {
        let nodes: Option<Vec<usize>> = self.cores().iter().map(|core| self.host.cpu(core)?.node).collect();
        nodes.map(|nodes| nodes.into_iter().collect())
    }

    /// Whether there is one NUMA node, so that everything is near; `None` where that is not known.
    fn has_one_node(&self) -> Option<bool> {
        self.host.nodes_online.value().map(|nodes| nodes.len() == 1)
    }
}

/// How a check ends.
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

    /// Of what is judged one by one (cores, interfaces): what is wrong with one is wrong; else what is not known of one is not
    /// known; else it is in order.
    fn of_each(
        each: Each,
        says: impl FnOnce(&[String]) -> (State, String, Vec<String>),
        fine: impl Into<String>,
    ) -> Self {
        let Each { wrong, evidence, unknown, fine: seen } = each;
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

/// What was seen of several things.
#[derive(Default)]
struct Each {
    /// Of each that is not in order: what it is.
    wrong: Vec<String>,
    /// By what that is known.
    evidence: Vec<Evidence>,
    /// Why something cannot be judged.
    unknown: Vec<String>,
    /// By what others are known to be in order.
    fine: Vec<Evidence>,
}

impl Each {
    fn wrong(&mut self, what: impl Into<String>, evidence: impl IntoIterator<Item = Evidence>) {
        self.wrong.push(what.into());
        self.evidence.extend(evidence);
    }

    fn unknown<T>(&mut self, fact: &Fact<T>) {
        self.unknown.extend(fact.why());
    }
}

/// Several things in a sentence.
fn listed(things: &[String]) -> String {
    if things.len() <= 4 {
        return things.join(", ");
    }
    format!("{} and {} more", things[..3].join(", "), things.len() - 3)
}

/// A share in percent, no more exact than it is known.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Cores in a sentence.
fn named(cores: &KernelList) -> String {
    format!("core{} {cores}", if cores.len() == 1 { "" } else { "s" })
}
