//! Writes an expression in the syntax of the automaton library, if an automaton can match it.

use std::fmt::Write;

use super::syntax::{ByteSet, Node, Position};

/// Returns the text, or `None` if the expression has look-around, back-references or atomic parts, which automata
/// cannot match.
pub fn plain(node: &Node) -> Option<String> {
    let mut text = String::new();
    write(node, true, &mut text)?;
    Some(text)
}

/// Writes a node. `last` is true if nothing follows it.
fn write(node: &Node, last: bool, text: &mut String) -> Option<()> {
    match node {
        Node::Empty => text.push_str("(?:)"),
        Node::Byte(set) => class(set, text),
        Node::At(position) => text.push_str(match position {
            Position::Start | Position::SearchStart => r"\A",
            Position::LineStart => "(?m:^)",
            Position::End => r"\z",
            // This consumes the line feed, which makes no difference if nothing follows.
            Position::LastLineEnd if last => r"(?:\n?\z)",
            Position::LastLineEnd => return None,
            Position::LineEnd => "(?m:$)",
            Position::WordEdge => r"\b",
            Position::NoWordEdge => r"\B",
        }),
        Node::Concat(all) => {
            for (at, node) in all.iter().enumerate() {
                write(node, last && at + 1 == all.len(), text)?;
            }
        }
        Node::Either(all) => {
            text.push_str("(?:");
            for (at, node) in all.iter().enumerate() {
                text.push_str(if at > 0 { "|" } else { "" });
                write(node, last, text)?;
            }
            text.push(')');
        }
        Node::Repeat(_, count) if count.possessive => return None,
        Node::Repeat(node, count) => {
            text.push_str("(?:");
            write(node, false, text)?;
            text.push(')');
            match (count.least, count.most) {
                (0, None) => text.push('*'),
                (1, None) => text.push('+'),
                (0, Some(1)) => text.push('?'),
                (least, None) => write!(text, "{{{least},}}").ok()?,
                (least, Some(most)) => write!(text, "{{{least},{most}}}").ok()?,
            }
        }
        Node::Group(_, node) => {
            text.push_str("(?:");
            write(node, last, text)?;
            text.push(')');
        }
        Node::Atomic(_) | Node::Ahead(..) | Node::Behind(..) | Node::Back(..) => return None,
    }
    Some(())
}

/// Writes a set of bytes as a class.
fn class(set: &ByteSet, text: &mut String) {
    let mut bytes = set.bytes().peekable();
    if bytes.peek().is_none() {
        // A class that matches no byte.
        text.push_str(r"[^\x00-\xff]");
        return;
    }
    text.push('[');
    while let Some(first) = bytes.next() {
        let mut last = first;
        while let Some(next) = bytes.next_if(|byte| Some(*byte) == last.checked_add(1)) {
            last = next;
        }
        // Writing to a string cannot fail.
        let _ =
            if first == last { write!(text, r"\x{first:02x}") } else { write!(text, r"\x{first:02x}-\x{last:02x}") };
    }
    text.push(']');
}
