//! Reads `scheduler:` and `shares:`, which define how modules share a worker's time.

use forebay_graph::{SetupError, Share, ShareError, WhenFull};
use forebay_protocol::{RateLimit, SchedulerKind};
use forebay_units::Nanos;

use crate::faults::FaultCollector;
use crate::language;
use crate::section::{entries, read};
use crate::wiring::Ends;
use crate::yaml::{Entry, Node};

/// The default time for which an idle module saves its unused rate.
const BURST: Nanos = Nanos(1_000_000);

/// Returns the scheduler. An invalid value gives the default, because the schema check has reported it.
pub(crate) fn scheduler(root: &Node) -> SchedulerKind {
    root.get("scheduler").and_then(|node| serde_json::from_value(node.to_json()).ok()).unwrap_or_default()
}

/// Returns the share of each module, in the order of the configuration.
pub(crate) fn read_shares(root: &Node, ends: &Ends, faults: &mut FaultCollector) -> Vec<Share> {
    let mut shares = vec![Share::default(); ends.modules.len()];
    // `when_full` also applies to hand-over rings, which exist under every scheduler.
    let only_full = |entry: &Entry| entry.value.as_map().is_some_and(|map| map.iter().all(|it| it.key == "when_full"));
    let several = root.get("workers").and_then(Node::as_list).is_some_and(|workers| workers.len() > 1)
        || root.get("control").and_then(|control| control.get("workers")).is_some();
    // If the schema check has found errors in this section, no further error is added.
    if let Some(section) = entries(root, "").find(|entry| entry.key == "shares")
        && !faults.within(&["shares"])
        && root.get("scheduler").is_none()
        && !(several && entries(root, "shares").all(only_full))
    {
        // If the configuration names its scheduler, unused shares are allowed, so that one file can be used to compare
        // schedulers.
        let message = "shares: the default scheduler, run-to-completion, uses only `when_full`, and only between \
                       workers: write `scheduler: weighted-fair` too";
        faults.add(section.place, message);
    }
    for entry in entries(root, "shares") {
        let module = match ends.module(&entry.key, "shares belong to modules") {
            Ok(module) => module,
            Err(wrong) => {
                faults.add(entry.place, wrong);
                continue;
            }
        };
        let Some(section) = read::<language::Share>(faults, root, &["shares", &entry.key], &entry.value) else {
            continue;
        };
        let mut share = Share { weight: section.weight, limit: None, marks: section.marks() };
        match (section.rate, section.burst) {
            (Some(rate), burst) => share.limit = Some(RateLimit { rate, burst: burst.unwrap_or(BURST) }),
            (None, Some(_)) => {
                faults.add_at(root, &["shares", &entry.key, "burst"], "`burst` needs a `rate`: write both")
            }
            (None, None) => {}
        }
        match share.check() {
            Ok(()) => shares[module] = share,
            Err(ShareError { part, value, allowed }) => {
                faults.add_all(root, &["shares", &entry.key], SetupError::not_allowed(part, value, allowed));
            }
        }
    }
    shares
}

/// Sets `when_full: drop` for modules that the controller has moved to another worker, if the configuration does not
/// set `when_full`. If the ring to that worker is full, packets are then dropped, so that the flows that stay do not
/// wait for that worker. `configured` and `arranged` are the workers of each module before and after the move.
pub(crate) fn drop_for_moved(root: &Node, configured: &[Vec<usize>], arranged: &[Vec<usize>], shares: &mut [Share]) {
    let moved = configured.iter().zip(arranged).map(|(before, now)| !before.iter().any(|worker| now.contains(worker)));
    for ((entry, moved), share) in entries(root, "modules").zip(moved).zip(shares) {
        let stated = root.get("shares").and_then(|shares| shares.get(&entry.key)?.get("when_full"));
        if moved && stated.is_none() {
            share.marks.when_full = WhenFull::Drop;
        }
    }
}
