//! Tests models of synthetic records with known parameters.

use proptest::prelude::*;

use super::*;
use crate::record::{Simulated, Span, Void};
use crate::session::tests::empty;
use crate::synthetic::{Demand, levels};

const HERTZ: f64 = 1e9;
const SHARED: u64 = 32 << 20;

fn span(rate: f64) -> Span {
    let (instructions, stalls, llc_misses, memory_bytes) = (None, None, None, None);
    let packets = (rate * 10.0).round() as u64;
    Span { seconds: 10.0, packets, away: 0.0, instructions, stalls, llc_misses, memory_bytes }
}

fn load(demand: &Demand) -> Load {
    let lines = 4e8 * f64::from(demand.pace) / 100.0;
    let streamed = lines * f64::from(demand.streamed) / 100.0;
    Load { packets: 0.0, walked: lines - streamed, streamed }
}

/// Returns records of functions with these solo rates. Each function has the parameters `truth`, and noise.
fn records(rates: &[f64], truth: Sensitivity, noise: &[f64]) -> Records {
    let mut records = empty();
    records.hertz = HERTZ;
    let keys: Vec<_> = (0..rates.len()).map(|at| format!("f{at}")).collect();
    let demands = levels(1 << 20, SHARED as usize);
    let mut noise = noise.iter().cycle().copied();
    // As in the model, the metric is ticks per packet, and two lines count as one packet.
    let most = (4e8 / 2.0 / HERTZ, 0.9 * 4e8 / 2.0 / HERTZ);
    for (index, rate) in rates.iter().enumerate() {
        let mut samples = Vec::new();
        for pass in 0..3 {
            for set in crate::plan::competitors(&keys, index, &demands, 1) {
                let (cache, memory, load) = match &set[0] {
                    Competitor::Synthetic(demand) => {
                        let load = load(demand);
                        let lines = (load.walked + load.streamed) / 2.0 / HERTZ;
                        (lines / most.0, load.streamed / 2.0 / HERTZ / most.1, load)
                    }
                    Competitor::Function(key) => {
                        let other: usize = key[1..].parse().expect("it was made above");
                        let demand = rates[other] / HERTZ;
                        (demand / most.0, demand / most.1, Load { packets: rates[other], ..Load::default() })
                    }
                };
                let drop = truth.cache * cache.min(1.0) + truth.memory * memory.min(1.0) + truth.constant;
                let [before, beside, after] =
                    [0.0, drop, 0.0].map(|drop| span(rate * (1.0 - drop) * (1.0 + noise.next().unwrap_or(0.0))));
                samples.push(Sample { competitors: set, pass, before, beside, after, loads: vec![load] });
            }
        }
        let record = FunctionRecord { packets_bytes: 60, simulated: None, samples, void: Void::default() };
        records.functions.insert(keys[index].clone(), record);
    }
    records
}

/// Returns rates that are proportional to each other, so that a metric correlates with them.
fn rates() -> Vec<f64> {
    (0..9).map(|at| 1e7 + 2e5 * f64::from(at)).collect()
}

#[test]
fn planted_parameters_are_found() {
    let truth = Sensitivity { cache: 0.2, memory: 0.1, constant: 0.01 };
    let mut records = records(&rates(), truth, &[0.0]);
    records.unavailable.insert("simulated".to_owned(), "valgrind is not here".to_owned());
    let models = super::models(&records, SHARED, FitMethod::NonNegative);
    assert_eq!((models.metric, models.choice), (Metric::Ticks, Choice::Circular));
    let shared =
        models.verdicts.iter().find(|it| it.name == Metric::SharedLines.name()).expect("every metric has a verdict");
    assert_eq!(shared.why.as_deref(), Some("valgrind is not here"));
    let limits = models.limits.expect("there were synthetic competitors");
    assert!((limits.cache - 0.2).abs() < 1e-6 && (limits.memory - 0.18).abs() < 1e-6, "{limits:?}");
    assert_eq!(models.functions.len(), 9);
    for fit in models.functions.values() {
        let local = &fit.model.local;
        for (found, planted) in [(local.cache, 0.2), (local.memory, 0.1), (local.constant, 0.01)] {
            assert!((found - planted).abs() < 1e-4, "{local:?}");
        }
        assert!(fit.trial.is_above_noise && fit.trial.held_out == 10);
        assert_eq!((fit.model.runs, fit.model.remote.is_none()), (30, true));
    }
    let registry = models.registry("made up", "0.0.0").expect("there are limits");
    registry.check("registry.json").unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!((registry.functions.len(), registry.metric.as_str()), (9, "ticks_per_packet"));
}

/// Instructions that correlate with the rate are preferred to ticks.
#[test]
fn a_metric_without_the_rate_is_preferred() {
    let mut records = records(&rates(), Sensitivity::default(), &[0.0]);
    for (record, rate) in records.functions.values_mut().zip(rates()) {
        let (shared_lines, memory_lines, footprint_bytes) = (1.0, 0.0, 4096.0);
        record.simulated = Some(Simulated { instructions: 4e9 / rate, shared_lines, memory_lines, footprint_bytes });
    }
    let models = super::models(&records, SHARED, FitMethod::NonNegative);
    assert_eq!((models.metric, models.choice), (Metric::SimulatedInstructions, Choice::Qualifies));
    let limits = models.limits.expect("there were synthetic competitors");
    assert!((limits.cache - 0.1).abs() < 1e-9, "ten instructions for two lines: {limits:?}");
}

#[test]
fn the_papers_fit_gives_similar_results() {
    let truth = Sensitivity { cache: 0.2, memory: 0.1, constant: 0.01 };
    let models = super::models(&records(&rates(), truth, &[0.0]), SHARED, FitMethod::Lms);
    for fit in models.functions.values() {
        assert!(fit.model.local.error < 0.01 && fit.model.local.held_out.is_some_and(|error| error < 0.02), "{fit:?}");
        assert_eq!(fit.model.local.fit, FitMethod::Lms);
    }
}

#[test]
fn effects_below_the_noise_are_not_validated() {
    // Pseudo-random numbers (Knuth's MMIX generator).
    let numbers = std::iter::successors(Some(1_u64), |it| {
        Some(it.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    });
    let noise: Vec<_> = numbers.map(|it| ((it >> 40) as f64 / f64::from(1 << 24) - 0.5) * 0.1).take(2_000).collect();
    let models = super::models(&records(&rates(), Sensitivity::default(), &noise), SHARED, FitMethod::NonNegative);
    assert_eq!(models.held_out(), (0, 0));
    assert!(models.functions.values().all(|fit| !fit.trial.is_above_noise && fit.trial.noise > 0.01));
    let nothing = super::models(&empty(), SHARED, FitMethod::NonNegative);
    assert!(nothing.limits.is_none() && nothing.functions.is_empty() && nothing.registry("a", "b").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// For any measurement, the registry accepts the models, and intervals contain most of the held-out runs.
    #[test]
    fn models_are_sound(
        noise in prop::collection::vec(-0.02..0.02f64, 31),
        cuts in prop::array::uniform3(0.0..0.3f64),
    ) {
        let [cache, memory, constant] = cuts;
        let records = records(&rates()[..3], Sensitivity { cache, memory, constant }, &noise);
        let models = super::models(&records, SHARED, FitMethod::NonNegative);
        let registry = models.registry("made up", "0.0.0").expect("there are limits");
        prop_assert!(registry.check("registry.json").is_ok());
        let (inside, all) = models.held_out();
        prop_assert!(inside * 10 >= all * 7, "{inside} of {all}");
        for fit in models.functions.values() {
            prop_assert!(fit.trial.noise >= 0.0 && fit.model.local.error < 0.05, "{fit:?}");
        }
    }
}
