//! The session of an ICMP message: a query is of its identifier, an error of the packet that it quotes.
//!
//! So both come to the worker that has their session: a translator's for one, which finds a query by its identifier
//! (RFC 5508 section 3.1) and an error by what is quoted (section 4.2). Which side asks is not in the key: queries of
//! both sides by one identifier come to one worker, and are sessions of their own there.
//!
//! An error about a first fragment is of the session with the quoted ports. The datagram came by whole and a router
//! behind took it apart; or it came in fragments, and was put together before a module with sessions looked at it, on
//! the worker that its ports lead to.

use zerocopy::FromBytes;

use super::{SessionKey, ports_at};
use crate::Network;
use crate::layers::locate_above_ipv4;
use crate::wire::icmp::{ICMPV6, v4, v6};
use crate::wire::ipv4::{ICMP, Ipv4};
use crate::wire::ipv6::{self, Ipv6};

/// Type, code, checksum and a word that queries have their identifier in.
const HEADER: usize = 8;

/// The session of an ICMP message of this IP protocol, if it is a query, an answer to one or an error.
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

fn is_error(protocol: u8, kind: u8) -> bool {
    /// RFC 792; the fourth is source quench.
    const V4: [u8; 4] = [v4::UNREACHABLE, v4::TIME_EXCEEDED, v4::PARAMETER_PROBLEM, 4];
    match protocol {
        ICMP => V4.contains(&kind),
        _ => (v6::UNREACHABLE..v6::FIRST_INFORMATIONAL).contains(&kind),
    }
}

/// What a query and its answer have in common.
fn identifier(protocol: u8, header: &[u8; HEADER]) -> Option<u16> {
    let query = match protocol {
        // Echo; timestamp and information (RFC 792), address mask (RFC 950), extended echo (RFC 8335).
        ICMP => matches!(header[0], v4::ECHO | v4::ECHO_REPLY | 13..=18 | 42 | 43),
        // Echo; node information, by the word that its answer repeats (RFC 4620 section 4), extended echo.
        _ => matches!(header[0], v6::ECHO | v6::ECHO_REPLY | 139 | 140 | 160 | 161),
    };
    query.then(|| u16::from_be_bytes([header[4], header[5]]))
}

/// The session of the packet that an error quotes, as of a packet the way that the error goes. None of a later
/// fragment, which does not show its ports, and of what quotes too little.
fn quoted(packet: &[u8], protocol: u8) -> Option<SessionKey> {
    let (network, transport) = match protocol {
        ICMP => (Network::Ipv4, locate_above_ipv4(packet, 0)),
        _ => (Network::Ipv6, ipv6::upper_layer(packet, 0)),
    };
    let (upper, offset) = transport?;
    let (source, destination) = match network {
        Network::Ipv4 => {
            let (header, _) = Ipv4::ref_from_prefix(packet).ok()?;
            (wide(header.source), wide(header.destination))
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

fn wide(address: [u8; 4]) -> [u8; 16] {
    let mut wide = [0; 16];
    wide[..4].copy_from_slice(&address);
    wide
}

/// Whether a protocol is ICMP over this IP version.
pub(super) fn is_icmp(network: Network, protocol: u8) -> bool {
    match network {
        Network::Ipv4 => protocol == ICMP,
        Network::Ipv6 => protocol == ICMPV6,
        Network::Other => false,
    }
}
