//! One function in the engine as it runs: what calls of it take, for batches of each size.
//!
//! The pipeline is the one that the gate counts, with a source that always has packets. A trigger makes the module run on
//! exactly so many at a time; it changes while packets run. Sizes take turns, up and down, several rounds of them: whatever
//! disturbs the machine for a while is shared by all. A neighbour on the same physical core only ever makes calls dearer: what
//! counts is the lower quartile of all rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_graph::report::{Report, WorkerReport};
use forebay_graph::{Action, SchedulerKind};
use forebay_instance::{Board, Cores, Instance, Outcome, choose};
use forebay_measure::{Clock, Nanos, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source};

use super::fit::quartile;
use super::{Effort, ProfileError};

/// How long it runs before it is measured: tables and caches fill.
const WARM_UP: Duration = Duration::from_millis(10);
/// What is left of another trigger's packets is gone after this.
pub(super) const SETTLE: Duration = Duration::from_millis(1);
/// Packets wait for a batch as long as it takes.
const HOLD: Nanos = Nanos(1_000_000_000);
/// How often a look is repeated that found no call timed, because the machine was elsewhere.
const TRIES: usize = 200;
/// A look is repeated for so long at least: spans may be shorter than the machine is elsewhere.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where other programs had the core for more than this share of a span, the size is measured again in a span half as
/// long: the shorter it is, the likelier nothing else runs in it. The kernel counts a wait when it is over, which may
/// be in the next span.
const ALONE: f64 = 0.001;
/// The mean batch of a span may differ from the size by this part.
const ROUNDING: f64 = 0.01;
/// So many spans at most.
const AGAIN: u32 = 6;
/// A span lasts at least so long.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
/// So many rounds without such a wait are enough.
const ENOUGH: usize = 4;
/// A module that no packet comes to in this time gets none, where the worker has had so many turns with packets.
const COMES: Duration = Duration::from_secs(3);
const TURNS: u64 = 1000;

/// What calls take, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Packets a call.
    pub(super) packets: f64,
    /// Ticks a call, as the engine's stopwatch takes them.
    pub(super) call: f64,
    /// Calls for each packet that entered the pipeline.
    pub(super) calls: f64,
    /// Ticks of everything for each packet that entered the pipeline.
    pub(super) whole: f64,
    /// The share of the time in which other programs or the host had the core.
    pub(super) away: f64,
}

/// What was measured of a function.
#[derive(Default)]
pub(super) struct Measured {
    /// By size of batch: what each round has shown.
    samples: Vec<Vec<Sample>>,
    /// For how many seconds other programs or the host had the core, and of how many.
    stalled: (f64, f64),
}

impl Measured {
    /// Adds rounds that were measured later.
    pub(super) fn add(&mut self, more: Self) {
        self.samples.resize_with(more.samples.len(), Vec::new);
        self.samples.iter_mut().zip(more.samples).for_each(|(all, more)| all.extend(more));
        self.stalled = (self.stalled.0 + more.stalled.0, self.stalled.1 + more.stalled.1);
    }

    /// By size of batch: the lower quartile of the rounds in which nothing else had the core, if those are enough for
    /// one; else of all.
    pub(super) fn sizes(&self) -> Option<Vec<Sample>> {
        let size = |samples: &Vec<Sample>| {
            let alone: Vec<_> = samples.iter().filter(|sample| sample.away <= ALONE).copied().collect();
            let counted = if alone.len() >= ENOUGH { &alone } else { samples };
            let of = |figure: fn(&Sample) -> f64| quartile(counted.iter().map(figure).collect());
            Some(Sample {
                packets: of(|sample| sample.packets)?,
                call: of(|sample| sample.call)?,
                calls: of(|sample| sample.calls)?,
                whole: of(|sample| sample.whole)?,
                away: of(|sample| sample.away)?,
            })
        };
        self.samples.iter().map(size).collect()
    }

    /// The share of the time in which other programs or the host had the core.
    pub(super) fn stalled(&self) -> f64 {
        let (stalled, all) = self.stalled;
        if all > 0.0 { stalled / all } else { 0.0 }
    }
}

/// The sizes of batches that are measured: powers of two up to the largest batch, and that itself.
pub(super) fn sizes(batch: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|size| *size < batch);
    powers.chain([batch]).collect()
}

/// Measures the function in `source`, on `cores` where they have been chosen already.
pub(super) fn measure(
    name: &str,
    source: &Source,
    effort: &Effort,
    cores: &mut Option<Cores>,
) -> Result<Measured, ProfileError> {
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { mut plans, cores: wanted, made, .. } = forebay_pipeline::load(source, conditions)?;
    for plan in &mut plans {
        // Weights are of no use to one module, and another scheduler would time all calls of some turns.
        plan.scheduler = SchedulerKind::RunToCompletion;
        plan.ports.iter_mut().filter_map(|port| port.open.as_mut()).for_each(|open| open.port.saturate());
    }
    let cores = match cores {
        Some(cores) => cores,
        None => cores.insert(choose(&wanted)?),
    };
    let modules = plans[0].modules.len();
    let instance =
        forebay_instance::start(plans, &*cores, made, Box::new(|_| None), forebay_instance::Steer::default())?;
    let measured = fill(&*instance, modules, effort.batch).and_then(|()| rounds(&*instance, effort, &[0]));
    let Outcome { troubles, .. } = instance.end();
    let measured = measured.map_err(|reason| ProfileError::Trouble { function: name.to_owned(), reason })?;
    match troubles.into_iter().next() {
        Some((place, trouble)) => {
            Err(ProfileError::Trouble { function: name.to_owned(), reason: format!("{place}: {trouble}") })
        }
        None => Ok(measured),
    }
}

/// Which modules packets come to in so long a time.
pub(super) fn reached(instance: &dyn Instance, span: Duration) -> Vec<bool> {
    let board = instance.board();
    std::thread::sleep(span);
    let report = board.report(&board.nothing(), &board.read(Tsc.now()));
    report.modules.iter().map(|module| module.packets > 0).collect()
}

/// Lets all modules of a pipeline wait for full batches.
pub(super) fn fill(instance: &dyn Instance, modules: usize, batch: usize) -> Result<(), String> {
    let wait = |module| [Action::SetHold { module, hold: HOLD }, Action::SetTrigger { module, trigger: batch }];
    instance.act(&(0..modules).flat_map(wait).collect::<Vec<_>>())
}

/// Measures modules that do the same, for batches of each size: the first is timed, all of them have batches of that
/// size. The last size is the largest.
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
                let (sample, seconds) = match look(instance, &board, span.max(SHORTEST), modules) {
                    Ok(found) => found,
                    Err(why) => {
                        // The next module is measured with these waiting for full batches.
                        set(effort.batch)?;
                        return Err(format!("no call on {} packets was timed: {why}", sizes[at]));
                    }
                };
                measured.stalled = (measured.stalled.0 + sample.away * seconds, measured.stalled.1 + seconds);
                // Calls of the size before are in a span that began before the worker had its core again.
                let is_of_size = (sample.packets - sizes[at] as f64).abs() <= ROUNDING * sizes[at] as f64;
                if is_of_size || again + 1 == AGAIN {
                    measured.samples[at].push(sample);
                }
                if is_of_size && sample.away <= ALONE {
                    break;
                }
            }
        }
    }
    set(effort.batch)?;
    Ok(measured)
}

/// What happens in a span, or in a longer one until a call has been timed, with how many seconds it was.
fn look(
    instance: &dyn Instance,
    board: &Arc<Board>,
    span: Duration,
    modules: &[usize],
) -> Result<(Sample, f64), &'static str> {
    let earlier = board.read(Tsc.now());
    let began = Instant::now();
    for tries in 1.. {
        std::thread::sleep(span);
        let report = board.report(&earlier, &board.read(Tsc.now()));
        if let Some(sample) = sample(&report, modules) {
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
            return Err("other programs had the processor");
        }
    }
    Err("other programs had the processor")
}

/// The share of its time in which another thread or machine had the worker's core. A long turn says nothing: where many
/// modules are full at once, it is long by itself.
fn away(worker: &WorkerReport) -> f64 {
    worker.machine_time.wait.unwrap_or(0.0) + worker.machine_time.steal.unwrap_or(0.0)
}

fn sample(report: &Report, modules: &[usize]) -> Option<Sample> {
    let (module, worker) = (report.modules.get(*modules.first()?)?, report.workers.first()?);
    let (call, packets) = (module.ticks_per_batch?, module.batch_mean?);
    let batches: u64 = modules.iter().filter_map(|at| report.modules.get(*at)).map(|module| module.batches).sum();
    let entered = report.packets.entered as f64;
    // A worker that always has packets is away in turns that are busy.
    let away = away(worker);
    let busy = worker.busy - away - worker.timing_share;
    let ticks = busy * report.duration_s * Tsc.frequency().hertz();
    let is_there = entered > 0.0 && ticks > 0.0;
    is_there.then(|| Sample { packets, call, calls: batches as f64 / entered, whole: ticks / entered, away })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of a function whose calls take these ticks, by size.
    pub(in crate::profile) fn of(sizes: &[Sample]) -> Measured {
        Measured { samples: sizes.iter().map(|sample| vec![*sample]).collect(), stalled: (0.0, 0.0) }
    }

    /// A busy neighbour in most of the rounds, and in all of one pass.
    #[test]
    fn disturbed_rounds_do_not_count() {
        let sample = |call: f64| Sample { packets: 8.0, call, calls: 0.125, whole: 100.0, away: 0.0 };
        let mut all = Measured::default();
        for calls in [[90.0, 60.0, 60.0], [60.0, 91.0, 95.0], [92.0, 93.0, 94.0]] {
            all.add(Measured { samples: vec![calls.map(sample).to_vec()], stalled: (0.25, 1.0) });
        }
        assert_eq!((all.sizes(), all.stalled()), (Some(vec![sample(60.0)]), 0.25));
        assert_eq!(Measured { samples: vec![Vec::new()], ..Measured::default() }.sizes(), None);
    }

    /// The time that is taken off for a wait may be too much: a call was said to cost nothing.
    #[test]
    fn rounds_in_which_others_had_the_core_count_only_where_there_are_few_others() {
        let sample = |whole: f64, away: f64| Sample { packets: 8.0, call: 60.0, calls: 0.125, whole, away };
        let waited = [sample(2.0, 0.7), sample(3.0, 0.5), sample(4.0, 0.6)];
        let whole = |rounds: Vec<Sample>| {
            let measured = Measured { samples: vec![rounds], ..Measured::default() };
            measured.sizes().map(|sizes| sizes[0].whole)
        };
        let alone = |rounds: usize| [vec![sample(100.0, 0.0); rounds], waited.to_vec()].concat();
        assert_eq!((whole(alone(ENOUGH)), whole(alone(ENOUGH - 1))), (Some(100.0), Some(3.0)));
    }

    #[test]
    fn sizes_are_powers_of_two_and_the_largest_batch() {
        assert_eq!(sizes(32), [1, 2, 4, 8, 16, 32]);
        assert_eq!(sizes(48), [1, 2, 4, 8, 16, 32, 48]);
        assert_eq!((sizes(1), sizes(3)), (vec![1], vec![1, 2, 3]));
        assert_eq!(sizes(256).len(), 9);
    }
}
