use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const TIMERS: Timers = Timers { reachable: 300, delay: 50, retransmit: 10, forget: 6_000, negative: 30, tries: 3 };

fn mac(number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

#[test]
fn addresses_of_both_families_are_restored() {
    for text in ["192.0.2.1", "2001:db8::1", "fe80::1"] {
        let address: IpAddr = text.parse().expect("an address");
        assert_eq!(Address::of(address).map(Address::ip), Some(address));
    }
    let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
    assert_eq!(Address::of(mapped), None, "it would have the key of 192.0.2.1");
}

#[test]
fn an_entry_is_packed_without_loss() {
    let states = [
        NeighbourState::Incomplete,
        NeighbourState::Reachable,
        NeighbourState::Stale,
        NeighbourState::Delay,
        NeighbourState::Probe,
        NeighbourState::Failed,
        NeighbourState::Permanent,
    ];
    for state in states {
        let entry = Entry { state, mac: mac(0x0102_03ff), tries: 15, rounds: 5, at: 77 };
        assert_eq!(unpack(pack(&entry), 77), Some(entry));
        assert_eq!(is_usable(pack(&entry)), state.is_usable());
    }
    assert_eq!(unpack(0, 0), None);
}

#[test]
fn requests_evict_no_entry_in_use() {
    let table = Neighbours::new(32, 7, TIMERS).expect("memory");
    let slots = table.groups() * GROUP;
    // All entries are in use.
    for number in 0..4 * slots as u32 {
        let address = Address::v4(number);
        if table.step_or_make(address, Event::Packet, 0).is_ok() {
            table.step(address, Event::Answered(Some(mac(number)), true), 0).expect("there");
        }
    }
    assert_eq!(table.all().len(), slots);
    let before = table.all();
    let refused =
        (0..10_000).filter(|n| table.step_or_make(Address::v4(1 << 20 | n), Event::Asked(mac(*n)), 1).is_err());
    assert_eq!(refused.count(), 10_000);
    assert_eq!(table.all(), before);
    // Packets may evict these entries, because the neighbour of a packet is needed now.
    assert!(table.step_or_make(Address::v4(1 << 30), Event::Packet, 1).expect("room").evicted);
    // Permanent entries are never evicted.
    let kept = Address::v4(1 << 31);
    table.put(kept, Entry::permanent(mac(1)), 0).expect("room");
    for number in 0..10_000 {
        let _ = table.step_or_make(Address::v4(number << 8), Event::Packet, 2);
    }
    assert_eq!(table.usable(kept, u64::MAX - 1).map(|value| value >> 16), Some(0x0200_0000_0001));
}

#[test]
fn a_sweep_removes_unused_entries() {
    let table = Neighbours::new(32, 7, TIMERS).expect("memory");
    table.step_or_make(Address::v4(1), Event::Asked(mac(1)), 0).expect("room");
    table.step_or_make(Address::v4(2), Event::Packet, 0).expect("room");
    table.put(Address::v4(3), Entry::permanent(mac(3)), 0).expect("room");
    let sweep = |now| (0..table.groups()).map(|group| table.sweep(group, now)).sum::<usize>();
    assert_eq!(sweep(5_999), 0);
    assert_eq!(sweep(6_000), 1, "the stale entry");
    assert_eq!(sweep(6_010), 1, "an entry whose worker is gone");
    assert_eq!(table.all().iter().map(|(address, _)| *address).collect::<Vec<_>>(), [Address::v4(3)]);
}

/// Readers see consistent entries: a MAC address always belongs to its address.
#[test]
fn readers_never_see_half_an_entry() {
    let table = Arc::new(Neighbours::new(16, 3, TIMERS).expect("memory"));
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 500_000 };
    std::thread::scope(|scope| {
        for writer in 0..2u32 {
            let table = Arc::clone(&table);
            scope.spawn(move || {
                for round in 0..rounds {
                    let number = (round * 7 + writer * 3) % 200;
                    let address = Address::v4(number);
                    if round % 5 == 0 {
                        table.remove(address);
                    } else if table.step_or_make(address, Event::Packet, 0).is_ok() {
                        let _ = table.step(address, Event::Answered(Some(mac(number)), true), 0);
                    }
                }
            });
        }
        let table = Arc::clone(&table);
        scope.spawn(move || {
            for round in 0..rounds {
                let number = round % 200;
                if let Some(value) = table.usable(Address::v4(number), 1) {
                    assert_eq!(unpack(value, 0).map(|entry| entry.mac), Some(mac(number)));
                }
            }
        });
    });
    let all = table.all();
    assert!(
        all.iter()
            .all(|(address, entry)| entry.mac == mac(address.0 as u32) || entry.state == NeighbourState::Incomplete)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// While there is room, the table behaves like a map of entries.
    #[test]
    fn it_is_a_map_of_entries(
        steps in prop::collection::vec((0u128..24, 0usize..6, 0u64..20), 1..300), secret: u64,
    ) {
        let table = Neighbours::new(1_024, secret, TIMERS).expect("memory");
        let mut model = HashMap::<u128, Entry>::new();
        let mut now = 0;
        for (number, choice, span) in steps {
            now += span;
            let address = Address::v6(number << 100 | number).expect("not mapped");
            let event = match choice {
                0 | 1 => Event::Packet,
                2 => Event::Answered(Some(mac(number as u32)), true),
                3 => Event::Asked(mac(number as u32 + 100)),
                4 => Event::Time,
                _ => {
                    prop_assert_eq!(table.remove(address), model.remove(&number).is_some());
                    continue;
                }
            };
            let makes = matches!(event, Event::Packet | Event::Asked(_));
            let changed =
                if makes { table.step_or_make(address, event, now) } else { table.step(address, event, now) };
            let made = match event {
                Event::Asked(mac) => Entry::stale(mac, now, &TIMERS),
                _ => Entry::wanted(),
            };
            if makes {
                model.entry(number).or_insert(made);
            }
            let expected = model.get_mut(&number).map(|entry| (entry.step(event, now, &TIMERS), *entry));
            prop_assert_eq!(changed.ok().map(|changed| (changed.action, changed.entry)), expected);
            if expected.is_some_and(|(action, _)| action == Action::Remove) {
                model.remove(&number);
            }
            for (number, entry) in &model {
                let address = Address::v6(number << 100 | number).expect("not mapped");
                prop_assert_eq!(table.look(address), Some(*entry));
                let usable = entry.state.is_usable() && now < entry.at;
                prop_assert_eq!(table.usable(address, now).is_some(), usable);
            }
            prop_assert_eq!(table.all().len(), model.len());
        }
    }
}
