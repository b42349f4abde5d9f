//! An address at which the server listens.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The port at which the server listens by default.
const PORT: u16 = 9640;

/// An address at which the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An IP address and a TCP port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A text that is not an address to listen at.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{text}': allowed is {}", self.allowed())]
pub struct ListenError {
    text: String,
}

impl ListenError {
    /// Returns what is allowed.
    #[must_use]
    pub fn allowed(&self) -> &'static str {
        "an IP address with a port (127.0.0.1:9640, [::1]:9640), or unix: and an absolute path (unix:/run/forebay.sock)"
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT))
    }
}

impl Listen {
    /// Parses an address.
    ///
    /// # Errors
    /// Any other text than an IP address with a port, or `unix:` with the absolute path of a socket.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        let wrong = || ListenError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() && path.file_name().is_some() { Ok(Self::Unix(path)) } else { Err(wrong()) };
        }
        text.replace("localhost:", "127.0.0.1:").parse().map(Self::Tcp).map_err(|_| wrong())
    }

    /// Returns whether other machines can reach the address.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        Self::parse(text)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Listen {
    fn schema_name() -> Cow<'static, str> {
        "Listen".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 256 })
    }
}
