//! The services of a configuration: which one a packet is for, and which backend a new session gets.

use std::fmt;
use std::net::Ipv4Addr;

use forebay_packet::wire::ipv4::TCP;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::tables::maglev::Maglev;
use crate::tables::sessions::{Key as _, Seed, Tuple4};

/// How packets reach a backend.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// They are given its address and port.
    #[default]
    Nat,
    /// They stay as they are, and go to its Ethernet address.
    Direct,
}

/// What chooses a backend.
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

/// An address and port of a protocol; port 0 stands for all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(u64);

impl Name {
    #[inline(always)]
    pub(super) fn new(address: u32, port: u16, protocol: u8) -> Self {
        Self(u64::from(address) << 32 | u64::from(port) << 16 | u64::from(protocol))
    }

    /// What the destination of a packet of this 5-tuple is.
    #[inline(always)]
    fn of_destination(tuple: Tuple4) -> Self {
        Self::new(u32::from_be_bytes(tuple.destination()), tuple.ports().1, tuple.protocol())
    }

    #[inline(always)]
    pub(super) fn address(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline(always)]
    pub(super) fn protocol(self) -> u8 {
        self.0 as u8
    }

    fn of_all_ports(self) -> Self {
        Self(self.0 & !(0xffff << 16))
    }

    /// Whether an address and port are of both.
    fn overlaps(self, other: Self) -> bool {
        let all = self.port() == 0 || other.port() == 0;
        self == other || all && self.of_all_ports() == other.of_all_ports()
    }

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
    /// By its own address, which it is given.
    Route,
    /// To this Ethernet address.
    Mac([u8; 6]),
    /// With this number in the word `next_hop`.
    Word(u32),
}

/// A backend of one service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backend {
    pub(super) service: Name,
    /// Its own address and port.
    pub(super) end: Name,
    pub(super) hop: Hop,
    /// Whether sessions are followed by what clients send alone.
    pub(super) one_way: bool,
}

/// A service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) mode: Mode,
    pub(super) key: Key,
    /// Of its backends, counted from its first one; none where nobody takes new sessions.
    pub(super) table: Option<Maglev>,
    /// The first of its backends among all.
    pub(super) first: usize,
}

/// All services.
pub(crate) struct Services {
    pub(super) settings: Settings,
    pub(super) backends: Vec<Backend>,
    services: Vec<Service>,
    by_name: HashMap<Name, u32>,
    addresses: HashSet<u32>,
    /// The services that backends of `mode: nat` speak for.
    by_end: HashMap<Name, Name>,
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

    /// Adds a service whose backends are there already.
    pub(super) fn add(&mut self, name: Name, service: Service) -> Result<(), ()> {
        let Entry::Vacant(place) = self.by_name.entry(name) else { return Err(()) };
        place.insert(self.services.len() as u32);
        self.addresses.insert(name.address());
        self.services.push(service);
        Ok(())
    }

    /// Remembers for whom backends from `first` on speak.
    pub(super) fn note_ends(&mut self, first: usize) {
        for backend in &self.backends[first..] {
            self.end_addresses.insert(backend.end.address());
            self.by_end.insert(backend.end, backend.service);
        }
    }

    /// The first of the backends from `first` on that has an address and port which another service's has, too: both. What
    /// such a one sends would be in the name of either.
    pub(super) fn ambiguous(&self, first: usize) -> Option<(Backend, Backend)> {
        let (before, new) = self.backends.split_at(first);
        let translated = || before.iter().filter(|backend| backend.hop == Hop::Route);
        new.iter().find_map(|new| translated().find(|it| it.end.overlaps(new.end)).map(|it| (*new, *it)))
    }

    /// Whether replies may come to any worker.
    pub(super) fn reply_anywhere(&self) -> bool {
        self.settings.replies == Replies::Endpoint || self.services.iter().all(|it| it.mode == Mode::Direct)
    }

    /// Whether any backend is reached by the word `next_hop`.
    pub(crate) fn write_words(&self) -> bool {
        self.backends.iter().any(|backend| matches!(backend.hop, Hop::Word(_)))
    }

    /// What backends are called where they are counted.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.backends.iter().map(|backend| match backend.end.port() {
            0 => format!("{} {}", backend.service, Ipv4Addr::from_bits(backend.end.address())),
            port => format!("{} {}:{port}", backend.service, Ipv4Addr::from_bits(backend.end.address())),
        })
    }

    /// Whether an address is a service's.
    pub(super) fn have(&self, address: [u8; 4]) -> bool {
        self.addresses.contains(&u32::from_be_bytes(address))
    }

    /// Whether an address is that of a backend whose packets are translated.
    pub(super) fn translate(&self, address: [u8; 4]) -> bool {
        self.end_addresses.contains(&u32::from_be_bytes(address))
    }

    /// The service that a packet of this 5-tuple is for.
    pub(super) fn of(&self, tuple: Tuple4) -> Option<&Service> {
        let name = Name::of_destination(tuple);
        let number = self.by_name.get(&name).or_else(|| self.by_name.get(&name.of_all_ports()))?;
        self.services.get(*number as usize)
    }

    /// In whose name a backend sends from this address and port.
    pub(super) fn speaks_for(&self, address: [u8; 4], port: u16, protocol: u8) -> Option<([u8; 4], u16)> {
        let end = Name::new(u32::from_be_bytes(address), port, protocol);
        let service = self.by_end.get(&end).or_else(|| self.by_end.get(&end.of_all_ports()))?;
        let port = if service.port() == 0 { port } else { service.port() };
        Some((service.address().to_be_bytes(), port))
    }
}

/// What sessions are chosen with: the same on all machines, so that another one that takes over chooses alike.
const CHOICE: u64 = 3;

impl Service {
    /// The backend, among all, that a new session of this 5-tuple gets.
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
    /// What packets to it are sent to, of a session that is sent to this port of the service.
    pub(super) fn end_of(&self, port: u16) -> ([u8; 4], u16) {
        let port = if self.end.port() == 0 { port } else { self.end.port() };
        (self.end.address().to_be_bytes(), port)
    }
}
