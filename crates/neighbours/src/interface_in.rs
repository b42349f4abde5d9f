//! Receives at an interface: answers requests for its addresses, learns its neighbours, and separates packets for the
//! router itself from packets to forward.
//!
//! Nearly all frames are IP packets to the Ethernet address of the interface and the IP address of another host. Two
//! comparisons suffice for these frames. All other frames are handled out of line.

use std::net::IpAddr;
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::host_address::{may_be_host_v4, may_be_host_v6};
use forebay_packet::wire::ethernet::{EtherType, Ethernet, MacAddress};
use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::{Network, Packet, Word};
use forebay_tables::martian::Martians;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::interface::echo::{self, Echo};
use crate::interface::{Interface, is_link_local};
use forebay_tables::answer_limit::AnswerLimit;

mod discovery;
mod resolution;

/// The metadata word for the interface's number.
pub(crate) const WORD: &str = "interface";

/// Parameters of `interface_in`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `interface`.
    interface: String,
    /// The names of the router's other interfaces. Packets to their addresses are for the router itself, too.
    #[serde(default)]
    others: Vec<String>,
    /// The number of requests for its addresses (ARP, neighbour solicitations) that are answered per second; 1000 by
    /// default. After a pause, this number may be answered at once. With 0, none are answered.
    #[serde(default = "thousand")]
    answers_per_second: u32,
    /// The number of pings of its addresses that are answered per second; 1000 by default. With 0 they leave by the
    /// gate `local`.
    #[serde(default = "thousand")]
    echoes_per_second: u32,
    /// Drops (`drop`, the default) or forwards (`pass`) packets to other hosts whose source is an address of the router
    /// itself or the broadcast address of one of its prefixes.
    #[serde(default)]
    martians: Martians,
    /// The fate of ARP replies and neighbour advertisements after the interface has learned from them: `consume` (the
    /// default), or `pass`, which sends them to the gate `local`. If a host's stack behind a `tap` has the interface's
    /// addresses, it needs these messages to find its neighbours.
    #[serde(default)]
    neighbours: NeighbourReplies,
}

/// The fate of neighbours' replies.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum NeighbourReplies {
    /// Only the interface learns from them.
    #[default]
    Consume,
    /// They leave by the gate `local`.
    Pass,
}

fn thousand() -> u32 {
    1_000
}

const TRANSIT: Gate = Gate::FIRST;
const LOCAL: Gate = Gate::out(1);
const REPLY: Gate = Gate::out(2);

const OTHER_STATION: Gate = Gate::drop(0);
const NOT_IP: Gate = Gate::drop(1);
const MALFORMED: Gate = Gate::drop(2);
const BAD_CHECKSUM: Gate = Gate::drop(3);
const BAD_HOP_LIMIT: Gate = Gate::drop(4);
const ANSWERS_LIMITED: Gate = Gate::drop(5);
const ECHOES_LIMITED: Gate = Gate::drop(6);
const LINK_ONLY: Gate = Gate::drop(7);
const GROUP: Gate = Gate::drop(8);
const MARTIAN: Gate = Gate::drop(9);
const TOO_LONG: Gate = Gate::drop(10);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason {
        name: "other_station",
        help: "The frame is to another station's Ethernet address, or from a group address.",
    },
    Reason { name: "not_ip", help: "The frame carries neither IP nor ARP, or is cut short inside the header." },
    Reason {
        name: "malformed",
        help: "An ARP message or a neighbour solicitation or advertisement violates RFC 826 or RFC 4861.",
    },
    Reason { name: "bad_checksum", help: "The checksum of an echo request or a neighbour discovery message is wrong." },
    Reason {
        name: "bad_hop_limit",
        help: "A neighbour discovery message has a hop limit other than 255: a router has forwarded it (RFC 4861).",
    },
    Reason {
        name: "answers_limited",
        help: "The limit of answers per second to requests for own addresses is reached.",
    },
    Reason { name: "echoes_limited", help: "The limit of answers per second to pings of own addresses is reached." },
    Reason {
        name: "link_only",
        help: "The packet is from or to another host's link-local address, which no router forwards.",
    },
    Reason {
        name: "link_broadcast",
        help: "The frame is to a group address, but the packet is to another single host (RFC 1122 section 3.3.6).",
    },
    Reason {
        name: "martian",
        help: "The packet is to another host, but its source is one of the router's own addresses or the network or \
               broadcast address of one of its prefixes (RFC 1812 section 5.3.7).",
    },
    Reason { name: "too_long", help: "The answer does not fit into the packet's chunk (`pool.frame`)." },
];

const NEIGHBOUR: Gate = Gate::consume(0);
const CONFLICT: Gate = Gate::consume(1);
/// The reasons of consumption. The number of a consuming gate is the index of its reason in this list.
const CONSUMES: &[Reason] = &[
    Reason { name: "neighbour", help: "ARP or neighbour discovery that is not a request for this interface." },
    Reason { name: "conflict", help: "Another station claims one of the interface's own addresses." },
];

/// Indexes in [`COUNTERS`].
const ANSWERED: usize = 0;
const LEARNT: usize = 1;
const EVICTED: usize = 2;
const NO_ROOM: usize = 3;
const ECHOED: usize = 4;
const CONFLICTS: usize = 5;
const DEFENDED: usize = 6;
const PASSED: usize = 7;
const COUNTERS: [&str; 8] = ["answered", "learnt", "evicted", "no_room", "echoed", "conflicts", "defended", "passed"];

/// The network function `interface_in`.
pub struct InterfaceIn {
    interface: Arc<Interface>,
    /// The interface's Ethernet address as a number.
    mac: u64,
    /// All addresses of the router.
    local: Local,
    martians: Martians,
    /// The fate of neighbours' replies after the interface has learned from them.
    replies: NeighbourReplies,
    /// The metadata word for the number of the interface, and the number; `None` if the interface has no number.
    word: Option<(Word, u32)>,
    /// The rate limit of answers to requests for addresses.
    answers: AnswerLimit,
    /// The rate limit of answers to pings; `None` if pings leave by the gate `local`.
    echoes: Option<AnswerLimit>,
    /// The time of the last defence of an own address, in ticks. There is at most one in ten seconds (RFC 5227 section
    /// 2.4, `DEFEND_INTERVAL`).
    defended: Option<u64>,
    counts: Arc<[Counter]>,
}

/// The addresses of a router.
struct Local {
    v4: Vec<u32>,
    v6: Vec<u128>,
    /// The broadcast addresses of the router's prefixes.
    broadcasts: Vec<u32>,
    /// A set of 64 bits. Bit n is set if n is the lowest six bits of one of the router's IPv4 addresses or broadcast
    /// addresses. If the bit of an address is not set, the address is not one of these.
    low: u64,
}

impl Local {
    fn of<'i>(interfaces: impl Iterator<Item = &'i Interface>) -> Self {
        let (mut v4, mut v6, mut broadcasts) = (Vec::new(), Vec::new(), Vec::new());
        for interface in interfaces {
            for address in interface.addresses() {
                match address {
                    IpAddr::V4(address) => v4.push(address.to_bits()),
                    IpAddr::V6(address) => v6.push(address.to_bits()),
                }
            }
            broadcasts.extend(interface.broadcasts());
        }
        let low = v4.iter().chain(&broadcasts).fold(0, |low, address| low | 1 << (address & 63));
        Self { v4, v6, broadcasts, low }
    }

    /// Returns true if an IPv4 address is the router's own or a broadcast address. May also return true for another
    /// address, but rarely.
    #[inline(always)]
    fn may_have_v4(&self, [.., last]: [u8; 4]) -> bool {
        self.low >> (last & 63) & 1 == 1
    }

    fn has_v4(&self, address: u32) -> bool {
        self.v4.contains(&address)
    }

    fn has_v6(&self, address: u128) -> bool {
        self.v6.contains(&address)
    }
}

impl Declare for InterfaceIn {
    type Params = Params;
    const NAME: &'static str = "interface_in";
    const SUMMARY: &'static str =
        "receives packets at an interface, and answers ARP, neighbour discovery and pings for its addresses";
    const HELP: &'static str = "\
        Gate `0`: IP packets to forward. Gate `local`: packets for the interface itself that this module does not \
        answer. These are packets to the interface's addresses, to the network and broadcast addresses of its \
        prefixes, and to multicast groups. Router discovery also leaves by `local`. Gate `reply`: answers. Connect \
        `reply` to the port from which the requests come. The module answers ARP requests (RFC 826) and neighbour \
        solicitations (RFC 4861) for the interface's addresses. It enters neighbours into the state `interface`, which \
        `interface_out` reads. A host that sends a request to the interface gets an entry. A message of another host \
        only updates an existing entry. With `neighbours: pass`, ARP replies and neighbour advertisements then leave \
        by `local`, for a host's stack that has the same addresses. Messages of neighbour discovery must have hop \
        limit 255, a correct checksum and valid options. The module answers echo requests to the interface's addresses \
        (RFC 1122 section 3.2.2.6, RFC 4443 section 4.2). Echo requests in fragments or with IP options leave by \
        `local`. Echo requests whose source is not the address of a single host also leave by `local`, for example \
        requests from loopback, IPv4-mapped and IPv4-compatible addresses (RFC 1122 section 3.2.1.3, RFC 4291 sections \
        2.5.3 and 2.5.5). A packet to forward is dropped as `martian` if its source is one of the router's own \
        addresses or the network or broadcast address of one of its prefixes (RFC 1812 section 5.3.7). `martians: \
        pass` forwards these packets. To check the other sources that no router forwards, put `ip_validate` after this \
        module. Link-local packets are not forwarded (RFC 3927 section 7, RFC 4291 section 2.5.6). If another station \
        claims an address of the interface, this is counted as a conflict. The module defends the address with a \
        reply, at most once in 10 seconds (RFC 5227). Frames to other stations are dropped. Frames must be untagged: \
        put `vlan_pop` before.";
    const EXAMPLE: &'static str = "{ interface: interface }";
    const TRAFFIC: &'static str = "{ destination: 198.18.0.0/15, destination_mac: 02:00:00:00:00:01 }";
    const DROPS: &'static [Reason] = DROPS;
    const CONSUMES: &'static [Reason] = CONSUMES;
    const WRITES: &'static [&'static str] = &[WORD];
    // All workers share the neighbours, and few packets change them. Each replica has its own rate limits.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let interface = setup.state::<Interface>("interface", &params.interface)?;
        setup.gates(["0", "local", "reply"])?;
        let word = interface.number.map(|number| setup.word(WORD).map(|word| (word, number))).transpose()?;
        let mut others = Vec::new();
        for (index, name) in params.others.iter().enumerate() {
            others.push(setup.state::<Interface>(&format!("others[{index}]"), name)?);
        }
        let local = Local::of(std::iter::once(&interface).chain(&others).map(|interface| &**interface));
        let martians = params.martians;
        setup.table("neighbours", Arc::clone(&interface) as Arc<dyn forebay_graph::Table>);
        Ok(Self {
            mac: number(interface.mac.0),
            local,
            martians,
            replies: params.neighbours,
            word,
            answers: AnswerLimit::new(params.answers_per_second, setup.frequency()),
            echoes: (params.echoes_per_second > 0)
                .then(|| AnswerLimit::new(params.echoes_per_second, setup.frequency())),
            defended: None,
            counts: setup.counters("neighbours", COUNTERS.map(str::to_owned)),
            interface,
        })
    }
}

/// Returns an Ethernet address as a number.
#[inline(always)]
fn number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns true if no router forwards packets to this address: 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0 and
/// above.
fn is_special(address: u32) -> bool {
    let first = address >> 24;
    first >= 224 || first == 127 || first == 0 || address >> 16 == 0xa9fe
}

/// For each first octet of an address: true if [`is_special`] may return true for the address.
const SPECIAL: [bool; 256] = {
    let mut marked = [false; 256];
    let mut octet = 0;
    while octet < 256 {
        marked[octet] = matches!(octet, 0 | 127 | 169 | 224..);
        octet += 1;
    }
    marked
};

impl InterfaceIn {
    /// Returns true if a packet is an IPv4 packet that only needs to be forwarded. Otherwise [`unusual`](Self::unusual)
    /// must handle the packet.
    #[inline(always)]
    fn passes(&self, packet: &mut Packet) -> bool {
        let Some(ethernet) = packet.view::<Ethernet>(0) else { return false };
        if number(ethernet.destination.0) != self.mac || ethernet.source.0[0] & 1 == 1 {
            return false;
        }
        let Some(header) = packet.ipv4() else { return false };
        let (source, destination) = (header.source, header.destination);
        let special = SPECIAL[usize::from(source[0])] | SPECIAL[usize::from(destination[0])];
        let own = self.local.may_have_v4(source) | self.local.may_have_v4(destination);
        !(special | own) || self.is_transit_v4(u32::from_be_bytes(source), u32::from_be_bytes(destination))
    }

    /// Returns true if a packet with these addresses only needs to be forwarded. Called if the quick check in
    /// [`passes`](Self::passes) is inconclusive.
    #[inline(never)]
    fn is_transit_v4(&self, source: u32, destination: u32) -> bool {
        !self.local.has_v4(destination)
            && !is_special(destination)
            && source >> 16 != 0xa9fe
            && !self.interface.is_broadcast(destination)
            && !self.is_martian_v4(source)
    }

    /// Returns true if a packet with this source is dropped instead of forwarded: with `martians: drop`, if the source
    /// is an address of the router or a broadcast address of one of its prefixes.
    fn is_martian_v4(&self, source: u32) -> bool {
        self.martians == Martians::Drop && (self.local.has_v4(source) || self.local.broadcasts.contains(&source))
    }

    /// Handles any packet and returns its gate. Learns neighbours, and turns requests into their answers. Also stores
    /// the time that operators' changes of the neighbours use as the current time. Learning does not read this time, so
    /// the time may be stored before or after it. Packets that [`passes`](Self::passes) accepts do not store it.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Gate {
        let Some(&ethernet) = packet.view::<Ethernet>(0) else { return NOT_IP };
        let group = ethernet.destination.0[0] & 1 == 1;
        if !group && number(ethernet.destination.0) != self.mac || ethernet.source.0[0] & 1 == 1 {
            return OTHER_STATION;
        }
        self.interface.note(context.now());
        if ethernet.ether_type.get() == EtherType::ARP {
            return self.arp(packet, context.now());
        }
        let (network, start) = packet.network();
        match network {
            Network::Ipv4 => self.ipv4(packet, start, group, context),
            Network::Ipv6 => self.ipv6(packet, start, group, context),
            Network::Other => NOT_IP,
        }
    }

    /// Handles an IPv4 packet whose header is at `start`. `group` is true if the frame is to a group address.
    fn ipv4(&mut self, packet: &mut Packet, start: usize, group: bool, context: &Context<'_>) -> Gate {
        let Some(header) = packet.ipv4() else { return NOT_IP };
        let (source, destination) = (u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination));
        if self.local.has_v4(destination) {
            if group || !self.is_other_host_v4(source) {
                return LOCAL;
            }
            return self.echo(
                packet,
                context,
                |packet, own| echo::answer_v4(packet, start, own),
                |packet| echo::is_request_v4(packet, start),
            );
        }
        if destination >> 28 == 0xe || self.interface.is_broadcast(destination) {
            return LOCAL;
        }
        if is_special(destination) || source >> 16 == 0xa9fe {
            return LINK_ONLY;
        }
        if self.is_martian_v4(source) {
            return MARTIAN;
        }
        if group { GROUP } else { TRANSIT }
    }

    /// Handles an IPv6 packet whose header is at `start`. `group` is true if the frame is to a group address.
    fn ipv6(&mut self, packet: &mut Packet, start: usize, group: bool, context: &Context<'_>) -> Gate {
        let Some(&mut header) = packet.ipv6() else { return NOT_IP };
        if let Some(gate) = self.discovery(packet, start, &header, context.now()) {
            return gate;
        }
        let (source, destination) = (u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination));
        if self.local.has_v6(destination) {
            if group || !may_be_host_v6(source) || self.local.has_v6(source) || header.next_header != ICMPV6 {
                return LOCAL;
            }
            return self.echo(
                packet,
                context,
                |packet, own| echo::answer_v6(packet, start, own),
                |packet| echo::is_request_v6(packet, start),
            );
        }
        if destination >> 120 == 0xff {
            return LOCAL;
        }
        if is_link_local(destination) || is_link_local(source) || destination <= 1 {
            return LINK_ONLY;
        }
        if self.martians == Martians::Drop && self.local.has_v6(source) {
            return MARTIAN;
        }
        if group { GROUP } else { TRANSIT }
    }

    /// Returns true if packets from an address may be answered: it must be the address of a single host, and not the
    /// router's own (RFC 1122 section 3.2.1.3).
    fn is_other_host_v4(&self, address: u32) -> bool {
        may_be_host_v4(address) && !self.local.has_v4(address) && !self.local.broadcasts.contains(&address)
    }

    /// Returns the gate of a neighbour's reply after the interface has learned from it.
    fn reply_gate(&self) -> Gate {
        if self.replies == NeighbourReplies::Consume {
            return NEIGHBOUR;
        }
        self.counts[PASSED].add(1);
        LOCAL
    }

    /// Answers a packet to the router itself if it is an echo request, within the rate limit. Returns the packet's
    /// gate, which is [`LOCAL`] for all other packets. `answer` turns a request into its answer, and `is_request`
    /// returns true for an echo request.
    fn echo(
        &mut self,
        packet: &mut Packet,
        context: &Context<'_>,
        answer: impl Fn(&mut Packet, MacAddress) -> Echo,
        is_request: impl Fn(&mut Packet) -> bool,
    ) -> Gate {
        let Some(bucket) = self.echoes.as_mut().filter(|_| is_request(packet)) else { return LOCAL };
        if !bucket.take(context.now()) {
            return ECHOES_LIMITED;
        }
        match answer(packet, self.interface.mac) {
            Echo::Answered => {
                self.counts[ECHOED].add(1);
                REPLY
            }
            Echo::Other => LOCAL,
            Echo::Bad => BAD_CHECKSUM,
        }
    }
}

impl Function for InterfaceIn {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if let Some((word, number)) = self.word {
            batch.iter_mut().for_each(|packet| packet.set_word(word, number));
        }
        for (index, packet) in batch.iter_mut().enumerate() {
            if !self.passes(packet) {
                let gate = self.unusual(packet, context);
                if gate != TRANSIT {
                    context.put(index, gate);
                }
            }
        }
    }
}

register!(InterfaceIn);

#[cfg(test)]
mod tests;
