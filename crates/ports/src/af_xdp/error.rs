//! Errors of opening an AF_XDP port, with advice.

use std::io;
use std::path::PathBuf;

/// An error when an `af_xdp` port is opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpOpenError {
    /// The namespace does not exist.
    #[error("no network namespace at {path}: {source} (`ip netns add NAME` makes /run/netns/NAME)")]
    Namespace {
        /// The expected path of the namespace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The interface does not exist. The second text is empty, or the location of its namespace.
    #[error("there is no interface '{0}'{1}: `ip link` lists the interfaces")]
    Missing(String, String),
    /// A capability is missing.
    #[error(
        "'{name}' needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF to {doing}: run as root, or run \
         `setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock=ep` on the program"
    )]
    Right {
        /// The interface.
        name: String,
        /// The operation that failed.
        doing: &'static str,
    },
    /// The kernel was built without a necessary feature. The text names the feature.
    #[error(
        "the kernel has no AF_XDP sockets ({0}): use Linux 5.10 or later with CONFIG_XDP_SOCKETS, or an `af_packet` \
         port"
    )]
    Kernel(&'static str),
    /// Another XDP program is attached.
    #[error(
        "another XDP program is attached to '{0}', for example by another Forebay process: `ip -d link show dev {0}` \
         and `bpftool net` show the program; end the process that attached the program, or run `ip link set dev {0} \
         xdp off` (`xdpgeneric off` for a generic program)"
    )]
    Occupied(String),
    /// The driver does not support XDP.
    #[error(
        "the driver of '{name}' accepts no XDP program: {source}; use `mode: generic`, or `mode: auto`, which falls \
         back to `generic` (the driver may also require fewer queues, a smaller MTU, or no large-receive offload: see \
         `dmesg`)"
    )]
    Native {
        /// The interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The driver does not support zero-copy.
    #[error(
        "the driver of '{name}' cannot write frames of queue {queue} to packet memory: {source}; use `copy: \
         auto`{aligned}"
    )]
    ZeroCopy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
        /// The system's error.
        source: io::Error,
        /// The end of the advice: another parameter that may help, or an empty text.
        aligned: &'static str,
    },
    /// The system does not allow this process to lock the memory.
    #[error(
        "the memory of {bytes} bytes cannot be locked: {source}; raise the limit (`ulimit -l unlimited`, or \
         LimitMEMLOCK= of the service), give the program CAP_IPC_LOCK, or lower `memory.chunks`"
    )]
    Locked {
        /// The size of the memory in bytes.
        bytes: usize,
        /// The system's error.
        source: io::Error,
    },
    /// Another socket uses the queue.
    #[error(
        "queue {queue} of '{name}' is in use by another AF_XDP socket: end the program that has the socket, or use \
         another interface"
    )]
    Busy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has fewer queues than requested.
    #[error(
        "'{name}' has {existing} receive queues, not {wanted}: use fewer, or run `ethtool -L {name} combined {wanted}`"
    )]
    Queues {
        /// The interface.
        name: String,
        /// The number of its queues.
        existing: u32,
        /// The number of requested queues.
        wanted: u32,
    },
    /// The memory has too few chunks for the receive rings.
    #[error(
        "the receive rings need {wanted} chunks, but only {available} of the memory's {chunks} chunks are available (a \
         quarter is reserved for packets in the pipeline): raise `memory.chunks`, or lower `receive` or `queues`"
    )]
    Chunks {
        /// The number of chunks that the rings need.
        wanted: usize,
        /// The number of chunks of the memory.
        chunks: usize,
        /// The number of chunks available for rings.
        available: usize,
    },
    /// Another port uses the interface.
    #[error(
        "the interface '{name}' is in use by the port '{port}': while packets run, only a port that is also called \
         '{port}' can take over the interface"
    )]
    Taken {
        /// The interface.
        name: String,
        /// The port that uses it.
        port: String,
    },
    /// Another system error.
    #[error("cannot {doing} for '{name}': {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}
