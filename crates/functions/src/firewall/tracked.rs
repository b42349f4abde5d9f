//! A connection as a firewall remembers it: found by one key, whichever side a packet comes from.

use forebay_packet::Packet;
use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::wire::ipv4::ICMP;
use zerocopy::FromZeros;

use crate::connection::Connection;
use crate::tables::sessions::{Key, Session, Tuple4, Tuple6};

/// A 5-tuple that has an opposite.
pub(super) trait Tuple: Key + Ord + FromZeros {
    /// The protocol number of its IP version's ICMP.
    const ICMP: u8;

    /// Whether a packet is sent to where packets of this 5-tuple come from.
    fn is_answered_by(self, packet: &mut Packet) -> bool;

    /// That of packets the other way.
    fn opposite(self) -> Self;

    /// The same key for both ways, and whether it is that of the other way.
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
    /// 1 where who opened it sends packets whose key is that of the other way.
    turned: u8,
    _spare: [u8; 5],
}

impl<T: Tuple> Tracked<T> {
    #[inline(always)]
    pub(super) fn new(key: T, turned: bool, connection: Connection) -> Self {
        Self { key, connection, turned: u8::from(turned), _spare: [0; 5] }
    }

    /// The 5-tuple of packets of the side that opened it.
    pub(super) fn opener(&self) -> T {
        if self.turned == 1 { self.key.opposite() } else { self.key }
    }

    /// Whether packets that are `turned` come from the side that did not open it.
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
