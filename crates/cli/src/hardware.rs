//! The processor's counters in the output of `forebay measure`.

use std::io::{self, Write};

use forebay_bench::hardware::Hardware;
use forebay_bench::measurement::Measurement;

use crate::format::{known, short};

/// Prints a line with the counters, and a line that compares the rates.
pub(crate) fn print(measurement: &Measurement, out: &mut impl Write) -> io::Result<()> {
    let Measurement { chain, unavailable, unmetered, .. } = measurement;
    // `unmetered` is the reason why workers have no metered figures. If no counter works, it repeats the reason in
    // `unavailable`, so it is left out.
    let reason = unavailable.values().next().or(unmetered.as_ref()).map(String::as_str);
    writeln!(out, "{}", counter_line(&chain.hardware, reason))?;
    match chain.pps_by_counters {
        Some(pps) => writeln!(out, "{}", two_sides(chain.entered_pps, pps)),
        None => Ok(()),
    }
}

/// Compares the measured rate with the rate computed from the counters. The two are independent.
fn two_sides(entered: f64, by_counters: f64) -> String {
    let share = entered / by_counters * 100.0;
    let (entered, by_counters) = (short(entered), short(by_counters));
    format!(
        "pps = f_cpu x CUR x eIPC / IPP: measured {entered} packets/s, computed {by_counters} from the counters \
         ({share:.1} %)"
    )
}

/// Formats the counters. If some are missing, `reason` explains why.
fn counter_line(hardware: &Hardware, reason: Option<&str>) -> String {
    let reason = reason.unwrap_or("nothing was counted");
    if *hardware == Hardware::default() {
        return format!("hardware counters: n/a: {reason}");
    }
    let share = |part: Option<f64>| known(part.map(|part| part * 100.0), 1);
    let missing = [hardware.ipc, hardware.eipc, hardware.l1d_misses, hardware.llc_misses, hardware.branch_misses]
        .into_iter()
        .chain([hardware.stalled_frontend, hardware.stalled_backend])
        .any(|figure| figure.is_none());
    format!(
        "IPC {} (idle turns included), {} of busy turns; per packet {} core cycles, {} L1D misses, {} LLC misses, \
         {} branch misses; stalled {} % front end, {} % back end{}",
        known(hardware.ipc, 2),
        known(hardware.eipc, 2),
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
    fn missing_counters_are_shown_with_the_reason() {
        assert_eq!(counter_line(&Hardware::default(), Some("there is none")), "hardware counters: n/a: there is none");
        let some = Hardware { ipc: Some(1.5), core_cpp: Some(210.0), ..Hardware::default() };
        let line = counter_line(&some, Some("there is none"));
        let begins = "IPC 1.50 (idle turns included), n/a of busy turns; per packet 210.0 core cycles, n/a L1D";
        assert!(line.starts_with(begins), "{line}");
        assert!(line.ends_with("n/a % back end (n/a: there is none)"), "{line}");
        let both = Hardware { eipc: Some(2.25), ..some };
        assert!(counter_line(&both, None).contains("IPC 1.50 (idle turns included), 2.25 of busy turns;"), "{both:?}");
    }

    #[test]
    fn the_rate_has_two_sides() {
        let line = two_sides(19.0e6, 20.0e6);
        assert!(line.ends_with("measured 19.00M packets/s, computed 20.00M from the counters (95.0 %)"), "{line}");
    }
}
