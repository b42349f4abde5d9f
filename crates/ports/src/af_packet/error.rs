//! The reasons why an interface cannot be opened. Each reason belongs to a parameter, which the port names in the
//! message.

use std::io;
use std::path::PathBuf;

use forebay_packet::MAX_FRAME;

use crate::interface::InterfaceName;

/// An error when an `af_packet` port is opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A capability is missing.
    #[error("'{0}' needs the capability CAP_NET_RAW: run as root, or run `setcap cap_net_raw+ep forebay` once")]
    Right(String),
    /// A capability is missing that is necessary to keep frames from the host's network stack.
    #[error(
        "`host: false` on '{0}' needs the capabilities CAP_NET_ADMIN and CAP_BPF: run as root, or run \
         `setcap cap_net_raw,cap_net_admin,cap_bpf+ep forebay` once"
    )]
    ExcludeRight(String),
    /// The kernel cannot keep frames from the host's network stack.
    #[error(
        "cannot prevent the host's network stack from receiving the frames of '{name}': {source}; use `host: true`, \
         remove the host's addresses from the interface, and run `sysctl net.ipv4.conf.{name}.arp_ignore=1`"
    )]
    Exclude {
        /// The name of the interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The process is not allowed to enter the namespace.
    #[error("entering the network namespace {0} needs the capability CAP_SYS_ADMIN: run as root")]
    NamespaceRight(PathBuf),
    /// The namespace does not exist.
    #[error("no network namespace at {path}: {source} (`ip netns add NAME` makes /run/netns/NAME)")]
    Namespace {
        /// The expected path of the namespace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another port uses the interface.
    #[error(
        "the interface '{name}' is in use by the port '{port}': while packets run, only a port that is also called \
         '{port}' can take over the interface"
    )]
    Taken {
        /// The name of the interface.
        name: String,
        /// The name of the port that uses it.
        port: String,
    },
    /// No interface has this name.
    #[error("there is no interface '{0}': `ip link` lists the interfaces")]
    Missing(String),
    /// The interface is down.
    #[error("the interface '{0}' is down: run `ip link set {0} up`")]
    Down(String),
    /// The interface is not an Ethernet interface.
    #[error("the interface '{0}' is not an Ethernet interface: use one that is")]
    NotEthernet(String),
    /// The interface's frames do not fit into the packets of the pool.
    #[error(
        "the interface '{name}' has an MTU of {mtu} bytes, so its frames have up to {frame} bytes, but a packet holds \
         {holds} bytes: {}run `ip link set {name} mtu {fits}`",
        if *frame > MAX_FRAME { String::new() } else { format!("set `pool: {{ frame: {frame} }}`, or ") }
    )]
    TooLong {
        /// The name of the interface.
        name: String,
        /// The MTU of the interface.
        mtu: usize,
        /// The frame length that results from the MTU.
        frame: usize,
        /// The number of bytes that a packet holds.
        holds: usize,
        /// The largest MTU whose frames fit.
        fits: usize,
    },
    /// Another system error.
    #[error("cannot {doing} for '{name}': {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The name of the interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenError {
    /// Returns a function that converts a system error. `doing` is the failed operation, as a verb: `cannot {doing} for
    /// …`. A missing capability becomes [`Right`](Self::Right).
    pub(super) fn of(name: &InterfaceName, doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Right(name.to_string()),
            _ => Self::System { doing, name: name.to_string(), source },
        }
    }

    /// Returns a function that converts a system error of the exclusion of the host's stack
    /// ([`Excluded`](super::host::Excluded)).
    pub(super) fn exclude(name: &InterfaceName) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::ExcludeRight(name.to_string()),
            _ => Self::Exclude { name: name.to_string(), source },
        }
    }

    /// Returns the parameter of the port that the error belongs to.
    pub(super) fn parameter(&self) -> &'static str {
        match self {
            Self::NamespaceRight(_) | Self::Namespace { .. } => "namespace",
            Self::ExcludeRight(_) | Self::Exclude { .. } => "host",
            _ => "interface",
        }
    }
}
