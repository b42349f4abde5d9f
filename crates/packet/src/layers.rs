//! Where a frame's network and transport layers start.
//!
//! Found once, by the first function that asks, and kept in the metadata as offsets into the chunk: putting a header
//! before the network layer or taking one off does not move them.

use std::hint::cold_path;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::Packet;
use crate::metadata::{LINE, Layers};
use crate::wire::ethernet::{EtherType, Ethernet, VlanTag};
use crate::wire::ipv4::Ipv4;
use crate::wire::ipv6::{self, Ipv6};

mod upper;

pub use upper::{Hidden, Upper};

/// VLAN tags that are looked through on the way to the network layer: a customer's in a provider's (IEEE 802.1ad), and
/// two more of networks that put such frames in tags of their own.
pub const MOST_TAGS: usize = 4;

/// A fixed IPv4 header straight above Ethernet.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Untagged {
    ethernet: Ethernet,
    ipv4: Ipv4,
}

// What `Layers::kind` says.
const OTHER: u8 = 1;
/// It cannot be found, or is IP whose fixed header cannot be read.
const HIDDEN: u8 = 2;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// A protocol number that no packet has (IANA, *Assigned Internet Protocol Numbers*).
const RESERVED: u8 = 255;

/// What a frame carries above Ethernet and its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4, its whole fixed header present and the version field right.
    Ipv4,
    /// IPv6, likewise.
    Ipv6,
    /// Anything else, or too short to say.
    Other,
}

impl Packet {
    /// What the frame carries above Ethernet, and where that starts, in bytes into the frame.
    #[inline]
    pub fn network(&mut self) -> (Network, usize) {
        if self.meta().layers == Layers::UNKNOWN {
            self.find_network();
        }
        let meta = self.meta();
        let kind = match meta.layers.kind() {
            IPV4 => Network::Ipv4,
            IPV6 => Network::Ipv6,
            _ => Network::Other,
        };
        (kind, usize::from(meta.layers.offset().saturating_sub(meta.data)))
    }

    /// The IPv4 header, where the frame has one.
    #[inline]
    pub fn ipv4(&mut self) -> Option<&mut Ipv4> {
        if self.meta().layers == Layers::UNKNOWN {
            cold_path();
            self.find_network();
        }
        self.known_ipv4()
    }

    /// The IPv4 header, where one has been found already: the same as [`ipv4`](Self::ipv4) after any function has looked
    /// for the network layer, in fewer instructions.
    #[inline]
    pub fn known_ipv4(&mut self) -> Option<&mut Ipv4> {
        let layers = self.meta().layers;
        if layers.kind() != IPV4 {
            return None;
        }
        let start = usize::from(layers.offset());
        // SAFETY: `kind` says IPv4 only where `network` is inside the frame and the whole fixed header follows it
        // (set by `find_network`, `is_plain_ipv4`, `place_ipv4` and its like; `strip` and `truncate` forget it where that would end). So the
        // header lies in the chunk, past the metadata, initialised; it has no alignment and any bytes are one;
        // `&mut self` makes it exclusive.
        Some(unsafe { &mut *self.chunk().as_ptr().cast::<u8>().add(start).cast::<Ipv4>() })
    }

    /// The IPv4 header, where the frame has one, and how many bytes the frame has from there on: at least the fixed header.
    #[inline]
    pub fn ipv4_and_room(&mut self) -> Option<(&mut Ipv4, usize)> {
        if self.meta().layers == Layers::UNKNOWN {
            self.find_network();
        }
        let meta = self.meta();
        let end = usize::from(meta.data) + usize::from(meta.len);
        let room = end.wrapping_sub(usize::from(meta.layers.offset()));
        Some((self.known_ipv4()?, room))
    }

    /// Whether the frame is IPv4 without options straight above Ethernet, its header sound, as [`Ipv4::is_valid`]
    /// says, and neither address begins with an octet that is `marked`: what nearly all frames are, found in few
    /// instructions. `false` says nothing; layers that were not known then are known only after `true`.
    #[inline]
    pub fn is_plain_ipv4(&mut self, marked: &[bool; 256]) -> bool {
        let Some(frame) = self.view::<Untagged>(0) else { return false };
        let room = self.len() - size_of::<Untagged>();
        if frame.ethernet.ether_type.get() != EtherType::IPV4 {
            return false;
        }
        // Before the checksum: afterwards the compiler takes both octets out of the words that were added up, which
        // costs more instructions than reading them.
        let [source, destination] = [frame.ipv4.source[0], frame.ipv4.destination[0]];
        if marked[usize::from(source)] | marked[usize::from(destination)] || !frame.ipv4.is_plain_and_valid(room) {
            return false;
        }
        let meta = self.meta_mut();
        // What is known already is known better: the protocol above, too.
        if meta.layers == Layers::UNKNOWN {
            meta.layers = Layers::network(IPV4, meta.data + size_of::<Ethernet>() as u16);
        }
        true
    }

    /// The IPv6 header, where the frame has one.
    #[inline]
    pub fn ipv6(&mut self) -> Option<&mut Ipv6> {
        match self.network() {
            (Network::Ipv6, offset) => self.view_mut(offset),
            _ => None,
        }
    }

    /// The IP protocol above the network layer and where it starts, in bytes into the frame. `None` where the frame
    /// is not IP, is cut short before it, or is a fragment other than the first, whose payload starts mid-way
    /// (RFC 791 section 3.2, RFC 8200 section 4.5).
    #[inline]
    pub fn transport(&mut self) -> Option<(u8, usize)> {
        if self.meta().layers.protocol() == 0 {
            self.find_transport();
        }
        let meta = self.meta();
        (meta.transport > 1).then(|| (meta.layers.protocol(), usize::from(meta.transport.saturating_sub(meta.data))))
    }

    /// Notes that an IPv4 header of version 4 starts `offset` bytes into the frame, behind the Ethernet header: for who
    /// has just written it, or taken off what was before it, so that nobody has to look for it. What was known of the
    /// layers and of the session is forgotten. `false`, and the network layer unknown, where the frame ends before the
    /// fixed header does.
    #[inline]
    pub fn place_ipv4(&mut self, offset: usize) -> bool {
        let fits = self.len().checked_sub(size_of::<Ipv4>()).is_some_and(|most| offset <= most);
        let meta = self.meta_mut();
        meta.layers = if fits { Layers::network(IPV4, meta.data + offset as u16) } else { Layers::UNKNOWN };
        meta.session = 0;
        fits
    }

    /// Grows the frame by `n` bytes at its start, for headers among which IPv4's is to start `offset` bytes into the frame,
    /// and gives the first `N` bytes, all of which must be written: [`prepend`](Self::prepend) and
    /// [`place_ipv4`](Self::place_ipv4) in fewer instructions. `None`, and nothing changed, where the headroom is smaller,
    /// the grown frame shorter, or IPv4's header not among the `N` bytes.
    #[inline(always)]
    pub fn wrap_in_ipv4<const N: usize>(&mut self, n: usize, offset: usize) -> Option<&mut [u8; N]> {
        let (data, len) = (usize::from(self.meta().data), self.len().saturating_add(n));
        let least = usize::from(self.meta().start) * LINE;
        if data < least.saturating_add(n) || len < N || offset > N.checked_sub(size_of::<Ipv4>())? {
            return None;
        }
        // Within the chunk, whose offsets are 16 bits: none wraps.
        let data = data - n;
        let meta = self.meta_mut();
        (meta.data, meta.len) = (data as u16, len as u16);
        meta.layers = Layers::network(IPV4, (data + offset) as u16);
        meta.session = 0;
        // SAFETY: `data..data + len` lies in the chunk, past its metadata, as was just seen of its start, and is
        // initialised; it has at least `N` bytes. `&mut self` makes it exclusive.
        Some(unsafe { &mut *self.chunk().as_ptr().cast::<u8>().add(data).cast::<[u8; N]>() })
    }

    /// Takes `n` bytes off the frame's start, behind which an IPv4 header starts `offset` bytes further:
    /// [`strip`](Self::strip) and [`place_ipv4`](Self::place_ipv4) in fewer instructions. `false`, and nothing changed,
    /// where the frame ends before the fixed header does.
    #[inline(always)]
    pub fn unwrap_to_ipv4(&mut self, n: usize, offset: usize) -> bool {
        let fits = self.len().checked_sub(size_of::<Ipv4>()).and_then(|most| most.checked_sub(n));
        if fits.is_none_or(|most| offset > most) {
            return false;
        }
        let meta = self.meta_mut();
        let (data, len) = (meta.data + n as u16, meta.len - n as u16);
        (meta.data, meta.len) = (data, len);
        meta.layers = Layers::network(IPV4, data + offset as u16);
        meta.session = 0;
        true
    }

    /// Forgets what is known of the layers and of the session: for who changed what follows what in the frame.
    #[inline]
    pub fn forget_layers(&mut self) {
        let meta = self.meta_mut();
        (meta.layers, meta.session) = (Layers::UNKNOWN, 0);
    }

    #[inline]
    fn find_network(&mut self) {
        // IPv4 straight above Ethernet, which is nearly all there is, in two comparisons.
        if let Some(Untagged { ethernet, ipv4 }) = self.view(0)
            && ethernet.ether_type.get() == EtherType::IPV4
            && ipv4.version_ihl >> 4 == 4
        {
            let meta = self.meta_mut();
            meta.layers = Layers::network(IPV4, meta.data + size_of::<Ethernet>() as u16);
            return;
        }
        self.search_network();
    }

    #[cold]
    #[inline(never)]
    fn search_network(&mut self) {
        let (kind, offset) = locate_network(self.data());
        let meta = self.meta_mut();
        meta.layers = Layers::network(kind, meta.data + offset as u16);
    }

    fn find_transport(&mut self) {
        let (network, start) = self.network();
        let found = match network {
            Network::Ipv4 => locate_above_ipv4(self.data(), start),
            Network::Ipv6 => ipv6::upper_layer(self.data(), start),
            Network::Other => None,
        };
        let meta = self.meta_mut();
        // An offset of 1, which none into a chunk can be, is "not there". What is above IPv4 by the number 0 is looked for
        // each time.
        let (protocol, transport) =
            found.map_or((RESERVED, 1), |(protocol, offset)| (protocol, meta.data + offset as u16));
        (meta.layers, meta.transport) = (meta.layers.with_protocol(protocol), transport);
    }
}

fn locate_network(frame: &[u8]) -> (u8, usize) {
    let Ok((ethernet, mut rest)) = Ethernet::ref_from_prefix(frame) else {
        return (OTHER, 0);
    };
    let mut ether_type = ethernet.ether_type.get();
    for _ in 0..MOST_TAGS {
        if !EtherType::is_vlan(ether_type) {
            break;
        }
        let Ok((tag, after)) = VlanTag::ref_from_prefix(rest) else {
            return (HIDDEN, 0);
        };
        (ether_type, rest) = (tag.ether_type.get(), after);
    }
    let version = rest.first().map_or(0, |byte| byte >> 4);
    let kind = match (ether_type, version) {
        (EtherType::IPV4, 4) if rest.len() >= size_of::<Ipv4>() => IPV4,
        (EtherType::IPV6, 6) if rest.len() >= size_of::<Ipv6>() => IPV6,
        (EtherType::IPV4 | EtherType::IPV6, _) => HIDDEN,
        (length, _) if length <= MOST_LENGTH && is_ip_in_snap(rest) => HIDDEN,
        _ if EtherType::is_vlan(ether_type) => HIDDEN,
        _ => OTHER,
    };
    (kind, frame.len() - rest.len())
}

/// The largest number in the place of an EtherType that is a length (IEEE 802.3 section 3.2.6).
const MOST_LENGTH: u16 = 1_500;

/// Whether LLC and SNAP headers stand before IP, or before a tag that may stand before IP (RFC 1042). Hosts take such
/// frames for IP (CVE-2021-27853), so no filter may take them for anything else.
fn is_ip_in_snap(llc: &[u8]) -> bool {
    let Some(([0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low], _)) = llc.split_first_chunk::<8>() else { return false };
    let ether_type = u16::from_be_bytes([*high, *low]);
    matches!(ether_type, EtherType::IPV4 | EtherType::IPV6) || EtherType::is_vlan(ether_type)
}

/// The protocol above an IPv4 header and where it starts, in a frame whose header starts at `start`.
pub(crate) fn locate_above_ipv4(frame: &[u8], start: usize) -> Option<(u8, usize)> {
    let header = Ipv4::ref_from_prefix(frame.get(start..)?).ok()?.0;
    let above = start + header.header_len()?;
    (header.fragment_offset() == 0 && above <= frame.len()).then_some((header.protocol, above))
}

impl Packet {
    /// One past the last byte of the IP packet, in bytes into the frame: what follows is padding (IEEE 802.3 section
    /// 3.2.8) and not part of the packet. A sender that leaves segmentation to its device writes an IPv4 length of
    /// zero: the packet then ends with the frame. An IPv6 length of zero is a length: the packet ends with its fixed
    /// header (RFC 8200 section 3).
    #[inline]
    pub fn network_end(&mut self) -> usize {
        let (network, start) = self.network();
        let length = match network {
            Network::Ipv4 => self.known_ipv4().map_or(0, |header| header.total_length.get().into()),
            Network::Ipv6 => self
                .view::<Ipv6>(start)
                .map_or(0, |header| size_of::<Ipv6>() + usize::from(header.payload_length.get())),
            Network::Other => 0,
        };
        if length == 0 { self.len() } else { self.len().min(start + length) }
    }
}

#[cfg(test)]
mod tests;
