//! A module's costs as a running pipeline shows them: a profile is of a function alone, with other parameters and a warm cache.
//!
//! Recursive least squares with exponential forgetting (Haykin, "Adaptive Filter Theory", chapter 10), in a few sums: a period
//! is constant work. A period is one point: how many packets its calls had, and what they took. The line that is sought is the
//! profile's times a factor, turned around its value for [`PIVOT`] packets. Where batches are of one size only, which tells one
//! figure of the two, it is not turned: both parts change by the same factor. A point that is far off moves the line little,
//! unless the next is off to the same side: a stall passes, a change stays.

use crate::batching::Line;

/// What a period counts of what the one after it does: half is forgotten after three.
const FORGETTING: f64 = 0.8;
/// The same where the second point in a row is far off to one side: what was before is no guide any more.
const CHANGED: f64 = 0.25;
/// How much the profile counts at first, in parts of a period with many calls.
const PRIOR: f64 = 0.5;
/// A period with so many timed calls counts half of one with very many.
const FEW_CALLS: f64 = 16.0;
/// The batch for which turning the line changes nothing: few packets cost more then, and many less.
const PIVOT: f64 = 8.0;
/// How far a line is usually turned from its profile: the noise of a period over this, squared, is against turning it (ridge regression).
const TURNED: f64 = 0.25;
/// How many times the usual distance a point may be off before it counts as no farther; and what is always allowed.
const FAR: f64 = 3.0;
const USUAL: f64 = 0.01;
/// How much of the usual distance is learnt from one period.
const LEARNT: f64 = 0.2;
/// What a call is taken to cost whose profile says nothing, in seconds.
const LEAST: f64 = 1e-9;
/// The most that a point may say a call costs, in parts of what was expected. Two in a row may be beyond that, as
/// periods share a stall; the third is believed, so that what takes thousands of times what was measured is known after
/// a handful of periods in which it was timed.
const MOST: f64 = 4.0;
const STALLED: u32 = 2;

/// What a module costs, corrected period by period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Online {
    /// The profile's parts, in seconds.
    profile: Line,
    /// What the engine's stopwatch does not count of a call.
    dispatch: f64,
    /// How much all points weigh; their mean batch, how far a turn reaches there, and their mean cost, in parts of the profile's.
    weight: f64,
    packets: f64,
    reach: f64,
    cost: f64,
    /// Sums of squares of what turns reach, and of their products with costs, around the means.
    squares: f64,
    products: f64,
    /// By how much points are usually off, in parts of what was expected.
    usual: f64,
    /// By how much the last point was off, where it was far.
    off: f64,
    /// How many points in a row were more than may be.
    beyond: u32,
}

impl Online {
    /// Begins with a profile, of which the engine's stopwatch does not count `dispatch` seconds of a call.
    #[must_use]
    pub fn new(profile: Line, dispatch: f64) -> Self {
        // No other line is made of one that costs nothing.
        let profile = if profile.at(1.0) > 0.0 { profile } else { Line { fixed: LEAST, each: 0.0 } };
        Self {
            profile,
            dispatch,
            weight: 0.0,
            packets: PIVOT,
            reach: 0.0,
            cost: 1.0,
            squares: 0.0,
            products: 0.0,
            usual: USUAL,
            off: 0.0,
            beyond: 0,
        }
    }

    /// A period is over in which so many calls were timed, on so many packets, and took so many seconds by the engine's stopwatch.
    /// One without any says nothing.
    pub fn note(&mut self, calls: u64, packets: u64, seconds: f64) {
        if calls == 0 || packets == 0 || !seconds.is_finite() {
            return;
        }
        let many = calls as f64;
        let packets = packets as f64 / many;
        let profiled = self.profile.at(packets);
        let reach = self.turned(1.0).at(packets) / profiled;
        if self.weight == 0.0 {
            (self.weight, self.packets, self.reach) = (PRIOR, packets, reach);
        }
        let (cost, kept) = self.believed(packets, (seconds / many + self.dispatch).max(0.0));
        let cost = cost / profiled;
        for sum in [&mut self.weight, &mut self.squares, &mut self.products] {
            *sum *= kept;
        }
        let (weight, before) = (many / (many + FEW_CALLS), self.weight);
        self.weight += weight;
        let (share, moved) = (weight / self.weight, weight * before / self.weight);
        let (aside, above) = (reach - self.reach, cost - self.cost);
        self.packets += share * (packets - self.packets);
        self.reach += share * aside;
        self.cost += share * above;
        self.squares += moved * aside * aside;
        self.products += moved * aside * above;
    }

    /// What turning by `turn` adds: with it and a factor, every line can be made of any profile.
    fn turned(&self, turn: f64) -> Line {
        let fixed = turn * self.profile.at(PIVOT);
        Line { fixed, each: -fixed / PIVOT }
    }

    /// What a call took, unless that is far off and the last was not: then, how far it may be off. And how much counts of
    /// what was before.
    fn believed(&mut self, packets: f64, cost: f64) -> (f64, f64) {
        let expected = self.line().at(packets);
        // What is expected to cost nothing may cost something.
        let unit = expected.max(self.profile.at(packets) * USUAL);
        let off = (cost - expected) / unit;
        let limit = FAR * self.usual.max(USUAL);
        let is_far = off.abs() > limit;
        let again = is_far && off * self.off > 0.0;
        self.off = if is_far { off } else { 0.0 };
        self.beyond = if off > MOST - 1.0 { (self.beyond + 1).min(STALLED + 1) } else { 0 };
        let most = if self.beyond > STALLED { f64::INFINITY } else { MOST - 1.0 };
        let counted = if again { off.min(most) } else { off.clamp(-limit, limit) };
        self.usual += LEARNT * (counted.abs().min(MOST - 1.0) - self.usual);
        (expected + unit * counted, if again { CHANGED } else { FORGETTING })
    }

    /// The cost of a call and of each packet of it. Neither is negative.
    #[must_use]
    pub fn line(&self) -> Line {
        let turn = self.products / (self.squares + (self.usual.max(USUAL) / TURNED).powi(2));
        let (factor, turned) = (self.cost - turn * self.reach, self.turned(turn));
        let line =
            Line { fixed: factor * self.profile.fixed + turned.fixed, each: factor * self.profile.each + turned.each };
        // Neither part is less than nothing; what the mean batch costs stays what it is.
        let mean = line.at(self.packets).max(0.0);
        if line.fixed < 0.0 {
            Line { fixed: 0.0, each: mean / self.packets }
        } else if line.each < 0.0 {
            Line { fixed: mean, each: 0.0 }
        } else {
            line
        }
    }
}

#[cfg(test)]
mod tests;
