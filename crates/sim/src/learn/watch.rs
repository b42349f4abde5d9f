//! Observes packets on their routes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Decision, DropSite, Observer, Telemetry, Visit};
use forebay_packet::Packet;

/// The modules that a packet visited, and the port by which it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trail {
    /// The modules as configured, each with the worker that ran it.
    pub(super) visits: Vec<(usize, usize)>,
    /// The worker, the port and the flow with which the packet was sent; `None` if it was not sent.
    pub(super) left: Option<(usize, usize, Option<usize>)>,
}

/// The worker and the port by which a packet enters.
pub(super) type Entry = (usize, usize);

/// The observations of all workers.
#[derive(Default)]
pub(super) struct Observations {
    /// The trail of each packet, in order of arrival; `None` while the packet is in flight.
    pub(super) trails: BTreeMap<Entry, Vec<Option<Trail>>>,
    /// Packets in flight. The index is the packet's mark minus 1, because mark 0 means that a packet is not observed.
    in_flight: Vec<Option<InFlight>>,
    /// By flow: the number of packets that were sent, and their bytes.
    pub(super) lengths: BTreeMap<usize, (u64, u64)>,
    /// A module that held a packet, which the simulator does not support.
    pub(super) holds: Option<usize>,
}

/// A packet in flight.
struct InFlight {
    entry: Entry,
    /// The index of the packet among the packets of its entry.
    number: usize,
    trail: Trail,
}

impl Observations {
    /// Returns the trail of the packet in flight with this mark. `None` for mark 0.
    fn trail(&mut self, mark: u8) -> Option<&mut Trail> {
        let slot = self.in_flight.get_mut(usize::from(mark).checked_sub(1)?)?;
        slot.as_mut().map(|packet| &mut packet.trail)
    }

    /// Ends the observation of a packet: its trail is complete, and its mark is free.
    fn end(&mut self, mark: u8) {
        let Some(at) = usize::from(mark).checked_sub(1) else { return };
        if let Some(InFlight { entry, number, trail }) = self.in_flight.get_mut(at).and_then(Option::take) {
            self.trails.entry(entry).or_default()[number] = Some(trail);
        }
    }
}

/// Observes one worker.
pub(super) struct Watcher {
    pub(super) worker: usize,
    pub(super) seen: Arc<Mutex<Observations>>,
}

impl Watcher {
    fn seen(&self) -> MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watcher {
    fn graph(&mut self, _: &Telemetry) {}

    fn entered(&mut self, port: usize, _: &mut Packet) -> u8 {
        let mut seen = self.seen();
        let free = seen.in_flight.iter().position(Option::is_none).unwrap_or(seen.in_flight.len());
        // Batches are so small here that there are never more than 255 packets in flight.
        let Ok(mark) = u8::try_from(free + 1) else { return 0 };
        let entry = (self.worker, port);
        let trails = seen.trails.entry(entry).or_default();
        trails.push(None);
        let number = trails.len() - 1;
        if free == seen.in_flight.len() {
            seen.in_flight.push(None);
        }
        seen.in_flight[free] = Some(InFlight { entry, number, trail: Trail::default() });
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

    fn dropped(&mut self, _: DropSite, _: &'static str, packet: &Packet) {
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
