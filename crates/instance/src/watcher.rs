//! Checks the counters of a running pipeline, and records events (`docs/events.md`).
//!
//! Ports and functions only count, and know nothing of events, so that events cost packets no time.

mod links;
mod objectives;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_graph::{OVER_BLOCK, OVERSIZE, report::Reading};
use forebay_packet::MAX_FRAME;
use forebay_protocol::{
    event::EventName,
    report::{LostLines, ModuleReport, PortReport, Report},
};
use forebay_units::Ticks;

use crate::events::{EventLog, Limit, NewEvent};
use crate::pipeline_counters::PipelineCounters;
use links::Links;
use objectives::Objectives;

/// The time between two checks of the ports' links.
const LINKS: Duration = Duration::from_millis(200);
/// The time between two checks of the counters. Objectives are judged over this time.
const COUNTERS: Duration = Duration::from_secs(1);

/// The counters of `interface_in` that grow if there are more neighbours than an interface can serve.
const FLOOD_COUNTERS: [&str; 2] = ["no_room", "evicted"];
/// The drop reasons of `interface_out` that grow if there are more neighbours, or more requests of neighbours, than an
/// interface can serve.
const FLOOD_REASONS: [&str; 4] = ["not_asked", "table_full", "resolving_full", "answers_limited"];

/// Records the events of one run. Its owner calls [`look`](Self::look) several times per second, and
/// [`finish`](Self::finish) at the end.
pub struct Watcher {
    log: Arc<EventLog>,
    board: Arc<PipelineCounters>,
    links: Links,
    objectives: Objectives,
    limits: Limits,
    /// The counters at the last check.
    last: Reading,
    /// When the links are checked next.
    next_links: Instant,
    /// When the counters are checked next.
    next_counters: Instant,
}

/// The limits of events, by name and subject. They contain only subjects of the last report with counts above 0.
type Limits = BTreeMap<(EventName, String), Limit>;

impl Watcher {
    /// Creates a watcher for the run with this board. It records events in `log`.
    #[must_use]
    pub fn new(board: Arc<PipelineCounters>, log: Arc<EventLog>) -> Self {
        let (now, last) = (Instant::now(), board.nothing());
        let (links, objectives, limits) = (Links::default(), Objectives::default(), Limits::new());
        Self { log, board, links, objectives, limits, last, next_links: now, next_counters: now + COUNTERS }
    }

    /// Makes the checks that are due. `at` is the present instant on the workers' clock.
    pub fn look(&mut self, at: Ticks) {
        let now = Instant::now();
        if now >= self.next_links {
            self.next_links = now + LINKS;
            self.links.look(&self.board.telemetries(), &self.log);
        }
        if now < self.next_counters {
            return;
        }
        self.next_counters = now + COUNTERS;
        let reading = self.board.read(at);
        let (recent, whole) =
            (self.board.report(&self.last, &reading), self.board.report(&self.board.nothing(), &reading));
        self.last = reading;
        self.objectives.look(&recent, &self.log);
        limited(&whole, &mut self.limits, &self.log, now, false);
    }

    /// Makes the last checks, with the report of the whole run. Events that a limit has held back so far are recorded
    /// now.
    pub fn finish(&mut self, whole: &Report) {
        self.links.look(&self.board.telemetries(), &self.log);
        limited(whole, &mut self.limits, &self.log, Instant::now(), true);
    }
}

/// Records the events that packets cause, each as often as its limit allows. Removes the limits of subjects that are no
/// longer in the report. Otherwise reloads with ever new names would fill the memory.
fn limited(whole: &Report, limits: &mut Limits, log: &EventLog, now: Instant, is_last: bool) {
    let mut before = std::mem::take(limits);
    let mut due = |name: EventName, subject: &str, total: u64| {
        let key = (name, subject.to_owned());
        let limit = before.remove(&key);
        // Most counters stay 0 and need no limit.
        if limit.is_none() && total == 0 {
            return None;
        }
        limits.entry(key).or_insert(limit.unwrap_or_default()).due(total, now, is_last)
    };
    for port in &whole.ports {
        for reason in [OVERSIZE, OVER_BLOCK] {
            let total = port.skipped.get(reason).copied().unwrap_or(0);
            if let Some(count) = due(EventName::Oversize, &format!("{}.{reason}", port.name), total) {
                log.record(oversize(port, reason).with("count", count));
            }
        }
    }
    for module in &whole.modules {
        let conflicts = counter(module, "conflicts");
        if let Some(count) = due(EventName::AddressConflict, &module.name, conflicts) {
            log.record(conflict(module, count));
        }
        if let Some(count) = due(EventName::NeighbourFlood, &module.name, flood(module, whole)) {
            log.record(neighbours(module, count));
        }
    }
    if let Some(count) = due(EventName::PoolLow, "", whole.pool_exhausted) {
        let message = "the pool had no free packet: packets wait or are lost at ports; set a larger \
                       `pool: { chunks }`, or let modules hold fewer packets";
        log.record(NewEvent::new(EventName::PoolLow, message).with("count", count));
    }
    for lines in &whole.lost_lines {
        let subject = format!("{}.{}", lines.module, lines.lines);
        if let Some(count) = due(EventName::LogLost, &subject, lines.total()) {
            log.record(lost(lines).with("count", count));
        }
    }
}

/// Returns the counter `name` of a module's neighbours; 0 if the module has none.
fn counter(module: &ModuleReport, name: &str) -> u64 {
    module.counters.get("neighbours").and_then(|counters| counters.get(name)).copied().unwrap_or(0)
}

/// Returns the event that another station uses an address of an interface.
fn conflict(module: &ModuleReport, count: u64) -> NewEvent {
    let name = &module.name;
    let message = format!(
        "another station uses an address of the interface of module '{name}': `forebay show trace --filter arp` shows \
         its Ethernet address"
    );
    NewEvent::new(EventName::AddressConflict, message).with("module", name.as_str()).with("count", count)
}

/// Returns the sum of those counters and drops of a module that grow only in a flood of neighbours.
fn flood(module: &ModuleReport, whole: &Report) -> u64 {
    if !module.counters.contains_key("neighbours") {
        return 0;
    }
    let counted: u64 = FLOOD_COUNTERS.iter().map(|name| counter(module, name)).sum();
    let dropped = |reason: &&str| whole.packets.dropped.get(&format!("{}.{reason}", module.name)).copied();
    counted + FLOOD_REASONS.iter().filter_map(dropped).sum::<u64>()
}

/// Returns the event that a module has more neighbours than it can serve.
fn neighbours(module: &ModuleReport, count: u64) -> NewEvent {
    let name = &module.name;
    let message = format!(
        "module '{name}' cannot serve all neighbours or all of their requests: a station scans the network, or the \
         table of neighbours is too small; `forebay show drops` has the reasons"
    );
    NewEvent::new(EventName::NeighbourFlood, message).with("module", name.as_str()).with("count", count)
}

/// Returns the event that a frame is longer than a packet of the pool, or a block of a ring, can hold. `reason` is the
/// reason of the skipped frames.
///
/// Devices that join frames (GRO, LRO), and senders that leave segmentation to their interface (TSO), make frames of up
/// to 64 KiB. Without the event a run would lose them silently.
fn oversize(port: &PortReport, reason: &str) -> NewEvent {
    let name = &port.name;
    let message = match port.longest_oversize {
        // `pool: { frame }` does not help where the kernel cuts frames (`af_packet`).
        _ if reason == OVER_BLOCK => format!(
            "port '{name}': a frame is longer than a block of its ring holds and is lost ({OVER_BLOCK}): set \
             `ring: {{ block: 128KiB }}` of the port for frames of up to 64 KiB (allowed are blocks of up to 4MiB)"
        ),
        // With `af_xdp`, the kernel drops these frames. The kernel counts them, but does not report their length.
        None => format!(
            "port '{name}': a frame is longer than a packet of its memory holds and is lost (oversize): set \
             `memory: {{ frame: BYTES }}` of the port, or limit the length of joined frames (GRO, TSO) at the \
             device or sender that makes them"
        ),
        Some(longest) if longest <= MAX_FRAME as u64 => format!(
            "port '{name}': a frame of {longest} bytes is longer than a packet holds and is lost (oversize): \
             set `pool: {{ frame: {longest} }}` (allowed are 64 to {MAX_FRAME})"
        ),
        Some(longest) => format!(
            "port '{name}': a frame of {longest} bytes is longer than a packet holds and is lost (oversize): \
             the largest allowed is `pool: {{ frame: {MAX_FRAME} }}`; limit the length of joined frames (GRO, TSO) at \
             the device or sender that makes them"
        ),
    };
    let longest = port.longest_oversize.filter(|_| reason == OVERSIZE);
    let event = NewEvent::new(EventName::Oversize, message).with("port", name.as_str()).with("reason", reason);
    event.with_some("longest", longest)
}

/// Returns the event that lines are missing from a file of a module, with the totals of the run.
fn lost(lines: &LostLines) -> NewEvent {
    NewEvent::new(EventName::LogLost, lines.in_words())
        .with("module", lines.module.as_str())
        .with("lines", lines.lines.as_str())
        .with("over_rate", lines.over_rate)
        .with("lost", lines.lost)
        .with("unwritten", lines.unwritten)
}

#[cfg(test)]
mod tests;
