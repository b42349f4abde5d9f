//! The tables of the live view: modules, flows, ports, drops and workers.

use forebay_protocol::report::Report;
use ratatui::style::{Color, Style};

use super::sheet::{Column, Entry, Sheet};
use crate::control;
use crate::format::{known, short, span, whole};

/// A table of the live view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Modules,
    Flows,
    Ports,
    Drops,
    Workers,
}

impl Pane {
    /// All tables, in the order of the keys 1 to 5.
    pub(super) const ALL: [Self; 5] = [Self::Modules, Self::Flows, Self::Ports, Self::Drops, Self::Workers];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Modules => "modules",
            Self::Flows => "flows",
            Self::Ports => "ports",
            Self::Drops => "drops",
            Self::Workers => "workers",
        }
    }

    /// Returns the column that the table is sorted by at first; `None` for the order of the report.
    pub(super) fn sorted_first(self) -> Option<usize> {
        match self {
            Self::Modules => Some(2),
            Self::Drops => Some(1),
            Self::Flows | Self::Ports | Self::Workers => None,
        }
    }

    /// Returns the table for the last interval, `recent`, and the run so far.
    pub(super) fn sheet(self, recent: &Report, so_far: &Report) -> Sheet {
        match self {
            Self::Modules => modules(recent, so_far),
            Self::Flows => flows(recent),
            Self::Ports => ports(recent, so_far),
            Self::Drops => drops(recent, so_far),
            Self::Workers => workers(recent),
        }
    }
}

fn count(value: u64) -> Entry {
    Entry::number(whole(value), value as f64)
}

/// Formats a rate per second.
fn rate(value: f64) -> Entry {
    Entry::number(short(value), value)
}

/// Formats a figure that may be unknown.
fn figure(value: Option<f64>, decimals: usize) -> Entry {
    value.map_or_else(|| Entry::text("n/a"), |value| Entry::number(known(Some(value), decimals), value))
}

/// Formats a time in microseconds that may be unknown.
fn time(micros: Option<f64>) -> Entry {
    micros.map_or_else(|| Entry::text("n/a"), |micros| Entry::number(span(Some(micros)), micros))
}

/// Formats a share, from 0 to 1, in percent.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Highlights an entry if packets are being lost.
fn loss(entry: Entry, is_losing: bool) -> Entry {
    if is_losing { entry.styled(Style::new().fg(Color::Yellow)) } else { entry }
}

fn modules(recent: &Report, so_far: &Report) -> Sheet {
    let columns = vec![
        Column::left("module", 0),
        Column::left("function", 6),
        Column::right("CPU", 1),
        Column::right("packets/s", 2),
        Column::right("batch in", 5),
        Column::right("trigger", 3),
        Column::right("batch out", 7),
        Column::right("ticks/packet", 8),
        Column::right("dropped", 4),
    ];
    // If nothing was timed, the number of packets stands for the load.
    let is_timed = recent.modules.iter().any(|module| module.share.is_some());
    let rows = recent.modules.iter().enumerate().map(|(at, module)| {
        let load = if is_timed { module.share.unwrap_or(0.0) } else { module.packets as f64 };
        let dropped = so_far.modules.get(at).map_or(0, |module| module.dropped);
        let trigger = if module.trigger > 0 { count(module.trigger) } else { Entry::number("-".to_owned(), 0.0) };
        vec![
            Entry::text(module.name.clone()),
            Entry::text(module.function.to_string()),
            Entry::number(module.share.map_or("n/a".to_owned(), percent), load),
            rate(module.rate_pps),
            figure(module.ingress_mean, 2),
            trigger,
            figure(module.batch_mean, 2),
            figure(module.ticks_per_packet, 1),
            loss(count(dropped), module.dropped > 0),
        ]
    });
    Sheet { rows: rows.collect(), columns }
}

/// Returns the verdict on an objective, with its colour. A miss that the machine caused is not shown as an error.
fn verdict(kept: Option<bool>, by_machine: bool) -> (&'static str, Style) {
    match kept {
        Some(true) => ("kept", Style::new().fg(Color::Green)),
        Some(false) if by_machine => ("missed: machine", Style::new().fg(Color::Yellow)),
        Some(false) => ("missed", Style::new().fg(Color::Red)),
        None => ("", Style::new()),
    }
}

fn flows(recent: &Report) -> Sheet {
    let rates = control::has_rates(recent);
    let mut columns = vec![
        Column::left("flow", 0),
        Column::right("objective", 3),
        Column::right("delay now", 1),
        Column::left("verdict", 2),
        Column::right("packets/s", 4),
        Column::right("p50", 5),
        Column::right("p95", 7),
        Column::right("p99", 6),
    ];
    if rates {
        columns.extend([Column::right(control::rate_head(recent), 8), Column::left("rate", 5)]);
    }
    let rows = recent.flows.iter().map(|flow| {
        let (word, style) = verdict(flow.kept, flow.missed_by_machine);
        let objective = control::delay_objective(flow);
        let objective = flow.slo_us.map_or_else(|| Entry::text("-"), |slo| Entry::number(objective, slo));
        let now = if flow.slo_us.is_some() { flow.at_percentile_us } else { None };
        let now = if flow.slo_us.is_some() { time(now) } else { Entry::text("-") };
        let mut row = vec![
            Entry::text(flow.name.clone()),
            objective,
            now.styled(style),
            Entry::text(word).styled(style),
            rate(flow.rate_pps),
        ];
        row.extend([flow.delay_us.p50, flow.delay_us.p95, flow.delay_us.p99].map(time));
        if rates {
            let (word, style) = verdict(flow.rate_kept, flow.missed_by_machine);
            row.extend([Entry::text(control::stated_rate(flow)), Entry::text(word).styled(style)]);
        }
        row
    });
    Sheet { rows: rows.collect(), columns }
}

fn ports(recent: &Report, so_far: &Report) -> Sheet {
    let columns = vec![
        Column::left("port", 0),
        Column::left("type", 5),
        Column::right("in/s", 1),
        Column::right("out/s", 2),
        Column::right("lost/s", 3),
        Column::right("in", 8),
        Column::right("out", 9),
        Column::right("lost", 4),
        Column::right("not sent", 6),
        Column::right("errors", 7),
    ];
    let per_second = |count: u64| rate(if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 });
    let rows = recent.ports.iter().enumerate().map(|(at, now)| {
        let all = so_far.ports.get(at).unwrap_or(now);
        vec![
            Entry::text(now.name.clone()),
            Entry::text(now.kind.to_string()),
            per_second(now.received),
            per_second(now.sent),
            loss(per_second(now.dropped), now.dropped > 0),
            count(all.received),
            count(all.sent),
            loss(count(all.dropped), now.dropped > 0),
            loss(count(all.refused), now.refused > 0),
            loss(count(all.errors), now.errors > 0),
        ]
    });
    Sheet { rows: rows.collect(), columns }
}

fn drops(recent: &Report, so_far: &Report) -> Sheet {
    let columns = vec![
        Column::left("where.reason", 0),
        Column::right("packets/s", 1),
        Column::right("packets", 2),
        Column::left("", 3),
    ];
    let row = |name: String, now: u64, all: u64, what: &str| {
        let per_second = if recent.duration_s > 0.0 { now as f64 / recent.duration_s } else { 0.0 };
        vec![Entry::text(name), loss(rate(per_second), now > 0), count(all), Entry::text(what)]
    };
    let dropped = so_far.packets.dropped.iter().map(|(reason, all)| {
        let now = recent.packets.dropped.get(reason).copied().unwrap_or(0);
        row(reason.clone(), now, *all, "dropped")
    });
    let lost = so_far.ports.iter().filter(|port| port.dropped > 0).flat_map(|port| {
        let before = recent.ports.iter().find(|recent| recent.name == port.name);
        let skipped = port.skipped.iter().map(|(reason, all)| {
            let now = before.and_then(|port| port.skipped.get(reason)).copied().unwrap_or(0);
            (reason.as_str(), now, *all)
        });
        let by_reason = |skipped: &std::collections::BTreeMap<String, u64>| skipped.values().sum::<u64>();
        let rest = port.dropped.saturating_sub(by_reason(&port.skipped));
        let rest_now = before.map_or(0, |port| port.dropped.saturating_sub(by_reason(&port.skipped)));
        let rest = (rest > 0).then_some(("not taken in time", rest_now, rest));
        skipped
            .chain(rest)
            .map(|(reason, now, all)| row(format!("{}.{reason}", port.name), now, all, "lost before it came in"))
            .collect::<Vec<_>>()
    });
    Sheet { rows: dropped.chain(lost).collect(), columns }
}

fn workers(recent: &Report) -> Sheet {
    let several = recent.workers.len() > 1;
    let mut columns = vec![
        Column::left("worker", 0),
        Column::right("core", 1),
        Column::right("busy", 2),
        Column::right("core taken away", 3),
        Column::right("turns/s", 5),
    ];
    if several {
        columns.extend([
            Column::right("given/s", 4),
            Column::right("taken/s", 6),
            Column::right("batches that waited", 7),
        ]);
    }
    let per_second = |count: u64| rate(if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 });
    let rows = recent.workers.iter().map(|worker| {
        let away = worker.without_core();
        let mut row = vec![
            Entry::number(worker.id.to_string(), -(worker.id as f64)),
            worker.core.map_or_else(|| Entry::text("-"), |core| Entry::number(core.to_string(), core as f64)),
            Entry::number(percent(worker.busy), worker.busy),
            loss(Entry::number(percent(away), away), away >= crate::machine::LEAST),
            per_second(worker.turns),
        ];
        if several {
            row.extend([per_second(worker.handed), per_second(worker.taken), count(worker.stalls)]);
        }
        row
    });
    Sheet { rows: rows.collect(), columns }
}
