//! Checks IPv4 and IPv6 headers, so that later functions can trust them.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::checksum;
use forebay_packet::wire::ethernet::{EtherType, Ethernet, VlanTag};
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{MOST_TAGS, Network, Packet};
use forebay_tables::martian::Martians;
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::FromBytes;

/// Parameters of `ip_validate`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Drops (`drop`, the default) or passes (`pass`) packets that no router forwards because of their source or
    /// destination address.
    #[serde(default)]
    martians: Martians,
    /// Drops (`drop`, the default) or passes (`pass`) packets that are short only because a capture cut them
    /// (`snaplen`). Without the cut, such a packet would be as long as its header states.
    #[serde(default)]
    cut: Cut,
}

/// The action for packets that a capture cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// They are dropped as `truncated`.
    #[default]
    Drop,
    /// They pass if their IP header is complete and valid.
    Pass,
}

const BAD_CHECKSUM: Gate = Gate::drop(0);
const BAD_HEADER: Gate = Gate::drop(1);
const TRUNCATED: Gate = Gate::drop(2);
const NOT_IP: Gate = Gate::drop(3);
const MARTIAN: Gate = Gate::drop(4);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "bad_checksum", help: "The IPv4 header's checksum is wrong." },
    Reason {
        name: "bad_header",
        help: "The version contradicts the EtherType, or a length is less than that of the header.",
    },
    Reason { name: "truncated", help: "The frame ends before the header or the packet that the header announces." },
    Reason { name: "not_ip", help: "The frame's EtherType, behind up to four VLAN tags, is neither IPv4 nor IPv6." },
    Reason {
        name: "martian",
        help: "No router forwards the source or destination address (RFC 1812 section 5.3.7, RFC 4291).",
    },
];

/// The network function `ip_validate`.
pub struct IpValidate {
    martians: Martians,
    cut: Cut,
}

impl Declare for IpValidate {
    type Params = Params;
    const NAME: &'static str = "ip_validate";
    const SUMMARY: &'static str = "drops packets with an invalid IPv4 or IPv6 header";
    const HELP: &'static str = "\
        An IPv4 header is valid (RFC 1812 section 5.2.2) if the frame holds at least 20 bytes of it, the version is 4, \
        the header length is at least 5 words, the total length is at least the header length and not more than the \
        frame holds, and the checksum over header and options is correct. An IPv6 header is valid (RFC 8200 section 3) \
        if it is complete, the version is 6, and the frame holds as many bytes as the payload length states. A payload \
        length of 0 means no payload. A jumbogram (a payload length of 0 before hop-by-hop options, RFC 2675) is \
        dropped as `truncated`, because no frame is that long. If a packet has several faults, the drop reason is the \
        first of `bad_header`, `truncated` and `bad_checksum`. Bytes after the packet, such as the padding of short \
        frames, are allowed and stay. With `cut: pass`, a packet that is short only because a capture cut it passes if \
        its IP header is complete and valid. With `martians: drop` (the default), packets with martian addresses are \
        dropped. In IPv4 these are a source in 0.0.0.0/8, 127.0.0.0/8 or from 224.0.0.0 on, and a destination in \
        0.0.0.0/8, 127.0.0.0/8 or 240.0.0.0/4 except 255.255.255.255 (RFC 1812 section 5.3.7). In IPv6 these are a \
        multicast source, a source or destination that is ::, ::1, IPv4-mapped or IPv4-compatible, and a destination \
        that is a group of scope 0 or 1 (RFC 4291 sections 2.5.2, 2.5.3, 2.5.5 and 2.7). A source of 0.0.0.0 or :: \
        passes if the destination is a link-local group or 255.255.255.255, as in DHCP and duplicate address \
        detection. `interface_in` checks the router's own addresses, broadcast addresses and link-local addresses.";
    const EXAMPLE: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self { martians: params.martians, cut: params.cut })
    }
}

/// Checks a packet that is not plain IPv4. Returns true if it is valid. If it is invalid, [`fault`] returns the reason.
fn is_valid(packet: &mut Packet) -> bool {
    let (network, start) = packet.network();
    let Some(bytes) = packet.data().get(start..) else { return false };
    match network {
        Network::Ipv4 => Ipv4::is_valid(bytes),
        Network::Ipv6 => Ipv6::ref_from_prefix(bytes).is_ok_and(|(header, rest)| {
            usize::from(header.payload_length.get()) <= rest.len() && !header.is_jumbogram()
        }),
        Network::Other => false,
    }
}

/// Returns true if a packet is valid except for bytes that a capture cut off: its IP header, with its options, is
/// complete, and the length in it is not greater than the length on the wire.
#[cold]
fn is_valid_but_cut(packet: &mut Packet) -> bool {
    let missing = packet.missing() as usize;
    let (network, start) = packet.network();
    let Some(bytes) = packet.data().get(start..).filter(|_| missing > 0) else { return false };
    match network {
        Network::Ipv4 => Ipv4::ref_from_prefix(bytes).is_ok_and(|(header, _)| {
            let length = header.header_len().filter(|_| header.version_ihl >> 4 == 4);
            let head = length.and_then(|length| bytes.get(..length));
            head.is_some_and(|head| {
                (head.len()..=bytes.len() + missing).contains(&usize::from(header.total_length.get()))
                    && checksum::sum(head) == 0xffff
            })
        }),
        Network::Ipv6 => Ipv6::ref_from_prefix(bytes).is_ok_and(|(header, rest)| {
            usize::from(header.payload_length.get()) <= rest.len() + missing && !header.is_jumbogram()
        }),
        Network::Other => false,
    }
}

/// Returns the drop gate of an invalid frame. Must not be called for a valid one. The `missing` bytes that a capture
/// cut off are not a fault.
#[cold]
fn fault(frame: &[u8], missing: usize) -> Gate {
    let Ok((ethernet, mut rest)) = Ethernet::ref_from_prefix(frame) else { return NOT_IP };
    let mut ether_type = ethernet.ether_type.get();
    for _ in 0..MOST_TAGS {
        if EtherType::is_vlan(ether_type) {
            let Ok((tag, after)) = VlanTag::ref_from_prefix(rest) else { return NOT_IP };
            (ether_type, rest) = (tag.ether_type.get(), after);
        }
    }
    let (version, fixed) = match ether_type {
        EtherType::IPV4 => (4, size_of::<Ipv4>()),
        EtherType::IPV6 => (6, size_of::<Ipv6>()),
        _ => return NOT_IP,
    };
    if rest.first().is_some_and(|byte| byte >> 4 != version) {
        return BAD_HEADER;
    }
    if rest.len() < fixed || version == 6 {
        return TRUNCATED;
    }
    let Ok((header, _)) = Ipv4::ref_from_prefix(rest) else { return TRUNCATED };
    let total = usize::from(header.total_length.get());
    match header.header_len() {
        None => BAD_HEADER,
        Some(length) if total < length => BAD_HEADER,
        Some(length) if total > rest.len() + missing || length > rest.len() => TRUNCATED,
        Some(_) => BAD_CHECKSUM,
    }
}

impl Function for IpValidate {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { martians, cut } = *self;
        let marked = martians.marked();
        context.filter(
            batch,
            |packet| packet.is_plain_ipv4(marked),
            |packet| {
                if !is_valid(packet) && (cut == Cut::Drop || !is_valid_but_cut(packet)) {
                    let missing = if cut == Cut::Pass { packet.missing() } else { 0 };
                    fault(packet.data(), missing as usize)
                } else if martians.refuses(packet) {
                    MARTIAN
                } else {
                    Gate::FIRST
                }
            },
        );
    }
}

register!(IpValidate);

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, PacketBuilder};
    use forebay_graph::Rig;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rig() -> Rig {
        Rig::of::<IpValidate>(&json!({})).expect("no parameters")
    }

    fn ipv4() -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
        builder.write(&mut frame, b"payload!").expect("memory");
        frame
    }

    fn ipv6() -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6([1; 16], [2; 16], 64)
            .udp(1, 2)
            .write(&mut frame, b"payload!")
            .expect("memory");
        frame
    }

    /// Returns the frame with one byte replaced. If `header` is not 0, the checksum of a header of this number of bytes
    /// is corrected.
    fn with(mut frame: Vec<u8>, at: usize, value: u8, header: usize) -> Vec<u8> {
        frame[at] = value;
        if header > 0 {
            frame[24..26].fill(0);
            let sum = !checksum::sum(&frame[14..14 + header]);
            frame[24..26].copy_from_slice(&sum.to_ne_bytes());
        }
        frame
    }

    fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
        [&frame[..12], &[0x81, 0x00, 0x00, 0x05].repeat(tags), &frame[12..]].concat()
    }

    #[test]
    fn valid_packets_pass_with_their_padding() {
        let mut rig = rig();
        for frame in [
            ipv4(),
            ipv6(),
            tagged(&ipv4(), 1),
            tagged(&ipv6(), 2),
            tagged(&ipv6(), 4),
            [ipv4(), vec![0; 10]].concat(),
            [ipv6(), vec![9; 3]].concat(),
        ] {
            assert_eq!(rig.run(&frame), (Gate::FIRST, frame));
        }
        // With options: the header has six words, and the last word was the start of the UDP header.
        assert_eq!(rig.run(&with(ipv4(), 14, 0x46, 24)).0, Gate::FIRST);
    }

    #[test]
    fn each_fault_has_its_drop_reason() {
        let mut rig = rig();
        let cases = [
            (with(ipv4(), 24, ipv4()[24] ^ 1, 0), BAD_CHECKSUM, "checksum"),
            (with(ipv4(), 14, 0x46, 20), BAD_CHECKSUM, "checksum without the options"),
            (with(ipv4(), 14, 0x65, 20), BAD_HEADER, "version 6 under the type of IPv4"),
            (with(ipv6(), 14, 0x45, 0), BAD_HEADER, "version 4 under the type of IPv6"),
            (with(ipv4(), 14, 0x44, 20), BAD_HEADER, "four words"),
            (with(ipv4(), 17, 19, 20), BAD_HEADER, "total length below the header's"),
            (with(with(ipv4(), 17, 23, 0), 14, 0x46, 24), BAD_HEADER, "total length below the header's with options"),
            (with(ipv4(), 17, 37, 20), TRUNCATED, "one byte is missing"),
            (with(ipv4(), 14, 0x4f, 20), BAD_HEADER, "options beyond the total length"),
            (with(with(ipv4(), 17, 60, 0), 14, 0x4f, 20), TRUNCATED, "options beyond the frame"),
            (ipv4()[..33].to_vec(), TRUNCATED, "a cut header"),
            (ipv4()[..14].to_vec(), TRUNCATED, "no header"),
            (ipv6()[..53].to_vec(), TRUNCATED, "a cut IPv6 header"),
            (ipv6()[..69].to_vec(), TRUNCATED, "a cut IPv6 payload"),
            (with(ipv4(), 13, 6, 0), NOT_IP, "ARP"),
            (tagged(&ipv4(), 5), NOT_IP, "a fifth tag"),
            (
                [&ipv6()[..18], &[0, 0, 0, 64], &ipv6()[22..54], &[17, 0, 0xc2, 4, 0, 1, 0, 0], &[0; 8]].concat(),
                TRUNCATED,
                "a jumbogram",
            ),
            (tagged(&ipv4(), 1)[..17].to_vec(), NOT_IP, "a cut tag"),
            (vec![0; 13], NOT_IP, "a cut Ethernet header"),
        ];
        for (frame, gate, what) in cases {
            assert_eq!(rig.run(&frame), (gate, frame), "{what}");
        }
    }

    #[test]
    fn packets_that_only_a_capture_cut_pass_if_configured() {
        let mut strict = rig();
        let mut open = Rig::of::<IpValidate>(&json!({ "cut": "pass" })).expect("valid parameters");
        let run = |rig: &mut Rig, frame: &[u8], missing: u32| {
            let mut packet = rig.packet(frame);
            packet.set_missing(missing);
            let mut batch = forebay_packet::Batch::with_capacity(1);
            batch.push(packet).expect("room");
            rig.process(&mut batch)[0]
        };
        let options = with(with(ipv4(), 14, 0x46, 0), 17, 36, 24);
        for (frame, headers) in [(ipv4(), 34), (ipv6(), 54), (tagged(&ipv4(), 2), 42), (options, 38)] {
            for kept in 0..frame.len() {
                let missing = (frame.len() - kept) as u32;
                let passes = kept >= headers;
                let gate = run(&mut open, &frame[..kept], missing);
                assert_eq!(gate == Some(Gate::FIRST), passes, "{kept} bytes kept");
                assert_ne!(run(&mut strict, &frame[..kept], missing), Some(Gate::FIRST));
                // The packet was not cut by the capture, or the capture cut fewer bytes than the packet lacks.
                assert_ne!(run(&mut open, &frame[..kept], 0), Some(Gate::FIRST));
                assert_ne!(run(&mut open, &frame[..kept], missing - 1), Some(Gate::FIRST));
            }
        }
        // Other faults are still detected.
        let wrong = with(ipv4(), 24, ipv4()[24] ^ 1, 0);
        assert_eq!(run(&mut open, &wrong[..40], 10), Some(BAD_CHECKSUM));
        assert_eq!(run(&mut strict, &wrong[..40], 10), Some(TRUNCATED));
        assert_eq!(run(&mut open, &with(ipv4(), 14, 0x65, 20)[..40], 10), Some(BAD_HEADER));
        let mut martian = with(ipv4(), 26, 127, 20);
        martian.truncate(40);
        assert_eq!(run(&mut open, &martian, 10), Some(MARTIAN));
    }

    #[test]
    fn martians_are_dropped_unless_configured_to_pass() {
        let v4 = |source: [u8; 4], destination: [u8; 4]| {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64).udp(1, 2);
            builder.write(&mut frame, b"payload!").expect("memory");
            frame
        };
        let v6 = |source: &str, destination: &str| {
            let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(octets(source), octets(destination), 64);
            builder.udp(1, 2).write(&mut frame, b"payload!").expect("memory");
            frame
        };
        let host = [198, 51, 100, 9];
        let mut strict = rig();
        let mut open = Rig::of::<IpValidate>(&json!({ "martians": "pass" })).expect("valid parameters");
        for martian in [
            v4([0, 1, 2, 3], host),
            v4([0; 4], host),
            v4([127, 0, 0, 1], host),
            v4([224, 0, 0, 5], host),
            v4([255; 4], host),
            v4(host, [127, 0, 0, 1]),
            v4(host, [0; 4]),
            v4(host, [240, 0, 0, 1]),
            v6("::", "2001:db8::9"),
            v6("::1", "2001:db8::9"),
            v6("ff02::1", "2001:db8::9"),
            v6("::ffff:192.0.2.1", "2001:db8::9"),
            v6("2001:db8::9", "::1"),
            v6("2001:db8::9", "::ffff:192.0.2.1"),
        ] {
            for frame in [martian.clone(), tagged(&martian, 1)] {
                assert_eq!(strict.run(&frame), (MARTIAN, frame.clone()), "{frame:02x?}");
                assert_eq!(open.run(&frame), (Gate::FIRST, frame));
            }
        }
        let wrong = with(v4([127, 0, 0, 1], host), 24, 0x55, 0);
        assert_eq!(strict.run(&wrong).0, BAD_CHECKSUM, "an invalid header is reported before its addresses");
        for frame in [v4([0; 4], [255; 4]), v4(host, [224, 0, 0, 5]), v6("::", "ff02::1:ff00:9")] {
            assert_eq!(strict.run(&frame).0, Gate::FIRST, "{frame:02x?}");
        }
    }

    proptest! {
        #[test]
        fn packets_pass_if_etherparse_reads_them_with_a_correct_checksum(
            v6: bool, length in 0usize..70, at in 12usize..60, value: u8, fix_sum: bool, padding in 0usize..4,
        ) {
            let frame = if v6 { ipv6() } else { ipv4() };
            let at = at.min(frame.len() - 1);
            // etherparse ignores the reserved flag when it computes a checksum.
            let value = if at == 20 { value & 0x7f } else { value };
            let mut frame = with(frame, at, value, 0);
            let header = usize::from(frame[14] & 0xf) * 4;
            if fix_sum && !v6 && (20..=36).contains(&header) {
                frame = with(frame, at, value, header);
                // The value may have been written into the checksum itself, so the present frame is checked.
            }
            frame.extend(vec![0; padding]);
            if length % 4 == 0 {
                frame.truncate(length);
            }
            let martian = match frame.get(12..14) {
                Some([0x08, 0x00]) if frame.len() >= 34 => {
                    let (from, to) = (&frame[26..30], &frame[30..34]);
                    let on_link = to == [255; 4] || to[..3] == [224, 0, 0];
                    matches!(from[0], 127 | 224..) || from[0] == 0 && !(from == [0; 4] && on_link)
                        || matches!(to[0], 0 | 127 | 240..) && to != [255; 4]
                }
                Some([0x86, 0xdd]) if frame.len() >= 54 => {
                    let is_of_v4 = |it: &[u8]| it[..10] == [0; 10] && (it[10..12] == [0; 2] || it[10..12] == [255; 2]);
                    let (from, to) = (&frame[22..38], &frame[38..54]);
                    from[0] == 0xff || is_of_v4(from) || is_of_v4(to) || to[0] == 0xff && to[1] & 0xe == 0
                }
                _ => false,
            };
            let valid = !martian && match frame.get(12..14) {
                Some([0x08, 0x00]) => Ipv4HeaderSlice::from_slice(&frame[14..]).is_ok_and(|header| {
                    (header.slice().len()..=frame.len() - 14).contains(&header.total_len().into())
                        && header.header_checksum() == header.to_header().calc_header_checksum()
                }),
                Some([0x86, 0xdd]) => Ipv6HeaderSlice::from_slice(&frame[14..])
                    .is_ok_and(|header| usize::from(header.payload_length()) <= frame.len() - 54),
                _ => false,
            };
            prop_assert_eq!(rig().run(&frame).0 == Gate::FIRST, valid, "{:02x?}", frame);
        }
    }
}
