//! Checks whether an address can belong to one host on a network, and creates the errors for addresses that cannot.

use std::net::{IpAddr, Ipv4Addr};

/// Returns whether an IPv6 address is in `::/96` (unspecified, loopback, IPv4-compatible) or IPv4-mapped.
#[must_use]
pub fn stands_for_v4(address: u128) -> bool {
    address >> 32 == 0 || is_mapped(address)
}

/// Returns whether an IPv4 address can belong to one host on a network (RFC 1122 section 3.2.1.3). Directed broadcast
/// addresses depend on prefixes: the caller checks those.
#[inline]
#[must_use]
pub fn may_be_host_v4(address: u32) -> bool {
    !matches!(address >> 24, 0 | 127 | 224..)
}

/// Returns whether an IPv6 address can belong to one node on a network: it is not an unspecified, loopback,
/// IPv4-mapped, IPv4-compatible or multicast address (RFC 4291 sections 2.5.2, 2.5.3, 2.5.5, 2.7).
#[inline]
#[must_use]
pub fn may_be_host_v6(address: u128) -> bool {
    address >> 120 != 0xff && !stands_for_v4(address)
}

/// Returns the error for an IPv4-mapped address in a configuration or a change request.
#[must_use]
pub fn mapped(address: IpAddr) -> String {
    let four = address.to_canonical();
    format!("'{address}' is an IPv4-mapped address: write the IPv4 address, {four}")
}

/// Checks that an address can belong to one host (RFC 1122 section 3.2.1.3, RFC 1812 section 4.2.2.11, RFC 4291 section
/// 2.4).
///
/// # Errors
/// Returns a text with the address, the fault, and the addresses that are allowed.
pub fn check_host_address(address: IpAddr) -> Result<IpAddr, String> {
    let fault = match address {
        IpAddr::V4(four) => match four.octets()[0] {
            0 => "in network 0",
            127 => "in the loopback network",
            224..=239 => "a multicast address",
            240.. => "in the reserved block 240.0.0.0/4",
            _ => return Ok(address),
        },
        IpAddr::V6(six) => match six.to_bits() {
            0 => "the unspecified address",
            1 => "the loopback address",
            bits if bits >> 120 == 0xff => "a multicast address",
            bits if is_mapped(bits) => return Err(mapped(address)),
            bits if stands_for_v4(bits) => "in the block ::/96 (IPv4-compatible)",
            _ => return Ok(address),
        },
    };
    Err(format!("{address} is {fault}: allowed are addresses of one host"))
}

/// Checks that an IPv4 prefix, given by its first and last address, contains an address that can belong to a host.
///
/// # Errors
/// Returns the same errors as [`check_host_address`].
pub fn check_host_prefix(first: Ipv4Addr, last: Ipv4Addr) -> Result<(), String> {
    let one_block = first.octets()[0] == last.octets()[0] || first.octets()[0] >= 224;
    if one_block { check_host_address(first.into()).map(drop) } else { Ok(()) }
}

/// Returns whether an IPv6 address is an IPv4-mapped address (RFC 4291 section 2.5.5.2).
#[inline(always)]
#[must_use]
pub fn is_mapped(address: u128) -> bool {
    address >> 32 == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_address_and_the_allowed_ones() {
        let check = |text: &str| check_host_address(text.parse().expect("an address"));
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "224.0.0.1",
            "239.9.9.9",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::c000:201",
            "::ffff:192.0.2.1",
            "ff02::1",
            "ffff::1",
        ] {
            let error = check(bad).expect_err(bad);
            assert!(error.contains(bad) && (error.contains("allowed are") || error.contains("write the")), "{error}");
        }
        for good in ["1.0.0.0", "10.0.0.255", "126.255.255.255", "169.254.1.1", "223.255.255.255", "fe80::1", "2000::"]
        {
            assert_eq!(check(good).map(|address| address.to_string()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn may_be_host_agrees_with_check_host_address() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "1.0.0.0",
            "126.255.255.255",
            "127.0.0.1",
            "128.0.0.0",
            "169.254.1.1",
            "223.255.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::10.1.0.7",
            "::ffff:10.1.0.7",
            "::ffff:0:10.1.0.7",
            "64:ff9b::10.1.0.7",
            "fe80::1",
            "2001:db8::1",
            "ff02::1",
        ] {
            let address: IpAddr = text.parse().expect("an address");
            let may_be_host = match address {
                IpAddr::V4(four) => may_be_host_v4(four.to_bits()),
                IpAddr::V6(six) => may_be_host_v6(six.to_bits()),
            };
            assert_eq!(may_be_host, check_host_address(address).is_ok(), "{text}");
        }
    }
}
