//! Why an AF_XDP port cannot be opened, in words that say what to do.

use std::io;
use std::path::PathBuf;

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The namespace is not there.
    #[error("no network namespace at {path}: {source} (`ip netns add NAME` makes /run/netns/NAME)")]
    Namespace {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The interface is not there.
    #[error("there is no interface '{0}'{1}: `ip link` lists those that are there")]
    Missing(String, String),
    /// A right is missing.
    #[error(
        "'{name}' needs the rights CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF to {doing}: run as root, or \
         `setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock=ep` on the program"
    )]
    Right {
        /// The interface.
        name: String,
        /// What was tried.
        doing: &'static str,
    },
    /// The kernel was built without.
    #[error(
        "the kernel has no AF_XDP sockets ({0}): it needs Linux 5.10 with CONFIG_XDP_SOCKETS; `af_packet` does without"
    )]
    Kernel(&'static str),
    /// Somebody else's program.
    #[error(
        "another XDP program is attached to '{0}', such as that of another Forebay: `ip -d link show dev {0}` and \
         `bpftool net` show it; end its owner, or take it off by `ip link set dev {0} xdp off` (`xdpgeneric off` where it is \
         generic)"
    )]
    Occupied(String),
    /// The driver has no XDP.
    #[error(
        "the driver of '{name}' takes no XDP program: {source}; write `mode: generic`, or `auto`, which falls back to it (a \
         driver may also want fewer queues, a smaller MTU, or no large-receive offload: `dmesg` says)"
    )]
    Native {
        /// The interface.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The driver has no zero-copy.
    #[error(
        "the driver of '{name}' does not write frames of queue {queue} to our memory: {source}; write `copy: auto`{aligned}"
    )]
    ZeroCopy {
        /// The interface.
        name: String,
        /// Which queue.
        queue: u32,
        /// What the system said.
        source: io::Error,
        /// What else may help.
        aligned: &'static str,
    },
    /// Memory that may not be locked.
    #[error(
        "the memory of {bytes} bytes cannot be held in place: {source}; raise the limit (`ulimit -l unlimited`, or \
         LimitMEMLOCK= of the service), give the program CAP_IPC_LOCK, or lower `memory.chunks`"
    )]
    Locked {
        /// How much it is.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of '{name}' is in use by another AF_XDP socket, of this program or another one")]
    Busy {
        /// The interface.
        name: String,
        /// Which queue.
        queue: u32,
    },
    /// It has not so many queues.
    #[error("'{name}' has {there} receive queues, not {wanted}: write fewer, or `ethtool -L {name} combined {wanted}`")]
    Queues {
        /// The interface.
        name: String,
        /// How many there are.
        there: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// Too little memory for the rings.
    #[error(
        "the rings to receive would take {wanted} chunks, and of the {chunks} of the memory {left} are left for rings (a \
         quarter is for packets on their way): raise `memory.chunks`, or lower `receive` or `queues`"
    )]
    Chunks {
        /// How many are wanted.
        wanted: usize,
        /// How many there are at all.
        chunks: usize,
        /// How many are left.
        left: usize,
    },
    /// Another port has it.
    #[error(
        "the interface '{name}' is in use by the port '{port}': while packets run only a port of that name takes it over"
    )]
    Taken {
        /// The interface.
        name: String,
        /// The port.
        port: String,
    },
    /// Anything else.
    #[error("cannot {doing} of '{name}': {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The interface.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}
