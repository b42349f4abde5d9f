//! Reads `scheduler:` and `shares:`: how modules share a worker's time, where they do.

use forebay_graph::{Share, Target, WhenFull};
use forebay_protocol::{RateLimit, SchedulerKind};
use forebay_units::Nanos;

use crate::compile::{entries, read};
use crate::conform::Misfits;
use crate::language;
use crate::problem::Findings;
use crate::wiring::Ends;
use crate::yaml::{Entry, Node};

/// How long an idle module's tokens are saved up when nothing is said.
const BURST: Nanos = Nanos(1_000_000);

/// The scheduler. What is wrong with it, the schema says.
pub(crate) fn scheduler(root: &Node) -> SchedulerKind {
    root.get("scheduler").and_then(|node| serde_json::from_value(node.to_json()).ok()).unwrap_or_default()
}

/// Each module's share, in the configuration's order.
pub(crate) fn read_shares(root: &Node, ends: &Ends, misfits: &mut Misfits, findings: &mut Findings) -> Vec<Share> {
    let mut shares = vec![Share::default(); ends.modules.len()];
    // `when_full` says what hand-over rings do, too, which any scheduler has.
    let only_full = |entry: &Entry| entry.value.as_map().is_some_and(|map| map.iter().all(|it| it.key == "when_full"));
    let several = root.get("workers").and_then(Node::as_list).is_some_and(|workers| workers.len() > 1)
        || root.get("control").and_then(|control| control.get("workers")).is_some();
    // A value that does not fit is to be put right first.
    if let Some(section) = entries(root, "").find(|entry| entry.key == "shares")
        && !misfits.within(&["shares"])
        && root.get("scheduler").is_none()
        && !(several && entries(root, "shares").all(only_full))
    {
        // With a scheduler that is named they may stand unused, so that two can be compared on one file.
        let message = "shares: run-to-completion, which is the default, has none but `when_full` with several \
                       workers: write `scheduler: weighted-fair` too";
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
            (Some(rate), burst) => share.limit = Some(RateLimit { rate, burst: burst.unwrap_or(BURST) }),
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

/// Modules that have moved to a worker of their own while packets run drop packets for which the ring to it has no
/// room, unless the configuration says otherwise: the flows for which they made room must not wait for them there.
/// `configured` and `arranged` say where each module runs, before and after.
pub(crate) fn drop_for_moved(root: &Node, configured: &[Vec<usize>], arranged: &[Vec<usize>], shares: &mut [Share]) {
    let moved = configured.iter().zip(arranged).map(|(before, now)| !before.iter().any(|worker| now.contains(worker)));
    for ((entry, moved), share) in entries(root, "modules").zip(moved).zip(shares) {
        let stated = root.get("shares").and_then(|shares| shares.get(&entry.key)?.get("when_full"));
        if moved && stated.is_none() {
            share.marks.when_full = WhenFull::Drop;
        }
    }
}
