//! Valid frames of each type that functions parse, made by hand. Mutants are made from them.

/// Returns the Internet checksum (RFC 1071) of all parts.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9], &ether_type.to_be_bytes()[..], payload].concat()
}

fn tagged(tags: &[(u16, u16)], frame: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|(kind, id)| [kind.to_be_bytes(), id.to_be_bytes()]).flatten().collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

type Ends4 = ([u8; 4], [u8; 4]);
type Ends6 = ([u8; 16], [u8; 16]);

/// Returns an IPv4 packet. `fragment` is the word of flags and offset.
fn ipv4((from, to): Ends4, protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() / 4;
    let total = (words * 4 + payload.len()) as u16;
    let mut header = vec![0x40 | words as u8, 0];
    header.extend(total.to_be_bytes());
    header.extend([0x12, 0x34]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(from);
    header.extend(to);
    header.extend(options);
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, payload].concat()
}

fn ipv6((from, to): Ends6, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, length[0], length[1], next, 64], &from[..], &to, payload].concat()
}

/// Returns the pseudo-header for a checksum (RFC 9293 section 3.1, RFC 8200 section 8.1).
fn pseudo(addresses: &[u8], protocol: u8, length: usize) -> Vec<u8> {
    [addresses, &(length as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

fn udp(addresses: &[u8], (from, to): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len();
    let ports = [from.to_be_bytes(), to.to_be_bytes(), (length as u16).to_be_bytes(), [0, 0]].concat();
    let mut datagram = [&ports, payload].concat();
    let sum = checksum(&[&pseudo(addresses, 17, length), &datagram]);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

fn tcp(addresses: &[u8], (from, to): (u16, u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    let sum = checksum(&[&pseudo(addresses, 6, segment.len()), &segment]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn icmp(kind: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0], &rest[..], body].concat();
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn icmpv6(addresses: &[u8], kind: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0], &rest[..], body].concat();
    let sum = checksum(&[&pseudo(addresses, 58, message.len()), &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// IPv4 address pairs of the functions' examples, the client's address first.
const ENDS4: [Ends4; 6] = [
    ([198, 18, 0, 1], [198, 19, 0, 1]),
    ([10, 0, 0, 1], [198, 51, 100, 7]),
    ([198, 51, 100, 7], [192, 0, 2, 10]),
    ([10, 60, 0, 1], [198, 51, 100, 7]),
    ([192, 0, 2, 254], [192, 0, 2, 1]),
    ([198, 18, 0, 1], [10, 60, 0, 1]),
];

fn ends6(host: u8) -> Ends6 {
    let address = |net: u8, host: u8| [0x20, 1, 0x0d, 0xb8, 0, net, 0, 1, 0, 0, 0, 0, 0, 0, 0, host];
    (address(0x60, host), address(0, 1))
}

/// Returns upper-layer packets between a pair of addresses: protocol and bytes.
fn uppers(addresses: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let ports = (40_000, 80);
    let mut all: Vec<(u8, Vec<u8>)> = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04]
        .iter()
        .map(|flags| (6, tcp(addresses, ports, *flags, if *flags == 0x18 { b"GET / HTTP/1.1\r\n" } else { b"" })))
        .collect();
    all.extend(
        [(53, 53), (1_024, 5_000), (40_000, 80), (5_060, 5_060)].map(|ports| (17, udp(addresses, ports, &[7; 40]))),
    );
    all.push((17, udp(addresses, (500, 4_500), &[[0, 0, 0x10, 1, 0, 0, 0, 1].as_slice(), &[0x5a; 48]].concat())));
    // ESP and an authentication header (RFC 4303, RFC 4302).
    all.push((50, [[0, 0, 0x10, 1, 0, 0, 0, 1].as_slice(), &[0x5a; 48]].concat()));
    all.push((
        51,
        [[17, 4, 0, 0, 0, 0, 0x10, 1, 0, 0, 0, 1].as_slice(), &[1; 12], &udp(addresses, (1, 2), &[3; 8])].concat(),
    ));
    all.push((132, vec![0x5a; 28]));
    all.push((33, vec![0x5a; 20]));
    all
}

fn over_ipv4() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for ends in ENDS4.into_iter().flat_map(|(from, to)| [(from, to), (to, from)]) {
        let addresses = [ends.0, ends.1].concat();
        for (protocol, payload) in uppers(&addresses) {
            all.push(ipv4(ends, protocol, 0x4000, &[], &payload));
        }
        let request = icmp(8, 0, [0x12, 0x34, 0, 1], &[9; 24]);
        let whole = ipv4((ends.1, ends.0), 17, 0, &[], &udp(&addresses, (80, 40_000), &[7; 64]));
        all.push(ipv4(ends, 1, 0, &[], &request));
        all.push(ipv4(ends, 1, 0, &[], &icmp(0, 0, [0x12, 0x34, 0, 1], &[9; 24])));
        // ICMP errors with a quoted packet: unreachable, fragmentation needed, time exceeded. Also an error about an
        // echo request.
        for (kind, code, rest) in [(3, 3, [0; 4]), (3, 4, [0, 0, 5, 0]), (11, 0, [0; 4])] {
            all.push(ipv4(ends, 1, 0, &[], &icmp(kind, code, rest, &whole)));
        }
        all.push(ipv4(ends, 1, 0, &[], &icmp(3, 1, [0; 4], &ipv4((ends.1, ends.0), 1, 0, &[], &request))));
        // Fragments: the first, a middle one, the last. Also a packet with options.
        let datagram = udp(&addresses, (1_024, 5_000), &[7; 120]);
        all.push(ipv4(ends, 17, 0x2000, &[], &datagram[..64]));
        all.push(ipv4(ends, 17, 0x2008, &[], &datagram[64..96]));
        all.push(ipv4(ends, 17, 0x000c, &[], &datagram[96..]));
        all.push(ipv4(ends, 17, 0, &[7, 7, 4, 0, 0, 0, 0, 0], &udp(&addresses, (1, 2), b"options")));
        all.push(ipv4(ends, 17, 0x4000, &[], &udp(&addresses, (1_024, 5_000), &[0x41; 1_380])));
    }
    all
}

fn over_ipv6() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for ends in [ends6(1), ends6(2)].into_iter().flat_map(|(from, to)| [(from, to), (to, from)]) {
        let addresses = [ends.0, ends.1].concat();
        for (protocol, payload) in uppers(&addresses) {
            all.push(ipv6(ends, protocol, &payload));
        }
        let plain = udp(&addresses, (40_000, 80), &[7; 40]);
        // Hop-by-hop, routing, destination options (RFC 8200 section 4). Fragments, also an atomic one (RFC 6946).
        let extension = |next: u8, kind: u8| vec![next, 0, kind, 4, 0, 0, 0, 0];
        all.push(ipv6(ends, 0, &[extension(60, 1), extension(43, 1), extension(17, 0), plain.clone()].concat()));
        for (offset, part) in [(1u16, &plain[..32]), (32, &plain[32..]), (0, &plain[..])] {
            let header = [&[17, 0], &offset.to_be_bytes()[..], &[0, 0, 0, 9]].concat();
            all.push(ipv6(ends, 44, &[&header, part].concat()));
        }
        all.push(ipv6(ends, 58, &icmpv6(&addresses, 128, 0, [0x12, 0x34, 0, 1], &[9; 24])));
        let quoted = ipv6((ends.1, ends.0), 17, &plain);
        for (kind, code, rest) in [(1, 4, [0; 4]), (2, 0, [0, 0, 5, 0]), (3, 0, [0; 4])] {
            all.push(ipv6(ends, 58, &icmpv6(&addresses, kind, code, rest, &quoted)));
        }
        // Neighbour discovery (RFC 4861 section 4): solicitation, advertisement, router solicitation.
        let target = [&ends.1[..], &[1, 1, 2, 0, 0, 0, 0, 9]].concat();
        for (kind, rest, body) in
            [(135, [0; 4], &target[..]), (136, [0x60, 0, 0, 0], &target), (133, [0; 4], &target[16..])]
        {
            let mut packet = ipv6(ends, 58, &icmpv6(&addresses, kind, 0, rest, body));
            packet[7] = 255;
            all.push(packet);
        }
    }
    all
}

/// Returns frames in tunnels: GTP-U (TS 29.281 section 5) with and without an extension header, its echo and error
/// messages, and VXLAN (RFC 7348).
fn tunnelled() -> Vec<Vec<u8>> {
    let outer = ([192, 0, 2, 10], [192, 0, 2, 1]);
    let addresses = [outer.0, outer.1].concat();
    let over = |port: u16, payload: &[u8]| {
        let ports = (port, port);
        ethernet(0x800, &ipv4(outer, 17, 0, &[], &udp(&addresses, ports, payload)))
    };
    let inner = ([10, 60, 0, 1], [198, 51, 100, 7]);
    let inside = [inner.0, inner.1].concat();
    let user = ipv4(inner, 17, 0, &[], &udp(&inside, (1_024, 53), &[7; 24]));
    let user6 = ipv6(ends6(1), 6, &tcp(&[ends6(1).0, ends6(1).1].concat(), (1_024, 443), 2, b""));
    let mut all = Vec::new();
    for teid in [7u32, 0x1001, 0x1002, 4_096, 0x7fff_ffff] {
        for payload in [&user, &user6] {
            let plain =
                [&[0x30, 255], &(payload.len() as u16).to_be_bytes()[..], &teid.to_be_bytes(), payload].concat();
            let length = (payload.len() as u16 + 8).to_be_bytes();
            let extended =
                [&[0x34, 255], &length[..], &teid.to_be_bytes(), &[0, 0, 0, 0x85, 1, 0x10, 9, 0], payload].concat();
            all.extend([over(2_152, &plain), over(2_152, &extended)]);
        }
    }
    all.push(over(2_152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]));
    all.push(over(2_152, &[0x32, 26, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0x10, 1, 133, 0, 4, 192, 0, 2, 10]));
    for vni in [0u8, 10, 100] {
        all.push(over(4_789, &[&[8, 0, 0, 0, 0, 0, vni, 0][..], &ethernet(0x800, &user)].concat()));
    }
    all
}

/// Returns all frames.
pub fn all() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = over_ipv4().iter().map(|packet| ethernet(0x800, packet)).collect();
    all.extend(over_ipv6().iter().map(|packet| ethernet(0x86dd, packet)));
    let plain = all.len();
    all.extend(tunnelled());
    // One and two VLAN tags before some of the frames.
    for at in (0..plain).step_by(7) {
        all.push(tagged(&[(0x8100, 100)], &all[at]));
        all.push(tagged(&[(0x88a8, 100), (0x8100, 200)], &all[at]));
    }
    // ARP (RFC 826): request and reply.
    for (operation, from, to) in [(1u8, [192, 0, 2, 254], [192, 0, 2, 1]), (2, [192, 0, 2, 254], [192, 0, 2, 1])] {
        let head = [0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 0xfe];
        all.push(ethernet(0x806, &[&head[..], &from, &[0; 6], &to, &[0; 18]].concat()));
    }
    all.push(ethernet(0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 9, 0, 0]));
    all
}

/// Returns a frame in the reverse direction, with exchanged addresses and ports. A frame that is not IP keeps its
/// payload.
pub fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let mut exchange = |from: usize, to: usize, length: usize| {
        if frame.len() >= to + length {
            (0..length).for_each(|at| frame.swap(from + at, to + at));
        }
    };
    exchange(0, 6, 6);
    let (ether_type, first) = (frame.get(12..14).map(<[u8]>::to_vec), frame.get(14).copied());
    let mut exchange = |from: usize, to: usize, length: usize| {
        if frame.len() >= to + length {
            (0..length).for_each(|at| frame.swap(from + at, to + at));
        }
    };
    match (ether_type.as_deref(), first) {
        (Some([8, 0]), Some(first)) => {
            exchange(26, 30, 4);
            let upper = 14 + usize::from(first & 15) * 4;
            exchange(upper, upper + 2, 2);
        }
        (Some([0x86, 0xdd]), _) => {
            exchange(22, 38, 16);
            exchange(54, 56, 2);
        }
        _ => {}
    }
    frame
}
