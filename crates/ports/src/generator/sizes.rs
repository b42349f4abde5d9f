//! The sizes that frames have, and the order in which they come.

use schemars::JsonSchema;
use serde::Deserialize;

use super::random::Random;

/// How long frames are, in bytes without the frame check sequence (4 bytes more on the wire).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of bytes, `imix`, or a list of { size, weight, payload }")]
pub enum Size {
    /// All of one length.
    Fixed(usize),
    /// A mix that has a name.
    Named(Mix),
    /// Several lengths, or payloads, each in proportion to its weight.
    List(Vec<Weighted>),
}

/// A mix of sizes that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Of twelve frames seven of 60 bytes, four of 590 and one of 1514: the simple Internet mix 7:4:1 of 64, 594 and
    /// 1518 bytes with frame check sequence.
    Imix,
}

/// One length of several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// Length in bytes, without the frame check sequence.
    pub size: usize,
    /// How many frames of it there are for each `weight` of the others.
    #[serde(default = "one")]
    pub weight: u16,
    /// What the payload begins with, of UDP behind two bytes that even the checksum out. By default, and behind it,
    /// bytes count
    /// up from 0.
    #[serde(default)]
    pub payload: String,
}

fn one() -> u16 {
    1
}

impl Size {
    /// The lengths with their weights.
    pub(super) fn weighted(&self) -> Vec<Weighted> {
        let of = |(size, weight)| Weighted { size, weight, payload: String::new() };
        match self {
            Self::Fixed(size) => vec![of((*size, 1))],
            Self::Named(Mix::Imix) => [(60, 7), (590, 4), (1514, 1)].map(of).into(),
            Self::List(list) => list.clone(),
        }
    }
}

/// The shortest order that is drawn: long enough that its repeating shows nowhere.
const SHORTEST: usize = 1 << 12;

/// Says which size comes next. The order is drawn once and repeated; it holds every size exactly in proportion.
#[derive(Clone)]
pub(super) struct Sizes {
    order: Vec<u8>,
    turn: usize,
}

impl Sizes {
    /// An order of sizes, each given by its number, with these weights.
    pub(super) fn new(weights: &[u16], random: &mut Random) -> Self {
        let once: Vec<u8> =
            (0u8..).zip(weights).flat_map(|(size, weight)| std::iter::repeat_n(size, usize::from(*weight))).collect();
        let mut order = once.repeat(if weights.len() > 1 { SHORTEST.div_ceil(once.len()) } else { 1 });
        if weights.len() == 1 {
            order.truncate(1);
        }
        random.shuffle(&mut order);
        Self { order, turn: 0 }
    }

    /// Sizes in this order, of which there is at least one.
    pub(super) fn of(order: Vec<u8>) -> Self {
        Self { order, turn: 0 }
    }

    /// The number of the next frame's size.
    #[inline]
    pub(super) fn next(&mut self) -> u8 {
        let size = self.order[self.turn];
        self.turn = if self.turn + 1 == self.order.len() { 0 } else { self.turn + 1 };
        size
    }

    /// All sizes of one round, in order.
    pub(super) fn order(&self) -> &[u8] {
        &self.order
    }

    /// How many frames a round has.
    pub(super) fn round(&self) -> usize {
        self.order.len()
    }

    /// Where in the round the next frame is.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Goes on at this place of the round.
    pub(super) fn turn_to(&mut self, turn: usize) {
        self.turn = if turn < self.order.len() { turn } else { 0 };
    }
}
