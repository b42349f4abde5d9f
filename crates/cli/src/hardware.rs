//! What `forebay measure` says of the processor's counters.

use std::io::{self, Write};

use forebay_lean::hardware::Hardware;
use forebay_lean::measurement::Measurement;

use crate::format::known;

/// Prints a line on the counters.
pub(crate) fn print(measurement: &Measurement, out: &mut impl Write) -> io::Result<()> {
    let reason = measurement.unavailable.values().next().map(String::as_str);
    writeln!(out, "{}", told(&measurement.chain.hardware, reason))
}

/// The figures, with the first reason for those that are missing.
fn told(hardware: &Hardware, reason: Option<&str>) -> String {
    let reason = reason.unwrap_or("nothing was counted");
    if *hardware == Hardware::default() {
        return format!("hardware counters: n/a: {reason}");
    }
    let share = |part: Option<f64>| known(part.map(|part| part * 100.0), 1);
    let missing = [hardware.ipc, hardware.l1d_misses, hardware.llc_misses, hardware.branch_misses]
        .into_iter()
        .chain([hardware.stalled_frontend, hardware.stalled_backend])
        .any(|figure| figure.is_none());
    format!(
        "IPC {} (idle turns included); per packet {} core cycles, {} L1D misses, {} LLC misses, {} branch misses; stalled {} % front end, {} % back end{}",
        known(hardware.ipc, 2),
        known(hardware.core_cpp, 1),
        known(hardware.l1d_misses, 2),
        known(hardware.llc_misses, 2),
        known(hardware.branch_misses, 2),
        share(hardware.stalled_frontend),
        share(hardware.stalled_backend),
        if missing { format!(" (n/a: {reason})") } else { String::new() }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_is_told_with_the_reason() {
        assert_eq!(told(&Hardware::default(), Some("there is none")), "hardware counters: n/a: there is none");
        let some = Hardware { ipc: Some(1.5), core_cpp: Some(210.0), ..Hardware::default() };
        let line = told(&some, Some("there is none"));
        assert!(line.starts_with("IPC 1.50 (idle turns included); per packet 210.0 core cycles, n/a L1D"), "{line}");
        assert!(line.ends_with("n/a % back end (n/a: there is none)"), "{line}");
    }
}
