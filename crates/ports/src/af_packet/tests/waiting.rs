//! Tests the descriptor on which a parked worker waits for frames.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Waits until the port's descriptor is readable, for at most `seconds`. Returns true if the descriptor is readable.
fn is_readable(port: &AfPacket, seconds: i64) -> bool {
    let Waits::On(inputs) = port.wait_on() else { panic!("an open port has a descriptor") };
    let mut inputs: Vec<_> = inputs.iter().map(|input| PollFd::new(input, PollFlags::IN)).collect();
    poll(&mut inputs, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).expect("a valid descriptor") > 0
}

#[test]
fn the_descriptor_is_readable_while_frames_wait() {
    with_pair("af_packet: the_descriptor_is_readable_while_frames_wait", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        for number in 0..3 {
            assert!(!is_readable(&a.port, 0), "no frame waits");
            let sent = frame(number, 60);
            assert_eq!(b.send(&[&sent]), 0);
            assert!(is_readable(&a.port, 20), "a frame waits");
            assert_eq!(a.take(), [sent]);
        }
        let intake = Intake { now: Tsc.now(), pool: &a.pool, most: 32 };
        assert!(matches!(a.port.receive(&mut a.batch, &intake), Ready::Input(_)), "the port waits for frames");
        assert_eq!(a.port.close(), Ok(()));
        assert!(matches!(a.port.wait_on(), Waits::None), "closed");
    });
}
