//! The state of a run as one line per interval, for output without a terminal.

use std::io::{self, Write};

use forebay_protocol::report::Report;

use crate::format::{short, span};
use crate::{control, strain};

/// Prints a line about the last interval `recent`. `whole` is the report of the run so far.
pub(crate) fn line(recent: &Report, whole: &Report, out: &mut impl Write) -> io::Result<()> {
    let per_second = |count: u64| if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 };
    let sent: u64 = recent.packets.out;
    let worst = recent.flows.iter().filter_map(|flow| Some((flow.delay_us.p99?, flow.name.as_str())));
    let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0));
    let delay = worst.map_or("n/a".to_owned(), |(p99, name)| format!("{} ({name})", span(Some(p99))));
    let missed = recent.flows.iter().filter(|flow| flow.kept == Some(false)).count();
    let with_slo = recent.flows.iter().filter(|flow| flow.slo_us.is_some()).count();
    let slo = if with_slo > 0 { format!("  SLO missed by {missed} of {with_slo} flows") } else { String::new() };
    let control = recent.control.as_ref().map_or(String::new(), |control| format!("  {}", control::in_short(control)));
    let busy = strain::busy(&recent.workers, 0);
    let losses = strain::losses(recent).map_or(String::new(), |losses| format!("  {losses}"));
    writeln!(
        out,
        "{:8.1} s  in {} pps  out {} pps  dropped {} pps{losses}  busy {busy}  p99 {delay}{slo}{control}",
        whole.duration_s,
        short(per_second(recent.packets.entered)),
        short(per_second(sent)),
        short(per_second(recent.packets.all_dropped())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::report;

    fn line_text(recent: &Report) -> String {
        let mut out = Vec::new();
        line(recent, recent, &mut out).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_controller_is_described_briefly() {
        let mut recent = report(1);
        recent.control = Some(crate::control::tests::control());
        let expected = "SLO missed by 1 of 1 flows  optimal m0 8 -> 14 and 1 more, 4 of 123 periods missed  \
                        cannot be kept: video\n";
        assert!(line_text(&recent).ends_with(expected), "{}", line_text(&recent));
    }

    /// Regression: an idle worker was not visible beside a busy one, and losses at ports were only in the JSON.
    #[test]
    fn losses_and_each_worker_are_shown() {
        let mut recent = report(1);
        let lossy = "dropped 1 pps  lost at in 2 pps  busy 50 %  p99 ";
        assert!(line_text(&recent).contains(lossy), "{}", line_text(&recent));
        recent.pool_exhausted = 3_000;
        let more = recent.ports[0].clone();
        recent.ports.push(forebay_protocol::report::PortReport { name: "dry".to_owned(), dropped: 0, ..more });
        let worker = recent.workers[0].clone();
        recent.workers.push(forebay_protocol::report::WorkerReport { id: 1, busy: 0.0, ..worker });
        let lossy = "  lost at in 2 pps  pool lacked 1.500k pps  busy 50/0 %  p99 ";
        assert!(line_text(&recent).contains(lossy), "{}", line_text(&recent));
        recent.pool_exhausted = 0;
        recent.ports[0].dropped = 0;
        assert!(line_text(&recent).contains("dropped 1 pps  busy 50/0 %  p99 "), "{}", line_text(&recent));
    }
}
