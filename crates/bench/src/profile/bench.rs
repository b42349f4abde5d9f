//! Measures one function in the running engine: the time of a call, for each batch size.
//!
//! The pipeline is the same as for the gate, with a source that always has packets. A trigger makes the module run on
//! batches of exactly one size. The trigger changes while packets run: in each round, to every size in ascending or in
//! descending order, so that a disturbance affects all sizes. Load on the same physical core only adds time to a call.
//! Therefore the lower quartile of all rounds counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_instance::{Cores, Instance, Outcome, PipelineCounters, choose};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source};
use forebay_protocol::{
    Action, SchedulerKind,
    report::{Report, WorkerReport},
};
use forebay_units::Nanos;

use super::fit::quartile;
use super::{Effort, ProfileError};

/// The time for which the pipeline runs before the measurement begins: tables and caches fill.
const WARM_UP: Duration = Duration::from_millis(10);
/// The time after a change of the trigger until no packets of the previous trigger remain.
pub(super) const SETTLE: Duration = Duration::from_millis(1);
/// The hold time of all modules. It is so long that packets always wait for a full batch.
const HOLD: Nanos = Nanos(1_000_000_000);
/// If no call was timed in a span, because the machine stalled, the span is extended by its length. The measurement
/// fails after this many extensions, but not before [`PATIENCE`] is over.
const TRIES: usize = 200;
/// A measurement without a timed call does not fail before this time is over (see [`TRIES`]): a machine stall may be
/// much longer than a span.
const PATIENCE: Duration = Duration::from_secs(20);
/// If other programs had the core for more than this share of a span, the size is measured again in a span half as
/// long. In a shorter span, it is more likely that no other program runs. The kernel counts a wait when it is over,
/// which may be in the next span.
const ALONE: f64 = 0.001;
/// A span belongs to a batch size if its mean batch differs from this size by at most this share of the size.
const ROUNDING: f64 = 0.01;
/// The largest number of spans for one size in one round. The last of them is kept even if its mean batch differs from
/// the size.
const AGAIN: u32 = 6;
/// The shortest span.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
/// If a size has at least this many undisturbed rounds, its other rounds do not count.
const ENOUGH: usize = 4;
/// If a module receives no packet in this time, and the worker had [`TURNS`] busy turns in it, the module is
/// unreachable.
const COMES: Duration = Duration::from_secs(3);
/// The number of busy turns that show that the worker ran (see [`COMES`]).
const TURNS: u64 = 1000;

/// The time of calls, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// The batch size for which the modules were set.
    pub(super) size: usize,
    /// Packets per call.
    pub(super) packets: f64,
    /// Ticks per call, as the engine's stopwatch measures them.
    pub(super) call: f64,
    /// Calls per packet that entered the pipeline.
    pub(super) calls: f64,
    /// Ticks of the whole pipeline per packet that entered it.
    pub(super) whole: f64,
    /// The share of the time in which other programs or the host had the core.
    pub(super) away: f64,
}

impl Sample {
    /// Returns true if the mean batch is the batch size. If it is not, the span contains calls with another size, or
    /// the thread that reads the counters lost its core between the number of calls and the number of packets.
    fn is_of_size(&self) -> bool {
        let size = self.size as f64;
        (self.packets - size).abs() <= ROUNDING * size
    }
}

/// The measurements of a function.
#[derive(Default)]
pub(super) struct Measured {
    /// By batch size: the sample of each round.
    samples: Vec<Vec<Sample>>,
    /// The seconds in which other programs or the host had the core, and the seconds of all spans.
    stalled: (f64, f64),
}

impl Measured {
    /// Adds the rounds of a later measurement with the same sizes.
    pub(super) fn add(&mut self, more: Self) {
        self.samples.resize_with(more.samples.len(), Vec::new);
        self.samples.iter_mut().zip(more.samples).for_each(|(all, more)| all.extend(more));
        self.stalled = (self.stalled.0 + more.stalled.0, self.stalled.1 + more.stalled.1);
    }

    /// Returns, by batch size, the lower quartile of the undisturbed rounds. If there are fewer than [`ENOUGH`] of
    /// them, all rounds count. Samples whose mean batch differs from the size count only if the size has no others.
    /// `None` if a size has no sample.
    pub(super) fn sizes(&self) -> Option<Vec<Sample>> {
        let size = |samples: &Vec<Sample>| {
            let of_size: Vec<_> = samples.iter().filter(|sample| sample.is_of_size()).copied().collect();
            let samples = if of_size.is_empty() { samples } else { &of_size };
            let alone: Vec<_> = samples.iter().filter(|sample| sample.away <= ALONE).copied().collect();
            let counted = if alone.len() >= ENOUGH { &alone } else { samples };
            let of = |figure: fn(&Sample) -> f64| quartile(counted.iter().map(figure).collect());
            Some(Sample {
                size: samples.first()?.size,
                packets: of(|sample| sample.packets)?,
                call: of(|sample| sample.call)?,
                calls: of(|sample| sample.calls)?,
                whole: of(|sample| sample.whole)?,
                away: of(|sample| sample.away)?,
            })
        };
        self.samples.iter().map(size).collect()
    }

    /// Returns the share of the time in which other programs or the host had the core.
    pub(super) fn stalled(&self) -> f64 {
        let (stalled, all) = self.stalled;
        if all > 0.0 { stalled / all } else { 0.0 }
    }
}

/// Returns the batch sizes to measure: powers of two below the largest batch, and the largest batch.
pub(super) fn sizes(batch: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|size| *size < batch);
    powers.chain([batch]).collect()
}

/// Measures the function in `source`, whose first module must be this function. Runs on `cores`, which are chosen at
/// the first call. `name` is for errors.
pub(super) fn measure(
    name: &str,
    source: &Source,
    effort: &Effort,
    cores: &mut Option<Cores>,
) -> Result<Measured, ProfileError> {
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { mut plans, cores: wanted, made, .. } = forebay_pipeline::load(source, conditions)?;
    for plan in &mut plans {
        // The configured scheduler is not used: with one module, weights do not matter, and the weighted-fair scheduler
        // would time all calls of some turns.
        plan.scheduler = SchedulerKind::RunToCompletion;
        plan.scheduled_sources().for_each(|source| source.saturate());
    }
    let cores = match cores {
        Some(cores) => cores,
        None => cores.insert(choose(&wanted)?),
    };
    let modules = plans[0].modules.len();
    let instance =
        forebay_instance::start(plans, &*cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default())?;
    let measured = fill(&*instance, modules, effort.batch).and_then(|()| rounds(&*instance, effort, &[0]));
    let Outcome { troubles, .. } = instance.end();
    let measured = measured.map_err(|reason| ProfileError::Trouble { function: name.to_owned(), reason })?;
    match troubles.into_iter().next() {
        Some((part, trouble)) => {
            Err(ProfileError::Trouble { function: name.to_owned(), reason: format!("{part}: {trouble}") })
        }
        None => Ok(measured),
    }
}

/// Waits for `span`, then returns, for each module, true if it has received packets since the start.
pub(super) fn reached(instance: &dyn Instance, span: Duration) -> Vec<bool> {
    let board = instance.board();
    std::thread::sleep(span);
    let report = board.report(&board.nothing(), &board.read(Tsc.now()));
    report.modules.iter().map(|module| module.packets > 0).collect()
}

/// Makes all modules of a pipeline wait for full batches. `modules` is their number. Called before [`rounds`].
pub(super) fn fill(instance: &dyn Instance, modules: usize, batch: usize) -> Result<(), String> {
    let wait = |module| [Action::SetHold { module, hold: HOLD }, Action::SetTrigger { module, trigger: batch }];
    instance.act(&(0..modules).flat_map(wait).collect::<Vec<_>>())
}

/// Measures modules that do the same work, with each size of [`sizes`]; the samples are in the order of these sizes.
/// All of `modules` get batches of the measured size, and the first one is timed. Afterwards, and if a size cannot be
/// measured, these modules wait for full batches again. The error is a text for the user: the reason.
pub(super) fn rounds(instance: &dyn Instance, effort: &Effort, modules: &[usize]) -> Result<Measured, String> {
    let (board, sizes) = (instance.board(), sizes(effort.batch));
    let mut measured = Measured { samples: vec![Vec::new(); sizes.len()], stalled: (0.0, 0.0) };
    let set = |trigger| {
        let each = modules.iter().map(|&module| Action::SetTrigger { module, trigger });
        instance.act(&each.collect::<Vec<_>>())
    };
    std::thread::sleep(WARM_UP);
    for round in 0..effort.rounds {
        for step in 0..sizes.len() {
            let at = if round % 2 == 0 { step } else { sizes.len() - 1 - step };
            set(sizes[at])?;
            std::thread::sleep(SETTLE);
            for again in 0..AGAIN {
                let span = effort.span(sizes.len()) / 2_u32.pow(again);
                let (sample, seconds) = match look(instance, &board, span.max(SHORTEST), modules, sizes[at]) {
                    Ok(found) => found,
                    Err(why) => {
                        // While the next module is measured, these modules wait for full batches.
                        set(effort.batch)?;
                        return Err(format!("no call on {} packets was timed: {why}", sizes[at]));
                    }
                };
                measured.stalled = (measured.stalled.0 + sample.away * seconds, measured.stalled.1 + seconds);
                if sample.is_of_size() || again + 1 == AGAIN {
                    measured.samples[at].push(sample);
                }
                if sample.is_of_size() && sample.away <= ALONE {
                    break;
                }
            }
        }
    }
    set(effort.batch)?;
    Ok(measured)
}

/// Measures a span with batches of `size` and extends it until a call was timed. Returns the sample and the length of
/// the whole span in seconds. The error is the reason: no packet comes, the pipeline has ended, or the worker does not
/// run.
fn look(
    instance: &dyn Instance,
    board: &Arc<PipelineCounters>,
    span: Duration,
    modules: &[usize],
    size: usize,
) -> Result<(Sample, f64), &'static str> {
    let earlier = board.read(Tsc.now());
    let began = Instant::now();
    for tries in 1.. {
        std::thread::sleep(span);
        let report = board.report(&earlier, &board.read(Tsc.now()));
        if let Some(sample) = sample(&report, modules, size) {
            return Ok((sample, report.duration_s));
        }
        if instance.has_died() {
            return Err("the pipeline ended");
        }
        let worker_ran = report.workers.first().is_some_and(|worker| worker.busy_turns >= TURNS);
        let is_idle = modules.first().and_then(|at| report.modules.get(*at)).is_none_or(|module| module.packets == 0);
        if is_idle && worker_ran && began.elapsed() > COMES {
            return Err("no packet came to it");
        }
        if tries >= TRIES && began.elapsed() > PATIENCE {
            return Err("other programs used the core for too long");
        }
    }
    Err("other programs used the core for too long")
}

/// Returns the share of the time in which another thread or another machine had the worker's core. The share cannot be
/// estimated from long turns, because a turn is also long if many modules have full batches at once.
fn away(worker: &WorkerReport) -> f64 {
    worker.machine_time.wait.unwrap_or(0.0) + worker.machine_time.steal.unwrap_or(0.0)
}

/// Returns the sample of a span. `None` if no call of the first module was timed, or no packet entered.
fn sample(report: &Report, modules: &[usize], size: usize) -> Option<Sample> {
    let (module, worker) = (report.modules.get(*modules.first()?)?, report.workers.first()?);
    let (call, packets) = (module.ticks_per_batch?, module.batch_mean?);
    let batches: u64 = modules.iter().filter_map(|at| report.modules.get(*at)).map(|module| module.batches).sum();
    let entered = report.packets.entered as f64;
    // The worker always has packets, so the time without its core counts as busy time.
    let away = away(worker);
    let busy = worker.busy - away - worker.timing_share;
    let ticks = busy * report.duration_s * Tsc.frequency().hertz();
    let is_there = entered > 0.0 && ticks > 0.0;
    is_there.then(|| Sample { size, packets, call, calls: batches as f64 / entered, whole: ticks / entered, away })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The measurements of a function, with one sample per size.
    pub(in crate::profile) fn of(sizes: &[Sample]) -> Measured {
        Measured { samples: sizes.iter().map(|sample| vec![*sample]).collect(), stalled: (0.0, 0.0) }
    }

    /// A busy neighbour in most rounds, and in all rounds of one pass.
    #[test]
    fn disturbed_rounds_do_not_count() {
        let sample = |call: f64| Sample { size: 8, packets: 8.0, call, calls: 0.125, whole: 100.0, away: 0.0 };
        let mut all = Measured::default();
        for calls in [[90.0, 60.0, 60.0], [60.0, 91.0, 95.0], [92.0, 93.0, 94.0]] {
            all.add(Measured { samples: vec![calls.map(sample).to_vec()], stalled: (0.25, 1.0) });
        }
        assert_eq!((all.sizes(), all.stalled()), (Some(vec![sample(60.0)]), 0.25));
        assert_eq!(Measured { samples: vec![Vec::new()], ..Measured::default() }.sizes(), None);
    }

    /// The correction for a wait may be too large: a call was reported to cost nothing.
    #[test]
    fn rounds_in_which_others_had_the_core_count_only_where_there_are_few_others() {
        let sample = |whole: f64, away: f64| Sample { size: 8, packets: 8.0, call: 60.0, calls: 0.125, whole, away };
        let waited = [sample(2.0, 0.7), sample(3.0, 0.5), sample(4.0, 0.6)];
        let whole = |rounds: Vec<Sample>| {
            let measured = Measured { samples: vec![rounds], ..Measured::default() };
            measured.sizes().map(|sizes| sizes[0].whole)
        };
        let alone = |rounds: usize| [vec![sample(100.0, 0.0); rounds], waited.to_vec()].concat();
        assert_eq!((whole(alone(ENOUGH)), whole(alone(ENOUGH - 1))), (Some(100.0), Some(3.0)));
    }

    /// A thread that lost its core while it read the counters reported 6.4 packets per call for batches of 8.
    #[test]
    fn samples_with_another_mean_batch_count_only_where_there_are_no_others() {
        let sample = |packets: f64, away: f64| {
            // A wrong number of packets is in all figures.
            Sample { size: 8, packets, call: 60.0, calls: 1.0 / packets, whole: 10.0 * packets, away }
        };
        let of = |samples: &[(f64, f64)]| {
            let samples = vec![samples.iter().map(|(packets, away)| sample(*packets, *away)).collect()];
            Measured { samples, ..Measured::default() }.sizes().map(|sizes| sizes[0])
        };
        let busy = [6.4, 8.0, 6.4, 8.05, 9.0, 6.4].map(|packets| (packets, 0.5));
        assert_eq!(of(&busy).map(|size| (size.packets, size.whole)), Some((8.0, 80.0)));
        // Undisturbed samples of another size do not replace a disturbed sample of the size.
        assert_eq!(of(&[&[(8.0, 0.5)][..], &[(6.4, 0.0); ENOUGH]].concat()), Some(sample(8.0, 0.5)));
        assert_eq!(of(&[(6.4, 0.5), (6.5, 0.5)]).map(|size| size.packets), Some(6.4));
    }

    #[test]
    fn sizes_are_powers_of_two_and_the_largest_batch() {
        assert_eq!(sizes(32), [1, 2, 4, 8, 16, 32]);
        assert_eq!(sizes(48), [1, 2, 4, 8, 16, 32, 48]);
        assert_eq!((sizes(1), sizes(3)), (vec![1], vec![1, 2, 3]));
        assert_eq!(sizes(256).len(), 9);
    }
}
