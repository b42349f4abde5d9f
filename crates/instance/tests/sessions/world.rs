//! The two sides of all sessions of a pipeline: the packets that each side sends, and the packets that it must receive.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_packet::wire::checksum;
use schemars::JsonSchema;
use serde::Deserialize;

/// The number of sessions: a third each of TCP, UDP and ICMP queries.
const SESSIONS: usize = 120;
/// The number of times that each session opens and closes.
const LIVES: usize = 2;
/// The number of packets that a side sends before the other side sends.
const ROW: usize = 5;
/// The number of times that each side sends [`ROW`] packets.
const ROUNDS: usize = 4;
/// The destination of clients: a peer, or a balancer's service.
const PEER: [u8; 4] = [192, 0, 2, 10];
/// The prefix of translated addresses.
const POOL: [u8; 3] = [203, 0, 113];

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

/// A side of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Client,
    Server,
}

/// A step of a session: a packet of a side with TCP flags, or an ICMP error about the last received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStep {
    Packet(Side, u8),
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp = 6,
    Udp = 17,
    Icmp = 1,
}

/// An address with a port or an ICMP identifier.
pub type End = ([u8; 4], u16);

/// The fields of a frame.
#[derive(Debug)]
struct Shown {
    from: End,
    to: End,
    session: usize,
    number: usize,
    is_error: bool,
}

/// A session, as its two sides know it.
pub struct Talk {
    pub protocol: Protocol,
    pub script: Vec<SessionStep>,
    /// The number of sent steps.
    pub sent: usize,
    /// The number of arrived steps.
    pub arrived: usize,
    /// The ends of the present life of the session, as the server sees them: the client and the server.
    pub seen: Option<(End, End)>,
    /// The last frame that the server received.
    pub last: Vec<u8>,
}

/// All sessions of one pipeline.
#[derive(Default)]
pub struct World {
    pub talks: Vec<Talk>,
    /// The frames to be sent, by side and worker.
    pub pending: BTreeMap<(Side, usize), VecDeque<Vec<u8>>>,
    /// Whether the pipeline translates addresses.
    pub translated: bool,
    /// Whether the pipeline balances sessions.
    pub balanced: bool,
    /// The errors that were found.
    pub wrong: Vec<String>,
    /// The number of output packets by worker.
    pub by_worker: BTreeMap<usize, usize>,
    /// The number of workers.
    pub workers: usize,
}

static WORLDS: Mutex<BTreeMap<String, World>> = Mutex::new(BTreeMap::new());

pub fn worlds() -> MutexGuard<'static, BTreeMap<String, World>> {
    WORLDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn script(protocol: Protocol, errors: bool) -> Vec<SessionStep> {
    let packet = |side, flags| SessionStep::Packet(side, if protocol == Protocol::Tcp { flags } else { 0 });
    let mut all = Vec::new();
    for _ in 0..LIVES {
        if protocol == Protocol::Tcp {
            all.extend([packet(Side::Client, SYN), packet(Side::Server, SYN | ACK), packet(Side::Client, ACK)]);
        }
        for _ in 0..ROUNDS {
            all.extend([packet(Side::Client, ACK); ROW]);
            all.extend([packet(Side::Server, ACK); ROW]);
        }
        if errors {
            all.push(SessionStep::Error);
        }
        if protocol == Protocol::Tcp {
            all.extend([packet(Side::Client, FIN | ACK), packet(Side::Server, FIN | ACK), packet(Side::Client, ACK)]);
        }
    }
    all
}

impl Talk {
    fn side(&self, step: usize) -> Option<Side> {
        self.script.get(step).map(|step| match step {
            SessionStep::Packet(side, _) => *side,
            SessionStep::Error => Side::Server,
        })
    }

    /// Returns whether the step waits until all earlier steps have arrived. It does if the other side sent the step
    /// before, or if it is an error.
    fn waits(&self, step: usize) -> bool {
        step == 0 || self.side(step) != self.side(step - 1) || self.script[step] == SessionStep::Error
    }
}

/// Returns the client's end of a session.
fn client(session: usize) -> End {
    ([10, 0, (session / 40) as u8, (session % 40) as u8], 2_000 + session as u16)
}

fn ip(protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 20).to_be_bytes();
    let mut packet =
        [&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0][..], &from, &to, payload].concat();
    let sum = !checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_ne_bytes());
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], packet].concat()
}

fn icmp(message: [u8; 2], rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut whole = [&message[..], &[0, 0], &rest, payload].concat();
    let sum = !checksum::sum(&whole);
    whole[2..4].copy_from_slice(&sum.to_ne_bytes());
    whole
}

/// Returns a packet with a stamp: its session and its number.
fn frame(protocol: Protocol, (from, to): (End, End), side: Side, flags: u8, stamp: (usize, usize)) -> Vec<u8> {
    let stamp = [(stamp.0 as u32).to_be_bytes(), (stamp.1 as u32).to_be_bytes()].concat();
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let payload = match protocol {
        Protocol::Udp => [&ports[..], &[0, 16, 0, 0], &stamp].concat(),
        Protocol::Tcp => [&ports[..], &[0; 8], &[0x50, flags, 1, 0, 0, 0, 0, 0], &stamp].concat(),
        Protocol::Icmp => {
            // A query and its reply have the client's identifier.
            let identifier = (if side == Side::Client { from.1 } else { to.1 }).to_be_bytes();
            let icmp_type = if side == Side::Client { 8 } else { 0 };
            icmp([icmp_type, 0], [identifier[0], identifier[1], 0, 1], &stamp)
        }
    };
    ethernet(&ip(protocol as u8, from.0, to.0, &payload))
}

fn shown(frame: &[u8]) -> Shown {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
    let stamp = |at: usize| u32::from_be_bytes(address(at)) as usize;
    let end = frame.len();
    let (session, number) = (stamp(end - 8), stamp(end - 4));
    let is_error = frame[23] == 1 && frame[34] == 3;
    // For an error, the packet that it quotes.
    let ip = if is_error { 42 } else { 14 };
    let (from, to) = match frame[ip + 9] {
        1 => (word(ip + 24), word(ip + 24)),
        _ => (word(ip + 20), word(ip + 22)),
    };
    Shown { from: (address(ip + 12), from), to: (address(ip + 16), to), session, number, is_error }
}

impl World {
    pub fn new(protocols: &[Protocol], translated: bool, balanced: bool, workers: usize) -> Self {
        let talks = (0..SESSIONS).map(|session| {
            let protocol = protocols[session % protocols.len()];
            let script = script(protocol, protocol != Protocol::Icmp);
            Talk { protocol, script, sent: 0, arrived: 0, seen: None, last: Vec::new() }
        });
        Self { talks: talks.collect(), translated, balanced, workers, ..Self::default() }
    }

    pub fn is_over(&self) -> bool {
        !self.wrong.is_empty() || self.talks.iter().all(|talk| talk.arrived == talk.script.len())
    }

    /// Returns the frames that a side can send now.
    pub fn frames_to_send(&mut self, side: Side) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for (session, talk) in self.talks.iter_mut().enumerate() {
            while talk.side(talk.sent) == Some(side) && (!talk.waits(talk.sent) || talk.arrived == talk.sent) {
                let number = talk.sent;
                let own = (client(session), (PEER, 80));
                all.push(match (talk.script[number], side, talk.seen) {
                    (SessionStep::Packet(_, flags), Side::Client, _) => {
                        frame(talk.protocol, own, side, flags, (session, number))
                    }
                    (SessionStep::Packet(_, flags), Side::Server, Some((client, server))) => {
                        frame(talk.protocol, (server, client), side, flags, (session, number))
                    }
                    (SessionStep::Error, _, Some((client, _))) => {
                        // Port unreachable, from a router on the path (RFC 792).
                        let message = icmp([3, 3], [0; 4], &talk.last[14..]);
                        ethernet(&ip(1, [198, 51, 100, 1], client.0, &message))
                    }
                    _ => unreachable!("a server replies only to received packets"),
                });
                talk.sent += 1;
                // Few frames at a time, so that sessions take turns.
                if all.len() % 3 == 0 {
                    break;
                }
            }
        }
        all
    }

    /// Checks a frame that a side receives.
    pub fn receive_frame(&mut self, side: Side, data: &[u8]) {
        let Shown { from, to, session, number, is_error } = shown(data);
        let Some(talk) = self.talks.get_mut(session) else { return self.wrong.push(format!("session {session}")) };
        let expected = if is_error {
            // The error quotes the client's own packet.
            let (own, peer) = (client(session), (PEER, 80));
            let is_due = talk.script.get(talk.arrived) == Some(&SessionStep::Error) && side == Side::Client;
            is_due && from == own && (to == peer || talk.protocol == Protocol::Icmp)
        } else if side == Side::Client {
            let peer = if talk.protocol == Protocol::Icmp { (PEER, client(session).1) } else { (PEER, 80) };
            number == talk.arrived && to == client(session) && from == peer
        } else {
            talk.last = data.to_vec();
            let inside = self.translated || from == client(session);
            let outside = !self.translated || from.0.starts_with(&POOL);
            let server = self.balanced || to.0 == PEER;
            // All packets of one life of the session have the same ends.
            let life = talk.script.len() / LIVES;
            let same = number % life == 0 || talk.seen == Some((from, to));
            talk.seen = Some((from, to));
            number == talk.arrived && inside && outside && server && same
        };
        if !expected {
            let error = format!("{:?} {side:?} got {:?} as packet {}", talk.protocol, shown(data), talk.arrived);
            self.wrong.push(error);
        }
        talk.arrived += 1;
    }
}
