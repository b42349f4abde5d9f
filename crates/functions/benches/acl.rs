//! Ticks of the time-stamp counter per key for each way to compile a rule list.
//!
//! 4 096 sessions in an order without pattern, batches of 32, median of several passes: what a worker pays beyond
//! reading the key out of the packet. `cargo bench -p forebay-functions --bench acl`

use std::hint::black_box;

use forebay_functions::tables::acl::{Address, Backend, Classifier, Decision, Verdict, synthetic};
use forebay_measure::clock::{Clock, Tsc};

const SESSIONS: usize = 4096;
const BATCH: usize = 32;
const PASSES: usize = 41;

fn main() {
    println!(
        "{:>4} {:>7} {:>6} {:>8} {:>7} {:>7} {:>10} {:>9}",
        "", "rules", "hits", "way", "median", "min", "bytes", "build ms"
    );
    for rules in [16, 100, 1_000, 10_000] {
        for hit_share in [0.05, 0.95] {
            family::<u32>("v4", rules, hit_share);
            family::<u128>("v6", rules, hit_share);
        }
    }
}

fn family<A: Address>(name: &str, count: usize, hit_share: f64) {
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
        let mut verdicts = [Verdict::default(); BATCH];
        let mut ticks: Vec<f64> = (0..PASSES)
            .map(|_| {
                let start = Tsc.now();
                for keys in keys.chunks_exact(BATCH) {
                    classifier.classify_batch(black_box(keys), &mut verdicts, &mut hits);
                    black_box(&verdicts);
                }
                Tsc.now().since(start).0 as f64 / keys.len() as f64
            })
            .collect();
        ticks.sort_by(f64::total_cmp);
        println!(
            "{name:>4} {count:>7} {hit_share:>6} {backend:>8} {:>7.1} {:>7.1} {:>10} {:>9}",
            ticks[ticks.len() / 2],
            ticks[0],
            classifier.memory_bytes(),
            if chosen == Ok(backend) { format!("{build_ms:.1}") } else { String::new() },
            backend = backend.to_string(),
        );
    }
}
