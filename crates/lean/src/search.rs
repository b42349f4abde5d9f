//! Finds the rates that a pipeline carries without loss (NDR) and with little loss (PDR), by short trials of which an odd one
//! may be bad.
//!
//! After MLRsearch (draft-ietf-bmwg-mlrsearch, "Multiple Loss Ratio Search"): several trials at a load; a load bounds the
//! rate from below or above once no further trial could change that, given the share of trial time that may exceed the
//! loss; all goals share the trials; rough, short phases come before fine, long ones. Of loads that contradict each other
//! (a lower one loses, a higher one does not) the lowest that loses counts.
//!
//! Nothing here knows what a trial is: [`Trials`] runs them, a model in tests.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one trial has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Packets offered.
    pub offered: u64,
    /// Of these, packets lost.
    pub lost: u64,
    /// Whether it says nothing: something from outside disturbed it.
    pub void: bool,
    /// How long it took, with all that comes before and after.
    pub took: Duration,
}

impl Trial {
    fn loss(&self) -> f64 {
        if self.offered == 0 { 0.0 } else { self.lost as f64 / self.offered as f64 }
    }
}

/// Who runs trials.
pub trait Trials {
    /// Why a trial cannot be run.
    type Error;

    /// Offers `pps` packets a second for `span`.
    ///
    /// # Errors
    /// The trial could not be run at all.
    fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, Self::Error>;
}

/// What is looked for: the greatest load at which trials lose no more than `loss`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The share of packets that a good trial may lose.
    pub loss: f64,
    /// The share of the trials' time that bad trials may take; below 1.
    pub exceed: f64,
}

/// No loss. Half of the trials' time may be bad, as the draft proposes.
pub const NON_DROP: Goal = Goal { loss: 0.0, exceed: 0.5 };
/// At most 0.5 % lost.
pub const PARTIAL_DROP: Goal = Goal { loss: 0.005, exceed: 0.5 };

/// Within what is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The least load tried, in packets a second; above 0.
    pub least_pps: f64,
    /// The greatest load tried.
    pub most_pps: f64,
    /// How long it may take. The last trials' length follows from it.
    pub time: Duration,
    /// How far apart lower and upper bound may be in the end, as a share of the upper.
    pub width: f64,
}

/// How often a void trial is repeated before it is taken as it is.
pub const REPEATS: u32 = 5;

/// What was found for a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Packets a second that came through at the lower bound, but for the worst trials (the draft's conditional
    /// throughput); `None` where no load was good.
    pub pps: Option<f64>,
    /// The greatest load that is good, of those below the upper bound.
    pub lower_pps: Option<f64>,
    /// The least load that is not; `None` where the limit is above all that were tried.
    pub upper_pps: Option<f64>,
    /// Whether the bounds are as near each other, and as sure, as they were to be; else the time was up before.
    pub settled: bool,
}

/// What a search came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// By goal.
    pub found: Vec<Found>,
    /// Trials, without those that were void.
    pub trials: u64,
    /// Trials that were void and repeated.
    pub voids: u64,
    /// Void trials that were taken as they are, because the repetitions were void too.
    pub taken_void: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// How far a search is: a trial is about to be run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What it has come to so far.
    pub outcome: &'a Outcome,
    /// The load of the trial.
    pub pps: f64,
    /// The rates found at least, where any are, by goal.
    pub lower_pps: &'a [Option<f64>],
}

/// Searches for all `goals`; `told` hears of each trial before it is run. The time is kept but for the last trial.
///
/// # Errors
/// A trial that could not be run.
pub fn search<T: Trials>(
    trials: &mut T,
    goals: &[Goal],
    limits: &Limits,
    told: &mut dyn FnMut(&Progress<'_>),
) -> Result<Outcome, T::Error> {
    let phases = phases(limits);
    let mut search = Search {
        trials,
        limits: *limits,
        loads: Vec::new(),
        outcome: Outcome { found: vec![Found::default(); goals.len()], ..Outcome::default() },
        lower: vec![None; goals.len()],
        told,
    };
    if search.all(goals, &phases)? == Step::Done {
        search.outcome.found.iter_mut().for_each(|found| found.settled = true);
    }
    for (at, goal) in goals.iter().enumerate() {
        let settled = search.outcome.found[at].settled;
        search.outcome.found[at] = Found { settled, ..search.found(goal, &phases) };
    }
    Ok(search.outcome)
}

/// A round of the search: how long trials are, and when it is content.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The length of a trial, in seconds.
    span: f64,
    /// For how long trials of this length decide about a load, where they disagree.
    sum: f64,
    /// How far apart the bounds may be.
    width: f64,
}

/// Rounds, the last as fine as asked for. The last trials' length is a 75th of the time: undisturbed, half of the time is used.
/// So many trials a load that, where one in five is bad for no reason, 98 of 100 searches end within 2 % of the limit (with three
/// and five in the last rounds, and one in the first: 95).
fn phases(limits: &Limits) -> [Phase; 4] {
    let last = (limits.time.as_secs_f64() / 75.0).clamp(0.005, 2.0);
    let phase = |part: f64, trials: f64, widths: f64| {
        let span = last / part;
        Phase { span, sum: span * trials, width: (limits.width * widths).min(0.5) }
    };
    [phase(8.0, 5.0, 8.0), phase(4.0, 5.0, 4.0), phase(2.0, 7.0, 2.0), phase(1.0, 7.0, 1.0)]
}

/// What trials at a load have shown.
struct Load {
    pps: f64,
    /// Length in seconds, share lost.
    trials: Vec<(f64, f64)>,
}

/// On which side of the rate looked for a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

impl Load {
    /// Where the load is, if further trials of this phase could not change that: then it is the same whether all that is
    /// missing is taken for good or for bad (the draft's optimistic and pessimistic exceed ratio).
    fn side(&self, goal: &Goal, phase: &Phase) -> Option<Side> {
        let (mut good, mut bad, mut good_short, mut bad_short) = (0.0, 0.0, 0.0, 0.0);
        for (span, loss) in &self.trials {
            let sum = match (*span >= phase.span, *loss > goal.loss) {
                (true, false) => &mut good,
                (true, true) => &mut bad,
                (false, false) => &mut good_short,
                (false, true) => &mut bad_short,
            };
            *sum += span;
        }
        // Short trials say little of long ones: losses that they had beyond their share count, good ones do not.
        bad += (bad_short - good_short * goal.exceed / (1.0 - goal.exceed)).max(0.0);
        let whole = (good + bad).max(phase.sum);
        let allowed = whole * goal.exceed;
        match (bad <= allowed, whole - good <= allowed) {
            (true, true) => Some(Side::Below),
            (false, false) => Some(Side::Above),
            _ => None,
        }
    }

    /// The share lost by the best of the worst trials that may exceed the goal, and the others.
    fn loss(&self, goal: &Goal, phase: &Phase) -> f64 {
        let mut long: Vec<_> = self.trials.iter().filter(|(span, _)| *span >= phase.span).copied().collect();
        long.sort_by(|one, other| other.1.total_cmp(&one.1));
        let whole = long.iter().map(|(span, _)| span).sum::<f64>().max(phase.sum);
        let mut left = whole * goal.exceed;
        for (span, loss) in long {
            left -= span;
            if left < 0.0 {
                return loss;
            }
        }
        0.0
    }
}

/// Whether there was time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    TimeUp,
}

struct Search<'a, T: Trials> {
    trials: &'a mut T,
    limits: Limits,
    loads: Vec<Load>,
    outcome: Outcome,
    /// By goal: the lower bound of the last phase that had one.
    lower: Vec<Option<f64>>,
    told: &'a mut dyn FnMut(&Progress<'_>),
}

/// Where a phase begins: the bounds of the one before.
type Bounds = (Option<f64>, Option<f64>);

impl<T: Trials> Search<'_, T> {
    fn all(&mut self, goals: &[Goal], phases: &[Phase]) -> Result<Step, T::Error> {
        // What comes through when far too much is offered is a good first guess.
        let most = self.limits.most_pps;
        if self.measure(most, phases[0].span)? == Step::TimeUp {
            return Ok(Step::TimeUp);
        }
        let lost = self.loads[0].trials.first().map_or(0.0, |(_, loss)| *loss);
        let guess = (most * (1.0 - lost)).max(self.limits.least_pps);
        let mut hints: Vec<Bounds> = vec![(Some(guess), None); goals.len()];
        for (number, phase) in phases.iter().enumerate() {
            for (at, goal) in goals.iter().enumerate() {
                let mut step = phase.width;
                while let Some(pps) = self.next(goal, phase, hints[at], &mut step) {
                    if self.decide(pps, goal, phase)? == Step::TimeUp {
                        return Ok(Step::TimeUp);
                    }
                }
                hints[at] = self.bounds(goal, phase);
                self.lower[at] = hints[at].0;
                self.outcome.found[at].settled = number + 1 == phases.len();
            }
        }
        Ok(Step::Done)
    }

    /// The load to be decided next; `None`: the bounds are near enough, or there are none within the limits.
    fn next(&self, goal: &Goal, phase: &Phase, hint: Bounds, step: &mut f64) -> Option<f64> {
        let Limits { least_pps: least, most_pps: most, .. } = self.limits;
        match self.bounds(goal, phase) {
            (None, None) => hint.0.or(hint.1),
            (Some(low), None) => (low < most).then(|| {
                hint.1.filter(|high| *high > low).unwrap_or_else(|| {
                    *step *= 2.0;
                    (low * (1.0 + *step / 2.0)).min(most)
                })
            }),
            (None, Some(high)) => (high > least).then(|| {
                hint.0.filter(|low| *low < high).unwrap_or_else(|| {
                    let next = high * (1.0 - step.min(0.5));
                    *step *= 2.0;
                    next.max(least)
                })
            }),
            (Some(low), Some(high)) => (high - low > phase.width * high).then(|| {
                let inside = |load: &f64| *load > low && *load < high;
                hint.0.filter(inside).or(hint.1.filter(inside)).unwrap_or_else(|| (low * high).sqrt())
            }),
        }
    }

    /// The relevant bounds: the least load that is above, and the greatest below that is not.
    fn bounds(&self, goal: &Goal, phase: &Phase) -> Bounds {
        let on = |side: Side| {
            let on = move |load: &&Load| load.side(goal, phase) == Some(side);
            self.loads.iter().filter(on).map(|load| load.pps)
        };
        let high = on(Side::Above).min_by(f64::total_cmp);
        let below = on(Side::Below).filter(|load| high.is_none_or(|high| *load < high));
        (below.max_by(f64::total_cmp), high)
    }

    /// Runs trials at a load until it is known on which side it is.
    fn decide(&mut self, pps: f64, goal: &Goal, phase: &Phase) -> Result<Step, T::Error> {
        loop {
            if self.measure(pps, phase.span)? == Step::TimeUp {
                return Ok(Step::TimeUp);
            }
            if self.loads.iter().any(|load| load.pps == pps && load.side(goal, phase).is_some()) {
                return Ok(Step::Done);
            }
        }
    }

    /// Runs a trial, and repeats it as long as it is void, but not for ever.
    fn measure(&mut self, pps: f64, span: f64) -> Result<Step, T::Error> {
        let mut repeats = REPEATS;
        let trial = loop {
            if self.outcome.seconds + span > self.limits.time.as_secs_f64() {
                return Ok(Step::TimeUp);
            }
            (self.told)(&Progress { outcome: &self.outcome, pps, lower_pps: &self.lower });
            let trial = self.trials.run(pps, Duration::from_secs_f64(span))?;
            self.outcome.seconds += trial.took.as_secs_f64();
            if !trial.void {
                break trial;
            }
            if repeats == 0 {
                self.outcome.taken_void += 1;
                break trial;
            }
            repeats -= 1;
            self.outcome.voids += 1;
        };
        self.outcome.trials += 1;
        let told = (span, trial.loss());
        match self.loads.iter_mut().find(|load| load.pps == pps) {
            Some(load) => load.trials.push(told),
            None => self.loads.push(Load { pps, trials: vec![told] }),
        }
        Ok(Step::Done)
    }

    /// What is known of a goal: of each bound what the latest phase says that has one.
    fn found(&self, goal: &Goal, phases: &[Phase]) -> Found {
        let mut found = Found::default();
        for phase in phases.iter().rev() {
            let (low, high) = self.bounds(goal, phase);
            if let Some(low) =
                low.filter(|low| found.lower_pps.is_none() && found.upper_pps.is_none_or(|high| *low < high))
            {
                found.lower_pps = Some(low);
                let load = self.loads.iter().find(|load| load.pps == low);
                found.pps = load.map(|load| low * (1.0 - load.loss(goal, phase)));
            }
            if found.upper_pps.is_none() {
                found.upper_pps = high.filter(|high| found.lower_pps.is_none_or(|low| low < *high));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
