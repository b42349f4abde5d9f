//! Writes figures into `target/bench.json` when a bench is called with `--record`. The file also has the figures of
//! whole pipelines.

use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench.json");

/// A figure: ticks per packet or lookup in several rounds, and the figure of the same run that it is compared with.
pub struct Figure<'a> {
    pub name: &'a str,
    pub ticks: &'a [f64],
    pub against: (&'a str, f64),
}

/// Adds figures to the file, and replaces figures of the same name.
///
/// # Errors
/// A message, if the file cannot be read or written.
pub fn record(figures: &[Figure<'_>]) -> Result<(), String> {
    if !std::env::args().any(|word| word == "--record") {
        return Ok(());
    }
    let mut document = match std::fs::read(FILE) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| format!("{FILE}: {error}"))?,
        Err(_) => json!({ "schema": 1, "cpu": forebay_measure::machine::cpu(), "results": [] }),
    };
    let results = document.get_mut("results").and_then(Value::as_array_mut);
    let results = results.ok_or_else(|| format!("{FILE}: no list 'results'"))?;
    results.retain(|result| figures.iter().all(|figure| result["name"] != figure.name));
    for Figure { name, ticks, against } in figures {
        let mut ticks = ticks.to_vec();
        ticks.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (ticks.first(), ticks.last()) else { continue };
        results.push(json!({
            "name": name, "ticks_per_packet": ticks[ticks.len() / 2], "min": least, "max": most,
            "against": { "name": against.0, "ticks_per_packet": against.1 },
        }));
    }
    std::fs::write(FILE, format!("{document:#}\n")).map_err(|error| format!("{FILE}: {error}"))
}
