//! The last events of a run, as notes above the tables: an operator who watches the table sees that a link is down.

use forebay_protocol::event::{Event, EventName, Level, without_control};
use ratatui::style::{Color, Style};

use super::head::Note;

/// How many of them stand above the tables.
pub(super) const ABOVE: usize = 3;
/// How many of them are on the page of all text.
pub(super) const ON_PAGE: usize = 20;
/// Fields that name the subject of an event, the first that it has.
const SUBJECTS: [&str; 5] = ["port", "flow", "module", "file", "signal"];
/// The last `count` events, oldest first. A run that is seen has started: that it did is no news.
/// `today`: the date, which is left out of times.
pub(super) fn notes(events: &[Event], count: usize, today: &str) -> Vec<Note> {
    let is_news = |event: &&Event| !matches!(event.event, EventName::Started | EventName::Listening);
    let mut last: Vec<_> = events.iter().rev().filter(is_news).take(count).collect();
    last.reverse();
    last.iter().enumerate().map(|(at, event)| note(event, rank(event, at + 1 == last.len()), today)).collect()
}

/// The last event stays on the smallest screen where it needs a look. Those before it go after losses.
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
    // `2026-11-25T22:04:05.678Z`
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

/// Text from outside as one line that does not act on a terminal.
fn line(text: &str) -> String {
    without_control(text).replace('\n', "; ").replace('\t', " ")
}
