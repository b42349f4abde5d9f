//! The parameters of a TAP port. Addresses are checked when they are read, and the limits of numbers by the port
//! ([`super::Tap`]).

use std::net::IpAddr;

use forebay_graph::short;
use forebay_packet::{host_address::check_host_address, wire::ethernet::MacAddress};
use forebay_units::Nanos;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::interface::InterfaceName;

/// Parameters of `tap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The interface's name in the host, up to 15 characters. An interface that does not exist is created, and is
    /// removed at the end of the run.
    pub(super) interface: InterfaceName,
    /// The host's address on the interface, for example `192.0.2.1/24` or `2001:db8::1/64`. By default, the interface's
    /// addresses are not changed.
    pub(super) address: Option<HostAddress>,
    /// The host's Ethernet address on the interface, for example `02:00:00:00:00:01`; by default, the kernel chooses an
    /// address.
    pub(super) mac: Option<MacAddress>,
    /// The longest IP packet that the host sends by the interface, 68 to 65321 bytes; 1500 by default.
    #[schemars(range(min = 68, max = 65_321))]
    #[schemars(extend("default" = 1_500))]
    pub(super) mtu: Option<u16>,
    /// The network namespace of the interface: a name as in `ip netns`, or a path. By default, the namespace of
    /// Forebay.
    pub(super) namespace: Option<String>,
    /// The time after which the port reads an empty interface again, 1us to 1s; 50us by default. A reading needs a
    /// system call.
    #[serde(default = "poll")]
    pub(super) poll: Nanos,
}

fn poll() -> Nanos {
    Nanos(50_000)
}

/// A host's address, and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct HostAddress {
    pub(super) address: IpAddr,
    pub(super) length: u8,
}

/// A text that is not a host's address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text has another form.
    #[error("'{0}' is not a host address with a prefix length: write for example 192.0.2.1/24 or 2001:db8::1/64")]
    Other(String),
    /// No host can have this address on a network.
    #[error("{0}")]
    NotOfHost(String),
}

impl TryFrom<String> for HostAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        let read = || {
            let (address, length) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let plain = length.bytes().all(|digit| digit.is_ascii_digit());
            let length: u8 = length.parse().ok().filter(|length| plain && *length <= most && *length > 0)?;
            Some((address, length))
        };
        let (address, length) = read().ok_or_else(|| AddressError::Other(short(&text)))?;
        let address = check_host_address(address).map_err(AddressError::NotOfHost)?;
        Ok(Self { address, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_mapped_address_is_refused_with_the_address_to_write() {
        let error = HostAddress::try_from("::ffff:192.0.2.1/120".to_owned()).expect_err("mapped").to_string();
        assert_eq!(error, "'::ffff:192.0.2.1' is an IPv4-mapped address: write the IPv4 address, 192.0.2.1");
    }

    #[test]
    fn an_address_has_its_network() {
        let read = |text: &str| HostAddress::try_from(text.to_owned());
        assert_eq!(read("192.0.2.1/24").map(|it| it.length), Ok(24));
        assert_eq!(read("2001:db8::1/128").map(|it| it.length), Ok(128));
        for text in ["192.0.2.1", "192.0.2.1/33", "192.0.2.1/+4", "192.0.2.1/0", "::1/129", "host/4", "/", ""] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }

    #[test]
    fn an_address_that_no_host_has_is_refused() {
        for address in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"] {
            let error = HostAddress::try_from(format!("{address}/8")).expect_err(address).to_string();
            assert!(error.starts_with(address) && error.contains("allowed are addresses of one host"), "{error}");
        }
    }
}
