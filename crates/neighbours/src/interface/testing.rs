//! Interfaces, and packets of their neighbours, for tests.

use std::sync::Arc;

use etherparse::PacketBuilder;
use forebay_graph::{DeclareState, Setup, SetupEnvironment};
use forebay_packet::{
    MAX_BATCH,
    wire::{arp::Arp, ethernet::MacAddress, neighbour::Neighbour},
};
use forebay_units::Frequency;
use serde_json::json;

use super::{Interface, frames};

pub(crate) const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);
pub(crate) const OWN_V4: [u8; 4] = [192, 0, 2, 1];
pub(crate) const PEER_V4: [u8; 4] = [192, 0, 2, 7];
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Returns `2001:db8::` with this last byte.
pub(crate) fn v6(last: u8) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// Returns a setup environment with the interface `lan`, and this interface. Its addresses are 192.0.2.1/24 and
/// 2001:db8::1/64.
pub(crate) fn environment() -> (SetupEnvironment, Arc<Interface>) {
    let mut all = SetupEnvironment::new(Frequency::new(1e9));
    all.batch = MAX_BATCH;
    let params = json!({ "mac": OWN.to_string(), "addresses": ["192.0.2.1/24", "2001:db8::1/64"], "number": 3 });
    let params = serde_json::from_value(params).expect("parameters");
    let lan = Arc::new(Interface::new(params, &mut Setup::new("lan", &mut all)).expect("valid parameters"));
    all.objects.states.insert("lan".to_owned(), Arc::clone(&lan) as forebay_graph::SharedState);
    (all, lan)
}

/// Returns an IPv4 packet to the interface's Ethernet address.
pub(crate) fn ipv4(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(source, destination, 64).udp(1, 2);
    builder.write(&mut frame, b"payload").expect("memory");
    frame
}

/// Returns an IPv6 packet to the interface's Ethernet address.
pub(crate) fn ipv6(source: [u8; 16], destination: [u8; 16]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(source, destination, 64).udp(1, 2);
    builder.write(&mut frame, b"payload").expect("memory");
    frame
}

/// Returns an ARP message of the peer.
pub(crate) fn arp(to: MacAddress, operation: u16, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let message = Arp::of(operation, (PEER, sender), (MacAddress::default(), target));
    frames::arp(to, PEER, &message).to_vec()
}

/// Returns a neighbour discovery message of the peer.
pub(crate) fn neighbour(source: [u8; 16], destination: [u8; 16], message: Neighbour) -> Vec<u8> {
    let to = if destination[0] == 0xff { frames::multicast_v6(destination) } else { OWN };
    frames::neighbour(to, PEER, source, destination, message).to_vec()
}
