//! Periods that are made from given lines.

use proptest::prelude::*;

use super::*;

fn nanos(t0: f64, t1: f64) -> Online {
    Online::new(Line { fixed: t0 * 1e-9, each: t1 * 1e-9 }, 0.0)
}

/// A period in which 200 calls were timed, on batches of `size`, each with a cost of `t0 + t1·size` nanoseconds.
fn period(online: &mut Online, [t0, t1]: [f64; 2], size: u64) {
    online.note(200, 200 * size, 200.0 * (t0 + t1 * size as f64) * 1e-9);
}

fn call(online: &Online, size: f64) -> f64 {
    let Line { fixed: t0, each: t1 } = online.line();
    (t0 + t1 * size) * 1e9
}

#[test]
fn without_periods_it_is_the_profile() {
    let mut online = nanos(50.0, 10.0);
    let Line { fixed: t0, each: t1 } = online.line();
    assert!((t0 * 1e9 - 50.0).abs() < 1e-9 && (t1 * 1e9 - 10.0).abs() < 1e-9);
    let before = online;
    online.note(0, 0, 0.0);
    online.note(3, 0, 1.0);
    online.note(3, 9, f64::NAN);
    assert_eq!(online, before);
}

/// The stopwatch does not include the engine's own part of a call.
#[test]
fn time_that_the_stopwatch_does_not_count_is_added() {
    let mut online = Online::new(Line { fixed: 50e-9, each: 10e-9 }, 20e-9);
    for size in [1, 4, 16, 32].into_iter().cycle().take(40) {
        period(&mut online, [30.0, 10.0], size);
    }
    let Line { fixed: t0, each: t1 } = online.line();
    assert!((t0 * 1e9 - 50.0).abs() < 0.5 && (t1 * 1e9 - 10.0).abs() < 0.1, "{:?}", online.line());
}

/// Regression test: the cost of a module that waits on purpose was learnt only after two series of timed turns, which
/// took three seconds.
#[test]
fn a_cost_thousands_of_times_the_profile_is_known_in_a_few_periods() {
    let mut online = nanos(4.0, 0.1);
    for _ in 0..6 {
        online.note(6, 6 * 32, 6.0 * (100e-6 + 32.0 * 20e-6));
    }
    let error = 1.0 - call(&online, 32.0) / 740e3;
    assert!(error.abs() < 0.1, "{error} of the cost is missing");
    // Two periods that share a stall have little influence.
    let mut online = nanos(40.0, 10.0);
    (0..20).for_each(|_| period(&mut online, [40.0, 10.0], 32));
    (0..2).for_each(|_| period(&mut online, [740e3, 0.0], 32));
    assert!(call(&online, 32.0) < 4.0 * 360.0, "{}", call(&online, 32.0));
    // A stall after periods that cost somewhat more than before counts as one stall.
    let mut online = nanos(40.0, 10.0);
    (0..3).for_each(|_| period(&mut online, [80.0, 20.0], 32));
    period(&mut online, [740e3, 0.0], 32);
    assert!(call(&online, 32.0) < 4.0 * 720.0, "{}", call(&online, 32.0));
}

#[test]
fn one_stalled_period_moves_it_little_and_passes() {
    let mut online = nanos(50.0, 10.0);
    for size in [1, 4, 16, 32].into_iter().cycle().take(20) {
        period(&mut online, [50.0, 10.0], size);
    }
    online.note(200, 200 * 8, 1.0);
    assert!((call(&online, 8.0) / 130.0 - 1.0).abs() < 0.03, "{}", call(&online, 8.0));
    for size in [4, 16, 32, 1] {
        period(&mut online, [50.0, 10.0], size);
    }
    assert!((call(&online, 8.0) / 130.0 - 1.0).abs() < 0.01, "{}", call(&online, 8.0));
}

/// Regression test: with batches of nearly one size and noise in their times, the line was rotated so far that one of
/// the two parts of the cost became 0.
#[test]
fn noise_with_batches_of_nearly_one_size_rotates_the_line_little() {
    let mut online = nanos(50.0, 10.0);
    let mut seed = 1_u64;
    let mut chance = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for _ in 0..2_000 {
        let packets = (200.0 * (16.0 + 2.0 * chance())) as u64;
        let took = 50.0 * 200.0 + 10.0 * packets as f64;
        online.note(200, packets, took * (0.9 + 0.2 * chance()) * 1e-9);
        let fixed = online.line().fixed * 1e9;
        (least, most) = (least.min(fixed), most.max(fixed));
    }
    assert!(least > 10.0 && most < 100.0, "{least} to {most}");
}

/// Seeded noise in every period, the same in every run.
#[test]
fn noise_is_averaged() {
    let mut online = nanos(60.0, 8.0);
    let mut state = 1u64;
    for _ in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (size, noise) = (1 + (state >> 33) % 32, ((state >> 40) % 1_000) as f64 / 1_000.0 - 0.5);
        let seconds = 200.0 * (40.0 + 12.0 * size as f64) * (1.0 + 0.04 * noise) * 1e-9;
        online.note(200, 200 * size, seconds);
    }
    for size in [1.0f64, 8.0, 32.0] {
        let truth = 40.0 + 12.0 * size;
        assert!((call(&online, size) / truth - 1.0).abs() < 0.05, "{size}: {} for {truth}", call(&online, size));
    }
}

proptest! {
    #[test]
    fn it_finds_the_true_line_where_sizes_vary(
        prior in (1.0..500.0f64, 1.0..100.0f64),
        truth in (1.0..500.0f64, 1.0..100.0f64),
        sizes in prop::collection::vec(1..=32u64, 80),
    ) {
        let mut online = nanos(prior.0, prior.1);
        for (at, size) in sizes.into_iter().enumerate() {
            // The smallest and the largest batch always appear.
            let size = match at % 3 { 0 => 1, 1 => 32, _ => size };
            period(&mut online, truth.into(), size);
        }
        for size in [1.0, 2.0, 8.0, 32.0] {
            let is = truth.0 + truth.1 * size;
            prop_assert!((call(&online, size) / is - 1.0).abs() < 0.03, "{size}: {} for {is}", call(&online, size));
        }
    }

    #[test]
    fn with_one_size_it_knows_this_size_and_keeps_the_ratio(
        prior in (1.0..500.0f64, 1.0..100.0f64),
        truth in (1.0..500.0f64, 1.0..100.0f64),
        size in 1..=256u64,
    ) {
        let mut online = nanos(prior.0, prior.1);
        (0..120).for_each(|_| period(&mut online, truth.into(), size));
        let is = truth.0 + truth.1 * size as f64;
        prop_assert!((call(&online, size as f64) / is - 1.0).abs() < 1e-6, "{} for {is}", call(&online, size as f64));
        let Line { fixed: t0, each: t1 } = online.line();
        prop_assert!((t0 / t1 / (prior.0 / prior.1) - 1.0).abs() < 1e-6, "{t0} {t1}");
    }

    #[test]
    fn a_step_in_cost_is_followed_in_ten_periods(
        t0 in 10.0..500.0f64,
        t1 in 1.0..100.0f64,
        factor in prop_oneof![0.3..0.9f64, 1.1..3.0f64],
        varies in any::<bool>(),
    ) {
        let mut online = nanos(t0, t1);
        let size = |at: usize| if varies { [1, 32, 4, 16][at % 4] } else { 8 };
        (0..30).for_each(|at| period(&mut online, [t0, t1], size(at)));
        (0..10).for_each(|at| period(&mut online, [t0 * factor, t1 * factor], size(at)));
        for size in if varies { &[1.0, 8.0, 32.0][..] } else { &[8.0] } {
            let is = (t0 + t1 * size) * factor;
            let error = (call(&online, *size) - is) / ((t0 + t1 * size) * (1.0 - factor));
            prop_assert!(error.abs() < 0.1, "{error} of the step is missing for {size} packets");
        }
    }

    /// With any input, the costs are finite and not negative.
    #[test]
    fn nothing_makes_it_negative(
        prior in (0.0..500.0f64, 0.0..100.0f64),
        periods in prop::collection::vec((1..1_000u64, 1..=256u64, -1e-6..1.0f64), 1..60),
    ) {
        prop_assume!(prior.0 + prior.1 > 0.0);
        let mut online = nanos(prior.0, prior.1);
        for (calls, size, seconds) in periods {
            online.note(calls, calls * size, seconds);
            let Line { fixed: t0, each: t1 } = online.line();
            prop_assert!(t0 >= 0.0 && t1 >= 0.0 && t0.is_finite() && t1.is_finite(), "{online:?}");
        }
    }

    #[test]
    fn one_period_alone_has_little_influence(
        truth in (10.0..500.0f64, 1.0..100.0f64),
        size in 1..=32u64,
        seconds in prop_oneof![0.0..1e-6f64, 1e-6..1e-3f64, 1e-3..1e6f64],
    ) {
        let mut online = nanos(truth.0, truth.1);
        (0..20).for_each(|at| period(&mut online, truth.into(), [1, 32, 4, 16][at % 4]));
        online.note(1_000, 1_000 * size, seconds);
        for size in [1.0, 8.0, 32.0] {
            let is = truth.0 + truth.1 * size;
            prop_assert!((call(&online, size) / is - 1.0).abs() < 0.04, "{size}: {} for {is}", call(&online, size));
        }
    }

    /// A profile has a part of 0 if noise hides it.
    #[test]
    fn a_part_that_was_zero_is_found(truth in (10.0..500.0f64, 1.0..100.0f64), flat in any::<bool>()) {
        let mut online = if flat { nanos(truth.0, 0.0) } else { nanos(0.0, truth.1) };
        (0..80).for_each(|at| period(&mut online, truth.into(), [1, 32, 4, 16][at % 4]));
        for size in [1.0, 8.0, 32.0] {
            let is = truth.0 + truth.1 * size;
            prop_assert!((call(&online, size) / is - 1.0).abs() < 0.05, "{size}: {} for {is}", call(&online, size));
        }
    }
}
