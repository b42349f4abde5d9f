//! What leaves by an interface: finds the Ethernet address of each packet's next hop, and asks for it where it is not known.
//!
//! Nearly always the address is known: one look at one cache line of the table that all workers share, and twelve bytes are
//! written. Packets for who is not known yet wait here, a few each, in the worker that has them; answers come in wherever they
//! do (`interface_in`), so who waits looks again every so often.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::{Counter, Nanos};
use forebay_packet::wire::arp::Arp;
use forebay_packet::wire::ethernet::MacAddress;
use forebay_packet::wire::neighbour::{Neighbour, OVERRIDE, ROUTER};
use forebay_packet::{Network, Packet, Ticks, Word};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::interface::Interface;
use crate::interface::entry::{Action, Entry, Event, Kind};
use crate::interface::frames::{self, ALL_NODES};
use crate::interface::neighbours::{Address, Changed, Refused};
use crate::parameters::{Rejected, no_memory};
use crate::tunnel::bucket::Bucket;

mod gateways;
mod waiting;

use gateways::Gateways;
use waiting::{Full, Waiting};

/// The metadata word that next hops are read from.
const WORD: &str = "next_hop";

/// Parameters of `interface_out`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of the kind `interface`.
    interface: String,
    /// The routers that packets to destinations in none of the interface's prefixes go to, one of IPv4 and one of IPv6 at the
    /// most: `[192.0.2.254, "fe80::1"]`.
    #[serde(default)]
    gateway: Vec<IpAddr>,
    /// The routers by next hop, as `ip_lookup` with `to: both` or `to: word` writes them: `{ "1": [192.0.2.254] }`. A packet
    /// of a next hop that is not listed goes to its destination itself, or to the `gateway`.
    #[serde(default)]
    next_hops: BTreeMap<String, Vec<IpAddr>>,
    /// How many packets of one neighbour may wait for its answer, 1 to 1024; 32 by default. The oldest gives way.
    #[serde(default = "queue")]
    queue: usize,
    /// How many packets may wait in all, 1 to 65536; 1024 by default. The pool must have more.
    #[serde(default = "held")]
    held: usize,
    /// For how many neighbours packets may wait at a time, 1 to 4096; 256 by default.
    #[serde(default = "resolving")]
    resolving: usize,
    /// What becomes of packets to neighbours that do not answer: `drop` (the default), or `gate`: they leave by the gate
    /// `unreachable`.
    #[serde(default)]
    unreachable: Rejected,
    /// Whether the interface announces its addresses when it starts: `true` (the default) or `false`.
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

const UNRESOLVED: Gate = Gate::drop(0);
const UNREACHABLE: Gate = Gate::drop(1);
const QUEUE_FULL: Gate = Gate::drop(2);
const HELD_FULL: Gate = Gate::drop(3);
const RESOLVING_FULL: Gate = Gate::drop(4);
const TABLE_FULL: Gate = Gate::drop(5);
const TABLE_BUSY: Gate = Gate::drop(6);
const NO_GATEWAY: Gate = Gate::drop(7);
const NOT_FOR_LINK: Gate = Gate::drop(8);
const NOT_IP: Gate = Gate::drop(9);
const NOT_ASKED: Gate = Gate::drop(10);
const DROPS: &[Reason] = &[
    Reason { name: "unresolved", help: "The packet waited for its neighbour, which did not answer." },
    Reason { name: "unreachable", help: "The neighbour did not answer before, and is not asked again yet." },
    Reason { name: "queue_full", help: "Later packets for the same neighbour waited, too: the oldest gives way." },
    Reason { name: "held_full", help: "As many packets wait already as may ('held')." },
    Reason { name: "resolving_full", help: "Packets wait for as many neighbours already as may be ('resolving')." },
    Reason {
        name: "table_full",
        help: "There is no room for the neighbour: all its places are taken by permanent ones.",
    },
    Reason { name: "table_busy", help: "Another worker was interrupted while it wrote about the neighbour." },
    Reason {
        name: "no_gateway",
        help: "The destination is in none of the interface's prefixes, and there is no gateway.",
    },
    Reason {
        name: "not_for_link",
        help: "The destination is the interface's own address, or that of all hosts of one of its prefixes (RFC 2644).",
    },
    Reason {
        name: "not_ip",
        help: "The frame carries neither IPv4 nor IPv6, or is to an IPv4-mapped address of IPv6.",
    },
    Reason {
        name: "not_asked",
        help: "The neighbour would have to be asked for, and as many were within a second as may be (1000 by each worker).",
    },
];

/// Positions in [`CREATES`].
const ARP_REQUEST: usize = 0;
const SOLICITATION: usize = 1;
const ANNOUNCEMENT: usize = 2;
const CREATES: &[Reason] = &[
    Reason { name: "arp_request", help: "A neighbour's Ethernet address is asked for, or whether it still has it." },
    Reason { name: "neighbour_solicitation", help: "The same over IPv6." },
    Reason { name: "announcement", help: "The interface says that it has its addresses." },
];

/// Which of the counters is which.
const HELD_COUNT: usize = 0;
const RESOLVED_COUNT: usize = 1;
const FAILED_COUNT: usize = 2;
const EVICTED_COUNT: usize = 3;
const FORGOTTEN_COUNT: usize = 4;
const COUNTERS: [&str; 5] = ["waited", "resolved", "failed", "evicted", "forgotten"];

/// For how many neighbours a second packets have a worker begin to ask. Who sends to all addresses of a prefix would make a
/// broadcast of each packet (RFC 6583 section 3).
const ASKED_PER_SECOND: u32 = 1_000;
/// How often who waits for an answer looks whether it has come.
const LOOK_EVERY: Nanos = Nanos(200_000);
/// How often a few entries are looked at for age, and how many groups of them.
const SWEEP_EVERY: Nanos = Nanos(100_000_000);
const SWEPT_GROUPS: usize = 32;

/// The function.
pub struct InterfaceOut {
    interface: Arc<Interface>,
    gateways: Gateways,
    waiting: Waiting,
    asking: Bucket,
    unreachable: [Gate; 2],
    announce: bool,
    look_every: Ticks,
    sweep_every: Ticks,
    sweep_at: Ticks,
    swept: usize,
    /// The flow that what it makes of its own is on.
    flow: u32,
    counts: Arc<[Counter]>,
}

impl Declare for InterfaceOut {
    type Params = Params;
    const NAME: &'static str = "interface_out";
    const SUMMARY: &'static str =
        "sends by an interface: finds out next hops' Ethernet addresses by ARP and neighbour discovery";
    const HELP: &'static str = "\
        Writes both Ethernet addresses: that of the next hop, and the interface's own. The next hop is the router of the number in \
        the metadata word `next_hop`, where `next_hops` lists it; the destination itself, where it is in one of the \
        interface's prefixes; or else the `gateway`. Who is not known is asked for by an ARP request (RFC 826) or a neighbour \
        solicitation (RFC 4861), again after `retransmit`, `tries` times, while up to `queue` packets wait (each worker begins to ask for \
        1000 a second at most); then \
        they are dropped, or leave by the gate `unreachable`, and so do later ones until the neighbour is asked again. Neighbours are \
        reachable, stale, in delay, probed by unicast, and forgotten as RFC 4861 section 7.3 says, for IPv4 as for IPv6. \
        Packets to multicast groups need no neighbour (RFC 1112, RFC 2464). The table `neighbours` shows and changes what is \
        known. Answers reach it by `interface_in` with the same state. Frames are untagged: `vlan_push` comes after.";
    const EXAMPLE: &'static str = "{ interface: interface, gateway: [192.0.2.254, 2001:db8::fe] }";
    const TRAFFIC: &'static str = "{ destination: 192.0.2.254/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const CREATES: &'static [Reason] = CREATES;
    const READS: &'static [&'static str] = &[WORD];
    // The neighbours are all workers', changed by few packets; what waits is each replica's own.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let interface = setup.state::<Interface>("interface", &params.interface)?;
        for (name, value, most) in
            [("queue", params.queue, 1_024), ("held", params.held, 65_536), ("resolving", params.resolving, 4_096)]
        {
            if !(1..=most).contains(&value) {
                return Err(SetupError::at(name, format!("{value}: allowed are 1 to {most}")));
            }
        }
        let word: Option<Word> = if params.next_hops.is_empty() { None } else { Some(setup.word(WORD)?) };
        let gateways = Gateways::new(&interface, &params.gateway, &params.next_hops, word)?;
        match params.unreachable {
            Rejected::Drop => setup.gates(["0"])?,
            Rejected::Gate => setup.gates(["0", "unreachable"])?,
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
            asking: Bucket::new(ASKED_PER_SECOND, frequency),
            unreachable: [UNRESOLVED, UNREACHABLE].map(|drop| params.unreachable.resolve(1, drop)),
            // One worker's word is enough.
            announce: params.announce && setup.share().0 == 0,
            look_every: frequency.ticks(LOOK_EVERY),
            sweep_every: frequency.ticks(SWEEP_EVERY),
            sweep_at: Ticks::ZERO,
            swept: 0,
            // Of none, until a packet comes.
            flow: u32::MAX,
            counts: setup.counters("neighbours", COUNTERS.map(str::to_owned)),
            interface,
        })
    }
}

/// Writes the addresses of a frame: to the Ethernet address in the upper 48 bits of `to`.
#[inline(always)]
fn address(packet: &mut Packet, to: u64, from: MacAddress) {
    if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
        let [a, b, c, d, e, f, ..] = to.to_be_bytes();
        let [g, h, i, j, k, l] = from.0;
        *addresses = [a, b, c, d, e, f, g, h, i, j, k, l];
    }
}

fn refusal(full: Full) -> Gate {
    match full {
        Full::Held => HELD_FULL,
        Full::Resolving => RESOLVING_FULL,
    }
}

fn upper(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a, b, c, d, e, f, 0, 0])
}

impl InterfaceOut {
    /// Sees to a packet whose next hop is not simply known.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, index: usize, packet: &mut Packet, context: &mut Context<'_>) {
        match self.resolve(index, packet, context) {
            Ok(Some(mac)) => address(packet, upper(mac), self.interface.mac),
            Ok(None) => {}
            Err(gate) => context.put(index, gate),
        }
    }

    /// The Ethernet address of a packet's next hop; `None` where the packet is held.
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
                // It did not answer when it was probed: now all are asked.
                changed = self.step(next, now)?;
            }
            let Changed { entry, action, .. } = changed;
            self.act(next, &entry, action, context);
            match entry.kind {
                Kind::Failed => return Err(self.unreachable[1]),
                Kind::Incomplete => {}
                _ => {
                    if entry.kind.is_timed() && self.waiting.watch(next) {
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
                    // It came in this very batch, and is not held yet: this one gives way.
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

    /// Tells the table that there is a packet for a neighbour that none waits for. Where it would have to wait, only if it may:
    /// nobody is asked for, and nothing put out of the table, for the sake of a packet that is dropped.
    fn step(&mut self, next: Address, now: Ticks) -> Result<Changed, Gate> {
        let (waits, asks) = match self.interface.neighbours.look(next) {
            None => (true, true),
            Some(Entry { kind: Kind::Failed, at, .. }) => (now.0 >= at, now.0 >= at),
            // Another worker's packets may wait for it already.
            Some(Entry { kind: Kind::Incomplete, at, .. }) => (true, now.0 >= at),
            Some(_) => (false, false),
        };
        if waits {
            self.waiting.room(next).map_err(refusal)?;
        }
        if asks && !self.asking.take(now) {
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

    /// Asks, where that is to be done.
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
                let nobody = MacAddress::default();
                let request = Arp::of(Arp::REQUEST, (mac, source.to_be_bytes()), (nobody, target.octets()));
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

    fn send(&self, reason: usize, frame: &[u8], context: &mut Context<'_>) {
        if let Some(packet) = context.originate(reason, Gate::FIRST, self.flow) {
            packet.write(frame);
        }
    }

    /// Says that the interface has its addresses: gratuitous ARP (RFC 5227 section 2.3) and unsolicited advertisements
    /// (RFC 4861 section 7.2.6).
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

    /// Ages a few entries.
    #[cold]
    fn sweep(&mut self, now: Ticks) {
        self.sweep_at = now + self.sweep_every;
        self.interface.note(now);
        for _ in 0..SWEPT_GROUPS.min(self.interface.neighbours.groups()) {
            let gone = self.interface.neighbours.sweep(self.swept, now.0);
            self.counts[FORGOTTEN_COUNT].add(gone as u64);
            self.swept = self.swept.wrapping_add(1);
        }
    }

    /// Sees to one neighbour that is waited for or timed; whether it still is.
    fn look(&mut self, next: Address, context: &mut Context<'_>) -> bool {
        let now = context.now();
        let Some(mut entry) = self.interface.neighbours.look(next) else {
            return self.give_up(next, context);
        };
        if entry.kind.is_timed() && now.0 >= entry.at {
            match self.interface.neighbours.step(next, Event::Time, now.0) {
                Ok(changed) => {
                    entry = changed.entry;
                    self.act(next, &entry, changed.action, context);
                    if changed.action == Action::Remove {
                        return self.give_up(next, context);
                    }
                }
                // Another time.
                Err(Refused::Busy) => return true,
                Err(Refused::Full | Refused::Absent) => return self.give_up(next, context),
            }
        }
        if entry.kind == Kind::Failed {
            return self.give_up(next, context);
        }
        if entry.kind != Kind::Incomplete && self.waiting.waits(next) {
            self.counts[RESOLVED_COUNT].add(1);
            while let Some(key) = self.waiting.pop(next) {
                if let Some(packet) = context.held(key) {
                    address(packet, upper(entry.mac), self.interface.mac);
                }
                context.release(key, Gate::FIRST);
            }
            // It has been sent to.
            if let Ok(changed) = self.interface.neighbours.step(next, Event::Packet, now.0) {
                entry = changed.entry;
            }
        }
        if entry.kind.is_timed() {
            // The run does not wait for a probe that no packet waits for.
            if self.waiting.waits(next) {
                context.wake_at(Ticks(entry.at));
            } else {
                context.look_at(Ticks(entry.at));
            }
        }
        entry.kind.is_timed()
    }

    /// What waits for a neighbour will not leave by this way.
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
