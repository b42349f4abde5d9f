//! Observation of single packets: traces, and captures of dropped packets.
//!
//! A worker without an observer pays one branch a turn. With an observer it looks at marked packets before and after
//! each call, which is slow.

use forebay_packet::Packet;

use crate::gate::Decision;
use crate::telemetry::Telemetry;

/// The place where a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropSite {
    /// A module, by its index in the plan.
    Module(usize),
    /// A port, by its index in the plan. The number of ports stands for the bin.
    Port(usize),
}

/// A call on one marked packet.
#[derive(Debug)]
pub struct Visit<'a> {
    /// The packet's mark.
    pub mark: u8,
    /// The module, by its index in the plan.
    pub module: usize,
    /// The frame before the call.
    pub before: &'a [u8],
    /// The frame after the call.
    pub after: &'a [u8],
    /// The function's decision.
    pub decision: Decision,
    /// The number of packets in the call.
    pub batch: usize,
}

/// Observes packets. All calls come from the worker's thread.
pub trait Observer: Send {
    /// Called at the start of the observation, and when the worker changes to another graph. `telemetry` gives the
    /// names for the numbers of modules, ports and flows.
    fn graph(&mut self, telemetry: &Telemetry);
    /// A packet has entered by a port. Returns its mark. With 0, the packet is not followed. To follow it, return
    /// another number that no other packet in the graph has.
    fn entered(&mut self, port: usize, packet: &mut Packet) -> u8;
    /// A marked packet has been through a call.
    fn visited(&mut self, visit: &Visit<'_>);
    /// A packet, marked or not, was dropped.
    fn dropped(&mut self, site: DropSite, reason: &'static str, packet: &Packet);
    /// A marked packet has left by a port. `flow` is the index of the packet's flow in
    /// [`Telemetry::flows`](crate::Telemetry). `None` if the packet belongs to no flow.
    fn left(&mut self, port: usize, flow: Option<usize>, packet: &Packet);
    /// A function has consumed a marked packet.
    fn consumed(&mut self, module: usize, reason: &'static str, packet: &Packet);
    /// Returns whether the observer has seen enough. Called after a turn. The worker then drops the observer and runs
    /// at full speed again.
    fn done(&self) -> bool {
        false
    }
}
