//! The session of an ICMP message. The identifier of a query determines its session. The packet that an error quotes
//! determines the session of the error.
//!
//! So queries and errors reach the worker that has their session. For example, a translator finds a query by its
//! identifier (RFC 5508 section 3.1) and an error by the quoted packet (section 4.2). The key does not depend on which
//! side sent the query: queries of both sides with one identifier reach one worker, which has separate sessions for
//! them.
//!
//! An error about a first fragment belongs to the session with the quoted ports. Either the datagram passed as a whole
//! and a later router fragmented it; or it arrived in fragments and was reassembled before a module with sessions, on
//! the worker that its ports select.

use zerocopy::FromBytes;

use super::{SessionKey, ports_at};
use crate::Network;
use crate::layers::locate_above_ipv4;
use crate::wire::icmp::{ICMPV6, v4, v6};
use crate::wire::ipv4::{ICMP, Ipv4};
use crate::wire::ipv6::{self, Ipv6};

/// Length of type, code, checksum and the word that holds a query's identifier.
const HEADER: usize = 8;

/// Returns the session of an ICMP message if it is a query, a reply or an error.
pub(super) fn key(outer: SessionKey, message: &[u8]) -> Option<SessionKey> {
    let (header, behind) = message.split_first_chunk::<HEADER>()?;
    if is_error(outer.protocol, header[0]) {
        return quoted(behind, outer.protocol);
    }
    identifier(outer.protocol, header).map(|number| SessionKey {
        source_port: number,
        destination_port: number,
        ..outer
    })
}

/// Returns whether an ICMP or ICMPv6 message of type `kind` is an error.
fn is_error(protocol: u8, kind: u8) -> bool {
    /// RFC 792; type 4 is source quench.
    const V4: [u8; 4] = [v4::UNREACHABLE, v4::TIME_EXCEEDED, v4::PARAMETER_PROBLEM, 4];
    match protocol {
        ICMP => V4.contains(&kind),
        _ => (v6::UNREACHABLE..v6::FIRST_INFORMATIONAL).contains(&kind),
    }
}

/// Returns the identifier that a query and its reply share.
fn identifier(protocol: u8, header: &[u8; HEADER]) -> Option<u16> {
    let query = match protocol {
        // Echo; timestamp and information (RFC 792), address mask (RFC 950), extended echo (RFC 8335).
        ICMP => matches!(header[0], v4::ECHO | v4::ECHO_REPLY | 13..=18 | 42 | 43),
        // Echo; node information, by the word that its reply repeats (RFC 4620 section 4), extended echo.
        _ => matches!(header[0], v6::ECHO | v6::ECHO_REPLY | 139 | 140 | 160 | 161),
    };
    query.then(|| u16::from_be_bytes([header[4], header[5]]))
}

/// Returns the session of the packet that an error quotes, in the direction of the error. Returns `None` for a later
/// fragment, which has no ports, and for a quote that is too short.
fn quoted(packet: &[u8], protocol: u8) -> Option<SessionKey> {
    let (network, transport) = match protocol {
        ICMP => (Network::Ipv4, locate_above_ipv4(packet, 0)),
        _ => (Network::Ipv6, ipv6::upper_layer(packet, 0)),
    };
    let (upper, offset) = transport?;
    let (source, destination) = match network {
        Network::Ipv4 => {
            let (header, _) = Ipv4::ref_from_prefix(packet).ok()?;
            (to_16_bytes(header.source), to_16_bytes(header.destination))
        }
        _ => {
            let (header, _) = Ipv6::ref_from_prefix(packet).ok()?;
            (header.source, header.destination)
        }
    };
    let (from, to) = if upper == protocol {
        let header = packet.get(offset..)?.first_chunk::<HEADER>()?;
        // An error is never about an error (RFC 1122 section 3.2.2).
        if is_error(protocol, header[0]) {
            return None;
        }
        identifier(protocol, header).map_or((0, 0), |number| (number, number))
    } else {
        ports_at(packet, upper, offset, packet.len()).unwrap_or((0, 0))
    };
    Some(SessionKey {
        network,
        source: destination,
        destination: source,
        source_port: to,
        destination_port: from,
        protocol: upper,
    })
}

/// Returns an IPv4 address in the form of [`SessionKey`].
fn to_16_bytes(address: [u8; 4]) -> [u8; 16] {
    let mut wide = [0; 16];
    wide[..4].copy_from_slice(&address);
    wide
}

/// Returns whether a protocol is ICMP for this IP version.
pub(super) fn is_icmp(network: Network, protocol: u8) -> bool {
    match network {
        Network::Ipv4 => protocol == ICMP,
        Network::Ipv6 => protocol == ICMPV6,
        Network::Other => false,
    }
}
