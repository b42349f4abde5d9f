//! The numerical model of the server and the traffic.

/// A memory domain: cores that share a last-level cache and a memory controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// The cores that functions may use.
    pub cores: usize,
    /// The size of the last-level cache, in bytes.
    pub cache_bytes: f64,
    /// The number of ways of the last-level cache.
    pub ways: f64,
    /// The number of ways to which a network interface writes packets (Intel DDIO). With 0, the interface writes to
    /// memory.
    pub io_ways: f64,
    /// The bandwidth of the memory controller, in bytes per second.
    pub memory_bandwidth: f64,
    /// The latency of a read from the domain's own memory on an idle server, in nanoseconds, starting at the cache
    /// miss.
    pub memory_ns: f64,
}

/// The memory that contains the tables of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableMemory {
    /// The memory of the domain on which the function runs.
    #[default]
    Own,
    /// The memory of the domain of the chain's network interface, where the packets are.
    Home,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The domains.
    pub domains: Vec<Domain>,
    /// The clock of all cores, in ticks per second.
    pub clock_hz: f64,
    /// The latency of a hit in the last-level cache, in nanoseconds.
    pub cache_ns: f64,
    /// The bandwidth of each domain's link for incoming lines, in bytes per second.
    pub link_bandwidth: f64,
    /// The additional latency of a read from another domain on an idle server, in nanoseconds.
    pub link_ns: f64,
    /// The mean number of lines that are requested at a time. Arrivals at memory controllers and links are bursts of
    /// this size.
    pub burst: f64,
    /// The memory that contains the tables.
    pub tables: TableMemory,
}

/// The traffic that all chains forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The length of a packet, in bytes.
    pub packet_bytes: f64,
    /// The lines of a packet's descriptor that every function reads.
    pub descriptor_lines: f64,
    /// The packet buffers of a chain, which are used in turn.
    pub buffers: f64,
    /// The packets that wait before an overloaded function.
    pub queue: f64,
    /// The packets that a function takes at a time.
    pub batch: f64,
}
