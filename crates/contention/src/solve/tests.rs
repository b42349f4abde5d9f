//! Tests the properties of the simulator on random functions and servers.

use proptest::prelude::*;

use super::*;
use crate::{Domain, Table, catalogue};

const MB: f64 = 1024.0 * 1024.0;

fn functions(most: usize) -> impl Strategy<Value = Vec<Function>> {
    let table = (0.1_f64..64.0, 0.1_f64..12.0, 0.0_f64..1.0, 0.0_f64..1.2)
        .prop_map(|(megabytes, accesses, writes, skew)| Table { bytes: megabytes * MB, accesses, writes, skew });
    let function = (50.0_f64..3_000.0, prop::collection::vec(table, 0..3), 1.0_f64..4.0, any::<bool>(), any::<bool>());
    let function = function.prop_map(|(ticks, tables, parallel, has_packets, reads_payload)| Function {
        name: "random".to_owned(),
        ticks,
        instructions: ticks,
        tables,
        parallel,
        has_packets,
        reads_payload,
    });
    prop::collection::vec(function, 1..most)
}

fn server() -> impl Strategy<Value = Server> {
    let parts = (1.0_f64..40.0, 2.0_f64..80.0, 2.0_f64..40.0, 0.0_f64..4.0, any::<bool>());
    parts.prop_map(|(megabytes, memory, link, io_ways, is_home)| {
        let domain = Domain {
            cores: 32,
            cache_bytes: megabytes * MB,
            ways: 20.0,
            io_ways,
            memory_bandwidth: memory * 1e9,
            memory_ns: 70.0,
        };
        let tables = if is_home { TableMemory::Home } else { TableMemory::Own };
        Server {
            domains: vec![domain.clone(), domain],
            link_bandwidth: link * 1e9,
            tables,
            ..catalogue::octans_server()
        }
    })
}

/// Returns chains of one function each, alternating between the home domain and the other one.
fn spread(functions: &[Function]) -> Vec<Chain<'_>> {
    let chain = |(at, function)| Chain { functions: vec![function], domains: vec![at % 2], home: 0 };
    functions.iter().enumerate().map(chain).collect()
}

fn solved(server: &Server, chains: &[Chain<'_>], pace: Pace) -> Solution {
    let found = solve(server, &catalogue::traffic(), chains, pace).expect("a placement");
    assert!(found.converged(), "{found:?}");
    found
}

fn first(server: &Server, chains: &[Chain<'_>]) -> f64 {
    solved(server, chains, Pace::Own).seats[0][0].rate
}

/// Solves a function with two copies of a synthetic competitor on its domain, for competitors of increasing bandwidth.
fn beside_competitors(server: &Server, function: &Function, footprint: f64) -> [Solution; 4] {
    [0.2e9, 1e9, 4e9, 2e10].map(|bandwidth| {
        let other = Function::competitor(footprint * MB, bandwidth, 4.0, 90.0, server.clock_hz);
        let alone = |function| Chain { functions: vec![function], domains: vec![0], home: 0 };
        solved(server, &[alone(function), alone(&other), alone(&other)], Pace::Own)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A function whose tables fit into the cache is, alone, as fast as its ticks and cache hits allow.
    #[test]
    fn alone_it_is_as_fast_as_the_formula(mut function in functions(2), server in server()) {
        function[0].has_packets = false;
        let found = solved(&server, &spread(&function), Pace::Own);
        let bytes: f64 = function[0].tables.iter().map(|table| (table.bytes / LINE).ceil() * LINE).sum();
        let accesses: f64 = function[0].tables.iter().map(|table| table.accesses).sum();
        let hits = accesses * server.cache_ns * 1e-9 / function[0].parallel;
        let most = 1.0 / (function[0].ticks / server.clock_hz + hits);
        let rate = found.seats[0][0].rate;
        prop_assert!(rate <= most * (1.0 + 1e-6));
        if bytes <= server.domains[0].cache_bytes {
            prop_assert!((rate / most - 1.0).abs() < 1e-6, "{rate} {most}");
        }
    }

    /// Caches never contain more lines than they have room for or than exist, and queues never carry more than their
    /// bandwidth.
    #[test]
    fn nothing_is_created(functions in functions(12), server in server(), which in 0_usize..3) {
        let pace = [Pace::Own, Pace::Dropping, Pace::Held][which];
        let found = solved(&server, &spread(&functions), pace);
        for (domain, lines) in found.cache_lines.iter().enumerate() {
            let capacity = server.domains[domain].cache_bytes / LINE;
            let here = functions.iter().enumerate().filter(|(at, _)| at % 2 == domain);
            let all: f64 = here
                .map(|(_, function)| {
                    let tables: f64 = function.tables.iter().map(|table| (table.bytes / LINE).ceil()).sum();
                    tables + function.packet_lines(&catalogue::traffic()) * catalogue::traffic().buffers
                })
                .sum();
            let expected = all.min(capacity);
            prop_assert!((lines - expected).abs() <= 1e-5 * expected.max(1.0), "{lines} of {expected}");
        }
        for load in found.memory_load.iter().chain(&found.link_load) {
            prop_assert!((0.0..1.02).contains(load), "{load}");
        }
        for seat in found.seats.iter().flatten() {
            prop_assert!(seat.rate > 0.0 && seat.rate.is_finite() && seat.occupancy >= 0.0);
            prop_assert!((0.0..=1.0).contains(&seat.packet_hit) && seat.misses >= 0.0);
        }
    }

    /// An additional copy of a function never helps.
    #[test]
    fn more_of_a_kind_never_help(function in functions(2), server in server()) {
        let rate = |count: usize| {
            let chain = Chain { functions: vec![&function[0]], domains: vec![0], home: 0 };
            first(&server, &vec![chain; count])
        };
        let rates: Vec<_> = (1..9).map(rate).collect();
        prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-6)), "{rates:?}");
    }

    /// Larger tables, a smaller cache or less bandwidth never help a function that runs alone.
    #[test]
    fn less_room_never_helps(mut function in functions(2), server in server(), part in 0.2_f64..1.0) {
        let rate = |server: &Server, function: &[Function]| first(server, &spread(function));
        let before = rate(&server, &function);
        let mut poorer = server.clone();
        poorer.domains[0].cache_bytes *= part;
        prop_assert!(rate(&poorer, &function) <= before * (1.0 + 1e-6));
        let mut slower = server.clone();
        slower.domains[0].memory_bandwidth *= part;
        prop_assert!(rate(&slower, &function) <= before * (1.0 + 1e-6));
        function[0].tables.iter_mut().for_each(|table| table.bytes /= part);
        prop_assert!(rate(&server, &function) <= before * (1.0 + 1e-6));
    }

    /// A synthetic competitor with more bandwidth takes more of the cache. If memory has enough bandwidth for all, it
    /// therefore causes a larger drop.
    #[test]
    fn a_faster_competitor_takes_more_of_the_cache(
        function in functions(2),
        mut server in server(),
        footprint in 1.0_f64..64.0,
    ) {
        server.domains.iter_mut().for_each(|domain| domain.memory_bandwidth = 1e15);
        let rates = beside_competitors(&server, &function[0], footprint).map(|found| found.seats[0][0].rate);
        prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-6)), "{rates:?}");
    }

    /// A synthetic competitor with more bandwidth causes a larger drop, unless it loads memory less
    /// ([`a_faster_competitor_may_load_memory_less`]).
    #[test]
    fn a_faster_competitor_takes_more(function in functions(2), server in server(), footprint in 1.0_f64..64.0) {
        let found = beside_competitors(&server, &function[0], footprint);
        for pair in found.windows(2) {
            let [slow, fast] = [&pair[0], &pair[1]].map(|found| (found.seats[0][0].rate, found.memory_load[0]));
            prop_assert!(fast.0 <= slow.0 * (1.0 + 1e-6) || fast.1 < slow.1, "{slow:?} {fast:?}");
        }
    }

    /// All functions of a chain that is held back run at the rate of the slowest one, which works at its own capacity.
    #[test]
    fn a_chain_runs_as_fast_as_its_slowest(functions in functions(6), server in server()) {
        let all: Vec<_> = functions.iter().collect();
        let domains = (0..all.len()).map(|at| at / 2 % 2).collect();
        let chain = [Chain { functions: all, domains, home: 0 }];
        let found = solved(&server, &chain, Pace::Held);
        let rate = found.chain_rate(0);
        // If packets are dropped, no function is faster than the previous one.
        let dropping = solved(&server, &chain, Pace::Dropping);
        let rates: Vec<_> = dropping.seats[0].iter().map(|seat| seat.rate).collect();
        prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-6)), "{rates:?}");
        prop_assert!(found.seats[0].iter().all(|seat| (seat.rate / rate - 1.0).abs() < 1e-6), "{found:?}");
        prop_assert!(found.seats[0].iter().any(|seat| (seat.capacity / rate - 1.0).abs() < 1e-5), "{found:?}");
    }
}

/// Tests the effect of chains on packets in caches, on the paper's server.
#[test]
fn a_neighbour_on_the_same_domain_leaves_packets_in_the_cache() {
    let server = catalogue::octans_server();
    let (forwarder, firewall) = (catalogue::forwarder(), catalogue::firewall());
    let rate = |domains: [usize; 2]| {
        let chain = Chain { functions: vec![&forwarder, &firewall], domains: domains.to_vec(), home: 0 };
        solved(&server, &[chain], Pace::Own).seats[0][1].rate
    };
    let [local, from_away, away, fed_away] = [[0, 0], [1, 0], [0, 1], [1, 1]].map(rate);
    assert!(local > from_away && fed_away > away, "{local} {from_away} {away} {fed_away}");
}

#[test]
fn wrong_input_is_refused_by_name() {
    let (server, traffic, router) = (catalogue::octans_server(), catalogue::traffic(), catalogue::router());
    let refused = |chains: &[Chain<'_>]| solve(&server, &traffic, chains, Pace::Own).expect_err("refused").to_string();
    let on = |domains: &[usize]| Chain { functions: vec![&router], domains: domains.to_vec(), home: 0 };
    assert_eq!(refused(&[on(&[2])]), "chain 0: domain 2: the server has domains 0 to 1");
    assert_eq!(refused(&[on(&[0, 1])]), "chain 0: 2 domains for 1 functions: allowed is one for each");
    assert_eq!(refused(&vec![on(&[0]); 7]), "chain 6: domain 0: its 6 cores are taken");
    let odd = Function { ticks: f64::NAN, ..catalogue::router() };
    let chain = Chain { functions: vec![&odd], domains: vec![0], home: 0 };
    assert_eq!(refused(&[chain]), "function router: ticks is NaN: allowed is a number above 0");
    assert!(solve(&server, &traffic, &[], Pace::Own).expect("nothing runs").converged());
}

/// Regression test: only a share below 0 was refused.
#[test]
fn a_share_of_writes_above_1_is_refused() {
    let with =
        |writes| Function { tables: vec![Table { writes, ..catalogue::router().tables[0] }], ..catalogue::router() };
    let solved = |function: &Function| {
        let chain = Chain { functions: vec![function], domains: vec![0], home: 0 };
        solve(&catalogue::octans_server(), &catalogue::traffic(), &[chain], Pace::Own)
            .map_err(|error| error.to_string())
    };
    assert!(solved(&with(1.0)).is_ok());
    let refused = solved(&with(1.5)).expect_err("refused");
    assert_eq!(refused, "function router: writes is 1.5: allowed is 0 to 1");
}

/// The exception to [`a_faster_competitor_takes_more`]. The tables of two competitors (33 MB) fit into a cache of
/// 41 MB. Slow competitors lose some of their lines to the function, and read these again from memory. Fast competitors
/// keep all their lines. So the function has less of the cache and misses more often, but it shares the memory with no
/// other function, and waits less for each miss.
#[test]
fn a_faster_competitor_may_load_memory_less() {
    let mut server = catalogue::octans_server();
    server.domains[0] = Domain { cache_bytes: 40.84e6, memory_bandwidth: 2e9, ..server.domains[0].clone() };
    let table = Table { bytes: 34.57e6, accesses: 0.5, writes: 0.0, skew: 0.0 };
    let function = Function {
        name: "lookup".to_owned(),
        ticks: 782.0,
        instructions: 782.0,
        tables: vec![table],
        parallel: 1.0,
        has_packets: false,
        reads_payload: false,
    };
    let [_, slow, fast, _] = beside_competitors(&server, &function, 15.626);
    let misses_per_second = |found: &Solution| found.seats[1][0].misses * found.seats[1][0].rate;
    assert!(misses_per_second(&slow) > 1_000.0 && misses_per_second(&fast) == 0.0, "{slow:?} {fast:?}");
    assert!(fast.memory_load[0] < slow.memory_load[0], "{slow:?} {fast:?}");
    let [slow, fast] = [slow.seats[0][0], fast.seats[0][0]];
    assert!(fast.occupancy < slow.occupancy && fast.misses > slow.misses, "{slow:?} {fast:?}");
    assert!(fast.rate > slow.rate, "{slow:?} {fast:?}");
}
