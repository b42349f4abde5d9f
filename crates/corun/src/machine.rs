//! Co-runs on this machine: each function runs on its own core in the regular engine, and synthetic competitors are
//! threads.
//!
//! The source of a function always has packets, so the function runs as fast as it can. A span counts only if no packet
//! was lost and all cores were available: other programs and the host of a virtual machine together may have had a core
//! for at most the share [`ALLOWED`] of the span.

mod look;
mod seats;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_bench::hardware::Watch;
use forebay_host::Tree;
use forebay_instance::{ControlInputs, Cores, Instance, PipelineCounters, WorkerThread};
use forebay_measure::{Clock, Tsc, events::Event, machine::pin_to};
use forebay_pipeline::Conditions;
use forebay_protocol::{SchedulerKind, report::Report};
use forebay_units::wording::counted;

use crate::bandwidth;
use crate::record::{Competitor, Load, Sample, Seats, Span};
use crate::session::{Bench, Trouble};
use crate::subject::Subject;
use crate::synthetic::{Demand, Lines, Memory};
use look::{QuickSnapshot, SlowSnapshot};

pub use seats::{Caches, SeatsError, caches, seats};

/// A span counts only if other programs and the host together had each of the cores for at most this share of it.
pub const ALLOWED: f64 = 0.01;
/// The largest number of attempts to measure a span that counts.
const TRIES: usize = 10;
/// The time that a function runs before it is measured, so that tables and caches fill.
const WARM_UP: Duration = Duration::from_millis(30);
/// The time between the start or end of competitors and the next span. In this time, competitors fill the shared cache,
/// or the function fills it again.
const SETTLE: Duration = Duration::from_millis(15);
/// The time for which this thread leaves its core before a span begins. The kernel counts a wait only when the wait is
/// over. Because of this pause, the time that this thread took from other threads is counted before the span.
const LEAVE: Duration = Duration::from_millis(5);
/// The longest time between two checks of the stop flag.
const LOOK: Duration = Duration::from_millis(100);

/// A running function.
struct Running {
    instance: Arc<dyn Instance>,
    /// The counters of its pipeline.
    board: Arc<PipelineCounters>,
    /// Its worker threads.
    threads: Vec<WorkerThread>,
}

/// A running competitor.
enum Rival {
    /// Another function.
    Function(Running),
    /// A thread that uses caches and memory. It ends when `stop` is set, and counts its work in `lines`.
    Synthetic { stop: Arc<AtomicBool>, lines: Arc<Lines>, thread: JoinHandle<()>, tid: u32, core: usize },
}

/// A bench that runs on this machine's cores.
pub struct Machine {
    seats: Seats,
    /// The functions by key.
    subjects: BTreeMap<String, Subject>,
    /// The length of a span.
    span: Duration,
    /// Set if the user has interrupted the measurement.
    stop: Arc<AtomicBool>,
    /// The demands for which the memory of synthetic competitors is allocated.
    demands: Vec<Demand>,
    /// A size in bytes that exceeds all caches.
    beyond: usize,
    /// The memory of each competitor's core. It is allocated when it is first needed.
    memories: BTreeMap<usize, Arc<Mutex<Memory>>>,
    /// The running function, and the counters of its thread.
    running: Option<(Running, Watch)>,
    /// The last solo span, if no competitor has run since. It is also the first solo span of the next sample.
    alone: Option<Span>,
    /// The figures that are missing from spans, with the reasons.
    unavailable: BTreeMap<String, String>,
    tree: Tree,
}

impl Machine {
    /// Creates a bench for the functions `subjects` on the cores `seats`, with spans of the length `span`. `demands`
    /// are the demands of all synthetic competitors, and `beyond` is a size in bytes that exceeds all caches. Setting
    /// `stop` ends a measurement.
    #[must_use]
    pub fn new(
        seats: Seats,
        subjects: &[Subject],
        demands: &[Demand],
        beyond: usize,
        span: Duration,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let subjects = subjects.iter().map(|subject| (subject.key.clone(), subject.clone())).collect();
        let (memories, unavailable) = (BTreeMap::new(), BTreeMap::new());
        let (demands, tree) = (demands.to_vec(), Tree::default());
        Self { seats, subjects, span, stop, demands, beyond, memories, running: None, alone: None, unavailable, tree }
    }

    /// Starts competitors, one on each core. Competitors beyond the number of cores are ignored. If one of them cannot
    /// run, ends the others and returns an error. The caller ends the returned competitors by [`leave`].
    fn join(&mut self, competitors: &[Competitor]) -> Result<Vec<Rival>, Trouble> {
        let mut rivals = Vec::new();
        let cores = self.seats.competitors.clone();
        for (competitor, core) in competitors.iter().zip(cores) {
            let rival = match competitor {
                Competitor::Function(key) => match self.subjects.get(key) {
                    Some(subject) => start(subject, core).map(Rival::Function),
                    None => Err(Trouble::Failed(format!("the competitor {key} is not among the functions"))),
                },
                Competitor::Synthetic(demand) => self.synthetic(*demand, core),
            };
            match rival {
                Ok(rival) => rivals.push(rival),
                Err(trouble) => {
                    let _ = leave(rivals);
                    // The function itself can run, so only this run does not count.
                    return Err(match trouble {
                        Trouble::Failed(why) => Trouble::Void(format!("a competitor cannot run: {why}")),
                        trouble => trouble,
                    });
                }
            }
        }
        Ok(rivals)
    }

    /// Starts a synthetic competitor on a core.
    fn synthetic(&mut self, demand: Demand, core: usize) -> Result<Rival, Trouble> {
        let (demands, beyond) = (self.demands.clone(), self.beyond);
        let memory = Arc::clone(self.memories.entry(core).or_default());
        let (stop, lines) = (Arc::new(AtomicBool::new(false)), Arc::new(Lines::default()));
        let (report, reported) = channel();
        let thread = {
            let (stop, lines) = (Arc::clone(&stop), Arc::clone(&lines));
            std::thread::spawn(move || {
                let pinned = pin_to(core).map(|()| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                if pinned.is_ok() && !memory.has(demand) {
                    // This thread allocates the memory, so that the pages are on the node of its core.
                    *memory = Memory::new(&demands, beyond);
                }
                let may_begin = pinned.is_ok();
                let _ = report.send(pinned);
                if may_begin {
                    memory.compete(demand, &stop, &lines);
                }
            })
        };
        match reported.recv() {
            Ok(Ok(tid)) => Ok(Rival::Synthetic { stop, lines, thread, tid, core }),
            Ok(Err(error)) => Err(Trouble::Failed(format!("core {core}: {error}"))),
            Err(_) => Err(Trouble::Failed(format!("core {core}: the synthetic competitor ended"))),
        }
    }

    /// Measures a span that counts, in up to `TRIES` attempts. Returns the span and the load of each competitor. The
    /// function must have been started.
    fn span(&mut self, rivals: &[Rival]) -> Result<(Span, Vec<Load>), Trouble> {
        let mut why = String::new();
        for _ in 0..TRIES {
            match self.one_span(rivals)? {
                Ok(found) => return Ok(found),
                Err(reason) => why = reason,
            }
        }
        Err(Trouble::Void(why))
    }

    /// Measures a span. The inner error is the reason why the span does not count.
    fn one_span(&mut self, rivals: &[Rival]) -> Result<Result<(Span, Vec<Load>), String>, Trouble> {
        let slow = SlowSnapshot::take(&self.tree);
        sleep(LEAVE, &self.stop)?;
        let Some((running, watch)) = &mut self.running else {
            return Err(Trouble::Failed("no function was started".to_owned()));
        };
        watch.restart();
        let before = QuickSnapshot::take(running, rivals);
        sleep(self.span, &self.stop)?;
        let after = QuickSnapshot::take(running, rivals);
        let counted = watch.counted();
        let slow = SlowSnapshot::take(&self.tree).since(&slow);
        let report = running.board.report(&before.packets, &after.packets);
        let seconds = report.duration_s;
        if running.instance.has_died() || rivals.iter().any(Rival::has_died) {
            return Err(Trouble::Failed("its pipeline ended".to_owned()));
        }
        let waited = after.waited_since(&before, seconds);
        let away: Vec<_> = waited.map(|(core, share)| share + slow.stolen(core)).collect();
        let pairs = rivals.iter().zip(before.work.iter().zip(&after.work));
        let loads: Vec<_> = pairs.map(|(rival, (before, after))| rival.load(before, after, seconds)).collect();
        if let Some(why) = void(&away, &loads, &report) {
            return Ok(Err(why));
        }
        let sum = |event: Event| counted.workers.first().and_then(|(_, counts)| counts.get(&event).copied());
        let stalls = sum(Event::StalledFrontend).zip(sum(Event::StalledBackend)).map(|(front, back)| front + back);
        for (name, event) in crate::metric::COUNTED {
            if let Some(reason) = counted.unavailable.get(event) {
                self.unavailable.insert((*name).to_owned(), reason.clone());
            }
        }
        if slow.bytes_per_second.is_none() {
            self.unavailable.insert(crate::metric::BANDWIDTH.to_owned(), bandwidth::WHY_NOT.to_owned());
        }
        let span = Span {
            seconds,
            packets: report.packets.entered,
            away: away.first().copied().unwrap_or(0.0),
            instructions: sum(Event::Instructions),
            stalls,
            llc_misses: sum(Event::LlcMisses),
            memory_bytes: slow.bytes_per_second.map(|bytes| bytes * seconds),
        };
        Ok(Ok((span, loads)))
    }
}

impl Bench for Machine {
    fn begin(&mut self, subject: &Subject) -> Result<(), Trouble> {
        let running = start(subject, self.seats.subject)?;
        let watch = Watch::begin(&running.threads);
        self.running = Some((running, watch));
        self.alone = None;
        let warmed_up = sleep(WARM_UP, &self.stop);
        if warmed_up.is_err() {
            // The caller does not end a function whose start has failed.
            let _ = self.end();
        }
        warmed_up
    }

    fn sample(&mut self, competitors: &[Competitor]) -> Result<Sample, Trouble> {
        let before = match self.alone.take() {
            Some(span) => span,
            None => self.span(&[])?.0,
        };
        let rivals = self.join(competitors)?;
        let beside = sleep(SETTLE, &self.stop).and_then(|()| self.span(&rivals));
        let ended = leave(rivals);
        let ((beside, loads), ()) = (beside?, ended?);
        sleep(SETTLE, &self.stop)?;
        let (after, _) = self.span(&[])?;
        self.alone = Some(after);
        Ok(Sample { competitors: competitors.to_vec(), pass: 0, before, beside, after, loads })
    }

    fn end(&mut self) -> Result<(), Trouble> {
        self.alone = None;
        self.running.take().map_or(Ok(()), |(running, _)| running.end())
    }

    fn unavailable(&self) -> Vec<(String, String)> {
        self.unavailable.iter().map(|(name, why)| (name.clone(), why.clone())).collect()
    }
}

/// Sleeps for `time`. Returns [`Trouble::Interrupted`] if `stop` is set before the end.
fn sleep(time: Duration, stop: &AtomicBool) -> Result<(), Trouble> {
    let began = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Trouble::Interrupted);
        }
        let rest = time.saturating_sub(began.elapsed());
        if rest.is_zero() {
            return Ok(());
        }
        std::thread::sleep(rest.min(LOOK));
    }
}

/// Starts a function on a core, with as many packets as it accepts.
fn start(subject: &Subject, core: usize) -> Result<Running, Trouble> {
    let failed = |error: &dyn std::fmt::Display| Trouble::Failed(error.to_string());
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let prepared = forebay_pipeline::prepare(&subject.source, conditions, None).map_err(|error| failed(&error))?;
    if let Some((writer, file)) = prepared.writes().first() {
        let advice = "generated packets would fill it: use /dev/null instead";
        return Err(Trouble::Failed(format!("{writer} writes {file}: {advice}")));
    }
    let mut loaded = prepared.open().map_err(|error| failed(&error))?;
    for plan in &mut loaded.plans {
        plan.scheduler = SchedulerKind::RunToCompletion;
        plan.scheduled_sources().for_each(|source| source.saturate());
    }
    let cores = Cores::from(&[core][..]);
    let instance =
        forebay_instance::start(loaded.plans, cores, loaded.made, Box::new(|_| None), ControlInputs::default());
    let instance = instance.map_err(|error| failed(&error))?;
    Ok(Running { board: instance.board(), threads: instance.threads(), instance })
}

/// Ends all competitors. Returns an error if one of them has failed.
fn leave(rivals: Vec<Rival>) -> Result<(), Trouble> {
    let mut ended = Ok(());
    for rival in rivals {
        match rival {
            Rival::Function(running) => ended = ended.and(running.end()),
            Rival::Synthetic { stop, thread, .. } => {
                stop.store(true, Ordering::Relaxed);
                if thread.join().is_err() {
                    ended = Err(Trouble::Failed("the synthetic competitor failed".to_owned()));
                }
            }
        }
    }
    ended
}

/// Returns the reason why a span does not count; `None` if it counts. `away` contains the share of the span for which
/// each thread had no core.
fn void(away: &[f64], loads: &[Load], report: &Report) -> Option<String> {
    let most = away.iter().copied().fold(0.0, f64::max);
    if most > ALLOWED {
        // The kernel counts a wait when it is over. So the wait may have begun before the span, and the share may
        // exceed 1.
        let percent = (most * 100.0).min(100.0);
        return Some(format!("other programs or the host used a core for {percent:.1} % of the time"));
    }
    // A wait that still continues is not counted yet. It is visible only because the competitor did no work.
    if loads.iter().any(|load| load.packets + load.walked + load.streamed == 0.0) {
        return Some("a competitor did no work, because another program used its core".to_owned());
    }
    lost(report).or_else(|| (report.packets.entered == 0).then(|| "no packet entered".to_owned()))
}

/// Returns the reason if packets were lost for lack of time or space; `None` otherwise. Packets that a function drops
/// by its rules are not lost.
fn lost(report: &Report) -> Option<String> {
    let ports: u64 = report.ports.iter().map(|port| port.dropped + port.refused + port.errors).sum();
    let queues = report.packets.dropped.iter().filter(|(reason, _)| reason.ends_with(".backpressure"));
    let lost = ports + report.packets.lost + queues.map(|(_, count)| count).sum::<u64>();
    (lost > 0).then(|| format!("{} lost", counted(lost, "packet")))
}

impl Running {
    /// Ends the function. Returns an error if it has failed.
    fn end(self) -> Result<(), Trouble> {
        match self.instance.end().troubles.into_iter().next() {
            Some((place, trouble)) => Err(Trouble::Failed(format!("{place}: {trouble}"))),
            None => Ok(()),
        }
    }
}

impl Rival {
    /// Returns the threads whose waits are counted.
    fn threads(&self) -> Vec<WorkerThread> {
        match self {
            Self::Function(running) => running.threads.clone(),
            Self::Synthetic { tid, core, .. } => vec![WorkerThread { worker: 0, core: *core, tid: *tid }],
        }
    }

    /// Returns true if the competitor has ended without being stopped.
    fn has_died(&self) -> bool {
        match self {
            Self::Function(running) => running.instance.has_died(),
            Self::Synthetic { thread, .. } => thread.is_finished(),
        }
    }
}

#[cfg(test)]
mod tests;
