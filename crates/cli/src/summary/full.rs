//! The complete tables of `--full` and of `show`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use forebay_protocol::report::{FlowReport, Report};

use crate::control;
use crate::format::Align::{Left, Right};
use crate::format::{known, short, span, table, whole};

/// The counters under a heading are printed only if there are at most this many. `--json` prints all counters.
const COUNTERS: usize = 8;

pub(crate) fn workers(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for worker in &report.workers {
        let core = worker.core.map_or(String::new(), |core| format!(" on core {core}"));
        write!(out, "worker {}{core}: {:.1} % busy, {} turns", worker.id, worker.busy * 100.0, whole(worker.turns))?;
        let elsewhere = worker.without_core() * 100.0;
        if elsewhere >= 0.05 {
            write!(out, ", its core ran other work for {elsewhere:.1} % of the time")?;
        }
        if report.workers.len() > 1 {
            let (handed, taken, stalls) = (whole(worker.handed), whole(worker.taken), whole(worker.stalls));
            write!(
                out,
                ", {handed} packets given to other workers, {taken} taken from them, {stalls} batches that waited"
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

pub(crate) fn modules(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let columns = [
        ("module", Left),
        ("function", Left),
        ("packets", Right),
        ("calls", Right),
        ("batch in", Right),
        ("trigger", Right),
        ("batch out", Right),
        ("ticks/packet", Right),
        ("ticks/call", Right),
        ("share", Right),
        ("dropped", Right),
    ];
    let rows = report.modules.iter().map(|module| {
        vec![
            module.name.clone(),
            module.function.to_string(),
            whole(module.packets),
            whole(module.batches),
            known(module.ingress_mean, 2),
            if module.trigger > 0 { module.trigger.to_string() } else { "-".to_owned() },
            known(module.batch_mean, 2),
            known(module.ticks_per_packet, 1),
            known(module.ticks_per_batch, 0),
            module.share.map_or("n/a".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            whole(module.dropped),
        ]
    });
    writeln!(out, "{}", table(&columns, &rows.collect::<Vec<_>>()).trim_end())?;
    writeln!(
        out,
        "batch in: packets that arrive together; trigger: packets that the module waits for; batch out: packets in a \
         call; share: of the workers' time\n"
    )?;
    for module in &report.modules {
        for (heading, counters) in module.counters.iter().filter(|(_, counters)| is_short(counters)) {
            let counts: Vec<_> = counters.iter().map(|(name, count)| format!("{name} {}", whole(*count))).collect();
            writeln!(out, "{} {heading}: {}", module.name, counts.join(", "))?;
        }
    }
    if report.modules.iter().any(|module| module.counters.values().any(is_short)) {
        writeln!(out)?;
    }
    Ok(())
}

/// Returns whether counters under a heading are printed: there are few, and at least one is not zero.
fn is_short(counters: &BTreeMap<String, u64>) -> bool {
    (1..=COUNTERS).contains(&counters.len()) && counters.values().any(|count| *count > 0)
}

pub(crate) fn flows(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let rates = control::has_rates(report);
    let mut columns =
        vec![("flow", Left), ("objective", Right), ("measured", Right), ("verdict", Left), ("late packets", Right)];
    columns.extend(rates.then_some([(control::rate_head(report), Right), ("verdict", Left)]).into_iter().flatten());
    columns.extend(["packets", "packets/s", "mean", "p50", "p95", "p99", "p99.9", "max"].map(|head| (head, Right)));
    let rows = report.flows.iter().map(|flow| {
        let delay = &flow.delay_us;
        let mut row = objectives_of(flow);
        if rates {
            row.extend([control::stated_rate(flow), verdict(flow.rate_kept, flow)]);
        }
        row.extend([whole(flow.packets), short(flow.rate_pps)]);
        row.extend([delay.mean, delay.p50, delay.p95, delay.p99, delay.p999, delay.max].map(span));
        row
    });
    write!(out, "{}", table(&columns, &rows.collect::<Vec<_>>()))?;
    let clocks = match report.arrival_clocks[..] {
        [] => "n/a".to_owned(),
        _ => report.arrival_clocks.join(", "),
    };
    writeln!(out, "delays are from arrival (clock: {clocks}) to departure; measured: at the objective's percentile\n")
}

/// Returns the cells of a flow: name, delay objective, delay at the percentile of the objective, verdict, and number of
/// late packets.
pub(super) fn objectives_of(flow: &FlowReport) -> Vec<String> {
    let has = flow.slo_us.is_some();
    vec![
        flow.name.clone(),
        control::delay_objective(flow),
        if has { span(flow.at_percentile_us) } else { "-".to_owned() },
        verdict(flow.kept, flow),
        flow.violations.map_or("-".to_owned(), whole),
    ]
}

/// Formats the verdict on an objective. A miss that the machine caused is marked, because it is no fault of the
/// pipeline.
pub(super) fn verdict(kept: Option<bool>, flow: &FlowReport) -> String {
    let text = match kept {
        Some(true) => "kept",
        Some(false) if flow.missed_by_machine => "missed: machine",
        Some(false) => "MISSED",
        None => "",
    };
    text.to_owned()
}

pub(crate) fn ports(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let columns = [
        ("port", Left),
        ("type", Left),
        ("received", Right),
        ("sent", Right),
        ("lost before they came in", Right),
        ("not sent", Right),
        ("errors", Right),
    ];
    let rows = report.ports.iter().map(|port| {
        let counts = [port.received, port.sent, port.dropped, port.refused, port.errors].map(whole);
        [port.name.clone(), port.kind.to_string()].into_iter().chain(counts).collect()
    });
    writeln!(out, "{}", table(&columns, &rows.collect::<Vec<_>>()))?;
    let passed_over = report.ports.iter().flat_map(|port| {
        port.skipped.iter().map(|(reason, count)| vec![port.name.clone(), reason.clone(), whole(*count)])
    });
    let passed_over: Vec<_> = passed_over.collect();
    if passed_over.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", table(&[("port", Left), ("lost because", Left), ("packets", Right)], &passed_over))
}

pub(crate) fn reasons(what: &str, counts: &BTreeMap<String, u64>, out: &mut impl Write) -> io::Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = counts.iter().map(|(reason, count)| vec![reason.clone(), whole(*count)]).collect();
    writeln!(out, "{}", table(&[(what, Left), ("packets", Right)], &rows))
}
