//! The short summary for a screen of 24 lines.

use std::io::{self, Write};

use forebay_protocol::report::{FlowReport, Report};

use super::{Extent, full, objective_sentences};
use crate::control;
use crate::format::Align::{Left, Right};
use crate::format::{counted, known, short, span, table, whole};

/// The number of lines of a screen, minus one for the shell's next prompt.
const LINES: usize = 23;
/// The least and the largest number of modules that are shown.
const MODULES: (usize, usize) = (3, 10);
/// Maximum number of flows.
const FLOWS: usize = 4;
/// Maximum number of reasons in a list.
const REASONS: usize = 6;
/// Maximum number of workers with a line each.
const WORKERS: usize = 4;

/// Prints the short summary, after the lines of `beginning`.
pub(super) fn print(report: &Report, extent: Extent, beginning: &[String], out: &mut impl Write) -> io::Result<()> {
    let wrapped = |lines: Vec<String>| lines.iter().map(|line| extent.wrap(line) + "\n").collect::<String>();
    let beginning = wrapped(beginning.to_vec());
    let objectives = wrapped(objective_sentences(report));
    let flows = flows(report);
    let losses = wrapped(losses(report));
    let workers = wrapped(workers(report));
    let rest = extent.wrap(&rest(report));
    let parts = [&beginning, &flows, &objectives, &losses, &workers, &rest];
    // Empty lines after the beginning and each table, the heading of modules, and the last line.
    let taken = parts.iter().map(|part| part.lines().count()).sum::<usize>() + 5;
    let most = LINES.saturating_sub(taken).clamp(MODULES.0, MODULES.1);
    writeln!(out, "{beginning}")?;
    let tables = [flows, modules(report, most)];
    tables.iter().filter(|table| !table.is_empty()).try_for_each(|table| writeln!(out, "{table}"))?;
    write!(out, "{objectives}{losses}{workers}")?;
    writeln!(out, "{rest}")
}

/// Formats the `most` busiest modules.
fn modules(report: &Report, most: usize) -> String {
    let mut order: Vec<_> = report.modules.iter().collect();
    let load = |module: &forebay_protocol::report::ModuleReport| (module.share.unwrap_or(0.0), module.packets);
    order.sort_by(|a, b| load(b).partial_cmp(&load(a)).unwrap_or(std::cmp::Ordering::Equal));
    let title = match order.len() {
        all if all > most => format!("busiest {most} of {all} modules"),
        _ => "module".to_owned(),
    };
    let columns = [
        (title.as_str(), Left),
        ("CPU", Right),
        ("packets", Right),
        ("ticks/packet", Right),
        ("trigger", Right),
        ("batch", Right),
        ("dropped", Right),
    ];
    let rows = order.iter().take(most).map(|module| {
        vec![
            module.name.clone(),
            module.share.map_or("n/a".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            whole(module.packets),
            known(module.ticks_per_packet, 1),
            if module.trigger > 0 { module.trigger.to_string() } else { "-".to_owned() },
            known(module.batch_mean, 2),
            whole(module.dropped),
        ]
    });
    table(&columns, &rows.collect::<Vec<_>>())
}

/// Formats the flows with the worst delays relative to their objectives, first the flows that missed an objective.
fn flows(report: &Report) -> String {
    let mut order: Vec<_> = report.flows.iter().collect();
    let strain = |flow: &FlowReport| {
        let delay = flow.at_percentile_us.zip(flow.slo_us).map_or(0.0, |(now, slo)| now / slo);
        (flow.is_missed(), delay)
    };
    order.sort_by(|a, b| strain(b).partial_cmp(&strain(a)).unwrap_or(std::cmp::Ordering::Equal));
    let (objectives, rates) = (report.flows.iter().any(|flow| flow.slo_us.is_some()), control::has_rates(report));
    let title = match order.len() {
        0 => return String::new(),
        all if all > FLOWS && objectives => format!("worst {FLOWS} of {all} flows"),
        all if all > FLOWS => format!("{FLOWS} of {all} flows"),
        _ => "flow".to_owned(),
    };
    let mut columns = vec![(title.as_str(), Left)];
    if objectives {
        columns.extend([("objective", Right), ("measured", Right), ("verdict", Left), ("late", Right)]);
    }
    if rates {
        columns.extend([(control::rate_head(report), Right), ("verdict", Left)]);
    }
    columns.push(("packets/s", Right));
    if !objectives {
        columns.extend([("p50", Right), ("p99", Right), ("max", Right)]);
    }
    let rows = order.iter().take(FLOWS).map(|flow| {
        let mut row = full::objectives_of(flow);
        row.truncate(if objectives { row.len() } else { 1 });
        if rates {
            row.extend([control::stated_rate(flow), full::verdict(flow.rate_kept, flow)]);
        }
        row.push(short(flow.rate_pps));
        if !objectives {
            row.extend([flow.delay_us.p50, flow.delay_us.p99, flow.delay_us.max].map(span));
        }
        row
    });
    table(&columns, &rows.collect::<Vec<_>>())
}

/// Lists dropped packets by reason, and packets that ports lost or did not send.
fn losses(report: &Report) -> Vec<String> {
    let mut dropped: Vec<_> = report.packets.dropped.iter().map(|(reason, count)| (reason.clone(), *count)).collect();
    dropped.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of_ports = |count: fn(&forebay_protocol::report::PortReport) -> u64| -> Vec<_> {
        report.ports.iter().map(|port| (port.name.clone(), count(port))).filter(|(_, count)| *count > 0).collect()
    };
    let lists = [
        ("dropped", dropped),
        ("lost by ports before they came in", of_ports(|port| port.dropped)),
        ("not sent by ports", of_ports(|port| port.refused)),
        ("errors of ports", of_ports(|port| port.errors)),
    ];
    let sentences = lists.into_iter().filter(|(_, counts)| !counts.is_empty()).map(|(what, counts)| {
        let named: Vec<_> =
            counts.iter().take(REASONS).map(|(name, count)| format!("{name} {}", whole(*count))).collect();
        let more = counts.len().saturating_sub(REASONS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{what}: {}{more}", named.join(", "))
    });
    sentences.collect()
}

/// Describes the load of the workers: a line for each worker, or one line for all if there are more than [`WORKERS`].
fn workers(report: &Report) -> Vec<String> {
    if report.workers.len() > WORKERS {
        let busy = crate::strain::busy(&report.workers, 1);
        return vec![format!("{} workers: {busy} busy", report.workers.len())];
    }
    let sentences = report.workers.iter().map(|worker| {
        let core = worker.core.map_or(String::new(), |core| format!(" on core {core}"));
        format!("worker {}{core}: {:.1} % busy", worker.id, worker.busy * 100.0)
    });
    sentences.collect()
}

/// Lists the numbers of rows that `--full` would show.
fn rest(report: &Report) -> String {
    format!(
        "--full shows all: {}, {}, {}, the modules' own counters",
        counted(report.modules.len() as u64, "module"),
        counted(report.flows.len() as u64, "flow"),
        counted(report.ports.len() as u64, "port")
    )
}
