//! Compares two programs or two pipelines: the cost of a packet in each, part by part, and the cause of changes.
//!
//! Both run alternately, each run in a separate process. The memory layout of a process changes its speed by some
//! percent, and the speed of a machine changes from minute to minute. So pairs of consecutive runs are compared.

mod cause;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::estimate::Interval;
use crate::measurement::{Measurement, Module};
use crate::ticks::PartType;

pub use cause::{Cause, Why};

/// The number of pairs before the first evaluation.
const FIRST: usize = 40;
/// The number of pairs between two evaluations.
const LOOK: usize = 10;
/// Ticks count as changed only if the whole interval of their relative change is above this value, or below its
/// negative. The position of a program's code in memory alone can have an effect of this size.
pub const NOTHING: f64 = 0.005;
/// Instructions count as changed if their relative change is more than this value. Besides the counted thread, other
/// threads work too (they write the files of `tap`), so the fifth digit of a count changes from run to run.
const NOT_COUNTED: f64 = 0.0005;
/// The comparison stops when the intervals of all large parts ([`SMALL`]) are narrow enough. The interval of a relative
/// change is narrow enough if it extends at most this far from its centre, to each side.
const FINE: f64 = 0.01;
/// A part is large if its ticks per packet are more than this share of the whole's ticks per packet. The interval of a
/// small part may be wider than [`FINE`] when the comparison stops.
const SMALL: f64 = 0.02;

/// One of the two sides of a comparison.
pub trait Side {
    /// The error of a run.
    type Error;

    /// Runs once and returns the measurement. A void measurement is not an error: [`compare`] repeats the run.
    ///
    /// # Errors
    /// The run failed.
    fn run(&mut self) -> Result<Measurement, Self::Error>;
}

/// Two sides cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError<E> {
    /// A side cannot run.
    #[error(transparent)]
    Side(E),
    /// The workers were without their cores in too many runs.
    #[error(
        "{voids} of {runs} runs are void, because other programs or the host used the cores: repeat the comparison on \
         a quiet machine"
    )]
    Void {
        /// The number of void runs.
        voids: usize,
        /// The number of all runs.
        runs: usize,
    },
    /// There are no figures to compare.
    #[error("too few runs had packets for a comparison: use a pipeline whose sources do not end")]
    Nothing,
    /// The time was too short for enough pairs.
    #[error("only {pairs} pairs of runs fit in {seconds:.0} s: at least {FIRST} are needed: increase `--time`")]
    Time {
        /// The number of pairs of runs.
        pairs: usize,
        /// The time that they took, in seconds.
        seconds: f64,
    },
}

/// The result for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The part costs more.
    Increased,
    /// The part costs less.
    Decreased,
    /// Ticks have no significant change, but there are more instructions. Instruction counts have no noise.
    MoreInstructions,
    /// Ticks have no significant change, but there are fewer instructions.
    FewerInstructions,
    /// No change.
    Same,
    /// Only the first side has the part.
    Gone,
    /// Only the second side has the part.
    Appeared,
}

/// The comparison of a module, a port, a hand-over, the residue or the whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its name; `(residue)` or `(all)` for the sums.
    pub name: String,
    /// The result.
    pub verdict: Verdict,
    /// Ticks per packet of both sides: the median of all runs.
    pub cpp_ticks: [Option<f64>; 2],
    /// The relative change of ticks: 0.01 is an increase of 1 %. `None` if too few pairs of runs have the part on both
    /// sides.
    pub change: Option<Interval>,
    /// Instructions per packet of both sides, if they were counted.
    pub ipp: [Option<f64>; 2],
    /// Packets per call of both sides; for the residue and the whole, packets per turn.
    pub packets_per_call: [Option<f64>; 2],
    /// The cause of the change.
    pub why: Option<Why>,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The number of pairs of runs.
    pub pairs: usize,
    /// The number of runs that were repeated because they were void.
    pub voids: usize,
    /// The duration of the comparison, in seconds.
    pub seconds: f64,
    /// Modules, ports, hand-overs, the residue and the whole.
    pub parts: Vec<Part>,
    /// The change of the share of time in which a worker slept or waited: 0.01 is an increase of one percentage point.
    /// Of several workers, the worker with the largest share counts. `None` if the system does not report the share.
    pub slept: Option<Interval>,
    /// Set if workers sleep or wait for more of the time. Then fewer packets pass, even if no part costs more.
    pub less_busy: Option<Why>,
}

impl Comparison {
    /// True if no part costs more and no worker is less busy.
    #[must_use]
    pub fn is_no_worse(&self) -> bool {
        self.less_busy.is_none() && self.parts.iter().all(|part| part.verdict != Verdict::Increased)
    }
}

/// The progress of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonProgress {
    /// The number of completed pairs of runs.
    pub pairs: usize,
    /// The largest distance from the centre to an end, over the intervals of all large parts. `None` before the first
    /// evaluation.
    pub widest: Option<f64>,
}

/// A run's figures: for each part, ticks per packet and packets per call (in this order); and the largest share of time
/// that a worker slept.
struct Figures {
    parts: HashMap<String, [Option<f64>; 2]>,
    slept: Option<f64>,
}

/// The name of the residue.
pub const RESIDUE: &str = "(residue)";
/// The name of the whole.
pub const ALL: &str = "(all)";

impl Figures {
    /// Reads the figures of a run. The figures of the residue and the whole have the names [`RESIDUE`] and [`ALL`].
    fn of(measurement: &Measurement) -> Self {
        let Measurement { modules, chain, workers, .. } = measurement;
        let parts = modules.iter().map(|part| (part.name.clone(), [part.cpp_ticks, part.packets_per_call]));
        let whole = [(RESIDUE, chain.residue_ticks), (ALL, chain.cpp_ticks)];
        // For these two, a turn takes the place of a call.
        let whole = whole.map(|(name, ticks)| (name.to_owned(), [ticks, chain.packets_per_turn]));
        let slept = workers.iter().map(|worker| worker.slept).collect::<Option<Vec<_>>>();
        Self { parts: parts.chain(whole).collect(), slept: slept.and_then(|slept| slept.into_iter().reduce(f64::max)) }
    }

    /// Returns a figure of a part: 0 for ticks per packet, 1 for packets per call.
    fn get(&self, name: &str, figure: usize) -> Option<f64> {
        self.parts.get(name).and_then(|figures| figures[figure])
    }
}

/// Runs both sides alternately, for `time` or until the intervals are narrow enough. Changes are those of the second
/// side relative to the first. `counted` are measurements of both sides with instruction counts. Calls `report` after
/// each pair.
///
/// # Errors
/// [`CompareError`].
pub fn compare<S: Side>(
    sides: &mut [S; 2],
    counted: &[Measurement; 2],
    time: Duration,
    report: &mut dyn FnMut(ComparisonProgress),
) -> Result<Comparison, CompareError<S::Error>> {
    let began = Instant::now();
    let mut pairs: Vec<[Figures; 2]> = Vec::new();
    let (mut voids, mut widest) = (0, None);
    let names = names(counted);
    loop {
        // A pair begins with the side that the last pair ended with.
        let order = if pairs.len().is_multiple_of(2) { [0, 1] } else { [1, 0] };
        let mut pair = [None, None];
        for at in order {
            let measurement = loop {
                let measurement = sides[at].run().map_err(CompareError::Side)?;
                if !measurement.chain.void {
                    break measurement;
                }
                voids += 1;
                // The comparison fails if most runs are void. Up to 20 void runs are always allowed.
                let runs = pairs.len() * 2 + voids;
                if voids > 20 && voids * 2 > runs {
                    return Err(CompareError::Void { voids, runs });
                }
            };
            pair[at] = Some(Figures::of(&measurement));
        }
        let [Some(first), Some(second)] = pair else { continue };
        pairs.push([first, second]);
        let over = began.elapsed() >= time;
        // If the runs had no packets, more pairs of runs do not help.
        if pairs.len() == FIRST && change(&pairs, ALL).is_none() {
            return Err(CompareError::Nothing);
        }
        if pairs.len() >= FIRST && (over || pairs.len().is_multiple_of(LOOK)) {
            let large = names.iter().filter(|name| is_large(&pairs, name));
            let reaches = large.filter_map(|name| change(&pairs, name)).map(|change| change.reach());
            widest = reaches.reduce(f64::max);
        }
        report(ComparisonProgress { pairs: pairs.len(), widest });
        if over && pairs.len() < FIRST {
            return Err(CompareError::Time { pairs: pairs.len(), seconds: began.elapsed().as_secs_f64() });
        }
        if over || widest.is_some_and(|widest| widest <= FINE) {
            break;
        }
    }
    let slept = pairs.iter().filter_map(|[a, b]| Some(b.slept? - a.slept?));
    let slept = Interval::of(slept.collect());
    let parts = names.iter().map(|name| part(&pairs, counted, name, slept)).collect();
    let less_busy = slept.and_then(cause::less_busy);
    Ok(Comparison { pairs: pairs.len(), voids, seconds: began.elapsed().as_secs_f64(), parts, slept, less_busy })
}

/// Returns the names of all parts: the parts of the second side in the order of its measurement, then the parts that
/// only the first side has, the residue and the whole.
fn names(counted: &[Measurement; 2]) -> Vec<String> {
    let [first, second] = counted.each_ref().map(|of| of.modules.iter().map(|part| part.name.clone()));
    let mut names: Vec<_> = second.collect();
    let more: Vec<_> = first.filter(|name| !names.contains(name)).collect();
    names.extend(more);
    names.extend([RESIDUE, ALL].map(str::to_owned));
    names
}

/// True if the part's ticks per packet are more than the share [`SMALL`] of the whole's ticks per packet, in the first
/// run of the first side.
fn is_large(pairs: &[[Figures; 2]], name: &str) -> bool {
    let Some([first, _]) = pairs.first() else { return false };
    let (part, all) = (first.get(name, 0), first.get(ALL, 0));
    part.zip(all).is_some_and(|(part, all)| part > all * SMALL)
}

/// Returns the relative change of a part's ticks, from all pairs in which both sides have it. `None` if there are too
/// few pairs.
fn change(pairs: &[[Figures; 2]], name: &str) -> Option<Interval> {
    let ratio = |[a, b]: &[Figures; 2]| {
        let (a, b) = (a.get(name, 0)?, b.get(name, 0)?);
        (a > 0.0 && b > 0.0).then(|| (b / a).ln())
    };
    Interval::of(pairs.iter().filter_map(ratio).collect()).map(Interval::exponentiated)
}

/// Returns the comparison of a part. `slept` is the change of the share of time in which a worker slept, which may be
/// the cause.
fn part(pairs: &[[Figures; 2]], counted: &[Measurement; 2], name: &str, slept: Option<Interval>) -> Part {
    let middle = |at: usize, figure: usize| {
        let mut values: Vec<_> = pairs.iter().filter_map(|pair| pair[at].get(name, figure)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let both = |figure: usize| [middle(0, figure), middle(1, figure)];
    let change = change(pairs, name);
    let modules = counted.each_ref().map(|of| found(of, name));
    let ipp = counted.each_ref().map(|of| match name {
        ALL => of.chain.ipp,
        RESIDUE => of.chain.residue_ipp,
        _ => found(of, name).and_then(|part| part.ipp),
    });
    let is_part = ![ALL, RESIDUE].contains(&name);
    let verdict = match (modules, change) {
        ([Some(_), None], _) if is_part => Verdict::Gone,
        ([None, Some(_)], _) if is_part => Verdict::Appeared,
        (_, Some(change)) if change.low > NOTHING => Verdict::Increased,
        (_, Some(change)) if change.high < -NOTHING => Verdict::Decreased,
        _ => by_instructions(ipp),
    };
    let mut part =
        Part { name: name.to_owned(), verdict, cpp_ticks: both(0), change, ipp, packets_per_call: both(1), why: None };
    if matches!(verdict, Verdict::Increased | Verdict::Decreased) {
        part.why = Some(cause::of(&part, slept));
    }
    part
}

/// Returns the verdict from instruction counts alone.
fn by_instructions([before, now]: [Option<f64>; 2]) -> Verdict {
    match before.zip(now) {
        Some((before, now)) if now - before > NOT_COUNTED * before => Verdict::MoreInstructions,
        Some((before, now)) if before - now > NOT_COUNTED * before => Verdict::FewerInstructions,
        _ => Verdict::Same,
    }
}

/// Returns the part of this name. A module without packets counts as missing.
fn found<'m>(measurement: &'m Measurement, name: &str) -> Option<&'m Module> {
    measurement.modules.iter().find(|part| part.name == name && (part.kind != PartType::Module || part.packets > 0))
}

#[cfg(test)]
mod tests;
