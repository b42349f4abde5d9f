//! Rings between parts of a pipeline: what leaves by one port enters by another, on the same worker or on another one.
//!
//! By rings two pipelines in one configuration pass packets to each other, and a pipeline can lead packets back to where
//! they have been, which lines may not: a ring is bounded, and what finds it full is dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::ring::{Head, Receiver, Sender, ring};
use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_measure::Nanos;
use forebay_packet::{Batch, MAX_BATCH, Packet, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `ring`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The ring that packets leave into. Exactly one port leads into a ring.
    to: Option<String>,
    /// The ring that packets enter from. Exactly one port leads out of a ring.
    from: Option<String>,
    /// How many packets wait in the ring at the most (1 to 1048576); said where they enter it, with `to`.
    size: Option<usize>,
}

/// How many packets a ring holds, where nothing is said.
const SIZE: usize = 1_024;
/// The most that it can hold.
const MOST: usize = 1 << 20;

/// The ends of a ring that no port has.
type Ends = (Option<Sender<Packet>>, Option<Receiver<Packet>>);

/// A ring with those of its ends that no port has now: a port that is opened anew, while packets run, takes the end that
/// the port before it lets go.
struct Shared {
    ends: Mutex<Ends>,
    /// Packets that were given, and that were taken.
    given: AtomicU64,
    taken: AtomicU64,
}

/// A port into a ring, out of one, or both.
pub struct Ring {
    to: Option<(Arc<Shared>, Option<Sender<Packet>>)>,
    from: Option<(Arc<Shared>, Option<Receiver<Packet>>)>,
    /// What was taken from the ring and did not fit the batch asked for.
    rest: Batch,
    /// How long an empty ring is left alone in simulated time, in which nothing comes from outside.
    pause: Option<Ticks>,
    counters: Arc<PortCounters>,
}

impl Shared {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(size: usize) -> Self {
        let (sender, receiver) = ring(size, MAX_BATCH);
        Self { ends: Mutex::new((Some(sender), Some(receiver))), given: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }
}

impl Ring {
    /// Takes messages until the batch is full or there are none.
    fn fill(&mut self, batch: &mut Batch, most: usize, now: Ticks) {
        let Some((shared, Some(receiver))) = &mut self.from else { return };
        batch.append(&mut self.rest);
        while batch.len() < most && self.rest.is_empty() {
            // In simulated time a message may be sent later than now.
            if receiver.peek().is_none_or(|head| head.at > now.0) {
                break;
            }
            let (rest, mut count) = (&mut self.rest, 0);
            receiver.receive(|packet| {
                count += 1;
                let packet = if batch.len() < most { batch.push(packet) } else { Err(packet) };
                // A message is a batch at the most, and so is the rest.
                let _ = packet.or_else(|packet| rest.push(packet));
            });
            shared.taken.fetch_add(count, Ordering::Release);
        }
    }
}

impl Port for Ring {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let Some((shared, end)) = &mut self.from else { return Ready::Never };
        if end.is_none() {
            // When the port begins; the one before it may not have let go yet.
            *end = shared.ends().1.take();
        }
        self.fill(batch, intake.most, intake.now);
        match (&self.rest.is_empty(), self.pause) {
            (false, _) => Ready::Now,
            (true, Some(pause)) => Ready::At(intake.now + pause),
            (true, None) => Ready::Input,
        }
    }

    /// What finds the ring full stays in the batch.
    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        let Some((shared, end)) = &mut self.to else { return };
        if end.is_none() {
            *end = shared.ends().0.take();
        }
        let Some(sender) = end else { return };
        let count = batch.len();
        if sender.has_room(count) && sender.send(Head { tag: 0, at: now.0 }, &mut batch.drain()) {
            shared.given.fetch_add(count as u64, Ordering::Release);
        }
    }

    /// What is in the ring, for the port that leads into it.
    fn in_flight(&self) -> usize {
        let waits = |(shared, _): &(Arc<Shared>, _)| {
            let taken = shared.taken.load(Ordering::Acquire);
            shared.given.load(Ordering::Acquire).saturating_sub(taken) as usize
        };
        self.to.as_ref().map_or(0, waits) + self.rest.len()
    }

    /// What is still in the ring is lost where it would have entered.
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
    /// Lets go of its ends, for the port that comes after it.
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
    const SUMMARY: &'static str = "leads packets to another part of the pipeline, on this worker or another";
    const HELP: &'static str = "\
What leaves by the port `to` a ring enters by the port `from` the ring of the same name, in order. So two pipelines in one \
configuration pass packets to each other, each on workers of its own, and packets can be led back to where they have been. \
What finds the ring full is dropped and counted as `refused`. Packets in a ring are in flight; those that are left in it at \
the end are counted as lost by the port that they would have entered by. Each packet that goes through a ring leaves and \
enters once more; its delay is from its first arrival. A pipeline with rings does not end by itself.";
    const EXAMPLE: &'static str = "{ to: inner, size: 2048 }";

    fn receives(params: &Params) -> bool {
        params.from.is_some()
    }

    fn sends(params: &Params) -> bool {
        params.to.is_some()
    }

    fn check(params: &Params, setup: &mut Setup<'_>) -> Result<(), SetupError> {
        if params.to.is_none() && params.from.is_none() {
            return Err(SetupError::new("neither `to` nor `from`: say which ring packets leave into or enter from"));
        }
        if params.to.is_some() && params.to == params.from {
            return Err(SetupError::at("from", "the port leads into this ring: another port leads out of it"));
        }
        let size = params.size.unwrap_or(SIZE);
        if !(1..=MOST).contains(&size) {
            return Err(SetupError::at("size", format!("{size}: allowed are 1 to {MOST}")));
        }
        // Who is only checked takes nobody's place.
        let checked = if setup.checking() { "checked" } else { "open" };
        let mut alone = |path: &str, way: &str, name: &Option<String>| {
            let Some(name) = name else { return Ok(()) };
            let mut first = false;
            setup.once(&format!("ring {name} {way}, {checked}"), |_| {
                first = true;
                Ok(())
            })?;
            if !first {
                return Err(SetupError::at(
                    path,
                    format!("another port leads {way} the ring '{name}': allowed is one"),
                ));
            }
            Ok(())
        };
        alone("to", "into", &params.to)?;
        alone("from", "out of", &params.from)
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        let size = params.size.unwrap_or(SIZE);
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
