//! Two programs, or two pipelines, side by side: what a packet costs in each, part by part, and why.
//!
//! Both run in turn, each time in a process of its own: where a process's memory lies makes some percent of difference, and
//! a machine is another one from one minute to the next. What is compared is pairs of runs that follow each other.

mod cause;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::estimate::Interval;
use crate::measurement::{Measurement, Module};
use crate::ticks::Kind;

pub use cause::{Cause, Why};

/// Pairs before anything is said.
const FIRST: usize = 40;
/// Pairs after which it is looked again whether there are enough.
const LOOK: usize = 10;
/// Changes of ticks that are none, as a share: where a program's code lies in memory makes as much.
pub const NOTHING: f64 = 0.005;
/// Changes of instructions that are none, as a share: what runs on a thread beside the counted one (`tap`'s files) differs in
/// the fifth figure from run to run.
const NOT_COUNTED: f64 = 0.0005;
/// How far an interval may reach to each side, of parts that are more than [`SMALL`]; then more pairs are of no use.
const FINE: f64 = 0.01;
/// The share of the whole that a part has which may remain less well known.
const SMALL: f64 = 0.02;

/// One of the two.
pub trait Side {
    /// Why it cannot run.
    type Error;

    /// Runs it, and says what it came to.
    ///
    /// # Errors
    /// It cannot run.
    fn run(&mut self) -> Result<Measurement, Self::Error>;
}

/// Why two cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError<E> {
    /// One cannot run.
    #[error(transparent)]
    Side(E),
    /// The machine was elsewhere too often.
    #[error(
        "{voids} of {runs} runs are void: the machine was elsewhere for too much of the time; repeat it when it is quiet"
    )]
    Void {
        /// Runs that are void.
        voids: usize,
        /// Of so many.
        runs: usize,
    },
    /// There is nothing to compare.
    #[error("no packets came in enough of the runs to say anything: allowed is a pipeline whose sources do not end")]
    Nothing,
    /// There was no time for enough pairs.
    #[error("{pairs} pairs of runs in {seconds:.0} s: {FIRST} at least are needed; give it more time")]
    Time {
        /// Pairs.
        pairs: usize,
        /// Seconds.
        seconds: f64,
    },
}

/// Whether a figure has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It costs more.
    Dearer,
    /// It costs less.
    Cheaper,
    /// No change of ticks is seen that is beyond the interval, but there are more instructions: these have no noise.
    MoreInstructions,
    /// The same with fewer.
    FewerInstructions,
    /// No change is seen.
    Same,
    /// The other does not have it.
    Gone,
    /// The first does not have it.
    Appeared,
}

/// What became of a module, a port or a hand-over; of the residue, or of the whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its name; `(residue)`, `(all)`.
    pub name: String,
    /// Whether it has changed.
    pub verdict: Verdict,
    /// Ticks per packet of both, in the middle of all runs.
    pub cpp_ticks: [Option<f64>; 2],
    /// The change of its ticks as a share.
    pub change: Option<Interval>,
    /// Instructions per packet of both, where they were counted.
    pub ipp: [Option<f64>; 2],
    /// Packets per call of both; of the residue and the whole, per turn.
    pub packets_per_call: [Option<f64>; 2],
    /// What made it so.
    pub why: Option<Why>,
}

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Pairs of runs.
    pub pairs: usize,
    /// Runs that were repeated because the machine was elsewhere.
    pub voids: usize,
    /// How long it took.
    pub seconds: f64,
    /// Modules, ports and hand-overs, the residue and the whole.
    pub parts: Vec<Part>,
    /// By how much of the time more, or less, a worker slept or waited.
    pub slept: Option<Interval>,
    /// Why there are fewer packets though none is dearer: workers are less busy than they could be.
    pub less_busy: Option<Why>,
}

impl Comparison {
    /// Whether nothing costs more, and nobody is less busy.
    #[must_use]
    pub fn is_no_worse(&self) -> bool {
        self.less_busy.is_none() && self.parts.iter().all(|part| part.verdict != Verdict::Dearer)
    }
}

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Pairs of runs.
    pub pairs: usize,
    /// How far the widest of the intervals that count reaches to each side.
    pub widest: Option<f64>,
}

/// A run's figures: of each part its ticks and packets per call, and what share of the time its workers slept.
struct Figures {
    parts: HashMap<String, [Option<f64>; 2]>,
    slept: Option<f64>,
}

/// How the residue and the whole are called.
pub const RESIDUE: &str = "(residue)";
/// The same.
pub const ALL: &str = "(all)";

impl Figures {
    fn of(measurement: &Measurement) -> Self {
        let Measurement { modules, chain, workers, .. } = measurement;
        let parts = modules.iter().map(|part| (part.name.clone(), [part.cpp_ticks, part.packets_per_call]));
        let whole = [(RESIDUE, chain.residue_ticks), (ALL, chain.cpp_ticks)];
        // A turn is to them what a call is to a module.
        let whole = whole.map(|(name, ticks)| (name.to_owned(), [ticks, chain.packets_per_turn]));
        let slept = workers.iter().map(|worker| worker.slept).collect::<Option<Vec<_>>>();
        Self { parts: parts.chain(whole).collect(), slept: slept.and_then(|slept| slept.into_iter().reduce(f64::max)) }
    }

    fn get(&self, name: &str, figure: usize) -> Option<f64> {
        self.parts.get(name).and_then(|figures| figures[figure])
    }
}

/// Runs both in turn, for `time` or until more runs would say no more. `counted` are measurements of both with their
/// instructions.
///
/// # Errors
/// [`CompareError`].
pub fn compare<S: Side>(
    sides: &mut [S; 2],
    counted: &[Measurement; 2],
    time: Duration,
    told: &mut dyn FnMut(Progress),
) -> Result<Comparison, CompareError<S::Error>> {
    let began = Instant::now();
    let mut pairs: Vec<[Figures; 2]> = Vec::new();
    let (mut voids, mut widest) = (0, None);
    let names = names(counted);
    loop {
        // A pair begins with the one that the last ended with.
        let order = if pairs.len().is_multiple_of(2) { [0, 1] } else { [1, 0] };
        let mut pair = [None, None];
        for at in order {
            let measurement = loop {
                let measurement = sides[at].run().map_err(CompareError::Side)?;
                if !measurement.chain.void {
                    break measurement;
                }
                voids += 1;
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
        // Idle runs are alike at any number.
        if pairs.len() == FIRST && change(&pairs, ALL).is_none() {
            return Err(CompareError::Nothing);
        }
        if pairs.len() >= FIRST && (over || pairs.len().is_multiple_of(LOOK)) {
            let large = names.iter().filter(|name| is_large(&pairs, name));
            let reaches = large.filter_map(|name| change(&pairs, name)).map(|change| change.reach());
            widest = reaches.reduce(f64::max);
        }
        told(Progress { pairs: pairs.len(), widest });
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

/// All parts of both: those of the second in their order, then those that only the first has, the residue and the whole.
fn names(counted: &[Measurement; 2]) -> Vec<String> {
    let [first, second] = counted.each_ref().map(|of| of.modules.iter().map(|part| part.name.clone()));
    let mut names: Vec<_> = second.collect();
    let more: Vec<_> = first.filter(|name| !names.contains(name)).collect();
    names.extend(more);
    names.extend([RESIDUE, ALL].map(str::to_owned));
    names
}

/// Whether a part's ticks, a packet of its own, are a fair share of the whole's.
fn is_large(pairs: &[[Figures; 2]], name: &str) -> bool {
    let Some([first, _]) = pairs.first() else { return false };
    let (part, all) = (first.get(name, 0), first.get(ALL, 0));
    part.zip(all).is_some_and(|(part, all)| part > all * SMALL)
}

/// The change of a part's ticks as a share, by all pairs in which both have it.
fn change(pairs: &[[Figures; 2]], name: &str) -> Option<Interval> {
    let ratio = |[a, b]: &[Figures; 2]| {
        let (a, b) = (a.get(name, 0)?, b.get(name, 0)?);
        (a > 0.0 && b > 0.0).then(|| (b / a).ln())
    };
    Interval::of(pairs.iter().filter_map(ratio).collect()).map(Interval::exponentiated)
}

fn part(pairs: &[[Figures; 2]], counted: &[Measurement; 2], name: &str, slept: Option<Interval>) -> Part {
    let middle = |at: usize, figure: usize| {
        let mut values: Vec<_> = pairs.iter().filter_map(|pair| pair[at].get(name, figure)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let both = |figure: usize| [middle(0, figure), middle(1, figure)];
    let change = change(pairs, name);
    let there = counted.each_ref().map(|of| found(of, name));
    let ipp = counted.each_ref().map(|of| match name {
        ALL => of.chain.ipp,
        RESIDUE => of.chain.residue_ipp,
        _ => found(of, name).and_then(|part| part.ipp),
    });
    let is_part = ![ALL, RESIDUE].contains(&name);
    let verdict = match (there, change) {
        ([Some(_), None], _) if is_part => Verdict::Gone,
        ([None, Some(_)], _) if is_part => Verdict::Appeared,
        (_, Some(change)) if change.low > NOTHING => Verdict::Dearer,
        (_, Some(change)) if change.high < -NOTHING => Verdict::Cheaper,
        _ => by_instructions(ipp),
    };
    let mut part =
        Part { name: name.to_owned(), verdict, cpp_ticks: both(0), change, ipp, packets_per_call: both(1), why: None };
    if matches!(verdict, Verdict::Dearer | Verdict::Cheaper) {
        part.why = Some(cause::of(&part, slept));
    }
    part
}

/// What instructions alone say of a part.
fn by_instructions([before, now]: [Option<f64>; 2]) -> Verdict {
    match before.zip(now) {
        Some((before, now)) if now - before > NOT_COUNTED * before => Verdict::MoreInstructions,
        Some((before, now)) if before - now > NOT_COUNTED * before => Verdict::FewerInstructions,
        _ => Verdict::Same,
    }
}

fn found<'m>(measurement: &'m Measurement, name: &str) -> Option<&'m Module> {
    measurement.modules.iter().find(|part| part.name == name && (part.kind != Kind::Module || part.packets > 0))
}

#[cfg(test)]
mod tests;
