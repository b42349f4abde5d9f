//! Tests the host's own network stack at an interface. By default, both the stack and the port receive every frame.
//! With `host: false`, the stack receives no frame.

use std::io::ErrorKind;

use etherparse::PacketBuilder;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::*;
use crate::af_packet::{filter, host};
use crate::interface::Control;

/// Returns a datagram with one byte for the socket of [`at_stack`].
fn datagram(number: u8) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0x0b], [2, 0, 0, 0, 0, 0x0a])
        .ipv4([192, 0, 2, 7], [192, 0, 2, 1], 64)
        .udp(7_000, 7_001);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[number]).expect("memory");
    frame
}

/// Returns a socket of the host's stack at `va`.
fn at_stack() -> UdpSocket {
    assert!(ip("addr add 192.0.2.1/24 dev va"));
    let socket = UdpSocket::bind("192.0.2.1:7001").expect("its address");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    socket
}

/// Returns the next byte that the host's stack receives.
fn next(socket: &UdpSocket) -> u8 {
    let mut byte = [0];
    assert_eq!(socket.recv(&mut byte).expect("it comes"), 1);
    byte[0]
}

/// Checks that the host's stack has received no more datagrams. A datagram that was sent before the last received byte
/// would have arrived by now.
fn has_no_more(socket: &UdpSocket) {
    socket.set_nonblocking(true).expect("a socket");
    assert_eq!(socket.recv(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).expect("a socket");
}

fn index() -> u32 {
    let name = "va".to_owned().try_into().expect("a name");
    Control::new().expect("a socket").index(&name).expect("the query succeeds").expect("it exists")
}

/// Opens a port to `va`. Returns `None`, and reports it, if a capability is missing.
fn port(test: &str, around: &mut SetupEnvironment, host: bool) -> Option<Bench> {
    match open_in(around, "it", &json!({ "interface": "va", "host": host })) {
        Ok(port) => {
            let mut bench = Bench::over(port);
            assert_eq!(bench.take(), Vec::<Vec<u8>>::new());
            Some(bench)
        }
        Err(error) if error.to_string().contains("needs the capabilities") => {
            skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_host_gets_no_frame_as_long_as_the_port_is_open() {
    const TEST: &str = "af_packet: the_host_gets_no_frame";
    with_pair(TEST, || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let stack = at_stack();
        let mut around = environment();
        let Some(mut a) = port(TEST, &mut around, true) else { return };
        assert_eq!(b.send(&[datagram(1)]), 0);
        assert_eq!((next(&stack), a.await_frames(1)), (1, vec![datagram(1)]), "both receive it");
        // The next port with this name takes over while packets run.
        let Some(mut next_one) = port(TEST, &mut around, false) else { return };
        assert_eq!(a.port.close(), Ok(()));
        assert_eq!(b.send(&[datagram(2)]), 0);
        assert_eq!(next_one.await_frames(1), [datagram(2)], "only the port receives it");
        // A rejected change, or a change of another parameter, leaves the exclusion as it is.
        drop(open_in(&mut around, "it", &json!({ "interface": "va" })).expect("a port"));
        let Some(mut last) = port(TEST, &mut around, false) else { return };
        assert_eq!(next_one.port.close(), Ok(()));
        drop(next_one);
        assert_eq!(b.send(&[datagram(3)]), 0);
        assert_eq!(last.await_frames(1), [datagram(3)]);
        assert_eq!(last.port.close(), Ok(()));
        assert_eq!(b.send(&[datagram(4)]), 0);
        assert_eq!(next(&stack), 4, "2 and 3 must not arrive");
        has_no_more(&stack);
    });
}

#[test]
fn a_recreated_interface_is_kept_from_the_host_again() {
    const TEST: &str = "af_packet: a_recreated_interface";
    with_pair(TEST, || {
        let Some(mut a) = port(TEST, &mut environment(), false) else { return };
        assert!(ip("link del va"));
        assert!(a.wait(|a| {
            a.take();
            a.counters.errors.get() == 1
        }));
        assert!(crate::interface::testing::make_pair());
        let stack = at_stack();
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        // The host receives the frames until the port detects that the interface exists again.
        assert!(a.wait(|a| {
            b.send(&[datagram(1)]);
            !a.take().is_empty()
        }));
        assert_eq!((b.send(&[datagram(255)]), a.counters.errors.get()), (0, 1));
        assert!(a.wait(|a| a.take().contains(&datagram(255))));
        assert_eq!(a.port.close(), Ok(()));
        assert_eq!(b.send(&[datagram(254)]), 0);
        let came = std::iter::repeat_with(|| next(&stack)).find(|byte| *byte > 1).expect("more datagrams arrive");
        assert_eq!(came, 254, "the host must not receive 255");
    });
}

/// Runs a part of a test without the capabilities to attach programs to an interface. The thread gets them back
/// afterwards.
fn without_rights<T>(run: impl FnOnce() -> T) -> T {
    let before = capabilities(None).expect("capabilities");
    let some = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { effective: before.effective - some, ..before })
        .expect("fewer capabilities");
    let done = run();
    set_capabilities(None, before).expect("the capabilities as before");
    done
}

/// Regression test: after a failure, the host received the interface's frames for good.
#[test]
fn an_interface_that_is_not_kept_from_the_host_is_tried_again() {
    const TEST: &str = "af_packet: an_interface_that_is_not_kept";
    with_pair(TEST, || {
        let Some(mut a) = port(TEST, &mut environment(), false) else { return };
        let fail = |a: &mut Bench| {
            let before = a.counters.errors.get();
            let mut wait = |count| {
                a.wait(|a| {
                    a.take();
                    a.counters.errors.get() == before + count
                })
            };
            assert!(ip("link del va") && wait(1), "the interface is gone");
            assert!(crate::interface::testing::make_pair());
            without_rights(|| assert!(wait(2), "excluding the host fails"));
        };
        fail(&mut a);
        let stack = at_stack();
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        assert_eq!(b.send(&[datagram(1)]), 0);
        assert_eq!(next(&stack), 1);
        without_rights(|| {
            for _ in 0..3 {
                a.port.check_interface(Tsc.now());
            }
        });
        assert_eq!(a.counters.errors.get(), 2, "counted once");
        a.port.check_interface(Tsc.now());
        assert_eq!((b.send(&[datagram(2)]), a.counters.errors.get()), (0, 2));
        assert!(a.wait(|a| a.take().contains(&datagram(2))));
        has_no_more(&stack);
        drop((stack, b));
        fail(&mut a);
        let fault = a.port.close().expect_err("the host gets the frames");
        assert!(fault.contains("since the interface was recreated: ") && fault.contains("CAP_BPF"), "{fault}");
    });
}

/// Kernels before 6.6 need this filter, and a killed process leaves it behind.
#[test]
fn a_leftover_filter_is_removed_by_the_next_port() {
    const TEST: &str = "af_packet: a_leftover_filter";
    with_pair(TEST, || {
        let mut b = Bench::new(&json!({ "interface": "vb" }));
        let stack = at_stack();
        let filter = match host::exclude_by_filter(index()) {
            Ok(filter) => filter,
            Err(error) => return skip(TEST, &format!("no traffic control filter can be created: {error}")),
        };
        let Some(mut witness) = port(TEST, &mut environment(), true) else { return };
        // The process of the filter is alive. The filter could belong to a port of another process, so it is kept.
        assert!(!filter::remove_leftover(index()));
        assert!(host::exclude_by_filter(index()).is_err(), "a live filter is not replaced");
        assert_eq!(b.send(&[datagram(1)]), 0);
        assert_eq!(witness.await_frames(1), [datagram(1)]);
        drop(filter);
        filter::await_no_owner(index());
        assert_eq!(b.send(&[datagram(2)]), 0);
        assert_eq!(next(&stack), 2, "datagram 1 is dropped, datagram 2 is not");
        // A killed process does not remove its filter; another process replaces it.
        host::exclude_by_filter(index()).expect("as before").leave_behind();
        let again = host::exclude_by_filter(index()).expect("in its place");
        assert_eq!(b.send(&[datagram(3)]), 0);
        assert!(witness.wait(|witness| witness.take().contains(&datagram(3))));
        drop(again);
        filter::await_no_owner(index());
        assert_eq!(b.send(&[datagram(4)]), 0);
        assert_eq!(next(&stack), 4, "the only filter is gone");
        host::exclude_by_filter(index()).expect("as before").leave_behind();
        assert_eq!(witness.port.close(), Ok(()));
        let Some(mut a) = port(TEST, &mut environment(), true) else { return };
        assert_eq!(b.send(&[datagram(5)]), 0);
        assert_eq!((next(&stack), a.await_frames(1)), (5, vec![datagram(5)]));
        has_no_more(&stack);
    });
}
