//! Changes compared one by one with a plain map, with a reader running beside them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay_graph::SetupEnvironment;
use forebay_tables::lpm::NO_ROUTE;
use forebay_units::Frequency;
use proptest::prelude::*;

use super::*;

/// Returns the routes of a module that has the next hops 0 to 7.
fn tables(routes: &[&str]) -> RouteTables {
    let source = Source::List(routes.iter().map(|&route| route.to_owned()).collect());
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let loaded = Loaded::read(&source, 7, &Setup::new("a", &mut environment)).expect("routes");
    let tables = RouteTables::of(&loaded);
    // A module that is never dropped.
    std::mem::forget(tables.reader(7).expect("next hops up to 7").1);
    tables
}

fn look_up(fibs: &Fibs, address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => fibs.ipv4.lookup(address.to_bits()),
        IpAddr::V6(address) => fibs.ipv6.as_ref().map_or(NO_ROUTE, |fib| fib.lookup(address.to_bits())),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn changes_are_made_in_order_and_seen_at_once() {
    let tables = tables(&["10.0.0.0/8 1"]);
    let mut reader = tables.reader(7).expect("next hops").0;
    let mut seen = |address| look_up(&reader.read(), ip(address));
    assert_eq!(seen("10.1.0.1"), 1);
    let outcome =
        tables.apply(&["add 10.1.0.0/16 2", "replace 10.0.0.0/8 3", "add ::/0 4", " replace\t2001:db8::/32 5 "]);
    assert_eq!(outcome, Outcome { made: 4, entries: 4, refused: Vec::new(), warnings: Vec::new() });
    assert_eq!(["10.1.0.1", "10.2.0.1", "::1", "2001:db8::1"].map(&mut seen), [2, 3, 4, 5]);
    assert_eq!(tables.len(), 4);
    assert_eq!(tables.apply(&["remove 10.1.0.0/16", "remove 10.0.0.0/8 3", "remove ::/0"]).made, 3);
    assert_eq!(["10.1.0.1", "10.2.0.1", "::1", "2001:db8::1"].map(&mut seen), [NO_ROUTE, NO_ROUTE, NO_ROUTE, 5]);
}

#[test]
fn invalid_changes_are_refused_and_the_others_are_made() {
    let tables = tables(&["10.0.0.0/8 1"]);
    let changes = [
        ("add 10.0.0.0/8 2", "10.0.0.0/8 already exists, with next hop 1: use 'replace'"),
        ("remove 11.0.0.0/8", "there is no route 11.0.0.0/8: write the prefix of an existing route, with its length"),
        ("remove 10.0.0.0/9", "there is no route 10.0.0.0/9"),
        ("remove 10.0.0.0/8 2", "10.0.0.0/8 has next hop 1: write this next hop, or the prefix alone"),
        ("add 12.0.0.0/8 8", "next hop \"8\" is not allowed; allowed are 0 to 7"),
        ("add 12.0.0.0/8", "has no next hop; write prefix next-hop"),
        ("replace 12.0.0.1/8 1", "12.0.0.1/8 has bits set after its first 8; the prefix is 12.0.0.0/8"),
        ("add 12.0.0.0/8 1 2", "\"2\" after the next hop"),
        ("set 12.0.0.0/8 1", "'set' is not a kind of change: allowed are add, remove and replace"),
        ("remove", "'remove' lacks an entry: write remove PREFIX [NEXT-HOP]"),
    ];
    let mut lines: Vec<_> = changes.iter().map(|(change, _)| *change).collect();
    lines.insert(3, "add 20.0.0.0/8 2");
    lines.push("add 21.0.0.0/8 7");
    let outcome = tables.apply(&lines);
    assert_eq!(outcome.made, 2);
    assert_eq!(
        outcome.refused.iter().map(|refused| refused.change).collect::<Vec<_>>(),
        [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    );
    for ((change, message), refused) in changes.iter().zip(&outcome.refused) {
        assert!(refused.message.contains(message), "{change}: {refused}");
    }
    assert_eq!(tables.entries(None, 9).expect("the whole list"), ["10.0.0.0/8 1", "20.0.0.0/8 2", "21.0.0.0/8 7"]);
}

#[test]
fn pages_follow_each_other() {
    let routes = ["10.0.0.0/8 1", "10.0.0.0/9 2", "11.0.0.0/8 3", "::/0 4", "2001:db8::/32 5"];
    let tables = tables(&routes);
    for most in 1..=6 {
        let (mut all, mut after) = (Vec::<String>::new(), None);
        loop {
            let page = tables.entries(after.as_deref(), most).expect("an entry");
            assert!(page.len() <= most);
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            all.extend(page);
        }
        assert_eq!(all, routes);
    }
    assert_eq!(
        tables.entries(Some("10.64.0.0/10"), 1),
        Ok(vec!["11.0.0.0/8 3".to_owned()]),
        "the line need not be in the table"
    );
    assert!(tables.entries(Some("first"), 1).is_err_and(|error| error.contains("first")));
}

#[test]
fn modules_with_equal_routes_separate_when_one_changes() {
    let source = Source::List(vec!["10.0.0.0/8 1".to_owned()]);
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let loaded = Loaded::read(&source, 7, &Setup::new("a", &mut environment)).expect("routes");
    let [one, other] = [(); 2].map(|()| RouteTables::of(&loaded));
    assert!(Arc::ptr_eq(&one.set().ribs, &other.set().ribs), "one set for both");
    one.apply(&["replace 10.0.0.0/8 2"]);
    one.apply(&["add 11.0.0.0/8 3"]);
    assert_eq!(other.entries(None, 9), Ok(vec!["10.0.0.0/8 1".to_owned()]));
    assert_eq!(look_up(&other.reader(7).expect("next hops").0.read(), ip("10.0.0.1")), 1);
    assert_eq!(look_up(&one.reader(7).expect("next hops").0.read(), ip("10.0.0.1")), 2);
}

#[test]
fn next_hops_that_all_modules_have_are_allowed() {
    let tables = tables(&["10.0.0.0/8 1"]);
    let _readers = (tables.reader(5), tables.reader(3));
    let refused = tables.apply(&["add 11.0.0.0/8 3", "add 12.0.0.0/8 4"]).refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].to_string(), "change 2: next hop \"4\" is not allowed; allowed are 0 to 3");
}

/// Regression: a module that was only checked, in a refused configuration, limited the next hops of all other modules
/// for ever.
#[test]
fn a_dropped_module_no_longer_limits_the_routes() {
    let tables = tables(&["10.0.0.0/8 1"]);
    let refused = tables.reader(3).expect("next hops");
    assert_eq!(tables.apply(&["add 11.0.0.0/8 4"]).made, 0);
    drop(refused);
    assert_eq!(tables.apply(&["add 11.0.0.0/8 4"]).made, 1);
    // The current routes count, not the routes that were read: a module with fewer next hops would get packets for
    // gates that it does not have.
    assert_eq!(tables.next_hops(), 5);
    assert_eq!(tables.reader(3).err(), Some(4));
    assert_eq!(tables.apply(&["remove 11.0.0.0/8"]).made, 1);
    assert_eq!(tables.next_hops(), 2);
    assert!(tables.reader(3).is_ok());
}

/// A look-up during changes finds a route's old or new next hop. It never finds no next hop, or the next hop of the
/// covering route.
#[test]
fn a_reader_sees_the_old_or_the_new_next_hop() {
    let tables = tables(&["0.0.0.0/0 7", "10.0.0.0/8 1", "10.1.2.128/25 1", "2001:db8::/32 1", "2001:db8::/48 1"]);
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            let (mut reader, done) = (tables.reader(7).expect("next hops").0, &done);
            scope.spawn(move || {
                let mut seen = [[0u64; 8]; 4];
                loop {
                    let fibs = reader.read();
                    // The first three routes are always present. The fourth, inside the first, is added and removed.
                    for (at, address) in
                        ["10.9.9.9", "10.1.2.200", "2001:db8::1", "10.64.1.1"].map(ip).into_iter().enumerate()
                    {
                        let next_hop = look_up(&fibs, address);
                        assert!(
                            (1..=2).contains(&next_hop) || at == 3 && next_hop == 3,
                            "{address} goes to {next_hop}"
                        );
                        seen[at][next_hop as usize] += 1;
                    }
                    drop(fibs);
                    if done.load(Ordering::Relaxed) {
                        break seen;
                    }
                    // Like a worker, which spends most of its time elsewhere.
                    thread::yield_now();
                }
            })
        });
        for round in 0..1_000 {
            let next_hop = 1 + round % 2;
            let changes = [
                format!("replace 10.0.0.0/8 {next_hop}"),
                format!("replace 10.1.2.128/25 {next_hop}"),
                format!("replace 2001:db8::/48 {next_hop}"),
                (if round % 2 == 0 { "add 10.64.0.0/16 3" } else { "remove 10.64.0.0/16" }).to_owned(),
            ];
            let changes: Vec<_> = changes.iter().map(String::as_str).collect();
            // The changes are made one by one, then all at once.
            if round % 4 < 2 {
                changes.iter().for_each(|change| assert_eq!(tables.apply(&[change]).made, 1));
            } else {
                assert_eq!(tables.apply(&changes).made, 4);
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().expect("the reader's assertions hold"))
    });
    assert!(seen.iter().flatten().all(|seen| seen.iter().sum::<u64>() > 0), "both have read everything");
}

/// Prefixes that overlap often.
fn prefix() -> impl Strategy<Value = IpPrefix> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(128), Just(255)];
    prop_oneof![
        3 => ([byte(), byte(), byte(), byte()], 0u32..=32)
            .prop_map(|(bytes, length)| IpPrefix::V4(Prefix::truncated(Ipv4Addr::from(bytes).to_bits(), length))),
        1 => (proptest::array::uniform16(byte()), 0u32..=128)
            .prop_map(|(bytes, length)| IpPrefix::V6(Prefix::truncated(Ipv6Addr::from(bytes).to_bits(), length))),
    ]
}

fn edges(prefix: IpPrefix) -> [IpAddr; 2] {
    match prefix {
        IpPrefix::V4(prefix) => [prefix.first(), prefix.last()].map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpPrefix::V6(prefix) => [prefix.first(), prefix.last()].map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// Returns the next hop found by a linear scan.
fn scan(routes: &BTreeMap<IpPrefix, u32>, address: IpAddr) -> u32 {
    let matching = routes.iter().filter_map(|(prefix, next_hop)| match (prefix, address) {
        (IpPrefix::V4(prefix), IpAddr::V4(address)) if prefix.contains(address.to_bits()) => {
            Some((prefix.length(), *next_hop))
        }
        (IpPrefix::V6(prefix), IpAddr::V6(address)) if prefix.contains(address.to_bits()) => {
            Some((prefix.length(), *next_hop))
        }
        _ => None,
    });
    matching.max().map_or(NO_ROUTE, |(_, next_hop)| next_hop)
}

proptest! {
    /// Random changes in random batches, with few prefixes so that changes meet: results, entries and look-ups are the
    /// same as with a map.
    #[test]
    fn tables_equal_a_map(
        prefixes in prop::collection::vec(prefix(), 1..12),
        batches in prop::collection::vec(
            prop::collection::vec((0u8..3, any::<prop::sample::Index>(), 0u32..10), 0..12), 1..12,
        ),
    ) {
        let tables = tables(&[]);
        let mut reader = tables.reader(7).expect("next hops").0;
        let mut model = BTreeMap::new();
        for batch in batches {
            let (mut lines, mut expected) = (Vec::new(), Vec::new());
            for (verb, which, next_hop) in batch {
                let prefix = prefixes[which.index(prefixes.len())];
                let (line, made) = match verb {
                    0 => (format!("add {prefix} {next_hop}"), next_hop <= 7 && !model.contains_key(&prefix)),
                    1 => (format!("replace {prefix} {next_hop}"), next_hop <= 7),
                    _ => (format!("remove {prefix}"), model.contains_key(&prefix)),
                };
                match verb {
                    2 => drop(model.remove(&prefix)),
                    _ if made => drop(model.insert(prefix, next_hop)),
                    _ => {}
                }
                lines.push(line);
                expected.push(made);
            }
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let outcome = tables.apply(&lines);
            let refused: Vec<_> = (0..lines.len()).filter(|at| !expected[*at]).collect();
            prop_assert_eq!(outcome.made + refused.len(), lines.len());
            prop_assert_eq!(outcome.refused.iter().map(|refused| refused.change).collect::<Vec<_>>(), refused);
            let fibs = reader.read();
            for address in prefixes.iter().flat_map(|prefix| edges(*prefix)) {
                prop_assert_eq!(look_up(&fibs, address), scan(&model, address), "{}", address);
            }
            let entries: Vec<_> = model.iter().map(|(prefix, next_hop)| format!("{prefix} {next_hop}")).collect();
            prop_assert_eq!(tables.entries(None, usize::MAX).expect("all"), entries);
            prop_assert_eq!(tables.len(), model.len());
        }
    }
}
