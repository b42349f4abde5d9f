//! A translated session: both of its 5-tuples, and the translation of a packet's headers.

use forebay_tables::sessions::{Session, Tuple4};
use zerocopy::FromZeros;

use super::Gains;
use forebay_tables::plain::Plain;

use crate::connection::Connection;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From inside to outside: the source is translated.
    Out,
    /// From outside to inside: the destination is translated.
    In,
}

/// A session.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Translation {
    /// 5-tuple of packets to outside, before their translation.
    inside: Tuple4,
    /// 5-tuple of packets from outside, before their translation.
    outside: Tuple4,
    /// Checksum differences on the way out.
    gains: Gains,
    /// Number of the session's binding.
    binding: u32,
    pub(super) connection: Connection,
    /// 1 if a packet from outside opened the session.
    reversed: u8,
    /// Padding: `FromZeros` is derived only for structs without implicit padding.
    _spare: [u8; 5],
}

impl Session for Translation {
    type Key = Tuple4;
    const SIDES: u32 = 2;

    #[inline(always)]
    fn key(&self, side: u32) -> Tuple4 {
        if side == Self::INSIDE { self.inside } else { self.outside }
    }
}

impl Translation {
    /// Side of packets to outside.
    pub(super) const INSIDE: u32 = 0;
    /// Side of packets from outside.
    pub(super) const OUTSIDE: u32 = 1;

    /// Creates a session from its 5-tuples and the number of its binding. `opened` is the direction of its first
    /// packet.
    pub(super) fn new(
        (inside, outside): (Tuple4, Tuple4),
        binding: u32,
        connection: Connection,
        opened: Direction,
    ) -> Self {
        let gains = Gains::new((inside.source(), inside.ports().0), (outside.destination(), outside.ports().1));
        let reversed = u8::from(opened == Direction::In);
        Self { inside, outside, gains, binding, connection, reversed, _spare: [0; 5] }
    }

    /// Returns the 5-tuple of packets to outside, before their translation.
    pub(super) fn inside(&self) -> Tuple4 {
        self.inside
    }

    /// Returns the number of the session's binding.
    pub(super) fn binding(&self) -> u32 {
        self.binding
    }

    /// Returns true if a packet in this direction comes from the side that did not open the session.
    #[inline(always)]
    pub(super) fn is_reply(&self, direction: Direction) -> bool {
        (direction == Direction::In) != (self.reversed == 1)
    }

    /// Returns the address and port that become the source (on the way out) or the destination (on the way in) of a
    /// packet.
    #[inline(always)]
    pub(super) fn becomes(&self, direction: Direction) -> ([u8; 4], u16) {
        match direction {
            Direction::Out => (self.outside.destination(), self.outside.ports().1),
            Direction::In => (self.inside.source(), self.inside.ports().0),
        }
    }

    /// Translates a plain packet.
    #[inline(always)]
    pub(super) fn translate(&self, plain: &mut Plain, direction: Direction) {
        let (new_address, new_port) = self.becomes(direction);
        let gains = match direction {
            Direction::Out => {
                plain.ip.source = new_address;
                plain.source.set(new_port);
                self.gains
            }
            Direction::In => {
                plain.ip.destination = new_address;
                plain.destination.set(new_port);
                self.gains.back()
            }
        };
        gains.add_to(plain);
    }
}
