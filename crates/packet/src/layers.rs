//! Locates a frame's network and transport layers.
//!
//! The first function that needs the offsets computes them. The metadata keeps them as offsets into the chunk, so they
//! stay valid when a header is put before the network layer or taken off.

use std::hint::cold_path;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::Packet;
use crate::metadata::{LINE, Layers};
use crate::wire::ethernet::{EtherType, Ethernet, VlanTag};
use crate::wire::ipv4::Ipv4;
use crate::wire::ipv6::{self, Ipv6};

mod upper;

pub use upper::{Hidden, Upper};

/// The most VLAN tags that the search for the network layer skips: a customer's tag in a provider's tag (IEEE 802.1ad),
/// and two more for networks that put such frames into tags of their own.
pub const MOST_TAGS: usize = 4;

/// An Ethernet header followed by a fixed IPv4 header, without VLAN tags.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Untagged {
    ethernet: Ethernet,
    ipv4: Ipv4,
}

// Values of `Layers::kind`. 0 means that the network layer has not been located.

/// The frame carries no IP.
const OTHER: u8 = 1;
/// The network layer cannot be found, or the frame carries IP and the fixed header cannot be read.
const HIDDEN: u8 = 2;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// A reserved protocol number, which no packet has (IANA, *Assigned Internet Protocol Numbers*). The metadata has this
/// number if the search found no transport layer.
const RESERVED: u8 = 255;

/// The protocol that a frame carries above Ethernet and its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4. The whole fixed header is present and its version field is 4.
    Ipv4,
    /// IPv6. The whole fixed header is present and its version field is 6.
    Ipv6,
    /// Any other protocol, or a frame that is too short to find the protocol.
    Other,
}

impl Packet {
    /// Returns the protocol that the frame carries above Ethernet, and its offset in bytes into the frame.
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

    /// Returns the IPv4 header, if the frame has one.
    #[inline]
    pub fn ipv4(&mut self) -> Option<&mut Ipv4> {
        if self.meta().layers == Layers::UNKNOWN {
            cold_path();
            self.find_network();
        }
        self.known_ipv4()
    }

    /// Returns the IPv4 header if the network layer has been located already. After any function has located it, the
    /// result is the same as that of [`ipv4`](Self::ipv4), in fewer instructions.
    #[inline]
    pub fn known_ipv4(&mut self) -> Option<&mut Ipv4> {
        let layers = self.meta().layers;
        if layers.kind() != IPV4 {
            return None;
        }
        let start = usize::from(layers.offset());
        // SAFETY: `kind` is IPv4 only if the whole fixed header at `offset` is inside the frame. `find_network`,
        // `is_plain_ipv4`, `place_ipv4` and similar methods set both; `strip` and `truncate` reset the layers if the
        // header would leave the frame. So the header lies in the chunk, past the metadata, and is initialised. `Ipv4`
        // has alignment 1 and every bit pattern is valid. `&mut self` makes the access exclusive.
        Some(unsafe { &mut *self.chunk().as_ptr().cast::<u8>().add(start).cast::<Ipv4>() })
    }

    /// Returns the IPv4 header, if the frame has one, and the number of bytes from its start to the end of the frame.
    /// That number is at least the size of the fixed header.
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

    /// Returns true if the frame is IPv4 without options directly above Ethernet, its header is valid
    /// ([`Ipv4::is_valid`]), and `marked` is false for the first octet of both addresses. Nearly all frames pass this
    /// test, which takes few instructions. `false` gives no information about the frame. Unknown layers become known if
    /// the result is `true`, and stay unknown if it is `false`.
    #[inline]
    pub fn is_plain_ipv4(&mut self, marked: &[bool; 256]) -> bool {
        let Some(frame) = self.view::<Untagged>(0) else { return false };
        let room = self.len() - size_of::<Untagged>();
        if frame.ethernet.ether_type.get() != EtherType::IPV4 {
            return false;
        }
        // This comes before the checksum test. After that test, the compiler would extract both octets from the words
        // that were added up, which takes more instructions than reading them.
        let [source, destination] = [frame.ipv4.source[0], frame.ipv4.destination[0]];
        if marked[usize::from(source)] | marked[usize::from(destination)] || !frame.ipv4.is_plain_and_valid(room) {
            return false;
        }
        let meta = self.meta_mut();
        // Layers that are already known may include the transport protocol: keep them.
        if meta.layers == Layers::UNKNOWN {
            meta.layers = Layers::network(IPV4, meta.data, size_of::<Ethernet>() as u16);
        }
        true
    }

    /// Returns the IPv6 header, if the frame has one.
    #[inline]
    pub fn ipv6(&mut self) -> Option<&mut Ipv6> {
        match self.network() {
            (Network::Ipv6, offset) => self.view_mut(offset),
            _ => None,
        }
    }

    /// Returns the protocol number of the header above IP, and the offset of this header in bytes into the frame. IPv6
    /// extension headers are skipped. Returns `None` if the frame is not IP, if the header cannot be found in the
    /// frame, or if the packet is a fragment other than the first, which has no transport header (RFC 791 section 3.2,
    /// RFC 8200 section 4.5).
    #[inline]
    pub fn transport(&mut self) -> Option<(u8, usize)> {
        if self.meta().layers.protocol() == 0 {
            self.find_transport();
        }
        let meta = self.meta();
        (meta.transport > 1).then(|| (meta.layers.protocol(), usize::from(meta.transport.saturating_sub(meta.data))))
    }

    /// Records that an IPv4 header of version 4 starts `offset` bytes into the frame, behind the Ethernet header. A
    /// caller that has just written the header, or has removed the headers before it, uses this method to avoid a
    /// search. The previous layers and session hash are reset. Returns `false`, and leaves the network layer unknown,
    /// if the frame ends before the fixed header does.
    #[inline]
    pub fn place_ipv4(&mut self, offset: usize) -> bool {
        let fits = self.len().checked_sub(size_of::<Ipv4>()).is_some_and(|most| offset <= most);
        let meta = self.meta_mut();
        meta.layers = if fits { Layers::network(IPV4, meta.data, offset as u16) } else { Layers::UNKNOWN };
        meta.session = 0;
        fits
    }

    /// Grows the frame by `n` bytes at its start for new headers. The IPv4 header among them must start `offset` bytes
    /// into the grown frame. Returns the first `N` bytes, all of which the caller must write. Does the same as
    /// [`prepend`](Self::prepend) and [`place_ipv4`](Self::place_ipv4) in fewer instructions. Returns `None` and
    /// changes nothing if the headroom is too small, the grown frame is shorter than `N` bytes, or the IPv4 header is
    /// not within the `N` bytes.
    #[inline(always)]
    pub fn wrap_in_ipv4<const N: usize>(&mut self, n: usize, offset: usize) -> Option<&mut [u8; N]> {
        let (data, len) = (usize::from(self.meta().data), self.len().saturating_add(n));
        let least = usize::from(self.meta().start) * LINE;
        if data < least.saturating_add(n) || len < N || offset > N.checked_sub(size_of::<Ipv4>())? {
            return None;
        }
        let data = data - n;
        let meta = self.meta_mut();
        (meta.data, meta.len) = (data as u16, len as u16);
        meta.layers = Layers::network(IPV4, meta.data, offset as u16);
        meta.session = 0;
        // SAFETY: `data..data + len` lies in the chunk and past its metadata (the start was checked above), and is
        // initialised. It has at least `N` bytes. `&mut self` makes the access exclusive.
        Some(unsafe { &mut *self.chunk().as_ptr().cast::<u8>().add(data).cast::<[u8; N]>() })
    }

    /// Removes `n` bytes from the frame's start. An IPv4 header must start `offset` bytes after the removed bytes. Does
    /// the same as [`strip`](Self::strip) and [`place_ipv4`](Self::place_ipv4) in fewer instructions. Returns `false`
    /// and changes nothing if the frame ends before the fixed header does.
    #[inline(always)]
    pub fn unwrap_to_ipv4(&mut self, n: usize, offset: usize) -> bool {
        let fits = self.len().checked_sub(size_of::<Ipv4>()).and_then(|most| most.checked_sub(n));
        if fits.is_none_or(|most| offset > most) {
            return false;
        }
        let meta = self.meta_mut();
        let (data, len) = (meta.data + n as u16, meta.len - n as u16);
        (meta.data, meta.len) = (data, len);
        meta.layers = Layers::network(IPV4, data, offset as u16);
        meta.session = 0;
        true
    }

    /// Resets the layers and the session hash. A caller that changes the protocols of the frame's headers must call
    /// this.
    #[inline]
    pub fn forget_layers(&mut self) {
        let meta = self.meta_mut();
        (meta.layers, meta.session) = (Layers::UNKNOWN, 0);
    }

    /// Locates the network layer, and records it in the metadata.
    #[inline]
    fn find_network(&mut self) {
        // Nearly all frames are IPv4 directly above Ethernet. Two comparisons find them.
        if let Some(Untagged { ethernet, ipv4 }) = self.view(0)
            && ethernet.ether_type.get() == EtherType::IPV4
            && ipv4.version_ihl >> 4 == 4
        {
            let meta = self.meta_mut();
            meta.layers = Layers::network(IPV4, meta.data, size_of::<Ethernet>() as u16);
            return;
        }
        self.search_network();
    }

    /// Locates the network layer of a frame of any form, and records it in the metadata.
    #[cold]
    #[inline(never)]
    fn search_network(&mut self) {
        let (kind, offset) = locate_network(self.data());
        let meta = self.meta_mut();
        meta.layers = Layers::network(kind, meta.data, offset as u16);
    }

    /// Locates the header above the network layer, and records it or its absence in the metadata.
    fn find_transport(&mut self) {
        let (network, start) = self.network();
        let found = match network {
            Network::Ipv4 => locate_above_ipv4(self.data(), start),
            Network::Ipv6 => ipv6::upper_layer(self.data(), start),
            Network::Other => None,
        };
        let meta = self.meta_mut();
        // A transport offset of 1 cannot be an offset into a chunk; it means "no transport layer". Protocol number 0
        // above IPv4 also means "unknown", so such a packet is searched each time.
        let (protocol, transport) =
            found.map_or((RESERVED, 1), |(protocol, offset)| (protocol, meta.data + offset as u16));
        (meta.layers, meta.transport) = (meta.layers.with_protocol(protocol), transport);
    }
}

/// Returns the kind of a frame's network layer (`OTHER`, `HIDDEN`, `IPV4` or `IPV6`), and its offset in bytes.
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
        (length, _) if length <= MAX_LENGTH_FIELD && is_ip_in_snap(rest) => HIDDEN,
        _ if EtherType::is_vlan(ether_type) => HIDDEN,
        _ => OTHER,
    };
    (kind, frame.len() - rest.len())
}

/// The largest value in the EtherType field that is a length (IEEE 802.3 section 3.2.6).
const MAX_LENGTH_FIELD: u16 = 1_500;

/// Returns whether LLC and SNAP headers stand before IP, or before a VLAN tag that may stand before IP (RFC 1042).
/// Hosts accept such frames as IP (CVE-2021-27853), so a filter must not treat them as another protocol.
fn is_ip_in_snap(llc: &[u8]) -> bool {
    let Some(([0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low], _)) = llc.split_first_chunk::<8>() else { return false };
    let ether_type = u16::from_be_bytes([*high, *low]);
    matches!(ether_type, EtherType::IPV4 | EtherType::IPV6) || EtherType::is_vlan(ether_type)
}

/// Returns the protocol above an IPv4 header and its offset in the frame. The header starts at `start`. `None` if the
/// header is invalid or cut short, or if the packet is a fragment other than the first.
pub(crate) fn locate_above_ipv4(frame: &[u8], start: usize) -> Option<(u8, usize)> {
    let header = Ipv4::ref_from_prefix(frame.get(start..)?).ok()?.0;
    let above = start + header.header_len()?;
    (header.fragment_offset() == 0 && above <= frame.len()).then_some((header.protocol, above))
}

impl Packet {
    /// Returns the end of the IP packet, in bytes into the frame. Bytes after it are padding (IEEE 802.3 section 3.2.8)
    /// and not part of the packet. A sender that leaves segmentation to its device writes an IPv4 length of zero; such
    /// a packet ends with the frame. An IPv6 length of zero is a real length: the packet ends with its fixed header
    /// (RFC 8200 section 3).
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
