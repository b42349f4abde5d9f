//! A connection in a firewall's table. Packets of both sides find it by the same key.

use forebay_packet::Packet;
use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::wire::ipv4::ICMP;
use forebay_tables::sessions::{Key, Session, Tuple4, Tuple6};
use zerocopy::FromZeros;

use crate::connection::Connection;

/// A 5-tuple that can be reversed.
pub(super) trait Tuple: Key + Ord + FromZeros {
    /// The protocol number of its IP version's ICMP.
    const ICMP: u8;

    /// Returns true if a packet's destination is the source of this 5-tuple.
    fn is_answered_by(self, packet: &mut Packet) -> bool;

    /// Returns the 5-tuple of packets in the opposite direction.
    fn opposite(self) -> Self;

    /// Returns the key, which is the same for both directions, and true if the key is the reversed 5-tuple.
    #[inline(always)]
    fn ordered(self) -> (Self, bool) {
        let opposite = self.opposite();
        if opposite < self { (opposite, true) } else { (self, false) }
    }
}

impl Tuple for Tuple4 {
    const ICMP: u8 = ICMP;

    fn is_answered_by(self, packet: &mut Packet) -> bool {
        packet.ipv4().is_some_and(|ip| ip.destination == self.source())
    }

    #[inline(always)]
    fn opposite(self) -> Self {
        self.reversed()
    }
}

impl Tuple for Tuple6 {
    const ICMP: u8 = ICMPV6;

    fn is_answered_by(self, packet: &mut Packet) -> bool {
        packet.ipv6().is_some_and(|ip| ip.destination == self.source())
    }

    #[inline(always)]
    fn opposite(self) -> Self {
        self.reversed()
    }
}

/// A connection.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Tracked<T> {
    key: T,
    pub(super) connection: Connection,
    /// 1 if the key is reversed for packets of the side that opened the connection.
    turned: u8,
    /// Padding: `FromZeros` is derived only for structs without implicit padding.
    _spare: [u8; 5],
}

impl<T: Tuple> Tracked<T> {
    /// Creates a connection. `turned` is true if the key is the reversed 5-tuple of its first packet.
    #[inline(always)]
    pub(super) fn new(key: T, turned: bool, connection: Connection) -> Self {
        Self { key, connection, turned: u8::from(turned), _spare: [0; 5] }
    }

    /// Returns the 5-tuple of packets of the side that opened the connection.
    pub(super) fn opener(&self) -> T {
        if self.turned == 1 { self.key.opposite() } else { self.key }
    }

    /// Returns true for packets from the side that did not open the connection. `turned` is true if their key is the
    /// reversed 5-tuple ([`Tuple::ordered`]).
    #[inline(always)]
    pub(super) fn is_reply(&self, turned: bool) -> bool {
        (self.turned == 1) != turned
    }
}

impl<T: Tuple> Session for Tracked<T> {
    type Key = T;
    const SIDES: u32 = 1;

    #[inline(always)]
    fn key(&self, _: u32) -> T {
        self.key
    }
}
