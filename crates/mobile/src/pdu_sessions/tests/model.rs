//! Changes, packets and counts in random order, compared with a map of sessions.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Set {
        user: u8,
        teid: u32,
        voice: bool,
        replace: bool,
    },
    Remove(u8),
    Up {
        teid: u32,
        user: u8,
        port: u16,
    },
    Down {
        user: u8,
        port: u16,
    },
    /// Removes the counts of a user.
    Take(u8),
    List,
}

fn step() -> impl Strategy<Value = Operation> {
    let user = || 1u8..7;
    let teid = || 1u32..8;
    let port = || prop::sample::select(vec![53u16, 80, 5_060]);
    prop_oneof![
        3 => (user(), teid(), any::<bool>(), any::<bool>())
            .prop_map(|(user, teid, voice, replace)| Operation::Set { user, teid, voice, replace }),
        2 => user().prop_map(Operation::Remove),
        4 => (teid(), user(), port()).prop_map(|(teid, user, port)| Operation::Up { teid, user, port }),
        4 => (user(), port()).prop_map(|(user, port)| Operation::Down { user, port }),
        1 => user().prop_map(Operation::Take),
        1 => Just(Operation::List),
    ]
}

#[derive(Default)]
struct Model {
    sessions: BTreeMap<u8, (u32, bool)>,
    /// Packets in the uplink and the downlink, by user and rule.
    usage: BTreeMap<(u8, u32), [u64; 2]>,
    /// The number of all packets that passed, and the number of packets whose counts were removed.
    passed: u64,
    taken: u64,
}

const LIMIT: usize = 4;

proptest! {
    #[test]
    fn it_is_a_map_of_sessions(steps in prop::collection::vec(step(), 1..120)) {
        let rules = ["1 udp port=53", "2 udp port=5060"];
        let mut bench = Bench::new(json!({ "limit": LIMIT, "rules": rules, "ended": 1_000 }));
        let mut model = Model::default();
        let rule = |port| match port { 53 => 1, 5_060 => 2, _ => 0 };
        for step in steps {
            match step {
                Operation::Set { user, teid, voice, replace } => {
                    let exists = model.sessions.contains_key(&user);
                    let free = model.sessions.iter().all(|(other, session)| *other == user || session.0 != teid);
                    let may = free && (exists || model.sessions.len() < LIMIT) && (replace || !exists);
                    let verb = if replace { "replace" } else { "add" };
                    let further = if voice { " bearer qfi=1 filter=1,udp,port=5060" } else { "" };
                    let peer = format!("peer=192.0.2.10 peer-teid={} qfi=9{further}", teid + 100);
                    let line = format!("{verb} 10.60.0.{user} teid={teid} {peer}");
                    prop_assert_eq!(bench.change(&line).is_ok(), may, "{}", line);
                    if may {
                        model.sessions.insert(user, (teid, voice));
                    }
                }
                Operation::Remove(user) => {
                    let existed = model.sessions.remove(&user).is_some();
                    prop_assert_eq!(bench.change(&format!("remove 10.60.0.{user}")).is_ok(), existed);
                    model.usage.retain(|(other, _), _| *other != user);
                }
                Operation::Up { teid, user, port } => {
                    let owner = model.sessions.iter().find(|(_, session)| session.0 == teid).map(|(owner, _)| *owner);
                    let gate = match owner {
                        None => UNKNOWN_TEID,
                        Some(owner) if owner != user => SPOOFED,
                        Some(_) => Gate::FIRST,
                    };
                    prop_assert_eq!(bench.up(teid, &from_user(user, port)), gate);
                    if gate == Gate::FIRST {
                        model.usage.entry((user, rule(port))).or_default()[0] += 1;
                        model.passed += 1;
                    }
                }
                Operation::Down { user, port } => {
                    let (gate, tunnel) = bench.down(&to_user(user, port));
                    match model.sessions.get(&user) {
                        None => prop_assert_eq!(gate, UNKNOWN_USER),
                        Some((teid, voice)) => {
                            let qfi = if *voice && port == 5_060 { 1 } else { 9 };
                            prop_assert_eq!((gate, tunnel), (Gate::FIRST, Tunnel { peer: GNB, teid: teid + 100, qfi }));
                            model.usage.entry((user, rule(port))).or_default()[1] += 1;
                            model.passed += 1;
                        }
                    }
                }
                Operation::Take(user) => {
                    let made = bench.table("usage").apply(&[&format!("remove 10.60.0.{user}")]).made;
                    prop_assert_eq!(made == 1, model.sessions.contains_key(&user));
                    let used = model.usage.iter().filter(|((other, _), _)| *other == user);
                    model.taken += used.map(|(_, n)| n[0] + n[1]).sum::<u64>();
                    model.usage.retain(|(other, _), _| *other != user);
                }
                Operation::List => {
                    let listed = bench.list("sessions");
                    prop_assert_eq!(listed.len(), model.sessions.len());
                    for (line, user) in listed.iter().zip(model.sessions.keys()) {
                        let begins = format!("10.60.0.{user} ");
                        prop_assert!(line.starts_with(&begins));
                    }
                }
            }
            let mut shown: BTreeMap<(u8, u32), [u64; 2]> = BTreeMap::new();
            for line in bench.list("usage") {
                let (user, counts) = counts(&line);
                shown.extend(counts.into_iter().map(|(rule, packets)| ((user, rule), packets)));
            }
            prop_assert_eq!(&shown, &model.usage);
        }
        // Every packet that passed is counted in one of the tables.
        let ended = bench.list("ended");
        let ended = ended.iter().map(|line| counts(line.split_once(' ').expect("a number").1).1);
        let ended: u64 = ended.flatten().map(|(_, packets)| packets[0] + packets[1]).sum();
        let current: u64 = model.usage.values().map(|packets| packets[0] + packets[1]).sum();
        prop_assert_eq!(current + ended + model.taken, model.passed);
    }
}

/// Parses a line of counts: the last number of the user's address, and by rule the packets in both directions. The
/// number of bytes must be 100 times the number of packets.
fn counts(line: &str) -> (u8, Vec<(u32, [u64; 2])>) {
    let words: Vec<&str> = line.split(' ').collect();
    let user = words[0].rsplit('.').next().expect("an address").parse().expect("a number");
    let packets = |word: &str| {
        let (packets, bytes) = word.split_once('=').and_then(|(_, it)| it.split_once('/')).expect("counts");
        let packets: u64 = packets.parse().expect("a number");
        assert_eq!(format!("{}B", packets * 100), bytes);
        packets
    };
    let rules = words[1..].chunks(3);
    let rules = rules.map(|words| (words[0][5..].parse().unwrap_or(0), [packets(words[1]), packets(words[2])]));
    (user, rules.collect())
}
