//! Checks that time and events can be counted correctly.

use super::{Case, Check, State, Verdict};
use crate::fact::Evidence;
use crate::kernel::CPUINFO;
use crate::process::Right;

pub(super) const INVARIANT_TSC: Check = Check {
    id: "invariant-tsc",
    looks_at: "the time-stamp counter has one rate and never stops",
    cost: "Workers take the time from this counter. If the counter stops or changes its rate, delays, hold limits and \
           all measured figures are wrong (Intel SDM volume 3, section Invariant TSC).",
    fix: "another machine; for a virtual machine, a CPU model with the feature `invtsc` (`<feature policy='require' \
           name='invtsc'/>`)",
    judge: invariant_tsc,
};

/// A missing `constant_tsc` costs performance. If only `nonstop_tsc` is missing, this may cost performance.
fn invariant_tsc(case: &Case<'_>) -> Verdict {
    let features = &case.host.kernel.features;
    let Some(has) = features.value() else {
        return Verdict::unknown(features.why().unwrap_or_default());
    };
    let lacks: Vec<&str> = [("constant_tsc", has.constant_tsc), ("nonstop_tsc", has.nonstop_tsc)]
        .iter()
        .filter(|(_, has)| !has)
        .map(|(name, _)| *name)
        .collect();
    if lacks.is_empty() {
        return Verdict::ok(
            "constant_tsc and nonstop_tsc",
            vec![Evidence::derived(CPUINFO, "flags with constant_tsc nonstop_tsc")],
        );
    }
    let evidence = vec![Evidence::derived(CPUINFO, format!("flags without {}", lacks.join(" ")))];
    let remedy = if has.hypervisor {
        vec![
            "# libvirt: <cpu mode='host-passthrough'><feature policy='require' name='invtsc'/></cpu>; \
             QEMU: -cpu host,+invtsc"
                .to_owned(),
        ]
    } else {
        vec!["# this processor cannot be fixed: measure on another machine".to_owned()]
    };
    // If only nonstop_tsc is missing, the counter stops only in idle states. The core of a polling worker does not
    // enter them.
    let state = if has.constant_tsc { State::May } else { State::Costs };
    Verdict::found(state, format!("the processor does not guarantee {}", lacks.join(" and ")), evidence, remedy)
}

pub(super) const CLOCKSOURCE: Check = Check {
    id: "clocksource",
    looks_at: "the kernel uses the time-stamp counter as its clock",
    cost: "The kernel stops using the counter when it finds errors in it. Reading another clock is a slow access to a \
           device (Linux Documentation/timers/timekeeping.rst).",
    fix: "`echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource`; if `tsc` is not available, \
           `dmesg | grep -i tsc` shows why",
    judge: clocksource,
};

/// A slow clock costs performance. Another clock that is not the counter may cost performance, or is only reported
/// ("info") if `tsc` is available.
fn clocksource(case: &Case<'_>) -> Verdict {
    let (clock, clocks) = (&case.host.kernel.clock, &case.host.kernel.clocks);
    let Some(name) = clock.value() else {
        return Verdict::unknown(clock.why().unwrap_or_default());
    };
    if matches!(name.as_str(), "tsc" | "arch_sys_counter") {
        return Verdict::ok(format!("the clock is {name}"), vec![clock.evidence()]);
    }
    let offered = clocks.value().is_some_and(|clocks| clocks.iter().any(|other| other == "tsc"));
    let slow = matches!(name.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies");
    let mut evidence = vec![clock.evidence()];
    if clocks.value().is_some() {
        evidence.push(clocks.evidence());
    }
    let remedy = if offered {
        format!("echo tsc > {}", clock.path)
    } else {
        "dmesg | grep -i tsc   # why the kernel stopped using it".to_owned()
    };
    // Other clocks are those of hypervisors, which derive them from the counter.
    let state = match (slow, offered) {
        (true, _) => State::Costs,
        (false, true) => State::Info,
        (false, false) => State::May,
    };
    Verdict::found(state, format!("the clock is {name}, not tsc"), evidence, vec![remedy])
}

pub(super) const HARDWARE_COUNTERS: Check = Check {
    id: "hardware-counters",
    looks_at: "the processor's event counters can be read",
    cost: "Packets are not affected, but `measure` reports instructions per cycle and cache misses as n/a.",
    fix: "`sysctl -w kernel.perf_event_paranoid=2`; most virtual machines have no such counters, which is normal",
    judge: hardware_counters,
};

/// Missing or forbidden counters are only reported ("info"), because packets do not depend on them.
fn hardware_counters(case: &Case<'_>) -> Verdict {
    let kernel = &case.host.kernel;
    let Some(counters) = &kernel.counters else {
        return Verdict::unknown(format!("{} is missing", crate::kernel::COUNTERS));
    };
    let Some(folder) = counters else {
        let normal = if kernel.is_virtual() { ", which is normal in a virtual machine" } else { "" };
        let evidence = vec![Evidence::derived(crate::kernel::COUNTERS, "no folder of the processor's counters")];
        return Verdict::found(State::Info, format!("there are no counters{normal}"), evidence, Vec::new());
    };
    let evidence = vec![Evidence::derived(folder, "exists")];
    let may = case.host.process.rights.value().map(|rights| rights.has(Right::Perfmon) || rights.has(Right::SysAdmin));
    match (kernel.paranoid.value(), may) {
        (_, Some(true)) => Verdict::ok("the counters exist, and this process may read them", evidence),
        (None, _) => Verdict::unknown(kernel.paranoid.why().unwrap_or_default()),
        (Some(level), _) if *level <= 2 => {
            Verdict::ok("the counters exist and may be read", vec![kernel.paranoid.evidence()])
        }
        (Some(_), _) => {
            let remedy = vec!["sysctl -w kernel.perf_event_paranoid=2".to_owned()];
            Verdict::found(
                State::Info,
                "this process may not read the counters",
                vec![kernel.paranoid.evidence()],
                remedy,
            )
        }
    }
}
