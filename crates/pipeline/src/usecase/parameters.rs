//! The parameters of a use case, and their values.

use std::collections::BTreeMap;

use forebay_units::quantity::{UnitError, advice};
use forebay_units::{Nanos, PacketRate};
use serde::Serialize;

use crate::wording::quote;

/// A use case.
#[derive(Clone, Copy)]
pub struct UseCase {
    /// The name, as in `forebay run usecase:gw`.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The parameters.
    pub parameters: &'static [Parameter],
    /// Writes the text of the configuration. The error is a parameter and what is wrong with its value.
    pub(super) write: fn(&Values) -> Result<String, (&'static str, String)>,
}

/// A parameter of a use case.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parameter {
    /// The name, as in `--set n=16`.
    pub name: &'static str,
    /// The meaning and the allowed values.
    pub help: &'static str,
    /// The default value. If it is empty, the parameter has no value by default.
    pub default: &'static str,
    /// The type of the value, in words.
    #[serde(rename = "type")]
    pub value: &'static str,
}

impl UseCase {
    /// Returns the parameters that define the size, in the order in which the command line accepts them without names:
    /// `gw 16`, `vrf 16 4`.
    #[must_use]
    pub fn dimensions(&self) -> Vec<&'static str> {
        let sizes = self.parameters.iter().map(|parameter| parameter.name).filter(|name| matches!(*name, "m" | "n"));
        sizes.collect()
    }
}

/// The values of parameters, as text.
pub(super) struct Values {
    /// By name: the value, and the number of the setting that it comes from; `None` for a default.
    pub(super) given: BTreeMap<&'static str, (String, Option<usize>)>,
}

/// A parameter, and what is wrong with its value.
pub(super) type Wrong = (&'static str, String);

impl Values {
    /// Returns the value as text; empty if there is none.
    pub(super) fn text(&self, name: &'static str) -> &str {
        self.given.get(name).map_or("", |(text, _)| text)
    }

    /// Returns the value as a whole number from `least` to `most`.
    pub(super) fn whole(&self, name: &'static str, least: u64, most: u64) -> Result<u64, Wrong> {
        let text = self.text(name);
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            (name, format!("{} is not allowed: allowed is a whole number from {least} to {most}", quote(text)))
        })
    }

    /// Returns the value as a time; `None` if it is empty.
    pub(super) fn nanos(&self, name: &'static str) -> Result<Option<Nanos>, Wrong> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|error: UnitError| (name, error.to_string())),
        }
    }

    /// Returns the rate in packets per second. `None` means as many packets as the worker takes (`max`).
    pub(super) fn rate(&self) -> Result<Option<PacketRate>, Wrong> {
        match self.text("rate") {
            "max" => Ok(None),
            text => match text.parse() {
                Ok(PacketRate(rate)) if rate > 0.0 => Ok(Some(PacketRate(rate))),
                Err(error @ UnitError::Large { .. }) => Err(("rate", error.to_string())),
                _ => Err((
                    "rate",
                    format!(
                        "{} is not a rate above 0{}: write a rate such as 1Mpps (units: pps, kpps, Mpps, Gpps), or max",
                        quote(text),
                        advice(text, ["pps", "kpps", "Mpps", "Gpps"])
                    ),
                )),
            },
        }
    }
}
