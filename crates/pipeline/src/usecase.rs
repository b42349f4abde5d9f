//! The use cases: pipelines with parameters, written out as configurations.
//!
//! They are those of the work on batching that Forebay builds on (Batchy, NSDI 2020, section 5), one flow per branch, the two
//! chains of the work on lean measurement (NALM, ToN 2022), and functions that the work on harvesting (EdgeMiner) and on
//! placement (Octans) calls by name.
//! What they write is read like any other text, so that a use case is also an example to start from.

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
use crate::problem::{Findings, Place, Problems, listed, nearest, quote};
use crate::yaml;

/// A use case.
#[derive(Clone, Copy)]
pub struct UseCase {
    /// Its name: `forebay run usecase:gw`.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    write: fn(&Values) -> Result<String, (&'static str, String)>,
}

/// A parameter of a use case.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parameter {
    /// Its name: `--set n=16`.
    pub name: &'static str,
    /// What it does, with what is allowed.
    pub help: &'static str,
    /// What it is when nothing is said; empty: it is left out.
    pub default: &'static str,
    /// What values it takes, in words.
    #[serde(rename = "type")]
    pub value: &'static str,
}

/// All use cases.
#[must_use]
pub fn usecases() -> &'static [UseCase] {
    catalogue::ALL
}

impl UseCase {
    /// The names of the parameters that make up its size, in the order in which they may be given without names:
    /// `gw 16`, `vrf 16 4`.
    #[must_use]
    pub fn dimensions(&self) -> Vec<&'static str> {
        let sizes = self.parameters.iter().map(|parameter| parameter.name).filter(|name| matches!(*name, "m" | "n"));
        sizes.collect()
    }
}

/// Writes a use case's configuration. Of `sets`, `key=value` each, its parameters are taken; the others are settings
/// of the text that comes of them.
///
/// # Errors
/// No use case of that name, a value that a parameter does not allow.
pub fn usecase(name: &str, sets: &[String]) -> Result<Source, Problems> {
    let file = format!("usecase:{name}");
    let mut findings = Findings::default();
    let Some(case) = usecases().iter().find(|case| case.name == name) else {
        let names = || usecases().iter().map(|case| case.name);
        findings.add(
            Place::START,
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
            // As if it had not been given.
            Some((slot, value)) if !value.trim().is_empty() && yaml::is_null(value.trim()) => {
                *slot = (default(set.split_once('=').map_or("", |(key, _)| key.trim())), None);
            }
            Some((slot, value)) => *slot = (value.trim().to_owned(), Some(number)),
            None => {
                if let Some(message) = stray(case, set) {
                    findings.add(Place::Set(number), message);
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
            // A default is always allowed, unless two parameters together are not.
            let number = values.given.get(parameter).and_then(|(_, number)| *number);
            let place = number.map_or(Place::START, Place::Set);
            findings.add(place, format!("{parameter}: {message}"));
            Err(findings.finish(&file, "", sets).expect_err("a finding was added"))
        }
    }
}

/// What is wrong with a setting that is of neither a use case's parameter nor a part of its configuration.
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

/// Parameters as text.
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

    /// Packets a second; `None`: as many as are taken.
    fn rate(&self) -> Result<Option<PacketRate>, Wrong> {
        match self.text("rate") {
            "max" => Ok(None),
            text => match text.parse() {
                Ok(PacketRate(rate)) if rate > 0.0 => Ok(Some(PacketRate(rate))),
                _ => Err((
                    "rate",
                    format!(
                        "{} is not a rate{}: write one such as 1Mpps (units: pps, kpps, Mpps, Gpps), or max",
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
