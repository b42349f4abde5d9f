//! Whether devices interrupt workers.

use super::cores::no_cores;
use super::{Case, Check, State, Verdict, listed};
use crate::fact::Evidence;
use crate::interrupts::{FILE, Interrupt};

/// How often a second an interrupt comes to a worker's core from which on that is more than what may happen: as often as the
/// slowest tick.
const OFTEN: f64 = 100.0;

pub(super) const IRQ_AFFINITY: Check = Check {
    id: "irq-affinity",
    looks_at: "no device's interrupts are sent to the workers' cores",
    cost: "Each interrupt takes the core away for its handler and what that leaves behind in the caches, some microseconds at a time \
           (Linux Documentation/core-api/irq/irq-affinity.rst).",
    mend: "`echo LIST > /proc/irq/N/smp_affinity_list` with other cores; irqbalance told to leave the workers' alone",
    judge: irq_affinity,
};

fn irq_affinity(case: &Case<'_>) -> Verdict {
    let cores = case.cores();
    if cores.is_empty() {
        return no_cores();
    }
    let interrupts = match &case.host.interrupts {
        Ok(interrupts) => interrupts,
        Err(why) => return Verdict::unknown(why.to_string()),
    };
    let (mut hits, mut unknown, mut evidence, mut often) = (Vec::new(), None, Vec::new(), false);
    // Those that have never come say nothing of what will.
    for interrupt in interrupts.iter().filter(|interrupt| interrupt.count() > 0) {
        let Some(target) = interrupt.target().value() else {
            unknown = unknown.or(interrupt.target().why());
            continue;
        };
        let hit = target.and(&cores);
        if hit.is_empty() {
            continue;
        }
        evidence.push(interrupt.target().evidence());
        // Sent to several: to which of them is not known.
        let rates: Vec<_> = hit.iter().filter_map(|core| interrupt.rate(core)).collect();
        let rate: f64 = rates.iter().map(|(rate, _)| rate).sum();
        if let Some((_, over)) = rates.first() {
            let seen = format!("interrupt {}: {} a second on {hit} {over}", interrupt.number, shown(rate));
            evidence.push(Evidence::derived(FILE, seen));
        }
        often |= rate >= OFTEN;
        hits.push((interrupt, rate));
    }
    let Some(first) = hits.first() else {
        return match unknown {
            Some(why) => Verdict::unknown(why),
            None => Verdict::ok(
                "they are sent elsewhere",
                vec![Evidence::derived(FILE, format!("{} interrupts looked at", interrupts.len()))],
            ),
        };
    };
    let names: Vec<_> =
        hits.iter().map(|(interrupt, rate)| format!("{} ({} a second)", name(interrupt), shown(*rate))).collect();
    let many = if hits.len() == 1 { "interrupt" } else { "interrupts" };
    let says = format!("{many} {} may come to workers' cores", listed(&names));
    let says = if often { says.replace("may come", "come") } else { says };
    let others = case.other_cores();
    let mut remedy: Vec<String> = if others.is_empty() {
        vec!["# a core without a worker, to send them to".to_owned()]
    } else {
        hits.iter()
            .map(|(interrupt, _)| format!("echo {others} > /proc/irq/{}/smp_affinity_list", interrupt.number))
            .collect()
    };
    if !others.is_empty() {
        remedy.push(format!(
            "# irqbalance, where it runs, would undo this: IRQBALANCE_BANNED_CPULIST={cores} in /etc/default/irqbalance"
        ));
        remedy.push(format!("# what the kernel does not let be moved ({} above, if that fails) stays", first.0.number));
    }
    let state = if often { State::Costs } else { State::May };
    Verdict::found(state, says, evidence, remedy)
}

fn name(interrupt: &Interrupt) -> String {
    let device = interrupt.label.split_ascii_whitespace().next_back().unwrap_or("?");
    format!("{} {device}", interrupt.number)
}

fn shown(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.2}") }
}
