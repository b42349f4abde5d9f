//! Checksums computed word by word (RFC 1071), and frames whose 16-bit words have edge values.

use etherparse::PacketBuilder;

/// The values at which a sum carries, wraps, or is either form of zero.
pub const EDGES: [u16; 6] = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ICMPV6: u8 = 58;
const UDP_LITE: u8 = 136;

/// Returns the complement of the sum of these parts, each of which begins at an even offset.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A checksum in a packet: its offset, the result of a full recomputation, and whether 0 means no checksum.
pub struct Field {
    pub at: usize,
    pub correct: u16,
    pub optional: bool,
    pub name: &'static str,
}

/// Returns the checksums of an IP packet and of the packet that an ICMP error in it quotes. `at` is the packet's offset
/// in its frame.
pub fn fields(packet: &[u8], at: usize) -> Vec<Field> {
    let (addresses, protocol, start, end) = match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            let start = usize::from(packet[0] & 0xf) * 4;
            let end = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            (&packet[12..20], packet[9], start, end)
        }
        Some(6) if packet.len() >= 40 => {
            (&packet[8..40], packet[6], 40, 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])))
        }
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    if addresses.len() == 8 && (20..=packet.len()).contains(&start) {
        let correct = checksum(&[&packet[..10], &packet[12..start]]);
        found.push(Field { at: at + 10, correct, optional: false, name: "IPv4" });
        if u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0 {
            return found;
        }
    }
    let Some(transport) = packet.get(start..end) else { return found };
    let (field, name) = match (protocol, addresses.len()) {
        (ICMP, 8) => (2, "ICMP"),
        (ICMPV6, 32) => (2, "ICMPv6"),
        (TCP, _) => (16, "TCP"),
        (UDP, _) => (6, "UDP"),
        (DCCP, _) => (6, "DCCP"),
        (UDP_LITE, _) => (6, "UDP-Lite"),
        _ => return found,
    };
    if transport.len() < field + 2 {
        return found;
    }
    let pseudo = [&[0, protocol][..], &(transport.len() as u16).to_be_bytes()].concat();
    let mut parts = vec![&transport[..field], &transport[field + 2..]];
    if name != "ICMP" {
        parts.extend([addresses, &pseudo]);
    }
    let sum = checksum(&parts);
    let correct = if sum == 0 && matches!(protocol, UDP | UDP_LITE) { 0xffff } else { sum };
    found.push(Field { at: at + start + field, correct, optional: protocol == UDP && addresses.len() == 8, name });
    let quotes = name == "ICMP" && matches!(transport[0], 3 | 4 | 11 | 12);
    if quotes && transport.len() > 8 {
        found.extend(fields(&transport[8..], at + start + 8));
    }
    found
}

/// Returns the offset of the IP packet behind Ethernet and tags, if there is one.
pub fn network(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        let kind = frame.get(at..at + 2)?;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            0x8100 | 0x88a8 => at += 4,
            0x0800 | 0x86dd => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Returns the checksums of a frame.
pub fn of_frame(frame: &[u8]) -> Vec<Field> {
    network(frame).map_or_else(Vec::new, |at| fields(&frame[at..], at))
}

/// Corrects all checksums of a frame. The checksums in a quoted packet are corrected before the checksum of the error.
pub fn correct_all(frame: &mut [u8]) {
    for number in (0..of_frame(frame).len()).rev() {
        let Field { at, correct, .. } = of_frame(frame).swap_remove(number);
        frame[at..at + 2].copy_from_slice(&correct.to_be_bytes());
    }
}

fn ethernet() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2([2; 6], [2, 0, 0, 0, 0, 1])
}

/// Returns frames of all types with this payload, each with the offsets of words that may have any value.
fn frame_types(fill: u8) -> Vec<(Vec<u8>, Vec<usize>)> {
    let payload = [fill; 6];
    let mut frames = vec![Vec::new(); 11];
    let (from, to) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    let ipv4 = || ethernet().ipv4(from, to, 64);
    let ipv6 = || {
        let host = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        ethernet().ipv6(host(2), host(1), 64)
    };
    ipv4().udp(5_000, 53).write(&mut frames[0], &payload).expect("memory");
    ipv4().tcp(5_000, 80, 1, 2).syn().write(&mut frames[1], &payload).expect("memory");
    ipv4().icmpv4_raw(8, 0, [fill; 4]).write(&mut frames[2], &payload).expect("memory");
    ipv4().icmpv4_raw(0, 0, [fill; 4]).write(&mut frames[3], &payload).expect("memory");
    ipv6().udp(5_000, 53).write(&mut frames[4], &payload).expect("memory");
    ipv6().icmpv6_raw(128, 0, [fill; 4]).write(&mut frames[5], &payload).expect("memory");
    // An error about a packet that this host has sent, and an error about an answer.
    let reversed = |frame: &[u8]| {
        let mut quoted = frame[14..].to_vec();
        quoted[12..20].rotate_left(4);
        quoted
    };
    let (udp, answer) = (reversed(&frames[0]), reversed(&frames[3]));
    ipv4().icmpv4_raw(3, 1, [0; 4]).write(&mut frames[6], &udp).expect("memory");
    ipv4().icmpv4_raw(11, 0, [0; 4]).write(&mut frames[7], &answer).expect("memory");
    // This packet is longer than the least MTU and may be fragmented. Its destination is the service of the balancer's
    // example.
    ethernet().ipv4(from, [192, 0, 2, 10], 64).udp(5_000, 53).write(&mut frames[8], &[fill; 80]).expect("memory");
    frames[8][20] = 0;
    // Errors about UDP-Lite, whose coverage is the whole datagram, and about DCCP. Functions read the same fields of
    // them as of UDP.
    for (number, protocol) in [(9, 136), (10, 33)] {
        let mut quoted = udp.clone();
        quoted[9] = protocol;
        ipv4().icmpv4_raw(3, 1, [0; 4]).write(&mut frames[number], &quoted).expect("memory");
    }
    let free: [&[usize]; 11] = [
        &[4, 12, 14, 16, 18, 20, 22, 28, 30, 32],
        &[4, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 34, 38, 40, 44],
        &[4, 12, 14, 16, 18, 24, 26, 28, 32],
        &[4, 12, 14, 16, 18, 24, 26, 28, 32],
        &[2, 8, 22, 24, 38, 40, 42, 48, 52],
        &[2, 8, 22, 24, 38, 44, 46, 48, 52],
        &[4, 12, 14, 16, 18, 24, 26, 32, 40, 42, 44, 46, 48, 50, 56, 60],
        &[4, 12, 14, 16, 18, 24, 26, 32, 40, 42, 44, 46, 52, 54, 56, 60],
        &[4, 12, 14, 16, 18, 20, 22, 28, 60],
        &[40, 42, 44, 46, 48, 50, 56, 60],
        &[40, 42, 44, 46, 48, 50, 56, 60],
    ];
    frames.into_iter().zip(free).map(|(frame, free)| (frame, free.iter().map(|at| 14 + at).collect())).collect()
}

/// Returns frames of every type with correct checksums, each with one word at an edge value, over payloads of zeros and
/// of ones.
pub fn frames() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (frame, free) in [0, 0xff].into_iter().flat_map(frame_types) {
        for (at, edge) in free.into_iter().flat_map(|at| EDGES.map(|edge| (at, edge))) {
            let mut frame = frame.clone();
            frame[at..at + 2].copy_from_slice(&edge.to_be_bytes());
            correct_all(&mut frame);
            all.push(frame);
        }
    }
    all
}
