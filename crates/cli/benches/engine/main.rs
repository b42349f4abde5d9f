//! Ticks per packet of complete pipelines: `make bench`. Writes `target/bench.json`.
//!
//! One pinned core, default configuration, in memory. Cases take turns, run after run, so that disturbances of the
//! machine affect all of them. The result of a run is the median of its windows; the result of a case is the median of
//! its runs.

mod cases;
mod churn;
mod cores;
mod measurement;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use forebay_measure::machine::{allowed_cores, pin_to};
use forebay_units::wording::counted;
use serde_json::json;

use cores::Cores;
use measurement::{Case, Counted};

/// Default number of runs of each case.
const RUNS: usize = 9;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().position(|word| word == name).and_then(|at| arguments.get(at + 1));
    let runs = value("--runs").and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let only: Option<Vec<&str>> = value("--only").map(|names| names.split(',').collect());
    // Measure two cores if there are two, unless only other cases are named.
    let two = only.as_ref().is_none_or(|only| only.contains(&"cores")).then(allowed_cores);
    let two = two.and_then(|cores| Some([*cores.first()?, *cores.last()?]).filter(|[first, last]| first != last));
    let only = only.map(|only| only.into_iter().filter(|name| *name != "cores").collect::<Vec<_>>());
    let alone = arguments.iter().any(|word| word == "--alone");
    let json_only = arguments.iter().any(|word| word == "--json");
    let mut cores = allowed_cores();
    if let Some(core) = cores.pop()
        && let Err(error) = pin_to(core)
    {
        eprintln!("cannot bind to core {core}: {error}");
    }
    let mut cases = match cases::all(only.as_deref(), alone, cores.last().copied(), runs) {
        Ok(cases) => cases,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    for run in 0..runs {
        if !json_only {
            eprint!("\rrun {} of {runs} ", run + 1);
        }
        cases.iter_mut().for_each(Case::run);
    }
    let mut both = Cores::default();
    if let Some(two) = two {
        let pipelines = cases::scaled();
        for run in 0..runs {
            if !json_only {
                eprint!("\rtwo cores: run {} of {runs} ", run + 1);
            }
            if let Err(error) = both.run(two, &pipelines) {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    for case in &mut cases {
        let missing = if case.counted != Counted::Nothing { case.missing() } else { 0 };
        if case.starved {
            eprintln!("{}: the source sent fewer packets than requested: the results are invalid", case.name);
            return ExitCode::FAILURE;
        }
        if missing != 0 {
            eprintln!("{}: {} unaccounted for: the results are invalid", case.name, counted(missing, "packet"));
            return ExitCode::FAILURE;
        }
    }
    let mut results = cases::results(&cases);
    let together = two.map(|_| both.compared());
    results.extend(two.map(|_| both.figures()).unwrap_or_default());
    let churned = cases.iter().filter_map(|case| Some((case.name, case.churn.as_ref()?)));
    let changes: BTreeMap<_, _> = churned.map(|(name, churn)| (name, churn.made as f64 / churn.seconds)).collect();
    let cpu = forebay_measure::machine::cpu();
    let packets: BTreeMap<_, _> = cases.iter().map(|case| (case.name, case.received())).collect();
    let document = json!({
        "schema": 1,
        "cpu": cpu,
        "commit": commit(),
        "packets": packets,
        "changes_per_second": changes,
        "two_cores": together,
        "results": results,
    });
    if json_only {
        println!("{document}");
        return ExitCode::SUCCESS;
    }
    eprintln!("\r{}, time-stamp counter {} GHz, {runs} runs", cpu.model, cpu.tsc_ghz);
    println!("{:<22} {:>8} {:>8} {:>8}  ticks per packet: median, least, most", "case", "median", "least", "most");
    for result in &results {
        println!("{:<22} {:>8.2} {:>8.2} {:>8.2}", result.name, result.ticks_per_packet, result.min, result.max);
    }
    if let Some(cores::Compared { scaling, arithmetic, round_trip, handover_in_round_trips }) = &together {
        for (name, gain) in scaling {
            println!(
                "{name}: the gain of two workers is {gain:.3} of the gain of two computing threads ({arithmetic:.3})"
            );
        }
        println!("a hand-over takes {handover_in_round_trips:.4} of a cache line's round trip, {round_trip:.0} ticks");
    }
    for (name, rate) in changes {
        println!("{name}: {rate:.0} table changes per second during the case");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench.json");
    match std::fs::write(file, format!("{document:#}\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the commit that is checked out; `n/a` outside a checkout. A changed work tree adds `+changes`.
fn commit() -> String {
    let git =
        |arguments: &[&str]| Command::new("git").args(arguments).output().ok().filter(|output| output.status.success());
    let Some(hash) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "n/a".to_owned() };
    let changed = git(&["status", "--porcelain"]).is_none_or(|output| !output.stdout.is_empty());
    let hash = String::from_utf8_lossy(&hash.stdout).trim().to_owned();
    if changed { format!("{hash}+changes") } else { hash }
}
