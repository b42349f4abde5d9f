//! Checks that workers do not share physical cores.

use super::cores::no_cores;
use super::{BUSY, Case, Check, Observations, State, Verdict, listed, percent};
use crate::fact::Evidence;
use crate::stat;

pub(super) const SMT_SIBLING: Check = Check {
    id: "smt-sibling",
    looks_at: "no other hardware thread of a worker's physical core runs a worker or is busy",
    cost: "Two threads of one core share its execution units and caches: together they forwarded 1.55 times as much as \
           one thread, while two cores forwarded 1.98 times as much (docs/performance.md).",
    fix: "move the worker to a core whose sibling is idle, or switch the sibling off: \
          `echo 0 > /sys/devices/system/cpu/cpuN/online`",
    judge: smt_sibling,
};

/// Two workers on one physical core, or a sibling whose busy share is at least [`BUSY`], cost performance.
fn smt_sibling(case: &Case<'_>) -> Verdict {
    let cores = case.cores();
    if cores.is_empty() {
        return no_cores();
    }
    let (mut each, mut remedy, mut alone) = (Observations::default(), Vec::new(), true);
    for cpu in case.cpus(&mut each) {
        let core = cpu.number;
        let Some(threads) = cpu.threads.value() else {
            each.unknown(&cpu.threads);
            continue;
        };
        each.fine.push(cpu.threads.evidence());
        for sibling in threads.iter().filter(|sibling| *sibling != core) {
            alone = false;
            if cores.contains(sibling) {
                // Each pair is found twice, and reported for the lower core.
                if core < sibling {
                    each.wrong(
                        format!("workers' cores {core} and {sibling} are one physical core"),
                        [cpu.threads.evidence()],
                    );
                    remedy.push(format!("# give the worker on core {sibling} another core (`core:` under `workers:`)"));
                }
                continue;
            }
            let Some(other) = case.host.cpu(sibling) else { continue };
            match other.load {
                Some(load) if load.busy >= BUSY => {
                    let seen = format!("cpu{sibling} busy {} {}", percent(load.busy), load.over);
                    let what = format!(
                        "core {sibling}, the other thread of a worker's core {core}, is busy {} of the time",
                        percent(load.busy)
                    );
                    each.wrong(what, [cpu.threads.evidence(), Evidence::derived(stat::FILE, seen)]);
                    remedy.push(format!("echo 0 > /sys/devices/system/cpu/cpu{sibling}/online"));
                }
                Some(_) => {}
                None => {
                    let why = case.host.load_unknown();
                    each.unknown.push(why.unwrap_or_else(|| format!("{} has no line of core {sibling}", stat::FILE)));
                }
            }
        }
    }
    if alone && case.host.kernel.is_virtual() && each.unknown.is_empty() {
        return Verdict::unknown(
            "the virtual machine shows one thread per core: the host does not report which cores share a physical core",
        );
    }
    let fine = if alone { "each worker's core has only one thread" } else { "the cores' other threads are idle" };
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), fine)
}
