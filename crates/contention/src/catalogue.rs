//! Functions and a server with stated parameters.
//!
//! The server is the one of the Octans paper (INFOCOM 2019): two packages of an Intel Xeon E5-2650 v4. Its makers
//! state cores, clock, the cache's size and ways, and the bandwidths of memory (four channels of DDR4-2400) and links
//! (two QPI links of 9.6 GT/s, 19.2 GB/s each way). Latencies are of the order that is measured on such machines. The
//! paper states no parameters of its functions, so that those here are assumed: footprints and accesses of common
//! ways to make them. The link's latency and the lines of a descriptor were chosen so that the worst placement of the
//! paper's Fig. 2 carries less than the best by the part that the paper states, 39.2 %.

use crate::{Domain, Function, Server, Table, TableMemory, Traffic};

/// The paper's server: 2 domains of 12 cores, of which 6 on the network interfaces' and 12 on the other are for
/// functions.
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

/// The paper's traffic: the shortest packets. Descriptors, buffers and queues are assumed.
#[must_use]
pub fn traffic() -> Traffic {
    Traffic { packet_bytes: 64.0, descriptor_lines: 4.0, buffers: 8_192.0, queue: 1_024.0, batch: 32.0 }
}

const MB: f64 = 1024.0 * 1024.0;

/// Of all tables: private caches have the most popular entries, so that the rest is more even than flows are.
const SKEW: f64 = 0.8;

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
        // Two instructions a tick, while it does not wait.
        instructions: 2.0 * ticks,
        tables: tables.iter().map(table).collect(),
        parallel,
        has_packets: true,
        reads_payload,
    }
}

/// Longest-prefix match in a flat table of 2²⁴ entries of 2 bytes, a part of which has most traffic.
#[must_use]
pub fn router() -> Function {
    function("router", 220.0, 2.0, false, &[(32.0, 2.0, 0.0)])
}

/// A tree of some thousand rules.
#[must_use]
pub fn firewall() -> Function {
    function("firewall", 350.0, 1.2, false, &[(6.0, 6.0, 0.0), (16.0, 1.0, 0.5)])
}

/// An automaton of some thousand strings over the payload, and flows.
#[must_use]
pub fn nids() -> Function {
    function("nids", 300.0, 1.0, true, &[(24.0, 6.0, 0.0), (16.0, 1.0, 0.5)])
}

/// Encryption with associations of some thousand peers.
#[must_use]
pub fn vpn() -> Function {
    function("vpn", 1_200.0, 1.5, true, &[(8.0, 3.0, 0.5)])
}

/// Address translation: a table of sessions, looked up and updated.
#[must_use]
pub fn nat() -> Function {
    function("nat", 350.0, 1.5, false, &[(32.0, 3.0, 0.5)])
}

/// Counters of each flow.
#[must_use]
pub fn monitor() -> Function {
    function("monitor", 260.0, 1.5, false, &[(64.0, 2.0, 0.5)])
}

/// A load balancer: connections and a table of servers.
#[must_use]
pub fn balancer() -> Function {
    function("balancer", 320.0, 1.5, false, &[(24.0, 2.0, 0.3), (1.0, 1.0, 0.0)])
}

/// Removal of repeated content: fingerprints of packets that were seen.
#[must_use]
pub fn deduplicator() -> Function {
    function("deduplicator", 2_200.0, 2.0, true, &[(128.0, 12.0, 0.3)])
}

/// The paper's synthetic function, a competitor whose rate alone lies between those of the NIDS and the firewall.
#[must_use]
pub fn synthetic() -> Function {
    function("synthetic", 460.0, 1.5, false, &[(16.0, 8.0, 0.2)])
}

/// A function that only passes packets on: it stands before others, so that they find packets in their cache.
#[must_use]
pub fn forwarder() -> Function {
    function("forwarder", 150.0, 2.0, false, &[])
}

/// The paper's four functions.
#[must_use]
pub fn octans_functions() -> Vec<Function> {
    vec![router(), firewall(), nids(), vpn()]
}

/// All functions here: correlations over fewer than eight are chance.
#[must_use]
pub fn functions() -> Vec<Function> {
    let mut all = octans_functions();
    all.extend([nat(), monitor(), balancer(), deduplicator()]);
    all
}
