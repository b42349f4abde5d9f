//! Reads `scheduler:` and `shares:`: how modules share a worker's time, where they do.

use forebay_graph::{Limit, SchedulerKind, Share, Target};
use forebay_measure::Nanos;

use crate::compile::{entries, read};
use crate::conform::Misfits;
use crate::language;
use crate::problem::Findings;
use crate::wiring::Ends;
use crate::yaml::Node;

/// How long an idle module's tokens are saved up when nothing is said.
const BURST: Nanos = Nanos(1_000_000);

/// The scheduler. What is wrong with it, the schema says.
pub(crate) fn scheduler(root: &Node) -> SchedulerKind {
    root.get("scheduler").and_then(|node| serde_json::from_value(node.to_json()).ok()).unwrap_or_default()
}

/// Each module's share, in the configuration's order.
pub(crate) fn read_shares(root: &Node, ends: &Ends, misfits: &mut Misfits, findings: &mut Findings) -> Vec<Share> {
    let mut shares = vec![Share::default(); ends.modules.len()];
    if let Some(section) = entries(root, "").find(|entry| entry.key == "shares")
        && root.get("scheduler").is_none()
    {
        // With a scheduler that is named they may stand unused, so that two can be compared on one file.
        let message = "shares: run-to-completion, which is the default, has none: write `scheduler: weighted-fair` too";
        findings.add(section.place, message);
    }
    for entry in entries(root, "shares") {
        let Ok(Target::Module(module)) = ends.find(&entry.key) else {
            let message = ends.find(&entry.key).err().unwrap_or_else(|| format!("'{}' is a port", entry.key));
            findings.add(entry.place, format!("{message}: shares belong to modules"));
            continue;
        };
        let Some(told) = read::<language::Share>(misfits, root, &["shares", &entry.key], &entry.value) else {
            continue;
        };
        let mut share = Share { weight: told.weight, limit: None, marks: told.marks() };
        match (told.rate, told.burst) {
            (Some(rate), burst) => share.limit = Some(Limit { rate, burst: burst.unwrap_or(BURST) }),
            (None, Some(_)) => misfits.add(root, &["shares", &entry.key, "burst"], "a burst belongs to a `rate`"),
            (None, None) => {}
        }
        match share.check() {
            Ok(()) => shares[module] = share,
            Err(error) => misfits.add(root, &["shares", &entry.key, error.part], &error.to_string()),
        }
    }
    shares
}
