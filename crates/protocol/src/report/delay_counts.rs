//! The distribution of a flow's delays.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rounding::rounded;

/// A distribution of delays. A bucket has the delays above the bound of the bucket before it, up to its own bound. Each
/// number of ticks below 16 has its own bucket. Above, every power of two is divided into 16 buckets. The bounds depend
/// only on the clock, so the counts of two reports of one run can be subtracted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayCounts {
    /// The buckets with delays, ascending: the upper bound in microseconds (inclusive, rounded to six digits), and the
    /// number of delays in the bucket. Delays of 2^44 ticks (more than an hour) and above are in the bucket below 2^44.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of the delays, in microseconds. It is not rounded, because the difference of two sums needs all digits.
    pub sum_us: f64,
}

impl DelayCounts {
    /// Rounds the bounds to six significant digits.
    pub(super) fn round(&mut self) {
        self.buckets.iter_mut().for_each(|(bound, _)| *bound = rounded(*bound));
    }

    /// Returns the number of delays.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FlowReport;
    use super::*;

    #[test]
    fn bounds_are_rounded_and_counts_and_sum_are_not() {
        let mut counts = DelayCounts { buckets: vec![(0.0, 1), (1.234_567_8, 12_345_678)], sum_us: 15_241_580.25 };
        counts.round();
        assert_eq!(counts.buckets, [(0.0, 1), (1.234_57, 12_345_678)]);
        assert_eq!((counts.samples(), counts.sum_us), (12_345_679, 15_241_580.25));
    }

    #[test]
    fn buckets_are_pairs_in_json() {
        let counts = DelayCounts { buckets: vec![(0.5, 3), (1.0625, 1)], sum_us: 2.25 };
        let text = serde_json::to_string(&counts).expect("JSON");
        assert_eq!(text, "{\"buckets\":[[0.5,3],[1.0625,1]],\"sum_us\":2.25}");
        assert_eq!(serde_json::from_str::<DelayCounts>(&text).expect("the same"), counts);
    }

    /// A report of an older instance has no distributions. A report without them does not name them.
    #[test]
    fn a_flow_is_read_and_written_with_and_without_a_distribution() {
        let text = "{\"name\":\"f\",\"packets\":4,\"rate_pps\":2.0,\"delay_us\":{\"samples\":4}}";
        let mut flow: FlowReport = serde_json::from_str(text).expect("a flow");
        assert_eq!(flow.delay_counts, None);
        assert!(!serde_json::to_string(&flow).expect("JSON").contains("delay_counts"));
        flow.delay_counts = Some(DelayCounts { buckets: vec![(0.5, 3), (1.0625, 1)], sum_us: 2.25 });
        let text = serde_json::to_string(&flow).expect("JSON");
        assert_eq!(serde_json::from_str::<FlowReport>(&text).expect("a flow"), flow);
    }
}
