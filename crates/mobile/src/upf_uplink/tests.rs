//! Error Indications about tunnels that `gtpu_decap` knows but that have no session: byte by byte, as tshark reads
//! them, and within their limit for any packets.

use forebay_frames::{FROM, HERE, THERE, TO, ipv4, outer, outer_ipv6, tagged, tshark};
use forebay_graph::{DeclareState, Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_packet::wire::gtpu::{Message, Signal as ParsedSignal, kind};
use forebay_units::{Frequency, Ticks};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::gtpu_decap::GtpuDecap;

/// The uplink of a user plane function: `gtpu_decap` and `upf_uplink`.
struct Gateway {
    decap: Rig,
    up: Rig,
}

impl Gateway {
    fn new(per_second: u32, keep: bool) -> Self {
        let mut all = SetupEnvironment::new(Frequency::new(1e9));
        let sessions = json!({ "sessions": ["10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001"] });
        let params = serde_json::from_value(sessions).expect("parameters");
        let state = PduSessions::new(params, &mut Setup::new("users", &mut all)).expect("a session");
        all.objects.states.insert("users".to_owned(), Arc::new(state));
        let decap = Rig::within::<GtpuDecap>(&json!({ "teids": "any", "keep_addresses": keep }), &mut all);
        let up = Rig::within::<UpfUplink>(&json!({ "state": "users", "error_indications": per_second }), &mut all);
        Self { decap: decap.expect("parameters"), up: up.expect("a state") }
    }

    /// Runs a frame through both functions. Returns the gate of the second function, or of the first if the frame does
    /// not reach the second, and the frames that both created.
    fn run(&mut self, frame: &[u8]) -> (Gate, Vec<Vec<u8>>) {
        let mut batch = Batch::with_capacity(1);
        batch.push(self.decap.packet(frame)).expect("room");
        let mut gate = self.decap.process(&mut batch)[0].expect("nothing is held");
        if gate == Gate::FIRST {
            gate = self.up.process(&mut batch)[0].expect("nothing is held");
        }
        let made = [&mut self.decap, &mut self.up].into_iter().flat_map(Rig::emitted);
        let made = made.inspect(|(_, gate)| assert_eq!(*gate, REPLY)).map(|(packet, _)| packet.data().to_vec());
        (gate, made.collect())
    }

    fn count(&self, name: &str) -> u64 {
        let groups = &self.up.declared.counters;
        let group = groups.iter().find(|group| group.heading == "error_indications").expect("the counters exist");
        group.counters[group.names.iter().position(|other| other == name).expect("a counter")].get()
    }
}

fn g_pdu(teid: u32, inner: &[u8]) -> Vec<u8> {
    [&[0x30, 255][..], &(inner.len() as u16).to_be_bytes(), &teid.to_be_bytes(), inner].concat()
}

/// A frame with a PDU Session Container, which takes the slow path.
fn g_pdu_of_flow(teid: u32, inner: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, 0, 0x85, 1, 0x10, 9, 0][..], inner].concat();
    [&[0x34, 255][..], &(body.len() as u16).to_be_bytes(), &teid.to_be_bytes(), &body].concat()
}

fn stranger() -> Vec<u8> {
    outer(0, (40_000, 2_152), false, &g_pdu(0xaabb_ccdd, &ipv4(0, b"data")[14..]))
}

#[test]
fn senders_in_tunnels_without_a_session_get_indications_within_the_limit() {
    for message in [g_pdu, g_pdu_of_flow] {
        let mut gateway = Gateway::new(3, true);
        let frame = outer(0, (40_000, 2_152), false, &message(0xaabb_ccdd, &ipv4(0, b"data")[14..]));
        let mut made = Vec::new();
        for _ in 0..10 {
            let (gate, more) = gateway.run(&frame);
            assert_eq!(gate, UNKNOWN_TEID);
            made.extend(more);
        }
        assert_eq!((made.len(), gateway.up.created()), (3, vec![3]));
        assert_eq!((gateway.count("over_limit"), gateway.count("no_address")), (7, 0));
        for answer in made {
            assert_eq!(answer[..14], [&FROM[..], &TO, &[0x08, 0x00]].concat());
            assert_eq!(answer[26..34], [THERE, HERE].concat());
            assert_eq!(answer[34..38], [0x08, 0x68, 0x08, 0x68], "to the registered port (TS 29.281 section 4.4.2.3)");
            assert_eq!(
                answer[42..54],
                [0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0],
                "with a sequence number (section 5.1)"
            );
            assert_eq!(answer[54..], [16, 0xaa, 0xbb, 0xcc, 0xdd, 133, 0, 4, 192, 0, 2, 10]);
            assert!(answer.len() < frame.len(), "the answer is shorter than the packet");
        }
        // A third of a second later, one more indication is sent.
        (gateway.decap.now, gateway.up.now) = (Ticks(333_333_333), Ticks(333_333_333));
        assert_eq!([gateway.run(&frame), gateway.run(&frame)].map(|(_, made)| made.len()), [1, 0]);
    }
}

#[test]
fn tshark_reads_the_indication() {
    let (_, made) = Gateway::new(1, true).run(&stranger());
    let fields = ["gtp.message", "gtp.seq_number", "gtp.teid_data", "gtp.gsn_ipv4", "ip.checksum.status"];
    let Some(rows) = tshark(&made, &[&fields[..], &["udp.checksum.status", "_ws.malformed"]].concat()) else { return };
    assert_eq!(rows, [["0x1a", "0x0000", "0xaabbccdd", "192.0.2.10", "1", "1", ""]]);
}

#[test]
fn without_the_parameter_no_indication_is_sent() {
    let mut silent = Gateway::new(0, true);
    assert_eq!(silent.run(&stranger()), (UNKNOWN_TEID, Vec::new()));
    assert!(silent.up.declared.gates.len() < 2, "{:?}", silent.up.declared.gates);
    assert_eq!(Gateway::new(1, true).up.declared.gates, ["0", "reply"]);
}

/// No indication goes to an unknown address, or to an address that does not belong to a single host.
#[test]
fn forged_and_unknown_senders_are_counted_and_get_no_indication() {
    let mut gateway = Gateway::new(1_000, true);
    let with = |changes: &[(usize, u8)]| {
        let mut frame = stranger();
        changes.iter().for_each(|(at, value)| frame[*at] = *value);
        frame
    };
    let six = outer_ipv6(0, 0, (1, 2_152), &g_pdu(0xaabb_ccdd, &ipv4(0, b"data")[14..]));
    let forged = [
        with(&[(26, 224)]),
        with(&[(26, 0), (27, 0), (28, 0), (29, 0)]),
        with(&[(26, 127)]),
        with(&[(26, 255), (27, 255), (28, 255), (29, 255)]),
        with(&[(30, 239)]),
        with(&[(6, 1)]),
        with(&[(0, 0xff)]),
        six,
    ];
    for (number, frame) in forged.iter().enumerate() {
        assert_eq!(gateway.run(frame), (UNKNOWN_TEID, Vec::new()), "{number}");
        assert_eq!(gateway.count("no_address"), 1 + number as u64);
    }
    let mut blind = Gateway::new(1_000, false);
    assert_eq!(blind.run(&stranger()), (UNKNOWN_TEID, Vec::new()));
    assert_eq!(blind.count("no_address"), 1);
    // The tag is removed with the outer header, so the answer is untagged.
    assert_eq!(gateway.run(&tagged(&stranger())).1.len(), 1);
}

/// Two gateways connected to each other never answer an indication, because it is not a T-PDU.
#[test]
fn an_indication_is_never_answered() {
    let (mut one, mut other) = (Gateway::new(1_000, true), Gateway::new(1_000, true));
    let (_, made) = one.run(&stranger());
    assert_eq!(made.len(), 1);
    let control = Gate::out(2);
    assert_eq!(other.run(&made[0]), (control, Vec::new()));
    // An indication that names a tunnel is not answered either.
    let indication = [&[0x32, 26, 0, 16][..], &7u32.to_be_bytes(), &made[0][50..]].concat();
    assert_eq!(other.run(&outer(0, (2_152, 2_152), true, &indication)), (control, Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, failure_persistence: None, ..ProptestConfig::default() })]

    /// A frame causes at most one indication, and only if it is a T-PDU. The indication goes to the sender and is not
    /// longer than the frame. The total stays within the limit.
    #[test]
    fn any_frame_causes_at_most_one_indication(
        frames in vec(
            (any::<bool>(), any::<u32>(), vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), 30usize..120), 1..20,
        ),
        per_second in 0u32..8,
    ) {
        let mut gateway = Gateway::new(per_second, true);
        let mut all = 0;
        for (of_flow, teid, changes, cut) in frames {
            let message = if of_flow { g_pdu_of_flow } else { g_pdu };
            let mut frame = outer(0, (40_000, 2_152), false, &message(teid | 1 << 20, &ipv4(0, b"data")[14..]));
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            frame.truncate(cut);
            let before = gateway.up.created()[0];
            let (gate, made) = gateway.run(&frame);
            let indications = gateway.up.created()[0] - before;
            all += indications;
            prop_assert!(indications == 0 || gate == UNKNOWN_TEID);
            if indications == 1 {
                let answer = made.last().expect("an indication");
                prop_assert!(answer.len() <= frame.len());
                let message = Message::parse(&answer[42..]).expect("a message");
                prop_assert_eq!(message.kind, kind::ERROR_INDICATION);
                prop_assert_eq!(answer[30..34].to_vec(), frame[26..30].to_vec(), "the indication goes to its sender");
                let is_valid = matches!(ParsedSignal::parse(&message), Some(ParsedSignal::ErrorIndication { .. }));
                prop_assert!(is_valid, "{:02x?}", answer);
            }
        }
        prop_assert!(all <= u64::from(per_second));
    }
}
