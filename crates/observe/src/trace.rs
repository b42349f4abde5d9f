//! Traces single packets through the graph and forwards dropped packets to their receivers.
//!
//! This code runs on the workers' threads, so it only copies data. [`story`](crate::story) turns the data into text on
//! another thread.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Decision, DropSite, Observer, Telemetry, Visit};
use forebay_instance::{
    Instance,
    socket::{Drops, Stories},
};
use forebay_measure::{Clock, Tsc};
use forebay_packet::Packet;
use forebay_units::Ticks;

use crate::drops::{DropQueue, DropSender, report_drops};
use crate::filter::Filter;
use crate::story::Names;

/// The path of one traced packet.
#[derive(Debug)]
pub struct Story {
    /// Names of modules and ports when the packet entered.
    pub names: Arc<Names>,
    /// Number of the packet among the traced ones, from 1.
    pub number: u64,
    /// The port by which it entered.
    pub port: usize,
    /// Arrival time.
    pub arrival: Ticks,
    /// The frame as it entered.
    pub frame: Vec<u8>,
    /// The calls that processed the packet.
    pub calls: Vec<Call>,
    /// The packet's end, and the names at that time.
    pub end: (Arc<Names>, End),
}

/// A call that processed a traced packet.
#[derive(Debug)]
pub struct Call {
    /// Names at the time of the call. A packet may be held while the pipeline changes.
    pub names: Arc<Names>,
    /// The module, by its index in the names.
    pub module: usize,
    /// The packets of the call.
    pub batch: usize,
    /// The gate, drop or hold that the function chose.
    pub decision: Decision,
    /// The frame before the call.
    pub before: Vec<u8>,
    /// The frame after the call.
    pub after: Vec<u8>,
}

/// The end of a traced packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Sent by a port; the flow is the second value.
    Left(usize, Option<usize>),
    /// Dropped here, for this reason.
    Dropped(DropSite, &'static str),
    /// Consumed by this module, for this reason.
    Consumed(usize, &'static str),
    /// The trace ended before the packet.
    Unfinished,
}

/// A trace of packets for one receiver.
pub struct Tracer {
    filter: Option<Filter>,
    /// Number of packets still to be traced.
    remaining: u64,
    chosen: u64,
    /// Marks and stories of packets in flight, oldest first.
    in_flight: VecDeque<(u8, Story)>,
    stories: Sender<Story>,
}

impl Tracer {
    /// Traces the next `count` packets that match `filter`.
    pub fn new(count: u64, filter: Option<Filter>, stories: Sender<Story>) -> Self {
        Self { filter, remaining: count, chosen: 0, in_flight: VecDeque::new(), stories }
    }

    fn wants(&self, packet: &Packet) -> bool {
        self.remaining > 0 && self.filter.as_ref().is_none_or(|filter| filter.matches(packet.data()))
    }

    fn enter(&mut self, mark: u8, names: &Arc<Names>, port: usize, packet: &Packet) {
        self.remaining -= 1;
        self.chosen += 1;
        let story = Story {
            names: Arc::clone(names),
            number: self.chosen,
            port,
            arrival: packet.arrival(),
            frame: packet.data().to_vec(),
            calls: Vec::new(),
            end: (Arc::clone(names), End::Unfinished),
        };
        self.in_flight.push_back((mark, story));
    }

    fn visit(&mut self, names: &Arc<Names>, visit: &Visit<'_>) {
        if let Some((_, story)) = self.in_flight.iter_mut().find(|(mark, _)| *mark == visit.mark) {
            let (&Visit { module, batch, decision, before, after, .. }, names) = (visit, Arc::clone(names));
            story.calls.push(Call { names, module, batch, decision, before: before.to_vec(), after: after.to_vec() });
        }
    }

    /// Sends the story of the packet with this mark. Returns false if this tracer does not follow it.
    fn end(&mut self, mark: u8, names: &Arc<Names>, end: End) -> bool {
        let Some(at) = self.in_flight.iter().position(|(of, _)| *of == mark) else { return false };
        if let Some((_, story)) = self.in_flight.remove(at) {
            // The receiver may have gone away; ignore the send error.
            let _ = self.stories.send(Story { end: (Arc::clone(names), end), ..story });
        }
        true
    }
}

/// Sends the unfinished stories of packets in flight.
impl Drop for Tracer {
    fn drop(&mut self) {
        for (_, story) in self.in_flight.drain(..) {
            let _ = self.stories.send(story);
        }
    }
}

/// All observers of the packets of a run. Tracers that follow the same packet share its mark.
#[derive(Default)]
struct Watchers {
    tracers: Vec<(u64, Tracer)>,
    /// Number of the last observer.
    added: u64,
    drops: Option<DropSender>,
    /// Receivers of dropped packets.
    queues: Vec<(u64, DropQueue)>,
    marks: Marks,
}

/// The marks of packets in flight, with the number of tracers that follow each.
struct Marks {
    followers: [u32; 256],
    used: usize,
    next: u8,
}

impl Default for Marks {
    fn default() -> Self {
        Self { followers: [0; 256], used: 0, next: 1 }
    }
}

impl Marks {
    /// Takes an unused mark. Marks are taken in turn, so that a mark stays unused for a long time: a copy of a packet
    /// that has ended still carries its mark.
    fn take(&mut self) -> Option<u8> {
        if self.used == usize::from(u8::MAX) {
            return None;
        }
        while self.followers[usize::from(self.next)] > 0 {
            self.next = after(self.next);
        }
        let mark = self.next;
        self.next = after(mark);
        self.used += 1;
        Some(mark)
    }

    fn follow(&mut self, mark: u8) {
        self.followers[usize::from(mark)] += 1;
    }

    fn leave(&mut self, mark: u8) {
        let followers = &mut self.followers[usize::from(mark)];
        *followers -= 1;
        self.used -= usize::from(*followers == 0);
    }
}

/// Returns the next mark: 1 to 255, then 1 again.
fn after(mark: u8) -> u8 {
    mark.checked_add(1).unwrap_or(1)
}

impl Watchers {
    fn enter(&mut self, names: &Arc<Names>, port: usize, packet: &Packet) -> u8 {
        let Self { tracers, marks, .. } = self;
        let mut wanting = tracers.iter_mut().filter(|(_, tracer)| tracer.wants(packet)).peekable();
        if wanting.peek().is_none() {
            return 0;
        }
        // All marks are in use: packets are not traced until others have ended.
        let Some(mark) = marks.take() else { return 0 };
        for (_, tracer) in wanting {
            marks.follow(mark);
            tracer.enter(mark, names, port, packet);
        }
        mark
    }

    fn end(&mut self, names: &Arc<Names>, mark: u8, end: End) {
        let Self { tracers, marks, .. } = self;
        if mark != 0 {
            tracers
                .iter_mut()
                .filter_map(|(_, it)| it.end(mark, names, end).then_some(()))
                .for_each(|()| marks.leave(mark));
        }
    }

    fn remove(&mut self, number: u64) {
        self.queues.retain(|(known, _)| *known != number);
        if let Some(at) = self.tracers.iter().position(|(known, _)| *known == number) {
            let (_, tracer) = self.tracers.swap_remove(at);
            tracer.in_flight.iter().for_each(|(mark, _)| self.marks.leave(*mark));
        }
    }

    fn is_done(&self) -> bool {
        let seen = |(_, tracer): &(u64, Tracer)| tracer.remaining == 0 && tracer.in_flight.is_empty();
        self.drops.is_none() && self.queues.is_empty() && self.tracers.iter().all(seen)
    }
}

/// The shared registry of a run's observers. Workers lock it, so observed workers are slow and may wait for each other.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Watchers>>);

/// Maximum number of packets of one trace.
const MOST: u64 = 100_000;

impl Hub {
    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a trace. Returns the number that removes it.
    pub fn add(&self, tracer: Tracer) -> u64 {
        let mut watchers = self.watchers();
        watchers.added += 1;
        let number = watchers.added;
        watchers.tracers.push((number, tracer));
        number
    }

    /// Writes all dropped packets to `drops`.
    pub fn write_drops(&self, drops: DropSender) {
        self.watchers().drops = Some(drops);
    }

    /// Returns an observer for each worker, including workers that join later.
    pub fn observers(&self) -> forebay_instance::Watch {
        let hub = self.clone();
        Box::new(move |_| Some(Box::new(Eye { hub: hub.clone(), names: Arc::default() })))
    }

    /// Ends all traces at the end of the run: sends unfinished stories and completes files.
    pub fn finish(&self) {
        *self.watchers() = Watchers::default();
    }

    /// Traces the next `count` packets of a running pipeline that match `filter`, as text. Serves the socket.
    pub fn follow(&self, instance: &dyn Instance, count: u64, filter: Option<&str>) -> Result<Stories, String> {
        if !(1..=MOST).contains(&count) {
            return Err(format!("{count} packets: allowed are 1 to {MOST}"));
        }
        let filter = filter.map(|text| text.parse::<Filter>().map_err(|error| error.to_string())).transpose()?;
        let (stories, raw_stories) = channel::<Story>();
        let (lines, out) = channel();
        let (began, frequency) = (instance.board().began(), Tsc.frequency());
        let render = move || {
            // Ends with the tracer, or when the receiver has gone away.
            while let Ok(story) = raw_stories.recv() {
                if lines.send(story.text(began, frequency)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(render);
        thread.map_err(|error| format!("cannot start the thread that prints traces: {error}"))?;
        let following = Following { hub: self.clone(), number: self.add(Tracer::new(count, filter, stories)) };
        instance.observe(self.observers());
        Ok(Stories { packets: out, watching: Box::new(following) })
    }
}

impl Hub {
    /// Sends packets that are dropped from now on and match `filter`. Serves the socket.
    pub fn follow_drops(&self, instance: &dyn Instance, filter: Option<&str>) -> Result<Drops, String> {
        let filter = filter.map(|text| text.parse::<Filter>().map_err(|error| error.to_string())).transpose()?;
        let (queue, raw, lost) = DropQueue::new(filter);
        let (reports, packets) = sync_channel(64);
        let thread = std::thread::Builder::new().name("drops".to_owned()).spawn(move || report_drops(&raw, &reports));
        thread.map_err(|error| format!("cannot start the thread that reports dropped packets: {error}"))?;
        let mut watchers = self.watchers();
        watchers.added += 1;
        let number = watchers.added;
        watchers.queues.push((number, queue));
        drop(watchers);
        let following = Following { hub: self.clone(), number };
        instance.observe(self.observers());
        Ok(Drops { packets, lost, watching: Box::new(following) })
    }
}

/// Removes the observer when it is dropped.
struct Following {
    hub: Hub,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.hub.watchers().remove(self.number);
    }
}

/// The observer of one worker, with the names of the worker's modules and ports.
struct Eye {
    hub: Hub,
    names: Arc<Names>,
}

impl Observer for Eye {
    fn graph(&mut self, telemetry: &Telemetry) {
        self.names = Arc::new(Names::of(telemetry));
    }

    fn entered(&mut self, port: usize, packet: &mut Packet) -> u8 {
        self.hub.watchers().enter(&self.names, port, packet)
    }

    fn visited(&mut self, visit: &Visit<'_>) {
        self.hub.watchers().tracers.iter_mut().for_each(|(_, tracer)| tracer.visit(&self.names, visit));
    }

    fn dropped(&mut self, site: DropSite, reason: &'static str, packet: &Packet) {
        let mut watchers = self.hub.watchers();
        for (_, queue) in &mut watchers.queues {
            queue.send(&self.names, site, reason, packet);
        }
        if let Some(drops) = &mut watchers.drops {
            drops.send(&self.names, site, reason, packet);
        }
        watchers.end(&self.names, packet.mark(), End::Dropped(site, reason));
    }

    fn left(&mut self, port: usize, flow: Option<usize>, packet: &Packet) {
        self.hub.watchers().end(&self.names, packet.mark(), End::Left(port, flow));
    }

    fn consumed(&mut self, module: usize, reason: &'static str, packet: &Packet) {
        self.hub.watchers().end(&self.names, packet.mark(), End::Consumed(module, reason));
    }

    fn done(&self) -> bool {
        self.hub.watchers().is_done()
    }
}
