//! Parameter values that several functions take: gate numbers, what happens to packets that nothing names, and
//! numbers that may be written in hexadecimal.

use std::borrow::Cow;
use std::fmt::Display;

use forebay_graph::{Gate, MAX_GATES, SetupError};
use forebay_memory::NoMemory;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Where a packet goes that no entry names: `drop`, or the number of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// It is dropped.
    #[default]
    Drop,
    /// It leaves through this gate.
    Gate(u16),
}

impl Miss {
    /// The gate among `gates` of them; `drop` for what is dropped.
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

impl<'de> Deserialize<'de> for Miss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let number = value.as_u64().filter(|number| *number < MAX_GATES as u64);
        match (value.as_str(), number) {
            (Some("drop"), _) => Ok(Self::Drop),
            (_, Some(number)) => Ok(Self::Gate(number as u16)),
            _ => Err(de::Error::custom(format!(
                "{value} is neither 'drop' nor the number of a gate (0 to {})",
                MAX_GATES - 1
            ))),
        }
    }
}

impl JsonSchema for Miss {
    fn schema_name() -> Cow<'static, str> {
        "Miss".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "drop" }, { "type": "integer", "minimum": 0, "maximum": MAX_GATES - 1 }] })
    }
}

/// The fault of a parameter that says how much there is of `what`, where the system has no memory for it.
pub fn no_memory(path: impl Into<String>, what: impl Display) -> impl FnOnce(NoMemory) -> SetupError {
    move |NoMemory { bytes }| {
        SetupError::at(path, format!("no memory for {what}: it takes {} MiB", bytes.div_ceil(1 << 20)))
    }
}

/// What becomes of packets that a function rejects: dropped, or sent out by a gate of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rejected {
    /// They are dropped and counted.
    #[default]
    Drop,
    /// They leave by a gate of their own, to be told of (`icmp_error`), kept or counted.
    Gate,
}

impl Rejected {
    /// The gate of what is rejected: `drop`, or the one after `before` others.
    #[must_use]
    pub fn resolve(self, before: u16, drop: Gate) -> Gate {
        match self {
            Self::Drop => drop,
            Self::Gate => Gate::out(before),
        }
    }
}

/// Gate number `number` of `gates`.
///
/// # Errors
/// A number beyond the last gate, as a fault of the parameter at `path`.
pub fn gate(path: &str, number: u16, gates: u16) -> Result<Gate, SetupError> {
    if number >= gates {
        let last = i32::from(gates) - 1;
        return Err(SetupError::at(path, format!("there is no gate {number}: there are {gates}, 0 to {last}")));
    }
    Ok(Gate::out(number))
}

/// The names of gates that have none but their numbers.
pub fn numbered(gates: u16) -> impl Iterator<Item = String> {
    (0..gates).map(|number| number.to_string())
}

/// A whole number written in decimal or, with `0x` before it, in hexadecimal.
#[must_use]
pub fn number(text: &str) -> Option<u128> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // `from_str_radix` would take a sign.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(digits, radix).ok()).flatten()
}

/// What a list that was read as the lines of a file is called in its faults.
pub(crate) const LISTED: &str = "line";

/// What is wrong with a list that was read as the lines of a file called [`LISTED`]: each fault with its element, a line each.
pub(crate) fn of_elements(path: &str, list: &[String], told: &str) -> SetupError {
    // An element may be several lines.
    let element = |line: usize| {
        let mut lines = 0;
        let ends = list.iter().position(|element| {
            lines += element.split('\n').count();
            line <= lines
        });
        ends.unwrap_or(list.len().saturating_sub(1))
    };
    let mut all = SetupError::default();
    for fault in told.lines() {
        let of_line = fault.strip_prefix(LISTED).and_then(|rest| {
            let (line, message) = rest.strip_prefix(':')?.split_once(": ")?;
            Some((line.parse::<usize>().ok()?, message))
        });
        match (of_line, all.faults.last_mut()) {
            (Some((line, message)), _) => {
                let message = elsewhere(path, message, element);
                all.and(SetupError::at(format!("{path}[{}]", element(line)), message));
            }
            // How many more there are is told with the last one.
            (None, Some(last)) => last.message.push_str(&format!("; {fault}")),
            (None, None) => {
                let message = fault.strip_prefix(LISTED).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(fault);
                all.and(SetupError::at(path, message));
            }
        }
    }
    all
}

/// A message that names another line, with the element in its place.
fn elsewhere(path: &str, message: &str, element: impl Fn(usize) -> usize) -> String {
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
        let read = |value| serde_json::from_value::<Miss>(value).expect("well-formed");
        assert_eq!(read(json!("drop")).resolve("miss", 2, drop).expect("a drop"), drop);
        assert_eq!(read(json!(1)).resolve("miss", 2, drop).expect("a gate"), Gate::out(1));
        let error = read(json!(2)).resolve("miss", 2, drop).expect_err("there is no gate 2");
        assert_eq!(error.to_string(), "miss: there is no gate 2: there are 2, 0 to 1");
        for wrong in [json!("pass"), json!(-1), json!(MAX_GATES), json!(null), json!(1.5)] {
            let error = serde_json::from_value::<Miss>(wrong.clone()).expect_err("refused").to_string();
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
