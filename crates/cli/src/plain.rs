//! What goes on, a line an interval: where there is no terminal.

use std::io::{self, Write};

use forebay_graph::report::Report;

use crate::format::{short, span};

/// One line of the last interval; `whole` is the run so far.
pub(crate) fn line(recent: &Report, whole: &Report, out: &mut impl Write) -> io::Result<()> {
    let per_second = |count: u64| if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 };
    let sent: u64 = recent.packets.out;
    let worst = recent.flows.iter().filter_map(|flow| Some((flow.delay_us.p99?, flow.name.as_str())));
    let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0));
    let delay = worst.map_or("n/a".to_owned(), |(p99, name)| format!("{} ({name})", span(Some(p99))));
    let missed = recent.flows.iter().filter(|flow| flow.kept == Some(false)).count();
    let with_slo = recent.flows.iter().filter(|flow| flow.slo_us.is_some()).count();
    let slo = if with_slo > 0 { format!("  SLO missed by {missed} of {with_slo} flows") } else { String::new() };
    let busy = recent.workers.iter().map(|worker| worker.busy).sum::<f64>() / recent.workers.len().max(1) as f64;
    writeln!(
        out,
        "{:8.1} s  in {} pps  out {} pps  dropped {} pps  busy {:.0} %  p99 {delay}{slo}",
        whole.duration_s,
        short(per_second(recent.packets.entered)),
        short(per_second(sent)),
        short(per_second(recent.packets.all_dropped())),
        busy * 100.0,
    )
}
