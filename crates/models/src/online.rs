//! Corrects a module's costs from a running pipeline. A profile is measured for one function alone, with other
//! parameters and warm caches.
//!
//! The method is recursive least squares with exponential forgetting (Haykin, "Adaptive Filter Theory", chapter 10) in
//! a few sums, with constant work per period. A period is one point: the packets per call and the time per call. The
//! fitted line is the profile's line times a factor, rotated around its value at [`PIVOT`] packets. If all batches have
//! one size, a period cannot separate the two parts, and the line is not rotated: both parts change by the same factor.
//! An outlier moves the line little, unless the next point deviates in the same direction: a stall passes, a change
//! stays.

use crate::batching::Line;

/// The weight of a period relative to the next one: half is forgotten after three periods.
const FORGETTING: f64 = 0.8;
/// The same factor when the second point in a row is an outlier in the same direction: earlier points are then not
/// representative.
const CHANGED: f64 = 0.25;
/// The initial weight of the profile, relative to a period with many calls.
const PRIOR: f64 = 0.5;
/// A period with this number of timed calls has half the weight of one with very many calls.
const FEW_CALLS: f64 = 16.0;
/// The batch size at which rotating the line does not change it: rotation makes small batches more expensive and large
/// ones cheaper.
const PIVOT: f64 = 8.0;
/// The usual rotation from the profile. The noise of a period divided by this, squared, counters the rotation (ridge
/// regression).
const TURNED: f64 = 0.25;
/// A point further away than this multiple of the usual distance counts as an outlier.
const FAR: f64 = 3.0;
/// The least usual distance, relative to the expected cost.
const USUAL: f64 = 0.01;
/// The weight of one period in the usual distance.
const LEARNT: f64 = 0.2;
/// The assumed cost of a call in seconds, if the profile has no costs.
const LEAST: f64 = 1e-9;
/// The largest cost of a call that a point may report, relative to the expected cost. Two points in a row may exceed
/// it, because adjacent periods can share a stall. The third point is used in full, so that a call that takes thousands
/// of times the expected cost is known after a few periods in which it was timed.
const MOST: f64 = 4.0;
/// The number of points in a row above `MOST` that count as stalled.
const STALLED: u32 = 2;

/// The cost of a module, corrected in each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Online {
    /// The profile's line, in seconds.
    profile: Line,
    /// The part of a call that the engine's stopwatch does not count, in seconds.
    dispatch: f64,
    /// The total weight of all points; their mean batch, mean rotation and mean cost (the last two relative to the
    /// profile).
    weight: f64,
    packets: f64,
    reach: f64,
    cost: f64,
    /// Weighted sums of the squared deviations of the rotation, and of the products of the deviations of rotation and
    /// cost.
    squares: f64,
    products: f64,
    /// The usual distance of points, relative to the expected cost.
    usual: f64,
    /// The distance of the last point if it was an outlier, else 0.
    off: f64,
    /// The number of points in a row above the largest accepted cost.
    beyond: u32,
}

impl Online {
    /// Begins with a profile. The engine's stopwatch does not count `dispatch` seconds of each call.
    #[must_use]
    pub fn new(profile: Line, dispatch: f64) -> Self {
        // A profile without costs cannot be scaled.
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

    /// Adds a period with the number of timed calls, their packets and their seconds by the engine's stopwatch. A
    /// period without calls is ignored.
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

    /// Returns the line that a rotation by `turn` adds. With it and a factor, every line can be made from any profile.
    fn turned(&self, turn: f64) -> Line {
        let fixed = turn * self.profile.at(PIVOT);
        Line { fixed, each: -fixed / PIVOT }
    }

    /// Returns the cost of a call, limited if it is the first outlier, and the weight of earlier points.
    fn believed(&mut self, packets: f64, cost: f64) -> (f64, f64) {
        let expected = self.line().at(packets);
        // A call with an expected cost of 0 may have a cost.
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

    /// Returns the cost of a call and of each packet in it. Neither is negative.
    #[must_use]
    pub fn line(&self) -> Line {
        let turn = self.products / (self.squares + (self.usual.max(USUAL) / TURNED).powi(2));
        let (factor, turned) = (self.cost - turn * self.reach, self.turned(turn));
        let line =
            Line { fixed: factor * self.profile.fixed + turned.fixed, each: factor * self.profile.each + turned.each };
        // A negative part becomes 0; the cost of the mean batch does not change.
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
