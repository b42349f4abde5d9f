//! Lines of files that a run could not write: a log or a list of alerts that is not complete.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ModuleReport;

/// Counters of a file of lines, in this order: lines put on their way to the file, lines above the rate, lines that
/// found the ring full, and lines on their way that the disk did not take.
pub const LINE_COUNTERS: [&str; 4] = ["written", "over rate", "lost", "unwritten"];

/// Lines of one module's file that are not in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLines {
    /// The module's name.
    pub module: String,
    /// The heading of its counters: `alerts`, `log`.
    pub lines: String,
    /// Lines above the rate that the configuration allows.
    pub over_rate: u64,
    /// Lines that came faster than they were written.
    pub lost: u64,
    /// Lines that the disk did not take, or that are in a file that was removed.
    pub unwritten: u64,
}

impl LostLines {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.over_rate + self.lost + self.unwritten
    }

    /// The lost lines of these modules.
    pub(super) fn of(modules: &[ModuleReport]) -> Vec<Self> {
        let headings = modules.iter().flat_map(|module| module.counters.iter().map(move |counts| (module, counts)));
        headings.filter_map(|(module, (heading, counts))| Self::under(&module.name, heading, counts)).collect()
    }

    /// `None` where the heading is of something else, and where nothing was lost.
    fn under(module: &str, heading: &str, counts: &BTreeMap<String, u64>) -> Option<Self> {
        let [_, over_rate, lost, unwritten] = LINE_COUNTERS.map(|name| counts.get(name).copied());
        let (over_rate, lost, unwritten) = (over_rate?, lost?, unwritten?);
        let all = Self { module: module.to_owned(), lines: heading.to_owned(), over_rate, lost, unwritten };
        (all.total() > 0).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_lost_by_rate_ring_and_disk_and_other_headings_are_none() {
        let counts = |counts: [u64; 4]| LINE_COUNTERS.map(str::to_owned).into_iter().zip(counts).collect();
        let found = LostLines::under("nat", "log", &counts([9, 1, 2, 3])).expect("lost lines");
        assert_eq!((found.module.as_str(), found.lines.as_str(), found.total()), ("nat", "log", 6));
        for only in [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] {
            assert_eq!(
                LostLines::under("ids", "alerts", &counts(only)).map(|lines| lines.total()),
                Some(1),
                "{only:?}"
            );
        }
        assert_eq!(LostLines::under("ids", "alerts", &counts([9, 0, 0, 0])), None);
        let other = BTreeMap::from([("lost".to_owned(), 7), ("written".to_owned(), 7)]);
        assert_eq!(LostLines::under("other", "frames", &other), None);
    }
}
