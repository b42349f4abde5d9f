//! Where a function puts a packet: an output gate, or one of the ways to end or pause its journey.

/// The most output gates a module can have.
pub const MAX_GATES: usize = 1 << 14;

const KIND: u16 = 0xc000;
const DROP: u16 = 0x4000;
const CONSUME: u16 = 0x8000;
const HOLD: u16 = 0xc000;

/// A function's decision on one packet, in one word: the upper two bits say what kind, the rest which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Gate(u16);

/// What a [`Gate`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// On through this output gate.
    Out(usize),
    /// Dropped, for this one of the function's declared reasons.
    Drop(usize),
    /// Ended in the function (delivered, absorbed), for this one of its declared reasons.
    Consume(usize),
    /// Kept by the module until the function releases it.
    Hold,
}

impl Gate {
    /// The first output gate.
    pub const FIRST: Self = Self(0);
    /// Kept by the module until the function releases it ([`Context::hold`](crate::Context::hold)).
    pub(crate) const HOLD: Self = Self(HOLD);

    /// Output gate `n`, below [`MAX_GATES`].
    #[inline]
    #[must_use]
    pub const fn out(n: u16) -> Self {
        Self(n & !KIND)
    }

    /// Dropped for the function's declared reason number `n`.
    #[inline]
    #[must_use]
    pub const fn drop(n: u16) -> Self {
        Self(DROP | (n & !KIND))
    }

    /// Ended in the function for its declared reason number `n`.
    #[inline]
    #[must_use]
    pub const fn consume(n: u16) -> Self {
        Self(CONSUME | (n & !KIND))
    }

    /// What it says.
    #[inline]
    #[must_use]
    pub const fn decision(self) -> Decision {
        let which = (self.0 & !KIND) as usize;
        match self.0 & KIND {
            0 => Decision::Out(which),
            DROP => Decision::Drop(which),
            CONSUME => Decision::Consume(which),
            _ => Decision::Hold,
        }
    }

    /// Whether all of `gates` are the same.
    #[inline]
    pub(crate) fn are_alike(gates: &[Self]) -> bool {
        let Some(first) = gates.first() else { return true };
        gates.iter().fold(0, |differ, gate| differ | (gate.0 ^ first.0)) == 0
    }

    /// The word itself: an output gate's is its number, everything else is [`MAX_GATES`] or more.
    #[inline]
    pub(crate) const fn raw(self) -> usize {
        self.0 as usize
    }
}
