//! Parameters of services and backends, and their validation.

use std::net::Ipv4Addr;

use forebay_graph::SetupError;
use forebay_packet::host_address::check_host_address;
use forebay_packet::wire::ethernet::MacAddress;
use forebay_packet::wire::ipv4::{TCP, UDP};
use forebay_tables::maglev::{MOST_PLACES, Maglev, MaglevError, Member, allowed_places};
use forebay_tables::parameters::no_memory;
use forebay_units::wording::counted;
use hashbrown::HashSet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Settings;
use super::services::{Backend, Hop, Key, Mode, Name, Replies, Service, Services};
use crate::connection::TimeoutParams;
use crate::nat::WhenFull;

/// Parameters of the state `balancer`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The services: up to 4096, with up to 4096 backends in all.
    services: Vec<ServiceParams>,
    /// Maximum number of sessions, over all workers: 1 to 268435456, 65536 by default. A session takes 64 bytes and two
    /// entries of an index, 83 bytes in all.
    #[schemars(extend("default" = 65_536))]
    pub(super) sessions: Option<usize>,
    /// Action for a new session when the table is full: `evict` (the default) ends the session that would end soonest,
    /// `refuse` drops the new session's packet as `full`.
    #[serde(default)]
    pub(super) when_full: WhenFull,
    /// How replies are recognised in services with `mode: nat`. `session` (the default): by their session; one worker
    /// must have both directions. `endpoint`: by the address and port from which they come; the directions can be on
    /// any workers. With `endpoint`, an address and port can be a backend of one service only, and all packets from
    /// this address and port get the service's address. A backend of a service without `port` has all ports of its
    /// address.
    #[serde(default)]
    pub(super) replies: Replies,
    /// Number of entries in each service's Maglev table: a prime, 65537 by default. Use a hundred or more entries for
    /// each backend. With more entries, the backends' shares are more exact, and fewer sessions move to another backend
    /// when the backends change. Each entry takes two bytes. All tables together can have up to 268439552 entries,
    /// which is 4096 tables of the default size.
    #[schemars(extend("default" = 65_537))]
    places: Option<u32>,
    /// How long a session is kept without a packet.
    #[serde(default)]
    pub(super) timeouts: TimeoutParams,
}

/// A service: an address and port to which clients send packets.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceParams {
    /// The service's address, such as `192.0.2.10`.
    address: String,
    /// `tcp` or `udp`.
    protocol: Transport,
    /// The service's port. Without it, the service has all ports of its address that no other service has.
    port: Option<u16>,
    /// How packets reach a backend. `nat` (the default) replaces the destination by the backend's address and port, and
    /// the source of replies by the service's address and port. `direct` leaves the IP packet unchanged (direct server
    /// return): the backends have the service's address, too, and reply to clients directly.
    #[serde(default)]
    mode: Mode,
    /// Which fields of a new session select its backend: `session` (the default: addresses and ports), or only the
    /// `source` address, so that all sessions of a client have the same backend as long as the backends do not change.
    #[serde(default)]
    key: Key,
    /// The backends that share the service's sessions.
    backends: Vec<BackendParams>,
}

/// A backend of a service.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BackendParams {
    /// The backend's address, such as `10.0.0.1`.
    address: String,
    /// The backend's port; the service's port by default.
    port: Option<u16>,
    /// Share of new sessions, in proportion to the sum of all weights: 1 by default, 0 for none.
    #[serde(default = "one")]
    weight: u16,
    /// Whether the backend gets no new sessions and only keeps its present ones: `false` by default.
    #[serde(default)]
    drain: bool,
    /// For `mode: direct`: the destination Ethernet address for the backend's packets.
    mac: Option<MacAddress>,
    /// For `mode: direct`, instead of `mac`: the value of the metadata word `next_hop`, which `interface_out` reads.
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

/// Maximum number of services, and of backends of all services.
const MANY: usize = 4_096;
/// Default number of entries in a Maglev table: the smaller size of the paper.
const PLACES: u32 = 65_537;
/// Maximum number of entries of all tables together, which take half a gigabyte. It suffices for the maximum number of
/// services with tables of the default size. The limit bounds the time and memory for checking a configuration.
const ALL_PLACES: u64 = MANY as u64 * PLACES as u64;

impl Params {
    /// Validates the services. The error has all faults.
    pub(super) fn services(&self, settings: Settings) -> Result<Services, SetupError> {
        let count: usize = self.services.iter().map(|service| service.backends.len()).sum();
        if self.services.is_empty() || self.services.len().max(count) > MANY {
            return Err(SetupError::not_allowed(
                "services",
                format!("{} with {}", counted(self.services.len(), "service"), counted(count, "backend")),
                format!("1 to {MANY} services and up to {MANY} backends"),
            ));
        }
        let (services, places) = (self.services.len() as u64, self.places.unwrap_or(PLACES));
        // If `places` exceeds the limit of a single table, `Maglev::new` reports that below.
        if places <= MOST_PLACES && services * u64::from(places) > ALL_PLACES {
            let wrong = format!("{places} places of each of {services} services");
            let allowed = format!("{ALL_PLACES} over all services, {} of each service", ALL_PLACES / services);
            return Err(SetupError::wrong("places", places, wrong, allowed));
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
    /// Validates a service at `path` of the configuration, and adds it and its backends to `made`. After an error,
    /// `made` may have some of the backends and must not be used.
    fn read(&self, path: &str, params: &Params, made: &mut Services) -> Result<(), SetupError> {
        let address = address(&self.address).map_err(|message| SetupError::at(format!("{path}.address"), message))?;
        let protocol = match self.protocol {
            Transport::Tcp => TCP,
            Transport::Udp => UDP,
        };
        if self.port == Some(0) {
            return Err(SetupError::not_allowed(format!("{path}.port"), "0", "1 to 65535"));
        }
        let name = Name::new(address, self.port.unwrap_or(0), protocol);
        let first = made.backends.len();
        let (mut members, mut known) = (Vec::new(), HashSet::new());
        for (at, backend) in self.backends.iter().enumerate() {
            let path = format!("{path}.backends[{at}]");
            let backend_of = backend.read(&path, self, name)?;
            if !known.insert(backend_of.end) {
                let wrong = format!("{}: another backend of this service has this address and port", backend_of.end);
                return Err(SetupError::with_hint(path, wrong, "list it once"));
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
            MaglevError::Places(places) => {
                SetupError::wrong("places", places, format!("{places} places"), allowed_places())
            }
            error @ MaglevError::Members { .. } => SetupError::at("places", error.to_string()),
        })?;
        if self.mode == Mode::Nat {
            if let Some((new, other)) = made.ambiguous(first).filter(|_| params.replies == Replies::Endpoint) {
                let message = format!(
                    "{} is a backend of {name}, and {} is a backend of {}: `replies: endpoint` cannot distinguish the \
                     packets of these backends",
                    new.end, other.end, other.service
                );
                let hint = "give them different ports, or set `replies: session`";
                return Err(SetupError::with_hint(format!("{path}.backends"), message, hint));
            }
            made.note_ends(first);
        }
        made.add(name, Service { mode: self.mode, key: self.key, table, first }).map_err(|()| {
            let wrong = format!("{name}: another service has this address, protocol and port");
            SetupError::with_hint(path, wrong, "put all backends into one service")
        })
    }
}

impl BackendParams {
    /// Validates a backend of the service `name`. The caller sets `one_way`, which is false here.
    fn read(&self, path: &str, service: &ServiceParams, name: Name) -> Result<Backend, SetupError> {
        let address = address(&self.address).map_err(|message| SetupError::at(format!("{path}.address"), message))?;
        let at =
            |field: &str, wrong: &str, hint: &str| Err(SetupError::with_hint(format!("{path}.{field}"), wrong, hint));
        if self.port == Some(0) {
            return Err(SetupError::not_allowed(format!("{path}.port"), "0", "1 to 65535"));
        }
        let hop = match (service.mode, self.mac, self.next_hop) {
            (Mode::Nat, None, None) => Hop::Route,
            (Mode::Nat, ..) => {
                let hint = "leave out both, or set `mode: direct`";
                return at("mac", "`mac` and `next_hop` are for `mode: direct`", hint);
            }
            (Mode::Direct, Some(mac), None) => Hop::Mac(mac.0),
            (Mode::Direct, None, Some(number)) => Hop::Word(number),
            (Mode::Direct, ..) => {
                return Err(SetupError::at(
                    format!("{path}.mac"),
                    "with `mode: direct` give either `mac` or `next_hop`",
                ));
            }
        };
        if service.mode == Mode::Direct && self.port.is_some() {
            return at("port", "with `mode: direct` the port does not change", "leave out the backend's `port`");
        }
        if service.port.is_none() && self.port.is_some() {
            return at("port", "the service has no `port`, so it has all ports", "leave out the backend's `port`");
        }
        if service.mode == Mode::Nat && address == name.address() {
            return at("address", "the backend has the service's own address", "give the address of another host");
        }
        let end = Name::new(address, self.port.or(service.port).unwrap_or(0), name.protocol());
        Ok(Backend { service: name, end, hop, one_way: false })
    }
}

/// Parses the IPv4 address of a host, in host byte order.
fn address(text: &str) -> Result<u32, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| format!("'{text}' is not an IPv4 address such as 192.0.2.10"))?;
    check_host_address(address.into())?;
    Ok(address.to_bits())
}
