//! One function in the engine as it runs: what calls of it take, for batches of each size.
//!
//! The pipeline is the one that the gate counts, with a source that always has packets. A trigger makes the module run on
//! exactly so many at a time; it changes while packets run. Sizes take turns, up and down, several rounds of them: whatever
//! disturbs the machine for a while is shared by all. A neighbour on the same physical core only ever makes calls dearer: what
//! counts is the lower quartile of all rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_graph::report::Report;
use forebay_graph::{Action, SchedulerKind};
use forebay_instance::{Board, Cores, Instance, Outcome, choose};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source};

use super::fit::quartile;
use super::{Effort, ProfileError};

/// How long it runs before it is measured: tables and caches fill.
const WARM_UP: Duration = Duration::from_millis(10);
/// What is left of another trigger's packets is gone after this.
const SETTLE: Duration = Duration::from_millis(1);
/// How often a look is repeated that found no call timed, because the machine was elsewhere.
const TRIES: usize = 200;
/// A look is repeated for so long at least: spans may be shorter than the machine is elsewhere.
const PATIENCE: Duration = Duration::from_secs(20);

/// What calls take, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Packets a call.
    pub(super) packets: f64,
    /// Ticks a call, as the engine's stopwatch takes them.
    pub(super) call: f64,
    /// Calls a turn.
    pub(super) calls: f64,
    /// Ticks of a turn that are neither the module's nor a port's.
    pub(super) residue: f64,
}

/// What was measured of a function.
#[derive(Default)]
pub(super) struct Measured {
    /// By size of batch: what each round has shown.
    samples: Vec<Vec<Sample>>,
    /// For how many seconds the machine was elsewhere, and of how many.
    stalled: (f64, f64),
}

impl Measured {
    /// Adds rounds that were measured later.
    pub(super) fn add(&mut self, more: Self) {
        self.samples.resize_with(more.samples.len(), Vec::new);
        self.samples.iter_mut().zip(more.samples).for_each(|(all, more)| all.extend(more));
        self.stalled = (self.stalled.0 + more.stalled.0, self.stalled.1 + more.stalled.1);
    }

    /// By size of batch: the lower quartile of all rounds.
    pub(super) fn sizes(&self) -> Option<Vec<Sample>> {
        let size = |samples: &Vec<Sample>| {
            let of = |figure: fn(&Sample) -> f64| quartile(samples.iter().map(figure).collect());
            Some(Sample {
                packets: of(|sample| sample.packets)?,
                call: of(|sample| sample.call)?,
                calls: of(|sample| sample.calls)?,
                residue: of(|sample| sample.residue)?,
            })
        };
        self.samples.iter().map(size).collect()
    }

    /// The share of the time for which the machine was elsewhere.
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
    let instance =
        forebay_instance::start(plans, &*cores, made, Box::new(|_| None), forebay_instance::Steer::default())?;
    let measured = rounds(name, &*instance, effort);
    let Outcome { troubles, .. } = instance.end();
    let measured = measured?;
    match troubles.into_iter().next() {
        Some((place, told)) => {
            Err(ProfileError::Trouble { function: name.to_owned(), told: format!("{place}: {told}") })
        }
        None => Ok(measured),
    }
}

fn rounds(name: &str, instance: &dyn Instance, effort: &Effort) -> Result<Measured, ProfileError> {
    let (board, sizes) = (instance.board(), sizes(effort.batch));
    let mut measured = Measured { samples: vec![Vec::new(); sizes.len()], stalled: (0.0, 0.0) };
    let trouble = |told: String| ProfileError::Trouble { function: name.to_owned(), told };
    std::thread::sleep(WARM_UP);
    for round in 0..effort.rounds {
        for step in 0..sizes.len() {
            let at = if round % 2 == 0 { step } else { sizes.len() - 1 - step };
            instance.act(&[Action::SetTrigger { module: 0, trigger: sizes[at] }]).map_err(trouble)?;
            std::thread::sleep(SETTLE);
            let report = look(instance, &board, effort.span(sizes.len())).ok_or_else(|| {
                trouble(format!("no call on {} packets was timed: the machine was elsewhere, or none came", sizes[at]))
            })?;
            let stalled = report.workers[0].machine_stalls.share * report.duration_s;
            measured.stalled = (measured.stalled.0 + stalled, measured.stalled.1 + report.duration_s);
            measured.samples[at].extend(sample(&report));
        }
    }
    Ok(measured)
}

/// What happens in a span, or in a longer one until a call has been timed.
fn look(instance: &dyn Instance, board: &Arc<Board>, span: Duration) -> Option<Report> {
    let earlier = board.read(Tsc.now());
    let began = Instant::now();
    for tries in 1.. {
        std::thread::sleep(span);
        let report = board.report(&earlier, &board.read(Tsc.now()));
        if sample(&report).is_some() {
            return Some(report);
        }
        if instance.has_died() || tries >= TRIES && began.elapsed() > PATIENCE {
            return None;
        }
    }
    None
}

fn sample(report: &Report) -> Option<Sample> {
    let (module, worker) = (report.modules.first()?, report.workers.first()?);
    let (call, packets, residue) = (module.ticks_per_batch?, module.batch_mean?, worker.residue_ticks_per_turn?);
    (worker.busy_turns > 0).then(|| Sample {
        packets,
        call,
        calls: module.batches as f64 / worker.busy_turns as f64,
        residue,
    })
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
        let sample = |call: f64| Sample { packets: 8.0, call, calls: 4.0, residue: 100.0 };
        let mut all = Measured::default();
        for calls in [[90.0, 60.0, 60.0], [60.0, 91.0, 95.0], [92.0, 93.0, 94.0]] {
            all.add(Measured { samples: vec![calls.map(sample).to_vec()], stalled: (0.25, 1.0) });
        }
        assert_eq!((all.sizes(), all.stalled()), (Some(vec![sample(60.0)]), 0.25));
        assert_eq!(Measured { samples: vec![Vec::new()], ..Measured::default() }.sizes(), None);
    }

    #[test]
    fn sizes_are_powers_of_two_and_the_largest_batch() {
        assert_eq!(sizes(32), [1, 2, 4, 8, 16, 32]);
        assert_eq!(sizes(48), [1, 2, 4, 8, 16, 32, 48]);
        assert_eq!((sizes(1), sizes(3)), (vec![1], vec![1, 2, 3]));
        assert_eq!(sizes(256).len(), 9);
    }
}
