//! Chunks and addresses of every shape, and what a kernel does with them.

use std::sync::Arc;

use forebay_packet::Ticks;

use super::*;
use crate::af_xdp::ring::Descriptor;

const SHAPES: [Shape; 5] = [
    Shape { chunks: 100, frame: 2_048, aligned: false },
    Shape { chunks: 100, frame: 64, aligned: false },
    Shape { chunks: 100, frame: Shape::longest(false), aligned: false },
    Shape { chunks: 100, frame: 1_728, aligned: true },
    Shape { chunks: 100, frame: Shape::longest(true), aligned: true },
];

#[test]
fn a_chunk_holds_the_frame_and_lies_as_the_kernel_wants_it() {
    for shape in SHAPES {
        let umem = Umem::new(shape).expect("memory");
        assert!(umem.pool().frame_limit() >= shape.frame, "{shape:?}");
        let told = umem.registration();
        assert!((2_048..=4_096).contains(&told.chunk_size) && told.addr.is_multiple_of(4_096));
        assert_eq!(told.len, umem.stride * 100);
        if shape.aligned {
            assert!(told.chunk_size.is_power_of_two() && umem.stride == u64::from(told.chunk_size));
        } else {
            assert_eq!(umem.stride / 64 % 2, 1, "an odd number of lines");
        }
        // The frame that the kernel puts behind both headrooms is where a fresh packet has its own.
        let first = umem.lead + u64::from(told.headroom) + HEADROOM as u64;
        assert_eq!(umem.pool().take().expect("one").start() as u64, first);
    }
}

#[test]
fn addresses_are_read_as_they_are_written_and_others_are_none() {
    for shape in SHAPES {
        let umem = Umem::new(shape).expect("memory");
        for index in 0..100 {
            for start in [umem.lead as usize, 64, 300, shape.chunk()] {
                let start = start.min(umem.stride as usize - 1);
                assert_eq!(umem.decode(umem.encode(index, start)), Some((index, start)));
            }
            assert_eq!(umem.index_of(umem.chunk(index)), index);
        }
        for outside in [umem.encode(100, 64), umem.stride * 100, ADDRESS, u64::MAX] {
            assert_eq!(umem.decode(outside), None);
        }
    }
}

/// What a kernel does in its good and bad hours: nothing comes back twice, and all of it comes home.
#[test]
fn what_is_lent_comes_back_once_and_home_at_the_end() {
    for shape in SHAPES {
        let umem = Arc::new(Umem::new(shape).expect("memory"));
        let mut lent = Lent::new(Arc::clone(&umem));
        let mut addresses = Vec::new();
        assert_eq!(lent.lend_free(60, |address| addresses.push(address)), 60);
        assert_eq!(lent.lend_free(60, |address| addresses.push(address)), 40);
        assert_eq!((lent.count(), umem.pool().out()), (100, 100));
        let frame = |address: u64, len| {
            let (index, _) = umem.decode(address).expect("ours");
            Descriptor { address: umem.encode(index, 64 + HEADROOM), len, options: 0 }
        };
        let packet = lent.packet(frame(addresses[0], 60), Ticks(3)).expect("it was lent");
        assert_eq!((packet.len(), packet.headroom(), packet.arrival()), (60, HEADROOM, Ticks(3)));
        assert!(lent.packet(frame(addresses[0], 60), Ticks(3)).is_none(), "twice");
        assert!(lent.packet(frame(addresses[1], 9_999), Ticks(3)).is_none(), "longer than a chunk");
        assert!(!lent.sent(addresses[1]), "twice");
        assert_eq!(lent.count(), 98);
        let back = lent.lend_packet(packet).expect("of this memory");
        assert_eq!((back, lent.count()), (frame(addresses[0], 60), 99));
        assert!(lent.sent(back.address) && !lent.sent(back.address));
        assert!(!lent.sent(u64::MAX));
        // SAFETY: there is no socket at all.
        unsafe { lent.reclaim(false) };
        umem.pool().flush();
        assert_eq!((lent.count(), umem.pool().out()), (0, 0));
        let other = Pool::new(Default::default()).expect("memory").take().expect("one");
        assert!(lent.lend_packet(other).is_err());
    }
}

/// A port received as many frames as it had given the kernel chunks for at its start, and none after them: an optimised build did
/// not count what came back (`regain` says why). It shows with `cargo test --release` alone.
#[test]
fn what_comes_back_in_a_loop_is_counted() {
    let umem = Arc::new(Umem::new(SHAPES[0]).expect("memory"));
    let mut lent = Lent::new(Arc::clone(&umem));
    let mut descriptors = Vec::new();
    lent.lend_free(100, |address| {
        let (index, _) = umem.decode(address).expect("ours");
        descriptors.push(Descriptor { address: umem.encode(index, 64 + HEADROOM), len: 60, options: 0 });
    });
    descriptors.push(descriptors[0]);
    let (mut packets, mut strange) = (forebay_packet::Batch::with_capacity(200), 0);
    for descriptor in std::hint::black_box(&descriptors) {
        match lent.packet(*descriptor, Ticks(3)) {
            Some(packet) => _ = packets.push(packet),
            None => strange += 1,
        }
    }
    assert_eq!((lent.count(), packets.len(), strange), (0, 100, 1));
}

#[test]
fn a_quarter_of_the_memory_is_promised_to_nobody() {
    let umem = Umem::new(SHAPES[0]).expect("memory");
    assert_eq!(umem.promise(50), Ok(()));
    assert_eq!(umem.promise(26), Err(25));
    umem.release(50);
    assert_eq!(umem.promise(75), Ok(()));
}
