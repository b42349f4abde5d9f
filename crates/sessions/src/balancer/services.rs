//! The services of a configuration: finds the service of a packet, and the backend of a new session.

use std::fmt;
use std::net::Ipv4Addr;

use forebay_packet::wire::ipv4::TCP;
use forebay_tables::maglev::Maglev;
use forebay_tables::sessions::{Key as _, Seed, Tuple4};
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Settings;

/// How packets reach a backend.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The destination becomes the backend's address and port.
    #[default]
    Nat,
    /// The IP packet stays unchanged and goes to the backend's Ethernet address.
    Direct,
}

/// Fields of a session that select its backend.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Key {
    /// Addresses and ports.
    #[default]
    Session,
    /// The client's address.
    Source,
}

/// How replies are recognised.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Replies {
    /// By their session.
    #[default]
    Session,
    /// By the backend's address and port.
    Endpoint,
}

/// An address, port and protocol. Port 0 means all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(u64);

impl Name {
    /// Creates a name. `address` is in host byte order: 192.0.2.10 is `0xc000_020a`. Port 0 means all ports.
    #[inline(always)]
    pub(super) fn new(address: u32, port: u16, protocol: u8) -> Self {
        Self(u64::from(address) << 32 | u64::from(port) << 16 | u64::from(protocol))
    }

    /// Returns the destination of packets with this 5-tuple.
    #[inline(always)]
    fn of_destination(tuple: Tuple4) -> Self {
        Self::new(u32::from_be_bytes(tuple.destination()), tuple.ports().1, tuple.protocol())
    }

    /// Returns the address, in host byte order.
    #[inline(always)]
    pub(super) fn address(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the port. 0 means all ports.
    #[inline(always)]
    pub(super) fn port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline(always)]
    pub(super) fn protocol(self) -> u8 {
        self.0 as u8
    }

    /// Returns the name with the same address and protocol and all ports.
    fn of_all_ports(self) -> Self {
        Self(self.0 & !(0xffff << 16))
    }

    /// Returns true if some address and port belongs to both names.
    fn overlaps(self, other: Self) -> bool {
        let all = self.port() == 0 || other.port() == 0;
        self == other || all && self.of_all_ports() == other.of_all_ports()
    }

    /// Returns the name as a number. Different names have different numbers. Maglev derives a backend's permutation
    /// from this number, so a change of the numbers would move sessions to other backends.
    pub(super) fn as_word(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.protocol() == TCP { "tcp" } else { "udp" };
        let address = Ipv4Addr::from_bits(self.address());
        match self.port() {
            0 => write!(f, "{address} {protocol}"),
            port => write!(f, "{address}:{port} {protocol}"),
        }
    }
}

/// How a packet is sent to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// By routing: the packet gets the backend's address.
    Route,
    /// By this Ethernet address.
    Mac([u8; 6]),
    /// By this number in the metadata word `next_hop`.
    Word(u32),
}

/// A backend of one service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backend {
    pub(super) service: Name,
    /// The backend's address and port. Port 0 means that packets keep their port.
    pub(super) end: Name,
    pub(super) hop: Hop,
    /// True if the backend's sessions are tracked only by the client's packets, because its replies are not looked up.
    pub(super) one_way: bool,
}

/// A service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) mode: Mode,
    pub(super) key: Key,
    /// Selects a backend, as an index relative to `first`. `None` if no backend takes new sessions.
    pub(super) table: Option<Maglev>,
    /// Index of the service's first backend among all backends.
    pub(super) first: usize,
}

/// All services.
pub(crate) struct Services {
    pub(super) settings: Settings,
    /// The backends of all services. Those of one service are adjacent.
    pub(super) backends: Vec<Backend>,
    services: Vec<Service>,
    /// The index in `services` of each service.
    by_name: HashMap<Name, u32>,
    /// The addresses of all services.
    addresses: HashSet<u32>,
    /// The service of each backend with `mode: nat`, by the backend's address and port.
    by_end: HashMap<Name, Name>,
    /// The addresses of the backends in `by_end`.
    end_addresses: HashSet<u32>,
}

impl Services {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            backends: Vec::new(),
            services: Vec::new(),
            by_name: HashMap::new(),
            addresses: HashSet::new(),
            by_end: HashMap::new(),
            end_addresses: HashSet::new(),
        }
    }

    /// Adds a service. Its backends must have been added before. Returns an error if there is a service of this name.
    pub(super) fn add(&mut self, name: Name, service: Service) -> Result<(), ()> {
        let Entry::Vacant(vacant) = self.by_name.entry(name) else { return Err(()) };
        vacant.insert(self.services.len() as u32);
        self.addresses.insert(name.address());
        self.services.push(service);
        Ok(())
    }

    /// Records the services of the backends from index `first` on, so that [`service_of`](Self::service_of) finds them.
    pub(super) fn note_ends(&mut self, first: usize) {
        for backend in &self.backends[first..] {
            self.end_addresses.insert(backend.end.address());
            self.by_end.insert(backend.end, backend.service);
        }
    }

    /// Finds the first backend, from index `first` on, that shares an address and port with a backend of another
    /// service with `mode: nat`. Returns both backends, the new one first. Their packets could not be assigned to one
    /// service.
    pub(super) fn ambiguous(&self, first: usize) -> Option<(Backend, Backend)> {
        let (before, new) = self.backends.split_at(first);
        let translated = || before.iter().filter(|backend| backend.hop == Hop::Route);
        new.iter().find_map(|new| translated().find(|it| it.end.overlaps(new.end)).map(|it| (*new, *it)))
    }

    /// Returns true if replies may come to any worker.
    pub(super) fn reply_anywhere(&self) -> bool {
        self.settings.replies == Replies::Endpoint || self.services.iter().all(|it| it.mode == Mode::Direct)
    }

    /// Returns true if a backend needs the metadata word `next_hop`.
    pub(crate) fn write_words(&self) -> bool {
        self.backends.iter().any(|backend| matches!(backend.hop, Hop::Word(_)))
    }

    /// Returns the names of backends for their counters.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.backends.iter().map(|backend| match backend.end.port() {
            0 => format!("{} {}", backend.service, Ipv4Addr::from_bits(backend.end.address())),
            port => format!("{} {}:{port}", backend.service, Ipv4Addr::from_bits(backend.end.address())),
        })
    }

    /// Returns true if an address belongs to a service.
    pub(super) fn have(&self, address: [u8; 4]) -> bool {
        self.addresses.contains(&u32::from_be_bytes(address))
    }

    /// Returns true if an address belongs to a backend whose packets are translated.
    pub(super) fn translate(&self, address: [u8; 4]) -> bool {
        self.end_addresses.contains(&u32::from_be_bytes(address))
    }

    /// Returns the service of packets with this 5-tuple. A service for the port is preferred to a service for all
    /// ports.
    pub(super) fn of(&self, tuple: Tuple4) -> Option<&Service> {
        let name = Name::of_destination(tuple);
        let number = self.by_name.get(&name).or_else(|| self.by_name.get(&name.of_all_ports()))?;
        self.services.get(*number as usize)
    }

    /// Returns the address and port of the service for packets that a backend sends from this address and port.
    pub(super) fn service_of(&self, address: [u8; 4], port: u16, protocol: u8) -> Option<([u8; 4], u16)> {
        let end = Name::new(u32::from_be_bytes(address), port, protocol);
        let service = self.by_end.get(&end).or_else(|| self.by_end.get(&end.of_all_ports()))?;
        let port = if service.port() == 0 { port } else { service.port() };
        Some((service.address().to_be_bytes(), port))
    }
}

/// Seed of the hash that selects a backend. All machines have the same seed. If another balancer takes over the
/// traffic, it selects the same backends.
const CHOICE: u64 = 3;

impl Service {
    /// Returns the backend of a new session with this 5-tuple, as an index in [`Services::backends`]. Returns `None` if
    /// no backend takes new sessions.
    pub(super) fn pick(&self, tuple: Tuple4) -> Option<usize> {
        let table = self.table.as_ref()?;
        let seed = Seed::new(CHOICE);
        let hash = match self.key {
            Key::Session => tuple.hash(seed),
            Key::Source => seed.hash(u64::from(u32::from_be_bytes(tuple.source())), 0),
        };
        Some(self.first + table.pick(hash))
    }
}

impl Backend {
    /// Returns the new destination of a packet that was sent to this port of the service.
    pub(super) fn end_of(&self, port: u16) -> ([u8; 4], u16) {
        let port = if self.end.port() == 0 { port } else { self.end.port() };
        (self.end.address().to_be_bytes(), port)
    }
}
