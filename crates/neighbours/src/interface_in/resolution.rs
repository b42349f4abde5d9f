//! Handles incoming ARP (RFC 826; RFC 5227 for conflicts).

use forebay_graph::Gate;
use forebay_packet::{
    Packet,
    host_address::may_be_host_v4,
    wire::{
        arp::Arp,
        ethernet::{Ethernet, MacAddress},
    },
};
use forebay_units::Ticks;

use super::{
    ANSWERED, ANSWERS_LIMITED, CONFLICT, CONFLICTS, DEFENDED, EVICTED, InterfaceIn, LEARNT, MALFORMED, NEIGHBOUR,
    NO_ROOM, REPLY, TOO_LONG,
};
use crate::interface::entry::Event;
use crate::interface::frames;
use crate::interface::neighbours::{Address, Refused};

/// `DEFEND_INTERVAL` of RFC 5227 section 1.1.
const DEFEND_INTERVAL: forebay_units::Nanos = forebay_units::Nanos(10_000_000_000);

impl InterfaceIn {
    /// Handles an ARP message, and returns its gate. Learns the sender. Turns a request for an own address into the
    /// answer to the request.
    pub(super) fn arp(&mut self, packet: &mut Packet, now: Ticks) -> Gate {
        let bytes = packet.data().get(size_of::<Ethernet>()..).unwrap_or_default();
        let Some(&arp) = Arp::parse(bytes) else { return MALFORMED };
        let (sender, target) = (u32::from_be_bytes(arp.sender), u32::from_be_bytes(arp.target));
        // 0.0.0.0 is the sender of a probe (RFC 5227 section 1.1). Other addresses of the networks 0 and 127, group
        // addresses and broadcast addresses are not addresses of stations (RFC 1122 section 3.2.1.3).
        let no_host = sender != 0 && (!may_be_host_v4(sender) || self.interface.is_broadcast(sender));
        if arp.sender_mac.0[0] & 1 == 1 || arp.sender_mac == MacAddress::default() || no_host {
            return MALFORMED;
        }
        if self.interface.has_v4(sender) {
            // An own frame that a switch has sent back is not a conflict.
            return if arp.sender_mac == self.interface.mac { NEIGHBOUR } else { self.defend_v4(packet, sender, now) };
        }
        let is_request = arp.operation.get() == Arp::REQUEST;
        let for_us = self.interface.has_v4(target);
        // A station that probes whether an address is free has no address yet (RFC 5227 section 1.1).
        if sender != 0 && self.interface.connects_v4(sender) {
            let event = match (is_request, for_us) {
                (true, true) => Event::Asked(arp.sender_mac),
                (false, true) => Event::Answered(Some(arp.sender_mac), true),
                _ => Event::Announced(Some(arp.sender_mac), true),
            };
            self.learn(Address::v4(sender), event, now);
        }
        if !(is_request && for_us) {
            return if arp.operation.get() == Arp::REPLY { self.reply_gate() } else { NEIGHBOUR };
        }
        if !self.answers.take(now) {
            return ANSWERS_LIMITED;
        }
        let mac = self.interface.mac;
        let answer = Arp::of(Arp::REPLY, (mac, arp.target), (arp.sender_mac, arp.sender));
        self.reply(packet, &frames::arp(arp.sender_mac, mac, &answer), ANSWERED)
    }

    /// Handles a packet of another station that uses an own address: turns it into an announcement of the address,
    /// within the rate limit.
    fn defend_v4(&mut self, packet: &mut Packet, address: u32, now: Ticks) -> Gate {
        if !self.may_defend(now) {
            return CONFLICT;
        }
        let mac = self.interface.mac;
        // An announcement is a request for the own address (RFC 5227 section 3).
        let own = address.to_be_bytes();
        let announcement = Arp::of(Arp::REQUEST, (mac, own), (MacAddress::default(), own));
        self.reply(packet, &frames::arp(frames::BROADCAST, mac, &announcement), DEFENDED)
    }

    /// Counts a conflict. Returns true if the address may be defended now; the caller must then defend it.
    pub(super) fn may_defend(&mut self, now: Ticks) -> bool {
        self.counts[CONFLICTS].add(1);
        let interval = self.interface.ticks(DEFEND_INTERVAL).0;
        let may = self.defended.is_none_or(|last| now.0.saturating_sub(last) >= interval);
        if may {
            self.defended = Some(now.0);
        }
        may
    }

    /// Replaces the packet's content by `frame`, and counts the reply in the counter `count`. Returns [`REPLY`], or
    /// [`TOO_LONG`] if the frame does not fit into the packet's chunk.
    pub(super) fn reply(&mut self, packet: &mut Packet, frame: &[u8], count: usize) -> Gate {
        if !packet.write(frame) {
            return TOO_LONG;
        }
        self.counts[count].add(1);
        REPLY
    }

    /// Updates a neighbour's entry. Only a request to us adds a new entry. Unexpected answers and announcements change
    /// only existing entries (RFC 826, merge flag; RFC 4861 section 7.2.5).
    pub(super) fn learn(&mut self, address: Address, event: Event, now: Ticks) {
        let neighbours = &self.interface.neighbours;
        let changed = match event {
            Event::Asked(_) => neighbours.step_or_make(address, event, now.0),
            // No request was sent to the neighbour, so this is not an answer.
            Event::Answered(mac, overrides) if !neighbours.look(address).is_some_and(|it| it.state.is_asked()) => {
                neighbours.step(address, Event::Announced(mac, overrides), now.0)
            }
            _ => neighbours.step(address, event, now.0),
        };
        match changed {
            Ok(changed) => {
                self.counts[LEARNT].add(1);
                self.counts[EVICTED].add(u64::from(changed.evicted));
            }
            Err(Refused::Full) => self.counts[NO_ROOM].add(1),
            Err(Refused::Busy | Refused::Absent) => {}
        }
    }
}
