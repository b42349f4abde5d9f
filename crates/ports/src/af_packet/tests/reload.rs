//! Tests that a port takes over an interface from another port, with the frames that wait in its ring.

use super::*;

fn bench(around: &mut SetupEnvironment, name: &str, params: &Value) -> Bench {
    Bench::over(open_in(around, name, params).expect("a port"))
}

#[test]
fn no_frame_is_lost_or_duplicated_when_a_port_takes_over() {
    with_pair("af_packet: no_frame_is_lost_or_duplicated", || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let mut around = environment();
        let mut first = bench(&mut around, "it", &json!({ "interface": "va" }));
        first.take();
        let taken = open_in(&mut around, "other", &json!({ "interface": "va" })).err().expect("refused").to_string();
        assert!(taken.starts_with("interface: the interface 'va' is in use by the port 'it'"), "{taken}");
        let all: Vec<_> = (0..400).map(|number| frame(number, 60)).collect();
        let mut received = Vec::new();
        let others = [
            // The same ring, then rings of other sizes.
            json!({ "interface": "va", "poll": "1ms", "promiscuous": false }),
            json!({ "interface": "va", "ring": { "blocks": 8, "block": "64KiB" } }),
            json!({ "interface": "va", "ring": { "blocks": 16, "block": "4KiB", "retire": "2ms" } }),
        ];
        for (round, other) in others.iter().enumerate() {
            assert_eq!(b.send(&all[round * 100..][..50]), 0);
            received.extend(first.take());
            // A change that is finally rejected leaves the port as it was.
            drop(open_in(&mut around, "it", &json!({ "interface": "va", "ring": { "blocks": 3 } })).expect("a port"));
            let mut second = bench(&mut around, "it", other);
            received.extend(first.take());
            assert_eq!(b.send(&all[round * 100 + 50..][..50]), 0);
            received.extend(second.take());
            assert_eq!(first.port.close(), Ok(()));
            drop(first);
            second.wait(|second| {
                received.extend(second.take());
                received.len() >= (round + 1) * 100
            });
            assert_eq!(second.counters.dropped.get() + second.counters.errors.get(), 0);
            first = second;
        }
        assert!(received == all[..300], "{} of 300", received.len());
        // No more frames come from the previous rings.
        assert_eq!(b.send(&all[300..]), 0);
        assert!(first.await_frames(100) == all[300..]);
        assert_eq!(first.port.close(), Ok(()));
        drop(first);
        // No port uses the interface any more.
        assert!(open_in(&mut around, "other", &json!({ "interface": "va" })).is_ok());
    });
}

/// Frames that wait in rings that were handed over are counted once, by the last port that has the rings. This includes
/// rings of another size.
#[test]
fn frames_in_a_ring_at_the_end_are_counted_once_after_several_reloads() {
    with_pair("af_packet: frames_in_a_ring_at_the_end_are_counted_once", || {
        for ring in [json!({ "blocks": 64 }), json!({ "blocks": 8 })] {
            let mut b = Bench::new(&json!({ "interface": "vb" }));
            let mut around = environment();
            let mut first = bench(&mut around, "it", &json!({ "interface": "va", "ring": { "blocks": 64 } }));
            first.take();
            assert_eq!(b.send(&(0..30).map(|number| frame(number, 60)).collect::<Vec<_>>()), 0);
            let mut second = bench(&mut around, "it", &json!({ "interface": "va", "ring": ring }));
            let mut received = second.take().len();
            assert_eq!(first.port.close(), Ok(()));
            assert_eq!(b.send(&(30..50).map(|number| frame(number, 60)).collect::<Vec<_>>()), 0);
            received += second.take().len();
            // A port that has not received yet ends first.
            let mut third = bench(&mut around, "it", &json!({ "interface": "va", "ring": ring }));
            assert_eq!(third.port.close(), Ok(()));
            assert_eq!((first.counters.dropped.get(), third.counters.dropped.get()), (0, 0));
            assert_eq!(second.port.close(), Ok(()));
            assert_eq!(received as u64 + second.counters.dropped.get(), 50);
        }
    });
}

#[test]
fn ports_can_be_replaced_before_their_rings_are_empty() {
    with_pair("af_packet: ports_can_be_replaced", || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let mut around = environment();
        let ring = |blocks: u32| json!({ "interface": "va", "ring": { "blocks": blocks } });
        let mut ports = vec![bench(&mut around, "it", &ring(4))];
        ports[0].take();
        let all: Vec<_> = (0..40).map(|number| frame(number, 60)).collect();
        let mut received = Vec::new();
        for (round, some) in all.chunks(10).enumerate() {
            assert_eq!(b.send(some), 0);
            let mut next = bench(&mut around, "it", &ring(5 + round as u32));
            received.extend(next.take());
            ports.push(next);
        }
        let mut last = ports.pop().expect("the last");
        drop(ports);
        last.wait(|last| {
            received.extend(last.take());
            received.len() >= 40
        });
        assert!(received == all, "{} of {}", received.len(), all.len());
    });
}
