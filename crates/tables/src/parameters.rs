//! Parameter values that several functions have in common: gate numbers, decisions about packets without an entry, and
//! numbers in hexadecimal.

use std::borrow::Cow;
use std::fmt::Display;

use forebay_graph::{Gate, MAX_GATES, SetupError};
use forebay_memory::NoMemory;
use forebay_units::wording::range;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Decision about a packet that matches no entry: `drop`, or the number of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoMatch {
    /// Drops it.
    #[default]
    Drop,
    /// Sends it out through this gate.
    Gate(u16),
}

impl NoMatch {
    /// Returns the gate. `gates` is the number of gates, and `drop` is the gate for drops.
    ///
    /// # Errors
    /// A number beyond the last gate, as a fault of the parameter at `path`.
    pub fn resolve(self, path: &str, gates: u16, drop: Gate) -> Result<Gate, SetupError> {
        match self {
            Self::Drop => Ok(drop),
            Self::Gate(number) => gate(path, number, gates),
        }
    }
}

impl<'de> Deserialize<'de> for NoMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let number = value.as_u64().filter(|number| *number < MAX_GATES as u64);
        match (value.as_str(), number) {
            (Some("drop"), _) => Ok(Self::Drop),
            (_, Some(number)) => Ok(Self::Gate(number as u16)),
            _ => Err(de::Error::custom(format!(
                "{value} is not allowed: allowed are 'drop' and the number of a gate (0 to {})",
                MAX_GATES - 1
            ))),
        }
    }
}

impl JsonSchema for NoMatch {
    fn schema_name() -> Cow<'static, str> {
        "NoMatch".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "drop" }, { "type": "integer", "minimum": 0, "maximum": MAX_GATES - 1 }] })
    }
}

/// Returns a constructor of the error that there is no memory for `what`. The fault belongs to the parameter at `path`.
pub fn no_memory(path: impl Into<String>, what: impl Display) -> impl FnOnce(NoMemory) -> SetupError {
    move |NoMemory { bytes }| {
        SetupError::at(path, format!("no memory for {what}: it takes {} MiB", bytes.div_ceil(1 << 20)))
    }
}

/// Decision about packets that a function rejects: drop them, or send them out through a separate gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RejectAction {
    /// Drops and counts them.
    #[default]
    Drop,
    /// Sends them out through a separate gate, for example to `icmp_error`.
    Gate,
}

impl RejectAction {
    /// Returns the gate for rejected packets: `drop`, or the gate with the number `before`, which is the number of
    /// other gates.
    #[must_use]
    pub fn resolve(self, before: u16, drop: Gate) -> Gate {
        match self {
            Self::Drop => drop,
            Self::Gate => Gate::out(before),
        }
    }
}

/// Returns the gate with this number. `gates` is the number of gates.
///
/// # Errors
/// A number beyond the last gate, as a fault of the parameter at `path`.
pub fn gate(path: &str, number: u16, gates: u16) -> Result<Gate, SetupError> {
    if number >= gates {
        let last = i32::from(gates) - 1;
        return Err(SetupError::wrong(path, number, format!("there is no gate {number}"), range(0, last)));
    }
    Ok(Gate::out(number))
}

/// Returns names for gates that have only numbers.
pub fn numbered(gates: u16) -> impl Iterator<Item = String> {
    (0..gates).map(|number| number.to_string())
}

/// Parses a whole number in decimal or, with the prefix `0x`, in hexadecimal.
#[must_use]
pub fn number(text: &str) -> Option<u128> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // `from_str_radix` would accept a sign.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(digits, radix).ok()).flatten()
}

/// The file name in faults of a list that is parsed as lines of a file.
pub const LISTED: &str = "line";

/// Converts the faults of a list that was parsed as lines of a file named [`LISTED`] to faults of the list's elements.
/// `faults` has one fault per line, as `line:NUMBER: MESSAGE`. `path` is the parameter with the list.
pub fn of_elements(path: &str, list: &[String], faults: &str) -> SetupError {
    // An element may have several lines.
    let element = |line: usize| {
        let mut lines = 0;
        let ends = list.iter().position(|element| {
            lines += element.split('\n').count();
            line <= lines
        });
        ends.unwrap_or(list.len().saturating_sub(1))
    };
    let mut all = SetupError::default();
    for fault in faults.lines() {
        let of_line = fault.strip_prefix(LISTED).and_then(|rest| {
            let (line, message) = rest.strip_prefix(':')?.split_once(": ")?;
            Some((line.parse::<usize>().ok()?, message))
        });
        match (of_line, all.faults.last_mut()) {
            (Some((line, message)), _) => {
                let message = with_element(path, message, element);
                all.and(SetupError::at(format!("{path}[{}]", element(line)), message));
            }
            // The number of omitted faults is appended to the last fault.
            (None, Some(last)) => last.message.push_str(&format!("; {fault}")),
            (None, None) => {
                let message = fault.strip_prefix(LISTED).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(fault);
                all.and(SetupError::at(path, message));
            }
        }
    }
    all
}

/// If a message mentions another line ("in line NUMBER"), replaces the line by the element of the list that contains
/// it.
fn with_element(path: &str, message: &str, element: impl Fn(usize) -> usize) -> String {
    let of_line = || {
        let (before, after) = message.split_once(" in line ")?;
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let line = after[..digits].parse::<usize>().ok()?;
        Some(format!("{before} in {path}[{}]{}", element(line), &after[digits..]))
    };
    of_line().unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_miss_is_drop_or_a_gate_that_exists() {
        let drop = Gate::drop(3);
        let read = |value| serde_json::from_value::<NoMatch>(value).expect("well-formed");
        assert_eq!(read(json!("drop")).resolve("miss", 2, drop).expect("a drop"), drop);
        assert_eq!(read(json!(1)).resolve("miss", 2, drop).expect("a gate"), Gate::out(1));
        let error = read(json!(2)).resolve("miss", 2, drop).expect_err("there is no gate 2");
        assert_eq!(error.to_string(), "miss: there is no gate 2: allowed are 0 to 1");
        let error = read(json!(1)).resolve("miss", 1, drop).expect_err("there is no gate 1");
        assert_eq!(error.to_string(), "miss: there is no gate 1: allowed is only 0");
        for wrong in [json!("pass"), json!(-1), json!(MAX_GATES), json!(null), json!(1.5)] {
            let error = serde_json::from_value::<NoMatch>(wrong.clone()).expect_err("refused").to_string();
            assert!(error.contains(&wrong.to_string()), "{error}");
        }
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x88cc"), Some(0x88cc));
        assert_eq!(number("35020"), Some(0x88cc));
        for wrong in ["", "0x", "+1", "0x+1", "88cc", "0X1", " 1", "-1", "0x1_0"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
