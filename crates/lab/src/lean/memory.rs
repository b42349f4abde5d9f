//! What the memory hierarchy makes of handing a packet over: NALM's Table VI, on this machine.

use forebay_lean::handover::{self, Handover, Level, Pair, Relation, Spread};
use forebay_measure::machine::allowed_cores;

use crate::{LabError, Progress};

/// Measures one pair of cores of each kind that there is, and the first one's own memory.
pub(super) fn measure(repeats: usize, progress: &mut dyn Progress) -> Result<Option<Handover>, LabError> {
    progress.step("hand-over between cores");
    let cores = allowed_cores();
    if cores.is_empty() {
        return Ok(None);
    }
    let pairs = handover::pairs(&cores, false);
    handover::measure(&pairs, repeats, &mut |_, _| {}).map(Some).map_err(LabError::Handover)
}

/// A way that memory is reached, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) cores: String,
    pub(super) what: String,
    pub(super) ticks: Option<Spread>,
    /// Cycles in the paper.
    pub(super) paper: Option<f64>,
}

/// All of them.
pub(super) fn rows(told: &Handover) -> Vec<Row> {
    let own = told.local.iter().map(|step| {
        let (what, paper) = match step.level {
            Level::L1 => ("a line of its L1", None),
            Level::L2 => ("a line of its L2", None),
            Level::L3 => ("a line of the L3", None),
            Level::Dram => ("a line of main memory", Some(155.0)),
        };
        Row { cores: format!("core {}", step.core), what: what.to_owned(), ticks: step.ticks.clone(), paper }
    });
    own.chain(told.pairs.iter().flat_map(of_pair)).collect()
}

fn of_pair(pair: &Pair) -> Vec<Row> {
    let remote = pair.relation == Relation::OtherNode;
    let (clean, dirty) = if remote { (98.0, 98.0) } else { (50.0, 76.0) };
    let [from, to] = pair.cores;
    let cores = format!("{from} to {to}, {}", pair.relation.told());
    let row = |what: &str, ticks: &Option<Spread>, paper| Row {
        cores: cores.clone(),
        what: what.to_owned(),
        ticks: ticks.clone(),
        paper,
    };
    let mut rows = vec![
        row("a clean line", &pair.clean_line, Some(clean)),
        row("a dirty line", &pair.dirty_line, Some(dirty)),
        row("a line there and back", &pair.round_trip, None),
        row("a packet of a batch of 32", &pair.packet, None),
    ];
    if remote {
        rows.push(row("a line of the other's memory", &pair.remote_memory, Some(280.0)));
    }
    rows
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
    }
}
