//! Solves the rates of all functions of a placement together with their contention.
//!
//! The rate of a function follows from the time that it waits for memory. This time follows from the load of other
//! functions on caches, controllers and links, and that load follows from their rates. [`solve`] iterates with damping
//! until rates no longer change, and reports whether they converged.

use crate::cache::{Region, characteristic_time};
use crate::function::Band;
use crate::{Function, LINE, Server, TableMemory, Traffic, queue};

/// A chain with its placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain<'f> {
    /// The functions, in the order in which packets pass them. Not empty.
    pub functions: Vec<&'f Function>,
    /// The domain of each function.
    pub domains: Vec<usize>,
    /// The domain of the chain's network interface. The packets are in the memory of this domain.
    pub home: usize,
}

/// The pace at which the functions of a chain work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each function works as fast as it can: it always finds packets. Models are fitted to such runs.
    Own,
    /// A function works at most at the rate at which the previous function sends packets. It drops packets for which it
    /// has no time, so previous functions do not slow down.
    Dropping,
    /// All functions work at the rate of the slowest function of their chain: the functions before it are held back,
    /// the functions after it wait for packets.
    Held,
}

/// An error that prevents a solution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ContentionError {
    /// A number is out of range.
    #[error("{place}: {what} is {value}: allowed is {allowed}")]
    Number {
        /// The object that contains the number.
        place: String,
        /// The name of the parameter.
        what: &'static str,
        /// The value.
        value: f64,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// A chain does not have one domain for each function.
    #[error("chain {chain}: {domains} domains for {functions} functions: allowed is one for each")]
    Length {
        /// The chain, from 0.
        chain: usize,
        /// The number of domains.
        domains: usize,
        /// The number of functions.
        functions: usize,
    },
    /// The server does not have the domain, or its cores are taken.
    #[error("chain {chain}: domain {domain}: {why}")]
    Domain {
        /// The chain, from 0.
        chain: usize,
        /// The domain.
        domain: usize,
        /// The reason.
        why: String,
    },
}

/// The result of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seat {
    /// The packets per second.
    pub rate: f64,
    /// The packets per second that the function could process if it always had packets.
    pub capacity: f64,
    /// The nanoseconds per packet that the function waits for the last-level cache and memory.
    pub stall_ns: f64,
    /// The accesses per packet that the last-level cache does not serve.
    pub misses: f64,
    /// The bytes of the function's tables that are in the last-level cache.
    pub occupancy: f64,
    /// The probability that a line of the function's packets is in the last-level cache.
    pub packet_hit: f64,
}

/// The rates and the contention of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The result of each function of each chain.
    pub seats: Vec<Vec<Seat>>,
    /// The lines in the cache of each domain, of all tables and packets.
    pub cache_lines: Vec<f64>,
    /// The load of the memory controller of each domain, as a share of its bandwidth.
    pub memory_load: Vec<f64>,
    /// The load of the link of each domain, as a share of its bandwidth.
    pub link_load: Vec<f64>,
    /// The largest relative change of a rate in the last step.
    pub residual: f64,
    /// The number of steps.
    pub steps: usize,
}

/// Rates have converged if the relative change of each rate in a step is at most this.
pub const REST: f64 = 1e-9;
/// The largest number of steps. If the rates have not converged by then, the last rates are the result.
const MOST_STEPS: usize = 5_000;

impl Solution {
    /// Returns whether rates converged.
    #[must_use]
    pub fn converged(&self) -> bool {
        self.residual <= REST
    }

    /// Returns the packets per second of a chain: the rate of its slowest function.
    #[must_use]
    pub fn chain_rate(&self, chain: usize) -> f64 {
        self.seats[chain].iter().map(|seat| seat.rate).fold(f64::INFINITY, f64::min)
    }
}

/// Solves a placement. If the rates do not converge, this is not an error: the caller checks [`Solution::converged`].
///
/// # Errors
/// Returns [`ContentionError`] if a number is out of range, or a chain cannot be placed.
pub fn solve(
    server: &Server,
    traffic: &Traffic,
    chains: &[Chain<'_>],
    pace: Pace,
) -> Result<Solution, ContentionError> {
    check(server, traffic, chains)?;
    let step = Iteration { server, traffic, chains };
    // Iteration starts from the rates without waiting for memory.
    let mut rates: Vec<Vec<f64>> = chains
        .iter()
        .map(|chain| chain.functions.iter().map(|function| server.clock_hz / function.ticks).collect())
        .collect();
    let mut capacities = rates.clone();
    let (mut damping, mut before) = (0.5, f64::INFINITY);
    let mut found = step.of(&rates, &capacities);
    for steps in 1..=MOST_STEPS {
        let mut residual = 0.0_f64;
        for (chain, seats) in found.seats.iter().enumerate() {
            let slowest = seats.iter().map(|seat| seat.capacity).fold(f64::INFINITY, f64::min);
            let mut sent = f64::INFINITY;
            for (at, seat) in seats.iter().enumerate() {
                sent = seat.capacity.min(sent);
                let wanted = match pace {
                    Pace::Own => seat.capacity,
                    Pace::Dropping => sent,
                    Pace::Held => slowest,
                };
                residual = residual.max((wanted / rates[chain][at] - 1.0).abs());
                // The step is multiplicative, so that a rate never becomes 0 or negative.
                rates[chain][at] *= (wanted / rates[chain][at]).powf(damping);
                capacities[chain][at] *= (seat.capacity / capacities[chain][at]).powf(damping);
            }
        }
        // Near a saturated memory controller, small changes of rates cause large changes of waits. Only smaller steps
        // converge there.
        damping = if residual > before { (damping * 0.7_f64).max(0.002) } else { (damping * 1.02).min(0.7) };
        before = residual;
        found = step.of(&rates, &capacities);
        (found.residual, found.steps) = (residual, steps);
        if residual <= REST {
            break;
        }
    }
    Ok(found)
}

/// Checks that all numbers are in range and that each function has a core.
fn check(server: &Server, traffic: &Traffic, chains: &[Chain<'_>]) -> Result<(), ContentionError> {
    let between = |place: &dyn Fn() -> String, what, value: f64, (least, most): (f64, f64), allowed| {
        let is_allowed = value.is_finite() && (least..=most).contains(&value);
        if is_allowed { Ok(()) } else { Err(ContentionError::Number { place: place(), what, value, allowed }) }
    };
    let number = |place: &dyn Fn() -> String, what, value: f64, least: f64, allowed| {
        between(place, what, value, (least, f64::MAX), allowed)
    };
    const ABOVE: f64 = f64::MIN_POSITIVE;
    let of_server = || "server".to_owned();
    number(&of_server, "clock", server.clock_hz, ABOVE, "a number above 0")?;
    number(&of_server, "cache latency", server.cache_ns, 0.0, "0 or more")?;
    number(&of_server, "link bandwidth", server.link_bandwidth, ABOVE, "a number above 0")?;
    number(&of_server, "link latency", server.link_ns, 0.0, "0 or more")?;
    number(&of_server, "burst", server.burst, 1.0, "1 or more")?;
    for (at, domain) in server.domains.iter().enumerate() {
        let place = || format!("domain {at}");
        number(&place, "cache size", domain.cache_bytes, LINE, "64 bytes or more")?;
        number(&place, "ways", domain.ways, 1.0, "1 or more")?;
        number(&place, "ways of interfaces", domain.io_ways, 0.0, "0 or more")?;
        number(&place, "memory bandwidth", domain.memory_bandwidth, ABOVE, "a number above 0")?;
        number(&place, "memory latency", domain.memory_ns, 0.0, "0 or more")?;
    }
    let of_traffic = || "traffic".to_owned();
    number(&of_traffic, "packet length", traffic.packet_bytes, 1.0, "1 or more")?;
    number(&of_traffic, "descriptor lines", traffic.descriptor_lines, 0.0, "0 or more")?;
    number(&of_traffic, "buffers", traffic.buffers, 1.0, "1 or more")?;
    number(&of_traffic, "queue", traffic.queue, 1.0, "1 or more")?;
    number(&of_traffic, "batch", traffic.batch, 1.0, "1 or more")?;
    let mut free: Vec<_> = server.domains.iter().map(|domain| domain.cores).collect();
    for (at, chain) in chains.iter().enumerate() {
        let (domains, functions) = (chain.domains.len(), chain.functions.len());
        if domains != functions || functions == 0 {
            return Err(ContentionError::Length { chain: at, domains, functions });
        }
        let wrong = |domain, why| Err(ContentionError::Domain { chain: at, domain, why });
        if chain.home >= free.len() {
            return wrong(chain.home, format!("the server has domains 0 to {}", free.len().saturating_sub(1)));
        }
        for &domain in &chain.domains {
            match free.get_mut(domain) {
                Some(0) => return wrong(domain, format!("its {} cores are taken", server.domains[domain].cores)),
                Some(cores) => *cores -= 1,
                None => return wrong(domain, format!("the server has domains 0 to {}", free.len().saturating_sub(1))),
            }
        }
        for function in &chain.functions {
            let place = || format!("function {}", function.name);
            number(&place, "ticks", function.ticks, ABOVE, "a number above 0")?;
            number(&place, "parallel accesses", function.parallel, 1.0, "1 or more")?;
            for table in &function.tables {
                number(&place, "footprint", table.bytes, LINE, "64 bytes or more")?;
                number(&place, "accesses", table.accesses, 0.0, "0 or more")?;
                between(&place, "writes", table.writes, (0.0, 1.0), "0 to 1")?;
                number(&place, "skew", table.skew, 0.0, "0 or more")?;
            }
        }
    }
    Ok(())
}

/// One step of the iteration: from rates to caches and queues, and from these to new rates.
struct Iteration<'a> {
    server: &'a Server,
    traffic: &'a Traffic,
    chains: &'a [Chain<'a>],
}

/// A function on a core, with its activity at given rates.
struct Use<'a> {
    chain: usize,
    function: &'a Function,
    /// The domain on which the function runs.
    domain: usize,
    /// The domain of the chain's network interface.
    home: usize,
    /// The packets per second.
    rate: f64,
    /// The lines of the packet and its descriptor that the function reads per packet.
    lines: f64,
    /// The seconds between two uses of a packet's lines: by the previous function or the network interface, and by this
    /// function.
    wait: f64,
    fed_by: FedBy,
}

/// The location from which a function reads its packets, if they are not in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FedBy {
    /// In the ways of this domain's cache to which the network interface writes.
    Interface(usize),
    /// In the cache of the function's own domain, where the previous function runs, too.
    Neighbour,
    /// In the cache of this other domain.
    Elsewhere(usize),
}

/// The misses of a function, per packet.
struct Missed {
    /// The accesses to tables that miss the cache.
    tables: f64,
    /// The lines of packets and descriptors that miss the domain's cache.
    packets: f64,
    /// The probability that a line of the function's packets is in the cache of the function's domain.
    hit: f64,
    /// The probability that a line of the function's packets is in another domain's cache.
    hit_away: f64,
    /// The lines of the function's tables that are in the cache.
    occupancy: f64,
}

impl Iteration<'_> {
    /// Computes the contention and the new capacities for these rates. `capacities` are the damped capacities of the
    /// previous steps; they determine the lengths of queues. The result contains `rates` without a change.
    fn of(&self, rates: &[Vec<f64>], capacities: &[Vec<f64>]) -> Solution {
        let server = self.server;
        let uses = self.uses(rates, capacities);
        let domains = server.domains.len();
        let times: Vec<_> = (0..domains).map(|domain| self.time(domain, &uses)).collect();
        let io_times: Vec<_> = (0..domains).map(|domain| self.io_time(domain, &uses)).collect();
        let mut memory = vec![0.0; domains];
        let mut link = vec![0.0; domains];
        let mut cache_lines = vec![0.0; domains];
        // The misses of each function, of tables and packets.
        let mut missed = Vec::new();
        for used in &uses {
            let (at, time) = (used.domain, times[used.domain]);
            let mut occupancy = 0.0;
            let mut table_misses = 0.0;
            let from = self.table_memory(used);
            for (region, accesses, writes) in used.regions() {
                let (lines, misses) = (region.occupancy(time), accesses * (1.0 - region.hit(time)));
                occupancy += lines;
                table_misses += misses;
                memory[from] += used.rate * misses * (1.0 + writes);
                if from != at {
                    link[at] += used.rate * misses;
                }
            }
            cache_lines[at] += occupancy;
            let chance = |time: f64| -(-time / used.wait).exp_m1();
            let (hit, hit_away) = match used.fed_by {
                FedBy::Neighbour => (chance(time), 0.0),
                FedBy::Interface(domain) => {
                    let hit = chance(times[domain].min(io_times[domain]));
                    if domain == at { (hit, 0.0) } else { (0.0, hit) }
                }
                FedBy::Elsewhere(domain) => (0.0, chance(times[domain])),
            };
            let packet_misses = used.lines * (1.0 - hit);
            // A line in the cache of another domain is read from there. A line that is read from memory is also written
            // back, because interfaces and functions write to it.
            memory[used.home] += used.rate * packet_misses * (1.0 - hit_away) * 2.0;
            let is_far = if used.home == at { hit_away } else { 1.0 };
            link[at] += used.rate * packet_misses * is_far;
            missed.push(Missed { tables: table_misses, packets: packet_misses, hit, hit_away, occupancy });
        }
        for (domain, lines) in cache_lines.iter_mut().enumerate() {
            *lines += self.segments(domain, &uses).iter().map(|region| region.occupancy(times[domain])).sum::<f64>();
        }
        let memory_wait: Vec<_> =
            (0..domains).map(|at| queue::wait(memory[at], server.domains[at].memory_bandwidth, server.burst)).collect();
        let link_wait: Vec<_> =
            (0..domains).map(|at| queue::wait(link[at], server.link_bandwidth, server.burst)).collect();
        let mut seats: Vec<Vec<Seat>> = vec![Vec::new(); self.chains.len()];
        for (used, missed) in uses.iter().zip(missed) {
            let at = used.domain;
            let way = server.link_ns * 1e-9 + link_wait[at];
            let read = |from: usize| {
                let memory = server.domains[from].memory_ns * 1e-9 + memory_wait[from];
                memory + if from == at { 0.0 } else { way }
            };
            let tables: f64 = used.function.tables.iter().map(|table| table.accesses).sum();
            let cache = (tables + used.lines) * server.cache_ns * 1e-9;
            let packet = missed.hit_away * way + (1.0 - missed.hit_away) * read(used.home);
            let misses = missed.tables * read(self.table_memory(used)) + missed.packets * packet;
            let stall = (cache + misses) / used.function.parallel;
            let capacity = 1.0 / (used.function.ticks / server.clock_hz + stall);
            seats[used.chain].push(Seat {
                rate: used.rate,
                capacity,
                stall_ns: stall * 1e9,
                misses: missed.tables + missed.packets,
                occupancy: missed.occupancy * LINE,
                packet_hit: missed.hit,
            });
        }
        let memory_load =
            memory.iter().zip(&server.domains).map(|(lines, domain)| lines * LINE / domain.memory_bandwidth).collect();
        let link_load = link.iter().map(|lines| lines * LINE / server.link_bandwidth).collect();
        Solution { seats, cache_lines, memory_load, link_load, residual: f64::INFINITY, steps: 0 }
    }

    /// Returns the activity of all functions, chain by chain in the order in which packets pass.
    fn uses(&self, rates: &[Vec<f64>], capacities: &[Vec<f64>]) -> Vec<Use<'_>> {
        let mut uses = Vec::new();
        for (number, chain) in self.chains.iter().enumerate() {
            for (at, (function, &domain)) in chain.functions.iter().zip(&chain.domains).enumerate() {
                let (rate, capacity) = (rates[number][at], capacities[number][at]);
                let fed_by = match at.checked_sub(1).map(|before| chain.domains[before]) {
                    None => FedBy::Interface(chain.home),
                    Some(before) if before == domain => FedBy::Neighbour,
                    Some(before) => FedBy::Elsewhere(before),
                };
                // An overloaded function has a full queue. The queue of other functions is a few batches.
                let idle = (1.0 - rate / capacity).max(1e-12);
                let waiting = (self.traffic.batch / idle).min(self.traffic.queue);
                uses.push(Use {
                    chain: number,
                    function,
                    domain,
                    home: chain.home,
                    rate,
                    lines: function.packet_lines(self.traffic),
                    wait: waiting / rate,
                    fed_by,
                });
            }
        }
        uses
    }

    /// Returns the domain whose memory contains a function's tables.
    fn table_memory(&self, used: &Use<'_>) -> usize {
        match self.server.tables {
            TableMemory::Own => used.domain,
            TableMemory::Home => used.home,
        }
    }

    /// Returns the packets in a domain's cache as regions. Consecutive functions of a chain on the same domain share
    /// the packets, so these packets count once. `uses` must be in the order of [`uses`](Self::uses).
    fn segments(&self, domain: usize, uses: &[Use<'_>]) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        let mut last = None;
        for used in uses.iter().filter(|used| used.domain == domain && used.lines > 0.0) {
            let lines = used.lines * self.traffic.buffers;
            let region = Region { lines, rate: used.rate / self.traffic.buffers };
            match regions.last_mut().filter(|_| used.fed_by == FedBy::Neighbour && last == Some(used.chain)) {
                Some(row) => {
                    *row = Region { lines: row.lines.max(lines), rate: row.rate.max(region.rate) };
                }
                None => regions.push(region),
            }
            last = Some(used.chain);
        }
        regions
    }

    /// Returns the characteristic time of a domain's cache, in seconds: the time for which a line stays in the cache
    /// after its last use.
    fn time(&self, domain: usize, uses: &[Use<'_>]) -> f64 {
        let mut regions = self.segments(domain, uses);
        let here = uses.iter().filter(|used| used.domain == domain);
        regions.extend(here.flat_map(|used| used.regions().map(|(region, ..)| region)));
        characteristic_time(self.server.domains[domain].cache_bytes / LINE, &regions)
    }

    /// Returns the time for which a packet's line stays in the ways to which the network interface writes, in seconds.
    /// The interface overwrites the lines of these ways in turn. Infinite if no chain has its interface on this domain.
    fn io_time(&self, domain: usize, uses: &[Use<'_>]) -> f64 {
        let of = &self.server.domains[domain];
        let mut chains: Vec<usize> = Vec::new();
        let mut lines = 0.0;
        for used in uses.iter().filter(|used| used.home == domain) {
            if !chains.contains(&used.chain) {
                chains.push(used.chain);
                lines += used.rate * used.lines;
            }
        }
        if lines > 0.0 { of.cache_bytes / LINE * (of.io_ways / of.ways).min(1.0) / lines } else { f64::INFINITY }
    }
}

impl Use<'_> {
    /// Returns the function's tables as regions of the cache. Each region has the accesses per packet to it, and the
    /// share of these accesses that write.
    fn regions(&self) -> impl Iterator<Item = (Region, f64, f64)> {
        self.function.tables.iter().flat_map(|table| {
            table.bands().map(|Band { lines, accesses }| {
                (Region { lines, rate: self.rate * accesses / lines }, accesses, table.writes)
            })
        })
    }
}

#[cfg(test)]
mod tests;
