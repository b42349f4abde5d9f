//! Neighbour solicitations and advertisements of IPv6 (RFC 4861 sections 4.3 and 4.4).

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ethernet::MacAddress;
use super::icmp::Icmp;

/// The ICMPv6 type of a router solicitation, the first of the five neighbour discovery types.
pub const ROUTER_SOLICITATION: u8 = 133;
/// The ICMPv6 type of a neighbour solicitation.
pub const SOLICITATION: u8 = 135;
/// The ICMPv6 type of a neighbour advertisement.
pub const ADVERTISEMENT: u8 = 136;
/// The ICMPv6 type of a redirect, the last of the five.
pub const REDIRECT: u8 = 137;
/// The hop limit of a message that no router has forwarded.
pub const HOP_LIMIT: u8 = 255;

/// Advertisement flag: the sender is a router.
pub const ROUTER: u32 = 1 << 31;
/// Advertisement flag: the message replies to a solicitation.
pub const SOLICITED: u32 = 1 << 30;
/// Advertisement flag: the message overrides an existing entry.
pub const OVERRIDE: u32 = 1 << 29;

/// The type of the option with the source link-layer address.
const SOURCE_LINK_LAYER: u8 = 1;
/// The type of the option with the target link-layer address.
const TARGET_LINK_LAYER: u8 = 2;

/// A solicitation or advertisement with the one option that Forebay writes: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Neighbour {
    /// Type, code, checksum.
    pub icmp: Icmp,
    /// Flags of an advertisement; reserved in a solicitation.
    pub flags: U32,
    /// The IPv6 address that the message is about.
    pub target: [u8; 16],
    /// The option's type.
    pub option: u8,
    /// The option's length in units of 8 bytes: 1.
    pub option_length: u8,
    /// The link-layer address.
    pub link_layer: MacAddress,
}

/// Length of the part before the options.
const FIXED: usize = 24;

/// The content of a solicitation or advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The IPv6 address that the message is about.
    pub target: [u8; 16],
    /// Flags of an advertisement ([`ROUTER`], [`SOLICITED`], [`OVERRIDE`]); reserved in a solicitation.
    pub flags: u32,
    /// The source's link-layer address in a solicitation, the target's in an advertisement. `None` if the message has
    /// no option with this address.
    pub link_layer: Option<MacAddress>,
}

impl Neighbour {
    /// Creates a solicitation of `target`, sent by the owner of `link_layer`. The caller must still write the checksum.
    #[must_use]
    pub fn solicitation(target: [u8; 16], link_layer: MacAddress) -> Self {
        Self::of(SOLICITATION, 0, target, SOURCE_LINK_LAYER, link_layer)
    }

    /// Creates an advertisement of `target`, which has the address `link_layer`. The caller must still write the
    /// checksum.
    #[must_use]
    pub fn advertisement(flags: u32, target: [u8; 16], link_layer: MacAddress) -> Self {
        Self::of(ADVERTISEMENT, flags, target, TARGET_LINK_LAYER, link_layer)
    }

    fn of(kind: u8, flags: u32, target: [u8; 16], option: u8, link_layer: MacAddress) -> Self {
        let icmp = Icmp { kind, code: 0, checksum: 0.into() };
        Self { icmp, flags: flags.into(), target, option, option_length: 1, link_layer }
    }

    /// Parses an ICMPv6 message of type [`SOLICITATION`] or [`ADVERTISEMENT`]. Returns `None` if the message violates
    /// RFC 4861 sections 7.1.1 and 7.1.2: code, length, target, or an option of length 0. The caller must check the
    /// checksum, the hop limit and conditions on the addresses of the packet.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Said> {
        let (fixed, mut options) = message.split_at_checked(FIXED)?;
        let wanted = match fixed[0] {
            SOLICITATION => SOURCE_LINK_LAYER,
            ADVERTISEMENT => TARGET_LINK_LAYER,
            _ => return None,
        };
        let target: [u8; 16] = fixed[8..].try_into().ok()?;
        if fixed[1] != 0 || target[0] == 0xff {
            return None;
        }
        let flags = u32::from_be_bytes(fixed[4..8].try_into().ok()?);
        let mut link_layer = None;
        while let [kind, length, ..] = *options {
            let (option, rest) = options.split_at_checked(8 * usize::from(length)).filter(|_| length > 0)?;
            if kind == wanted && link_layer.is_none() {
                // An Ethernet address: one unit (RFC 2464 section 6).
                link_layer = Some(MacAddress(option[2..8].try_into().ok()?));
            }
            options = rest;
        }
        // A single byte is not an option.
        options.is_empty().then_some(Said { target, flags, link_layer })
    }
}

/// Returns the multicast address that the owner of `address` listens to (RFC 4291 section 2.7.1).
#[must_use]
pub fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = address;
    [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

/// Fuzz target: parses any bytes. A valid message must parse to the same content after it is written again.
pub fn fuzz_neighbour(bytes: &[u8]) {
    let Some(content) = Neighbour::parse(bytes) else { return };
    let Some(link_layer) = content.link_layer else { return };
    let written = match bytes[0] {
        SOLICITATION => Neighbour::solicitation(content.target, link_layer),
        _ => Neighbour::advertisement(content.flags, content.target, link_layer),
    };
    let again = Neighbour::parse(written.as_bytes());
    assert_eq!(again.map(|it| (it.target, it.link_layer)), Some((content.target, content.link_layer)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const TARGET: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0xef, 1];

    #[test]
    fn messages_byte_by_byte() {
        let start = |kind, flags| [&[kind, 0, 0, 0, flags, 0, 0, 0], &TARGET[..]].concat();
        let solicitation = [&start(135, 0)[..], &[1, 1, 2, 0, 0, 0, 0, 1]].concat();
        assert_eq!(Neighbour::solicitation(TARGET, MAC).as_bytes(), solicitation);
        let advertisement = [&start(136, 0x60)[..], &[2, 1, 2, 0, 0, 0, 0, 1]].concat();
        assert_eq!(Neighbour::advertisement(SOLICITED | OVERRIDE, TARGET, MAC).as_bytes(), advertisement);
        let content = Said { target: TARGET, flags: SOLICITED | OVERRIDE, link_layer: Some(MAC) };
        assert_eq!(Neighbour::parse(&advertisement), Some(content));
        // The other message type's option is ignored, and unknown options are skipped (section 4.6).
        let other =
            [&start(135, 0)[..], &[2, 1, 9, 9, 9, 9, 9, 9, 14, 2], &[0; 14], &[1, 1, 2, 0, 0, 0, 0, 1]].concat();
        assert_eq!(Neighbour::parse(&other).and_then(|content| content.link_layer), Some(MAC));
        assert_eq!(solicited_node(TARGET)[11..], [1, 0xff, 0xcd, 0xef, 1]);
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let right = Neighbour::solicitation(TARGET, MAC).as_bytes().to_vec();
        assert!(Neighbour::parse(&right).is_some() && Neighbour::parse(&right[..24]).is_some());
        for cut in (0..24).chain(25..32) {
            assert_eq!(Neighbour::parse(&right[..cut]), None, "{cut} bytes");
        }
        for (at, value) in [(0, 134), (1, 1), (8, 0xff), (25, 0), (25, 2)] {
            let mut bytes = right.clone();
            bytes[at] = value;
            assert_eq!(Neighbour::parse(&bytes), None, "byte {at}");
        }
    }
}
