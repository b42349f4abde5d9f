//! Checks that cores run at their full frequency and wake up fast.

use super::cores::no_cores;
use super::{Case, Check, Observations, State, Verdict, listed};
use crate::cpu::Cpu;
use crate::fact::Evidence;

/// The longest acceptable time to leave an idle state, in microseconds. The states C1 and C1E of processors take less
/// time, and deeper states take 100 µs or more.
const SHALLOW_US: u64 = 10;

pub(super) const GOVERNOR: Check = Check {
    id: "governor",
    looks_at: "the workers' cores are set to their highest frequency",
    cost: "Packets per second are proportional to the core's frequency. `powersave` may keep the lowest frequency. The \
           other governors follow the load with a delay (Linux Documentation/admin-guide/pm/cpufreq.rst).",
    fix: "`cpupower -c LIST frequency-set -g performance`",
    judge: governor,
};

/// A governor other than `performance` may cost performance. `powersave` costs performance, except with drivers that
/// treat it as a hint.
fn governor(case: &Case<'_>) -> Verdict {
    if case.cores().is_empty() {
        return no_cores();
    }
    let (mut each, mut remedy, mut lowest) = (Observations::default(), Vec::new(), false);
    for cpu in case.cpus(&mut each) {
        let governor = &cpu.frequency.governor;
        match governor.value().map(String::as_str) {
            None => each.unknown.push(unset(case, cpu)),
            Some("performance") => each.fine.push(governor.evidence()),
            Some(name) => {
                let driver = cpu.frequency.driver.value().map(String::as_str);
                // With these two drivers, the governor is only a hint to the processor, which still raises the
                // frequency under load.
                let hint = matches!(driver, Some("intel_pstate" | "amd-pstate-epp"));
                lowest |= name == "powersave" && driver.is_some() && !hint;
                let driver = cpu.frequency.driver.value().map(|_| cpu.frequency.driver.evidence());
                each.wrong(
                    format!("core {} is set to {name}", cpu.number),
                    [governor.evidence()].into_iter().chain(driver),
                );
                remedy.push(format!("echo performance > {}", governor.path));
            }
        }
    }
    let state = if lowest { State::Costs } else { State::May };
    Verdict::of_each(each, |wrong| (state, listed(wrong), remedy), "the workers' cores are set to performance")
}

/// Returns the reason why a core's governor is unknown.
fn unset(case: &Case<'_>, cpu: &Cpu) -> String {
    let why = cpu.frequency.governor.why().unwrap_or_default();
    let host = if case.host.kernel.is_virtual() { ": in a virtual machine the host sets it" } else { "" };
    format!("{why}{host}")
}

pub(super) const FREQUENCY_LIMIT: Check = Check {
    id: "frequency-limit",
    looks_at: "the frequency has no limit below that of the hardware",
    cost: "Packets per second are proportional to the core's frequency.",
    fix: "`cpupower -c LIST frequency-set -u MOST`",
    judge: frequency_limit,
};

/// A limit below the frequency of the hardware costs performance.
fn frequency_limit(case: &Case<'_>) -> Verdict {
    if case.cores().is_empty() {
        return no_cores();
    }
    let (mut each, mut remedy) = (Observations::default(), Vec::new());
    for cpu in case.cpus(&mut each) {
        let (limit, most) = (&cpu.frequency.most_khz, &cpu.frequency.hardware_most_khz);
        match (limit.value(), most.value()) {
            (Some(set), Some(possible)) if set < possible => {
                each.wrong(
                    format!("core {} is limited to {} of {} MHz", cpu.number, set / 1_000, possible / 1_000),
                    [limit.evidence(), most.evidence()],
                );
                remedy.push(format!("echo {possible} > {}", limit.path));
            }
            (Some(_), Some(_)) => each.fine.push(limit.evidence()),
            (None, _) => each.unknown(limit),
            _ => each.unknown(most),
        }
    }
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), "no limit is set")
}

pub(super) const C_STATES: Check = Check {
    id: "c-states",
    looks_at: "the workers' cores enter no deep idle state",
    cost: "A core needs some time to leave an idle state: the latency of the state. A polling worker keeps its core \
           awake, so only a worker that parks or starts is delayed (Linux Documentation/admin-guide/pm/cpuidle.rst).",
    fix: "`echo 10 > /sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us`, or \
          `cpupower -c LIST idle-set -D 10`",
    judge: c_states,
};

/// An idle state that takes longer to leave than [`SHALLOW_US`] may cost performance.
fn c_states(case: &Case<'_>) -> Verdict {
    if case.cores().is_empty() {
        return no_cores();
    }
    let (mut each, mut remedy) = (Observations::default(), Vec::new());
    for cpu in case.cpus(&mut each) {
        if cpu.idle.is_empty() {
            each.unknown.push(format!(
                "{}/cpu{}/cpuidle is empty: the kernel does not choose idle states",
                crate::cpu::FOLDER,
                cpu.number
            ));
        }
        let limit = cpu.wake_limit_us.value().copied().flatten();
        let mut deepest = None;
        for state in &cpu.idle {
            let (Some(latency), Some(disabled)) = (state.latency_us.value(), state.disabled.value()) else {
                each.unknown(&state.latency_us);
                each.unknown(&state.disabled);
                continue;
            };
            let entered = !disabled && limit.is_none_or(|limit| *latency <= limit);
            if entered && deepest.as_ref().is_none_or(|(deep, _)| latency > deep) {
                deepest = Some((*latency, state));
            }
        }
        let Some((latency, state)) = deepest else { continue };
        if latency <= SHALLOW_US {
            each.fine.push(state.latency_us.evidence());
            continue;
        }
        let name = state.name.value().map_or("its deepest state", String::as_str);
        each.wrong(format!("core {} takes {latency} us to leave {name}", cpu.number), [state.latency_us.evidence()]);
        remedy.push(format!("echo {SHALLOW_US} > {}", cpu.wake_limit_us.path));
    }
    if each.wrong.is_empty() && each.unknown.is_empty() && case.host.kernel.is_virtual() {
        let fine: Vec<_> = each.fine.iter().map(Evidence::to_string).collect();
        let seen = fine.first().map(|seen| format!(" ({seen})")).unwrap_or_default();
        return Verdict::unknown(format!(
            "in a virtual machine, the host chooses the idle states of a halted core{seen}"
        ));
    }
    Verdict::of_each(
        each,
        |wrong| (State::May, listed(wrong), remedy),
        format!("all idle states take at most {SHALLOW_US} us to leave"),
    )
}
