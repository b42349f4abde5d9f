//! A network interface as its neighbours see it: a state with its own addresses and a table of its neighbours.
//!
//! All workers share this state in the functions `interface_in` and `interface_out`, and in functions that send packets
//! from the interface (`icmp_error`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_graph::{DeclareState, Setup, SetupError, register, short};
use forebay_packet::{host_address::check_host_address, wire::ethernet::MacAddress};
use forebay_tables::parameters::no_memory;
use forebay_units::{Frequency, Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) mod echo;
pub(crate) mod entry;
pub(crate) mod frames;
pub(crate) mod neighbours;
mod table;
#[cfg(test)]
pub(crate) mod testing;

use entry::Timers;
use neighbours::Neighbours;

/// Parameters of the state `interface`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The Ethernet address, such as `02:00:00:00:00:01`.
    mac: MacAddress,
    /// The interface's own addresses with the length of the connected prefix, such as `[192.0.2.1/24,
    /// "2001:db8::1/64"]`, up to 16. If there is an IPv6 address and none is link-local, the link-local address made
    /// from the Ethernet address is added.
    addresses: Vec<InterfaceAddress>,
    /// The number of the interface in a router with several interfaces. `interface_in` writes it to the metadata word
    /// `interface`.
    number: Option<u32>,
    /// Permanent neighbours: `["192.0.2.7 02:00:00:00:00:07"]`.
    #[serde(default)]
    neighbours: Vec<String>,
    /// The approximate number of neighbours for which there is room, 16 to 1048576; 1024 by default. Each takes 128
    /// bytes.
    #[serde(default = "capacity")]
    capacity: usize,
    /// The time for which a neighbour counts as reachable after an answer, 1ms to 1d; 30s by default.
    #[serde(default = "reachable")]
    reachable: Nanos,
    /// The time for which packets are sent to a stale neighbour before it is probed, 1ms to 1d; 5s by default.
    #[serde(default = "delay")]
    delay: Nanos,
    /// The time between two requests to a neighbour that does not answer, 1ms to 1d; 1s by default.
    #[serde(default = "retransmit")]
    retransmit: Nanos,
    /// The number of requests before a neighbour is given up, 1 to 15; 3 by default.
    #[serde(default = "tries")]
    tries: u8,
    /// The pause before a neighbour that was given up is requested again, 1ms to 1d; 3s by default. The pause doubles
    /// each time that the neighbour is given up again, up to 32 times this value.
    #[serde(default = "negative")]
    negative: Nanos,
    /// The time after which an unused neighbour is removed, 1ms to 1d; 10min by default.
    #[serde(default = "forget")]
    forget: Nanos,
}

fn capacity() -> usize {
    1_024
}
fn reachable() -> Nanos {
    Nanos(30_000_000_000)
}
fn delay() -> Nanos {
    Nanos(5_000_000_000)
}
fn retransmit() -> Nanos {
    Nanos(1_000_000_000)
}
fn tries() -> u8 {
    3
}
fn negative() -> Nanos {
    Nanos(3_000_000_000)
}
fn forget() -> Nanos {
    Nanos(600_000_000_000)
}

/// An address of an interface and the length of the connected prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(crate) struct InterfaceAddress {
    address: IpAddr,
    length: u32,
}

/// The reason why a text is not an address of an interface.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterfaceAddressError {
    /// It has the wrong form.
    #[error(
        "'{0}' is not an interface address: write a unicast address and its prefix length, such as 192.0.2.1/24 or \
         2001:db8::1/64"
    )]
    Other(String),
    /// It is not the address of a single host. The text says why.
    #[error("{0}")]
    NoHost(String),
}

impl FromStr for InterfaceAddress {
    type Err = InterfaceAddressError;

    fn from_str(text: &str) -> Result<Self, InterfaceAddressError> {
        let bad = || InterfaceAddressError::Other(short(text));
        let (address, length) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let length: u32 = length.parse().map_err(|_| bad())?;
        check_host_address(address).map_err(InterfaceAddressError::NoHost)?;
        if length > if address.is_ipv4() { 32 } else { 128 } {
            return Err(bad());
        }
        Ok(Self { address, length })
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = InterfaceAddressError;

    fn try_from(text: String) -> Result<Self, InterfaceAddressError> {
        text.parse()
    }
}

/// An own address with its prefix mask.
#[derive(Clone, Copy, Debug)]
struct OwnAddress<A> {
    address: A,
    mask: A,
}

/// An interface.
pub struct Interface {
    /// The Ethernet address of the interface.
    pub(crate) mac: MacAddress,
    /// The interface's IPv4 addresses.
    v4: Vec<OwnAddress<u32>>,
    /// The interface's IPv6 addresses, among them a link-local address. Empty without IPv6.
    v6: Vec<OwnAddress<u128>>,
    /// The interface's number in a router with several interfaces; `None` if none is configured.
    pub(crate) number: Option<u32>,
    /// The table of the interface's neighbours, which all workers share.
    pub(crate) neighbours: Neighbours,
    /// The latest time that a worker has stored with [`note`](Self::note), in ticks. Changes by an operator use it as
    /// the current time.
    now: AtomicU64,
    frequency: Frequency,
}

impl Interface {
    /// Returns true if the interface has this IPv4 address.
    #[inline]
    pub(crate) fn has_v4(&self, address: u32) -> bool {
        self.v4.iter().any(|own| own.address == address)
    }

    /// Returns true if the interface has this IPv6 address.
    #[inline]
    pub(crate) fn has_v6(&self, address: u128) -> bool {
        self.v6.iter().any(|own| own.address == address)
    }

    /// Returns true if an IPv4 address is in one of the interface's prefixes.
    #[inline]
    pub(crate) fn connects_v4(&self, address: u32) -> bool {
        self.v4.iter().any(|own| (own.address ^ address) & own.mask == 0)
    }

    /// Returns true if an IPv6 address is in one of the interface's prefixes. If the interface has IPv6 addresses, one
    /// of the prefixes is the link-local prefix.
    #[inline]
    pub(crate) fn connects_v6(&self, address: u128) -> bool {
        self.v6.iter().any(|own| (own.address ^ address) & own.mask == 0)
    }

    /// Returns true if an address is in one of the interface's prefixes, so that no router is needed to reach the
    /// address.
    pub(crate) fn connects(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.connects_v4(address.to_bits()),
            IpAddr::V6(address) => self.connects_v6(address.to_bits()),
        }
    }

    /// Returns true if an address is 255.255.255.255 or a broadcast address of one of the interface's prefixes. The
    /// bits of a broadcast address after the prefix are all ones, or in an older form all zeros (RFC 1812 section
    /// 4.2.3.1). A prefix of 31 or 32 bits has no broadcast address (RFC 3021).
    #[inline]
    pub(crate) fn is_broadcast(&self, address: u32) -> bool {
        address == u32::MAX || self.broadcasts().any(|all| all == address)
    }

    /// Returns the broadcast addresses of the interface's IPv4 prefixes, in both forms.
    pub(crate) fn broadcasts(&self) -> impl Iterator<Item = u32> {
        let wide = self.v4.iter().filter(|own| own.mask < 0xffff_fffe);
        wide.flat_map(|own| [own.address | !own.mask, own.address & own.mask])
    }

    /// Checks that an address is not a broadcast address of the interface's IPv4 prefixes, and not the anycast address
    /// of all routers of its IPv6 prefixes (RFC 4291 section 2.6.1). An IPv6 prefix of 127 bits has no such anycast
    /// address (RFC 6164 section 4).
    ///
    /// # Errors
    /// Returns a message with the address and the addresses that are allowed.
    pub(crate) fn refuse_broadcast(&self, address: IpAddr) -> Result<(), String> {
        match address {
            IpAddr::V4(four) if self.is_broadcast(four.to_bits()) => Err(format!(
                "{address} is the network or broadcast address of a prefix of the interface: use the address of a \
                 single host"
            )),
            IpAddr::V6(six) if self.is_anycast(six.to_bits()) => Err(format!(
                "{address} is the subnet-router anycast address of a prefix of the interface: use the address of a \
                 single host"
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if an address is the anycast address of all routers of one of the interface's prefixes.
    fn is_anycast(&self, address: u128) -> bool {
        self.v6.iter().any(|own| own.mask < u128::MAX - 1 && address == own.address & own.mask)
    }

    /// Returns true if one of the interface's IPv6 addresses has this solicited-node address (RFC 4291 section 2.7.1).
    pub(crate) fn is_solicited(&self, address: u128) -> bool {
        address >> 24 == SOLICITED_NODE && self.v6.iter().any(|own| (own.address ^ address) & 0xff_ffff == 0)
    }

    /// Returns the own IPv4 address for packets to `peer`: an address in the same prefix, otherwise the first. `None`
    /// if the interface has no IPv4 address.
    pub(crate) fn source_v4(&self, peer: u32) -> Option<u32> {
        let near = self.v4.iter().find(|own| (own.address ^ peer) & own.mask == 0);
        near.or(self.v4.first()).map(|own| own.address)
    }

    /// Returns the own IPv6 address for packets to `peer`: an address in the same prefix, otherwise the first that is
    /// not link-local (RFC 6724 rule 2), otherwise the first. `None` if the interface has no IPv6 address.
    pub(crate) fn source_v6(&self, peer: u128) -> Option<u128> {
        let near = self.v6.iter().find(|own| (own.address ^ peer) & own.mask == 0);
        let wide = || self.v6.iter().find(|own| !is_link_local(own.address));
        near.or_else(wide).or(self.v6.first()).map(|own| own.address)
    }

    /// Returns all addresses of the interface.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.v4.iter().map(|own| IpAddr::V4(Ipv4Addr::from_bits(own.address)));
        v4.chain(self.v6.iter().map(|own| IpAddr::V6(Ipv6Addr::from_bits(own.address))))
    }

    /// Stores the current time for changes by operators.
    #[inline]
    pub(crate) fn note(&self, now: Ticks) {
        self.now.store(now.0, Ordering::Relaxed);
    }

    /// Returns the time that [`note`](Self::note) has stored, in ticks.
    fn noted(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Converts a duration to ticks.
    pub(crate) fn ticks(&self, span: Nanos) -> Ticks {
        self.frequency.ticks(span)
    }
}

/// The prefix of solicited-node addresses, without the last 24 bits.
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000 >> 24;
/// The prefix of link-local addresses (RFC 4291 section 2.5.6).
const LINK_LOCAL: u128 = 0xfe80 << 112;

/// Returns true if an IPv6 address is link-local.
#[inline]
pub(crate) fn is_link_local(address: u128) -> bool {
    (address ^ LINK_LOCAL) >> 118 == 0
}

/// Returns the link-local address made from an Ethernet address (RFC 4291 appendix A).
fn link_local(mac: MacAddress) -> u128 {
    let [a, b, c, d, e, f] = mac.0;
    LINK_LOCAL | u128::from(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

/// Returns the mask of a prefix of `length` bits, for addresses of `BITS` bits.
fn mask<const BITS: u32>(length: u32) -> u128 {
    if length == 0 { 0 } else { (u128::MAX << (BITS - length)) & (u128::MAX >> (128 - BITS)) }
}

/// The largest number of own addresses.
const MOST: usize = 16;

impl DeclareState for Interface {
    type Params = Params;
    const NAME: &'static str = "interface";
    const SUMMARY: &'static str = "an interface's own addresses, and the neighbours that it has learned";
    const EXAMPLE: &'static str = "\
        { mac: 02:00:00:00:00:01, addresses: [192.0.2.1/24, \"2001:db8::1/64\"], neighbours: [\"192.0.2.254 \
        02:00:00:00:00:fe\"] }";

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.mac.0[0] & 1 == 1 || params.mac == MacAddress::default() {
            let allowed = "unicast addresses except 00:00:00:00:00:00";
            return Err(SetupError::not_allowed("mac", params.mac, allowed));
        }
        if !(1..=MOST).contains(&params.addresses.len()) {
            return Err(SetupError::not_allowed(
                "addresses",
                format!("{} addresses", params.addresses.len()),
                format!("1 to {MOST}"),
            ));
        }
        if !(16..=1 << 20).contains(&params.capacity) {
            return Err(SetupError::not_allowed("capacity", params.capacity, "16 to 1048576"));
        }
        if !(1..=15).contains(&params.tries) {
            return Err(SetupError::not_allowed("tries", params.tries, "1 to 15"));
        }
        let frequency = setup.frequency();
        let spans = [
            ("reachable", params.reachable),
            ("delay", params.delay),
            ("retransmit", params.retransmit),
            ("forget", params.forget),
            ("negative", params.negative),
        ];
        let mut ticks = [0; 5];
        for ((name, span), ticks) in spans.into_iter().zip(&mut ticks) {
            if !(1_000_000..=86_400_000_000_000).contains(&span.0) {
                return Err(SetupError::not_allowed(name, span, "1ms to 1d"));
            }
            *ticks = frequency.ticks(span).0.max(1);
        }
        let [reachable, delay, retransmit, forget, negative] = ticks;
        let timers = Timers { reachable, delay, retransmit, forget, negative, tries: params.tries };
        let (mut v4, mut v6): (Vec<OwnAddress<u32>>, Vec<OwnAddress<u128>>) = (Vec::new(), Vec::new());
        for (index, InterfaceAddress { address, length }) in params.addresses.iter().enumerate() {
            let twice = match *address {
                IpAddr::V4(address) => {
                    let address = address.to_bits();
                    let twice = v4.iter().any(|own| own.address == address);
                    v4.push(OwnAddress { address, mask: mask::<32>(*length) as u32 });
                    twice
                }
                IpAddr::V6(address) => {
                    let address = address.to_bits();
                    let twice = v6.iter().any(|own| own.address == address);
                    v6.push(OwnAddress { address, mask: mask::<128>(*length) });
                    twice
                }
            };
            if twice {
                let wrong = format!("{address} is listed twice");
                return Err(SetupError::with_hint(format!("addresses[{index}]"), wrong, "list it once"));
            }
        }
        if !v6.is_empty() && !v6.iter().any(|own| is_link_local(own.address)) {
            v6.push(OwnAddress { address: link_local(params.mac), mask: mask::<128>(64) });
        }
        let neighbours = Neighbours::new(params.capacity, setup.secret(), timers)
            .map_err(no_memory("capacity", format!("{} neighbours", params.capacity)))?;
        let now = AtomicU64::new(0);
        let interface = Self { mac: params.mac, v4, v6, number: params.number, neighbours, now, frequency };
        for (index, InterfaceAddress { address, .. }) in params.addresses.iter().enumerate() {
            let refused = interface.refuse_broadcast(*address);
            refused.map_err(|message| SetupError::at(format!("addresses[{index}]"), message))?;
        }
        for (index, line) in params.neighbours.iter().enumerate() {
            let added = interface.add_permanent(line);
            added.map_err(|message| SetupError::at(format!("neighbours[{index}]"), message))?;
        }
        Ok(interface)
    }
}

register!(state Interface);

#[cfg(test)]
mod tests;
