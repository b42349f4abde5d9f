//! Whether control groups leave workers the time that they take.

use super::{Case, Check, Each, State, Verdict, listed};
use crate::fact::Evidence;

pub(super) const CPU_QUOTA: Check = Check {
    id: "cpu-quota",
    looks_at: "no control group limits the process to less CPU time than its workers take",
    cost: "A worker takes all of its core's time. Once a group's quota is used up all its threads stand still until the next \
           period, 100 ms long unless set otherwise (Linux Documentation/scheduler/sched-bwc.rst).",
    mend: "`echo max > …/cpu.max`, of a container `--cpus` no less than its workers, of a unit no `CPUQuota=`",
    judge: cpu_quota,
};

fn cpu_quota(case: &Case<'_>) -> Verdict {
    let groups = &case.host.groups;
    if let Some(why) = &groups.unknown {
        return Verdict::unknown(why.to_string());
    }
    let workers = case.intent.workers.len();
    let (mut each, mut remedy) = (Each::default(), Vec::new());
    for quota in &groups.quotas {
        match quota.cpus.value() {
            None => each.unknown(&quota.cpus),
            Some(Some(cpus)) if *cpus < workers as f64 => {
                let throttled = quota.throttled.value().filter(|times| **times > 0).map(|_| quota.throttled.evidence());
                let so_far = quota.throttled.value().map(|times| format!(", and was used up {times} times so far"));
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
        each.fine.push(Evidence::derived("/proc/self/cgroup", "no group of the process, or above it, has a quota"));
    }
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), "there is none, or one that is wide enough")
}
