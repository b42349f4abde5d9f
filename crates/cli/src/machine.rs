//! A warning that the machine ran other programs on the workers' cores, for all figures that this affects.

use forebay_protocol::report::Report;

/// The fraction of a worker's time without its core from which the warning is printed.
pub(crate) const LEAST: f64 = 0.01;

/// Returns a warning that workers' cores ran other work: for how long, why, and the remedy. `when` names the time of
/// the report. Returns `None` if the fraction of time is below [`LEAST`] for every worker.
pub(crate) fn notice(report: &Report, when: &str) -> Option<String> {
    let preempted: Vec<_> = report.workers.iter().filter(|worker| worker.without_core() >= LEAST).collect();
    let most = preempted.iter().max_by(|a, b| a.without_core().total_cmp(&b.without_core()))?;
    let cores: Vec<_> = preempted.iter().filter_map(|worker| worker.core).map(|core| core.to_string()).collect();
    let (cores, the_cores) = match &cores[..] {
        [] => ("The worker's core".to_owned(), "the core"),
        [core] => (format!("Core {core}"), "the core"),
        several => (format!("Cores {}", several.join(", ")), "the cores"),
    };
    let up_to = if preempted.len() > 1 { "up to " } else { "" };
    let choose = if report.workers.len() > 1 { "give the workers other cores" } else { "use --core N" };
    let (steal, wait) = (most.machine_time.steal, most.machine_time.wait);
    let (cause, remedy) = match (steal, wait) {
        (Some(steal), wait) if steal > wait.unwrap_or(0.0) => {
            ("the host of this virtual machine", format!("Reserve {the_cores} on the host"))
        }
        (_, Some(_)) => ("other processes", format!("Free {the_cores}")),
        (_, None) => ("other processes, or the host", format!("Free {the_cores}")),
    };
    let share = most.without_core() * 100.0;
    Some(format!(
        "{cores} ran other work for {up_to}{share:.0} % of {when} ({cause}): delays include this time. {remedy}, or \
         {choose}."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::report;

    #[test]
    fn a_busy_machine_is_named_with_what_helps() {
        let mut report = report(1);
        assert_eq!(notice(&report, "the time"), None);
        report.workers[0].machine_time.wait = Some(0.384);
        let one = "Core 1 ran other work for 38 % of the time (other processes): delays include this time. \
                   Free the core, or use --core N.";
        assert_eq!(notice(&report, "the time").as_deref(), Some(one));
        let mut second = report.workers[0].clone();
        (second.core, second.machine_time.wait) = (Some(3), Some(0.1));
        report.workers.push(second);
        let two = "Cores 1, 3 ran other work for up to 38 % of the time (other processes): delays include this time. \
                   Free the cores, or give the workers other cores.";
        assert_eq!(notice(&report, "the time").as_deref(), Some(two));
        report.workers.truncate(1);
        report.workers[0].machine_time.steal = Some(0.4);
        let host = "Core 1 ran other work for 78 % of the time (the host of this virtual machine): delays \
                    include this time. Reserve the core on the host, or use --core N.";
        assert_eq!(notice(&report, "the time").as_deref(), Some(host));
        // If the system has no counts, the length of turns is used.
        report.workers[0].machine_time = Default::default();
        report.workers[0].machine_stalls.share = 0.5;
        let host = "Core 1 ran other work for 50 % of the time (other processes, or the host): delays include \
                    this time. Free the core, or use --core N.";
        assert_eq!(notice(&report, "the time").as_deref(), Some(host));
    }
}
