//! The function compared with a linear scan, and its errors for wrong parameters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use forebay_graph::{Rig, SetupEnvironment, StateDeclaration, Table as _};
use forebay_packet::Batch;
use forebay_tables::lpm::IpPrefix;
use forebay_units::Frequency;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Returns a frame to `address` with `tags` VLAN tags.
fn frame(address: IpAddr, tags: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for _ in 0..tags {
        frame.extend([0x81, 0, 0, 7]);
    }
    match address {
        IpAddr::V4(address) => {
            frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
            frame.extend(address.octets());
        }
        IpAddr::V6(address) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64]);
            frame.extend([0x20; 16]);
            frame.extend(address.octets());
        }
    }
    frame
}

fn v4(text: &str) -> Vec<u8> {
    frame(IpAddr::V4(text.parse().expect("an address")), 0)
}

fn v6(text: &str) -> Vec<u8> {
    frame(IpAddr::V6(text.parse().expect("an address")), 0)
}

fn rig(params: Value) -> Rig {
    Rig::of::<IpLookup>(&params).unwrap_or_else(|error| panic!("{params}: {error}"))
}

fn refused(params: Value) -> Vec<(String, String)> {
    let error = Rig::of::<IpLookup>(&params).err().unwrap_or_else(|| panic!("{params} is accepted"));
    error.faults.into_iter().map(|fault| (fault.path, fault.message)).collect()
}

fn environment() -> SetupEnvironment {
    SetupEnvironment::new(Frequency::new(1e9))
}

#[test]
fn the_longest_prefix_wins_in_both_families() {
    let mut rig = rig(json!({ "routes": ["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3", "2001:db8:1::/48 0"] }));
    assert_eq!(rig.declared.gates, ["0", "1", "2", "3"]);
    for (frame, gate) in [
        (v4("10.2.0.1"), Gate::out(1)),
        (v4("10.1.0.1"), Gate::out(2)),
        (v4("11.1.0.1"), NO_ROUTE_DROP),
        (v6("2001:db8::1"), Gate::out(3)),
        (v6("2001:db8:1::1"), Gate::out(0)),
        (v6("2001:db9::1"), NO_ROUTE_DROP),
    ] {
        assert_eq!(rig.run(&frame), (gate, frame));
    }
}

#[test]
fn frames_that_are_not_ip_or_cut_short_are_dropped() {
    let mut rig = rig(json!({ "routes": ["0.0.0.0/0 0", "::/0 0"], "miss": 0 }));
    let arp = [[2; 12].as_slice(), &[8, 6], &[0; 28]].concat();
    assert_eq!(rig.run(&arp).0, NOT_IP);
    assert_eq!(rig.run(&[]).0, NOT_IP);
    for whole in [v4("10.0.0.1"), v6("::1")] {
        assert_eq!(rig.run(&whole).0, Gate::FIRST);
        for length in 0..whole.len() {
            assert_eq!(rig.run(&whole[..length]).0, NOT_IP, "{length} bytes");
        }
    }
}

#[test]
fn packets_without_a_route_go_where_configured() {
    let routes = json!(["10.0.0.0/8 1"]);
    let miss = |miss: Value| rig(json!({ "routes": routes, "miss": miss }));
    assert_eq!(miss(json!("drop")).run(&v4("11.0.0.1")).0, NO_ROUTE_DROP);
    let mut third = miss(json!(3));
    assert_eq!(third.declared.gates, ["0", "1", "2", "3"], "the miss is a gate too");
    assert_eq!(third.run(&v4("11.0.0.1")).0, Gate::out(3));
    assert_eq!(third.run(&v6("::1")).0, Gate::out(3), "without an IPv6 table there is no route");
    let wrong = json!({ "routes": routes, "next_hops": 2, "miss": 2 });
    assert_eq!(refused(wrong), [("miss".to_owned(), "next hop 2 is out of range: allowed are 0 to 1".to_owned())]);
    assert!(refused(json!({ "routes": routes, "miss": "pass" }))[0].1.contains("'drop' and the number of a gate"));
}

#[test]
fn gates_are_as_many_as_configured_or_needed() {
    assert_eq!(rig(json!({ "routes": ["::/0 2"], "next_hops": 5 })).declared.gates.len(), 5);
    assert_eq!(rig(json!({ "routes": ["::/0 2"] })).declared.gates.len(), 3);
    assert_eq!(rig(json!({ "routes": [] })).declared.gates.len(), 1);
    for wrong in [0, MAX_GATES as u32 + 1] {
        let faults = refused(json!({ "routes": [], "next_hops": wrong }));
        assert_eq!(faults, [("next_hops".to_owned(), format!("{wrong} next hops: allowed are 1 to {MAX_GATES}"))]);
    }
}

/// Returns the gate of one packet, and its word `next_hop` afterwards.
fn run_for_word(rig: &mut Rig, word: Word, frame: &[u8]) -> (Gate, u32) {
    let mut batch = Batch::with_capacity(1);
    batch.push(rig.packet(frame)).expect("room");
    let gate = rig.process(&mut batch)[0].expect("no packet is held");
    (gate, batch[0].word(word))
}

#[test]
fn the_next_hop_goes_to_the_word() {
    for (to, masked) in [("word", true), ("both", false)] {
        let mut around = environment();
        let params = json!({ "routes": ["10.0.0.0/8 5", "2001:db8::/32 6"], "to": to, "miss": 7 });
        let mut rig = Rig::within::<IpLookup>(&params, &mut around).expect("parameters");
        assert_eq!(rig.declared.gates.len(), if masked { 1 } else { 8 });
        let word = around.words[IpLookup::WRITES[0]];
        for (frame, next_hop) in [(v4("10.0.0.1"), 5), (v6("2001:db8::1"), 6), (v4("11.0.0.1"), 7), (v6("::1"), 7)] {
            let gate = if masked { Gate::FIRST } else { Gate::out(next_hop) };
            assert_eq!(run_for_word(&mut rig, word, &frame), (gate, u32::from(next_hop)), "{to}");
        }
        assert_eq!(run_for_word(&mut rig, word, &[0; 60]).0, NOT_IP);
    }
    let mut around = environment();
    let many = json!({ "routes": ["10.0.0.0/8 70000"], "to": "word" });
    let mut rig =
        Rig::within::<IpLookup>(&many, &mut around).expect("a word can hold more next hops than there are gates");
    assert_eq!(run_for_word(&mut rig, around.words["next_hop"], &v4("10.0.0.1")), (Gate::FIRST, 70_000));
    assert_eq!(run_for_word(&mut rig, around.words["next_hop"], &v4("11.0.0.1")).0, NO_ROUTE_DROP);
    let mut around = environment();
    Rig::within::<IpLookup>(&json!({ "routes": [] }), &mut around).expect("parameters");
    assert!(around.words.is_empty(), "no word is reserved unless one is written");
}

#[test]
fn its_replayed_effect_equals_processing() {
    for to in ["gate", "word", "both"] {
        for miss in [json!("drop"), json!(1)] {
            let mut around = environment();
            let params = json!({ "routes": ["10.0.0.0/8 2", "2001:db8::/32 3"], "to": to, "miss": miss });
            let mut rig = Rig::within::<IpLookup>(&params, &mut around).expect("parameters");
            let word = around.words.get("next_hop").copied();
            for frame in [v4("10.0.0.1"), v4("11.0.0.1"), v6("2001:db8::1"), v6("::1"), vec![1; 60], vec![]] {
                let mut packet = rig.packet(&frame);
                let gate = rig
                    .function
                    .effect(&mut packet)
                    .expect("it always has an effect")
                    .replay(&mut packet)
                    .expect("the effect applies");
                assert_eq!((gate, packet.data().to_vec()), rig.run(&frame));
                if let (Some(word), forebay_graph::Decision::Out(_)) = (word, gate.decision()) {
                    assert_eq!((gate, packet.word(word)), run_for_word(&mut rig, word, &frame));
                }
            }
        }
    }
}

/// Returns a setup environment whose files lie in a folder of this test.
fn folder(name: &str, file: &str, contents: &str) -> SetupEnvironment {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ip_lookup-tests").join(name);
    std::fs::create_dir_all(&folder).expect("target is writable");
    std::fs::write(folder.join(file), contents).expect("target is writable");
    let mut environment = environment();
    environment.files.base = folder;
    environment
}

#[test]
fn files_are_read_and_every_wrong_line_is_named() {
    let mut around = folder("good", "routes.txt", "# sites\n10.0.0.0/8 1\n2001:db8::/32 2\n");
    let mut rig = Rig::within::<IpLookup>(&json!({ "routes": "routes.txt" }), &mut around).expect("a good file");
    assert_eq!(rig.run(&v4("10.0.0.1")).0, Gate::out(1));
    assert_eq!(rig.run(&v6("2001:db8::1")).0, Gate::out(2));

    let mut around = folder("bad", "routes.txt", "10.0.0.0/8 1\n10.0.0.1/8 1\n\n11.0.0.0/8 4\n10.0.0.0/8 2\n");
    let params = json!({ "routes": "routes.txt", "next_hops": 4 });
    let error = Rig::within::<IpLookup>(&params, &mut around).err().expect("three mistakes");
    assert_eq!(
        error.to_string(),
        "routes: routes.txt:2: 10.0.0.1/8 has bits set after its first 8; the prefix is 10.0.0.0/8\n\
         routes: routes.txt:4: next hop \"4\" is not allowed; allowed are 0 to 3\n\
         routes: routes.txt:5: 10.0.0.0/8 goes to 2, but line 1 sends it to 1; allowed is one next hop for a prefix"
    );
    let error = Rig::within::<IpLookup>(&json!({ "routes": "none.txt" }), &mut around).err().expect("no such file");
    assert!(error.to_string().starts_with("routes: cannot read 'none.txt': "), "{error}");
    let mut around = folder("long", "routes.txt", &"?\n".repeat(1_000));
    let error = Rig::within::<IpLookup>(&json!({ "routes": "routes.txt" }), &mut around).err().expect("all wrong");
    assert_eq!((error.faults.len(), &*error.faults[20].message), (21, "980 further errors"));
}

#[test]
fn wrong_entries_of_a_list_are_named() {
    let list = json!(["10.0.0.0/8 1", "10.0.0.0/8 2", "x 1", "11.0.0.0/8 1\n12.0.0.0/8 1"]);
    let faults = refused(json!({ "routes": list }));
    assert_eq!(faults[0].0, "routes[1]");
    assert!(faults[0].1.contains("but routes[0] sends it to 1"), "{faults:?}");
    assert_eq!([&faults[1].0, &faults[2].0], ["routes[2]", "routes[3]"]);
    assert_eq!(faults.len(), 3);
}

#[test]
fn unknown_keys_and_forms_are_refused() {
    assert!(refused(json!({ "routes": [], "mis": 1 }))[0].1.contains("unknown field `mis`"));
    assert!(refused(json!({ "routes": { "synthetic": 1, "next_hops": 1, "sed": 1 } }))[0].1.contains("a file's name"));
    assert!(refused(json!({ "routes": 7 }))[0].1.contains("a file's name"));
    assert!(refused(json!({ "routes": [], "to": "gates" }))[0].1.contains("`both`"));
    assert_eq!(refused(json!({}))[0].1, "give either 'routes' or 'state'");
    assert_eq!(refused(json!({ "routes": [], "state": "a" }))[0].1, "give either 'routes' or 'state'");
}

#[test]
fn the_examples_build() {
    let example: Value = serde_saphyr::from_str(IpLookup::EXAMPLE).expect("YAML");
    let mut rig = rig(example);
    assert_eq!(rig.run(&v4("10.0.0.1")).0, Gate::out(1));
    assert_eq!(rig.run(&v6("::1")).0, Gate::out(3));
    let example: Value = serde_saphyr::from_str(<RouteTables as forebay_graph::DeclareState>::EXAMPLE).expect("YAML");
    let mut around = environment();
    StateDeclaration::of::<RouteTables>().build(&example, &mut Setup::new("table", &mut around)).expect("it builds");
}

#[test]
fn modules_share_a_state() {
    let mut around = environment();
    let declaration = StateDeclaration::of::<RouteTables>();
    let state = declaration.build(&json!({ "routes": ["10.0.0.0/8 5"] }), &mut Setup::new("table", &mut around));
    around.objects.states.insert("table".to_owned(), state.expect("routes"));
    for _ in 0..2 {
        let mut rig = Rig::within::<IpLookup>(&json!({ "state": "table" }), &mut around).expect("parameters");
        assert_eq!(rig.declared.gates.len(), 6);
        assert_eq!(rig.run(&v4("10.0.0.1")).0, Gate::out(5));
    }
    let mut error = |params| Rig::within::<IpLookup>(&params, &mut around).err().expect("refused").to_string();
    let few = error(json!({ "state": "table", "next_hops": 5 }));
    assert_eq!(few, "state: the state 'table' has next hop 5: allowed are 0 to 4");
    assert!(error(json!({ "state": "tabel" })).starts_with("state: no state is called 'tabel'"));
}

#[test]
fn synthetic_routes_cover_the_benchmark_ranges() {
    let params = |n: u32, k: u32| json!({ "routes": { "synthetic": n, "next_hops": k, "seed": 3, "ipv6": n } });
    for (n, k) in [(1, 1), (3, 2), (700, 16), (5_000, 1_000)] {
        let source: Source = serde_json::from_value(params(n, k)["routes"].clone()).expect("a source");
        let mut around = environment();
        let routes = source.routes(u32::MAX - 1, &Setup::new("a", &mut around)).expect("routes");
        assert_eq!((routes.ipv4.len(), routes.ipv6.len()), (n as usize, n as usize));
        let mut rig = rig(params(n, k));
        assert_eq!(rig.declared.gates.len(), k as usize);
        let mut seen = std::collections::HashSet::new();
        for part in (0..=0xffffu16).step_by(16) {
            let ipv4 = Ipv4Addr::from_bits(0xc612_0000 | u32::from(part) << 1);
            let ipv6 = Ipv6Addr::new(0x2001, 2, 0, part, 0, 0, 0, 1);
            for address in [IpAddr::V4(ipv4), ipv6.into()] {
                let gate = rig.run(&frame(address, 0)).0;
                assert_ne!(gate, NO_ROUTE_DROP, "{address}");
                seen.insert(gate);
            }
        }
        assert_eq!(seen.len(), k as usize, "every next hop is used");
    }
    assert_eq!(refused(params(5_000_000, 1))[0].0, "routes.synthetic");
    assert_eq!(refused(params(1, 0))[0].0, "routes.next_hops");
    assert_eq!(refused(params(1, MAX_GATES as u32 + 1))[0].1, format!("16385 next hops: allowed are 1 to {MAX_GATES}"));
}

#[test]
fn ipv6_takes_no_memory_without_routes() {
    let mut around = environment();
    let load = |source: Value, around: &mut SetupEnvironment| {
        let source: Source = serde_json::from_value(source).expect("a source");
        RouteTables::of(&Loaded::read(&source, 9, &Setup::new("a", around)).expect("routes"))
    };
    let has_ipv6 = |tables: &RouteTables| tables.reader(9).expect("next hops").0.read().ipv6.is_some();
    let without = load(json!(["10.0.0.0/8 1"]), &mut around);
    assert!(!has_ipv6(&without));
    assert!(has_ipv6(&load(json!(["::/0 1"]), &mut around)));
    without.apply(&["add 11.0.0.0/8 1"]);
    assert!(!has_ipv6(&without));
    without.apply(&["add ::/0 1"]);
    assert!(has_ipv6(&without));
}

/// A kind of frame.
#[derive(Clone, Debug)]
enum FrameType {
    Ip(IpAddr, usize),
    Arp,
    Truncated(IpAddr, usize),
}

/// Addresses that are close to each other.
fn address() -> impl Strategy<Value = IpAddr> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(128), Just(255)];
    prop_oneof![
        4 => [byte(), byte(), byte(), byte()].prop_map(|bytes| IpAddr::V4(bytes.into())),
        1 => proptest::array::uniform16(byte()).prop_map(|bytes| IpAddr::V6(bytes.into())),
    ]
}

fn frame_type() -> impl Strategy<Value = FrameType> {
    prop_oneof![
        8 => (address(), 0usize..=2).prop_map(|(address, tags)| FrameType::Ip(address, tags)),
        1 => Just(FrameType::Arp),
        1 => (address(), any::<usize>()).prop_map(|(address, cut)| FrameType::Truncated(address, cut)),
    ]
}

fn prefix() -> impl Strategy<Value = IpPrefix> {
    use forebay_tables::lpm::Prefix;
    (address(), 0u32..=128).prop_map(|(address, length)| match address {
        IpAddr::V4(address) => IpPrefix::V4(Prefix::truncated(address.to_bits(), length / 4)),
        IpAddr::V6(address) => IpPrefix::V6(Prefix::truncated(address.to_bits(), length)),
    })
}

/// Returns the next hop found by a linear scan.
fn scan(routes: &[(IpPrefix, u16)], address: IpAddr) -> Option<u16> {
    let matching = routes.iter().filter_map(|&(prefix, next_hop)| match (prefix, address) {
        (IpPrefix::V4(prefix), IpAddr::V4(address)) if prefix.contains(address.to_bits()) => {
            Some((prefix.length(), next_hop))
        }
        (IpPrefix::V6(prefix), IpAddr::V6(address)) if prefix.contains(address.to_bits()) => {
            Some((prefix.length(), next_hop))
        }
        _ => None,
    });
    matching.max_by_key(|&(length, _)| length).map(|(_, next_hop)| next_hop)
}

proptest! {
    #[test]
    fn mixed_batches_agree_with_a_linear_scan(
        routes in proptest::collection::btree_map(prefix(), 0u16..6, 0..40),
        frames in prop_oneof![
            3 => vec(frame_type(), 1..=256),
            1 => vec(address().prop_map(|to| FrameType::Ip(to, 0)), 1..=256),
        ],
        miss in proptest::option::of(0u16..6),
        to in prop_oneof![Just("gate"), Just("word"), Just("both")],
    ) {
        let routes: Vec<_> = routes.into_iter().collect();
        let list: Vec<_> = routes.iter().map(|(prefix, next_hop)| format!("{prefix} {next_hop}")).collect();
        let miss_text = miss.map_or(json!("drop"), |miss| json!(miss));
        let params = json!({ "routes": list, "next_hops": 6, "miss": miss_text, "to": to });
        let mut around = environment();
        let mut rig = Rig::within::<IpLookup>(&params, &mut around).expect("parameters");
        let word = around.words.get("next_hop").copied();
        let mut batch = Batch::with_capacity(MAX_BATCH);
        for frame_type in &frames {
            let bytes = match frame_type {
                FrameType::Ip(address, tags) => [frame(*address, *tags), vec![0; 8]].concat(),
                FrameType::Arp => [[2; 12].as_slice(), &[8, 6], &[0; 28]].concat(),
                FrameType::Truncated(address, cut) => {
                    let whole = frame(*address, 0);
                    whole[..cut % whole.len()].to_vec()
                }
            };
            batch.push(rig.packet(&bytes)).expect("room");
        }
        let gates = rig.process(&mut batch);
        for (index, frame_type) in frames.iter().enumerate() {
            let expected = match frame_type {
                FrameType::Ip(address, _) => scan(&routes, *address).or(miss).ok_or(NO_ROUTE_DROP),
                _ => Err(NOT_IP),
            };
            let gate = match expected {
                Ok(next_hop) if to != "word" => Gate::out(next_hop),
                Ok(_) => Gate::FIRST,
                Err(drop) => drop,
            };
            prop_assert_eq!(gates[index], Some(gate), "{:?}", frame_type);
            if let (Some(word), Ok(next_hop)) = (word, expected) {
                prop_assert_eq!(batch[index].word(word), u32::from(next_hop), "{:?}", frame_type);
            }
        }
    }
}
