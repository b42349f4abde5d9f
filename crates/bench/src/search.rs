//! Finds the rates that a pipeline forwards without loss (NDR) and with little loss (PDR), by short trials. Some of the
//! trials may be bad by chance.
//!
//! The method follows MLRsearch (draft-ietf-bmwg-mlrsearch, "Multiple Loss Ratio Search"). A trial is good if it loses
//! at most the share of packets that the goal allows ([`Goal::loss`]); otherwise it is bad. There are several trials at
//! a load. A load is good if its bad trials take at most the share [`Goal::exceed`] of the trial time. A load becomes a
//! lower bound (good) or an upper bound (bad) when no further trial could change the decision. All goals share the
//! trials. Phases with short trials and wide bounds come before phases with long trials and narrow bounds. If loads
//! contradict each other (a lower load loses packets and a higher load does not), the lowest load with losses counts.
//!
//! This module does not depend on how trials run: [`Trials`] runs them; tests use a model.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The result of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The number of offered packets.
    pub offered: u64,
    /// The number of offered packets that were lost.
    pub lost: u64,
    /// True if the trial is not valid, because workers were disturbed from outside.
    pub void: bool,
    /// The duration of the trial, including preparation and evaluation.
    pub took: Duration,
}

impl Trial {
    /// Returns the share of offered packets that were lost. 0 if no packet was offered.
    fn loss(&self) -> f64 {
        if self.offered == 0 { 0.0 } else { self.lost as f64 / self.offered as f64 }
    }
}

/// Runs trials.
pub trait Trials {
    /// The error of a trial.
    type Error;

    /// Offers `pps` packets per second for `span` and returns the counts. A void trial is not an error: [`search`]
    /// repeats it.
    ///
    /// # Errors
    /// The trial could not be run.
    fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, Self::Error>;
}

/// A goal of the search: the greatest load at which trials lose at most `loss`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The share of packets that a good trial may lose.
    pub loss: f64,
    /// The share of the trial time that bad trials may take; below 1.
    pub exceed: f64,
}

/// No loss. Up to half of the trial time may be bad, as the draft proposes.
pub const NON_DROP: Goal = Goal { loss: 0.0, exceed: 0.5 };
/// At most 0.5 % loss.
pub const PARTIAL_DROP: Goal = Goal { loss: 0.005, exceed: 0.5 };

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The least load, in packets per second; above 0.
    pub least_pps: f64,
    /// The greatest load, in packets per second.
    pub most_pps: f64,
    /// The longest duration of the search. The length of the last trials depends on it.
    pub time: Duration,
    /// The largest distance between lower and upper bound at the end, as a share of the upper bound.
    pub width: f64,
}

/// The number of times that a void trial is repeated before its result is used.
pub const REPEATS: u32 = 5;

/// The result for a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GoalResult {
    /// The rate that was forwarded at the lower bound, in packets per second. The worst trials, up to the share that
    /// the goal allows, do not count (the draft's conditional throughput). `None` if no load was good.
    pub pps: Option<f64>,
    /// The greatest good load below the upper bound, in packets per second; `None` if no load was good.
    pub lower_pps: Option<f64>,
    /// The least bad load, in packets per second; `None` if no bad load was found.
    pub upper_pps: Option<f64>,
    /// True if the bounds are narrow enough and certain; false if the time was up before.
    pub settled: bool,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The results by goal.
    pub found: Vec<GoalResult>,
    /// The number of trials whose results were used.
    pub trials: u64,
    /// The number of void trials that were repeated.
    pub voids: u64,
    /// The number of void trials whose results were used, because the repetitions were void too.
    pub taken_void: u64,
    /// The duration of the search, in seconds.
    pub seconds: f64,
}

/// The progress of a search, before a trial is run.
#[derive(Clone, Copy, Debug)]
pub struct SearchProgress<'a> {
    /// The result so far.
    pub outcome: &'a Outcome,
    /// The load of the trial, in packets per second.
    pub pps: f64,
    /// The lower bounds found so far, by goal.
    pub lower_pps: &'a [Option<f64>],
}

/// Searches for all `goals`, and returns their results in the same order. Calls `report` before each trial. The search
/// exceeds its time limit by at most the last trial.
///
/// # Errors
/// A trial could not be run.
pub fn search<T: Trials>(
    trials: &mut T,
    goals: &[Goal],
    limits: &Limits,
    report: &mut dyn FnMut(&SearchProgress<'_>),
) -> Result<Outcome, T::Error> {
    let phases = phases(limits);
    let mut search = Search {
        trials,
        limits: *limits,
        loads: Vec::new(),
        outcome: Outcome { found: vec![GoalResult::default(); goals.len()], ..Outcome::default() },
        lower: vec![None; goals.len()],
        report,
    };
    if search.all(goals, &phases)? == Completion::Done {
        search.outcome.found.iter_mut().for_each(|found| found.settled = true);
    }
    for (at, goal) in goals.iter().enumerate() {
        let settled = search.outcome.found[at].settled;
        search.outcome.found[at] = GoalResult { settled, ..search.found(goal, &phases) };
    }
    Ok(search.outcome)
}

/// A phase of the search: the length of its trials and the precision of its bounds.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The length of a trial, in seconds.
    span: f64,
    /// The total length of the trials of this phase at one load after which a decision is certain, in seconds. If the
    /// trials agree, fewer of them decide.
    sum: f64,
    /// The largest distance between the bounds, as a share of the upper bound.
    width: f64,
}

/// Returns the phases; the last one has the requested precision. The length of the last phase's trials is 1/75 of the
/// time limit. With this length, an undisturbed search needs half of the time limit. If one in five trials is bad by
/// chance, 98 of 100 searches with these numbers of trials per load end within 2 % of the true rate. Fewer trials (one
/// in the first phase, three and five in the last phases) would make it 95 of 100 searches.
fn phases(limits: &Limits) -> [Phase; 4] {
    let last = (limits.time.as_secs_f64() / 75.0).clamp(0.005, 2.0);
    let phase = |part: f64, trials: f64, widths: f64| {
        let span = last / part;
        Phase { span, sum: span * trials, width: (limits.width * widths).min(0.5) }
    };
    [phase(8.0, 5.0, 8.0), phase(4.0, 5.0, 4.0), phase(2.0, 7.0, 2.0), phase(1.0, 7.0, 1.0)]
}

/// The results of the trials at a load.
struct Load {
    pps: f64,
    /// For each trial: its length in seconds and the share of lost packets.
    trials: Vec<(f64, f64)>,
}

/// The position of a load relative to the searched rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

impl Load {
    /// Returns the side of the load, or `None` if further trials of this phase could change it. The side is certain if
    /// it is the same for two assumptions: all missing trials are good, or all are bad (the draft's optimistic and
    /// pessimistic exceed ratio).
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
        // Trials of earlier phases are shorter, and weak evidence for long trials. Good short trials do not count as
        // good. Of the time of all short trials, the share `exceed` may be bad. Only bad short trials beyond this share
        // count as bad.
        bad += (bad_short - good_short * goal.exceed / (1.0 - goal.exceed)).max(0.0);
        let whole = (good + bad).max(phase.sum);
        let allowed = whole * goal.exceed;
        match (bad <= allowed, whole - good <= allowed) {
            (true, true) => Some(Side::Below),
            (false, false) => Some(Side::Above),
            _ => None,
        }
    }

    /// Returns the greatest loss among the trials of this phase's length (or longer), without the worst of them. The
    /// trials that are left out take at most the share [`Goal::exceed`] of the time. Returns 0 if no trial remains.
    fn loss(&self, goal: &Goal, phase: &Phase) -> f64 {
        let mut long: Vec<_> = self.trials.iter().filter(|(span, _)| *span >= phase.span).copied().collect();
        long.sort_by(|one, other| other.1.total_cmp(&one.1));
        let whole = long.iter().map(|(span, _)| span).sum::<f64>().max(phase.sum);
        let mut allowed = whole * goal.exceed;
        for (span, loss) in long {
            allowed -= span;
            if allowed < 0.0 {
                return loss;
            }
        }
        0.0
    }
}

/// The reason why a part of the search has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    Done,
    TimeUp,
}

/// The state of a search.
struct Search<'a, T: Trials> {
    trials: &'a mut T,
    limits: Limits,
    /// The loads that were tried, in the order of their first trials.
    loads: Vec<Load>,
    /// The result so far. [`search`] fills in the rates and bounds at the end.
    outcome: Outcome,
    /// By goal: the lower bound of the last phase that is complete. `None` if no phase is complete or this phase found
    /// no lower bound.
    lower: Vec<Option<f64>>,
    report: &'a mut dyn FnMut(&SearchProgress<'_>),
}

/// A lower and an upper bound, in packets per second; `None` if there is none. The bounds of a phase are the hints for
/// the next phase.
type Bounds = (Option<f64>, Option<f64>);

impl<T: Trials> Search<'_, T> {
    /// Performs all phases for all goals. Sets `settled` of a goal when its last phase is complete.
    fn all(&mut self, goals: &[Goal], phases: &[Phase]) -> Result<Completion, T::Error> {
        // The rate that is forwarded under far too much load is a good first estimate.
        let most = self.limits.most_pps;
        if self.measure(most, phases[0].span)? == Completion::TimeUp {
            return Ok(Completion::TimeUp);
        }
        let lost = self.loads[0].trials.first().map_or(0.0, |(_, loss)| *loss);
        let guess = (most * (1.0 - lost)).max(self.limits.least_pps);
        let mut hints: Vec<Bounds> = vec![(Some(guess), None); goals.len()];
        for (number, phase) in phases.iter().enumerate() {
            for (at, goal) in goals.iter().enumerate() {
                let mut step = phase.width;
                while let Some(pps) = self.next(goal, phase, hints[at], &mut step) {
                    if self.decide(pps, goal, phase)? == Completion::TimeUp {
                        return Ok(Completion::TimeUp);
                    }
                }
                hints[at] = self.bounds(goal, phase);
                self.lower[at] = hints[at].0;
                self.outcome.found[at].settled = number + 1 == phases.len();
            }
        }
        Ok(Completion::Done)
    }

    /// Returns the load to decide next. `None` if the bounds are close enough, or if no further bound can be within the
    /// limits. `hint` has the bounds of the previous phase, which are tried first. If only one bound is known, `step`
    /// is the relative distance of the next load from this bound. `step` doubles with each use.
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

    /// Returns the relevant bounds. The upper bound is the least load above the searched rate. The lower bound is the
    /// greatest load that is below the searched rate and less than the upper bound.
    fn bounds(&self, goal: &Goal, phase: &Phase) -> Bounds {
        let on = |side: Side| {
            let on = move |load: &&Load| load.side(goal, phase) == Some(side);
            self.loads.iter().filter(on).map(|load| load.pps)
        };
        let high = on(Side::Above).min_by(f64::total_cmp);
        let below = on(Side::Below).filter(|load| high.is_none_or(|high| *load < high));
        (below.max_by(f64::total_cmp), high)
    }

    /// Runs trials at a load until its side is known.
    fn decide(&mut self, pps: f64, goal: &Goal, phase: &Phase) -> Result<Completion, T::Error> {
        loop {
            if self.measure(pps, phase.span)? == Completion::TimeUp {
                return Ok(Completion::TimeUp);
            }
            if self.loads.iter().any(|load| load.pps == pps && load.side(goal, phase).is_some()) {
                return Ok(Completion::Done);
            }
        }
    }

    /// Runs a trial of `span` seconds and adds its result to the load. Repeats it while it is void, at most [`REPEATS`]
    /// times. Returns [`Completion::TimeUp`] without a result if the time limit leaves no time for the trial.
    fn measure(&mut self, pps: f64, span: f64) -> Result<Completion, T::Error> {
        let mut repeats = REPEATS;
        let trial = loop {
            if self.outcome.seconds + span > self.limits.time.as_secs_f64() {
                return Ok(Completion::TimeUp);
            }
            (self.report)(&SearchProgress { outcome: &self.outcome, pps, lower_pps: &self.lower });
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
        let result = (span, trial.loss());
        match self.loads.iter_mut().find(|load| load.pps == pps) {
            Some(load) => load.trials.push(result),
            None => self.loads.push(Load { pps, trials: vec![result] }),
        }
        Ok(Completion::Done)
    }

    /// Returns the result for a goal. Each bound comes from the latest phase that has one.
    fn found(&self, goal: &Goal, phases: &[Phase]) -> GoalResult {
        let mut found = GoalResult::default();
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
