//! Follows single packets through the graph, and hands on what is dropped.
//!
//! This runs on the worker's thread, so it only copies: the words are found by [`story`](crate::story) on another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_graph::{Decision, Observer, Place, Telemetry, Visit};
use forebay_instance::Instance;
use forebay_measure::{Clock, Tsc};
use forebay_packet::{Packet, Ticks};

use crate::drops::DropSender;
use crate::engine::shared;
use crate::filter::Filter;
use crate::story::Names;

/// What happened to one traced packet.
#[derive(Debug)]
pub(crate) struct Story {
    /// What modules, ports and flows are called.
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
    /// How it ended.
    pub(crate) end: End,
}

/// A call that a traced packet was in.
#[derive(Debug)]
pub(crate) struct Call {
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
    Dropped(Place, &'static str),
    Consumed(usize, &'static str),
    /// The run ended first.
    Unfinished,
}

/// The packets being traced.
pub(crate) struct Tracer {
    filter: Option<Filter>,
    names: Arc<Names>,
    /// How many are still to be chosen.
    left: u64,
    chosen: u64,
    next_mark: u8,
    /// Marks and stories of those under way, oldest first.
    under_way: VecDeque<(u8, Story)>,
    stories: Sender<Story>,
}

impl Tracer {
    /// Traces the next `count` packets that `filter` means.
    pub(crate) fn new(count: u64, filter: Option<Filter>, stories: Sender<Story>) -> Self {
        Self {
            filter,
            names: Arc::default(),
            left: count,
            chosen: 0,
            next_mark: 1,
            under_way: VecDeque::new(),
            stories,
        }
    }

    fn enter(&mut self, port: usize, packet: &Packet) -> u8 {
        // A mark is one of 255; packets beyond are not followed until some have ended.
        let full = self.under_way.len() >= usize::from(u8::MAX);
        if self.left == 0 || full || self.filter.as_ref().is_some_and(|filter| !filter.matches(packet.data())) {
            return 0;
        }
        while self.under_way.iter().any(|(mark, _)| *mark == self.next_mark) {
            self.next_mark = after(self.next_mark);
        }
        let mark = self.next_mark;
        // Marks are taken in turn, so that one is free for long before it is used again: a copy of a packet that has
        // ended still bears it.
        self.next_mark = after(mark);
        self.left -= 1;
        self.chosen += 1;
        let story = Story {
            names: Arc::clone(&self.names),
            number: self.chosen,
            port,
            arrival: packet.arrival(),
            frame: packet.data().to_vec(),
            calls: Vec::new(),
            end: End::Unfinished,
        };
        self.under_way.push_back((mark, story));
        mark
    }

    fn visit(&mut self, visit: &Visit<'_>) {
        if let Some((_, story)) = self.under_way.iter_mut().find(|(mark, _)| *mark == visit.mark) {
            let &Visit { module, batch, decision, before, after, .. } = visit;
            story.calls.push(Call { module, batch, decision, before: before.to_vec(), after: after.to_vec() });
        }
    }

    fn tell_under_way(&mut self) {
        for (_, story) in self.under_way.drain(..) {
            let _ = self.stories.send(story);
        }
    }

    fn end(&mut self, mark: u8, end: End) {
        if let Some(at) = self.under_way.iter().position(|(of, _)| mark != 0 && *of == mark)
            && let Some((_, story)) = self.under_way.remove(at)
        {
            // Nobody may listen any more.
            let _ = self.stories.send(Story { end, ..story });
        }
    }
}

/// The mark that follows: 1 to 255, in a ring.
fn after(mark: u8) -> u8 {
    mark.checked_add(1).unwrap_or(1)
}

/// Those that the run's end found under way are told as far as they came.
impl Drop for Tracer {
    fn drop(&mut self) {
        self.tell_under_way();
    }
}

/// Everything that watches packets in a run.
pub(crate) struct Watch {
    pub(crate) tracer: Option<Tracer>,
    pub(crate) drops: Option<DropSender>,
}

impl Observer for Watch {
    fn graph(&mut self, telemetry: &Telemetry) {
        let names = Arc::new(Names::of(telemetry));
        if let Some(drops) = &mut self.drops {
            drops.call(&names);
        }
        if let Some(tracer) = &mut self.tracer {
            // What was held by a function that is gone has no end that is told here: those under way are told as far as
            // they came.
            tracer.tell_under_way();
            tracer.names = names;
        }
    }

    fn entered(&mut self, port: usize, packet: &mut Packet) -> u8 {
        self.tracer.as_mut().map_or(0, |tracer| tracer.enter(port, packet))
    }

    fn visited(&mut self, visit: &Visit<'_>) {
        if let Some(tracer) = &mut self.tracer {
            tracer.visit(visit);
        }
    }

    fn dropped(&mut self, place: Place, reason: &'static str, packet: &Packet) {
        if let Some(drops) = &mut self.drops {
            drops.send(place, reason, packet);
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.end(packet.mark(), End::Dropped(place, reason));
        }
    }

    fn left(&mut self, port: usize, flow: Option<usize>, packet: &Packet) {
        if let Some(tracer) = &mut self.tracer {
            tracer.end(packet.mark(), End::Left(port, flow));
        }
    }

    fn consumed(&mut self, module: usize, reason: &'static str, packet: &Packet) {
        if let Some(tracer) = &mut self.tracer {
            tracer.end(packet.mark(), End::Consumed(module, reason));
        }
    }

    fn done(&self) -> bool {
        let traced = self.tracer.as_ref().is_none_or(|tracer| tracer.left == 0 && tracer.under_way.is_empty());
        traced && self.drops.is_none()
    }
}

/// Has the next `count` packets of a running pipeline followed that `filter` means: their ways, in words. For the socket.
pub(crate) fn follow(instance: &dyn Instance, count: u64, filter: Option<&str>) -> Result<Receiver<String>, String> {
    if !(1..=MOST).contains(&count) {
        return Err(format!("{count} packets: allowed are 1 to {MOST}"));
    }
    let filter = filter.map(|text| text.parse::<Filter>().map_err(|error| error.to_string())).transpose()?;
    let (stories, told) = channel();
    let (lines, out) = channel();
    let board = instance.board();
    let (began, frequency) = (board.began(), Tsc.frequency());
    let tracer = Tracer::new(count, filter, stories);
    instance.observe(shared(Some(Box::new(Watch { tracer: Some(tracer), drops: None }))));
    std::thread::spawn(move || {
        // Ends when the tracer has seen enough, or nobody listens.
        while let Ok(story) = told.recv() {
            if lines.send(story.names.tell(&story, began, frequency)).is_err() {
                break;
            }
        }
    });
    Ok(out)
}

/// The most packets that are followed at one go.
const MOST: u64 = 100_000;
