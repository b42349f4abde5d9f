//! Parameters shared by tunnels: outer addresses, source ports, differentiated services.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use forebay_graph::short;
use forebay_packet::host_address::{check_host_address, may_be_host_v4, may_be_host_v6};
use forebay_tables::parameters::number;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// The address of a tunnel's end: the IPv4 address of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Endpoint(pub u32);

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let shown = short(&text);
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(format!(
                "'{shown}' is an IPv6 address: allowed are IPv4 addresses, because this tunnel runs over IPv4"
            ));
        }
        let address: Ipv4Addr = text.parse().map_err(|_| {
            format!(
                "'{shown}' is not an address of a tunnel's end: allowed are IPv4 addresses of one host, such as \
                 192.0.2.1"
            )
        })?;
        check_host_address(address.into())?;
        Ok(Self(address.to_bits()))
    }
}

/// The address of a tunnel's end: the IPv4 or IPv6 address of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct AnyEndpoint(pub IpAddr);

impl TryFrom<String> for AnyEndpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let shown = short(&text);
        let address = text.parse().map_err(|_| {
            format!(
                "'{shown}' is not an address of a tunnel's end: allowed are addresses of one host, such as 192.0.2.1 \
                 and 2001:db8::1"
            )
        })?;
        check_host_address(address).map(Self)
    }
}

/// Returns the name of an address's family.
pub fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Returns true if an address may belong to a single host.
pub fn is_any_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => may_be_host_v4(four.to_bits()),
        IpAddr::V6(six) => may_be_host_v6(six.to_bits()),
    }
}

/// Returns true if an IPv4 address, in host byte order, may belong to a single host.
pub fn is_host(address: u32) -> bool {
    may_be_host_v4(address)
}

/// The outer UDP source port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePort {
    /// A port from 49152 to 65535, derived from the inner addresses and ports.
    #[default]
    Session,
    /// Always this port.
    Fixed(u16),
}

impl<'de> Deserialize<'de> for SourcePort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let fixed = value.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
        match (value.as_str(), fixed) {
            (Some("session"), _) => Ok(Self::Session),
            (_, Some(port)) => Ok(Self::Fixed(port)),
            _ => Err(de::Error::custom(format!("{value} is not a source port: allowed are 'session' and 1 to 65535"))),
        }
    }
}

impl JsonSchema for SourcePort {
    fn schema_name() -> Cow<'static, str> {
        "TunnelSourcePort".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "session" }, { "type": "integer", "minimum": 1, "maximum": 65535 }] })
    }
}

/// The QoS flow in the PDU Session Container of GTP-U packets. The caller must check that a fixed flow is at most 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qfi {
    /// Always this flow.
    Fixed(u8),
    /// The flow of each packet's session.
    Session,
}

impl<'de> Deserialize<'de> for Qfi {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64().and_then(|number| u8::try_from(number).ok())) {
            (Some("session"), _) => Ok(Self::Session),
            (_, Some(number)) => Ok(Self::Fixed(number)),
            _ => Err(de::Error::custom(format!("{value} is not a QoS flow: allowed are 0 to 63 and 'session'"))),
        }
    }
}

impl JsonSchema for Qfi {
    fn schema_name() -> Cow<'static, str> {
        "TunnelQfi".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "session" }, { "type": "integer", "minimum": 0, "maximum": 63 }] })
    }
}

/// The outer differentiated services code point, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dscp {
    /// The inner packet's code point.
    #[default]
    Copy,
    /// Always this code point.
    Fixed(u8),
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let fixed = value.as_u64().filter(|number| *number < 64);
        match (value.as_str(), fixed) {
            (Some("copy"), _) => Ok(Self::Copy),
            (_, Some(dscp)) => Ok(Self::Fixed(dscp as u8)),
            _ => Err(de::Error::custom(format!("{value} is not a code point: allowed are 'copy' and 0 to 63"))),
        }
    }
}

impl JsonSchema for Dscp {
    fn schema_name() -> Cow<'static, str> {
        "TunnelDscp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "copy" }, { "type": "integer", "minimum": 0, "maximum": 63 }] })
    }
}

/// A tunnel's number in a configuration, decimal or hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identifier(pub u32);

impl<'de> Deserialize<'de> for Identifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = value.as_u64().or_else(|| u64::try_from(number(value.as_str()?)?).ok());
        read.and_then(|read| u32::try_from(read).ok()).map(Self).ok_or_else(|| {
            let allowed = format!("0 to {}, or in hexadecimal, such as 0x1001", u32::MAX);
            de::Error::custom(format!("{value} is not a 32-bit number: allowed are {allowed}"))
        })
    }
}

impl JsonSchema for Identifier {
    fn schema_name() -> Cow<'static, str> {
        "TunnelIdentifier".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 },
            { "type": "string", "pattern": "^(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})$" },
        ] })
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_are_ipv4_hosts() {
        assert_eq!(read(&json!("192.0.2.1")), Ok(Endpoint(0xc000_0201)));
        for wrong in
            ["0.0.0.0", "0.9.9.9", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2", "host", ""]
        {
            let error = read::<Endpoint>(&json!(wrong)).expect_err(wrong);
            assert!(error.contains(wrong) && error.contains("allowed are"), "{error}");
        }
        assert!(
            read::<Endpoint>(&json!("2001:db8::1"))
                .is_err_and(|error| error.contains("'2001:db8::1' is an IPv6 address"))
        );
    }

    #[test]
    fn endpoints_of_either_family_are_hosts() {
        assert_eq!(read(&json!("192.0.2.1")), Ok(AnyEndpoint(Ipv4Addr::new(192, 0, 2, 1).into())));
        assert_eq!(read::<AnyEndpoint>(&json!("2001:db8::1")).map(|end| family_of(end.0)), Ok("IPv6"));
        for wrong in ["127.0.0.1", "240.0.0.1", "::", "::1", "::c000:201", "ff02::1", "2001:db8::/64", "host", ""] {
            let error = read::<AnyEndpoint>(&json!(wrong)).expect_err(wrong);
            assert!(error.contains(wrong) && error.contains("allowed are"), "{error}");
        }
    }

    #[test]
    fn an_ipv4_mapped_end_is_refused_with_the_address_to_write() {
        let error = read::<AnyEndpoint>(&json!("::ffff:192.0.2.1")).expect_err("mapped");
        assert_eq!(error, "'::ffff:192.0.2.1' is an IPv4-mapped address: write the IPv4 address, 192.0.2.1");
    }

    #[test]
    fn ports_code_points_and_identifiers() {
        assert_eq!(read(&json!("session")), Ok(SourcePort::Session));
        assert_eq!(read(&json!(2152)), Ok(SourcePort::Fixed(2_152)));
        assert_eq!(read(&json!("copy")), Ok(Dscp::Copy));
        assert_eq!(read(&json!(46)), Ok(Dscp::Fixed(46)));
        assert_eq!(read(&json!("0xffffffff")), Ok(Identifier(u32::MAX)));
        assert_eq!(read(&json!(7)), Ok(Identifier(7)));
        for wrong in [json!(0), json!(65_536), json!("hash"), json!(-1)] {
            assert!(read::<SourcePort>(&wrong).is_err_and(|error| error.contains(&wrong.to_string())));
        }
        for wrong in [json!(64), json!("keep"), json!(null)] {
            assert!(read::<Dscp>(&wrong).is_err_and(|error| error.contains(&wrong.to_string())));
        }
        for wrong in [json!(1u64 << 32), json!("0x100000000"), json!("x"), json!(-1)] {
            assert!(read::<Identifier>(&wrong).is_err_and(|error| error.contains(&wrong.to_string())));
        }
    }
}
