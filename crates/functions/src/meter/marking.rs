//! Where a packet's colour is read from, and where it is written.

use std::borrow::Cow;

use forebay_graph::{Setup, SetupError};
use forebay_packet::{Packet, Word};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::algorithm::Colour;
use crate::traffic::dscp;

/// The metadata word that holds a packet's colour: 1 green, 2 yellow, 3 red; 0 where no meter has seen it.
pub(super) const WORD: &str = "colour";

/// Where the colours of arriving packets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aware {
    /// Nowhere: all are taken for green (colour-blind).
    #[default]
    Blind,
    /// In the drop precedence of assured forwarding: AFx1 is green, AFx2 yellow, AFx3 red; all else is green.
    Dscp,
    /// In the metadata word `colour`, as a meter before this one has written it; without one, green.
    Word,
}

/// Which packets' code point becomes that of their colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Those of assured forwarding, which keep their class.
    Assured,
    /// All, to this class.
    Class(u8),
}

impl<'de> Deserialize<'de> for Remark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64()) {
            (Some("af"), _) => Ok(Self::Assured),
            (_, Some(class @ 1..=4)) => Ok(Self::Class(class as u8)),
            _ => Err(de::Error::custom(format!("{value} is neither 'af' nor an assured forwarding class, 1 to 4"))),
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
    given: Given,
    remark: Option<Remark>,
    word: Option<Word>,
}

#[derive(Clone, Copy, Debug)]
enum Given {
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
        let given = match aware {
            Aware::Blind => Given::Blind,
            Aware::Dscp => Given::Dscp,
            Aware::Word => Given::Word(setup.word(WORD)?),
        };
        let word = if word { Some(setup.word(WORD)?) } else { None };
        Ok(Self { given, remark, word })
    }

    /// Whether packets' colours are looked at.
    #[inline]
    pub(super) fn is_blind(self) -> bool {
        matches!(self.given, Given::Blind)
    }

    /// Whether colours are written anywhere.
    #[inline]
    pub(super) fn writes(self) -> bool {
        self.remark.is_some() || self.word.is_some()
    }

    /// The colour that a packet comes with.
    #[inline]
    pub(super) fn read(self, packet: &mut Packet) -> Colour {
        let number = match self.given {
            Given::Blind => 1,
            Given::Dscp => {
                dscp::read(packet).and_then(dscp::assured).map_or(1, |(_, precedence)| u32::from(precedence))
            }
            Given::Word(word) => packet.word(word),
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
