//! Follows single packets through the graph, and hands on what is dropped: for as many as want to know.
//!
//! This runs on the workers' threads, so it only copies: the words are found by [`story`](crate::story) on another.

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

use crate::drops::{DropQueue, DropSender, tell_drops};
use crate::filter::Filter;
use crate::story::Names;

/// What happened to one traced packet.
#[derive(Debug)]
pub(crate) struct Story {
    /// What modules and ports were called where it entered.
    pub(crate) names: Arc<Names>,
    /// Which of the traced packets, from 1.
    pub(crate) number: u64,
    /// The port that it entered by.
    pub(crate) port: usize,
    /// When it arrived.
    pub(crate) arrival: Ticks,
    /// The frame as it entered.
    pub(crate) frame: Vec<u8>,
    /// The calls that it was in.
    pub(crate) calls: Vec<Call>,
    /// How it ended, and what things were called there.
    pub(crate) end: (Arc<Names>, End),
}

/// A call that a traced packet was in.
#[derive(Debug)]
pub(crate) struct Call {
    /// What modules were called: it may have been held while the pipeline changed.
    pub(crate) names: Arc<Names>,
    pub(crate) module: usize,
    pub(crate) batch: usize,
    pub(crate) decision: Decision,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

/// How a traced packet's way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By a port, as one of a flow.
    Left(usize, Option<usize>),
    Dropped(DropSite, &'static str),
    Consumed(usize, &'static str),
    /// The watching ended first.
    Unfinished,
}

/// Somebody who wants to know the ways of packets.
pub(crate) struct Tracer {
    filter: Option<Filter>,
    /// How many are still to be chosen.
    left: u64,
    chosen: u64,
    /// Marks and stories of those under way, oldest first.
    under_way: VecDeque<(u8, Story)>,
    stories: Sender<Story>,
}

impl Tracer {
    /// Traces the next `count` packets that `filter` means.
    pub(crate) fn new(count: u64, filter: Option<Filter>, stories: Sender<Story>) -> Self {
        Self { filter, left: count, chosen: 0, under_way: VecDeque::new(), stories }
    }

    fn wants(&self, packet: &Packet) -> bool {
        self.left > 0 && self.filter.as_ref().is_none_or(|filter| filter.matches(packet.data()))
    }

    fn enter(&mut self, mark: u8, names: &Arc<Names>, port: usize, packet: &Packet) {
        self.left -= 1;
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
        self.under_way.push_back((mark, story));
    }

    fn visit(&mut self, names: &Arc<Names>, visit: &Visit<'_>) {
        if let Some((_, story)) = self.under_way.iter_mut().find(|(mark, _)| *mark == visit.mark) {
            let (&Visit { module, batch, decision, before, after, .. }, names) = (visit, Arc::clone(names));
            story.calls.push(Call { names, module, batch, decision, before: before.to_vec(), after: after.to_vec() });
        }
    }

    /// Tells the story of the packet with this mark; whether there was one.
    fn end(&mut self, mark: u8, names: &Arc<Names>, end: End) -> bool {
        let Some(at) = self.under_way.iter().position(|(of, _)| *of == mark) else { return false };
        if let Some((_, story)) = self.under_way.remove(at) {
            // Nobody may listen any more.
            let _ = self.stories.send(Story { end: (Arc::clone(names), end), ..story });
        }
        true
    }
}

/// Those that the end found under way are told as far as they came.
impl Drop for Tracer {
    fn drop(&mut self) {
        for (_, story) in self.under_way.drain(..) {
            let _ = self.stories.send(story);
        }
    }
}

/// All who watch the packets of a run. A packet has one mark, whoever follows it.
#[derive(Default)]
struct Watchers {
    tracers: Vec<(u64, Tracer)>,
    /// Numbers tracers.
    added: u64,
    drops: Option<DropSender>,
    /// Those who are sent what is dropped.
    queues: Vec<(u64, DropQueue)>,
    marks: Marks,
}

/// Which marks packets under way have, and how many follow each.
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
    /// A mark that nobody has. They are taken in turn, so that one is free for long before it is used again: a copy of a
    /// packet that has ended still bears it.
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

/// The mark that follows: 1 to 255, in a ring.
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
        // Packets beyond the last mark are not followed until some have ended.
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
            tracer.under_way.iter().for_each(|(mark, _)| self.marks.leave(*mark));
        }
    }

    fn is_done(&self) -> bool {
        let seen = |(_, tracer): &(u64, Tracer)| tracer.left == 0 && tracer.under_way.is_empty();
        self.drops.is_none() && self.queues.is_empty() && self.tracers.iter().all(seen)
    }
}

/// Where all who watch a run meet. Workers that are watched are slow, and may well wait for each other.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<Watchers>>);

/// The most packets that are followed at one go.
const MOST: u64 = 100_000;

impl Hub {
    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to trace; until when is told by the number.
    pub(crate) fn add(&self, tracer: Tracer) -> u64 {
        let mut watchers = self.watchers();
        watchers.added += 1;
        let number = watchers.added;
        watchers.tracers.push((number, tracer));
        number
    }

    /// Has all that is dropped written.
    pub(crate) fn write_drops(&self, drops: DropSender) {
        self.watchers().drops = Some(drops);
    }

    /// An observer for each worker, also those that will join.
    pub(crate) fn observers(&self) -> forebay_instance::Watch {
        let hub = self.clone();
        Box::new(move |_| Some(Box::new(Eye { hub: hub.clone(), names: Arc::default() })))
    }

    /// The run is over: tells what is still to be told, and finishes files.
    pub(crate) fn finish(&self) {
        *self.watchers() = Watchers::default();
    }

    /// Has the next `count` packets of a running pipeline followed that `filter` means: their ways, in words. For the socket.
    pub(crate) fn follow(&self, instance: &dyn Instance, count: u64, filter: Option<&str>) -> Result<Stories, String> {
        if !(1..=MOST).contains(&count) {
            return Err(format!("{count} packets: allowed are 1 to {MOST}"));
        }
        let filter = filter.map(|text| text.parse::<Filter>().map_err(|error| error.to_string())).transpose()?;
        let (stories, told) = channel::<Story>();
        let (lines, out) = channel();
        let (began, frequency) = (instance.board().began(), Tsc.frequency());
        let tell = move || {
            // Ends with the tracer, or when nobody listens.
            while let Ok(story) = told.recv() {
                if lines.send(story.tell(began, frequency)).is_err() {
                    break;
                }
            }
        };
        let teller = std::thread::Builder::new().name("trace".to_owned()).spawn(tell);
        teller.map_err(|error| format!("no thread to tell the packets' ways: {error}"))?;
        let following = Following { hub: self.clone(), number: self.add(Tracer::new(count, filter, stories)) };
        instance.observe(self.observers());
        Ok(Stories { packets: out, watching: Box::new(following) })
    }
}

impl Hub {
    /// Has what is dropped from now on sent, of the packets that `filter` means. For the socket.
    pub(crate) fn follow_drops(&self, instance: &dyn Instance, filter: Option<&str>) -> Result<Drops, String> {
        let filter = filter.map(|text| text.parse::<Filter>().map_err(|error| error.to_string())).transpose()?;
        let (queue, raw, lost) = DropQueue::new(filter);
        let (told, packets) = sync_channel(64);
        let teller = std::thread::Builder::new().name("drops".to_owned()).spawn(move || tell_drops(&raw, &told));
        teller.map_err(|error| format!("no thread to tell of dropped packets: {error}"))?;
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

/// Ends the watching when it is dropped.
struct Following {
    hub: Hub,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.hub.watchers().remove(self.number);
    }
}

/// What the watchers see of one worker, and by which names it calls things.
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
