//! Corrects a module's costs from a running pipeline. A profile is measured for one function alone, with other
//! parameters and warm caches.
//!
//! The method is recursive least squares with exponential forgetting (Haykin, "Adaptive Filter Theory", chapter 10) in
//! a few sums, with constant work per period. A period is one point: the packets per call and the time per call. The
//! fitted line is the profile's line times a factor, rotated around its value at [`PIVOT`] packets. If all batches have
//! one size, a period cannot separate the two parts of the cost. The line is then not rotated: both parts change by the
//! same factor. An outlier moves the line little, because a stall passes. If the next point deviates in the same
//! direction, the cost has changed, and the line follows.

use crate::batching::Line;

/// The weight of a period relative to the next period: half is forgotten after three periods.
const FORGETTING: f64 = 0.8;
/// The weight of earlier periods if two successive points are outliers in the same direction. Earlier points are then
/// not representative.
const CHANGED: f64 = 0.25;
/// The initial weight of the profile, relative to a period with many calls.
const PRIOR: f64 = 0.5;
/// A period with this number of timed calls has half the weight of a period with very many calls.
const FEW_CALLS: f64 = 16.0;
/// The batch size whose cost a rotation does not change. A positive rotation makes smaller batches more expensive and
/// larger batches cheaper.
const PIVOT: f64 = 8.0;
/// The usual rotation from the profile. The usual distance of points divided by this value, squared, is added to the
/// denominator of the rotation. So the rotation is smaller if points vary more (ridge regression).
const TURNED: f64 = 0.25;
/// The multiple of the usual distance beyond which a point counts as an outlier.
const FAR: f64 = 3.0;
/// The least usual distance, relative to the expected cost.
const USUAL: f64 = 0.01;
/// The weight of one period in the usual distance.
const LEARNT: f64 = 0.2;
/// The assumed cost of a call in seconds, if the profile has no costs.
const LEAST: f64 = 1e-9;
/// The largest cost of a call that is used, relative to the expected cost. A higher cost in one or two successive
/// periods is reduced to this limit, because two adjacent periods can share a stall. The third successive period is
/// used in full. So after a few periods with timed calls, even a cost of thousands of times the expected cost is known.
const MOST: f64 = 4.0;
/// The largest number of successive points above `MOST` that count as stalled.
const STALLED: u32 = 2;

/// The cost of a module, corrected in each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Online {
    /// The profile's line, in seconds.
    profile: Line,
    /// The part of a call that the engine's stopwatch does not count, in seconds.
    dispatch: f64,
    /// The total weight of all points; 0 before the first point.
    weight: f64,
    /// The weighted mean of the points' packets per call.
    packets: f64,
    /// The weighted mean of the points' reach. The reach is the cost that a rotation by 1 adds at the packets per call
    /// of a point, relative to the profile's cost.
    reach: f64,
    /// The weighted mean of the points' cost, relative to the profile's cost.
    cost: f64,
    /// The weighted sum of the squared deviations of the reach from its mean.
    squares: f64,
    /// The weighted sum of the products of the deviations of reach and cost.
    products: f64,
    /// The usual distance of points, relative to the expected cost.
    usual: f64,
    /// The signed distance of the last point, relative to the expected cost, if it was an outlier; else 0.
    off: f64,
    /// The number of successive points above `MOST`.
    beyond: u32,
}

impl Online {
    /// Creates the cost of a module from its profile, in seconds. `dispatch` is the part of a call in seconds that the
    /// engine's stopwatch does not count.
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

    /// Adds a period: the number of timed calls, their packets, and their time in seconds by the engine's stopwatch. A
    /// period without calls or packets is ignored.
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

    /// Returns the line that a rotation by `turn` adds to the profile. With a factor and a rotation, every line can be
    /// made from any profile.
    fn turned(&self, turn: f64) -> Line {
        let fixed = turn * self.profile.at(PIVOT);
        Line { fixed, each: -fixed / PIVOT }
    }

    /// Returns the cost of a call to use for a point, in seconds, and the weight of earlier points. The cost of an
    /// outlier is limited.
    fn believed(&mut self, packets: f64, cost: f64) -> (f64, f64) {
        let expected = self.line().at(packets);
        // The expected cost may be 0, although the call has a cost. So the unit is never 0.
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

    /// Returns the cost of a call and the cost of each packet in the call, in seconds. Both are 0 or more.
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
