//! The progress and results of `forebay measure --search`.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use forebay_bench::{
    rates::{self, Rates},
    search::{GoalResult, SearchProgress},
};
use forebay_instance::Cores;
use forebay_pipeline::{Conditions, Loaded, Source};
use forebay_units::Nanos;

use crate::engine;
use crate::format::short;

/// Searches for the highest rates, for at most `time`. Shows progress on a terminal.
pub(crate) fn find(source: &Source, cores: &Cores, time: Nanos) -> anyhow::Result<Rates> {
    let conditions = Conditions { frequency: engine::frequency(false), simulated: false };
    let Loaded { plans, made, .. } = forebay_pipeline::load(source, conditions)?;
    let shown = io::stderr().is_terminal();
    let time = Duration::from_nanos(time.0);
    let mut report_progress = |progress: &SearchProgress<'_>| {
        if shown {
            // The next line overwrites this one. A closed terminal is ignored.
            let _ = write!(io::stderr(), "\r{}\x1b[K", line(progress, time));
        }
    };
    let found = rates::find(plans, cores, made, time, &mut report_progress);
    if shown {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    Ok(found?)
}

/// Formats the progress of a search that is limited to `time`: the lower bounds of both rates so far, and the rate that
/// is tried now.
fn line(progress: &SearchProgress<'_>, time: Duration) -> String {
    let SearchProgress { outcome, pps, lower_pps } = progress;
    let known = |at: usize| lower_pps.get(at).copied().flatten().map_or_else(|| "n/a".to_owned(), short);
    format!(
        "search: {:.0} of {} s, {} trials; NDR from {}, PDR from {}; trying {}",
        outcome.seconds,
        time.as_secs(),
        outcome.trials,
        known(0),
        known(1),
        short(*pps)
    )
}

/// Prints the rates.
pub(crate) fn print(rates: &Rates, out: &mut impl Write) -> io::Result<()> {
    for (name, found) in [("non-drop rate (NDR)", &rates.ndr), ("partial drop rate (PDR, 0.5 %)", &rates.pdr)] {
        writeln!(out, "{name}: {}", rate_text(found))?;
    }
    writeln!(
        out,
        "{} trials in {:.1} s; {} were void (lost packets while a worker had no core) and repeated",
        rates.trials, rates.seconds, rates.voids
    )?;
    if rates.void {
        writeln!(out, "The search is void, because the machine was too busy. Repeat it on a quiet machine.")?;
    }
    Ok(())
}

fn rate_text(found: &GoalResult) -> String {
    let unsettled = if found.settled {
        ""
    } else {
        "; the search time was up before the bounds were certain (raise --search-time)"
    };
    match *found {
        GoalResult { pps: Some(pps), lower_pps: Some(low), upper_pps: Some(high), .. } => {
            format!("{} packets/s, offered between {} and {}{unsettled}", short(pps), short(low), short(high))
        }
        GoalResult { pps: Some(pps), .. } => {
            format!("at least {} packets/s: no tried load was too high{unsettled}", short(pps))
        }
        GoalResult { upper_pps: Some(high), .. } => {
            format!("n/a: even {} packets/s lose packets{unsettled}", short(high))
        }
        _ => format!("n/a{unsettled}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_formatted() {
        let found = GoalResult { pps: Some(4.95e6), lower_pps: Some(4.95e6), upper_pps: Some(4.97e6), settled: true };
        assert_eq!(rate_text(&found), "4.950M packets/s, offered between 4.950M and 4.970M");
        assert_eq!(
            rate_text(&GoalResult { upper_pps: None, ..found }),
            "at least 4.950M packets/s: no tried load was too high"
        );
        assert_eq!(
            rate_text(&GoalResult { pps: None, lower_pps: None, ..found }),
            "n/a: even 4.970M packets/s lose packets"
        );
        assert!(rate_text(&GoalResult::default()).starts_with("n/a; the search time was up"));
    }
}
