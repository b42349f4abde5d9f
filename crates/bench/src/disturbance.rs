//! Measures the disturbance of a worker in a span of time: what the system did with its core.
//!
//! Another thread reads all values from `/proc`, at both ends of the span, so the worker is not slowed down. The
//! time-stamp counter continues to count while another program has the core. The values from `/proc` show for how long
//! the worker did not have its core.

use std::collections::BTreeMap;

use forebay_instance::WorkerThread;
use forebay_measure::{
    Clock, Tsc,
    away::{scheduled, stolen},
};
use forebay_units::{Nanos, Ticks};
use serde::{Deserialize, Serialize};

/// The disturbance of a worker's thread in a span. Figures that the system does not provide are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// The worker.
    pub worker: usize,
    /// The span, in seconds.
    pub span_s: f64,
    /// The time for which the thread ran, in seconds. The kernel updates this at its timer ticks (some milliseconds).
    pub cpu_s: Option<f64>,
    /// The time for which the thread was ready but had no core, in seconds.
    pub waited_s: Option<f64>,
    /// The number of times that the kernel took the core from the thread.
    pub preemptions: Option<u64>,
    /// The number of page faults.
    pub page_faults: Option<u64>,
    /// The time for which the host of this virtual machine used the thread's core, in seconds. Its resolution is 10 ms.
    pub stolen_s: Option<f64>,
}

/// The share of a span that a worker may be without its core. If the share is larger, the pipeline may not be the cause
/// of lost packets. The value is half of the final distance between the bounds of a search, so a tolerated disturbance
/// cannot move the bounds.
pub const TOLERATED: f64 = 0.0025;

impl Disturbance {
    /// Returns the share of the span in which the worker was ready but had no core, as far as the system reports it.
    #[must_use]
    pub fn away(&self) -> f64 {
        let away = self.waited_s.unwrap_or(0.0) + self.stolen_s.unwrap_or(0.0);
        if self.span_s > 0.0 { away / self.span_s } else { 0.0 }
    }

    /// True if the worker had no core for more than [`TOLERATED`] of the span. Then the losses of the span do not
    /// characterise the pipeline.
    #[must_use]
    pub fn voids(&self) -> bool {
        self.away() > TOLERATED
    }

    /// Returns the share of the span in which the worker wanted no core: it slept or waited.
    #[must_use]
    pub fn slept(&self) -> Option<f64> {
        let active = self.cpu_s? + self.waited_s? + self.stolen_s.unwrap_or(0.0);
        (self.span_s > 0.0).then(|| (1.0 - active / self.span_s).clamp(0.0, 1.0))
    }
}

/// The system's counts for threads up to a point in time.
#[derive(Clone, Debug)]
pub struct Witness {
    at: Ticks,
    threads: Vec<(WorkerThread, Thread)>,
    /// By core: seconds for which the host of this virtual machine used the core.
    stolen: BTreeMap<usize, f64>,
}

/// A thread's counts since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Thread {
    /// Seconds for which it ran, and for which it waited for a core.
    scheduled: Option<(f64, f64)>,
    preemptions: Option<u64>,
    page_faults: Option<u64>,
}

impl Witness {
    /// Reads the counts of these threads of this process now.
    #[must_use]
    pub fn look(threads: &[WorkerThread]) -> Self {
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let threads = threads.iter().map(|thread| {
            let file = |name: &str| read(format!("/proc/self/task/{}/{name}", thread.tid));
            let counts = Thread {
                scheduled: scheduled(thread.tid).map(|(ran, waited)| (seconds(ran), seconds(waited))),
                preemptions: preemptions(&file("status")),
                page_faults: page_faults(&file("stat")),
            };
            (*thread, counts)
        });
        let threads = threads.collect();
        let stolen = stolen().into_iter().map(|(core, stolen)| (core, seconds(stolen))).collect();
        Self { at: Tsc.now(), threads, stolen }
    }

    /// Returns the disturbances since `earlier`, by worker. A thread that only one of the two readings has is left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Vec<Disturbance> {
        let span_s = Tsc.frequency().seconds(self.at.since(earlier.at));
        let before =
            |thread: &WorkerThread| earlier.threads.iter().find(|(other, _)| other == thread).map(|(_, counts)| counts);
        let pairs = self.threads.iter().filter_map(|(thread, now)| Some((thread, before(thread)?, now)));
        let counted = |before: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(before?));
        pairs
            .map(|(thread, before, now)| {
                let scheduled = before.scheduled.zip(now.scheduled);
                let stolen = earlier.stolen.get(&thread.core).zip(self.stolen.get(&thread.core));
                Disturbance {
                    worker: thread.worker,
                    span_s,
                    cpu_s: scheduled.map(|(before, now)| (now.0 - before.0).max(0.0)),
                    waited_s: scheduled.map(|(before, now)| (now.1 - before.1).max(0.0)),
                    preemptions: counted(before.preemptions, now.preemptions),
                    page_faults: counted(before.page_faults, now.page_faults),
                    stolen_s: stolen.map(|(before, now)| (now - before).max(0.0)),
                }
            })
            .collect()
    }
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

/// Reads the number of preemptions from `/proc/PID/task/TID/status`.
fn preemptions(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Reads minor and major page faults from `/proc/PID/task/TID/stat` (proc_pid_stat(5)), the tenth and the twelfth
/// field. The second field is a name in parentheses, which may contain spaces.
fn page_faults(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(10)? + field(12)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_systems_files_are_read() {
        let status = "Name:\tworker-0\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!((preemptions(status), preemptions("Name:\ta\n")), (Some(545), None));
        // A name can look like fields.
        let stat = "77 (a) R 1 (b) R 1 77 77 0 -1 4194304 300 5 2 9 10 11 0 0 20 0 1 0 5 0 0\n";
        assert_eq!((page_faults(stat), page_faults("77 (a"), page_faults("77 (a) R 1")), (Some(302), None, None));
    }

    #[test]
    fn a_span_without_a_core_is_void() {
        let quiet = Disturbance {
            worker: 0,
            span_s: 2.0,
            cpu_s: Some(2.0),
            waited_s: Some(0.004),
            preemptions: Some(3),
            page_faults: Some(0),
            stolen_s: None,
        };
        assert!(!quiet.voids());
        assert!(Disturbance { waited_s: Some(0.006), ..quiet }.voids());
        assert!(Disturbance { stolen_s: Some(0.01), ..quiet }.voids());
        assert!(!Disturbance { waited_s: None, ..quiet }.voids(), "no figure is known");
    }

    /// A thread that spins and touches new pages, observed from another thread.
    #[test]
    fn a_thread_is_watched_from_outside() {
        let (stop, (sender, numbers)) = (Arc::new(AtomicBool::new(false)), channel());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let _ = sender.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            let mut pages = 0;
            while !stopped.load(Ordering::Relaxed) || pages < 512 {
                // The size is above what an allocator keeps, so the memory is new each time and released at once.
                let mut memory = vec![0u8; 64 << 20];
                memory.iter_mut().step_by(2 << 20).for_each(|byte| *byte = std::hint::black_box(1));
                pages += std::hint::black_box(&memory).len() / (2 << 20);
            }
        });
        let thread_known = WorkerThread { worker: 3, core: 0, tid: numbers.recv().expect("it runs") };
        let before = Witness::look(&[thread_known]);
        // Waits until the thread has run for some time, however busy the machine is.
        let disturbance = loop {
            std::thread::sleep(Duration::from_millis(20));
            let disturbances = Witness::look(&[thread_known]).since(&before);
            if disturbances[0].cpu_s.is_none_or(|seconds| seconds > 0.01) {
                break disturbances[0];
            }
        };
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("it ends well");
        assert_eq!(disturbance.worker, 3);
        let Some(cpu) = disturbance.cpu_s else {
            drop(std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("skipped: this system has no /proc/self/task/TID/schedstat\n"),
            ));
            return;
        };
        assert!(cpu <= disturbance.span_s + 0.1 && disturbance.span_s > 0.0, "{disturbance:?}");
        assert!(disturbance.page_faults.is_some_and(|faults| faults > 0), "{disturbance:?}");
        // A thread that has ended is unknown. It may be joined a moment before the kernel removes it.
        loop {
            let gone = Witness::look(&[thread_known]).since(&before);
            if (gone[0].cpu_s, gone[0].page_faults) == (None, None) {
                break;
            }
            std::thread::yield_now();
        }
    }
}
