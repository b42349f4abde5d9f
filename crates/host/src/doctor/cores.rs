//! Checks that each worker has a core, and that no other thread uses this core.

use super::{BUSY, Case, Check, Observations, State, Verdict, listed, named, percent};
use crate::fact::Evidence;
use crate::list::KernelList;
use crate::stat;

/// The smallest share of a core's time that is reported as stolen.
const STOLEN: f64 = 0.01;

pub(super) const WORKER_CORES: Check = Check {
    id: "worker-cores",
    looks_at: "each worker has a core that the process may run on, and another core is free for other work",
    cost: "A worker without a core of its own cannot run. If no other core exists, the system's own work and Forebay's \
           control thread interrupt the workers.",
    fix: "fewer workers, other cores, `taskset -c LIST forebay run …`, or a wider cpuset",
    judge: worker_cores,
};

/// Workers' cores that are offline, missing, not allowed or too few prevent the pipeline from running. Without another
/// core for other work, the result is "may cost".
fn worker_cores(case: &Case<'_>) -> Verdict {
    let (cores, wanted) = (case.wanted(), case.intent.workers.len());
    let may = &case.host.process.cpus;
    let (Some(allowed), Some(online)) = (may.value(), case.host.online.value()) else {
        return Verdict::unknown(may.why().or(case.host.online.why()).unwrap_or_default());
    };
    let off = cores.without(online);
    if !off.is_empty() {
        let present = &case.host.present;
        let evidence = vec![case.host.online.evidence(), present.evidence()];
        if present.value().is_some_and(|present| off.without(present).is_empty()) {
            let switch = |core| format!("echo 1 > /sys/devices/system/cpu/cpu{core}/online");
            let says = format!("{} offline", is_are(&off));
            return Verdict::found(State::Stops, says, evidence, off.iter().map(switch).collect());
        }
        let says = format!("{} missing", is_are(&off));
        return Verdict::found(State::Stops, says, evidence, vec![format!("# use cores of {online}")]);
    }
    let foreign = cores.without(allowed);
    if !foreign.is_empty() {
        let all: KernelList = allowed.iter().chain(cores.iter()).collect();
        let remedy = vec![
            format!("taskset -c {all} forebay run …"),
            "# if that fails, add these cores to `cpuset.cpus` of the process' control group".to_owned(),
        ];
        let says = format!("{} not among the cores that this process may run on", is_are(&foreign));
        return Verdict::found(State::Stops, says, vec![may.evidence()], remedy);
    }
    if cores.len() < wanted {
        let remedy = vec![
            format!("# at most {} entries under `workers:`", allowed.len()),
            format!("taskset -c {online} forebay run …"),
        ];
        let says = format!("{wanted} workers need one core each, but this process may run only on {}", named(allowed));
        return Verdict::found(State::Stops, says, vec![may.evidence()], remedy);
    }
    if case.other_cores().is_empty() {
        let remedy = vec![format!("# at most {} entries under `workers:`", online.len().saturating_sub(1).max(1))];
        let remedy = if online.len() > 1 { remedy } else { vec!["# use a machine with a second core".to_owned()] };
        let says = format!("{} used by workers, and no other core is free for other work", is_are(&cores));
        return Verdict::found(State::May, says, vec![case.host.online.evidence()], remedy);
    }
    Verdict::ok(format!("{} for {wanted} worker{}", named(&cores), plural(wanted)), vec![may.evidence()])
}

/// Returns cores as the start of a sentence, with the verb: `core 1 is`, or `cores 1-3 are`.
pub(super) fn is_are(cores: &KernelList) -> String {
    format!("{} {}", named(cores), if cores.len() == 1 { "is" } else { "are" })
}

/// Returns the ending of a noun after this number.
fn plural(number: usize) -> &'static str {
    if number == 1 { "" } else { "s" }
}

pub(super) const CORE_LOAD: Check = Check {
    id: "core-load",
    looks_at: "nothing else runs on the workers' cores",
    cost: "A worker polls, so it always has work. Every share of its core that another thread uses is lost, and \
           packets wait as long as that thread runs (Linux Documentation/scheduler/sched-eevdf.rst).",
    fix: "other cores for the workers, or isolated cores (see `isolated-cores`); `ps -eLo psr,pcpu,comm --sort=-pcpu` \
          shows the core of each thread",
    judge: core_load,
};

/// A worker's core that is already busy for a share of at least [`BUSY`] costs performance.
fn core_load(case: &Case<'_>) -> Verdict {
    let mut each = Observations::default();
    for worker in &case.intent.workers {
        let Some(core) = worker.core.filter(|core| case.cores().contains(*core)) else { continue };
        let Some(load) = case.host.cpu(core).and_then(|cpu| cpu.load) else {
            let why = case.host.load_unknown();
            each.unknown.push(why.unwrap_or_else(|| format!("{} has no line of core {core}", stat::FILE)));
            continue;
        };
        let seen = format!("cpu{core} busy {} {}", percent(load.busy), load.over);
        if load.busy < BUSY {
            each.fine.push(Evidence::derived(stat::FILE, seen));
            continue;
        }
        let by = if worker.shared { ", by another pipeline" } else { "" };
        each.wrong(
            format!("core {core} is busy {} of the time{by}", percent(load.busy)),
            [Evidence::derived(stat::FILE, seen)],
        );
    }
    if case.cores().is_empty() {
        return no_cores();
    }
    let remedy = vec![
        format!(
            "ps -eLo psr,pcpu,pid,comm --sort=-pcpu | awk 'NR == 1 || $1 ~ /^({})$/'",
            case.cores().iter().map(|core| core.to_string()).collect::<Vec<_>>().join("|")
        ),
        "# move the threads that it shows (`taskset -cp LIST PID`), or give the workers other cores".to_owned(),
    ];
    let fine = seen(&each);
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), fine)
}

pub(super) const STEAL: Check = Check {
    id: "steal",
    looks_at: "the hypervisor leaves the workers' cores to this machine",
    cost: "While the hypervisor runs other work on a core, the core's worker moves no packets. This machine cannot \
           predict when the worker continues.",
    fix: "dedicated cores from the operator of the hypervisor (on your own host: `virsh vcpupin`)",
    judge: steal,
};

/// A hypervisor that takes at least the share [`STOLEN`] of a worker's core costs performance.
fn steal(case: &Case<'_>) -> Verdict {
    let mut each = Observations::default();
    for core in case.cores().iter() {
        let Some(load) = case.host.cpu(core).and_then(|cpu| cpu.load) else {
            let why = case.host.load_unknown();
            each.unknown.push(why.unwrap_or_else(|| format!("{} has no line of core {core}", stat::FILE)));
            continue;
        };
        let seen = Evidence::derived(stat::FILE, format!("cpu{core} stolen {:.1} % {}", load.steal * 100.0, load.over));
        if load.steal < STOLEN {
            each.fine.push(seen);
        } else {
            each.wrong(format!("the hypervisor takes {:.1} % of core {core}", load.steal * 100.0), [seen]);
        }
    }
    if case.cores().is_empty() {
        return no_cores();
    }
    let remedy = vec!["# request dedicated cores; on your own host: virsh vcpupin DOMAIN VCPU CPU".to_owned()];
    let fine = seen(&each);
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), fine)
}

pub(super) const ISOLATED_CORES: Check = Check {
    id: "isolated-cores",
    looks_at: "the scheduler keeps other threads off the workers' cores",
    cost: "The scheduler may run any thread on a core that is not isolated, at any time, and packets wait as long as \
           that thread runs (Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus).",
    fix: "`isolcpus=` at boot, or a control group (version 2) with an `isolated` partition",
    judge: isolated_cores,
};

/// Cores that are neither isolated nor exclusive to a control group may cost performance.
fn isolated_cores(case: &Case<'_>) -> Verdict {
    let cores = case.cores();
    if cores.is_empty() {
        return no_cores();
    }
    let (host, kernel) = (case.host, &case.host.kernel);
    // The exclusive CPUs of a control group are equivalent to isolated cores as long as the process is in the group.
    let own = host
        .groups
        .partitions
        .iter()
        .filter(|group| group.kind.value().is_some_and(|kind| kind == "isolated" || kind == "root"));
    let own = own.filter_map(|group| Some((group.cpus.value()?, group)));
    let (mut safe, mut evidence) = (KernelList::default(), Vec::new());
    for (cpus, group) in own {
        safe = safe.iter().chain(cpus.iter()).collect();
        evidence.extend([group.kind.evidence(), group.cpus.evidence()]);
    }
    if let Some(isolated) = kernel.isolated.value() {
        safe = safe.iter().chain(isolated.iter()).collect();
        evidence.push(kernel.isolated.evidence());
    }
    let open = cores.without(&safe);
    if open.is_empty() {
        return Verdict::ok(format!("{} isolated", is_are(&cores)), evidence);
    }
    let Some(isolated) = kernel.isolated.value() else {
        return Verdict::unknown(kernel.isolated.why().unwrap_or_default());
    };
    let free = isolated.without(&cores);
    let remedy = if free.len() >= open.len() {
        vec![
            format!(
                "# {} isolated: assign isolated cores to the workers (`core:` under `workers:`),",
                is_are(isolated)
            ),
            "# and allow the process to use them:".to_owned(),
            format!("taskset -c {isolated} forebay run …"),
        ]
    } else {
        let mut remedy = vec![at_boot(case)];
        // The fix for a running system needs a unified hierarchy that can assign CPUs to groups.
        let unified = host.groups.controllers.as_ref().and_then(|fact| Some((fact, fact.value()?)));
        if let Some((fact, _)) = unified.filter(|(_, all)| all.iter().any(|controller| controller == "cpuset")) {
            let folder = fact.path.trim_end_matches("/cgroup.controllers");
            remedy.extend([
                "# or, until the next boot:".to_owned(),
                format!("echo +cpuset > {folder}/cgroup.subtree_control && mkdir -p {folder}/forebay"),
                format!("echo {cores} > {folder}/forebay/cpuset.cpus"),
                format!("echo isolated > {folder}/forebay/cpuset.cpus.partition"),
                format!("echo $$ > {folder}/forebay/cgroup.procs && forebay run …"),
            ]);
        }
        remedy
    };
    Verdict::found(State::May, format!("{} not isolated", is_are(&open)), vec![kernel.isolated.evidence()], remedy)
}

/// Returns the line of the fix with the kernel parameters that isolate the workers' cores. The line includes the
/// parameters for tickless cores only if the kernel supports them.
fn at_boot(case: &Case<'_>) -> String {
    let cores = case.cores();
    let tickless = match case.host.kernel.tickless.value() {
        Some(_) => format!(" nohz_full={cores} rcu_nocbs={cores}"),
        None => String::new(),
    };
    format!(
        "# on the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub and reboot): \
         isolcpus=managed_irq,domain,{cores}{tickless}"
    )
}

pub(super) const TIMER_TICK: Check = Check {
    id: "timer-tick",
    looks_at: "the kernel's periodic tick does not interrupt the workers' cores",
    cost: "While a core runs a thread, the tick interrupts the core 100 to 1 000 times a second (CONFIG_HZ), and \
           packets wait (Linux Documentation/timers/no_hz.rst).",
    fix: "`nohz_full=` at boot, with a kernel that has CONFIG_NO_HZ_FULL",
    judge: timer_tick,
};

/// Cores that are not tickless may cost performance.
fn timer_tick(case: &Case<'_>) -> Verdict {
    let (cores, tickless) = (case.cores(), &case.host.kernel.tickless);
    if cores.is_empty() {
        return no_cores();
    }
    let Some(list) = tickless.value() else {
        let why = tickless.why().unwrap_or_default();
        return Verdict::unknown(format!("{why}: the kernel has no CONFIG_NO_HZ_FULL, or does not report it"));
    };
    let with = cores.without(list);
    if with.is_empty() {
        return Verdict::ok(format!("{} without the tick", is_are(&cores)), vec![tickless.evidence()]);
    }
    let remedy = vec![at_boot(case)];
    Verdict::found(State::May, format!("the tick interrupts {}", named(&with)), vec![tickless.evidence()], remedy)
}

/// Lists the evidence of the cores that are ok, as a sentence.
fn seen(each: &Observations) -> String {
    let seen: Vec<_> = each.fine.iter().map(|evidence| evidence.value.clone()).collect();
    listed(&seen)
}

/// Returns the result of a check that depends on the workers' cores, if no worker has a core.
pub(super) fn no_cores() -> Verdict {
    Verdict::unknown("no worker has a core")
}
