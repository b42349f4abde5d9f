//! The state `nat`, which both directions of a network address and port translation share.
//!
//! [`nat_out`](crate::nat_out) translates packets from inside to outside, [`nat_in`](crate::nat_in) translates the
//! packets that come back. Each worker has its own table with the sessions that it handles.

mod allocations;
mod allotment;
mod bindings;
mod deterministic;
mod gains;
mod handle;
mod packets;
mod ports;
mod reasons;
mod translation;
mod translator;

use std::net::Ipv4Addr;

use forebay_graph::{DeclareState, Setup, SetupError, register};
use forebay_packet::Packet;
use forebay_packet::host_address::check_host_address;
use forebay_tables::journal;
use forebay_tables::sessions::MOST;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use gains::Gains;
pub(crate) use handle::TranslatorHandle;
pub use handle::{LentNat, NatLookup};
pub(crate) use reasons::{BUSY, HAIRPIN, IN_DROPS, OUT_DROPS};
pub(crate) use translation::Direction;
pub(crate) use translator::{COUNTERS, Outputs, Translator};

use allocations::LogParams;
use deterministic::{Blocks, Deterministic};

use crate::connection::{SlotClock, TimeoutParams, Timeouts};

/// Parameters of the state `nat`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Outside addresses of the sessions: a prefix such as `192.0.2.0/28`, or one address. Up to 4096 addresses. All
    /// sessions of one inside address have the same outside address (RFC 4787 REQ-2). On each worker, each address
    /// takes 24 KiB of memory, which records the ports in use.
    pool: String,
    /// Outside ports that are available: the first and the last, `[1024, 65535]` by default.
    #[schemars(extend("default" = [1_024, 65_535]))]
    ports: Option<[u16; 2]>,
    /// Maximum number of sessions, over all workers: 1 to 268435456, 65536 by default. A session takes 83 bytes, and 74
    /// bytes more if it is the only session of its inside port. `ports_per_address` and `filtering:
    /// endpoint_independent` take more memory.
    #[schemars(extend("default" = 65_536))]
    sessions: Option<usize>,
    /// Action for a new session when the table is full: `evict` (the default) ends the session that would end soonest,
    /// `refuse` drops the new session's packet as `full`.
    #[serde(default)]
    when_full: WhenFull,
    /// Whether a packet from outside may open a session on an outside port that is in use: `endpoint_dependent` (the
    /// default: no, address and port-dependent filtering of RFC 4787) or `endpoint_independent` (yes, from any
    /// address).
    #[serde(default)]
    filtering: Filtering,
    /// Maximum number of outside ports that one inside address may use at a time, for each protocol (RFC 6888 REQ-4).
    /// By default there is no limit.
    ports_per_address: Option<u16>,
    /// Computes outside addresses and ports from the inside address instead of choosing them at random (RFC 7422). Each
    /// inside address has a block of ports, so no log is needed to find out later which address used a port. The
    /// computation is in docs/sessions.md. The table `blocks` shows the result.
    deterministic: Option<Deterministic>,
    /// A log file that records which inside port had which outside port, and at which time: one JSON object per line.
    /// Computed ports (`deterministic`) are not recorded.
    log: Option<LogParams>,
    /// Ports that are always forwarded from outside to inside, for example those of a server.
    #[serde(default)]
    forwards: Vec<Forward>,
    /// How long a session is kept without a packet.
    #[serde(default)]
    timeouts: TimeoutParams,
}

/// Action for a new session when the table is full.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// Ends the session that would end soonest.
    #[default]
    Evict,
    /// Refuses the new session.
    Refuse,
}

/// Filtering of packets from outside that would open a session (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Filtering {
    /// No packet from outside may open a session.
    #[default]
    EndpointDependent,
    /// A packet from any address may open a session.
    EndpointIndependent,
}

/// A port that is always forwarded.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Forward {
    /// `tcp` or `udp`.
    protocol: Transport,
    /// The address and port outside, such as `192.0.2.1:80`. The address must belong to the pool.
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

/// Maximum number of addresses of a pool.
const ADDRESSES: u32 = 4_096;
/// Default for the maximum number of sessions.
const SESSIONS: usize = 1 << 16;

/// A forward: protocol, outside end and inside end. An end is an address, in host byte order, and a port.
type Forwarded = (u8, (u32, u16), (u32, u16));

/// A validated state `nat`, from which each worker makes its translator.
pub struct Nat {
    /// The key of the workers' translators. The next configuration takes over the translators if its key is the same.
    key: String,
    /// The first outside address, in host byte order, and the number of outside addresses.
    pool: (u32, u32),
    /// The first and the last outside port.
    ports: (u16, u16),
    /// The maximum number of sessions over all workers.
    sessions: usize,
    when_full: WhenFull,
    filtering: Filtering,
    /// The maximum number of outside ports of one inside address, for each protocol. `u16::MAX` means no limit.
    ports_per_address: u16,
    /// The computed blocks of ports (`deterministic`). `None` if all ports are allocated dynamically.
    blocks: Option<Blocks>,
    /// The state's name, which each line of the log has.
    name: String,
    log: Option<LogParams>,
    forwards: Vec<Forwarded>,
    timeouts: Timeouts,
    clock: SlotClock,
}

/// Returns the first forward whose outside port is in the block of another inside address: its index and the reason.
fn misplaced(forwards: &[Forwarded], blocks: &Blocks, ports: (u16, u16)) -> Option<(usize, String)> {
    forwards.iter().enumerate().find_map(|(at, (_, outside, inside))| {
        let (address, port) = (Ipv4Addr::from(outside.0), outside.1);
        match blocks.owner(outside.0, port) {
            Some(owner) if owner != inside.0 => {
                let owner = Ipv4Addr::from(owner);
                Some((
                    at,
                    format!(
                        "outside: {address}:{port} is in the block of {owner}: allowed are ports in the block of the \
                         inside address, and ports that are not in {} to {}",
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
            let allowed = "1 to 65535, with the lower port first";
            return Err(SetupError::not_allowed("ports", format!("{first} to {last}"), allowed));
        }
        let sessions = params.sessions.unwrap_or(SESSIONS);
        if !(1..=MOST).contains(&sessions) {
            return Err(SetupError::not_allowed("sessions", sessions, format!("1 to {MOST}")));
        }
        if params.ports_per_address == Some(0) {
            return Err(SetupError::not_allowed("ports_per_address", "0", "1 to 65535"));
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
            let wrong = "another forward has the same port at the same address, outside or inside";
            return Err(SetupError::with_hint(format!("forwards[{at}]"), wrong, "remove one of the two"));
        }
        let timeouts = Timeouts::new(&params.timeouts, clock, "timeouts")?;
        // The state's name is part of the key: two states with equal parameters are still two states.
        let key = format!("nat {} {}", setup.name(), serde_json::to_string(&params).unwrap_or_default());
        let ports = (first, last);
        let blocks = params.deterministic.as_ref().map(|it| Blocks::new(it, pool, ports)).transpose();
        let blocks = blocks.map_err(|message| SetupError::at("deterministic", message))?;
        if let Some((at, message)) = blocks.and_then(|blocks| misplaced(&forwards, &blocks, ports)) {
            return Err(SetupError::at(format!("forwards[{at}]"), message));
        }
        let (when_full, filtering) = (params.when_full, params.filtering);
        let ports_per_address = params.ports_per_address.unwrap_or(u16::MAX);
        let (name, log) = (setup.name().to_owned(), params.log);
        // A module opens the file, but only this fault can name the parameter of the state.
        if let Some(log) = &log {
            let path = setup.unclaimed_path("log.file", &log.file)?;
            if setup.checks_files() {
                journal::check(&path).map_err(|message| SetupError::at("log.file", message))?;
            }
        }
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
    /// Validates a forward. The pool is given by its first address (in host byte order) and the number of addresses.
    fn read(&self, (first, count): (u32, u32)) -> Result<Forwarded, String> {
        let read = |field: &str, text: &str| {
            let parsed: Result<std::net::SocketAddrV4, _> = text.parse();
            match parsed {
                Ok(it) if it.port() != 0 => Ok((u32::from(*it.ip()), it.port())),
                _ => Err(format!("{field}: '{text}' is not an IPv4 address with a port such as 192.0.2.1:80")),
            }
        };
        let (outside, inside) = (read("outside", &self.outside)?, read("inside", &self.inside)?);
        if outside.0.wrapping_sub(first) >= count {
            let (least, most) = (Ipv4Addr::from(first), Ipv4Addr::from(first + (count - 1)));
            return Err(format!(
                "outside: '{}' is not an address of the pool: allowed are {least} to {most}",
                self.outside
            ));
        }
        check_host_address(Ipv4Addr::from(inside.0).into())
            .map_err(|why| format!("inside: '{}': {why}", self.inside))?;
        if inside.0.wrapping_sub(first) < count {
            return Err(format!(
                "inside: '{}' is an address of the pool, so it is not inside: allowed are addresses of inside hosts",
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

/// Parses a pool: returns its first address, in host byte order, and the number of addresses.
fn pool(text: &str) -> Result<(u32, u32), String> {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    let bad = || format!("'{text}' is neither an IPv4 prefix such as 192.0.2.0/28 nor an IPv4 address");
    let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
    let length: u32 = length.parse().ok().filter(|length| *length <= 32).ok_or_else(bad)?;
    let count = 1u64 << (32 - length);
    if count > u64::from(ADDRESSES) {
        return Err(format!("'{text}' has {count} addresses: allowed are up to {ADDRESSES} (a /20)"));
    }
    let first = u32::from(address);
    if u64::from(first) % count != 0 {
        return Err(format!(
            "'{text}' has bits set beyond its prefix length: write {}/{length}",
            Ipv4Addr::from(first & !(count as u32 - 1))
        ));
    }
    // A pool has at most 4096 aligned addresses, so all of them lie in the same special-purpose block, if any.
    check_host_address(address.into()).map_err(|why| format!("'{text}': {why}"))?;
    Ok((first, count as u32))
}

/// Replaces the source (on the way out) or the destination (on the way in) of a packet by `becomes`, an address and a
/// port. Returns `None` if the packet's headers are not complete. The packet may then be changed in part and must be
/// dropped.
pub(crate) fn translate(packet: &mut Packet, direction: Direction, becomes: ([u8; 4], u16)) -> Option<()> {
    packets::translate(packet, direction, becomes)
}

/// Translates an ICMP error: the packet that it quotes, and the error's own source (on the way out) or destination (on
/// the way in). Returns `None` if the error is incomplete. It may then be changed in part and must be dropped.
pub(crate) fn translate_error(packet: &mut Packet, direction: Direction, becomes: ([u8; 4], u16)) -> Option<()> {
    packets::translate_quoted(packet, direction, becomes)?;
    // On the way out, the sender may also be a router inside. Its address is replaced by the session's outside address,
    // too: seen from outside, the host and the routers inside have the same address.
    forebay_graph::effect::rewrite_ipv4_address(packet, direction == Direction::In, becomes.0)
}

register!(state Nat);

#[cfg(test)]
mod tests;
