//! The sizes of frames, and their order.

use schemars::JsonSchema;
use serde::Deserialize;

use super::random::Random;

/// The length of frames, in bytes without the frame check sequence (4 bytes more on the wire).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of bytes, `imix`, or a list of { size, weight, payload }")]
pub enum Size {
    /// All frames have this length.
    Fixed(usize),
    /// A named mix.
    Named(Mix),
    /// Several lengths, or payloads, each in proportion to its weight.
    List(Vec<Weighted>),
}

/// A named mix of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Seven of twelve frames have 60 bytes, four have 590 bytes, and one has 1514 bytes. This is the simple Internet
    /// mix 7:4:1 of 64, 594 and 1518 bytes with frame check sequence.
    Imix,
}

/// One of several lengths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// Length in bytes, without the frame check sequence.
    pub size: usize,
    /// The number of frames of this length, relative to the `weight` of the other lengths.
    #[serde(default = "one")]
    pub weight: u16,
    /// The start of the payload. With UDP, two bytes that compensate the checksum precede it. The rest of the payload,
    /// or the whole payload by default, consists of bytes that count up.
    #[serde(default)]
    pub payload: String,
}

fn one() -> u16 {
    1
}

impl Size {
    /// Returns the lengths with their weights.
    pub(super) fn weighted(&self) -> Vec<Weighted> {
        let of = |(size, weight)| Weighted { size, weight, payload: String::new() };
        match self {
            Self::Fixed(size) => vec![of((*size, 1))],
            Self::Named(Mix::Imix) => [(60, 7), (590, 4), (1514, 1)].map(of).into(),
            Self::List(list) => list.clone(),
        }
    }
}

/// The minimum length of a drawn order, in frames. The order is so long that its repetition has no visible effect.
const MIN_ORDER: usize = 1 << 12;

/// The order of the sizes: returns the size of each next frame. A sequence of sizes, called a round, is drawn once and
/// repeated. In a round, the number of frames of each size is exactly proportional to the weight of the size.
#[derive(Clone)]
pub(super) struct Sizes {
    /// The indices of the sizes in a round.
    order: Vec<u8>,
    /// The position of the next frame in the round.
    turn: usize,
}

impl Sizes {
    /// Draws an order of the sizes `0..weights.len()`, with these weights. At least one weight must be above 0.
    pub(super) fn new(weights: &[u16], random: &mut Random) -> Self {
        let once: Vec<u8> =
            (0u8..).zip(weights).flat_map(|(size, weight)| std::iter::repeat_n(size, usize::from(*weight))).collect();
        let mut order = once.repeat(if weights.len() > 1 { MIN_ORDER.div_ceil(once.len()) } else { 1 });
        if weights.len() == 1 {
            order.truncate(1);
        }
        random.shuffle(&mut order);
        Self { order, turn: 0 }
    }

    /// Creates an order of sizes that repeats `order`, which must not be empty.
    pub(super) fn of(order: Vec<u8>) -> Self {
        Self { order, turn: 0 }
    }

    /// Returns the index of the next frame's size.
    #[inline]
    pub(super) fn next(&mut self) -> u8 {
        let size = self.order[self.turn];
        self.turn = if self.turn + 1 == self.order.len() { 0 } else { self.turn + 1 };
        size
    }

    /// Returns all sizes of one round, in order.
    pub(super) fn order(&self) -> &[u8] {
        &self.order
    }

    /// Returns the number of frames in a round.
    pub(super) fn round(&self) -> usize {
        self.order.len()
    }

    /// Returns the position of the next frame in the round.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Continues at this position of the round, or at the start if there is no such position.
    pub(super) fn turn_to(&mut self, turn: usize) {
        self.turn = if turn < self.order.len() { turn } else { 0 };
    }
}
