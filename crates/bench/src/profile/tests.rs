//! Profiles with made-up costs. One test measures a few functions, to check the form of the result.

// Functions and ports register themselves when they are linked.
use {forebay_functions as _, forebay_ports as _};

use super::bench::{Measured, Sample, tests::of};
use super::*;

/// A function with these costs in seconds.
pub(crate) fn costed(t0_s: f64, t1_s: f64) -> Costed {
    Costed {
        t0_s,
        t1_s,
        t0_95_s: [t0_s; 2],
        t1_95_s: [t1_s; 2],
        dispatch_s: 0.0,
        r2: Some(1.0),
        batchiness: batchiness(t0_s, t1_s, 32),
        samples: 15,
        sizes: [1.0, 32.0].map(|packets| Size { packets, call_s: t0_s + t1_s * packets }).to_vec(),
        stalled: 0.0,
        at: Timestamp::UNIX_EPOCH,
    }
}

/// Measurements of a module whose calls cost `t0 + t1·b` ticks. The engine takes `dispatch` ticks more for each call
/// and 90 for each packet. Timing a call adds `timed` ticks to it.
fn measured(t0: f64, t1: f64, dispatch: f64, timed: f64) -> Measured {
    let sample = |packets: f64| {
        let whole = 90.0 + t1 + (t0 + dispatch) / packets;
        Sample {
            size: packets as usize,
            packets,
            call: t0 + timed + t1 * packets,
            calls: 1.0 / packets,
            whole,
            away: 0.0,
        }
    };
    of(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(sample))
}

#[test]
fn a_call_costs_what_the_function_and_the_engine_take() {
    let cost = Costed::of(&measured(40.0, 6.0, 15.0, 0.0), &Effort::new(32), 1e9).expect("a line");
    let near = |is: f64, was: f64| assert!((is * 1e9 - was).abs() < 1e-6, "{is}: {cost:?}");
    near(cost.t0_s, 55.0);
    near(cost.t1_s, 6.0);
    near(cost.dispatch_s, 15.0);
    near(cost.call_s(8.0), 103.0);
    assert!((cost.batchiness - (55.0 + 32.0 * 6.0) / (32.0 * 61.0)).abs() < 1e-9);
    assert!(cost.is_sound() && cost.r2.is_some_and(|r2| r2 > 0.999_999));
}

/// Timing makes short calls take up to twice as long. Only a small part of that, spread over a full batch, may be in a
/// cost.
#[test]
fn the_cost_of_timing_a_call_is_hardly_in_its_cost() {
    let cost = Costed::of(&measured(10.0, 2.0, 15.0, 12.0), &Effort::new(32), 1e9).expect("a line");
    assert!((cost.t0_s * 1e9 - 25.0).abs() < 1e-6 && (cost.t1_s * 1e9 - 2.0).abs() < 0.01, "{cost:?}");
    // If timing takes less than the amount that is subtracted for it, no cost becomes negative.
    let cost = Costed::of(&measured(10.0, 0.0, 15.0, -12.0), &Effort::new(32), 1e9).expect("a line");
    assert!((cost.t0_s * 1e9 - 25.0).abs() < 1.0 && cost.t1_s * 1e9 < 0.5 && cost.is_sound(), "{cost:?}");
}

/// The other modules take far more time, with noise larger than the cost of a call. Regression: the module was reported
/// without costs.
#[test]
fn calls_are_timed_where_the_noise_of_other_modules_hides_their_cost() {
    let sample = |packets: f64| {
        let whole = 20_000.0 - 300.0 / packets;
        Sample { size: packets as usize, packets, call: 40.0 + 6.0 * packets, calls: 1.0 / packets, whole, away: 0.0 }
    };
    let cost = Costed::of(&of(&[1.0, 2.0, 4.0, 8.0].map(sample)), &Effort::new(8), 1e9).expect("a line");
    let near = |is: f64, was: f64| assert!((is * 1e9 - was).abs() < 1e-6, "{is}: {cost:?}");
    near(cost.t0_s, 40.0);
    near(cost.t1_s, 6.0);
    assert!(cost.dispatch_s == 0.0 && cost.sizes.iter().all(|size| size.call_s > 0.0) && cost.is_sound(), "{cost:?}");
}

#[test]
fn batchiness_is_one_where_batches_save_nothing() {
    assert!((batchiness(0.0, 5.0, 32) - 1.0).abs() < 1e-12);
    assert!((batchiness(5.0, 0.0, 32) - 1.0 / 32.0).abs() < 1e-12);
}

#[test]
fn a_function_without_costs_has_no_line_and_an_unknown_one_is_named() {
    let nothing = measured(0.0, 0.0, 0.0, 0.0);
    assert_eq!(Costed::of(&nothing, &Effort::new(32), 1e9), None);
    let error = known(&["ttl".to_owned(), "alc".to_owned()]).expect_err("there is no alc").to_string();
    assert_eq!(error, "there is no function 'alc' (did you mean 'acl'?): `forebay list functions` lists all functions");
    let mut profile = Profile::empty(Key::this(32).expect("this program"));
    let result = profile.measure(&["alc".to_owned()], &Effort::new(32), &mut |_| panic!("no step may begin"));
    assert!(matches!(result, Err(ProfileError::Unknown { .. })) && profile.functions.is_empty());
}

#[test]
fn every_function_has_a_pipeline_for_every_batch() {
    for name in all() {
        for batch in [4, 256] {
            let source = source(&name, batch).unwrap_or_else(|error| panic!("{error}"));
            let checked = forebay_pipeline::check(&source).unwrap_or_else(|error| panic!("{error}"));
            let modules: Vec<_> = checked.modules.iter().map(|(module, _)| module.as_str()).collect();
            assert_eq!(modules, [name.as_str(), AFTER]);
        }
    }
}

/// The published implementation keeps one profile object and overwrites it: all modules get the costs of the last one.
#[test]
fn a_profile_that_keeps_only_the_last_module() {
    let names = ["ttl", "mac_swap", "ttl", "counter"].map(str::to_owned);
    let effort = Effort { batch: 4, passes: 2, rounds: 1, time: Duration::from_millis(1) };
    let mut profile = Profile::empty(Key::this(4).expect("this program"));
    let mut begun = Vec::new();
    let mut record = |progress: Progress<'_>| begun.push((progress.function.to_owned(), progress.done, progress.all));
    profile.measure(&names[..2], &effort, &mut record).expect("two functions");
    let first = profile.functions["mac_swap"].clone();
    profile.measure(&names[2..], &effort, &mut record).expect("two more");
    assert_eq!(profile.functions.keys().collect::<Vec<_>>(), ["counter", "mac_swap", "ttl"]);
    assert_eq!(profile.functions["mac_swap"], first);
    let all: Vec<_> = profile.functions.values().collect();
    assert!(all.windows(2).all(|pair| pair[0].sizes != pair[1].sizes), "they cost the same to the last bit: {all:?}");
    assert_eq!(begun[1..3], [("mac_swap".to_owned(), 1, 4), ("ttl".to_owned(), 2, 4)]);
    for (name, costed) in &profile.functions {
        assert!(costed.is_sound(), "{name}: {costed:?}");
        let sizes: Vec<_> = costed.sizes.iter().map(|size| size.packets.round()).collect();
        assert_eq!(sizes, [1.0, 2.0, 4.0], "{name}");
    }
}
