//! Measures the time of the exact search for random problems, and its distance from the optimum when it is stopped.
//!
//! There are five types of instances for each size: parameters α, β and C uniform on the simplex, x log-uniform from
//! 0.3 to 3, rates from 1 to 20 Mpps. Times are CPU times of the thread. `FOREBAY_INSTANCES` sets the number of
//! instances of each type (20). `FOREBAY_LONG=600` compares the last size with searches of this number of seconds, for
//! one instance of each type.

#[path = "../tests/placement/instances.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod instances;

use forebay_models::placement::{Certificate, Effort, Problem, Wanted, check, exact};
use instances::{Mix, of_bars};

/// The sizes: the numbers of domains, cores per domain, chains, and functions per chain. The last value is the time
/// limit of the search, in seconds.
const SIZES: [([usize; 4], f64); 4] =
    [([2, 10, 6, 3], 60.0), ([4, 10, 6, 3], 60.0), ([2, 24, 12, 3], 60.0), ([8, 10, 16, 4], 1.0)];
/// The first seed. The tests use other seeds.
const FIRST_SEED: u64 = 1_000;

/// The CPU time of the thread, in seconds.
fn seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone, which is valid for writes of a timespec.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0, "Linux has this clock");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: allowed is a number")))
}

/// Runs a search. Returns the certificate and its duration in seconds.
fn search(problem: &Problem, limit: f64) -> (Certificate, f64) {
    let start = seconds();
    let effort = Effort { nodes: u64::MAX, is_over: &|| seconds() - start > limit };
    let found = exact(problem, &effort).expect("a valid problem").expect("it fits");
    let took = seconds() - start;
    check(problem, &Wanted::default(), &found).expect("the certificate holds");
    (found, took)
}

fn median_and_most(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

fn main() {
    let count: u64 = number("FOREBAY_INSTANCES").unwrap_or(20);
    println!("cores  chains  kind              proved    ms: median     most     nodes  gap, %: median   most");
    // The first search of a process also allocates its memory.
    drop(search(&of_bars(0, SIZES[0].0, Mix::Any), 1.0));
    for ([domains, cores, chains, length], limit) in SIZES {
        for kind in Mix::ALL {
            let seeds = FIRST_SEED..FIRST_SEED + count;
            let runs: Vec<_> =
                seeds.map(|seed| search(&of_bars(seed, [domains, cores, chains, length], kind), limit)).collect();
            let (median, most) = median_and_most(runs.iter().map(|(_, took)| took * 1e3).collect());
            let (gap, most_gap) = median_and_most(runs.iter().map(|(found, _)| found.gap() * 100.0).collect());
            let nodes = runs.iter().map(|(found, _)| found.nodes).max().unwrap_or(0);
            let proved = runs.iter().filter(|(found, _)| found.gap() < 1e-8).count();
            let (server, demand) = (format!("{domains}x{cores}"), format!("{chains}x{length}"));
            let kind = format!("{kind:?}");
            println!(
                "{server:5}  {demand:6}  {kind:16}  {proved:2} of {count:<3}  {median:9.2}  {most:7.1}  {nodes:8}  \
                 {gap:14.2}  {most_gap:5.2}"
            );
        }
    }
    if let Some(long) = number("FOREBAY_LONG") {
        let ([domains, cores, chains, length], limit) = SIZES[SIZES.len() - 1];
        for kind in Mix::ALL {
            let problem = of_bars(FIRST_SEED, [domains, cores, chains, length], kind);
            let ((short, _), (best, took)) = (search(&problem, limit), search(&problem, long));
            println!("{kind:?}: after {limit} s {:.5} of the value after {took:.0} s", short.value / best.value);
        }
    }
}
