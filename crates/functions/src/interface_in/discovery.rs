//! IPv6 neighbour discovery as it comes in (RFC 4861 sections 7.1 and 7.2).

use forebay_graph::Gate;
use forebay_packet::host_address::may_be_host_v6;
use forebay_packet::wire::ethernet::Ethernet;
use forebay_packet::wire::icmp::{self, ICMPV6, Icmp};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::neighbour::{
    ADVERTISEMENT, HOP_LIMIT, Neighbour, OVERRIDE, REDIRECT, ROUTER, ROUTER_SOLICITATION, SOLICITATION, SOLICITED, Said,
};
use forebay_packet::{Packet, Ticks};

use super::{
    ANSWERED, ANSWERS_LIMITED, BAD_CHECKSUM, BAD_HOP_LIMIT, CONFLICT, DEFENDED, InterfaceIn, LOCAL, MALFORMED,
    NEIGHBOUR,
};
use crate::interface::echo;
use crate::interface::entry::Event;
use crate::interface::frames::{self, ALL_NODES};
use crate::interface::neighbours::Address;

impl InterfaceIn {
    /// Where a neighbour discovery message goes; `None` for every other packet. One with extension headers is not looked for:
    /// nobody makes such, and one in fragments must be ignored (RFC 6980).
    pub(super) fn discovery(&mut self, packet: &mut Packet, start: usize, header: &Ipv6, now: Ticks) -> Option<Gate> {
        if header.next_header != ICMPV6 {
            return None;
        }
        let at = start + size_of::<Ipv6>();
        let Icmp { kind, .. } = echo::message(packet, at)?;
        if !(ROUTER_SOLICITATION..=REDIRECT).contains(&kind) {
            return None;
        }
        // Sections 6.1, 7.1 and 8.1: all five.
        if header.hop_limit != HOP_LIMIT {
            return Some(BAD_HOP_LIMIT);
        }
        let end = at + usize::from(header.payload_length.get());
        let Some(message) = packet.data().get(at..end) else { return Some(MALFORMED) };
        if icmp::sum_over_ipv6(header, message) != 0xffff {
            return Some(BAD_CHECKSUM);
        }
        if kind != SOLICITATION && kind != ADVERTISEMENT {
            return Some(LOCAL);
        }
        let Some(said) = Neighbour::parse(message) else { return Some(MALFORMED) };
        Some(if kind == SOLICITATION {
            self.solicited(packet, header, &said, now)
        } else {
            self.advertised(packet, header, &said, now)
        })
    }

    /// Section 7.2.3.
    fn solicited(&mut self, packet: &mut Packet, header: &Ipv6, said: &Said, now: Ticks) -> Gate {
        let (source, destination) = (u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination));
        let target = u128::from_be_bytes(said.target);
        let unspecified = source == 0;
        // RFC 4291 sections 2.5.3 and 2.5.5: loopback, IPv4-mapped and IPv4-compatible addresses are no node's on a
        // link.
        if !may_be_host_v6(target) || !unspecified && !may_be_host_v6(source) {
            return MALFORMED;
        }
        // Section 7.1.1: who has no address asks all who may have it, and cannot say where it is.
        if unspecified && (said.link_layer.is_some() || destination >> 120 != 0xff) {
            return MALFORMED;
        }
        if !self.interface.has_v6(target) {
            return NEIGHBOUR;
        }
        if !self.interface.has_v6(destination) && !self.interface.is_solicited(destination) {
            return MALFORMED;
        }
        let Some(ethernet) = packet.view::<Ethernet>(0) else { return MALFORMED };
        let asker = said.link_layer.unwrap_or(ethernet.source);
        if asker.0[0] & 1 == 1 || self.interface.has_v6(source) {
            return MALFORMED;
        }
        let Some(neighbour) = Address::v6(source) else { return MALFORMED };
        if !unspecified && said.link_layer.is_some() && self.interface.connects_v6(source) {
            self.learn(neighbour, Event::Asked(asker), now);
        }
        if !self.answers.take(now) {
            return ANSWERS_LIMITED;
        }
        let (mac, own) = (self.interface.mac, said.target);
        // Section 7.2.4: who has no address yet is told with all others.
        let (to, to_mac, flags) = if unspecified {
            (ALL_NODES, frames::multicast_v6(ALL_NODES), ROUTER | OVERRIDE)
        } else {
            (header.source, asker, ROUTER | SOLICITED | OVERRIDE)
        };
        let frame = frames::neighbour(to_mac, mac, own, to, Neighbour::advertisement(flags, own, mac));
        self.reply(packet, &frame, ANSWERED)
    }

    /// Section 7.2.5.
    fn advertised(&mut self, packet: &mut Packet, header: &Ipv6, said: &Said, now: Ticks) -> Gate {
        let solicited = said.flags & SOLICITED != 0;
        // Section 7.1.2.
        if solicited && header.destination[0] == 0xff || said.link_layer.is_some_and(|mac| mac.0[0] & 1 == 1) {
            return MALFORMED;
        }
        let target = u128::from_be_bytes(said.target);
        // As of a solicitation: RFC 4291 sections 2.5.3 and 2.5.5; RFC 4038 section 4.2.
        let Some(neighbour) = Address::v6(target).filter(|_| may_be_host_v6(target)) else { return MALFORMED };
        if self.interface.has_v6(target) {
            if said.link_layer == Some(self.interface.mac) {
                return NEIGHBOUR;
            }
            if !self.may_defend(now) {
                return CONFLICT;
            }
            // Section 7.2.6: an unsolicited advertisement to all nodes.
            let mac = self.interface.mac;
            let message = Neighbour::advertisement(ROUTER | OVERRIDE, said.target, mac);
            let frame = frames::neighbour(frames::multicast_v6(ALL_NODES), mac, said.target, ALL_NODES, message);
            return self.reply(packet, &frame, DEFENDED);
        }
        let overrides = said.flags & OVERRIDE != 0;
        let event = if solicited {
            Event::Answered(said.link_layer, overrides)
        } else {
            Event::Told(said.link_layer, overrides)
        };
        self.learn(neighbour, event, now);
        self.heard()
    }
}
