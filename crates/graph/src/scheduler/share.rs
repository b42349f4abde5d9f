//! A module's share under a scheduler that shares time: its weight, its rate limit, and the marks of its queue.

use forebay_protocol::RateLimit;
use forebay_units::{BitRate, Nanos, PacketRate, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The largest weight.
pub const MAX_WEIGHT: u32 = 65_535;
/// The longest queue that marks can be set for, in packets: the number of packets in the largest pool.
pub const MAX_QUEUE: u32 = 16_777_216;
/// The longest burst of a rate limit.
const MAX_BURST: Nanos = Nanos(10_000_000_000);

/// The weight, the rate limit and the queue marks of a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Backlogged modules get ticks in proportion to their weights.
    pub weight: u32,
    /// The rate limit. `None`: no limit.
    pub limit: Option<RateLimit>,
    /// The marks of the module's queue.
    pub marks: Marks,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, limit: None, marks: Marks::default() }
    }
}

/// High and low water marks of a module's input queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The nominal length of the queue, in packets. The queue may become longer.
    pub queue: u32,
    /// The module becomes overloaded when its queue reaches this percentage of `queue`.
    pub high: u32,
    /// The overload ends when the queue has fallen to this percentage of `queue`.
    pub low: u32,
    /// The reaction to an overload.
    pub when_full: WhenFull,
}

impl Default for Marks {
    /// Returns NFVnice's 80 % and 60 %.
    fn default() -> Self {
        Self { queue: 1_024, high: 80, low: 60, when_full: WhenFull::Wait }
    }
}

/// The reaction while a module is overloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The ports whose packets can come to the module are not read.
    #[default]
    Wait,
    /// Packets are dropped at the start of the chain that leads only to the module. Packets of another worker are also
    /// dropped if the ring to the module's worker is full.
    Drop,
}

/// An invalid share.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{value}: allowed are {allowed}")]
pub struct ShareError {
    /// The part of the share that is invalid.
    pub part: &'static str,
    /// The value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl Share {
    /// Returns the share of each of `workers` workers that run the module. Each worker gets an equal part of the rate
    /// limit, so together they keep the limit.
    #[must_use]
    pub fn of(self, workers: usize) -> Self {
        let part = |rate: f64| rate / workers as f64;
        let limit = self.limit.map(|limit| RateLimit {
            rate: match limit.rate {
                Rate::Packets(PacketRate(rate)) => Rate::Packets(PacketRate(part(rate))),
                Rate::Bits(BitRate(rate)) => Rate::Bits(BitRate(part(rate))),
            },
            ..limit
        });
        Self { limit, ..self }
    }
}

impl Share {
    /// Checks the share.
    ///
    /// # Errors
    /// The first invalid part.
    pub fn check(&self) -> Result<(), ShareError> {
        check_weight(self.weight)?;
        self.limit.as_ref().map_or(Ok(()), check_limit)?;
        let Marks { queue, high, low, .. } = self.marks;
        within("queue", queue, 1, MAX_QUEUE)?;
        within("high", high, 1, 100)?;
        within("low", low, 0, high - 1)
    }
}

/// Checks the ranges of a rate limit.
///
/// # Errors
/// The first part that is out of range.
pub(crate) fn check_limit(limit: &RateLimit) -> Result<(), ShareError> {
    let (per_second, written) = match limit.rate {
        Rate::Packets(rate) => (rate.0, rate.to_string()),
        Rate::Bits(rate) => (rate.0 / 8.0, rate.to_string()),
    };
    let most = if matches!(limit.rate, Rate::Packets(_)) { 1e12 } else { 1e15 };
    if !(1.0..=most).contains(&per_second) {
        let allowed = "1pps to 1000Gpps or 8bps to 8000Tbps".to_owned();
        return Err(ShareError { part: "rate", value: written, allowed });
    }
    if limit.burst > MAX_BURST {
        let allowed = format!("0us to {MAX_BURST}");
        return Err(ShareError { part: "burst", value: limit.burst.to_string(), allowed });
    }
    Ok(())
}

/// Checks a weight.
pub(crate) fn check_weight(weight: u32) -> Result<(), ShareError> {
    within("weight", weight, 1, MAX_WEIGHT)
}

fn within(part: &'static str, value: u32, least: u32, most: u32) -> Result<(), ShareError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ShareError { part, value: value.to_string(), allowed: format!("{least} to {most}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_share_is_refused_with_the_value_and_the_allowed_ones() {
        let share = Share::default();
        assert_eq!(share.check(), Ok(()));
        let limit = |rate, burst| Share { limit: Some(RateLimit { rate, burst }), ..share };
        let marks = |queue, high, low| Share { marks: Marks { queue, high, low, ..share.marks }, ..share };
        let wrong = [
            (Share { weight: 0, ..share }, "weight", "0: allowed are 1 to 65535"),
            (Share { weight: 65_536, ..share }, "weight", "65536: allowed are 1 to 65535"),
            (marks(0, 80, 60), "queue", "0: allowed are 1 to 16777216"),
            (marks(9, 101, 60), "high", "101: allowed are 1 to 100"),
            (marks(9, 50, 50), "low", "50: allowed are 0 to 49"),
            (
                limit(Rate::Packets(PacketRate(0.5)), Nanos(0)),
                "rate",
                "0.5pps: allowed are 1pps to 1000Gpps or 8bps to 8000Tbps",
            ),
            (
                limit(Rate::Bits(BitRate(1.0)), Nanos(0)),
                "rate",
                "1bps: allowed are 1pps to 1000Gpps or 8bps to 8000Tbps",
            ),
            (limit(Rate::Bits(BitRate(1e9)), Nanos(u64::MAX)), "burst", "allowed are 0us to 10s"),
        ];
        for (share, part, message) in wrong {
            let error = share.check().expect_err(message);
            assert_eq!(error.part, part);
            assert!(error.to_string().ends_with(message), "{error}");
        }
    }
}
