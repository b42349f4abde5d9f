//! Measures the ticks per lookup, the build and update times and the memory of the longest-prefix-match table.
//!
//! This is a plain timing loop. Compare ratios within one run. The minimum of many short rounds removes the noise of
//! the machine. Run with `cargo bench -p forebay-functions --bench lpm`.

use std::hint::black_box;
use std::time::Instant;

use forebay_functions::tables::lpm::Table;
use forebay_functions::tables::lpm::routes_file::parse_routes;
use forebay_functions::tables::lpm::synthetic::{self, Family, Random};

/// The number of addresses per round, many more than caches have room for.
const ADDRESSES: usize = 1 << 18;
const BATCH: usize = 32;
const ROUNDS: usize = 25;

/// Returns the rate of the time-stamp counter. Linux reports it as the processor's clock on virtual machines; elsewhere
/// the figure is nanoseconds.
fn ticks_per_nanosecond() -> f64 {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let rate = cpu.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split_once(':')?.1.trim().parse::<f64>().ok());
    rate.map_or(1.0, |megahertz| megahertz / 1000.0)
}

/// Returns the time of the quickest round over all addresses, in nanoseconds per address.
fn quickest<A>(addresses: &[A], mut round: impl FnMut(&[A])) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round(addresses);
        start.elapsed().as_nanos() as f64 / addresses.len() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Looks a batch up in the steps that `ip_lookup` uses.
fn in_steps<'n, A: Family>(table: &Table<A>, batch: &[A], next_hops: &'n mut [u32]) -> &'n [u32] {
    let next_hops = &mut next_hops[..batch.len()];
    batch.iter().for_each(|address| table.prefetch(*address));
    table.begin_all(batch, next_hops);
    table.finish(batch, next_hops);
    next_hops
}

fn measure<A: Family>(family: &str, count: usize) {
    let rate = ticks_per_nanosecond();
    let routes = synthetic::routes::<A>(count, 256, 1);
    let start = Instant::now();
    let mut table = Table::from_routes(routes.clone()).expect("next hops are small");
    let build = start.elapsed();
    println!(
        "{family} {count} prefixes: built in {:.1} ms, {:.2} MB compressed, {:.2} MB in all",
        build.as_secs_f64() * 1e3,
        table.lookup_bytes() as f64 / 1e6,
        table.memory_bytes() as f64 / 1e6,
    );
    let traffic = [
        ("hits", synthetic::hits(&routes, ADDRESSES, 2)),
        ("random addresses", synthetic::addresses(ADDRESSES, 3)),
        ("4096 sessions", {
            let sessions = synthetic::hits(&routes, 4096, 4);
            sessions.iter().copied().cycle().take(ADDRESSES).collect()
        }),
    ];
    for (name, addresses) in &traffic {
        let mut begun = [0; BATCH];
        let stepwise = quickest(addresses, |addresses| {
            for batch in addresses.chunks(BATCH) {
                black_box(in_steps(&table, batch, &mut begun));
            }
        });
        let single = quickest(addresses, |addresses| {
            for &address in addresses {
                black_box(table.lookup(address));
            }
        });
        let [stepwise, single] = [stepwise, single].map(|time| time * rate);
        println!("  {name}: {stepwise:.1} ticks in steps, {single:.1} single");
    }
    let sizes = [1, 5, 8, 16, 31, 32, 48, 256].map(|size| {
        let mut next_hops = [0; 256];
        let time = quickest(&traffic[0].1, |addresses| {
            for batch in addresses.chunks(size) {
                black_box(in_steps(&table, batch, &mut next_hops));
            }
        });
        format!("{size}: {:.1}", time * rate)
    });
    println!("  hits, ticks by batch size: {}", sizes.join(", "));
    if A::BITS == 32 {
        // For comparison within the run: one load per lookup from a flat table of 2^24 words.
        let flat = vec![1u32; 1 << 24];
        for (name, addresses) in &traffic {
            let mut next_hops = [0; BATCH];
            let batched = quickest(addresses, |addresses| {
                for batch in addresses.chunks(BATCH) {
                    for (address, next_hop) in batch.iter().zip(&mut next_hops) {
                        *next_hop = flat[(address.first_word() >> 8) as usize];
                    }
                    black_box(&next_hops);
                }
            });
            println!("  {name}, flat table: {:.1} ticks", batched * rate);
        }
    }
    let text: String = routes.iter().map(|(prefix, next_hop)| format!("{prefix} {next_hop}\n")).collect();
    let start = Instant::now();
    black_box(parse_routes("routes", text.as_bytes(), 255)).expect("written from routes");
    println!("  route file: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let mut random = Random::new(5);
    let updates = 100_000;
    let start = Instant::now();
    for _ in 0..updates / 2 {
        let (prefix, next_hop) = routes[random.index(routes.len())];
        table.remove(prefix);
        table.insert(prefix, next_hop).expect("next hops are small");
    }
    println!("  updates: {:.0} per second", f64::from(updates) / start.elapsed().as_secs_f64());
}

fn main() {
    for count in [500, 10_000, 1_000_000] {
        measure::<u32>("IPv4", count);
    }
    for count in [10_000, 1_000_000] {
        measure::<u128>("IPv6", count);
    }
}
