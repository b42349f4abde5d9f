//! Tests of `flowbits` against a simple model: a map from sessions to their bits.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::*;

const SECOND: u64 = 1_000_000_000;
/// The time-out of sessions, in seconds.
const LASTS: u64 = 100;

/// The module that opens sessions, and the address family of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Firewall4,
    Firewall6,
    Nat,
}

/// The two directions through a module that opens sessions, and rules that see the packets before or after it.
struct Path {
    environment: SetupEnvironment,
    world: World,
    /// The module for packets of the openers, and for packets of the peers.
    ways: [Rig; 2],
    ids: Rig,
    /// The address and port of each session outside the translation.
    outside: HashMap<u16, ([u8; 4], u16)>,
}

impl Path {
    fn new(world: World, rules: &[String]) -> Self {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let lasts = format!("{LASTS}s");
        let timeouts = json!({ "udp_unanswered": lasts, "udp": lasts });
        let ways = if world == World::Nat {
            let params = json!({ "pool": "192.0.2.1", "timeouts": timeouts });
            let params = serde_json::from_value(params).expect("parameters");
            let nat = Nat::new(params, &mut Setup::new("fw", &mut environment));
            let nat = nat.unwrap_or_else(|error| panic!("{error}"));
            environment.objects.states.insert("fw".to_owned(), Arc::new(nat));
            let state = json!({ "state": "fw" });
            [Rig::within::<NatOut>(&state, &mut environment), Rig::within::<NatIn>(&state, &mut environment)]
        } else {
            firewall_with(&json!({ "timeouts": timeouts }), &mut environment);
            [(); 2].map(|()| Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut environment))
        };
        let ways = ways.map(|way| way.unwrap_or_else(|error| panic!("{error}")));
        let ids = Bench::ids(rules, &mut environment);
        Self { environment, world, ways, ids, outside: HashMap::new() }
    }

    fn reload(&mut self, rules: &[String]) {
        let now = self.ids.now;
        self.ids = Bench::ids(rules, &mut self.environment);
        self.ids.now = now;
    }

    fn wait(&mut self, seconds: u64) {
        let [out, back] = &mut self.ways;
        for rig in [out, back, &mut self.ids] {
            rig.now += Ticks(seconds * SECOND);
        }
    }

    /// Sends a packet of a session. Returns the rules that report it, before or after the module that opens sessions.
    fn run(&mut self, session: u16, reply: bool, payload: &[u8], front: bool) -> BTreeSet<u32> {
        let frame = if self.world == World::Firewall6 {
            let (inside, peer) = ([0xfd; 16], [0xfe; 16]);
            let ((from, to), ports) = match reply {
                false => ((inside, peer), (4_000 + session, 53)),
                true => ((peer, inside), (53, 4_000 + session)),
            };
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(from, to, 64).udp(ports.0, ports.1);
            builder.write(&mut frame, payload).expect("memory");
            frame
        } else if let (true, Some((address, port))) = (reply, self.outside.get(&session)) {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(PEER.0, *address, 64).udp(PEER.1, *port);
            builder.write(&mut frame, payload).expect("memory");
            frame
        } else {
            datagram(session, reply, payload)
        };
        let before = front.then(|| reported(&mut self.ids, &frame));
        let (gate, after) = self.ways[usize::from(reply)].run(&frame);
        assert_eq!(gate, Gate::FIRST);
        if self.world == World::Nat && !reply {
            let address = after[26..30].try_into().expect("four");
            self.outside.insert(session, (address, u16::from_be_bytes([after[34], after[35]])));
        }
        before.unwrap_or_else(|| reported(&mut self.ids, &after)).into_iter().collect()
    }
}

/// The time of the last packet and the bits of each session.
#[derive(Default)]
struct Model(HashMap<u16, (u64, HashSet<usize>)>);

const BITS: usize = 3;
/// Operations on a bit, as `flowbits` writes them.
const OPERATIONS: [(&str, &str); 9] = [
    ("set", "set,B,all.of.them"),
    ("unset", "unset,B"),
    ("toggle", "toggle,B"),
    ("take", "isset,B; flowbits:unset,B"),
    ("reset", "reset"),
    ("one", "setx,B,all.of.them"),
    ("flip", "toggle,all,all.of.them"),
    ("clear", "unset,all,all.of.them"),
    ("none", ""),
];

/// Returns rules with all operations on all bits, and with tests. Each `turn` gives another order and other bits
/// between them.
fn rules(turn: usize) -> Vec<String> {
    let mut rules = Vec::new();
    let tests = |options: &str, sid| on("", options, sid).replace("content:\"\"; ", "");
    for bit in 0..BITS {
        for (at, (name, options)) in OPERATIONS.iter().enumerate().filter(|(_, (_, options))| !options.is_empty()) {
            let options = options.replace('B', &format!("b{bit}"));
            rules.push(on(&format!("<{name}{bit}>"), &options, (10 * at + bit + 1) as u32));
        }
        rules.push(tests(&format!("isset,b{bit}"), 100 + bit as u32));
    }
    let conditions = ["isset,b0&b1", "isset,b0|b2", "isnotset,b0&b1", "isnotset,b0|b2", "isset,any,all.of.them"];
    for (sid, options) in (200..).zip(conditions) {
        rules.push(tests(options, sid));
    }
    rules.rotate_left(turn * 5 % 16);
    for extra in 0..turn * 40 {
        rules.insert(extra, on(&format!("never {extra}"), &format!("set,extra.{extra}"), 1_000 + extra as u32));
    }
    rules
}

impl Model {
    fn knows(&self, now: u64, session: u16) -> bool {
        self.0.get(&session).is_some_and(|(last, _)| now - last <= LASTS)
    }

    fn run(&mut self, now: u64, session: u16, at: usize, bit: usize, front: bool) -> BTreeSet<u32> {
        let known = self.knows(now, session);
        let (last, bits) = self.0.entry(session).or_default();
        *last = now;
        if !known {
            bits.clear();
        }
        // After the module that opens sessions, the session of the first packet exists.
        let mut none = HashSet::new();
        let has_row = known || !front;
        let bits = if has_row { bits } else { &mut none };
        let mut reports = BTreeSet::from([(10 * at + bit + 1) as u32]);
        match OPERATIONS[at].0 {
            _ if !has_row => {
                if ["take", "none"].contains(&OPERATIONS[at].0) {
                    reports.clear();
                }
            }
            "set" => drop(bits.insert(bit)),
            "unset" => drop(bits.remove(&bit)),
            "toggle" if !bits.remove(&bit) => drop(bits.insert(bit)),
            "take" if bits.remove(&bit) => {}
            "reset" | "clear" => bits.clear(),
            "one" => *bits = HashSet::from([bit]),
            "flip" => *bits = (0..BITS).filter(|bit| !bits.contains(bit)).collect(),
            "take" | "none" => reports.clear(),
            _ => {}
        }
        reports.extend(bits.iter().map(|bit| 100 + *bit as u32));
        let [zero, one, two] = [0, 1, 2].map(|bit| bits.contains(&bit));
        let conditions = [zero && one, zero || two, !(zero && one), !(zero || two), zero || one || two];
        reports.extend((200..).zip(conditions).filter(|(_, conditions)| *conditions).map(|(sid, _)| sid));
        reports
    }
}

fn worlds() -> impl Strategy<Value = World> {
    prop_oneof![Just(World::Firewall4), Just(World::Firewall6), Just(World::Nat)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Sessions end, other sessions reuse their entries, and rules are reloaded. Each session has the bits of the
    /// model.
    #[test]
    fn sessions_have_the_bits_of_the_model(
        world in worlds(),
        steps in vec((0u16..5, 0..OPERATIONS.len(), 0..BITS, any::<(bool, bool)>(), 0..24u8), 1..60),
    ) {
        let mut path = Path::new(world, &rules(0));
        let (mut model, mut now) = (Model::default(), 0);
        for (session, at, bit, (reply, front), event) in steps {
            match event {
                0 => {
                    path.wait(1_000);
                    now += 1_000;
                }
                1..=3 => path.reload(&rules(usize::from(event) - 1)),
                _ => {
                    path.wait(1);
                    now += 1;
                }
            }
            // The translation drops replies before the opener's first packet.
            let reply = reply && (world != World::Nat || model.knows(now, session));
            let payload = format!("<{}{bit}>", OPERATIONS[at].0);
            let reports = path.run(session, reply, payload.as_bytes(), front);
            prop_assert_eq!(reports, model.run(now, session, at, bit, front), "{} in front: {}", payload, front);
        }
    }
}
