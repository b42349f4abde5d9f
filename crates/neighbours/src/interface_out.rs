//! Sends through an interface: finds the Ethernet address of each packet's next hop, and requests it if it is unknown.
//!
//! Nearly always the address is known. A packet then takes a lookup in one cache line of the table that all workers
//! share, and twelve bytes are written. Packets to unknown neighbours wait in this function, a few for each neighbour,
//! on the worker that processes them. Answers may arrive on any worker (`interface_in`), so a worker with waiting
//! packets looks at the table at regular intervals.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{
    Network, Packet, Word,
    wire::{
        arp::Arp,
        ethernet::MacAddress,
        neighbour::{Neighbour, OVERRIDE, ROUTER},
    },
};
use forebay_tables::parameters::{RejectAction, no_memory};
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::interface::Interface;
use crate::interface::entry::{Action, Entry, Event, NeighbourState};
use crate::interface::frames::{self, ALL_NODES};
use crate::interface::neighbours::{Address, Changed, Refused};
use forebay_tables::answer_limit::AnswerLimit;

mod gateways;
mod reasons;
mod waiting;

use gateways::Gateways;
use reasons::*;
use waiting::{Full, Waiting};

/// The metadata word with the next hop.
const WORD: &str = "next_hop";

/// Parameters of `interface_out`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `interface`.
    interface: String,
    /// The routers for destinations outside the interface's prefixes, at most one of IPv4 and one of IPv6:
    /// `[192.0.2.254, "fe80::1"]`.
    #[serde(default)]
    gateway: Vec<IpAddr>,
    /// The routers by next hop: `{ "1": [192.0.2.254] }`. `ip_lookup` with `to: both` or `to: word` writes the next hop
    /// of a packet. A packet with a next hop that is not listed goes to its destination directly, or to the `gateway`.
    #[serde(default)]
    next_hops: BTreeMap<String, Vec<IpAddr>>,
    /// The number of packets that may wait for one neighbour's answer, 1 to 1024; 32 by default. When the limit is
    /// exceeded, the oldest packet is dropped.
    #[serde(default = "queue")]
    queue: usize,
    /// The number of packets that may wait in total, 1 to 65536; 1024 by default. The pool must be larger.
    #[serde(default = "held")]
    held: usize,
    /// The number of neighbours for which packets may wait at a time, 1 to 4096; 256 by default.
    #[serde(default = "resolving")]
    resolving: usize,
    /// The action for packets to neighbours that do not reply: `drop` (the default), or `gate`, which sends them to the
    /// gate `unreachable`.
    #[serde(default)]
    unreachable: RejectAction,
    /// Announces the addresses of the interface when it starts: `true` (the default) or `false`.
    #[serde(default = "yes")]
    announce: bool,
}

fn queue() -> usize {
    32
}
fn held() -> usize {
    1_024
}
fn resolving() -> usize {
    256
}
fn yes() -> bool {
    true
}

/// The largest number of neighbours per second for which a worker begins to send requests. Without this limit, a scan
/// of a prefix would cause a broadcast for each address (RFC 6583 section 3).
const ASKED_PER_SECOND: u32 = 1_000;
/// The interval at which a worker with waiting packets looks for answers.
const LOOK_EVERY: Nanos = Nanos(200_000);
/// The interval at which some groups of entries are checked for age.
const SWEEP_EVERY: Nanos = Nanos(100_000_000);
/// The number of groups of the neighbour table that are checked at a time.
const SWEPT_GROUPS: usize = 32;

/// The network function `interface_out`.
pub struct InterfaceOut {
    /// The interface and its neighbours, which all workers share.
    interface: Arc<Interface>,
    /// Selects the neighbour of a packet.
    gateways: Gateways,
    /// The packets that wait on this worker.
    waiting: Waiting,
    /// The rate limit of neighbours for which requests begin.
    asking: AnswerLimit,
    /// The first gate is for packets that waited for a neighbour that did not answer. The second gate is for packets to
    /// a neighbour that was already given up when the packet came.
    unreachable: [Gate; 2],
    /// True until the addresses are announced. Always false on all workers except one.
    announce: bool,
    /// The interval at which this worker looks for answers, as long as packets wait.
    look_every: Ticks,
    /// The interval of the checks for age.
    sweep_every: Ticks,
    /// The time of the next check for age.
    sweep_at: Ticks,
    /// The number of the next group that is checked for age. It wraps around.
    swept: usize,
    /// The flow of packets that the function itself sends: the flow of the first packet of the last batch.
    flow: u32,
    counts: Arc<[Counter]>,
}

impl Declare for InterfaceOut {
    type Params = Params;
    const NAME: &'static str = "interface_out";
    const SUMMARY: &'static str =
        "sends packets by an interface, and finds next hops' Ethernet addresses by ARP and neighbour discovery";
    const HELP: &'static str = "\
        Writes both Ethernet addresses: the next hop's and the interface's own. The next hop is the first of these \
        that exists: the router that `next_hops` has for the number in the metadata word `next_hop`, the destination \
        itself if it is in one of the interface's prefixes, or the `gateway`. The Ethernet address of an unknown \
        neighbour is requested by ARP (RFC 826) or neighbour solicitation (RFC 4861), up to `tries` times, at \
        intervals of `retransmit`. Meanwhile up to `queue` packets to this neighbour wait. Each worker begins requests \
        for at most 1000 neighbours per second. If no answer comes, the waiting packets are dropped, or leave by the \
        gate `unreachable`. The same happens to later packets, until the neighbour is requested again. A neighbour is \
        reachable, then stale, delayed, probed by unicast, and forgotten, as in RFC 4861 section 7.3. This holds for \
        IPv4 as for IPv6. Packets to multicast groups need no neighbour (RFC 1112, RFC 2464). The table `neighbours` \
        shows and changes the neighbours. Answers arrive by an `interface_in` with the same state. Frames are \
        untagged: put `vlan_push` after.";
    const EXAMPLE: &'static str = "{ interface: interface, gateway: [192.0.2.254, 2001:db8::fe] }";
    const TRAFFIC: &'static str = "{ destination: 192.0.2.254/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const CREATES: &'static [Reason] = CREATES;
    const READS: &'static [&'static str] = &[WORD];
    // All workers share the neighbours, and few packets change them. Each replica has its own waiting packets.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let interface = setup.state::<Interface>("interface", &params.interface)?;
        for (name, value, most) in
            [("queue", params.queue, 1_024), ("held", params.held, 65_536), ("resolving", params.resolving, 4_096)]
        {
            if !(1..=most).contains(&value) {
                return Err(SetupError::not_allowed(name, value, format!("1 to {most}")));
            }
        }
        let word: Option<Word> = if params.next_hops.is_empty() { None } else { Some(setup.word(WORD)?) };
        let gateways = Gateways::new(&interface, &params.gateway, &params.next_hops, word)?;
        match params.unreachable {
            RejectAction::Drop => setup.gates(["0"])?,
            RejectAction::Gate => setup.gates(["0", "unreachable"])?,
        }
        setup.holds("held", params.held);
        let frequency = setup.frequency();
        setup.table("neighbours", Arc::clone(&interface) as Arc<dyn forebay_graph::Table>);
        Ok(Self {
            gateways,
            waiting: Waiting::new(params.resolving, params.queue, params.held).map_err(no_memory(
                "resolving",
                format!("queues of {} packets for each of {} neighbours", params.queue, params.resolving),
            ))?,
            asking: AnswerLimit::new(ASKED_PER_SECOND, frequency),
            unreachable: [UNRESOLVED, UNREACHABLE].map(|drop| params.unreachable.resolve(1, drop)),
            // Only one worker announces the addresses.
            announce: params.announce && setup.share().0 == 0,
            look_every: frequency.ticks(LOOK_EVERY),
            sweep_every: frequency.ticks(SWEEP_EVERY),
            sweep_at: Ticks::ZERO,
            swept: 0,
            // This number is no flow. It is used until a packet comes.
            flow: u32::MAX,
            counts: setup.counters("neighbours", COUNTERS.map(str::to_owned)),
            interface,
        })
    }
}

/// Writes the Ethernet addresses of a frame. The destination is in the upper 48 bits of `to`.
#[inline(always)]
fn address(packet: &mut Packet, to: u64, from: MacAddress) {
    if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
        let [a, b, c, d, e, f, ..] = to.to_be_bytes();
        let [g, h, i, j, k, l] = from.0;
        *addresses = [a, b, c, d, e, f, g, h, i, j, k, l];
    }
}

/// Returns the gate of a packet that cannot wait.
fn refusal(full: Full) -> Gate {
    match full {
        Full::Held => HELD_FULL,
        Full::Resolving => RESOLVING_FULL,
    }
}

/// Returns a MAC address in the upper 48 bits of a number.
fn upper(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a, b, c, d, e, f, 0, 0])
}

impl InterfaceOut {
    /// Handles a packet whose next hop cannot be used directly: writes its Ethernet addresses, holds it, or puts it on
    /// a drop gate. `index` is its index in the batch.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, index: usize, packet: &mut Packet, context: &mut Context<'_>) {
        match self.resolve(index, packet, context) {
            Ok(Some(mac)) => address(packet, upper(mac), self.interface.mac),
            Ok(None) => {}
            Err(gate) => context.put(index, gate),
        }
    }

    /// Returns the Ethernet address of a packet's next hop, or `None` if the packet is held from now on. The error is
    /// the gate of a packet that cannot be sent.
    fn resolve(
        &mut self,
        index: usize,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<Option<MacAddress>, Gate> {
        let (network, _) = packet.network();
        let destination = match network {
            Network::Ipv4 => packet.ipv4().map(|header| Address::v4(u32::from_be_bytes(header.destination))),
            Network::Ipv6 => packet.ipv6().and_then(|header| Address::v6(u128::from_be_bytes(header.destination))),
            Network::Other => None,
        };
        let destination = destination.ok_or(NOT_IP)?.ip();
        match destination {
            IpAddr::V4(group) if group.is_multicast() => return Ok(Some(frames::multicast_v4(group.to_bits()))),
            IpAddr::V6(group) if group.is_multicast() => return Ok(Some(frames::multicast_v6(group.octets()))),
            IpAddr::V4(all) if self.interface.is_broadcast(all.to_bits()) => return Err(NOT_FOR_LINK),
            own if self.interface.addresses().any(|it| it == own) => return Err(NOT_FOR_LINK),
            _ => {}
        }
        let next = self.gateways.target(&self.interface, packet).ok_or(NOT_IP)?;
        if !self.interface.connects(next.ip()) {
            return Err(NO_GATEWAY);
        }
        let now = context.now();
        if !self.waiting.waits(next) {
            let mut changed = self.step(next, now)?;
            if changed.action == Action::Remove {
                // The neighbour did not answer the probes. This second step sends a request to all hosts.
                changed = self.step(next, now)?;
            }
            let Changed { entry, action, .. } = changed;
            self.act(next, &entry, action, context);
            match entry.state {
                NeighbourState::Failed => return Err(self.unreachable[1]),
                NeighbourState::Incomplete => {}
                _ => {
                    if entry.state.is_timed() && self.waiting.watch(next) {
                        context.look_at(Ticks(entry.at));
                    }
                    return Ok(Some(entry.mac));
                }
            }
        }
        match self.waiting.admit(next) {
            Ok(oldest) => {
                if let Some(oldest) = oldest
                    && !context.release(oldest, QUEUE_FULL)
                {
                    // The oldest packet came in this batch and is not held yet, so this packet is dropped instead.
                    self.waiting.unpop(next, oldest);
                    return Err(QUEUE_FULL);
                }
                self.waiting.push(next, context.hold(index));
                self.counts[HELD_COUNT].add(1);
                context.wake_at(now + self.look_every);
                Ok(None)
            }
            Err(full) => Err(refusal(full)),
        }
    }

    /// Updates the entry of a neighbour for a packet. Must be called only if no packet waits for the neighbour on this
    /// worker. If the packet would have to wait and there is no room for it, refuses the packet before a request is
    /// sent or an entry is evicted. The error is the gate of the packet.
    fn step(&mut self, next: Address, now: Ticks) -> Result<Changed, Gate> {
        // `waits` is true if the packet would have to wait, and `requests` is true if a request would be sent.
        let (waits, requests) = match self.interface.neighbours.look(next) {
            None => (true, true),
            Some(Entry { state: NeighbourState::Failed, at, .. }) => (now.0 >= at, now.0 >= at),
            // Packets on another worker may already wait for this neighbour.
            Some(Entry { state: NeighbourState::Incomplete, at, .. }) => (true, now.0 >= at),
            Some(_) => (false, false),
        };
        if waits {
            self.waiting.room(next).map_err(refusal)?;
        }
        if requests && !self.asking.take(now) {
            return Err(NOT_ASKED);
        }
        let changed =
            self.interface.neighbours.step_or_make(next, Event::Packet, now.0).map_err(|refused| match refused {
                Refused::Busy => TABLE_BUSY,
                Refused::Full | Refused::Absent => TABLE_FULL,
            })?;
        self.counts[EVICTED_COUNT].add(u64::from(changed.evicted));
        Ok(changed)
    }

    /// Sends the request that the action requires, or counts a neighbour that was given up.
    fn act(&self, next: Address, entry: &Entry, action: Action, context: &mut Context<'_>) {
        let to = match action {
            Action::Ask => None,
            Action::Probe => Some(entry.mac),
            Action::GiveUp => return self.counts[FAILED_COUNT].add(1),
            Action::None | Action::Remove => return,
        };
        let mac = self.interface.mac;
        match next.ip() {
            IpAddr::V4(target) => {
                let Some(source) = self.interface.source_v4(target.to_bits()) else { return };
                let unknown = MacAddress::default();
                let request = Arp::of(Arp::REQUEST, (mac, source.to_be_bytes()), (unknown, target.octets()));
                let frame = frames::arp(to.unwrap_or(frames::BROADCAST), mac, &request);
                self.send(ARP_REQUEST, &frame, context);
            }
            IpAddr::V6(target) => {
                let Some(source) = self.interface.source_v6(target.to_bits()) else { return };
                let (source, target) = (source.to_be_bytes(), target.octets());
                let frame = match to {
                    None => frames::solicitation(mac, source, target),
                    Some(to) => frames::neighbour(to, mac, source, target, Neighbour::solicitation(target, mac)),
                };
                self.send(SOLICITATION, &frame, context);
            }
        }
    }

    /// Sends a frame. `reason` is an index in [`CREATES`]. Does nothing if the pool is empty.
    fn send(&self, reason: usize, frame: &[u8], context: &mut Context<'_>) {
        if let Some(packet) = context.originate(reason, Gate::FIRST, self.flow) {
            packet.write(frame);
        }
    }

    /// Announces the interface's addresses: gratuitous ARP (RFC 5227 section 2.3) and unsolicited advertisements (RFC
    /// 4861 section 7.2.6).
    fn announce(&self, context: &mut Context<'_>) {
        let mac = self.interface.mac;
        for own in self.interface.addresses() {
            match own {
                IpAddr::V4(own) => {
                    let own = own.octets();
                    let request = Arp::of(Arp::REQUEST, (mac, own), (MacAddress::default(), own));
                    self.send(ANNOUNCEMENT, &frames::arp(frames::BROADCAST, mac, &request), context);
                }
                IpAddr::V6(own) => {
                    let own = own.octets();
                    let message = Neighbour::advertisement(ROUTER | OVERRIDE, own, mac);
                    let frame = frames::neighbour(frames::multicast_v6(ALL_NODES), mac, own, ALL_NODES, message);
                    self.send(ANNOUNCEMENT, &frame, context);
                }
            }
        }
    }

    /// Checks the next [`SWEPT_GROUPS`] groups of the table: handles the entries whose time has come, and removes old
    /// entries.
    #[cold]
    fn sweep(&mut self, now: Ticks) {
        self.sweep_at = now + self.sweep_every;
        self.interface.note(now);
        for _ in 0..SWEPT_GROUPS.min(self.interface.neighbours.groups()) {
            let removed = self.interface.neighbours.sweep(self.swept, now.0);
            self.counts[FORGOTTEN_COUNT].add(removed as u64);
            self.swept = self.swept.wrapping_add(1);
        }
    }

    /// Checks one neighbour of `waiting`, and sends the packets that wait for it if it has answered. Returns true if
    /// the neighbour must be checked again; otherwise the caller removes it from `waiting`.
    fn look(&mut self, next: Address, context: &mut Context<'_>) -> bool {
        let now = context.now();
        let Some(mut entry) = self.interface.neighbours.look(next) else {
            return self.give_up(next, context);
        };
        if entry.state.is_timed() && now.0 >= entry.at {
            match self.interface.neighbours.step(next, Event::Time, now.0) {
                Ok(changed) => {
                    entry = changed.entry;
                    self.act(next, &entry, changed.action, context);
                    if changed.action == Action::Remove {
                        return self.give_up(next, context);
                    }
                }
                // Try again later.
                Err(Refused::Busy) => return true,
                Err(Refused::Full | Refused::Absent) => return self.give_up(next, context),
            }
        }
        if entry.state == NeighbourState::Failed {
            return self.give_up(next, context);
        }
        if entry.state != NeighbourState::Incomplete && self.waiting.waits(next) {
            self.counts[RESOLVED_COUNT].add(1);
            while let Some(key) = self.waiting.pop(next) {
                if let Some(packet) = context.held(key) {
                    address(packet, upper(entry.mac), self.interface.mac);
                }
                context.release(key, Gate::FIRST);
            }
            // The released packets count as one packet event of the entry.
            if let Ok(changed) = self.interface.neighbours.step(next, Event::Packet, now.0) {
                entry = changed.entry;
            }
        }
        if entry.state.is_timed() {
            // If packets wait, a run must not end before this time. Without waiting packets, a run need not wait for
            // the probe.
            if self.waiting.waits(next) {
                context.wake_at(Ticks(entry.at));
            } else {
                context.look_at(Ticks(entry.at));
            }
        }
        entry.state.is_timed()
    }

    /// Releases the packets that wait for a neighbour to the gate for unresolved packets. Returns false: the neighbour
    /// need not be checked again.
    fn give_up(&mut self, next: Address, context: &mut Context<'_>) -> bool {
        while let Some(key) = self.waiting.pop(next) {
            context.release(key, self.unreachable[0]);
        }
        false
    }
}

impl Function for InterfaceOut {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let now = context.now();
        if let Some(first) = batch.first() {
            self.flow = first.flow();
        }
        if now >= self.sweep_at {
            self.sweep(now);
        }
        for (index, packet) in batch.iter_mut().enumerate() {
            let next = self.gateways.target(&self.interface, packet);
            let known = next.filter(|next| !self.waiting.may_wait(*next));
            match known.and_then(|next| self.interface.neighbours.usable(next, now.0)) {
                Some(to) => address(packet, to, self.interface.mac),
                None => self.unusual(index, packet, context),
            }
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        self.interface.note(now);
        if std::mem::take(&mut self.announce) {
            self.announce(context);
        }
        let mut at = 0;
        while let Some(next) = self.waiting.at(at) {
            if self.look(next, context) {
                at += 1;
            } else {
                self.waiting.forget(at);
            }
        }
        if self.waiting.any() {
            context.wake_at(now + self.look_every);
        }
    }

    fn begins(&self) -> bool {
        self.announce
    }
}

register!(InterfaceOut);

#[cfg(test)]
mod tests;
