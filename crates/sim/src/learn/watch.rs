//! Watches packets on their ways.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Decision, Observer, Place, Telemetry, Visit};
use forebay_packet::Packet;

/// What became of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trail {
    /// Modules as written, each with the worker that ran it.
    pub(super) visits: Vec<(usize, usize)>,
    /// By which port of which worker it left, as one of which flow.
    pub(super) left: Option<(usize, usize, Option<usize>)>,
}

/// Where packets enter: a worker, and a port.
pub(super) type Entry = (usize, usize);

/// What all workers' watchers have seen.
#[derive(Default)]
pub(super) struct Seen {
    /// Each packet's trail, in the order in which they came; `None`: it is under way.
    pub(super) trails: BTreeMap<Entry, Vec<Option<Trail>>>,
    /// By mark, less 1.
    under_way: Vec<Option<UnderWay>>,
    /// By flow: packets that left, and their bytes.
    pub(super) lengths: BTreeMap<usize, (u64, u64)>,
    /// A module that holds packets back.
    pub(super) holds: Option<usize>,
}

/// A packet on its way.
struct UnderWay {
    entry: Entry,
    /// Which one it is of those that entered there.
    number: usize,
    trail: Trail,
}

impl Seen {
    fn trail(&mut self, mark: u8) -> Option<&mut Trail> {
        let slot = self.under_way.get_mut(usize::from(mark).checked_sub(1)?)?;
        slot.as_mut().map(|packet| &mut packet.trail)
    }

    fn end(&mut self, mark: u8) {
        let Some(at) = usize::from(mark).checked_sub(1) else { return };
        if let Some(UnderWay { entry, number, trail }) = self.under_way.get_mut(at).and_then(Option::take) {
            self.trails.entry(entry).or_default()[number] = Some(trail);
        }
    }
}

/// Watches one worker.
pub(super) struct Watcher {
    pub(super) worker: usize,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Watcher {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watcher {
    fn graph(&mut self, _: &Telemetry) {}

    fn entered(&mut self, port: usize, _: &mut Packet) -> u8 {
        let mut seen = self.seen();
        let free = seen.under_way.iter().position(Option::is_none).unwrap_or(seen.under_way.len());
        // So many at once do not come: batches are small here.
        let Ok(mark) = u8::try_from(free + 1) else { return 0 };
        let entry = (self.worker, port);
        let trails = seen.trails.entry(entry).or_default();
        trails.push(None);
        let number = trails.len() - 1;
        if free == seen.under_way.len() {
            seen.under_way.push(None);
        }
        seen.under_way[free] = Some(UnderWay { entry, number, trail: Trail::default() });
        mark
    }

    fn visited(&mut self, visit: &Visit<'_>) {
        let mut seen = self.seen();
        if visit.decision == Decision::Hold {
            seen.holds = Some(visit.module);
        }
        if let Some(trail) = seen.trail(visit.mark) {
            trail.visits.push((self.worker, visit.module));
        }
    }

    fn dropped(&mut self, _: Place, _: &'static str, packet: &Packet) {
        self.seen().end(packet.mark());
    }

    fn left(&mut self, port: usize, flow: Option<usize>, packet: &Packet) {
        let mut seen = self.seen();
        if let Some(trail) = seen.trail(packet.mark()) {
            trail.left = Some((self.worker, port, flow));
        }
        if let Some(flow) = flow {
            let (packets, bytes) = seen.lengths.entry(flow).or_default();
            (*packets, *bytes) = (*packets + 1, *bytes + packet.data().len() as u64);
        }
        seen.end(packet.mark());
    }

    fn consumed(&mut self, _: usize, _: &'static str, packet: &Packet) {
        self.seen().end(packet.mark());
    }
}
