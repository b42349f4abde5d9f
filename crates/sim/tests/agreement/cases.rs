//! Compares the simulator with the packet-exact engine for all use cases, with controllers, with constant and random
//! arrivals, below and at saturation. Rates, batch sizes, mean delays and 99th percentiles must agree within 5 %.

use forebay_sim::{Detail, Options};

use crate::run::{engine, simulated};

/// The largest accepted relative difference.
const BAR: f64 = 0.05;

/// The smallest and the largest number of seeds whose means are compared if a case is random.
const SEEDS: std::ops::RangeInclusive<usize> = 4..=32;

const USECASES: [&str; 5] = ["l2l3 n=16", "gw n=16", "vrf m=4 n=4", "mgw m=4 n=4", "rc n=16"];
const CONTROLLERS: [&str; 4] = ["null", "max", "{~static:~{~trigger:~8~}~}", "optimal"];

/// Returns the settings that make the packets of a use case arrive at random times.
fn at_random(usecase: &str) -> String {
    let ports: &[&str] = match usecase.split(' ').next() {
        Some("mgw") => &["down", "up"],
        _ => &["in"],
    };
    ports.iter().map(|port| format!(" ports.{port}.generator.arrivals=poisson")).collect()
}

/// Compares the figures of the stages of a case, except the first. Returns the differences that are too large.
fn compare_stages(case: &str, stages: &[(u64, f64)]) -> Vec<String> {
    let (truth, _) = engine(case, stages);
    let options = Options { seed: 1, detail: Detail::Within(0.02) };
    let (simulated_stages, _, detail) = simulated(case, options, stages);
    let mut wrong = Vec::new();
    for ((figures, truth), (until, _)) in simulated_stages.iter().zip(&truth).zip(stages).skip(1) {
        let off = figures.off(truth);
        let line = format!(
            "{case} until {until} ms: off {off:.3}, in detail {detail:.3}\n   engine    {truth:?}\n   \
             simulator {figures:?}"
        );
        println!("{line}");
        if off > BAR {
            wrong.push(line);
        }
    }
    wrong
}

/// Compares means over seeds. `optimal` stops changing triggers at values that depend on random arrivals, so the mean
/// delay of one run scatters by 6 % (vrf 4 4), both in the engine and here. Seeds are added until the means are known
/// to agree. Returns the differences if they do not.
fn compare_means(case: &str, from: u64, until: u64) -> Option<String> {
    let stages = [(from, 1.0), (until, 1.0)];
    let (mut pairs, mut line, mut off) = (Vec::new(), String::new(), Vec::new());
    for seed in 1..=*SEEDS.end() {
        let case = format!("{case} seed={seed}");
        let options = Options { seed: seed as u64, detail: Detail::Within(0.02) };
        let (truth, figures) = (&engine(&case, &stages).0[1], &simulated(&case, options, &stages).0[1]);
        pairs.push((figures.each(), truth.each()));
        let each =
            |figure: usize| difference(pairs.iter().map(|(simulated, truth)| (simulated[figure], truth[figure])));
        off = (0..4).map(each).collect();
        line = format!("{case}: off by, and standard error {off:.3?}");
        if SEEDS.contains(&seed) && off.iter().all(|(off, error)| off + 2.0 * error <= BAR) {
            println!("{line}");
            return None;
        }
    }
    println!("{line}");
    off.iter().any(|(off, _)| *off > BAR).then_some(line)
}

/// Returns the difference of the means and the standard error of this difference, both relative to the second mean.
fn difference(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> (f64, f64) {
    let count = pairs.clone().count() as f64;
    let sum = pairs.clone().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let (mean, truth) = (sum.0 / count, sum.1 / count);
    let squares = pairs.map(|pair| (pair.0 - mean).powi(2) + (pair.1 - truth).powi(2)).sum::<f64>();
    ((mean / truth - 1.0).abs(), (squares / (count - 1.0).max(1.0) / count).sqrt() / truth)
}

/// Compares cases from `from` to `until`, in milliseconds.
fn compare<'a>(cases: impl IntoIterator<Item = &'a str>, from: u64, until: u64) {
    let one = |case: &'a str| match by_seeds(case) {
        true => compare_means(case, from, until).into_iter().collect(),
        false => compare_stages(case, &[(from, 1.0), (until, 1.0)]),
    };
    let wrong: Vec<_> = cases.into_iter().flat_map(one).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns cases with constant and random arrivals, below and at saturation. With `some`, it returns every other case
/// of a use case and load.
fn all(some: bool) -> Vec<String> {
    let mut cases = Vec::new();
    for (row, usecase) in USECASES.into_iter().enumerate() {
        for (column, controller) in CONTROLLERS.into_iter().enumerate() {
            for (load, rate) in ["600kpps", "max"].into_iter().enumerate() {
                for random in [false, true] {
                    let wanted = !some || (row + column + load) % 2 == usize::from(random);
                    if wanted && !(random && rate == "max") {
                        let arrivals = if random { at_random(usecase) } else { String::new() };
                        let control = format!("control.batching={controller} control.period=10ms");
                        cases.push(format!("{usecase} fold=off slo=400us rate={rate} {control}{arrivals}"));
                    }
                }
            }
        }
    }
    cases
}

/// Returns true if a case is compared by means over seeds, because its triggers depend on chance under `optimal`.
fn by_seeds(case: &str) -> bool {
    case.contains("batching=optimal")
}

#[test]
fn half_of_all_cases_agree() {
    compare(all(true).iter().map(String::as_str).filter(|case| !by_seeds(case)), 40, 340);
}

#[test]
fn half_of_all_cases_agree_over_seeds() {
    compare(all(true).iter().map(String::as_str).filter(|case| by_seeds(case)), 30, 90);
}

#[test]
#[ignore = "takes two minutes: `make sim`"]
fn all_cases_agree() {
    compare(all(false).iter().map(String::as_str), 200, 1_000);
}

#[test]
fn folded_shared_overloaded_and_bursty_cases_agree() {
    let cases = [
        "gw n=16 rate=1Mpps",
        "gw n=16 fold=off rate=5Mpps",
        "gw n=16 fold=off rate=1Mpps scheduler=weighted-fair control.batching=nfvnice control.period=10ms",
        "l2l3 n=16 fold=off slo=200us rate=1Mpps control.batching=optimal control.period=10ms \
         ports.in.generator.arrivals={~on_off:~{~on:~200us,~off:~300us~}~}",
        "gw n=16 fold=off slo=400us rate=600kpps control.batching=optimal control.period=10ms \
         ports.in.generator.burst=8",
        "gw n=16 fold=off rate=600kpps ports.in.generator.skew=1.0",
    ];
    compare(cases, 50, 150);
}

#[test]
fn workers_agree() {
    let cases = [
        "sfc_a n=4 stages=2 rate=max",
        "sfc_a n=4 stages=2 rate=1Mpps ports.in.generator.arrivals=poisson",
        "sfc_b n=4 stages=2 slo=200us rate=1Mpps control.batching=optimal control.period=10ms fold=off",
        "gw n=8 fold=off rate=2Mpps workers=[{},{}]",
        "vpn n=4 stages=2 rate=1Mpps",
        "firewall n=4 fold=off rate=1Mpps workers=[{},{}]",
        // The second worker gets more packets than it can process.
        "sfc_a n=4 stages=2 fold=off rate=max shares={~route:~{~when_full:~drop~}~}",
    ];
    compare(cases, 50, 150);
}

#[test]
fn functions_by_name_agree() {
    let cases = [
        "forward n=8 fold=off slo=400us rate=600kpps control.batching=max control.period=10ms",
        "router n=8 rate=max",
        "firewall n=8 fold=off slo=400us rate=600kpps control.batching=max control.period=10ms",
        "nids n=4 rules=100 rate=600kpps",
        "dpi n=4 patterns=100 fold=off rate=600kpps ports.in.generator.arrivals=poisson",
        "vpn n=4 fold=off slo=400us rate=600kpps control.batching={~static:~{~trigger:~8~}~} control.period=10ms",
        "aes n=4 ends=2 rate=max",
        "sfc_a n=4 fold=off patterns=100 slo=400us rate=600kpps control.batching=max control.period=10ms",
        "sfc_b n=4 fold=off rate=600kpps",
    ];
    compare(cases, 50, 150);
}

#[test]
fn load_changes_are_followed() {
    // Overload, then low load: transients are included in the comparison.
    let stages = [(50, 1.0), (170, 2.0), (290, 0.2), (410, 1.2)];
    let wrong: Vec<_> = [
        "gw n=16 fold=off rate=600kpps",
        "gw n=16 fold=off slo=400us rate=600kpps control.batching=optimal control.period=10ms",
        "l2l3 n=16 slo=200us rate=2Mpps control.batching=max control.period=10ms",
    ]
    .into_iter()
    .flat_map(|case| compare_stages(case, &stages))
    .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
