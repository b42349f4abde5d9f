//! Measures the ticks of the time-stamp counter per key for each way to compile a rule list, and for a list that is
//! being changed.
//!
//! The keys are 4 096 sessions in random order, in batches of 32. The figure is the median of several passes. It is the
//! time that a worker needs after it has read the key from the packet. Run with `cargo bench -p forebay-functions
//! --bench acl`. With `-- compiling` it measures how long usual and deliberately costly lists take to compile.

use std::hint::black_box;

use forebay_functions::tables::acl::{
    Backend, Classifier, Decision, HeaderKey, Hits, Rule, RuleAddress, Step, Tuples, Verdict, labels, synthetic,
};
use forebay_measure::clock::{Clock, Tsc};

const SESSIONS: usize = 4096;
const BATCH: usize = 32;
const PASSES: usize = 41;

/// Prints how long usual and costly lists take to compile.
fn compiling() {
    println!("{:>8} {:>7} {:>9} {:>9} {:>12}", "list", "rules", "back end", "build ms", "table bytes");
    let print_row = |name: &str, rules: Vec<Rule<u32>>| {
        for backend in Backend::ALL {
            let start = Tsc.now();
            let built = Classifier::build_with(rules.clone(), Decision::Permit, backend);
            let ms = Tsc.frequency().seconds(Tsc.now().since(start)) * 1e3;
            let bytes = built.map(|built| built.memory_bytes().to_string());
            let bytes = bytes.unwrap_or_else(|_| "too costly".to_owned());
            println!("{name:>8} {:>7} {:>9} {ms:>9.1} {bytes:>12}", rules.len(), backend.to_string());
        }
    };
    for count in [1_000, 4_096, 10_000, 100_000] {
        print_row("usual", synthetic::rules(count, 1));
        print_row("costly", synthetic::costly(count));
    }
}

fn main() {
    if std::env::args().any(|word| word == "compiling") {
        return compiling();
    }
    println!(
        "{:>4} {:>7} {:>6} {:>8} {:>7} {:>7} {:>10} {:>9}",
        "", "rules", "hits", "way", "median", "min", "bytes", "build ms"
    );
    for rules in [16, 100, 1_000, 10_000, 30_000] {
        for hit_share in [0.05, 0.95] {
            family::<u32>("v4", rules, hit_share);
            family::<u128>("v6", rules, hit_share);
        }
    }
}

fn family<A: RuleAddress>(name: &str, count: usize, hit_share: f64) {
    let rules = synthetic::rules::<A>(count, 1);
    let keys = synthetic::keys(&rules, SESSIONS, hit_share, 2);
    let start = Tsc.now();
    let chosen = Classifier::build(rules.clone(), Decision::Permit).map(|built| built.backend());
    let build_ms = Tsc.frequency().seconds(Tsc.now().since(start)) * 1e3;
    for backend in Backend::ALL {
        let Ok(classifier) = Classifier::build_with(rules.clone(), Decision::Permit, backend) else {
            println!("{name:>4} {count:>7} {hit_share:>6} {backend:>8} does not fit", backend = backend.to_string());
            continue;
        };
        let mut hits = classifier.hits();
        let [median, least] = ticks(&keys, |keys, verdicts| classifier.classify_batch(keys, verdicts, &mut hits));
        let bytes = classifier.memory_bytes();
        let build = if chosen == Ok(backend) { format!("{build_ms:.1}") } else { String::new() };
        let way = backend.to_string();
        println!("{name:>4} {count:>7} {hit_share:>6} {way:>8} {median:>7.1} {least:>7.1} {bytes:>10} {build:>9}");
    }
    let start = Tsc.now();
    let mut tuples = Tuples::new(count, Decision::Permit, 1);
    for ((rule, label), number) in rules.iter().zip(labels(count)).zip(0..) {
        tuples.apply(&Step::Insert { rule: *rule, label, number });
    }
    let build = Tsc.frequency().seconds(Tsc.now().since(start)) * 1e3;
    let mut hits = Hits::new(count);
    let [median, least] = ticks(&keys, |keys, verdicts| tuples.classify_batch(keys, verdicts, &mut hits));
    println!("{name:>4} {count:>7} {hit_share:>6}   tuples {median:>7.1} {least:>7.1} {:>10} {build:>9.1}", "");
}

/// Returns the median and the least ticks per key.
fn ticks<A: RuleAddress>(keys: &[HeaderKey<A>], mut classify: impl FnMut(&[HeaderKey<A>], &mut [Verdict])) -> [f64; 2] {
    let mut verdicts = [Verdict::default(); BATCH];
    let mut ticks: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Tsc.now();
            for keys in keys.chunks_exact(BATCH) {
                classify(black_box(keys), &mut verdicts);
                black_box(&verdicts);
            }
            Tsc.now().since(start).0 as f64 / keys.len() as f64
        })
        .collect();
    ticks.sort_by(f64::total_cmp);
    [ticks[ticks.len() / 2], ticks[0]]
}
