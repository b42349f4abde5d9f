//! Quantities with units, as written in configurations: `300us`, `5Mpps`, `10Gbps`, `64KiB`.
//!
//! Each type is one `quantity!` at the end of this file, with its units from small to large. A new unit needs only an
//! entry there. Frequent wrong spellings of the unit are added to [`SPELLINGS`]. Other crates must read the units of a
//! JSON Schema with [`units_of`], and must not parse its pattern themselves.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::text::short;

/// The error for a text that is not the expected quantity.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// The text is not a quantity of this type.
    #[error("'{value}' is not {what}{advice}: write a number and a unit, such as {example} (units: {units})")]
    Other {
        /// The text.
        value: String,
        /// The expected quantity.
        what: &'static str,
        /// An example of it.
        example: &'static str,
        /// The allowed units.
        units: String,
        /// A suggestion of another unit, or empty.
        advice: String,
    },
    /// The value is too large for exact arithmetic.
    #[error("'{value}' is too large for {what}: the largest is {most}")]
    Large {
        /// The text.
        value: String,
        /// The expected quantity.
        what: &'static str,
        /// The largest allowed value.
        most: String,
    },
}

/// The largest allowed value, in the base unit of the type. It is slightly below 2⁵³: above 2⁵³, floating-point numbers
/// do not represent every whole number.
const MAX_EXACT: f64 = 9e15;

/// Other spellings of units, in lower case, each with its unit. An ambiguous spelling has several entries.
const SPELLINGS: &[(&str, &str)] = &[
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("m", "min"),
    ("m", "ms"),
    ("mins", "min"),
    ("minute", "min"),
    ("minutes", "min"),
    ("hr", "h"),
    ("hrs", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
    ("msec", "ms"),
    ("usec", "us"),
    ("\u{b5}s", "us"),
    ("\u{3bc}s", "us"),
    ("u", "us"),
    ("n", "ns"),
    ("k", "kpps"),
    ("k", "kbps"),
    ("k", "KiB"),
    ("kb", "KiB"),
    ("kib", "KiB"),
    ("m", "Mpps"),
    ("m", "Mbps"),
    ("m", "MiB"),
    ("mb", "MiB"),
    ("mib", "MiB"),
    ("g", "Gpps"),
    ("g", "Gbps"),
    ("g", "GiB"),
    ("gb", "GiB"),
    ("gib", "GiB"),
    ("t", "Tbps"),
    ("bit", "bps"),
    ("bit/s", "bps"),
    ("kbit", "kbps"),
    ("kbit/s", "kbps"),
    ("mbit", "Mbps"),
    ("mbit/s", "Mbps"),
    ("mb/s", "Mbps"),
    ("gbit", "Gbps"),
    ("gbit/s", "Gbps"),
    ("gb/s", "Gbps"),
    ("p/s", "pps"),
    ("pkt/s", "pps"),
    ("byte", "B"),
    ("bytes", "B"),
];

/// Returns the largest quantity of the type that has these units, in the type's largest unit: `9000Tbps`. `units` are
/// from small to large. Only the last one is compared. `None` if no type has this unit as its largest.
#[must_use]
pub fn most<'u>(units: impl IntoIterator<Item = &'u str>) -> Option<String> {
    let all = [Nanos::UNITS, PacketRate::UNITS, BitRate::UNITS, Bytes::UNITS];
    let last = units.into_iter().last()?;
    all.iter().find(|of| of.last().is_some_and(|(name, _)| *name == last)).map(|of| largest(of))
}

/// Returns the largest allowed quantity, in the last of these units.
fn largest(units: &[Unit]) -> String {
    let (name, scale) = units.last().copied().unwrap_or(("", 1.0));
    format!("{}{name}", (MAX_EXACT / scale).floor())
}

/// Returns a part of an error message about a number whose unit is missing or not in `units`. For a missing unit this
/// is `", as it has no unit"`. Otherwise it suggests similar units in `units`: `" (did you mean 5min or 5ms?)"`.
/// Returns an empty text if the unit is in `units`, if no unit is similar, or if `text` does not begin with a number.
#[must_use]
pub fn advice<'u>(text: &str, units: impl IntoIterator<Item = &'u str>) -> String {
    let (number, unit) = split(text.trim());
    let units: Vec<&str> = units.into_iter().collect();
    if number.replace('_', "").parse::<f64>().is_err() {
        return String::new();
    }
    if unit.is_empty() {
        return ", as it has no unit".to_owned();
    }
    // The number is wrong, not the unit.
    if units.contains(&unit) {
        return String::new();
    }
    let lower = unit.to_lowercase();
    let known = SPELLINGS.iter().filter(|(written, _)| *written == lower).map(|(_, meant)| *meant);
    let mut meant: Vec<&str> = known.filter(|meant| units.contains(meant)).collect();
    meant.extend(units.iter().filter(|known| known.to_lowercase() == lower));
    meant.dedup();
    match meant.iter().map(|unit| format!("{number}{unit}")).collect::<Vec<_>>() {
        meant if meant.is_empty() => String::new(),
        meant => format!(" (did you mean {}?)", meant.join(" or ")),
    }
}

/// Splits a quantity into number and unit. Either may be empty.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// The text before the units in the pattern of a JSON Schema, and the text behind them.
const PATTERN: (&str, &str) = ("^\\s*[0-9][0-9._]*\\s*(", ")\\s*$");

/// Returns the pattern of quantities with these units.
fn pattern(units: &[Unit]) -> String {
    let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
    format!("{}{}{}", PATTERN.0, names.join("|"), PATTERN.1)
}

/// Returns the units in the pattern of a quantity's JSON Schema, from small to large. `None` for other patterns.
#[must_use]
pub fn units_of(pattern: &str) -> Option<Vec<&str>> {
    Some(pattern.strip_prefix(PATTERN.0)?.strip_suffix(PATTERN.1)?.split('|').collect())
}

/// A unit's name and its value in the type's base unit. The largest unit is last.
type Unit = (&'static str, f64);

/// Parses a quantity. Returns its value in the base unit. `what` and `example` describe the expected quantity in
/// errors.
fn parse(text: &str, what: &'static str, example: &'static str, units: &[Unit]) -> Result<f64, UnitError> {
    let quoted = short(text);
    let bad = || UnitError::Other {
        value: quoted.clone(),
        what,
        example,
        units: units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        advice: advice(&quoted, units.iter().map(|(name, _)| *name)),
    };
    let (number, unit) = split(text.trim());
    let number: f64 = number.replace('_', "").parse().map_err(|_| bad())?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    let value = number * scale;
    if value <= MAX_EXACT {
        return Ok(value);
    }
    Err(UnitError::Large { value: quoted.clone(), what, most: largest(units) })
}

/// The units that are used only for whole numbers when a value is written. Otherwise, 100s would be written as
/// 1.6666min.
const WHOLE: [&str; 3] = ["min", "h", "d"];

/// Writes a value in the largest unit in which it is at least 1. Minutes, hours and days are used only for whole
/// numbers.
fn write(f: &mut fmt::Formatter<'_>, value: f64, units: &[Unit]) -> fmt::Result {
    let fits = |(name, scale): &&Unit| value >= *scale && (!WHOLE.contains(name) || value % scale == 0.0);
    let fitting = units.iter().filter(fits).max_by(|a, b| a.1.total_cmp(&b.1));
    let (name, scale) = fitting.or(units.first()).copied().unwrap_or(("", 1.0));
    write!(f, "{}{name}", value / scale)
}

/// A number type that stores a quantity.
trait Amount {
    /// Returns the number of this type that is nearest to `value`.
    fn nearest(value: f64) -> Self;
}

impl Amount for u64 {
    /// Rounds to the nearest whole number. So 260.67us is 260 670 ns, although no floating-point number is exactly
    /// 260.67.
    fn nearest(value: f64) -> Self {
        value.round() as Self
    }
}

impl Amount for f64 {
    fn nearest(value: f64) -> Self {
        value
    }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal, $example:literal, $units:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name(pub $inner);

        impl $name {
            const UNITS: &'static [Unit] = &$units;
        }

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, $what, $example, Self::UNITS).map(|value| Self(<$inner>::nearest(value)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write(f, self.0 as f64, Self::UNITS)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "description": concat!($what, ", such as ", $example),
                    "pattern": pattern(Self::UNITS),
                })
            }
        }
    };
}

quantity!(
    /// A span of time in nanoseconds, written `300us` or `5min`. There is no unit `m`, because it could also mean
    /// milli.
    Nanos(u64), "a span of time", "300us or 5min",
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3_600e9), ("d", 86_400e9)]
);
quantity!(
    /// Packets per second, written `5Mpps`.
    PacketRate(f64), "a packet rate", "5Mpps", [("pps", 1.0), ("kpps", 1e3), ("Mpps", 1e6), ("Gpps", 1e9)]
);
quantity!(
    /// Bits per second, written `10Gbps`.
    BitRate(f64), "a bit rate", "10Gbps", [("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9), ("Tbps", 1e12)]
);
quantity!(
    /// A number of bytes, written `64KiB`.
    Bytes(u64), "a size", "64KiB", [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)]
);

impl Eq for Nanos {}
impl Eq for Bytes {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn written_units_are_read() {
        assert_eq!("300us".parse(), Ok(Nanos(300_000)));
        assert_eq!("1.5 ms".parse(), Ok(Nanos(1_500_000)));
        assert_eq!("5min".parse(), Ok(Nanos(300_000_000_000)));
        assert_eq!("2 h".parse(), Ok(Nanos(7_200_000_000_000)));
        assert_eq!("0.5d".parse(), Ok(Nanos(43_200_000_000_000)));
        assert_eq!("5Mpps".parse(), Ok(PacketRate(5e6)));
        assert_eq!("10Gbps".parse(), Ok(BitRate(10e9)));
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
    }

    #[test]
    fn the_units_of_a_schema_are_read_from_its_pattern() {
        let schema = schemars::schema_for!(Nanos);
        let pattern = schema.get("pattern").and_then(|it| it.as_str()).expect("a pattern");
        assert_eq!(units_of(pattern), Some(vec!["ns", "us", "ms", "s", "min", "h", "d"]));
        assert_eq!(units_of("^[a-z]+$"), None);
        assert_eq!(pattern, r"^\s*[0-9][0-9._]*\s*(ns|us|ms|s|min|h|d)\s*$");
    }

    #[test]
    fn the_largest_quantity_follows_from_the_last_unit() {
        assert_eq!(most(["ns", "d"]), Some("104d".to_owned()));
        assert_eq!(most(["B", "GiB"]), Some("8381903GiB".to_owned()));
        assert_eq!((most(["x"]), most([])), (None, None));
    }

    #[test]
    fn every_spelling_stands_for_a_unit() {
        let all = [Nanos::UNITS, PacketRate::UNITS, BitRate::UNITS, Bytes::UNITS].concat();
        for (written, unit) in SPELLINGS {
            assert!(all.iter().any(|(name, _)| name == unit), "{written}: {unit}");
            assert_eq!(written.to_lowercase(), *written, "spellings are compared in lower case");
        }
    }

    #[test]
    fn a_wrong_unit_is_refused_with_the_value_and_what_is_allowed() {
        for text in ["300", "300 minutes", "us", "-1us", "1e3us", "NaNus", ""] {
            let error = text.parse::<Nanos>().expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains("ns, us, ms, s, min, h, d"), "{error}");
        }
    }

    #[test]
    fn long_spans_use_a_unit_that_divides_them() {
        for (seconds, shown) in
            [(59, "59s"), (60, "1min"), (90, "90s"), (300, "5min"), (5_400, "90min"), (7_200, "2h"), (86_400, "1d")]
        {
            assert_eq!(Nanos(seconds * 1_000_000_000).to_string(), shown);
        }
        assert_eq!(Nanos(1_500_000_000).to_string(), "1.5s");
    }

    #[test]
    fn common_spellings_get_a_suggestion() {
        let time = |text: &str| text.parse::<Nanos>().expect_err(text).to_string();
        let rate = |text: &str| text.parse::<PacketRate>().expect_err(text).to_string();
        let bits = |text: &str| text.parse::<BitRate>().expect_err(text).to_string();
        for (error, expected) in [
            (time("5m"), "'5m' is not a span of time (did you mean 5min or 5ms?): write a number and a unit"),
            (time("2hours"), "(did you mean 2h?)"),
            (time("3 S"), "(did you mean 3s?)"),
            (time("10"), "'10' is not a span of time, as it has no unit: write"),
            (rate("100000"), "'100000' is not a packet rate, as it has no unit: write"),
            (rate("1M"), "(did you mean 1Mpps?)"),
            (rate("5mpps"), "(did you mean 5Mpps?)"),
            (bits("10Gbit/s"), "(did you mean 10Gbps?)"),
            (bits("10G"), "(did you mean 10Gbps?)"),
        ] {
            assert!(error.contains(expected), "{error}\n{expected}");
        }
        assert!(!rate("1GHz").contains("mean") && !time("x5m").contains("mean"));
        // Regression: the suggestion was the text itself.
        assert_eq!(advice("0pps", ["pps", "kpps"]), "");
        assert_eq!(advice("9999999 kpps", ["pps", "kpps"]), "");
    }

    #[test]
    fn errors_for_large_values_name_the_maximum() {
        let message = |error: UnitError| error.to_string();
        let time = |text: &str| text.parse::<Nanos>().map_err(message);
        assert_eq!(time("9000000s"), Ok(Nanos(9_000_000_000_000_000)));
        let large = |text: &str| format!("'{text}' is too large for a span of time: the largest is 104d");
        for text in
            ["9000001s", "99999999999s", &"9".repeat(30), &"9".repeat(400)].map(|text| text.trim_end_matches('s'))
        {
            assert_eq!(time(&format!("{text}s")), Err(large(&short(&format!("{text}s")))));
        }
        let bytes = "9999999999GiB".parse::<Bytes>().map_err(message);
        assert_eq!(bytes, Err("'9999999999GiB' is too large for a size: the largest is 8381903GiB".to_owned()));
    }

    proptest! {
        #[test]
        fn written_quantities_are_parsed_back(value in 0u64..1 << 50) {
            let (nanos, bytes) = (Nanos(value), Bytes(value));
            // Display divides by a power of ten; the nearest whole number is the same.
            let back: Nanos = nanos.to_string().parse().expect("it was written by `Display`");
            prop_assert_eq!(back, nanos);
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }

        #[test]
        fn any_text_is_a_span_in_range_or_an_error_that_quotes_it(text in ".*") {
            match text.parse::<Nanos>() {
                Ok(span) => prop_assert!(span.0 as f64 <= MAX_EXACT),
                Err(error) => {
                    let quoted = short(&text);
                    prop_assert!(error.to_string().starts_with(&format!("'{quoted}' is ")), "{}", error);
                }
            }
        }

        /// Texts that are nearly quantities.
        #[test]
        fn numbers_with_units_are_read_or_refused_by_range(
            text in "[0-9]{1,20}(\\.[0-9]{0,3})? ?(ns|us|ms|s|min|h|d)",
        ) {
            let number: f64 = text.trim_end_matches(|c: char| c.is_alphabetic()).trim().parse().expect("a number");
            match text.parse::<Nanos>() {
                Ok(span) => prop_assert!(span.0 as f64 >= number.floor()),
                Err(error) => prop_assert!(matches!(error, UnitError::Large { .. }), "{}", error),
            }
        }
    }
}
