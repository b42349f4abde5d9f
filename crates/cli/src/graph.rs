//! `forebay graph`: the paths of packets, as a tree, for Graphviz, or as JSON.

mod bundles;
mod dot;
mod tree;

use std::io::Write;

use anyhow::bail;
use forebay_protocol::{Request, Response, graph::GraphReport};

use crate::args;
use crate::{printed, remote};
use bundles::{Drawing, Way};

/// If the first and the last of several names have together at least this number of bytes, the last name is shortened.
const LONG: usize = 24;

/// Prints a pipeline's graph.
pub(crate) fn graph(arguments: &args::Graph) -> anyhow::Result<()> {
    let graph = read(arguments)?;
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&graph)?)?;
        return Ok(());
    }
    let drawing = if arguments.full { Drawing::full(&graph) } else { Drawing::of(&graph) };
    if arguments.dot {
        dot::print(&drawing, &mut out)?
    } else {
        tree::print(&drawing, &mut out)?
    }
    Ok(())
}

/// Reads the graph of a configuration or of the running pipeline.
fn read(arguments: &args::Graph) -> anyhow::Result<GraphReport> {
    let args::Graph { pipeline, set, running, .. } = arguments;
    match pipeline.as_deref() {
        None | Some("running") => {
            if !set.is_empty() {
                bail!(
                    "--set applies to a configuration, not to a running pipeline: name the configuration, or use \
                     `reload`"
                );
            }
            let mut client = remote::connect(running)?;
            let Response::Graph(graph) = client.request(&Request::Graph {})? else { return Err(remote::strange()) };
            Ok(*graph)
        }
        Some(pipeline) => {
            if running.is_named() {
                bail!("{pipeline} is a configuration: omit it to draw a running pipeline");
            }
            Ok(crate::source::source(pipeline, set).and_then(|source| forebay_pipeline::graph(&source))?)
        }
    }
}

/// Lists up to two names in full. Of more names, lists the first and the last.
fn names(all: &[&str]) -> String {
    match all {
        [first, _, .., last] if first.len() + last.len() < LONG => format!("{first} … {last}"),
        [first, _, .., last] => format!("{first} … {}", rest(first, last)),
        few => few.join(", "),
    }
}

/// Returns `last` without the beginning that it shares with `first`. If the names differ within a number, the result
/// begins with the whole number.
fn rest<'a>(first: &str, last: &'a str) -> &'a str {
    let same = first.chars().zip(last.chars()).take_while(|(a, b)| a == b);
    let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
    let words = last[..same].trim_end_matches(|c: char| c.is_ascii_digit());
    if words.len() == last.len() { last } else { &last[words.len()..] }
}

/// Formats the gates of a way.
fn labels(way: &Way) -> String {
    match &way.gates[..] {
        few if few.len() <= 2 => format!("[{}]", few.join(", ")),
        [first, .., last] if way.consecutive => format!("[{first} … {last}]"),
        all => format!("[{}, {} … {}: {} gates]", all[0], all[1], all[all.len() - 1], all.len()),
    }
}

/// Cuts the text to this number of columns, with `…` at the end.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let short: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{short}…")
}
