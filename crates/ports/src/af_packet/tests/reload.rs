//! A port takes an interface over from the one before it, with what waits in its ring.

use super::*;

fn bench(around: &mut Surroundings, name: &str, params: &Value) -> Bench {
    Bench::over(open_in(around, name, params).expect("a port"))
}

#[test]
fn nothing_is_lost_or_doubled_where_a_port_takes_over() {
    with_pair("af_packet: nothing_is_lost_or_doubled", || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let mut around = surroundings();
        let mut first = bench(&mut around, "it", &json!({ "interface": "va" }));
        first.take();
        let taken = open_in(&mut around, "other", &json!({ "interface": "va" })).err().expect("refused").to_string();
        assert!(taken.starts_with("interface: the interface 'va' is in use by the port 'it'"), "{taken}");
        let all: Vec<_> = (0..400).map(|number| frame(number, 60)).collect();
        let mut received = Vec::new();
        let others = [
            // The same ring, then others.
            json!({ "interface": "va", "poll": "1ms", "promiscuous": false }),
            json!({ "interface": "va", "ring": { "blocks": 8, "block": "64KiB" } }),
            json!({ "interface": "va", "ring": { "blocks": 16, "block": "4KiB", "retire": "2ms" } }),
        ];
        for (round, other) in others.iter().enumerate() {
            assert_eq!(b.send(&all[round * 100..][..50]), 0);
            received.extend(first.take());
            // A change that is refused after all leaves it as it was.
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
        // Nothing of the rings before comes any more.
        assert_eq!(b.send(&all[300..]), 0);
        assert!(first.await_frames(100) == all[300..]);
        assert_eq!(first.port.close(), Ok(()));
        drop(first);
        // Nobody has it any more.
        assert!(open_in(&mut around, "other", &json!({ "interface": "va" })).is_ok());
    });
}

/// What waits in rings that were handed over is counted by the last port that has them, and by that one alone; those in a ring of
/// another size, too.
#[test]
fn what_is_left_at_the_end_is_counted_once_however_often_the_ring_was_handed_over() {
    with_pair("af_packet: what_is_left_at_the_end_is_counted_once", || {
        for ring in [json!({ "blocks": 64 }), json!({ "blocks": 8 })] {
            let mut b = Bench::new(&json!({ "interface": "vb" }));
            let mut around = surroundings();
            let mut first = bench(&mut around, "it", &json!({ "interface": "va", "ring": { "blocks": 64 } }));
            first.take();
            assert_eq!(b.send(&(0..30).map(|number| frame(number, 60)).collect::<Vec<_>>()), 0);
            let mut second = bench(&mut around, "it", &json!({ "interface": "va", "ring": ring }));
            let mut received = second.take().len();
            assert_eq!(first.port.close(), Ok(()));
            assert_eq!(b.send(&(30..50).map(|number| frame(number, 60)).collect::<Vec<_>>()), 0);
            received += second.take().len();
            // One that has not been asked for anything yet ends first.
            let mut third = bench(&mut around, "it", &json!({ "interface": "va", "ring": ring }));
            assert_eq!(third.port.close(), Ok(()));
            assert_eq!((first.counters.dropped.get(), third.counters.dropped.get()), (0, 0));
            assert_eq!(second.port.close(), Ok(()));
            assert_eq!(received as u64 + second.counters.dropped.get(), 50);
        }
    });
}

#[test]
fn two_are_changed_into_a_third_before_their_rings_are_empty() {
    with_pair("af_packet: two_are_changed_into_a_third", || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let mut around = surroundings();
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
