//! One plain sentence for a reader whose machine was busy with something else: before all figures that suffer from it.

use forebay_graph::report::Report;

/// The share of a worker's time from which on it is said that the machine took its core away.
pub(crate) const LEAST: f64 = 0.01;

/// That the machine took cores of workers away, for how long, and what helps; `None` where it hardly did.
pub(crate) fn notice(report: &Report, when: &str) -> Option<String> {
    let robbed: Vec<_> = report.workers.iter().filter(|worker| worker.machine_stalls.share >= LEAST).collect();
    let most = robbed.iter().map(|worker| worker.machine_stalls.share).fold(0.0, f64::max);
    let cores: Vec<_> = robbed.iter().filter_map(|worker| worker.core).map(|core| core.to_string()).collect();
    let (cores, free) = match &cores[..] {
        [] => ("the worker's core".to_owned(), "the core"),
        [core] => (format!("core {core}"), "the core"),
        several => (format!("cores {}", several.join(", ")), "the cores"),
    };
    let up_to = if robbed.len() > 1 { "up to " } else { "" };
    let choose = if report.workers.len() > 1 { "give the workers other cores" } else { "use --core N" };
    (!robbed.is_empty()).then(|| {
        format!(
            "The machine took {cores} away for {up_to}{:.0} % of {when} (other processes): delays include that. \
             Free {free}, or {choose}.",
            most * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::report;

    #[test]
    fn a_busy_machine_is_named_with_what_helps() {
        let mut told = report(1);
        assert_eq!(notice(&told, "the time"), None);
        told.workers[0].machine_stalls.share = 0.384;
        let one = "The machine took core 1 away for 38 % of the time (other processes): delays include that. \
                   Free the core, or use --core N.";
        assert_eq!(notice(&told, "the time").as_deref(), Some(one));
        let mut second = told.workers[0].clone();
        (second.core, second.machine_stalls.share) = (Some(3), 0.1);
        told.workers.push(second);
        let two = "The machine took cores 1, 3 away for up to 38 % of the time (other processes): delays include that. \
                   Free the cores, or give the workers other cores.";
        assert_eq!(notice(&told, "the time").as_deref(), Some(two));
    }
}
