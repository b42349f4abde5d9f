//! How long the exact search takes for random problems, and how near to the optimum it is when it is stopped.
//!
//! Five kinds of instances for each size: parameters α, β and C uniform on the simplex, x log-uniform from 0.3 to 3,
//! rates of 1 to 20 Mpps. Times are of the thread's processor. `FOREBAY_INSTANCES` says how many of each kind (20);
//! `FOREBAY_LONG=600` compares the last size with searches of so many seconds, for one instance of each kind.

#[path = "../tests/placement/instances.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod instances;

use forebay_models::placement::{Certificate, Effort, Problem, Wanted, check, exact};
use instances::{Mix, of_bars};

/// Domains, cores of each, chains, functions of each, and after how many seconds the search is stopped.
const SIZES: [([usize; 4], f64); 4] =
    [([2, 10, 6, 3], 60.0), ([4, 10, 6, 3], 60.0), ([2, 24, 12, 3], 60.0), ([8, 10, 16, 4], 1.0)];
/// Seeds of other instances than the tests have.
const FIRST_SEED: u64 = 1_000;

/// Of the thread's processor.
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

/// What was found, and in how many seconds.
fn search(problem: &Problem, limit: f64) -> (Certificate, f64) {
    let start = seconds();
    let effort = Effort { nodes: u64::MAX, is_over: &|| seconds() - start > limit };
    let found = exact(problem, &effort).expect("in order").expect("it fits");
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
    // The first search of a process pays for its memory.
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
                "{server:5}  {demand:6}  {kind:16}  {proved:2} of {count:<3}  {median:9.2}  {most:7.1}  {nodes:8}  {gap:14.2}  {most_gap:5.2}"
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
