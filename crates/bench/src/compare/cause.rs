//! Finds the cause of a change of ticks per packet, from other figures that changed.
//!
//! Ticks per packet are instructions per packet times ticks per instruction. Some instructions are executed once per
//! call, regardless of the number of packets. The causes are examined in this order: a worker that sleeps or waits
//! counts ticks without work; smaller batches divide a call's cost among fewer packets; more instructions mean more
//! code; any other change is more ticks for the same instructions: memory or branches.

use serde::Serialize;

use super::Part;
use crate::estimate::Interval;

/// The cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// More or fewer instructions.
    Code,
    /// More or fewer ticks per instruction: memory or branches.
    Memory,
    /// Smaller or larger batches.
    Batches,
    /// A worker sleeps or waits more.
    LessBusy,
    /// Unknown, because instructions were not counted.
    Unknown,
}

/// A cause with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Why {
    /// The cause.
    pub cause: Cause,
    /// The evidence, in words.
    pub evidence: String,
}

/// The cause is [`Cause::LessBusy`] if the share of time in which a worker sleeps or waits has increased by more than
/// this value: 0.01 is one percentage point.
const SLEEP: f64 = 0.01;
/// Batches count as changed if the relative change of packets per call is more than this value.
const BATCHES: f64 = 0.1;
/// Code counts as changed if the relative change of instructions per packet is more than this value. Counts have no
/// noise, so the value is small.
const CODE: f64 = 0.002;
/// Instructions are the cause of a change of ticks if they explain at least this share of the change.
const EXPLAINS: f64 = 0.4;

/// Returns the cause if a worker sleeps or waits more than before.
pub(super) fn less_busy(slept: Interval) -> Option<Why> {
    let evidence = || format!("workers sleep or wait for {:.1} % more of the time", slept.middle * 100.0);
    (slept.low > SLEEP).then(|| Why { cause: Cause::LessBusy, evidence: evidence() })
}

/// Returns the cause of the change of a part's ticks. The caller has found that the change is significant.
pub(super) fn of(part: &Part, slept: Option<Interval>) -> Why {
    let change = part.change.map_or(0.0, |change| change.middle);
    let share = |[a, b]: [Option<f64>; 2]| Some(b? / a? - 1.0);
    if let Some(why) = slept.and_then(less_busy).filter(|_| change > 0.0) {
        return why;
    }
    if let [Some(before), Some(now)] = part.packets_per_call
        && (now / before - 1.0).abs() > BATCHES
        && (now < before) == (change > 0.0)
    {
        return Why { cause: Cause::Batches, evidence: format!("{now:.1} packets per call instead of {before:.1}") };
    }
    let Some(instructions) = share(part.ipp).filter(|share| share.is_finite()) else {
        return Why { cause: Cause::Unknown, evidence: "instructions were not counted".to_owned() };
    };
    let evidence = format!("{:+.1} % instructions, {:+.1} % ticks", instructions * 100.0, change * 100.0);
    let is_code = instructions.abs() > CODE && (instructions > 0.0) == (change > 0.0);
    // The share of the logarithm of the change that instructions explain. The rest is ticks per instruction.
    let explained = instructions.ln_1p() / change.ln_1p();
    if is_code && explained >= EXPLAINS {
        let rest = (change + 1.0) / (instructions + 1.0) - 1.0;
        let evidence = if explained < 1.0 - EXPLAINS {
            format!("{evidence}: ticks per instruction also changed ({:+.1} %)", rest * 100.0)
        } else {
            evidence
        };
        return Why { cause: Cause::Code, evidence };
    }
    Why { cause: Cause::Memory, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;

    fn part(change: f64, ipp: [f64; 2], packets_per_call: [f64; 2]) -> Part {
        Part {
            name: "a".to_owned(),
            verdict: Verdict::Increased,
            cpp_ticks: [Some(10.0), Some(10.0 * (1.0 + change))],
            change: Some(Interval { middle: change, low: change - 0.01, high: change + 0.01 }),
            ipp: ipp.map(Some),
            packets_per_call: packets_per_call.map(Some),
            why: None,
        }
    }

    #[test]
    fn each_cause_is_known_by_what_changes_with_the_ticks() {
        let cause = |part: &Part, slept: f64| {
            of(part, Some(Interval { middle: slept, low: slept - 0.005, high: slept + 0.005 })).cause
        };
        assert_eq!(cause(&part(0.30, [40.0, 52.0], [32.0, 32.0]), 0.0), Cause::Code);
        assert_eq!(cause(&part(0.30, [40.0, 40.0], [32.0, 32.0]), 0.0), Cause::Memory);
        // A little more code is not the cause of cache misses.
        assert_eq!(cause(&part(3.00, [40.0, 41.0], [32.0, 32.0]), 0.0), Cause::Memory);
        // Fewer packets per call also mean more instructions per packet; that is not a second cause.
        assert_eq!(cause(&part(0.60, [40.0, 60.0], [32.0, 4.0]), 0.0), Cause::Batches);
        assert_eq!(cause(&part(0.30, [40.0, 52.0], [32.0, 31.0]), 0.0), Cause::Code);
        assert_eq!(cause(&part(0.30, [40.0, 52.0], [32.0, 32.0]), 0.1), Cause::LessBusy);
        // Cheaper: less code, larger batches, fewer cache misses.
        assert_eq!(cause(&part(-0.30, [40.0, 30.0], [32.0, 32.0]), 0.0), Cause::Code);
        assert_eq!(cause(&part(-0.30, [40.0, 30.0], [4.0, 32.0]), 0.0), Cause::Batches);
        assert_eq!(cause(&part(-0.30, [40.0, 41.0], [32.0, 32.0]), 0.0), Cause::Memory);
        assert_eq!(cause(&Part { ipp: [None, Some(1.0)], ..part(0.3, [1.0; 2], [32.0; 2]) }, 0.0), Cause::Unknown);
    }
}
