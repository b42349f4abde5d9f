//! The firewall beside a map of the states of connections, which must pass the same packets.

use std::collections::BTreeMap;

use forebay_packet::Batch;
use proptest::prelude::*;

use super::*;

/// Types of connections in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Type {
    #[default]
    Tcp,
    Udp,
    /// ICMP echo with the same identifier in both directions.
    Ping,
    /// GRE.
    Other,
}

/// Returns the type of a connection.
fn connection_type(which: u8) -> Type {
    [Type::Tcp, Type::Udp, Type::Ping, Type::Other][usize::from(which % 4)]
}

/// A packet of the model: its connection, TCP's flags, whether it is a reply (for a ping), and whether it has a tag.
type Sent = (u8, u8, bool, bool);

fn sent_frame((which, flags, reply, tagged): Sent, outward: bool, ipv6: bool) -> Vec<u8> {
    let (host, peer) = ((which, 4_000), THERE);
    let (from, to) = if outward { (host, peer) } else { (peer, host) };
    match connection_type(which) {
        Type::Tcp => frame(from, to, Some(flags), ipv6, tagged),
        Type::Udp => frame(from, to, None, ipv6, tagged),
        Type::Ping => ping(from, to, reply, ipv6),
        Type::Other => {
            let mut gre = frame(from, to, None, ipv6, tagged);
            gre[14 + 4 * usize::from(tagged) + if ipv6 { 6 } else { 9 }] = 47;
            gre
        }
    }
}

/// State of a connection in the model. All connections except pings are opened from inside. For TCP: whether the SYN
/// was answered, whether the handshake was complete, which sides have ended, whether there was a reset, and whether the
/// connection was established before. For UDP: whether it was answered.
#[derive(Clone, Copy, Default)]
struct Model {
    connection_type: Type,
    ends: u64,
    answered: bool,
    established: bool,
    closed: [bool; 2],
    reset: bool,
    was_established: bool,
}

impl Model {
    fn sees(&mut self, flags: u8, reply: bool, now: u64) {
        match self.connection_type {
            Type::Tcp => self.sees_tcp(flags, reply),
            _ => self.answered |= reply,
        }
        self.ends = now + self.lasts();
    }

    /// The state machine of RFC 6146 section 3.5.2.2.
    fn sees_tcp(&mut self, flags: u8, reply: bool) {
        let (syn, ended) = (flags & (SYN | ACK) == SYN, self.is_ended());
        if syn && !reply && self.is_over() {
            let was_established = self.established || self.was_established;
            *self = Self { was_established, ..Self::default() };
            return;
        }
        // Any packet except a reset leads back from the state TRANS.
        self.established |= self.reset && flags & RST == 0 && !ended && self.was_established;
        self.reset = flags & RST != 0;
        if self.reset || syn || ended {
            return;
        }
        if !self.established {
            self.established = self.answered && !reply && flags & (SYN | ACK) == ACK;
            self.established |= self.was_established && flags & SYN == 0;
            self.answered |= reply && flags & (SYN | ACK) == SYN | ACK;
        }
        self.closed[usize::from(reply)] |= flags & FIN != 0 && (self.established || self.answered);
    }

    fn is_ended(&self) -> bool {
        self.closed == [true; 2]
    }

    fn is_over(&self) -> bool {
        self.reset || self.is_ended()
    }

    fn lasts(&self) -> u64 {
        match self.connection_type {
            Type::Tcp if self.is_over() || !self.established => 240,
            Type::Tcp => 7_440,
            Type::Udp if self.answered => 300,
            Type::Udp => 120,
            Type::Ping => 60,
            Type::Other => 300,
        }
    }

    fn state(&self) -> &'static str {
        match self.connection_type {
            Type::Tcp if self.is_over() => "closing",
            Type::Tcp if self.established => "established",
            Type::Tcp => "opening",
            Type::Udp if self.answered => "established",
            Type::Udp => "unanswered",
            Type::Ping | Type::Other => "seen",
        }
    }
}

fn sent() -> impl Strategy<Value = Vec<Sent>> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST]);
    prop::collection::vec((0u8..12, flags, any::<bool>(), any::<bool>()), 1..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Packets of a few connections of every type, in batches, in both directions, at any time: the firewall passes the
    /// same packets as a map of states, and its table shows the same states.
    #[test]
    fn it_agrees_with_a_map_of_states(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (any::<bool>(), sent()).prop_map(Ok),
                // Spans that differ from the time-outs by more than the rounding.
                1 => prop::sample::select(vec![10u64, 65, 100, 125, 245, 310, 7_445]).prop_map(Err),
            ],
            1..30,
        ),
        ipv6: bool,
    ) {
        // Outside hosts may ping.
        let pings = [
            "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x01/0xff permit",
            "@::/0 ::/0 0 : 65535 0 : 65535 0x3a/0xff permit",
        ];
        let mut wall = Both::with(json!({}), json!({ "state": "fw", "rules": pings }));
        // By number, and whether a packet from outside opened it.
        let (mut model, mut now): (BTreeMap<(u8, bool), Model>, u64) = (BTreeMap::new(), 0);
        for step in steps {
            let (outward, packets) = match step {
                Err(seconds) => {
                    now += seconds;
                    wall.pass(seconds);
                    model.retain(|_, known| known.ends >= now);
                    continue;
                }
                Ok(packets) => packets,
            };
            let rig = if outward { &mut wall.out } else { &mut wall.back };
            let mut batch = Batch::with_capacity(packets.len());
            for packet in &packets {
                batch.push(rig.packet(&sent_frame(*packet, outward, ipv6))).expect("room");
            }
            for (packet, gate) in packets.iter().zip(rig.process(&mut batch)) {
                let (which, flags, is_reply, _) = *packet;
                let connection_type = connection_type(which);
                // A request belongs to the sender's connection, a reply to the receiver's.
                let inwards = connection_type == Type::Ping && is_reply == outward;
                let expected = match (model.get_mut(&(which, inwards)), connection_type) {
                    (Some(known), _) => {
                        known.sees(flags, !outward, now);
                        Gate::FIRST
                    }
                    (None, Type::Tcp) if flags != SYN => NO_SESSION,
                    (None, Type::Ping) if is_reply => NO_SESSION,
                    (None, Type::Tcp | Type::Udp | Type::Other) if !outward => DENIED,
                    (None, _) => {
                        let mut new = Model { connection_type, ..Model::default() };
                        new.sees(flags, false, now);
                        model.insert((which, inwards), new);
                        Gate::FIRST
                    }
                };
                prop_assert_eq!(gate, Some(expected), "{:?} at {}", packet, now);
            }
        }
        let lines = chosen(&mut wall.out, "connections", "all");
        let shown: BTreeMap<_, _> = lines
            .iter()
            .map(|line| ((word(line, "from").to_owned(), word(line, "to").to_owned()), word(line, "state")))
            .collect();
        let known = model.iter().map(|((which, inwards), known)| {
            let end = |end: u8, port: u16| {
                let (narrow, wide) = addresses(end);
                let port = if known.connection_type == Type::Ping { 4_000 } else { port };
                match (ipv6, known.connection_type) {
                    (false, Type::Other) => std::net::Ipv4Addr::from(narrow).to_string(),
                    (false, _) => format!("{}:{port}", std::net::Ipv4Addr::from(narrow)),
                    (true, Type::Other) => std::net::Ipv6Addr::from(wide).to_string(),
                    (true, _) => format!("[{}]:{port}", std::net::Ipv6Addr::from(wide)),
                }
            };
            let (host, peer) = (end(*which, 4_000), end(THERE.0, THERE.1));
            let ends = if *inwards { (peer, host) } else { (host, peer) };
            (ends, known.state())
        });
        prop_assert_eq!((shown, lines.len()), (known.collect(), model.len()));
    }
}
