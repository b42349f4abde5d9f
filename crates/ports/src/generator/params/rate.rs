//! Rates of packets: a number with a unit, of packets or of bits on the wire.

use std::borrow::Cow;
use std::str::FromStr;

use forebay_graph::short;
use forebay_units::quantity::{UnitError, advice};
use forebay_units::{BitRate, PacketRate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use thiserror::Error;

/// The rate of packets.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Rate {
    /// Packets per second.
    Packets(PacketRate),
    /// Bits per second on the wire.
    Bits(BitRate),
}

/// The units of rates.
const UNITS: [&str; 9] = ["pps", "kpps", "Mpps", "Gpps", "bps", "kbps", "Mbps", "Gbps", "Tbps"];

/// The schema has a pattern that rejects a number without a unit.
impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "a rate above 0, such as 5Mpps or 10Gbps",
            "pattern": format!("^\\s*[0-9][0-9._]*\\s*({})\\s*$", UNITS.join("|")),
        })
    }
}

/// A text that is not a rate.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RateError {
    /// The text is not a rate, or the rate is 0.
    #[error(
        "'{0}' is not a rate above 0{advice}: write a number and a unit, for example 5Mpps or 10Gbps (units: {units})",
        advice = advice(.0, UNITS),
        units = UNITS.join(", ")
    )]
    Other(String),
    /// The rate is too large.
    #[error(transparent)]
    Large(UnitError),
}

impl TryFrom<String> for Rate {
    type Error = RateError;

    fn try_from(text: String) -> Result<Self, RateError> {
        let rates = [PacketRate::from_str(&text).map(Self::Packets), BitRate::from_str(&text).map(Self::Bits)];
        for rate in rates {
            match rate {
                Ok(rate) if rate.per_second() > 0.0 => return Ok(rate),
                Err(error @ UnitError::Large { .. }) => return Err(RateError::Large(error)),
                _ => {}
            }
        }
        Err(RateError::Other(short(&text)))
    }
}

/// The number of additional bytes that a frame takes on an Ethernet cable: frame check sequence, preamble with start
/// delimiter, gap (IEEE 802.3).
const OVERHEAD: usize = 4 + 8 + 12;

impl Rate {
    /// Returns the number of packets or bits per second.
    pub(super) fn per_second(self) -> f64 {
        match self {
            Self::Packets(rate) => rate.0,
            Self::Bits(rate) => rate.0,
        }
    }

    /// Returns the time from a frame of `size` bytes to the next frame at this rate, in seconds.
    pub(super) fn seconds(self, size: usize) -> f64 {
        match self {
            Self::Packets(rate) => 1.0 / rate.0,
            Self::Bits(rate) => ((size + OVERHEAD) * 8) as f64 / rate.0,
        }
    }
}
