//! Rings between parts of a pipeline. Packets that leave by one port enter by another port, on the same worker or on
//! another worker.
//!
//! Two pipelines in one configuration can pass packets to each other by rings. A pipeline can also lead packets back to
//! an earlier module. Gates cannot do this, but a ring can, because it is bounded: packets for which a ring has no room
//! are dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{
    DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register,
    ring::{Head, Receiver, Sender, ring},
};
use forebay_packet::{Batch, MAX_BATCH, Packet};
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `ring`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of the ring into which packets leave. Exactly one port leads into a ring.
    to: Option<String>,
    /// The name of the ring from which packets enter. Exactly one port leads out of a ring.
    from: Option<String>,
    /// The largest number of packets that wait in the ring (1 to 1048576; 1024 by default). It is set at the port with
    /// `to`.
    size: Option<usize>,
}

/// The default capacity of a ring, in packets.
const DEFAULT_SIZE: usize = 1_024;
/// The largest capacity of a ring, in packets.
const MAX_SIZE: usize = 1 << 20;

/// The ends of a ring that are not in use by a port. An end is `None` while a port uses it.
type Ends = (Option<Sender<Packet>>, Option<Receiver<Packet>>);

/// A ring, with the ends that are not in use by a port. On a reload, the new port takes the end that its predecessor
/// returns. The ring exists as long as the pipeline runs.
struct Shared {
    /// The ends that are not in use by a port.
    ends: Mutex<Ends>,
    /// The number of packets ever put into the ring.
    put_count: AtomicU64,
    /// The number of packets ever taken from the ring.
    taken_count: AtomicU64,
}

/// A port into a ring, out of a ring, or both.
pub struct Ring {
    /// The ring into which packets leave, and its end. The end is `None` until the first packet is sent.
    to: Option<(Arc<Shared>, Option<Sender<Packet>>)>,
    /// The ring from which packets enter, and its end. The end is `None` until packets are first received.
    from: Option<(Arc<Shared>, Option<Receiver<Packet>>)>,
    /// Packets that were taken from the ring and did not fit into the requested batch. They enter first in the next
    /// call.
    rest: Batch,
    /// In simulated time, the time after which the port reads an empty ring again. A simulation does not wait for
    /// packets from outside, so the port cannot request to be called when packets arrive. `None` in real time.
    pause: Option<Ticks>,
    counters: Arc<PortCounters>,
}

impl Shared {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a ring for `size` packets. No port uses its ends yet.
    fn new(size: usize) -> Self {
        let (sender, receiver) = ring(size, MAX_BATCH);
        Self {
            ends: Mutex::new((Some(sender), Some(receiver))),
            put_count: AtomicU64::new(0),
            taken_count: AtomicU64::new(0),
        }
    }
}

impl Ring {
    /// Adds packets that were sent at or before `now`. Stops when the batch has `most` packets or the ring is empty.
    fn fill(&mut self, batch: &mut Batch, most: usize, now: Ticks) {
        let Some((shared, Some(receiver))) = &mut self.from else { return };
        batch.append(&mut self.rest);
        while batch.len() < most && self.rest.is_empty() {
            // A message has the packets of one call of `send`, and the time of that call. In simulated time, the time
            // of the next message may be later than `now`. Such a message stays in the ring.
            if receiver.peek().is_none_or(|head| head.at > now.0) {
                break;
            }
            let (rest, mut count) = (&mut self.rest, 0);
            receiver.receive(|packet| {
                count += 1;
                let packet = if batch.len() < most { batch.push(packet) } else { Err(packet) };
                // A message has at most one batch of packets, so `rest` has room for the packets that do not fit.
                let _ = packet.or_else(|packet| rest.push(packet));
            });
            shared.taken_count.fetch_add(count, Ordering::Release);
        }
    }
}

impl Port for Ring {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let Some((shared, end)) = &mut self.from else { return Ready::Never };
        if end.is_none() {
            // The port has just started. Its predecessor may not have returned the end yet, so later calls try again.
            *end = shared.ends().1.take();
        }
        self.fill(batch, intake.most, intake.now);
        match (&self.rest.is_empty(), self.pause) {
            (false, _) => Ready::Now,
            (true, Some(pause)) => Ready::At(intake.now + pause),
            (true, None) => Ready::Input(intake.now),
        }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    /// Puts the whole batch into the ring, or leaves it in `batch` if the ring has no room for it.
    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        let Some((shared, end)) = &mut self.to else { return };
        if end.is_none() {
            *end = shared.ends().0.take();
        }
        let Some(sender) = end else { return };
        let count = batch.len();
        if sender.has_room(count) && sender.send(Head { tag: 0, at: now.0 }, &mut batch.drain()) {
            shared.put_count.fetch_add(count as u64, Ordering::Release);
        }
    }

    /// Returns the number of packets in the ring into which this port leads, plus the number of packets that were taken
    /// out of the ring from which it reads and have not entered yet.
    fn in_flight(&self) -> usize {
        let in_ring = |(shared, _): &(Arc<Shared>, _)| {
            let taken_count = shared.taken_count.load(Ordering::Acquire);
            shared.put_count.load(Ordering::Acquire).saturating_sub(taken_count) as usize
        };
        self.to.as_ref().map_or(0, in_ring) + self.rest.len()
    }

    /// Drops the packets in the ring from which this port reads, and counts them as dropped at this port. This also
    /// happens on a reload that changes or removes the port.
    fn close(&mut self) -> Result<(), String> {
        let mut batch = Batch::with_capacity(MAX_BATCH);
        loop {
            self.fill(&mut batch, MAX_BATCH, Ticks::NEVER);
            if batch.is_empty() {
                return Ok(());
            }
            self.counters.dropped.add(batch.len() as u64);
            batch.clear();
        }
    }
}

impl Drop for Ring {
    /// Returns the ends of the ring for the next port.
    fn drop(&mut self) {
        if let Some((shared, Some(sender))) = self.to.take() {
            shared.ends().0 = Some(sender);
        }
        if let Some((shared, Some(receiver))) = self.from.take() {
            shared.ends().1 = Some(receiver);
        }
    }
}

impl DeclarePort for Ring {
    type Params = Params;
    const NAME: &'static str = "ring";
    const SUMMARY: &'static str = "passes packets to another part of the pipeline, on this worker or another";
    const HELP: &'static str = "\
A packet that leaves by the port with `to: NAME` enters by the port with `from: NAME`. Packets keep their order. Two \
pipelines in one configuration can pass packets to each other, each on its own workers, and a pipeline can lead \
packets back to an earlier module. Packets that find the ring full are dropped and counted as `refused`. Packets in a \
ring count as packets in flight. The port with `from` counts packets that are still in the ring at the end as \
`dropped`. Each time a packet passes through a ring, the port with `to` counts it as sent, and the port with `from` \
counts it as received. The packet's delay counts from its first arrival. A pipeline with rings does not end by itself.";
    const EXAMPLE: &'static str = "{ to: inner, size: 2048 }";

    fn receives(params: &Params) -> bool {
        params.from.is_some()
    }

    fn sends(params: &Params) -> bool {
        params.to.is_some()
    }

    fn check(params: &Params, setup: &mut Setup<'_>) -> Result<(), SetupError> {
        if params.to.is_none() && params.from.is_none() {
            return Err(SetupError::new(
                "`to` and `from` are missing: set `to` to send packets into a ring, or `from` to receive packets from \
                 a ring",
            ));
        }
        if params.to.is_some() && params.to == params.from {
            return Err(SetupError::with_hint(
                "from",
                "the port leads into this ring",
                "use another port to lead out of it",
            ));
        }
        let size = params.size.unwrap_or(DEFAULT_SIZE);
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(SetupError::not_allowed("size", size, format!("1 to {MAX_SIZE}")));
        }
        // The key of a check differs from the key of an opened port. So a port that is only checked does not reserve
        // the ring's end for the ports that are opened.
        let checked = if setup.checking() { "checked" } else { "open" };
        let mut exclusive = |path: &str, direction: &str, name: &Option<String>| {
            let Some(name) = name else { return Ok(()) };
            let mut first = false;
            setup.once(&format!("ring {name} {direction}, {checked}"), |_| {
                first = true;
                Ok(())
            })?;
            if !first {
                let wrong = format!("another port leads {direction} the ring '{name}'");
                return Err(SetupError::with_hint(path, wrong, "use another ring"));
            }
            Ok(())
        };
        exclusive("to", "into", &params.to)?;
        exclusive("from", "out of", &params.from)
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        let size = params.size.unwrap_or(DEFAULT_SIZE);
        let mut shared = |name: &Option<String>| {
            let Some(name) = name else { return Ok(None) };
            setup.lasting(&format!("ring {name}"), |_| Ok(Shared::new(size))).map(Some)
        };
        let to = shared(&params.to)?.map(|shared| (shared, None));
        let from = shared(&params.from)?.map(|shared| (shared, None));
        let pause = setup.simulated().then(|| setup.frequency().ticks(Nanos(1_000)));
        Ok(Self { to, from, rest: Batch::with_capacity(MAX_BATCH), pause, counters })
    }
}

register!(port Ring);
