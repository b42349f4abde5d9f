//! The help of the live view: keys, and the words in its tables.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::Quit;
use crate::format::wrapped;

/// Minimum width for two columns, in characters.
const WIDE: usize = 60;
/// The first character of the second column.
const MEANINGS: usize = 17;

/// Keys that are the same in every view.
const KEYS: [(&str, &str); 11] = [
    ("1 … 5", "modules, flows, ports, drops, workers"),
    ("Tab, ← →", "the next table, the one before"),
    ("0", "all of the text above the tables"),
    ("↑ ↓ PgUp PgDn", "scroll; Home and End: the first and last row"),
    ("/", "shows only rows whose name has a text; Enter keeps the filter, Esc removes it"),
    ("< >", "sorts by the column before or after"),
    ("r", "reverses the order"),
    ("s", "sorted or as packets pass the modules"),
    ("Ctrl-Z", "suspends the program; `fg` continues it"),
    ("?", "this help"),
    ("Esc", "back to the tables"),
];

/// Words in the tables, with their meanings.
const WORDS: [(&str, &str); 14] = [
    ("CPU", "the share of all workers' time that a module takes"),
    ("batch in", "packets that arrive together"),
    ("trigger", "packets that a module waits for before it runs; -: it does not wait"),
    ("batch out", "packets in a call of the module"),
    ("ticks/packet", "ticks of the time-stamp counter that a packet costs"),
    ("objective", "the delay that a flow may have, at a percentile of its packets"),
    ("delay now", "the delay at that percentile in the last interval"),
    ("missed: machine", "missed only because the machine ran something else on the worker's core"),
    ("p50, p95, p99", "this percentage of the packets had at most this delay"),
    ("lost", "packets that a port lost before they entered"),
    ("not sent", "packets that a port did not send"),
    ("waiting", "packets in queues, or held by a module"),
    ("core taken away", "the share of time in which the machine ran something else on the core"),
    ("given, taken", "packets to and from other workers"),
];

/// Returns the help in lines of at most `width` characters.
pub(super) fn lines(quit: Quit, width: usize) -> Vec<Line<'static>> {
    let ends = match quit {
        Quit::EndRun => ("q", "asks whether to end the run; q again ends it"),
        Quit::Leave => ("q", "leaves; the pipeline runs on"),
    };
    let bold = |text: &str| Line::from(text.to_owned()).style(Style::new().add_modifier(Modifier::BOLD));
    let mut lines = vec![bold("Keys")];
    lines.extend(KEYS.iter().chain([&ends]).flat_map(|pair| entry(*pair, width)));
    lines.push(bold("Words"));
    lines.extend(WORDS.iter().flat_map(|pair| entry(*pair, width)));
    lines
}

/// Formats a word and its meaning, in two columns if there is room.
fn entry((word, meaning): (&str, &str), width: usize) -> Vec<Line<'static>> {
    if width < WIDE {
        let text = wrapped(&format!("{word}: {meaning}"), 2, width.max(1));
        return text.lines().map(|line| Line::from(line.to_owned())).collect();
    }
    let text = wrapped(meaning, 0, width - MEANINGS);
    let left = |at: usize| if at == 0 { word } else { "" };
    text.lines().enumerate().map(|(at, line)| Line::from(format!("{:MEANINGS$}{line}", left(at)))).collect()
}
