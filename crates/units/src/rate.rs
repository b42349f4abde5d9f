//! A rate in packets or in bits per second.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::quantity::UnitError;
use crate::{BitRate, PacketRate};

/// A rate of a limit or an objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Rate {
    /// Packets a second: `1Mpps`.
    Packets(PacketRate),
    /// Bits a second, of frames without what the wire adds: `10Gbps`.
    Bits(BitRate),
}

impl<'de> Deserialize<'de> for Rate {
    /// Parses a rate. The error names a number that is too large, or suggests a unit that is similar to the given unit.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let errors = match (text.parse(), text.parse()) {
            (Ok(packets), _) => return Ok(Self::Packets(packets)),
            (_, Ok(bits)) => return Ok(Self::Bits(bits)),
            (Err(packets), Err(bits)) => [packets, bits],
        };
        let helps = |error: &UnitError| !matches!(error, UnitError::Other { advice, .. } if advice.is_empty());
        let error = errors.into_iter().find(helps).map(|error| error.to_string());
        // This message is similar to the message of serde for an untagged value that has none of the allowed forms.
        Err(serde::de::Error::custom(error.as_deref().unwrap_or("data did not match any form")))
    }
}

impl Rate {
    /// Returns the packets per second; `None` if the rate is in bits.
    #[must_use]
    pub fn packets(self) -> Option<f64> {
        if let Self::Packets(rate) = self { Some(rate.0) } else { None }
    }

    /// Returns the bits per second; `None` if the rate is in packets.
    #[must_use]
    pub fn bits(self) -> Option<f64> {
        if let Self::Bits(rate) = self { Some(rate.0) } else { None }
    }
}
