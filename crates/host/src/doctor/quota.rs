//! Checks that control groups do not limit the workers' CPU time.

use super::{Case, Check, Observations, State, Verdict, listed};
use crate::fact::Evidence;

pub(super) const CPU_QUOTA: Check = Check {
    id: "cpu-quota",
    looks_at: "no control group limits the process to less CPU time than its workers use",
    cost: "A worker uses all of its core's time. When a group's quota is used up, all its threads stop until the next \
           period. A period is 100 ms by default (Linux Documentation/scheduler/sched-bwc.rst).",
    fix: "`echo max > …/cpu.max`; for a container, `--cpus` of at least the number of workers; for a unit, no \
           `CPUQuota=`",
    judge: cpu_quota,
};

/// A quota below one CPU per worker costs performance.
fn cpu_quota(case: &Case<'_>) -> Verdict {
    let groups = &case.host.groups;
    if let Some(why) = &groups.unknown {
        return Verdict::unknown(why.to_string());
    }
    let workers = case.intent.workers.len();
    let (mut each, mut remedy) = (Observations::default(), Vec::new());
    for quota in &groups.quotas {
        match quota.cpus.value() {
            None => each.unknown(&quota.cpus),
            Some(Some(cpus)) if *cpus < workers as f64 => {
                let throttled = quota.throttled.value().filter(|times| **times > 0).map(|_| quota.throttled.evidence());
                let so_far = quota.throttled.value().map(|times| format!("; it was used up {times} times so far"));
                let what = format!(
                    "the quota is {cpus:.2} CPUs for {workers} worker{}{}",
                    if workers == 1 { "" } else { "s" },
                    so_far.unwrap_or_default()
                );
                each.wrong(what, [quota.cpus.evidence()].into_iter().chain(throttled));
                let none = if quota.cpus.path.ends_with("cpu.max") { "max" } else { "-1" };
                remedy.push(format!("echo {none} > {}", quota.cpus.path));
            }
            Some(_) => each.fine.push(quota.cpus.evidence()),
        }
    }
    if groups.quotas.is_empty() {
        each.fine.push(Evidence::derived("/proc/self/cgroup", "the process' group and its parents have no quota"));
    }
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), "no quota is set, or the quota is sufficient")
}
