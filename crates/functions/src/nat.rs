//! What both directions of a network address and port translation share: a state of the kind `nat`.
//!
//! [`nat_out`](crate::nat_out) translates what goes from inside to outside, [`nat_in`](crate::nat_in) what comes back. Each
//! worker has a table of its own, with the sessions that come to it.

mod allocations;
mod allotment;
mod bindings;
mod deterministic;
mod gains;
mod packets;
mod ports;
mod post;
mod reasons;
mod translation;
mod translator;

use std::net::Ipv4Addr;

use forebay_graph::{DeclareState, Setup, SetupError, register};
use forebay_packet::Packet;
use forebay_packet::host_address::check_host_address;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use gains::Gains;
pub(crate) use post::Post;
pub use post::{LentNat, NatLookup};
pub(crate) use reasons::{BUSY, HAIRPIN, IN_DROPS, OUT_DROPS};
pub(crate) use translation::Direction;
pub(crate) use translator::{COUNTERS, Translator, Ways};

use allocations::LogParams;
use deterministic::{Blocks, Deterministic};

use crate::connection::{SlotClock, TimeoutParams, Timeouts};
use crate::tables::sessions::MOST;

/// Parameters of a state of the kind `nat`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Addresses that sessions have outside: a prefix such as `192.0.2.0/28`, or an address. Up to 4096 addresses. The
    /// sessions of one inside address have one outside address (RFC 4787 REQ-2). Each address takes 24 KiB on each worker, of which
    /// ports are given out.
    pool: String,
    /// The ports that are given out: the first and the last, `[1024, 65535]` by default.
    #[schemars(extend("default" = [1_024, 65_535]))]
    ports: Option<[u16; 2]>,
    /// How many sessions there can be, over all workers, 1 to 268435456: 65536 by default. Each takes 83 bytes, and 74
    /// where it is the only one of its inside port; more with `ports_per_address` or `filtering: endpoint_independent`.
    #[schemars(extend("default" = 65_536))]
    sessions: Option<usize>,
    /// What happens when there are as many: the session that would end soonest is given up (`evict`, the default), or the new
    /// one is refused (`refuse`, dropped as `full`).
    #[serde(default)]
    when_full: WhenFull,
    /// Whether a new session may come from outside, to an outside port that is in use: `endpoint_dependent` (the default: none
    /// may, RFC 4787's address and port-dependent filtering) or `endpoint_independent` (from anywhere).
    #[serde(default)]
    filtering: Filtering,
    /// How many outside ports one inside address may have at a time, of each protocol; as many as there are by default (RFC 6888
    /// REQ-4).
    ports_per_address: Option<u16>,
    /// Outside addresses and ports that are computed from the inside address, a block of ports for each, instead of drawn (RFC
    /// 7422): who had a port needs no log. How it is computed is in docs/sessions.md; the table `blocks` tells it.
    deterministic: Option<Deterministic>,
    /// A file that tells which inside port has which outside port from when until when: a JSON object a line. Ports that are
    /// computed are not in it.
    log: Option<LogParams>,
    /// Ports that are always forwarded, from outside to inside, as those of a server.
    #[serde(default)]
    forwards: Vec<Forward>,
    /// How long sessions are remembered without a packet.
    #[serde(default)]
    timeouts: TimeoutParams,
}

/// What happens when a table is full.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The session that would end soonest is given up.
    #[default]
    Evict,
    /// The new one is refused.
    Refuse,
}

/// Whose packets may open a session from outside.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Filtering {
    /// Nobody's.
    #[default]
    EndpointDependent,
    /// Anybody's.
    EndpointIndependent,
}

/// A port that is always forwarded.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Forward {
    /// `tcp` or `udp`.
    protocol: Transport,
    /// The address and port outside, such as `192.0.2.1:80`; the address is one of the pool's.
    outside: String,
    /// The address and port inside, such as `10.0.0.5:8080`.
    inside: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Transport {
    Tcp,
    Udp,
}

/// The most addresses of a pool.
const ADDRESSES: u32 = 4_096;
/// As many sessions unless it is said.
const SESSIONS: usize = 1 << 16;

/// Protocol, outside, inside.
type Forwarded = (u8, (u32, u16), (u32, u16));

/// What every worker's translator is made of.
pub struct Nat {
    key: String,
    /// The first address, and how many there are.
    pool: (u32, u32),
    ports: (u16, u16),
    sessions: usize,
    when_full: WhenFull,
    filtering: Filtering,
    ports_per_address: u16,
    blocks: Option<Blocks>,
    /// The state's name, and the file of its log.
    name: String,
    log: Option<LogParams>,
    forwards: Vec<Forwarded>,
    timeouts: Timeouts,
    clock: SlotClock,
}

/// The first forward whose outside port is computed to be another inside address's, or is given out dynamically: where, and why.
fn misplaced(forwards: &[Forwarded], blocks: &Blocks, ports: (u16, u16)) -> Option<(usize, String)> {
    forwards.iter().enumerate().find_map(|(at, (_, outside, inside))| {
        let (address, port) = (Ipv4Addr::from(outside.0), outside.1);
        match blocks.owner(outside.0, port) {
            Some(owner) if owner != inside.0 => {
                let whose = Ipv4Addr::from(owner);
                Some((
                    at,
                    format!(
                        "outside: {address}:{port} is in the block of {whose}: allowed are ports of its own, and \
                                   those outside of {} to {}",
                        ports.0, ports.1
                    ),
                ))
            }
            _ => None,
        }
    })
}

impl DeclareState for Nat {
    type Params = Params;
    const NAME: &'static str = "nat";
    const SUMMARY: &'static str = "sessions and outside ports that nat_out and nat_in share";
    const EXAMPLE: &'static str = "{ pool: 192.0.2.0/28, sessions: 100000 }";

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let pool = pool(&params.pool).map_err(|message| SetupError::at("pool", message))?;
        let [first, last] = params.ports.unwrap_or([1_024, 65_535]);
        if first == 0 || first > last {
            let message = format!("{first} to {last}: allowed are 1 to 65535, the first no greater than the last");
            return Err(SetupError::at("ports", message));
        }
        let sessions = params.sessions.unwrap_or(SESSIONS);
        if !(1..=MOST).contains(&sessions) {
            return Err(SetupError::at("sessions", format!("{sessions}: allowed are 1 to {MOST}")));
        }
        if params.ports_per_address == Some(0) {
            return Err(SetupError::at("ports_per_address", "0: allowed are 1 to 65535"));
        }
        let clock = SlotClock::new(setup.frequency());
        let forwards = params.forwards.iter().enumerate();
        let forwards = forwards.map(|(at, forward)| {
            forward.read(pool).map_err(|message| SetupError::at(format!("forwards[{at}]"), message))
        });
        let forwards: Vec<_> = forwards.collect::<Result<_, _>>()?;
        let twice = |at: usize| {
            forwards[..at].iter().any(|it| {
                (it.0, it.1) == (forwards[at].0, forwards[at].1) || (it.0, it.2) == (forwards[at].0, forwards[at].2)
            })
        };
        if let Some(at) = (0..forwards.len()).find(|at| twice(*at)) {
            return Err(SetupError::at(
                format!("forwards[{at}]"),
                "another forward has the same port, outside or inside",
            ));
        }
        let timeouts = Timeouts::new(&params.timeouts, clock, "timeouts")?;
        // What it is made of: two states that are written alike are still two.
        let key = format!("nat {} {}", setup.name(), serde_json::to_string(&params).unwrap_or_default());
        let ports = (first, last);
        let blocks = params.deterministic.as_ref().map(|it| Blocks::new(it, pool, ports)).transpose();
        let blocks = blocks.map_err(|message| SetupError::at("deterministic", message))?;
        if let Some((at, told)) = blocks.and_then(|blocks| misplaced(&forwards, &blocks, ports)) {
            return Err(SetupError::at(format!("forwards[{at}]"), told));
        }
        let (when_full, filtering) = (params.when_full, params.filtering);
        let ports_per_address = params.ports_per_address.unwrap_or(u16::MAX);
        let (name, log) = (setup.name().to_owned(), params.log);
        Ok(Self {
            key,
            pool,
            ports,
            sessions,
            when_full,
            filtering,
            ports_per_address,
            blocks,
            name,
            log,
            forwards,
            timeouts,
            clock,
        })
    }
}

impl Forward {
    fn read(&self, (first, count): (u32, u32)) -> Result<Forwarded, String> {
        let read = |what: &str, text: &str| {
            let parsed: Result<std::net::SocketAddrV4, _> = text.parse();
            match parsed {
                Ok(it) if it.port() != 0 => Ok((u32::from(*it.ip()), it.port())),
                _ => Err(format!("{what}: '{text}' is no IPv4 address with a port, such as 192.0.2.1:80")),
            }
        };
        let (outside, inside) = (read("outside", &self.outside)?, read("inside", &self.inside)?);
        if outside.0.wrapping_sub(first) >= count {
            return Err(format!("outside: '{}' is not of the pool", self.outside));
        }
        check_host_address(Ipv4Addr::from(inside.0).into())
            .map_err(|why| format!("inside: '{}': {why}", self.inside))?;
        if inside.0.wrapping_sub(first) < count {
            return Err(format!(
                "inside: '{}' is of the pool, whose addresses are outside: allowed are those of hosts inside",
                self.inside
            ));
        }
        let protocol = match self.protocol {
            Transport::Tcp => forebay_packet::wire::ipv4::TCP,
            Transport::Udp => forebay_packet::wire::ipv4::UDP,
        };
        Ok((protocol, outside, inside))
    }
}

/// The first address of a pool, and how many it has.
fn pool(text: &str) -> Result<(u32, u32), String> {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    let bad = || format!("'{text}' is no IPv4 prefix such as 192.0.2.0/28, nor an address");
    let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
    let length: u32 = length.parse().ok().filter(|length| *length <= 32).ok_or_else(bad)?;
    let count = 1u64 << (32 - length);
    if count > u64::from(ADDRESSES) {
        return Err(format!("'{text}' has {count} addresses: allowed are up to {ADDRESSES} (a /20)"));
    }
    let first = u32::from(address);
    if u64::from(first) % count != 0 {
        return Err(format!(
            "'{text}' has bits set behind its length: write {}/{length}",
            Ipv4Addr::from(first & !(count as u32 - 1))
        ));
    }
    // No more than 4096 addresses, which are of one block.
    check_host_address(address.into()).map_err(|why| format!("'{text}': {why}"))?;
    Ok((first, count as u32))
}

/// Gives a packet whose headers are whole another source (on the way out) or destination (on the way in).
pub(crate) fn translate(packet: &mut Packet, direction: Direction, becomes: ([u8; 4], u16)) -> Option<()> {
    packets::translate(packet, direction, becomes)
}

/// Translates an ICMP error: what it quotes, and who sends it (on the way out) or whom it is sent to (on the way in).
pub(crate) fn translate_error(packet: &mut Packet, direction: Direction, becomes: ([u8; 4], u16)) -> Option<()> {
    packets::translate_quoted(packet, direction, becomes)?;
    // Whoever sends it, a router on the way perhaps: all who are inside have one address to who is outside.
    forebay_graph::effect::rewrite_ipv4_address(packet, direction == Direction::In, becomes.0)
}

register!(state Nat);

#[cfg(test)]
mod tests;
