//! Reads the parameters of functions, ports, states and controllers.

use forebay_protocol::check::Fault;
use forebay_units::text::short;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::setup::SetupError;

/// Reads parameters. An error names the parameter that is wrong. A configuration may omit the parameters of a function
/// that has none.
pub(crate) fn read_params<P: DeserializeOwned>(params: &Value) -> Result<P, SetupError> {
    let none = Value::Object(serde_json::Map::new());
    let params = if params.is_null() { &none } else { params };
    serde_path_to_error::deserialize(params).map_err(|error| unreadable(params, error))
}

/// Returns the fault of a value that cannot be deserialized. Its message has the value and what is allowed, if serde's
/// message names only what is allowed.
#[must_use]
pub fn unreadable(root: &Value, error: serde_path_to_error::Error<serde_json::Error>) -> SetupError {
    let (path, wrong) = (error.path().to_string(), value_at(root, error.path()));
    SetupError::of(path, fault(wrong, &error.into_inner().to_string()))
}

/// Returns the value at a path; `None` if the path is not completely known.
fn value_at<'v>(root: &'v Value, path: &Path) -> Option<&'v Value> {
    path.iter().try_fold(root, |value, segment| match segment {
        Segment::Seq { index } => value.get(*index),
        Segment::Map { key } => value.get(key.as_str()),
        Segment::Enum { variant } => value.get(variant.as_str()),
        Segment::Unknown => None,
    })
}

/// Returns the fault of `value` with the meaning of serde's message.
fn fault(value: Option<&Value>, message: &str) -> Fault {
    // The messages of the standard library.
    let address = match message {
        "invalid IPv4 address syntax" => Some(("an IPv4 address", "an address such as 192.0.2.1")),
        "invalid IPv6 address syntax" => Some(("an IPv6 address", "an address such as 2001:db8::1")),
        "invalid IP address syntax" => Some(("an IP address", "an address such as 192.0.2.1 or 2001:db8::1")),
        _ => None,
    };
    if let (Some((noun, allowed)), Some(Value::String(text))) = (address, value) {
        let text = short(text);
        return Fault::wrong_single(&text, format_args!("'{text}' is not {noun}"), allowed);
    }
    // The message of an enum without tags, which names its forms (`expecting`). A secret must not be shown.
    let forms = message.strip_prefix("expected ").filter(|_| !message.contains("not shown"));
    match (forms, value) {
        (Some(allowed), Some(Value::Array(_))) => of_whole("the list", allowed),
        (Some(allowed), Some(Value::Object(_))) => of_whole("the mapping", allowed),
        (Some(allowed), Some(value)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), short);
            Fault::wrong_single(&text, format_args!("'{text}' is not allowed"), allowed)
        }
        _ => Fault::new(in_words(message)),
    }
}

/// Returns the fault of a list or mapping, which is not shown.
fn of_whole(what: &str, allowed: &str) -> Fault {
    Fault { value: None, ..Fault::wrong_single("", format_args!("{what} is not allowed"), allowed) }
}

/// Rewrites serde's message about a number that does not fit its type, so that it lists the allowed range. Returns
/// other messages unchanged.
fn in_words(message: &str) -> String {
    let (value, of) = ["invalid value: integer `", "invalid type: floating point `"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.split_once("`, expected "))
        .unwrap_or_default();
    let range = match of.split(' ').next().unwrap_or_default() {
        "u8" => "0 to 255",
        "u16" => "0 to 65535",
        "u32" => "0 to 4294967295",
        "u64" | "usize" => "0 to 18446744073709551615",
        "i8" => "-128 to 127",
        "i16" => "-32768 to 32767",
        "i32" => "-2147483648 to 2147483647",
        "i64" | "isize" => "-9223372036854775808 to 9223372036854775807",
        _ => return message.to_owned(),
    };
    format!("'{value}' is not allowed: allowed is a whole number from {range}, without a decimal point or exponent")
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors are compared")]
    struct Params {
        gateway: Vec<IpAddr>,
        tunnel: Option<Tunnel>,
        size: Option<Size>,
        key: Option<Key>,
        count: Option<u8>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[expect(dead_code, reason = "only the errors are compared")]
    enum Tunnel {
        Gtpu { destination: Ipv4Addr },
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged, expecting = "expected a number of bytes, or a list of numbers")]
    #[expect(dead_code, reason = "only the errors are compared")]
    enum Size {
        One(u16),
        List(Vec<u16>),
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged, expecting = "expected a list of keys (the value is not shown)")]
    #[expect(dead_code, reason = "only the errors are compared")]
    enum Key {
        List(Vec<u16>),
    }

    /// Regression: these errors named neither the value nor, for addresses, what is allowed.
    #[test]
    fn errors_have_the_value_and_what_is_allowed() {
        for (key, value, expected) in [
            (
                "gateway",
                json!(["192.0.2.1", "x"]),
                "gateway[1]: 'x' is not an IP address: allowed is an address such as 192.0.2.1 or 2001:db8::1",
            ),
            (
                "tunnel",
                json!({ "gtpu": { "destination": "y" } }),
                "tunnel.gtpu.destination: 'y' is not an IPv4 address: allowed is an address such as 192.0.2.1",
            ),
            ("size", json!("imx"), "size: 'imx' is not allowed: allowed is a number of bytes, or a list of numbers"),
            ("size", json!(["x"]), "size: the list is not allowed: allowed is a number of bytes, or a list of numbers"),
            ("key", json!("hunter2"), "key: expected a list of keys (the value is not shown)"),
            ("count", json!(256), "count: '256' is not allowed: allowed is a whole number from 0 to 255, without a"),
        ] {
            let mut params = json!({ "gateway": [] });
            params[key] = value;
            let error = read_params::<Params>(&params).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = read_params::<Params>(&json!({ "gateway": ["x"] })).expect_err("no address");
        assert_eq!(error.faults[0].value.as_deref(), Some("x"));
        assert_eq!(error.faults[0].allowed.as_deref(), Some("an address such as 192.0.2.1 or 2001:db8::1"));
    }
}
