//! Functions and a server with stated parameters.
//!
//! The server is that of the Octans paper (INFOCOM 2019): two packages of an Intel Xeon E5-2650 v4. The manufacturer
//! states the cores, the clock, the size and ways of the cache, and the bandwidths of memory (four channels of
//! DDR4-2400) and links (two QPI links of 9.6 GT/s, 19.2 GB/s in each direction). Latencies are typical of measurements
//! on such machines. Bursts of 16 lines are assumed. Tables are in the memory of the interfaces' domain, as in the
//! paper's model (9). The paper states no parameters of its functions. The parameters here are assumed: footprints and
//! accesses of common implementations. Some values were chosen so that the worst placement of the paper's Fig. 2
//! carries 39.2 % less than the best, as the paper states: the latency of the link, the lines of a descriptor, and the
//! ticks, parallelism and accesses of NIDS, firewall and VPN. `docs/contention.md` lists all values. Change a value in
//! both files.

use crate::{Domain, Function, Server, Table, TableMemory, Traffic};

/// Returns the paper's server: 2 domains of 12 cores. Functions may use 6 cores on domain 0, which has the network
/// interfaces (callers use it as `home`), and 12 cores on domain 1.
#[must_use]
pub fn octans_server() -> Server {
    let domain = |cores| Domain {
        cores,
        cache_bytes: 30.0 * 1024.0 * 1024.0,
        ways: 20.0,
        io_ways: 2.0,
        memory_bandwidth: 76.8e9,
        memory_ns: 70.0,
    };
    Server {
        domains: vec![domain(6), domain(12)],
        clock_hz: 2.2e9,
        cache_ns: 20.0,
        link_bandwidth: 38.4e9,
        link_ns: 70.0,
        burst: 16.0,
        tables: TableMemory::Home,
    }
}

/// Returns the paper's traffic: the shortest packets. Descriptors, buffers and queues are assumed.
#[must_use]
pub fn traffic() -> Traffic {
    Traffic { packet_bytes: 64.0, descriptor_lines: 4.0, buffers: 8_192.0, queue: 1_024.0, batch: 32.0 }
}

/// The bytes of a mebibyte.
const MB: f64 = 1024.0 * 1024.0;

/// The skew of all tables. Private caches contain the most popular entries, so the remaining accesses are more even
/// than the flows.
const SKEW: f64 = 0.8;

/// Returns a function that processes packets. `ticks`, `parallel` and `reads_payload` are the fields of [`Function`].
/// `tables` contains for each table the mebibytes, the accesses per packet, and the share of accesses that write.
fn function(name: &str, ticks: f64, parallel: f64, reads_payload: bool, tables: &[(f64, f64, f64)]) -> Function {
    let table = |&(megabytes, accesses, writes): &(f64, f64, f64)| Table {
        bytes: megabytes * MB,
        accesses,
        writes,
        skew: SKEW,
    };
    Function {
        name: name.to_owned(),
        ticks,
        // Two instructions per tick while the function does not wait.
        instructions: 2.0 * ticks,
        tables: tables.iter().map(table).collect(),
        parallel,
        has_packets: true,
        reads_payload,
    }
}

/// Returns a longest-prefix match in a flat table of 2²⁴ entries of 2 bytes. Most of the traffic uses a part of the
/// table.
#[must_use]
pub fn router() -> Function {
    function("router", 220.0, 2.0, false, &[(32.0, 2.0, 0.0)])
}

/// Returns a firewall with a tree of several thousand rules.
#[must_use]
pub fn firewall() -> Function {
    function("firewall", 350.0, 1.2, false, &[(6.0, 6.0, 0.0), (16.0, 1.0, 0.5)])
}

/// Returns a NIDS with an automaton of several thousand strings over the payload, and a flow table.
#[must_use]
pub fn nids() -> Function {
    function("nids", 300.0, 1.0, true, &[(24.0, 6.0, 0.0), (16.0, 1.0, 0.5)])
}

/// Returns encryption with the associations of several thousand peers.
#[must_use]
pub fn vpn() -> Function {
    function("vpn", 1_200.0, 1.5, true, &[(8.0, 3.0, 0.5)])
}

/// Returns address translation: a table of sessions that is looked up and updated.
#[must_use]
pub fn nat() -> Function {
    function("nat", 350.0, 1.5, false, &[(32.0, 3.0, 0.5)])
}

/// Returns a monitor with counters for each flow.
#[must_use]
pub fn monitor() -> Function {
    function("monitor", 260.0, 1.5, false, &[(64.0, 2.0, 0.5)])
}

/// Returns a load balancer: connections and a table of servers.
#[must_use]
pub fn balancer() -> Function {
    function("balancer", 320.0, 1.5, false, &[(24.0, 2.0, 0.3), (1.0, 1.0, 0.0)])
}

/// Returns a function that removes repeated content, with fingerprints of earlier packets.
#[must_use]
pub fn deduplicator() -> Function {
    function("deduplicator", 2_200.0, 2.0, true, &[(128.0, 12.0, 0.3)])
}

/// Returns the paper's synthetic function, a competitor whose solo rate lies between the solo rates of the NIDS and the
/// firewall.
#[must_use]
pub fn synthetic() -> Function {
    function("synthetic", 460.0, 1.5, false, &[(16.0, 8.0, 0.2)])
}

/// Returns a function that only forwards packets. It is placed before another function on the same domain, so that the
/// other function finds its packets in the cache.
#[must_use]
pub fn forwarder() -> Function {
    function("forwarder", 150.0, 2.0, false, &[])
}

/// Returns the paper's four functions.
#[must_use]
pub fn octans_functions() -> Vec<Function> {
    vec![router(), firewall(), nids(), vpn()]
}

/// Returns all network functions of this module. With fewer than eight functions, correlations may be due to chance.
#[must_use]
pub fn functions() -> Vec<Function> {
    let mut all = octans_functions();
    all.extend([nat(), monitor(), balancer(), deduplicator()]);
    all
}
