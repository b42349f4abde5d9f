//! Handles incoming IPv6 neighbour discovery (RFC 4861 sections 7.1 and 7.2).

use forebay_graph::Gate;
use forebay_packet::{
    Packet,
    host_address::may_be_host_v6,
    wire::{
        ethernet::Ethernet,
        icmp::{self, ICMPV6, Icmp},
        ipv6::Ipv6,
        neighbour::{
            ADVERTISEMENT, HOP_LIMIT, Neighbour, OVERRIDE, REDIRECT, ROUTER, ROUTER_SOLICITATION, SOLICITATION,
            SOLICITED, Said,
        },
    },
};
use forebay_units::Ticks;

use super::{
    ANSWERED, ANSWERS_LIMITED, BAD_CHECKSUM, BAD_HOP_LIMIT, CONFLICT, DEFENDED, InterfaceIn, LOCAL, MALFORMED,
    NEIGHBOUR,
};
use crate::interface::echo;
use crate::interface::entry::Event;
use crate::interface::frames::{self, ALL_NODES};
use crate::interface::neighbours::Address;

impl InterfaceIn {
    /// Returns the gate of a neighbour discovery message; `None` for every other packet. Messages behind extension
    /// headers are not recognized: no host sends such messages, and fragmented messages must be ignored (RFC 6980).
    pub(super) fn discovery(&mut self, packet: &mut Packet, start: usize, header: &Ipv6, now: Ticks) -> Option<Gate> {
        if header.next_header != ICMPV6 {
            return None;
        }
        let at = start + size_of::<Ipv6>();
        let Icmp { kind, .. } = echo::message(packet, at)?;
        if !(ROUTER_SOLICITATION..=REDIRECT).contains(&kind) {
            return None;
        }
        // Sections 6.1, 7.1 and 8.1: this applies to all five types.
        if header.hop_limit != HOP_LIMIT {
            return Some(BAD_HOP_LIMIT);
        }
        let end = at + usize::from(header.payload_length.get());
        let Some(bytes) = packet.data().get(at..end) else { return Some(MALFORMED) };
        if icmp::sum_over_ipv6(header, bytes) != 0xffff {
            return Some(BAD_CHECKSUM);
        }
        if kind != SOLICITATION && kind != ADVERTISEMENT {
            return Some(LOCAL);
        }
        let Some(message) = Neighbour::parse(bytes) else { return Some(MALFORMED) };
        Some(if kind == SOLICITATION {
            self.solicited(packet, header, &message, now)
        } else {
            self.advertised(packet, header, &message, now)
        })
    }

    /// Handles a solicitation (section 7.2.3): learns its sender, and answers it if the target is an own address.
    /// Returns its gate.
    fn solicited(&mut self, packet: &mut Packet, header: &Ipv6, message: &Said, now: Ticks) -> Gate {
        let (source, destination) = (u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination));
        let target = u128::from_be_bytes(message.target);
        let unspecified = source == 0;
        // RFC 4291 sections 2.5.3 and 2.5.5: no node on a link has a loopback, IPv4-mapped or IPv4-compatible address.
        if !may_be_host_v6(target) || !unspecified && !may_be_host_v6(source) {
            return MALFORMED;
        }
        // Section 7.1.1: a node without an address sends the request to a multicast group, without its Ethernet
        // address.
        if unspecified && (message.link_layer.is_some() || destination >> 120 != 0xff) {
            return MALFORMED;
        }
        if !self.interface.has_v6(target) {
            return NEIGHBOUR;
        }
        if !self.interface.has_v6(destination) && !self.interface.is_solicited(destination) {
            return MALFORMED;
        }
        let Some(ethernet) = packet.view::<Ethernet>(0) else { return MALFORMED };
        let asker = message.link_layer.unwrap_or(ethernet.source);
        if asker.0[0] & 1 == 1 || self.interface.has_v6(source) {
            return MALFORMED;
        }
        let Some(neighbour) = Address::v6(source) else { return MALFORMED };
        if !unspecified && message.link_layer.is_some() && self.interface.connects_v6(source) {
            self.learn(neighbour, Event::Asked(asker), now);
        }
        if !self.answers.take(now) {
            return ANSWERS_LIMITED;
        }
        let (mac, own) = (self.interface.mac, message.target);
        // Section 7.2.4: the answer to a node without an address goes to all nodes.
        let (to, to_mac, flags) = if unspecified {
            (ALL_NODES, frames::multicast_v6(ALL_NODES), ROUTER | OVERRIDE)
        } else {
            (header.source, asker, ROUTER | SOLICITED | OVERRIDE)
        };
        let frame = frames::neighbour(to_mac, mac, own, to, Neighbour::advertisement(flags, own, mac));
        self.reply(packet, &frame, ANSWERED)
    }

    /// Handles an advertisement (section 7.2.5): learns its sender, and defends an own address. Returns its gate.
    fn advertised(&mut self, packet: &mut Packet, header: &Ipv6, message: &Said, now: Ticks) -> Gate {
        let solicited = message.flags & SOLICITED != 0;
        // Section 7.1.2.
        if solicited && header.destination[0] == 0xff || message.link_layer.is_some_and(|mac| mac.0[0] & 1 == 1) {
            return MALFORMED;
        }
        let target = u128::from_be_bytes(message.target);
        // As for a solicitation, the target must be an address that a node can have: RFC 4291 sections 2.5.3 and 2.5.5;
        // RFC 4038 section 4.2.
        let Some(neighbour) = Address::v6(target).filter(|_| may_be_host_v6(target)) else { return MALFORMED };
        if self.interface.has_v6(target) {
            if message.link_layer == Some(self.interface.mac) {
                return NEIGHBOUR;
            }
            if !self.may_defend(now) {
                return CONFLICT;
            }
            // Section 7.2.6: an unsolicited advertisement to all nodes.
            let mac = self.interface.mac;
            let reply = Neighbour::advertisement(ROUTER | OVERRIDE, message.target, mac);
            let frame = frames::neighbour(frames::multicast_v6(ALL_NODES), mac, message.target, ALL_NODES, reply);
            return self.reply(packet, &frame, DEFENDED);
        }
        let overrides = message.flags & OVERRIDE != 0;
        let event = if solicited {
            Event::Answered(message.link_layer, overrides)
        } else {
            Event::Announced(message.link_layer, overrides)
        };
        self.learn(neighbour, event, now);
        self.reply_gate()
    }
}
