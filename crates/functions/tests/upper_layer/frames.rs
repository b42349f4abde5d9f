//! The rows of the table: frames that show, lack or hide the header above IP.

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ether_type.to_be_bytes(), rest].concat()
}

/// Returns a segment or datagram from port 1024 to port 22 with four bytes of payload.
fn segment(protocol: u8) -> Vec<u8> {
    let mut bytes = vec![0; if protocol == TCP { 20 } else { 8 }];
    bytes[..4].copy_from_slice(&[0x04, 0, 0, 22]);
    match protocol {
        TCP => (bytes[12], bytes[13]) = (0x50, 0x18),
        _ => bytes[5] = 12,
    }
    bytes.extend(b"evil");
    bytes
}

pub fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    (header[6], header[7], header[8], header[24]) = (next, 64, 0x20, 0x20);
    (header[23], header[39]) = (1, 2);
    ethernet(0x86dd, &[&header[..], rest].concat())
}

fn extensions(protocol: u8, count: usize) -> Vec<u8> {
    let option = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let mut bytes = Vec::new();
    (0..count).for_each(|at| bytes.extend(option(if at + 1 == count { protocol } else { 60 })));
    bytes.extend(segment(protocol));
    ipv6(if count == 0 { protocol } else { 60 }, &bytes)
}

/// Returns a message of mobility (135), HIP (139) or Shim6 (140): no header follows.
pub fn message(protocol: u8) -> Vec<u8> {
    ipv6(protocol, &[59, 1, 1, 4, 0, 0, 0, 0, 0, 22, 0, 22, 0, 0, 0, 0])
}

/// Returns the checksum of RFC 1071 over bytes whose checksum field is zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum = bytes.chunks(2).map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

/// Writes the checksum of an IPv4 header of 20 bytes after Ethernet.
pub fn sum_ipv4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

pub fn ipv4(protocol: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + rest.len() as u16).to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    (header[8], header[9]) = (64, protocol);
    header[12..].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    let mut frame = ethernet(0x0800, &[&header[..], rest].concat());
    sum_ipv4(&mut frame);
    frame
}

pub fn tagged(types: &[u16], frame: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = types.iter().flat_map(|tpid| [tpid.to_be_bytes(), [0, 5]].concat()).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// Returns IPv6 with payload length 0 that announces UDP, followed by Ethernet padding.
pub fn empty_and_padded() -> Vec<u8> {
    [ipv6(UDP, &[]), vec![0x5a; 6]].concat()
}

/// The part of its segment that a packet shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shows {
    /// The whole segment.
    All,
    /// It is a later fragment, or has no next header: it certainly has no ports.
    NoPorts,
    /// It hides the protocol or the ports.
    Hidden,
    /// It hides that it is IP.
    HiddenIp,
}

/// A packet of the table.
pub struct Row {
    pub name: &'static str,
    pub shows: Shows,
    pub frame: Vec<u8>,
}

impl Row {
    /// Returns true if the packet is recognized as IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.shows != Shows::HiddenIp && self.frame.windows(2).take(25).any(|bytes| bytes == [0x86, 0xdd])
    }

    /// Returns true if it is a fragment.
    pub fn is_fragment(&self) -> bool {
        self.name.contains("fragment")
    }
}

/// Returns all rows for TCP or UDP.
pub fn rows(protocol: u8) -> Vec<Row> {
    let whole = segment(protocol);
    let v4 = |fragment, rest: &[u8]| ipv4(protocol, fragment, rest);
    let part = |offset: u16, rest: &[u8]| {
        let header = [&[protocol, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 9]].concat();
        ipv6(44, &[&header, rest].concat())
    };
    let mut short = extensions(protocol, 0);
    short[18..20].copy_from_slice(&2u16.to_be_bytes());
    let mut options = v4(0, &whole);
    options[14] = 0x4f;
    options.truncate(40);
    let row = |name, shows, frame| Row { name, shows, frame };
    vec![
        row("no extension header", Shows::All, extensions(protocol, 0)),
        row("8 extension headers", Shows::All, extensions(protocol, 8)),
        row("9 extension headers", Shows::Hidden, extensions(protocol, 9)),
        row("16 extension headers", Shows::Hidden, extensions(protocol, 16)),
        row("a first fragment, IPv6", Shows::All, part(1, &whole)),
        row("a later fragment, IPv6", Shows::NoPorts, part(9, &whole)),
        row("a first fragment, IPv4", Shows::All, v4(0x2000, &whole)),
        row("a later fragment, IPv4", Shows::NoPorts, v4(0x2003, &whole)),
        row("a first fragment without ports", Shows::Hidden, v4(0x2000, &whole[..2])),
        row("a truncated header, IPv4", Shows::Hidden, v4(0, &whole[..3])),
        row("a truncated header, IPv6", Shows::Hidden, short),
        row("an extension header that is cut short", Shows::Hidden, ipv6(60, &[protocol, 7, 0, 0, 0, 0, 0, 0])),
        row("options that are cut off", Shows::Hidden, options),
        row("a third tag", Shows::All, tagged(&[0x88a8, 0x8100, 0x8100], &v4(0, &whole))),
        row("a tag of type 0x9100", Shows::All, tagged(&[0x9100], &v4(0, &whole))),
        row("tags of types 0x9200, 0x88a8", Shows::All, tagged(&[0x9200, 0x88a8], &extensions(protocol, 0))),
        row("a fifth tag", Shows::HiddenIp, tagged(&[0x8100; 5], &v4(0, &whole))),
        row("no next header", Shows::NoPorts, ipv6(59, &[])),
        row(
            "mobility, HIP and Shim6 headers",
            Shows::All,
            ipv6(
                135,
                &[&[139, 0, 1, 0, 0, 0, 0, 0, 140, 0, 1, 0, 0, 0, 0, 0, protocol, 0, 0x80, 0, 0, 0, 0, 0], &whole[..]]
                    .concat(),
            ),
        ),
        row("a mobility message", Shows::NoPorts, message(135)),
        row(
            "an experimental protocol",
            Shows::NoPorts,
            ipv6(253, &[&[protocol, 0, 0, 0, 0, 0, 0, 0], &whole[..]].concat()),
        ),
    ]
}
