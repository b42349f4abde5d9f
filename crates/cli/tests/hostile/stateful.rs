//! A pipeline of all functions with sessions, in both directions. It gets hostile frames first, then valid sessions,
//! which must work.

use std::collections::BTreeMap;

use forebay_pipeline::Source;

use crate::frames::{checksum, reversed};
use crate::ports::lock;
use crate::{Run, parameters, seeds};

/// The tables are small, so that sessions are evicted. Return traffic enters through its own feed.
const PIPELINE: &str = "
ports:
  inside: { generator: { source: 10.0.0.0/24, destination: [192.0.2.10/32, 198.51.100.0/24], destination_port: 80 } }
  outside: { generator: { source: 198.51.100.0/24, destination: 203.0.113.0/28 } }
  gnb: { generator: { source: 10.60.0.1/32, tunnel: { gtpu: { source: 192.0.2.10, destination: 192.0.2.1, \
      teid: 4097 } } } }
  network: { generator: { source: 198.51.100.0/24, destination: 10.60.0.1/32 } }
  site: { generator: { destination: 10.60.0.0/16 } }
  tunnel: { generator: { destination: 192.0.2.1/32 } }
  out: { sink: }
state:
  known: { connections: { sessions: 500, half_open: 200 } }
  web:
    balancer:
      sessions: 500
      services:
        - { address: 192.0.2.10, protocol: udp, backends: [{ address: 10.9.0.1 }, { address: 10.9.0.2, weight: 2 }] }
        - { address: 192.0.2.10, protocol: tcp, port: 80, backends: [{ address: 10.9.0.1, port: 8080 }] }
  nat1: { nat: { pool: 203.0.113.0/28, sessions: 500 } }
  users:
    pdu_sessions:
      sessions: ['10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001 qfi=9 ambr-up=50Mbps bearer qfi=1 gbr \
          mbr-down=1Mbps filter=10,udp,port=5060']
      rules: ['1 udp port=53']
modules:
  whole: { reassemble: { timeout: 10s, datagrams: 64, held: 128 } }
  fw-out: { firewall: { state: known, rules: ['@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit'] } }
  lb: { balance: { state: web } }
  nat-out: { nat_out: { state: nat1, hairpin: true } }
  again: { reassemble: { timeout: 10s, datagrams: 64, held: 128 } }
  nat-in: { nat_in: { state: nat1 } }
  lb-back: { balance_back: { state: web } }
  fw-in: { firewall: { state: known } }
  decap: { gtpu_decap: { teids: any, local: [192.0.2.1], keep_addresses: true } }
  up: { upf_uplink: { state: users, error_indications: 100 } }
  down: { upf_downlink: { state: users } }
  encap: { gtpu_encap: { source: 192.0.2.1, by: session, qfi: session } }
  seal: { esp_encrypt: { source: 192.0.2.1, associations: ['0x1001 key=000102030405060708090a0b0c0d0e0fdeadbeef \
      peer=192.0.2.10 for=10.60.0.0/16'] } }
  unseal: { esp_decrypt: { associations: ['0x1001 key=000102030405060708090a0b0c0d0e0fdeadbeef for=10.60.0.0/16'] } }
pipeline:
  - inside -> whole -> fw-out -> lb -> nat-out
  - nat-out[0] -> out
  - nat-out[hairpin] -> drop
  - outside -> again -> nat-in -> lb-back -> fw-in -> out
  - gnb -> decap
  - decap[0] -> up
  - up[0] -> out
  - up[reply] -> out
  - decap[reply] -> out
  - decap[control] -> drop
  - network -> down -> encap -> out
  - site -> seal -> out
  - tunnel -> unseal -> out
";

/// Indices of feeds, in the order of the configuration's ports.
const INSIDE: usize = 0;
const OUTSIDE: usize = 1;

/// Returns a UDP packet of session `at`, to the balanced service or to another destination.
fn probe(at: u16) -> Vec<u8> {
    let to = if at.is_multiple_of(2) { [192, 0, 2, 10] } else { [198, 51, 100, 9] };
    let from = [10, 0, 1, at as u8];
    let mut udp = [(7_000 + at).to_be_bytes(), 80u16.to_be_bytes(), 24u16.to_be_bytes(), [0, 0]].concat();
    udp.extend([&at.to_be_bytes()[..], &[0x5a; 14]].concat());
    let sum = checksum(&[&pseudo(from, to), &udp]);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 17, 0, 0];
    ip.extend(from);
    ip.extend(to);
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &udp].concat()
}

fn pseudo(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    [&from[..], &to, &[0, 17, 0, 24]].concat()
}

/// An address and a port.
type Endpoint = ([u8; 4], u16);

/// Returns a frame's source, destination, and the session number in its payload, after checking its checksums.
fn endpoints(frame: &[u8]) -> (Endpoint, Endpoint, u16) {
    let four = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes");
    let two = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    assert_eq!(checksum(&[&frame[14..34]]), 0, "the header's checksum: {frame:02x?}");
    assert_eq!(checksum(&[&pseudo(four(26), four(30)), &frame[34..58]]), 0, "the datagram's checksum: {frame:02x?}");
    ((four(26), two(34)), (four(30), two(36)), two(42))
}

#[test]
fn sessions_work_after_mutated_frames() {
    let (share, seed) = parameters();
    let source = Source::new(PIPELINE, "stateful", "");
    let mut run = Run::with("stateful", &source, &seeds(), share, seed.wrapping_add(9_000));
    run.all_mutants(share);
    assert!(run.sessions.len() >= 4, "tables of both IP versions, of NAT and of the balancer");
    let opened = |run: &Run| -> u64 {
        let opened_in_table = |(_, counters, names): &(_, std::sync::Arc<[forebay_measure::Counter]>, Vec<String>)| {
            counters[names.iter().position(|name| name == "opened").expect("it exists")].get()
        };
        run.sessions.iter().map(opened_in_table).sum()
    };
    assert!(opened(&run) > share / 1_000, "hostile frames open sessions, too: {}", opened(&run));
    const PROBES: u16 = 200;
    let probes: Vec<_> = (0..PROBES).map(probe).collect();
    // Sends all twice, so that packets of existing sessions are tested, too.
    for _ in 0..2 {
        lock(&run.shared).watched = Some(Vec::new());
        lock(&run.shared).queued[INSIDE].extend(probes.iter().cloned());
        run.until(1_000_000_000);
        let out = lock(&run.shared).watched.replace(Vec::new()).expect("it was set");
        assert_eq!(out.len(), usize::from(PROBES), "all packets leave");
        let mut mappings = BTreeMap::new();
        for frame in &out {
            let (from, to, session) = endpoints(frame);
            assert_eq!(from.0[..3], [203, 0, 113], "{from:?}");
            let expected: &[[u8; 4]] =
                if session.is_multiple_of(2) { &[[10, 9, 0, 1], [10, 9, 0, 2]] } else { &[[198, 51, 100, 9]] };
            assert!(expected.contains(&to.0), "{session}: {to:?}");
            assert_eq!(mappings.insert(from, session), None, "two sessions have {from:?}");
        }
        lock(&run.shared).queued[OUTSIDE].extend(out.iter().map(|frame| reversed(frame)));
        run.until(1_000_000_000);
        let back = lock(&run.shared).watched.take().expect("it was set");
        assert_eq!(back.len(), usize::from(PROBES), "all replies leave");
        for frame in &back {
            let (from, to, session) = endpoints(frame);
            let (client, server, _) = endpoints(&probes[usize::from(session)]);
            assert_eq!((from, to), (server, client), "session {session}");
        }
    }
    let census = run.end();
    assert!(census.dropped > share / 10 && census.out > 0, "{census:?}");
}
