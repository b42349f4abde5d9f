//! The parameters of a use case, and their values.

use std::collections::BTreeMap;

use forebay_units::quantity::advice;
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
    pub(super) write: fn(&Values) -> Result<String, (&'static str, String)>,
}

/// A parameter of a use case.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parameter {
    /// The name, as in `--set n=16`.
    pub name: &'static str,
    /// The meaning and the allowed values.
    pub help: &'static str,
    /// The default value. Empty if the parameter is omitted by default.
    pub default: &'static str,
    /// The type of the value, in words.
    #[serde(rename = "type")]
    pub value: &'static str,
}

impl UseCase {
    /// Returns the parameters that define the size, in the order in which they may be given without names: `gw 16`,
    /// `vrf 16 4`.
    #[must_use]
    pub fn dimensions(&self) -> Vec<&'static str> {
        let sizes = self.parameters.iter().map(|parameter| parameter.name).filter(|name| matches!(*name, "m" | "n"));
        sizes.collect()
    }
}

/// The values of parameters, as text.
pub(super) struct Values {
    pub(super) given: BTreeMap<&'static str, (String, Option<usize>)>,
}

pub(super) type Wrong = (&'static str, String);

impl Values {
    pub(super) fn text(&self, name: &'static str) -> &str {
        self.given.get(name).map_or("", |(text, _)| text)
    }

    pub(super) fn whole(&self, name: &'static str, least: u64, most: u64) -> Result<u64, Wrong> {
        let text = self.text(name);
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            (name, format!("{} is not allowed: allowed is a whole number from {least} to {most}", quote(text)))
        })
    }

    pub(super) fn nanos(&self, name: &'static str) -> Result<Option<Nanos>, Wrong> {
        match self.text(name) {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|error: forebay_units::quantity::UnitError| (name, error.to_string()))
            }
        }
    }

    /// Returns the rate in packets a second. `None` stands for as many packets as the worker takes.
    pub(super) fn rate(&self) -> Result<Option<PacketRate>, Wrong> {
        match self.text("rate") {
            "max" => Ok(None),
            text => match text.parse() {
                Ok(PacketRate(rate)) if rate > 0.0 => Ok(Some(PacketRate(rate))),
                _ => Err((
                    "rate",
                    format!(
                        "{} is not a rate{}: write a rate such as 1Mpps (units: pps, kpps, Mpps, Gpps), or max",
                        quote(text),
                        advice(text, ["pps", "kpps", "Mpps", "Gpps"])
                    ),
                )),
            },
        }
    }
}
