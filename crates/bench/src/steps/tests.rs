//! Planted steps are found, noise has none, and no shorter description is missed.

use forebay_units::Random;
use proptest::prelude::*;

use super::*;

/// A series with these levels and numbers of values, and with noise of this standard deviation.
fn series(levels: &[(f64, usize)], deviation: f64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let of = |(level, count): &(f64, usize)| vec![*level; *count];
    levels.iter().flat_map(of).map(|level| level + deviation * random.normal()).collect()
}

fn step_indices(values: &[f64]) -> Vec<usize> {
    steps(values, Nature::Measured).iter().map(|step| step.at).collect()
}

#[test]
fn noise_alone_has_no_steps() {
    for count in [2, 3, 5, 10, 20, 50, 100, 200] {
        let clean = (0..200).filter(|seed| step_indices(&series(&[(250.0, count)], 4.0, *seed)).is_empty()).count();
        assert!(clean >= 190, "{count} values: {clean} of 200 without a step");
    }
}

#[test]
fn a_step_of_three_deviations_is_found_where_it_is() {
    for (before, after) in [(10, 10), (20, 8), (50, 50), (100, 20)] {
        let near = |seed: &u64| {
            let found = step_indices(&series(&[(250.0, before), (262.0, after)], 4.0, *seed));
            found.len() == 1 && found[0].abs_diff(before) <= 1
        };
        let found = (0..200).filter(near).count();
        assert!(found >= 170, "{before} and {after}: {found} of 200");
    }
}

#[test]
fn larger_steps_are_found_exactly_with_their_levels() {
    for seed in 0..100 {
        let values = series(&[(250.0, 12), (280.0, 15), (265.0, 10)], 2.0, seed);
        let found = steps(&values, Nature::Measured);
        assert_eq!(found.iter().map(|step| step.at).collect::<Vec<_>>(), [12, 27], "seed {seed}: {values:?}");
        assert!(
            (found[0].from - 250.0).abs() < 3.0 && (found[0].to - 280.0).abs() < 3.0 && found[0].to == found[1].from
        );
    }
}

#[test]
fn measured_series_without_noise_have_their_steps_too() {
    assert_eq!(step_indices(&[32.0, 32.0, 32.0, 32.0, 16.0, 16.0, 16.0]), [4]);
    assert_eq!(step_indices(&[32.0; 50]), [0; 0]);
    assert_eq!(step_indices(&[0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2]), [0; 0], "rounding is not a step");
}

#[test]
fn each_change_of_counted_figures_is_a_step() {
    let counted = |values: &[f64]| steps(values, Nature::Counted);
    assert_eq!(counted(&[41.0, 43.5]), [DetectedStep { at: 1, from: 41.0, to: 43.5 }]);
    let found = counted(&[41.0, 41.0, 41.001, 40.0, 40.0]);
    assert_eq!(found.iter().map(|step| step.at).collect::<Vec<_>>(), [2, 3]);
    assert!(counted(&[]).is_empty() && counted(&[1.0]).is_empty() && counted(&[7.0; 9]).is_empty());
    assert!(counted(&[0.1 + 0.2, 0.3]).is_empty(), "rounding is not a step");
}

#[test]
fn thousands_of_values_are_processed() {
    let levels: Vec<(f64, usize)> = (0..8).map(|at| (250.0 + f64::from(at % 2) * 30.0, 250)).collect();
    assert_eq!(step_indices(&series(&levels, 4.0, 7)), (1..8).map(|at| at * 250).collect::<Vec<_>>());
}

/// The number of bits that a description saves, calculated directly from its definition.
fn saved_by(values: &[f64], starts: &[usize]) -> f64 {
    let about = |part: &[f64]| {
        let middle = part.iter().sum::<f64>() / part.len() as f64;
        part.iter().map(|value| (value - middle).powi(2)).sum::<f64>()
    };
    let ends = starts.iter().skip(1).copied().chain([values.len()]);
    let residual: f64 = starts.iter().zip(ends).map(|(start, end)| about(&values[*start..end])).sum();
    saved(values.len(), starts.len(), residual / about(values))
}

/// The savings of the shortest description, found by trying all of them.
fn by_trying(values: &[f64]) -> f64 {
    let cuts = values.len() - 1;
    let of = |chosen: u32| {
        let starts: Vec<usize> = (0..=cuts).filter(|at| *at == 0 || chosen >> (at - 1) & 1 == 1).collect();
        if starts.len() == 1 { 0.0 } else { saved_by(values, &starts) }
    };
    (0..1u32 << cuts).map(of).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn nothing_shorter_is_missed(
        values in proptest::collection::vec(prop_oneof![0.0f64..100.0, (0u8..4).prop_map(f64::from)], 2..11),
    ) {
        prop_assume!(Squares::of(&values).is_some());
        let found = shortest(&values);
        let best = by_trying(&values);
        prop_assert!((found.saved - best).abs() < 1e-5, "{:?} saves {}, {} would do", found.starts, found.saved, best);
        if found.starts.len() > 1 {
            prop_assert!((saved_by(&values, &found.starts) - best).abs() < 1e-5);
        }
    }

    #[test]
    fn neither_a_scale_nor_an_offset_changes_anything(
        seed: u64, levels in proptest::collection::vec((0.0f64..100.0, 1usize..12), 1..5),
        scale in prop_oneof![0.001f64..1000.0, -100.0f64..-0.01], offset in -1000.0f64..1000.0,
    ) {
        let values = series(&levels, 3.0, seed);
        let other: Vec<f64> = values.iter().map(|value| value * scale + offset).collect();
        prop_assert_eq!(step_indices(&values), step_indices(&other));
    }

    #[test]
    fn steps_are_in_order_and_levels_follow_each_other(values in proptest::collection::vec(-1e6f64..1e6, 0..60)) {
        for nature in [Nature::Counted, Nature::Measured] {
            let found = steps(&values, nature);
            prop_assert!(found.iter().all(|step| step.at > 0 && step.at < values.len()));
            prop_assert!(found.windows(2).all(|pair| pair[0].at < pair[1].at && pair[0].to == pair[1].from));
        }
    }
}
