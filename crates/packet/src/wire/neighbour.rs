//! Neighbour solicitations and advertisements of IPv6 (RFC 4861 sections 4.3 and 4.4).

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ethernet::MacAddress;
use super::icmp::Icmp;

/// The ICMPv6 type of a router solicitation, the first of the five of neighbour discovery.
pub const ROUTER_SOLICITATION: u8 = 133;
/// The ICMPv6 type of a neighbour solicitation.
pub const SOLICITATION: u8 = 135;
/// The ICMPv6 type of a neighbour advertisement.
pub const ADVERTISEMENT: u8 = 136;
/// The ICMPv6 type of a redirect, the last of the five.
pub const REDIRECT: u8 = 137;
/// The hop limit that shows that no router has passed a message on.
pub const HOP_LIMIT: u8 = 255;

/// In an advertisement: the sender is a router.
pub const ROUTER: u32 = 1 << 31;
/// It answers a solicitation.
pub const SOLICITED: u32 = 1 << 30;
/// It overrides what is known.
pub const OVERRIDE: u32 = 1 << 29;

/// The option that has the sender's link-layer address.
const SOURCE_LINK_LAYER: u8 = 1;
/// The option that has the target's link-layer address.
const TARGET_LINK_LAYER: u8 = 2;

/// A solicitation or advertisement with the one option that Forebay writes: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Neighbour {
    /// Type, code, checksum.
    pub icmp: Icmp,
    /// Flags of an advertisement; reserved in a solicitation.
    pub flags: U32,
    /// Whose address it is about.
    pub target: [u8; 16],
    /// The option's type.
    pub option: u8,
    /// Its length in units of 8 bytes: 1.
    pub option_length: u8,
    /// The link-layer address.
    pub link_layer: MacAddress,
}

/// What is before the options.
const FIXED: usize = 24;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whose address it is about.
    pub target: [u8; 16],
    /// Flags of an advertisement.
    pub flags: u32,
    /// The link-layer address that its option names: of the source in a solicitation, of the target in an advertisement.
    pub link_layer: Option<MacAddress>,
}

impl Neighbour {
    /// A solicitation of `target` by who has `link_layer`. The checksum is still to be written.
    #[must_use]
    pub fn solicitation(target: [u8; 16], link_layer: MacAddress) -> Self {
        Self::of(SOLICITATION, 0, target, SOURCE_LINK_LAYER, link_layer)
    }

    /// An advertisement of `target`, which has `link_layer`. The checksum is still to be written.
    #[must_use]
    pub fn advertisement(flags: u32, target: [u8; 16], link_layer: MacAddress) -> Self {
        Self::of(ADVERTISEMENT, flags, target, TARGET_LINK_LAYER, link_layer)
    }

    fn of(kind: u8, flags: u32, target: [u8; 16], option: u8, link_layer: MacAddress) -> Self {
        let icmp = Icmp { kind, code: 0, checksum: 0.into() };
        Self { icmp, flags: flags.into(), target, option, option_length: 1, link_layer }
    }

    /// Reads an ICMPv6 message of type [`SOLICITATION`] or [`ADVERTISEMENT`]. `None` where what RFC 4861 sections 7.1.1 and
    /// 7.1.2 ask of the message itself is not so: code, length, target, options of length 0. Checksum, hop limit and what
    /// depends on the addresses of the packet are the caller's.
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
                // Of Ethernet: one unit (RFC 2464 section 6).
                link_layer = Some(MacAddress(option[2..8].try_into().ok()?));
            }
            options = rest;
        }
        // A single byte is no option.
        options.is_empty().then_some(Said { target, flags, link_layer })
    }
}

/// The multicast address that who has `address` listens to (RFC 4291 section 2.7.1).
#[must_use]
pub fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = address;
    [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

/// For fuzzing: any bytes are a message or none, and what is one says the same when it is written anew.
pub fn fuzz_neighbour(bytes: &[u8]) {
    let Some(said) = Neighbour::parse(bytes) else { return };
    let Some(link_layer) = said.link_layer else { return };
    let written = match bytes[0] {
        SOLICITATION => Neighbour::solicitation(said.target, link_layer),
        _ => Neighbour::advertisement(said.flags, said.target, link_layer),
    };
    let again = Neighbour::parse(written.as_bytes());
    assert_eq!(again.map(|it| (it.target, it.link_layer)), Some((said.target, said.link_layer)));
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
        let said = Said { target: TARGET, flags: SOLICITED | OVERRIDE, link_layer: Some(MAC) };
        assert_eq!(Neighbour::parse(&advertisement), Some(said));
        // The other's option is not this one's, and unknown options are skipped (section 4.6).
        let other =
            [&start(135, 0)[..], &[2, 1, 9, 9, 9, 9, 9, 9, 14, 2], &[0; 14], &[1, 1, 2, 0, 0, 0, 0, 1]].concat();
        assert_eq!(Neighbour::parse(&other).and_then(|said| said.link_layer), Some(MAC));
        assert_eq!(solicited_node(TARGET)[11..], [1, 0xff, 0xcd, 0xef, 1]);
    }

    #[test]
    fn what_must_be_discarded_is() {
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
