//! Reads the parameters of functions, ports, states and controllers.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::setup::SetupError;

/// Reads parameters. An error names the parameter that is wrong. A configuration may omit the parameters of a function
/// that has none.
pub(crate) fn read_params<P: DeserializeOwned>(params: &Value) -> Result<P, SetupError> {
    let none = Value::Object(serde_json::Map::new());
    let params = if params.is_null() { &none } else { params };
    serde_path_to_error::deserialize(params)
        .map_err(|error| SetupError::at(error.path().to_string(), in_words(&error.into_inner().to_string())))
}

/// Rewrites serde's message about a number that does not fit its type, so that it lists the allowed range. Returns
/// other messages unchanged.
#[must_use]
pub fn in_words(message: &str) -> String {
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
