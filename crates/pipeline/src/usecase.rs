//! The use cases: built-in pipelines with parameters, written as configurations.
//!
//! They come from the papers that Forebay builds on: those of Batchy (NSDI 2020, section 5), with one flow per branch,
//! the two chains of NALM (ToN 2022), and functions that the papers on harvesting (EdgeMiner) and placement (Octans)
//! name. Their text is read like any other configuration, so that a use case is also an example to start from.

mod catalogue;
mod chains;
mod encryption;
mod forwarding;
mod gateway;
mod inspection;
mod mobile;
mod robot;
mod router;
mod text;
mod tracking;
mod vrf;

use std::collections::BTreeMap;

use forebay_units::{Nanos, PacketRate, quantity::advice};
use serde::Serialize;

use crate::Source;
use crate::problem::{Findings, Problems, SourceLocation, listed, nearest, quote};
use crate::yaml;

/// A use case.
#[derive(Clone, Copy)]
pub struct UseCase {
    /// The name, as in `forebay run usecase:gw`.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The parameters.
    pub parameters: &'static [Parameter],
    write: fn(&Values) -> Result<String, (&'static str, String)>,
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

/// Returns all use cases.
#[must_use]
pub fn usecases() -> &'static [UseCase] {
    catalogue::ALL
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

/// Writes the configuration of a use case. `sets` are of the form `key=value`: parameters of the use case, or settings
/// of the configuration.
///
/// # Errors
/// Returns an error if there is no use case of this name, or if a value is not allowed.
pub fn usecase(name: &str, sets: &[String]) -> Result<Source, Problems> {
    let file = format!("usecase:{name}");
    let mut findings = Findings::default();
    let Some(case) = usecases().iter().find(|case| case.name == name) else {
        let names = || usecases().iter().map(|case| case.name);
        findings.add(
            SourceLocation::START,
            format!("there is no use case {}{}: there are {}", quote(name), nearest(name, names()), listed(names())),
        );
        return Err(findings.finish(&file, "", sets).expect_err("a finding was added"));
    };
    let mut given: BTreeMap<&str, (String, Option<usize>)> =
        case.parameters.iter().map(|parameter| (parameter.name, (parameter.default.to_owned(), None))).collect();
    let mut rest = Vec::new();
    let default = |name: &str| {
        let parameter = case.parameters.iter().find(|parameter| parameter.name == name);
        parameter.map_or_else(String::new, |parameter| parameter.default.to_owned())
    };
    for (number, set) in sets.iter().enumerate() {
        let value = set.split_once('=').and_then(|(key, value)| Some((given.get_mut(key.trim())?, value)));
        match value {
            // `null` sets the default.
            Some((slot, value)) if !value.trim().is_empty() && yaml::is_null(value.trim()) => {
                *slot = (default(set.split_once('=').map_or("", |(key, _)| key.trim())), None);
            }
            Some((slot, value)) => *slot = (value.trim().to_owned(), Some(number)),
            None => {
                if let Some(message) = stray(case, set) {
                    findings.add(SourceLocation::Set(number), message);
                }
                rest.push(set.clone());
            }
        }
    }
    std::mem::take(&mut findings).finish(&file, "", sets)?;
    let values = Values { given };
    match (case.write)(&values) {
        Ok(text) => {
            let mut source = Source::new(text, file, "");
            source.sets = rest;
            Ok(source.given_as(sets.to_vec()))
        }
        Err((parameter, message)) => {
            // Defaults are allowed by themselves, but may not fit together with another parameter.
            let number = values.given.get(parameter).and_then(|(_, number)| *number);
            let place = number.map_or(SourceLocation::START, SourceLocation::Set);
            findings.add(place, format!("{parameter}: {message}"));
            Err(findings.finish(&file, "", sets).expect_err("a finding was added"))
        }
    }
}

/// Returns the error of a setting that is neither a parameter of the use case nor a part of its configuration.
fn stray(case: &UseCase, set: &str) -> Option<String> {
    let (key, _) = set.split_once('=')?;
    let part = key.split('.').next().unwrap_or_default().trim();
    let parts = crate::schema::rules().parts();
    if parts.contains(&part) {
        return None;
    }
    let names = || case.parameters.iter().map(|parameter| parameter.name);
    Some(format!(
        "usecase:{} has no parameter {}{}: it has {}; parts of its configuration are {}",
        case.name,
        quote(part),
        nearest(part, names().chain(parts.iter().copied())),
        listed(names()),
        listed(parts.iter().copied())
    ))
}

/// The values of parameters, as text.
struct Values {
    given: BTreeMap<&'static str, (String, Option<usize>)>,
}

type Wrong = (&'static str, String);

impl Values {
    fn text(&self, name: &'static str) -> &str {
        self.given.get(name).map_or("", |(text, _)| text)
    }

    fn whole(&self, name: &'static str, least: u64, most: u64) -> Result<u64, Wrong> {
        let text = self.text(name);
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            (name, format!("{} is not allowed: allowed is a whole number from {least} to {most}", quote(text)))
        })
    }

    fn nanos(&self, name: &'static str) -> Result<Option<Nanos>, Wrong> {
        match self.text(name) {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|error: forebay_units::quantity::UnitError| (name, error.to_string()))
            }
        }
    }

    /// Returns the rate in packets a second. `None` stands for as many packets as the worker takes.
    fn rate(&self) -> Result<Option<PacketRate>, Wrong> {
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

#[cfg(test)]
mod tests;
