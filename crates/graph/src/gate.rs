//! Gates: where a function sends a packet. A gate is an output gate, or it drops, consumes or holds the packet.

/// The largest number of output gates of a module.
pub const MAX_GATES: usize = 1 << 14;

/// The bits of a gate that are the kind of decision: 0 for an output gate, otherwise one of the constants below.
const KIND: u16 = 0xc000;
const DROP: u16 = 0x4000;
const CONSUME: u16 = 0x8000;
const HOLD: u16 = 0xc000;

/// A function's decision on one packet, in one word. The upper two bits are the kind of decision, the rest is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Gate(u16);

/// The meaning of a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The packet goes on through this output gate.
    Out(usize),
    /// The packet is dropped for the function's declared reason with this index.
    Drop(usize),
    /// The packet is consumed (delivered, absorbed) for the function's declared reason with this index.
    Consume(usize),
    /// The module holds the packet until the function releases it.
    Hold,
}

impl Gate {
    /// The first output gate.
    pub const FIRST: Self = Self(0);
    /// The module holds the packet until the function releases it ([`Context::hold`](crate::Context::hold)).
    pub(crate) const HOLD: Self = Self(HOLD);

    /// Returns output gate `n`, which must be less than [`MAX_GATES`].
    #[inline]
    #[must_use]
    pub const fn out(n: u16) -> Self {
        Self(n & !KIND)
    }

    /// Returns the gate that drops a packet for the function's declared reason `n`.
    #[inline]
    #[must_use]
    pub const fn drop(n: u16) -> Self {
        Self(DROP | (n & !KIND))
    }

    /// Returns the gate that consumes a packet for the function's declared reason `n`.
    #[inline]
    #[must_use]
    pub const fn consume(n: u16) -> Self {
        Self(CONSUME | (n & !KIND))
    }

    /// Returns the decision.
    #[inline]
    #[must_use]
    pub const fn decision(self) -> Decision {
        let number = (self.0 & !KIND) as usize;
        match self.0 & KIND {
            0 => Decision::Out(number),
            DROP => Decision::Drop(number),
            CONSUME => Decision::Consume(number),
            _ => Decision::Hold,
        }
    }

    /// Returns whether all of `gates` are equal.
    #[inline]
    pub(crate) fn are_alike(gates: &[Self]) -> bool {
        let Some(first) = gates.first() else { return true };
        gates.iter().fold(0, |differ, gate| differ | (gate.0 ^ first.0)) == 0
    }

    /// Returns the word itself: the number of an output gate, or a value of at least [`MAX_GATES`].
    #[inline]
    pub(crate) const fn raw(self) -> usize {
        self.0 as usize
    }
}
