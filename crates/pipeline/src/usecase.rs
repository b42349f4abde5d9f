//! The use cases: built-in pipelines with parameters, written as configurations.
//!
//! The use cases come from the papers that Forebay builds on: the use cases of Batchy (NSDI 2020, section 5), with one
//! flow per branch, the two chains of NALM (ToN 2022), and functions that the papers on harvesting (EdgeMiner) and
//! placement (Octans) name. The text of a use case is read like any other configuration, so that it is also an example
//! to start from.

mod catalogue;
mod chains;
mod encryption;
mod forwarding;
mod gateway;
mod inspection;
mod mobile;
mod parameters;
mod robot;
mod router;
mod text;
mod tracking;
mod vrf;

use std::collections::BTreeMap;

pub use self::parameters::{Parameter, UseCase};
use forebay_graph::{known_names, listed, nearest};

use self::parameters::Values;
use crate::faults::FaultCollector;
use crate::located::SourceLocation;
use crate::problems::Problems;
use crate::wording::quote;
use crate::{Source, yaml};

/// Returns all use cases.
#[must_use]
pub fn usecases() -> &'static [UseCase] {
    catalogue::ALL
}

/// Writes the configuration of a use case. `sets` are of the form `key=value`. The key is a parameter of the use case,
/// or belongs to a setting of the configuration.
///
/// # Errors
/// Returns an error if there is no use case of this name, or if a value is not allowed.
pub fn usecase(name: &str, sets: &[String]) -> Result<Source, Problems> {
    let file = format!("usecase:{name}");
    let mut faults = FaultCollector::default();
    let Some(case) = usecases().iter().find(|case| case.name == name) else {
        let known = known_names(name, usecases().iter().map(|case| case.name));
        faults.add(SourceLocation::START, format!("there is no use case {}{known}", quote(name)));
        let problems = faults.finish(&file, "", sets).expect_err("a finding was added");
        return Err(problems.without_text(&file));
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
                    faults.add(SourceLocation::Set(number), message);
                }
                rest.push(set.clone());
            }
        }
    }
    std::mem::take(&mut faults).finish(&file, "", sets)?;
    let values = Values { given };
    match (case.write)(&values) {
        Ok(text) => {
            let mut source = Source::new(text, file, "");
            source.sets = rest;
            Ok(source.given_as(sets.to_vec()))
        }
        Err((parameter, message)) => {
            // A default value is allowed, but may not fit the value of another parameter. The place is then the start
            // of the text.
            let number = values.given.get(parameter).and_then(|(_, number)| *number);
            let place = number.map_or(SourceLocation::START, SourceLocation::Set);
            faults.add(place, format!("{parameter}: {message}"));
            Err(faults.finish(&file, "", sets).expect_err("a finding was added"))
        }
    }
}

/// Returns the error for a setting whose key is not a parameter of the use case and not a part of its configuration;
/// `None` for any other setting.
fn stray(case: &UseCase, set: &str) -> Option<String> {
    let (key, _) = set.split_once('=')?;
    let part = key.split('.').next().unwrap_or_default().trim();
    let parts = crate::schema::rules().parts();
    if parts.contains(&part) {
        return None;
    }
    let names = || case.parameters.iter().map(|parameter| parameter.name);
    Some(format!(
        "usecase:{} has no parameter {}{}: its parameters are {}; the sections of its configuration are {}",
        case.name,
        quote(part),
        nearest(part, names().chain(parts.iter().copied())),
        listed(names()),
        listed(parts.iter().copied())
    ))
}

#[cfg(test)]
mod tests;
