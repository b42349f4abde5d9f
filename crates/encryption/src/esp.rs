//! Shared code of both ends of an ESP tunnel (RFC 4303): the syntax of associations, their keys, and their lifetimes.

pub(crate) mod lasting;
pub(crate) mod lifetime;
pub(crate) mod line;

use std::net::IpAddr;

use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;

/// The IP protocol number of ESP.
pub(crate) const ESP: u8 = 50;
/// The number of bytes of the security parameters index and the sequence number.
pub(crate) const HEADER: usize = 8;
/// The number of bytes of the initialisation vector of AES-GCM (RFC 4106 section 3.1).
pub(crate) const IV: usize = 8;
/// The number of bytes of the pad length and the next header.
pub(crate) const TRAILER: usize = 2;
/// The number of bytes of the salt, which follows the key (RFC 4106 section 8.1).
pub(crate) const SALT: usize = 4;
/// The UDP port of ESP in UDP (RFC 3948).
pub(crate) const PORT: u16 = 4_500;

/// Values of the trailer's next header, the type of the payload (RFC 4303 section 2.6).
pub(crate) mod next {
    pub(crate) const IPV4: u8 = 4;
    pub(crate) const IPV6: u8 = 41;
    /// No payload: a dummy packet.
    pub(crate) const NONE: u8 = 59;
}

/// Returns the nonce (RFC 4106 section 4).
#[inline(always)]
pub(crate) fn nonce(salt: [u8; SALT], iv: [u8; IV]) -> [u8; forebay_aead::NONCE] {
    let mut nonce = [0; forebay_aead::NONCE];
    nonce[..SALT].copy_from_slice(&salt);
    nonce[SALT..].copy_from_slice(&iv);
    nonce
}

/// Returns the bytes that are authenticated besides the payload: the index and the sequence number, which has 64 bits
/// if it is extended (RFC 4106 section 5). The second value is the number of bytes that are used, 8 or 12.
#[inline(always)]
pub(crate) fn associated(spi: u32, sequence: u64, extended: bool) -> ([u8; 12], usize) {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&spi.to_be_bytes());
    if extended {
        bytes[4..].copy_from_slice(&sequence.to_be_bytes());
        return (bytes, 12);
    }
    bytes[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
    (bytes, 8)
}

/// Returns the number of bytes of an IP header without options, of the same family as the address.
pub(crate) fn header_of(address: IpAddr) -> usize {
    if address.is_ipv4() { size_of::<Ipv4>() } else { size_of::<Ipv6>() }
}
