//! How services and backends are written in a configuration, and what is refused.

use std::net::Ipv4Addr;

use forebay_graph::SetupError;
use forebay_packet::host_address::check_host_address;
use forebay_packet::wire::ethernet::MacAddress;
use forebay_packet::wire::ipv4::{TCP, UDP};
use hashbrown::HashSet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Settings;
use super::services::{Backend, Hop, Key, Mode, Name, Replies, Service, Services};
use crate::connection::TimeoutParams;
use crate::nat::WhenFull;
use crate::parameters::no_memory;
use crate::tables::maglev::{MOST_PLACES, Maglev, MaglevError, Member};

/// Parameters of a state of the kind `balancer`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The services. Up to 4096, and as many backends over all of them.
    services: Vec<ServiceParams>,
    /// How many sessions there can be, over all workers, 1 to 268435456: 65536 by default. Each takes 64 bytes and two places of an index, 83
    /// bytes in all.
    #[schemars(extend("default" = 65_536))]
    pub(super) sessions: Option<usize>,
    /// What happens when there are as many: the session that would end soonest is given up (`evict`, the default), or the new
    /// one is refused (`refuse`, dropped as `full`).
    #[serde(default)]
    pub(super) when_full: WhenFull,
    /// How replies are recognised in services of `mode: nat`: by their `session` (the default; one worker must have both
    /// directions), or by the `endpoint` that they come from (on any number of workers; an address and port may then be a
    /// backend of one service only, and all that it sends is in the service's name; a backend of a service without `port` has all
    /// ports of its address).
    #[serde(default)]
    pub(super) replies: Replies,
    /// How many places each service's Maglev table has: a prime, 65537 by default. Shares and disruption are the better the
    /// more there are for each backend, a hundred or so; each takes two bytes. Over all services up to 268439552, as 4096 of them
    /// have by default.
    #[schemars(extend("default" = 65_537))]
    places: Option<u32>,
    /// How long sessions are remembered without a packet.
    #[serde(default)]
    pub(super) timeouts: TimeoutParams,
}

/// A service: an address and port that clients know.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceParams {
    /// The address that clients send to, such as `192.0.2.10`.
    address: String,
    /// `tcp` or `udp`.
    protocol: Transport,
    /// The port that clients send to; without it the service has all ports that no other service has.
    port: Option<u16>,
    /// How packets reach a backend: `nat` (the default) gives them its address and port, and replies the service's again;
    /// `direct` leaves the IP packet as it is (direct server return): backends have the service's address, too, and answer
    /// clients themselves.
    #[serde(default)]
    mode: Mode,
    /// What chooses a backend for a new session: the `session` (the default: addresses and ports), or the `source` address
    /// alone, so that all sessions of a client have one backend as long as backends stay the same.
    #[serde(default)]
    key: Key,
    /// Those that share its sessions.
    backends: Vec<BackendParams>,
}

/// A backend of a service.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BackendParams {
    /// Its address, such as `10.0.0.1`.
    address: String,
    /// The port that it serves at; the service's own by default.
    port: Option<u16>,
    /// Its share of new sessions, among all weights: 1 by default; 0 for none.
    #[serde(default = "one")]
    weight: u16,
    /// Whether it gets no new sessions, and keeps those that it has: `false` by default.
    #[serde(default)]
    drain: bool,
    /// Of `mode: direct`: the Ethernet address that its packets are given.
    mac: Option<MacAddress>,
    /// Of `mode: direct`, instead of `mac`: what is written into the metadata word `next_hop`, for `interface_out`.
    next_hop: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Transport {
    Tcp,
    Udp,
}

fn one() -> u16 {
    1
}

/// The most services, and the most backends of all of them.
const MANY: usize = 4_096;
/// Places of a table, unless it is said: the paper's smaller size.
const PLACES: u32 = 65_537;
/// The most places over all tables, half a gigabyte: no configuration is to take longer to check, or more memory, than one of
/// as many services as there may be.
const ALL_PLACES: u64 = MANY as u64 * PLACES as u64;

impl Params {
    /// What they say, or all that is wrong with it.
    pub(super) fn services(&self, settings: Settings) -> Result<Services, SetupError> {
        let count: usize = self.services.iter().map(|service| service.backends.len()).sum();
        if self.services.is_empty() || self.services.len().max(count) > MANY {
            let message = format!(
                "{} services with {count} backends: allowed are 1 to {MANY} services and up to {MANY} backends",
                self.services.len()
            );
            return Err(SetupError::at("services", message));
        }
        let (services, places) = (self.services.len() as u64, self.places.unwrap_or(PLACES));
        // Of a table by itself its own limit is told.
        if places <= MOST_PLACES && services * u64::from(places) > ALL_PLACES {
            let message = format!(
                "{places} places of each of {services} services: allowed are {ALL_PLACES} over all services, {} of each of so many",
                ALL_PLACES / services
            );
            return Err(SetupError::at("places", message));
        }
        let mut made = Services::new(settings);
        let mut faults = SetupError::default();
        for (at, service) in self.services.iter().enumerate() {
            if let Err(more) = service.read(&format!("services[{at}]"), self, &mut made) {
                faults.and(more);
            }
        }
        if faults.faults.is_empty() { Ok(made) } else { Err(faults) }
    }
}

impl ServiceParams {
    fn read(&self, path: &str, params: &Params, made: &mut Services) -> Result<(), SetupError> {
        let address = address(&self.address).map_err(|message| SetupError::at(format!("{path}.address"), message))?;
        let protocol = match self.protocol {
            Transport::Tcp => TCP,
            Transport::Udp => UDP,
        };
        if self.port == Some(0) {
            return Err(SetupError::at(format!("{path}.port"), "0: allowed are 1 to 65535"));
        }
        let name = Name::new(address, self.port.unwrap_or(0), protocol);
        let first = made.backends.len();
        let (mut members, mut known) = (Vec::new(), HashSet::new());
        for (at, backend) in self.backends.iter().enumerate() {
            let path = format!("{path}.backends[{at}]");
            let backend_of = backend.read(&path, self, name)?;
            if !known.insert(backend_of.end) {
                return Err(SetupError::at(
                    path,
                    format!("{}: another one of this service has this address and port", backend_of.end),
                ));
            }
            let weight = if backend.drain { 0 } else { backend.weight };
            members.push(Member { identity: backend_of.end.as_word(), weight });
            made.backends.push(Backend {
                one_way: self.mode == Mode::Direct || params.replies == Replies::Endpoint,
                ..backend_of
            });
        }
        let (places, services) = (params.places.unwrap_or(PLACES), params.services.len());
        let table = Maglev::new(places, &members).map_err(|error| match error {
            MaglevError::Memory(lack) => {
                let all = lack.within(lack.bytes.saturating_mul(services));
                no_memory("places", format!("{places} places of each of {services} services"))(all)
            }
            error => SetupError::at("places", error.to_string()),
        })?;
        if self.mode == Mode::Nat {
            if let Some((new, other)) = made.ambiguous(first).filter(|_| params.replies == Replies::Endpoint) {
                let message = format!(
                    "{} is a backend of {name}, and {} one of {}: `replies: endpoint` cannot tell what they send apart",
                    new.end, other.end, other.service
                );
                return Err(SetupError::at(format!("{path}.backends"), message));
            }
            made.note_ends(first);
        }
        made.add(name, Service { mode: self.mode, key: self.key, table, first })
            .map_err(|()| SetupError::at(path, format!("{name}: there is such a service already")))
    }
}

impl BackendParams {
    fn read(&self, path: &str, service: &ServiceParams, name: Name) -> Result<Backend, SetupError> {
        let address = address(&self.address).map_err(|message| SetupError::at(format!("{path}.address"), message))?;
        let at = |field: &str, message: &str| Err(SetupError::at(format!("{path}.{field}"), message));
        if self.port == Some(0) {
            return at("port", "0: allowed are 1 to 65535");
        }
        let hop = match (service.mode, self.mac, self.next_hop) {
            (Mode::Nat, None, None) => Hop::Route,
            (Mode::Nat, ..) => {
                return at("mac", "`mac` and `next_hop` are of `mode: direct`: with `nat` a route leads there");
            }
            (Mode::Direct, Some(mac), None) => Hop::Mac(mac.0),
            (Mode::Direct, None, Some(number)) => Hop::Word(number),
            (Mode::Direct, ..) => return at("mac", "with `mode: direct` give either `mac` or `next_hop`"),
        };
        if service.mode == Mode::Direct && self.port.is_some() {
            return at("port", "with `mode: direct` ports stay as they are");
        }
        if service.port.is_none() && self.port.is_some() {
            return at("port", "the service has all ports: its backends have the same");
        }
        if service.mode == Mode::Nat && address == name.address() {
            return at("address", "the backend has the service's own address");
        }
        let end = Name::new(address, self.port.or(service.port).unwrap_or(0), name.protocol());
        Ok(Backend { service: name, end, hop, one_way: false })
    }
}

fn address(text: &str) -> Result<u32, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| format!("'{text}' is no IPv4 address, such as 192.0.2.10"))?;
    check_host_address(address.into())?;
    Ok(address.to_bits())
}
