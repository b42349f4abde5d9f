//! Reads the colour of a packet, and writes it.

use std::borrow::Cow;

use forebay_graph::{Setup, SetupError};
use forebay_packet::{Packet, Word};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::algorithm::Colour;
use crate::dscp;

/// The metadata word with a packet's colour: 1 green, 2 yellow, 3 red; 0 if no meter has coloured it.
pub(super) const WORD: &str = "colour";

/// The source of the colour of arriving packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aware {
    /// No source: all packets arrive green (colour-blind).
    #[default]
    Blind,
    /// The drop precedence of assured forwarding: AFx1 is green, AFx2 yellow, AFx3 red. All other code points are
    /// green.
    Dscp,
    /// The metadata word `colour`, which an earlier meter writes. Without an earlier meter, packets are green.
    Word,
}

/// The packets into whose code point the meter writes their colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Packets of assured forwarding, which keep their class.
    Assured,
    /// All IP packets, with this class.
    Class(u8),
}

impl<'de> Deserialize<'de> for Remark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64()) {
            (Some("af"), _) => Ok(Self::Assured),
            (_, Some(class @ 1..=4)) => Ok(Self::Class(class as u8)),
            _ => Err(de::Error::custom(format!(
                "{value} is not an assured forwarding class: allowed are 'af' and 1 to 4"
            ))),
        }
    }
}

impl JsonSchema for Remark {
    fn schema_name() -> Cow<'static, str> {
        "Remark".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "af" }, { "type": "integer", "minimum": 1, "maximum": 4 }] })
    }
}

/// Reads and writes colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking {
    source: ColourSource,
    /// The packets whose code point is written; `None` if code points do not change.
    remark: Option<Remark>,
    /// The metadata word to which colours are written; `None` if they are not written to a word.
    word: Option<Word>,
}

/// The source of the colour of arriving packets, with the word resolved.
#[derive(Clone, Copy, Debug)]
enum ColourSource {
    Blind,
    Dscp,
    Word(Word),
}

impl Marking {
    pub(super) fn new(
        aware: Aware,
        remark: Option<Remark>,
        word: bool,
        setup: &mut Setup<'_>,
    ) -> Result<Self, SetupError> {
        let source = match aware {
            Aware::Blind => ColourSource::Blind,
            Aware::Dscp => ColourSource::Dscp,
            Aware::Word => ColourSource::Word(setup.word(WORD)?),
        };
        let word = if word { Some(setup.word(WORD)?) } else { None };
        Ok(Self { source, remark, word })
    }

    /// Returns true if the meter ignores the colours of arriving packets.
    #[inline]
    pub(super) fn is_blind(self) -> bool {
        matches!(self.source, ColourSource::Blind)
    }

    /// Returns true if colours are written. If not, [`write`](Self::write) does nothing.
    #[inline]
    pub(super) fn writes(self) -> bool {
        self.remark.is_some() || self.word.is_some()
    }

    /// Returns the colour with which a packet arrives.
    #[inline]
    pub(super) fn read(self, packet: &mut Packet) -> Colour {
        let number = match self.source {
            ColourSource::Blind => 1,
            ColourSource::Dscp => {
                dscp::read(packet).and_then(dscp::assured).map_or(1, |(_, precedence)| u32::from(precedence))
            }
            ColourSource::Word(word) => packet.word(word),
        };
        match number {
            2 => Colour::Yellow,
            3 => Colour::Red,
            _ => Colour::Green,
        }
    }

    /// Writes a packet's colour.
    #[inline]
    pub(super) fn write(self, packet: &mut Packet, colour: Colour) {
        let precedence = colour as u8 + 1;
        let class = match self.remark {
            Some(Remark::Assured) => dscp::read(packet).and_then(dscp::assured).map(|(class, _)| class),
            Some(Remark::Class(class)) => Some(class),
            None => None,
        };
        if let Some(class) = class {
            dscp::write(packet, dscp::assured_code(class, precedence));
        }
        if let Some(word) = self.word {
            packet.set_word(word, precedence.into());
        }
    }
}
