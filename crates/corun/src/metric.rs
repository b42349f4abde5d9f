//! The candidates for the metric that represents a function's demand on shared resources, and the paper's two tests.
//!
//! A metric qualifies if competitors do not change it (5), and if it correlates with the solo rate (6). Before the
//! tests, its values are divided by the largest value over all functions.

use forebay_measure::events::Event;
use schemars::JsonSchema;
use serde::Serialize;

use crate::record::{Competitor, FunctionRecord, Load, Span};
use crate::statistics::{correlation, median, variance};
use crate::synthetic::LINE;

/// A metric qualifies only if its variance beside competitors is at most this value (5).
pub const VARIANCE: f64 = 0.01;
/// A metric qualifies only if the absolute value of its correlation with the solo rate is at least this value (6).
pub const CORRELATION: f64 = 0.9;
/// The minimum number of functions for a correlation. With fewer functions, a correlation may be due to chance.
pub const FUNCTIONS: usize = 8;
/// For the synthetic competitor, this many lines count as one packet. (A short packet has a line of metadata and a line
/// of data.)
const LINES_PER_PACKET: f64 = 2.0;
/// The instructions of the synthetic competitor per line: a load, its address, and its share of the loop.
const INSTRUCTIONS_PER_LINE: f64 = 5.0;
/// Before a demand is computed, smaller values of a metric are raised to this value, so that their inverse is finite. A
/// function without cache misses then has almost no demand.
const LEAST: f64 = 1e-6;

/// The name of the memory bandwidth metric.
pub(crate) const BANDWIDTH: &str = "memory_bytes_per_packet";
/// The metrics that depend on an event of the processor, each with this event. Without the event, the metric is
/// unknown.
pub(crate) const COUNTED: &[(&str, Event)] = &[
    ("instructions_per_packet", Event::Instructions),
    ("stall_ticks_per_packet", Event::StalledBackend),
    ("stall_ticks_per_packet", Event::StalledFrontend),
    ("llc_misses_per_packet", Event::LlcMisses),
];

/// A candidate for the metric of a function's demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Ticks per packet: the inverse of the rate itself.
    Ticks,
    /// Instructions per packet, counted by the processor.
    Instructions,
    /// Core cycles without progress per packet, the paper's choice.
    Stalls,
    /// Misses of the last-level cache per packet.
    LlcMisses,
    /// Bytes to and from memory per packet.
    MemoryBytes,
    /// Instructions per packet, counted in a simulation.
    SimulatedInstructions,
    /// Lines per packet that missed a simulated private cache of the core.
    SharedLines,
    /// Lines per packet that missed a simulated last-level cache.
    MemoryLines,
    /// The size of the simulated cache that misses almost no lines, in bytes.
    Footprint,
    /// Ticks per line that missed a simulated private cache of the core.
    TicksPerSharedLine,
}

/// All metrics. If several of them qualify with the same absolute correlation, the first one is chosen ([`choose`]).
pub const METRICS: [Metric; 10] = [
    Metric::Stalls,
    Metric::Instructions,
    Metric::LlcMisses,
    Metric::MemoryBytes,
    Metric::SimulatedInstructions,
    Metric::SharedLines,
    Metric::MemoryLines,
    Metric::Footprint,
    Metric::TicksPerSharedLine,
    Metric::Ticks,
];

impl Metric {
    /// Returns the name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ticks => "ticks_per_packet",
            Self::Instructions => "instructions_per_packet",
            Self::Stalls => "stall_ticks_per_packet",
            Self::LlcMisses => "llc_misses_per_packet",
            Self::MemoryBytes => BANDWIDTH,
            Self::SimulatedInstructions => "simulated_instructions_per_packet",
            Self::SharedLines => "simulated_shared_lines_per_packet",
            Self::MemoryLines => "simulated_memory_lines_per_packet",
            Self::Footprint => "simulated_footprint_bytes",
            Self::TicksPerSharedLine => "ticks_per_simulated_shared_line",
        }
    }

    /// Returns whether the metric is computed from the rate, so that its correlation with the rate has little meaning.
    #[must_use]
    pub fn is_circular(self) -> bool {
        matches!(self, Self::Ticks | Self::TicksPerSharedLine)
    }

    /// Returns whether the metric comes from a simulation of caches. Then competitors cannot change it.
    #[must_use]
    pub fn is_simulated(self) -> bool {
        matches!(self, Self::SimulatedInstructions | Self::SharedLines | Self::MemoryLines | Self::Footprint)
    }

    /// Returns whether a larger value means a larger demand. If so, x is the inverse of the value, because demands are
    /// `1/x` (7).
    fn is_direct(self) -> bool {
        let direct = [Self::LlcMisses, Self::MemoryBytes, Self::SharedLines, Self::MemoryLines, Self::Footprint];
        direct.contains(&self)
    }

    /// Returns x for a value of the metric. The demand is `1/x` (7).
    #[must_use]
    pub fn demand(self, value: f64) -> f64 {
        let value = value.max(LEAST);
        if self.is_direct() { 1.0 / value } else { value }
    }

    /// Returns the value of the metric in a span. `hertz` is the number of ticks per second. `None` if it is unknown.
    fn value(self, record: &FunctionRecord, span: &Span, hertz: f64) -> Option<f64> {
        let per_packet = |count: Option<f64>| Some(count? / span.packets as f64);
        let ticks = hertz / span.rate();
        match self {
            Self::Ticks => Some(ticks),
            Self::Instructions => per_packet(span.instructions),
            Self::Stalls => per_packet(span.stalls),
            Self::LlcMisses => per_packet(span.llc_misses),
            Self::MemoryBytes => per_packet(span.memory_bytes),
            Self::SimulatedInstructions => Some(record.simulated?.instructions),
            Self::SharedLines => Some(record.simulated?.shared_lines),
            Self::MemoryLines => Some(record.simulated?.memory_lines),
            Self::Footprint => Some(record.simulated?.footprint_bytes),
            Self::TicksPerSharedLine => Some(ticks / record.simulated?.shared_lines.max(LEAST)),
        }
    }

    /// Returns the values of the metric for a function. `hertz` is the number of ticks per second. `None` if a value is
    /// unknown.
    #[must_use]
    pub fn values(self, record: &FunctionRecord, hertz: f64) -> Option<Values> {
        let of = |spans: Vec<&Span>| {
            let values: Option<Vec<_>> = spans.into_iter().map(|span| self.value(record, span, hertz)).collect();
            median(values?)
        };
        let alone: Vec<_> = record.samples.iter().flat_map(|sample| [&sample.before, &sample.after]).collect();
        let rate = median(alone.iter().map(|span| span.rate()).collect())?;
        let mut sets: Vec<_> = record.samples.iter().map(|sample| &sample.competitors).collect();
        sets.sort();
        sets.dedup();
        let beside = sets.into_iter().map(|set| {
            let own = record.samples.iter().filter(|sample| sample.competitors == *set);
            of(own.map(|sample| &sample.beside).collect())
        });
        Some(Values { rate, beside: beside.collect::<Option<_>>()?, alone: of(alone)? })
    }

    /// Returns the value of the metric for a synthetic competitor, derived from its load. `hertz` is the number of
    /// ticks per second, and `shared` the size of the last-level cache in bytes. `None` for other competitors, or if
    /// this competitor did no work.
    #[must_use]
    pub fn of_synthetic(self, competitor: &Competitor, load: &Load, hertz: f64, shared: u64) -> Option<f64> {
        let Competitor::Synthetic(demand) = competitor else { return None };
        let lines = load.walked + load.streamed;
        if lines <= 0.0 {
            return None;
        }
        let to_memory = LINES_PER_PACKET * memory_share(demand.bytes, load, shared);
        Some(match self {
            // The competitor waits for lines all the time, so all its ticks are stalls.
            Self::Ticks | Self::Stalls => LINES_PER_PACKET * hertz / lines,
            Self::Instructions | Self::SimulatedInstructions => LINES_PER_PACKET * INSTRUCTIONS_PER_LINE,
            Self::LlcMisses | Self::MemoryLines => to_memory,
            Self::MemoryBytes => to_memory * LINE as f64,
            Self::SharedLines => LINES_PER_PACKET,
            Self::Footprint => demand.bytes as f64,
            Self::TicksPerSharedLine => hertz / lines,
        })
    }
}

/// Returns the share of a synthetic competitor's lines that come from memory: the streamed lines, and the walked lines
/// that do not fit into the last-level cache. `bytes` is the size of the memory that is walked, and `shared` the size
/// of the cache.
pub(crate) fn memory_share(bytes: usize, load: &Load, shared: u64) -> f64 {
    let lines = load.walked + load.streamed;
    let beyond = if bytes as u64 > shared { load.walked * (1.0 - shared as f64 / bytes as f64) } else { 0.0 };
    if lines > 0.0 { (load.streamed + beyond) / lines } else { 0.0 }
}

/// The values of a metric for a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// The solo rate, in packets per second.
    pub rate: f64,
    /// The metric without competitors.
    pub alone: f64,
    /// The metric beside each set of competitors.
    pub beside: Vec<f64>,
}

/// The result of the two tests for a metric.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Verdict {
    /// The metric.
    pub name: &'static str,
    /// The number of functions for which it is known.
    pub functions: usize,
    /// The largest variance of a function beside competitors (5). The values are divided by the largest of all. Null if
    /// it is unknown.
    pub variance: Option<f64>,
    /// The correlation with the solo rate (6). Null if it is unknown, or if there are fewer than eight functions.
    pub correlation: Option<f64>,
    /// Whether it contains the rate.
    pub is_circular: bool,
    /// Whether competitors cannot change it, because it comes from a simulation of caches.
    pub is_simulated: bool,
    /// Whether it passes both tests.
    pub qualifies: bool,
    /// The reason if it is unknown, or null.
    pub why: Option<String>,
}

/// The reason for the choice of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Choice {
    /// The metric qualifies, and has the largest absolute correlation of all that qualify.
    Qualifies,
    /// Only metrics that contain the rate qualify. This one has the largest absolute correlation.
    Circular,
    /// No metric qualifies. The metric is ticks per packet, which are always known.
    None,
}

/// Tests a metric by its values for all functions. `why` is the reason if the values are unknown.
#[must_use]
pub fn test(metric: Metric, values: &[Values], why: Option<&str>) -> Verdict {
    let largest =
        values.iter().flat_map(|it| it.beside.iter().chain([&it.alone])).fold(0.0, |a: f64, b| a.max(b.abs()));
    let normalised = |it: &Values| it.beside.iter().map(|value| value / largest).collect::<Vec<_>>();
    let variances = values.iter().map(|it| variance(&normalised(it)));
    let is_known = largest > 0.0 && !values.is_empty();
    let largest_variance = is_known.then(|| variances.fold(0.0, f64::max));
    let pairs: Vec<_> = values.iter().map(|it| (it.rate, it.alone)).collect();
    let correlation = if values.len() >= FUNCTIONS { correlation(&pairs) } else { None };
    let is_flat = largest_variance.is_some_and(|it| it <= VARIANCE);
    let why = match why {
        Some(why) if values.is_empty() => Some(why.to_owned()),
        _ if !values.is_empty() && values.len() < FUNCTIONS => Some(format!("fewer than {FUNCTIONS} functions")),
        _ if is_known && correlation.is_none() => Some("it is the same for all functions".to_owned()),
        _ if !is_known => Some("nothing was measured".to_owned()),
        _ => None,
    };
    Verdict {
        name: metric.name(),
        functions: values.len(),
        variance: largest_variance,
        correlation,
        is_circular: metric.is_circular(),
        is_simulated: metric.is_simulated(),
        qualifies: is_flat && correlation.is_some_and(|r| r.abs() >= CORRELATION),
        why,
    }
}

/// Chooses a metric by the verdicts. Only metrics that are known for all `functions` are eligible.
#[must_use]
pub fn choose(verdicts: &[(Metric, Verdict)], functions: usize) -> (Metric, Choice) {
    let best = |is_circular: bool| {
        let may = verdicts.iter().filter(|(_, it)| it.qualifies && it.functions == functions);
        let may = may.filter(|(metric, _)| metric.is_circular() == is_circular);
        let strength = |verdict: &Verdict| verdict.correlation.unwrap_or(0.0).abs();
        // If several metrics are equally strong, the first one is chosen.
        may.rev().max_by(|a, b| strength(&a.1).total_cmp(&strength(&b.1))).map(|(metric, _)| *metric)
    };
    match (best(false), best(true)) {
        (Some(metric), _) => (metric, Choice::Qualifies),
        (None, Some(metric)) => (metric, Choice::Circular),
        (None, None) => (Metric::Ticks, Choice::None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn functions(slopes: &[(f64, f64)]) -> Vec<Values> {
        let of = |(at, (alone, wobble)): (usize, &(f64, f64))| Values {
            rate: 1e6 * (at + 1) as f64,
            alone: *alone,
            beside: vec![*alone, alone * (1.0 + wobble), alone * (1.0 - wobble)],
        };
        slopes.iter().enumerate().map(of).collect()
    }

    /// Eight functions whose metric falls as their rates grow.
    fn falling(wobble: f64) -> Vec<Values> {
        functions(&(0..8).map(|at| (100.0 - 10.0 * f64::from(at), wobble)).collect::<Vec<_>>())
    }

    #[test]
    fn a_metric_qualifies_by_both_tests() {
        let good = test(Metric::Stalls, &falling(0.01), None);
        assert!(good.qualifies && good.why.is_none() && good.correlation.is_some_and(|r| r < -0.999), "{good:?}");
        let unsteady = test(Metric::Stalls, &falling(0.2), None);
        assert!(!unsteady.qualifies && unsteady.variance.is_some_and(|it| it > VARIANCE), "{unsteady:?}");
        let few = test(Metric::Stalls, &falling(0.01)[..7], None);
        assert_eq!((few.qualifies, few.why.as_deref()), (false, Some("fewer than 8 functions")));
        let same = test(Metric::Footprint, &functions(&[(7.0, 0.0); 9]), None);
        assert_eq!((same.qualifies, same.why.as_deref()), (false, Some("it is the same for all functions")));
        let unknown = test(Metric::Stalls, &[], Some("there are no counters"));
        assert_eq!((unknown.variance, unknown.why.as_deref()), (None, Some("there are no counters")));
    }

    #[test]
    fn a_metric_that_contains_the_rate_comes_last() {
        let verdict = |metric, values: &[Values]| (metric, test(metric, values, None));
        let (good, bad) = (falling(0.01), falling(0.3));
        let both = [verdict(Metric::Stalls, &good), verdict(Metric::Ticks, &good)];
        assert_eq!(choose(&both, 8), (Metric::Stalls, Choice::Qualifies));
        let circular = [verdict(Metric::Stalls, &bad), verdict(Metric::Ticks, &good)];
        assert_eq!(choose(&circular, 8), (Metric::Ticks, Choice::Circular));
        assert_eq!(choose(&[verdict(Metric::Stalls, &bad)], 8), (Metric::Ticks, Choice::None));
        // The metric is unknown for a ninth function.
        assert_eq!(choose(&both, 9), (Metric::Ticks, Choice::None));
        assert_eq!(choose(&[], 0), (Metric::Ticks, Choice::None));
    }

    proptest! {
        /// The unit of a metric does not change its variance or correlation.
        #[test]
        fn units_do_not_matter(
            values in prop::collection::vec((1.0..1e3f64, 0.0..0.5f64), 8..20),
            unit in 1e-3..1e3f64,
        ) {
            let scaled: Vec<_> = values.iter().map(|(alone, wobble)| (alone * unit, *wobble)).collect();
            let [one, other] = [values, scaled].map(|it| test(Metric::Stalls, &functions(&it), None));
            let near = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| (a - b).abs() < 1e-9);
            prop_assert!(near(one.variance, other.variance) && near(one.correlation, other.correlation));
            let variance = one.variance.unwrap_or(9.0);
            prop_assert!((0.0..=0.25).contains(&(variance / 1.5_f64.powi(2))), "of values within 0 to 1: {variance}");
            let by_hand = variance <= VARIANCE && one.correlation.is_some_and(|r| r.abs() >= CORRELATION);
            prop_assert_eq!(one.qualifies, by_hand);
        }

        /// The chosen metric is never weaker than another one that qualifies.
        #[test]
        fn the_strongest_is_chosen(slopes in prop::collection::vec(0.0..40.0f64, 1..6)) {
            let of = |noise: &f64| functions(&(0..9).map(|at: i32| {
                (200.0 - 10.0 * f64::from(at) + noise * f64::from(at % 3 - 1), 0.0)
            }).collect::<Vec<_>>());
            let verdicts: Vec<_> =
                METRICS.into_iter().zip(&slopes).map(|(metric, it)| (metric, test(metric, &of(it), None))).collect();
            let (chosen, how) = choose(&verdicts, 9);
            let strength = |metric| verdicts.iter().find(|(it, _)| *it == metric).and_then(|(_, it)| it.correlation);
            for (metric, verdict) in verdicts.iter().filter(|(metric, it)| it.qualifies && !metric.is_circular()) {
                prop_assert!(strength(chosen).unwrap_or(0.0).abs() >= verdict.correlation.unwrap_or(0.0).abs());
                prop_assert!(how == Choice::Qualifies && !chosen.is_circular(), "{metric:?} qualifies");
            }
        }
    }
}
