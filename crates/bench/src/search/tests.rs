//! The search with models whose limit and disturbances are known.

use forebay_units::Random;
use proptest::prelude::*;

use super::*;

/// A model with a known rate.
struct Model {
    capacity: f64,
    /// The share of trials that lose some packets at any load.
    bad: f64,
    /// The largest relative difference between the capacity of a trial and `capacity`.
    noise: f64,
    /// A range of loads that always lose packets, although higher loads do not.
    hole: (f64, f64),
    /// The share of trials that are void.
    void: f64,
    random: Random,
    /// The loads of all trials.
    tried: Vec<f64>,
}

impl Model {
    fn new(capacity: f64, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { capacity, bad: 0.0, noise: 0.0, hole: (0.0, 0.0), void: 0.0, random, tried: Vec::new() }
    }
}

impl Trials for Model {
    type Error = String;

    fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, String> {
        self.tried.push(pps);
        let seconds = span.as_secs_f64();
        let offered = (pps * seconds).round();
        let capacity = self.capacity * (1.0 + self.noise * (2.0 * self.random.unit() - 1.0));
        let mut lost = (offered - capacity * seconds).max(0.0).ceil();
        if self.random.unit() < self.bad {
            // From a single packet to more than the partial drop rate allows.
            lost += (offered * 0.02 * self.random.unit()).ceil();
        }
        if pps > self.hole.0 && pps < self.hole.1 {
            lost += 1.0 + offered * 0.01;
        }
        let void = self.random.unit() < self.void;
        if void {
            lost += offered / 2.0;
        }
        let (offered, lost) = (offered as u64, lost.min(offered) as u64);
        Ok(Trial { offered, lost, void, took: span + Duration::from_millis(15) })
    }
}

const LIMITS: Limits = Limits { least_pps: 1_000.0, most_pps: 100e6, time: Duration::from_secs(30), width: 0.005 };

fn found(model: &mut Model, limits: &Limits) -> (Outcome, [GoalResult; 2]) {
    let outcome = search(model, &[NON_DROP, PARTIAL_DROP], limits, &mut |_| {}).expect("models do not fail");
    let found = [outcome.found[0], outcome.found[1]];
    // The last trial's 15 ms are added, and the sum of many trials is rounded.
    assert!(outcome.seconds <= limits.time.as_secs_f64() + 0.015 + 1e-9, "{outcome:?}");
    (outcome, found)
}

/// Returns the number of runs, out of `of`, in which both rates are within 2 % of the capacity.
fn within(of: u64, make: impl Fn(u64) -> Model) -> u64 {
    (0..of)
        .filter(|seed| {
            let mut model = make(*seed);
            let (outcome, found) = found(&mut model, &LIMITS);
            let near = |found: &GoalResult| found.pps.is_some_and(|pps| (pps / model.capacity - 1.0).abs() <= 0.02);
            if !found.iter().all(near) {
                println!("capacity {}: {outcome:?}", model.capacity);
            }
            found.iter().all(near)
        })
        .count() as u64
}

#[test]
fn a_hard_limit_is_found_to_half_a_percent() {
    for (seed, capacity) in [1_500.0, 98_765.0, 1.23e6, 14.88e6, 99e6].into_iter().enumerate() {
        let (outcome, [ndr, pdr]) = found(&mut Model::new(capacity, seed as u64), &LIMITS);
        let (low, high) = (ndr.lower_pps.expect("there is one"), ndr.upper_pps.expect("there is one"));
        assert!(ndr.settled && pdr.settled && outcome.voids == 0, "{outcome:?}");
        // One packet more or less, from rounding the trial's length, is not a loss.
        let rounding = 1.0 + 1.0 / (capacity * 0.3);
        assert!(low <= capacity * rounding && high > capacity && high - low <= 0.005 * high, "{capacity}: {ndr:?}");
        // At the load that loses half a percent, the capacity is forwarded.
        let pps = pdr.pps.expect("there is one");
        assert!((pps / capacity - 1.0).abs() < 0.006 && pdr.lower_pps >= ndr.lower_pps, "{capacity}: {pdr:?}");
    }
}

#[test]
fn odd_bad_trials_do_not_hide_the_limit() {
    for bad in [0.05, 0.1, 0.2] {
        let hits = within(200, |seed| Model { bad, ..Model::new(1e6 + 37e3 * seed as f64, seed) });
        assert!(hits >= 180, "{hits} of 200 with {bad} of the trials bad");
    }
}

#[test]
fn a_limit_that_varies_is_found() {
    let hits = within(200, |seed| Model { bad: 0.1, noise: 0.01, ..Model::new(3e6, seed) });
    assert!(hits >= 180, "{hits} of 200");
}

#[test]
fn void_trials_are_repeated_and_counted() {
    let hits = within(100, |seed| Model { void: 0.3, ..Model::new(3e6, seed) });
    assert!(hits >= 90, "{hits} of 100");
    let (outcome, _) = found(&mut Model { void: 0.3, ..Model::new(3e6, 1) }, &LIMITS);
    assert!(outcome.voids > 5, "{outcome:?}");
    // If all trials are void, their results are used: the search ends and reports this.
    let (outcome, [ndr, _]) = found(&mut Model { void: 1.0, ..Model::new(3e6, 1) }, &LIMITS);
    assert_eq!((ndr.pps, outcome.voids), (None, outcome.taken_void * u64::from(REPEATS)), "{outcome:?}");
}

#[test]
fn the_lowest_load_with_losses_counts_if_loads_contradict_each_other() {
    // Overload reduces its rate: the first estimate is in the hole.
    struct Collapsing(Model);
    impl Trials for Collapsing {
        type Error = String;
        fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, String> {
            let trial = self.0.run(pps, span)?;
            let through = (0.62e6 * span.as_secs_f64()) as u64;
            let lost = if pps > 2e6 { trial.offered.saturating_sub(through) } else { trial.lost };
            Ok(Trial { lost, ..trial })
        }
    }
    let mut model = Collapsing(Model { hole: (0.6e6, 0.65e6), ..Model::new(1e6, 3) });
    let outcome = search(&mut model, &[NON_DROP], &LIMITS, &mut |_| {}).expect("models do not fail");
    let ndr = outcome.found[0];
    let (low, high) = (ndr.lower_pps.expect("there is one"), ndr.upper_pps.expect("there is one"));
    assert!(low <= 0.6e6 && low > 0.59e6 && high > 0.6e6 && high < 0.604e6, "{ndr:?}");
    // The hole counts even if a load above it was found to be good.
    let phase = Phase { span: 1.0, sum: 1.0, width: 0.01 };
    let load = |pps, loss| Load { pps, trials: vec![(1.0, loss)] };
    let (mut none, report) = (Model::new(1.0, 1), &mut |_: &SearchProgress<'_>| {});
    let search = Search {
        trials: &mut none,
        limits: LIMITS,
        loads: vec![load(1e6, 0.0), load(5e5, 0.0), load(6e5, 0.1), load(2e6, 0.5)],
        outcome: Outcome::default(),
        lower: Vec::new(),
        report,
    };
    assert_eq!(search.bounds(&NON_DROP, &phase), (Some(5e5), Some(6e5)));
}

#[test]
fn a_limit_outside_the_loads_gives_only_one_bound() {
    let (outcome, [ndr, pdr]) = found(&mut Model::new(200e6, 1), &LIMITS);
    assert_eq!((ndr.lower_pps, ndr.upper_pps, ndr.settled), (Some(100e6), None, true), "{outcome:?}");
    assert_eq!((pdr.pps, pdr.upper_pps), (Some(100e6), None));
    let mut nothing = Model::new(0.0, 1);
    let (outcome, [ndr, _]) = found(&mut nothing, &LIMITS);
    assert_eq!((ndr.pps, ndr.upper_pps, ndr.settled), (None, Some(1_000.0), true), "{outcome:?}");
    assert!(nothing.tried.iter().all(|pps| *pps >= 1_000.0));
}

#[test]
fn a_search_that_runs_out_of_time_reports_its_bounds() {
    let stop_after = |seconds: f64| {
        let mut model = Model { bad: 0.1, ..Model::new(5e6, 9) };
        // The trials' length follows from the whole time; the pauses between trials use the time up.
        let limits = Limits { time: Duration::from_secs(30), ..LIMITS };
        struct Slow<'a>(&'a mut Model, f64);
        impl Trials for Slow<'_> {
            type Error = String;
            fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, String> {
                Ok(Trial { took: Duration::from_secs_f64(self.1), ..self.0.run(pps, span)? })
            }
        }
        search(&mut Slow(&mut model, seconds), &[NON_DROP, PARTIAL_DROP], &limits, &mut |_| {}).expect("no failure")
    };
    let early = stop_after(3.0);
    assert!(!early.found[0].settled && !early.found[1].settled, "{early:?}");
    assert!(early.found[0].upper_pps.is_some() && early.seconds <= 33.0, "{early:?}");
    let nothing = stop_after(40.0);
    assert_eq!((nothing.trials, nothing.found[0].pps), (1, None));
}

#[test]
fn the_error_of_a_trial_is_returned() {
    struct Broken;
    impl Trials for Broken {
        type Error = String;
        fn run(&mut self, pps: f64, _: Duration) -> Result<Trial, String> {
            Err(format!("not at {pps}"))
        }
    }
    assert_eq!(search(&mut Broken, &[NON_DROP], &LIMITS, &mut |_| {}), Err("not at 100000000".to_owned()));
}

#[test]
fn a_load_is_decided_once_no_trial_could_change_it() {
    let phase = Phase { span: 1.0, sum: 5.0, width: 0.01 };
    let side = |trials: &[(f64, f64)]| Load { pps: 1.0, trials: trials.to_vec() }.side(&NON_DROP, &phase);
    let (good, bad) = ((1.0, 0.0), (1.0, 0.1));
    assert_eq!(side(&[]), None);
    assert_eq!([side(&[good, good]), side(&[good, bad, good, good])], [None, Some(Side::Below)]);
    assert_eq!([side(&[bad, bad]), side(&[bad, good, bad, bad])], [None, Some(Side::Above)]);
    // Good short trials decide nothing. Bad short trials count if there are too few good ones to balance them.
    assert_eq!(side(&[(0.5, 0.0); 20]), None);
    assert_eq!(side(&[(0.5, 0.1); 6]), Some(Side::Above));
    assert_eq!(side(&[(0.5, 0.0), (0.5, 0.1), good, good, good]), Some(Side::Below));
    // The loss does not count the trials that may be bad: 2.5 of five.
    let load = |trials: &[(f64, f64)]| Load { pps: 1.0, trials: trials.to_vec() }.loss(&PARTIAL_DROP, &phase);
    assert_eq!(load(&[(1.0, 0.001), (1.0, 0.9), (1.0, 0.002), (1.0, 0.5), (1.0, 0.003)]), 0.003);
}

proptest! {
    /// With any disturbance, the search ends in time, and all bounds are loads of trials.
    #[test]
    fn it_ends_in_time_with_bounds_that_were_tried(
        capacity in 0.0f64..2e8,
        bad in 0.0f64..1.0,
        noise in 0.0f64..0.5,
        void in 0.0f64..1.0,
        seed: u64,
        seconds in 1u64..60,
    ) {
        let mut model = Model { bad, noise, void, ..Model::new(capacity, seed) };
        let (_, all) = found(&mut model, &Limits { time: Duration::from_secs(seconds), ..LIMITS });
        for found in all {
            for bound in [found.lower_pps, found.upper_pps].into_iter().flatten() {
                prop_assert!(model.tried.contains(&bound));
            }
            if let (Some(low), Some(high)) = (found.lower_pps, found.upper_pps) {
                prop_assert!(low < high);
            }
            if let (Some(pps), Some(low)) = (found.pps, found.lower_pps) {
                prop_assert!(pps <= low && pps >= 0.0);
            }
        }
    }

    /// Without disturbances, the search is exact.
    #[test]
    fn an_undisturbed_limit_is_always_found(capacity in 2_000.0f64..9e7, seed: u64) {
        let (_, [ndr, _]) = found(&mut Model::new(capacity, seed), &LIMITS);
        let pps = ndr.pps.expect("it is within the limits");
        prop_assert!(ndr.settled && pps <= capacity * 1.002 && pps >= capacity * 0.994, "{ndr:?}");
    }
}
