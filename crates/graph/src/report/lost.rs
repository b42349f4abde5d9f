//! Lines that a run could not write to a log, a file of alerts or a capture of copies, and packets that ports lost.

use std::collections::BTreeMap;

use forebay_protocol::report::{FlowReport, LostLines};

/// Counters of a file of lines, in this order: lines queued for the file, lines above the rate, lines that found the
/// ring full, and queued lines that the disk did not take.
pub const LINE_COUNTERS: [&str; 4] = ["written", "over rate", "lost", "unwritten"];

/// Counters of a file of copies: packets that were copied, and packets that the file did not take.
pub const COPY_COUNTERS: [&str; 2] = ["copied", "lost"];

/// Losses until one instant, and flows that had missed an objective before a reload removed them.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    lines: Vec<LostLines>,
    /// Packets that ports lost before the packets entered.
    packets: u64,
    /// The flows that had missed an objective before a reload removed them: the last report of each name.
    flows: Vec<FlowReport>,
}

impl Losses {
    /// Adds other losses.
    pub(super) fn add(&mut self, other: &Self) {
        other.lines.iter().for_each(|lines| lines.add_to(&mut self.lines));
        self.packets += other.packets;
        other.flows.iter().for_each(|flow| self.note_flow(flow.clone()));
    }

    /// Notes a removed flow, if it missed an objective.
    pub(super) fn note_flow(&mut self, flow: FlowReport) {
        if flow.is_missed() {
            self.flows.retain(|other| other.name != flow.name);
            self.flows.push(flow);
        }
    }

    /// Returns the flows noted after `earlier`.
    pub(super) fn flows_since(&self, earlier: &Self) -> Vec<FlowReport> {
        self.flows.iter().filter(|flow| !earlier.flows.contains(flow)).cloned().collect()
    }

    /// Adds the lost lines of one heading of a module.
    pub(super) fn note_lines(&mut self, module: &str, heading: &str, counts: &BTreeMap<String, u64>) {
        lost_lines(module, heading, counts).iter().for_each(|lines| lines.add_to(&mut self.lines));
    }

    /// Adds the packets that a port lost.
    pub(super) fn note_packets(&mut self, packets: u64) {
        self.packets += packets;
    }

    /// Returns the lines and packets lost since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> (Vec<LostLines>, u64) {
        let mut lines = self.lines.clone();
        for now in &mut lines {
            if let Some(before) = earlier.lines.iter().find(|before| now.is_of(before)) {
                // The counters are read while workers write them, so a later count may be smaller.
                now.over_rate = now.over_rate.saturating_sub(before.over_rate);
                now.lost = now.lost.saturating_sub(before.lost);
                now.unwritten = now.unwritten.saturating_sub(before.unwritten);
            }
        }
        lines.retain(|lines| lines.total() > 0);
        (lines, self.packets.saturating_sub(earlier.packets))
    }
}

/// Returns the lost lines under one heading of a module's counters. `None` if the heading does not count lines or
/// copies, or if no line was lost.
pub(super) fn lost_lines(module: &str, heading: &str, counts: &BTreeMap<String, u64>) -> Option<LostLines> {
    let is_copies = counts.len() == COPY_COUNTERS.len() && COPY_COUNTERS.iter().all(|name| counts.contains_key(*name));
    let (over_rate, lost, unwritten) = if is_copies {
        (0, *counts.get(COPY_COUNTERS[1])?, 0)
    } else {
        let [_, over_rate, lost, unwritten] = LINE_COUNTERS.map(|name| counts.get(name).copied());
        (over_rate?, lost?, unwritten?)
    };
    let all = LostLines { module: module.to_owned(), lines: heading.to_owned(), over_rate, lost, unwritten };
    (all.total() > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_since_the_earlier_reading() {
        let counts = |counts: [u64; 4]| LINE_COUNTERS.map(str::to_owned).into_iter().zip(counts).collect();
        let (mut before, mut now) = (Losses::default(), Losses::default());
        before.note_lines("ids", "alerts", &counts([9, 1, 2, 3]));
        before.note_lines("old", "log", &counts([9, 0, 2, 0]));
        before.note_packets(5);
        now.add(&before);
        // The same name again, and another one.
        now.note_lines("ids", "alerts", &counts([0, 10, 0, 0]));
        now.note_lines("nat", "log", &counts([7, 0, 4, 0]));
        now.note_lines("all", "log", &counts([7, 0, 0, 0]));
        now.note_packets(2);
        let (lines, packets) = now.since(&before);
        let lost = |lines: &LostLines| (lines.module.clone(), [lines.over_rate, lines.lost, lines.unwritten]);
        let expected = [("ids", [10, 0, 0]), ("nat", [0, 4, 0])].map(|(module, counts)| (module.to_owned(), counts));
        assert_eq!((lines.iter().map(lost).collect::<Vec<_>>(), packets), (expected.to_vec(), 2));
        let (all, packets) = now.since(&Losses::default());
        assert_eq!((all.len(), all[0].total(), packets), (3, 16, 7));
        // Counters may be read while they are written.
        assert_eq!(before.since(&now), (Vec::new(), 0));
    }

    #[test]
    fn lines_are_lost_by_rate_ring_and_disk_and_other_headings_are_ignored() {
        let counts = |counts: [u64; 4]| LINE_COUNTERS.map(str::to_owned).into_iter().zip(counts).collect();
        let found = lost_lines("nat", "log", &counts([9, 1, 2, 3])).expect("lost lines");
        assert_eq!((found.module.as_str(), found.lines.as_str(), found.total()), ("nat", "log", 6));
        for only in [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] {
            assert_eq!(lost_lines("ids", "alerts", &counts(only)).map(|lines| lines.total()), Some(1), "{only:?}");
        }
        assert_eq!(lost_lines("ids", "alerts", &counts([9, 0, 0, 0])), None);
        let other = BTreeMap::from([("lost".to_owned(), 7), ("written".to_owned(), 7)]);
        assert_eq!(lost_lines("other", "frames", &other), None);
        let copies = |lost: u64| BTreeMap::from([("copied".to_owned(), 7), ("lost".to_owned(), lost)]);
        assert_eq!(lost_lines("tap", "copies", &copies(3)).map(|lines| lines.total()), Some(3));
        assert_eq!(lost_lines("tap", "copies", &copies(0)), None);
    }
}
