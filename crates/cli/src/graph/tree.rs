//! A graph as text: a tree of modules, 80 columns wide.
//!
//! A line is a module, or a bundle of equal modules. If a module has one gate, the next module follows at the same
//! indentation. The gates of a split are branches. A module that packets reach by several paths is printed once, as a
//! separate part below all paths to it. This is possible because modules are in topological order.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write};

use forebay_protocol::graph::GraphReport;

use super::bundles::{Bundle, Drawing, End, Way};
use super::{cut, labels, names};
use crate::format::counted;

/// Maximum width of a line, in columns.
const WIDTH: usize = 80;
/// The range of the width of the tree, in columns. The rest of a line describes the functions. The tree is wider than
/// this range only if all descriptions still fit.
const TREE: std::ops::RangeInclusive<usize> = 24..=46;
/// Maximum indentation of a branch, in columns. A deeper branch is printed as a separate part.
const DEEPEST: usize = 24;

/// A line: a name in the tree, and its description. A line without a description may use all columns.
struct Row {
    tree: String,
    what: String,
}

/// Prints the tree.
pub(crate) fn print(drawing: &Drawing<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}", head(drawing.graph))?;
    let mut tree = Tree { drawing, rows: Vec::new(), waiting: BTreeSet::new(), seen: HashSet::new() };
    for root in &drawing.roots {
        let ports = root.ports.iter().map(|port| &drawing.graph.ports[*port]);
        let what = tree.what(
            &drawing.graph.ports[root.ports[0]].kind,
            root.ports.len(),
            ports.clone().next().map_or(&[][..], |port| &port.workers),
            false,
        );
        tree.gap();
        tree.row(names(&ports.map(|port| port.name.as_str()).collect::<Vec<_>>()), what);
        tree.follow(root.to, "→ ".to_owned(), "");
    }
    tree.print_waiting();
    // Modules that no port leads to. Forebay's own graphs have none.
    for bundle in 0..drawing.bundles.len() {
        if tree.seen.insert(bundle) {
            tree.wait(bundle);
            tree.print_waiting();
        }
    }
    let rows = || tree.rows.iter().filter(|row| !row.what.is_empty());
    let longest = |of: fn(&Row) -> &str| rows().map(|row| width(of(row))).max().unwrap_or(0);
    let most = (WIDTH - 2).saturating_sub(longest(|row| &row.what)).max(*TREE.end());
    let column = longest(|row| &row.tree).clamp(*TREE.start(), most);
    for Row { tree, what } in tree.rows {
        if what.is_empty() {
            writeln!(out, "{}", cut(&tree, WIDTH))?;
            continue;
        }
        let tree = cut(&tree, column);
        let gap = " ".repeat(column - width(&tree));
        writeln!(out, "{tree}{gap}  {}", cut(&what, WIDTH - column - 2))?;
    }
    Ok(())
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Formats the pipeline's properties in two lines.
fn head(graph: &GraphReport) -> String {
    let flows =
        if graph.flows.is_empty() { "every path a flow".to_owned() } else { counted(graph.flows.len() as u64, "flow") };
    let scheduler = serde_json::to_value(graph.scheduler).ok();
    let scheduler = scheduler.as_ref().and_then(|name| name.as_str()).unwrap_or("n/a");
    let workers = graph.workers.iter().map(|worker| match worker.core {
        Some(core) => format!("{} on core {core}", worker.id),
        None => worker.id.to_string(),
    });
    let workers = match graph.workers.len() {
        1 => format!("worker {}", workers.collect::<String>()),
        _ => format!("workers {}", workers.collect::<Vec<_>>().join(", ")),
    };
    let lines = [
        format!(
            "{}: {}, {}, {flows}",
            graph.pipeline,
            counted(graph.modules.len() as u64, "module"),
            counted(graph.ports.len() as u64, "port")
        ),
        format!("batch {}, {scheduler}, {workers}", graph.batch),
    ];
    lines.map(|line| cut(&line, WIDTH) + "\n").concat()
}

/// The tree under construction.
struct Tree<'d, 'g> {
    drawing: &'d Drawing<'g>,
    rows: Vec<Row>,
    /// The bundles that are printed later. Each entry has the bundle's first module, which determines the order, and
    /// the bundle's index.
    waiting: BTreeSet<(usize, usize)>,
    /// Bundles that are printed or waiting.
    seen: HashSet<usize>,
}

impl Tree<'_, '_> {
    fn row(&mut self, tree: String, what: String) {
        self.rows.push(Row { tree, what });
    }

    /// Adds an empty line.
    fn gap(&mut self) {
        self.row(String::new(), String::new());
    }

    /// Schedules a bundle, which is printed below as a separate part.
    fn wait(&mut self, bundle: usize) {
        self.waiting.insert((self.drawing.bundles[bundle].modules[0], bundle));
    }

    /// Prints the waiting bundles.
    fn print_waiting(&mut self) {
        while let Some((_, bundle)) = self.waiting.pop_first() {
            self.gap();
            self.chain(bundle, String::new(), "");
        }
    }

    /// Prints the end of a way. `lead` is the text before the name in the first line, and `prefix` is the text before
    /// the following lines.
    fn follow(&mut self, end: End, lead: String, prefix: &str) {
        match end {
            End::Drop => self.row(format!("{lead}drop"), String::new()),
            End::Port(port) => {
                let port = &self.drawing.graph.ports[port];
                let what = self.what(&port.kind, 1, &port.workers, false);
                self.row(lead + &port.name, what);
            }
            End::Bundle(bundle) => {
                let is_own = self.drawing.bundles[bundle].feeders == 1 && width(prefix) <= DEEPEST;
                if is_own && self.seen.insert(bundle) {
                    self.chain(bundle, lead, prefix);
                } else {
                    let name = self.name(bundle);
                    self.row(format!("{lead}{name} (below)"), String::new());
                    if self.seen.insert(bundle) {
                        self.wait(bundle);
                    }
                }
            }
        }
    }

    /// Prints a bundle and its successors. [`follow`](Self::follow) explains `lead` and `prefix`.
    fn chain(&mut self, bundle: usize, mut lead: String, prefix: &str) {
        let (drawing, mut bundle) = (self.drawing, bundle);
        loop {
            let Bundle { modules, ways, .. } = &drawing.bundles[bundle];
            let module = &drawing.graph.modules[modules[0]];
            let folds: HashSet<_> = modules.iter().map(|at| &drawing.graph.modules[*at].folded).collect();
            let is_fold = modules.len() > 1 && folds.len() == 1 && module.folded.is_some();
            let what = self.what(&module.function, modules.len(), &module.workers, is_fold);
            let name = self.name(bundle);
            self.row(format!("{lead}{name}"), what);
            lead = format!("{prefix}→ ");
            match &ways[..] {
                [Way { gates, to, .. }] if gates.len() == 1 => match to {
                    // Follow a chain in a loop, not by recursion: a chain can be long enough to overflow the stack.
                    End::Bundle(next) if drawing.bundles[*next].feeders == 1 && self.seen.insert(*next) => {
                        bundle = *next
                    }
                    end => return self.follow(*end, lead, prefix),
                },
                ways => {
                    for (at, way) in ways.iter().enumerate() {
                        let (branch, below) =
                            if at + 1 == ways.len() { ("└─", "   ") } else { ("├─", "│  ") };
                        let lead = format!("{prefix}{branch} {} → ", labels(way));
                        self.follow(way.to, lead, &format!("{prefix}{below}"));
                    }
                    return;
                }
            }
        }
    }

    fn name(&self, bundle: usize) -> String {
        let modules = &self.drawing.bundles[bundle].modules;
        names(&modules.iter().map(|module| self.drawing.graph.modules[*module].name.as_str()).collect::<Vec<_>>())
    }

    /// Describes modules or ports: their function, their number, and their workers if the pipeline has several.
    fn what(&self, function: &str, count: usize, workers: &[usize], is_fold: bool) -> String {
        let times = if count > 1 { format!(" × {count}") } else { String::new() };
        let fold = if is_fold { ", run as one" } else { "" };
        let on = match workers {
            _ if self.drawing.graph.workers.len() < 2 => String::new(),
            all if all.len() == self.drawing.graph.workers.len() => ", all workers".to_owned(),
            [one] => format!(", worker {one}"),
            some => {
                let some: Vec<_> = some.iter().map(usize::to_string).collect();
                format!(", workers {}", some.join(" "))
            }
        };
        format!("{function}{times}{fold}{on}")
    }
}
