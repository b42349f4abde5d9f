//! The last events of a run as notes above the tables, so that an operator sees, for example, that a link is down.

use forebay_protocol::event::{Event, EventName, Level, without_control};
use ratatui::style::{Color, Style};

use super::head::Note;

/// Maximum number of events above the tables.
pub(super) const ABOVE: usize = 3;
/// Maximum number of events on the page with all text.
pub(super) const ON_PAGE: usize = 20;
/// The fields that name the subject of an event. The first field that the event has is used.
const SUBJECTS: [&str; 5] = ["port", "flow", "module", "file", "signal"];
/// Returns notes on the last `count` events, oldest first. Events about the start of the run are left out, because the
/// user sees that the run has started. For events of the date `today`, only the time is shown.
pub(super) fn notes(events: &[Event], count: usize, today: &str) -> Vec<Note> {
    let is_news = |event: &&Event| !matches!(event.event, EventName::Started | EventName::Listening);
    let mut last: Vec<_> = events.iter().rev().filter(is_news).take(count).collect();
    last.reverse();
    last.iter().enumerate().map(|(at, event)| note(event, rank(event, at + 1 == last.len()), today)).collect()
}

/// Returns the rank of an event (see [`Note`]). A warning or an error that is the last event stays even on the smallest
/// screen. Earlier events are left out before the notes on losses.
fn rank(event: &Event, is_last: bool) -> u8 {
    match (is_last, event.level) {
        (true, Level::Error | Level::Warn) => 0,
        (true, Level::Info) => 2,
        (false, _) => 6,
    }
}

fn note(event: &Event, rank: u8, today: &str) -> Note {
    let style = match event.level {
        Level::Error => Style::new().fg(Color::Red),
        Level::Warn => Style::new().fg(Color::Yellow),
        Level::Info => Style::new(),
    };
    // The format is `2026-11-25T22:04:05.678Z`.
    let (date, time) = event.time.split_once('T').unwrap_or(("", &event.time));
    let time = time.split('.').next().unwrap_or(time);
    let when = if date == today { format!("{time}Z") } else { format!("{date} {time}Z") };
    let subject = SUBJECTS.iter().find_map(|field| event.fields.get(*field)?.as_str());
    let subject = subject.map_or(String::new(), |subject| format!(" {}", line(subject)));
    let count = event.fields.get("count").and_then(serde_json::Value::as_u64).filter(|count| *count > 1);
    let count = count.map_or(String::new(), |count| format!(", {count} times"));
    Note::new(rank, style, format!("{when} {}: {}{count}", event.event, line(&event.message)))
        .or(format!("{when} {}{subject}", event.event))
}

/// Converts text from outside into one line without control characters.
fn line(text: &str) -> String {
    without_control(text).replace('\n', "; ").replace('\t', " ")
}
