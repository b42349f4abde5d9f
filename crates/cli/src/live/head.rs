//! The upper part of the live view: totals, objectives and their causes, losses, and the controller's last decision.

use forebay_protocol::report::Report;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use crate::format::{short, whole, wrapped};
use crate::{control, machine, strain};

/// A statement, which may take several lines.
pub(super) struct Note {
    text: String,
    /// A shorter form, used if the whole text does not fit.
    brief: Option<String>,
    style: Style,
    /// Notes are left out in the order of their ranks, the largest rank first.
    rank: u8,
}

impl Note {
    pub(super) fn new(rank: u8, style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), brief: None, style, rank }
    }

    /// Sets the shorter form.
    pub(super) fn or(self, brief: impl Into<String>) -> Self {
        Self { brief: Some(brief.into()), ..self }
    }

    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        self.wrapped(&self.text, width)
    }

    fn brief_lines(&self, width: usize) -> Vec<Line<'static>> {
        self.wrapped(self.brief.as_ref().unwrap_or(&self.text), width)
    }

    fn wrapped(&self, text: &str, width: usize) -> Vec<Line<'static>> {
        let text = wrapped(text, 2, width.max(1));
        text.lines().map(|line| Line::from(line.to_owned()).style(self.style)).collect()
    }
}

/// Returns all notes, with the last events at the end.
pub(super) fn notes(recent: &Report, so_far: &Report, events: Vec<Note>) -> Vec<Note> {
    let mut notes = of_reports(recent, so_far);
    notes.extend(events);
    notes
}

/// Returns the notes on the last interval `recent` and on the run so far, in the order of display.
fn of_reports(recent: &Report, so_far: &Report) -> Vec<Note> {
    let (plain, bold) = (Style::new(), Style::new().add_modifier(Modifier::BOLD));
    let [red, yellow] = [Color::Red, Color::Yellow].map(|colour| Style::new().fg(colour));
    let busy = strain::busy(&recent.workers, 1);
    let title = format!("{}: {:.1} s{}, busy {busy}", so_far.pipeline, so_far.duration_s, cores(recent));
    let mut notes =
        vec![Note::new(0, bold, title).or(format!("{}: {:.0} s, busy {busy}", so_far.pipeline, so_far.duration_s))];
    notes.extend(machine::notice(recent, "the last interval").map(|text| {
        let most = recent.workers.iter().map(forebay_protocol::report::WorkerReport::without_core).fold(0.0, f64::max);
        let brief = format!("core taken away for {:.0} % of the time", most * 100.0);
        Note::new(1, yellow.add_modifier(Modifier::BOLD), text).or(brief)
    }));
    let [entered, out, dropped] = [recent.packets.entered, recent.packets.out, recent.packets.all_dropped()]
        .map(|count| short(if recent.duration_s > 0.0 { count as f64 / recent.duration_s } else { 0.0 }));
    notes.push(
        Note::new(3, plain, format!("packets/s: in {entered}, out {out}, dropped {dropped}"))
            .or(format!("in {entered}/s, out {out}/s, drop {dropped}/s")),
    );
    notes.push(Note::new(5, plain, totals(so_far)));
    notes.push(match strain::losses(recent) {
        Some(losses) => Note::new(4, yellow, losses),
        // Keep the line, so that the lines below do not move.
        None => Note::new(10, plain, "no losses at ports"),
    });
    for verdict in control::verdicts(recent) {
        let style = match verdict.outcome {
            control::ObjectiveOutcome::Kept => plain.fg(Color::Green),
            control::ObjectiveOutcome::Machine => yellow,
            control::ObjectiveOutcome::Missed => red,
        };
        notes.push(match verdict.brief {
            Some(brief) => Note::new(1, style, verdict.text).or(brief),
            None => Note::new(6, style, verdict.text),
        });
    }
    let Some(control_report) = &recent.control else { return notes };
    notes.extend(control::unkept(control_report, &recent.flows).into_iter().map(|text| Note::new(6, red, text)));
    notes.extend(control_report.trouble.iter().map(|text| Note::new(6, red, text.clone())));
    notes.push(Note::new(8, plain, control::state(control_report, &recent.workers)));
    notes.push(Note::new(
        7,
        plain,
        control::decision(control_report).unwrap_or_else(|| "last: no change yet".to_owned()),
    ));
    notes.extend(control::moves(control_report).into_iter().map(|text| Note::new(9, plain, text)));
    notes
}

/// Returns the notes that fit into `height` lines, in whole or brief form, and the number of lines that do not fit.
pub(super) fn fitting(notes: &[Note], width: usize, height: usize) -> (Vec<Line<'static>>, usize) {
    let whole: Vec<_> = notes.iter().map(|note| note.lines(width)).collect();
    let all: usize = whole.iter().map(Vec::len).sum();
    if all <= height {
        return (whole.into_iter().flatten().collect(), 0);
    }
    // Reserve one line for the hint that there is more.
    let mut room = height.saturating_sub(1);
    let mut order: Vec<_> = (0..notes.len()).collect();
    order.sort_by_key(|at| notes[*at].rank);
    let mut shown: Vec<_> = notes.iter().map(|_| Vec::new()).collect();
    for texts in [notes.iter().map(|note| note.brief_lines(width)).collect(), whole] {
        let mut texts: Vec<Vec<Line<'static>>> = texts;
        for at in &order {
            let (now, text) = (shown[*at].len(), std::mem::take(&mut texts[*at]));
            if text.len() <= room + now {
                room = room + now - text.len();
                shown[*at] = text;
            }
        }
    }
    let lines: Vec<_> = shown.into_iter().flatten().collect();
    let rest = all - lines.len().min(all - 1);
    (lines, rest)
}

/// Returns the lines of all notes.
pub(super) fn lines(notes: &[Note], width: usize) -> Vec<Line<'static>> {
    notes.iter().flat_map(|note| note.lines(width)).collect()
}

/// Lists the cores of the workers.
fn cores(recent: &Report) -> String {
    let cores: Vec<_> = recent.workers.iter().filter_map(|worker| worker.core).map(|core| core.to_string()).collect();
    match &cores[..] {
        [] => String::new(),
        [core] => format!(" on core {core}"),
        several => format!(" on cores {}", several.join(", ")),
    }
}

/// Formats the numbers of packets of the run so far. Packets that wait are queued or held.
fn totals(so_far: &Report) -> String {
    let packets = &so_far.packets;
    let lost: u64 = so_far.ports.iter().map(|port| port.dropped).sum();
    let waiting = packets.queued + packets.held;
    format!(
        "packets: in {}, out {}, dropped {}, waiting {}, lost at ports {}",
        whole(packets.entered),
        whole(packets.out),
        whole(packets.all_dropped()),
        whole(waiting),
        whole(lost),
    )
}
