//! The tables at a run's end.

use std::collections::BTreeMap;
use std::io::{self, Write};

use forebay_graph::Census;
use forebay_graph::report::{Kind, Report};

use crate::control;
use crate::format::Align::{Left, Right};
use crate::format::{known, short, span, table, whole};

/// Own counters of a heading are shown where they are few, and anything was counted; `--json` has all.
const COUNTERS: usize = 8;

/// Prints a run's summary.
pub(crate) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let how = match report.kind {
        Kind::Measured => format!("measured on {} ({} GHz)", report.cpu.model, report.cpu.tsc_ghz),
        Kind::Simulated => "simulated time, a tick is a nanosecond".to_owned(),
    };
    writeln!(out, "{}: {:.3} s, {how}\n", report.pipeline, report.duration_s)?;
    modules(report, out)?;
    flows(report, out)?;
    objectives(report, out)?;
    ports(report, out)?;
    workers(report, out)?;
    if report.pool_exhausted > 0 {
        writeln!(
            out,
            "the packet pool was exhausted: {} packets could not be had (raise pool.chunks)",
            whole(report.pool_exhausted)
        )?;
    }
    writeln!(out)?;
    reasons("dropped", &report.packets.dropped, out)?;
    reasons("created", &report.packets.created, out)?;
    reasons("consumed", &report.packets.consumed, out)?;
    invariant(report, out)
}

/// Prints what a simulation came to, of which so many seconds were simulated in detail.
pub(crate) fn simulated(report: &Report, detail_s: f64, out: &mut impl Write) -> io::Result<()> {
    let seconds = report.duration_s;
    let detail = span(Some(detail_s * 1e6));
    writeln!(
        out,
        "{}: {seconds:.3} s simulated batch by batch, {detail} of it in detail; a tick is a nanosecond\n",
        report.pipeline
    )?;
    modules(report, out)?;
    flows(report, out)?;
    objectives(report, out)?;
    for worker in &report.workers {
        writeln!(out, "worker {}: {:.1} % busy", worker.id, worker.busy * 100.0)?;
    }
    writeln!(out)?;
    reasons("dropped", &report.packets.dropped, out)?;
    let packets = &report.packets;
    let lost: u64 = report.ports.iter().map(|port| port.dropped).sum();
    writeln!(
        out,
        "in {}, out {}, dropped {}, waiting {}; lost before they entered {}",
        whole(packets.entered),
        whole(packets.out),
        whole(packets.all_dropped()),
        whole(packets.queued),
        whole(lost)
    )
}

/// Whether objectives were kept, and what the controller did about them.
fn objectives(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let verdicts = control::verdicts(report);
    verdicts.iter().try_for_each(|told| writeln!(out, "{told}"))?;
    if let Some(told) = &report.control {
        writeln!(out, "{}", control::state(told, &report.workers))?;
        control::decision(told).iter().try_for_each(|last| writeln!(out, "{last}"))?;
        control::moves(told).iter().try_for_each(|sentence| writeln!(out, "{sentence}"))?;
        control::unkept(told).iter().try_for_each(|sentence| writeln!(out, "{sentence}"))?;
        told.trouble
            .iter()
            .try_for_each(|trouble| writeln!(out, "its last decision was not carried out: {trouble}"))?;
    }
    if !verdicts.is_empty() || report.control.is_some() { writeln!(out) } else { Ok(()) }
}

pub(crate) fn workers(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for worker in &report.workers {
        let core = worker.core.map_or(String::new(), |core| format!(" on core {core}"));
        write!(out, "worker {}{core}: {:.1} % busy, {} turns", worker.id, worker.busy * 100.0, whole(worker.turns))?;
        let elsewhere = worker.machine_stalls.share * 100.0;
        if elsewhere >= 0.05 {
            write!(out, ", the machine elsewhere for {elsewhere:.1} % of the time")?;
        }
        if report.workers.len() > 1 {
            let (handed, taken, stalls) = (whole(worker.handed), whole(worker.taken), whole(worker.stalls));
            write!(out, ", {handed} packets handed over, {taken} taken, {stalls} stalls")?;
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
        ("drops", Right),
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
    writeln!(out, "{}", table(&columns, &rows.collect::<Vec<_>>()))?;
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

fn is_short(counters: &BTreeMap<String, u64>) -> bool {
    (1..=COUNTERS).contains(&counters.len()) && counters.values().any(|count| *count > 0)
}

pub(crate) fn flows(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let rates = control::has_rates(report);
    let mut columns = vec![
        ("flow", Left),
        ("packets", Right),
        ("pps", Right),
        ("mean", Right),
        ("p50", Right),
        ("p95", Right),
        ("p99", Right),
        ("p99.9", Right),
        ("max", Right),
        ("for SLO", Right),
        ("SLO", Right),
        ("late", Right),
        ("", Left),
    ];
    columns.extend(rates.then_some([("min rate", Right), ("", Left)]).into_iter().flatten());
    let rows = report.flows.iter().map(|flow| {
        let delay = &flow.delay_us;
        let mut row = vec![flow.name.clone(), whole(flow.packets), short(flow.rate_pps)];
        row.extend([delay.mean, delay.p50, delay.p95, delay.p99, delay.p999, delay.max].map(span));
        row.push(control::at_percentile(flow));
        row.push(flow.slo_us.map_or("-".to_owned(), |slo| span(Some(slo))));
        row.push(flow.violations.map_or("-".to_owned(), whole));
        let verdict = |kept: Option<bool>| kept.map_or("", |kept| if kept { "kept" } else { "MISSED" }).to_owned();
        row.push(verdict(flow.kept));
        if rates {
            row.extend([control::stated_rate(flow), verdict(flow.rate_kept)]);
        }
        row
    });
    write!(out, "{}", table(&columns, &rows.collect::<Vec<_>>()))?;
    let clocks = match report.arrival_clocks[..] {
        [] => "n/a".to_owned(),
        _ => report.arrival_clocks.join(", "),
    };
    writeln!(out, "delays are from arrival (clock: {clocks}) to departure\n")
}

pub(crate) fn ports(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let columns = [
        ("port", Left),
        ("kind", Left),
        ("received", Right),
        ("sent", Right),
        ("lost", Right),
        ("refused", Right),
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
    writeln!(out, "{}", table(&[("port", Left), ("lost, passed over", Left), ("packets", Right)], &passed_over))
}

pub(crate) fn reasons(what: &str, counts: &BTreeMap<String, u64>, out: &mut impl Write) -> io::Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = counts.iter().map(|(reason, count)| vec![reason.clone(), whole(*count)]).collect();
    writeln!(out, "{}", table(&[(what, Left), ("packets", Right)], &rows))
}

/// Where every packet is.
pub(crate) fn invariant(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let packets = &report.packets;
    let census = Census {
        entered: packets.entered,
        created: packets.all_created(),
        taken: 0,
        left: packets.out,
        dropped: packets.all_dropped(),
        consumed: packets.all_consumed(),
        queued: packets.queued,
        held: packets.held,
        in_flight: packets.in_flight,
        handed: 0,
    };
    writeln!(out, "{}", whereabouts(&census, packets.lost))
}

/// Where every packet is, in words. Ports lost `lost` packets before they entered: they are on neither side of the sum.
pub(crate) fn whereabouts(census: &Census, lost: u64) -> String {
    let verdict = match (census.missing(), lost) {
        (0, 0) => "every packet accounted for".to_owned(),
        (0, lost) => format!("{} LOST before they entered", whole(lost)),
        (missing, 0) => format!("{missing} UNACCOUNTED FOR"),
        (missing, lost) => format!("{missing} UNACCOUNTED FOR, {} LOST before they entered", whole(lost)),
    };
    format!(
        "in {} + created {} = out {} + dropped {} + consumed {} + queued {} + held {} + in flight {}: {verdict}",
        whole(census.entered),
        whole(census.created),
        whole(census.left),
        whole(census.dropped),
        whole(census.consumed),
        // What is on its way between workers waits, too.
        whole(census.queued + census.handed.saturating_sub(census.taken)),
        whole(census.held),
        whole(census.in_flight),
    )
}
