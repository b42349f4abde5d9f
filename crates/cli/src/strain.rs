//! Short descriptions of a run's load: busy workers, losses at ports, and exhausted packet memory.

use forebay_protocol::report::{Report, WorkerReport};

use crate::format::short;

/// Maximum number of workers, or of ports with losses, that are listed one by one.
const MOST: usize = 8;

/// Formats the busy time of workers in percent. Up to [`MOST`] workers are listed one by one, so that an idle worker
/// can be seen.
pub(crate) fn busy(workers: &[WorkerReport], decimals: usize) -> String {
    let percent = |worker: &WorkerReport| worker.busy * 100.0;
    let all = workers.iter().map(percent);
    if workers.len() <= MOST {
        let each: Vec<_> = all.map(|busy| format!("{busy:.decimals$}")).collect();
        return if each.is_empty() { "n/a".to_owned() } else { format!("{} %", each.join("/")) };
    }
    let (least, most) =
        all.clone().fold((f64::MAX, 0.0), |(least, most): (f64, f64), busy| (least.min(busy), most.max(busy)));
    let mean = all.sum::<f64>() / workers.len() as f64;
    format!("{least:.decimals$} to {most:.decimals$} %, on average {mean:.decimals$} %")
}

/// Describes the losses of the interval `recent`: packets that ports lost before they entered, and packets for which
/// the pool had no memory. Returns `None` without losses.
pub(crate) fn losses(recent: &Report) -> Option<String> {
    let rate = |count: u64| short(if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 });
    let losing: Vec<_> = recent.ports.iter().filter(|port| port.dropped > 0).collect();
    let lost: u64 = losing.iter().map(|port| port.dropped).sum();
    let names: Vec<_> = losing.iter().map(|port| port.name.as_str()).collect();
    let at = if names.len() <= MOST { names.join(", ") } else { format!("{} ports", names.len()) };
    let ports = (lost > 0).then(|| format!("lost at {at} {} pps", rate(lost)));
    let pool = (recent.pool_exhausted > 0).then(|| format!("pool lacked {} pps", rate(recent.pool_exhausted)));
    let losses: Vec<_> = ports.into_iter().chain(pool).collect();
    (!losses.is_empty()).then(|| losses.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(busy: &[f64]) -> Vec<WorkerReport> {
        let worker = |(id, busy): (usize, &f64)| WorkerReport { id, busy: *busy, turns: 1, ..WorkerReport::default() };
        busy.iter().enumerate().map(worker).collect()
    }

    #[test]
    fn few_workers_are_listed_and_many_are_summarised() {
        assert_eq!(busy(&[], 0), "n/a");
        assert_eq!(busy(&workers(&[0.5]), 1), "50.0 %");
        assert_eq!(busy(&workers(&[0.98, 0.0, 1.0]), 0), "98/0/100 %");
        assert_eq!(busy(&workers(&[&[0.25][..], &[0.75; 9]].concat()), 0), "25 to 75 %, on average 70 %");
    }
}
