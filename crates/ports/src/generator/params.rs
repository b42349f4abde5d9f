//! The generator's parameters: their limits, and the construction of a generator from them.

mod endpoints;
mod rate;

use std::sync::Arc;

use forebay_graph::{PortCounters, Setup, SetupError};
use forebay_packet::{MAX_BATCH, MAX_FRAME, wire::ethernet::MacAddress};
use forebay_units::Nanos;
use forebay_units::wording::counted;
use schemars::JsonSchema;
use serde::Deserialize;

use super::address::{Prefix, read_routes};
use super::arrivals::{Arrivals, Gaps, Schedule};
use super::frames::{Frames, Headers, Transport};
use super::random::Random;
use super::recorded::Recording;
use super::sessions::{Sessions, TurnRule, weight};
use super::share::Share;
use super::sizes::{Size, Sizes, Weighted};
use super::tunnel::Tunnel;
use super::{Generator, Queue, Source};

pub use endpoints::{Destination, Origin, PortRange};
pub use rate::Rate;

pub(super) const HELP: &str = "\
With a `rate` the loop is open: packets arrive at the times of a schedule, whether or not the worker is ready to take \
them. Each packet carries its own arrival time (clock `intended`), so that delays include the time that the packet \
waited. Packets that find the ingress queue full are dropped and counted. Without a `rate` the loop is closed: every \
request is filled, and packets arrive when they are requested.

Frames are complete and have correct checksums. Session i has the i-th source port and the i-th destination port of \
their ranges; after the last port of a range, the first one follows. With k prefixes, session i has an address in \
prefix number (i mod k); sessions and prefixes are numbered from 0. The host number of this address is (i div k) times \
an odd constant, truncated to the free bits of the prefix. So the addresses are scattered over the prefix, and are \
distinct until all its addresses are used. A session takes 16 bytes of memory for IPv4 and 38 for IPv6, and 4 more in \
a tunnel. If all frames have one size of up to 64 bytes, and there are at most 16384 sessions, the generator keeps \
complete frames, which takes 64 more bytes for each session.

One seed gives the same packets at the same times after the start. With several workers, all packets of a session come \
to one of them, as from a device that distributes packets by a symmetric hash. Each worker gets its share of the rate \
and of the count.";

/// Parameters of `generator`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// Packets per second (`5Mpps`) or bits per second (`10Gbps`), on average. Bits are counted as on an Ethernet
    /// cable: a frame takes 24 bytes more there (frame check sequence 4, preamble 8, gap 12), so 10Gbps of the shortest
    /// frames are 14.88Mpps. Without a rate, the generator delivers as many packets as are requested.
    pub rate: Option<Rate>,
    /// The distribution of packets over time: `constant`, `poisson`, or bursts, `{ on_off: { on: 100us, off: 900us }
    /// }`.
    pub arrivals: Arrivals,
    /// The total number of packets, including those dropped at the ingress queue; unlimited by default.
    pub count: Option<u64>,
    /// The capacity of the ingress queue in packets (1 to 1048576).
    pub queue: usize,
    /// Frame length in bytes without the frame check sequence: a number, `imix`, or a list of `{ size, weight, payload
    /// }`, where `payload` is a text with which the payload begins. By default, the shortest length that the headers
    /// allow, and at least 60.
    pub size: Option<Size>,
    /// The number of sessions (1 to 16777216).
    pub sessions: usize,
    /// The exponent s of the sessions' shares, 0 to 10: session k has a share proportional to 1 / kˢ (Zipf). With 0,
    /// all shares are equal, and sessions take turns, packet by packet.
    #[schemars(range(min = 0, max = 10))]
    pub skew: f64,
    /// The number of successive packets in each turn of a session (1 to 65536).
    pub burst: usize,
    /// The replacement of sessions by other sessions, for example `{ at_once: 4096, packets: 20 }`: `at_once` sessions
    /// take turns, packet by packet. A session ends after `packets` packets, and the next of all `sessions` replaces
    /// it. Sessions end one after the other.
    pub renewal: Option<Renewal>,
    /// A capture (pcap or pcapng, optionally compressed with gzip) whose packets are imitated repeatedly: the order of
    /// sessions, the gaps relative to the mean, and the lengths. If `size` is set, it replaces the lengths. Sessions
    /// are numbered in the order of their first packets and mapped to the generator's `sessions`. Lengths are multiples
    /// of 8 bytes, at least the shortest length that the headers allow, and at most 1514. `arrivals`, `skew` and
    /// `burst` follow from the capture and cannot be set.
    pub recorded: Option<String>,
    /// `udp` or `tcp`.
    pub transport: Transport,
    /// VLAN identifiers of up to two tags, outermost first.
    pub vlans: Vec<u16>,
    /// Stacks of VLAN tags, used in turn packet by packet, for example `[[1], [2], [100, 7]]` (1 to 4096 stacks; `[]`
    /// is a frame without tags). Each stack has its own sessions. Their addresses and ports are the same as in the
    /// other stacks. With m stacks, session i has the (i mod m)-th stack, and the addresses and ports of session (i div
    /// m). `skew`, `burst` and `renewal` apply to each stack. There must be at least as many `sessions` as stacks.
    pub vlan_stacks: Vec<Vec<u16>>,
    /// The source Ethernet address.
    #[schemars(extend("default" = "02:00:00:00:00:01"))]
    pub source_mac: MacAddress,
    /// The destination Ethernet address.
    #[schemars(extend("default" = "02:00:00:00:00:02"))]
    pub destination_mac: MacAddress,
    /// Source addresses: a prefix or a list of prefixes. By default 198.18.0.0/16 (RFC 2544) or 2001:2:0:1::/64 (RFC
    /// 5180).
    pub source: Option<Origin>,
    /// Destination addresses: a prefix, a list of prefixes, or `{ routes: FILE }`. Each line of the file begins with a
    /// prefix. Sessions use the prefixes of the file in an order that depends on the seed. If the addresses are IPv6,
    /// all packets are IPv6. The default is 198.19.0.0/16.
    #[schemars(extend("default" = "198.19.0.0/16"))]
    pub destination: Destination,
    /// Source ports: a number or a range, `1024-65535`.
    #[schemars(extend("default" = "1024-65535"))]
    pub source_port: PortRange,
    /// Destination ports: a number or a range.
    #[schemars(extend("default" = 5_000))]
    pub destination_port: PortRange,
    /// A tunnel around all frames, over IPv4 and with headers without options: `{ gtpu: { source: 192.0.2.10,
    /// destination: 192.0.2.1, teid: 4097, tunnels: 16 } }`, or `{ vxlan: { source, destination, vni, networks } }`.
    /// VLAN tags are outside the tunnel, and `size` is the length of the whole frame.
    pub tunnel: Option<Tunnel>,
    /// The seed of all random numbers; by default it is derived from the pipeline's seed and the port's name.
    pub seed: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rate: None,
            arrivals: Arrivals::Constant,
            count: None,
            queue: 4096,
            size: None,
            sessions: 4096,
            skew: 0.0,
            burst: 1,
            renewal: None,
            recorded: None,
            transport: Transport::Udp,
            vlans: Vec::new(),
            vlan_stacks: Vec::new(),
            source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            source: None,
            destination: Destination::default(),
            source_port: PortRange { first: 1024, last: 65535 },
            destination_port: PortRange { first: 5000, last: 5000 },
            tunnel: None,
            seed: None,
        }
    }
}

/// The replacement of sessions by other sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    /// The number of sessions that take turns at a time (1 to the number of `sessions`).
    #[schemars(range(min = 1))]
    pub at_once: usize,
    /// The number of packets of each session (1 to 65536).
    #[schemars(range(min = 1, max = 65_536))]
    pub packets: usize,
}

/// The default source prefixes for IPv4 (RFC 2544) and IPv6 (RFC 5180).
const DEFAULT_SOURCES: [&str; 2] = ["198.18.0.0/16", "2001:2:0:1::/64"];

/// The longest frame that can be configured, in bytes: a frame that fits into the largest chunk.
const MAX_LENGTH: usize = MAX_FRAME;

/// Checks that a value is between `least` and `most`. The error names the parameter and these limits.
fn allowed<T: PartialOrd + std::fmt::Display>(path: &str, value: T, least: T, most: T) -> Result<(), SetupError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(SetupError::not_allowed(path, value, format!("{least} to {most}")))
}

/// Checks that the list of sizes is not empty, that headers and payload fit into each size, and that at least one
/// weight is above 0.
fn sizes_fit(weighted: &[Weighted], shortest: usize) -> Result<(), SetupError> {
    if !(1..=MAX_BATCH).contains(&weighted.len()) {
        let value = format!("{} sizes", weighted.len());
        let wrong = format!("the list has {value}");
        return Err(SetupError::wrong("size", value, wrong, format!("1 to {MAX_BATCH}")));
    }
    for entry in weighted {
        allowed("size", entry.size, shortest, MAX_LENGTH)?;
        let room = entry.size - shortest;
        if entry.payload.len() > room {
            let value = format!("{} bytes", entry.payload.len());
            let wrong = format!("a payload of {value} in a frame of {} bytes", entry.size);
            return Err(SetupError::wrong("size", value, wrong, format!("up to {room} bytes")));
        }
    }
    if weighted.iter().all(|entry| entry.weight == 0) {
        let allowed = "weights of which at least one is above 0";
        return Err(SetupError::wrong("size", "0", "every weight is 0", allowed));
    }
    Ok(())
}

/// Returns the shortest length that all of these headers allow.
fn shortest(headers: &[Headers]) -> usize {
    headers.iter().map(Headers::shortest).max().unwrap_or(0)
}

impl Renewal {
    /// Returns the renewal for one worker. `fraction` is the worker's fraction of all sessions, up to 1.
    fn of_share(self, fraction: f64) -> Self {
        Self { at_once: ((self.at_once as f64 * fraction).round() as usize).max(1), ..self }
    }
}

impl Params {
    /// Checks all parameters without reading files. [`build`](Self::build) checks what depends on files.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        allowed("queue", self.queue, 1, 1 << 20)?;
        allowed("sessions", self.sessions, 1, 1 << 24)?;
        allowed("burst", self.burst, 1, 1 << 16)?;
        allowed("skew", self.skew, 0.0, 10.0)?;
        if let Some(renewal) = self.renewal {
            allowed("renewal.at_once", renewal.at_once, 1, self.sessions)?;
            allowed("renewal.packets", renewal.packets, 1, 1 << 16)?;
            if self.skew != 0.0 || self.burst != 1 {
                return Err(SetupError::with_hint(
                    "renewal",
                    "renewed sessions take turns",
                    "leave out `skew` and `burst`",
                ));
            }
        }
        if self.vlans.len() > 2 {
            return Err(SetupError::not_allowed("vlans", counted(self.vlans.len(), "tag"), "0 to 2"));
        }
        self.vlans.iter().enumerate().try_for_each(|(n, vlan)| allowed(&format!("vlans[{n}]"), *vlan, 0, 4095))?;
        self.check_stacks()?;
        if let Arrivals::OnOff { on, off } = self.arrivals {
            // A day is far below the limit at which sums of times could overflow.
            let day = Nanos(86_400_000_000_000);
            allowed("arrivals.on_off.on", on, Nanos(1), day)?;
            allowed("arrivals.on_off.off", off, Nanos(0), day)?;
        }
        if self.rate.is_none() && self.arrivals != Arrivals::Constant {
            return Err(SetupError::with_hint(
                "arrivals",
                "arrivals are distributed over time only with a `rate`",
                "set `rate`, or leave out `arrivals`",
            ));
        }

        if self.recorded.is_some() {
            self.check_recorded()?;
        }

        let listed = match &self.destination {
            Destination::One(prefix) => Some(vec![*prefix]),
            Destination::List(list) => Some(list.clone()),
            Destination::File(_) => None,
        };
        let ipv6 = listed.map(|listed| self.family(&listed)).transpose()?;
        if let Some(Err((path, message))) = self.tunnel.as_ref().map(Tunnel::check) {
            return Err(SetupError::at(path, message));
        }
        match &self.size {
            // If the destinations are in a file, the IP version is unknown until `build` reads the file and checks the
            // sizes again. Here, IPv4 is assumed, which has the shorter header.
            Some(size) => sizes_fit(&size.clone().weighted(), shortest(&self.headers(ipv6.unwrap_or(false)))),
            None => Ok(()),
        }
    }

    /// Creates the generator of one worker, with the worker's share of the sessions, of the rate and of the count. The
    /// first random numbers determine the order of the destinations, so all workers assign the same addresses to a
    /// session.
    pub(super) fn build(self, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Generator, SetupError> {
        let mut random = Random::new(self.seed.unwrap_or_else(|| setup.seed()));
        let destinations = self.destinations(setup, &mut random)?;
        let ipv6 = self.family(&destinations)?;
        let headers = self.headers(ipv6);
        let sources = match self.source {
            None => vec![DEFAULT_SOURCES[usize::from(ipv6)].parse().expect("a prefix")],
            Some(Origin::One(prefix)) => vec![prefix],
            Some(Origin::List(list)) => list,
        };
        let shortest = shortest(&headers);
        let recorded = match &self.recorded {
            Some(file) => Some(
                Recording::read(&setup.path("recorded", file)?, self.sessions)
                    .map_err(|error| SetupError::at("recorded", format!("{file}: {error}")))?,
            ),
            None => None,
        };
        let weighted = match (&recorded, self.size) {
            (Some(recorded), None) => recorded.lengths(shortest.max(60)),
            (_, size) => size.unwrap_or(Size::Fixed(shortest.max(60))).weighted(),
        };
        sizes_fit(&weighted, shortest)?;
        let lengths: Vec<usize> = weighted.iter().map(|entry| entry.size).collect();
        let weights: Vec<u16> = weighted.iter().map(|entry| entry.weight).collect();

        let ports = |session| (self.source_port.nth(session), self.destination_port.nth(session));
        let texts: Vec<_> = weighted.iter().map(|entry| (entry.size, &entry.payload[..])).collect();
        let frames = Frames::new(&headers, &texts, self.sessions, &sources, &destinations, ports);
        let share = Share::of(setup, &frames, self.sessions, |session| match &recorded {
            Some(recorded) => recorded.weight(session),
            None => weight(session / self.vlan_stacks.len().max(1) as u32, self.skew),
        })?;
        let remaining = self.count.map_or(u64::MAX, |count| share.count(count));
        let fraction = share.fraction();
        let recorded = recorded.map(|all| share.sessions.as_deref().map_or(all.clone(), |mine| all.of(mine)));
        let sizes = Sizes::new(&weights, &mut random);
        let renewal = self.renewal.map(|all| all.of_share(fraction));
        let stacks = self.vlan_stacks.len().max(1);
        let (sizes, sessions, remaining) = match (&recorded, share.sessions) {
            (Some(recorded), _) if !recorded.is_empty() => (recorded.sizes(&lengths), recorded.sessions(), remaining),
            (None, some) if some.as_ref().is_none_or(|some| !some.is_empty()) => {
                let rule = TurnRule { burst: self.burst, skew: self.skew, renewal };
                (sizes, Sessions::new(some, self.sessions, stacks, rule, &mut random), remaining)
            }
            // This worker has no session, so it generates no packets.
            _ => (sizes, Sessions::in_order(vec![0]), 0),
        };
        let source = match self.rate.filter(|_| remaining > 0) {
            None => Source::Closed { remaining, sizes },
            Some(rate) => {
                let by_size: Vec<f64> = lengths.iter().map(|size| rate.seconds(*size)).collect();
                let gaps = match &recorded {
                    Some(recorded) => Gaps::ByTurn(recorded.seconds(&sizes, &by_size, fraction)),
                    None => Gaps::BySize(by_size.iter().map(|seconds| seconds / fraction).collect()),
                };
                // At rates below one packet in 10 000 seconds, times would leave the range in which they are exact.
                if !(0.0..=1e4).contains(&gaps.longest()) {
                    let wrong = "less than one packet in 10000 seconds";
                    return Err(SetupError::with_hint("rate", wrong, "use a higher rate"));
                }
                let schedule = Schedule::new(self.arrivals, &gaps, sizes, remaining, setup.frequency(), random);
                let times = [forebay_units::Ticks::ZERO; MAX_BATCH];
                let waiting = std::collections::VecDeque::with_capacity(self.queue + MAX_BATCH);
                Source::Open(Box::new(Queue { schedule, waiting, capacity: self.queue, times }))
            }
        };
        let (sizes, batch_sessions) = (Box::new([0; MAX_BATCH]), Box::new([0; MAX_BATCH]));
        Ok(Generator {
            lines: frames.lines(),
            frames,
            sessions,
            source,
            sizes,
            batch_sessions,
            counters,
            failure: None,
        })
    }

    /// Returns the parameters that name files to read, each with the name of its file.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let routes = match &self.destination {
            Destination::File(file) => Some(("destination.routes", &file.routes[..])),
            _ => None,
        };
        routes.into_iter().chain(self.recorded.as_deref().map(|name| ("recorded", name)))
    }

    /// Returns true if all prefixes are IPv6, and false if all are IPv4. Returns an error if sources and destinations
    /// have different IP versions, or if a list has no prefix.
    fn family(&self, destinations: &[Prefix]) -> Result<bool, SetupError> {
        let Some(first) = destinations.first() else {
            return Err(SetupError::with_hint("destination", "the list has no prefix", "list at least one prefix"));
        };
        let ipv6 = first.is_ipv6();
        if let Some(other) = destinations.iter().find(|prefix| prefix.is_ipv6() != ipv6) {
            let wrong = format!("{other} has another IP version than {first}");
            return Err(SetupError::wrong("destination", other, wrong, "prefixes of one version"));
        }
        let sources = match &self.source {
            None => return Ok(ipv6),
            Some(Origin::One(prefix)) => std::slice::from_ref(prefix),
            Some(Origin::List(list)) => list,
        };
        if sources.is_empty() {
            return Err(SetupError::with_hint("source", "the list has no prefix", "list at least one prefix"));
        }
        if let Some(source) = sources.iter().find(|source| source.is_ipv6() != ipv6) {
            let wrong = format!("{source} has another IP version than the destinations");
            return Err(SetupError::wrong_single("source", source, wrong, "the same version"));
        }
        Ok(ipv6)
    }

    /// Returns the headers of each stack of VLAN tags. There is at least one stack.
    fn headers(&self, ipv6: bool) -> Vec<Headers> {
        let stacks = if self.vlan_stacks.is_empty() { std::slice::from_ref(&self.vlans) } else { &self.vlan_stacks };
        let headers = |vlans: &Vec<u16>| Headers {
            source_mac: self.source_mac,
            destination_mac: self.destination_mac,
            vlans: vlans.clone(),
            ipv6,
            transport: self.transport,
            tunnel: self.tunnel.clone(),
        };
        stacks.iter().map(headers).collect()
    }

    /// Checks the stacks of VLAN tags.
    fn check_stacks(&self) -> Result<(), SetupError> {
        let stacks = self.vlan_stacks.len();
        if stacks == 0 {
            return Ok(());
        }
        if !self.vlans.is_empty() {
            return Err(SetupError::with_hint(
                "vlan_stacks",
                "`vlans` sets the tags already",
                "leave out one of the two",
            ));
        }
        allowed("vlan_stacks", stacks, 1, 4096)?;
        for (number, stack) in self.vlan_stacks.iter().enumerate() {
            allowed(&format!("vlan_stacks[{number}]"), stack.len(), 0, 2)?;
            let one = |(n, vlan): (usize, &u16)| allowed(&format!("vlan_stacks[{number}][{n}]"), *vlan, 0, 4095);
            stack.iter().enumerate().try_for_each(one)?;
        }
        if self.sessions < stacks {
            let allowed = format!("{stacks} to {}, at least one for each of the `vlan_stacks`", 1 << 24);
            return Err(SetupError::not_allowed("sessions", self.sessions, allowed));
        }
        Ok(())
    }

    /// Checks that no other parameter contradicts the recording.
    fn check_recorded(&self) -> Result<(), SetupError> {
        let other = |path: &str| {
            let (wrong, hint) = ("the recording determines this value", "leave out this parameter or `recorded`");
            Err(SetupError::with_hint(path, wrong, hint))
        };
        match &self.size {
            _ if self.arrivals != Arrivals::Constant => other("arrivals"),
            _ if self.skew != 0.0 => other("skew"),
            _ if self.burst != 1 => other("burst"),
            _ if self.renewal.is_some() => other("renewal"),
            Some(Size::Named(_) | Size::List(_)) => Err(SetupError::at(
                "size",
                "with `recorded`, set one length for all packets, or leave out `size` to use the recorded lengths",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the destination prefixes. Routes from a file are shuffled, in the same order on all workers.
    fn destinations(&self, setup: &Setup<'_>, random: &mut Random) -> Result<Vec<Prefix>, SetupError> {
        let list = match &self.destination {
            Destination::One(prefix) => vec![*prefix],
            Destination::List(list) => list.clone(),
            Destination::File(file) => {
                let path = setup.path("destination.routes", &file.routes)?;
                let mut routes =
                    read_routes(&path).map_err(|error| SetupError::at("destination.routes", error.to_string()))?;
                random.shuffle(&mut routes);
                routes
            }
        };
        Ok(list)
    }
}
