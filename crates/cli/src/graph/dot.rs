//! A graph in the language of Graphviz (<https://graphviz.org/doc/info/lang.html>).

use std::io::{self, Write};

use super::bundles::{Drawing, End};
use super::{labels, names};

/// Prints the graph. Boxes are modules, arrow-shaped nodes are ports, dashed edges lead to drops.
pub(crate) fn print(drawing: &Drawing<'_>, out: &mut impl Write) -> io::Result<()> {
    let graph = drawing.graph;
    writeln!(out, "digraph {} {{", quoted(&[&graph.pipeline]))?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(out, "  node [shape=box, fontname=\"sans-serif\", fontsize=10];")?;
    writeln!(out, "  edge [fontname=\"sans-serif\", fontsize=9];")?;
    for (at, root) in drawing.roots.iter().enumerate() {
        let ports: Vec<_> = root.ports.iter().map(|port| graph.ports[*port].name.as_str()).collect();
        let label = quoted(&[&names(&ports), &times(&graph.ports[root.ports[0]].kind, ports.len())]);
        writeln!(out, "  in{at} [shape=cds, label={label}];")?;
    }
    let several = graph.workers.len() > 1;
    let worker = |bundle: usize| match &graph.modules[drawing.bundles[bundle].modules[0]].workers[..] {
        [one] if several => Some(*one),
        _ => None,
    };
    let mut workers: Vec<_> = (0..drawing.bundles.len()).map(worker).collect();
    workers.sort_unstable();
    workers.dedup();
    for on in workers {
        let indent = if let Some(on) = on {
            writeln!(out, "  subgraph cluster_worker{on} {{")?;
            writeln!(out, "    label=\"worker {on}\"; color=gray; fontname=\"sans-serif\"; fontsize=10;")?;
            "    "
        } else {
            "  "
        };
        for (at, bundle) in drawing.bundles.iter().enumerate().filter(|(at, _)| worker(*at) == on) {
            let modules: Vec<_> = bundle.modules.iter().map(|module| graph.modules[*module].name.as_str()).collect();
            let function = &graph.modules[bundle.modules[0]].function;
            let label = quoted(&[&names(&modules), &times(function, modules.len())]);
            writeln!(out, "{indent}m{at} [label={label}];")?;
        }
        if on.is_some() {
            writeln!(out, "  }}")?;
        }
    }
    let mut edges = Edges { drops: 0, sinks: Vec::new() };
    for (at, root) in drawing.roots.iter().enumerate() {
        edges.print(&format!("in{at}"), None, root.to, drawing, out)?;
    }
    for (at, bundle) in drawing.bundles.iter().enumerate() {
        for way in &bundle.ways {
            let label = (bundle.ways.len() > 1 || way.gates.len() > 1).then(|| labels(way));
            edges.print(&format!("m{at}"), label.as_deref(), way.to, drawing, out)?;
        }
    }
    writeln!(out, "}}")
}

/// Prints edges and the nodes at their ends.
struct Edges {
    drops: usize,
    /// The output ports that have been printed.
    sinks: Vec<usize>,
}

impl Edges {
    fn print(
        &mut self,
        from: &str,
        label: Option<&str>,
        end: End,
        drawing: &Drawing<'_>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let label = label.map_or_else(String::new, |label| format!("label={}", quoted(&[label])));
        match end {
            End::Bundle(to) => writeln!(out, "  {from} -> m{to} [{label}];"),
            End::Port(port) => {
                if !self.sinks.contains(&port) {
                    self.sinks.push(port);
                    let sink = &drawing.graph.ports[port];
                    writeln!(out, "  out{port} [shape=cds, label={}];", quoted(&[&sink.name, &sink.kind]))?;
                }
                writeln!(out, "  {from} -> out{port} [{label}];")
            }
            // Each drop gets its own node, because edges to one shared node would cross all other edges.
            End::Drop => {
                let drop = self.drops;
                self.drops += 1;
                writeln!(out, "  drop{drop} [shape=plaintext, fontcolor=gray40, label=\"drop\"];")?;
                let label = if label.is_empty() { label } else { format!(", {label}") };
                writeln!(out, "  {from} -> drop{drop} [style=dashed, color=gray40{label}];")
            }
        }
    }
}

fn times(function: &str, count: usize) -> String {
    if count > 1 { format!("{function} × {count}") } else { function.to_owned() }
}

/// Quotes lines as one DOT string. In DOT, a backslash begins an escape.
fn quoted(lines: &[&str]) -> String {
    let escaped = lines.iter().map(|line| {
        let plain: String = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        plain.replace('\\', "\\\\").replace('"', "\\\"")
    });
    format!("\"{}\"", escaped.collect::<Vec<_>>().join("\\n"))
}
