//! Changes compared one by one with a plain map, and a concurrent reader.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn table(pairs: &[(&str, &str)]) -> StaticMappings {
    let list: Vec<_> = pairs.iter().map(|(inside, outside)| json!({ "inside": inside, "outside": outside })).collect();
    StaticMappings::of(&serde_json::from_value::<Vec<Mapping>>(json!(list)).expect("prefixes"))
        .expect("disjoint prefixes")
}

fn bits(address: &str) -> u32 {
    address.parse::<Ipv4Addr>().expect("an address").to_bits()
}

#[test]
fn changes_are_seen_from_both_sides() {
    let table = table(&[("10.0.0.0/24", "192.0.2.0/24")]);
    let mut reader = table.reader();
    let mut seen = |address| {
        let mappings = reader.read();
        [mappings.inside.translate(bits(address)), mappings.outside.translate(bits(address))]
            .map(|found| found.map(Ipv4Addr::from_bits))
    };
    assert_eq!(table.apply(&["add 192.0.2.1 198.51.100.7", "replace 10.0.0.0/24 203.0.113.0/24"]).refused, []);
    assert_eq!(seen("10.0.0.9"), [Some(Ipv4Addr::new(203, 0, 113, 9)), None]);
    assert_eq!(seen("203.0.113.9"), [None, Some(Ipv4Addr::new(10, 0, 0, 9))]);
    assert_eq!(seen("198.51.100.7"), [None, Some(Ipv4Addr::new(192, 0, 2, 1))]);
    assert_eq!(seen("192.0.2.9"), [None, None]);
    assert_eq!(table.entries(None, 9).expect("all"), ["10.0.0.0/24 203.0.113.0/24", "192.0.2.1/32 198.51.100.7/32"]);
    assert_eq!(
        table.entries(Some("10.0.0.0/24 203.0.113.0/24"), 9).expect("the rest"),
        ["192.0.2.1/32 198.51.100.7/32"]
    );
    assert_eq!(table.apply(&["remove 10.0.0.0/24", "remove 192.0.2.1 198.51.100.7/32"]).made, 2);
    assert_eq!((table.len(), seen("10.0.0.9")), (0, [None, None]));
}

#[test]
fn invalid_changes_are_refused_and_change_nothing() {
    let table = table(&[("10.0.0.0/24", "192.0.2.0/24"), ("10.0.1.0/24", "192.0.3.0/24")]);
    let before = table.entries(None, 9);
    let cases = [
        ("add 10.0.0.0/24 1.0.0.0/24", "10.0.0.0/24 is already mapped to 192.0.2.0/24: use 'replace'"),
        ("add 10.0.0.9 1.0.0.9", "the inside prefix 10.0.0.9/32 overlaps with 10.0.0.0/24, which is mapped"),
        ("add 11.0.0.9 192.0.2.9", "the outside prefix 192.0.2.9/32 overlaps with 192.0.2.0/24, which is mapped"),
        ("add 11.0.0.0/24 1.0.0.0/25", "11.0.0.0/24 and 1.0.0.0/25 have different lengths"),
        ("replace 10.0.0.0/24 192.0.3.0/24", "the outside prefix 192.0.3.0/24 overlaps with 192.0.3.0/24"),
        ("replace 10.0.0.0/23 1.0.0.0/23", "the inside prefix 10.0.0.0/23 overlaps with 10.0.1.0/24"),
        ("remove 10.0.0.0/25", "no mapping has the inside prefix 10.0.0.0/25"),
        (
            "remove 10.0.0.0/24 192.0.3.0/24",
            "10.0.0.0/24 is mapped to 192.0.2.0/24: write this outside prefix, or leave it out",
        ),
        ("add 11.0.0.0/24", "11.0.0.0/24 has no outside prefix: write add INSIDE OUTSIDE"),
        ("add 11.0.0.0/24 1.0.0.0/24 x", "'x' after the outside prefix"),
        ("add ::1 1.0.0.1", "'::1' is not an IPv4 prefix"),
        ("map 1.0.0.0 2.0.0.0", "'map' is not a kind of change: allowed are add, remove and replace"),
    ];
    let outcome = table.apply(&cases.map(|(line, _)| line));
    assert_eq!((outcome.made, outcome.refused.len()), (0, cases.len()));
    for ((line, expected), refused) in cases.iter().zip(&outcome.refused) {
        assert!(refused.message.contains(expected) && !refused.message.contains('\n'), "{line}: {refused}");
    }
    assert_eq!(table.entries(None, 9), before);
}

/// Every address that is translated out and back is the same, during changes. A mapping that is replaced is never
/// missing.
#[test]
fn a_reader_sees_both_sides_of_one_moment() {
    let table = table(&[("10.0.0.0/24", "1.0.0.0/24")]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut reader, done) = (table.reader(), &done);
        let reader = scope.spawn(move || {
            loop {
                let mappings = reader.read();
                let out = mappings.inside.translate(bits("10.0.0.5")).expect("it is always mapped");
                assert!([bits("1.0.0.5"), bits("2.0.0.5")].contains(&out), "{out:#x}");
                assert_eq!(mappings.outside.translate(out), Some(bits("10.0.0.5")));
                drop(mappings);
                if done.load(Ordering::Relaxed) {
                    break;
                }
                thread::yield_now();
            }
        });
        for round in 0..2_000 {
            let outside = if round % 2 == 0 { "2.0.0.0/24" } else { "1.0.0.0/24" };
            assert_eq!(table.apply(&[&format!("replace 10.0.0.0/24 {outside}")]).refused, []);
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("no panic");
    });
}

proptest! {
    #[test]
    fn mappings_agree_with_a_map(
        batches in prop::collection::vec(prop::collection::vec((0u8..3, 0u32..24, 0u32..24, 29u32..=32), 0..10), 1..20),
    ) {
        let table = table(&[]);
        let mut reader = table.reader();
        // For each start of an inside prefix: the length, and the start of the outside prefix.
        let mut model = BTreeMap::<u32, (u32, u32)>::new();
        let end = |(start, length): (u32, u32)| start + (1 << (32 - length));
        let overlap = |one: (u32, u32), other: (u32, u32)| one.0 < end(other) && other.0 < end(one);
        for batch in batches {
            let (mut lines, mut refused) = (Vec::new(), Vec::new());
            for (at, (verb, inside, outside, length)) in batch.into_iter().enumerate() {
                let start = |base: u32, number: u32| base + (number >> (32 - length) << (32 - length));
                let (inside, outside) = (start(0x0a00_0000, inside), start(0xc000_0000, outside));
                let text = |start: u32| format!("{}/{length}", Ipv4Addr::from_bits(start));
                let same = model.get(&inside).is_some_and(|(other, _)| *other == length);
                let fits = |model: &BTreeMap<u32, (u32, u32)>| model.iter().all(|(from, (other, to))| {
                    !overlap((*from, *other), (inside, length)) && !overlap((*to, *other), (outside, length))
                });
                let made = match verb {
                    0 => {
                        lines.push(format!("add {} {}", text(inside), text(outside)));
                        let fits = fits(&model);
                        if fits {
                            model.insert(inside, (length, outside));
                        }
                        fits
                    }
                    1 => {
                        lines.push(format!("remove {}", text(inside)));
                        if same {
                            model.remove(&inside);
                        }
                        same
                    }
                    _ => {
                        lines.push(format!("replace {} {}", text(inside), text(outside)));
                        let mut without = model.clone();
                        if same {
                            without.remove(&inside);
                        }
                        let fits = fits(&without);
                        if fits {
                            without.insert(inside, (length, outside));
                            model = without;
                        }
                        fits
                    }
                };
                if !made {
                    refused.push(at);
                }
            }
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let outcome = table.apply(&lines);
            prop_assert_eq!(outcome.refused.iter().map(|refused| refused.change).collect::<Vec<_>>(), refused);
            prop_assert_eq!((outcome.made + outcome.refused.len(), table.len()), (lines.len(), model.len()));
            let mappings = reader.read();
            for address in 0x0a00_0000..0x0a00_0020u32 {
                let before = model.range(..=address).next_back();
                let found = before.filter(|(from, (length, _))| address - *from < 1 << (32 - length));
                let out = found.map(|(from, (_, to))| to + (address - from));
                prop_assert_eq!(mappings.inside.translate(address), out);
                prop_assert_eq!(out.and_then(|out| mappings.outside.translate(out)), out.map(|_| address));
            }
            prop_assert_eq!(mappings.outside.len(), model.len());
        }
    }
}
