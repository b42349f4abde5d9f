//! Interface names. A name is checked when it is read, because the kernel truncates a name that is too long, and
//! completes a name that looks like a pattern.

use std::fmt;

use forebay_graph::short;
use schemars::JsonSchema;
use serde::Deserialize;

/// The name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct InterfaceName(String);

/// A text that is not a valid interface name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an interface name: a name has 1 to 15 characters without spaces, '/', ':' or '%', and is not '.' or \
     '..'"
)]
pub struct NameError(String);

impl TryFrom<String> for InterfaceName {
    type Error = NameError;

    /// Accepts the names that the kernel accepts (`dev_valid_name`), except names that the kernel would complete with a
    /// number (`tap%d`).
    fn try_from(name: String) -> Result<Self, NameError> {
        let valid = (1..16).contains(&name.len()) && name != "." && name != "..";
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%') || !byte.is_ascii();
        if valid && name.bytes().all(fits) { Ok(Self(name)) } else { Err(NameError(short(&name))) }
    }
}

impl InterfaceName {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_kernel_accepts() {
        let read = |name: &str| InterfaceName::try_from(name.to_owned());
        for name in ["fb0", "a", "123456789012345", "é", "..."] {
            assert_eq!(read(name).expect(name).to_string(), name);
        }
        for name in ["", ".", "..", "1234567890123456", "a b", "a/b", "a:1", "tap%d", "a\n", "a\0"] {
            let error = read(name).expect_err(name).to_string();
            assert!(error.contains(&format!("'{}'", short(name))) && error.contains("1 to 15"), "{error}");
        }
    }
}
