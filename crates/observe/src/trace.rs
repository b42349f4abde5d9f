//! Traces single packets through the graph, and passes dropped packets to files and clients.
//!
//! This code runs on the workers' threads. So it only copies data, and [`story`](crate::story) turns the data into text
//! on another thread.

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
    /// The names of modules, ports and flows when the packet entered.
    pub names: Arc<Names>,
    /// The number of the packet among the packets of this trace, from 1.
    pub number: u64,
    /// The port by which the packet entered, by its index in `names`.
    pub port: usize,
    /// The arrival time, on the clock of the workers.
    pub arrival: Ticks,
    /// The frame as it entered.
    pub frame: Vec<u8>,
    /// The calls that processed the packet.
    pub calls: Vec<Call>,
    /// The end of the packet's path, and the names at that time.
    pub end: (Arc<Names>, End),
}

/// A call that processed a traced packet.
#[derive(Debug)]
pub struct Call {
    /// The names at the time of the call. They may differ from the names at the start, because a packet may be held
    /// while the pipeline changes.
    pub names: Arc<Names>,
    /// The module, by its index in the names.
    pub module: usize,
    /// The number of packets of the call.
    pub batch: usize,
    /// The decision of the function for the packet.
    pub decision: Decision,
    /// The frame before the call.
    pub before: Vec<u8>,
    /// The frame after the call.
    pub after: Vec<u8>,
}

/// The end of a traced packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The packet was sent by this port. The second value is the packet's flow, or `None` if it has no flow. Both are
    /// indices in the names.
    Left(usize, Option<usize>),
    /// The packet was dropped here, for this reason.
    Dropped(DropSite, &'static str),
    /// The packet was consumed by this module (an index in the names), for this reason.
    Consumed(usize, &'static str),
    /// The trace ended before the packet reached its end.
    Unfinished,
}

/// A trace of packets for one receiver. Dropping the trace sends the stories of packets that are still in flight.
pub struct Tracer {
    /// The filter of the packets to trace. `None` for all packets.
    filter: Option<Filter>,
    /// The number of packets that the trace still has to choose.
    remaining: u64,
    /// The number of packets that the trace has chosen so far.
    chosen: u64,
    /// The marks and stories of packets in flight, oldest first.
    in_flight: VecDeque<(u8, Story)>,
    /// The channel to the receiver of the stories.
    stories: Sender<Story>,
}

impl Tracer {
    /// Traces the next `count` packets that match `filter`.
    pub fn new(count: u64, filter: Option<Filter>, stories: Sender<Story>) -> Self {
        Self { filter, remaining: count, chosen: 0, in_flight: VecDeque::new(), stories }
    }

    /// Returns true if the trace must choose this packet, which enters now.
    fn wants(&self, packet: &Packet) -> bool {
        self.remaining > 0 && self.filter.as_ref().is_none_or(|filter| filter.matches(packet.data()))
    }

    /// Begins the story of a packet that enters with this mark.
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

    /// Adds a call to the story of the packet with the mark of `visit`, if this tracer follows the packet.
    fn visit(&mut self, names: &Arc<Names>, visit: &Visit<'_>) {
        if let Some((_, story)) = self.in_flight.iter_mut().find(|(mark, _)| *mark == visit.mark) {
            let (&Visit { module, batch, decision, before, after, .. }, names) = (visit, Arc::clone(names));
            story.calls.push(Call { names, module, batch, decision, before: before.to_vec(), after: after.to_vec() });
        }
    }

    /// Sends the story of the packet with this mark. Returns false if this tracer does not follow the packet.
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

/// All observers of the packets of a run. Tracers that follow the same packet share the packet's mark.
#[derive(Default)]
struct Watchers {
    /// The traces, by number.
    tracers: Vec<(u64, Tracer)>,
    /// The number of the observer that was added last.
    added: u64,
    /// The file of dropped packets. `None` if dropped packets are not written to a file.
    drops: Option<DropSender>,
    /// The receivers of dropped packets, by number.
    queues: Vec<(u64, DropQueue)>,
    marks: Marks,
}

/// The marks of packets in flight. Mark 0 means that a packet is not traced.
struct Marks {
    /// The number of tracers that follow the packet with each mark.
    followers: [u32; 256],
    /// The number of marks with followers.
    used: usize,
    /// The mark at which the search for an unused mark begins.
    next: u8,
}

impl Default for Marks {
    fn default() -> Self {
        Self { followers: [0; 256], used: 0, next: 1 }
    }
}

impl Marks {
    /// Takes an unused mark. Returns `None` if all marks are in use. Otherwise, the caller must call
    /// [`follow`](Self::follow) with the mark. After the end of a packet, a copy of it may still have its mark.
    /// Therefore, marks are taken in turn, so that a mark is not used again soon.
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

    /// Counts a tracer that follows the packet with this mark.
    fn follow(&mut self, mark: u8) {
        self.followers[usize::from(mark)] += 1;
    }

    /// Counts that a tracer no longer follows the packet with this mark. Without followers, the mark is unused again.
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
    /// Begins the story of a packet that enters now, in each tracer that chooses the packet. Returns the packet's mark,
    /// or 0 if no tracer follows the packet.
    fn enter(&mut self, names: &Arc<Names>, port: usize, packet: &Packet) -> u8 {
        let Self { tracers, marks, .. } = self;
        let mut wanting = tracers.iter_mut().filter(|(_, tracer)| tracer.wants(packet)).peekable();
        if wanting.peek().is_none() {
            return 0;
        }
        // All marks are in use: no packet is chosen until a traced packet has ended.
        let Some(mark) = marks.take() else { return 0 };
        for (_, tracer) in wanting {
            marks.follow(mark);
            tracer.enter(mark, names, port, packet);
        }
        mark
    }

    /// Ends the stories of the packet with this mark.
    fn end(&mut self, names: &Arc<Names>, mark: u8, end: End) {
        let Self { tracers, marks, .. } = self;
        if mark != 0 {
            tracers
                .iter_mut()
                .filter_map(|(_, it)| it.end(mark, names, end).then_some(()))
                .for_each(|()| marks.leave(mark));
        }
    }

    /// Removes the observer with this number. If the observer is a trace, its receiver gets the unfinished stories.
    fn remove(&mut self, number: u64) {
        self.queues.retain(|(known, _)| *known != number);
        if let Some(at) = self.tracers.iter().position(|(known, _)| *known == number) {
            let (_, tracer) = self.tracers.swap_remove(at);
            tracer.in_flight.iter().for_each(|(mark, _)| self.marks.leave(*mark));
        }
    }

    /// Returns true if no observer needs further packets. The workers then drop their observers and run at full speed
    /// again.
    fn is_done(&self) -> bool {
        let seen = |(_, tracer): &(u64, Tracer)| tracer.remaining == 0 && tracer.in_flight.is_empty();
        self.drops.is_none() && self.queues.is_empty() && self.tracers.iter().all(seen)
    }
}

/// The shared registry of a run's observers. Observed workers lock the registry for every packet. So they are slow, and
/// may wait for each other.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Watchers>>);

/// The largest number of packets of one trace.
const MOST: u64 = 100_000;

impl Hub {
    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a trace. Returns its number. The workers must be observed with [`observers`](Self::observers).
    pub fn add(&self, tracer: Tracer) -> u64 {
        let mut watchers = self.watchers();
        watchers.added += 1;
        let number = watchers.added;
        watchers.tracers.push((number, tracer));
        number
    }

    /// Writes all packets that are dropped from now on to `drops`.
    pub fn write_drops(&self, drops: DropSender) {
        self.watchers().drops = Some(drops);
    }

    /// Returns a function that creates an observer for each worker, also for workers that join later.
    pub fn observers(&self) -> forebay_instance::Watch {
        let hub = self.clone();
        Box::new(move |_| Some(Box::new(Eye { hub: hub.clone(), names: Arc::default() })))
    }

    /// Ends all observation at the end of the run: sends unfinished stories and completes files.
    pub fn finish(&self) {
        *self.watchers() = Watchers::default();
    }

    /// Traces the next `count` packets of a running pipeline that match `filter`, and returns their stories as text.
    /// Dropping the result ends the trace. The socket uses this function
    /// ([`TraceOf`](forebay_instance::socket::TraceOf)). Returns an error if an argument is not allowed or a thread
    /// cannot be started.
    pub fn follow(&self, instance: &dyn Instance, count: u64, filter: Option<&str>) -> Result<Stories, String> {
        if !(1..=MOST).contains(&count) {
            return Err(format!("{count} packets: allowed are 1 to {MOST}"));
        }
        let filter = filter.map(|text| text.parse::<Filter>().map_err(|error| error.to_string())).transpose()?;
        let (stories, raw_stories) = channel::<Story>();
        let (lines, out) = channel();
        let (began, frequency) = (instance.board().began(), Tsc.frequency());
        let render = move || {
            // The loop ends when the tracer or the receiver has gone away.
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
    /// Returns a receiver of the packets that match `filter` and are dropped from now on. Dropping the result ends the
    /// observation. The socket uses this function ([`DropsOf`](forebay_instance::socket::DropsOf)). Returns an error if
    /// the filter is not valid or a thread cannot be started.
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

/// Dropping this value removes the observer with this number.
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
