//! Measures how long configurations take to load: 1 000 modules, a file of 1 000 000 routes, the largest use cases.
//! Limit: 2 s.

use std::fmt::Write as _;
use std::time::Instant;

use forebay_pipeline::{Conditions, Source, load, usecase};
use forebay_units::Frequency;

/// Prints the best time of five runs, in milliseconds.
fn time(name: &str, source: &Source) {
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: false };
    let best = (0..5).map(|_| {
        let start = Instant::now();
        let loaded = load(source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
        let modules = loaded.plans[0].modules.len();
        (start.elapsed().as_secs_f64() * 1e3, modules)
    });
    let (best, modules) = best.min_by(|a, b| a.0.total_cmp(&b.0)).expect("five runs");
    println!("{name:<24} {modules:>6} modules {best:>9.1} ms");
}

fn main() {
    let mut modules = String::from("modules:\n");
    let mut lines = String::from("pipeline:\n  - in -> m0\n");
    for number in 0..1_000 {
        let _ = writeln!(
            modules,
            "  m{number}: {{ mac_rewrite: {{ source: 02:00:00:00:00:01, destination: 02:00:00:00:00:02 }} }}"
        );
        let next = if number == 999 { "out".to_owned() } else { format!("m{}", number + 1) };
        let _ = writeln!(lines, "  - m{number} -> {next}");
    }
    let ports = "ports:\n  in: { generator: }\n  out: { sink: }\n";
    time("chain of 1 000", &Source::new(format!("{ports}{modules}{lines}"), "chain", ""));

    let folder = std::env::temp_dir();
    let routes = folder.join(format!("forebay-{}-routes.txt", std::process::id()));
    let text: String = (0..1_000_000_u32)
        .map(|n| {
            let [a, b, c, d] = (0x0100_0000 + n * 3_000).to_be_bytes();
            format!("{a}.{b}.{c}.{d}/{} {}\n", 24 + n % 9, n % 16)
        })
        .collect();
    std::fs::write(&routes, masked(&text)).expect("a temporary file");
    let hops: String = (0..16).map(|hop| format!("  - route[{hop}] -> out\n")).collect();
    let text = format!(
        "{ports}modules:\n  route: {{ ip_lookup: {{ routes: {} }} }}\npipeline:\n  - in -> route\n{hops}",
        routes.display()
    );
    time("1 000 000 routes", &Source::new(text, "routes", ""));
    std::fs::remove_file(&routes).expect("it was written");

    for (name, sets) in [
        ("l2l3", ["n=330", "batch=32"]),
        ("gw", ["n=200", "batch=32"]),
        ("vrf", ["m=16", "n=4"]),
        ("vrf", ["m=64", "n=8"]),
        ("rc", ["n=1000", "c=0"]),
    ] {
        let source = usecase(name, &sets.map(str::to_owned)).unwrap_or_else(|problems| panic!("{problems}"));
        time(&format!("{name} {}", sets.join(" ")), &source);
    }
}

/// Returns routes with the bits after their prefix cleared.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let (prefix, hop) = line.split_once(' ').expect("prefix and next hop");
        let (address, length) = prefix.split_once('/').expect("a prefix");
        let (address, length): (std::net::Ipv4Addr, u32) =
            (address.parse().expect("an address"), length.parse().expect("a length"));
        let address = std::net::Ipv4Addr::from(u32::from(address) & (u32::MAX << (32 - length)));
        let _ = writeln!(out, "{address}/{length} {hop}");
    }
    out
}
