//! A row of a table: the copy of an entry that a worker makes, and its text.

use std::fmt::Write;
use std::net::IpAddr;

use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};
use forebay_tables::sessions::Slot;

use crate::connection::{Phase, SlotClock};

/// An address, and a port if there is one; for ICMP, the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    /// The port, or 0 if there is none.
    pub(crate) port: u16,
}

impl End {
    /// Creates an end with an IPv4 address.
    pub(crate) fn ipv4(address: [u8; 4], port: u16) -> Self {
        Self { address: IpAddr::from(address), port }
    }

    /// Creates an end with an IPv6 address.
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

/// State of a session, the time since its last packet, and the time until its end, in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    pub(crate) phase: Phase,
    /// Time since the last packet.
    pub(crate) idle: Slot,
    /// Time until the session ends, if no packet comes.
    pub(crate) remaining: Slot,
}

/// Maximum number of ends of a row.
pub(super) const ENDS: usize = 3;

/// A session, or another entry that is shown like a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) protocol: u8,
    /// The ends, in the order of their names ([`TableType`](super::TableType)).
    pub(crate) ends: [Option<End>; ENDS],
    /// `None` for an entry that lives as long as its sessions.
    pub(crate) age: Option<Age>,
    /// Number of sessions that use the entry, if it is counted.
    users: Option<u32>,
    pub(super) table: u8,
    pub(super) index: u32,
}

impl Row {
    /// Creates a row without a number of users and without a position. The caller can add these.
    pub(crate) fn new(protocol: u8, ends: [Option<End>; ENDS], age: Option<Age>) -> Self {
        Self { protocol, ends, age, users: None, table: 0, index: 0 }
    }

    /// Sets the number of sessions that use the entry.
    pub(crate) fn used_by(self, users: u32) -> Self {
        Self { users: Some(users), ..self }
    }

    /// Sets the position of the entry.
    pub(super) fn at(self, table: u8, index: u32) -> Self {
        Self { table, index, ..self }
    }

    /// Returns the row as a line of text. `names` are the names of the ends, in the order of `ends`.
    pub(super) fn line(&self, worker: usize, names: &[&str], clock: SlotClock) -> String {
        let mut line = match protocol_name(self.protocol) {
            Some(name) => format!("protocol={name}"),
            None => format!("protocol={}", self.protocol),
        };
        // Writing to a string cannot fail.
        let mut word = |name: &str, value: &dyn std::fmt::Display| _ = write!(line, " {name}={value}");
        for (name, end) in names.iter().zip(self.ends) {
            end.iter().for_each(|end| word(name, end));
        }
        if let Some(Age { phase, idle, remaining }) = self.age {
            word("state", &phase.name());
            word("idle", &format!("{}s", clock.seconds(idle)));
            word("ends", &format!("{}s", clock.seconds(remaining)));
        }
        self.users.iter().for_each(|users| word("sessions", users));
        word("worker", &worker);
        word("at", &format!("{worker}.{}.{}", self.table, self.index));
        line
    }
}

/// Names of protocols.
const PROTOCOLS: [(&str, u8); 4] = [("tcp", TCP), ("udp", UDP), ("icmp", ICMP), ("icmpv6", 58)];

/// Returns the name of a protocol, if [`PROTOCOLS`] has one.
pub(super) fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, of)| *of == number).map(|(name, _)| *name)
}

/// Returns the number of the protocol with this name.
pub(super) fn protocol(name: &str) -> Option<u8> {
    PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
