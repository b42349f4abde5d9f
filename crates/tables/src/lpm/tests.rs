//! Tests of the table against hand-written expectations, a linear scan and a trie crate.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use ipnet::{Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;
use proptest::collection::vec;
use proptest::prelude::*;

use super::synthetic::{self, Random};
use super::*;

fn v4(text: &str) -> Prefix<u32> {
    match text.parse() {
        Ok(IpPrefix::V4(prefix)) => prefix,
        other => panic!("{text}: {other:?}"),
    }
}

fn v6(text: &str) -> Prefix<u128> {
    match text.parse() {
        Ok(IpPrefix::V6(prefix)) => prefix,
        other => panic!("{text}: {other:?}"),
    }
}

fn ip4(text: &str) -> u32 {
    text.parse::<std::net::Ipv4Addr>().unwrap().to_bits()
}

fn ip6(text: &str) -> u128 {
    text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()
}

#[test]
fn empty_table_has_no_route() {
    let table = Ipv4Table::new();
    for address in [0, 1, ip4("10.0.0.1"), u32::MAX] {
        assert_eq!(table.lookup(address), NO_ROUTE);
    }
    assert!(table.is_empty());
    assert_eq!(Ipv6Table::default().lookup(u128::MAX), NO_ROUTE);
}

#[test]
fn default_route_matches_addresses_without_another_route() {
    let mut table = Ipv4Table::new();
    table.insert(v4("10.0.0.0/8"), 1).unwrap();
    assert_eq!(table.insert(v4("0.0.0.0/0"), 9), Ok(None));
    assert_eq!(table.lookup(ip4("10.1.2.3")), 1);
    assert_eq!(table.lookup(ip4("11.1.2.3")), 9);
    table.remove(v4("10.0.0.0/8"));
    assert_eq!(table.lookup(ip4("10.1.2.3")), 9);
    assert_eq!(table.remove(v4("0.0.0.0/0")), Some(9));
    assert_eq!(table.lookup(ip4("10.1.2.3")), NO_ROUTE);
}

#[test]
fn default_route_of_a_built_table() {
    let table = Ipv6Table::from_routes(vec![(v6("::/0"), 5), (v6("2001:db8::/32"), 6)]).unwrap();
    assert_eq!(table.lookup(ip6("2001:db8::1")), 6);
    assert_eq!(table.lookup(ip6("2001:db9::1")), 5);
}

#[test]
fn nested_prefixes_and_their_removal() {
    let chain = ["10.0.0.0/8", "10.1.0.0/16", "10.1.128.0/18", "10.1.129.0/24", "10.1.129.64/26", "10.1.129.77/32"];
    let mut table = Ipv4Table::new();
    for (next_hop, prefix) in chain.iter().enumerate().rev() {
        table.insert(v4(prefix), next_hop as u32).unwrap();
    }
    let target = ip4("10.1.129.77");
    for (next_hop, prefix) in chain.iter().enumerate().rev() {
        assert_eq!(table.lookup(target), next_hop as u32);
        assert_eq!(table.lookup(target ^ 1), next_hop.min(4) as u32);
        assert_eq!(table.remove(v4(prefix)), Some(next_hop as u32));
    }
    assert_eq!(table.lookup(target), NO_ROUTE);
}

#[test]
fn host_routes_are_exact() {
    let mut table = Ipv4Table::new();
    table.insert(v4("255.255.255.255/32"), 3).unwrap();
    table.insert(v4("0.0.0.0/32"), 4).unwrap();
    assert_eq!([0, 1, u32::MAX - 1, u32::MAX].map(|a| table.lookup(a)), [4, NO_ROUTE, NO_ROUTE, 3]);

    let mut table = Ipv6Table::new();
    table.insert(v6("2001:db8::1/128"), 1).unwrap();
    table.insert(v6("2001:db8::2/128"), 2).unwrap();
    table.insert(v6("2001:db8::/127"), 3).unwrap();
    assert_eq!([0, 1, 2, 3].map(|host| table.lookup(ip6("2001:db8::") + host)), [3, 1, 2, NO_ROUTE]);
    table.remove(v6("2001:db8::1/128"));
    assert_eq!(table.lookup(ip6("2001:db8::1")), 3);
}

#[test]
fn inserting_below_and_above_a_lonely_long_prefix() {
    let mut table = Ipv6Table::new();
    let far = ip6("2001:db8:1:2::1");
    table.insert(v6("2001:db8:1:2::/64"), 1).unwrap();
    table.insert(v6("2001:db8::/32"), 2).unwrap();
    table.insert(v6("2001:db8:1::/48"), 3).unwrap();
    assert_eq!(table.lookup(far), 1);
    assert_eq!(table.lookup(ip6("2001:db8:1:3::")), 3);
    assert_eq!(table.lookup(ip6("2001:db8:2::")), 2);
    table.insert(v6("2001:db8:1:2::1/128"), 4).unwrap();
    assert_eq!(table.lookup(far), 4);
    table.remove(v6("2001:db8:1:2::/64"));
    assert_eq!(table.lookup(far), 4);
    assert_eq!(table.lookup(far + 1), 3);
}

#[test]
fn next_hops_up_to_the_greatest() {
    let mut table = Ipv4Table::new();
    assert_eq!(table.insert(v4("1.0.0.0/8"), MAX_NEXT_HOP + 1), Err(NextHopError(MAX_NEXT_HOP + 1)));
    assert!(table.is_empty());
    for length in [8, 24, 25] {
        table.insert(Prefix::truncated(ip4("1.0.0.0"), length), MAX_NEXT_HOP).unwrap();
        assert_eq!(table.lookup(ip4("1.0.0.1")), MAX_NEXT_HOP);
    }
    assert!(Ipv4Table::from_routes(vec![(v4("1.0.0.0/8"), NO_ROUTE)]).is_err());
}

#[test]
fn the_last_of_equal_prefixes_counts() {
    let table = Ipv4Table::from_routes(vec![(v4("1.0.0.0/8"), 1), (v4("1.0.0.0/8"), 2)]).unwrap();
    assert_eq!((table.len(), table.lookup(ip4("1.2.3.4"))), (1, 2));
}

/// Returns the addresses at which results can change: the edges of prefixes and their neighbours.
fn edges<A: Address + Neighbours>(prefixes: impl Iterator<Item = Prefix<A>>) -> Vec<A> {
    prefixes.flat_map(|p| [p.first(), p.last(), p.first().before(), p.last().after()]).collect()
}

trait Neighbours {
    fn before(self) -> Self;
    fn after(self) -> Self;
}

macro_rules! step {
    ($($int:ty)*) => {$(
        impl Neighbours for $int {
            fn before(self) -> Self { self.wrapping_sub(1) }
            fn after(self) -> Self { self.wrapping_add(1) }
        }
    )*};
}
step!(u32 u128);

/// Looks up many addresses at once, as for a batch of packets.
fn in_steps<A: Address>(table: &Table<A>, addresses: &[A]) -> Vec<u32> {
    let mut begun = vec![NO_ROUTE; addresses.len()];
    table.begin_all(addresses, &mut begun);
    table.finish(addresses, &mut begun);
    begun
}

/// Checks that every result of the table equals that of a linear scan, one by one and in a batch.
fn agrees<A: Address + Neighbours>(table: &Table<A>, routes: &BTreeMap<Prefix<A>, u32>, addresses: &[A]) {
    for (&address, batched) in addresses.iter().zip(in_steps(table, addresses)) {
        let scan = routes.iter().filter(|(p, _)| p.contains(address)).max_by_key(|(p, _)| p.length());
        let expected = scan.map_or(NO_ROUTE, |(_, &next_hop)| next_hop);
        assert_eq!(table.lookup(address), expected, "{} single, {routes:?}", address.to_ip());
        assert_eq!(batched, expected, "{} batched, {routes:?}", address.to_ip());
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert(u128, u32, u32),
    Remove(usize),
    RemoveAt(u128, u32),
}

/// Addresses whose prefixes often nest: few values for each byte of the address.
fn address() -> impl Strategy<Value = u128> {
    prop_oneof![
        vec(prop_oneof![Just(0u8), Just(1), Just(64), Just(128), Just(255)], 16).prop_map(|bytes| {
            let mut address = [0; 16];
            address.copy_from_slice(&bytes);
            u128::from_be_bytes(address)
        }),
        Just(0x0a40_0000u128 << 96),
        any::<u128>(),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        5 => (address(), 0u32..=128, 0u32..4).prop_map(|(a, l, n)| Operation::Insert(a, l, n)),
        2 => any::<usize>().prop_map(Operation::Remove),
        1 => (address(), 0u32..=128).prop_map(|(a, l)| Operation::RemoveAt(a, l)),
    ];
    vec(operation, 1..60)
}

/// Runs the operations on a table and on a plain map. `observe` adds further oracles.
fn run<A: Address + Neighbours>(
    operations: &[Operation],
    probes: &[u128],
    cut: impl Fn(u128) -> A,
    mut observe: impl FnMut(Prefix<A>, Option<u32>, &Table<A>),
) {
    let mut table = Table::new();
    let mut model = BTreeMap::new();
    let mut touched = Vec::new();
    for &operation in operations {
        let prefix = |bits, length: u32| Prefix::truncated(cut(bits), length * A::BITS / 128);
        let (prefix, next_hop) = match operation {
            Operation::Insert(bits, length, next_hop) => (prefix(bits, length), Some(next_hop)),
            Operation::RemoveAt(bits, length) => (prefix(bits, length), None),
            Operation::Remove(at) => match model.keys().nth(at % model.len().max(1)) {
                Some(&prefix) => (prefix, None),
                None => continue,
            },
        };
        match next_hop {
            Some(next_hop) => assert_eq!(table.insert(prefix, next_hop), Ok(model.insert(prefix, next_hop))),
            None => assert_eq!(table.remove(prefix), model.remove(&prefix)),
        }
        observe(prefix, next_hop, &table);
        touched.push(prefix);
        let mut addresses = edges([prefix].into_iter());
        addresses.extend(probes.iter().map(|&probe| cut(probe)));
        agrees(&table, &model, &addresses);
    }
    let addresses = edges(touched.into_iter());
    agrees(&table, &model, &addresses);
    assert!(table.routes().eq(model.iter().map(|(&p, &n)| (p, n))));
    // The updated table gives the same results as one that is built at once.
    agrees(&Table::from_routes(model.iter().map(|(&p, &n)| (p, n)).collect()).unwrap(), &model, &addresses);
    // An emptied table keeps no node, tail or run.
    for prefix in model.into_keys() {
        table.remove(prefix);
    }
    assert!(table.fib.is_blank());
}

proptest! {
    #[test]
    fn ipv4_sequences(operations in operations(), probes in vec(address(), 8)) {
        let mut trie = PrefixMap::<Ipv4Net, u32>::new();
        run(&operations, &probes, |bits| (bits >> 96) as u32, |prefix, next_hop, table| {
            let net = Ipv4Net::new(prefix.first().into(), prefix.length() as u8).unwrap();
            match next_hop {
                Some(next_hop) => trie.insert(net, next_hop),
                None => trie.remove(&net),
            };
            for &probe in &probes {
                let address = (probe >> 96) as u32;
                let found = trie.get_lpm(&Ipv4Net::new(address.into(), 32).unwrap());
                assert_eq!(table.lookup(address), found.map_or(NO_ROUTE, |(_, &next_hop)| next_hop));
            }
        });
    }

    #[test]
    fn ipv6_sequences(operations in operations(), probes in vec(address(), 8)) {
        let mut trie = PrefixMap::<Ipv6Net, u32>::new();
        run(&operations, &probes, |bits| bits, |prefix, next_hop, table| {
            let net = Ipv6Net::new(prefix.first().into(), prefix.length() as u8).unwrap();
            match next_hop {
                Some(next_hop) => trie.insert(net, next_hop),
                None => trie.remove(&net),
            };
            for &probe in &probes {
                let found = trie.get_lpm(&Ipv6Net::new(probe.into(), 128).unwrap());
                assert_eq!(table.lookup(probe), found.map_or(NO_ROUTE, |(_, &next_hop)| next_hop));
            }
        });
    }
}

/// A table of realistic shape against the trie crate, both built at once and route by route.
#[test]
fn synthetic_tables_agree_with_a_trie() {
    let routes = synthetic::routes::<u32>(20_000, 64, 1);
    let trie: PrefixMap<Ipv4Net, u32> =
        routes.iter().map(|&(p, n)| (Ipv4Net::new(p.first().into(), p.length() as u8).unwrap(), n)).collect();
    let built = Ipv4Table::from_routes(routes.clone()).unwrap();
    let mut grown = Ipv4Table::new();
    for &(prefix, next_hop) in &routes {
        grown.insert(prefix, next_hop).unwrap();
    }
    let mut addresses = synthetic::hits(&routes, 50_000, 2);
    addresses.extend(synthetic::addresses::<u32>(50_000, 3));
    for (&address, batched) in addresses.iter().zip(in_steps(&built, &addresses)) {
        let found = trie.get_lpm(&Ipv4Net::new(address.into(), 32).unwrap());
        assert_eq!(batched, found.map_or(NO_ROUTE, |(_, &next_hop)| next_hop));
        assert_eq!(batched, built.lookup(address));
        assert_eq!(batched, grown.lookup(address));
    }
}

#[test]
fn synthetic_ipv6_tables_agree_with_a_trie() {
    let routes = synthetic::routes::<u128>(20_000, 64, 1);
    let trie: PrefixMap<Ipv6Net, u32> =
        routes.iter().map(|&(p, n)| (Ipv6Net::new(p.first().into(), p.length() as u8).unwrap(), n)).collect();
    let table = Ipv6Table::from_routes(routes.clone()).unwrap();
    let mut addresses = synthetic::hits(&routes, 50_000, 2);
    addresses.extend(synthetic::addresses::<u128>(1_000, 3));
    for (&address, batched) in addresses.iter().zip(in_steps(&table, &addresses)) {
        let found = trie.get_lpm(&Ipv6Net::new(address.into(), 128).unwrap());
        assert_eq!(batched, found.map_or(NO_ROUTE, |(_, &next_hop)| next_hop));
        assert_eq!(batched, table.lookup(address));
    }
}

/// Memory does not grow while routes come and go.
#[test]
fn memory_stays_bounded_under_churn() {
    let routes = synthetic::routes::<u128>(2_000, 64, 5);
    let mut table = Ipv6Table::from_routes(routes.clone()).unwrap();
    let mut random = Random::new(6);
    let mut churn = |rounds: usize| {
        for _ in 0..rounds {
            let (prefix, next_hop) = routes[random.index(routes.len())];
            table.remove(prefix);
            table.insert(prefix, next_hop + 1).unwrap();
        }
        table.memory_bytes()
    };
    let settled = churn(20_000);
    assert!(churn(60_000) <= settled + settled / 10);
}
