//! The results as rows of a table, with the figures of the paper (NALM, Table VI).

use super::{Handover, Level, Pair, Relation, Spread};

/// One way of reaching memory, with its latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The core, or the sending and the receiving core.
    pub cores: String,
    /// The relation of the cores; `own` for a core's own memory, `n/a` if the host does not report it.
    pub relation: &'static str,
    /// The transferred unit and the type of access, for tables.
    pub what: String,
    /// The latency in ticks.
    pub ticks: Option<Spread>,
    /// The figure of the paper, in core cycles.
    pub paper: Option<f64>,
}

impl Handover {
    /// Returns the rows of a core's own memory, then the rows of each pair of cores.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let own = self.local.iter().map(|step| {
            let (what, paper) = match step.level {
                Level::L1 => ("L1", None),
                Level::L2 => ("L2", None),
                Level::L3 => ("L3", None),
                Level::Dram => ("main memory", Some(155.0)),
            };
            let set = step.bytes.map_or_else(String::new, |bytes| format!(", {} read in turn", size(bytes as u64)));
            Row {
                cores: step.core.to_string(),
                relation: "own",
                what: format!("line of {what}{set}"),
                ticks: step.ticks.clone(),
                paper,
            }
        });
        own.chain(self.pairs.iter().flat_map(of_pair)).collect()
    }
}

/// Returns the rows of a pair of cores.
fn of_pair(pair: &Pair) -> Vec<Row> {
    let remote = pair.relation == Relation::OtherNode;
    let known = pair.relation == Relation::Siblings || pair.nodes.iter().all(Option::is_some);
    let relation = if known { pair.relation.name() } else { "n/a" };
    let (clean, dirty) = if remote { (98.0, 98.0) } else { (50.0, 76.0) };
    let row = |what: &str, ticks: &Option<Spread>, paper| Row {
        cores: format!("{} to {}", pair.cores[0], pair.cores[1]),
        relation,
        what: what.to_owned(),
        ticks: ticks.clone(),
        paper,
    };
    let mut rows = vec![
        row("packet, of batches of 32 through a ring", &pair.packet, None),
        row("clean line: read here, then there", &pair.clean_line, Some(clean)),
        row("dirty line: written here, read and written there", &pair.dirty_line, Some(dirty)),
        row("round trip of one line", &pair.round_trip, None),
    ];
    if remote {
        rows.push(row("line of the first core's main memory", &pair.remote_memory, Some(280.0)));
    }
    rows
}

/// Formats a number of bytes in the largest binary unit that gives a whole number.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_on_two_nodes_is_beside_the_papers_figures_for_two_nodes() {
        let spread = Spread::of(vec![1.0]);
        let pair = |relation| Pair {
            cores: [0, 1],
            nodes: [Some(0), Some(1)],
            relation,
            packet: spread.clone(),
            clean_line: spread.clone(),
            dirty_line: spread.clone(),
            round_trip: spread.clone(),
            remote_memory: None,
        };
        let paper = |relation| of_pair(&pair(relation)).iter().filter_map(|row| row.paper).collect::<Vec<_>>();
        assert_eq!(paper(Relation::SameNode), [50.0, 76.0]);
        assert_eq!(paper(Relation::OtherNode), [98.0, 98.0, 280.0]);
        assert_eq!(of_pair(&pair(Relation::OtherNode))[4].ticks, None);
        let unknown = Pair { nodes: [None, Some(0)], ..pair(Relation::SameNode) };
        assert_eq!([&pair(Relation::SameNode), &unknown].map(|pair| of_pair(pair)[0].relation), ["one node", "n/a"]);
    }

    #[test]
    fn sizes_are_formatted_in_binary_units() {
        assert_eq!([16 << 10, 128 << 20, 1_500].map(size), ["16 KiB", "128 MiB", "1500 B"]);
    }
}
