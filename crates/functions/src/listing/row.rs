//! What is shown of a session, as a worker copies it and as it is written.

use std::fmt::Write;
use std::net::IpAddr;

use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};

use crate::connection::{Phase, SlotClock};
use crate::tables::sessions::Slot;

/// An address, and a port where it shows one: of ICMP the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    /// 0: none.
    pub(crate) port: u16,
}

impl End {
    /// Of IPv4.
    pub(crate) fn ipv4(address: [u8; 4], port: u16) -> Self {
        Self { address: IpAddr::from(address), port }
    }

    /// Of IPv6.
    pub(crate) fn ipv6(address: [u8; 16], port: u16) -> Self {
        Self { address: IpAddr::from(address), port }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.address, self.port) {
            (address, 0) => write!(f, "{address}"),
            (address, port) => write!(f, "{}", std::net::SocketAddr::new(address, port)),
        }
    }
}

/// How long something has been there and will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    pub(crate) phase: Phase,
    /// Since its last packet.
    pub(crate) idle: Slot,
    /// Until it ends, if no other comes.
    pub(crate) left: Slot,
}

/// The most ends of a row.
pub(super) const ENDS: usize = 3;

/// A session, or what is shown like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) protocol: u8,
    /// Its ends, in the order of their names ([`Kind`](super::Kind)).
    pub(crate) ends: [Option<End>; ENDS],
    /// None of what is there by others.
    pub(crate) age: Option<Age>,
    /// How many use it, where that is of interest.
    users: Option<u32>,
    pub(super) table: u8,
    pub(super) place: u32,
}

impl Row {
    /// One that a worker fills.
    pub(crate) fn new(protocol: u8, ends: [Option<End>; ENDS], age: Option<Age>) -> Self {
        Self { protocol, ends, age, users: None, table: 0, place: 0 }
    }

    /// The same with how many use it.
    pub(crate) fn used_by(self, users: u32) -> Self {
        Self { users: Some(users), ..self }
    }

    /// The same at its place.
    pub(super) fn at(self, table: u8, place: u32) -> Self {
        Self { table, place, ..self }
    }

    /// As it is written.
    pub(super) fn line(&self, worker: usize, names: &[&str], clock: SlotClock) -> String {
        let mut line = match protocol_name(self.protocol) {
            Some(name) => format!("protocol={name}"),
            None => format!("protocol={}", self.protocol),
        };
        // Writing into a string does not fail.
        let mut word = |name: &str, value: &dyn std::fmt::Display| _ = write!(line, " {name}={value}");
        for (name, end) in names.iter().zip(self.ends) {
            end.iter().for_each(|end| word(name, end));
        }
        if let Some(Age { phase, idle, left }) = self.age {
            word("state", &phase.name());
            word("idle", &format!("{}s", clock.seconds(idle)));
            word("ends", &format!("{}s", clock.seconds(left)));
        }
        self.users.iter().for_each(|users| word("sessions", users));
        word("worker", &worker);
        word("at", &format!("{worker}.{}.{}", self.table, self.place));
        line
    }
}

/// What protocols are called.
const PROTOCOLS: [(&str, u8); 4] = [("tcp", TCP), ("udp", UDP), ("icmp", ICMP), ("icmpv6", 58)];

/// What a protocol is called, if it has a name here.
pub(super) fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, of)| *of == number).map(|(name, _)| *name)
}

/// The protocol that is called so.
pub(super) fn protocol(name: &str) -> Option<u8> {
    PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
