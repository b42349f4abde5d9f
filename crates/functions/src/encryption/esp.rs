//! What both ends of an ESP tunnel share (RFC 4303): how associations are written, their keys, and how long they last.

pub(crate) mod lasting;
pub(crate) mod lifetime;
pub(crate) mod line;

use std::net::IpAddr;

use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;

/// The IP protocol number of ESP.
pub(crate) const ESP: u8 = 50;
/// Security parameters index and sequence number.
pub(crate) const HEADER: usize = 8;
/// The initialisation vector of AES-GCM (RFC 4106 section 3.1).
pub(crate) const IV: usize = 8;
/// Pad length and next header.
pub(crate) const TRAILER: usize = 2;
/// Bytes of the salt, which follows the key (RFC 4106 section 8.1).
pub(crate) const SALT: usize = 4;
/// The port of ESP in UDP (RFC 3948).
pub(crate) const PORT: u16 = 4_500;

/// What the trailer says that the payload is (RFC 4303 section 2.6).
pub(crate) mod next {
    pub(crate) const IPV4: u8 = 4;
    pub(crate) const IPV6: u8 = 41;
    /// Nothing: the packet was sent only to be sent.
    pub(crate) const NONE: u8 = 59;
}

/// The nonce (RFC 4106 section 4).
#[inline(always)]
pub(crate) fn nonce(salt: [u8; SALT], iv: [u8; IV]) -> [u8; forebay_aead::NONCE] {
    let mut nonce = [0; forebay_aead::NONCE];
    nonce[..SALT].copy_from_slice(&salt);
    nonce[SALT..].copy_from_slice(&iv);
    nonce
}

/// What is authenticated besides the payload: the index and the sequence number, of 64 bits where they are extended (RFC
/// 4106 section 5); and how many bytes of it count.
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

/// Bytes of an IP header of an address's kind.
pub(crate) fn header_of(address: IpAddr) -> usize {
    if address.is_ipv4() { size_of::<Ipv4>() } else { size_of::<Ipv6>() }
}
