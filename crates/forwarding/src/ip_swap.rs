//! Swaps source and destination of IP and of the transport above: turns a packet into its answer, like an echo server.
//!
//! In test beds, this function replaces the remote hosts for functions that need both directions of a session. A NAT,
//! for example, chooses the outside port when the first packet comes, so a generator does not know the destination of
//! answers.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::ipv4::{DCCP, SCTP, TCP, UDP, UDP_LITE};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::{Network, Packet};
use forebay_tables::plain::Plain;
use schemars::JsonSchema;
use serde::Deserialize;

/// `ip_swap` has no parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

const NOT_IP: Gate = Gate::drop(0);

/// The network function `ip_swap`.
pub struct IpSwap;

impl Declare for IpSwap {
    type Params = Params;
    const NAME: &'static str = "ip_swap";
    const SUMMARY: &'static str = "swaps source and destination addresses and ports: turns a packet into a reply";
    const HELP: &'static str = "\
        The addresses of IPv4 or IPv6 are swapped. The ports of TCP, UDP, UDP-Lite, SCTP and DCCP are swapped, too, if \
        they can be read. Fragments after the first have no ports: only their addresses are swapped. Checksums need no \
        change, because they add up the same words as before. The integrity check of an authentication header (RFC \
        4302) covers the addresses, and is wrong afterwards. Everything else stays: Ethernet addresses (`mac_swap` \
        swaps them), TCP's flags and numbers, an ICMP message's type. In a test bed, the module can replace the remote \
        hosts of the sessions. Headers are found behind up to four VLAN tags.";
    const EXAMPLE: &'static str = "{}";
    const DROPS: &'static [Reason] =
        &[Reason { name: "not_ip", help: "The frame carries neither an IPv4 nor an IPv6 header." }];
    const STATE: StateKind = StateKind::None;

    fn new(_: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

impl Function for IpSwap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        context.filter(batch, swap_plain, swap);
    }
}

/// Swaps the fields of a plain IPv4 packet, the usual case. Returns false, and changes nothing, for all other packets.
#[inline]
fn swap_plain(packet: &mut Packet) -> bool {
    let Some(plain) = Plain::of_mut(packet) else { return false };
    std::mem::swap(&mut plain.ip.source, &mut plain.ip.destination);
    std::mem::swap(&mut plain.source, &mut plain.destination);
    true
}

/// Swaps the fields of a packet that is not plain IPv4, and returns its gate.
fn swap(packet: &mut Packet) -> Gate {
    let (network, start) = packet.network();
    let ports = match network {
        Network::Ipv4 => {
            let Some(header) = packet.ipv4() else { return NOT_IP };
            std::mem::swap(&mut header.source, &mut header.destination);
            let shows = header.fragment_offset() == 0 && has_ports(header.protocol);
            let end = start + usize::from(header.total_length.get());
            header.header_len().filter(|_| shows).map(|length| (start + length, end))
        }
        Network::Ipv6 => {
            let Some(header) = packet.ipv6() else { return NOT_IP };
            std::mem::swap(&mut header.source, &mut header.destination);
            let end = start + size_of::<Ipv6>() + usize::from(header.payload_length.get());
            let upper = ipv6::upper_layer(packet.data(), start);
            upper.filter(|(protocol, _)| has_ports(*protocol)).map(|(_, at)| (at, end))
        }
        Network::Other => return NOT_IP,
    };
    // Bytes after the end of the packet are padding.
    if let Some((at, end)) = ports
        && at + 4 <= end
        && let Some([source, destination]) = packet.view_mut::<[[u8; 2]; 2]>(at)
    {
        std::mem::swap(source, destination);
    }
    Gate::FIRST
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | UDP_LITE | SCTP | DCCP)
}

register!(IpSwap);

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use forebay_graph::Rig;
    use serde_json::json;

    use super::*;

    fn rig() -> Rig {
        Rig::of::<IpSwap>(&json!({})).expect("no parameters")
    }

    fn v4(source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source.0, destination.0, 64);
        builder.udp(source.1, destination.1).write(&mut frame, b"payload").expect("memory");
        frame
    }

    #[test]
    fn an_answer_equals_a_packet_from_the_other_side() {
        let (near, remote) = (([10, 0, 0, 1], 1_000), ([192, 0, 2, 1], 53));
        assert_eq!(rig().run(&v4(near, remote)), (Gate::FIRST, v4(remote, near)), "including the checksums");
        let tcp = |source, destination, ports: (u16, u16)| {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(7.try_into().expect("a VLAN"));
            let builder = builder.ipv6(source, destination, 64).tcp(ports.0, ports.1, 9, 100);
            builder.write(&mut frame, b"x").expect("memory");
            frame
        };
        assert_eq!(rig().run(&tcp([1; 16], [2; 16], (5, 6))), (Gate::FIRST, tcp([2; 16], [1; 16], (6, 5))));
    }

    #[test]
    fn packets_without_ports_keep_their_payload() {
        let mut later = v4(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2));
        later[20] |= 0x20;
        later[21] = 5;
        let (gate, after) = rig().run(&later);
        assert_eq!((gate, &after[26..34], &after[34..]), (Gate::FIRST, &[10, 0, 0, 2, 10, 0, 0, 1][..], &later[34..]));
        let mut echo = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 9).icmpv4_echo_request(1, 2);
        builder.write(&mut echo, b"").expect("memory");
        assert_eq!(rig().run(&echo).1[34..], echo[34..]);
        // A packet that ends before its ports, followed by padding.
        let mut short = v4(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2));
        short[17] = 22;
        assert_eq!(rig().run(&short).1[34..], short[34..]);
    }

    #[test]
    fn options_and_extension_headers_are_looked_through() {
        let plain = v4(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2));
        let mut options = plain.clone();
        options[14] = 0x46;
        options[17] += 4;
        options.splice(34..34, [1, 1, 1, 1]);
        let after = rig().run(&options).1;
        assert_eq!(after[38..42], [0, 2, 0, 1]);
        assert_eq!(after[34..38], [1; 4]);
        let sliced = SlicedPacket::from_ethernet(&after).expect("well-formed");
        assert!(matches!(sliced.transport, Some(TransportSlice::Udp(udp)) if udp.source_port() == 2));
    }

    #[test]
    fn frames_that_are_not_ip_are_dropped() {
        assert_eq!(rig().run(&[0xff; 60]).0, NOT_IP);
        assert_eq!(rig().run(&[]).0, NOT_IP);
    }
}
