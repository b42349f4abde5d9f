//! Conditions of filters and charging rules: protocol, remote network and ports, the user's ports, DSCP.
//!
//! Conditions are the service data flow filters of TS 29.244 section 8.2.5, from the point of view of the user. So a
//! condition matches a flow in both directions: `port` is the remote port of uplink and downlink packets.

use std::net::{IpAddr, Ipv6Addr};

use forebay_graph::short;
use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::{Hidden, Network, Packet, Upper};
use forebay_tables::acl::{PortRange, RuleAddress, RulePrefix};

/// The syntax of conditions.
pub(super) const SYNTAX: &str =
    "tcp, udp, icmp, icmpv6, proto=0-255, net=PREFIX, port=N or N-M, ue-port=N or N-M, dscp=0-63";

/// A network of the remote side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Net {
    V4(RulePrefix<u32>),
    V6(RulePrefix<u128>),
}

/// A condition. A packet matches if all parts match; `None` and [`PortRange::ANY`] match every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// The protocol above IP.
    pub(super) protocol: Option<u8>,
    /// The network of the remote side.
    pub(super) net: Option<Net>,
    /// The remote side's ports.
    pub(super) port: PortRange,
    /// The user's ports.
    pub(super) ue_port: PortRange,
    /// The differentiated services code point, 0 to 63.
    pub(super) dscp: Option<u8>,
}

impl Default for Condition {
    fn default() -> Self {
        Self { protocol: None, net: None, port: PortRange::ANY, ue_port: PortRange::ANY, dscp: None }
    }
}

/// The fields of a packet that conditions check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// True for IPv6.
    pub(super) six: bool,
    /// The address of the remote side. An IPv4 address is in the lowest 32 bits.
    pub(super) remote: u128,
    /// The address of the user, in the same form.
    pub(super) user: u128,
    /// The protocol above IP. If `hidden` is set, it may be the protocol field or next header of the IP header instead.
    pub(super) protocol: u8,
    /// The remote port and the user's port; `None` if the packet contains no readable ports (a later fragment, for
    /// example).
    pub(super) ports: Option<(u16, u16)>,
    /// The differentiated services code point, 0 to 63.
    pub(super) dscp: u8,
    /// The layer of the packet that cannot be read, if any. The caller must then use
    /// [`is_unknown`](Condition::is_unknown) before [`holds`](Condition::holds).
    pub(super) hidden: Option<Hidden>,
}

impl Seen {
    /// Returns the fields of a packet that comes from its user (`up` is true) or goes to its user (`up` is false).
    /// Returns `None` if the packet is not IP.
    #[inline]
    pub(super) fn of(packet: &mut Packet, up: bool) -> Option<Self> {
        // In the usual case, the layers need not be searched.
        if let Some((header, source_port, destination_port)) = packet.plain_ipv4_ports() {
            let seen = Self::v4(header);
            return Some(Self { ports: Some((source_port, destination_port)), ..seen }.from(up));
        }
        Self::of_any(packet).map(|seen| seen.from(up))
    }

    /// Returns the fields of an IPv4 header whose source is the remote side.
    #[inline(always)]
    fn v4(header: &Ipv4) -> Self {
        let number = |address: [u8; 4]| u128::from(u32::from_be_bytes(address));
        let (remote, user) = (number(header.source), number(header.destination));
        let (protocol, dscp) = (header.protocol, header.traffic_class >> 2);
        Self { six: false, remote, user, protocol, ports: None, dscp, hidden: None }
    }

    /// Returns the fields of any IP packet whose source is the remote side (a packet to the user); `None` if it is not
    /// IP.
    #[inline(never)]
    fn of_any(packet: &mut Packet) -> Option<Self> {
        let mut seen = match packet.network().0 {
            Network::Ipv4 => Self::v4(packet.ipv4()?),
            Network::Ipv6 => {
                let header = packet.ipv6()?;
                let dscp = (header.version_class_label.get() >> 22) as u8 & 0x3f;
                let (remote, user) = (u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination));
                Self { six: true, remote, user, protocol: header.next_header, ports: None, dscp, hidden: None }
            }
            Network::Other => return None,
        };
        if let Some((upper, source, destination)) = packet.ports() {
            (seen.protocol, seen.ports) = (upper, Some((source, destination)));
        } else {
            seen.hidden = packet.hidden();
            match packet.upper() {
                Upper::Found { protocol: upper, .. } | Upper::Later { protocol: Some(upper) } => seen.protocol = upper,
                _ => {}
            }
        }
        Some(seen)
    }

    /// Exchanges the remote side and the user if the packet comes from the user (`up`).
    #[inline(always)]
    fn from(self, up: bool) -> Self {
        if !up {
            return self;
        }
        let ports = self.ports.map(|(source, destination)| (destination, source));
        Self { remote: self.user, user: self.remote, ports, ..self }
    }
}

impl Condition {
    /// Adds a word of a line, such as `port=443`, to the condition. Fails if the word is unknown, or given twice.
    pub(super) fn add(&mut self, word: &str) -> Result<(), String> {
        let shown = short(word);
        let unknown = || format!("'{shown}': allowed are {SYNTAX}");
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let again = |present: bool| {
            if present { Err(format!("'{shown}': {name} is given twice: write it once")) } else { Ok(()) }
        };
        match (name, value) {
            ("tcp" | "udp" | "icmp" | "icmpv6", None) => {
                again(self.protocol.is_some())?;
                self.protocol = Some(match name {
                    "tcp" => TCP,
                    "udp" => UDP,
                    "icmp" => ICMP,
                    _ => 58,
                });
            }
            ("proto", Some(value)) => {
                again(self.protocol.is_some())?;
                self.protocol = Some(whole(value, 255).ok_or_else(unknown)? as u8);
            }
            ("dscp", Some(value)) => {
                again(self.dscp.is_some())?;
                self.dscp = Some(whole(value, 63).ok_or_else(unknown)? as u8);
            }
            ("net", Some(value)) => {
                again(self.net.is_some())?;
                self.net = Some(net(value)?);
            }
            ("port" | "ue-port", Some(value)) => {
                let range = range(value).ok_or_else(unknown)?;
                let slot = if name == "port" { &mut self.port } else { &mut self.ue_port };
                again(!slot.is_any())?;
                *slot = range;
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Returns true if it cannot be decided whether a packet matches: the condition checks a field of the layer that
    /// cannot be read (`hidden`), and all other fields of the condition match. Without the network layer, this cannot
    /// be decided for any condition.
    #[cold]
    pub(super) fn is_unknown(&self, seen: &Seen, hidden: Hidden) -> bool {
        let bare = Self { port: PortRange::ANY, ue_port: PortRange::ANY, ..*self };
        let ports = !(self.port.is_any() && self.ue_port.is_any());
        match hidden {
            Hidden::Network => true,
            Hidden::Protocol => (ports || self.protocol.is_some()) && Self { protocol: None, ..bare }.holds(seen),
            Hidden::Ports { .. } => ports && bare.holds(seen),
        }
    }

    /// Returns whether a packet matches.
    #[inline]
    pub(super) fn holds(&self, seen: &Seen) -> bool {
        let ports = match seen.ports {
            Some((port, ue_port)) => self.port.contains(port) && self.ue_port.contains(ue_port),
            None => self.port.is_any() && self.ue_port.is_any(),
        };
        let net = match self.net {
            None => true,
            Some(Net::V4(prefix)) => !seen.six && prefix.contains(seen.remote as u32),
            Some(Net::V6(prefix)) => seen.six && prefix.contains(seen.remote),
        };
        let same = |required: Option<u8>, value| required.is_none_or(|required| required == value);
        ports && net && same(self.protocol, seen.protocol) && same(self.dscp, seen.dscp)
    }
}

/// Parses a whole number from 0 to `most`; `None` if the text is something else.
pub(super) fn whole(text: &str, most: u32) -> Option<u32> {
    forebay_tables::parameters::number(text)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| *number <= most)
}

/// Parses a port or a range of ports.
fn range(text: &str) -> Option<PortRange> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (whole(low, 65_535)? as u16, whole(high, 65_535)? as u16);
    (low <= high).then(|| PortRange::new(low, high))
}

/// Parses a prefix or an address.
fn net(text: &str) -> Result<Net, String> {
    let shown = short(text);
    let wrong = || format!("'{shown}' is not a prefix: allowed are IPv4 and IPv6 prefixes, such as 198.51.100.0/24");
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Some(most), |length| whole(length, most)).ok_or_else(wrong)? as u8;
    let beyond = |prefix: String| format!("'{shown}' has bits set beyond its prefix length: the prefix is {prefix}");
    match address {
        IpAddr::V4(address) => {
            let first = address.to_bits() & u32::mask(length);
            let fits = first == address.to_bits();
            let prefix = RulePrefix::new(first, length);
            if fits { Ok(Net::V4(prefix)) } else { Err(beyond(prefix.to_string())) }
        }
        IpAddr::V6(address) => {
            let first = address.to_bits() & u128::mask(length);
            let prefix = RulePrefix::new(first, length);
            let fits = first == address.to_bits();
            if fits { Ok(Net::V6(prefix)) } else { Err(beyond(format!("{}/{length}", Ipv6Addr::from(first)))) }
        }
    }
}
