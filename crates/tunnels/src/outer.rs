//! Writes the outer Ethernet, IPv4 and UDP headers and the eight bytes of the tunnel header. The fields that do not
//! depend on the packet are computed in advance. The rest is combined in registers and written in a few stores.
//!
//! Fields are not patched into a template in memory. The next function reads the header with wider loads, and a wide
//! load after narrow stores would cost more than writing the whole header (docs/performance.md).

use forebay_graph::{Setup, SetupError};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::udp::{self, Udp};
use zerocopy::{FromBytes, IntoBytes};

use super::entropy::{CHOSEN, Shown};
use super::identification::Identifications;
use super::settings::{Dscp, Endpoint, SourcePort};

const ETHERNET: usize = size_of::<Ethernet>();
const IPV4: usize = size_of::<Ipv4>();
const UDP: usize = size_of::<Udp>();
/// The tunnel header without options, of GTP-U and of VXLAN.
const TUNNEL: usize = 8;
/// The number of bytes of all outer headers.
const HEADERS: usize = ETHERNET + IPV4 + UDP + TUNNEL;
/// The length of the outer IP packet minus the lengths of the tunnel options and of the inner packet, in bytes.
pub const OVERHEAD: usize = IPV4 + UDP + TUNNEL;
/// Don't fragment (RFC 791 section 3.1).
const DF: u16 = 0x4000;

/// The configuration of the outer headers.
pub struct OuterSettings {
    /// The source address.
    pub source: Endpoint,
    /// The UDP source port: fixed, or derived from the session.
    pub source_port: SourcePort,
    /// The UDP destination port.
    pub destination_port: u16,
    /// Whether the UDP checksum is computed; otherwise it is 0.
    pub udp_checksum: bool,
    /// The code point: fixed, or copied from the inner packet.
    pub dscp: Dscp,
    /// True if the don't-fragment bit is set: then routers do not fragment the outer packet.
    pub df: bool,
    /// The time to live, 1 to 255.
    pub ttl: u8,
    /// The longest outer packet, in bytes: 68 to 65535. `None` means 65535.
    pub mtu: Option<u16>,
}

/// The reason why a packet cannot be put into a tunnel. The packet is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The outer packet would be longer than the `mtu` of the settings, or than the default limit if `mtu` is `None`.
    TooLong,
    /// There is too little room before the frame for the outer headers, or the frame is shorter than the part to
    /// remove.
    NoRoom,
}

/// The Ethernet header of a frame as two overlapping numbers of eight bytes. An array of 14 bytes would be copied
/// through the stack, in pieces that the processor cannot forward from its stores to its loads.
#[derive(Clone, Copy)]
pub struct Start(u64, u64);

impl Start {
    /// Returns the header of a frame, or `None` if the frame is shorter than the header.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Option<Self> {
        let header: &[u8; ETHERNET] = packet.data().first_chunk()?;
        let (first, last) = (header.first_chunk()?, header.last_chunk()?);
        Some(Self(u64::from_ne_bytes(*first), u64::from_ne_bytes(*last)))
    }

    /// Returns the header with the EtherType of IPv4.
    pub fn with_ipv4(self) -> Self {
        let mut last = self.1.to_ne_bytes();
        last[6..].copy_from_slice(&EtherType::IPV4.to_be_bytes());
        Self(self.0, u64::from_ne_bytes(last))
    }

    /// Writes the header.
    #[inline(always)]
    pub fn put(self, frame: &mut [u8]) {
        if let Some(header) = frame.first_chunk_mut::<ETHERNET>() {
            header[..8].copy_from_slice(&self.0.to_ne_bytes());
            header[6..].copy_from_slice(&self.1.to_ne_bytes());
        }
    }
}

/// Writes outer headers.
///
/// The numbers `first`, `second` and `third` contain the bytes of the headers: the first byte in the packet is the
/// highest byte of the number. Fields that depend on the packet are added to these numbers.
pub struct Outer {
    /// The sum of the constant 16-bit words of the IPv4 header, for the checksum. The first two words (traffic class
    /// and total length) and the destination address depend on the packet, and are added for each packet.
    sum: u32,
    /// The first eight bytes of the IPv4 header. The total length, the identification, and the bits of the traffic
    /// class that are copied from the inner packet are 0.
    first: u64,
    /// The next eight bytes of the IPv4 header, with all ones in place of the checksum.
    second: u64,
    /// The UDP header. The bits of the source port that the session determines are 0. The length field contains minus
    /// the length of the IPv4 header: adding the total length of the outer packet gives the UDP length.
    third: u64,
    /// A mask of the bits that the outer traffic class copies from the inner traffic class.
    class: u8,
    /// A mask of the bits of the source port that the session determines, at their position in `third`.
    chosen: u64,
    /// True if the UDP checksum is computed. Otherwise it is 0.
    checksum: bool,
    /// The longest outer packet, in bytes.
    most: usize,
    /// The source of identification numbers. `None` if routers may not fragment packets: then the identification has no
    /// meaning (RFC 6864 section 4.1) and is 0.
    identifications: Option<Identifications>,
    /// True if packets have no identification and no UDP checksum.
    plain: bool,
}

impl Outer {
    /// Checks the settings and computes the constant fields.
    ///
    /// # Errors
    /// A time to live or an MTU that is out of range, as a fault of the parameter `ttl` or `mtu`.
    pub fn new(settings: &OuterSettings, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let OuterSettings { source, source_port, destination_port, udp_checksum, dscp, df, ttl, mtu } = *settings;
        if ttl == 0 {
            return Err(SetupError::wrong("ttl", "0", "with 0 the first router drops the packet", "1 to 255"));
        }
        if let Some(mtu) = mtu
            && mtu < 68
        {
            return Err(SetupError::not_allowed("mtu", mtu, "68 (RFC 791) to 65535"));
        }
        let flags = if df { DF } else { 0 };
        let (kept, class) = match dscp {
            Dscp::Copy => (0xff, 0),
            // The lower two bits are congestion notification, which is always copied (RFC 6040 section 4.1).
            Dscp::Fixed(dscp) => (0x03, dscp << 2),
        };
        let (port, chosen) = match source_port {
            SourcePort::Fixed(port) => (port, 0),
            SourcePort::Session => (!CHOSEN, CHOSEN),
        };
        let first = 0x4500 << 48 | u64::from(class) << 48 | u64::from(flags);
        let second = u64::from(ttl) << 56 | u64::from(ipv4::UDP) << 48 | u64::from(source.0);
        Ok(Self {
            sum: sum_of(first & 0xffff_ffff) + sum_of(second),
            first,
            second: second | 0xffff << 32,
            third: (u64::from(port) << 48 | u64::from(destination_port) << 32) - ((IPV4 as u64) << 16),
            class: kept,
            chosen: u64::from(chosen) << 48,
            checksum: udp_checksum,
            most: mtu.unwrap_or(u16::MAX).into(),
            plain: df && !udp_checksum,
            identifications: (!df).then(|| Identifications::of(source.0, setup)).transpose()?,
        })
    }

    /// Returns true if packets have no identification and no UDP checksum. They can then be [written](Self::write) as
    /// `PLAIN`, which is faster.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Prepares for a batch of `count` packets. Call this before each batch whose packets are not written as `PLAIN`.
    #[inline]
    pub fn begin(&mut self, count: usize) {
        if let Some(identifications) = &mut self.identifications {
            identifications.draw(count);
        }
    }

    /// Returns true if an outer packet of `total` bytes is allowed.
    pub fn allows(&self, total: usize) -> bool {
        total <= self.most
    }

    /// Puts the frame without its first `cut` bytes into a tunnel to `peer`, an IPv4 address in host byte order. `cut`
    /// must be at most the length of all outer headers and options.
    ///
    /// - `start` becomes the outer Ethernet header, and must have the EtherType of IPv4. `shown` has the inner traffic
    ///   class, and the session hash for the source port.
    /// - `tunnel` gets the number of bytes after the tunnel header, options included. It returns the tunnel header as a
    ///   number whose first byte in the packet is the highest.
    /// - The first `OPTIONS` bytes of `options` follow the tunnel header.
    /// - `PLAIN` is allowed if [`is_plain`](Self::is_plain) returns true. Without `PLAIN`, [`begin`](Self::begin) must
    ///   have been called for the batch.
    ///
    /// # Errors
    /// [`Refusal`].
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "all are values in registers")]
    pub fn write<const OPTIONS: usize, const PLAIN: bool>(
        &mut self,
        packet: &mut Packet,
        cut: usize,
        start: Start,
        shown: Shown,
        peer: u32,
        tunnel: impl Fn(u64) -> u64,
        options: [u8; 8],
    ) -> Result<(), Refusal> {
        let total = (packet.len() + (OVERHEAD + OPTIONS)).saturating_sub(cut);
        if total > self.most {
            return Err(Refusal::TooLong);
        }
        let headers = packet.wrap_in_ipv4::<HEADERS>(HEADERS + OPTIONS - cut, ETHERNET).ok_or(Refusal::NoRoom)?;
        let wide = total as u64;
        let mut first = self.first + (u64::from(shown.class & self.class) << 48) + (wide << 32);
        let mut sum = self.sum + (peer >> 16) + (peer & 0xffff);
        if !PLAIN && let Some(identifications) = &mut self.identifications {
            let id = identifications.take();
            first |= u64::from(id) << 16;
            sum += u32::from(id);
        }
        // A number rotated by half and added to itself has the ones' complement sum of its halves in the upper half
        // (RFC 1071 section 2).
        let sum = (first >> 32) as u32 + sum;
        let sum = sum.wrapping_add(sum.rotate_left(16)) & 0xffff_0000;
        // `self.second` has all ones at the position of the checksum, so the XOR writes the inverted sum there.
        let second = self.second ^ u64::from(sum) << 16;
        let third = self.third + (shown.session & self.chosen) + (wide << 16);
        let fourth = tunnel(wide - OVERHEAD as u64);
        start.put(headers);
        headers[14..22].copy_from_slice(&first.to_be_bytes());
        headers[22..30].copy_from_slice(&second.to_be_bytes());
        headers[30..34].copy_from_slice(&peer.to_be_bytes());
        headers[34..42].copy_from_slice(&third.to_be_bytes());
        headers[42..50].copy_from_slice(&fourth.to_be_bytes());
        if OPTIONS > 0
            && let (Some(slot), Some(options)) =
                (packet.data_mut().get_mut(HEADERS..HEADERS + OPTIONS), options.get(..OPTIONS))
        {
            slot.copy_from_slice(options);
        }
        if !PLAIN && self.checksum {
            fill_checksum(packet);
        }
        Ok(())
    }
}

/// Returns the sum of the four words of a number.
fn sum_of(number: u64) -> u32 {
    (0..4).map(|word| (number >> (16 * word)) as u16).map(u32::from).sum()
}

/// Computes the UDP checksum of an outer packet directly above Ethernet.
#[cold]
fn fill_checksum(packet: &mut Packet) {
    let Some((_, ip)) = packet.data_mut().split_at_mut_checked(ETHERNET) else { return };
    let Ok((header, datagram)) = Ipv4::mut_from_prefix(ip) else { return };
    let sum = udp::stored(udp::sum_over_ipv4(header, datagram));
    if let Some(slot) = datagram.get_mut(6..8) {
        slot.copy_from_slice(sum.as_bytes());
    }
}
