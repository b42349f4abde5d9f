//! How the live table looks.

use forebay_graph::report::{ControlReport, FlowReport, ModuleReport, Report, WorkerReport};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

use super::{Quit, View};
use crate::format::{known, short, span, whole};
use crate::{control, strain};

impl View {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let (Some(recent), Some(so_far)) = (&self.recent, &self.whole) else {
            let text = format!("running; figures come after the first interval   {}", self.quit_key());
            frame.render_widget(Paragraph::new(text), frame.area());
            return;
        };
        let told = totals(recent, so_far, usize::from(frame.area().width));
        let head = u16::try_from(told.len()).unwrap_or(u16::MAX);
        // Flows get what they need of up to half of the height.
        let room = frame.area().height.saturating_sub(head + 1);
        let wanted = u16::try_from(recent.flows.len()).unwrap_or(u16::MAX).saturating_add(3);
        let modules_wanted = u16::try_from(recent.modules.len()).unwrap_or(u16::MAX).saturating_add(3);
        let flows_height = wanted.min((room / 2).max(room.saturating_sub(modules_wanted)));
        let areas = Layout::vertical([
            Constraint::Length(head),
            Constraint::Min(3),
            Constraint::Length(flows_height),
            Constraint::Length(1),
        ]);
        let [head, modules, flows, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(told), head);
        self.modules(recent, so_far, frame, modules);
        self.flows(recent, frame, flows);
        let order = if self.by_load { "as packets pass" } else { "by load" };
        let keys = match self.asks {
            true => self.quit_key().to_owned(),
            false => format!("{}   s modules {order}   ↑ ↓ PgUp PgDn scroll", self.quit_key()),
        };
        let style = if self.asks { Modifier::BOLD } else { Modifier::DIM };
        frame.render_widget(Paragraph::new(keys).style(Style::new().add_modifier(style)), foot);
    }

    /// What `q` does now.
    fn quit_key(&self) -> &'static str {
        match self.quit {
            Quit::EndRun if self.asks => "q again ends the run, any other key goes on",
            Quit::EndRun => "q end",
            Quit::Leave => "q leave",
        }
    }

    fn modules(&self, recent: &Report, so_far: &Report, frame: &mut Frame<'_>, area: Rect) {
        let mut order: Vec<usize> = (0..recent.modules.len()).collect();
        if self.by_load {
            // Where nothing was timed, packets tell the load; modules of one load stay as packets pass them.
            let load = |at: &usize| {
                let module = &recent.modules[*at];
                (module.share.unwrap_or(0.0), module.packets)
            };
            order.sort_by(|a, b| load(b).partial_cmp(&load(a)).unwrap_or(std::cmp::Ordering::Equal));
        }
        let first = self.scroll.min(order.len().saturating_sub(1));
        let rows = order
            .iter()
            .skip(first)
            .take(area.height.into())
            .map(|&at| module(&recent.modules[at], so_far.modules.get(at).map_or(0, |module| module.dropped)));
        let heads =
            ["module", "function", "packets/s", "batch in", "trigger", "batch out", "ticks/packet", "share", "drops"];
        let widths = [16, 12, 9, 8, 7, 9, 12, 7, 6].map(Constraint::Min);
        let title = format!(" modules {} of {} ", first + usize::from(!order.is_empty()), order.len());
        frame
            .render_widget(Table::new(rows, widths).header(header(&heads)).block(Block::bordered().title(title)), area);
    }

    fn flows(&self, recent: &Report, frame: &mut Frame<'_>, area: Rect) {
        let first = self.scroll.min(recent.flows.len().saturating_sub(usize::from(area.height.saturating_sub(3))));
        let rates = control::has_rates(recent);
        let rows = recent.flows.iter().skip(first).take(area.height.into()).map(|told| flow(told, rates));
        let mut heads = vec!["flow", "packets/s", "p50", "p95", "p99", "for SLO", "SLO", ""];
        let mut widths = [12, 7, 8, 8, 8, 14, 8, 6].map(Constraint::Min).to_vec();
        if rates {
            heads.extend(["min rate", ""]);
            widths.extend([8, 6].map(Constraint::Min));
        }
        let title = format!(" flows {} of {} ", first + usize::from(!recent.flows.is_empty()), recent.flows.len());
        frame
            .render_widget(Table::new(rows, widths).header(header(&heads)).block(Block::bordered().title(title)), area);
    }
}

fn header<'a>(heads: &[&'a str]) -> Row<'a> {
    Row::new(heads.iter().copied().map(Cell::from).collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD))
}

fn module(module: &ModuleReport, drops: u64) -> Row<'static> {
    let share = module.share.map_or("n/a".to_owned(), |share| format!("{:.1} %", share * 100.0));
    Row::new(vec![
        Cell::from(module.name.clone()),
        Cell::from(module.function.to_string()),
        Cell::from(short(module.rate_pps)),
        Cell::from(known(module.ingress_mean, 2)),
        Cell::from(if module.trigger > 0 { module.trigger.to_string() } else { "-".to_owned() }),
        Cell::from(known(module.batch_mean, 2)),
        Cell::from(known(module.ticks_per_packet, 1)),
        Cell::from(share),
        Cell::from(whole(drops)).style(if module.dropped > 0 { Style::new().fg(Color::Yellow) } else { Style::new() }),
    ])
}

fn verdict(kept: Option<bool>) -> (&'static str, Style) {
    match kept {
        Some(true) => ("kept", Style::new().fg(Color::Green)),
        Some(false) => ("missed", Style::new().fg(Color::Red)),
        None => ("", Style::new()),
    }
}

fn flow(flow: &FlowReport, rates: bool) -> Row<'static> {
    let (told, style) = verdict(flow.kept);
    let delay = &flow.delay_us;
    let mut cells = vec![Cell::from(flow.name.clone()), Cell::from(short(flow.rate_pps))];
    cells.extend([delay.p50, delay.p95, delay.p99].map(span).map(Cell::from));
    cells.push(Cell::from(control::at_percentile(flow)).style(style));
    cells.push(Cell::from(flow.slo_us.map_or("-".to_owned(), |slo| span(Some(slo)))));
    cells.push(Cell::from(told).style(style));
    if rates {
        let (told, style) = verdict(flow.rate_kept);
        cells.extend([Cell::from(control::stated_rate(flow)), Cell::from(told).style(style)]);
    }
    Row::new(cells)
}

fn totals(recent: &Report, so_far: &Report, width: usize) -> Vec<Line<'static>> {
    let per_second = |count: u64| short(if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 });
    let packets = &so_far.packets;
    let cores: Vec<_> = recent.workers.iter().filter_map(|worker| worker.core).map(|core| core.to_string()).collect();
    let cores = match &cores[..] {
        [] => String::new(),
        [core] => format!(" on core {core}"),
        several => format!(" on cores {}", several.join(", ")),
    };
    let lost: u64 = so_far.ports.iter().map(|port| port.dropped).sum();
    // Its line is there without any, too: what is below stays where it is.
    let losses = Line::from(strain::losses(recent).unwrap_or_default()).style(Style::new().fg(Color::Yellow));
    let mut lines = vec![
        Line::from(format!("{}  {:.1} s{cores}", so_far.pipeline, so_far.duration_s)).style(Modifier::BOLD),
        Line::from(format!(
            "in {} pps   out {} pps   dropped {} pps   busy {}",
            per_second(recent.packets.entered),
            per_second(recent.packets.out),
            per_second(recent.packets.all_dropped()),
            strain::busy(&recent.workers, 1),
        )),
        Line::from(format!(
            "in {}   out {}   dropped {}   queued {}   held {}   lost at ports {}",
            whole(packets.entered),
            whole(packets.out),
            whole(packets.all_dropped()),
            whole(packets.queued),
            whole(packets.held),
            whole(lost),
        )),
    ];
    lines.push(losses);
    lines
        .extend(recent.control.as_ref().map(|control| controlled(control, &recent.workers, width)).unwrap_or_default());
    lines
}

/// What the controller does, and what it cannot do.
fn controlled(control: &ControlReport, workers: &[WorkerReport], width: usize) -> Vec<Line<'static>> {
    let last = control::decision(control).unwrap_or_else(|| "last: no change yet".to_owned());
    let mut lines: Vec<_> = filled(control::clauses(control, workers), width).into_iter().map(Line::from).collect();
    lines.push(Line::from(last));
    let moves = control::moves(control);
    let wrong = control::unkept(control).into_iter().chain(control.trouble.clone());
    lines.extend(moves.into_iter().map(Line::from));
    lines.extend(wrong.map(|told| Line::from(told).style(Style::new().fg(Color::Red))));
    lines
}

/// Clauses in lines of up to `width` characters, as many in each as there is room for; a longer one has a line of its own.
fn filled(clauses: Vec<String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for clause in clauses {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + clause.chars().count() <= width => {
                line.push_str("; ");
                line.push_str(&clause);
            }
            _ => lines.push(clause),
        }
    }
    lines
}
