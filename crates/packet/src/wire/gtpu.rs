//! The GTP user plane: header, extension headers and the messages that need no control plane (3GPP TS 29.281).
//!
//! A T-PDU is the user's packet. It follows the header and its extension headers, up to the length in the header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The registered UDP port (section 4.4.2.1): the destination port of all messages except responses.
pub const PORT: u16 = 2_152;

/// Message types (section 6.1).
pub mod kind {
    /// Tests the path.
    pub const ECHO_REQUEST: u8 = 1;
    /// Confirms the path.
    pub const ECHO_RESPONSE: u8 = 2;
    /// Reports that the tunnel of a received T-PDU does not exist.
    pub const ERROR_INDICATION: u8 = 26;
    /// Lists the extension headers that the sender supports, after it received an unsupported one.
    pub const SUPPORTED_EXTENSIONS: u8 = 31;
    /// Marks the end of the packets on a path that is being switched.
    pub const END_MARKER: u8 = 254;
    /// A T-PDU.
    pub const G_PDU: u8 = 255;
}

/// Extension header types (section 5.2.1, figure 5.2.1-3). If the highest bit of the type is set, the endpoint must
/// understand the header or discard the packet.
pub mod extension {
    /// No extension header follows.
    pub const NONE: u8 = 0;
    /// A UDP source port.
    pub const UDP_PORT: u8 = 0x40;
    /// PDU Session Container (TS 38.415): the QoS flow of 5G.
    pub const PDU_SESSION_CONTAINER: u8 = 0x85;
}

/// The supported extension header types.
pub const SUPPORTED: [u8; 2] = [extension::UDP_PORT, extension::PDU_SESSION_CONTAINER];

/// Version 1, protocol type GTP (section 5.1), in the upper four bits of the flags.
const VERSION_1: u8 = 0x30;
/// Mask of version and protocol type, the upper four bits.
const VERSION_MASK: u8 = 0xf0;
/// Flag: an extension header follows the optional fields.
const E: u8 = 0x04;
/// Flag: the sequence number is valid.
const S: u8 = 0x02;
/// The flags E, S and PN. If any of them is set, the four bytes of optional fields are present.
const OPTIONAL: u8 = 0x07;

/// Information elements (section 8.1).
mod element {
    pub const RECOVERY: u8 = 14;
    pub const TEID_DATA_I: u8 = 16;
    pub const PEER_ADDRESS: u8 = 133;
    pub const EXTENSION_TYPES: u8 = 141;
}

/// The mandatory eight bytes of the header (figure 5.1-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Gtpu {
    /// Version (3 bits), protocol type, spare, E, S, PN.
    pub flags: u8,
    /// Message type ([`kind`]).
    pub kind: u8,
    /// Number of bytes after these eight.
    pub length: U16,
    /// Tunnel endpoint identifier, chosen by the receiver.
    pub teid: U32,
}

impl Gtpu {
    /// Flags and message type of a T-PDU without the optional part, as one number. Nearly all messages have this form.
    pub const PLAIN_G_PDU: u16 = (VERSION_1 as u16) << 8 | kind::G_PDU as u16;

    /// Creates the header of a T-PDU with `length` bytes, without the optional part.
    #[inline]
    #[must_use]
    pub fn g_pdu(length: u16, teid: u32) -> Self {
        Self { flags: VERSION_1, kind: kind::G_PDU, length: length.into(), teid: teid.into() }
    }
}

/// The optional part of a T-PDU's header: zero, four or eight bytes after the mandatory part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The sequence number, for tunnels that preserve the order.
    pub sequence: Option<u16>,
    /// The QoS flow, 0 to 63, of a downlink PDU Session Container (TS 38.415 section 5.5.2.1).
    pub qfi: Option<u8>,
}

impl Options {
    /// Length of the optional part in bytes if it contains a PDU Session Container.
    pub const CONTAINER: usize = 8;

    /// Writes another QoS flow into the bytes that [`emit`](Self::emit) has returned for options with a QoS flow. The
    /// lower six bits of `qfi` are used.
    #[inline]
    pub fn set_qfi(bytes: &mut [u8; 8], qfi: u8) {
        bytes[6] = qfi & 0x3f;
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self { qfi: Some(_), .. } => Self::CONTAINER,
            Self { sequence: Some(_), .. } => 4,
            _ => 0,
        }
    }

    /// Returns whether the header has no optional part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the header's flags and the bytes, of which the first [`len`](Self::len) are used.
    #[must_use]
    pub fn emit(&self) -> (u8, [u8; 8]) {
        let [high, low] = self.sequence.unwrap_or(0).to_be_bytes();
        let flags = VERSION_1 | if self.sequence.is_some() { S } else { 0 } | if self.qfi.is_some() { E } else { 0 };
        let bytes = match self.qfi {
            // One unit of four bytes: length, PDU type 0 (downlink), QFI, no further header.
            Some(qfi) => [high, low, 0, extension::PDU_SESSION_CONTAINER, 1, 0, qfi & 0x3f, extension::NONE],
            None => [high, low, 0, extension::NONE, 0, 0, 0, 0],
        };
        (flags, bytes)
    }
}

/// The reasons why bytes are not a valid GTP-U message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GtpuError {
    /// The message is shorter than the header.
    #[error("{0} bytes are too short for a GTP-U header: at least 8 are needed")]
    Truncated(usize),
    /// Another version, or GTP'.
    #[error("the flags {0:#04x} name another version or protocol: allowed is version 1 of GTP (0x3.)")]
    Version(u8),
    /// The length exceeds the available bytes, or leaves no room for the optional fields.
    #[error("length {length} is out of range: {available} bytes follow, and optional fields need 4")]
    Length {
        /// Value of the length field.
        length: usize,
        /// Number of bytes after the header.
        available: usize,
    },
    /// An extension header has length 0 or exceeds the message.
    #[error("the extension header of type {0:#04x} has length 0 or exceeds the message")]
    Extension(u8),
}

/// A validated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type.
    pub kind: u8,
    /// Tunnel endpoint identifier; 0 in messages that belong to no tunnel.
    pub teid: u32,
    /// The sequence number, if present.
    pub sequence: Option<u16>,
    /// The QoS flow in a PDU Session Container, 0 to 63, if present.
    pub qfi: Option<u8>,
    /// The type of the first extension header that must be understood and is not supported.
    pub not_understood: Option<u8>,
    /// Offset of the payload in bytes from the header's start.
    pub payload_at: usize,
    /// The T-PDU, or information elements.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses a message. `bytes` is the UDP payload; bytes after the length in the header are ignored.
    ///
    /// # Errors
    /// Returns a [`GtpuError`] if the message is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GtpuError> {
        let (header, rest) = Gtpu::ref_from_prefix(bytes).map_err(|_| GtpuError::Truncated(bytes.len()))?;
        if header.flags & VERSION_MASK != VERSION_1 {
            return Err(GtpuError::Version(header.flags));
        }
        let length = usize::from(header.length.get());
        let wrong = GtpuError::Length { length, available: rest.len() };
        let body = rest.get(..length).ok_or(wrong)?;
        let mut message = Self {
            kind: header.kind,
            teid: header.teid.get(),
            sequence: None,
            qfi: None,
            not_understood: None,
            payload_at: size_of::<Gtpu>(),
            payload: body,
        };
        if header.flags & OPTIONAL == 0 {
            return Ok(message);
        }
        let (optional, mut rest) = body.split_first_chunk::<4>().ok_or(wrong)?;
        if header.flags & S != 0 {
            message.sequence = Some(u16::from_be_bytes([optional[0], optional[1]]));
        }
        // Without E, the type field is present but has no meaning.
        let mut next = if header.flags & E != 0 { optional[3] } else { extension::NONE };
        while next != extension::NONE {
            // Length in units of four bytes, length and next type included (section 5.2.1).
            let units = rest.first().map_or(0, |units| usize::from(*units));
            let this = rest.split_at_checked(4 * units).filter(|(header, _)| !header.is_empty());
            let (this, after) = this.ok_or(GtpuError::Extension(next))?;
            message.understand(next, this);
            (next, rest) = (this[this.len() - 1], after);
        }
        (message.payload_at, message.payload) = (bytes.len().min(8 + length) - rest.len(), rest);
        Ok(message)
    }

    /// Reads an extension header of type `kind`, or records that the header is not understood.
    fn understand(&mut self, kind: u8, header: &[u8]) {
        if kind == extension::PDU_SESSION_CONTAINER {
            // In both directions, the flow is the lower six bits of the second byte after the length (TS 38.415 section
            // 5.5.2).
            self.qfi = header.get(2).map(|byte| byte & 0x3f);
        } else if kind & 0x80 != 0 && self.not_understood.is_none() {
            self.not_understood = Some(kind);
        }
    }
}

/// The messages that belong to no tunnel: path management and tunnel errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Echo request (section 7.2.1).
    EchoRequest,
    /// Echo response (section 7.2.2).
    EchoResponse,
    /// Error indication (section 7.3.1).
    ErrorIndication {
        /// The tunnel endpoint identifier that does not exist.
        teid: u32,
        /// The destination address of the datagram in which the T-PDU arrived.
        peer: IpAddr,
    },
    /// Supported extension headers notification (section 7.2.3), with [`SUPPORTED`].
    SupportedExtensions,
}

/// Length of the longest [`Signal`] in bytes.
pub const LONGEST_SIGNAL: usize = 36;

impl Signal {
    /// Parses a signal. Returns `None` if the message has another type or lacks a mandatory element.
    #[must_use]
    pub fn parse(message: &Message<'_>) -> Option<Self> {
        let (mut teid, mut peer) = (None, None);
        let mut rest = message.payload;
        // Elements come in ascending order. Types below 128 have fixed lengths that are not in the message (section
        // 8.1). The length of type 141 has one byte, and the lengths of other types from 128 on have two bytes.
        while let [this, after @ ..] = rest {
            let (length, header) = match (*this, after) {
                (element::RECOVERY, _) => (1, 0),
                (element::TEID_DATA_I, _) => (4, 0),
                (element::EXTENSION_TYPES, [length, ..]) => (usize::from(*length), 1),
                (128.., [high, low, ..]) => (usize::from(u16::from_be_bytes([*high, *low])), 2),
                _ => break,
            };
            let Some((value, next)) = after.get(header..).and_then(|after| after.split_at_checked(length)) else {
                break;
            };
            match *this {
                element::TEID_DATA_I => teid = value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
                element::PEER_ADDRESS => {
                    let v4 = || <[u8; 4]>::try_from(value).ok().map(|bytes| Ipv4Addr::from(bytes).into());
                    peer = <[u8; 16]>::try_from(value).ok().map(|bytes| Ipv6Addr::from(bytes).into()).or_else(v4);
                }
                _ => {}
            }
            rest = next;
        }
        match message.kind {
            kind::ECHO_REQUEST => Some(Self::EchoRequest),
            kind::ECHO_RESPONSE => Some(Self::EchoResponse),
            kind::ERROR_INDICATION => Some(Self::ErrorIndication { teid: teid?, peer: peer? }),
            kind::SUPPORTED_EXTENSIONS => Some(Self::SupportedExtensions),
            _ => None,
        }
    }

    /// Writes the message with a sequence number, which all signals have (section 5.1). Returns the bytes and the
    /// number of bytes used.
    #[must_use]
    pub fn emit(&self, sequence: u16) -> ([u8; LONGEST_SIGNAL], usize) {
        let mut bytes = [0; LONGEST_SIGNAL];
        let mut len = 12;
        let mut put = |part: &[u8]| {
            // The array has room for the longest message, an error indication with an IPv6 address.
            if let Some(slot) = bytes.get_mut(len..len + part.len()) {
                slot.copy_from_slice(part);
                len += part.len();
            }
        };
        let kind = match self {
            Self::EchoRequest => kind::ECHO_REQUEST,
            Self::EchoResponse => {
                // The restart counter is always 0, and receivers ignore it (section 8.2).
                put(&[element::RECOVERY, 0]);
                kind::ECHO_RESPONSE
            }
            Self::ErrorIndication { teid, peer } => {
                put(&[element::TEID_DATA_I]);
                put(&teid.to_be_bytes());
                match peer {
                    IpAddr::V4(peer) => {
                        put(&[element::PEER_ADDRESS, 0, 4]);
                        put(&peer.octets());
                    }
                    IpAddr::V6(peer) => {
                        put(&[element::PEER_ADDRESS, 0, 16]);
                        put(&peer.octets());
                    }
                }
                kind::ERROR_INDICATION
            }
            Self::SupportedExtensions => {
                put(&[element::EXTENSION_TYPES, SUPPORTED.len() as u8]);
                put(&SUPPORTED);
                kind::SUPPORTED_EXTENSIONS
            }
        };
        let header = Gtpu { flags: VERSION_1 | S, kind, length: ((len - 8) as u16).into(), teid: U32::ZERO };
        bytes[..8].copy_from_slice(header.as_bytes());
        bytes[8..10].copy_from_slice(&sequence.to_be_bytes());
        (bytes, len)
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
