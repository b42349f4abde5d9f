//! A topology as text: a tree, 80 columns wide, and a table of distances.

use std::fmt::Write;

use super::outline::{Outline, TopologyPart};
use crate::format::wrapped;
use crate::graph::cut;

/// Maximum width of a line, in columns.
const WIDTH: usize = 80;
/// Space between columns of the table.
const BETWEEN: usize = 2;

/// A line of the tree, and the lines below it.
#[derive(Default)]
struct TreeLine {
    /// The words of the line. The line may be broken between two words.
    words: Vec<String>,
    below: Vec<TreeLine>,
}

impl TreeLine {
    /// Creates a line of the words of `head` and, after a colon, the listed items.
    fn new(head: &str, listed: Vec<String>) -> Self {
        let mut words: Vec<String> = head.split(' ').map(str::to_owned).collect();
        if let (Some(last), false) = (words.last_mut(), listed.is_empty()) {
            last.push(':');
        }
        let count = listed.len();
        let listed = listed.into_iter().enumerate();
        words.extend(listed.map(|(at, item)| if at + 1 < count { item + "," } else { item }));
        Self { words, below: Vec::new() }
    }

    /// Prints the line and all lines below it. `first` is the text before the line, and `rest` is the text before all
    /// following lines.
    fn print(&self, first: &str, rest: &str, out: &mut String) {
        let width = |text: &str| text.chars().count();
        let hanging = format!("{rest}{}", if self.below.is_empty() { "  " } else { "│ " });
        let mut line = first.to_owned();
        let mut has_word = false;
        for word in &self.words {
            if has_word && width(&line) + 1 + width(word) > WIDTH {
                out.push_str(&cut(&line, WIDTH));
                out.push('\n');
                line.clone_from(&hanging);
            } else if has_word {
                line.push(' ');
            }
            line.push_str(word);
            has_word = true;
        }
        out.push_str(&cut(&line, WIDTH));
        out.push('\n');
        for (at, entry) in self.below.iter().enumerate() {
            let is_last = at + 1 == self.below.len();
            let (branch, trunk) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            entry.print(&format!("{rest}{branch}"), &format!("{rest}{trunk}"), out);
        }
    }
}

/// Draws a topology as text.
pub(super) fn text(outline: &Outline<'_>) -> String {
    let summary = outline.summary();
    let mut out = if summary.chars().count() > WIDTH { summary.replacen("; ", ";\n", 1) } else { summary } + "\n\n";
    for entry in entries(outline) {
        entry.print("", "", &mut out);
    }
    for (why, numbers) in outline.unusable() {
        TreeLine::new(why.trim_end_matches(':'), numbers).print("", "", &mut out);
    }
    distances(outline, &mut out);
    out
}

fn entries(outline: &Outline<'_>) -> Vec<TreeLine> {
    let mut entries: Vec<_> = outline.parts.iter().map(entry).collect();
    let memory = outline.memory.iter();
    entries.extend(memory.map(|node| TreeLine::new(&outline.memory_node(node), outline.interfaces(node.number))));
    entries.extend(outline.elsewhere().iter().map(|interface| TreeLine::new(interface, Vec::new())));
    entries
}

fn entry(part: &TopologyPart) -> TreeLine {
    let mut listed = part.cores();
    if let Some(first) = listed.first_mut() {
        *first = format!("{} {first}", if part.cores.len() == 1 { "core" } else { "cores" });
    }
    listed.extend(part.interfaces.iter().cloned());
    TreeLine { below: part.parts.iter().map(entry).collect(), ..TreeLine::new(&part.name, listed) }
}

/// Prints the distances between nodes, in several tables if they are too wide.
fn distances(outline: &Outline<'_>, out: &mut String) {
    let (nodes, rows) = (&outline.topology.nodes, &outline.topology.distances);
    if nodes.len() < 2 {
        return;
    }
    if rows.is_empty() {
        out.push_str("\ndistances between nodes: unknown\n");
        return;
    }
    let words = "distances between nodes; 10 is a node's own memory (ACPI SLIT):";
    let _ = write!(out, "\n{}\n", wrapped(words, 0, WIDTH));
    let numbers = nodes.iter().map(|node| node.number.to_string());
    let values = rows.iter().flatten().map(u32::to_string);
    let column = numbers.chain(values).map(|text| text.len()).max().unwrap_or(0) + BETWEEN;
    let each = (WIDTH / column).saturating_sub(1).max(1);
    for start in (0..nodes.len()).step_by(each) {
        let end = nodes.len().min(start + each);
        let line = |head: &str, values: &[String]| {
            let values: String = values.iter().map(|value| format!("{value:>column$}")).collect();
            format!("{head:>column$}{values}\n")
        };
        let heads: Vec<_> = nodes[start..end].iter().map(|node| node.number.to_string()).collect();
        out.push_str(&line("", &heads));
        for (node, row) in nodes.iter().zip(rows) {
            let values: Vec<_> = row[start..end].iter().map(u32::to_string).collect();
            out.push_str(&line(&node.number.to_string(), &values));
        }
    }
}
