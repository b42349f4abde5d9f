//! The other side of a connection.

use std::fmt;
use std::net::SocketAddr;

use crate::rate::Client;

/// The other side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, at a Unix socket.
    Local {
        /// The user ID, as the kernel reports it.
        uid: u32,
        /// The process ID.
        pid: Option<i32>,
    },
    /// A client at an address.
    Remote {
        /// The client's address.
        address: SocketAddr,
        /// Whether the server listens at an address that other machines can reach.
        is_public: bool,
    },
}

impl Peer {
    /// Returns the client whose rate counts.
    #[must_use]
    pub fn client(&self) -> Client {
        match self {
            Self::Local { uid, .. } => Client::User(*uid),
            Self::Remote { address, .. } => Client::at(address.ip()),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid, pid: Some(pid) } => write!(f, "uid {uid} (process {pid})"),
            Self::Local { uid, pid: None } => write!(f, "uid {uid}"),
            Self::Remote { address, .. } => address.fmt(f),
        }
    }
}
