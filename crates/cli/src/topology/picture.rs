//! A topology as a picture of nested boxes.

use std::path::Path;

use forebay_plot::{Cell, Grid, Nest, Sort};

use super::outline::{Level, Outline, TopologyPart};

/// Maximum number of nodes with a table of distances.
const MOST_NODES: usize = 16;
/// Maximum length of a line of notes, in characters.
const LETTERS: usize = 104;

/// The types of boxes in the order of the legend, each with the number of its colour. The constants below are indices
/// into this list.
const SORTS: [(&str, usize); 6] = [
    ("package", 6),
    ("die", 4),
    ("memory node", 0),
    ("last-level cache", 2),
    ("core with its threads", 5),
    ("network interface", 1),
];
const PACKAGE: usize = 0;
const DIE: usize = 1;
const NODE: usize = 2;
const CACHE: usize = 3;
const CORE: usize = 4;
const INTERFACE: usize = 5;

/// Draws a topology. `source` is the argument of the command, for the title.
pub(super) fn nest(outline: &Outline<'_>, source: &str) -> Nest {
    let mut boxes: Vec<_> = outline.parts.iter().map(part).collect();
    let memory = outline.memory.iter();
    boxes
        .extend(memory.map(|node| cell(outline.memory_node(node), NODE, interfaces(&outline.interfaces(node.number)))));
    boxes.extend(outline.elsewhere().into_iter().map(|interface| cell(interface, INTERFACE, Vec::new())));
    let mut notes = vec![outline.summary()];
    for (why, numbers) in outline.unusable() {
        let line = crate::format::wrapped(&format!("{why} {}", numbers.join(", ")), 0, LETTERS);
        notes.extend(line.lines().map(str::to_owned));
    }
    let (nodes, rows) = (&outline.topology.nodes, &outline.topology.distances);
    let grid = (!rows.is_empty() && (2..=MOST_NODES).contains(&nodes.len())).then(|| Grid {
        title: "distances between nodes; 10 is a node's own memory".to_owned(),
        heads: nodes.iter().map(|node| node.number.to_string()).collect(),
        rows: rows.iter().map(|row| row.iter().map(u32::to_string).collect()).collect(),
    });
    let sorts = SORTS.iter().map(|(name, series)| Sort { name: (*name).to_owned(), series: *series }).collect();
    let title = match source {
        "host" => "This machine".to_owned(),
        _ => Path::new(source).file_name().map_or_else(|| source.to_owned(), |name| name.display().to_string()),
    };
    Nest { title, sorts, boxes, void: "not in the CPU set".to_owned(), notes, grid }
}

fn cell(name: String, sort: usize, parts: Vec<Cell>) -> Cell {
    Cell { name, sort, void: false, parts }
}

fn interfaces(names: &[String]) -> Vec<Cell> {
    names.iter().map(|name| cell(name.clone(), INTERFACE, Vec::new())).collect()
}

fn part(of: &TopologyPart) -> Cell {
    let sort = match of.level {
        Level::Package => PACKAGE,
        Level::Die => DIE,
        Level::Node => NODE,
        Level::Cache => CACHE,
    };
    let cores = of.cores.iter().map(|core| {
        let threads: Vec<_> = core.threads.iter().map(usize::to_string).collect();
        Cell { void: !core.is_usable, ..cell(threads.join("\n"), CORE, Vec::new()) }
    });
    let parts = interfaces(&of.interfaces).into_iter().chain(of.parts.iter().map(part)).chain(cores);
    cell(of.name.clone(), sort, parts.collect())
}
