//! Watching single packets: traces and captures of what was dropped.
//!
//! A worker without an observer pays one branch a turn. With one, it looks at marked packets before and after each
//! call, which is slow and fine.

use forebay_packet::Packet;

use crate::gate::Decision;
use crate::telemetry::Telemetry;

/// Where something happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropSite {
    /// A module, by its place in the plan.
    Module(usize),
    /// A port, by its place in the plan.
    Port(usize),
}

/// What is told of one packet's call.
#[derive(Debug)]
pub struct Visit<'a> {
    /// Which traced packet.
    pub mark: u8,
    /// The module.
    pub module: usize,
    /// The frame before the call.
    pub before: &'a [u8],
    /// The frame after it.
    pub after: &'a [u8],
    /// Where the function put it.
    pub decision: Decision,
    /// How many packets the call had.
    pub batch: usize,
}

/// Who watches. All calls come from the worker's thread.
pub trait Observer: Send {
    /// It watches a worker from now on, or the worker has changed to another graph: this is what the numbers of modules,
    /// ports and flows stand for.
    fn graph(&mut self, telemetry: &Telemetry);
    /// A packet has entered by a port: a mark from 1 up if it is to be followed (unique among those under way), else 0.
    fn entered(&mut self, port: usize, packet: &mut Packet) -> u8;
    /// A marked packet has been through a call.
    fn visited(&mut self, visit: &Visit<'_>);
    /// A packet, marked or not, was dropped.
    fn dropped(&mut self, site: DropSite, reason: &'static str, packet: &Packet);
    /// A marked packet has left by a port, as one of this flow (by its place in [`Telemetry::flows`](crate::Telemetry)).
    fn left(&mut self, port: usize, flow: Option<usize>, packet: &Packet);
    /// A marked packet ended in a function.
    fn consumed(&mut self, module: usize, reason: &'static str, packet: &Packet);
    /// Whether it has seen enough: asked after a turn; the worker then lets go of it and runs at full speed again.
    fn done(&self) -> bool {
        false
    }
}
