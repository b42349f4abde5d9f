//! Tests frames of the host's own network stack: partial checksums, and sessions spread over queues.

use super::*;

/// Frames of this host's own stack have partial checksums, because they are left to a device that does not exist.
#[test]
fn checksums_that_the_host_leaves_to_a_device_are_completed() {
    alone("checksums_that_the_host_leaves_to_a_device_are_completed", || {
        ip("address add 192.0.2.1/24 dev a0").expect("set");
        ip("neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a0").expect("set");
        let socket = std::net::UdpSocket::bind("192.0.2.1:7000").expect("an address");
        let (pool, mut partial) = (pool(), 0);
        for mode in ["native", "generic"] {
            for checksums in ["leave", "auto", "complete"] {
                let params = json!({ "interface": "a1", "mode": mode, "checksums": checksums });
                let (mut port, counters) = open(&params).expect("opened");
                let mut right = 0;
                for at in 0..32u8 {
                    socket.send_to(&[at; 33], "192.0.2.2:7001").expect("sent");
                    let frame = next_udp(&mut port, &pool);
                    let sliced = etherparse::SlicedPacket::from_ethernet(&frame).expect("a frame");
                    let (Some(etherparse::NetSlice::Ipv4(ip)), Some(etherparse::TransportSlice::Udp(udp))) =
                        (sliced.net, sliced.transport)
                    else {
                        panic!("no UDP over IPv4: {frame:?}")
                    };
                    let header = ip.header().to_header();
                    let udp_header = udp.to_header();
                    let expected = udp_header.calc_checksum_ipv4(&header, udp.payload()).expect("short");
                    assert_eq!(udp.payload(), [at; 33]);
                    right += usize::from(expected == udp_header.checksum);
                }
                assert_eq!(counters.errors.get(), 0);
                if checksums == "leave" {
                    partial += 32 - right;
                } else {
                    assert_eq!(right, 32, "{mode} {checksums}");
                }
            }
        }
        // This checks that the frames have partial checksums. Without them, this test would not test the parameter.
        assert_eq!(partial, 64, "the number of partial checksums of 64 frames");
    });
}

/// The kernel counts a frame longer than a chunk together with frames that find no chunk. The port counts it as
/// `oversize`.
#[test]
fn frames_longer_than_a_chunk_are_counted_as_oversize() {
    alone("frames_longer_than_a_chunk_are_counted_as_oversize", || {
        for end in ["a0", "a1"] {
            ip(&format!("link set {end} mtu 3400")).expect("taken");
        }
        ip("address add 192.0.2.1/24 dev a0").expect("set");
        ip("neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a0").expect("set");
        let socket = std::net::UdpSocket::bind("192.0.2.1:7000").expect("an address");
        let pool = pool();
        for mode in ["native", "generic"] {
            let (mut port, counters) = open(&json!({ "interface": "a1", "mode": mode })).expect("opened");
            for _ in 0..5 {
                socket.send_to(&[1; 3_000], "192.0.2.2:7001").expect("sent");
            }
            socket.send_to(&[2; 33], "192.0.2.2:7001").expect("sent");
            assert!(next_udp(&mut port, &pool).ends_with(&[2; 33]), "{mode}: the earlier long frames are lost");
            port.check_interface(Ticks::ZERO);
            let counts = (counters.oversize.get(), counters.dropped.get(), counters.errors.get());
            assert_eq!(counts, (5, 5, 0), "{mode}");
            assert_eq!(port.close(), Ok(()));
            assert_eq!((counters.oversize.get(), counters.dropped.get()), (5, 5), "{mode}: counted once");
        }
    });
}

fn next_udp(port: &mut AfXdp, pool: &Pool) -> Vec<u8> {
    let (mut batch, start) = (Batch::with_capacity(8), Instant::now());
    while start.elapsed() < Duration::from_secs(20) {
        port.receive(&mut batch, &Intake { now: now(), pool, most: 8 });
        let found = batch.iter().map(|packet| packet.data()).find(|frame| {
            frame.get(12..14) == Some(&[8, 0])
                && frame.get(23) == Some(&17)
                && frame.get(36..38) == Some(&7001u16.to_be_bytes())
        });
        if let Some(frame) = found {
            return frame.to_vec();
        }
        batch.clear();
    }
    panic!("no UDP frame arrived")
}

/// One port receives all queues, each by its own socket with its own rings, in one memory.
#[test]
fn several_queues_come_in_by_one_port() {
    alone_with("numtxqueues 4 numrxqueues 4", "several_queues_come_in_by_one_port", || {
        ip("address add 192.0.2.1/24 dev a0").expect("set");
        ip("neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a0").expect("set");
        let mut around = around();
        let (mut port, counters) =
            open_in(&mut around, "in", &json!({ "interface": "a1", "mode": "native" })).expect("opened");
        assert_eq!(port.device.as_ref().expect("open").queues.len(), 4);
        let pool = pool();
        // The sender's hash determines the queue of each session.
        let sockets: Vec<_> =
            (0..64u16).map(|at| std::net::UdpSocket::bind(("192.0.2.1", 7_100 + at)).expect("free")).collect();
        let mut by_queue = [0usize; 4];
        for round in 0..8u8 {
            for socket in &sockets {
                socket.send_to(&[round; 20], "192.0.2.2:7001").expect("sent");
            }
            let device = port.device.as_mut().expect("open");
            let mut batch = Batch::with_capacity(MAX_BATCH);
            for (queue, count) in device.queues.iter_mut().zip(&mut by_queue) {
                queue.receive(&mut batch, MAX_BATCH, now());
                *count += batch.iter().filter(|packet| packet.data().get(12..14) == Some(&[8, 0])).count();
                batch.clear();
            }
            // The port itself reads all queues.
            for socket in &sockets {
                socket.send_to(&[round; 20], "192.0.2.2:7001").expect("sent");
            }
            (0..64).for_each(|_| drop(next_udp_of(&mut port, &pool)));
        }
        assert_eq!(by_queue.iter().sum::<usize>(), 8 * 64);
        assert!(by_queue.iter().filter(|count| **count > 0).count() > 1, "{by_queue:?}");
        // If a port uses only the first queue, the host receives the frames of the other queues.
        assert_eq!(port.close(), Ok(()));
        assert_eq!((counters.dropped.get(), counters.errors.get()), (0, 0));
        drop(port);
        let (port, _) = open_in(&mut around, "in", &json!({ "interface": "a1", "queues": 1 })).expect("opened");
        assert_eq!(port.device.as_ref().expect("open").queues.len(), 1);
    });
}

fn next_udp_of(port: &mut AfXdp, pool: &Pool) -> Vec<u8> {
    let (mut batch, start) = (Batch::with_capacity(1), Instant::now());
    while start.elapsed() < Duration::from_secs(20) {
        port.receive(&mut batch, &Intake { now: now(), pool, most: 1 });
        if let Some(packet) = batch.iter().find(|packet| packet.data().get(12..14) == Some(&[8, 0])) {
            return packet.data().to_vec();
        }
        batch.clear();
    }
    panic!("no frame arrived")
}
