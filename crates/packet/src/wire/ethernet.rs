//! Ethernet II frames (IEEE 802.3) and their VLAN tags (IEEE 802.1Q).

use std::fmt;
use std::str::FromStr;

use forebay_units::text::short;
use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An Ethernet address. In configurations, it is text, for example `02:00:00:00:00:01`.
#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

/// Text that is not an Ethernet address.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "'{0}' is not an Ethernet address: write six pairs of hexadecimal digits with colons between them, such as \
     02:00:00:00:00:01"
)]
pub struct MacAddressError(String);

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || MacAddressError(short(text));
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(bad)?, 16).map_err(|_| bad())?;
        }
        parts.next().is_none().then_some(Self(bytes)).ok_or_else(bad)
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The two octets that give the protocol after an Ethernet header or tag. Values from 1 536 on are protocols, and
/// values up to 1 500 are lengths (IEEE 802.3 section 3.2.6).
pub struct EtherType;

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// A customer's VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// A provider's VLAN tag (IEEE 802.1ad).
    pub const PROVIDER_VLAN: u16 = 0x88a8;
    /// Provider VLAN tags from before IEEE 802.1ad, which devices still write.
    pub const OLD_PROVIDER_VLANS: [u16; 3] = [0x9100, 0x9200, 0x9300];

    /// Returns whether a VLAN tag follows.
    #[inline]
    #[must_use]
    pub fn is_vlan(ether_type: u16) -> bool {
        ether_type == Self::VLAN || ether_type == Self::PROVIDER_VLAN || Self::OLD_PROVIDER_VLANS.contains(&ether_type)
    }
}

/// The header of an Ethernet II frame: 14 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ethernet {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// The protocol that follows ([`EtherType`]).
    pub ether_type: U16,
}

/// The four bytes of a VLAN tag after the type field that announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanTag {
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub control: U16,
    /// The protocol that follows.
    pub ether_type: U16,
}

impl VlanTag {
    /// Returns the VLAN identifier, 0..=4095.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u16 {
        self.control.get() & 0x0fff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_alike() {
        let text = "02:00:5e:10:aa:ff";
        assert_eq!(text.parse::<MacAddress>().expect("well-formed").to_string(), text);
    }

    #[test]
    fn errors_name_the_invalid_address() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:zz", "+2:00:00:00:00:00"]
        {
            let error = text.parse::<MacAddress>().expect_err(text);
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
    }
}
