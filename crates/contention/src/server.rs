//! The server and the traffic, as numbers.

/// A memory domain: cores that share a last-level cache and a memory controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// Cores that functions may use.
    pub cores: usize,
    /// The size of the last-level cache.
    pub cache_bytes: f64,
    /// Ways of the last-level cache.
    pub ways: f64,
    /// Ways that a network interface writes packets to (Intel calls it DDIO); 0: it writes to memory.
    pub io_ways: f64,
    /// The memory controller's bandwidth, in bytes a second.
    pub memory_bandwidth: f64,
    /// A read from the domain's own memory on an idle server, in nanoseconds, from the cache's miss on.
    pub memory_ns: f64,
}

/// Which memory a function's tables are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableMemory {
    /// That of the domain that the function runs on.
    #[default]
    Own,
    /// That of its chain's network interface, as packets are.
    Home,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its domains.
    pub domains: Vec<Domain>,
    /// The clock of all cores, in ticks a second.
    pub clock_hz: f64,
    /// A hit in the last-level cache, in nanoseconds.
    pub cache_ns: f64,
    /// The bandwidth of each domain's link, for lines that come to it, in bytes a second.
    pub link_bandwidth: f64,
    /// What a read from another domain takes longer on an idle server, in nanoseconds.
    pub link_ns: f64,
    /// Lines that are asked for at a time, on average: arrivals at memory controllers and links are bursts of so many.
    pub burst: f64,
    /// Where tables are.
    pub tables: TableMemory,
}

/// What all chains forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The length of a packet.
    pub packet_bytes: f64,
    /// Lines of a packet's descriptor that every function reads.
    pub descriptor_lines: f64,
    /// Packet buffers of a chain, which are used in turn.
    pub buffers: f64,
    /// Packets that wait before a function which has more than enough to do.
    pub queue: f64,
    /// Packets that a function takes at a time.
    pub batch: f64,
}
