//! Checks that devices do not interrupt workers.

use super::cores::no_cores;
use super::{Case, Check, State, Verdict};
use crate::fact::Evidence;
use crate::interrupts::{FILE, Interrupt, folder};

/// From this rate per second on, an interrupt at a worker's core certainly costs performance. It is the rate of the
/// slowest periodic tick.
const OFTEN: f64 = 100.0;
/// From this rate per second on, an interrupt is reported: one interrupt per minute.
const SELDOM: f64 = 1.0 / 60.0;

pub(super) const IRQ_AFFINITY: Check = Check {
    id: "irq-affinity",
    looks_at: "no device's interrupts are sent to the workers' cores",
    cost: "Each interrupt runs a handler on the core, and the handler's code and data take the place of the worker's \
           in the caches (Linux Documentation/core-api/irq/irq-affinity.rst).",
    fix: "`echo LIST > /proc/irq/N/smp_affinity_list` with other cores; configure irqbalance to exclude the workers' \
           cores",
    judge: irq_affinity,
};

/// Interrupts at workers' cores cost performance if one of them has at least the rate [`OFTEN`]. From the rate
/// [`SELDOM`] on, they may cost performance.
fn irq_affinity(case: &Case<'_>) -> Verdict {
    let cores = case.cores();
    if cores.is_empty() {
        return no_cores();
    }
    let interrupts = match &case.host.interrupts {
        Ok(interrupts) => interrupts,
        Err(why) => return Verdict::unknown(why.to_string()),
    };
    let (mut hits, mut unknown) = (Vec::new(), None);
    for interrupt in interrupts {
        let Some(target) = interrupt.target().value() else {
            unknown = unknown.or(interrupt.target().why());
            continue;
        };
        let hit = target.and(&cores);
        // If an interrupt may go to several cores and the kernel does not report the core that it uses, its counts on
        // all cores are added.
        let exact = interrupt.effective.value().is_some();
        let Some((rate, over)) = interrupt.rate(|cpu| !exact || hit.contains(cpu)) else { continue };
        if !hit.is_empty() && rate >= SELDOM {
            let often = interrupt.rate(|cpu| hit.contains(cpu)).is_some_and(|(rate, _)| rate >= OFTEN);
            hits.push((interrupt, rate, over, often));
        }
    }
    // The most frequent first.
    hits.sort_by(|one, other| other.1.total_cmp(&one.1));
    if hits.is_empty() {
        let looked_at = Evidence::derived(FILE, format!("{} interrupts looked at", interrupts.len()));
        return match unknown {
            Some(why) => Verdict::unknown(why),
            None => Verdict::ok("no device often interrupts the workers' cores", vec![looked_at]),
        };
    }
    let (most, rate, over, _) = &hits[0];
    let others = if hits.len() == 1 { String::new() } else { format!(", and {} less often", hits.len() - 1) };
    let says = format!("interrupt {} occurs {} times a second {over}{others}", name(most), shown(*rate));
    let mut evidence = Vec::new();
    for (it, rate, over, _) in &hits {
        evidence.push(it.target().evidence());
        evidence
            .push(Evidence::derived(FILE, format!("interrupt {}: {} times a second {over}", it.number, shown(*rate))));
    }
    let others = case.other_cores();
    let remedy = if others.is_empty() {
        vec!["# a core without a worker is needed for these interrupts".to_owned()]
    } else {
        let mut remedy: Vec<_> =
            hits.iter().map(|(it, ..)| format!("echo {others} > {}/smp_affinity_list", folder(it.number))).collect();
        remedy.push("# interrupts that the kernel distributes itself (a disk's queues) cannot be moved".to_owned());
        remedy.push(format!(
            "# if irqbalance runs, it undoes this: set IRQBALANCE_BANNED_CPULIST={cores} in /etc/default/irqbalance"
        ));
        remedy
    };
    let state = if hits.iter().any(|(.., often)| *often) { State::Costs } else { State::May };
    Verdict::found(state, says, evidence, remedy)
}

/// Returns the number of an interrupt and the name of its device.
fn name(interrupt: &Interrupt) -> String {
    let device = interrupt.label.split_ascii_whitespace().next_back().unwrap_or("?");
    format!("{} {device}", interrupt.number)
}

/// Returns a rate as text, with decimals only if it is below 10.
fn shown(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.2}") }
}
