//! The delay of a flow that must keep its objective: a percentile of the delays of its packets, or their mean.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The statistic of a flow's delay that must keep the objective: a percentile, written as a number, or `mean`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(from = "Text", into = "Text")]
#[schemars(with = "Text")]
pub enum Percentile {
    /// The delay that this percentage of the packets does not exceed, above 0 to 100.
    Of(f64),
    /// The mean of all packets' delays.
    Mean,
}

/// How a percentile is written.
#[derive(Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(untagged, expecting = "expected a number above 0 to 100, or `mean`")]
enum Text {
    Number(#[schemars(extend("exclusiveMinimum" = 0, "maximum" = 100))] f64),
    Word(Word),
}

#[derive(Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Mean,
}

impl From<Text> for Percentile {
    fn from(text: Text) -> Self {
        match text {
            Text::Number(percent) => Self::Of(percent),
            Text::Word(Word::Mean) => Self::Mean,
        }
    }
}

impl From<Percentile> for Text {
    fn from(percentile: Percentile) -> Self {
        match percentile {
            Percentile::Of(percent) => Self::Number(percent),
            Percentile::Mean => Self::Word(Word::Mean),
        }
    }
}

impl From<Percentile> for serde_json::Value {
    fn from(percentile: Percentile) -> Self {
        match percentile {
            Percentile::Of(percent) => percent.into(),
            Percentile::Mean => "mean".into(),
        }
    }
}

impl Default for Percentile {
    fn default() -> Self {
        Self::Of(99.0)
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(percent) => write!(f, "p{percent}"),
            Self::Mean => f.write_str("mean"),
        }
    }
}

impl Percentile {
    /// Returns whether the percentage is in its range: above 0 to 100.
    #[must_use]
    pub fn is_sound(self) -> bool {
        match self {
            Self::Of(percent) => percent > 0.0 && percent <= 100.0,
            Self::Mean => true,
        }
    }

    /// Returns the share of packets that must not exceed the objective, 0 to 1. `None` for the mean.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        match self {
            Self::Of(percent) => Some(percent / 100.0),
            Self::Mean => None,
        }
    }

    /// Returns the number of samples above the percentile, out of `packets` samples. For the mean, it is `packets`.
    #[must_use]
    pub fn samples_above(self, packets: u64) -> f64 {
        packets as f64 * (1.0 - self.share().unwrap_or(0.0))
    }

    /// Returns true if the delays of `packets` packets missed the objective. `violations` is the number of packets
    /// above the objective. `mean` is the mean delay in the unit of `objective`. `None` if the mean is unknown: then an
    /// objective for the mean is not missed. Violations are counted packet by packet, because measured percentiles may
    /// be up to 1/16 too high.
    #[must_use]
    pub fn is_missed(self, objective: f64, packets: u64, violations: u64, mean: Option<f64>) -> bool {
        match self {
            Self::Of(_) => violations as f64 > self.samples_above(packets) * (1.0 + 1e-9),
            Self::Mean => mean.is_some_and(|mean| mean > objective),
        }
    }

    /// Returns the ratio of the longest wait of a packet for its batch to the percentile or mean of these waits. The
    /// packets of a batch come one after the other, so the longest wait is twice the mean. A percentile is assumed to
    /// be the longest wait.
    #[must_use]
    pub fn longest(self) -> f64 {
        if self == Self::Mean { 2.0 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_a_number_or_as_mean() {
        for (percentile, text) in [(Percentile::Of(99.9), "99.9"), (Percentile::Mean, "\"mean\"")] {
            assert_eq!(serde_json::to_string(&percentile).expect("plain"), text);
            assert_eq!(serde_json::from_str::<Percentile>(text).expect("plain"), percentile);
        }
        let error = serde_json::from_str::<Percentile>("\"median\"").expect_err("no percentile").to_string();
        assert!(error.contains("above 0 to 100, or `mean`"), "{error}");
        assert_eq!([Percentile::Of(95.0), Percentile::Mean].map(|it| it.to_string()), ["p95", "mean"]);
    }

    #[test]
    fn the_mean_is_missed_by_all_packets_together() {
        let missed = |percentile: Percentile, violations, mean| percentile.is_missed(10.0, 100, violations, Some(mean));
        assert!(!missed(Percentile::Of(95.0), 5, 50.0) && missed(Percentile::Of(95.0), 6, 1.0));
        assert!(!missed(Percentile::Mean, 99, 10.0) && missed(Percentile::Mean, 1, 10.1));
        assert!(!Percentile::Mean.is_missed(10.0, 0, 0, None));
    }
}
