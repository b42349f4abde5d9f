//! Tests faults of an interface and of its frames. The port reports and counts faults. A fault ends when its cause
//! ends.

use forebay_graph::LinkState;

use super::*;
use crate::interface::testing::make_pair;

#[test]
fn frames_that_find_the_ring_full_are_counted() {
    with_pair("af_packet: frames_that_find_the_ring_full", || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let mut a = Bench::new(&json!({ "interface": "va", "ring": { "blocks": 2, "block": "4KiB" } }));
        let sent: Vec<_> = (0..500).map(|number| frame(number, 60)).collect();
        assert_eq!(b.send(&sent), 0);
        // The last frames are in order, and the others are counted.
        let mut received = 0;
        let all = a.wait(|a| {
            received += a.take().len() as u64;
            received > 0 && received + a.counters.dropped.get() == 500
        });
        assert!(all, "{received} received, {} dropped", a.counters.dropped.get());
        assert!(a.counters.dropped.get() >= 400, "{}", a.counters.dropped.get());
        // Most frames find room again, but one block may still be open.
        let dropped = a.counters.dropped.get();
        let mut received = Vec::new();
        assert_eq!(b.send(&sent[..10]), 0);
        assert!(a.wait(|a| {
            received.extend(a.take());
            received.len() as u64 + a.counters.dropped.get() - dropped == 10
        }));
        assert!(!received.is_empty() && received.iter().all(|frame| sent[..10].contains(frame)));
        assert_eq!(a.port.close(), Ok(()));
    });
}

#[test]
fn frames_too_long_for_a_packet_or_a_block_are_dropped_and_counted() {
    with_pair("af_packet: frames_too_long", || {
        assert!(ip("link set va mtu 9000") && ip("link set vb mtu 9000"));
        let refusal = open_in(&mut environment(), "it", &json!({ "interface": "va" })).err().expect("refused");
        assert_eq!(
            refusal.to_string(),
            "interface: the interface 'va' has an MTU of 9000 bytes, so its frames have up to 9014 bytes, but a packet \
             holds 2048 bytes: set `pool: { frame: 9014 }`, or run `ip link set va mtu 2034`"
        );
        let mut around = environment();
        around.frame = 9_216;
        let mut open = |name: &str, params: &Value| {
            let mut bench = Bench::over(open_in(&mut around, name, params).expect("a port"));
            bench.take();
            bench
        };
        let mut b = open("vb", &json!({ "interface": "vb" }));
        let mut a = open("va", &json!({ "interface": "va", "ring": { "block": "8KiB" } }));
        b.pool = pool(9_216);
        assert_eq!(a.pool.frame_limit(), 2_048);
        // The longest frame that fits into a packet, a frame too long for a packet, a frame too long for a block, and a
        // short frame.
        let sent = [frame(1, 2_048), frame(2, 2_049), frame(3, 9_000), frame(4, 60)];
        assert_eq!(b.send(&sent), 0);
        assert_eq!(a.await_frames(2), [sent[0].clone(), sent[3].clone()]);
        assert_eq!(a.counters.dropped.get(), 2);
        let counts =
            [&a.counters.oversize, &a.counters.longest, &a.counters.over_block].map(forebay_measure::Counter::get);
        assert_eq!(counts, [1, 2_049, 1]);
        // The first frame is too long for the interface, and the third is too short for the kernel. Both remain in the
        // batch, in order.
        let sent = [frame(1, 9_015), frame(2, 60), vec![1; 13], frame(3, 9_014)];
        for frame in &sent {
            let mut packet = b.pool.take().expect("a chunk");
            assert!(packet.write(frame));
            b.batch.push(packet).expect("room");
        }
        b.port.send(&mut b.batch, Tsc.now());
        let refused: Vec<_> = b.batch.iter().map(forebay_packet::Packet::len).collect();
        assert_eq!((refused, b.counters.errors.get()), (vec![9_015, 13], 2));
        a.pool = pool(9_216);
        a.wait(|a| !a.take().is_empty());
    });
}

#[test]
fn a_link_that_comes_up_again_is_used_again() {
    with_pair("af_packet: a_link_that_goes_down", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        assert_eq!(b.send(&[frame(1, 60)]), 0);
        assert_eq!(a.await_frames(1).len(), 1);
        assert!(ip("link set vb down"));
        assert_eq!(b.send(&[frame(2, 60), frame(3, 60)]), 2, "refused");
        // One end is down, the other has no carrier.
        assert!(b.wait(|b| {
            b.take();
            b.counters.errors.get() == 1
        }));
        assert!(a.wait(|a| {
            a.take();
            a.counters.errors.get() == 1
        }));
        assert_eq!(b.port.watch.fault().as_deref(), Some("the interface 'vb' is down"));
        assert_eq!(a.port.watch.fault().as_deref(), Some("the interface 'va' has no link"));
        assert!(ip("link set vb up"));
        assert!(a.wait(|a| {
            a.take();
            b.take();
            a.port.watch.fault().is_none() && b.port.watch.fault().is_none()
        }));
        assert_eq!(b.send(&[frame(4, 60)]), 0);
        assert_eq!(a.await_frames(1), [frame(4, 60)]);
        assert_eq!(a.send(&[frame(5, 60)]), 0);
        assert_eq!(b.await_frames(1), [frame(5, 60)]);
        assert_eq!((a.counters.errors.get(), b.counters.errors.get()), (1, 1));
        let links = [&a.counters.link, &b.counters.link];
        assert_eq!(links.map(|link| (link.state(), link.downs(), link.losses())), [(LinkState::Up, 1, 0); 2]);
        assert_eq!((a.port.close(), b.port.close()), (Ok(()), Ok(())));
    });
}

/// Regression test: a run that ended before the kernel reported the carrier ended with an error.
#[test]
fn an_interface_that_is_down_at_the_end_is_a_fault_and_a_missing_carrier_is_none() {
    with_pair("af_packet: an_interface_that_is_down_at_the_end", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        assert!(ip("link set vb down"));
        assert!(a.wait(|a| {
            a.take();
            b.take();
            a.counters.link.state() == LinkState::NoCarrier && b.counters.link.state() == LinkState::Down
        }));
        assert_eq!(b.port.watch.last_fault().as_deref(), Some("the interface 'vb' is down"));
        assert_eq!(a.port.close(), Ok(()));
        // The result is the same if the port has not checked the interface since.
        assert!(ip("link set vb up"));
        assert_eq!(b.port.watch.fault().as_deref(), Some("the interface 'vb' is down"));
        assert_eq!(b.port.close(), Ok(()));
    });
}

#[test]
fn a_recreated_interface_is_used_again() {
    with_pair("af_packet: an_interface_that_is_deleted", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        for round in 1..=3 {
            // The traffic continues during this time.
            assert!(ip("link del va"));
            assert_eq!(b.send(&frames(100)), 100, "refused");
            let gone = Some("the interface 'va' is gone");
            assert!(a.wait(|a| {
                a.take();
                b.take();
                a.port.watch.fault().as_deref() == gone && b.port.watch.fault().is_some()
            }));
            assert_eq!((a.counters.errors.get(), b.counters.errors.get()), (round, round));
            assert_eq!((a.counters.link.state(), a.counters.link.losses()), (LinkState::Gone, round));
            if round == 3 {
                break;
            }
            assert!(make_pair());
            assert!(a.wait(|a| {
                a.take();
                b.take();
                a.port.watch.fault().is_none() && b.port.watch.fault().is_none()
            }));
            assert_eq!(b.send(&frames(20)), 0);
            assert_eq!(a.await_frames(20), frames(20));
            // Promiscuous mode is still on: this destination belongs to no interface.
            let mut foreign = frame(9, 60);
            foreign[..6].fill(6);
            assert_eq!(a.send(&[&foreign]), 0);
            assert_eq!(b.await_frames(1), [foreign]);
        }
        assert_eq!(a.port.close(), Err("the interface 'va' is gone".to_owned()));
        assert_eq!(a.port.in_flight(), 0);
    });
}

/// The interface is missing for less time than the interval between two checks.
#[test]
fn an_interface_replaced_between_two_checks_is_used_again() {
    with_pair("af_packet: an_interface_that_is_replaced", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        let index = a.port.watch.last().expect("the interface exists").index;
        assert!(ip("link del va"));
        assert!(ip(&format!(
            "link add name va index {index} address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b"
        )));
        assert!(["va", "vb"].iter().all(|name| ip(&format!("link set {name} up"))));
        assert!(a.wait(|a| {
            b.take();
            let _ = b.send(&[frame(1, 60)]);
            !a.take().is_empty()
        }));
        assert_eq!((a.counters.errors.get(), b.counters.errors.get()), (1, 1));
    });
}

#[test]
fn invalid_ports_are_rejected_with_the_cause() {
    let refusal = |params: Value| open_in(&mut environment(), "it", &params).err().expect("refused").to_string();
    assert_eq!(refusal(json!({ "interface": "va", "poll": "10ns" })), "poll: 10ns: allowed are 1us to 1s");
    let ring = |ring: Value| refusal(json!({ "interface": "va", "ring": ring }));
    assert_eq!(ring(json!({ "blocks": 1 })), "ring.blocks: 1: allowed are 2 to 4096");
    assert_eq!(ring(json!({ "block": "6KiB" })), "ring.block: 6KiB: allowed are powers of two from 4KiB to 4MiB");
    assert_eq!(ring(json!({ "retire": "1500us" })), "ring.retire: 1.5ms: allowed are 1ms to 1s, in whole milliseconds");
    let large = ring(json!({ "block": "4MiB", "blocks": 4096 }));
    assert_eq!(large, "ring.blocks: 4096: allowed are 2 to 256 with blocks of 4MiB (1GiB in total)");
    let send = refusal(json!({ "interface": "va", "send_ring": 33 }));
    assert_eq!(send, "send_ring: 33: allowed are powers of two from 32 to 32768");
    let nowhere = refusal(json!({ "interface": "va", "namespace": "no-such-namespace" }));
    assert!(nowhere.starts_with("namespace: no network namespace at /run/netns/no-such-namespace: "), "{nowhere}");
    let mut around = environment();
    around.simulated = true;
    let simulated = open_in(&mut around, "it", &json!({ "interface": "va" })).err().expect("refused").to_string();
    assert!(simulated.contains("simulated"), "{simulated}");
    with_pair("af_packet: invalid_ports_are_rejected", || {
        let refusal = |name: &str| {
            let refused = open_in(&mut environment(), "it", &json!({ "interface": name }));
            refused.err().expect("refused").to_string()
        };
        assert_eq!(refusal("c"), "interface: there is no interface 'c': `ip link` lists the interfaces");
        assert!(ip("link set va down"));
        assert_eq!(refusal("va"), "interface: the interface 'va' is down: run `ip link set va up`");
    });
}
